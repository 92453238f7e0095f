//! Plain-text tables and durations for terminal output.

use std::fmt::Write as _;
use std::time::Duration;

/// The alignment of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
}

/// Renders rows in columns as wide as their widest cell, under a ruled head.
pub(crate) fn render(head: &[(&str, Align)], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        cells.chain([head[column].0.chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let mut text = String::new();
    let titles: Vec<String> = head.iter().map(|(title, _)| (*title).to_owned()).collect();
    let rule: Vec<String> = widths.iter().map(|width| "─".repeat(*width)).collect();
    for row in [&titles, &rule].into_iter().chain(rows) {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate().take(head.len()) {
            let pad = " ".repeat(widths[column].saturating_sub(cell.chars().count()));
            match head[column].1 {
                Align::Left => write!(line, "{cell}{pad}  "),
                Align::Right => write!(line, "{pad}{cell}  "),
            }
            .expect("a string takes all");
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// Formats a duration: `0.4 s`, `12 s`, `3 min 5 s`, `2 h 4 min`.
pub(crate) fn duration(duration: Duration) -> String {
    let seconds = duration.as_secs_f64();
    if seconds < 9.95 {
        return format!("{seconds:.1} s");
    }
    let whole = seconds.round() as u64;
    match (whole / 3600, whole / 60 % 60, whole % 60) {
        (0, 0, s) => format!("{s} s"),
        (0, min, 0) => format!("{min} min"),
        (0, min, s) => format!("{min} min {s} s"),
        (h, min, _) => format!("{h} h {min} min"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = vec![
            vec!["clippy".to_owned(), "1".to_owned()],
            vec!["µ".to_owned(), "1000".to_owned()],
        ];
        let text = render(&[("step", Align::Left), ("n", Align::Right)], &rows);
        assert_eq!(text, "step       n\n──────  ────\nclippy     1\nµ       1000\n");
    }

    #[test]
    fn a_short_row_is_drawn_as_far_as_it_goes() {
        let text = render(&[("a", Align::Left), ("b", Align::Left)], &[vec!["x".to_owned()]]);
        assert_eq!(text, "a  b\n─  ─\nx\n");
    }

    #[test]
    fn durations_read_like_speech() {
        let said = |millis| duration(Duration::from_millis(millis));
        assert_eq!(said(0), "0.0 s");
        assert_eq!(said(440), "0.4 s");
        assert_eq!(said(9_949), "9.9 s");
        assert_eq!(said(9_960), "10 s");
        assert_eq!(said(59_700), "1 min");
        assert_eq!(said(723_000), "12 min 3 s");
        assert_eq!(said(7_440_000), "2 h 4 min");
    }
}

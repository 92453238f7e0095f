//! Renders the rows of a terminal as an animated SVG: each row appears at its time, and the view follows the last one.

use std::fmt::Write as _;
use std::time::Duration;

use super::Row;

/// Number of visible rows.
const SEEN: usize = 26;
const FONT: f64 = 14.0;
const CELL: f64 = 8.43;
const LINE: f64 = 20.0;
const EDGE: f64 = 16.0;
/// Pause at the end before the animation repeats.
const REST: Duration = Duration::from_secs(6);

/// Text with one style.
#[derive(Debug, PartialEq)]
pub(super) struct StyledRun {
    column: u16,
    text: String,
    colour: &'static str,
    bold: bool,
}

/// The text of a row, split by style.
pub(super) fn stretches(screen: &vt100::Screen, row: u16, columns: u16) -> Vec<StyledRun> {
    let mut found: Vec<StyledRun> = Vec::new();
    for column in 0..columns {
        let Some(cell) = screen.cell(row, column) else { continue };
        if !cell.has_contents() || cell.is_wide_continuation() {
            continue;
        }
        let (colour, bold) = (colour(cell), cell.bold());
        let ends_at = |last: &StyledRun| {
            usize::from(last.column) + last.text.chars().count() == usize::from(column)
        };
        match found.last_mut() {
            Some(last) if last.colour == colour && last.bold == bold && ends_at(last) => {
                last.text.push_str(cell.contents());
            }
            _ => found.push(StyledRun { column, text: cell.contents().to_owned(), colour, bold }),
        }
    }
    found.retain(|stretch| !stretch.text.trim().is_empty());
    found
}

fn colour(cell: &vt100::Cell) -> &'static str {
    match cell.fgcolor() {
        _ if cell.dim() => "#8b949e",
        vt100::Color::Idx(1 | 9) => "#ff7b72",
        vt100::Color::Idx(2 | 10) => "#7ee787",
        vt100::Color::Idx(3 | 11) => "#e3b341",
        vt100::Color::Idx(4 | 12) => "#79c0ff",
        vt100::Color::Idx(5 | 13) => "#d2a8ff",
        vt100::Color::Idx(6 | 14) => "#76e3ea",
        vt100::Color::Idx(8) => "#8b949e",
        _ => "#e6edf3",
    }
}

/// The complete SVG.
pub(super) fn moving(rows: &[Row], length: Duration, columns: u16) -> String {
    let whole = length + REST;
    let percent = |at: Duration| 100.0 * at.as_secs_f64() / whole.as_secs_f64();
    let width = CELL.mul_add(f64::from(columns), 2.0 * EDGE);
    let height = LINE.mul_add(as_f64(SEEN), 2.0 * EDGE);
    let seconds = whole.as_secs_f64();
    let mut style = format!(
        "text{{font:{FONT}px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;\
         white-space:pre;animation:{seconds:.1}s step-end infinite}}\
         #all{{animation:scroll {seconds:.1}s step-end infinite}}"
    );
    let mut scroll = String::from("@keyframes scroll{0%{transform:none}");
    let mut body = String::new();
    for (index, row) in rows.iter().enumerate() {
        let at = percent(row.at);
        if index >= SEEN {
            let up = LINE * as_f64(index + 1 - SEEN);
            let _ = write!(scroll, "{at:.2}%{{transform:translateY(-{up}px)}}");
        }
        if row.runs.is_empty() {
            continue;
        }
        let _ = write!(style, "@keyframes r{index}{{0%{{opacity:0}}{at:.2}%{{opacity:1}}}}");
        let y = LINE.mul_add(as_f64(index) + 1.0, EDGE - 5.0);
        let _ = write!(body, "<text y=\"{y}\" style=\"animation-name:r{index}\">");
        for run in &row.runs {
            let x = CELL.mul_add(f64::from(run.column), EDGE);
            let bold = if run.bold { " font-weight=\"bold\"" } else { "" };
            let text = escaped(&run.text);
            let _ =
                write!(body, "<tspan x=\"{x:.1}\" fill=\"{}\"{bold}>{text}</tspan>", run.colour);
        }
        body.push_str("</text>\n");
    }
    scroll.push('}');
    // With reduced motion the picture shows the end, which has the result.
    let hidden = LINE * as_f64(rows.len().saturating_sub(SEEN));
    let still = format!(
        "@media(prefers-reduced-motion:reduce){{text,#all{{animation:none!important}}\
         #all{{transform:translateY(-{hidden}px)}}}}"
    );
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" \
         height=\"{height:.0}\" role=\"img\" aria-label=\"budao demo in a terminal\">\n\
         <style>{style}{scroll}{still}</style>\n\
         <clipPath id=\"seen\"><rect y=\"{EDGE}\" width=\"100%\" height=\"{:.0}\"/></clipPath>\n\
         <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"#0d1117\"/>\n\
         <g clip-path=\"url(#seen)\"><g id=\"all\">\n{body}</g></g>\n</svg>\n",
        LINE * as_f64(SEEN)
    )
}

#[expect(clippy::cast_precision_loss, reason = "rows are few")]
fn as_f64(count: usize) -> f64 {
    count as f64
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn screen(text: &str) -> vt100::Parser {
        let [rows, columns] = [4, 20].map(|size| size.try_into().unwrap());
        let mut terminal = vt100::Parser::new(rows, columns, 0);
        terminal.process(text.as_bytes());
        terminal
    }

    #[test]
    fn a_row_is_cut_where_its_look_changes() {
        let terminal = screen("plain \x1b[31mred\x1b[0m <b>");
        let found = stretches(terminal.screen(), 0, 20);
        let texts: Vec<&str> = found.iter().map(|stretch| stretch.text.as_str()).collect();
        assert_eq!(texts, ["plain ", "red", " <b>"]);
        assert_eq!(found[1].colour, "#ff7b72");
    }

    #[test]
    fn a_row_appears_when_it_came_and_nothing_of_it_is_markup() {
        let terminal = screen("a <b>&");
        let runs = stretches(terminal.screen(), 0, 20);
        let rows = [Row { at: Duration::from_secs(2), runs }];
        let svg = moving(&rows, Duration::from_secs(4), 20);
        assert!(svg.contains("@keyframes r0{0%{opacity:0}20.00%{opacity:1}}"), "{svg}");
        assert!(svg.contains("a &lt;b&gt;&amp;"), "{svg}");
    }
}

//! Charts of cost against size: a line on two logarithmic axes. Flat is a cost that size does not change; a slope of one is
//! a cost that grows with it.

use std::fmt::Write as _;

use super::{BenchLine, STYLE, number};

/// One chart: the rows whose bench begins with `rows`; the rest of their name is the size.
struct LineChart {
    file: &'static str,
    title: &'static str,
    rows: &'static str,
    /// The label of the horizontal axis.
    size: &'static str,
}

const CHARTS: &[LineChart] = &[
    LineChart {
        file: "growth-turns",
        title: "CPU time of a turn in a session of so many turns",
        rows: "growth/turns_",
        size: "turns",
    },
    LineChart {
        file: "growth-sessions",
        title: "CPU time of one session more in a file of so many",
        rows: "growth/sessions_",
        size: "sessions",
    },
    LineChart {
        file: "growth-observers",
        title: "CPU time of a server for one delivery to so many observers",
        rows: "growth/observers_",
        size: "observers",
    },
    LineChart {
        file: "growth-tools",
        title: "CPU time of a turn with so many tools",
        rows: "growth/tools_",
        size: "tools",
    },
    LineChart {
        file: "growth-results",
        title: "CPU time of a turn with a tool result of so many bytes",
        rows: "growth/results_",
        size: "bytes",
    },
];

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 320.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = WIDTH - 40.0;
const TOP: f64 = 56.0;
const BOTTOM: f64 = HEIGHT - 52.0;

/// A logarithmic axis over whole powers of ten.
struct Axis {
    powers: (i32, i32),
    ends: (f64, f64),
}

impl Axis {
    fn over(values: impl Iterator<Item = f64> + Clone, ends: (f64, f64)) -> Self {
        let least = values.clone().fold(f64::INFINITY, f64::min).log10().floor() as i32;
        let most = values.fold(0.0, f64::max).log10().ceil() as i32;
        Self { powers: (least, most.max(least + 1)), ends }
    }

    fn place(&self, value: f64) -> f64 {
        let (least, most) = (f64::from(self.powers.0), f64::from(self.powers.1));
        let part = ((value.log10() - least) / (most - least)).clamp(0.0, 1.0);
        self.ends.0 + (self.ends.1 - self.ends.0) * part
    }

    /// Places of the powers of ten, with their labels.
    fn ticks(&self) -> impl Iterator<Item = (f64, String)> {
        (self.powers.0..=self.powers.1).map(|power| {
            let value = 10_f64.powi(power);
            let label = number(value);
            let label = label.trim_end_matches(".00").trim_end_matches(".0");
            (self.place(value).round(), label.to_owned())
        })
    }
}

/// The charts of which this run has at least two sizes: file name and SVG.
pub(super) fn drawn(rows: &[BenchLine]) -> Vec<(String, String)> {
    CHARTS
        .iter()
        .filter_map(|chart| {
            let points = points(chart, rows);
            (points.len() > 1).then(|| (chart.file.to_owned(), svg(chart, &points)))
        })
        .collect()
}

/// The rows of a chart by size. A cost of nothing has no place on a logarithmic axis.
fn points<'a>(chart: &LineChart, rows: &'a [BenchLine]) -> Vec<(f64, &'a BenchLine)> {
    let size = |row: &BenchLine| row.bench.strip_prefix(chart.rows)?.parse::<f64>().ok();
    let mut points: Vec<_> = rows
        .iter()
        .filter_map(|row| Some((size(row).filter(|size| *size >= 1.0)?, row)))
        .filter(|(_, row)| row.value > 0.0)
        .collect();
    points.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    points
}

fn svg(chart: &LineChart, points: &[(f64, &BenchLine)]) -> String {
    let across = Axis::over(points.iter().map(|(size, _)| *size), (LEFT, RIGHT));
    let up = Axis::over(points.iter().map(|(_, row)| row.value), (BOTTOM, TOP));
    let LineChart { title, size, .. } = chart;
    let unit = points.first().map_or("", |(_, row)| row.unit.as_str());
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" \
         height=\"{HEIGHT}\" role=\"img\" aria-label=\"{title}\">\n<style>{STYLE}{LINE_STYLE}</style>\n\
         <text x=\"12\" y=\"24\" class=\"title\">{title} ({unit})</text>\n"
    );
    let mut say = |line: String| writeln!(text, "{line}").expect("a string takes all");
    for (x, label) in across.ticks() {
        say(format!("<line x1=\"{x}\" x2=\"{x}\" y1=\"{TOP}\" y2=\"{BOTTOM}\" class=\"grid\"/>"));
        say(format!("<text x=\"{x}\" y=\"{}\" class=\"tick\">{label}</text>", BOTTOM + 18.0));
    }
    for (y, label) in up.ticks() {
        say(format!("<line x1=\"{LEFT}\" x2=\"{RIGHT}\" y1=\"{y}\" y2=\"{y}\" class=\"grid\"/>"));
        let (x, y) = (LEFT - 8.0, y + 4.0);
        say(format!("<text x=\"{x}\" y=\"{y}\" class=\"tick side\">{label}</text>"));
    }
    let middle = f64::midpoint(LEFT, RIGHT);
    say(format!("<text x=\"{middle}\" y=\"{}\" class=\"tick\">{size}</text>", BOTTOM + 40.0));
    let places: Vec<(f64, f64)> =
        points.iter().map(|(size, row)| (across.place(*size), up.place(row.value))).collect();
    let path: Vec<String> = places.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    say(format!("<polyline points=\"{}\" class=\"ours\"/>", path.join(" ")));
    for ((x, y), (_, row)) in places.iter().zip(points) {
        say(format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\" class=\"ours\"/>"));
        let (y, value) = (y - 9.0, number(row.value));
        say(format!("<text x=\"{x:.1}\" y=\"{y:.1}\" class=\"point\">{value}</text>"));
    }
    text.push_str("</svg>\n");
    text
}

const LINE_STYLE: &str = "\
.tick.side{text-anchor:end}.point{text-anchor:middle;font-size:12px}\
polyline.ours{fill:none;stroke:#b3341f;stroke-width:2}circle.ours{fill:#b3341f}\
@media(prefers-color-scheme:dark){polyline.ours{stroke:#f0705a}circle.ours{fill:#f0705a}}";

#[cfg(test)]
mod tests {
    use super::*;

    fn row(size: u32, value: f64) -> BenchLine {
        let text = format!(r#"{{"bench":"growth/turns_{size}","value":{value},"unit":"µs CPU"}}"#);
        serde_json::from_str(&text).unwrap()
    }

    fn places(rows: &[BenchLine]) -> Vec<(f64, f64)> {
        let (_, svg) = drawn(rows).pop().expect("a chart");
        let line = svg.lines().find(|line| line.starts_with("<polyline")).expect("a line");
        let points = line.split('"').nth(1).expect("its points").split(' ');
        let place = |point: &str| {
            let (x, y) = point.split_once(',')?;
            Some((x.parse().ok()?, y.parse().ok()?))
        };
        points.map(|point| place(point).expect("two numbers")).collect()
    }

    #[test]
    fn a_cost_that_does_not_grow_is_a_level_line_in_equal_steps() {
        let line = places(&[row(100, 27.0), row(1, 27.0), row(10, 27.0)]);
        assert_eq!(line.len(), 3);
        assert!(line.iter().all(|(_, y)| *y == line[0].1), "{line:?}");
        assert!((line[2].0 - 2.0 * line[1].0 + line[0].0).abs() < 0.2, "{line:?}");
        assert_eq!((line[0].0, line[2].0), (LEFT, RIGHT));
    }

    #[test]
    fn ten_times_the_cost_is_the_same_step_wherever_it_is() {
        let line = places(&[row(1, 2.0), row(10, 20.0), row(100, 200.0)]);
        assert!((line[2].1 - 2.0 * line[1].1 + line[0].1).abs() < 0.2, "{line:?}");
        assert!(line[0].1 > line[2].1 && line.iter().all(|(_, y)| (TOP..=BOTTOM).contains(y)));
    }

    #[test]
    fn a_chart_needs_two_sizes() {
        assert_eq!(drawn(&[row(1, 2.0)]), []);
        assert_eq!(drawn(&[row(1, 2.0), row(10, 0.0)]), []);
        assert_eq!(drawn(&[row(1, 2.0), row(10, 2.0)])[0].0, "growth-turns");
    }
}

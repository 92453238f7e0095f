//! Charts of a run, as SVG for light and dark pages: bars of ours and of peers, and lines of cost against size. The scales
//! are logarithmic, because the compared figures differ by factors.

mod line;

use std::fmt::Write as _;

use super::{BenchLine, number};

/// One chart: the benches of a run that are compared.
struct Chart {
    file: &'static str,
    title: &'static str,
    /// The label of each bar, and its bench.
    bars: &'static [(&'static str, &'static str)],
}

const CHARTS: &[Chart] = &[
    Chart {
        file: "turn-memory",
        title: "CPU time of a turn, conversation kept in memory",
        bars: &[
            ("budao", "turn/memory"),
            ("autoagents", "peer/autoagents/turn_memory"),
            ("rig", "peer/rig/turn_memory"),
            ("agno", "peer/agno/turn_memory"),
            ("openai-agents", "peer/openai-agents/turn_memory"),
            ("langgraph", "peer/langgraph/turn_memory"),
            ("pydantic-ai", "peer/pydantic-ai/turn_memory"),
        ],
    },
    Chart {
        file: "turn-durable",
        title: "CPU time of a durable turn",
        bars: &[
            ("budao", "turn/durable_alone"),
            ("budao, 128 at once", "turn/durable_128"),
            ("openai-agents", "peer/openai-agents/turn_durable"),
            ("langgraph", "peer/langgraph/turn_durable"),
            ("langgraph, 128 at once", "peer/langgraph/turn_at_once"),
        ],
    },
    Chart {
        file: "turn-start",
        title: "CPU time from the start of a process to its first answer",
        bars: &[
            ("budao", "turn/start"),
            ("budao, on disk", "turn/start_durable"),
            ("rig", "peer/rig/turn_start"),
            ("agno", "peer/agno/turn_start"),
            ("pydantic-ai", "peer/pydantic-ai/turn_start"),
            ("langgraph", "peer/langgraph/turn_start"),
            ("openai-agents", "peer/openai-agents/turn_start"),
        ],
    },
    Chart {
        file: "turn-session",
        title: "Memory of a kept session of one turn",
        bars: &[
            ("budao", "turn/session"),
            ("openai-agents", "peer/openai-agents/turn_session"),
            ("rig", "peer/rig/turn_session"),
            ("pydantic-ai", "peer/pydantic-ai/turn_session"),
            ("langgraph", "peer/langgraph/turn_session"),
            ("agno", "peer/agno/turn_session"),
        ],
    },
    Chart {
        file: "serve-events",
        title: "CPU time of a server for one event, one connection",
        bars: &[
            ("budao, memory", "serve/events_1_memory"),
            ("budao, on disk", "serve/events_1_durable"),
            ("Python websockets", "peer/websockets/serve_events_1"),
        ],
    },
    Chart {
        file: "serve-fanout",
        title: "CPU time of a server for one delivery to 500 observers",
        bars: &[
            ("budao, on disk", "serve/fanout_durable"),
            ("Socket.IO on Node", "peer/socketio-js/serve_fanout"),
        ],
    },
];

const WIDTH: f64 = 720.0;
const LABELS: f64 = 170.0;
/// Width for the number after the longest bar, in SVG units.
const NUMBERS: f64 = 120.0;
const ROW: f64 = 28.0;
const TOP: f64 = 44.0;

/// The charts that this run has figures for: file name and SVG.
pub(super) fn drawn(rows: &[BenchLine]) -> Vec<(String, String)> {
    let mut charts = bar_charts(rows);
    charts.extend(line::drawn(rows));
    charts
}

/// The charts with at least two bars in this run, one of ours and one of a peer.
fn bar_charts(rows: &[BenchLine]) -> Vec<(String, String)> {
    let bar = |(label, bench): &(&'static str, &'static str)| {
        Some((*label, rows.iter().find(|row| row.bench == *bench)?))
    };
    CHARTS
        .iter()
        .filter_map(|chart| {
            let bars: Vec<(&str, &BenchLine)> = chart.bars.iter().filter_map(bar).collect();
            let theirs = bars.iter().filter(|(_, row)| is_theirs(row)).count();
            (theirs > 0 && theirs < bars.len())
                .then(|| (chart.file.to_owned(), svg(chart.title, &bars)))
        })
        .collect()
}

fn is_theirs(row: &BenchLine) -> bool {
    row.bench.starts_with("peer/")
}

fn svg(title: &str, bars: &[(&str, &BenchLine)]) -> String {
    let values = || bars.iter().map(|(_, row)| row.value.max(f64::MIN_POSITIVE));
    let least = values().fold(f64::INFINITY, f64::min).log10().floor();
    // A bar that ends on a power of ten still fits into the frame.
    let most = values().fold(0.0_f64, f64::max).log10().ceil().max(least + 1.0);
    let room = WIDTH - LABELS - NUMBERS;
    let x =
        |value: f64| LABELS + room * ((value.log10() - least) / (most - least)).clamp(0.004, 1.0);
    let height = TOP + ROW * bars.len() as f64 + 28.0;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
         height=\"{height}\" role=\"img\" aria-label=\"{title}\">\n<style>{STYLE}</style>\n\
         <text x=\"12\" y=\"24\" class=\"title\">{title}</text>\n"
    );
    let mut say = |line: String| writeln!(text, "{line}").expect("a string takes all");
    let bottom = TOP + ROW * bars.len() as f64;
    for power in least as i32..=most as i32 {
        let at = x(10_f64.powi(power)).round();
        say(format!("<line x1=\"{at}\" x2=\"{at}\" y1=\"{TOP}\" y2=\"{bottom}\" class=\"grid\"/>"));
        let label = number(10_f64.powi(power));
        let label = label.trim_end_matches(".00").trim_end_matches(".0");
        say(format!("<text x=\"{at}\" y=\"{}\" class=\"tick\">{label}</text>", bottom + 18.0));
    }
    for (index, (label, row)) in bars.iter().enumerate() {
        let class = if is_theirs(row) { "theirs" } else { "ours" };
        let (y, end) = (TOP + ROW * index as f64, x(row.value));
        let middle = y + ROW / 2.0 + 4.5;
        say(format!(
            "<text x=\"{}\" y=\"{middle}\" class=\"label {class}\">{label}</text>",
            LABELS - 10.0
        ));
        say(format!(
            "<rect x=\"{LABELS}\" y=\"{}\" width=\"{:.1}\" height=\"{}\" rx=\"2\" class=\"{class}\"/>",
            y + 5.0,
            end - LABELS,
            ROW - 10.0
        ));
        let value = format!("{} {}", number(row.value), row.unit);
        say(format!("<text x=\"{:.1}\" y=\"{middle}\" class=\"value\">{value}</text>", end + 8.0));
    }
    text.push_str("</svg>\n");
    text
}

const STYLE: &str = "\
text{font:13px system-ui,sans-serif;fill:#24292f}\
.title{font-weight:600;font-size:15px}\
.label{text-anchor:end}.label.ours{font-weight:600}\
.tick{text-anchor:middle;font-size:11px;fill:#57606a}\
.grid{stroke:#d0d7de}\
rect.ours{fill:#b3341f}rect.theirs{fill:#8c959f}\
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.tick{fill:#9198a1}.grid{stroke:#3d444d}\
rect.ours{fill:#f0705a}rect.theirs{fill:#6e7781}}";

#[cfg(test)]
mod tests {
    use super::*;

    fn row(bench: &str, value: f64) -> BenchLine {
        let text = format!(r#"{{"bench":"{bench}","value":{value},"unit":"µs CPU"}}"#);
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn a_chart_is_drawn_only_when_there_is_something_beside_ours() {
        assert_eq!(drawn(&[row("turn/memory", 26.0), row("turn/start", 3.0)]), []);
        let both = [row("turn/memory", 26.0), row("peer/rig/turn_memory", 280.0)];
        let charts = drawn(&both);
        assert_eq!(charts.len(), 1);
        assert_eq!(charts[0].0, "turn-memory");
    }

    #[test]
    fn ten_times_more_is_the_same_step_wherever_it_is() {
        let widths = |values: [f64; 3]| -> Vec<f64> {
            let rows = [
                row("turn/memory", values[0]),
                row("peer/rig/turn_memory", values[1]),
                row("peer/agno/turn_memory", values[2]),
            ];
            let charts = drawn(&rows);
            let bars = charts[0].1.lines().filter(|line| line.starts_with("<rect"));
            let width = |line: &str| line.split("width=\"").nth(1)?.split('"').next()?.parse().ok();
            bars.filter_map(width).collect()
        };
        let bars = widths([20.0, 200.0, 2000.0]);
        assert!((bars[2] - 2.0 * bars[1] + bars[0]).abs() < 0.5, "{bars:?}");
        let room = WIDTH - LABELS - NUMBERS;
        assert!(bars.iter().all(|bar| *bar > 0.0 && *bar <= room), "{bars:?}");
        // Equal values and a zero still give a chart.
        assert!(widths([1.0, 1.0, 0.0]).iter().all(|bar| bar.is_finite() && *bar > 0.0));
    }
}

//! Storms by systems, as a table for the terminal, as a table for the page and as a chart.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

use super::PEERS;
use crate::bench::{BenchLine, Run, Verdict, judge, number};
use crate::table::{self, Align};
use crate::{page, peers};

/// The figures of a storm in the order of their columns; not every storm has all of them.
const FIGURES: [&str; 4] = ["finished", "requests", "time", "twice"];

/// Stands for a figure that does not exist.
const ABSENT: &str = "–";

/// The name of a figure, taken apart.
#[derive(Debug, PartialEq, Eq)]
struct FigureName<'a> {
    system: &'a str,
    storm: &'a str,
    figure: &'a str,
}

impl<'a> FigureName<'a> {
    /// `recovery/outage_time` is ours, `peer/langgraph/recovery_outage_time` another's. `None` for what is no figure of a
    /// storm, such as `recovery/waiting_bytes`.
    fn parse(bench: &'a str) -> Option<Self> {
        let (system, rest) = match bench.strip_prefix("peer/") {
            Some(rest) => rest.split_once("/recovery_")?,
            None => ("budao", bench.strip_prefix("recovery/")?),
        };
        let (storm, figure) = rest.rsplit_once('_')?;
        FIGURES.contains(&figure).then_some(Self { system, storm, figure })
    }
}

fn storms(rows: &[BenchLine]) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for name in rows.iter().filter_map(|row| FigureName::parse(&row.bench)) {
        if !names.contains(&name.storm) {
            names.push(name.storm);
        }
    }
    names
}

fn systems(rows: &[BenchLine]) -> Vec<&str> {
    let has = |system: &str| {
        rows.iter().any(|row| FigureName::parse(&row.bench).is_some_and(|it| it.system == system))
    };
    ["budao"].into_iter().chain(PEERS).filter(|system| has(system)).collect()
}

fn find<'a>(rows: &'a [BenchLine], wanted: &FigureName<'_>) -> Option<&'a BenchLine> {
    rows.iter().find(|row| FigureName::parse(&row.bench).as_ref() == Some(wanted))
}

/// A figure without its unit, marked if it misses its bar.
fn cell(rows: &[BenchLine], name: &FigureName<'_>) -> String {
    let Some(row) = find(rows, name) else { return ABSENT.to_owned() };
    let mark = if matches!(judge(row), Verdict::MissedBy(_)) { " !" } else { "" };
    match name.figure {
        "finished" => format!("{:.0} %{mark}", row.value.floor()),
        "twice" => format!("{}{mark}", row.value),
        _ => format!("{}{mark}", number(row.value)),
    }
}

/// The figures that belong to no storm, a line each.
fn others(rows: &[BenchLine]) -> impl Iterator<Item = String> {
    let rows = rows.iter().filter(|row| FigureName::parse(&row.bench).is_none());
    rows.map(|row| {
        let mark = if matches!(judge(row), Verdict::MissedBy(_)) { " !" } else { "" };
        let bar = row.bar.map_or_else(String::new, |bar| format!(" (bar: {bar})"));
        let (value, note) = (number(row.value), row.note.as_deref().unwrap_or_default());
        format!("`{}`: {value} {}{mark}{bar}; {note}", row.bench, row.unit)
    })
}

/// A row for each storm and system, for the terminal.
pub(super) fn table(rows: &[BenchLine]) -> String {
    let head = [
        ("storm", Align::Left),
        ("system", Align::Left),
        ("turns finished", Align::Right),
        ("requests ÷ needed", Align::Right),
        ("time ÷ best", Align::Right),
        ("calls twice", Align::Right),
    ];
    let mut cells = Vec::new();
    for storm in storms(rows) {
        for system in systems(rows) {
            let mut row = vec![storm.to_owned(), system.to_owned()];
            row.extend(FIGURES.map(|figure| cell(rows, &FigureName { system, storm, figure })));
            cells.push(row);
        }
    }
    let mut text = table::render(&head, &cells);
    text.extend(others(rows).map(|line| format!("\n{line}\n")));
    let missed = rows.iter().filter(|row| matches!(judge(row), Verdict::MissedBy(_))).count();
    let bars = rows.iter().filter(|row| row.bar.is_some()).count();
    writeln!(
        text,
        "\nxtask bench recovery: {} of {bars} bars met, {missed} missed (!)",
        bars - missed
    )
    .expect("a string takes all");
    text
}

/// Writes the part `bench-recovery` of the page, and its chart.
pub(super) fn write(root: &Path, run: &Run) -> Result<()> {
    let file = root.join("docs/charts/recovery-finished.svg");
    fs::write(&file, chart(&run.benches)).with_context(|| format!("write `{}`", file.display()))?;
    page::replace(&root.join("docs/benchmarks.md"), "bench-recovery", &part(run))
}

fn part(run: &Run) -> String {
    let (rows, run) = (&run.benches, &run.circumstances);
    let systems = systems(rows);
    let versions: Vec<String> =
        peers::all().filter(|peer| systems.contains(&peer.name)).map(peers::version).collect();
    let mut text = format!(
        "`{}`, {}, commit `{}`, {} cores of {}, load {} before and {} after. Peers: {}.\n\n\
         ![turns finished in each storm](charts/recovery-finished.svg)\n\n",
        run.command,
        run.measured_at,
        run.commit,
        run.cores,
        run.cpu,
        run.load[0],
        run.load[1],
        versions.join(", ")
    );
    let mut say = |line: String| writeln!(text, "{line}").expect("a string takes all");
    say(format!("| storm | {} |", systems.join(" | ")));
    say(format!("|---|{}", "---|".repeat(systems.len())));
    for storm in storms(rows) {
        let figures = systems.iter().map(|system| {
            let figures = FIGURES.map(|figure| cell(rows, &FigureName { system, storm, figure }));
            if figures.iter().all(|it| it == ABSENT) {
                ABSENT.to_owned()
            } else {
                figures.join(" · ")
            }
        });
        say(format!("| `{storm}` | {} |", figures.collect::<Vec<_>>().join(" | ")));
    }
    others(rows).for_each(|line| say(format!("\n{line}")));
    text
}

const CELL: (f64, f64) = (110.0, 30.0);
const LABELS: f64 = 120.0;
const TOP: f64 = 66.0;

/// A cell for each storm and system: the share of turns that finished, as text and as colour.
fn chart(rows: &[BenchLine]) -> String {
    let (storms, systems) = (storms(rows), systems(rows));
    let width = LABELS + CELL.0 * systems.len() as f64 + 12.0;
    let height = TOP + CELL.1 * storms.len() as f64 + 12.0;
    let title = "Turns that finish, by storm";
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
         height=\"{height}\" role=\"img\" aria-label=\"{title}\">\n<style>{STYLE}</style>\n\
         <text x=\"12\" y=\"24\" class=\"title\">{title}</text>\n"
    );
    for (column, system) in systems.iter().enumerate() {
        let x = LABELS + CELL.0 * (column as f64 + 0.5);
        writeln!(text, "<text x=\"{x}\" y=\"{}\" class=\"middle\">{system}</text>", TOP - 10.0)
            .expect("a string takes all");
    }
    for (row, storm) in storms.iter().enumerate() {
        let y = TOP + CELL.1 * row as f64;
        let base = y + CELL.1 / 2.0 + 4.5;
        writeln!(text, "<text x=\"{}\" y=\"{base}\" class=\"end\">{storm}</text>", LABELS - 10.0)
            .expect("a string takes all");
        for (column, system) in systems.iter().enumerate() {
            let name = FigureName { system, storm, figure: "finished" };
            text += &chart_cell(rows, &name, (LABELS + CELL.0 * column as f64, y));
        }
    }
    text + "</svg>\n"
}

fn chart_cell(rows: &[BenchLine], name: &FigureName<'_>, (x, y): (f64, f64)) -> String {
    let opacity = find(rows, name).map_or(0.0, |row| row.value / 100.0);
    let label = cell(rows, name).replace(" !", "");
    let (width, height) = (CELL.0 - 4.0, CELL.1 - 4.0);
    format!(
        "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" rx=\"2\" fill-opacity=\"{opacity:.2}\"/>\
         <text x=\"{}\" y=\"{}\" class=\"middle\">{label}</text>\n",
        x + width / 2.0,
        y + CELL.1 / 2.0 + 4.5
    )
}

const STYLE: &str = "\
text{font:13px system-ui,sans-serif;fill:#24292f}\
.title{font-weight:600;font-size:15px}.end{text-anchor:end}.middle{text-anchor:middle}\
rect{fill:#4ac26b;stroke:#d0d7de}\
@media(prefers-color-scheme:dark){text{fill:#e6edf3}rect{fill:#238636;stroke:#3d444d}}";

#[cfg(test)]
mod tests {
    use super::*;

    fn row(bench: &str, value: f64, bar: Option<f64>) -> BenchLine {
        let text = format!(r#"{{"bench":"{bench}","value":{value},"unit":"x","better":"higher"}}"#);
        BenchLine { bar, ..serde_json::from_str(&text).unwrap() }
    }

    #[test]
    fn a_row_for_each_storm_and_system_with_missed_bars_marked() {
        let rows = [
            row("recovery/long-outage_finished", 98.0, Some(100.0)),
            row("peer/langgraph/recovery_long-outage_finished", 0.0, None),
            row("peer/langgraph/recovery_long-outage_requests", 2.5, None),
            row("recovery/waiting_bytes", 700.0, Some(600.0)),
        ];
        let text = table(&rows);
        let lines: Vec<&str> = text.lines().collect();
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(words(lines[2]), ["long-outage", "budao", "98", "%", "!", "–", "–", "–"]);
        assert_eq!(words(lines[3]), ["long-outage", "langgraph", "0", "%", "2.50", "–", "–"]);
        assert!(text.contains("`recovery/waiting_bytes`: 700 x (bar: 600)"), "{text}");
        assert!(text.contains("1 of 2 bars met, 1 missed"), "{text}");
        let chart = chart(&rows);
        assert_eq!(chart.matches("<rect").count(), 2);
        assert!(chart.contains("fill-opacity=\"0.98\"") && chart.contains(">98 %<"), "{chart}");
    }
}

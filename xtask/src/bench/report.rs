//! Writes a run into `docs/benchmarks.md`: one section per measured area, between its marks, with the circumstances.
//! Explanations of missed bars are written by hand, outside the marks.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

use super::{BenchLine, Better, Circumstances, Verdict, chart, judge, number};
use crate::{page, peers};

pub(super) fn write(root: &Path, rows: &[BenchLine], circumstances: &Circumstances) -> Result<()> {
    let folder = root.join("docs/charts");
    fs::create_dir_all(&folder).with_context(|| format!("make `{}`", folder.display()))?;
    let charts = chart::drawn(rows);
    for (name, svg) in &charts {
        let file = folder.join(format!("{name}.svg"));
        fs::write(&file, svg).with_context(|| format!("write `{}`", file.display()))?;
    }
    let mut areas: BTreeMap<&str, Vec<&BenchLine>> = BTreeMap::new();
    for row in rows {
        areas.entry(area(&row.bench)).or_default().push(row);
    }
    let file = root.join("docs/benchmarks.md");
    for (area, rows) in areas {
        let name = format!("bench-{area}");
        if !page::has(&file, &name)? {
            println!("docs/benchmarks.md has no part `{name}`: not written");
            continue;
        }
        let names = charts.iter().map(|(name, _)| name.as_str());
        let names: Vec<&str> = names.filter(|name| name.starts_with(area)).collect();
        let text = part(&rows, &names, circumstances);
        page::replace(&file, &name, &text)?;
    }
    Ok(())
}

/// The area of a bench: `turn` for `turn/memory` and for `peer/rig/turn_memory`.
fn area(bench: &str) -> &str {
    let name = bench.strip_prefix("peer/").and_then(|rest| Some(rest.split_once('/')?.1));
    match name {
        Some(name) if name.starts_with("call_") => "tools",
        Some("initialize" | "resident") => "acp",
        Some("relay" | "chain") => "smcp",
        Some(name) => name.split('_').next().unwrap_or(name),
        None => bench.split('/').next().unwrap_or(bench),
    }
}

fn part(rows: &[&BenchLine], charts: &[&str], circumstances: &Circumstances) -> String {
    let mut text = String::new();
    let mut say = |line: String| writeln!(text, "{line}").expect("a string takes all");
    say(render_area(rows, circumstances));
    for name in charts {
        say(format!("\n![{}](charts/{name}.svg)", name.replace('-', " ")));
    }
    say("\n| bench | figure | spread | bar | verdict | what |".to_owned());
    say("|---|---|---|---|---|---|".to_owned());
    for row in rows {
        let sign = if row.better == Better::Lower { "≤" } else { "≥" };
        let bar = row.bar.map_or_else(String::new, |bar| format!("{sign} {bar}"));
        let verdict = match judge(row) {
            Verdict::Met => "met",
            Verdict::MissedBy(_) => "**missed**",
            Verdict::NoBar => "",
        };
        let spread = match (row.low, row.high) {
            (Some(low), Some(high)) => format!("{} … {}", number(low), number(high)),
            _ => String::new(),
        };
        let note = row.note.as_deref().unwrap_or_default();
        let (bench, value, unit) = (&row.bench, number(row.value), &row.unit);
        say(format!("| `{bench}` | {value} {unit} | {spread} | {bar} | {verdict} | {note} |"));
    }
    text
}

/// The circumstances of an area in one paragraph: command, date, commit, machine, load, and versions of peers.
fn render_area(rows: &[&BenchLine], circumstances: &Circumstances) -> String {
    let Circumstances { measured_at, commit, rustc, cpu, cores, load, rounds, command, profile } =
        circumstances;
    let [before, after] = load;
    let mut text = format!(
        "`{command}`, {measured_at}, commit `{commit}`, {rustc}, profile `{profile}`, {cores} cores of {cpu}, load \
         {before} before and {after} after, {rounds} rounds: medians, with the widest spread."
    );
    let measured =
        |name: &str| rows.iter().any(|row| row.bench.starts_with(&format!("peer/{name}/")));
    let others: Vec<String> =
        peers::all().filter(|peer| measured(peer.name)).map(peers::version).collect();
    if !others.is_empty() {
        write!(text, " Peers: {}.", others.join(", ")).expect("a string takes all");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_belongs_to_its_area_regardless_of_its_origin() {
        assert_eq!(area("turn/memory"), "turn");
        assert_eq!(area("peer/rig/turn_memory"), "turn");
        assert_eq!(area("peer/socketio-js/serve_fanout"), "serve");
        assert_eq!(area("peer/autoagents/call_good"), "tools");
        assert_eq!(area("peer/typescript/initialize"), "acp");
        assert_eq!(area("peer/a2c-smcp/relay"), "smcp");
        assert_eq!(area("odd"), "odd");
    }

    #[test]
    fn a_missed_bar_is_reported_and_a_peer_is_named_with_its_version() {
        let line = |text: &str| serde_json::from_str::<BenchLine>(text).unwrap();
        let rows = [
            line(
                r#"{"bench":"turn/memory","value":26.5,"unit":"µs CPU","bar":20,"low":26,"high":27}"#,
            ),
            line(r#"{"bench":"peer/rig/turn_memory","value":280,"unit":"µs CPU"}"#),
        ];
        let circumstances = Circumstances {
            measured_at: "2026-11-15T12:00:00Z".to_owned(),
            commit: "abc".to_owned(),
            rustc: "rustc 1".to_owned(),
            cpu: "a CPU".to_owned(),
            cores: 2,
            load: ["0.1".to_owned(), "0.2".to_owned()],
            profile: "bench".to_owned(),
            rounds: 3,
            command: "cargo xtask bench".to_owned(),
        };
        let text = part(&rows.iter().collect::<Vec<_>>(), &["turn-memory"], &circumstances);
        assert_eq!(
            text,
            "`cargo xtask bench`, 2026-11-15T12:00:00Z, commit `abc`, rustc 1, profile `bench`, 2 cores of a CPU, load \
             0.1 before and 0.2 after, 3 rounds: medians, with the widest spread. Peers: rig 0.44.0.\n\
             \n![turn memory](charts/turn-memory.svg)\n\
             \n| bench | figure | spread | bar | verdict | what |\n|---|---|---|---|---|---|\n\
             | `turn/memory` | 26.5 µs CPU | 26.0 … 27.0 | ≤ 20 | **missed** |  |\n\
             | `peer/rig/turn_memory` | 280 µs CPU |  |  |  |  |\n"
        );
    }
}

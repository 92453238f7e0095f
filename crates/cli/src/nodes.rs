//! `budao nodes`: the servers that share a journal.

use std::time::Duration;

use budao_core::{Fault, Lang};
use budao_runtime::world;
use budao_serve::NodeView;
use serde_json::json;

use crate::{
    exit::Exit,
    setup::JournalArgs,
    terminal::{Terminal, pad},
    texts::{count, fill, localize},
};

/// List the servers that share a journal: alive, draining or gone.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print one JSON object on stdout
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    journal: JournalArgs,
}

/// Runs `budao nodes`.
pub(crate) async fn run(args: &Args, lang: Lang, terminal: &Terminal) -> Result<Exit, Fault> {
    let journal = args.journal.to_read().open(&world::system()).await?;
    let census = journal.census("").await;
    journal.close().await;
    let nodes: Vec<NodeView> = census?.nodes.iter().map(NodeView::from).collect();
    if args.json {
        terminal.data(&format!("{}\n", json!({ "nodes": nodes })));
    } else if nodes.is_empty() {
        terminal.say(localize(lang, "nodes-none"));
    } else {
        let lines: Vec<String> =
            table(&nodes, lang).iter().map(|line| format!("{line}\n")).collect();
        terminal.data(&lines.concat());
    }
    Ok(Exit::Success)
}

/// A line for each node, after a line with the names of the columns.
pub(crate) fn table(nodes: &[NodeView], lang: Lang) -> Vec<String> {
    let names = [
        "nodes-address",
        "nodes-state",
        "nodes-sessions",
        "nodes-clients",
        "nodes-cpu",
        "nodes-last-beat",
        "nodes-version",
    ];
    let mut rows = vec![names.map(|name| localize(lang, name).to_owned())];
    rows.extend(nodes.iter().map(|node| row(node, lang)));
    let widths: Vec<usize> = (0..names.len())
        .map(|column| {
            rows.iter().map(|row| console::measure_text_width(&row[column])).max().unwrap_or(0)
        })
        .collect();
    let line = |row: &[String; 7]| {
        let cells: Vec<String> =
            row.iter().zip(&widths).map(|(cell, width)| pad(cell, *width)).collect();
        cells.join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

fn row(node: &NodeView, lang: Lang) -> [String; 7] {
    let state = match node.state.as_str() {
        "alive" => localize(lang, "nodes-alive"),
        "draining" => localize(lang, "nodes-draining"),
        _ => localize(lang, "nodes-gone"),
    };
    let beat = Duration::from_millis(node.silent_ms).as_secs();
    [
        node.address.clone(),
        state.to_owned(),
        format!("{}/{}", node.sessions, node.session_limit),
        node.connections.to_string(),
        format!("{}.{} %", node.cpu_permille / 10, node.cpu_permille % 10),
        fill(lang, "nodes-seconds-ago", &[("count", beat.into())]),
        node.version.clone(),
    ]
}

/// A summary for a title; empty without nodes.
pub(crate) fn summary(nodes: &[NodeView], lang: Lang) -> String {
    let gone = nodes.iter().filter(|node| node.state == "gone").count();
    match (nodes.len() as u64, gone as u64) {
        (0, _) => String::new(),
        (all, 0) => count(lang, "nodes-count", all),
        (all, gone) => {
            fill(lang, "nodes-count-gone", &[("count", all.into()), ("gone", gone.into())])
        }
    }
}

#[cfg(test)]
mod tests {
    use budao_journal::{NodeInfo, NodeStatus};

    use super::*;

    fn nodes() -> Vec<NodeView> {
        let node = |holder: &str, silent: u64, is_draining| NodeInfo {
            holder: holder.into(),
            silent_for: Duration::from_secs(silent),
            status: NodeStatus {
                version: "1.2.3".into(),
                address: format!("10.0.0.{silent}:7333"),
                is_draining,
                sessions: 12,
                session_limit: 10_000,
                connections: 3,
                cpu_permille: 125,
                ..NodeStatus::default()
            },
        };
        let all = [node("a", 1, false), node("b", 2, true), node("c", 60, false)];
        all.iter().map(NodeView::from).collect()
    }

    #[test]
    fn each_node_has_a_line_with_its_state_and_load() {
        let lines = table(&nodes(), Lang::En);
        assert_eq!(
            lines,
            [
                "address         state     sessions  clients  cpu     last beat  version",
                "10.0.0.1:7333   alive     12/10000  3        12.5 %  1 s ago    1.2.3",
                "10.0.0.2:7333   draining  12/10000  3        12.5 %  2 s ago    1.2.3",
                "10.0.0.60:7333  gone      12/10000  3        12.5 %  60 s ago   1.2.3",
            ]
        );
        assert!(table(&nodes(), Lang::Zh)[3].contains("失联"));
        assert_eq!(summary(&nodes(), Lang::En), " · 3 nodes, 1 gone");
        assert_eq!(summary(&[], Lang::En), "");
    }
}

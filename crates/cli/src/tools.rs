//! `budao tools`: the tools that workers offer to a server, and the processes that run them.

use budao_core::{Fault, Lang};
use serde_json::Value;

use crate::{
    exit::Exit,
    remote::Remote,
    symbols::one_line,
    terminal::{Terminal, table},
    texts::localize,
};

/// Characters of a version that are shown.
const VERSION_SHOWN: usize = 8;
/// Characters of a description that are shown.
const DESCRIPTION_SHOWN: usize = 60;

/// List the tools that workers offer to a server: who offers what, and who is connected.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The server: the URL it printed, with or without `#token=…`
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:7333/", env = "BUDAO_URL")]
    url: String,

    /// Token for that server
    #[arg(long, value_name = "TOKEN", env = "BUDAO_TOKEN", hide_env_values = true)]
    token: Option<String>,

    /// Print one JSON object on stdout
    #[arg(long)]
    json: bool,
}

/// Runs `budao tools`.
pub(crate) async fn run(args: &Args, lang: Lang, terminal: &Terminal) -> Result<Exit, Fault> {
    let server = Remote::new(&args.url, args.token.as_deref())?;
    let list: Value = server.get("v1/tools", &[]).await?;
    if args.json {
        terminal.data(&format!("{list}\n"));
        return Ok(Exit::Success);
    }
    let rows = |name: &str| list[name].as_array().cloned().unwrap_or_default();
    let (tools, workers) = (rows("tools"), rows("workers"));
    if tools.is_empty() && workers.is_empty() {
        terminal.say(localize(lang, "tools-none"));
        return Ok(Exit::Success);
    }
    let names = [
        "tools-tool",
        "tools-worker",
        "tools-version",
        "tools-connected",
        "tools-flags",
        "tools-about",
    ];
    let tools: Vec<_> = tools.iter().map(tool_row).collect();
    terminal.data(&table(&names.map(|name| localize(lang, name)), tools));
    let names = [
        "tools-worker",
        "tools-process",
        "tools-state",
        "tools-calls",
        "tools-owner",
        "tools-session",
    ];
    let workers: Vec<_> = workers.iter().map(|worker| worker_row(worker, lang)).collect();
    if !workers.is_empty() {
        terminal.data(&format!("\n{}", table(&names.map(|name| localize(lang, name)), workers)));
    }
    Ok(Exit::Success)
}

fn text<'a>(row: &'a Value, name: &str) -> &'a str {
    row[name].as_str().unwrap_or_default()
}

fn tool_row(tool: &Value) -> Vec<String> {
    let is_set = |name: &&str| tool[*name] == true;
    let flags: Vec<&str> =
        ["read_only", "idempotent", "confirm", "reconcile"].into_iter().filter(is_set).collect();
    let shown = |text: &str, most: usize| one_line(text).chars().take(most).collect::<String>();
    vec![
        shown(text(tool, "name"), 64),
        text(tool, "worker").to_owned(),
        shown(text(tool, "version"), VERSION_SHOWN),
        tool["connected"].to_string(),
        flags.join(","),
        shown(text(tool, "description"), DESCRIPTION_SHOWN),
    ]
}

fn worker_row(worker: &Value, lang: Lang) -> Vec<String> {
    let state = match (worker["is_connected"] == true, worker["is_draining"] == true) {
        (false, _) => "tools-away",
        (true, true) => "tools-draining",
        (true, false) => "tools-ready",
    };
    vec![
        text(worker, "worker").to_owned(),
        one_line(text(worker, "worker_id")).chars().take(36).collect(),
        localize(lang, state).to_owned(),
        format!("{}/{}", worker["held"], worker["capacity"]),
        text(worker, "owner").to_owned(),
        text(worker, "session_id").to_owned(),
    ]
}

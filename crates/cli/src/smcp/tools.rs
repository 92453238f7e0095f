//! `budao smcp tools`: lists the tools of a room's computers, once their MCP servers have started.

use std::time::{Duration, Instant};

use budao_core::Fault;
use budao_smcp::{
    agent::{Agent, RemoteTool, RoomEvent, ToolListing},
    wire::Dialect,
};
use tokio::sync::broadcast::{Receiver, error::RecvError};

use super::{ConnectArgs, show::Printer};
use crate::{exit::Exit, texts::localize};

/// Time between two questions without news of the computer, which may get lost.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// Time for a computer that has no tools and does not say whether it is starting.
const UNKNOWN_LIMIT: Duration = Duration::from_secs(5);

#[derive(Debug, clap::Args)]
pub(super) struct ToolsArgs {
    #[command(flatten)]
    connection: ConnectArgs,
    /// How long connecting and waiting for servers that start may take together
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=3600))]
    timeout: u64,
    /// One JSON object per tool
    #[arg(long)]
    pub(super) json: bool,
    /// The room
    room: String,
}

pub(super) async fn run(args: &ToolsArgs, show: Printer<'_>) -> Result<Exit, Fault> {
    let limit = Duration::from_secs(args.timeout);
    let until = Instant::now() + limit;
    let agent = args.connection.join_by(&args.room, Dialect::V04, limit).await?;
    let mut events = agent.events();
    let computers = agent.computers().await?;
    if computers.is_empty() && !args.json {
        show.terminal.say(localize(show.lang, "smcp-no-computer-is-in-the-room"));
    }
    let mut exit = Exit::Success;
    for computer in computers {
        let listing = settled(&agent, &computer, &mut events, until, show).await?;
        for tool in &listing.tools {
            print(tool, &computer, args.json, show);
        }
        let late = starting(&listing);
        if !late.is_empty() {
            let words = localize(show.lang, "smcp-still-starting");
            show.terminal.say(&format!("{computer}: {words} {late}"));
            exit = Exit::Failed;
        }
    }
    Ok(exit)
}

/// Waits for a tool that is not listed while servers of its computer are starting, at most until `until`. A listing that
/// fails is not waited for: the call reports why.
pub(super) async fn wait_for_tool(
    agent: &Agent,
    computer: &str,
    tool: &str,
    until: Instant,
    show: Printer<'_>,
) {
    let mut events = agent.events();
    let Ok(listing) = agent.tool_listing(computer).await else { return };
    let is_listed = listing.tools.iter().any(|known| known.name == tool);
    let may_come = !starting(&listing).is_empty() || listing.tools.is_empty();
    if !is_listed && may_come {
        // A listing that fails now is the call's fault to report, too.
        drop(settled(agent, computer, &mut events, until, show).await);
    }
}

/// The tools of a computer when none of its servers is starting, or at `until`. A computer without tools that does not
/// tell the state of its servers gets [`UNKNOWN_LIMIT`].
async fn settled(
    agent: &Agent,
    computer: &str,
    events: &mut Receiver<RoomEvent>,
    until: Instant,
    show: Printer<'_>,
) -> Result<ToolListing, Fault> {
    let mut last_message = String::new();
    let unknown_until = until.min(Instant::now() + UNKNOWN_LIMIT);
    loop {
        let listing = agent.tool_listing(computer).await?;
        let is_unknown = listing.tools.is_empty() && listing.servers.is_none();
        let servers = localize(show.lang, "smcp-its-servers").to_owned();
        let late = if is_unknown { servers } else { starting(&listing) };
        let until = if is_unknown { unknown_until } else { until };
        let left = until.saturating_duration_since(Instant::now());
        if late.is_empty() || left.is_zero() {
            return Ok(listing);
        }
        if late != last_message && !show.as_json {
            let words = localize(show.lang, "smcp-waiting-for");
            show.terminal.say(&format!("{computer}: {words} {late} …"));
            last_message = late;
        }
        tokio::select! {
            biased;
            () = changed(events, computer) => {}
            () = tokio::time::sleep(left.min(ASK_AGAIN)) => {}
        }
    }
}

/// Waits until the computer's tools may have changed.
async fn changed(events: &mut Receiver<RoomEvent>, computer: &str) {
    loop {
        match events.recv().await {
            Ok(RoomEvent::ToolsChanged(name)) if name == computer => return,
            Ok(_) => {}
            Err(RecvError::Lagged(_)) => return,
            Err(RecvError::Closed) => std::future::pending().await,
        }
    }
}

/// The servers of a computer that are starting, as a list.
fn starting(listing: &ToolListing) -> String {
    let servers = listing.servers.iter().flatten();
    let starting = servers.filter(|(_, state)| *state == "starting");
    starting.map(|(server, _)| server.as_str()).collect::<Vec<_>>().join(", ")
}

fn print(tool: &RemoteTool, computer: &str, as_json: bool, show: Printer<'_>) {
    if as_json {
        let mut tool = serde_json::to_value(tool).unwrap_or_default();
        tool["computer"] = computer.into();
        return show.line(tool);
    }
    let description = tool.description.as_deref().unwrap_or_default();
    let description = description.lines().next().unwrap_or_default();
    let name = show.terminal.name(&tool.name);
    show.line(format!("{computer}  {name}  {description}"));
}

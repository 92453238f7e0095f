//! `budao smcp`: a hub, a computer, and agent commands for the shell.

mod computer;
mod hub_limits;
#[cfg(feature = "serve")]
mod mounted_hub;
mod resources;
mod rooms;
mod show;
mod tools;

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use budao_core::{
    Fault, Lang,
    fault::{Fact, Kind, Operation},
};
use budao_smcp::{
    MemberConfig,
    agent::{Agent, Call, Config as AgentConfig},
    server::{Access, Config as HubConfig, CrossRoomVisibility, Hub, Token, VersionRejection},
    wire::{Dialect, Role},
};
use serde_json::{Value, json};
use tokio::sync::broadcast::error::RecvError;
use tokio_util::sync::CancellationToken;

#[cfg(feature = "serve")]
pub(crate) use mounted_hub::{HubAccess, HubArgs};
pub(crate) use rooms::{JoinedRooms, RoomConfig};

use crate::{exit::Exit, listener, signals, terminal::Terminal, texts::localize, traces};
use hub_limits::LimitArgs;
use show::Printer;

/// Use tools of remote computers over A2C-SMCP: run a hub or a computer, call tools, watch a room.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Run a hub that connects agents and computers
    Server(ServerArgs),
    /// Offer the tools of MCP servers on this machine to a room
    Computer(computer::ComputerArgs),
    /// Call a tool of a computer and print its result
    Call(CallArgs),
    /// List the tools of the computers in a room
    Tools(tools::ToolsArgs),
    /// Print the events of a room
    Watch(WatchArgs),
    /// List the skills of the computers in a room, or print a file of one
    Skills(resources::SkillsArgs),
    /// List the documents of the computers in a room, or show the content of one (protocol 0.2)
    Documents(resources::DocumentsArgs),
}

#[derive(Debug, clap::Args)]
struct ServerArgs {
    /// Address to listen on; port 0 picks a free port
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8920")]
    listen: SocketAddr,
    /// Accept this token: SECRET, SECRET@ROLE or SECRET@ROLE@ROOM,ROOM; can be repeated
    #[arg(
        long,
        value_name = "TOKEN",
        env = "BUDAO_SMCP_TOKEN",
        hide_env_values = true,
        required_unless_present = "accept_any_token"
    )]
    token: Vec<String>,
    /// Accept clients with any token or none
    #[arg(long, conflicts_with = "token")]
    accept_any_token: bool,
    /// Protocol version: 0.4, or 0.2 for the first draft
    #[arg(long, default_value = "0.4")]
    dialect: Dialect,
    /// Hide the names of other rooms and computers in error messages
    #[arg(long)]
    hide_other_rooms: bool,
    /// Refuse a WebSocket of another protocol version by closing it with code 4900, for proxies that drop the body of a refused upgrade
    #[arg(long)]
    refuse_by_close: bool,
    #[command(flatten)]
    limits: LimitArgs,
    /// Print the listening address as one JSON object on stdout
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct ConnectArgs {
    /// URL of the hub
    #[arg(
        long,
        value_name = "URL",
        env = "BUDAO_SMCP_URL",
        default_value = "http://127.0.0.1:8920"
    )]
    url: String,
    /// Token for the hub
    #[arg(long, value_name = "TOKEN", env = "BUDAO_SMCP_TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// Name to use in the room
    #[arg(long, default_value = "budao")]
    name: String,
    /// Protocol version of the hub: 0.4, or 0.2 for the first draft [default: 0.2 for documents, else 0.4]
    #[arg(long)]
    dialect: Option<Dialect>,
}

#[derive(Debug, clap::Args)]
struct CallArgs {
    #[command(flatten)]
    connection: ConnectArgs,
    /// Time limit of connecting, waiting for a server that starts and the call together
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3600))]
    timeout: u64,
    /// Print the whole result as one JSON object, a failure as `{"error": …}`
    #[arg(long)]
    json: bool,
    /// The room
    room: String,
    /// The computer
    computer: String,
    /// The tool, as listed by `budao smcp tools`
    tool: String,
    /// Arguments of the tool, as a JSON object
    #[arg(default_value = "{}")]
    arguments: String,
}

#[derive(Debug, clap::Args)]
struct WatchArgs {
    #[command(flatten)]
    connection: ConnectArgs,
    /// Print one JSON object per event
    #[arg(long)]
    json: bool,
    /// The room
    room: String,
}

/// Default log filter: `warn` for the hub and a computer, which other machines depend on, else `off`.
pub(crate) fn usual_log(args: &Args) -> &'static str {
    match args.action {
        Action::Server(_) | Action::Computer(_) => "warn",
        _ => "off",
    }
}

/// The A2C-SMCP error number of a kind of fault.
pub(crate) fn code(kind: Kind) -> Option<u16> {
    Some(budao_smcp::codes::smcp_code(kind))
}

/// Whether the kind is the one that its A2C-SMCP number primarily stands for.
pub(crate) fn is_home(kind: Kind) -> bool {
    budao_smcp::codes::is_smcp_home(kind)
}

impl Args {
    /// True if `--json` is given.
    fn as_json(&self) -> bool {
        match &self.action {
            Action::Server(args) => args.json,
            Action::Computer(args) => args.json,
            Action::Call(args) => args.json,
            Action::Tools(args) => args.json,
            Action::Watch(args) => args.json,
            Action::Skills(args) => args.json,
            Action::Documents(args) => args.json,
        }
    }
}

/// Time for connecting and joining, where no option says otherwise.
const CONNECT_LIMIT: Duration = Duration::from_secs(30);

impl ConnectArgs {
    async fn join(&self, room: &str) -> Result<Agent, Fault> {
        self.join_by(room, Dialect::V04, CONNECT_LIMIT).await
    }

    /// Joins the room as an agent, within `limit`. `usual` is the dialect without `--dialect`.
    async fn join_by(&self, room: &str, usual: Dialect, limit: Duration) -> Result<Agent, Fault> {
        let config = AgentConfig::new(self.member(room, usual));
        tokio::select! {
            biased;
            joined = Agent::connect(config, traces::world()) => joined,
            () = tokio::time::sleep(limit) => {
                Err(Fault::new(Kind::RequestTimedOut, Operation::Connect)
                    .with(Fact::TimeoutMs, limit)
                    .with(Fact::Service, "smcp"))
            }
        }
    }

    fn member(&self, room: &str, usual: Dialect) -> MemberConfig {
        let mut member = MemberConfig::new(&self.url, room, &self.name);
        member.token = self.token.clone().map(Into::into);
        member.dialect = self.dialect.unwrap_or(usual);
        member
    }
}

pub(crate) async fn run(args: &Args, lang: Lang, terminal: &Terminal) -> Result<Exit, Fault> {
    let show = Printer { as_json: args.as_json(), lang, terminal };
    let done = match &args.action {
        Action::Server(args) => serve(args, show).await,
        Action::Computer(args) => computer::run(args, show).await,
        Action::Call(args) => call(args, show).await,
        Action::Tools(args) => tools::run(args, show).await,
        Action::Watch(args) => watch(args, show).await,
        Action::Skills(args) => resources::skills(args, show).await,
        Action::Documents(args) => resources::documents(args, show).await,
    };
    match done {
        Err(fault) if show.as_json => {
            let is_usage = fault.kind() == Kind::ConfigurationWrong;
            let exit = show.fault(fault);
            Ok(if is_usage { Exit::Usage } else { exit })
        }
        done => done,
    }
}

async fn serve(args: &ServerArgs, show: Printer<'_>) -> Result<Exit, Fault> {
    let access = if args.accept_any_token {
        Access::Any
    } else {
        Access::Tokens(args.token.iter().map(|token| read_token(token)).collect::<Result<_, _>>()?)
    };
    let cross_room = if args.hide_other_rooms {
        CrossRoomVisibility::Hidden
    } else {
        CrossRoomVisibility::Named
    };
    let refusal =
        if args.refuse_by_close { VersionRejection::Close } else { VersionRejection::Body };
    let config = HubConfig {
        dialect: args.dialect,
        cross_room,
        refusal,
        lang: show.lang,
        limits: args.limits.to_limits(),
        ..HubConfig::new(access)
    };
    let listener = listener::listen(args.listen).await?;
    let url = format!("http://{}", listener.local_addr().unwrap_or(args.listen));
    let words = format!("{} {url}", localize(show.lang, "smcp-listening-on"));
    show.remark(&words, &json!({ "listening": url }));
    Hub::new(config, traces::world()).serve(listener, interrupted()).await;
    Ok(Exit::Success)
}

/// Completes on INT or TERM.
async fn interrupted() {
    use tokio::signal::unix::SignalKind;
    signals::received(&[SignalKind::interrupt(), SignalKind::terminate()]).await;
}

/// Parses `SECRET`, `SECRET@ROLE` or `SECRET@ROLE@ROOM,ROOM`.
fn read_token(text: &str) -> Result<Token, Fault> {
    let wrong = || {
        Fault::new(Kind::ConfigurationWrong, Operation::LoadConfig)
            .with(Fact::ConfigKey, "--token")
            .with(Fact::Expected, "SECRET, SECRET@ROLE or SECRET@ROLE@ROOM,ROOM")
    };
    let mut parts = text.split('@');
    let secret = parts.next().filter(|secret| !secret.is_empty()).ok_or_else(wrong)?;
    let role = match parts.next() {
        None | Some("any") => None,
        Some("agent") => Some(Role::Agent),
        Some("computer") => Some(Role::Computer),
        Some(_) => return Err(wrong()),
    };
    let rooms = parts.next().map(|rooms| rooms.split(',').map(str::to_owned).collect());
    if parts.next().is_some() {
        return Err(wrong());
    }
    Ok(Token { role, rooms, ..Token::shared(secret) })
}

async fn call(args: &CallArgs, show: Printer<'_>) -> Result<Exit, Fault> {
    let params: Value = serde_json::from_str(&args.arguments)
        .map_err(|error| Fault::new(Kind::MalformedJson, Operation::ToolCall).caused_by(&error))?;
    let (began, limit) = (Instant::now(), Duration::from_secs(args.timeout));
    let agent = args.connection.join_by(&args.room, Dialect::V04, limit).await?;
    tools::wait_for_tool(&agent, &args.computer, &args.tool, began + limit, show).await;
    // Whole seconds, as the protocol has them.
    let left = limit.saturating_sub(began.elapsed()).as_secs_f64().ceil().max(1.0);
    let call = Call {
        computer: args.computer.clone(),
        tool: args.tool.clone(),
        params,
        timeout: Duration::from_secs_f64(left),
        req_id: None,
    };
    let cancel = CancellationToken::new();
    let stop = cancel.clone();
    tokio::spawn(async move {
        interrupted().await;
        stop.cancel();
    });
    match agent.call(call, &cancel).await {
        Ok(result) => {
            show.result(&result);
            Ok(Exit::Success)
        }
        Err(fault) => Ok(show.fault(fault)),
    }
}

async fn watch(args: &WatchArgs, show: Printer<'_>) -> Result<Exit, Fault> {
    let agent = args.connection.join(&args.room).await?;
    let mut events = agent.events();
    for member in agent.members().await? {
        show.here(member.role, &member.name);
    }
    loop {
        let received = tokio::select! {
            biased;
            () = interrupted() => return Ok(Exit::Success),
            received = events.recv() => received,
        };
        match received {
            Ok(event) => show.room_event(&event),
            Err(RecvError::Lagged(count)) => show.missed(count),
            Err(RecvError::Closed) => return Ok(Exit::Failed),
        }
    }
}

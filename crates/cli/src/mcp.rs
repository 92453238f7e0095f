//! `budao mcp`: look at the configured MCP servers by hand: list them, start them, call their tools, log in to them.

mod login;

use std::{sync::Arc, time::Duration};

use budao_core::{
    Fault, Kind, Lang,
    fault::{ErrorType, Fact, Operation, text},
    tool::{Effect, Outcome, ToolOrigin, ToolSpec},
    world::World,
};
use budao_mcp::{
    McpServerConfig, ServerEnvironment, ServerHandle, ServerSet, ServerState, Transport,
};
use budao_runtime::world;
use budao_tools::{isolation, suggestions};
use serde_json::{Value, json};

use crate::{
    config::{Config, ConfigArgs},
    exit::Exit,
    setup,
    symbols::one_line,
    terminal::{Terminal, table},
    texts::{count, fill, localize, missing_server},
};

/// Time limit for the start of a server that a command names.
const START_MAX: Duration = Duration::from_secs(90);

/// Characters of a description that a list shows.
const DESCRIPTION_SHOWN: usize = 60;

/// Look at MCP servers: list and check them, list and call their tools.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// List the configured servers without starting them
    List(ListArgs),
    /// Start the servers and list their tools
    Tools(ToolsArgs),
    /// Call a tool of a server and print its result
    Call(CallArgs),
    /// Start every server and report which ones work; a failure shows the end of the server's error output
    Doctor(ToolsArgs),
    /// Approve the tools of a server that it changed since they were approved
    Approve(ApproveArgs),
    /// Log in to a remote server, in a browser or on another device
    Login(login::LoginArgs),
    /// Remove the login to a remote server and revoke its tokens
    Logout(login::LogoutArgs),
    /// List the logins to remote servers; contacts no server
    Status(ListArgs),
}

#[derive(Debug, clap::Args)]
struct ListArgs {
    /// Print one JSON object per server on stdout
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    config: ConfigArgs,
}

#[derive(Debug, clap::Args)]
struct ToolsArgs {
    /// The server; all unless given
    #[arg(value_name = "SERVER")]
    server: Option<String>,

    /// Print one JSON object per line on stdout
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    config: ConfigArgs,
}

#[derive(Debug, clap::Args)]
struct CallArgs {
    /// The server
    #[arg(value_name = "SERVER")]
    server: String,

    /// The tool, by the name that the server gives it
    #[arg(value_name = "TOOL")]
    tool: String,

    /// The arguments, as a JSON object
    #[arg(value_name = "ARGUMENTS", default_value = "{}")]
    arguments: String,

    #[command(flatten)]
    config: ConfigArgs,
}

#[derive(Debug, clap::Args)]
struct ApproveArgs {
    /// The server
    #[arg(value_name = "SERVER")]
    server: String,

    #[command(flatten)]
    config: ConfigArgs,
}

/// Runs `budao mcp`.
pub(crate) async fn run(args: &Args, lang: Lang, terminal: &Terminal) -> Result<Exit, Fault> {
    match &args.action {
        Action::List(args) => list(args, lang, terminal),
        Action::Tools(args) => tools(args, lang, terminal).await,
        Action::Call(args) => call(args, lang, terminal).await,
        Action::Doctor(args) => doctor(args, lang, terminal).await,
        Action::Approve(args) => approve(args, lang, terminal).await,
        Action::Login(args) => login::log_in(args, lang, terminal).await,
        Action::Logout(args) => login::log_out(args, lang, terminal).await,
        Action::Status(args) => login::status(args, lang, terminal),
    }
}

fn list(args: &ListArgs, lang: Lang, terminal: &Terminal) -> Result<Exit, Fault> {
    let config = args.config.load()?;
    if args.json {
        for server in &config.mcp {
            let (transport, target) = describe(server);
            let row = json!({
                "name": server.name, "transport": transport, "target": target, "enabled": server.enabled,
            });
            terminal.data(&format!("{row}\n"));
        }
        return Ok(Exit::Success);
    }
    if config.mcp.is_empty() {
        terminal.say(localize(lang, "mcp-none"));
        return Ok(Exit::Success);
    }
    let state = |server: &McpServerConfig| match server.enabled {
        true => "mcp-enabled",
        false => "mcp-disabled",
    };
    let rows = config.mcp.iter().map(|server| {
        let (transport, target) = describe(server);
        vec![
            server.name.clone(),
            transport.to_owned(),
            localize(lang, state(server)).to_owned(),
            target,
        ]
    });
    let names = ["mcp-server", "mcp-transport", "mcp-state", "mcp-target"];
    terminal.data(&table(&names.map(|name| localize(lang, name)), rows.collect()));
    Ok(Exit::Success)
}

/// The transport of a server, and its command or URL without secrets.
fn describe(server: &McpServerConfig) -> (&'static str, String) {
    let target = server.target();
    match &server.transport {
        Transport::Stdio(_) => ("stdio", target),
        Transport::Http(_) => ("http", target),
        Transport::Sse(_) => ("sse", target),
    }
}

/// Starts one server of the configuration, or all that are enabled.
fn open(config: Config, name: Option<&str>, world: &World) -> Result<ServerSet, Fault> {
    let environment = environment(&config, world)?;
    let servers = match name {
        Some(name) => vec![named(config, name)?],
        None => config.mcp,
    };
    ServerSet::open_in(servers, &environment)
}

fn environment(config: &Config, world: &World) -> Result<ServerEnvironment, Fault> {
    let limits = Arc::new(config.limits.clone());
    setup::server_environment(world, &limits, config.mcp_logins.as_deref())
}

/// The server with this name, also if it is switched off.
fn named(config: Config, name: &str) -> Result<McpServerConfig, Fault> {
    let known: Vec<String> = config.mcp.iter().map(|server| server.name.clone()).collect();
    let found = config.mcp.into_iter().find(|server| server.name == name);
    let mut server = found.ok_or_else(|| unknown_server(name, &known))?;
    server.enabled = true;
    Ok(server)
}

fn unknown_server(name: &str, known: &[String]) -> Fault {
    let expected = match suggestions::nearest(name, known.iter().map(String::as_str)) {
        Some(near) => format!("the name of a configured server, perhaps `{near}`"),
        None => "the name of a configured server".to_owned(),
    };
    Fault::new(Kind::ConfigurationWrong, Operation::LoadConfig)
        .with(Fact::ConfigKey, "SERVER")
        .with(Fact::Expected, expected)
        .with(Fact::Received, name.chars().take(40).collect::<String>())
}

async fn doctor(args: &ToolsArgs, lang: Lang, terminal: &Terminal) -> Result<Exit, Fault> {
    let world = world::system();
    let servers = open(args.config.load()?, args.server.as_deref(), &world)?;
    let failed = servers.ready(&world, START_MAX).await;
    let mut is_ok = true;
    for server in servers.iter() {
        let fault = failed.iter().find(|(name, _)| name == server.name()).map(|(_, fault)| fault);
        let is_ready = matches!(server.state(), ServerState::Ready { .. });
        is_ok &= is_ready;
        if args.json {
            terminal.data(&format!("{}\n", report(server, fault, lang)));
            continue;
        }
        match fault {
            Some(fault) => {
                let lines = missing_server(fault, lang);
                let rest = lines.iter().skip(1).map(|line| format!("    {}\n", one_line(line)));
                let first = lines.first().map(String::as_str).unwrap_or_default();
                let rest: String = rest.collect();
                terminal.data(&format!("✗ {}: {first}\n{rest}", server.name()));
            }
            None if is_ready => terminal.data(&format!("✓ {}\n", summary(server, lang))),
            None => {
                let late = localize(lang, "acp-still-starting");
                terminal.data(&format!("✗ {}: {late}\n", server.name()));
            }
        }
    }
    servers.shutdown().await;
    Ok(if is_ok { Exit::Success } else { Exit::Failed })
}

/// What a server says of itself, and how many tools it offers.
fn summary(server: &ServerHandle, lang: Lang) -> String {
    let about = server.about();
    let program = about.as_ref().and_then(|about| about.program.clone()).unwrap_or_default();
    let protocol = about.map(|about| about.protocol).unwrap_or_default();
    let tools = count(lang, "mcp-tool-count", server.tools().len() as u64);
    let line = format!("{}: {}, {protocol}, {tools}", server.name(), one_line(&program));
    let refused = server.refused();
    let reasons = refused.iter().map(|fault| format!("\n    {}", text::user_text(fault, lang)));
    line + &reasons.collect::<String>()
}

fn report(server: &ServerHandle, fault: Option<&Fault>, lang: Lang) -> Value {
    let about = server.about();
    json!({
        "name": server.name(),
        "ok": matches!(server.state(), ServerState::Ready { .. }),
        "program": about.as_ref().and_then(|about| about.program.clone()),
        "protocol": about.map(|about| about.protocol),
        "tools": server.tools().len(),
        "refused": server.refused().len(),
        "code": fault.map(|fault| fault.row().code),
        "lines": fault.map(|fault| missing_server(fault, lang)),
    })
}

async fn tools(args: &ToolsArgs, lang: Lang, terminal: &Terminal) -> Result<Exit, Fault> {
    let world = world::system();
    let servers = open(args.config.load()?, args.server.as_deref(), &world)?;
    let failed = servers.ready(&world, START_MAX).await;
    for (name, fault) in &failed {
        terminal.missing_server(name, fault, lang);
    }
    let mut rows = Vec::new();
    for server in servers.iter() {
        for (own_name, tool) in server.named_tools() {
            let spec = tool.spec();
            if args.json {
                let row = json!({
                    "server": server.name(), "tool": own_name, "name": &*spec.name, "flags": flags(&spec),
                    "description": &*spec.description, "schema": &*spec.schema,
                });
                terminal.data(&format!("{row}\n"));
                continue;
            }
            let about: String =
                one_line(&spec.description).chars().take(DESCRIPTION_SHOWN).collect();
            let own_name: String = one_line(&own_name).chars().take(64).collect();
            rows.push(vec![server.name().to_owned(), own_name, flags(&spec).join(","), about]);
        }
    }
    if !rows.is_empty() {
        let names = ["mcp-server", "tools-tool", "tools-flags", "tools-about"];
        terminal.data(&table(&names.map(|name| localize(lang, name)), rows));
    }
    servers.shutdown().await;
    Ok(if failed.is_empty() { Exit::Success } else { Exit::Failed })
}

/// The properties of a tool that decide about permissions and repetition.
fn flags(spec: &ToolSpec) -> Vec<&'static str> {
    let effect = match spec.effect {
        Effect::Reads => "reads",
        Effect::Writes => "writes",
        Effect::Executes => "executes",
    };
    let is_changed = matches!(spec.source, ToolOrigin::Mcp { is_changed: true, .. });
    let set = [(spec.idempotent, "idempotent"), (spec.confirm, "confirm"), (is_changed, "changed")];
    let set = set.into_iter().filter(|(is_set, _)| *is_set).map(|(_, name)| name);
    std::iter::once(effect).chain(set).collect()
}

async fn call(args: &CallArgs, lang: Lang, terminal: &Terminal) -> Result<Exit, Fault> {
    let world = world::system();
    let servers = open(args.config.load()?, Some(&args.server), &world)?;
    let failed = servers.ready(&world, START_MAX).await;
    let Some(server) = servers.iter().next() else { return Ok(Exit::Failed) };
    if let Some((name, fault)) = failed.first() {
        terminal.missing_server(name, fault, lang);
        servers.shutdown().await;
        return Ok(Exit::Failed);
    }
    let context = isolation::context();
    let name = budao_mcp::tool_name(server.name(), &args.tool);
    let toolbox = server.toolbox();
    let outcome = match toolbox.check_text(&name, args.arguments.as_bytes(), &context.limits) {
        Ok(call) => call.run(context).await,
        Err(fault) => Outcome::from(fault),
    };
    let exit = match outcome {
        Outcome::Done(output) => {
            match &output.data {
                Value::String(text) => terminal.words(&format!("{text}\n")),
                data => terminal.data(&format!("{data}\n")),
            }
            Exit::Success
        }
        // Wrong arguments are explained as to a model: here a person takes its place.
        outcome if is_mistake(&outcome) => {
            terminal.say(&outcome.render_for_model(lang).0);
            Exit::Failed
        }
        Outcome::Failed(failure) => {
            terminal.missing_server(server.name(), &failure.fault, lang);
            Exit::Failed
        }
    };
    servers.shutdown().await;
    Ok(exit)
}

/// Whether the caller made a mistake: an unknown tool, or arguments that do not fit.
fn is_mistake(outcome: &Outcome) -> bool {
    let is_mistake = |fault: &Fault| {
        fault.row().error_type == ErrorType::Validation || fault.kind() == Kind::UnknownTool
    };
    outcome.fault().is_some_and(is_mistake)
}

async fn approve(args: &ApproveArgs, lang: Lang, terminal: &Terminal) -> Result<Exit, Fault> {
    let world = world::system();
    let servers = open(args.config.load()?, Some(&args.server), &world)?;
    let failed = servers.ready(&world, START_MAX).await;
    for (name, fault) in &failed {
        terminal.missing_server(name, fault, lang);
    }
    let approved = servers.iter().flat_map(ServerHandle::approve).collect::<Vec<_>>();
    servers.shutdown().await;
    if !failed.is_empty() {
        return Ok(Exit::Failed);
    }
    let names = one_line(&approved.join(", "));
    let text = match approved.is_empty() {
        true => localize(lang, "mcp-nothing-changed").to_owned(),
        false => fill(lang, "mcp-approved", &[("tools", names.into())]),
    };
    terminal.say(&text);
    Ok(Exit::Success)
}

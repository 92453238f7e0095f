//! `budao mcp login`, `logout` and `status`: a person's logins to remote MCP servers.

use std::{
    io::{BufRead as _, IsTerminal as _, Read as _},
    process::Stdio,
    time::Duration,
};

use budao_core::{
    Fault, Kind, Lang,
    fault::{Fact, Operation},
    world::World,
};
use budao_mcp::{
    DeviceLogin, LoginFlow, LoginState, LoginStatus, LoopbackListener, McpServerConfig,
    ServerEnvironment, ServerSet, ServerState,
};
use budao_runtime::world;
use serde_json::json;

use super::{ListArgs, START_MAX, environment, named};
use crate::{
    config::ConfigArgs,
    exit::Exit,
    symbols::one_line,
    terminal::{Terminal, table},
    texts::{count, fill, localize},
};

/// How long a person has to log in.
const LOGIN_MAX: Duration = Duration::from_secs(10 * 60);

/// The longest line that a person can paste, in bytes.
const PASTED_MAX: u64 = 16 * 1024;

#[derive(Debug, clap::Args)]
pub(super) struct LoginArgs {
    /// The server
    #[arg(value_name = "SERVER")]
    server: String,

    /// Show a code to enter on another device, if the authorization server offers that
    #[arg(long)]
    device: bool,

    /// Do not open a browser; the address is printed in any case
    #[arg(long)]
    no_browser: bool,

    #[command(flatten)]
    config: ConfigArgs,
}

#[derive(Debug, clap::Args)]
pub(super) struct LogoutArgs {
    /// The server
    #[arg(value_name = "SERVER")]
    server: String,

    #[command(flatten)]
    config: ConfigArgs,
}

/// Logs in and starts the server once, to see that it accepts the login.
pub(super) async fn log_in(
    args: &LoginArgs,
    lang: Lang,
    terminal: &Terminal,
) -> Result<Exit, Fault> {
    let world = world::system();
    let config = args.config.load()?;
    let environment = environment(&config, &world)?;
    let server = named(config, &args.server)?;
    if server.login_url().is_none() {
        return Err(Fault::new(Kind::ConfigurationWrong, Operation::LoadConfig)
            .with(Fact::ConfigKey, "SERVER")
            .with(
                Fact::Expected,
                "an http or sse server without an authorization header of its own",
            )
            .with(Fact::Received, server.name));
    }
    let status = match args.device {
        true => on_device(&server, &environment, lang, terminal).await?,
        false => in_browser(args, &server, &environment, lang, terminal).await?,
    };
    let issuer = one_line(&status.issuer);
    terminal.say(&fill(
        lang,
        "mcp-logged-in",
        &[("server", server.name.clone().into()), ("issuer", issuer.into())],
    ));
    check(server, &environment, lang, terminal).await
}

async fn on_device(
    server: &McpServerConfig,
    environment: &ServerEnvironment,
    lang: Lang,
    terminal: &Terminal,
) -> Result<LoginStatus, Fault> {
    let login = DeviceLogin::begin(server, environment).await?;
    let (url, code) = (one_line(login.url()), one_line(&login.user_code()));
    terminal.say(&fill(lang, "mcp-login-device", &[("url", url.into()), ("code", code.into())]));
    login.finish().await
}

async fn in_browser(
    args: &LoginArgs,
    server: &McpServerConfig,
    environment: &ServerEnvironment,
    lang: Lang,
    terminal: &Terminal,
) -> Result<LoginStatus, Fault> {
    let listener = LoopbackListener::bind(server.oauth.redirect_port).await?;
    let flow = LoginFlow::begin(server, environment, listener.redirect()).await?;
    terminal.say(&fill(lang, "mcp-login-open", &[("url", flow.url().to_owned().into())]));
    if !args.no_browser && std::io::stdout().is_terminal() {
        open_browser(flow.url());
    }
    let page = localize(lang, "mcp-login-page");
    let world = &environment.world;
    let answer = tokio::select! {
        answer = listener.answer(flow.state(), page, world) => answer,
        Some(answer) = pasted() => answer,
        () = world.clock.sleep(LOGIN_MAX) => return Err(too_late(server)),
    };
    flow.finish(&answer).await
}

/// A line that the person pastes: the address to which the browser returned, or the code. `None` if the input ends.
async fn pasted() -> Option<String> {
    let (sender, line) = tokio::sync::oneshot::channel();
    // A thread of its own: the runtime would wait for a read that nobody ends.
    std::thread::spawn(move || {
        let input = std::io::stdin().lock().take(PASTED_MAX);
        let mut lines = input.lines().map_while(Result::ok);
        if let Some(line) = lines.find(|line| !line.trim().is_empty()) {
            // An error means that the browser was faster.
            let _ = sender.send(line);
        }
    });
    line.await.ok()
}

fn too_late(server: &McpServerConfig) -> Fault {
    Fault::new(Kind::McpLoginFailed, Operation::StartMcpServer)
        .with(Fact::McpServer, server.name.clone())
        .with(Fact::Reason, format!("nobody logged in within {} minutes", LOGIN_MAX.as_secs() / 60))
}

/// Asks the desktop to show the address. The browser must outlive this program, so no supervisor ends it.
fn open_browser(url: &str) {
    let program = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    let mut command = std::process::Command::new(program);
    command.arg(url).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    if let Err(error) = command.spawn() {
        tracing::debug!(%error, program, "opening a browser failed");
    }
}

/// Starts the server with its new login.
async fn check(
    server: McpServerConfig,
    environment: &ServerEnvironment,
    lang: Lang,
    terminal: &Terminal,
) -> Result<Exit, Fault> {
    let world: &World = &environment.world;
    let name = server.name.clone();
    let servers = ServerSet::open_in([server], environment)?;
    let failed = servers.ready(world, START_MAX).await;
    let state = servers.get(&name).map(budao_mcp::ServerHandle::state);
    servers.shutdown().await;
    if let Some((name, fault)) = failed.first() {
        terminal.missing_server(name, fault, lang);
        return Ok(Exit::Failed);
    }
    if let Some(ServerState::Ready { tools }) = state {
        terminal.say(&format!("✓ {name}: {}", count(lang, "mcp-tool-count", tools as u64)));
    }
    Ok(Exit::Success)
}

pub(super) async fn log_out(
    args: &LogoutArgs,
    lang: Lang,
    terminal: &Terminal,
) -> Result<Exit, Fault> {
    let world = world::system();
    let config = args.config.load()?;
    let environment = environment(&config, &world)?;
    let server = named(config, &args.server)?;
    let is_gone = match &environment.logins {
        Some(logins) => logins.log_out(&server, &world).await,
        None => false,
    };
    let text = if is_gone { "mcp-logged-out" } else { "mcp-not-logged-in" };
    terminal.say(&fill(lang, text, &[("server", server.name.into())]));
    Ok(Exit::Success)
}

pub(super) fn status(args: &ListArgs, lang: Lang, terminal: &Terminal) -> Result<Exit, Fault> {
    let world = world::system();
    let config = args.config.load()?;
    let environment = environment(&config, &world)?;
    let now = world.clock.now();
    let remote = config.mcp.iter().filter(|server| server.login_url().is_some());
    let status = |server| environment.logins.as_ref()?.status(server, now);
    let logins: Vec<_> = remote.map(|server| (server, status(server))).collect();
    if args.json {
        for (server, login) in &logins {
            let row = json!({
                "name": server.name,
                "state": state_name(login.as_ref()),
                "issuer": login.as_ref().map(|login| &login.issuer),
                "scopes": login.as_ref().map(|login| &login.scopes),
                "expires_at": login.as_ref().and_then(|login| login.expires_at).map(|at| at.to_string()),
                "renews": login.as_ref().is_some_and(|login| login.renews),
            });
            terminal.data(&format!("{row}\n"));
        }
        return Ok(Exit::Success);
    }
    if logins.is_empty() {
        terminal.say(localize(lang, "mcp-no-remote"));
        return Ok(Exit::Success);
    }
    let rows = logins.iter().map(|(server, login)| {
        let issuer = login.as_ref().map(|login| one_line(&login.issuer)).unwrap_or_default();
        let scopes = login.as_ref().map(|login| one_line(&login.scopes.join(" ")));
        let until = login.as_ref().and_then(|login| login.expires_at).map(|at| at.to_string());
        let until = match login.as_ref().is_some_and(|login| login.renews) {
            true => localize(lang, "mcp-login-renews").to_owned(),
            false => until.unwrap_or_default(),
        };
        let state = localize(lang, state_text(login.as_ref())).to_owned();
        vec![server.name.clone(), state, until, issuer, scopes.unwrap_or_default()]
    });
    let names =
        ["mcp-server", "mcp-state", "mcp-login-until", "mcp-login-issuer", "mcp-login-scopes"];
    terminal.data(&table(&names.map(|name| localize(lang, name)), rows.collect()));
    Ok(Exit::Success)
}

fn state_text(login: Option<&LoginStatus>) -> &'static str {
    match login.map(|login| login.state) {
        None => "mcp-login-none",
        Some(LoginState::Valid) => "mcp-login-valid",
        Some(LoginState::Expired) => "mcp-login-expired",
        Some(LoginState::MoreRights) => "mcp-login-more-rights",
    }
}

/// The state in the JSON of `status`.
fn state_name(login: Option<&LoginStatus>) -> &'static str {
    match login.map(|login| login.state) {
        None => "none",
        Some(LoginState::Valid) => "valid",
        Some(LoginState::Expired) => "expired",
        Some(LoginState::MoreRights) => "more-rights",
    }
}

//! `budao serve`: sessions for front ends, over WebSocket, SSE and HTTP.

mod mcp_status;
mod node;

use std::{
    fs, io,
    io::Write as _,
    net::SocketAddr,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use budao_core::{
    Fault, Lang,
    event::Settings,
    fallback::split_models,
    fault::{Advice, Fact, Kind, Operation},
    tool::{Mode, Permissions},
};
use budao_models::Models;
use budao_scrub::Scrubber;
use budao_serve::{Auth, Config, Keyring, LogFiles, OnDisconnect, TraceViewer};
use tokio::{net::TcpListener, signal::unix::SignalKind};
use tokio_util::sync::CancellationToken;

use self::node::RunningNode;
use crate::{
    choices::one_of,
    config::ConfigArgs,
    engines::{EngineChoice, RunningEngine},
    exit::Exit,
    listener,
    setup::JournalArgs,
    signals,
    smcp::{HubAccess, HubArgs, JoinedRooms, RoomConfig},
    terminal::Terminal,
    texts::localize,
    traces,
};

/// Least length of a state key, in bytes.
const STATE_KEY_MIN: usize = 32;

/// Default address to listen on.
pub(crate) const LISTEN: &str = "127.0.0.1:7333";

/// Serve sessions to front ends over WebSocket, SSE and HTTP.
///
/// If you configure no authentication, only loopback clients with the printed token can connect. Runs continue when
/// clients disconnect and when the server restarts.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Address to listen on; port 0 picks a free port
    #[arg(long, default_value = LISTEN, value_name = "ADDRESS", env = "BUDAO_LISTEN")]
    listen: SocketAddr,

    /// Accept this token
    #[arg(long, value_name = "TOKEN", env = "BUDAO_TOKEN", hide_env_values = true)]
    token: Option<String>,

    /// Accept the tokens in this file, one per line: `token tenant user [operator] [tools:offer=PATTERN,…]`
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,

    /// Accept JSON Web Tokens signed with the secret in this file (HS256)
    #[arg(long, value_name = "FILE")]
    jwt_secret: Option<PathBuf>,

    /// Accept JSON Web Tokens that this public key verifies (PEM; EdDSA or RS256)
    #[arg(long, value_name = "FILE")]
    jwt_key: Option<PathBuf>,

    /// Required audience of JSON Web Tokens
    #[arg(long, default_value = "budao", value_name = "NAME")]
    jwt_audience: String,

    /// Disable authentication; allowed only on a loopback address
    #[arg(long, conflicts_with_all = ["token", "token_file", "jwt_secret", "jwt_key"])]
    no_auth: bool,

    /// Accept web pages of this other origin: https://host[:port]; can be repeated
    #[arg(long = "origin", value_name = "ORIGIN")]
    origins: Vec<String>,

    /// Accept this host name in requests; can be repeated
    #[arg(long = "host", value_name = "NAME")]
    hosts: Vec<String>,

    /// File with a secret that signs exported states; the first one signs, all of them verify [default: a key
    /// stored next to the journal]
    #[arg(long = "state-key", value_name = "FILE")]
    state_keys: Vec<PathBuf>,

    /// Engine: native (built in), claude (the Claude CLI), or agui:ADDRESS (any AG-UI agent at that address)
    #[arg(long, default_value = "native", value_name = "ENGINE")]
    engine: String,

    /// Path of the Claude CLI [default: CLAUDE_CODE_EXECUTABLE, else `claude` in PATH]
    #[arg(long, value_name = "PROGRAM")]
    claude: Option<PathBuf>,

    /// Model of new sessions: anthropic:NAME, openai:NAME@URL, gemini:NAME, azure:…, bedrock:…, demo, script:FILE, or a
    /// model name of the Claude CLI [default: demo, or the default of the Claude CLI]. Several, separated by commas, are asked in this
    /// order: the next one while the ones before it cannot answer
    #[arg(long, value_name = "SPEC", env = "BUDAO_MODEL")]
    model: Option<String>,

    /// Another model that clients may choose; can be repeated
    #[arg(long = "allow-model", value_name = "SPEC")]
    models: Vec<String>,

    /// Working directory of the tools
    #[arg(long, default_value = ".", value_name = "DIR")]
    workspace: PathBuf,

    /// The name of this machine's files: new sessions run only on servers with the same place; can be repeated, the
    /// first one is for new sessions [default: any server runs any session]
    #[arg(long = "place", value_name = "NAME")]
    places: Vec<String>,

    /// Which tool calls run without asking: auto (all), approval (read-only calls), readonly (read-only calls; all
    /// others are denied). Clients can only choose a stricter mode
    #[arg(long, default_value = "approval", value_name = "MODE", value_parser = one_of::<Mode>(), hide_possible_values = true)]
    permission: Mode,

    /// What to do with a run when its last client disconnects: continue or cancel
    #[arg(long, default_value = "continue", value_name = "ACTION", value_parser = one_of::<OnDisconnect>(), hide_possible_values = true)]
    on_disconnect: OnDisconnect,

    /// Stop when standard input ends: the server then ends with the program that started it, also if that is killed
    #[arg(long)]
    exit_with_stdin: bool,

    #[command(flatten)]
    hub: HubArgs,

    #[command(flatten)]
    config: ConfigArgs,

    #[command(flatten)]
    journal: JournalArgs,
}

/// The HTTP status of a kind of fault.
pub(crate) fn http_status(kind: Kind) -> Option<u16> {
    Some(budao_serve::http_status(kind))
}

/// Runs the server until TERM, INT or, with `--exit-with-stdin`, the end of standard input.
pub(crate) async fn run(args: &Args, lang: Lang, terminal: &Terminal) -> Result<Exit, Fault> {
    let mut file = args.config.load()?;
    file.log.start("warn")?;
    let own_rooms = JoinedRooms::take_own(&mut file.smcp);
    let file_of_journal = args.journal.inspect().await?.file;
    let key = match file_of_journal.as_deref() {
        Some(file) => state_key(file)?,
        None => node::shared_key(&args.journal, new_key).await?,
    };
    let (auth, made) = auth(args, &key)?;
    let mut config = Config::new(auth, keyring(args, &key)?);
    config.origins.clone_from(&args.origins);
    config.hosts.clone_from(&args.hosts);
    config.models.clone_from(&args.models);
    config.settings = settings(args, lang)?;
    config.on_disconnect = args.on_disconnect;
    config.limits = file.serve.limits.clone();
    config.shared_limits = file.limits.clone();
    config.trace_viewer = file.traces.viewer.as_deref().map(TraceViewer::new).transpose()?;
    config.log_files = file.log.file.as_deref().and_then(LogFiles::new);
    config.alerts = file.alerts.to_alerts(file_of_journal.as_deref());
    let secrets = args.token.iter().chain(&made).map(String::as_str).chain(args.hub.secrets());
    config.scrubber = Scrubber::with_secrets(secrets);
    config.check_address(args.listen.ip())?;
    let hub = args.hub.hub(hub_access(args, made.as_deref()), lang, &traces::world())?;
    if let Some(mounted) = &hub {
        mounted.mount(&mut config);
    }
    let listener = listener::listen(args.listen).await?;
    config.metrics.install();

    let session_limit = file.limits.sessions;
    file.places.clone_from(&args.places);
    file.port = (args.listen.port() != 0).then(|| args.listen.port());
    let transports = mcp_status::read_transports(&file.mcp);
    let running = RunningEngine::start(args.engine()?, &args.journal, file).await?;
    for (name, fault) in running.missing() {
        terminal.missing_server(name, fault, lang);
    }
    if let Some(application) = &running.native {
        config.workers = Some(application.workers.clone());
        let servers = &application.servers;
        config.mcp_servers = Some(mcp_status::follow(servers, transports, &traces::world()));
    }
    let address = listener.local_addr().ok();
    let node = RunningNode::start(&running, address, session_limit, args.places.clone()).await;
    config.node = Some(Arc::clone(&node.node));
    let resumed = running.engine.recover().await?;
    if resumed > 0 {
        let words = localize(lang, "serve-resumed-sessions");
        terminal.say(&format!("{words}: {resumed}"));
    }
    let stop = CancellationToken::new();
    let shutdown = shutdown_request(args.exit_with_stdin);
    announce(&listener, made.as_deref(), lang, terminal);
    let own_rooms = match (&hub, listener.local_addr()) {
        (Some(mounted), Ok(here)) => {
            own_rooms.into_iter().map(|room| mounted.own(room, here)).collect()
        }
        _ => own_rooms,
    };
    if let Some(application) = &running.native {
        tokio::spawn(enter(Arc::clone(&application.rooms), own_rooms));
    }
    let (engine, journal) = (Arc::clone(&running.engine), Arc::clone(&running.journal));
    let stopped = stop.clone().cancelled_owned();
    let serving = budao_serve::serve(listener, config, engine, journal, traces::world(), stopped);
    // Sessions and the hub shut down at the same time, so that neither delays the other's clients.
    let ending = async {
        shutdown.await;
        node.drain().await;
        stop.cancel();
        if let Some(mounted) = &hub {
            mounted.close().await;
        }
        Ok(())
    };
    tokio::try_join!(serving, ending)?;
    running.close().await;
    node.leave().await;
    Ok(Exit::Success)
}

impl Args {
    fn engine(&self) -> Result<EngineChoice, Fault> {
        EngineChoice::parse(&self.engine, self.claude.as_deref())
    }

    /// The models of new sessions, checked before the server starts.
    fn models(&self) -> Result<Vec<String>, Fault> {
        let named = self.model.as_deref();
        match self.engine()? {
            // A foreign agent chooses its model itself.
            EngineChoice::Agui(_) => Ok(vec![budao_relay::MODEL.to_owned()]),
            EngineChoice::Claude(_) => crate::claude::server_model(named).map(|model| vec![model]),
            EngineChoice::Native => {
                let models = split_models("--model", named.unwrap_or("demo"))?;
                models.iter().try_for_each(|model| Models::parse_spec(model).map(drop))?;
                Ok(models)
            }
        }
    }
}

/// The server's authentication, as far as it applies to its hub.
fn hub_access<'a>(args: &'a Args, made: Option<&'a str>) -> HubAccess<'a> {
    match made.or(args.token.as_deref()) {
        _ if args.no_auth => HubAccess::Open,
        Some(token) => HubAccess::Token(token.trim()),
        None => HubAccess::Other,
    }
}

/// Joins the rooms of this server's own hub; runs as a task, because the hub starts serving at the same time.
async fn enter(rooms: Arc<JoinedRooms>, own: Vec<RoomConfig>) {
    for room in own {
        let name = room.room_name().to_owned();
        if let Err(fault) = rooms.join_one(room, &traces::world()).await {
            tracing::warn!(%fault, room = name, "joining room failed");
        }
    }
}

/// Prints the address with the token on stdout, for programs, and a message on stderr.
fn announce(listener: &TcpListener, token: Option<&str>, lang: Lang, terminal: &Terminal) {
    let Ok(address) = listener.local_addr() else { return };
    let token = token.map_or(String::new(), |token| format!("#token={token}"));
    terminal.data(&format!("http://{address}/{token}\n"));
    terminal.say(localize(lang, "serve-listening-press-ctrl-c-to-stop"));
}

/// Completes on TERM or INT, or when standard input ends if that is asked for. The handlers are installed by this call,
/// not by the first poll.
fn shutdown_request(exit_with_stdin: bool) -> impl Future<Output = ()> + Send {
    let signal = signals::received(&[SignalKind::terminate(), SignalKind::interrupt()]);
    async move {
        tokio::select! {
            () = signal => {}
            () = signals::input_ended(), if exit_with_stdin => {}
        }
    }
}

/// The configured authentication, and the generated token if none is configured.
fn auth(args: &Args, key: &str) -> Result<(Auth, Option<String>), Fault> {
    if args.no_auth {
        return Ok((Auth::open(), None));
    }
    let named = args.token.is_some()
        || args.token_file.is_some()
        || args.jwt_secret.is_some()
        || args.jwt_key.is_some();
    if !named {
        // Derived from the key, so it stays the same after a restart and open pages can reconnect.
        let token = Keyring::token(key);
        return Ok((Auth::token(&token), Some(token)));
    }
    let mut auth = Auth::default();
    if let Some(token) = &args.token {
        if token.trim().len() < 8 {
            return Err(wrong("--token", "at least 8 characters", "fewer"));
        }
        auth.add_token(token.trim(), budao_serve::Identity::local());
    }
    if let Some(path) = &args.token_file {
        auth.add_tokens(&read("--token-file", path)?)?;
    }
    if let Some(path) = &args.jwt_secret {
        let secret = read("--jwt-secret", path)?;
        if secret.trim().len() < 32 {
            return Err(wrong("--jwt-secret", "at least 32 characters", "fewer"));
        }
        auth.add_shared_secret(secret.trim().as_bytes(), &args.jwt_audience);
    }
    if let Some(path) = &args.jwt_key {
        auth.add_public_key(read("--jwt-key", path)?.as_bytes(), &args.jwt_audience)?;
    }
    Ok((auth, None))
}

fn keyring(args: &Args, key: &str) -> Result<Keyring, Fault> {
    if args.state_keys.is_empty() {
        return Keyring::new([key]);
    }
    let read_key = |path: &PathBuf| read("--state-key", path).map(|key| key.trim().to_owned());
    let keys: Result<Vec<String>, Fault> = args.state_keys.iter().map(read_key).collect();
    Keyring::new(keys?)
}

fn new_key() -> String {
    let world = traces::world();
    (0..4).map(|_| format!("{:016x}", world.entropy.bits())).collect()
}

/// The key in the file beside the journal, created with mode 0600 on first use.
fn state_key(journal: &Path) -> Result<String, Fault> {
    let mut path = journal.as_os_str().to_owned();
    path.push("-key");
    let path = PathBuf::from(path);
    match fs::read_to_string(&path) {
        Ok(key) => return complete_key(&key, &path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(unreadable_key(&path, &error)),
    }
    let key = new_key();
    let unwritable = |error: &io::Error| {
        Fault::new(Kind::FilePermission, Operation::WriteFile)
            .with(Fact::Path, path.display().to_string())
            .caused_by(error)
    };
    let options = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
    match options {
        Ok(mut file) => {
            file.write_all(key.as_bytes()).map_err(|error| unwritable(&error))?;
            Ok(key)
        }
        // Another process created the file in the meantime.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let key = fs::read_to_string(&path).map_err(|error| unreadable_key(&path, &error))?;
            complete_key(&key, &path)
        }
        Err(error) => Err(unwritable(&error)),
    }
}

fn unreadable_key(path: &Path, error: &io::Error) -> Fault {
    Fault::new(Kind::FilePermission, Operation::ReadFile)
        .with(Fact::Path, path.display().to_string())
        .caused_by(error)
}

/// The key of a key file. A file that is too short was cut off; it is named, because no flag named it.
fn complete_key(key: &str, path: &Path) -> Result<String, Fault> {
    let key = key.trim();
    if key.len() >= STATE_KEY_MIN {
        return Ok(key.to_owned());
    }
    let expected = format!("a file with a key of at least {STATE_KEY_MIN} bytes");
    let advice = "Delete the file to have a new key made; clients then open their sessions anew.";
    Err(wrong(&path.display().to_string(), &expected, &format!("{} bytes", key.len()))
        .advise_user([Advice::Custom(advice.to_owned())]))
}

fn settings(args: &Args, lang: Lang) -> Result<Settings, Fault> {
    let workspace = std::path::absolute(&args.workspace).unwrap_or(args.workspace.clone());
    let place = args.places.first().map(|place| (Settings::PLACE.to_owned(), place.clone()));
    Ok(Settings {
        language: lang,
        labels: place.into_iter().collect(),
        workspace: Some(workspace.display().to_string()),
        permissions: Permissions { mode: args.permission, ..Permissions::default() },
        ..Settings::default()
    }
    .with_models(args.models()?))
}

fn read(key: &str, path: &Path) -> Result<String, Fault> {
    fs::read_to_string(path).map_err(|error| {
        wrong(key, "a file that can be read", &path.display().to_string()).caused_by(&error)
    })
}

fn wrong(key: &str, expected: &str, received: &str) -> Fault {
    Fault::new(Kind::ConfigurationWrong, Operation::LoadConfig)
        .with(Fact::ConfigKey, key.to_owned())
        .with(Fact::Expected, expected.to_owned())
        .with(Fact::Received, received.chars().take(80).collect::<String>())
}

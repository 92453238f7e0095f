//! A stage: a journal, a runtime, a server on a free port, and a client that speaks plain WebSocket.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use budao_core::{
    Fault,
    engine::Engine as _,
    event::{SessionId, Settings},
    limits::Limits,
    message::CallId,
    remote::{RemoteCall, ToolRoute},
    tool::{Mode, Permissions},
    world::World,
};
use budao_journal::{Journal, Memory, open};
use budao_models::script::{Script, ScriptStep};
use budao_remote::{WorkerLimits, Workers, WorkersConfig};
use budao_runtime::{Builder, ModelList, ModelSource, OneModel, Runtime, ToolSource, world};
use budao_serve::{Auth, Config, Keyring, serve};
use budao_tools::{RawTool, ToolOptions, Toolbox};
use futures::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::oneshot,
    task::JoinHandle,
};
use tokio_tungstenite::{
    MaybeTlsStream, WebSocketStream, connect_async,
    tungstenite::{Message, client::IntoClientRequest as _},
};

/// Nothing in these tests takes this long unless it hangs.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(120);

pub(crate) struct Fixture {
    pub(crate) address: SocketAddr,
    pub(crate) runtime: Runtime,
    /// The workers of this server, if it takes any.
    pub(crate) workers: Option<Workers>,
    pub(crate) journal: Arc<dyn Journal>,
    stop: Option<oneshot::Sender<()>>,
    serving: Option<JoinHandle<()>>,
}

/// How a stage is set.
pub(crate) struct Setup {
    pub(crate) script: Script,
    /// A second model, by its name; with one, sessions get the model that they name.
    pub(crate) other: Option<Script>,
    pub(crate) journal: Option<Arc<dyn Journal>>,
    pub(crate) config: Config,
    pub(crate) limits: Limits,
    pub(crate) world: World,
    /// Takes tools of workers within these bounds.
    pub(crate) workers: Option<WorkerLimits>,
}

impl Setup {
    pub(crate) fn new(script: Script) -> Self {
        let mut config = Config::new(Auth::open(), keys());
        // Clients do not answer a close frame, and every fixture waits for that when it stops.
        config.limits.close_timeout = Duration::from_millis(200);
        config.settings = Settings {
            permissions: Permissions { mode: Mode::Approval, ..Permissions::default() },
            ..Settings::default()
        };
        let (limits, world) = (Limits::default(), world::system());
        Self { script, other: None, journal: None, config, limits, world, workers: None }
    }

    pub(crate) fn with(mut self, change: impl FnOnce(&mut Config)) -> Self {
        change(&mut self.config);
        self
    }

    pub(crate) fn on(mut self, journal: &Arc<dyn Journal>) -> Self {
        self.journal = Some(Arc::clone(journal));
        self
    }

    pub(crate) async fn open(self) -> Fixture {
        self.assemble(true).await
    }

    /// Opens it and leaves alone what an engine before it has not finished.
    pub(crate) async fn open_without_recovery(self) -> Fixture {
        self.assemble(false).await
    }

    async fn assemble(mut self, recovers: bool) -> Fixture {
        let world = self.world;
        let journal = self
            .journal
            .unwrap_or_else(|| Arc::new(Memory::new(world.clone(), self.limits.clone())));
        let model = |script: Script| Arc::new(script.into_model(Arc::clone(&world.clock)));
        let models: Arc<dyn ModelSource> = match self.other {
            None => Arc::new(OneModel(model(self.script))),
            Some(other) => Arc::new(ModelList(vec![model(self.script), model(other)])),
        };
        let mut toolbox = Toolbox::builder();
        for tool in tools() {
            toolbox = toolbox.add(tool).unwrap();
        }
        let toolbox = toolbox.build();
        let source: Arc<dyn ToolSource> = match self.workers {
            None => Arc::new(toolbox),
            Some(limits) => {
                let store = Some(Arc::clone(&journal) as _);
                let reserved = vec!["echo".to_owned(), "write".to_owned(), "slow".to_owned()];
                let workers =
                    Workers::new(WorkersConfig { world: world.clone(), limits, store, reserved });
                self.config.workers = Some(workers.clone());
                Arc::new(WorkerTools { toolbox, workers })
            }
        };
        let runtime = Builder::new(Arc::clone(&journal), models, source)
            .world(world.clone())
            .limits(self.limits)
            .build()
            .unwrap();
        if recovers {
            runtime.recover().await.unwrap();
        }
        let workers = self.config.workers.clone();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let serving = serve_on(listener, self.config, &runtime, &journal, world, stopped);
        Fixture { address, runtime, workers, journal, stop: Some(stop), serving: Some(serving) }
    }
}

/// The fixture's own tools, and those of workers.
#[derive(Debug)]
struct WorkerTools {
    toolbox: Toolbox,
    workers: Workers,
}

#[async_trait::async_trait]
impl ToolSource for WorkerTools {
    async fn toolbox(&self, _session: SessionId, settings: &Settings) -> Result<Toolbox, Fault> {
        self.workers.add_tools(settings, self.toolbox.clone()).await
    }

    async fn routed(
        &self,
        _session: SessionId,
        settings: &Settings,
        tool: &str,
        route: &ToolRoute,
    ) -> Result<Option<Toolbox>, Fault> {
        self.workers.routed(settings, tool, route).await
    }

    fn call_changed(&self, session: SessionId, call: &CallId, attempt: u32, remote: &RemoteCall) {
        self.workers.call_changed(session, call, attempt, remote);
    }

    fn generation(&self) -> u64 {
        self.workers.generation()
    }
}

fn serve_on(
    listener: TcpListener,
    config: Config,
    runtime: &Runtime,
    journal: &Arc<dyn Journal>,
    world: World,
    stopped: oneshot::Receiver<()>,
) -> JoinHandle<()> {
    let engine = Arc::new(crate::written::CountingEngine::new(runtime.clone(), journal));
    let journal = Arc::clone(journal);
    let stopped = async { drop(stopped.await) };
    tokio::spawn(async move {
        serve(listener, config, engine, journal, world, stopped).await.unwrap();
    })
}

pub(crate) fn keys() -> Keyring {
    Keyring::new(["a secret that is long enough for a key"]).unwrap()
}

pub(crate) fn memory() -> Arc<dyn Journal> {
    Arc::new(Memory::new(world::system(), Limits::default()))
}

pub(crate) async fn sqlite(directory: &tempfile::TempDir) -> Arc<dyn Journal> {
    let file = directory.path().join("journal.db");
    open(&file.display().to_string(), world::system()).await.unwrap()
}

/// `echo {text}` reads; `write {}` must be asked about; `slow {}` runs until it is stopped.
fn tools() -> Vec<RawTool> {
    let nothing = || json!({"type": "object", "properties": {}, "additionalProperties": false});
    vec![
        RawTool::new("echo", "Says it back.", nothing(), |_, _| async { Ok(json!("echo")) })
            .options(ToolOptions::read_only().idempotent(true)),
        RawTool::new("write", "Writes.", nothing(), |_, _| async { Ok(json!("written")) }),
        RawTool::new("slow", "Waits until it is stopped.", nothing(), |_, context| async move {
            context.cancel.cancelled().await;
            Ok(json!("stopped"))
        })
        .options(ToolOptions::read_only().deadline(Duration::from_secs(3600))),
    ]
}

/// A script that says many words, one by one.
pub(crate) fn words(count: usize, pace: Duration) -> Script {
    let text: Vec<String> = (0..count).map(|number| format!("w{number}")).collect();
    Script::new().step(ScriptStep::new().text(text.join(" ")).pace(pace)).forever()
}

impl Fixture {
    pub(crate) async fn client(&self) -> Client {
        Client::connect(self.address, &[]).await.unwrap()
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Exchanges notes about workers with other servers, under a name.
    pub(crate) async fn exchange_workers(&self, holder: &str, others: &[&str]) {
        let others: Vec<String> = others.iter().map(|&it| it.to_owned()).collect();
        let workers = self.workers.as_ref().unwrap();
        workers.exchange(holder, &others, &self.runtime).await.unwrap();
    }

    /// Waits until a call of a worker is open.
    pub(crate) async fn has_open_call(&self) {
        let workers = self.workers.as_ref().unwrap();
        let polling = async {
            while workers.counts().open == 0 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(TEST_TIMEOUT, polling).await.unwrap();
    }

    /// Tells the server to stop and waits until it has.
    pub(crate) async fn stop(mut self) -> Arc<dyn Journal> {
        drop(self.stop.take());
        self.serving.take().unwrap().await.unwrap();
        self.runtime.shutdown(Duration::ZERO).await;
        Arc::clone(&self.journal)
    }
}

/// A client typed from the protocol's page.
pub(crate) struct Client {
    pub(crate) socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
}

impl Client {
    /// Connects with these headers, and is greeted.
    pub(crate) async fn connect(
        address: SocketAddr,
        headers: &[(&'static str, &str)],
    ) -> Result<Self, tokio_tungstenite::tungstenite::Error> {
        let mut request = format!("ws://{address}/ws").into_client_request()?;
        for (name, value) in headers {
            request.headers_mut().insert(*name, value.parse().unwrap());
        }
        let (socket, _) = connect_async(request).await?;
        let mut client = Self { socket };
        assert_eq!(client.next().await["event"], "system.connected");
        Ok(client)
    }

    pub(crate) async fn send(&mut self, frame: Value) {
        self.say(frame.to_string()).await;
    }

    pub(crate) async fn say(&mut self, text: impl Into<String>) {
        self.socket.send(Message::text(text.into())).await.unwrap();
    }

    /// The next text frame; heartbeats are not waited for.
    pub(crate) async fn next(&mut self) -> Value {
        match self.message().await {
            Message::Text(text) => serde_json::from_str(&text).unwrap(),
            other => panic!("a frame was expected, {other:?} came"),
        }
    }

    /// The next message that is not about being alive.
    pub(crate) async fn message(&mut self) -> Message {
        loop {
            let next = tokio::time::timeout(TEST_TIMEOUT, self.socket.next()).await;
            let message = next.expect("something comes in time").expect("the line holds").unwrap();
            let is_beat = message.to_text().is_ok_and(|text| text.contains("system.heartbeat"));
            if !matches!(message, Message::Ping(_) | Message::Pong(_)) && !is_beat {
                return message;
            }
        }
    }

    /// Everything up to and including the first frame with this name.
    pub(crate) async fn until(&mut self, event: &str) -> Vec<Value> {
        let mut frames = Vec::new();
        loop {
            let frame = self.next().await;
            let is_it = frame["event"] == event;
            frames.push(frame);
            if is_it {
                return frames;
            }
        }
    }

    /// A new session.
    pub(crate) async fn create(&mut self, content: Value) -> String {
        self.send(json!({"event": "user.create_session", "content": content})).await;
        let frame = self.next().await;
        assert_eq!(frame["event"], "agent.session_created", "{frame}");
        frame["session_id"].as_str().unwrap().to_owned()
    }

    pub(crate) async fn ask(&mut self, session: &str, text: &str) {
        let frame = json!({"event": "user.message", "session_id": session, "content": text});
        self.send(frame).await;
    }

    /// Comes back with a cursor.
    pub(crate) async fn reconnect(&mut self, session: &str, last: u64) {
        self.send(json!({
            "event": "user.reconnect",
            "session_id": session,
            "content": {"last_seq": last},
        }))
        .await;
    }

    /// The close code the server sends, after whatever comes before it.
    pub(crate) async fn closed(&mut self) -> u16 {
        loop {
            match self.message().await {
                Message::Close(Some(frame)) => return frame.code.into(),
                Message::Close(None) => return 1005,
                _ => {}
            }
        }
    }
}

pub(crate) fn seq(frame: &Value) -> Option<u64> {
    frame["seq"].as_u64()
}

/// The positions of the frames that have one.
pub(crate) fn seqs(frames: &[Value]) -> Vec<u64> {
    frames.iter().filter_map(seq).collect()
}

/// Checks that every frame follows the one before it.
pub(crate) fn assert_whole(frames: &[Value], mut last: u64) {
    for frame in frames.iter().filter(|frame| frame["seq"].is_u64()) {
        assert_eq!(frame["prev"], last, "{frame}");
        last = seq(frame).unwrap();
    }
}

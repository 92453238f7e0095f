//! A server on a free port with a scripted model behind it, and the clients that talk to it.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use budao_client::{Client, Event, Events, Session, SessionRequest};
use budao_core::{
    engine::Engine as _,
    event::Settings,
    limits::Limits as CoreLimits,
    retry::RetryPolicy,
    tool::{Mode, Permissions},
};
use budao_journal::{Journal, Memory};
use budao_models::{
    Model,
    script::{Script, ScriptStep, StepOrder},
};
use budao_runtime::{Builder, OneModel, Runtime, world};
use budao_serve::{Auth, Config, Keyring, Limits};
use budao_tools::{RawTool, ToolError, ToolOptions, Toolbox, pool::Pool};
use futures::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::{
    net::{TcpListener, TcpSocket},
    sync::oneshot,
    task::JoinHandle,
};
use tokio_tungstenite::{
    MaybeTlsStream, WebSocketStream, connect_async,
    tungstenite::{
        Message, client::IntoClientRequest as _, handshake::client::Request, protocol::CloseFrame,
    },
};

/// Longer than anything here takes, however busy the machine is.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(120);

/// What a server is made of.
pub(crate) struct Setup {
    pub(crate) script: Script,
    pub(crate) config: Config,
    pub(crate) limits: CoreLimits,
    pub(crate) mode: Mode,
    pub(crate) journal: Option<Arc<dyn Journal>>,
    /// In place of the script.
    pub(crate) model: Option<Arc<dyn Model>>,
    /// What the kernel keeps for a client that does not read; as it likes if none.
    pub(crate) send_buffer: Option<u32>,
}

impl Setup {
    pub(crate) fn new(script: Script) -> Self {
        let mut config = Config::new(Auth::open(), Keyring::random(7, 9));
        let many = budao_serve::Rate { per_second: 1_000_000, burst: 1_000_000 };
        config.limits = Limits {
            commands: many,
            tenant_commands: many,
            all_commands: many,
            // Peers do not answer a close frame, and every fixture waits for that when it stops.
            close_timeout: Duration::from_millis(200),
            ..Limits::default()
        };
        let limits = CoreLimits::default();
        Self {
            script,
            config,
            limits,
            mode: Mode::Auto,
            journal: None,
            model: None,
            send_buffer: None,
        }
    }

    pub(crate) fn gateway(mut self, change: impl FnOnce(&mut Limits)) -> Self {
        change(&mut self.config.limits);
        self
    }

    pub(crate) fn mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    pub(crate) async fn start(mut self) -> Fixture {
        let world = world::system();
        let journal = self
            .journal
            .unwrap_or_else(|| Arc::new(Memory::new(world.clone(), self.limits.clone())));
        let running = Arc::new(AtomicUsize::new(0));
        let mut toolbox = Toolbox::builder().pool(Arc::new(Pool::tasks()));
        for tool in tools(&running) {
            toolbox = toolbox.add(tool).unwrap();
        }
        let clock = Arc::clone(&world.clock);
        let model = self.model.unwrap_or_else(|| Arc::new(self.script.into_model(clock)));
        let models = Arc::new(OneModel(model));
        let runtime = Builder::new(Arc::clone(&journal), models, Arc::new(toolbox.build()))
            .world(world.clone())
            .limits(self.limits)
            .build()
            .unwrap();
        let permissions = Permissions { mode: self.mode, ..Permissions::default() };
        self.config.settings = Settings { permissions, ..Settings::default() };
        let listener = listen(self.send_buffer);
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let engine = Arc::new(runtime.clone());
        let serving = budao_serve::serve(
            listener,
            self.config,
            engine,
            Arc::clone(&journal) as _,
            world,
            async move {
                let _ = stopped.await;
            },
        );
        let served = tokio::spawn(async move {
            serving.await.unwrap();
        });
        Fixture { address, journal, runtime, running, stop: Some(stop), served }
    }
}

fn listen(send_buffer: Option<u32>) -> TcpListener {
    let socket = TcpSocket::new_v4().unwrap();
    if let Some(bytes) = send_buffer {
        // Those it accepts have the same.
        socket.set_send_buffer_size(bytes).unwrap();
    }
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    socket.listen(1024).unwrap()
}

/// `echo {text}`, `wait {}` (until stopped; counted), `mark {}`, `fail {}`, `unsure {}`.
fn tools(running: &Arc<AtomicUsize>) -> Vec<RawTool> {
    let text = json!({
        "type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"],
    });
    let nothing = || json!({"type": "object", "properties": {}});
    let counted = Arc::clone(running);
    vec![
        RawTool::new("echo", "Says it back.", text, |arguments, _| async move {
            Ok(arguments["text"].clone())
        })
        .options(ToolOptions::read_only().idempotent(true)),
        RawTool::new("wait", "Waits until it is stopped.", nothing(), move |_, context| {
            let counted = Arc::clone(&counted);
            async move {
                counted.fetch_add(1, Ordering::SeqCst);
                context.cancel.cancelled().await;
                counted.fetch_sub(1, Ordering::SeqCst);
                Ok(json!("stopped"))
            }
        })
        .options(ToolOptions::default().deadline(Duration::from_secs(3600))),
        RawTool::new(
            "mark",
            "Leaves a mark.",
            nothing(),
            |_, _| async move { Ok(json!("marked")) },
        ),
        RawTool::new("fail", "Says no.", nothing(), |_, _| async move {
            Ok(json!({"ok": false, "error": "no"}))
        }),
        RawTool::new("unsure", "May be done.", nothing(), |_, _| async move {
            let error = ToolError::new("the line broke").may_have_happened();
            Err(error.into_failure("unsure"))
        }),
    ]
}

/// A run of at least 200 events: so many steps of four calls each, then an answer.
pub(crate) fn long_run() -> Script {
    let calls = (0..4).map(|n| ("echo", json!({"text": format!("call {n}")})));
    Script::new().calls(calls).repeat(24).say("All done.")
}

/// So many calls and an answer for every message, of every session the same.
pub(crate) fn runs(steps: usize) -> Script {
    let script = (0..64).fold(Script::new(), |script, _| {
        script.call("echo", json!({"text": "again"})).repeat(steps).say("All done.")
    });
    script.order(StepOrder::History)
}

/// An answer of 100 pieces, 10 ms apart.
pub(crate) fn hundred_pieces() -> (Script, String) {
    let text = (0..100).map(|n| format!("piece{n}")).collect::<Vec<_>>().join(" ");
    (Script::new().step(ScriptStep::new().text(text.clone()).pace(Duration::from_millis(10))), text)
}

pub(crate) struct Fixture {
    pub(crate) address: SocketAddr,
    pub(crate) journal: Arc<dyn Journal>,
    pub(crate) runtime: Runtime,
    /// How many calls of `wait` are under way.
    pub(crate) running: Arc<AtomicUsize>,
    stop: Option<oneshot::Sender<()>>,
    served: JoinHandle<()>,
}

impl Fixture {
    pub(crate) fn client(&self) -> Client {
        client_at(self.address)
    }

    pub(crate) async fn peer(&self) -> Peer {
        Peer::connect(self.address).await
    }

    /// Opens a session over a line of its own.
    pub(crate) async fn session(&self) -> (Session, Events) {
        self.client().create(SessionRequest::default()).await.unwrap()
    }

    /// The whole history as a fresh client gets it, up to the final answer.
    pub(crate) async fn history(&self, session: &str) -> Vec<Event> {
        let (_session, mut events) = self.client().attach(session, None).await.unwrap();
        replay(&mut events).await
    }

    /// Stops in good order.
    pub(crate) async fn stop(mut self) {
        drop(self.stop.take());
        tokio::time::timeout(TEST_TIMEOUT, self.served).await.unwrap().unwrap();
        self.runtime.shutdown(Duration::ZERO).await;
    }
}

/// A client that comes back quickly.
pub(crate) fn client_at(address: SocketAddr) -> Client {
    Client::new(format!("ws://{address}/ws"))
        .retry(RetryPolicy {
            tries: 10_000,
            base: Duration::from_millis(1),
            max: Duration::from_millis(20),
            ..RetryPolicy::default()
        })
        .seed(1)
        .silence(TEST_TIMEOUT)
}

/// The next event, in time.
pub(crate) async fn next(events: &mut Events) -> Event {
    let next = tokio::time::timeout(TEST_TIMEOUT, events.next()).await.expect("an event in time");
    next.expect("the events go on").expect("no part of the history is missing")
}

/// Every event up to and with the one of this name.
pub(crate) async fn until(events: &mut Events, name: &str) -> Vec<Event> {
    let mut received = Vec::new();
    loop {
        let event = next(events).await;
        let is_last = event.event == name;
        received.push(event);
        if is_last {
            return received;
        }
    }
}

/// What a resume gives, up to its summary.
pub(crate) async fn replay(events: &mut Events) -> Vec<Event> {
    let mut received = Vec::new();
    loop {
        let event = next(events).await;
        if event.seq.is_none() && event.meta("action") == "replay" {
            return received;
        }
        received.push(event);
    }
}

/// The events that are part of the history, by id and name.
pub(crate) fn texts_by_event(events: &[Event]) -> Vec<(String, String)> {
    let placed = events.iter().filter(|event| event.seq.is_some());
    placed.map(|event| (event.event_id.clone().unwrap(), event.event.clone())).collect()
}

/// The seed of this run: drawn, or `BUDAO_SEED`. Printed either way.
pub(crate) fn seed() -> u64 {
    let given = std::env::var("BUDAO_SEED").ok().and_then(|text| text.parse().ok());
    let seed = given.unwrap_or_else(rand::random);
    eprintln!("BUDAO_SEED={seed}");
    seed
}

/// A plain WebSocket client, typed from the protocol's description: it does nothing by itself.
pub(crate) struct Peer(WebSocketStream<MaybeTlsStream<tokio::net::TcpStream>>);

impl Peer {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        let mut peer = Self(connect_async(format!("ws://{address}/ws")).await.unwrap().0);
        assert_eq!(peer.next().await["event"], "system.connected");
        peer
    }

    pub(crate) async fn connect_as(address: SocketAddr, token: &str) -> Self {
        let mut request = format!("ws://{address}/ws").into_client_request().unwrap();
        let value = format!("Bearer {token}").parse().unwrap();
        request.headers_mut().insert("authorization", value);
        Self::connect_with(request).await
    }

    pub(crate) async fn connect_with(request: Request) -> Self {
        let mut peer = Self(connect_async(request).await.unwrap().0);
        assert_eq!(peer.next().await["event"], "system.connected");
        peer
    }

    pub(crate) async fn send(&mut self, frame: &Value) {
        self.say(Message::text(frame.to_string())).await;
    }

    pub(crate) async fn say(&mut self, message: Message) {
        self.0.send(message).await.unwrap();
    }

    /// The next event; a heartbeat is none.
    pub(crate) async fn next(&mut self) -> Value {
        match self.receive().await {
            Ok(event) => event,
            Err(close) => panic!("closed: {close:?}"),
        }
    }

    /// The next event, or the close frame.
    pub(crate) async fn receive(&mut self) -> Result<Value, Option<CloseFrame>> {
        loop {
            let message = tokio::time::timeout(TEST_TIMEOUT, self.0.next()).await.expect("in time");
            match message {
                Some(Ok(Message::Text(text))) => {
                    let event: Value = serde_json::from_str(&text).unwrap();
                    if event["event"] != "system.heartbeat" {
                        return Ok(event);
                    }
                }
                Some(Ok(Message::Close(frame))) => return Err(frame),
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return Err(None),
            }
        }
    }

    /// Skips to the next heartbeat.
    pub(crate) async fn heartbeat(&mut self) -> Value {
        loop {
            let message = tokio::time::timeout(TEST_TIMEOUT, self.0.next()).await.expect("in time");
            let Message::Text(text) = message.unwrap().unwrap() else { continue };
            let event: Value = serde_json::from_str(&text).unwrap();
            if event["event"] == "system.heartbeat" {
                return event;
            }
        }
    }

    /// Skips to the event of this name.
    pub(crate) async fn until(&mut self, name: &str) -> Value {
        loop {
            let event = self.next().await;
            if event["event"] == name {
                return event;
            }
        }
    }

    /// Asks under an id and skips to the answer.
    pub(crate) async fn ask(&mut self, mut frame: Value, id: &str) -> Value {
        frame["command_id"] = id.into();
        self.send(&frame).await;
        loop {
            let event = self.next().await;
            let is_answer = event.get("seq").is_none_or(Value::is_null)
                || event["event"] == "agent.session_created";
            if is_answer && event["metadata"]["command_id"] == id {
                return event;
            }
        }
    }

    /// Opens a session and returns its id.
    pub(crate) async fn create(&mut self) -> String {
        self.send(&json!({"event": "user.create_session", "content": {}})).await;
        let created = self.until("agent.session_created").await;
        created["session_id"].as_str().unwrap().to_owned()
    }
}

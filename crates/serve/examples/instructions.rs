//! Does an event or an append as often as it is told: what `cargo xtask instructions` counts under valgrind, beside the
//! turns of `crates/runtime/examples/turns.rs`.
//!
//! One thread, no network, quick models and tools, nothing waits. The cost of one is the difference between two runs
//! with different counts, so that start and end do not matter.

use std::{sync::Arc, time::Duration};

use budao_core::{
    Fault,
    event::{Event, SessionId, Settings},
    limits::Limits,
    message::{Block, ModelRequest, ModelStop, Piece, Usage},
    tool::{Mode, Permissions},
    trace::Trace,
};
use budao_journal::{Append, Entry, IfMissing, Journal, LeaseRequest, Memory, open};
use budao_models::{Model, PieceStream};
use budao_runtime::{Builder, OneModel, world};
use budao_serve::{
    Auth, Config, Identity, Keyring, Rate,
    in_process::{ClientMessage, InProcessServer},
};
use budao_tools::{Toolbox, pool::Pool};
use futures::stream;
use serde_json::json;
use tokio::sync::mpsc;

/// The body of an event and of an appended record, in bytes.
const PIECE: usize = 200;

fn main() {
    let mut args = std::env::args().skip(1);
    let (case, count) = (args.next().unwrap_or_default(), args.next());
    let count = count.and_then(|count| count.parse().ok()).unwrap_or(1);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    match case.as_str() {
        "event" => runtime.block_on(events(count)),
        "append" => runtime.block_on(appends(count)),
        _ => panic!("a case: event or append"),
    }
}

fn limits() -> Limits {
    Limits { delta_window: Duration::ZERO, context_tokens: u64::MAX, ..Limits::default() }
}

fn permissions() -> Permissions {
    Permissions { mode: Mode::Auto, ..Permissions::default() }
}

/// Answers a message that is a number with that many pieces.
#[derive(Debug)]
struct QuickModel;

#[async_trait::async_trait]
impl Model for QuickModel {
    fn provider(&self) -> &str {
        "quick"
    }

    fn name(&self) -> &str {
        "quick"
    }

    async fn stream(&self, request: ModelRequest) -> Result<PieceStream, Fault> {
        let usage = Usage { input_tokens: 10, output_tokens: 5, ..Usage::default() };
        let last = request.messages.last().and_then(|message| message.content.first());
        let Some(Block::Text(text)) = last else { unreachable!("the message is a text") };
        let count = text.parse::<usize>().expect("the message is a number");
        let piece = "x".repeat(PIECE);
        let mut pieces = vec![Piece::Text(piece.clone()); count];
        pieces.push(Piece::Block(Block::Text(piece.repeat(count))));
        pieces.push(Piece::End { stop: ModelStop::EndTurn, usage });
        Ok(Box::pin(stream::iter(pieces.into_iter().map(Ok))))
    }
}

/// Pieces of one answer, from the model to a client of a server without a listener.
async fn events(count: u32) {
    let world = world::system();
    let journal: Arc<dyn Journal> = Arc::new(Memory::new(world.clone(), limits()));
    let toolbox = Toolbox::builder().pool(Arc::new(Pool::tasks())).build();
    let models = Arc::new(OneModel(Arc::new(QuickModel)));
    let engine = Builder::new(Arc::clone(&journal), models, Arc::new(toolbox))
        .world(world.clone())
        .limits(limits())
        .build()
        .expect("an engine");
    let server = InProcessServer::new(config(), Arc::new(engine), journal, world);
    let (to_server, from_client) = mpsc::channel(16);
    let (to_client, mut from_server) = mpsc::channel(1024);
    tokio::spawn(async move { server.serve(Identity::local(), from_client, to_client).await });
    let send = async |frame: serde_json::Value| {
        to_server.send(ClientMessage::Frame(frame.to_string())).await.expect("the server reads");
    };
    send(json!({"event": "user.create_session", "content": {}})).await;
    let session = loop {
        let frame = next_frame(&mut from_server).await;
        if frame["event"] == "agent.session_created" {
            break frame["session_id"].clone();
        }
    };
    let message =
        json!({"event": "user.message", "session_id": session, "content": count.to_string()});
    send(message).await;
    let mut deltas = 0;
    loop {
        // Not parsed: the client's work is not the server's.
        let message = from_server.recv().await.expect("the server is there");
        let ClientMessage::Frame(frame) = message else { continue };
        deltas += u32::from(frame.contains("\"agent.partial_answer\""));
        if frame.contains("\"agent.final_answer\"") {
            break;
        }
    }
    assert_eq!(deltas, count, "every piece is a frame");
}

async fn next_frame(from_server: &mut mpsc::Receiver<ClientMessage>) -> serde_json::Value {
    match from_server.recv().await.expect("the server is there") {
        ClientMessage::Frame(frame) => serde_json::from_str(&frame).expect("JSON"),
        _ => serde_json::Value::Null,
    }
}

/// Nothing gets in the way of what is counted.
fn config() -> Config {
    let many = Rate { per_second: 1_000_000, burst: 1_000_000 };
    let mut config = Config::new(Auth::open(), Keyring::random(1, 2));
    config.shared_limits = limits();
    config.settings = Settings { permissions: permissions(), ..Settings::default() };
    config.limits.commands = many;
    config.limits.observer_bytes = 1 << 30;
    config.limits.total_observer_bytes = 1 << 30;
    config
}

/// Records appended one by one to a journal file.
async fn appends(count: u32) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("journal.db").display().to_string();
    let journal = open(&file, world::system()).await.expect("a journal");
    let request = LeaseRequest {
        session: SessionId(world::system().uuid()),
        holder: "count".into(),
        ttl: Duration::from_secs(3600),
        if_missing: IfMissing::Create,
        dead_holder: None,
    };
    let lease = journal.take_lease(request).await.expect("a lease");
    for head in 0..u64::from(count) {
        let append = Append::new(&lease, head, vec![entry()]);
        journal.append(append).await.expect("appended");
    }
}

fn entry() -> Entry {
    let event = Event::TextDelta { step: 1, text: "x".repeat(PIECE) };
    let at = world::system().clock.now();
    Entry { at, trace: Trace::from_random(0x4bf9_2f35_77b3_4da6), turn: 1, event: event.into() }
}

//! Our server as a process of its own: the whole way of an event, from a model's stream over the journal and the projection
//! to the socket. The model is quick, and deltas are not joined, so that each piece is an event.

use std::{io::Write as _, path::Path, sync::Arc, time::Duration};

use budao_core::{
    Fault,
    event::Settings,
    limits::Limits,
    message::{Block, ModelRequest, ModelStop, Piece, Usage},
    tool::{Mode, Permissions},
};
use budao_journal::{Journal, Memory, open};
use budao_models::{Model, PieceStream};
use budao_runtime::{Builder, OneModel, world};
use budao_serve::{Auth, Config, Keyring, Limits as Bounds, Rate};
use budao_tools::{Toolbox, pool::Pool};
use futures::{StreamExt as _, stream};

use crate::{NARROW, PIECE, wire};

/// Nothing here gets in the way of what is measured.
fn without_bounds() -> Bounds {
    let many = Rate { per_second: 1_000_000, burst: 1_000_000 };
    Bounds {
        commands: many,
        tenant_commands: many,
        all_commands: many,
        replays: many,
        tenant_replays: many,
        // The client is another process on the same two cores: it may well be away for longer than a burst lasts.
        observer_bytes: 64 << 20,
        total_observer_bytes: 4 << 30,
        ..for_crowds(false)
    }
}

/// The usual bounds, but wide enough to refuse no client: a crowd is connected, with a token, in one tenant. `is_narrow` lets little wait.
fn for_crowds(is_narrow: bool) -> Bounds {
    let usual = Bounds::default();
    Bounds {
        observers: 20_000,
        connections: 20_000,
        tenant_connections: 20_000,
        observer_bytes: if is_narrow { 64 * 1024 } else { usual.observer_bytes },
        ..usual
    }
}

/// Says so many pieces to whatever it is asked: the number is the last message.
#[derive(Debug)]
struct Flood;

#[async_trait::async_trait]
impl Model for Flood {
    fn provider(&self) -> &str {
        "flood"
    }

    fn name(&self) -> &str {
        "flood"
    }

    async fn stream(&self, request: ModelRequest) -> Result<PieceStream, Fault> {
        let last_message =
            request.messages.last().and_then(|message| match message.content.first() {
                Some(Block::Text(text)) => text.trim().parse().ok(),
                _ => None,
            });
        let count: usize = last_message.unwrap_or(1);
        let piece = "x".repeat(PIECE);
        let whole = Piece::Block(Block::Text(piece.repeat(count)));
        let usage = Usage { input_tokens: 10, output_tokens: 10, ..Usage::default() };
        let end = [whole, Piece::End { stop: ModelStop::EndTurn, usage }];
        let pieces = stream::iter((0..count).map(move |_| Piece::Text(piece.clone())));
        Ok(Box::pin(pieces.chain(stream::iter(end)).map(Ok)))
    }
}

/// Serves until its parent kills it. `journal` is a file, or none for one in memory; `behaviour` is none for a server
/// without bounds, or how a crowd meets it.
pub(crate) fn run(journal: Option<&Path>, behaviour: Option<&str>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("tokio");
    runtime.block_on(serve(journal, behaviour));
}

async fn serve(journal: Option<&Path>, behaviour: Option<&str>) {
    let world = world::system();
    let limits = Limits {
        delta_window: Duration::ZERO,
        context_tokens: u64::MAX,
        sessions: 100_000,
        ..Limits::default()
    };
    let journal: Arc<dyn Journal> = match journal {
        None => Arc::new(Memory::new(world.clone(), limits.clone())),
        Some(file) => {
            let opened = open(&file.display().to_string(), world.clone()).await;
            opened.expect("a journal")
        }
    };
    let toolbox = Toolbox::builder().pool(Arc::new(Pool::tasks())).build();
    let models = Arc::new(OneModel(Arc::new(Flood)));
    let engine = Builder::new(Arc::clone(&journal), models, Arc::new(toolbox))
        .world(world.clone())
        .limits(limits.clone())
        .build()
        .expect("a runtime");
    let mut config = Config::new(Auth::open(), Keyring::random(1, 2));
    config.shared_limits = limits;
    config.settings = Settings {
        permissions: Permissions { mode: Mode::Auto, ..Permissions::default() },
        ..Settings::default()
    };
    config.limits = match behaviour {
        None => without_bounds(),
        Some(behaviour) => for_crowds(behaviour == NARROW),
    };
    let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
    if behaviour == Some(NARROW) {
        // Those it accepts have the same.
        socket.set_send_buffer_size(wire::NARROW).expect("a small buffer");
    }
    socket.bind(([127, 0, 0, 1], 0).into()).expect("a port");
    let listener = socket.listen(1024).expect("a port");
    let address = listener.local_addr().expect("an address");
    let mut out = std::io::stdout();
    writeln!(out, "{address}").and_then(|()| out.flush()).expect("somebody listens");
    let never = std::future::pending();
    budao_serve::serve(listener, config, Arc::new(engine), journal, world, never)
        .await
        .expect("serves");
}

//! A context for calls outside a session: tests, examples, a tool tried out by hand.

use std::{
    hash::{BuildHasher, Hasher, RandomState},
    sync::Arc,
    time::{Duration, SystemTime},
};

use budao_core::{
    Lang, Timestamp,
    event::{SessionId, TurnNumber},
    limits::Limits,
    message::CallId,
    world::{Clock, Entropy, NoopSpanExporter, Spawn, World},
};
use budao_scrub::Scrubber;
use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use crate::contract::{CallContext, EmptyMemory, NoteSender};

/// A context with the default limits, the machine's clock, and no memory.
#[must_use]
pub fn context() -> CallContext {
    context_with(Limits::default())
}

/// As [`context`], with other limits.
#[must_use]
pub fn context_with(limits: Limits) -> CallContext {
    let here = Arc::new(SystemWorld);
    let spans = Arc::new(NoopSpanExporter);
    let world = World { clock: here.clone(), entropy: here.clone(), spawn: here, spans };
    let blank = Arc::new(EmptyMemory::default());
    CallContext {
        timers: Arc::new(crate::contract::NoTimers),
        session: SessionId(world.uuid()),
        turn: TurnNumber::default(),
        call: CallId::from("alone"),
        attempt: 1,
        idempotency_key: "alone".into(),
        trace: world.trace(),
        lang: Lang::En,
        cancel: CancellationToken::new(),
        limits: Arc::new(limits),
        world,
        memory: blank.clone(),
        notes: NoteSender::disconnected(),
        blobs: blank,
        scrubber: Scrubber::default(),
    }
}

/// The machine's clock and randomness, and the current async runtime.
#[derive(Debug)]
struct SystemWorld;

impl Clock for SystemWorld {
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Timestamp::from_micros(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
    }

    fn sleep(&self, wait: Duration) -> BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(wait))
    }
}

impl Entropy for SystemWorld {
    fn bits(&self) -> u64 {
        RandomState::new().build_hasher().finish()
    }
}

impl Spawn for SystemWorld {
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        drop(tokio::spawn(task));
    }
}

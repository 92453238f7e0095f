//! The system's [`World`]: the machine's clock and randomness, and tokio's tasks.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use budao_core::{
    time::Timestamp,
    world::{Clock, Entropy, NoopSpanExporter, Spawn, World},
};
use futures::future::BoxFuture;

/// Wall-clock time and tokio's timer.
#[derive(Debug)]
struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Timestamp::from_micros(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
    }

    fn sleep(&self, wait: Duration) -> BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(wait))
    }
}

/// The operating system's randomness.
#[derive(Debug)]
struct SystemEntropy;

impl Entropy for SystemEntropy {
    fn bits(&self) -> u64 {
        rand::random()
    }
}

/// Spawns detached tokio tasks.
#[derive(Debug)]
struct TokioSpawn;

impl Spawn for TokioSpawn {
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        drop(tokio::spawn(task));
    }
}

/// Returns the system's world, without span export. Spawning requires a tokio runtime.
#[must_use]
pub fn system() -> World {
    World {
        clock: Arc::new(SystemClock),
        entropy: Arc::new(SystemEntropy),
        spawn: Arc::new(TokioSpawn),
        spans: Arc::new(NoopSpanExporter),
    }
}

//! Worlds for tests: tokio's clock, which can be paused, with randomness from a seed; and the clock of this machine.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use budao_core::{
    time::Timestamp,
    world::{Clock, Entropy, NoopSpanExporter, Spawn, World},
};
use futures::future::BoxFuture;

/// 2026-01-01T00:00:00Z, the start time of every test.
pub const BEGIN: Timestamp = Timestamp::from_micros(1_767_225_600_000_000);

#[derive(Debug)]
struct TestClock {
    began: tokio::time::Instant,
}

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        BEGIN.after(self.began.elapsed())
    }

    fn sleep(&self, wait: Duration) -> BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(wait))
    }
}

#[derive(Debug)]
struct SeededEntropy(AtomicU64);

impl Entropy for SeededEntropy {
    fn bits(&self) -> u64 {
        // SplitMix64: each state is one step after the last, so the output depends only on the order of calls.
        let step = 0x9e37_79b9_7f4a_7c15;
        let mut bits = self.0.fetch_add(step, Ordering::Relaxed).wrapping_add(step);
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }
}

#[derive(Debug)]
struct TokioSpawn;

impl Spawn for TokioSpawn {
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        drop(tokio::spawn(task));
    }
}

#[derive(Debug)]
struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let elapsed = std::time::UNIX_EPOCH.elapsed().unwrap_or_default();
        Timestamp::from_micros(i64::try_from(elapsed.as_micros()).unwrap_or(i64::MAX))
    }

    fn sleep(&self, wait: Duration) -> BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(wait))
    }
}

#[derive(Debug)]
struct SystemEntropy;

impl Entropy for SystemEntropy {
    fn bits(&self) -> u64 {
        let (high, low) = uuid::Uuid::new_v4().as_u64_pair();
        high ^ low.rotate_left(32)
    }
}

/// A world with the clock and the randomness of this machine.
#[must_use]
pub fn system() -> World {
    World {
        clock: Arc::new(SystemClock),
        entropy: Arc::new(SystemEntropy),
        spawn: Arc::new(TokioSpawn),
        spans: Arc::new(NoopSpanExporter),
    }
}

/// A world with randomness from `seed` and tokio's time, which stands still while the runtime's clock is paused.
#[must_use]
pub fn seeded(seed: u64) -> World {
    World {
        clock: Arc::new(TestClock { began: tokio::time::Instant::now() }),
        entropy: Arc::new(SeededEntropy(AtomicU64::new(seed))),
        spawn: Arc::new(TokioSpawn),
        spans: Arc::new(NoopSpanExporter),
    }
}

//! Virtual time that can jump, seeded randomness, and tasks that die with their process.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicI64, Ordering},
    },
    time::Duration,
};

use budao_core::{
    time::Timestamp,
    world::{Clock, Entropy, NoopSpanExporter, Spawn, World},
};
use futures::future::{AbortHandle, BoxFuture, abortable};
use rand::{Rng as _, SeedableRng as _, rngs::StdRng};

/// 2026-01-01T00:00:00Z, the start time of every simulation.
const BEGIN_MICROS: i64 = 1_767_225_600_000_000;

/// The clock of all processes. Its wall time may jump; its waits do not.
#[derive(Clone, Debug)]
pub(crate) struct SimClock {
    began: tokio::time::Instant,
    jumped_micros: Arc<AtomicI64>,
}

impl SimClock {
    pub(crate) fn new() -> Self {
        Self { began: tokio::time::Instant::now(), jumped_micros: Arc::default() }
    }

    /// Moves the wall clock by `by_ms`, which may be negative.
    pub(crate) fn jump(&self, by_ms: i64) {
        self.jumped_micros.fetch_add(by_ms * 1000, Ordering::Relaxed);
    }

    /// Virtual time since the start; it never jumps.
    pub(crate) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }
}

impl Clock for SimClock {
    fn now(&self) -> Timestamp {
        let elapsed = i64::try_from(self.began.elapsed().as_micros()).unwrap_or(i64::MAX);
        let jumped = self.jumped_micros.load(Ordering::Relaxed);
        Timestamp::from_micros(BEGIN_MICROS.saturating_add(elapsed).saturating_add(jumped))
    }

    fn sleep(&self, wait: Duration) -> BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(wait))
    }
}

/// Seeded random bits, in the order of requests.
#[derive(Debug)]
struct SeededEntropy(Mutex<StdRng>);

impl Entropy for SeededEntropy {
    fn bits(&self) -> u64 {
        self.0.lock().expect("nobody panics while drawing").next_u64()
    }
}

/// A generator for one purpose. It depends only on the seed and the name, never on earlier draws.
pub(crate) fn chance(seed: u64, name: &str) -> StdRng {
    let mut key = [0; 32];
    key[..8].copy_from_slice(&seed.to_le_bytes());
    // Two checksums over different prefixes make a collision of two names practically impossible.
    key[8..12].copy_from_slice(&crc32fast::hash(name.as_bytes()).to_le_bytes());
    key[12..16].copy_from_slice(&crc32fast::hash(format!("again {name}").as_bytes()).to_le_bytes());
    key[16..24].copy_from_slice(&(name.len() as u64).to_le_bytes());
    StdRng::from_seed(key)
}

/// The tasks of one process. After a kill none of them is polled again.
#[derive(Debug, Default)]
pub(crate) struct Tasks {
    killed: AtomicBool,
    handles: Mutex<Vec<AbortHandle>>,
}

impl Tasks {
    pub(crate) fn is_alive(&self) -> bool {
        !self.killed.load(Ordering::Relaxed)
    }

    pub(crate) fn kill(&self) {
        self.killed.store(true, Ordering::Relaxed);
        let handles = std::mem::take(&mut *self.handles.lock().expect("nobody panics with it"));
        for handle in handles {
            handle.abort();
        }
    }
}

impl Spawn for Tasks {
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        if !self.is_alive() {
            return;
        }
        let (task, handle) = abortable(task);
        self.handles.lock().expect("nobody panics with it").push(handle);
        drop(tokio::spawn(task));
    }
}

/// The world of one process: the shared clock, its own randomness and its own tasks.
pub(crate) fn world(clock: &SimClock, seed: u64, name: &str, tasks: Arc<Tasks>) -> World {
    World {
        clock: Arc::new(clock.clone()),
        entropy: Arc::new(SeededEntropy(Mutex::new(chance(seed, name)))),
        spawn: tasks,
        spans: Arc::new(NoopSpanExporter),
    }
}

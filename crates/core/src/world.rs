//! Traits for everything that makes a program non-deterministic: time, randomness, spawning and trace export.
//!
//! Callers pass in the implementations, so a simulation can pass its own and the same seed yields the same bytes. The
//! real implementations are in `budao-runtime`, the simulated ones in the testkit.

use std::{fmt, sync::Arc, time::Duration};

use futures::future::BoxFuture;
use uuid::Uuid;

use crate::{span::Span, time::Timestamp, trace::Trace};

/// Provides time and timers.
pub trait Clock: Send + Sync + fmt::Debug {
    /// Wall-clock time, UTC, for records. It may jump.
    fn now(&self) -> Timestamp;

    /// Completes after `wait`, even if the wall clock jumps.
    fn sleep(&self, wait: Duration) -> BoxFuture<'static, ()>;
}

/// A source of random bits.
pub trait Entropy: Send + Sync + fmt::Debug {
    /// The next 64 random bits.
    fn bits(&self) -> u64;
}

/// Spawns detached tasks.
pub trait Spawn: Send + Sync + fmt::Debug {
    /// Runs `task` to completion; the caller gets no handle.
    fn spawn(&self, task: BoxFuture<'static, ()>);
}

/// Exports finished spans to a trace collector. Never waits and never fails: a span that does not fit is dropped and
/// counted.
pub trait SpanExporter: Send + Sync + fmt::Debug {
    /// Whether a collector is configured. If not, callers skip creating spans.
    fn is_enabled(&self) -> bool;

    /// Whether spans shall have messages, arguments and results.
    fn wants_content(&self) -> bool {
        false
    }

    /// Exports one finished span.
    fn export(&self, span: Span);
}

/// An exporter for systems without a collector; always disabled.
#[derive(Debug)]
pub struct NoopSpanExporter;

impl SpanExporter for NoopSpanExporter {
    fn is_enabled(&self) -> bool {
        false
    }

    fn export(&self, _span: Span) {}
}

/// All four traits together. Cheap to clone.
#[derive(Clone, Debug)]
pub struct World {
    /// Time and timers.
    pub clock: Arc<dyn Clock>,
    /// Random bits for ids and jitter.
    pub entropy: Arc<dyn Entropy>,
    /// Spawns detached tasks.
    pub spawn: Arc<dyn Spawn>,
    /// Exports finished spans.
    pub spans: Arc<dyn SpanExporter>,
}

impl World {
    /// Creates a new random trace.
    #[must_use]
    pub fn trace(&self) -> Trace {
        Trace::from_random(self.bits128())
    }

    /// Exports a span if a collector is configured; otherwise `span` is not called.
    pub fn export_span(&self, span: impl FnOnce() -> Span) {
        if self.spans.is_enabled() {
            self.spans.export(span());
        }
    }

    /// Creates a UUIDv7: ordered by time, with random low bits.
    #[must_use]
    pub fn uuid(&self) -> Uuid {
        let millis = u64::try_from(self.clock.now().as_millis()).unwrap_or(0);
        let random = self.bits128().to_be_bytes();
        let mut tail = [0; 10];
        tail.copy_from_slice(&random[..10]);
        uuid::Builder::from_unix_timestamp_millis(millis, &tail).into_uuid()
    }

    /// A random number in −1..=1, for jitter.
    #[must_use]
    pub fn jitter(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "53 bits are plenty for jitter")]
        let unit = (self.entropy.bits() >> 11) as f64 / (1_u64 << 53) as f64;
        unit.mul_add(2.0, -1.0)
    }

    fn bits128(&self) -> u128 {
        u128::from(self.entropy.bits()) << 64 | u128::from(self.entropy.bits())
    }
}

//! What the world does to a program, as traits: time, chance, ids, spawning.
//!
//! They are handed in and never taken, so that a simulation can hand in its own and the same seed
//! gives the same bytes. The real ones live in `budao-runtime`, the simulated ones in the testkit.

use std::{fmt, sync::Arc, time::Duration};

use futures::future::BoxFuture;
use uuid::Uuid;

use crate::{span::Span, time::Timestamp, trace::Trace};

/// Tells the time and waits.
pub trait Clock: Send + Sync + fmt::Debug {
    /// Wall-clock time, for records. It may jump.
    fn now(&self) -> Timestamp;

    /// Waits. Must complete even if the wall clock jumps.
    fn sleep(&self, wait: Duration) -> BoxFuture<'static, ()>;
}

/// Random bits.
pub trait Entropy: Send + Sync + fmt::Debug {
    /// 64 of them.
    fn bits(&self) -> u64;
}

/// Starts tasks nobody waits for.
pub trait Spawn: Send + Sync + fmt::Debug {
    /// Runs `task` until it is done.
    fn spawn(&self, task: BoxFuture<'static, ()>);
}

/// Takes what was traced to whoever collects traces. It never waits and never fails: what it cannot take is lost
/// and counted.
pub trait SpanExporter: Send + Sync + fmt::Debug {
    /// Does anybody collect them? If not, none need be made.
    fn is_enabled(&self) -> bool;

    /// One that is over.
    fn export(&self, span: Span);
}

/// Nobody collects them.
#[derive(Debug)]
pub struct NoopSpanExporter;

impl SpanExporter for NoopSpanExporter {
    fn is_enabled(&self) -> bool {
        false
    }

    fn export(&self, _span: Span) {}
}

/// All of them together, cheap to clone.
#[derive(Clone, Debug)]
pub struct World {
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Chance.
    pub entropy: Arc<dyn Entropy>,
    /// Tasks.
    pub spawn: Arc<dyn Spawn>,
    /// Traces.
    pub spans: Arc<dyn SpanExporter>,
}

impl World {
    /// A new trace.
    #[must_use]
    pub fn trace(&self) -> Trace {
        Trace::from_random(self.bits128())
    }

    /// Tells of a span, if anybody wants to know.
    pub fn export_span(&self, span: impl FnOnce() -> Span) {
        if self.spans.is_enabled() {
            self.spans.export(span());
        }
    }

    /// A new UUIDv7: sorted by time, unique by chance.
    #[must_use]
    pub fn uuid(&self) -> Uuid {
        let millis = u64::try_from(self.clock.now().as_millis()).unwrap_or(0);
        let random = self.bits128().to_be_bytes();
        let mut tail = [0; 10];
        tail.copy_from_slice(&random[..10]);
        uuid::Builder::from_unix_timestamp_millis(millis, &tail).into_uuid()
    }

    /// A number in −1..=1, for jitter.
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

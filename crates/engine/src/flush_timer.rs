//! Time for deciders whose work is timed: a clock that never jumps, and when buffered deltas are recorded.

use std::time::Duration;

use budao_core::Timestamp;

/// A clock that never jumps, unlike the wall clock. Its origin is arbitrary.
#[derive(Debug)]
pub struct SteadyClock(tokio::time::Instant);

impl SteadyClock {
    /// Starts the clock at its origin.
    #[must_use]
    pub fn start() -> Self {
        Self(tokio::time::Instant::now())
    }

    /// The time since the start, as a timestamp.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        Timestamp::default().after(self.0.elapsed())
    }
}

/// When buffered deltas are recorded: one window after the first of them arrived, in steady time.
#[derive(Debug, Default)]
pub struct FlushTimer(Option<Timestamp>);

impl FlushTimer {
    /// Starts the window if something is buffered and none runs; ends it if nothing is.
    pub fn update(&mut self, is_buffering: bool, now: Timestamp, window: Duration) {
        self.0 = is_buffering.then(|| self.0.unwrap_or_else(|| now.after(window)));
    }

    /// Whether the window is over.
    #[must_use]
    pub fn is_due(&self, now: Timestamp) -> bool {
        self.0.is_some_and(|at| at <= now)
    }

    /// When a decider must be woken, by the wall clock: at the end of the window or after `wait`, the wait of its machine.
    #[must_use]
    pub fn wake_at(
        &self,
        wait: Option<Duration>,
        steady: Timestamp,
        now: Timestamp,
    ) -> Option<Timestamp> {
        let flush = self.0.map(|at| at.since(steady));
        let wait = flush.into_iter().chain(wait).min()?;
        // A time that has come must not seem to lie ahead of a clock that was read a moment ago.
        Some(if wait.is_zero() { Timestamp::default() } else { now.after(wait) })
    }
}

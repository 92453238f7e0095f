//! Time for deciders whose work is timed: a clock that never jumps, and when buffered content is recorded.

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

/// The content of a buffer, by how long it may wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BufferContent {
    /// Nothing is buffered.
    #[default]
    Nothing,
    /// People see nothing of the content: it waits for what follows.
    Hidden,
    /// People wait for some of the content.
    Shown,
}

/// When buffered content is recorded. Shown content is recorded at once, but at most once in a window, so that the first
/// text of an answer never waits. Hidden content waits for a window.
///
/// A clock that jumps may end a wait early; no wait is ever longer than a window.
#[derive(Debug)]
pub struct FlushTimer {
    window: Duration,
    content: BufferContent,
    /// When the oldest content arrived.
    since: Timestamp,
    /// When shown content was last recorded.
    last_shown: Option<Timestamp>,
}

impl FlushTimer {
    /// A timer for an empty buffer.
    #[must_use]
    pub fn new(window: Duration) -> Self {
        let (content, since) = (BufferContent::Nothing, Timestamp::default());
        Self { window, content, since, last_shown: None }
    }

    /// Reports the content of the buffer after a change.
    pub fn update(&mut self, content: BufferContent, now: Timestamp) {
        match (self.content, content) {
            (BufferContent::Nothing, _) => self.since = now,
            (BufferContent::Shown, BufferContent::Nothing) => self.last_shown = Some(now),
            _ => {}
        }
        self.content = content;
    }

    /// The time until the buffer is recorded; `None` if it is empty.
    #[must_use]
    pub fn wait(&self, now: Timestamp) -> Option<Duration> {
        let left = |from: Timestamp| self.window.saturating_sub(now.since(from));
        match self.content {
            BufferContent::Nothing => None,
            BufferContent::Hidden => Some(left(self.since)),
            BufferContent::Shown => {
                Some(self.last_shown.map_or(Duration::ZERO, left).min(left(self.since)))
            }
        }
    }

    /// Whether the buffer is to be recorded now.
    #[must_use]
    pub fn is_due(&self, now: Timestamp) -> bool {
        self.wait(now).is_some_and(|wait| wait.is_zero())
    }

    /// Whether the oldest content has waited for a whole window.
    #[must_use]
    pub fn is_overdue(&self, now: Timestamp) -> bool {
        self.content != BufferContent::Nothing && now.since(self.since) >= self.window
    }

    /// When a decider must be woken, by the wall clock: when the buffer is due or after `wait`, the wait of its machine.
    #[must_use]
    pub fn wake_at(
        &self,
        wait: Option<Duration>,
        steady: Timestamp,
        now: Timestamp,
    ) -> Option<Timestamp> {
        let wait = self.wait(steady).into_iter().chain(wait).min()?;
        // A time that has come must not seem to lie ahead of a clock that was read a moment ago.
        Some(if wait.is_zero() { Timestamp::default() } else { now.after(wait) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Duration = Duration::from_millis(25);

    fn at(ms: u64) -> Timestamp {
        Timestamp::default().after(Duration::from_millis(ms))
    }

    #[test]
    fn the_first_shown_text_is_due_at_once_and_the_next_one_a_window_later() {
        let mut timer = FlushTimer::new(WINDOW);
        timer.update(BufferContent::Shown, at(100));
        assert!(timer.is_due(at(100)));
        timer.update(BufferContent::Nothing, at(100));
        assert_eq!(timer.wait(at(100)), None);
        timer.update(BufferContent::Shown, at(110));
        assert_eq!(timer.wait(at(110)), Some(Duration::from_millis(15)));
        assert!(timer.is_due(at(125)));
        timer.update(BufferContent::Nothing, at(125));
        timer.update(BufferContent::Shown, at(200));
        assert!(timer.is_due(at(200)), "a pause is over");
    }

    #[test]
    fn hidden_content_waits_for_a_window_or_for_shown_text() {
        let mut timer = FlushTimer::new(WINDOW);
        timer.update(BufferContent::Hidden, at(100));
        assert_eq!(timer.wait(at(110)), Some(Duration::from_millis(15)));
        assert!(timer.is_due(at(125)) && timer.is_overdue(at(125)));
        timer.update(BufferContent::Shown, at(110));
        assert!(timer.is_due(at(110)) && !timer.is_overdue(at(110)));
    }

    #[test]
    fn a_clock_that_jumps_back_prolongs_no_wait_beyond_a_window() {
        let mut timer = FlushTimer::new(WINDOW);
        timer.update(BufferContent::Shown, at(9_000));
        timer.update(BufferContent::Nothing, at(9_000));
        timer.update(BufferContent::Shown, at(9_001));
        assert_eq!(timer.wait(at(5)), Some(WINDOW));
    }
}

//! The error output of a child process. Each line goes to the log, and the last lines are kept for a fault that may
//! follow.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use budao_core::{
    Timestamp,
    fault::{Fact, Fault},
    world::Clock,
};
use budao_scrub::Scrubber;
use tokio::io::AsyncRead;
use tokio_util::sync::CancellationToken;

use super::lines::{BoundedLine, BoundedLines};

/// Number of last lines kept.
const KEPT: usize = 20;

/// Maximum characters kept of a line.
const CHARS_MAX: usize = 400;

/// Maximum bytes read of a line; the rest is skipped.
const BYTES_MAX: usize = 8 * 1024;

/// Maximum lines logged per window; further lines are only counted.
const LOGGED_MAX: usize = 200;

const WINDOW: Duration = Duration::from_secs(10);

/// The last lines of a child's error output.
#[derive(Debug, Default)]
pub struct Tail {
    lines: Mutex<VecDeque<String>>,
    /// Cancelled when the stream has ended.
    closed: CancellationToken,
}

impl Tail {
    /// The last lines, oldest first.
    pub fn text(&self) -> String {
        self.lock().iter().map(String::as_str).collect::<Vec<_>>().join("\n")
    }

    /// Adds the last lines to a fault as `Fact::StderrTail`; an empty tail adds nothing.
    #[must_use]
    pub fn onto(&self, fault: Fault) -> Fault {
        let text = self.text();
        if text.is_empty() { fault } else { fault.with(Fact::StderrTail, text) }
    }

    /// Waits for the end of the stream.
    pub async fn closed(&self) {
        self.closed.cancelled().await;
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<String>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, line: String) {
        let mut lines = self.lock();
        if lines.len() == KEPT {
            lines.pop_front();
        }
        lines.push_back(line);
    }
}

/// Reads the error output of `program` to its end, logs its lines and keeps the last ones in `tail`.
pub async fn drain(
    output: impl AsyncRead + Unpin + Send,
    tail: Arc<Tail>,
    program: Arc<str>,
    scrubber: Scrubber,
    clock: Arc<dyn Clock>,
) {
    let _closed = tail.closed.clone().drop_guard();
    let mut lines = BoundedLines::new(output, BYTES_MAX);
    let mut pace = LogLimiter { since: clock.now(), logged: 0, dropped: 0 };
    while let Some(line) = lines.next().await {
        let line = match line {
            BoundedLine::Whole(line) => shown(&line, &scrubber),
            BoundedLine::TooLong(skipped) => format!("(a line of {} bytes)", skipped.bytes),
        };
        match pace.may_log(clock.now()) {
            LogDecision::Line { dropped: 0 } => tracing::info!(%program, line, "stderr"),
            LogDecision::Line { dropped } => {
                tracing::info!(%program, line, suppressed = dropped, "stderr");
            }
            LogDecision::Nothing => {}
        }
        tail.push(line);
    }
}

fn shown(line: &[u8], scrubber: &Scrubber) -> String {
    let text = String::from_utf8_lossy(line);
    // Control characters are removed, so that a program cannot send commands to the operator's terminal.
    let text: String =
        text.trim_end().chars().filter(|it| !it.is_control() || *it == '\t').collect();
    let text = scrubber.scrub(&text);
    match text.char_indices().nth(CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.into_owned(),
    }
}

/// Limits the rate of logged lines.
struct LogLimiter {
    since: Timestamp,
    logged: usize,
    dropped: usize,
}

enum LogDecision {
    /// Log this line; `dropped` lines before it were not logged.
    Line {
        dropped: usize,
    },
    Nothing,
}

impl LogLimiter {
    fn may_log(&mut self, now: Timestamp) -> LogDecision {
        let mut dropped = 0;
        if now.since(self.since) >= WINDOW {
            dropped = std::mem::take(&mut self.dropped);
            (self.since, self.logged) = (now, 0);
        }
        if self.logged == LOGGED_MAX {
            self.dropped += 1;
            return LogDecision::Nothing;
        }
        self.logged += 1;
        LogDecision::Line { dropped }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_the_last_lines_are_kept_and_none_of_them_is_long() {
        let text = format!("{}\n{}", "early\n".repeat(50_000), "长".repeat(2_000));
        let tail = Arc::new(Tail::default());
        let clock = budao_testkit::world::seeded(1).clock;
        let scrubber = Scrubber::with_secrets(["hunter22hunter22"]);
        drain(text.as_bytes(), tail.clone(), "s".into(), scrubber, clock).await;
        tail.closed().await;
        let text = tail.text();
        assert_eq!(text.lines().count(), KEPT);
        assert!(text.lines().all(|line| line.chars().count() <= CHARS_MAX + 1));
    }

    #[tokio::test]
    async fn a_secret_and_a_control_character_do_not_get_through() {
        let tail = Arc::new(Tail::default());
        let clock = budao_testkit::world::seeded(1).clock;
        let scrubber = Scrubber::with_secrets(["hunter22hunter22"]);
        let text = &b"\x1b[31mkey hunter22hunter22 \xff refused"[..];
        drain(text, tail.clone(), "s".into(), scrubber, clock).await;
        assert!(!tail.text().contains("hunter22hunter22"), "{}", tail.text());
        assert!(!tail.text().contains('\x1b'));
        assert!(tail.text().contains("refused"));
    }

    #[test]
    fn a_program_that_talks_without_end_is_held_back_and_counted() {
        let start = Timestamp::from_micros(0);
        let mut pace = LogLimiter { since: start, logged: 0, dropped: 0 };
        let logged =
            (0..1_000).filter(|_| matches!(pace.may_log(start), LogDecision::Line { .. })).count();
        assert_eq!(logged, LOGGED_MAX);
        let later = start.after(WINDOW);
        assert!(
            matches!(pace.may_log(later), LogDecision::Line { dropped } if dropped == 1_000 - LOGGED_MAX)
        );
    }
}

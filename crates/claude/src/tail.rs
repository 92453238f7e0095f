//! What the CLI complains about: for the operator's log, and its last lines for the fault of its end.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use budao_core::{
    event::SessionId,
    fault::{Fact, Fault},
    scrub::Scrubber,
    seams::Clock,
};
use tokio::io::AsyncRead;
use tokio_util::sync::CancellationToken;

use crate::lines::{Lines, Read};

/// Lines kept, and how long each may be.
const KEPT: usize = 20;
const CHARS_MAX: usize = 400;
const BYTES_MAX: usize = 64 * 1024;
/// Lines told to the log in a window of time.
const TOLD_MAX: usize = 50;
const WINDOW: Duration = Duration::from_secs(10);

/// The last lines of an error output.
#[derive(Debug, Default)]
pub(crate) struct Tail {
    lines: Mutex<VecDeque<String>>,
    closed: CancellationToken,
}

impl Tail {
    /// Waits until there is nothing more to come.
    pub(crate) async fn closed(&self) {
        self.closed.cancelled().await;
    }

    /// Adds the last lines to a fault.
    pub(crate) fn onto(&self, fault: Fault) -> Fault {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let text = lines.iter().cloned().collect::<Vec<_>>().join("\n");
        if text.is_empty() { fault } else { fault.with(Fact::StderrTail, text) }
    }

    fn push(&self, line: String) {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() == KEPT {
            lines.pop_front();
        }
        lines.push_back(line);
    }
}

/// Reads an error output to its end.
pub(crate) async fn drain(
    output: impl AsyncRead + Unpin + Send,
    tail: Arc<Tail>,
    session: SessionId,
    scrubber: Scrubber,
    clock: Arc<dyn Clock>,
) {
    let _closed = tail.closed.clone().drop_guard();
    let mut lines = Lines::new(output, BYTES_MAX);
    let (mut since, mut told) = (clock.now(), 0);
    while let Some(read) = lines.next().await {
        let line = match read {
            Read::Line(line) => shown(&line, &scrubber),
            Read::TooLong { bytes } => format!("(a line of {bytes} bytes)"),
        };
        if clock.now().since(since) >= WINDOW {
            (since, told) = (clock.now(), 0);
        }
        told += 1;
        if told <= TOLD_MAX {
            tracing::info!(%session, line, "claude stderr");
        }
        tail.push(line);
    }
}

fn shown(line: &[u8], scrubber: &Scrubber) -> String {
    let text = String::from_utf8_lossy(line);
    // A terminal must not be told what to do by a foreign program.
    let text: String =
        text.trim_end().chars().filter(|it| !it.is_control() || *it == '\t').collect();
    scrubber.scrub(&text).chars().take(CHARS_MAX).collect()
}

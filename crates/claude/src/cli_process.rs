//! The connection to one CLI process: one reader and one writer for its lifetime.
//!
//! The reader does not stop at a result. It forwards every line with the number of the process that wrote it.

use std::{sync::Arc, time::Duration};

use budao_core::{
    fault::{Fact, Fault, Kind, Operation},
    world::World,
};
use budao_engine::SignalSender;
use budao_tools::child::{BoundedLine, BoundedLines};
use serde_json::Value;
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt},
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
};
use tokio_util::sync::CancellationToken;

use crate::{
    PROGRAM,
    decider::Signal,
    launch::{LaunchSpec, Launcher, RunningCli},
    wire,
};

/// Upper bound of queued outgoing lines.
const OUTBOX: usize = 1_024;
/// Upper bound of queued outgoing data, in KiB.
const OUTBOX_KIB: usize = 64 * 1_024;
/// How long a process may run after its output has ended.
const EXIT_GRACE: Duration = Duration::from_secs(2);

/// A queued outgoing line with its share of the queue's size limit.
#[derive(Debug)]
struct Waiting {
    bytes: Vec<u8>,
    _room: OwnedSemaphorePermit,
}

/// One CLI process; `generation` is its number within the session. Dropping it ends the process.
#[derive(Debug)]
pub(crate) struct CliProcess {
    pub(crate) generation: u32,
    outbox: Option<mpsc::Sender<Waiting>>,
    /// One permit for each KiB that may be queued.
    outbox_room: Arc<Semaphore>,
    stop: CancellationToken,
    /// Cancelled once the process and everything it started have ended.
    exited: CancellationToken,
}

impl Drop for CliProcess {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// The parts that every process of a session uses.
#[derive(Clone, Debug)]
pub(crate) struct ProcessContext {
    pub(crate) launcher: Arc<dyn Launcher>,
    pub(crate) world: World,
    pub(crate) signals: SignalSender<Signal>,
    pub(crate) line_bytes_max: usize,
}

impl CliProcess {
    /// Starts a process once the previous one has ended (`before`).
    pub(crate) fn start(
        generation: u32,
        start: LaunchSpec,
        context: &ProcessContext,
        before: Option<CancellationToken>,
    ) -> Self {
        let (outbox, lines) = mpsc::channel(OUTBOX);
        let process = Self {
            generation,
            outbox: Some(outbox),
            outbox_room: Arc::new(Semaphore::new(OUTBOX_KIB)),
            stop: CancellationToken::new(),
            exited: CancellationToken::new(),
        };
        let (stop, exited) = (process.stop.clone(), process.exited.clone());
        let task = context.clone();
        context.world.spawn.spawn(Box::pin(async move {
            let _gone = exited.drop_guard();
            if let Some(before) = before {
                before.cancelled().await;
            }
            let fault = run_process(generation, start, &task, lines, stop).await;
            task.signals.send(Signal::Exited { generation, fault }).await;
        }));
        process
    }

    /// Queues a line for the writer. Fails with `cli_silent` if the queue is full because the process does not read.
    pub(crate) fn send(&self, line: &Value) -> Result<(), Fault> {
        let Some(outbox) = &self.outbox else { return Ok(()) };
        let full = |name: &'static str, limit: usize| {
            Fault::new(Kind::CliSilent, Operation::WriteCli)
                .with(Fact::Program, PROGRAM)
                .with(Fact::TimeoutMs, Duration::ZERO)
                .with(Fact::Limit, limit)
                .with(Fact::LimitName, name)
        };
        let mut bytes = line.to_string().into_bytes();
        bytes.push(b'\n');
        let kib = (bytes.len() / 1_024 + 1).min(OUTBOX_KIB);
        let outbox_room = Arc::clone(&self.outbox_room);
        let outbox_room =
            outbox_room.try_acquire_many_owned(u32::try_from(kib).unwrap_or(u32::MAX));
        let outbox_room = outbox_room.map_err(|_| full("kib_to_write", OUTBOX_KIB))?;
        match outbox.try_send(Waiting { bytes, _room: outbox_room }) {
            // A closed queue means that the process has ended; its `Exited` signal reports that.
            Ok(()) | Err(mpsc::error::TrySendError::Closed(_)) => Ok(()),
            Err(mpsc::error::TrySendError::Full(_)) => Err(full("lines_to_write", OUTBOX)),
        }
    }

    /// Ends the process: closes its input, then ends its process group. The token is cancelled once it has ended.
    pub(crate) fn end(mut self) -> CancellationToken {
        self.outbox = None;
        self.stop.cancel();
        self.exited.clone()
    }
}

/// Runs a process to its end and returns the fault that describes the end.
async fn run_process(
    generation: u32,
    start: LaunchSpec,
    context: &ProcessContext,
    lines: mpsc::Receiver<Waiting>,
    stop: CancellationToken,
) -> Fault {
    let RunningCli { pid, input, output, stop: kill, mut ended } = tokio::select! {
        biased;
        running = context.launcher.launch(start) => match running {
            Ok(running) => running,
            Err(fault) => return fault,
        },
        () = stop.cancelled() => return stop_fault(),
    };
    tracing::info!(process = generation, pid, "claude started");
    let _kill = kill.clone().drop_guard();
    {
        let mut writer = std::pin::pin!(write(input, lines));
        let mut reader = std::pin::pin!(read(generation, output, context));
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            () = &mut reader => {}
            () = &mut writer => {}
        }
        // The input closes here, which tells the CLI that nothing more will come.
    }
    // Unless it was stopped, the process gets `EXIT_GRACE` to exit by itself before it is killed.
    if !stop.is_cancelled() {
        tokio::select! {
            biased;
            fault = &mut ended => return fault,
            () = context.world.clock.sleep(EXIT_GRACE) => {}
        }
    }
    kill.cancel();
    ended.await
}

fn stop_fault() -> Fault {
    Fault::new(Kind::CliExited, Operation::StartCli).with(Fact::Program, PROGRAM)
}

/// Reads lines until the output ends.
async fn read(generation: u32, output: impl AsyncRead + Unpin, context: &ProcessContext) {
    let mut lines = BoundedLines::new(output, context.line_bytes_max);
    while let Some(read) = lines.next().await {
        let line = match read {
            BoundedLine::Whole(line) => wire::read(&line),
            BoundedLine::TooLong(skipped) => {
                wire::CliLine::Unreadable { reason: format!("a line of {} bytes", skipped.bytes) }
            }
        };
        match &line {
            wire::CliLine::Unreadable { reason } => {
                tracing::warn!(process = generation, reason, "claude: skipping unreadable line");
            }
            wire::CliLine::Other { kind } => {
                tracing::trace!(process = generation, kind, "claude: skipping line");
            }
            _ => {}
        }
        if !context.signals.send(Signal::Line { generation, line: Box::new(line) }).await {
            return;
        }
    }
}

/// Writes queued lines until the queue closes. A write error is not reported here: the output of such a
/// process ends too, and the reader reports that.
async fn write(mut input: impl AsyncWrite + Unpin, mut lines: mpsc::Receiver<Waiting>) {
    while let Some(line) = lines.recv().await {
        let written = async {
            input.write_all(&line.bytes).await?;
            input.flush().await
        };
        if written.await.is_err() {
            return std::future::pending().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn input_for_a_process_that_does_not_read_is_bounded_in_bytes() {
        let (outbox, lines) = mpsc::channel(OUTBOX);
        let process = CliProcess {
            generation: 1,
            outbox: Some(outbox),
            outbox_room: Arc::new(Semaphore::new(OUTBOX_KIB)),
            stop: CancellationToken::new(),
            exited: CancellationToken::new(),
        };
        let line = Value::from("x".repeat(8 << 20));
        let sent = (0..20).take_while(|_| process.send(&line).is_ok()).count();
        assert_eq!(sent, 7, "seven lines of 8 MiB and a little more");
        let fault = process.send(&line).unwrap_err();
        assert_eq!(fault.detail().text(Fact::LimitName), Some("kib_to_write"));
        drop(lines);
    }
}

//! The line to one process of the CLI: one reader and one writer for its whole life.
//!
//! The reader never stops at a result: whatever comes, whenever it comes, is passed on with the number of
//! the life it belongs to.

use std::{sync::Arc, time::Duration};

use budao_core::{
    fault::{Fact, Fault, Kind, Operation},
    seams::World,
};
use budao_tools::child::{Line, Lines};
use serde_json::Value;
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt},
    sync::mpsc,
};
use tokio_util::sync::CancellationToken;

use crate::{
    PROGRAM,
    actor::Message,
    launch::{Launcher, Running, Start},
    wire,
};

/// Lines that may wait to be written.
const OUTBOX: usize = 1_024;
/// How long a process may live on after its output has ended.
const OUTLIVE: Duration = Duration::from_secs(2);

/// One life of the CLI. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) life: u32,
    outbox: Option<mpsc::Sender<Value>>,
    stop: CancellationToken,
    /// Set when nothing of it is left.
    gone: CancellationToken,
}

impl Drop for Link {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// What a life needs to know.
#[derive(Clone, Debug)]
pub(crate) struct Around {
    pub(crate) launcher: Arc<dyn Launcher>,
    pub(crate) world: World,
    pub(crate) actor: mpsc::Sender<Message>,
    pub(crate) line_bytes_max: usize,
}

impl Link {
    /// Starts a life, once the one before it is gone.
    pub(crate) fn start(
        life: u32,
        start: Start,
        around: &Around,
        before: Option<CancellationToken>,
    ) -> Self {
        let (outbox, lines) = mpsc::channel(OUTBOX);
        let link = Self {
            life,
            outbox: Some(outbox),
            stop: CancellationToken::new(),
            gone: CancellationToken::new(),
        };
        let (stop, gone) = (link.stop.clone(), link.gone.clone());
        let task = around.clone();
        around.world.spawn.spawn(Box::pin(async move {
            let _gone = gone.drop_guard();
            if let Some(before) = before {
                before.cancelled().await;
            }
            let fault = live(life, start, &task, lines, stop).await;
            drop(task.actor.send(Message::Exited { life, fault }).await);
        }));
        link
    }

    /// Hands a line to the writer. A process that reads nothing is no use.
    pub(crate) fn send(&self, line: Value) -> Result<(), Fault> {
        let Some(outbox) = &self.outbox else { return Ok(()) };
        match outbox.try_send(line) {
            // Its end is on its way to whoever wants to know.
            Ok(()) | Err(mpsc::error::TrySendError::Closed(_)) => Ok(()),
            Err(mpsc::error::TrySendError::Full(_)) => {
                Err(Fault::new(Kind::CliSilent, Operation::WriteCli)
                    .with(Fact::Program, PROGRAM)
                    .with(Fact::TimeoutMs, Duration::ZERO)
                    .with(Fact::Limit, OUTBOX)
                    .with(Fact::LimitName, "lines_to_write"))
            }
        }
    }

    /// Ends it: its input closes, and soon everything it started.
    pub(crate) fn end(mut self) -> CancellationToken {
        self.outbox = None;
        self.stop.cancel();
        self.gone.clone()
    }
}

/// A life from its start to its end, which it returns.
async fn live(
    life: u32,
    start: Start,
    around: &Around,
    lines: mpsc::Receiver<Value>,
    stop: CancellationToken,
) -> Fault {
    let Running { pid, input, output, stop: kill, mut ended } = tokio::select! {
        biased;
        running = around.launcher.launch(start) => match running {
            Ok(running) => running,
            Err(fault) => return fault,
        },
        () = stop.cancelled() => return stopped(),
    };
    tracing::info!(life, pid, "claude started");
    let _kill = kill.clone().drop_guard();
    {
        let mut writer = std::pin::pin!(write(input, lines));
        let mut reader = std::pin::pin!(read(life, output, around));
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            () = &mut reader => {}
            () = &mut writer => {}
        }
        // Its input closes here, and it knows that nothing more will come.
    }
    // Nothing more is wanted, or nothing more comes: it has a moment to leave, then it is ended.
    if !stop.is_cancelled() {
        tokio::select! {
            biased;
            fault = &mut ended => return fault,
            () = around.world.clock.sleep(OUTLIVE) => {}
        }
    }
    kill.cancel();
    ended.await
}

fn stopped() -> Fault {
    Fault::new(Kind::CliExited, Operation::StartCli).with(Fact::Program, PROGRAM)
}

/// Reads until there is nothing more to read.
async fn read(life: u32, output: impl AsyncRead + Unpin, around: &Around) {
    let mut lines = Lines::new(output, around.line_bytes_max);
    while let Some(read) = lines.next().await {
        let line = match read {
            Line::Whole(line) => wire::read(&line),
            Line::TooLong(skipped) => {
                wire::Line::Unreadable { reason: format!("a line of {} bytes", skipped.bytes) }
            }
        };
        match &line {
            wire::Line::Unreadable { reason } => {
                tracing::warn!(life, reason, "claude: a line nobody can read");
            }
            wire::Line::Other { kind } => tracing::trace!(life, kind, "claude: skipped"),
            _ => {}
        }
        if around.actor.send(Message::Line { life, line: Box::new(line) }).await.is_err() {
            return;
        }
    }
}

/// Writes as long as anybody has something to write. What cannot be written is not told here: the output of
/// such a process ends too, and that is where its end is told.
async fn write(mut input: impl AsyncWrite + Unpin, mut lines: mpsc::Receiver<Value>) {
    while let Some(line) = lines.recv().await {
        let mut bytes = line.to_string().into_bytes();
        bytes.push(b'\n');
        let written = async {
            input.write_all(&bytes).await?;
            input.flush().await
        };
        if written.await.is_err() {
            return std::future::pending().await;
        }
    }
}

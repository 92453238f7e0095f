//! The transport over standard input and output of a process.

use std::{io, sync::Arc};

use budao_core::world::Clock;
use budao_tools::child::{BoundedLine, BoundedLines};
use futures::future::BoxFuture;
use rmcp::{
    RoleClient,
    model::{ClientJsonRpcMessage, ServerJsonRpcMessage},
    transport::Transport,
};
use tokio::{
    io::AsyncWriteExt,
    net::unix::pipe::{Receiver, Sender},
    sync::Mutex,
};

use crate::{
    line::{self, ParsedMessage},
    process::{LAST_WORDS, Pipes, ServerProcess},
};

/// The number of invalid lines that are logged per connection.
const NOISE_TOLD: usize = 5;

/// A transport over the pipes of a process.
pub(crate) struct StdioTransport {
    server: Arc<str>,
    input: Arc<Mutex<Option<Sender>>>,
    lines: BoundedLines<Receiver>,
    process: Arc<ServerProcess>,
    clock: Arc<dyn Clock>,
    ending: Option<BoxFuture<'static, ()>>,
    over: bool,
    noise: usize,
}

impl StdioTransport {
    pub(crate) fn new(
        server: Arc<str>,
        pipes: Pipes,
        process: Arc<ServerProcess>,
        bytes_max: usize,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self {
            server,
            input: Arc::new(Mutex::new(Some(pipes.input))),
            lines: BoundedLines::new(pipes.output, bytes_max),
            process,
            clock,
            ending: None,
            over: false,
            noise: 0,
        }
    }

    /// The next line. The end of the process ends the stream too, because a grandchild may keep the output open.
    async fn line(&mut self) -> Option<BoundedLine> {
        while !self.over {
            match &mut self.ending {
                Some(ending) => tokio::select! {
                    biased;
                    line = self.lines.next() => return line,
                    () = ending => self.over = true,
                },
                None => tokio::select! {
                    biased;
                    line = self.lines.next() => return line,
                    () = self.process.exited() => {
                        self.ending = Some(self.clock.sleep(LAST_WORDS));
                    }
                },
            }
        }
        None
    }

    fn unclear(&mut self, line: &BoundedLine) {
        self.noise += 1;
        if self.noise > NOISE_TOLD {
            return;
        }
        match line {
            BoundedLine::Whole(line) => {
                let text = String::from_utf8_lossy(&line[..line.len().min(200)]);
                let text = text.escape_debug().to_string();
                tracing::warn!(server = %self.server, text, "skipping stdout line: not a message");
            }
            BoundedLine::TooLong(skipped) => {
                let bytes = skipped.bytes;
                tracing::warn!(server = %self.server, bytes, "skipping stdout line: too long");
            }
        }
    }
}

impl Transport<RoleClient> for StdioTransport {
    type Error = io::Error;

    fn send(
        &mut self,
        message: ClientJsonRpcMessage,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let input = self.input.clone();
        async move {
            let mut line = serde_json::to_vec(&message)?;
            line.push(b'\n');
            let mut input = input.lock().await;
            let input = input.as_mut().ok_or(io::ErrorKind::NotConnected)?;
            input.write_all(&line).await?;
            input.flush().await
        }
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        while let Some(line) = self.line().await {
            match line::read(&line) {
                ParsedMessage::Message(message) => return Some(message),
                ParsedMessage::StandIn(error) => {
                    self.unclear(&line);
                    return Some(error);
                }
                ParsedMessage::Noise => self.unclear(&line),
            }
        }
        None
    }

    async fn close(&mut self) -> io::Result<()> {
        // A blocked write holds the lock; the process is ended anyway.
        if let Ok(mut input) = self.input.try_lock() {
            drop(input.take());
        }
        Ok(())
    }
}

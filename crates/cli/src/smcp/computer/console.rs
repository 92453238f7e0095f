//! Distributes the lines of stdin to waiting requests: questions first, then commands.
//!
//! A line is taken only when a request waits, so piped input is consumed in order. A request whose caller has gone
//! receives no line.

use std::{
    collections::VecDeque,
    io::{BufRead as _, IsTerminal as _, Read as _, Write as _},
};

use tokio::sync::{mpsc, oneshot};

/// Maximum bytes of a line; longer lines are split.
const LINE_MAX: u64 = 1 << 20;

/// Maximum questions and commands in the request channel.
const WAITING_MAX: usize = 64;

/// Handle to the console; clones share the same stdin.
#[derive(Clone, Debug)]
pub(super) struct Console {
    requests: mpsc::Sender<Request>,
    is_terminal: bool,
}

#[derive(Debug)]
struct Request {
    /// The question to show; none if a command is wanted.
    question: Option<Question>,
    /// Receives the line, or none at the end of the input.
    line: oneshot::Sender<Option<String>>,
}

#[derive(Debug)]
struct Question {
    words: String,
    is_secret: bool,
}

impl Console {
    /// Starts a reader thread and a task. The thread is never joined, so a blocked read does not delay the exit.
    pub(super) fn open() -> Self {
        let is_terminal = std::io::stdin().is_terminal();
        let (sender, lines) = mpsc::channel(1);
        std::thread::spawn(move || read(&sender));
        let (requests, wanted) = mpsc::channel(WAITING_MAX);
        tokio::spawn(serve_requests(wanted, lines, is_terminal));
        Self { requests, is_terminal }
    }

    pub(super) fn is_terminal(&self) -> bool {
        self.is_terminal
    }

    /// The next command; none at the end of the input.
    pub(super) async fn command(&self) -> Option<String> {
        self.line(None).await
    }

    /// The answer to a question; none at the end of the input. With `is_secret`, the terminal does not echo it.
    pub(super) async fn ask(&self, words: String, is_secret: bool) -> Option<String> {
        self.line(Some(Question { words, is_secret })).await
    }

    async fn line(&self, question: Option<Question>) -> Option<String> {
        let (sender, line) = oneshot::channel();
        self.requests.send(Request { question, line: sender }).await.ok()?;
        line.await.ok().flatten()
    }
}

fn read(lines: &mpsc::Sender<String>) {
    let mut input = std::io::stdin().lock();
    loop {
        let mut line = Vec::new();
        match input.by_ref().take(LINE_MAX).read_until(b'\n', &mut line) {
            Ok(1..) => {}
            Ok(0) | Err(_) => return,
        }
        let line = String::from_utf8_lossy(&line).trim().to_owned();
        if lines.blocking_send(line).is_err() {
            return;
        }
    }
}

async fn serve_requests(
    mut wanted: mpsc::Receiver<Request>,
    mut lines: mpsc::Receiver<String>,
    is_terminal: bool,
) {
    let mut waiting: VecDeque<Request> = VecDeque::new();
    let mut is_over = false;
    let mut is_shown = false;
    loop {
        if is_over {
            waiting.drain(..).for_each(|it| drop(it.line.send(None)));
        }
        if let Some(first) = waiting.front().filter(|_| !is_shown) {
            first.show(is_terminal);
            is_shown = true;
        }
        tokio::select! {
            biased;
            request = wanted.recv() => match request {
                None => return,
                Some(request) => {
                    let is_question = request.question.is_some();
                    // Questions go before commands, in order of arrival.
                    let index = waiting.iter().position(|it| is_question && it.question.is_none());
                    let index = index.unwrap_or(waiting.len());
                    is_shown &= index > 0;
                    waiting.insert(index, request);
                }
            },
            () = gone(&mut waiting) => {
                waiting.pop_front();
                hide(is_terminal);
                is_shown = false;
            }
            line = lines.recv(), if !waiting.is_empty() => match line {
                None => is_over = true,
                Some(line) => {
                    hide(is_terminal);
                    is_shown = false;
                    if let Some(first) = waiting.pop_front() {
                        drop(first.line.send(Some(line)));
                    }
                }
            },
        }
    }
}

/// Completes when the caller of the first request has gone.
async fn gone(waiting: &mut VecDeque<Request>) {
    match waiting.front_mut() {
        Some(first) => first.line.closed().await,
        None => std::future::pending().await,
    }
}

impl Request {
    fn show(&self, is_terminal: bool) {
        let words = match &self.question {
            Some(question) => question.words.as_str(),
            None if is_terminal => "> ",
            None => return,
        };
        if is_terminal && self.question.as_ref().is_some_and(|it| it.is_secret) {
            echo(false);
        }
        let mut err = std::io::stderr().lock();
        // Errors on stderr are ignored; there is no other place to report them.
        let _ = write!(err, "{words}").and_then(|()| err.flush());
    }
}

/// Turns the terminal's echo on again.
fn hide(is_terminal: bool) {
    if is_terminal {
        echo(true);
    }
}

/// Turns the terminal's echo on or off.
fn echo(is_on: bool) {
    use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
    let input = std::io::stdin();
    let Ok(mut modes) = tcgetattr(&input) else { return };
    modes.local_modes.set(LocalModes::ECHO, is_on);
    // An error is ignored: a terminal that cannot hide input is used anyway.
    let _ = tcsetattr(&input, OptionalActions::Now, &modes);
}

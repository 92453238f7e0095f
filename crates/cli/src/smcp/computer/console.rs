//! The lines of the input, each given to whoever waits for one: first to whoever asked a question, then to commands.
//!
//! A line is read only when somebody wants it, so what is piped in all at once is used up in order. Whoever asked and
//! does not wait any more gets none.

use std::{
    collections::VecDeque,
    io::{BufRead as _, IsTerminal as _, Read as _, Write as _},
};

use tokio::sync::{mpsc, oneshot};

/// Bytes of a line.
const LINE_MAX: u64 = 1 << 20;

/// Questions and commands that may wait.
const WAITING_MAX: usize = 64;

/// The input of this process.
#[derive(Clone, Debug)]
pub(super) struct Console {
    requests: mpsc::Sender<Request>,
    is_terminal: bool,
}

#[derive(Debug)]
struct Request {
    /// What is asked; nothing if a command is wanted.
    question: Option<Question>,
    /// Gets the line, or nothing at the end of the input.
    line: oneshot::Sender<Option<String>>,
}

#[derive(Debug)]
struct Question {
    words: String,
    is_secret: bool,
}

impl Console {
    /// Begins to read, on a thread of its own: nothing waits for it when the process ends.
    pub(super) fn open() -> Self {
        let is_terminal = std::io::stdin().is_terminal();
        let (sender, lines) = mpsc::channel(1);
        std::thread::spawn(move || read(&sender));
        let (requests, wanted) = mpsc::channel(WAITING_MAX);
        tokio::spawn(attend(wanted, lines, is_terminal));
        Self { requests, is_terminal }
    }

    pub(super) fn is_terminal(&self) -> bool {
        self.is_terminal
    }

    /// The next command; nothing when there are no more.
    pub(super) async fn command(&self) -> Option<String> {
        self.line(None).await
    }

    /// The answer to a question; nothing when there is nobody to ask.
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

async fn attend(
    mut wanted: mpsc::Receiver<Request>,
    mut lines: mpsc::Receiver<String>,
    is_terminal: bool,
) {
    let mut waiting: VecDeque<Request> = VecDeque::new();
    let mut is_over = false;
    let mut shown = false;
    loop {
        if is_over {
            waiting.drain(..).for_each(|it| drop(it.line.send(None)));
        }
        if let Some(first) = waiting.front().filter(|_| !shown) {
            first.show(is_terminal);
            shown = true;
        }
        tokio::select! {
            biased;
            request = wanted.recv() => match request {
                None => return,
                Some(request) => {
                    let is_question = request.question.is_some();
                    // Questions go before commands, in the order they came.
                    let place = waiting.iter().position(|it| is_question && it.question.is_none());
                    let place = place.unwrap_or(waiting.len());
                    shown &= place > 0;
                    waiting.insert(place, request);
                }
            },
            () = gone(&mut waiting) => {
                waiting.pop_front();
                hide(is_terminal);
                shown = false;
            }
            line = lines.recv(), if !waiting.is_empty() => match line {
                None => is_over = true,
                Some(line) => {
                    hide(is_terminal);
                    shown = false;
                    if let Some(first) = waiting.pop_front() {
                        drop(first.line.send(Some(line)));
                    }
                }
            },
        }
    }
}

/// Completes when whoever is first does not wait any more.
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
        // If nobody listens there is nobody to tell.
        let _ = write!(err, "{words}").and_then(|()| err.flush());
    }
}

/// What is typed is shown again.
fn hide(is_terminal: bool) {
    if is_terminal {
        echo(true);
    }
}

/// Shows what is typed, or does not.
fn echo(is_on: bool) {
    use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
    let input = std::io::stdin();
    let Ok(mut modes) = tcgetattr(&input) else { return };
    modes.local_modes.set(LocalModes::ECHO, is_on);
    // A terminal that cannot hide what is typed is used all the same.
    let _ = tcsetattr(&input, OptionalActions::Now, &modes);
}

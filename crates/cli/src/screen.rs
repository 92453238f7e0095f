//! Full-screen mode of the terminal, restored however the program ends.
//!
//! The thread that enters the screen draws on it. If that thread panics, the terminal is restored before the panic
//! message is printed. Panic messages of other threads are held back until then, so that they do not corrupt the
//! screen.

use std::{
    io::{self, IsTerminal as _, Write as _},
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle, ThreadId},
    time::Duration,
};

use budao_core::Lang;
use ratatui::{
    DefaultTerminal, Frame, Terminal,
    backend::CrosstermBackend,
    crossterm::{
        cursor, event as input,
        event::Event,
        execute,
        terminal::{self, EnterAlternateScreen, LeaveAlternateScreen},
    },
    style::{Color, Modifier, Style},
};
use tokio::{signal::unix::SignalKind, sync::mpsc};

use crate::{exit::Exit, signals, terminal::Terminal as Talk, texts::localize};

/// Capacity of the channel for input events.
const KEYS: usize = 256;
/// Time the reader thread waits for input before it checks whether to stop.
const KEY_TIMEOUT: Duration = Duration::from_millis(100);
/// Maximum panic messages held back.
const MISHAPS: usize = 16;

static BORROWED: AtomicBool = AtomicBool::new(false);
static OWNER: OnceLock<ThreadId> = OnceLock::new();
static DEFERRED_MESSAGES: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Checks that stdin and stdout are a usable terminal. If not, suggests `instead` and returns the exit code.
pub(crate) fn is_there(instead: &str, lang: Lang, talk: &Talk) -> Result<(), Exit> {
    let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb" || term.is_empty());
    if io::stdin().is_terminal() && io::stdout().is_terminal() && !dumb {
        return Ok(());
    }
    let words = localize(lang, "screen-this-needs-a-terminal-without-one");
    talk.say(&format!("{words} `{instead}`"));
    Err(Exit::Usage)
}

/// The terminal in full-screen mode, with its keyboard. Dropping it restores the terminal.
pub(crate) struct Screen {
    terminal: DefaultTerminal,
    keys: mpsc::Receiver<Event>,
    stop: Arc<AtomicBool>,
    reader: Option<JoinHandle<()>>,
}

impl Screen {
    /// Switches to raw mode and the alternate screen. On failure the terminal is restored.
    pub(crate) fn enter() -> io::Result<Self> {
        mind_panics();
        BORROWED.store(true, Ordering::SeqCst);
        let entered = terminal::enable_raw_mode().and_then(|()| {
            execute!(io::stdout(), EnterAlternateScreen, input::EnableBracketedPaste)?;
            Terminal::new(CrosstermBackend::new(io::stdout()))
        });
        let terminal = entered.inspect_err(|_| give_back())?;
        let (sender, keys) = mpsc::channel(KEYS);
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let reader =
            thread::Builder::new().name("keyboard".into()).spawn(move || read(&told, &sender));
        let reader = reader.inspect_err(|_| give_back())?;
        Ok(Self { terminal, keys, stop, reader: Some(reader) })
    }

    /// Draws one frame.
    pub(crate) fn draw(&mut self, picture: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        self.terminal.draw(picture).map(drop)
    }

    /// The next key, paste or resize; none once the terminal cannot be read.
    pub(crate) async fn next(&mut self) -> Option<Event> {
        self.keys.recv().await
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        if let Some(reader) = self.reader.take() {
            // The reader stops within [`KEY_TIMEOUT`]; after that it no longer takes keys meant for the next reader.
            let _ = reader.join();
        }
        give_back();
    }
}

fn read(stop: &AtomicBool, keys: &mpsc::Sender<Event>) {
    while !stop.load(Ordering::SeqCst) {
        match input::poll(KEY_TIMEOUT) {
            Ok(false) => {}
            Ok(true) => match input::read() {
                // If the channel is full, the event is lost.
                Ok(event) => drop(keys.try_send(event)),
                Err(_) => return,
            },
            Err(_) => return,
        }
    }
}

/// Restores the terminal, once, and prints the messages that were held back.
fn give_back() {
    if !BORROWED.swap(false, Ordering::SeqCst) {
        return;
    }
    // Errors are ignored: if the terminal is gone, there is nothing to restore.
    let _ = terminal::disable_raw_mode();
    let left = (input::DisableBracketedPaste, LeaveAlternateScreen, cursor::Show);
    let _ = execute!(io::stdout(), left.0, left.1, left.2);
    let waited = DEFERRED_MESSAGES
        .lock()
        .map(|mut messages| std::mem::take(&mut *messages))
        .unwrap_or_default();
    for line in waited {
        let _ = writeln!(io::stderr(), "{line}");
    }
}

/// Installs the panic hook described in the header; the calling thread becomes the drawing thread.
fn mind_panics() {
    if OWNER.set(thread::current().id()).is_err() {
        return;
    }
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let is_ours = OWNER.get() == Some(&thread::current().id());
        if BORROWED.load(Ordering::SeqCst) && !is_ours {
            if let Ok(mut messages) = DEFERRED_MESSAGES.lock()
                && messages.len() < MISHAPS
            {
                messages.push(info.to_string());
            }
            return;
        }
        give_back();
        usual(info);
    }));
}

/// Completes on TERM, HUP or INT. Call it before [`Screen::enter`]: the handlers are installed by this call, not by
/// the first poll, and from then on a signal does not end the process.
pub(crate) fn termination_signal() -> impl Future<Output = ()> {
    signals::received(&[SignalKind::terminate(), SignalKind::hangup(), SignalKind::interrupt()])
}

/// The styles of the screen. No information is carried by colour alone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Theme {
    pub(crate) colours: bool,
}

impl Theme {
    fn ink(self, color: Color) -> Style {
        if self.colours { Style::new().fg(color) } else { Style::new() }
    }

    /// Secondary text, dimmed.
    pub(crate) fn faint(self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    /// Important text, bold.
    pub(crate) fn strong(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    /// A title bar, in reverse video.
    pub(crate) fn bar(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    /// A name the user can type, in cyan.
    pub(crate) fn name(self) -> Style {
        self.ink(Color::Cyan)
    }

    /// Success, in green.
    pub(crate) fn good(self) -> Style {
        self.ink(Color::Green)
    }

    /// Failure, in red.
    pub(crate) fn bad(self) -> Style {
        self.ink(Color::Red)
    }

    /// Something that needs attention, in yellow.
    pub(crate) fn warn(self) -> Style {
        self.ink(Color::Yellow)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

    use std::{io::Read as _, process::Command};

    use rexpect::process::PtyProcess;

    use super::*;

    const WHO: &str = "BUDAO_TEST_WHO_PANICS";

    /// Run by the next test in a pseudo-terminal; does nothing without its environment variable.
    #[test]
    fn a_panic_in_a_terminal() {
        let Some(who) = std::env::var_os(WHO) else { return };
        let screen = Screen::enter().unwrap();
        if who == "other" {
            thread::spawn(|| panic!("the other one panics")).join().unwrap_err();
        } else {
            panic!("the one who draws panics");
        }
        drop(screen);
    }

    #[test]
    fn a_panic_is_printed_after_the_terminal_is_restored() {
        for (who, says) in
            [("owner", "the one who draws panics"), ("other", "the other one panics")]
        {
            let mut command = Command::new(std::env::current_exe().unwrap());
            let test = "screen::tests::a_panic_in_a_terminal";
            command.args(["--exact", test, "--nocapture"]).env(WHO, who);
            let terminal = PtyProcess::new(command).unwrap();
            let (mut output, mut written) = (terminal.get_file_handle().unwrap(), Vec::new());
            // Reading fails with an error when the other end closes.
            let _ = output.read_to_end(&mut written);
            let text = String::from_utf8_lossy(&written).into_owned();
            let at = |wanted: &str| text.find(wanted).unwrap_or_else(|| panic!("{wanted}: {text}"));
            assert!(at("\u{1b}[?1049h") < at("\u{1b}[?1049l"), "{text}");
            assert!(at("\u{1b}[?1049l") < at(says), "{who}: {text}");
            assert!(at("\u{1b}[?1049l") < at("\u{1b}[?25h"), "the cursor is shown: {text}");
        }
    }
}

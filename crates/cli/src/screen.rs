//! The whole screen of a terminal, borrowed, and given back however the program ends.
//!
//! Whoever draws is the main thread. When it panics the screen is given back before the panic speaks; when
//! another thread does, what it has to say waits until the screen is back, so that it does not tear the picture.

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
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::mpsc,
};

use crate::{exit::Exit, terminal::Terminal as Talk, texts::localize};

/// Keys that wait to be looked at.
const KEYS: usize = 256;
/// How long the keyboard is waited for at a time, before it is looked whether anybody still wants to know.
const KEY_TIMEOUT: Duration = Duration::from_millis(100);
/// Panics of other threads that are told afterwards.
const MISHAPS: usize = 16;

static BORROWED: AtomicBool = AtomicBool::new(false);
static OWNER: OnceLock<ThreadId> = OnceLock::new();
static TOLD_LATER: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Is there somebody who sees a screen and has a keyboard? If not, says what to use instead.
pub(crate) fn is_there(instead: &str, lang: Lang, talk: &Talk) -> Result<(), Exit> {
    let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb" || term.is_empty());
    if io::stdin().is_terminal() && io::stdout().is_terminal() && !dumb {
        return Ok(());
    }
    let words =
        localize(lang, "This needs a terminal. Without one, use", "此命令需要终端。没有终端时请用");
    talk.say(&format!("{words} `{instead}`"));
    Err(Exit::Usage)
}

/// A borrowed screen and its keyboard.
pub(crate) struct Screen {
    terminal: DefaultTerminal,
    keys: mpsc::Receiver<Event>,
    stop: Arc<AtomicBool>,
    reader: Option<JoinHandle<()>>,
}

impl Screen {
    /// Borrows it.
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

    /// Shows a picture.
    pub(crate) fn draw(&mut self, picture: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        self.terminal.draw(picture).map(drop)
    }

    /// The next key, paste or change of size; none when the keyboard is gone.
    pub(crate) async fn next(&mut self) -> Option<Event> {
        self.keys.recv().await
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        if let Some(reader) = self.reader.take() {
            // It looks within its patience; then nobody else takes what is typed next.
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
                // More keys than anybody can press: what does not fit is lost.
                Ok(event) => drop(keys.try_send(event)),
                Err(_) => return,
            },
            Err(_) => return,
        }
    }
}

/// Gives the screen back, once; says what had to wait.
fn give_back() {
    if !BORROWED.swap(false, Ordering::SeqCst) {
        return;
    }
    // If the terminal is gone there is nothing to give back.
    let _ = terminal::disable_raw_mode();
    let left = (input::DisableBracketedPaste, LeaveAlternateScreen, cursor::Show);
    let _ = execute!(io::stdout(), left.0, left.1, left.2);
    let waited = TOLD_LATER.lock().map(|mut told| std::mem::take(&mut *told)).unwrap_or_default();
    for line in waited {
        let _ = writeln!(io::stderr(), "{line}");
    }
}

/// From now on a panic does not leave a terminal that nobody can read.
fn mind_panics() {
    if OWNER.set(thread::current().id()).is_err() {
        return;
    }
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let is_ours = OWNER.get() == Some(&thread::current().id());
        if BORROWED.load(Ordering::SeqCst) && !is_ours {
            if let Ok(mut told) = TOLD_LATER.lock()
                && told.len() < MISHAPS
            {
                told.push(info.to_string());
            }
            return;
        }
        give_back();
        usual(info);
    }));
}

/// Completes when somebody tells the program to end. To be called before the screen is borrowed: from this call on, and
/// not only when it is waited for, a signal does not end the program in the middle.
pub(crate) fn termination_signal() -> impl Future<Output = ()> {
    let kinds = [SignalKind::terminate(), SignalKind::hangup(), SignalKind::interrupt()];
    let waits = kinds.into_iter().filter_map(|kind| signal(kind).ok()).map(|mut signal| {
        Box::pin(async move {
            signal.recv().await;
        })
    });
    let waits: Vec<_> = waits.collect();
    async move {
        if waits.is_empty() {
            return std::future::pending().await;
        }
        futures::future::select_all(waits).await;
    }
}

/// How things look. Nothing is said by colour alone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Theme {
    pub(crate) colours: bool,
}

impl Theme {
    fn ink(self, color: Color) -> Style {
        if self.colours { Style::new().fg(color) } else { Style::new() }
    }

    /// Beside the point.
    pub(crate) fn faint(self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    /// Important.
    pub(crate) fn strong(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    /// A bar with words on it.
    pub(crate) fn bar(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    /// A name one can type.
    pub(crate) fn name(self) -> Style {
        self.ink(Color::Cyan)
    }

    /// It worked.
    pub(crate) fn good(self) -> Style {
        self.ink(Color::Green)
    }

    /// It did not.
    pub(crate) fn bad(self) -> Style {
        self.ink(Color::Red)
    }

    /// Somebody should look.
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

    /// What the next test runs in a terminal of its own; without one there is nothing to do.
    #[test]
    fn somebody_panics_in_a_terminal() {
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
    fn a_panic_speaks_only_when_the_terminal_was_given_back() {
        for (who, says) in
            [("owner", "the one who draws panics"), ("other", "the other one panics")]
        {
            let mut command = Command::new(std::env::current_exe().unwrap());
            let test = "screen::tests::somebody_panics_in_a_terminal";
            command.args(["--exact", test, "--nocapture"]).env(WHO, who);
            let terminal = PtyProcess::new(command).unwrap();
            let (mut output, mut written) = (terminal.get_file_handle().unwrap(), Vec::new());
            // It ends with an error when the other end is closed.
            let _ = output.read_to_end(&mut written);
            let text = String::from_utf8_lossy(&written).into_owned();
            let at = |what: &str| text.find(what).unwrap_or_else(|| panic!("{what}: {text}"));
            assert!(at("\u{1b}[?1049h") < at("\u{1b}[?1049l"), "{text}");
            assert!(at("\u{1b}[?1049l") < at(says), "{who}: {text}");
            assert!(at("\u{1b}[?1049l") < at("\u{1b}[?25h"), "the cursor is shown: {text}");
        }
    }
}

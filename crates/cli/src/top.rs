//! `budao top`: live state of all sessions of a journal, whichever process writes them, or of a server.

mod draw;
mod poll;
mod remote;
#[cfg(test)]
mod tests;

use std::time::Duration;

use budao_core::{Fault, Lang, Timestamp};
use budao_runtime::world;
use budao_serve::Window;
use ratatui::crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use tokio::sync::{mpsc, watch};

use self::{
    draw::ScrollPosition,
    poll::{JournalPoller, Snapshot},
};
use crate::{
    chat,
    choices::one_of,
    exit::Exit,
    remote::Remote,
    screen::{self, Screen, Theme},
    setup::JournalArgs,
    terminal::Terminal,
};

/// Time between two polls.
const ROUND: Duration = Duration::from_secs(1);

/// Show all sessions live: turns, retries, faults.
///
/// Reads the journal, so sessions of every process that uses it are shown: servers, editors, terminals. With `--url`,
/// asks a server instead.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Time window of the rates: 5m, 1h, 24h or 7d
    #[arg(long, default_value = "5m", value_name = "TIME", value_parser = one_of::<Window>(), hide_possible_values = true)]
    window: Window,

    /// Print the state once, as text
    #[arg(long)]
    once: bool,

    /// Print the state once, as one JSON object on stdout
    #[arg(long)]
    json: bool,

    /// Ask this server instead: the URL it printed, with or without `#token=…`
    #[arg(long, value_name = "URL")]
    url: Option<String>,

    /// Operator token for that server
    #[arg(long, value_name = "TOKEN", env = "BUDAO_TOKEN", hide_env_values = true)]
    token: Option<String>,

    #[command(flatten)]
    journal: JournalArgs,
}

/// Where snapshots come from.
enum TopSource {
    Journal(Box<JournalPoller>),
    Server(Remote),
}

impl TopSource {
    async fn poll(&mut self, window: Window, now: Timestamp) -> Result<Snapshot, Fault> {
        match self {
            Self::Journal(observer) => observer.poll(window, now).await,
            Self::Server(remote) => remote.poll(window, now).await,
        }
    }
}

/// Runs `budao top`: full screen, or one snapshot with `--once` or `--json`.
pub(crate) async fn run(args: &Args, lang: Lang, terminal: &Terminal) -> Result<Exit, Fault> {
    let window = args.window;
    let is_live = !args.once && !args.json;
    if is_live && let Err(exit) = screen::is_there("budao top --once", lang, terminal) {
        return Ok(exit);
    }
    let world = world::system();
    let (mut source, journal) = match &args.url {
        Some(url) => (TopSource::Server(Remote::new(url, args.token.as_deref())?), None),
        None => {
            let journal = args.journal.to_read().open(&world).await?;
            (TopSource::Journal(Box::new(JournalPoller::new(journal.clone(), lang))), Some(journal))
        }
    };
    let done = if is_live {
        let theme = Theme { colours: terminal.has_colours() };
        run_live(source, window, theme, lang).await
    } else {
        let seen = source.poll(window, world.clock.now()).await?;
        let text = if args.json { seen.json()? } else { draw::render_text(&seen, lang, terminal) };
        terminal.data(&text);
        Ok(())
    };
    if let Some(journal) = journal {
        journal.close().await;
    }
    done.map(|()| Exit::Success)
}

/// Polls and draws until the user quits.
async fn run_live(
    source: TopSource,
    window: Window,
    theme: Theme,
    lang: Lang,
) -> Result<(), Fault> {
    let (wanted, wants) = watch::channel(window);
    let (sender, mut seen) = mpsc::channel(1);
    let polling = tokio::spawn(keep_polling(source, wants, sender));
    let end = screen::termination_signal();
    let mut screen = Screen::enter().map_err(|error| chat::unusable(&error))?;
    tokio::pin!(end);
    let (mut last, mut scroll) = (None::<Snapshot>, ScrollPosition::default());
    let done = loop {
        let drawn = screen.draw(|frame| draw::draw(frame, last.as_ref(), &mut scroll, theme, lang));
        if let Err(error) = drawn {
            break Err(chat::unusable(&error));
        }
        let event = tokio::select! {
            biased;
            () = &mut end => break Ok(()),
            event = screen.next() => event,
            found = seen.recv() => match found {
                Some(Ok(found)) => {
                    (last, scroll.is_away) = (Some(found), false);
                    continue;
                }
                // A server may come back, so its last snapshot stays. A journal that fails ends the command.
                Some(Err(_)) if last.as_ref().is_some_and(|last| last.from.is_some()) => {
                    scroll.is_away = true;
                    continue;
                }
                Some(Err(fault)) => break Err(fault),
                None => break Ok(()),
            },
        };
        match event {
            None => break Ok(()),
            Some(Event::Key(key)) if key.kind != KeyEventKind::Release => {
                if !pressed(key, &mut scroll, &wanted) {
                    break Ok(());
                }
            }
            Some(_) => {}
        }
    };
    polling.abort();
    done
}

/// Applies a key; returns false if the user quits.
fn pressed(key: KeyEvent, scroll: &mut ScrollPosition, window: &watch::Sender<Window>) -> bool {
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    match key.code {
        KeyCode::Char('q') | KeyCode::Esc => return false,
        KeyCode::Char('c' | 'd') if control => return false,
        KeyCode::Char('w') => window.send_modify(|window| *window = after(*window)),
        KeyCode::Down => scroll.from = scroll.from.saturating_add(1),
        KeyCode::Up => scroll.from = scroll.from.saturating_sub(1),
        KeyCode::PageDown => scroll.from = scroll.from.saturating_add(10),
        KeyCode::PageUp => scroll.from = scroll.from.saturating_sub(10),
        _ => {}
    }
    true
}

fn after(window: Window) -> Window {
    match window {
        Window::FiveMinutes => Window::Hour,
        Window::Hour => Window::Day,
        Window::Day => Window::Week,
        Window::Week => Window::FiveMinutes,
    }
}

/// Polls every second, and at once when the window changes.
async fn keep_polling(
    mut source: TopSource,
    mut window: watch::Receiver<Window>,
    seen: mpsc::Sender<Result<Snapshot, Fault>>,
) {
    let clock = world::system().clock;
    loop {
        let wanted = *window.borrow_and_update();
        let found = source.poll(wanted, clock.now()).await;
        if seen.send(found).await.is_err() {
            return;
        }
        tokio::select! {
            biased;
            changed = window.changed() => if changed.is_err() { return },
            () = tokio::time::sleep(ROUND) => {}
        }
    }
}

//! The session list of `budao chat --resume` without an id.

use budao_core::{Fault, Lang, Timestamp, event::SessionId};
use budao_journal::{Filter, Reader, SessionState, SessionSummary};
use ratatui::{
    Frame,
    crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers},
    layout::{Constraint, Layout},
    text::Line,
    widgets::Paragraph,
};

use crate::{
    screen::{Screen, Theme, termination_signal},
    session_name::short,
    symbols::{cut, one_line},
    terminal::pad,
    texts::{count, localize},
};

/// Maximum sessions in the list, most recently changed first.
const LISTED: usize = 500;
/// Maximum characters of the search text.
const SEARCH: usize = 80;

/// The result of the list.
pub(super) enum PickResult {
    Session(SessionId),
    /// The user left the list without a choice.
    None,
    /// The journal has no sessions.
    Empty,
}

/// Shows the list until the user chooses, leaves, or the process receives a termination signal.
pub(super) async fn run(
    journal: &dyn Reader,
    now: Timestamp,
    theme: Theme,
    lang: Lang,
) -> Result<PickResult, Fault> {
    let sessions = journal.sessions(Filter { limit: LISTED, ..Filter::default() }).await?;
    if sessions.is_empty() {
        return Ok(PickResult::Empty);
    }
    let mut list = SessionList { sessions, search: String::new(), at: 0 };
    let end = termination_signal();
    let mut screen = Screen::enter().map_err(|error| super::unusable(&error))?;
    tokio::pin!(end);
    loop {
        let mut page = 1;
        let drawn = screen.draw(|frame| page = draw(frame, &list, now, theme, lang));
        drawn.map_err(|error| super::unusable(&error))?;
        let event = tokio::select! {
            biased;
            () = &mut end => return Ok(PickResult::None),
            event = screen.next() => event,
        };
        let Some(event) = event else { return Ok(PickResult::None) };
        if let Event::Key(key) = event
            && key.kind != KeyEventKind::Release
            && let Some(picked) = list.press(key, page)
        {
            return Ok(picked);
        }
    }
}

/// The sessions, the search text and the selected row among those found.
pub(super) struct SessionList {
    pub(super) sessions: Vec<SessionSummary>,
    pub(super) search: String,
    pub(super) at: usize,
}

impl SessionList {
    /// Sessions whose title or id contains the search text, ignoring case.
    fn found(&self) -> Vec<&SessionSummary> {
        let search = self.search.to_lowercase();
        let fits = |session: &&SessionSummary| {
            let name = session.title.as_deref().unwrap_or_default().to_lowercase();
            name.contains(&search) || session.session.to_string().contains(&search)
        };
        self.sessions.iter().filter(fits).collect()
    }

    /// Applies a key; returns a result if the key closes the list.
    pub(super) fn press(&mut self, key: KeyEvent, page: usize) -> Option<PickResult> {
        let last = self.found().len().saturating_sub(1);
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Esc => return Some(PickResult::None),
            KeyCode::Char('c' | 'd') if control => return Some(PickResult::None),
            KeyCode::Enter => {
                return self.found().get(self.at).map(|found| PickResult::Session(found.session));
            }
            KeyCode::Up => self.at = self.at.saturating_sub(1),
            KeyCode::Down => self.at = (self.at + 1).min(last),
            KeyCode::PageUp => self.at = self.at.saturating_sub(page),
            KeyCode::PageDown => self.at = (self.at + page).min(last),
            KeyCode::Home => self.at = 0,
            KeyCode::End => self.at = last,
            KeyCode::Backspace => {
                self.search.pop();
                self.at = 0;
            }
            KeyCode::Char(letter) if !control && self.search.chars().count() < SEARCH => {
                self.search.push(letter);
                self.at = 0;
            }
            _ => {}
        }
        None
    }
}

/// Draws the list. Returns how many rows fit.
pub(super) fn draw(
    frame: &mut Frame<'_>,
    list: &SessionList,
    now: Timestamp,
    theme: Theme,
    lang: Lang,
) -> usize {
    let area = frame.area();
    let columns = usize::from(area.width);
    let has_keys = area.height > 4;
    let [head, body, keys] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Min(0),
        Constraint::Length(u16::from(has_keys)),
    ])
    .areas(area);
    let heading = localize(lang, "chat-resume-which-session");
    let title = cut(&format!(" {heading} {}", one_line(&list.search)), columns);
    frame.render_widget(Line::styled(pad(&title, columns), theme.bar()), head);
    let height = usize::from(body.height).max(1);
    let found = list.found();
    let from = (list.at + 1).saturating_sub(height);
    let rows = found.iter().enumerate().skip(from).take(height);
    let rows: Vec<_> = rows
        .map(|(at, session)| {
            let is_here = at == list.at;
            let mark = if is_here { "▸ " } else { "  " };
            let text = cut(&format!("{mark}{}", row(session, now, lang)), columns);
            let style = if is_here { theme.strong() } else { Default::default() };
            Line::styled(text, style)
        })
        .collect();
    let nothing = localize(lang, "chat-no-matches");
    let rows = if rows.is_empty() { vec![Line::styled(nothing, theme.faint())] } else { rows };
    frame.render_widget(Paragraph::new(rows), body);
    let hints = localize(lang, "chat-choose-type-to-search-enter-resume");
    frame.render_widget(Line::styled(cut(hints, columns), theme.faint()), keys);
    height
}

fn row(session: &SessionSummary, now: Timestamp, lang: Lang) -> String {
    let name = session.title.as_deref().map(one_line).unwrap_or_default();
    let code = session.last_code.as_deref().unwrap_or_default();
    format!(
        "{} {} {} {name} {code}",
        pad(state(session.state, lang), 8),
        pad(&ago(session.updated_at, now, lang), 8),
        short(session.session),
    )
}

/// A session's state as one word.
pub(crate) fn state(state: SessionState, lang: Lang) -> &'static str {
    localize(lang, &format!("state-{}", state.as_str()))
}

/// The age of `at` in the largest unit that fits: seconds, minutes, hours or days.
pub(crate) fn ago(at: Timestamp, now: Timestamp, lang: Lang) -> String {
    let seconds = now.since(at).as_secs();
    match seconds {
        0..60 => count(lang, "chat-ago-seconds", seconds),
        60..3_600 => count(lang, "chat-ago-minutes", seconds / 60),
        3_600..86_400 => count(lang, "chat-ago-hours", seconds / 3_600),
        _ => count(lang, "chat-ago-days", seconds / 86_400),
    }
}

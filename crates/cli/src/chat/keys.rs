//! Key bindings of the chat: maps an input event and the present state to a [`UserAction`], without I/O.

use budao_core::{elicitation::Elicitation, event::Decision};
use budao_runtime::Question;
use ratatui::{
    crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers},
    style::Style,
};
use ratatui_textarea::{TextArea, WrapMode};
use serde_json::Value;

use super::view::View;
use crate::form;

/// Maximum bytes of a paste; longer pastes are ignored.
const PASTE_BYTES: usize = 256 * 1024;

/// An action for the event loop.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum UserAction {
    /// The event changed at most the screen.
    Nothing,
    /// Send this message; it is never empty.
    Send(String),
    /// Cancel the running turn.
    Cancel,
    /// Answer a question, with an optional note to the model.
    Decide { question: Box<Question>, decision: Decision, note: Option<String> },
    /// Answer a question for input with these values.
    Answer { question: Box<Question>, values: Option<Value> },
    /// Close the chat; the session stays open for `--resume`.
    Quit,
}

/// The target of key presses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum InputMode {
    /// The message draft, or the open question if there is one.
    #[default]
    Compose,
    /// A note to the model that accompanies a denial.
    DenyNote,
    /// The values that a tool server asks for, one line each.
    Form,
    /// The details of one fault; `back` counts from the most recent, which is 0.
    FaultDetails { back: usize },
}

/// Screen state that is not in the records.
#[derive(Debug)]
pub(crate) struct InputState {
    pub(crate) mode: InputMode,
    pub(crate) draft: TextArea<'static>,
    /// Lines scrolled up from the end of the conversation; 0 follows new text.
    pub(crate) scrolled: usize,
    /// First visible line of the fault details.
    pub(crate) told_from: usize,
    /// Text for the status line, shown until the next key press.
    pub(crate) notice: Option<String>,
}

impl InputState {
    pub(crate) fn new() -> Self {
        Self { mode: InputMode::Compose, draft: empty(), scrolled: 0, told_from: 0, notice: None }
    }

    /// Applies a key press or a paste and returns the resulting action. `page` is the height of the conversation in
    /// lines.
    pub(crate) fn take(&mut self, event: Event, view: &View, page: usize) -> UserAction {
        match event {
            Event::Key(key) if key.kind != KeyEventKind::Release => self.press(key, view, page),
            Event::Paste(text) if text.len() <= PASTE_BYTES => {
                if self.writes(view) {
                    let text = text.replace("\r\n", "\n").replace('\r', "\n");
                    self.draft.insert_str(text);
                }
                UserAction::Nothing
            }
            _ => UserAction::Nothing,
        }
    }

    /// True if typed characters go into the draft.
    pub(crate) fn writes(&self, view: &View) -> bool {
        match self.mode {
            InputMode::Compose => view.questions.is_empty(),
            InputMode::DenyNote | InputMode::Form => true,
            InputMode::FaultDetails { .. } => false,
        }
    }

    fn press(&mut self, key: KeyEvent, view: &View, page: usize) -> UserAction {
        self.notice = None;
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match (key.code, control) {
            (KeyCode::Char('c'), true) => return self.interrupt(view),
            (KeyCode::Char('d'), true) if self.draft.is_empty() => return UserAction::Quit,
            (KeyCode::Char('t'), true) => {
                self.open_fault_details(view);
                return UserAction::Nothing;
            }
            _ => {}
        }
        match self.mode {
            InputMode::FaultDetails { back } => {
                self.scroll_fault_details(key.code, back, view, page)
            }
            InputMode::DenyNote => self.write_word(key, view),
            InputMode::Form => self.fill_in(key, view),
            InputMode::Compose if !view.questions.is_empty() => self.decide(key.code, view, page),
            InputMode::Compose => self.write(key, view, page),
        }
    }

    /// Ctrl-C cancels a running turn. Without one it clears the draft, or quits if the draft is empty.
    fn interrupt(&mut self, view: &View) -> UserAction {
        if view.turn().is_some() && !view.is_cancelled {
            return UserAction::Cancel;
        }
        if view.turn().is_none() && !self.draft.is_empty() {
            self.draft = empty();
            return UserAction::Nothing;
        }
        UserAction::Quit
    }

    fn open_fault_details(&mut self, view: &View) {
        self.told_from = 0;
        self.mode = match self.mode {
            InputMode::FaultDetails { .. } => InputMode::Compose,
            _ if view.faults().next().is_some() => InputMode::FaultDetails { back: 0 },
            mode => mode,
        };
    }

    fn scroll_fault_details(
        &mut self,
        key: KeyCode,
        back: usize,
        view: &View,
        page: usize,
    ) -> UserAction {
        let oldest = view.faults().count().saturating_sub(1);
        let mut turn = |back: usize| {
            self.mode = InputMode::FaultDetails { back };
            self.told_from = 0;
        };
        match key {
            KeyCode::Esc | KeyCode::Enter | KeyCode::Char('q') => self.mode = InputMode::Compose,
            KeyCode::Left => turn((back + 1).min(oldest)),
            KeyCode::Right => turn(back.saturating_sub(1)),
            KeyCode::Down => self.told_from += 1,
            KeyCode::Up => self.told_from = self.told_from.saturating_sub(1),
            KeyCode::PageDown => self.told_from += page,
            KeyCode::PageUp => self.told_from = self.told_from.saturating_sub(page),
            _ => {}
        }
        UserAction::Nothing
    }

    fn decide(&mut self, key: KeyCode, view: &View, page: usize) -> UserAction {
        let Some(question) = view.questions.front() else { return UserAction::Nothing };
        let decided = |decision| {
            let question = Box::new(question.clone());
            UserAction::Decide { question, decision, note: None }
        };
        let asked = form::elicitation_of(question);
        match key {
            KeyCode::Char('y' | 'Y') if asked.is_some() => match asked.filter(has_fields) {
                Some(asked) => {
                    (self.mode, self.draft) = (InputMode::Form, filled(form::draft(&asked)));
                    UserAction::Nothing
                }
                None => UserAction::Answer { question: Box::new(question.clone()), values: None },
            },
            KeyCode::Char('w' | 'W') if asked.is_some() => UserAction::Nothing,
            KeyCode::Char('y' | 'Y') => decided(Decision::Allow),
            KeyCode::Char('n' | 'N') => decided(Decision::Deny),
            KeyCode::Char('w' | 'W') => {
                (self.mode, self.draft) = (InputMode::DenyNote, empty());
                UserAction::Nothing
            }
            KeyCode::Esc => UserAction::Cancel,
            other => {
                self.scroll(other, page);
                UserAction::Nothing
            }
        }
    }

    fn write_word(&mut self, key: KeyEvent, view: &View) -> UserAction {
        match key.code {
            KeyCode::Esc => {
                (self.mode, self.draft) = (InputMode::Compose, empty());
                UserAction::Nothing
            }
            KeyCode::Enter => {
                let note = self.taken();
                self.mode = InputMode::Compose;
                let Some(question) = view.questions.front() else { return UserAction::Nothing };
                let question = Box::new(question.clone());
                UserAction::Decide { question, decision: Decision::Deny, note }
            }
            _ => {
                self.draft.input(key);
                UserAction::Nothing
            }
        }
    }

    /// Fills in the values of a form. An answer that does not fit stays in the draft, with a notice.
    fn fill_in(&mut self, key: KeyEvent, view: &View) -> UserAction {
        let breaks = key.modifiers.intersects(KeyModifiers::ALT | KeyModifiers::SHIFT);
        let asked = view
            .questions
            .front()
            .and_then(|question| Some((question.clone(), form::elicitation_of(question)?)));
        match (key.code, asked) {
            (KeyCode::Esc, _) | (_, None) => {
                (self.mode, self.draft) = (InputMode::Compose, empty());
            }
            (KeyCode::Enter, Some(_)) if breaks => self.draft.insert_newline(),
            (KeyCode::Enter, Some((question, asked))) => {
                match form::read_draft(&asked, &self.draft.lines().join("\n")) {
                    Ok(values) => {
                        (self.mode, self.draft) = (InputMode::Compose, empty());
                        let (question, values) = (Box::new(question), Some(values));
                        return UserAction::Answer { question, values };
                    }
                    Err(wrong) => self.notice = Some(wrong),
                }
            }
            (_, Some(_)) => {
                self.draft.input(key);
            }
        }
        UserAction::Nothing
    }

    fn write(&mut self, key: KeyEvent, view: &View, page: usize) -> UserAction {
        let breaks = key.modifiers.intersects(KeyModifiers::ALT | KeyModifiers::SHIFT);
        match key.code {
            KeyCode::Esc if view.turn().is_some() => UserAction::Cancel,
            KeyCode::Esc => {
                self.scrolled = 0;
                UserAction::Nothing
            }
            KeyCode::Enter if breaks => {
                self.draft.insert_newline();
                UserAction::Nothing
            }
            KeyCode::Char('j') if key.modifiers.contains(KeyModifiers::CONTROL) => {
                self.draft.insert_newline();
                UserAction::Nothing
            }
            KeyCode::Enter => match self.taken() {
                Some(text) if text == "/quit" || text == "/exit" => UserAction::Quit,
                Some(text) => {
                    self.scrolled = 0;
                    UserAction::Send(text)
                }
                None => UserAction::Nothing,
            },
            KeyCode::Up | KeyCode::Down if !self.draft.is_empty() => {
                self.draft.input(key);
                UserAction::Nothing
            }
            code if self.scroll(code, page) => UserAction::Nothing,
            _ => {
                self.draft.input(key);
                UserAction::Nothing
            }
        }
    }

    /// Scrolls the conversation; returns false if the key is not a scroll key.
    fn scroll(&mut self, key: KeyCode, page: usize) -> bool {
        let page = page.max(1);
        self.scrolled = match key {
            KeyCode::PageUp => self.scrolled.saturating_add(page),
            KeyCode::PageDown => self.scrolled.saturating_sub(page),
            KeyCode::Up => self.scrolled.saturating_add(1),
            KeyCode::Down => self.scrolled.saturating_sub(1),
            _ => return false,
        };
        true
    }

    /// Takes the trimmed draft and clears it; none if it was blank.
    fn taken(&mut self) -> Option<String> {
        let draft = std::mem::replace(&mut self.draft, empty());
        let text = draft.into_lines().join("\n").trim().to_owned();
        (!text.is_empty()).then_some(text)
    }
}

fn has_fields(asked: &Elicitation) -> bool {
    !asked.fields.is_empty()
}

fn empty() -> TextArea<'static> {
    filled(Vec::new())
}

fn filled(lines: Vec<String>) -> TextArea<'static> {
    let mut draft = TextArea::new(lines);
    draft.set_wrap_mode(WrapMode::WordOrGlyph);
    // The terminal's own cursor is shown instead, because input methods place their candidates there.
    draft.set_cursor_style(Style::new());
    draft.set_cursor_line_style(Style::new());
    draft
}

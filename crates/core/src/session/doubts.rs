//! Calls whose outcome is unknown, until a person says what became of them.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Call;
use crate::{
    event::{Settlement, TurnNumber},
    fault::{Detail, Fact, text},
    lang::Lang,
    message::CallId,
    time::Timestamp,
};

/// The most open doubts of a session; the oldest is dropped for a newer one.
const OPEN_MAX: usize = 64;

/// The most settled doubts that are remembered, to tell a second person who was first.
const SETTLED_MAX: usize = 64;

/// The longest arguments kept with a doubt, in bytes of JSON; longer ones are cut and kept as text.
const ARGUMENTS_MAX: usize = 4_096;

/// A call whose outcome is unknown.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Doubt {
    /// The call that may have been done.
    pub call: CallId,
    /// The tool's name, as the model wrote it.
    pub tool: String,
    /// The arguments the tool received; a text with the beginning of their JSON if they are long.
    pub arguments: Value,
    /// The turn that made the call.
    pub turn: TurnNumber,
    /// When the call ended with an unknown outcome.
    pub since: Timestamp,
}

/// A doubt that a person settled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettledDoubt {
    /// The call that was in doubt.
    pub call: CallId,
    /// The sender of the settlement.
    pub by: String,
}

/// The doubts of a session.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Doubts {
    open: Vec<Doubt>,
    settled: VecDeque<SettledDoubt>,
    /// Texts that the next model request carries.
    notices: Vec<String>,
}

impl Doubt {
    pub(super) fn new(call: &Call, arguments: &Value, turn: TurnNumber, since: Timestamp) -> Self {
        let text = arguments.to_string();
        let arguments = match text.len() <= ARGUMENTS_MAX {
            true => arguments.clone(),
            false => format!("{}…", &text[..text.floor_char_boundary(ARGUMENTS_MAX)]).into(),
        };
        Self { call: call.id.clone(), tool: call.tool.clone(), arguments, turn, since }
    }
}

impl Doubts {
    /// Whether there is nothing to store.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The calls that are in doubt, oldest first.
    #[must_use]
    pub fn all_open(&self) -> &[Doubt] {
        &self.open
    }

    /// The open doubt about a call.
    #[must_use]
    pub fn about(&self, call: &CallId) -> Option<&Doubt> {
        self.open.iter().find(|doubt| doubt.call == *call)
    }

    /// The settlement of a call that was in doubt, while it is remembered.
    #[must_use]
    pub fn settled(&self, call: &CallId) -> Option<&SettledDoubt> {
        self.settled.iter().find(|settled| settled.call == *call)
    }

    pub(super) fn open(&mut self, doubt: Doubt) {
        if self.open.len() >= OPEN_MAX {
            self.open.remove(0);
        }
        self.open.push(doubt);
    }

    pub(super) fn settle(
        &mut self,
        call: &CallId,
        settlement: &Settlement,
        by: &str,
        note: Option<&str>,
        lang: Lang,
    ) {
        let Some(place) = self.open.iter().position(|doubt| doubt.call == *call) else { return };
        let doubt = self.open.remove(place);
        self.notices.push(notice(&doubt, settlement, note, lang));
        if self.settled.len() >= SETTLED_MAX {
            self.settled.pop_front();
        }
        self.settled.push_back(SettledDoubt { call: call.clone(), by: by.to_owned() });
    }

    pub(super) fn take_notices(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notices)
    }
}

/// The text for the model about a settled doubt.
fn notice(doubt: &Doubt, settlement: &Settlement, note: Option<&str>, lang: Lang) -> String {
    let about = Detail::new()
        .with(Fact::ToolName, doubt.tool.clone())
        .with(Fact::CallId, doubt.call.to_string());
    let mut told = match settlement {
        Settlement::Happened { result } => {
            format!("{} {result}", text::line("advice-doubt-happened", &about, lang))
        }
        Settlement::DidNotHappen => text::line("advice-doubt-did-not-happen", &about, lang),
        Settlement::LeftToModel => text::line("advice-doubt-left", &about, lang),
    };
    if let Some(note) = note {
        let note = Detail::new().with(Fact::Note, note.to_owned());
        told.push(' ');
        told.push_str(&text::line("advice-doubt-note", &note, lang));
    }
    told
}

//! Calls whose outcome is unknown, until a person says what became of them.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Call;
use crate::{
    event::{Settings, Settlement, TurnNumber},
    fault::{Detail, Fact, text},
    message::CallId,
    time::Timestamp,
};

/// A session with this many open doubts takes no further message. None is ever dropped: only a settlement closes it.
pub(super) const OPEN_MAX: usize = 1_000;

/// Open doubts whose arguments are kept up to [`ARGUMENTS_MAX`]; those of further ones up to [`ARGUMENTS_SHORT`].
const WITH_ARGUMENTS: usize = 64;

/// The most settled doubts that are remembered, to tell a second person who was first.
const SETTLED_MAX: usize = 64;

/// The longest arguments kept with a doubt, in bytes of JSON; longer ones are cut and kept as text.
const ARGUMENTS_MAX: usize = 4_096;

/// The longest arguments of a doubt that comes after many others, and of those a notice repeats, in bytes of JSON.
const ARGUMENTS_SHORT: usize = 400;

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

    pub(super) fn open(&mut self, call: &Call, turn: TurnNumber, since: Timestamp) {
        let most = if self.open.len() < WITH_ARGUMENTS { ARGUMENTS_MAX } else { ARGUMENTS_SHORT };
        let arguments = call.arguments();
        let text = arguments.to_string();
        let arguments = if text.len() <= most { arguments } else { cut(&text, most).into() };
        self.open.push(Doubt {
            call: call.id.clone(),
            tool: call.tool.clone(),
            arguments,
            turn,
            since,
        });
    }

    pub(super) fn settle(
        &mut self,
        call: &CallId,
        settlement: &Settlement,
        by: &str,
        note: Option<&str>,
        settings: &Settings,
    ) {
        let Some(place) = self.open.iter().position(|doubt| doubt.call == *call) else { return };
        let doubt = self.open.remove(place);
        self.notices.push(notice(&doubt, settlement, note, settings));
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
fn notice(
    doubt: &Doubt,
    settlement: &Settlement,
    note: Option<&str>,
    settings: &Settings,
) -> String {
    let lang = settings.language;
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
    let mut add = |message, fact, value: String| {
        told.push(' ');
        told.push_str(&text::line(message, &Detail::new().with(fact, value), lang));
    };
    // A foreign agent does not know our ids of its calls.
    if settings.is_foreign() {
        let arguments = cut(&doubt.arguments.to_string(), ARGUMENTS_SHORT);
        add("advice-doubt-arguments", Fact::Excerpt, arguments);
    }
    if let Some(note) = note {
        add("advice-doubt-note", Fact::Note, note.to_owned());
    }
    told
}

fn cut(text: &str, most: usize) -> String {
    match text.len() <= most {
        true => text.to_owned(),
        false => format!("{}…", &text[..text.floor_char_boundary(most)]),
    }
}

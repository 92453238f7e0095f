//! The answer that the agent is sending: its text, reasoning and calls, until it is recorded.

use budao_core::message::{Block, CallId, ToolUse};
use serde::{Deserialize, Serialize};

use crate::wire::ItemKind;

/// The parts of an answer so far.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Draft {
    /// The agent's id of the first text or of the message that a call belongs to.
    pub(crate) message: Option<String>,
    parts: Vec<Part>,
    /// Whether the step of this answer has started.
    pub(crate) is_open: bool,
}

#[derive(Clone, Debug, PartialEq)]
enum Part {
    Text(String),
    Thought(String),
    Call(DraftCall),
}

/// A call of the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DraftCall {
    /// The agent's id of the call.
    pub(crate) theirs: String,
    pub(crate) name: String,
    pub(crate) arguments: String,
    pub(crate) is_complete: bool,
    /// The relay made the call up, to ask a question that belongs to no call.
    pub(crate) is_synthetic: bool,
}

/// The agent's own ids of a recorded answer. They are stored with it and sent back.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct UpstreamIds {
    /// The agent's id of the message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) message: Option<String>,
    /// Our id and the agent's id of each call.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) calls: Vec<(String, String)>,
    /// Our ids of calls that the relay made up; the agent does not know them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) synthetic: Vec<String>,
    /// The answer is not complete: its run was cut or cancelled.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) partial: bool,
}

#[derive(Serialize, Deserialize)]
struct IdBlock {
    agui: UpstreamIds,
}

impl UpstreamIds {
    /// Reads the ids of a recorded answer.
    pub(crate) fn of(content: &[Block]) -> Self {
        let opaque = content.iter().filter_map(|block| match block {
            Block::Opaque(text) => serde_json::from_str::<IdBlock>(text).ok(),
            _ => None,
        });
        opaque.map(|envelope| envelope.agui).next().unwrap_or_default()
    }

    fn block(self) -> Option<Block> {
        if self == Self::default() {
            return None;
        }
        serde_json::to_string(&IdBlock { agui: self }).ok().map(Block::Opaque)
    }
}

impl DraftCall {
    /// A call without arguments so far. An agent that leaves the tool's name out calls `tool`.
    pub(crate) fn begin(theirs: String, name: Option<String>) -> Self {
        Self {
            theirs,
            name: name.filter(|name| !name.is_empty()).unwrap_or_else(|| "tool".to_owned()),
            arguments: String::new(),
            is_complete: false,
            is_synthetic: false,
        }
    }
}

impl Draft {
    /// An empty answer, whose step has started or not.
    pub(crate) fn new(is_open: bool) -> Self {
        Self { is_open, ..Self::default() }
    }

    /// Whether the answer has no content yet.
    pub(crate) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Appends text of the answer or of its reasoning.
    pub(crate) fn push_text(&mut self, item: ItemKind, delta: &str) {
        match (item, self.parts.last_mut()) {
            (ItemKind::Text, Some(Part::Text(text)))
            | (ItemKind::Thought, Some(Part::Thought(text))) => {
                text.push_str(delta);
            }
            (ItemKind::Thought, _) => self.parts.push(Part::Thought(delta.to_owned())),
            _ => self.parts.push(Part::Text(delta.to_owned())),
        }
    }

    /// Adds a call, unless the draft has it.
    pub(crate) fn add_call(&mut self, call: DraftCall) {
        if self.call(&call.theirs).is_none() {
            self.parts.push(Part::Call(call));
        }
    }

    /// A call by the agent's id.
    pub(crate) fn call(&mut self, theirs: &str) -> Option<&mut DraftCall> {
        self.parts.iter_mut().find_map(|part| match part {
            Part::Call(call) if call.theirs == theirs => Some(call),
            _ => None,
        })
    }

    pub(crate) fn has_calls(&self) -> bool {
        self.parts.iter().any(|part| matches!(part, Part::Call(_)))
    }

    pub(crate) fn has_complete_calls(&self) -> bool {
        self.parts.iter().any(|part| matches!(part, Part::Call(call) if call.is_complete))
    }

    /// Whether the draft has text of the answer or of its reasoning.
    pub(crate) fn has_text(&self) -> bool {
        self.parts.iter().any(|part| !matches!(part, Part::Call(_)))
    }

    /// Removes the text and the reasoning.
    pub(crate) fn forget_text(&mut self) {
        self.parts.retain(|part| matches!(part, Part::Call(_)));
        self.message = None;
    }

    /// Removes the calls for which `is_known` holds.
    pub(crate) fn forget_calls(&mut self, is_known: impl Fn(&str) -> bool) {
        self.parts.retain(|part| !matches!(part, Part::Call(call) if is_known(&call.theirs)));
    }

    /// The content of the answer, with our ids for its calls. In a partial answer, calls whose arguments are
    /// incomplete are left out: the agent had not asked for them yet.
    pub(crate) fn finish(self, partial: bool, mut name: impl FnMut(usize) -> CallId) -> Vec<Block> {
        let mut ids = UpstreamIds { message: self.message, partial, ..UpstreamIds::default() };
        let mut content = Vec::new();
        for part in self.parts {
            match part {
                Part::Text(text) => content.push(Block::Text(text)),
                Part::Thought(text) => content.push(Block::Thinking { text, signature: None }),
                Part::Call(call) if partial && !call.is_complete => {}
                Part::Call(call) => {
                    let id = name(ids.calls.len() + ids.synthetic.len() + 1);
                    match call.is_synthetic {
                        true => ids.synthetic.push(id.to_string()),
                        false => ids.calls.push((id.to_string(), call.theirs)),
                    }
                    let arguments = match call.arguments.trim().is_empty() {
                        true => "{}".to_owned(),
                        false => call.arguments,
                    };
                    content.push(Block::ToolUse(ToolUse { id, name: call.name, arguments }));
                }
            }
        }
        if !content.is_empty() {
            content.extend(ids.block());
        }
        content
    }
}

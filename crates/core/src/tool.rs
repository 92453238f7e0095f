//! The tool contract: a tool's description of itself, the repair of its arguments, and the outcome of a call.

use std::{sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{fault::Fault, limits::millis, remote::ToolRoute};

/// A tool's description of itself. The model receives the same schema that the runtime enforces.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolSpec {
    /// `[A-Za-z0-9_-]{1,64}`, unique in its toolbox.
    pub name: Arc<str>,
    /// The description for the model.
    pub description: Arc<str>,
    /// JSON Schema of the arguments; an object schema.
    pub schema: Arc<Value>,
    /// The strongest effect a call can have; permissions depend on it.
    pub effect: Effect,
    /// Whether a call can be repeated without harm. Only such calls are retried, or run again after a crash.
    pub idempotent: bool,
    /// Whether a person must confirm each call, whatever the mode.
    pub confirm: bool,
    /// Whether mistakes in the arguments may be repaired without a question.
    pub repair: bool,
    /// The tool's own deadline; the system's limit if absent.
    pub deadline: Option<Duration>,
    /// The most output bytes the model sees; the system's limit if absent.
    pub output_bytes: Option<usize>,
    /// The source that provides the tool.
    pub source: ToolOrigin,
}

impl ToolSpec {
    /// The bytes of the specification in a request, about: name, description and schema as JSON.
    #[must_use]
    pub fn bytes(&self) -> usize {
        /// The names of the fields around them.
        const FRAME_BYTES: usize = 64;
        let schema = serde_json::to_vec(&self.schema).map_or(0, |schema| schema.len());
        FRAME_BYTES + self.name.len() + self.description.len() + schema
    }
}

/// The effect of a call on its surroundings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// The call changes nothing.
    Reads,
    /// The call changes files or other state.
    Writes,
    /// The call runs a program.
    Executes,
}

/// The source that provides a tool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolOrigin {
    /// Part of Budao.
    Builtin,
    /// Registered by the embedding program.
    Registered,
    /// Provided by an MCP server.
    Mcp {
        /// The server's configured name.
        server: String,
        /// Whether the server changed the tool since it was approved. Its next call needs a decision.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        is_changed: bool,
    },
    /// Provided by a remote computer.
    Computer {
        /// The computer's name.
        computer: String,
    },
    /// Provided by a worker, a program that connects to the server.
    Worker(ToolRoute),
}

/// A mistake in the arguments that was repaired without loss. The outcome reports it to the model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Repair {
    /// JSON pointer to the repaired place.
    pub pointer: String,
    /// The repair that was made.
    pub kind: RepairKind,
}

/// The repairs that exist. Each is lossless.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Serialize,
    Deserialize,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum RepairKind {
    /// An absent value got its default. Not a mistake, but reported to the model as well.
    DefaultFilled,
    /// `"5"` became `5`.
    TextToNumber,
    /// `"true"` became `true`.
    TextToBool,
    /// A string with JSON in it became the value it encodes.
    TextToJson,
    /// A single value became a list of one.
    OneToList,
    /// `null` for an optional value was removed.
    NullToAbsent,
    /// `"RED"` became `"red"`, the only allowed value that differs in case alone.
    EnumCase,
    /// Malformed JSON with only one plausible meaning was parsed.
    MalformedJson,
}

/// How a call ended. Every call has exactly one outcome, and it never changes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The call succeeded.
    Done(Output),
    /// The call failed.
    Failed(Failure),
}

/// What a tool found out about an interrupted call.
#[derive(Clone, Debug, PartialEq)]
pub enum ReconcileResult {
    /// The call did nothing.
    DidNotHappen,
    /// The call was done, with this result.
    Happened(Output),
    /// The call still runs outside of this process; the tool can wait for its end.
    StillRuns,
    /// The tool cannot tell.
    CannotTell,
    /// The attempt to find out failed.
    Failed(Fault),
}

/// The outcome of a failed call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Failure {
    /// Why the call failed.
    pub fault: Fault,
    /// Data that the tool attached to its failure, verbatim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Value>,
    /// A remark for the model, for example a person's note.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// The outcome of a successful call.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Output {
    /// The result, as JSON.
    pub data: Value,
    /// A remark for the model: repairs made, output cut.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Set when the model sees only the head and the tail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cut: Option<Truncation>,
}

/// Describes an output that was too long to show completely.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Truncation {
    /// The full size in bytes.
    pub total_bytes: u64,
    /// The content hash under which the full text is stored; absent if the text exceeded that limit too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<String>,
}

impl From<Fault> for Outcome {
    fn from(fault: Fault) -> Self {
        Self::Failed(Failure { fault, data: None, note: None })
    }
}

impl Outcome {
    /// The fault, if the call failed.
    #[must_use]
    pub fn fault(&self) -> Option<&Fault> {
        match self {
            Self::Done(_) => None,
            Self::Failed(failure) => Some(&failure.fault),
        }
    }

    /// Whether the call succeeded.
    #[must_use]
    pub fn is_done(&self) -> bool {
        matches!(self, Self::Done(_))
    }

    /// Whether nobody knows what became of the call, and it must not be repeated.
    #[must_use]
    pub fn is_in_doubt(&self) -> bool {
        let is_doubtful = |fault: &Fault| fault.is_outcome_unknown() && !fault.repeat().retryable;
        self.fault().is_some_and(is_doubtful)
    }

    /// As [`Outcome::render_for_model`], with the model's own words where scrubbing changed them. `written` is the JSON
    /// of the call's arguments, as the model wrote it.
    #[must_use]
    pub fn render_for_caller(&self, written: &str, lang: crate::Lang) -> (String, bool) {
        match self {
            Self::Done(_) => self.render_for_model(lang),
            Self::Failed(failure) => {
                let failure = crate::fault::with_own_words(failure, written);
                (crate::fault::render::render_for_model(&failure, lang).to_json(), true)
            }
        }
    }

    /// The JSON object for the model, and whether it is an error.
    #[must_use]
    pub fn render_for_model(&self, lang: crate::Lang) -> (String, bool) {
        match self {
            Self::Done(output) => {
                (crate::message::success_content(&output.data, output.note.as_deref()), false)
            }
            Self::Failed(failure) => {
                (crate::fault::render::render_for_model(failure, lang).to_json(), true)
            }
        }
    }
}

/// The default permission for tools that no list names.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    Serialize,
    Deserialize,
    strum::EnumString,
    strum::IntoStaticStr,
    strum::VariantArray,
    strum::Display,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Mode {
    /// All tools run.
    Auto,
    /// Reading tools run; writing and executing ones need a decision.
    #[default]
    Approval,
    /// Reading tools run; all others are denied.
    Readonly,
}

/// Rules for which tools run, which need a decision and which are denied.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Permissions {
    /// Applies to tools that no list names.
    pub mode: Mode,
    /// Tools that run without a question, by name or `prefix*`.
    pub allow: Vec<String>,
    /// Tools that always need a decision, by name or `prefix*`.
    pub ask: Vec<String>,
    /// Tools that never run, by name or `prefix*`.
    pub deny: Vec<String>,
    /// Tools that a person allowed for the rest of the session, by name. They count in the mode `approval` alone, and
    /// only where no list and no tool asks for a decision.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remembered: Vec<String>,
}

/// Whether a call may run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Permission {
    /// The call runs without a question.
    Allow,
    /// A person must decide; carries the reason.
    Ask(&'static str),
    /// The call is denied; carries the reason.
    Deny(&'static str),
}

impl Permissions {
    /// The reason of a question that the mode alone asks. Only such a permission can be remembered.
    pub const ASKED_BY_MODE: &'static str =
        "the tool writes or executes, and the mode is `approval`";

    /// The most tools that a session remembers.
    pub const REMEMBERED_MAX: usize = 100;

    /// Evaluates the rules. Deny wins over ask, ask over allow, any list over the mode. A list entry may end in `*`.
    #[must_use]
    pub fn permit(&self, spec: &ToolSpec) -> Permission {
        let named = |list: &[String]| list.iter().any(|pattern| matches(pattern, &spec.name));
        if named(&self.deny) {
            return Permission::Deny("the tool is on the deny list");
        }
        if named(&self.ask) {
            return Permission::Ask("the tool is on the ask list");
        }
        if spec.confirm {
            return Permission::Ask("the tool asks for confirmation of every call");
        }
        if named(&self.allow) {
            return Permission::Allow;
        }
        match (self.mode, spec.effect) {
            (Mode::Auto, _) | (_, Effect::Reads) => Permission::Allow,
            (Mode::Approval, _) if self.remembered.iter().any(|name| **name == *spec.name) => {
                Permission::Allow
            }
            (Mode::Approval, Effect::Writes | Effect::Executes) => {
                Permission::Ask(Self::ASKED_BY_MODE)
            }
            (Mode::Readonly, Effect::Writes | Effect::Executes) => {
                Permission::Deny("the tool writes or executes, and the mode is `readonly`")
            }
        }
    }

    /// The permissions of a child session that requests `wanted`: never more than its parent has.
    #[must_use]
    pub fn narrow(&self, wanted: &Self) -> Self {
        let strictness = |mode| match mode {
            Mode::Auto => 0,
            Mode::Approval => 1,
            Mode::Readonly => 2,
        };
        let mode =
            if strictness(wanted.mode) > strictness(self.mode) { wanted.mode } else { self.mode };
        let both = |a: &[String], b: &[String]| -> Vec<String> {
            let mut all = a.to_vec();
            all.extend(b.iter().filter(|name| !a.contains(name)).cloned());
            all
        };
        Self {
            mode,
            // The child keeps only the allow entries that its parent allows as well.
            allow: wanted
                .allow
                .iter()
                .filter(|name| self.allow.iter().any(|pattern| matches(pattern, name)))
                .cloned()
                .collect(),
            ask: both(&self.ask, &wanted.ask),
            deny: both(&self.deny, &wanted.deny),
            // A permission for one session says nothing about another.
            remembered: Vec::new(),
        }
    }
}

/// Whether a pattern (a name, or a prefix and a `*`) matches this tool.
#[must_use]
pub fn matches(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => name == pattern,
    }
}

/// An entry of a session's to-do list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Todo {
    /// Unique in the list.
    pub id: String,
    /// One line, for lists.
    pub title: String,
    /// Progress of the entry.
    pub status: TodoStatus,
    /// The agent or person that does it; absent if unassigned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assignee: Option<String>,
    /// Free text for details.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notes: Option<String>,
}

/// Progress of a to-do entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TodoStatus {
    /// Work on the entry has not started.
    Pending,
    /// In progress; at most one entry of a list is.
    InProgress,
    /// Work on the entry is finished.
    Completed,
}

/// A duration stored as milliseconds in records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Millis(#[serde(with = "millis")] pub Duration);

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(name: &str, effect: Effect) -> ToolSpec {
        ToolSpec {
            name: name.into(),
            description: "".into(),
            schema: Arc::new(Value::Null),
            effect,
            idempotent: false,
            confirm: false,
            repair: false,
            deadline: None,
            output_bytes: None,
            source: ToolOrigin::Registered,
        }
    }

    fn list(names: &[&str]) -> Vec<String> {
        names.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn an_unknown_mode_is_refused_not_allowed() {
        assert!("everything".parse::<Mode>().is_err());
        assert!(serde_json::from_str::<Permissions>(r#"{"mode":"yolo"}"#).is_err());
        assert_eq!(Permissions::default().mode, Mode::Approval);
    }

    #[test]
    fn deny_wins_over_ask_and_ask_over_allow() {
        let permissions = Permissions {
            mode: Mode::Auto,
            allow: list(&["fs_*"]),
            ask: list(&["fs_write"]),
            deny: list(&["fs_write_all"]),
            ..Permissions::default()
        };
        let permit = |name| permissions.permit(&spec(name, Effect::Writes));
        assert_eq!(permit("fs_edit"), Permission::Allow);
        assert!(matches!(permit("fs_write"), Permission::Ask(_)));
        assert!(matches!(permit("fs_write_all"), Permission::Deny(_)));
    }

    #[test]
    fn a_remembered_permission_counts_where_the_mode_alone_asks() {
        let remembered = list(&["fs_write"]);
        let approval = Permissions { remembered, ..Permissions::default() };
        let writes = spec("fs_write", Effect::Writes);
        assert_eq!(approval.permit(&writes), Permission::Allow);
        let other = approval.permit(&spec("fs_write_all", Effect::Writes));
        assert_eq!(other, Permission::Ask(Permissions::ASKED_BY_MODE));
        let confirmed = ToolSpec { confirm: true, ..writes.clone() };
        assert!(matches!(approval.permit(&confirmed), Permission::Ask(_)));
        let asked = Permissions { ask: list(&["fs_*"]), ..approval.clone() };
        assert!(matches!(asked.permit(&writes), Permission::Ask(_)));
        let denied = Permissions { deny: list(&["fs_*"]), ..approval.clone() };
        assert!(matches!(denied.permit(&writes), Permission::Deny(_)));
        let readonly = Permissions { mode: Mode::Readonly, ..approval.clone() };
        assert!(matches!(readonly.permit(&writes), Permission::Deny(_)));
        let child = approval.narrow(&approval);
        assert!(matches!(child.permit(&writes), Permission::Ask(_)), "a child asks for itself");
    }

    #[test]
    fn every_reason_has_a_chinese_text() {
        let tool = ToolSpec { confirm: true, ..spec("fs_write", Effect::Writes) };
        let (named, nobody) = (list(&["*"]), Permissions::default());
        let of = |permissions: Permissions, tool: &ToolSpec| match permissions.permit(tool) {
            Permission::Allow => panic!("{permissions:?} gives no reason"),
            Permission::Ask(reason) | Permission::Deny(reason) => reason,
        };
        let writes = spec("fs_write", Effect::Writes);
        let reasons = [
            of(Permissions { ask: named.clone(), ..nobody.clone() }, &writes),
            of(Permissions { deny: named, ..nobody.clone() }, &writes),
            of(nobody.clone(), &tool),
            of(Permissions { mode: Mode::Approval, ..nobody.clone() }, &writes),
            of(Permissions { mode: Mode::Readonly, ..nobody }, &writes),
        ];
        for reason in reasons {
            let told = crate::fault::text::reason(reason, crate::Lang::Zh);
            assert!(told.contains("该工具"), "{reason}: {told}");
            assert_eq!(crate::fault::text::reason(reason, crate::Lang::En), reason);
        }
    }

    #[test]
    fn a_child_never_gets_more_than_its_parent() {
        // Goal: whatever the child asks for, a tool it may call freely its parent may call freely.
        let names = ["fs_read", "fs_write", "bash_run"];
        let lists = [list(&[]), list(&["fs_*"]), list(&["bash_run"]), list(&["*"])];
        let modes = [Mode::Auto, Mode::Approval, Mode::Readonly];
        let mut all = Vec::new();
        for mode in modes {
            for allow in &lists {
                for deny in &lists {
                    all.push(Permissions {
                        mode,
                        allow: allow.clone(),
                        ask: Vec::new(),
                        deny: deny.clone(),
                        remembered: list(&["fs_write"]),
                    });
                }
            }
        }
        for parent in &all {
            for wanted in &all {
                let child = parent.narrow(wanted);
                for name in names {
                    for effect in [Effect::Reads, Effect::Writes, Effect::Executes] {
                        let tool = spec(name, effect);
                        let rank = |permit| match permit {
                            Permission::Allow => 2,
                            Permission::Ask(_) => 1,
                            Permission::Deny(_) => 0,
                        };
                        assert!(
                            rank(child.permit(&tool)) <= rank(parent.permit(&tool)),
                            "{parent:?} + {wanted:?} → {child:?} for {name} {effect:?}"
                        );
                    }
                }
            }
        }
    }
}

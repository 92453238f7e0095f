//! The tool contract: what a tool says about itself, what a call is, and how a call ends.

use std::{sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{fault::Fault, limits::millis};

/// What a tool says about itself. The schema is the one the model is given *and* the one enforced.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolSpec {
    /// `[A-Za-z0-9_-]{1,64}`, unique in its toolbox.
    pub name: Arc<str>,
    /// What the model reads about it.
    pub description: Arc<str>,
    /// JSON Schema of the arguments; an object schema.
    pub schema: Arc<Value>,
    /// What a call does to the world.
    pub effect: Effect,
    /// May a call be repeated without harm? Only such calls are retried or re-run by themselves.
    pub idempotent: bool,
    /// Must a person confirm each call, whatever the mode?
    pub confirm: bool,
    /// May slips in the arguments be repaired without asking?
    pub repair: bool,
    /// Its own deadline.
    pub deadline: Option<Duration>,
    /// Its own cap on what the model sees.
    pub output_bytes: Option<usize>,
    /// Where it comes from.
    pub source: ToolOrigin,
}

/// What a call does to the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// Nothing.
    Reads,
    /// It changes something.
    Writes,
    /// It runs something.
    Executes,
}

/// Where a tool comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolOrigin {
    /// Ours.
    Builtin,
    /// Registered by the program.
    Registered,
    /// An MCP server.
    Mcp {
        /// Its name.
        server: String,
    },
    /// A remote computer.
    Computer {
        /// Its name.
        computer: String,
    },
}

/// A slip in the arguments that was repaired without loss, and is told to the model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Repair {
    /// JSON pointer to the place.
    pub pointer: String,
    /// What was done.
    pub kind: RepairKind,
}

/// The repairs there are. Each is lossless.
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
    /// An absent value got its default. Not a slip, but said all the same.
    DefaultFilled,
    /// `"5"` became `5`.
    TextToNumber,
    /// `"true"` became `true`.
    TextToBool,
    /// JSON text became the value it spells.
    TextToJson,
    /// One value became a list of one.
    OneToList,
    /// `null` for something optional became absent.
    NullToAbsent,
    /// `"RED"` became `"red"`, the only allowed value that differs in case alone.
    EnumCase,
    /// Malformed JSON was read as what it clearly meant.
    MalformedJson,
}

/// How a call ended. Exactly one per call, for ever.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It worked.
    Done(Output),
    /// It did not.
    Failed(Failure),
}

/// A failed call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Failure {
    /// What went wrong.
    pub fault: Fault,
    /// What the tool had to say besides, verbatim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Value>,
    /// A remark for the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// What a call gave.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Output {
    /// The answer.
    pub data: Value,
    /// A remark for the model: what was repaired, what was cut.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Set when the model sees only head and tail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cut: Option<Truncation>,
}

/// An output that was too long to show whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Truncation {
    /// Its full size.
    pub total_bytes: u64,
    /// Where the full text is kept, by content hash; none if even that was too large.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<String>,
}

impl From<Fault> for Outcome {
    fn from(fault: Fault) -> Self {
        Self::Failed(Failure { fault, data: None, note: None })
    }
}

impl Outcome {
    /// The fault of a failed call.
    #[must_use]
    pub fn fault(&self) -> Option<&Fault> {
        match self {
            Self::Done(_) => None,
            Self::Failed(failure) => Some(&failure.fault),
        }
    }

    /// Did it work?
    #[must_use]
    pub fn is_done(&self) -> bool {
        matches!(self, Self::Done(_))
    }

    /// The JSON object the model reads, and whether it is an error.
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

/// How freely tools run.
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
    /// Everything runs.
    Auto,
    /// What only reads runs; what writes or executes is asked about.
    #[default]
    Approval,
    /// What only reads runs; the rest is denied.
    Readonly,
}

/// Who may call what.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Permissions {
    /// What happens to a tool that no list names.
    pub mode: Mode,
    /// Tools that run without a question.
    pub allow: Vec<String>,
    /// Tools that are always asked about.
    pub ask: Vec<String>,
    /// Tools that never run.
    pub deny: Vec<String>,
}

/// May a call run?
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Permission {
    /// Yes.
    Allow,
    /// If a person says so; why it is asked.
    Ask(&'static str),
    /// No; why.
    Deny(&'static str),
}

impl Permissions {
    /// Deny wins over ask, ask over allow, any list over the mode. A list entry may end in `*`.
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
            (Mode::Approval, Effect::Writes | Effect::Executes) => {
                Permission::Ask("the tool writes or executes, and the mode is `approval`")
            }
            (Mode::Readonly, Effect::Writes | Effect::Executes) => {
                Permission::Deny("the tool writes or executes, and the mode is `readonly`")
            }
        }
    }

    /// What a child of a session with these permissions gets when it asks for `wanted`: never more.
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
            // Only what the parent lets run freely may run freely in the child.
            allow: wanted
                .allow
                .iter()
                .filter(|name| self.allow.iter().any(|pattern| matches(pattern, name)))
                .cloned()
                .collect(),
            ask: both(&self.ask, &wanted.ask),
            deny: both(&self.deny, &wanted.deny),
        }
    }
}

/// Does a pattern name this tool? It is a name, or a beginning and a `*`.
#[must_use]
pub fn matches(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => name == pattern,
    }
}

/// A to-do entry of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Todo {
    /// Unique in the list.
    pub id: String,
    /// What is to be done.
    pub title: String,
    /// How far it is.
    pub status: TodoStatus,
    /// Who does it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assignee: Option<String>,
    /// Anything else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notes: Option<String>,
}

/// How far a to-do entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TodoStatus {
    /// Not begun.
    Pending,
    /// Being done; at most one is.
    InProgress,
    /// Done.
    Completed,
}

/// A wait that is written as milliseconds in records.
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
        };
        let permit = |name| permissions.permit(&spec(name, Effect::Writes));
        assert_eq!(permit("fs_edit"), Permission::Allow);
        assert!(matches!(permit("fs_write"), Permission::Ask(_)));
        assert!(matches!(permit("fs_write_all"), Permission::Deny(_)));
    }

    #[test]
    fn every_reason_is_also_told_in_chinese() {
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

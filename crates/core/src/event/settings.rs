//! The settings of a session and its origin.

use std::{collections::BTreeMap, sync::Arc};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Seq, SessionId, Stage, TaskId};
use crate::{lang::Lang, message::CallId, remote::ToolOffer, tool::Permissions};

/// The settings of a session. A change replaces all of them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Settings {
    /// The language of texts for people.
    pub language: Lang,
    /// The model, as the engine's configuration names it.
    pub model: String,
    /// The models to ask, in this order, while the first one cannot be asked.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fallbacks: Vec<String>,
    /// Standing instructions for the model, sent with every request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system: Option<Arc<str>>,
    /// The directory that tools work in, as a path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
    /// Rules for which calls run, which need a decision and which are denied.
    pub permissions: Permissions,
    /// A short name for session lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Labels for filtering sessions; `engine` names the engine.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// The most model requests in one turn; the system's limit if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_steps: Option<u32>,
    /// The most tokens one turn may use, below the cap of the configuration; no more than that cap if absent or 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_turn_tokens: Option<u64>,
    /// The most tokens of one answer; the engine's default if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_answer_tokens: Option<u32>,
    /// How much the model thinks before it answers; no thinking if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thinking: Option<Thinking>,
    /// How long a turn waits for its model service, in milliseconds; 0 for not at all. The system's patience for
    /// sessions with or without an observer if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub patience_ms: Option<u64>,
    /// Tools on offer, by name or `prefix*`; all tools if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    /// Tools that workers offer to this session alone, one entry for each worker.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub offers: Vec<ToolOffer>,
    /// The JSON Schema of the final answer of each turn; any text if absent. The answer is then JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answer_schema: Option<Arc<Value>>,
    /// Settings that only one gateway or engine understands, verbatim.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub extra: BTreeMap<String, Value>,
}

/// How much a model thinks before it answers.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    Serialize,
    Deserialize,
    strum::EnumString,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Thinking {
    /// The smallest thinking budget.
    Low,
    /// Enough for most tasks.
    Medium,
    /// The largest thinking budget.
    High,
}

impl Thinking {
    /// The thinking budget in tokens, for models that take a number.
    #[must_use]
    pub fn tokens(self) -> u32 {
        match self {
            Self::Low => 2_048,
            Self::Medium => 8_192,
            Self::High => 24_576,
        }
    }
}

impl Settings {
    /// The label that names the session's engine. Sessions without it belong to the native engine.
    pub const ENGINE: &'static str = "engine";

    /// The label that names the tenant of the session.
    pub const TENANT: &'static str = "serve.tenant";
    /// The label of a child session with the session and turn whose caps on spending it shares: `SESSION/TURN`.
    pub const SPENDING_ROOT: &'static str = "budao.spending_root";
    /// The label with the place whose files the session needs; absent if any server may run it.
    pub const PLACE: &'static str = "budao.place";

    /// The label that names the owner of the session, as `tenant/user`.
    pub const OWNER: &'static str = "serve.owner";

    /// The name of the native engine, whose sessions carry no label.
    pub const NATIVE: &'static str = "native";

    /// The models of the session in the order in which they are asked; the first is `model`.
    pub fn models(&self) -> impl Iterator<Item = &str> {
        let others = self.fallbacks.iter().filter(|other| **other != self.model);
        std::iter::once(&self.model).chain(others).map(String::as_str)
    }

    /// Sets the list of models. An empty list changes nothing.
    #[must_use]
    pub fn with_models(mut self, models: Vec<String>) -> Self {
        let mut models = models.into_iter();
        if let Some(first) = models.next() {
            (self.model, self.fallbacks) = (first, models.collect());
        }
        self
    }

    /// Makes a change of `before` a change of `current`: a field that is as in `before` becomes that of `current`. The
    /// models are one list.
    pub fn rebase(&mut self, before: &Self, current: &Self) {
        macro_rules! keep {
            ($($field:ident)*) => {
                let Self { $($field),* } = self; // Names every field.
                $(if *$field == before.$field { $field.clone_from(&current.$field); })*
            };
        }
        let new_models = (self.models().ne(before.models()))
            .then(|| (self.model.clone(), self.fallbacks.clone()));
        keep!(language model fallbacks system workspace permissions title labels max_steps max_turn_tokens
            max_answer_tokens thinking patience_ms tools offers answer_schema extra);
        if let Some(models) = new_models {
            (self.model, self.fallbacks) = models;
        }
    }

    /// The name of the engine that runs the session.
    #[must_use]
    pub fn engine(&self) -> &str {
        engine_of(&self.labels)
    }

    /// The place whose files the session needs; `None` if any server may run it.
    #[must_use]
    pub fn place(&self) -> Option<&str> {
        self.labels.get(Self::PLACE).map(String::as_str)
    }

    /// The tenant of the session; empty if no label names one.
    #[must_use]
    pub fn tenant(&self) -> &str {
        self.labels.get(Self::TENANT).map_or("", String::as_str)
    }

    /// The owner of the session, as `tenant/user`; empty if no label names one.
    #[must_use]
    pub fn owner(&self) -> &str {
        self.labels.get(Self::OWNER).map_or("", String::as_str)
    }

    /// Whether an engine other than the native one runs the session.
    #[must_use]
    pub fn is_foreign(&self) -> bool {
        self.labels.contains_key(Self::ENGINE)
    }

    /// The most tokens of one answer of the native engine.
    #[must_use]
    pub fn answer_tokens(&self) -> u32 {
        const DEFAULT: u32 = 8_192;
        self.max_answer_tokens.unwrap_or(DEFAULT)
    }
}

/// The name of the engine that runs a session with these labels.
#[must_use]
pub fn engine_of(labels: &BTreeMap<String, String>) -> &str {
    labels.get(Settings::ENGINE).map_or(Settings::NATIVE, String::as_str)
}

/// The origin of a session that no person opened directly.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// A call of a parent session opened it.
    Call {
        /// The session that made the call.
        parent: SessionId,
        /// The call that runs this session.
        call: CallId,
        /// Distance from the session a person opened: 1, 2 …
        depth: u32,
    },
    /// A stage of a parent's pipeline opened it.
    Stage {
        /// The session that runs the pipeline.
        parent: SessionId,
        /// The stage this session works on.
        stage: Stage,
        /// The task to solve; absent outside the solving stage.
        task: Option<TaskId>,
        /// Distance from the session a person opened: 1, 2 …
        depth: u32,
    },
    /// A copy of another session up to a position.
    Fork {
        /// The session that was copied.
        parent: SessionId,
        /// The last position copied.
        at: Seq,
        /// The number of copied records in this session, the opening included. What happened in them counts for the
        /// parent.
        #[serde(default)]
        copied: Seq,
    },
}

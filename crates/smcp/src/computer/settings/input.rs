//! What a server must be given before it can start, and the variables that answer it.

use std::collections::BTreeSet;

use budao_core::fault::{Fact, Fault};
use serde::Deserialize;
use serde_json::Value;

use super::{McpServer, because, wrong};

/// Something a server must be given.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Input {
    /// What `${input:…}` names.
    pub id: String,
    /// What people are asked.
    #[serde(default)]
    pub description: String,
    /// How it is found out.
    #[serde(flatten)]
    pub sort: InputKind,
}

/// How an input is found out.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase")]
pub enum InputKind {
    /// Somebody writes it.
    PromptString {
        /// If nobody does.
        #[serde(default)]
        default: Option<String>,
        /// Is it a secret?
        #[serde(default)]
        password: bool,
    },
    /// Somebody chooses it.
    PickString {
        /// From these.
        options: Vec<PickOption>,
        /// If nobody does.
        #[serde(default)]
        default: Option<String>,
    },
    /// A program says it.
    Command {
        /// The program.
        command: String,
        /// Its arguments.
        #[serde(default)]
        args: Value,
    },
}

/// One of several values.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct PickOption {
    /// What is shown.
    pub label: String,
    /// What is meant.
    pub value: String,
}

pub(super) fn read_input(key: &str, raw: &Value) -> Result<Input, Fault> {
    let input: Input = serde_json::from_value(raw.clone())
        .map_err(|error| because(wrong(key, "an input"), &error))?;
    if let InputKind::PickString { options, default } = &input.sort {
        let is_whole = |choice: &PickOption| !choice.label.is_empty() && !choice.value.is_empty();
        if !options.iter().all(is_whole) {
            return Err(wrong(&format!("{key}.options"), "labels and values that are not empty"));
        }
        let fits = |default: &String| options.iter().any(|choice| choice.value == *default);
        if !default.iter().all(fits) {
            return Err(wrong(&format!("{key}.default"), "one of the values"));
        }
    }
    Ok(input)
}

/// Two values must not be answered by one variable: neither two inputs, nor an input and another one as a certain
/// server gets it.
pub(super) fn check_variables(inputs: &[Input], servers: &[McpServer]) -> Result<(), Fault> {
    let mut taken = BTreeSet::new();
    let mut take = |id: &str, server: Option<&str>| {
        if taken.insert(variable(id, server)) {
            return Ok(());
        }
        let expected = "ids that differ in letters and digits, also where a server's id follows";
        Err(wrong("inputs", expected).with(Fact::Received, id.to_owned()))
    };
    for input in inputs {
        take(&input.id, None)?;
    }
    for server in servers {
        for id in named(&server.described.open()) {
            take(&id, Some(&server.bundle_id))?;
        }
    }
    Ok(())
}

/// The ids that are named anywhere in a value, each once.
pub(in super::super) fn named(value: &Value) -> BTreeSet<String> {
    match value {
        Value::String(text) => {
            let parts = text.split("${input:").skip(1);
            parts.filter_map(|part| part.split_once('}').map(|(id, _)| id.to_owned())).collect()
        }
        Value::Array(items) => items.iter().flat_map(named).collect(),
        Value::Object(map) => map.values().flat_map(named).collect(),
        _ => BTreeSet::new(),
    }
}

/// The variable that answers an input, for one server or for all.
#[must_use]
pub fn variable(id: &str, bundle_id: Option<&str>) -> String {
    let segment = |text: &str| -> String {
        let plain = |letter: char| {
            if letter.is_ascii_alphanumeric() || letter == '_' { letter } else { '_' }
        };
        text.chars().map(plain).collect()
    };
    let server = bundle_id.map(|id| format!("_{}", segment(id))).unwrap_or_default();
    format!("A2C_SMCP_{}{server}", segment(id))
}

impl InputKind {
    /// Is what comes of it nobody else's business?
    pub(in super::super) fn is_secret(&self) -> bool {
        match self {
            Self::PromptString { password, .. } => *password,
            Self::PickString { .. } => false,
            Self::Command { .. } => true,
        }
    }
}

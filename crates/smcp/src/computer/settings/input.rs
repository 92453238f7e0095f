//! The inputs that servers need before they can start, and the environment variables that provide them.

use std::collections::BTreeSet;

use budao_core::fault::{Fact, Fault};
use serde::Deserialize;
use serde_json::Value;

use super::{McpServer, because, wrong};

/// A value that a server needs, referred to as `${input:id}`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Input {
    /// The id in `${input:id}`.
    pub id: String,
    /// The prompt that a person sees.
    #[serde(default)]
    pub description: String,
    /// The source of the value.
    #[serde(flatten)]
    pub sort: InputKind,
}

/// The source of an input's value.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase")]
pub enum InputKind {
    /// A person enters a text.
    PromptString {
        /// The value if no text is entered.
        #[serde(default)]
        default: Option<String>,
        /// Whether the value is a secret, which is scrubbed from output.
        #[serde(default)]
        password: bool,
    },
    /// A person chooses one of several values.
    PickString {
        /// The values to choose from.
        options: Vec<PickOption>,
        /// The value if none is chosen.
        #[serde(default)]
        default: Option<String>,
    },
    /// A program prints the value. The value counts as a secret.
    Command {
        /// The program to run.
        command: String,
        /// The program's arguments, as written in the settings.
        #[serde(default)]
        args: Value,
    },
}

/// One of the values of a [`InputKind::PickString`].
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct PickOption {
    /// The text that a person sees.
    pub label: String,
    /// The value that the server gets.
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

/// Checks that no environment variable stands for two values: of two inputs, or of one input for all servers and
/// another for one server.
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

/// The ids of all `${input:id}` in a value.
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

/// The name of the environment variable for an input, for one server or for all: `A2C_SMCP_<id>[_<server>]`.
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
    /// Whether the value is a secret: a password, or the output of a program.
    pub(in super::super) fn is_secret(&self) -> bool {
        match self {
            Self::PromptString { password, .. } => *password,
            Self::PickString { .. } => false,
            Self::Command { .. } => true,
        }
    }
}

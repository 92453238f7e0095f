//! Reconciling by configuration: what became of a call of a server's tool is asked of a read-only tool of the same server.
//!
//! A rule maps the arguments of the interrupted call to the question, and reads the answer. An answer that fits neither
//! test, fits both, or is about another call leaves the outcome unknown.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::contract::{CallContext, Reconciliation};

/// How to find out what became of an interrupted call of one tool.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReconcileRule {
    /// The tool to ask, by its server's own name for it. It must only read.
    pub ask: String,
    /// The arguments of the question.
    #[serde(default)]
    pub arguments: BTreeMap<String, RuleValue>,
    /// Values that an answer has at these places. With another value it is about another call. An answer that the call
    /// was done must have them all.
    #[serde(default)]
    pub about: BTreeMap<String, RuleValue>,
    /// The call was done if the answer passes this test.
    pub happened: AnswerTest,
    /// The call did nothing, and cannot take effect any more, if the answer passes this test.
    #[serde(default)]
    pub did_not_happen: Option<AnswerTest>,
    /// The place of the call's result in the answer; empty for the whole answer.
    #[serde(default)]
    pub result: String,
}

/// A value of a question or an answer.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RuleValue {
    /// The idempotency key of the interrupted call.
    Key,
    /// The argument of the interrupted call at this place.
    Argument(String),
    /// This value, the same for every call.
    Value(Value),
}

/// A test of one place of an answer.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AnswerTest {
    /// The place, as a JSON pointer; empty for the whole answer.
    #[serde(default)]
    pub at: String,
    /// The value that must be there. Without it, `empty` decides.
    #[serde(default)]
    pub is: Option<Value>,
    /// Whether nothing may be there: no value, null, false, or an empty text, list or object.
    #[serde(default)]
    pub empty: bool,
}

impl ReconcileRule {
    /// The first setting that cannot work, with what is expected in its place.
    #[must_use]
    pub fn problem(&self) -> Option<(String, &'static str)> {
        let pointers = "a JSON pointer, as in `/payment/id`, or nothing";
        let is_pointer = |text: &str| text.is_empty() || text.starts_with('/');
        let values = self.arguments.iter().map(|(name, value)| ("arguments", name, value));
        let values = values.chain(self.about.iter().map(|(name, value)| ("about", name, value)));
        for (part, name, value) in values {
            let is_about = part == "about" && !is_pointer(name);
            if is_about || matches!(value, RuleValue::Argument(place) if !is_pointer(place)) {
                return Some((format!("{part}.{name}"), pointers));
            }
        }
        let tests =
            [("happened", Some(&self.happened)), ("did_not_happen", self.did_not_happen.as_ref())];
        for (name, test) in tests {
            match test {
                Some(test) if !is_pointer(&test.at) => {
                    return Some((format!("{name}.at"), pointers));
                }
                Some(AnswerTest { is: Some(_), empty: true, .. }) => {
                    return Some((name.to_owned(), "either `is` or `empty`"));
                }
                _ => {}
            }
        }
        match (self.ask.trim().is_empty(), is_pointer(&self.result)) {
            (true, _) => Some(("ask".to_owned(), "the name of a tool that only reads")),
            (_, false) => Some(("result".to_owned(), pointers)),
            _ => None,
        }
    }

    /// The arguments of the question; `None` if the call lacks one that the question needs.
    #[must_use]
    pub fn question(&self, arguments: &Value, context: &CallContext) -> Option<Map<String, Value>> {
        let pairs = self.arguments.iter();
        pairs.map(|(name, value)| Some((name.clone(), value.of(arguments, context)?))).collect()
    }

    /// Reads the answer to the question. Text that is JSON is read as JSON.
    #[must_use]
    pub fn read(&self, answer: Value, arguments: &Value, context: &CallContext) -> Reconciliation {
        let answer = match answer {
            Value::String(text) => serde_json::from_str(&text).unwrap_or(Value::String(text)),
            other => other,
        };
        // What the answer says of the call; `None` where it says nothing.
        let about = self.about.iter().map(|(place, value)| {
            answer.pointer(place).map(|found| Some(found) == value.of(arguments, context).as_ref())
        });
        let about: Vec<Option<bool>> = about.collect();
        if about.contains(&Some(false)) {
            return Reconciliation::CannotTell;
        }
        let is_undone = self.did_not_happen.as_ref().is_some_and(|test| test.holds(&answer));
        match (self.happened.holds(&answer), is_undone) {
            // An answer that there is nothing need not repeat the question.
            (false, true) => Reconciliation::DidNotHappen,
            (true, false) if !about.contains(&None) => {
                let result = answer.pointer(&self.result).cloned().unwrap_or_default();
                Reconciliation::Happened(result)
            }
            _ => Reconciliation::CannotTell,
        }
    }
}

impl RuleValue {
    fn of(&self, arguments: &Value, context: &CallContext) -> Option<Value> {
        match self {
            Self::Key => Some(context.idempotency_key.as_ref().into()),
            Self::Argument(place) => arguments.pointer(place).cloned(),
            Self::Value(value) => Some(value.clone()),
        }
    }
}

impl AnswerTest {
    fn holds(&self, answer: &Value) -> bool {
        let found = answer.pointer(&self.at);
        let is_empty = match found {
            None | Some(Value::Null | Value::Bool(false)) => true,
            Some(Value::String(text)) => text.is_empty(),
            Some(Value::Array(items)) => items.is_empty(),
            Some(Value::Object(map)) => map.is_empty(),
            Some(Value::Bool(true) | Value::Number(_)) => false,
        };
        match &self.is {
            Some(expected) => found == Some(expected),
            None => is_empty == self.empty,
        }
    }
}

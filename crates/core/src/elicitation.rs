//! Questions that a tool server asks a person while a call runs: a form with flat fields, or an address to open.
//!
//! The schema of a form comes from a foreign program. [`Elicitation::form`] accepts a bounded, flat object of primitive
//! values and refuses everything else, and fields that ask for a secret.

mod answer;
mod schema;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The longest message of a question, in characters.
pub const MESSAGE_CHARS_MAX: usize = 2_000;

/// The longest address of a question, in characters.
pub const URL_CHARS_MAX: usize = 2_000;

/// A question to a person, as all gateways show it. It is recorded as the arguments of its `QuestionAsked`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Elicitation {
    /// The server that asks.
    pub server: String,
    /// The server's own words. They are shown as a quotation.
    pub message: String,
    /// The address to open; absent for a form.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// The host of the address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The fields of a form, in the server's order; empty for an address.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<FormField>,
}

/// A field of a form.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FormField {
    /// The name in the answer.
    pub name: String,
    /// The label for people; the name if the server gave none.
    pub title: String,
    /// An explanation for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Whether an answer must have a value.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub required: bool,
    /// The value of an answer that has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<Value>,
    /// The values that are accepted.
    #[serde(flatten)]
    pub kind: FieldKind,
}

/// The values that a field accepts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum FieldKind {
    /// A text, with bounds on its length and an optional form.
    Text {
        /// The smallest number of characters.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        min_length: Option<u64>,
        /// The largest number of characters.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        max_length: Option<u64>,
        /// The form of the text.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        format: Option<TextFormat>,
    },
    /// A number, with bounds on its value.
    Number {
        /// Whether fractions are refused.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        integer: bool,
        /// The smallest value.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        minimum: Option<f64>,
        /// The largest value.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        maximum: Option<f64>,
    },
    /// Yes or no.
    Boolean,
    /// One of several values.
    Choice {
        /// The values, in the server's order.
        options: Vec<FieldOption>,
    },
    /// Several of several values.
    Choices {
        /// The values, in the server's order.
        options: Vec<FieldOption>,
        /// The smallest number of chosen values.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        min_items: Option<u64>,
        /// The largest number of chosen values.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        max_items: Option<u64>,
    },
}

/// The forms of text that a server may ask for.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Serialize,
    Deserialize,
    strum::IntoStaticStr,
    strum::EnumString,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum TextFormat {
    /// An e-mail address.
    Email,
    /// An absolute address with a scheme.
    Uri,
    /// A day: `2026-07-28`.
    Date,
    /// A time with its offset, as in RFC 3339.
    DateTime,
}

/// One value of a choice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FieldOption {
    /// The value in the answer.
    pub value: String,
    /// The label for people.
    pub title: String,
}

/// How a question ended. The server learns exactly this.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ElicitationAnswer {
    /// The person answered with this content; null for an address.
    Accepted(Value),
    /// The person declined, or nobody could be asked.
    Declined,
    /// The question expired.
    Expired,
}

impl Elicitation {
    /// A question for the values of a form.
    ///
    /// # Errors
    /// The schema is too large, is not a flat object of primitive values, or asks for a secret. The text says which.
    pub fn form(server: &str, message: &str, schema: &Value) -> Result<Self, String> {
        let fields = schema::fields(schema)?;
        let (server, message) = (server.to_owned(), shorten(message, MESSAGE_CHARS_MAX));
        Ok(Self { server, message, url: None, host: None, fields })
    }

    /// A question whether to open an address. The caller has checked that `host` is the host of `url`.
    ///
    /// # Errors
    /// The address is too long.
    pub fn address(server: &str, message: &str, url: &str, host: &str) -> Result<Self, String> {
        if url.chars().count() > URL_CHARS_MAX {
            return Err("the address is too long".to_owned());
        }
        Ok(Self {
            server: server.to_owned(),
            message: shorten(message, MESSAGE_CHARS_MAX),
            url: Some(url.to_owned()),
            host: Some(host.to_owned()),
            fields: Vec::new(),
        })
    }

    /// The question in the form in which it is recorded.
    #[must_use]
    pub fn to_arguments(&self) -> Value {
        serde_json::to_value(self).unwrap_or_default()
    }

    /// Reads a recorded question; `None` if it is about something else.
    #[must_use]
    pub fn of_arguments(arguments: &Value) -> Option<Self> {
        serde_json::from_value(arguments.clone()).ok()
    }
}

/// Cuts a text to a number of characters. Control characters, which could hide a part of it, become spaces.
fn shorten(text: &str, max: usize) -> String {
    let plain = |c: char| if c.is_control() && c != '\n' { ' ' } else { c };
    let mut kept: String = text.trim().chars().take(max).map(plain).collect();
    if text.trim().chars().nth(max).is_some() {
        kept.push('…');
    }
    kept
}

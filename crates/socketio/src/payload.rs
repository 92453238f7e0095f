//! The arguments of an event or an answer: JSON values, and the binary attachments they refer to.

use bytes::Bytes;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

/// A list of arguments. Binary data is kept outside the JSON; a placeholder object marks its place.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Payload {
    args: Vec<Value>,
    attachments: Vec<Bytes>,
}

impl Payload {
    /// A payload without arguments.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// A payload with one argument.
    #[must_use]
    pub fn of(arg: impl Into<Value>) -> Self {
        Self { args: vec![arg.into()], attachments: Vec::new() }
    }

    /// A payload with several arguments, in order.
    #[must_use]
    pub fn all(args: impl IntoIterator<Item = Value>) -> Self {
        Self { args: args.into_iter().collect(), attachments: Vec::new() }
    }

    /// A payload with one argument, serialized from `value`.
    ///
    /// # Errors
    /// If `value` cannot be represented as JSON.
    pub fn from_value<T: Serialize + ?Sized>(value: &T) -> Result<Self, serde_json::Error> {
        serde_json::to_value(value).map(Self::of)
    }

    /// Appends an argument.
    #[must_use]
    pub fn and(mut self, arg: impl Into<Value>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// Appends an argument that consists of binary data.
    #[must_use]
    pub fn and_bytes(mut self, bytes: impl Into<Bytes>) -> Self {
        let placeholder = self.attach(bytes);
        self.args.push(placeholder);
        self
    }

    /// Stores binary data and returns its placeholder, which may be put anywhere into an argument.
    pub fn attach(&mut self, bytes: impl Into<Bytes>) -> Value {
        self.attachments.push(bytes.into());
        json!({ "_placeholder": true, "num": self.attachments.len() - 1 })
    }

    /// The arguments in order, with placeholders for binary data.
    #[must_use]
    pub fn args(&self) -> &[Value] {
        &self.args
    }

    /// The first argument; null if there is none.
    #[must_use]
    pub fn first(&self) -> &Value {
        self.args.first().unwrap_or(&Value::Null)
    }

    /// Takes the first argument; null if there is none. The attachments are dropped.
    #[must_use]
    pub fn into_first(mut self) -> Value {
        if self.args.is_empty() { Value::Null } else { self.args.swap_remove(0) }
    }

    /// The binary data behind a placeholder; `None` if `value` is not a placeholder of this payload.
    #[must_use]
    pub fn bytes(&self, value: &Value) -> Option<&Bytes> {
        let is_placeholder = value.get("_placeholder").and_then(Value::as_bool) == Some(true);
        let index = usize::try_from(value.get("num")?.as_u64()?).ok()?;
        self.attachments.get(index).filter(|_| is_placeholder)
    }

    /// All attachments, in the order of their placeholder numbers.
    #[must_use]
    pub fn attachments(&self) -> &[Bytes] {
        &self.attachments
    }

    /// Deserializes the first argument; null if there is none.
    ///
    /// # Errors
    /// If the argument does not fit the type.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        T::deserialize(self.first())
    }

    pub(crate) fn from_parts(args: Vec<Value>, attachments: Vec<Bytes>) -> Self {
        Self { args, attachments }
    }

    pub(crate) fn into_parts(self) -> (Vec<Value>, Vec<Bytes>) {
        (self.args, self.attachments)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_placeholder_gets_its_bytes_and_an_unknown_one_does_not() {
        let mut payload = Payload::none().and_bytes(&b"one"[..]);
        let two = payload.attach(&b"two"[..]);
        let payload = payload.and(json!({ "deep": [two.clone()] }));
        assert_eq!(payload.bytes(payload.first()).unwrap(), "one");
        assert_eq!(payload.bytes(&two).unwrap(), "two");
        assert_eq!(payload.bytes(&json!({ "_placeholder": true, "num": 2 })), None);
        assert_eq!(payload.bytes(&json!({ "num": 0 })), None);
    }
}

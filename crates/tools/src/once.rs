//! The key of a call that is done once in a tenant.

use budao_core::fault::{Fact, FactValue, Fault, Kind, Operation};
use serde_json::Value;

use crate::{call::CheckedCall, digest};

impl CheckedCall {
    /// Whether calls with the same key are done once.
    #[must_use]
    pub fn is_once(&self) -> bool {
        self.entry.once.is_some()
    }

    /// The digest of the tool's name and of the argument that names the work; `None` for other tools. The argument
    /// itself, which may be long or secret, is not in it.
    ///
    /// # Errors
    /// `constraint_violated` if the argument is empty: it would make different work the same.
    pub fn once_key(&self) -> Option<Result<String, Fault>> {
        let argument = self.entry.once.as_deref()?;
        let value = self.arguments.get(argument).unwrap_or(&Value::Null);
        let is_empty = match value {
            Value::Null => true,
            Value::String(text) => text.trim().is_empty(),
            Value::Array(items) => items.is_empty(),
            Value::Object(map) => map.is_empty(),
            Value::Bool(_) | Value::Number(_) => false,
        };
        if is_empty {
            return Some(Err(Fault::new(Kind::ConstraintViolated, Operation::ToolCall)
                .with(Fact::ToolName, self.spec().name.to_string())
                .with(Fact::Field, argument.to_owned())
                .with(Fact::Constraint, format!("`{argument}` is not empty: it names the work"))
                .with(Fact::ProvidedValue, FactValue::Json(value.clone()))
                .not_started()));
        }
        Some(Ok(digest::of_call(&self.spec().name, value)))
    }
}

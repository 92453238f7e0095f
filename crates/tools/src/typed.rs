//! Typed tools: typed arguments in, a typed result out.
//!
//! The schema is derived from the argument type, so the model's description, the validation and the decoding always
//! agree.

mod inspect;

use std::{any::Any, fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
pub use budao_core::tool::Effect;
use budao_core::{
    fault::{Fact, Fault, Kind, Mismatch, Operation},
    nesting,
    tool::{Failure, ToolOrigin, ToolSpec},
};
use schemars::{JsonSchema, generate::SchemaSettings};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use self::inspect::Flaw;
use crate::{
    contract::{CallContext, Reconciliation, Tool, ToolResult},
    error::ToolError,
};

/// The effects and limits of a tool. The default is careful: the tool writes, may not be repeated, follows the
/// permission mode, and its arguments are not repaired.
#[derive(Clone, Debug)]
#[must_use]
pub struct ToolOptions {
    effect: Effect,
    idempotent: bool,
    confirm: bool,
    repair: Option<bool>,
    deadline: Option<Duration>,
    output_bytes: Option<usize>,
    source: ToolOrigin,
    quick: bool,
    once: Option<Arc<str>>,
}

impl Default for ToolOptions {
    fn default() -> Self {
        Self {
            effect: Effect::Writes,
            idempotent: false,
            confirm: false,
            repair: None,
            deadline: None,
            output_bytes: None,
            source: ToolOrigin::Registered,
            quick: false,
            once: None,
        }
    }
}

impl ToolOptions {
    /// Options for a tool that changes nothing: it runs without a question, may be repeated, and its arguments are
    /// repaired.
    pub fn read_only() -> Self {
        Self { effect: Effect::Reads, idempotent: true, ..Self::default() }
    }

    /// Sets the effect of a call on the outside world.
    pub fn effect(self, effect: Effect) -> Self {
        Self { effect, ..self }
    }

    /// Sets whether a call may be repeated without harm.
    pub fn idempotent(self, idempotent: bool) -> Self {
        Self { idempotent, ..self }
    }

    /// Sets whether a person must confirm every call.
    pub fn confirm(self, confirm: bool) -> Self {
        Self { confirm, ..self }
    }

    /// Sets whether slips in the arguments may be repaired. By default, only for tools that read.
    pub fn repair(self, repair: bool) -> Self {
        Self { repair: Some(repair), ..self }
    }

    /// Sets the tool's own deadline, instead of the general limit.
    pub fn deadline(self, deadline: Duration) -> Self {
        Self { deadline: Some(deadline), ..self }
    }

    /// Sets the maximum output shown to the model, in bytes of JSON, instead of the general limit.
    pub fn output_bytes(self, bytes: usize) -> Self {
        Self { output_bytes: Some(bytes), ..self }
    }

    /// Declares that the code never blocks and ends within microseconds; see [`Tool::quick`].
    pub fn quick(self, quick: bool) -> Self {
        Self { quick, ..self }
    }

    /// Names the argument whose value names the work: it is done once in a tenant; see [`Tool::once`].
    pub fn once(self, argument: &str) -> Self {
        Self { once: Some(argument.into()), ..self }
    }

    pub(crate) fn once_argument(&self) -> Option<Arc<str>> {
        self.once.clone()
    }

    /// Sets the tool's origin, for example an MCP server.
    pub fn source(self, source: ToolOrigin) -> Self {
        Self { source, ..self }
    }

    /// Creates the specification of a tool with these options.
    #[must_use]
    pub fn spec(self, name: &str, description: &str, mut schema: Value) -> ToolSpec {
        // Schemas deeper than this are refused at registration anyway.
        nesting::bound(&mut schema);
        ToolSpec {
            name: name.into(),
            description: description.into(),
            schema: Arc::new(schema),
            effect: self.effect,
            idempotent: self.idempotent,
            confirm: self.confirm,
            repair: self.repair.unwrap_or(self.effect == Effect::Reads),
            deadline: self.deadline,
            output_bytes: self.output_bytes,
            source: self.source,
        }
    }
}

/// A tool with typed arguments. The doc comment on `Args` is the tool's description for the model, and the doc
/// comments on its fields describe the arguments.
pub trait TypedTool: Send + Sync + fmt::Debug + 'static {
    /// The argument type; the schema is derived from it.
    type Args: DeserializeOwned + JsonSchema + Send;
    /// The result type, serialized to JSON for the model.
    type Output: Serialize + 'static;

    /// The name that the model calls, at most 64 bytes.
    const NAME: &'static str;

    /// The description for the model. `None` uses the doc comment on `Args`.
    fn description(&self) -> Option<String> {
        None
    }

    /// The tool's effects and limits; the default is careful.
    fn options(&self) -> ToolOptions {
        ToolOptions::default()
    }

    /// Runs one call with decoded arguments.
    fn call(
        &self,
        args: Self::Args,
        context: &CallContext,
    ) -> impl Future<Output = Result<Self::Output, ToolError>> + Send;

    /// Whether [`TypedTool::reconcile`] is implemented.
    fn can_reconcile(&self) -> bool {
        false
    }

    /// Finds out whether an interrupted call was done; see [`Tool::reconcile`].
    fn reconcile(
        &self,
        args: Self::Args,
        context: &CallContext,
    ) -> impl Future<Output = Result<Reconciliation, ToolError>> + Send {
        let _ = (args, context);
        async { Ok(Reconciliation::CannotTell) }
    }
}

#[async_trait]
impl<T: TypedTool> Tool for T {
    fn spec(&self) -> Arc<ToolSpec> {
        let mut schema = schema_of::<T::Args>();
        let doc = schema.as_object_mut().and_then(|map| map.remove("description"));
        let doc = doc.as_ref().and_then(Value::as_str).unwrap_or_default();
        let description = self.description().unwrap_or_else(|| doc.to_owned());
        Arc::new(self.options().spec(T::NAME, &description, schema))
    }

    fn quick(&self) -> bool {
        self.options().quick
    }

    fn once(&self) -> Option<Arc<str>> {
        self.options().once
    }

    async fn call(&self, arguments: Value, context: &CallContext) -> ToolResult {
        let args = decode::<T::Args>(arguments, T::NAME)?;
        let output = TypedTool::call(self, args, context).await;
        encode(output, T::NAME)
    }

    fn can_reconcile(&self) -> bool {
        TypedTool::can_reconcile(self)
    }

    async fn reconcile(
        &self,
        arguments: Value,
        context: &CallContext,
    ) -> Result<Reconciliation, Failure> {
        let args = decode::<T::Args>(arguments, T::NAME)?;
        let found = TypedTool::reconcile(self, args, context).await;
        found.map_err(|error| error.into_failure(T::NAME))
    }
}

/// The schema of a type, with all references inlined.
#[must_use]
pub fn schema_of<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().for_deserialize().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    if let Some(map) = schema.as_object_mut() {
        map.remove("title");
        // The type `()` stands for no arguments.
        if map.get("type") == Some(&json!("null")) {
            map.insert("type".into(), json!("object"));
        }
        map.entry("type").or_insert_with(|| json!("object"));
        if map.get("type") == Some(&json!("object")) && !map.contains_key("oneOf") {
            map.entry("properties").or_insert_with(|| json!({}));
        }
    }
    bound_integers(&mut schema);
    schema
}

/// Adds `minimum` and `maximum` for formats such as `uint32`, which validators ignore.
fn bound_integers(schema: &mut Value) {
    match schema {
        Value::Object(map) => {
            let bounds = match map.get("format").and_then(Value::as_str) {
                Some("int32") => Some((i64::from(i32::MIN), i64::from(i32::MAX))),
                Some("uint32") => Some((0, i64::from(u32::MAX))),
                _ => None,
            };
            if let Some((low, high)) = bounds
                && map.get("type").is_some_and(|kind| {
                    kind == "integer"
                        || kind.as_array().is_some_and(|all| all.contains(&json!("integer")))
                })
            {
                map.entry("minimum").or_insert_with(|| json!(low));
                map.entry("maximum").or_insert_with(|| json!(high));
            }
            map.values_mut().for_each(bound_integers);
        }
        Value::Array(items) => items.iter_mut().for_each(bound_integers),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Decodes arguments that passed the schema. If the type is stricter than its schema, the failure tells the model.
fn decode<T: DeserializeOwned>(arguments: Value, tool: &str) -> Result<T, Failure> {
    let error = match T::deserialize(&arguments) {
        Ok(args) => return Ok(args),
        Err(error) => error,
    };
    // `()` stands for no arguments and deserializes from null.
    if arguments.as_object().is_some_and(serde_json::Map::is_empty)
        && let Ok(args) = T::deserialize(Value::Null)
    {
        return Ok(args);
    }
    // A schema accepts 5.0 as an integer; a Rust integer type does not.
    let mut whole = arguments;
    if whole_numbers(&mut whole)
        && let Ok(args) = T::deserialize(&whole)
    {
        return Ok(args);
    }
    let pointer = match serde_path_to_error::deserialize::<_, T>(&whole) {
        Ok(args) => return Ok(args),
        Err(error) => pointer_of(error.path()),
    };
    let received = whole.pointer(&pointer).map(crate::explain::short);
    let fault = Fault::new(Kind::InvalidArguments, Operation::ToolCall)
        .with(Fact::ToolName, tool.to_owned())
        .mismatch(Mismatch {
            pointer,
            rule: "type".into(),
            expected: error.to_string().chars().take(300).collect(),
            received,
            ..Mismatch::default()
        });
    Err(Failure { fault, data: None, note: None })
}

fn pointer_of(path: &serde_path_to_error::Path) -> String {
    use serde_path_to_error::Segment;
    let mut pointer = String::new();
    for segment in path.iter() {
        match segment {
            Segment::Seq { index } => pointer.push_str(&format!("/{index}")),
            Segment::Map { key } => {
                pointer.push('/');
                pointer.push_str(&crate::explain::escaped(key));
            }
            Segment::Enum { .. } | Segment::Unknown => {}
        }
    }
    pointer
}

/// Converts floats without a fraction to integers. Returns true if there were any.
fn whole_numbers(value: &mut Value) -> bool {
    let mut any = false;
    match value {
        Value::Number(number) if number.is_f64() => {
            let small = number.as_f64().filter(|it| it.fract() == 0.0 && it.abs() < 9e15);
            #[expect(clippy::cast_possible_truncation, reason = "checked to be whole and small")]
            let whole = small.map(|it| it as i64);
            any = whole.is_some();
            if let Some(whole) = whole {
                *value = whole.into();
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| any |= whole_numbers(item)),
        Value::Object(map) => map.values_mut().for_each(|item| any |= whole_numbers(item)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
    any
}

/// Serializes a result to JSON. A result that cannot be serialized is a failure of the tool.
fn encode<T: Serialize + 'static>(output: Result<T, ToolError>, tool: &str) -> ToolResult {
    let mut output = output.map_err(|error| error.into_failure(tool))?;
    // A `Value` is JSON already; serializing it again would recurse.
    let any: &mut dyn Any = &mut output;
    if let Some(value) = any.downcast_mut::<Value>() {
        return Ok(value.take());
    }
    match inspect::inspect(&output) {
        Ok(()) => {}
        Err(Flaw::TooDeep) => {
            tracing::error!(tool, "tool result nested too deeply, leaking it");
            // Dropping the value would recurse as deeply as it is nested and could overflow the stack, so it is leaked.
            std::mem::forget(output);
            return Err(unwritable(tool));
        }
        Err(Flaw::NotFinite { number, pointer }) => return Err(not_finite(tool, number, &pointer)),
        // It occurs again in the serialization and is reported there.
        Err(Flaw::Other) => {}
    }
    serde_json::to_value(output).map_err(|error| {
        let Failure { fault, .. } = unwritable(tool);
        Failure { fault: fault.caused_by(&error), data: None, note: None }
    })
}

/// A result as JSON; if JSON cannot express it, the reason as a text.
pub(crate) fn encode_or_describe<T: Serialize>(result: &T) -> Value {
    match inspect::inspect(result) {
        Ok(()) | Err(Flaw::Other) => {
            serde_json::to_value(result).unwrap_or_else(|_| UNWRITABLE.into())
        }
        Err(Flaw::TooDeep) => UNWRITABLE.into(),
        Err(Flaw::NotFinite { number, pointer }) => describe_number(number, &pointer).into(),
    }
}

fn describe_number(number: f64, pointer: &str) -> String {
    let place = if pointer.is_empty() { "/" } else { pointer };
    format!("its result has {number} at {place}, which JSON cannot express")
}

/// The failure for a number that JSON cannot express. Serialized, it would become null and look like a result.
fn not_finite(tool: &str, number: f64, pointer: &str) -> Failure {
    let reason = describe_number(number, pointer);
    let fault = Fault::new(Kind::ToolFailed, Operation::ToolCall)
        .with(Fact::ToolName, tool.to_owned())
        .with(Fact::Reason, reason);
    Failure { fault, data: None, note: None }
}

const UNWRITABLE: &str = "its result cannot be written as JSON";

fn unwritable(tool: &str) -> Failure {
    let fault = Fault::new(Kind::ToolFailed, Operation::ToolCall)
        .with(Fact::ToolName, tool.to_owned())
        .with(Fact::Reason, UNWRITABLE);
    Failure { fault, data: None, note: None }
}

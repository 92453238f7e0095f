//! Tools as authors write them: typed arguments in, a typed answer out.
//!
//! The schema is made from the type, so what the model reads, what is enforced and what is decoded are
//! one thing.

use std::{any::Any, fmt, io, sync::Arc, time::Duration};

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

use crate::{
    contract::{CallContext, Tool, ToolResult},
    error::ToolError,
};

/// What a tool does besides answering. The default is careful: it writes, may not be repeated, is asked
/// about by mode, and its arguments are taken as they came.
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
        }
    }
}

impl ToolOptions {
    /// It changes nothing: it runs unasked, may be repeated, and slips in its arguments are repaired.
    pub fn read_only() -> Self {
        Self { effect: Effect::Reads, idempotent: true, ..Self::default() }
    }

    /// What a call does to the world.
    pub fn effect(self, effect: Effect) -> Self {
        Self { effect, ..self }
    }

    /// May a call be repeated without harm?
    pub fn idempotent(self, idempotent: bool) -> Self {
        Self { idempotent, ..self }
    }

    /// Must a person confirm every call?
    pub fn confirm(self, confirm: bool) -> Self {
        Self { confirm, ..self }
    }

    /// May slips in the arguments be repaired? Unless said, only for what reads.
    pub fn repair(self, repair: bool) -> Self {
        Self { repair: Some(repair), ..self }
    }

    /// Its own deadline.
    pub fn deadline(self, deadline: Duration) -> Self {
        Self { deadline: Some(deadline), ..self }
    }

    /// Its own cap on what the model sees.
    pub fn output_bytes(self, bytes: usize) -> Self {
        Self { output_bytes: Some(bytes), ..self }
    }

    /// Its code never blocks and is over in microseconds; see [`Tool::quick`].
    pub fn quick(self, quick: bool) -> Self {
        Self { quick, ..self }
    }

    /// Where it comes from.
    pub fn source(self, source: ToolOrigin) -> Self {
        Self { source, ..self }
    }

    /// The specification of a tool with these options.
    #[must_use]
    pub fn spec(self, name: &str, description: &str, mut schema: Value) -> ToolSpec {
        // What is cut here is deeper than registration accepts.
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

/// A tool with typed arguments. The doc comment on `Args` is what the model reads about it, the doc
/// comments on its fields what it reads about them.
pub trait TypedTool: Send + Sync + fmt::Debug + 'static {
    /// What it is called with.
    type Args: DeserializeOwned + JsonSchema + Send;
    /// What it answers.
    type Output: Serialize + 'static;

    /// Its name.
    const NAME: &'static str;

    /// What the model reads about it; the doc comment on `Args` if nothing is said here.
    fn description(&self) -> Option<String> {
        None
    }

    /// What it does besides answering.
    fn options(&self) -> ToolOptions {
        ToolOptions::default()
    }

    /// Runs one call.
    fn call(
        &self,
        args: Self::Args,
        context: &CallContext,
    ) -> impl Future<Output = Result<Self::Output, ToolError>> + Send;
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

    async fn call(&self, arguments: Value, context: &CallContext) -> ToolResult {
        let args = decode::<T::Args>(arguments, T::NAME)?;
        let output = TypedTool::call(self, args, context).await;
        encode(output, T::NAME)
    }
}

/// The schema of a type, without references.
#[must_use]
pub fn schema_of<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().for_deserialize().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    if let Some(map) = schema.as_object_mut() {
        map.remove("title");
        // `()` stands for no arguments.
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

/// `format: uint32` tells a reader the bounds and a validator nothing; here both are told.
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

/// Arguments as their type. They fit the schema; where the type is stricter still, the model is told.
fn decode<T: DeserializeOwned>(arguments: Value, tool: &str) -> Result<T, Failure> {
    let error = match T::deserialize(&arguments) {
        Ok(args) => return Ok(args),
        Err(error) => error,
    };
    // `()` stands for no arguments, and is read from nothing.
    if arguments.as_object().is_some_and(serde_json::Map::is_empty)
        && let Ok(args) = T::deserialize(Value::Null)
    {
        return Ok(args);
    }
    // To a schema 5.0 is an integer; to a Rust integer it is not.
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

/// Writes floats without a fraction as integers; says whether there were any.
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

/// An answer as JSON. One that cannot be written as JSON is the tool's failure.
fn encode<T: Serialize + 'static>(output: Result<T, ToolError>, tool: &str) -> ToolResult {
    let mut output = output.map_err(|error| error.into_failure(tool))?;
    // A value is JSON already; writing it anew would recurse.
    let any: &mut dyn Any = &mut output;
    if let Some(value) = any.downcast_mut::<Value>() {
        return Ok(value.take());
    }
    if too_deep(&output) {
        tracing::error!(tool, "the result of a tool is nested too deeply and is never freed");
        // Dropping it would recurse as deeply as it is nested, and end the process.
        std::mem::forget(output);
        return Err(unwritable(tool));
    }
    serde_json::to_value(output).map_err(|error| {
        let Failure { fault, .. } = unwritable(tool);
        Failure { fault: fault.caused_by(&error), data: None, note: None }
    })
}

fn unwritable(tool: &str) -> Failure {
    let fault = Fault::new(Kind::ToolFailed, Operation::ToolCall)
        .with(Fact::ToolName, tool.to_owned())
        .with(Fact::Reason, "its result cannot be written as JSON");
    Failure { fault, data: None, note: None }
}

/// Is a type's JSON nested in more levels than recursive code may meet? Writes it nowhere and stops there.
fn too_deep<T: Serialize>(output: &T) -> bool {
    struct Levels {
        left: usize,
        is_over: bool,
    }
    impl Levels {
        fn enter(&mut self) -> io::Result<()> {
            match self.left.checked_sub(1) {
                Some(left) => self.left = left,
                None => self.is_over = true,
            }
            if self.is_over { Err(io::ErrorKind::InvalidData.into()) } else { Ok(()) }
        }
    }
    impl serde_json::ser::Formatter for &mut Levels {
        fn begin_array<W: ?Sized + io::Write>(&mut self, _: &mut W) -> io::Result<()> {
            self.enter()
        }

        fn end_array<W: ?Sized + io::Write>(&mut self, _: &mut W) -> io::Result<()> {
            self.left += 1;
            Ok(())
        }

        fn begin_object<W: ?Sized + io::Write>(&mut self, _: &mut W) -> io::Result<()> {
            self.enter()
        }

        fn end_object<W: ?Sized + io::Write>(&mut self, _: &mut W) -> io::Result<()> {
            self.left += 1;
            Ok(())
        }
    }
    let mut levels = Levels { left: nesting::LEVELS_MAX, is_over: false };
    let mut writer = serde_json::Serializer::with_formatter(io::sink(), &mut levels);
    // Any other error is met again where it is told.
    drop(output.serialize(&mut writer));
    levels.is_over
}

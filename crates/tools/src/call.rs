//! The first half of a call's path: look-up, parsing, repair and validation.
//!
//! [`Toolbox::check`] performs these steps without side effects. The caller then consults the brake and the
//! permissions, and [`CheckedCall::run`] does the rest.

use std::sync::Arc;

use budao_core::{
    fault::{Advice, Detail, Fact, Fault, Kind, Operation},
    limits::Limits,
    message::ToolUse,
    nesting,
    tool::{Repair, RepairKind, ToolSpec},
};
use serde_json::{Map, Value};

use crate::{
    advice, digest, example, explain,
    parse::{self, ParseError},
    repair,
    schema::CompiledSchema,
    tolerant::Unclear,
    toolbox::{RegisteredTool, Toolbox, ToolboxShared},
    violations::find_violations,
};

/// A validated call that has not run yet.
#[derive(Clone, Debug)]
pub struct CheckedCall {
    pub(crate) entry: Arc<RegisteredTool>,
    pub(crate) arguments: Value,
    pub(crate) repairs: Vec<Repair>,
    pub(crate) shared: ToolboxShared,
}

impl Toolbox {
    /// Looks up the tool, parses the arguments and validates them against the schema. Runs nothing.
    ///
    /// # Errors
    /// A fault for the model: the known tool names, the position where the text is not JSON, or every mismatch.
    pub fn check(&self, call: &ToolUse, limits: &Limits) -> Result<CheckedCall, Fault> {
        self.check_text(&call.name, call.arguments.as_bytes(), limits)
    }

    /// As [`Toolbox::check`], for bytes that may not be valid UTF-8.
    ///
    /// # Errors
    /// As [`Toolbox::check`].
    pub fn check_text(
        &self,
        name: &str,
        text: &[u8],
        limits: &Limits,
    ) -> Result<CheckedCall, Fault> {
        let checked = self.entry(name).and_then(|entry| {
            let mut repairs = Vec::new();
            let arguments = read(entry, text, limits, &mut repairs)?;
            self.fit(entry, arguments, repairs, limits)
        });
        checked.map_err(|fault| self.finished(fault, name))
    }

    /// As [`Toolbox::check`], for arguments that are already parsed, such as edited or replaced ones.
    ///
    /// # Errors
    /// As [`Toolbox::check`].
    pub fn check_value(
        &self,
        name: &str,
        arguments: Value,
        limits: &Limits,
    ) -> Result<CheckedCall, Fault> {
        // If the name is unknown the arguments are dropped, which recurses once per level.
        let mut arguments = arguments;
        nesting::bound(&mut arguments);
        let entry = self.entry(name);
        let checked = entry.and_then(|entry| self.fit(entry, arguments, Vec::new(), limits));
        checked.map_err(|fault| self.finished(fault, name))
    }

    /// True if the arguments are valid for the tool without repair. Only looks up and validates.
    #[must_use]
    pub fn fits(&self, name: &str, arguments: &Value) -> bool {
        self.entry(name).is_ok_and(|entry| entry.prepared.fits(arguments))
    }

    fn fit(
        &self,
        entry: &Arc<RegisteredTool>,
        arguments: Value,
        repairs: Vec<Repair>,
        limits: &Limits,
    ) -> Result<CheckedCall, Fault> {
        let (arguments, repairs) = fit(entry, arguments, repairs, limits)?;
        Ok(CheckedCall { entry: entry.clone(), arguments, repairs, shared: self.shared().clone() })
    }

    /// Adds advice to a fault, then scrubs it.
    fn finished(&self, fault: Fault, name: &str) -> Fault {
        let fault = advice::attach(fault, name, &self.shared().rules);
        fault.scrub(&self.shared().scrubber)
    }
}

impl CheckedCall {
    /// The specification of the called tool.
    #[must_use]
    pub fn spec(&self) -> &Arc<ToolSpec> {
        &self.entry.spec
    }

    /// The arguments the call will run with.
    #[must_use]
    pub fn arguments(&self) -> &Value {
        &self.arguments
    }

    /// The repairs that made the arguments valid.
    #[must_use]
    pub fn repairs(&self) -> &[Repair] {
        &self.repairs
    }

    /// SHA-256 over canonical JSON, in hex. Equal for all calls of this tool with these arguments.
    #[must_use]
    pub fn digest(&self) -> String {
        digest::of_call(&self.entry.spec.name, &self.arguments)
    }

    /// Replaces the arguments, for example by those a person edited or a hook returned, and validates them again.
    ///
    /// # Errors
    /// A fault for the model when the new arguments are invalid.
    pub fn with_arguments(self, arguments: Value, limits: &Limits) -> Result<Self, Fault> {
        let Self { entry, shared, .. } = self;
        match fit(&entry, arguments, Vec::new(), limits) {
            Ok((arguments, repairs)) => Ok(Self { entry, arguments, repairs, shared }),
            Err(fault) => {
                let fault = advice::attach(fault, &entry.spec.name, &shared.rules);
                Err(fault.scrub(&shared.scrubber))
            }
        }
    }
}

/// Parses the arguments' text, and repairs it if the tool allows that.
fn read(
    entry: &RegisteredTool,
    text: &[u8],
    limits: &Limits,
    repairs: &mut Vec<Repair>,
) -> Result<Value, Fault> {
    if text.len() > limits.frame_bytes {
        return Err(Fault::new(Kind::FrameTooLarge, Operation::ToolCall)
            .with(Fact::ToolName, entry.spec.name.to_string())
            .with(Fact::Limit, limits.frame_bytes)
            .with(Fact::LimitName, "frame_bytes")
            .with(Fact::Actual, text.len()));
    }
    // Providers send an empty text for a call without arguments.
    if text.trim_ascii().is_empty() {
        return Ok(Value::Object(Map::new()));
    }
    let broken = match parse::strict(text, limits.json_depth) {
        Ok(value) => return Ok(value),
        Err(broken) => broken,
    };
    let unclear = match repair::malformed(&entry.prepared.schema, text, &broken, limits.json_depth)
    {
        Some(Ok(value)) if entry.spec.repair => {
            repairs.push(Repair { pointer: String::new(), kind: RepairKind::MalformedJson });
            return Ok(value);
        }
        Some(Ok(_)) | None => None,
        Some(Err(unclear)) => Some(unclear),
    };
    Err(malformed(entry, text, &broken, unclear.as_ref()))
}

/// The fault for a text that is not JSON: the position, a correction, and what the schema allows there.
fn malformed(
    entry: &RegisteredTool,
    text: &[u8],
    broken: &ParseError,
    unclear: Option<&Unclear>,
) -> Fault {
    let kind = match broken {
        ParseError::Utf8 { .. } => Kind::InvalidUtf8,
        ParseError::TooDeep { .. } => Kind::JsonTooDeep,
        ParseError::Duplicate { .. } | ParseError::Syntax { .. } => Kind::MalformedArguments,
    };
    let mut fault =
        Fault::new(kind, Operation::ToolCall).with(Fact::ToolName, entry.spec.name.to_string());
    // Reports the position that prevented a repair; without one, the first syntax error.
    let blocking = unclear.filter(|_| entry.spec.repair).map(|unclear| unclear.position);
    if let Some(position) = blocking.or_else(|| broken.position()) {
        fault = fault.with(Fact::Position, position);
        if let Ok(text) = std::str::from_utf8(text) {
            fault = fault.with(Fact::Excerpt, parse::excerpt(text, position));
        }
    }
    let position_excerpt = fault.detail().get(Fact::Excerpt).cloned();
    let fault = fault.advise_model(position_excerpt.map(|excerpt| Advice::Known {
        advice: "malformed-at".into(),
        with: Detail::new().with(Fact::Excerpt, excerpt),
    }));
    let fault = match (broken, unclear) {
        (ParseError::TooDeep { limit }, _) => {
            return fault.with(Fact::LimitName, "json_depth").with(Fact::Limit, *limit);
        }
        (ParseError::Utf8 { .. }, _) => return fault,
        (ParseError::Duplicate { key, .. }, _) => {
            let with = Detail::new().with(Fact::Field, shown(key));
            fault.advise_model([Advice::Known { advice: "duplicate-key".into(), with }])
        }
        (ParseError::Syntax { ends_early: true, .. }, _) => {
            fault.advise_model([Advice::known("ends-early")])
        }
        (ParseError::Syntax { .. }, Some(unclear)) => {
            fault.advise_model([Advice::known(unclear.reason.advice())])
        }
        (ParseError::Syntax { .. }, None) => fault,
    };
    let pointer = unclear.map_or("", |unclear| &unclear.pointer);
    let allowed = explain::allowed_at(&entry.prepared.schema, pointer);
    let with = Detail::new().with(Fact::Expected, allowed);
    fault.advise_model([Advice::Known { advice: "malformed-allowed".into(), with }])
}

fn shown(key: &str) -> String {
    key.chars().take(64).collect()
}

/// Fills in defaults and validates. If that fails and the tool allows repair, undoes slips.
fn fit(
    entry: &RegisteredTool,
    mut arguments: Value,
    mut repairs: Vec<Repair>,
    limits: &Limits,
) -> Result<(Value, Vec<Repair>), Fault> {
    let prepared = &entry.prepared;
    nesting::bound(&mut arguments);
    if nesting::is_deeper(&arguments, limits.json_depth) || !prepared.accepts(&arguments) {
        return Err(Fault::new(Kind::JsonTooDeep, Operation::ToolCall)
            .with(Fact::ToolName, entry.spec.name.to_string())
            .with(Fact::LimitName, "json_depth")
            .with(Fact::Limit, limits.json_depth));
    }
    arguments = with_defaults(prepared, arguments, &mut repairs);
    if prepared.is_valid(&arguments) {
        return Ok((arguments, repairs));
    }
    if entry.spec.repair
        && let Some((fixed, slips)) =
            repair::undo_slips(&prepared.schema, &prepared.validator, &arguments, limits.json_depth)
    {
        repairs.extend(slips);
        return Ok((with_defaults(prepared, fixed, &mut repairs), repairs));
    }
    Err(invalid(entry, &arguments))
}

/// Fills in the defaults of absent arguments. If a default violates its own schema and the arguments are valid
/// without it, no default is filled in.
fn with_defaults(prepared: &CompiledSchema, arguments: Value, repairs: &mut Vec<Repair>) -> Value {
    if !prepared.has_defaults {
        return arguments;
    }
    let (mut filled, before) = (arguments.clone(), repairs.len());
    repair::fill_defaults(&prepared.schema, &mut filled, repairs);
    let is_harmful =
        repairs.len() > before && !prepared.is_valid(&filled) && prepared.is_valid(&arguments);
    if is_harmful {
        repairs.truncate(before);
        return arguments;
    }
    filled
}

fn invalid(entry: &RegisteredTool, arguments: &Value) -> Fault {
    let prepared = &entry.prepared;
    let violations = find_violations(&prepared.schema, &prepared.validator, arguments);
    let mut fault = Fault::new(Kind::InvalidArguments, Operation::ToolCall)
        .with(Fact::ToolName, entry.spec.name.to_string());
    for mismatch in explain::explain(&prepared.schema, arguments, &violations) {
        fault = fault.mismatch(mismatch);
    }
    match example::example(&prepared.schema, &prepared.validator, &violations) {
        Some(example) => fault.with(Fact::Example, example),
        None => fault,
    }
}

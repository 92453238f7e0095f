//! Script files: TOML, one `[[step]]` per request. `docs/scripts.md` is the manual.

use std::{path::Path, time::Duration};

use budao_core::{
    fault::{Fact, Fault, Kind, Operation},
    limits::millis,
    message::{ModelStop, Usage},
};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::{Ending, RepeatCount, Script, ScriptStep, StepOrder};
use crate::failure::{ErrorResponse, Service};

/// Maximum size of a script file, in bytes.
const FILE_BYTES: u64 = 16 * 1024 * 1024;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    order: StepOrder,
    #[serde(default, rename = "step")]
    steps: Vec<FileStep>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileStep {
    #[serde(default, with = "millis")]
    delay_ms: Duration,
    #[serde(default)]
    think: Option<String>,
    #[serde(default)]
    signature: Option<String>,
    #[serde(default)]
    text: Option<String>,
    #[serde(default, with = "millis")]
    pace_ms: Duration,
    #[serde(default)]
    opaque: Option<String>,
    #[serde(default, rename = "call")]
    calls: Vec<FileCall>,
    #[serde(default)]
    end: Option<FileEnd>,
    #[serde(default)]
    fault: Option<Kind>,
    #[serde(default)]
    status: Option<u16>,
    #[serde(default)]
    body: Option<String>,
    #[serde(default)]
    retry_after_ms: Option<u64>,
    #[serde(default)]
    usage: Option<Usage>,
    #[serde(default, deserialize_with = "times")]
    repeat: Option<RepeatCount>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileCall {
    tool: String,
    #[serde(default)]
    id: Option<String>,
    /// A table is sent as JSON. A string is sent verbatim, even if it is not JSON.
    #[serde(default)]
    arguments: Option<Value>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum FileEnd {
    EndTurn,
    ToolUse,
    MaxTokens,
    Refusal,
    Cut,
    Stall,
    Malformed,
}

fn times<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<RepeatCount>, D::Error> {
    match Value::deserialize(deserializer)? {
        Value::String(word) if word == "forever" => Ok(Some(RepeatCount::Forever)),
        Value::Number(number) => number
            .as_u64()
            .and_then(|count| usize::try_from(count).ok())
            .map(|count| Some(RepeatCount::Count(count)))
            .ok_or_else(|| serde::de::Error::custom("must be a number of times or \"forever\"")),
        _ => Err(serde::de::Error::custom("must be a number of times or \"forever\"")),
    }
}

/// Loads and parses a script file.
pub(super) fn load(path: &Path) -> Result<Script, Fault> {
    let name = path.display().to_string();
    let unreadable = |error: &std::io::Error| {
        let kind = match error.kind() {
            std::io::ErrorKind::NotFound => Kind::FileNotFound,
            std::io::ErrorKind::PermissionDenied => Kind::FilePermission,
            _ => Kind::NotAFile,
        };
        Fault::new(kind, Operation::ReadFile).with(Fact::Path, name.clone()).caused_by(error)
    };
    let size = std::fs::metadata(path).map_err(|error| unreadable(&error))?.len();
    if size > FILE_BYTES {
        return Err(wrong(&name, "a smaller file".into()).with_cause(format!("{size} bytes")));
    }
    let text = std::fs::read_to_string(path).map_err(|error| unreadable(&error))?;
    parse(&text, &name)
}

/// Parses a script; `name` appears in faults.
pub(super) fn parse(text: &str, name: &str) -> Result<Script, Fault> {
    let file: File = toml::from_str(text).map_err(|error| {
        let fault = wrong(name, error.message().to_owned());
        match error.span() {
            Some(span) => fault.with(Fact::Line, line_of(text, span.start)),
            None => fault,
        }
    })?;
    let script = Script::new().order(file.order);
    file.steps.into_iter().enumerate().try_fold(script, |script, (index, step)| {
        let step = step.read().map_err(|expected| {
            wrong(name, expected.into()).with(Fact::Field, format!("step {}", index + 1))
        })?;
        Ok(script.step(step))
    })
}

fn wrong(name: &str, expected: String) -> Fault {
    Fault::new(Kind::ConfigurationWrong, Operation::LoadConfig)
        .with(Fact::ConfigKey, "script")
        .with(Fact::Path, name.to_owned())
        .with(Fact::Expected, expected)
}

fn line_of(text: &str, position: usize) -> usize {
    text.bytes().take(position).filter(|&byte| byte == b'\n').count() + 1
}

impl FileStep {
    fn read(mut self) -> Result<ScriptStep, &'static str> {
        let end = self.ending()?;
        let mut step = ScriptStep::new().delay(self.delay_ms).pace(self.pace_ms).end(end);
        if let Some(think) = self.think {
            step = step.think(think, self.signature);
        }
        if let Some(json) = self.opaque {
            step = step.opaque(json);
        }
        if let Some(text) = self.text {
            step = step.text(text);
        }
        for call in self.calls {
            let arguments = match call.arguments {
                None => "{}".to_owned(),
                Some(Value::String(text)) => text,
                Some(value) => value.to_string(),
            };
            step = step.call_raw(call.id, call.tool, arguments);
        }
        if let Some(usage) = self.usage {
            step = step.usage(usage);
        }
        Ok(step.times(self.repeat.unwrap_or(RepeatCount::Count(1))))
    }

    /// The ending of a step. At most one of `end`, `fault` and `status` may be set.
    fn ending(&mut self) -> Result<Ending, &'static str> {
        let stop = |stop| Ending::Stop(Some(stop));
        match (self.end, self.fault, self.status) {
            (None, None, None) => Ok(Ending::Stop(None)),
            (Some(end), None, None) => Ok(match end {
                FileEnd::EndTurn => stop(ModelStop::EndTurn),
                FileEnd::ToolUse => stop(ModelStop::ToolUse),
                FileEnd::MaxTokens => stop(ModelStop::MaxTokens),
                FileEnd::Refusal => stop(ModelStop::Refusal),
                FileEnd::Cut => Ending::Cut,
                FileEnd::Stall => Ending::Stall,
                FileEnd::Malformed => Ending::Malformed,
            }),
            (None, Some(kind), None) => Ok(self.failing(Fault::new(kind, Operation::ModelRequest))),
            (None, None, Some(status)) => {
                let service = Service::scripted();
                let body = self.body.take().unwrap_or_default();
                let fault = ErrorResponse::new(status, body.as_bytes()).fault(&service);
                Ok(self.failing(fault))
            }
            _ => Err("only one of `end`, `fault` and `status`"),
        }
    }

    fn failing(&self, mut fault: Fault) -> Ending {
        if let Some(wait) = self.retry_after_ms {
            fault = fault.retry_after(Duration::from_millis(wait)).with(Fact::WaitMs, wait);
        }
        Ending::Fault(Box::new(fault))
    }
}

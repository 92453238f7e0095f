//! Corrects a failed call using only the fault it returned.
//!
//! The module reads the mismatches, the nearest name and the example call from the tool's answer. It never reads a
//! schema.

use serde_json::{Map, Value};

use super::history::DemoCall;

/// The result of reading the fault of a failed call.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum CorrectionResult {
    /// A corrected call, and the correction that was made.
    Call { tool: String, arguments: Value, change: Correction },
    /// The fault says not to repeat the call.
    Stop,
    /// The fault contains no usable correction.
    NoHelp,
}

/// The kind of correction made to a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Correction {
    /// The arguments are unchanged, because the fault says that a retry may help.
    Again,
    /// A parameter has another name.
    Renamed { from: String, to: String },
    /// A parameter has another type or value.
    Replaced { name: String },
    /// The tool has another name.
    Tool { to: String },
    /// The arguments follow the example in the fault.
    LikeExample,
}

/// Reads the fault of a call that has failed `times` times.
pub(super) fn correct_call(call: &DemoCall<'_>, times: usize) -> CorrectionResult {
    let error = &call.result;
    let tool = call.used.name.clone();
    let arguments: Map<String, Value> =
        serde_json::from_str(&call.used.arguments).unwrap_or_default();
    let places = places(error);
    let mended = correct(&arguments, &places)
        .or_else(|| like_example(&arguments, error.get("example")?))
        .or_else(|| nearest_path(&arguments, error));
    if let Some((arguments, change)) = mended {
        return CorrectionResult::Call { tool, arguments: Value::Object(arguments), change };
    }
    if let Some(to) = nearest_tool(error).filter(|to| *to != tool) {
        let change = Correction::Tool { to: to.clone() };
        return CorrectionResult::Call { tool: to, arguments: Value::Object(arguments), change };
    }
    match error["next"].as_str() {
        Some("stop") => CorrectionResult::Stop,
        Some("retry_same") if times == 1 => CorrectionResult::Call {
            tool,
            arguments: Value::Object(arguments),
            change: Correction::Again,
        },
        _ => CorrectionResult::NoHelp,
    }
}

/// One mismatch that the fault reports.
#[derive(Clone, Debug, Default, PartialEq)]
struct ReportedMismatch {
    name: String,
    rule: String,
    expected: String,
    nearest: Option<String>,
    allowed: Vec<Value>,
}

/// The mismatches in a fault: from its data if present, otherwise from the lines of its text.
fn places(error: &Value) -> Vec<ReportedMismatch> {
    if let Some(places) = error["mismatches"].as_array() {
        return places.iter().map(ReportedMismatch::from_json).collect();
    }
    let text = error["error"].as_str().unwrap_or_default();
    let Some((_, lines)) = text.split_once(':') else { return Vec::new() };
    lines.split(['\n', ';']).filter_map(ReportedMismatch::from_line).collect()
}

impl ReportedMismatch {
    fn from_json(place: &Value) -> Self {
        let text = |name: &str| place[name].as_str().unwrap_or_default().to_owned();
        Self {
            name: text("pointer").trim_start_matches('/').to_owned(),
            rule: text("rule"),
            expected: text("expected"),
            nearest: place["nearest"].as_str().map(str::to_owned),
            allowed: place["allowed"].as_array().cloned().unwrap_or_default(),
        }
    }

    /// Parses a line such as `path: required`, `file: unknown key; did you mean `path`?` or `limit: must be a
    /// number`.
    fn from_line(line: &str) -> Option<Self> {
        let (name, expected) = line.trim().split_once(": ")?;
        let rule = match expected {
            _ if expected.starts_with("required") => "required",
            _ if expected.starts_with("unknown") => "additionalProperties",
            _ => "type",
        };
        let nearest =
            expected.split_once("did you mean `").and_then(|(_, rest)| rest.split('`').next());
        Some(Self {
            name: name.to_owned(),
            rule: rule.to_owned(),
            expected: expected.to_owned(),
            nearest: nearest.map(str::to_owned),
            allowed: Vec::new(),
        })
    }

    fn is_missing(&self) -> bool {
        self.rule == "required"
    }

    fn is_unknown(&self) -> bool {
        matches!(&*self.rule, "additionalProperties" | "unevaluatedProperties")
    }
}

/// Corrects every reported mismatch that can be corrected.
fn correct(
    sent: &Map<String, Value>,
    places: &[ReportedMismatch],
) -> Option<(Map<String, Value>, Correction)> {
    let mut arguments = sent.clone();
    let mut change = None;
    for place in places {
        let done = if place.is_unknown() {
            rename(&mut arguments, place, places)
        } else if place.is_missing() {
            None
        } else {
            replace(&mut arguments, place)
        };
        change = change.or(done);
    }
    // If a key is missing and none is reported as unknown, the only key sent must be the missing one misnamed.
    let missing =
        places.iter().find(|place| place.is_missing() && !arguments.contains_key(&place.name));
    if let (None, Some(missing), [only]) = (&change, missing, &*keys(&arguments)) {
        let value = arguments.remove(only)?;
        arguments.insert(missing.name.clone(), value);
        change = Some(Correction::Renamed { from: only.clone(), to: missing.name.clone() });
    }
    change.map(|change| (arguments, change))
}

fn keys(map: &Map<String, Value>) -> Vec<String> {
    map.keys().cloned().collect()
}

/// Renames an unknown parameter to the nearest known name, or to that of a missing one.
fn rename(
    arguments: &mut Map<String, Value>,
    place: &ReportedMismatch,
    places: &[ReportedMismatch],
) -> Option<Correction> {
    let missing =
        || places.iter().find(|other| other.is_missing() && !arguments.contains_key(&other.name));
    let to = place.nearest.clone().or_else(|| missing().map(|missing| missing.name.clone()))?;
    let value = arguments.remove(&place.name)?;
    arguments.entry(to.clone()).or_insert(value);
    Some(Correction::Renamed { from: place.name.clone(), to })
}

/// Replaces a parameter's value with one of the type, or from the list, that the fault names.
fn replace(arguments: &mut Map<String, Value>, place: &ReportedMismatch) -> Option<Correction> {
    let value = arguments.get(&place.name)?;
    let nearest = place.nearest.clone().map(Value::String);
    let better = nearest
        .or_else(|| place.allowed.first().cloned())
        .or_else(|| convert(value, &place.expected))?;
    arguments.insert(place.name.clone(), better);
    Some(Correction::Replaced { name: place.name.clone() })
}

/// Converts a value to the type named in `expected`.
fn convert(value: &Value, expected: &str) -> Option<Value> {
    let asks = |names: &[&str]| names.iter().any(|name| expected.contains(name));
    match value {
        Value::String(text) if asks(&["integer", "number"]) => {
            text.trim().parse::<i64>().ok().map(Value::from)
        }
        Value::String(text) if asks(&["boolean"]) => {
            text.trim().parse::<bool>().ok().map(Value::from)
        }
        Value::Array(items) if asks(&["string"]) && items.len() == 1 => items.first().cloned(),
        Value::Number(_) | Value::Bool(_) if asks(&["string"]) => Some(value.to_string().into()),
        Value::String(text) if asks(&["array", "list"]) => {
            serde_json::from_str(text).ok().filter(Value::is_array)
        }
        value if asks(&["array", "list"]) && !value.is_array() => Some(vec![value.clone()].into()),
        _ => None,
    }
}

/// Copies the sent values to the example's parameters where the types agree.
fn like_example(
    sent: &Map<String, Value>,
    example: &Value,
) -> Option<(Map<String, Value>, Correction)> {
    let example = example.get("arguments").unwrap_or(example).as_object()?;
    let mut spare: Vec<&Value> = sent
        .iter()
        .filter(|(name, _)| !example.contains_key(*name))
        .map(|(_, value)| value)
        .collect();
    let same_type = |a: &Value, b: &Value| std::mem::discriminant(a) == std::mem::discriminant(b);
    let mut arguments = Map::new();
    for (name, sample) in example {
        let ours = match sent.get(name).filter(|value| same_type(value, sample)) {
            Some(value) => value.clone(),
            None => spare
                .iter()
                .position(|value| same_type(value, sample))
                .map_or_else(|| sample.clone(), |at| spare.remove(at).clone()),
        };
        arguments.insert(name.clone(), ours);
    }
    (arguments != *sent).then_some((arguments, Correction::LikeExample))
}

/// Replaces a path that was not found by the nearest one the fault names.
fn nearest_path(
    sent: &Map<String, Value>,
    error: &Value,
) -> Option<(Map<String, Value>, Correction)> {
    let advice = error["recommendations"].as_array()?;
    let (name, path) = sent.iter().find_map(|(name, value)| Some((name, value.as_str()?)))?;
    if !error["error"].as_str()?.contains(path) {
        return None;
    }
    let lines = advice.iter().chain([&error["error"]]).filter_map(Value::as_str);
    let meant = lines.filter_map(meant).find(|meant| meant != path)?;
    let mut arguments = sent.clone();
    arguments.insert(name.clone(), meant.into());
    Some((arguments, Correction::Replaced { name: name.clone() }))
}

/// Reads the name from a line such as `There is no tool called x. Did you mean: y, z?`
fn nearest_tool(error: &Value) -> Option<String> {
    error["code"].as_str().filter(|code| code.contains("_TOOL_"))?;
    let meant = meant(error["error"].as_str()?)?;
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    (!meant.is_empty() && meant.chars().all(fits)).then_some(meant)
}

/// The first suggestion in a line.
fn meant(line: &str) -> Option<String> {
    const SIGNS: [&str; 4] =
        ["id you mean", "closest existing path is", "是不是", "最接近的现有路径是"];
    let (_, rest) = SIGNS.iter().find_map(|sign| line.split_once(sign))?;
    let quoted = rest.split('`').nth(1);
    let listed = rest.split_once([':', '：']).map_or(rest, |(_, listed)| listed);
    let first = quoted.or_else(|| listed.split([',', '、', '?', '？']).next())?;
    let first = first.trim_matches(|c: char| c.is_whitespace() || "'\"“”。".contains(c));
    let first = first.strip_prefix("想用").unwrap_or(first).trim();
    (!first.is_empty()).then(|| first.to_owned())
}

//! A repair never changes what a call means.
//!
//! Method: valid calls of realistic tools are broken in the ways models break them, each with the arguments that were
//! meant, or with none where no reading is certain. A call that runs must run with what was meant; a call that is refused
//! must name the place and what is allowed there. The corpus knows the ways models fail and nothing of the repair.

mod misfit;
mod spelled;
mod style;
mod support;

use std::collections::BTreeMap;

use budao_core::{Lang, limits::Limits, tool::Outcome};
use budao_tools::{RawTool, ToolOptions, Toolbox};
use serde::Deserialize;
use serde_json::{Value, json};
use support::{BrokenCall, Dice};

const CALLS: usize = 20_000;
const SEED: u64 = 0x0b0d_a0e5;
/// Of all broken calls, this part is still repaired.
const REPAIRED_MIN: f64 = 0.19;
/// Of all refusals, this part names the place and what is allowed.
const NAMED_MIN: f64 = 0.99;

/// A tool with calls that fit it.
#[derive(Debug, Deserialize)]
struct Sample {
    name: String,
    schema: Value,
    calls: Vec<Value>,
}

/// The realistic tools of the other suite, and some with shapes they lack.
fn samples() -> Vec<Sample> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/teaching/corpus");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .expect("the corpus of the other suite")
        .map(|entry| entry.expect("readable").path())
        .collect();
    files.sort();
    let read = |file| std::fs::read_to_string(file).expect("readable");
    let parse = |text: String| serde_json::from_str(&text).expect("a sample");
    let own = serde_json::from_value::<Vec<Sample>>(extra()).expect("samples");
    files.into_iter().map(read).map(parse).chain(own).collect()
}

fn extra() -> Value {
    let whole = json!({"type": "integer"});
    let word = json!({"type": "string"});
    let object = |properties: Value, required: Value| json!({"type": "object", "properties": properties, "required": required});
    json!([
        {"name": "own_grep", "calls": [{"pattern": "fn main", "path": "src", "limit": 5}, {"pattern": "x", "path": "a b/c.txt"}],
         "schema": object(json!({"pattern": word, "path": word, "limit": whole}), json!(["pattern"]))},
        {"name": "own_read_many", "calls": [{"paths": ["a.txt"], "lines": [1, 2]}, {"paths": ["a.txt", "b.txt"], "note": "all of it"}],
         "schema": object(json!({"paths": {"type": "array", "items": word}, "lines": {"type": "array", "items": whole}, "note": word}), json!(["paths"]))},
        {"name": "own_matrix", "calls": [{"rows": [[1, 2], [3, 4]], "scale": 2.5}, {"rows": [[7]], "transpose": true}],
         "schema": object(json!({"rows": {"type": "array", "items": {"type": "array", "items": {"type": "number"}}}, "scale": {"type": "number"}, "transpose": {"type": "boolean"}}), json!(["rows"]))},
        {"name": "own_fetch", "calls": [{"from": {"url": "https://example.com/a?b=1#c", "method": "GET"}}, {"from": {"path": "notes.md", "line": 3}}],
         "schema": object(json!({"from": {"anyOf": [object(json!({"path": word, "line": whole}), json!(["path", "line"])), object(json!({"url": word, "method": {"enum": ["GET", "POST"]}}), json!(["url", "method"]))]}}), json!(["from"]))},
        {"name": "own_style", "calls": [{"color": "#ff8800", "width": 3, "height": 4, "label": "box", "bold": false}],
         "schema": object(json!({"color": word, "width": whole, "height": whole, "label": word, "bold": {"type": "boolean"}}), json!(["color"]))},
        {"name": "own_run", "calls": [{"command": "ls -la", "env": {"A": "1"}, "timeout": 10}],
         "schema": object(json!({"command": word, "env": {"type": "object", "additionalProperties": word}, "timeout": {"type": "number", "minimum": 0}}), json!(["command"]))},
    ])
}

/// Every tool twice: taken as it comes, and repaired.
fn toolbox(samples: &[Sample]) -> Toolbox {
    let mut builder = Toolbox::builder();
    for sample in samples {
        for (suffix, repair) in [("", false), ("_repaired", true)] {
            let name = format!("{}{suffix}", sample.name);
            let answer = |arguments, _| async move { Ok(arguments) };
            let tool = RawTool::new(&name, "", sample.schema.clone(), answer)
                .options(ToolOptions::read_only().repair(repair));
            builder = builder.add(tool).unwrap_or_else(|fault| panic!("{fault}"));
        }
    }
    builder.build()
}

/// What happened to the calls of one class.
#[derive(Debug, Default)]
struct Tally {
    calls: usize,
    repaired: usize,
    changed: usize,
    refused: usize,
    unnamed: usize,
}

impl Tally {
    fn add(&mut self, other: &Self) {
        self.calls += other.calls;
        self.repaired += other.repaired;
        self.changed += other.changed;
        self.refused += other.refused;
        self.unnamed += other.unnamed;
    }
}

fn broken(sample: &Sample, class: usize, dice: &mut Dice) -> Option<(&'static str, BrokenCall)> {
    let call = dice.pick(&sample.calls)?.clone();
    let call = spelled::enriched(&sample.schema, call, dice);
    let spelled = spelled::CLASSES.len();
    match spelled::CLASSES.get(class % (spelled + misfit::CLASSES.len())) {
        Some((name, make)) => Some((name, make(&sample.schema, &call, dice)?)),
        None => {
            let (name, make) =
                misfit::CLASSES.get(class % (spelled + misfit::CLASSES.len()) - spelled)?;
            Some((name, make(&sample.schema, &call, dice)?))
        }
    }
}

/// Two values that mean the same: 5 is 5.0, an absent key is a null one.
fn is_same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => {
            one == other || one.as_f64() == other.as_f64()
        }
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len()
                && one.iter().zip(other).all(|(one, other)| is_same(one, other))
        }
        (Value::Object(one), Value::Object(other)) => one.keys().chain(other.keys()).all(|key| {
            let null = &Value::Null;
            is_same(one.get(key).unwrap_or(null), other.get(key).unwrap_or(null))
        }),
        (one, other) => one == other,
    }
}

/// The arguments as sent: what was filled in as a default is no meaning of the model's.
fn as_sent(ready: &budao_tools::CheckedCall) -> Value {
    let mut arguments = ready.arguments().clone();
    for repair in ready.repairs() {
        let kind: &'static str = repair.kind.into();
        if kind == "default_filled"
            && let Some(less) = support::without(&arguments, &repair.pointer)
        {
            arguments = less;
        }
    }
    arguments
}

/// Does a refusal name the place and what is allowed there?
fn is_named(rendered: &Value, broken: &BrokenCall) -> bool {
    let mismatches = rendered["mismatches"].as_array().cloned().unwrap_or_default();
    let near = |prefix: &str| {
        broken
            .pointer
            .as_ref()
            .is_none_or(|at| at.starts_with(prefix) || prefix.starts_with(at.as_str()))
    };
    let says = |it: &Value| {
        let expected = it["expected"].as_str().unwrap_or_default();
        it["allowed"].as_array().is_some_and(|all| !all.is_empty())
            || ["must ", "known are ", "none is allowed"].iter().any(|word| expected.contains(word))
            || (expected == "required" && is_shown(&rendered["example"], &it["pointer"]))
    };
    let pointers = mismatches.iter().filter(|it| near(it["pointer"].as_str().unwrap_or_default()));
    let fits = pointers.clone().count() > 0 && pointers.clone().all(says);
    let lines: Vec<&str> = rendered["recommendations"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let marked = lines.iter().any(|line| line.contains("<HERE>"));
    let allowed = lines.iter().any(|line| line.starts_with("Allowed there: "));
    fits || (marked && allowed)
}

/// Does the example have a value for a missing key? An example has one item a list.
fn is_shown(example: &Value, pointer: &Value) -> bool {
    let parts = pointer.as_str().unwrap_or_default().split('/');
    let first =
        |part: &str| if part.parse::<usize>().is_ok() { "0".to_owned() } else { part.to_owned() };
    example.pointer(&parts.map(first).collect::<Vec<_>>().join("/")).is_some()
}

#[test]
fn no_repair_changes_what_a_call_means() {
    let samples = samples();
    assert!(samples.len() >= 33, "{} schemas", samples.len());
    let (toolbox, limits) = (toolbox(&samples), Limits::default());
    let mut tallies: BTreeMap<&str, Tally> = BTreeMap::new();
    let seed = seed();
    let mut dice = Dice::new(seed);
    let (mut made, mut class) = (0, 0);
    let mut shown = Vec::new();
    while made < CALLS {
        class += 1;
        let sample = dice.pick(&samples).expect("some");
        let Some((name, broken)) = broken(sample, class, &mut dice) else { continue };
        if toolbox.check_text(&sample.name, broken.text.as_bytes(), &limits).is_ok() {
            continue; // It fits as it is: nothing was broken.
        }
        made += 1;
        let tally = tallies.entry(name).or_default();
        tally.calls += 1;
        let repaired = format!("{}_repaired", sample.name);
        match toolbox.check_text(&repaired, broken.text.as_bytes(), &limits) {
            Ok(ready) => {
                tally.repaired += 1;
                let ran = as_sent(&ready);
                if !broken.intended.as_ref().is_some_and(|intended| is_same(intended, &ran)) {
                    tally.changed += 1;
                    shown.push(format!("{name}: {} ran as {ran}", broken.text));
                }
            }
            Err(fault) => {
                tally.refused += 1;
                let rendered = Outcome::from(fault).render_for_model(Lang::En).0;
                let rendered: Value = serde_json::from_str(&rendered).expect("a model reads JSON");
                if !is_named(&rendered, &broken) {
                    tally.unnamed += 1;
                    if std::env::var_os("SHOW_UNNAMED").is_some() {
                        shown.push(format!("{name}: {} told {rendered}", broken.text));
                    }
                }
            }
        }
    }
    judge(seed, &tallies, &shown);
}

/// `LOSSLESS_SEED` plays another corpus.
fn seed() -> u64 {
    std::env::var("LOSSLESS_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(SEED)
}

fn judge(seed: u64, tallies: &BTreeMap<&str, Tally>, shown: &[String]) {
    let mut all = Tally::default();
    for (name, tally) in tallies {
        println!(
            "{name:28} {:5} calls {:5} repaired {:4} changed {:5} refused {:4} unnamed",
            tally.calls, tally.repaired, tally.changed, tally.refused, tally.unnamed
        );
        all.add(tally);
    }
    let share = |part: usize, of: usize| part as f64 / of.max(1) as f64;
    let (right, named) = (
        share(all.repaired - all.changed, all.calls),
        share(all.refused - all.unnamed, all.refused),
    );
    println!("seed {seed}: {all:?}, {right:.4} repaired, {named:.4} named");
    shown.iter().take(40).for_each(|line| println!("{line}"));
    assert_eq!(all.changed, 0, "calls that ran with another meaning");
    assert!(right >= REPAIRED_MIN, "{right} of all calls were repaired");
    assert!(named >= NAMED_MIN, "{named} of all refusals name place and allowed values");
}

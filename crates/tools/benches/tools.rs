//! What a call costs before, around and instead of a tool's own work, beside the validators others use.
//!
//! AJV and zod are measured by `peers/validate.mjs` when the peers are there; their numbers are told
//! whichever way they come out.

use std::{env, path::PathBuf, process::Command};

use budao_core::{limits::Limits, message::ToolUse};
use budao_testkit::bench::{Better, Measurement, Suite, Unit, emit};
use budao_tools::{RawTool, Toolbox, isolation, tool};
use serde_json::{Value, json};

const CORPUS: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/teaching/corpus/fs_multi_edit.json");

/// Adds two numbers.
#[tool(read_only, quick)]
async fn add(a: i64, b: i64) -> i64 {
    a + b
}

/// Adds two numbers, as if that could block.
#[tool(read_only)]
async fn add_apart(a: i64, b: i64) -> i64 {
    a + b
}

/// The reference's multi-edit: its schema and a valid call.
struct Sample {
    schema: Value,
    valid: Value,
    invalid: Value,
}

impl Sample {
    fn load() -> Self {
        let text = std::fs::read_to_string(CORPUS).expect("the corpus is part of this crate");
        let mut file: Value = serde_json::from_str(&text).expect("the corpus is JSON");
        let valid = file["calls"][0].take();
        let mut invalid = valid.clone();
        invalid["edits"][0].as_object_mut().expect("an edit is an object").remove("path");
        Self { schema: file["schema"].take(), valid, invalid }
    }

    fn toolbox(&self) -> Toolbox {
        let run = |_, _| async { Ok(json!(null)) };
        let tool = RawTool::new("fs_multi_edit", "Edits files.", self.schema.clone(), run);
        let builder = Toolbox::builder().add(tool).expect("the corpus registers");
        builder.add(add).expect("it registers").build()
    }

    fn call(arguments: &Value) -> ToolUse {
        ToolUse {
            id: "call-1".into(),
            name: "fs_multi_edit".into(),
            arguments: arguments.to_string(),
        }
    }
}

fn main() {
    let sample = Sample::load();
    let toolbox = sample.toolbox();
    let peers = peers();
    let measured = validation(&sample, &toolbox);
    let value = |name: &str| measured.iter().find(|it| it.bench == name).map(|it| it.value);
    measured.iter().for_each(emit);
    against_the_bare_crate(value("tools/validate_valid"), value("tools/bare_valid"));
    against_peers(&peers, value("tools/build_validator"), value("tools/validate_valid"));
    whole_calls();
}

fn validation(sample: &Sample, toolbox: &Toolbox) -> Vec<Measurement> {
    let bare = jsonschema::options()
        .with_pattern_options(jsonschema::PatternOptions::regex())
        .build(&sample.schema)
        .expect("the corpus compiles");
    let limits = Limits::default();
    let (valid, invalid) = (Sample::call(&sample.valid), Sample::call(&sample.invalid));
    let mut suite = Suite::from_args(25);
    suite.case("tools/validate_valid", Unit::NanosCpu, None, || {
        toolbox.fits("fs_multi_edit", &sample.valid)
    });
    suite.note("tools/validate_valid", "look-up by name and validation of two edits");
    suite.case("tools/bare_valid", Unit::NanosCpu, None, || bare.is_valid(&sample.valid));
    suite.note("tools/bare_valid", "the jsonschema crate alone");
    suite
        .case("tools/check_text", Unit::MicrosCpu, None, || toolbox.check(&valid, &limits).is_ok());
    suite.note("tools/check_text", "from JSON text: size, depth, duplicate keys, defaults, schema");
    suite.case("tools/bare_text", Unit::MicrosCpu, None, || {
        let value: Value = serde_json::from_str(&valid.arguments).expect("JSON");
        bare.is_valid(&value)
    });
    suite.note("tools/bare_text", "serde_json and the jsonschema crate alone");
    suite.case("tools/refuse_with_explanation", Unit::MicrosCpu, Some(20.0), || {
        toolbox.check(&invalid, &limits).is_err()
    });
    suite.note("tools/refuse_with_explanation", "parse, every mismatch, example, advice, scrubbed");
    suite.case("tools/build_validator", Unit::MicrosCpu, None, || {
        let run = |_, _| async { Ok(json!(null)) };
        let tool = RawTool::new("fs_multi_edit", "", sample.schema.clone(), run);
        Toolbox::builder().add(tool).is_ok()
    });
    suite.note("tools/build_validator", "registration: checked, flattened, compiled");
    suite.measure()
}

fn against_the_bare_crate(ours: Option<f64>, bare: Option<f64>) {
    if let Some((ours, bare)) = ours.zip(bare) {
        emit(&Measurement {
            bench: "tools/validate_multi_edit".into(),
            value: ours / bare,
            unit: "x bare jsonschema".into(),
            bar: Some(1.2),
            better: Better::Lower,
            low: None,
            high: None,
            note: Some("valid input, through our call path with the validator look-up".into()),
        });
    }
}

fn against_peers(peers: &Option<Value>, build: Option<f64>, valid: Option<f64>) {
    let Some(peers) = peers else { return };
    if let Some((ours, ajv)) = valid.zip(peers["ajv_valid"].as_f64()) {
        let what = format!("AJV {ajv:.1} ns, ours {ours:.1} ns with the look-up by name");
        let times = ours / ajv;
        emit(&number("tools/validate_vs_ajv", times, "x AJV", Some(1.0), Better::Lower, &what));
    }
    for (key, name, what) in [
        ("ajv_valid", "tools/peer_ajv_valid", "AJV, compiled, the same valid call"),
        ("zod_valid", "tools/peer_zod_valid", "zod, the same valid call"),
        ("ajv_invalid", "tools/peer_ajv_invalid", "AJV with its error text"),
        ("zod_invalid", "tools/peer_zod_invalid", "zod with its error text"),
    ] {
        let Some(value) = peers[key].as_f64() else { continue };
        emit(&number(name, value, "ns CPU", None, Better::Lower, what));
    }
    if let Some((ours, ajv)) = build.zip(peers["ajv_build"].as_f64()) {
        let what = format!("AJV {:.0} µs, ours {ours:.1} µs", ajv / 1e3);
        let times = ajv / 1e3 / ours;
        emit(&number(
            "tools/build_vs_ajv",
            times,
            "x cheaper than AJV",
            Some(100.0),
            Better::Higher,
            &what,
        ));
    }
}

fn number(
    name: &str,
    value: f64,
    unit: &str,
    bar: Option<f64>,
    better: Better,
    note: &str,
) -> Measurement {
    Measurement {
        bench: name.into(),
        value,
        unit: unit.into(),
        bar,
        better,
        low: None,
        high: None,
        note: Some(note.into()),
    }
}

/// A trivial typed call, from text to outcome, one after the other.
fn whole_calls() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime starts");
    let limits = Limits::default();
    let builder = Toolbox::builder().add(add).and_then(|builder| builder.add(add_apart));
    let toolbox = builder.expect("both register").build();
    let context = isolation::context();
    let mut suite = Suite::from_args(25);
    for (name, tool, bar, note) in [
        ("tools/typed_call", "add", Some(5.0), "text to outcome; the tool is marked quick"),
        (
            "tools/typed_call_apart",
            "add_apart",
            None,
            "the same on a thread of its own: two wake-ups",
        ),
    ] {
        let call =
            ToolUse { id: "c".into(), name: tool.into(), arguments: r#"{"a":2,"b":3}"#.into() };
        let (toolbox, limits, context, runtime) = (&toolbox, &limits, &context, &runtime);
        suite.case(name, Unit::MicrosCpu, bar, move || {
            // A batch per entry into the runtime, so that what is measured is the call.
            let (toolbox, call) = (toolbox.clone(), call.clone());
            let (limits, context) = (limits.clone(), context.clone());
            let batch = async move {
                for _ in 0..BATCH {
                    let ready = toolbox.check(&call, &limits).expect("it fits");
                    std::hint::black_box(ready.run(context.clone()).await);
                }
            };
            runtime.block_on(async { tokio::spawn(batch).await.expect("no panic") });
        });
        suite.note(name, note);
    }
    for mut measurement in suite.measure() {
        let Measurement { value, low, high, .. } = &mut measurement;
        for number in [Some(value), low.as_mut(), high.as_mut()].into_iter().flatten() {
            *number /= f64::from(BATCH);
        }
        emit(&measurement);
    }
}

const BATCH: u32 = 100;

/// The peers' numbers in nanoseconds, if the peers are there.
fn peers() -> Option<Value> {
    let folder =
        env::var_os("BUDAO_PEERS").map(PathBuf::from).map(|folder| folder.join("schema-js"));
    let home =
        || env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache/budao/peers/schema-js"));
    let folder = folder.or_else(home).filter(|folder| folder.join("node_modules/ajv").is_dir())?;
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/peers/validate.mjs");
    let output = Command::new("node").arg(script).arg(folder).arg(CORPUS).output().ok()?;
    serde_json::from_slice(&output.stdout).ok()
}

//! The schema and the page of the protocol say what the code does.

use std::{collections::BTreeMap, fs, path::PathBuf};

use budao_core::Lang;
use budao_serve::{
    inbound::{EVENTS, FrameLimits, parse},
    schema::{commands, document, frame_schemas, title},
};
use serde_json::{Value, json};

use crate::{
    frames::{project, read},
    frames_connection::samples,
    frames_history::{child, history},
};

fn docs(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name)
}

/// As with snapshots: `INSTA_UPDATE=always` takes over what the code says.
fn up_to_date(name: &str, text: &str) {
    let path = docs(name);
    if std::env::var("INSTA_UPDATE").is_ok_and(|update| update == "always") {
        fs::write(&path, text).unwrap();
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    assert!(kept == text, "docs/{name} is out of date; run this test with INSTA_UPDATE=always");
}

fn all_frames() -> Vec<Value> {
    let mut frames = Vec::new();
    for lang in [Lang::En, Lang::Zh] {
        frames.extend(project(&history(lang)).iter().map(read));
        frames.extend(project(&child(lang)).iter().map(read));
        frames.extend(samples(lang).iter().map(read));
    }
    frames
}

fn check(definition: &str, instance: &Value) {
    let mut schema = document();
    schema["anyOf"] = json!([{ "$ref": format!("#/$defs/{definition}") }]);
    let validator = jsonschema::validator_for(&schema).unwrap();
    let wrong: Vec<String> =
        validator.iter_errors(instance).map(|error| error.to_string()).collect();
    assert!(wrong.is_empty(), "{definition}: {wrong:?}\n{instance}");
}

#[test]
fn the_schema_is_the_one_that_is_checked_in() {
    let text = serde_json::to_string_pretty(&document()).unwrap() + "\n";
    up_to_date("protocol.schema.json", &text);
}

#[test]
fn every_frame_fits_its_schema() {
    let mut by_event: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for frame in all_frames() {
        by_event.entry(frame["event"].as_str().unwrap().to_owned()).or_default().push(frame);
    }
    for (event, frames) in &by_event {
        let mut schema = document();
        schema["anyOf"] = json!([{ "$ref": format!("#/$defs/{}", title(event)) }]);
        let validator = jsonschema::validator_for(&schema).unwrap();
        for frame in frames {
            let wrong: Vec<String> =
                validator.iter_errors(frame).map(|error| error.to_string()).collect();
            assert!(wrong.is_empty(), "{event}: {wrong:?}\n{frame}");
        }
    }
    let known: Vec<&str> = frame_schemas().iter().map(|sort| sort.event).collect();
    for event in by_event.keys() {
        assert!(known.contains(&event.as_str()), "{event} is not in the schema");
    }
    for event in known {
        assert!(by_event.contains_key(event), "{event} is in the schema and nobody sends it");
    }
}

#[test]
fn a_frame_of_any_event_fits_exactly_one_definition() {
    for frame in project(&history(Lang::En)).iter().map(read) {
        check("Outbound", &frame);
    }
}

#[test]
fn the_schema_has_every_command() {
    let named: Vec<&str> = commands().iter().map(|command| command.event).collect();
    assert_eq!(named, EVENTS);
}

/// The examples of the page: what stands between a marker and the end of the code block behind it.
fn examples(page: &str, marker: &str) -> Vec<(String, String)> {
    let opening = format!("<!-- {marker}: ");
    page.split(&opening)
        .skip(1)
        .map(|rest| {
            let (name, rest) = rest.split_once(" -->\n```json\n").expect("a marker has its block");
            let (block, _) = rest.split_once("\n```").expect("a block ends");
            (name.to_owned(), block.to_owned())
        })
        .collect()
}

/// Goal: the page shows what the code sends. Method: every example is the first frame of its name that
/// the tests make, and there is one for every name.
#[test]
fn every_example_of_the_page_is_what_the_code_sends() {
    let mut page = fs::read_to_string(docs("protocol.md")).unwrap();
    let frames: Vec<Value> =
        samples(Lang::En).iter().chain(&project(&history(Lang::En))).map(read).collect();
    let shown = examples(&page, "example");
    for (name, block) in &shown {
        let frame = frames.iter().find(|frame| frame["event"] == name.as_str());
        let frame = frame.unwrap_or_else(|| panic!("nobody sends {name}"));
        let sent = serde_json::to_string_pretty(frame).unwrap();
        let old = format!("<!-- example: {name} -->\n```json\n{block}\n```");
        let new = format!("<!-- example: {name} -->\n```json\n{sent}\n```");
        page = page.replace(&old, &new);
    }
    up_to_date("protocol.md", &page);
    for sort in frame_schemas() {
        assert!(shown.iter().any(|(name, _)| name == sort.event), "{} has no example", sort.event);
    }
}

#[test]
fn every_command_of_the_page_is_understood() {
    let page = fs::read_to_string(docs("protocol.md")).unwrap();
    let shown = examples(&page, "command");
    for (name, block) in &shown {
        let read = parse(block, &FrameLimits::default());
        let read = read.unwrap_or_else(|refusal| panic!("{name}: {}", refusal.fault));
        assert_eq!(format!("user.{}", read.request.action()), *name);
        check(&format!("{}Command", title(name)), &serde_json::from_str(block).unwrap());
    }
    for event in EVENTS.into_iter().filter(|event| *event != "user.retry_task") {
        assert!(shown.iter().any(|(name, _)| name == event), "{event} has no example");
    }
}

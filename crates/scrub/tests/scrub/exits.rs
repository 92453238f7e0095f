//! A secret in a fault does not come out, wherever it stood in it and whoever is told.

use budao_core::{
    Fault, Kind, Lang,
    event::{Event, Scope},
    fault::{Advice, Detail, Fact, Mismatch, Operation, render, text},
    tool::{Failure, Outcome},
};
use budao_scrub::Scrubber;
use serde_json::json;

use super::corpus::secrets;

/// Puts a secret into a fault.
type Plant = fn(&str) -> Fault;

/// Where a secret gets into a fault: an error's text, a fact, what was sent, what somebody advised, a place it passed.
const PLACES: [(&str, Plant); 8] = [
    ("a foreign error", |said| fault().caused_by(&std::io::Error::other(said.to_owned()))),
    ("a cause in words", |said| fault().with_cause(format!("panicked at: {said}"))),
    ("a fact", |said| fault().with(Fact::Reason, said.to_owned())),
    ("error output", |said| fault().with(Fact::StderrTail, format!("$ run\n{said}\n"))),
    ("a value somebody sent", |said| {
        fault().with(Fact::Example, json!({"deep": [{"note": said}]}))
    }),
    ("a mismatch", |said| {
        fault().mismatch(Mismatch {
            pointer: "/note".into(),
            rule: "type".into(),
            expected: "a number".into(),
            received: Some(said.to_owned()),
            allowed: vec![json!(said)],
            nearest: Some(said.to_owned()),
        })
    }),
    ("advice", |said| {
        let with = Detail::new().with(Fact::Excerpt, said.to_owned());
        let known = Advice::Known { advice: "malformed-at".into(), with };
        let advice = [Advice::Custom(said.to_owned()), known];
        fault().advise_model(advice.clone()).advise_user(advice)
    }),
    ("a hop", |said| fault().via("mcp_server", said.to_owned())),
];

fn fault() -> Fault {
    Fault::new(Kind::InvalidArguments, Operation::ToolCall).with(Fact::ToolName, "it")
}

/// Whoever is told: model, user, operator, peer, editor, journal; in both languages where that makes a difference.
fn exits(fault: &Fault) -> Vec<String> {
    let failure = Failure { fault: fault.clone(), data: None, note: None };
    let mut all =
        vec![fault.to_string(), format!("{fault:?}"), serde_json::to_string(fault).unwrap()];
    let event = Event::FaultRaised { fault: fault.clone(), scope: Scope::default() };
    all.push(String::from_utf8(event.encode()).unwrap());
    for lang in [Lang::En, Lang::Zh] {
        all.push(render::render_for_model(&failure, lang).to_json());
        all.push(Outcome::Failed(failure.clone()).render_for_model(lang).0);
        all.push(format!("{:?}", render::render_for_user(fault, lang)));
        all.push(format!("{:?}", render::render_for_peer(fault, lang)));
        all.push(format!("{:?}", render::render_for_editor(fault, lang)));
        all.push(text::recommendations(fault, lang).join("\n"));
        all.push(text::model_advice(fault, lang).join("\n"));
    }
    all
}

/// Goal: zero leaks over formats × places × exits. Method: every format once at every place, scrubbed as whatever
/// leaves is scrubbed, told to everybody; neither the secret nor 12 characters of it may come out.
#[test]
fn no_secret_in_a_fault_reaches_any_audience() {
    let scrubber = Scrubber::new();
    let (mut formats, mut pairs, mut leaks) = (Vec::new(), 0, Vec::new());
    for secret in secrets() {
        if formats.contains(&secret.format) {
            continue;
        }
        formats.push(secret.format.clone());
        let stretches = secret.stretches();
        for (place, plant) in PLACES {
            for said in exits(&plant(&secret.text).scrub(&scrubber)) {
                pairs += 1;
                if let Some(stretch) = stretches.iter().find(|stretch| said.contains(*stretch)) {
                    leaks.push(format!("{} in {place}: {stretch:?} in {said}", secret.format));
                }
            }
        }
    }
    assert!(leaks.is_empty(), "{} of {pairs}:\n{}", leaks.len(), leaks.join("\n"));
    assert!(formats.len() >= 60 && pairs >= 2_400, "{} formats, {pairs} pairs", formats.len());
    eprintln!("security T6: {} formats, {pairs} pairs of place and exit", formats.len());
}

//! Nobody says that a tool was stopped, or may be called again, without knowing it from the computer that runs it.

use std::process::Child;

use serde_json::Value;

use crate::remote::common::{Fixture, error_of};

const DIALECTS: [&[&str]; 2] = [&[], &["--dialect", "0.2"]];

/// How the call ended: its error, which says that its outcome is unknown.
fn unknown(calling: Child, codes: &[u64]) -> Value {
    let error = error_of(&calling.wait_with_output().unwrap());
    let code = error["code"].as_u64().unwrap_or_default();
    assert!(codes.contains(&code), "{error}");
    let details = &error["details"];
    assert_eq!(details["outcome_unknown"], true, "{error}");
    assert_eq!(details["retryable"], false, "{error}");
    let message = error["message"].as_str().unwrap();
    assert!(
        message.contains("may still be running") && !message.contains("was stopped"),
        "{error}"
    );
    error
}

#[test]
fn a_call_at_a_frozen_computer_has_an_unknown_outcome() {
    for dialect in DIALECTS {
        let Some(fixture) = Fixture::start(dialect) else { return };
        let calling = fixture.begin("frozen", "2");
        fixture.computer.signal("STOP");
        unknown(calling, &[4004]);
        fixture.computer.signal("CONT");
        fixture.the_tool_runs_to_its_end("frozen");
    }
}

#[test]
fn a_call_through_a_frozen_hub_has_an_unknown_outcome() {
    let Some(fixture) = Fixture::start(&[]) else { return };
    let calling = fixture.begin("hub", "2");
    fixture.hub.signal("STOP");
    unknown(calling, &[4004]);
    fixture.the_tool_runs_to_its_end("hub");
    fixture.hub.signal("CONT");
}

#[test]
fn a_tool_that_ignores_the_cancel_is_not_reported_as_stopped() {
    let Some(fixture) = Fixture::start(&[]) else { return };
    // The scripted server reads nothing while its tool is held, so it ignores every cancel.
    let calling = fixture.begin("deaf", "1");
    unknown(calling, &[4004]);
    fixture.the_tool_runs_to_its_end("deaf");
}

#[test]
fn a_call_at_a_killed_computer_is_not_repeatable() {
    for dialect in DIALECTS {
        let Some(fixture) = Fixture::start(dialect) else { return };
        let calling = fixture.begin("killed", "30");
        fixture.computer.signal("KILL");
        unknown(calling, &[404]);
    }
}

#[test]
fn a_call_through_a_killed_hub_is_not_repeatable() {
    let Some(fixture) = Fixture::start(&[]) else { return };
    let calling = fixture.begin("hub gone", "30");
    fixture.hub.signal("KILL");
    unknown(calling, &[4003, 4004, 408]);
    fixture.the_tool_runs_to_its_end("hub gone");
}

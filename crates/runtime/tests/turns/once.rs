//! Calls that are done once in a tenant, whichever session makes them.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use budao_core::{
    Fault, Kind,
    engine::{Engine as _, SessionOptions},
    event::{Answer, CommandBody, Event, SessionId, Settings, Settlement},
    fault::{Operation, Progress},
    tool::{Failure, Mode, Outcome, Permissions},
};
use budao_models::script::Script;
use budao_tools::{RawTool, ToolOptions};
use serde_json::json;

use crate::fixture::{Fixture, Setup};

/// `pay {claim}`: done once for each claim. What the claim is decides how the first payment fails, if it does.
fn pay(paid: &Arc<AtomicU32>) -> RawTool {
    let schema = json!({
        "type": "object", "properties": {"claim": {"type": "string"}}, "required": ["claim"],
    });
    let paid = Arc::clone(paid);
    RawTool::new("pay", "Pays a claim.", schema, move |arguments, _| {
        let before = paid.fetch_add(1, Ordering::SeqCst);
        async move {
            let fails = |progress| {
                let fault = Fault::new(Kind::ToolFailed, Operation::ToolCall);
                Err(Failure { fault: fault.with_progress(progress), data: None, note: None })
            };
            match arguments["claim"].as_str() {
                Some("refused") if before == 0 => fails(Progress::NotBegun),
                Some("unsure") if before == 0 => fails(Progress::Unconfirmed),
                _ => Ok(json!({ "receipt": before + 1 })),
            }
        }
    })
    .options(ToolOptions::default().once("claim"))
}

/// A runtime whose model pays these claims, one a turn.
fn stage(claims: &[&str]) -> (Fixture, Arc<AtomicU32>) {
    let script = claims.iter().fold(Script::new(), |script, claim| {
        script.calls([("pay", json!({ "claim": claim }))]).say("done")
    });
    let paid = Arc::new(AtomicU32::new(0));
    let mut setup = Setup::new(script);
    setup.tools = vec![pay(&paid)];
    (setup.runtime().0, paid)
}

async fn open(stage: &Fixture, tenant: &str) -> SessionId {
    let permissions = Permissions { mode: Mode::Auto, ..Permissions::default() };
    let mut settings = Settings { permissions, ..Settings::default() };
    settings.labels.insert(Settings::TENANT.to_owned(), tenant.to_owned());
    let options = SessionOptions { settings, ..SessionOptions::default() };
    stage.runtime.open(options).await.unwrap()
}

/// Runs one turn and returns the outcome of its call.
async fn turn(stage: &Fixture, session: SessionId) -> Outcome {
    stage.runtime.run(session, "pay").await.unwrap();
    let page = stage.journal.read(session, 0, Default::default()).await.unwrap();
    let ended = page.records.iter().rev().find_map(|stored| match stored.event().unwrap() {
        Event::ToolCallEnded { outcome, .. } => Some(outcome),
        _ => None,
    });
    ended.expect("a call ended")
}

#[tokio::test]
async fn a_key_is_done_once_over_all_sessions_of_a_tenant_and_the_second_is_told() {
    let (stage, paid) = stage(&["7", "7", "7", "8"]);
    let first = turn(&stage, open(&stage, "a").await).await;
    let second = turn(&stage, open(&stage, "a").await).await;
    let (Outcome::Done(first), Outcome::Done(second)) = (first, second) else { panic!("paid") };
    assert_eq!((&first.data, &second.data), (&json!({"receipt": 1}), &json!({"receipt": 1})));
    let note = second.note.unwrap();
    assert!(first.note.is_none() && note.contains("was not done again"), "{note}");
    assert!(turn(&stage, open(&stage, "b").await).await.is_done(), "another tenant");
    assert!(turn(&stage, open(&stage, "a").await).await.is_done(), "another claim");
    assert_eq!(paid.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn an_empty_key_is_refused_and_a_very_long_one_is_a_key() {
    let long = "x".repeat(100_000);
    let (stage, paid) = stage(&["", &long, &long]);
    let session = open(&stage, "a").await;
    let refused = turn(&stage, session).await;
    assert_eq!(refused.fault().unwrap().kind(), Kind::ConstraintViolated);
    assert_eq!(refused.fault().unwrap().progress(), Progress::NotBegun);
    assert!(turn(&stage, session).await.is_done() && turn(&stage, session).await.is_done());
    assert_eq!(paid.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_call_that_did_nothing_gives_its_key_back() {
    let (stage, paid) = stage(&["refused", "refused"]);
    let session = open(&stage, "a").await;
    assert!(!turn(&stage, session).await.is_done());
    assert!(turn(&stage, session).await.is_done());
    assert_eq!(paid.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_call_in_doubt_keeps_its_key_until_a_person_says_that_it_did_not_happen() {
    let (stage, paid) = stage(&["unsure", "unsure", "unsure"]);
    let (one, two) = (open(&stage, "a").await, open(&stage, "a").await);
    assert!(turn(&stage, one).await.fault().unwrap().is_outcome_unknown());
    let refused = turn(&stage, two).await;
    let fault = refused.fault().unwrap();
    assert_eq!((fault.kind(), fault.progress()), (Kind::ToolSaidNo, Progress::NotBegun));
    assert_eq!(paid.load(Ordering::SeqCst), 1);
    let state = stage.runtime.state(one).await.unwrap();
    let call = state.doubts.all_open()[0].call.clone();
    let settlement = Settlement::DidNotHappen;
    let command =
        stage.runtime.command("ada", CommandBody::SettleDoubt { call, settlement, note: None });
    let answer = stage.runtime.submit(one, command).await.unwrap();
    assert!(matches!(answer, Answer::Accepted { .. }));
    // The key follows its record at once, on a task of its own.
    tokio::task::yield_now().await;
    assert!(turn(&stage, two).await.is_done());
    assert_eq!(paid.load(Ordering::SeqCst), 2);
}

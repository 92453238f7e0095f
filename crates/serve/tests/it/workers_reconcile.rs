//! What a worker's next process finds out about a call whose process is gone.

use serde_json::{Value, json};

use crate::{
    fixture::{Client, Fixture},
    workers::{TestWorker, ask, history, is_accepted, limits, pay_with, pays, result, setup},
};

/// A call that its worker claimed before it was gone, and the question that the next process is asked.
async fn question_after_a_lost_worker(fixture: &Fixture) -> (TestWorker, Client, Value, Value) {
    let tools = json!([pay_with("reconcile", true)]);
    let mut worker = TestWorker::offering(fixture, "w-1", tools.clone()).await;
    let (person, _) = ask(fixture).await;
    let first = worker.call().await;
    assert_eq!(first["metadata"]["purpose"], "run");
    assert!(is_accepted(&worker.claim(&first).await));
    drop(worker);
    let mut next = TestWorker::offering(fixture, "w-2", tools).await;
    let question = next.call().await;
    assert_eq!(question["metadata"]["purpose"], "reconcile");
    assert_eq!(question["content"], first["content"]);
    let key = |call: &Value| call["metadata"]["idempotency_key"].clone();
    assert_eq!(key(&question), key(&first), "the question has the key of the call");
    assert!(is_accepted(&next.claim(&question).await));
    (next, person, first, question)
}

#[tokio::test]
async fn a_claimed_call_whose_worker_is_gone_ends_with_the_outcome_that_the_next_process_finds() {
    let fixture = setup(pays(), limits()).open().await;
    let (mut next, mut person, _, question) = question_after_a_lost_worker(&fixture).await;
    let found = json!({ "reconciliation": "happened", "result": { "receipt": 41 } });
    assert!(is_accepted(&next.end(&question, found).await));
    let frames = person.until("agent.final_answer").await;
    let shown = frames.iter().find(|it| it["event"] == "agent.tool_result").unwrap();
    assert_eq!(shown["content"], r#"{"receipt":41}"#);
    let session = question["session_id"].as_str().unwrap();
    let told = history(&fixture, session).await;
    assert!(told.contains("receipt") && !told.contains("unknown"), "{told}");
    let state = fixture.runtime.state(session.parse().unwrap()).await.unwrap();
    assert_eq!(state.doubts.all_open(), &[]);
}

#[tokio::test]
async fn a_claimed_call_that_did_not_happen_is_offered_again() {
    let fixture = setup(pays(), limits()).open().await;
    let (mut next, mut person, first, question) = question_after_a_lost_worker(&fixture).await;
    let found = json!({ "reconciliation": "did_not_happen" });
    assert!(is_accepted(&next.end(&question, found).await));
    let again = next.call().await;
    assert_eq!(again["metadata"]["purpose"], "run");
    assert_eq!(again["metadata"]["idempotency_key"], first["metadata"]["idempotency_key"]);
    assert!(is_accepted(&next.claim(&again).await));
    assert!(is_accepted(&next.end(&again, json!({ "result": "paid" })).await));
    assert_eq!(result(&mut person).await["content"], "paid");
}

#[tokio::test]
async fn a_worker_that_cannot_tell_or_answers_nonsense_leaves_the_outcome_unknown() {
    for answer in [
        json!({ "reconciliation": "cannot_tell" }),
        json!({ "error": { "message": "the ledger is closed" } }),
    ] {
        let fixture = setup(pays(), limits()).open().await;
        let (mut next, mut person, _, question) = question_after_a_lost_worker(&fixture).await;
        let refused = next.end(&question, json!({ "reconciliation": "perhaps" })).await;
        assert_eq!(refused["event"], "error.validation", "{refused}");
        assert!(is_accepted(&next.end(&question, answer.clone()).await), "{answer}");
        let failed = result(&mut person).await;
        assert_eq!(failed["metadata"]["kind"], "outcome_unknown", "{answer}: {failed}");
    }
}

#[tokio::test]
async fn a_question_whose_process_is_gone_too_goes_to_the_next_process() {
    let fixture = setup(pays(), limits()).open().await;
    let (asked, mut person, first, question) = question_after_a_lost_worker(&fixture).await;
    drop(asked);
    let tools = json!([pay_with("reconcile", true)]);
    let mut next = TestWorker::offering(&fixture, "w-3", tools).await;
    let again = next.call().await;
    assert_eq!(again["metadata"]["purpose"], "reconcile");
    assert_eq!(again["step_id"], question["step_id"]);
    assert_eq!(again["metadata"]["idempotency_key"], first["metadata"]["idempotency_key"]);
    assert!(is_accepted(&next.claim(&again).await));
    let found = json!({ "reconciliation": "happened", "result": "paid" });
    assert!(is_accepted(&next.end(&again, found).await));
    assert_eq!(result(&mut person).await["content"], "paid");
}

#[tokio::test]
async fn a_result_in_place_of_a_verdict_proves_that_the_call_happened() {
    let fixture = setup(pays(), limits()).open().await;
    let (mut next, mut person, _, question) = question_after_a_lost_worker(&fixture).await;
    assert!(is_accepted(&next.end(&question, json!({ "result": "paid" })).await));
    assert_eq!(result(&mut person).await["content"], "paid");
}

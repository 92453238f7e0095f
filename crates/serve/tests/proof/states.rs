//! Signed states: good once, for the one they were made for, for as long as they say, under the keys there are.

use std::{sync::Arc, time::Duration};

use budao_core::limits::Limits as CoreLimits;
use budao_journal::{Journal, Memory};
use budao_serve::{Auth, Config, Identity, Keyring};
use serde_json::{Value, json};

use crate::fixture::{Fixture, Peer, Setup, runs};

const ADA: &str = "token-of-ada";
const BOB: &str = "token-of-bob";

fn keys(secrets: &[u8]) -> Keyring {
    Keyring::new(secrets.iter().map(|byte| [*byte; 32])).unwrap()
}

fn journal() -> Arc<dyn Journal> {
    Arc::new(Memory::new(budao_runtime::world::system(), CoreLimits::default()))
}

/// A server for Ada and Bob that signs with these keys.
async fn start(secrets: &[u8], journal: &Arc<dyn Journal>, valid: Duration) -> Fixture {
    let mut auth = Auth::default();
    for (token, user) in [(ADA, "ada"), (BOB, "bob")] {
        let (tenant, user) = ("acme".to_owned(), user.to_owned());
        auth.add_token(token, Identity { tenant, user, is_operator: false, offers: Vec::new() });
    }
    let mut setup = Setup::new(runs(1));
    let limits = setup.config.limits.clone();
    setup.config = Config::new(auth, keys(secrets));
    setup.config.limits = budao_serve::Limits { signed_state: valid, ..limits };
    setup.journal = Some(Arc::clone(journal));
    setup.start().await
}

/// Opens a session as Ada and has its state signed.
async fn signed(stage: &Fixture) -> (Peer, String, String) {
    let mut ada = Peer::connect_as(stage.address, ADA).await;
    let session = ada.create().await;
    let frame = json!({"event": "user.request_state", "session_id": session});
    let exported = ada.ask(frame, "export").await;
    assert_eq!(exported["event"], "agent.state_exported", "{exported}");
    let state = exported["metadata"]["signed_state"].as_str().unwrap().to_owned();
    (ada, session, state)
}

async fn restore(stage: &Fixture, token: &str, state: &str, command: &str) -> Value {
    let mut peer = Peer::connect_as(stage.address, token).await;
    let frame = json!({"event": "user.reconnect_with_state", "signed_state": state});
    peer.ask(frame, command).await
}

fn refused(answer: &Value, code: &str) {
    assert_eq!(answer["event"], "error.validation", "{answer}");
    assert_eq!(answer["metadata"]["error_code"], code, "{answer}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_state_is_good_once_and_repeating_the_command_gives_the_same_answer() {
    let stage = start(&[1], &journal(), Duration::from_secs(60)).await;
    let (_ada, session, state) = signed(&stage).await;
    let first = restore(&stage, ADA, &state, "back").await;
    assert_eq!(first["event"], "agent.state_restored", "{first}");
    assert_eq!(first["session_id"], session.as_str());
    let again = restore(&stage, ADA, &state, "back").await;
    assert_eq!(again["event"], "agent.state_restored", "{again}");
    refused(&restore(&stage, ADA, &state, "replayed").await, "ERR_STATE_003");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tampered_truncated_or_foreign_state_is_refused() {
    let stage = start(&[1], &journal(), Duration::from_secs(60)).await;
    let (_ada, session, state) = signed(&stage).await;
    for at in [0, 10, state.len() / 2, state.len() - 2] {
        let mut bytes = state.clone().into_bytes();
        bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
        let tampered = String::from_utf8(bytes).unwrap();
        refused(&restore(&stage, ADA, &tampered, &format!("t{at}")).await, "ERR_STATE_001");
    }
    for end in [1, state.len() / 2, state.len() - 1] {
        let short = &state[..end];
        refused(&restore(&stage, ADA, short, &format!("s{end}")).await, "ERR_STATE_001");
    }
    let foreign = restore(&stage, BOB, &state, "bob").await;
    assert_eq!(foreign["event"], "error.validation", "{foreign}");
    assert!(!foreign.to_string().contains("acme"), "nothing about whose it is: {foreign}");
    assert!(!state.contains(&session), "opaque");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_state_expires_at_its_time() {
    let stage = start(&[1], &journal(), Duration::from_millis(1)).await;
    let (_ada, _, state) = signed(&stage).await;
    tokio::time::sleep(Duration::from_millis(20)).await;
    refused(&restore(&stage, ADA, &state, "late").await, "ERR_STATE_002");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rotated_key_still_verifies_until_it_is_taken_away() {
    let journal = journal();
    let old = start(&[1], &journal, Duration::from_secs(60)).await;
    let (_ada, _, state) = signed(&old).await;
    let (_again, _, other) = signed(&old).await;
    old.stop().await;
    let rotated = start(&[2, 1], &journal, Duration::from_secs(60)).await;
    let restored = restore(&rotated, ADA, &state, "rotated").await;
    assert_eq!(restored["event"], "agent.state_restored", "{restored}");
    rotated.stop().await;
    let gone = start(&[2], &journal, Duration::from_secs(60)).await;
    refused(&restore(&gone, ADA, &other, "gone").await, "ERR_STATE_001");
    gone.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_of_another_owner_is_as_unknown_as_a_missing_one() {
    let stage = start(&[1], &journal(), Duration::from_secs(60)).await;
    let (_ada, session, _) = signed(&stage).await;
    let mut bob = Peer::connect_as(stage.address, BOB).await;
    let never = "01890000-0000-7000-8000-000000000000";
    let mut answers = Vec::new();
    for (id, session) in [("theirs", session.as_str()), ("never", never)] {
        let frame = json!({"event": "user.message", "session_id": session, "content": "hello"});
        let answer = bob.ask(frame, id).await;
        assert_eq!(answer["event"], "error.validation");
        answers.push(answer["metadata"]["error_code"].clone());
    }
    assert_eq!(answers[0], answers[1]);
    stage.stop().await;
}

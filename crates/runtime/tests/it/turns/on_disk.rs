//! Turns on the SQLite journal: how often a turn waits for the disk, and what a once-key leaves in the files.

use std::{path::Path, time::Duration};

use budao_core::engine::Engine as _;
use budao_journal::{Digest, implement::transfer::TransferredKey, open};
use budao_models::script::Script;
use budao_testkit::{program::until, world};
use budao_tools::{RawTool, ToolOptions};
use serde_json::json;

use crate::turns::fixture::{Fixture, Setup};

/// A session of this script on a journal in this directory.
async fn open_on_disk(directory: &Path, script: Script, tools: Vec<RawTool>) -> Fixture {
    let file = directory.join("journal.db").display().to_string();
    let mut setup = Setup::new(script);
    setup.journal = Some(open(&file, world::seeded(1)).await.unwrap());
    setup.tools = tools;
    setup.open().await
}

/// The four: the user's message with the start of the turn, the start of the call, its outcome with the next step, and the
/// end of the turn. Starts that fall together share one.
#[tokio::test]
async fn a_turn_with_one_call_or_three_waits_for_four_syncs() {
    const TURNS: u64 = 5;
    let echo = |text: &str| ("echo", json!({ "text": text }));
    for calls in [vec![echo("a")], vec![echo("a"), echo("b"), echo("c")]] {
        let directory = tempfile::tempdir().unwrap();
        let script =
            (0..=TURNS).fold(Script::new(), |script, _| script.calls(calls.clone()).say("done"));
        let fixture = open_on_disk(directory.path(), script, Vec::new()).await;
        // The first turn also records what a session records once.
        assert!(fixture.run("go").await.is_ok());
        let before = fixture.journal.load().commits;
        for _ in 0..TURNS {
            assert!(fixture.run("go").await.is_ok());
        }
        let syncs = fixture.journal.load().commits - before;
        assert_eq!(syncs, 4 * TURNS, "{} calls in a turn, {TURNS} turns", calls.len());
    }
}

fn count(bytes: &[u8], part: &[u8]) -> usize {
    bytes.windows(part.len()).filter(|window| *window == part).count()
}

/// A payment whose claim is a secret, on a journal of its own. Returns all bytes of its file, and its once-keys.
async fn pay_with_a_secret(secret: &str, options: ToolOptions) -> (Vec<u8>, Vec<TransferredKey>) {
    let script = Script::new().calls([("pay", json!({ "claim": secret }))]).say("done");
    let schema = json!({
        "type": "object", "required": ["claim"], "properties": { "claim": { "type": "string" } },
    });
    let pay = RawTool::new("pay", "Pays a claim.", schema, |_, _| async { Ok(json!("paid")) });
    let directory = tempfile::tempdir().unwrap();
    let fixture = open_on_disk(directory.path(), script, vec![pay.options(options)]).await;
    assert!(fixture.run("pay").await.is_ok());
    let keys = fixture.journal.transfer().unwrap().once_keys(None, 10).await.unwrap();
    fixture.runtime.shutdown(Duration::from_secs(5)).await;
    fixture.journal.close().await;
    let log = directory.path().join("journal.db-wal");
    until("the last connection writes the log into the file", || !log.exists()).await;
    (std::fs::read(directory.path().join("journal.db")).unwrap(), keys)
}

#[tokio::test]
async fn a_once_key_with_a_secret_in_it_is_stored_as_its_digest_and_nothing_else() {
    // Method: the conversation keeps the arguments as the model wrote them, with and without a key. The key adds its
    // digest to the files, and no copy of the secret.
    let secret = format!("sk-ant-api03-{}AA", "k1X9".repeat(23));
    let (plain, none) = pay_with_a_secret(&secret, ToolOptions::default()).await;
    let (keyed, keys) = pay_with_a_secret(&secret, ToolOptions::default().once("claim")).await;
    assert!(none.is_empty());
    let [key] = &keys[..] else { panic!("one key: {keys:?}") };
    let call = budao_tools::digest::of_call("pay", &json!(secret));
    assert_eq!(key.key, Digest::of(format!("\0{call}").as_bytes()));
    let outcome = key.outcome.as_deref().expect("the call is done");
    assert_eq!(count(outcome, secret.as_bytes()), 0);
    assert!(count(&plain, &key.key.0) == 0 && count(&keyed, &key.key.0) > 0, "it is in the file");
    let copies = count(&plain, secret.as_bytes());
    assert!(copies > 0, "the search finds what the model wrote");
    assert_eq!(count(&keyed, secret.as_bytes()), copies);
}

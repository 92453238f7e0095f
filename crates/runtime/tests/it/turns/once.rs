//! Calls that are done once in a tenant, whichever session makes them.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicU32, Ordering},
};

use budao_core::{
    Fault, Kind,
    engine::{Engine as _, SessionOptions},
    event::{Answer, CommandBody, Event, SessionId, Settings, Settlement},
    fault::{Operation, Progress},
    limits::Limits,
    tool::{Failure, Mode, Outcome, Permissions},
};
use budao_journal::{Digest, Journal, Memory, OnceOwner, OnceSettlement, OnceState};
use budao_models::script::{Script, StepOrder};
use budao_testkit::journal::{InterceptedJournal, Interceptor, JournalCall, Verdict};
use budao_tools::{RawTool, Reconciliation, ToolOptions};
use serde_json::json;

use crate::turns::fixture::{Fixture, Setup};

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

/// Loses this many settlements of keys, as a crash right before each of them does.
#[derive(Debug)]
struct LostSettlements(AtomicU32);

#[async_trait::async_trait]
impl Interceptor for LostSettlements {
    async fn before(&self, call: JournalCall) -> Verdict {
        let left = self.0.load(Ordering::SeqCst);
        if call != JournalCall::SettleOnce || left == 0 {
            return Verdict::Proceed;
        }
        self.0.store(left - 1, Ordering::SeqCst);
        Verdict::Refuse(Fault::new(Kind::DiskFull, Operation::AppendRecords))
    }
}

/// A runtime whose model pays these claims, one a turn.
fn stage(claims: &[&str]) -> (Fixture, Arc<AtomicU32>) {
    stage_that_loses(0, claims)
}

/// As [`stage`], with a journal that loses the first settlements of keys.
fn stage_that_loses(settlements: u32, claims: &[&str]) -> (Fixture, Arc<AtomicU32>) {
    let script = claims.iter().fold(Script::new(), |script, claim| {
        script.calls([("pay", json!({ "claim": claim }))]).say("done")
    });
    let paid = Arc::new(AtomicU32::new(0));
    let mut setup = Setup::new(script);
    let memory = Memory::new(setup.world.clone(), setup.limits.clone());
    let lost = LostSettlements(AtomicU32::new(settlements));
    setup.journal = Some(Arc::new(InterceptedJournal::new(Arc::new(memory), lost)));
    setup.tools = vec![pay(&paid)];
    (setup.runtime().0, paid)
}

async fn settle(stage: &Fixture, session: SessionId, settlement: Settlement) {
    let state = stage.runtime.state(session).await.unwrap();
    let call = state.doubts.all_open()[0].call.clone();
    let body = CommandBody::SettleDoubt { call, settlement, note: None };
    let command = stage.runtime.command("ada", body);
    let answer = stage.runtime.submit(session, command).await.unwrap();
    assert!(matches!(answer, Answer::Accepted { .. }));
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
async fn a_key_is_done_once_for_all_sessions_of_a_tenant_and_the_second_call_gets_the_result() {
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
    let long = "x".repeat(1_000_000);
    let (stage, paid) = stage(&["", &long, &long]);
    let session = open(&stage, "a").await;
    let refused = turn(&stage, session).await;
    assert_eq!(refused.fault().unwrap().kind(), Kind::ConstraintViolated);
    assert_eq!(refused.fault().unwrap().progress(), Progress::NotBegun);
    assert!(turn(&stage, session).await.is_done() && turn(&stage, session).await.is_done());
    assert_eq!(paid.load(Ordering::SeqCst), 1);
}

/// The bound of a model's answer comes before the key.
#[tokio::test]
async fn a_key_of_ten_megabytes_begins_nothing() {
    let (stage, paid) = stage(&[&"x".repeat(10_000_000)]);
    let session = open(&stage, "a").await;
    let result = stage.runtime.run(session, "pay").await.unwrap();
    assert!(result.fault.is_some(), "the answer of the model is refused");
    let page = stage.journal.read(session, 0, Default::default()).await.unwrap();
    let is_start = |event: &Event| matches!(event, Event::ToolCallStarted(_));
    assert!(!page.records.iter().any(|stored| is_start(&stored.event().unwrap())));
    assert_eq!(paid.load(Ordering::SeqCst), 0);
}

/// Keys are stored as digests of what the model sent, so two secrets are two keys though people read the same text.
#[tokio::test]
async fn keys_with_secrets_in_them_stay_apart() {
    let secrets = ["a", "b"].map(|end| format!("sk-ant-api03-{}{end}AA", "k1X9".repeat(23)));
    let (stage, paid) = stage(&[&secrets[0], &secrets[1], &secrets[0]]);
    let session = open(&stage, "a").await;
    for receipt in [1, 2, 1] {
        let Outcome::Done(output) = turn(&stage, session).await else { panic!("paid") };
        assert_eq!(output.data, json!({ "receipt": receipt }));
    }
    assert_eq!(paid.load(Ordering::SeqCst), 2);
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
async fn a_call_in_doubt_keeps_its_key_until_a_person_settles_it_as_not_done() {
    let (stage, paid) = stage(&["unsure", "unsure", "unsure"]);
    let (one, two) = (open(&stage, "a").await, open(&stage, "a").await);
    assert!(turn(&stage, one).await.fault().unwrap().is_outcome_unknown());
    let refused = turn(&stage, two).await;
    let fault = refused.fault().unwrap();
    assert_eq!((fault.kind(), fault.progress()), (Kind::ToolSaidNo, Progress::NotBegun));
    assert_eq!(paid.load(Ordering::SeqCst), 1);
    settle(&stage, one, Settlement::DidNotHappen).await;
    assert!(turn(&stage, two).await.is_done());
    assert_eq!(paid.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_key_whose_settlement_a_crash_prevented_has_the_outcome_that_the_records_have() {
    let (stage, paid) = stage_that_loses(1, &["7", "7", "7"]);
    let (one, two) = (open(&stage, "a").await, open(&stage, "a").await);
    assert!(turn(&stage, one).await.is_done());
    for again in [two, one] {
        let Outcome::Done(output) = turn(&stage, again).await else { panic!("the first outcome") };
        assert_eq!(output.data, json!({ "receipt": 1 }));
    }
    assert_eq!(paid.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn the_decision_of_a_person_holds_for_the_key_after_a_crash() {
    let happened = Settlement::Happened { result: json!("by hand") };
    for (settlement, expected, payments) in [
        (Settlement::DidNotHappen, Some(json!({ "receipt": 2 })), 2),
        (happened, Some(json!("by hand")), 1),
        (Settlement::LeftToModel, None, 1),
    ] {
        let (stage, paid) = stage_that_loses(1, &["unsure", "unsure"]);
        let (one, two) = (open(&stage, "a").await, open(&stage, "a").await);
        assert!(turn(&stage, one).await.fault().unwrap().is_outcome_unknown());
        settle(&stage, one, settlement.clone()).await;
        let again = turn(&stage, two).await;
        let data = match again {
            Outcome::Done(output) => Some(output.data),
            Outcome::Failed(_) => None,
        };
        assert_eq!((data, paid.load(Ordering::SeqCst)), (expected, payments), "{settlement:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_process_that_lost_its_session_cannot_begin_after_the_tool_was_asked() {
    // Goal: a keyed call that its tool reconciles runs once. Method: the first process is stopped during the call and its
    // claim is undone, as if it had not claimed the key yet; it claims while the tool of the second process looks.
    let world = budao_testkit::world::seeded(1);
    let journal: Arc<dyn Journal> = Arc::new(Memory::new(world.clone(), Limits::default()));
    let schema = json!({
        "type": "object", "properties": {"claim": {"type": "string"}}, "required": ["claim"],
    });
    let stale = Arc::new(Mutex::new(None));
    let tool = |blocks: bool| {
        let (journal, stale) = (Arc::clone(&journal), Arc::clone(&stale));
        RawTool::new("pay", "Pays a claim.", schema.clone(), move |_, context| async move {
            if blocks {
                context.cancel.cancelled().await;
                let fault = Fault::new(Kind::Cancelled, Operation::ToolCall);
                return Err(Failure { fault, data: None, note: None });
            }
            Ok(json!("paid"))
        })
        .reconcile(move |_, context| {
            let (journal, stale) = (Arc::clone(&journal), Arc::clone(&stale));
            async move {
                let owner = OnceOwner { session: context.session, call: context.call.clone() };
                let claimed = journal.claim_once(key("pay", "7"), owner, 1).await.unwrap();
                *stale.lock().unwrap() = Some(claimed);
                Ok(Reconciliation::DidNotHappen)
            }
        })
        .options(ToolOptions::default().once("claim"))
    };
    let script = || {
        Script::new()
            .calls([("pay", json!({ "claim": "7" }))])
            .say("done")
            .order(StepOrder::History)
    };
    let setup = |blocks| Setup {
        world: world.clone(),
        journal: Some(Arc::clone(&journal)),
        tools: vec![tool(blocks)],
        ..Setup::new(script())
    };
    let first = setup(true).open().await;
    first.say("pay").await;
    first.until("tool_call_started").await;
    first.runtime.shutdown(std::time::Duration::ZERO).await;
    let state = first.state().await;
    let call = state.turn.unwrap().calls[0].id.clone();
    let owner = OnceOwner { session: first.session, call };
    journal.settle_once(owner, u32::MAX, OnceSettlement::NotDone).await.unwrap();

    let (mut second, _) = setup(false).runtime();
    second.session = first.session;
    second.runtime.recover().await.unwrap();
    second.until("turn_ended").await;
    let stale = stale.lock().unwrap().clone().expect("the tool was asked");
    assert!(matches!(stale, OnceState::Taken { .. }), "{stale:?}");
    assert_eq!(second.state().await.last_text().as_deref(), Some("done"));
}

/// The key of a call of a session without a tenant.
fn key(tool: &str, value: &str) -> Digest {
    let call = budao_tools::digest::of_call(tool, &json!(value));
    Digest::of(format!("\0{call}").as_bytes())
}

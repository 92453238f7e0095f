//! Models, tools, disks and other processes that misbehave.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use budao_core::{
    Kind,
    engine::{Engine, SessionOptions},
    event::{Answer, Command, CommandBody, CommandId, Event, SessionId, StopReason},
    limits::Limits,
    message::Block,
    session::{SessionState, unpaired},
    trace::Trace,
};
use budao_journal::{IfMissing, Journal, LeaseRequest, Memory};
use budao_models::script::{Ending, Script, ScriptStep};
use budao_runtime::Runtime;
use budao_testkit::world;
use budao_tools::{RawTool, ToolOptions};
use serde_json::json;
use tokio::{sync::Semaphore, time::Instant};

use crate::turns::{
    failing::{self, Failing},
    fixture::{Fixture, Setup, fault_of},
};

fn nothing() -> serde_json::Value {
    json!({"type": "object", "properties": {}, "additionalProperties": false})
}

/// What became of every call, in order: `None` is well.
async fn outcomes(stage: &Fixture) -> Vec<Option<Kind>> {
    let records = stage.records().await;
    let ended = records.iter().filter_map(|record| match &record.event {
        Event::ToolCallEnded { outcome, .. } => Some(outcome.fault().map(budao_core::Fault::kind)),
        _ => None,
    });
    ended.collect()
}

#[tokio::test(start_paused = true)]
async fn ten_megabytes_of_answer_end_the_turn_and_not_the_session() {
    let mut step = ScriptStep::new();
    for _ in 0..160 {
        step = step.text("x".repeat(64 * 1024));
    }
    let stage = Setup::new(Script::new().step(step).say("short").forever()).open().await;
    let result = stage.run("go").await;
    assert_eq!(result.stop, Some(StopReason::Failed));
    assert_eq!(fault_of(&result).kind(), Kind::LimitReached);
    assert_eq!(stage.model.asked(), 1, "what is too long is not asked for again");
    assert_eq!(stage.count("answer_abandoned").await, 1, "what was shown is marked");
    assert_eq!(unpaired(&stage.state().await.history, 0), None);
    assert_eq!(stage.state().await.state(), SessionState::Failed);
}

#[tokio::test(start_paused = true)]
async fn a_call_of_ten_megabytes_never_runs() {
    let arguments = json!({"text": "x".repeat(10 << 20)}).to_string();
    let step = ScriptStep::new().call_raw(None, "echo", arguments);
    let stage = Setup::new(Script::new().step(step).say("short").forever()).open().await;
    let result = stage.run("go").await;
    assert_eq!(fault_of(&result).kind(), Kind::LimitReached);
    assert_eq!(stage.count("tool_call_started").await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_model_that_only_calls_tools_ends_after_its_steps() {
    let mut setup = Setup::new(Script::new().call("touch", json!({})).forever());
    setup.limits.steps = 10;
    let stage = setup.open().await;
    let result = stage.run("go").await;
    assert_eq!(result.stop, Some(StopReason::MaxTurnRequests));
    assert!(stage.model.asked() <= 10, "{}", stage.model.asked());
    assert_eq!(unpaired(&stage.state().await.history, 0), None);
}

/// A tool that breaks the journal while it runs, then succeeds.
async fn breaking(kind: Kind, times: u32, script: Script) -> (Fixture, Arc<Failing>) {
    let mut setup = Setup::new(script);
    let memory = Arc::new(Memory::new(setup.world.clone(), setup.limits.clone()));
    let failing = failing::wrap(memory);
    let inside = Arc::clone(&failing);
    setup.journal = Some(Arc::clone(&failing) as Arc<dyn Journal>);
    setup.tools.push(RawTool::new("break", "Breaks.", nothing(), move |_, _| {
        inside.interceptor.fail(kind, times);
        async move { Ok(json!("effect")) }
    }));
    (setup.open().await, failing)
}

#[tokio::test(start_paused = true)]
async fn a_journal_that_fails_once_costs_no_outcome() {
    for kind in [Kind::JournalBusy, Kind::SyncFailed, Kind::DiskFull] {
        let script = Script::new().call("break", json!({})).say("done");
        let (stage, _) = breaking(kind, 1, script).await;
        let result = stage.run("go").await;
        assert_eq!(result.text, "done", "{kind:?}: {result:?}");
        assert_eq!(outcomes(&stage).await, [None], "{kind:?}: kept, not sealed");
        assert_eq!(stage.count("session_resumed").await, 0, "{kind:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_full_disk_fails_the_turn_and_loses_nothing() {
    for times in [2, 3, 7, 40] {
        let script = Script::new().call("break", json!({})).say("later").forever();
        let (stage, failing) = breaking(Kind::DiskFull, times, script).await;
        let run = tokio::time::timeout(Duration::from_secs(3600), stage.run("go"));
        let result = run.await.expect("a turn always ends");
        assert_eq!(failing.interceptor.left(), 0, "{times}");
        // It had run when there was no room to say so: one outcome, and it is said to be unknown.
        assert_eq!(outcomes(&stage).await, [Some(Kind::OutcomeUnknown)], "{times}");
        match &result.fault {
            Some(fault) => assert_eq!(fault.kind(), Kind::DiskFull, "{times}"),
            // Nobody could even say that it failed; it goes on when there is room.
            None => assert!(times > 10 && result.is_ok(), "{times}: {result:?}"),
        }
        let state = stage.state().await;
        assert_eq!(unpaired(&state.history, 0), None, "{times}");
        assert_eq!(stage.run("again").await.text, "later", "{times}: the next turn works");
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_that_cannot_be_saved_is_refused_and_can_be_sent_again() {
    let script = Script::new().say("heard");
    let (stage, failing) = breaking(Kind::DiskFull, 0, script).await;
    failing.interceptor.fail(Kind::DiskFull, 2);
    let fault = stage.runtime.run(stage.session, "lost?").await.unwrap_err();
    assert_eq!(fault.kind(), Kind::DiskFull);
    assert_eq!(stage.run("again").await.text, "heard");
    assert_eq!(stage.count("message_accepted").await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_waits_for_its_own_session_ends_by_its_deadline() {
    let place: Arc<OnceLock<(Runtime, SessionId)>> = Arc::default();
    let inside = Arc::clone(&place);
    let mut setup = Setup::new(Script::new().call("again", json!({})).say("outer").say("inner"));
    setup.tools.push(
        RawTool::new("again", "Asks its own session.", nothing(), move |_, _| {
            let (runtime, session) = inside.get().expect("set").clone();
            async move {
                let result = runtime.run(session, "from inside").await.expect("accepted");
                Ok(json!(result.text))
            }
        })
        .options(ToolOptions::default().deadline(Duration::from_secs(10))),
    );
    let stage = setup.open().await;
    place.set((stage.runtime.clone(), stage.session)).unwrap();
    let before = Instant::now();
    assert_eq!(stage.run("go").await.text, "outer");
    assert!(before.elapsed() < Duration::from_secs(60), "{:?}", before.elapsed());
    assert_eq!(outcomes(&stage).await, [Some(Kind::DeadlinePassed)]);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(stage.count("turn_ended").await, 2, "what was asked from inside is answered too");
    assert_eq!(stage.state().await.last_text().as_deref(), Some("inner"));
}

/// `held {}`: counts itself, then waits for room to go on or to be stopped.
fn held(begun: &Arc<AtomicU32>, go: &Arc<Semaphore>) -> RawTool {
    let (begun, go) = (Arc::clone(begun), Arc::clone(go));
    RawTool::new("held", "Waits.", nothing(), move |_, context| {
        begun.fetch_add(1, Ordering::SeqCst);
        let go = Arc::clone(&go);
        async move {
            tokio::select! {
                permit = go.acquire() => permit.unwrap().forget(),
                () = context.cancel.cancelled() => {}
            }
            Ok(json!("effect"))
        }
    })
    .options(ToolOptions::default().deadline(Duration::from_secs(3600)))
}

#[tokio::test(start_paused = true)]
async fn a_command_that_comes_again_does_not_disturb_a_running_call() {
    let (begun, go) = (Arc::default(), Arc::new(Semaphore::new(0)));
    let mut setup = Setup::new(Script::new().call("held", json!({})).say("done").forever());
    setup.tools.push(held(&begun, &go));
    let stage = setup.open().await;
    let message = |id: &str| Command {
        id: CommandId::from(id),
        by: "ada".into(),
        trace: Trace::NONE,
        body: CommandBody::Message { content: vec![Block::Text("go".into())] },
    };
    let first = stage.runtime.submit(stage.session, message("mine")).await.unwrap();
    stage.until("tool_call_started").await;
    // More commands than are remembered, so that the journal must be asked.
    for other in 0..100 {
        let id = format!("other-{other}");
        stage.runtime.submit(stage.session, message(&id)).await.unwrap();
    }
    for _ in 0..3 {
        let again = stage.runtime.submit(stage.session, message("mine")).await.unwrap();
        assert_eq!(again, first);
    }
    go.add_permits(1);
    stage.until("turn_ended").await;
    assert_eq!(begun.load(Ordering::SeqCst), 1, "the call ran once");
    assert_eq!(outcomes(&stage).await[0], None, "and to its end");
    assert_eq!(stage.count("session_resumed").await, 0);
}

#[tokio::test(start_paused = true)]
async fn calls_that_wait_for_room_when_the_turn_is_cancelled_never_run() {
    let (begun, go) = (Arc::<AtomicU32>::default(), Arc::new(Semaphore::new(0)));
    let calls = (0..20).map(|_| ("held", json!({})));
    let mut setup = Setup::new(Script::new().calls(calls).say("next"));
    setup.limits.parallel_calls = 8;
    setup.tools.push(held(&begun, &go));
    let stage = setup.open().await;
    stage.say("go").await;
    stage.until("tool_call_started").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(begun.load(Ordering::SeqCst), 8);
    stage.submit(CommandBody::Cancel { reason: None }).await;
    stage.until("turn_ended").await;
    assert_eq!(begun.load(Ordering::SeqCst), 8, "those that waited never ran");
    let ended = outcomes(&stage).await;
    assert_eq!(ended.len(), 20);
    let state = stage.state().await;
    assert_eq!(state.last.as_ref().unwrap().stop, StopReason::Cancelled);
    assert_eq!(unpaired(&state.history, 0), None);
    assert_eq!(stage.run("again").await.text, "next");
}

/// A second runtime on the journal of the first, with a name of its own.
fn neighbour(first: &Fixture, script: Script) -> Fixture {
    let mut setup = Setup::new(script);
    setup.world.clock = Arc::clone(&first.runtime.world().clock);
    setup.world.entropy = world::seeded(2).entropy;
    setup.journal = Some(Arc::clone(&first.journal));
    Fixture { session: first.session, ..setup.runtime().0 }
}

#[tokio::test(start_paused = true)]
async fn commands_to_a_session_of_a_living_neighbour_go_through_its_inbox() {
    let step = ScriptStep::new().text("a long").pause(Duration::from_secs(3600)).text(" story");
    let first = Setup::new(Script::new().step(step).say("by the first")).open().await;
    let second = neighbour(&first, Script::new().say("by the second").forever());
    first.say("tell").await;
    first.until("text_delta").await;
    // Longer than a lease: the living one renews it.
    tokio::time::sleep(Duration::from_secs(40)).await;
    let answer = second.submit(CommandBody::Cancel { reason: None }).await;
    assert!(matches!(answer, Answer::Accepted { .. }), "{answer:?}");
    first.until("turn_ended").await;
    assert_eq!(second.run("and now?").await.text, "by the first");
    assert_eq!(second.model.asked(), 0);
}

#[tokio::test(start_paused = true)]
async fn the_lease_of_a_dead_neighbour_is_taken_over_when_it_has_run_out() {
    let first = Setup::new(Script::new()).open().await;
    let second = neighbour(&first, Script::new().say("by the second"));
    // Unloaded; then another process takes the session and dies.
    tokio::time::sleep(Duration::from_secs(60)).await;
    let ttl = Limits::default().lease;
    let request = LeaseRequest {
        session: first.session,
        holder: "dead".into(),
        ttl,
        if_missing: IfMissing::Refuse,
        dead_holder: None,
    };
    first.journal.take_lease(request).await.unwrap();
    let before = Instant::now();
    assert_eq!(second.run("anybody?").await.text, "by the second");
    let waited = before.elapsed();
    assert!(waited >= ttl && waited < ttl + Duration::from_secs(10), "{waited:?}");
    assert_eq!(second.count("message_accepted").await, 1);
}

/// A session whose lease was taken and that was never opened, and a message in its inbox.
async fn never_opened(stage: &Fixture) -> (SessionId, CommandId) {
    let session = SessionId(stage.runtime.world().uuid());
    let request = LeaseRequest {
        session,
        holder: "dead".into(),
        ttl: Limits::default().lease,
        if_missing: IfMissing::Create,
        dead_holder: None,
    };
    let lease = stage.journal.take_lease(request).await.unwrap();
    stage.journal.release(&lease).await.unwrap();
    let content = vec![Block::Text("anybody?".into())];
    let command = stage.runtime.command("ann", CommandBody::Message { content });
    let id = command.id.clone();
    stage.journal.submit(session, command).await.unwrap();
    (session, id)
}

/// The answer, which comes at once.
async fn answered_at_once(stage: &Fixture, session: SessionId, command: &CommandId) -> Answer {
    let answer = stage.journal.await_answer(session, command);
    tokio::time::timeout(Duration::from_secs(1), answer).await.expect("at once").unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_command_to_a_session_that_was_never_opened_is_rejected_when_the_session_is_touched() {
    let stage = Setup::new(Script::new().say("unheard")).open().await;
    let (session, command) = never_opened(&stage).await;
    stage.runtime.touch(session);
    let answer = answered_at_once(&stage, session, &command).await;
    let Answer::Rejected { fault } = answer else { panic!("{answer:?}") };
    assert_eq!(fault.kind(), Kind::UnknownSession);
}

#[tokio::test(start_paused = true)]
async fn a_command_that_came_before_the_opening_is_answered_after_it() {
    let stage = Setup::new(Script::new().say("welcome")).open().await;
    let (session, command) = never_opened(&stage).await;
    let opening = SessionOptions { session: Some(session), ..SessionOptions::default() };
    stage.runtime.open(opening).await.unwrap();
    let answer = answered_at_once(&stage, session, &command).await;
    assert!(matches!(answer, Answer::Accepted { .. }), "{answer:?}");
    assert_eq!(stage.runtime.wait(session, &command).await.unwrap().text, "welcome");
}

#[tokio::test(start_paused = true)]
async fn a_journal_that_fails_for_long_never_gives_a_call_two_outcomes() {
    let (begun, go) = (Arc::<AtomicU32>::default(), Arc::new(Semaphore::new(0)));
    let mut setup = Setup::new(Script::new().call("held", json!({})).say("done").forever());
    let failing = failing::wrap(Arc::new(Memory::new(setup.world.clone(), setup.limits.clone())));
    setup.journal = Some(Arc::clone(&failing) as Arc<dyn Journal>);
    setup.tools.push(held(&begun, &go));
    let stage = setup.open().await;
    stage.say("go").await;
    stage.until("tool_call_started").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    failing.interceptor.fail(Kind::JournalBusy, 6);
    let fault = stage.runtime.run(stage.session, "meanwhile").await.unwrap_err();
    assert_eq!(fault.kind(), Kind::JournalBusy);
    go.add_permits(1);
    stage.until("turn_ended").await;
    assert_eq!(begun.load(Ordering::SeqCst), 1, "an effect is not repeated");
    assert_eq!(outcomes(&stage).await.len(), 1);
    assert_eq!(unpaired(&stage.state().await.history, 0), None);
    assert_eq!(stage.run("again").await.text, "done");
}

#[tokio::test(start_paused = true)]
async fn two_calls_with_one_id_both_run_and_both_are_answered() {
    let step = ScriptStep::new()
        .call_raw(Some("same".into()), "echo", r#"{"text":"one"}"#)
        .call_raw(Some("same".into()), "echo", r#"{"text":"two"}"#);
    let stage = Setup::new(Script::new().step(step).say("done")).open().await;
    assert_eq!(stage.run("go").await.text, "done");
    assert_eq!(outcomes(&stage).await.len(), 2);
    let requests = stage.model.requests();
    let told = serde_json::to_string(&*requests[1].messages).unwrap();
    assert!(told.contains("one") && told.contains("two"), "{told}");
    assert_eq!(unpaired(&requests[1].messages, 0), None);
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_never_returns_ends_by_its_deadline_and_the_next_message_is_answered() {
    let mut setup = Setup::new(Script::new().call("never", json!({})).say("one").say("two"));
    let never = RawTool::new("never", "Never returns.", nothing(), |_, _| std::future::pending());
    setup.tools.push(never.options(ToolOptions::default().deadline(Duration::from_millis(200))));
    let stage = setup.open().await;
    let before = Instant::now();
    assert_eq!(stage.run("go").await.text, "one");
    assert!(before.elapsed() < Duration::from_secs(10), "{:?}", before.elapsed());
    assert_eq!(outcomes(&stage).await, [Some(Kind::DeadlinePassed)]);
    assert_eq!(stage.run("again").await.text, "two");
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_ignores_being_stopped_has_one_outcome_and_its_late_answer_is_dropped() {
    let mut setup = Setup::new(Script::new().call("deaf", json!({})).say("next"));
    let deaf = RawTool::new("deaf", "Hears nothing.", nothing(), |_, _| async move {
        tokio::time::sleep(Duration::from_secs(50)).await;
        Ok(json!("late"))
    });
    setup.tools.push(deaf);
    let stage = setup.open().await;
    stage.say("go").await;
    stage.until("tool_call_started").await;
    let before = Instant::now();
    stage.submit(CommandBody::Cancel { reason: None }).await;
    stage.until("turn_ended").await;
    assert!(before.elapsed() < Duration::from_secs(10), "{:?}", before.elapsed());
    tokio::time::sleep(Duration::from_secs(100)).await;
    let ended = outcomes(&stage).await;
    assert!(ended.len() == 1 && ended[0].is_some(), "{ended:?}");
    assert_eq!(stage.run("again").await.text, "next");
}

#[tokio::test(start_paused = true)]
async fn twenty_megabytes_of_output_reach_the_model_as_their_head_and_tail() {
    let mut setup = Setup::new(Script::new().call("huge", json!({})).say("done"));
    let limit = setup.limits.output_bytes;
    setup.tools.push(RawTool::new("huge", "Says much.", nothing(), |_, _| async move {
        Ok(json!("x".repeat(20 << 20)))
    }));
    let stage = setup.open().await;
    assert_eq!(stage.run("go").await.text, "done");
    let told = stage.last_result().to_string().len();
    assert!(told < 2 * limit, "{told}");
}

#[tokio::test(start_paused = true)]
async fn cancel_ends_a_stream_that_stalls() {
    let stall = ScriptStep::new().text("wait").end(Ending::Stall);
    let stage = Setup::new(Script::new().step(stall).say("next")).open().await;
    stage.say("go").await;
    stage.until("text_delta").await;
    let before = Instant::now();
    stage.submit(CommandBody::Cancel { reason: None }).await;
    stage.until("turn_ended").await;
    assert!(before.elapsed() < Duration::from_secs(1), "{:?}", before.elapsed());
    assert_eq!(stage.run("again").await.text, "next");
}

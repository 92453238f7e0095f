//! What every session may rely on.

use std::{sync::Arc, sync::atomic::Ordering, time::Duration};

use budao_core::{
    Fault, Kind,
    engine::{Engine, SessionOptions},
    event::{
        Answer, Command, CommandBody, CommandId, Decision, Event, SessionId, Settings, StopReason,
    },
    fault::Operation,
    message::Block,
    session::{SessionState, unpaired},
    tool::{Failure, Mode, Permissions},
    trace::Trace,
};
use budao_journal::{Append, Entry, IfMissing, LeaseRequest};
use budao_models::script::{Script, ScriptStep, StepOrder};
use budao_tools::RawTool;
use serde_json::json;

use crate::turns::fixture::{Setup, fault_of};

#[tokio::test(start_paused = true)]
async fn a_message_is_answered() {
    let stage = Setup::new(Script::new().say("hello")).open().await;
    let result = stage.run("hi").await;
    assert!(result.is_ok(), "{result:?}");
    assert_eq!(result.text, "hello");
    assert_eq!(stage.state().await.state(), SessionState::Idle);
}

#[tokio::test(start_paused = true)]
async fn a_tool_is_called_and_its_answer_reaches_the_model() {
    let script = Script::new().call("echo", json!({"text": "ping"})).say("it said ping");
    let stage = Setup::new(script).open().await;
    let result = stage.run("go").await;
    assert_eq!(result.text, "it said ping");
    assert_eq!(stage.last_result(), json!({"ok": true, "data": "ping"}));
}

#[tokio::test(start_paused = true)]
async fn a_model_that_errs_gets_advice_how_to_correct_itself() {
    let script = Script::new()
        .call("echo", json!({"txt": "ping"}))
        .call("echo", json!({"text": "ping"}))
        .say("done");
    let stage = Setup::new(script).open().await;
    let result = stage.run("go").await;
    assert!(result.is_ok(), "{result:?}");
    let requests = stage.model.requests();
    let told = serde_json::to_string(&*requests[1].messages).unwrap();
    assert!(told.contains("did you mean `text`"), "{told}");
    assert!(told.contains("validation"), "{told}");
}

#[tokio::test(start_paused = true)]
async fn two_messages_at_once_are_both_answered_in_order() {
    let stage = Setup::new(Script::new().say("first").say("second")).open().await;
    let (one, two) = tokio::join!(stage.run("one"), stage.run("two"));
    let texts = [one.text, two.text];
    assert!(texts == ["first", "second"] || texts == ["second", "first"], "{texts:?}");
    assert_eq!(stage.count("turn_ended").await, 2);
}

#[tokio::test(start_paused = true)]
async fn the_same_command_has_one_effect_and_one_answer() {
    let stage = Setup::new(Script::new().say("once").say("twice")).open().await;
    let body = CommandBody::Message { content: vec![Block::Text("hi".into())] };
    let id = CommandId::from("mine-1");
    let command = Command { id, by: "ada".into(), trace: Trace::NONE, body };
    let first = stage.runtime.submit(stage.session, command.clone()).await.unwrap();
    for _ in 0..3 {
        let again = stage.runtime.submit(stage.session, command.clone()).await.unwrap();
        assert_eq!(again, first);
    }
    stage.until("turn_ended").await;
    assert_eq!(stage.count("message_accepted").await, 1);
    // Also when the session was evicted meanwhile.
    tokio::time::sleep(Duration::from_secs(60)).await;
    let again = stage.runtime.submit(stage.session, command.clone()).await.unwrap();
    assert_eq!(again, first);
    assert_eq!(stage.count("message_accepted").await, 1);
    let other = CommandBody::Message { content: vec![Block::Text("something else".into())] };
    let fault = stage.runtime.submit(stage.session, Command { body: other, ..command }).await;
    assert!(fault.is_err() || fault == Ok(first), "never a second effect");
    assert_eq!(stage.count("message_accepted").await, 1);
}

#[tokio::test(start_paused = true)]
async fn an_unknown_session_is_a_fault_not_a_new_session() {
    let (stage, _) = Setup::new(Script::new()).runtime();
    let body = CommandBody::Cancel { reason: None };
    let command = stage.runtime.command("ada", body);
    let fault = stage.runtime.submit(stage.session, command).await.unwrap_err();
    assert_eq!(fault.kind(), Kind::UnknownSession);
}

#[tokio::test(start_paused = true)]
async fn cancel_stops_a_model_and_marks_what_was_shown() {
    let step = ScriptStep::new().text("a long").pause(Duration::from_secs(3600)).text(" story");
    let stage = Setup::new(Script::new().step(step).say("next")).open().await;
    stage.say("tell").await;
    stage.until("text_delta").await;
    stage.submit(CommandBody::Cancel { reason: None }).await;
    stage.until("turn_ended").await;
    assert_eq!(stage.count("answer_abandoned").await, 1);
    assert_eq!(stage.state().await.last.unwrap().stop, StopReason::Cancelled);
    assert_eq!(stage.run("again").await.text, "next");
}

#[tokio::test(start_paused = true)]
async fn cancel_stops_running_calls_and_waits_for_them() {
    let script = Script::new().calls([("slow", json!({})), ("slow", json!({}))]).say("never");
    let stage = Setup::new(script).open().await;
    stage.say("go").await;
    stage.until("tool_call_started").await;
    stage.submit(CommandBody::Cancel { reason: None }).await;
    stage.until("turn_ended").await;
    let state = stage.state().await;
    assert_eq!(state.last.unwrap().stop, StopReason::Cancelled);
    assert_eq!(stage.count("tool_call_ended").await, 2);
    assert_eq!(unpaired(&state.history, 0), None);
}

#[tokio::test(start_paused = true)]
async fn cancelling_an_idle_session_swallows_nothing() {
    let stage = Setup::new(Script::new().say("here")).open().await;
    stage.submit(CommandBody::Cancel { reason: None }).await;
    assert_eq!(stage.run("still there?").await.text, "here");
}

#[tokio::test(start_paused = true)]
async fn a_question_pauses_the_turn_and_survives_eviction() {
    let script = Script::new().call("touch", json!({})).say("done");
    let mut setup = Setup::new(script);
    setup.permissions = Permissions { mode: Mode::Approval, ..Permissions::default() };
    let stage = setup.open().await;
    let paused = stage.run("go").await;
    assert_eq!(paused.stop, None);
    assert_eq!(paused.pending.len(), 1);
    assert_eq!(stage.touched.load(Ordering::SeqCst), 0);
    let answer = stage.decide(&paused.pending[0].id, Decision::Allow).await;
    assert!(matches!(answer, Answer::Accepted { .. }), "{answer:?}");
    stage.until("turn_ended").await;
    assert_eq!(stage.touched.load(Ordering::SeqCst), 1);
    let answer = stage.decide(&paused.pending[0].id, Decision::Allow).await;
    assert!(matches!(answer, Answer::Rejected { .. }), "answered once: {answer:?}");
}

#[tokio::test(start_paused = true)]
async fn a_denied_call_never_runs_and_the_note_reaches_the_model() {
    let script = Script::new().call("touch", json!({})).say("understood");
    let mut setup = Setup::new(script);
    setup.permissions = Permissions { mode: Mode::Approval, ..Permissions::default() };
    let stage = setup.open().await;
    let paused = stage.run("go").await;
    stage.decide(&paused.pending[0].id, Decision::Deny).await;
    stage.until("turn_ended").await;
    assert_eq!(stage.touched.load(Ordering::SeqCst), 0);
    let told = stage.last_result();
    assert_eq!(told["errorType"], "aborted");
    assert!(told.to_string().contains("my reason"), "{told}");
}

#[tokio::test(start_paused = true)]
async fn an_unanswered_question_expires() {
    let script = Script::new().call("touch", json!({})).say("gave up");
    let mut setup = Setup::new(script);
    setup.permissions = Permissions { mode: Mode::Approval, ..Permissions::default() };
    let stage = setup.open().await;
    stage.run("go").await;
    stage.until("turn_ended").await;
    assert_eq!(stage.count("question_expired").await, 1);
    assert_eq!(stage.touched.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn a_tool_on_the_deny_list_is_denied_and_the_turn_goes_on() {
    let script = Script::new().call("touch", json!({})).say("fine");
    let mut setup = Setup::new(script);
    setup.permissions.deny = vec!["touch".into()];
    let stage = setup.open().await;
    assert_eq!(stage.run("go").await.text, "fine");
    assert_eq!(stage.touched.load(Ordering::SeqCst), 0);
    assert_eq!(stage.last_result()["errorType"], "aborted");
}

#[tokio::test(start_paused = true)]
async fn an_idle_session_is_evicted_and_comes_back_when_touched() {
    let stage = Setup::new(Script::new().say("one").say("two")).open().await;
    stage.run("1").await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(stage.runtime.loaded(), 0);
    assert_eq!(stage.run("2").await.text, "two");
    assert_eq!(stage.state().await.turns, 2);
}

#[tokio::test(start_paused = true)]
async fn a_failing_turn_returns_its_fault_to_its_caller() {
    let stage = Setup::new(Script::new().fail(Kind::ModelBadRequest)).open().await;
    let result = stage.run("go").await;
    assert_eq!(result.stop, Some(StopReason::Failed));
    assert_eq!(fault_of(&result).kind(), Kind::ModelBadRequest);
    assert!(fault_of(&result).trace().is_some(), "a fault has a trace");
    assert_eq!(fault_of(&result).trace(), result.trace);
}

#[tokio::test(start_paused = true)]
async fn shutdown_parks_a_turn_and_the_next_runtime_finishes_it() {
    let step = ScriptStep::new().pause(Duration::from_secs(3600)).text("late");
    let first = Setup::new(Script::new().step(step)).open().await;
    first.say("go").await;
    first.until("step_started").await;
    first.runtime.shutdown(Duration::from_secs(1)).await;
    assert_eq!(first.count("turn_ended").await, 0);

    let mut setup = Setup::new(Script::new().say("finished"));
    setup.journal = Some(std::sync::Arc::clone(&first.journal));
    let (second, _) = setup.runtime();
    assert_eq!(second.runtime.recover().await.unwrap(), 1);
    first.until("turn_ended").await;
    assert_eq!(first.state().await.last_text().as_deref(), Some("finished"));
}

#[tokio::test(start_paused = true)]
async fn an_id_that_comes_again_for_something_else_is_refused() {
    let stage = Setup::new(Script::new()).open().await;
    let note = |data: u32| Command {
        id: "once".into(),
        by: "ada".into(),
        trace: Trace::NONE,
        body: CommandBody::Annotate { topic: "test".into(), data: data.into() },
    };
    let first = stage.runtime.submit(stage.session, note(1)).await.unwrap();
    assert_eq!(stage.runtime.submit(stage.session, note(1)).await.unwrap(), first);
    let fault = stage.runtime.submit(stage.session, note(2)).await.unwrap_err();
    assert_eq!(fault.kind(), Kind::CommandRepeated);
    assert_eq!(stage.count("annotated").await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_session_that_is_set_to_think_asks_its_model_to() {
    let stage = Setup::new(Script::new().say("one").say("two")).open().await;
    stage.run("quickly").await;
    let thinking = Some(budao_core::event::Thinking::Medium);
    let settings = budao_core::event::Settings { thinking, ..stage.state().await.settings };
    stage.submit(CommandBody::Settings { settings: Box::new(settings), before: None }).await;
    stage.run("now think").await;
    let asked: Vec<_> =
        stage.model.requests().iter().map(|request| request.thinking_tokens).collect();
    assert_eq!(asked, [None, Some(8_192)]);
}

#[tokio::test(start_paused = true)]
async fn changes_of_different_settings_at_the_same_moment_do_not_undo_each_other() {
    let stage = Setup::new(Script::new().say("one")).open().await;
    let before = stage.state().await.settings;
    let title = Settings { title: Some("new".into()), ..before.clone() };
    let schema = serde_json::json!({"type": "string"});
    let shaped = Settings { answer_schema: Some(Arc::new(schema)), ..before.clone() };
    for settings in [&title, &shaped] {
        let (settings, before) = (Box::new(settings.clone()), Some(Box::new(before.clone())));
        stage.submit(CommandBody::Settings { settings, before }).await;
    }
    let after = stage.state().await.settings;
    assert_eq!(after, Settings { title: title.title, ..shaped.clone() });
    let (settings, before) = (Box::new(before), Some(Box::new(shaped)));
    stage.submit(CommandBody::Settings { settings, before }).await;
    assert_eq!(stage.state().await.settings, Settings { answer_schema: None, ..after });
}

#[tokio::test(start_paused = true)]
async fn a_session_of_another_engine_is_left_to_it() {
    let (stage, _) = Setup::new(Script::new().say("mine")).runtime();
    let session = SessionId(uuid::Uuid::from_u128(7));
    let labels = [(Settings::ENGINE.to_owned(), "claude".to_owned())].into();
    let settings = Settings { labels, ..Settings::default() };
    let request = LeaseRequest {
        session,
        holder: "another engine".into(),
        ttl: Duration::from_secs(15),
        if_missing: IfMissing::Create,
        dead_holder: None,
    };
    let lease = stage.journal.take_lease(request).await.unwrap();
    let opened = Event::SessionOpened { settings: settings.clone(), origin: None };
    let content = vec![Block::Text("hi".into())];
    let accepted = Event::MessageAccepted { command: "theirs".into(), content };
    let at = stage.runtime.world().clock.now();
    let entry = |event| Entry { at, trace: Trace::NONE, turn: 0, event: Arc::new(event) };
    let append = Append::new(&lease, 0, vec![entry(opened), entry(accepted)]);
    stage.journal.append(append).await.unwrap();
    stage.journal.release(&lease).await.unwrap();

    assert_eq!(stage.runtime.recover().await.unwrap(), 0);
    stage.runtime.touch(session);
    tokio::time::sleep(Duration::from_secs(60)).await;
    let info = stage.journal.info(session).await.unwrap().unwrap();
    assert_eq!((info.head, info.lease), (2, None));

    let opening = SessionOptions { settings, ..SessionOptions::default() };
    let fault = stage.runtime.open(opening).await.unwrap_err();
    assert_eq!(fault.kind(), Kind::ConfigurationWrong);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_only_a_shutdown_stops_is_left_to_the_next_writer() {
    let script = || Script::new().call("stuck", json!({})).say("done").order(StepOrder::History);
    let nothing = json!({"type": "object", "properties": {}, "additionalProperties": false});
    let stuck =
        RawTool::new("stuck", "Fails when it is stopped.", nothing, |_, context| async move {
            context.cancel.cancelled().await;
            let fault = Fault::new(Kind::ToolFailed, Operation::ToolCall);
            Err(Failure { fault, data: None, note: None })
        });
    let first = Setup { tools: vec![stuck], ..Setup::new(script()) }.open().await;
    first.say("go").await;
    first.until("tool_call_started").await;
    first.runtime.shutdown(Duration::ZERO).await;
    assert_eq!(first.count("tool_call_ended").await, 0, "nobody asked for it to be cancelled");

    let setup = Setup { journal: Some(Arc::clone(&first.journal)), ..Setup::new(script()) };
    let (mut second, _) = setup.runtime();
    second.session = first.session;
    second.runtime.recover().await.unwrap();
    second.until("turn_ended").await;
    let faults: Vec<_> = second
        .records()
        .await
        .iter()
        .filter_map(|record| match &record.event {
            Event::ToolCallEnded { outcome, .. } => outcome.fault().map(Fault::kind),
            _ => None,
        })
        .collect();
    assert_eq!(faults, [Kind::OutcomeUnknown], "its one outcome");
}

//! The CLI dies, is silent, refuses, or cannot be started: every turn gets its fault, the next one works.

use std::time::Duration;

use budao_claude::Launch;
use budao_core::{
    engine::Engine,
    event::{Command, CommandBody, CommandId, Event, StopReason},
    fault::{Fact, Kind},
    message::Block,
    trace::Trace,
};
use budao_journal::{Append, Entry, IfMissing, LeaseRequest};
use budao_testkit::claude::CliVersion;

use crate::{
    check::check,
    common::{Fixture, name},
};

#[tokio::test(start_paused = true)]
async fn a_death_ends_the_turn_at_once_and_the_next_prompt_goes_on_with_the_conversation() {
    for age in [CliVersion::Current, CliVersion::Old] {
        for word in ["@die-mid", "@die-tool", "@die"] {
            let fixture = Fixture::open(age).await;
            fixture.run("A").await.assert_answers("A");
            let began = tokio::time::Instant::now();
            let ended = fixture.run(&format!("B {word}")).await;
            assert_eq!((ended.stop, ended.fault), (StopReason::Failed, Some(Kind::CliExited)));
            assert!(began.elapsed() < Duration::from_secs(1), "{word}: {:?}", began.elapsed());
            assert_eq!(ended.text, "", "what was cut is void");
            fixture.run("C").await.assert_answers("C");
            assert_eq!(fixture.played.launches(), [Launch::Fresh, Launch::Resume], "{word}");
            fixture.engine.shutdown(Duration::ZERO).await;
            check(&fixture.records().await).unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn queued_prompts_survive_a_death() {
    let fixture = Fixture::open(CliVersion::Current).await;
    let first = fixture.say("A @die-mid").await;
    let second = fixture.say("B").await;
    assert_eq!(fixture.ended(&first).await.stop, StopReason::Failed);
    fixture.ended(&second).await.assert_answers("B");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_was_running_when_the_cli_died_is_sealed() {
    let fixture = Fixture::open(CliVersion::Current).await;
    fixture.run("A @die-tool").await;
    let fault = fixture.records().await.into_iter().find_map(|record| match record.event {
        Event::ToolCallEnded { outcome, .. } => outcome.fault().cloned(),
        _ => None,
    });
    assert_eq!(fault.unwrap().kind(), Kind::OutcomeUnknown);
}

#[tokio::test(start_paused = true)]
async fn a_silent_cli_is_probed_before_it_is_ended() {
    let fixture = Fixture::open(CliVersion::Current).await;
    let began = tokio::time::Instant::now();
    let dead = fixture.run("A @dead").await;
    assert_eq!((dead.stop, dead.fault), (StopReason::Failed, Some(Kind::CliSilent)));
    let took = began.elapsed().as_secs();
    assert!((60..=90).contains(&took), "silence and then the probe, not {took} s");
    // One that lives and says nothing is given longer, but not for ever.
    let began = tokio::time::Instant::now();
    let quiet = fixture.run("B @silent").await;
    assert_eq!((quiet.stop, quiet.fault), (StopReason::Failed, Some(Kind::CliSilent)));
    assert!(began.elapsed() >= Duration::from_secs(300), "{:?}", began.elapsed());
    fixture.run("C").await.assert_answers("C");
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_takes_long_is_no_silence() {
    let fixture = Fixture::open(CliVersion::Current).await;
    let ended = fixture.run("A @free").await;
    ended.assert_answers("A");
    let started = ended.events.iter().position(|name| name == "tool_call_started").unwrap();
    let done = ended.events.iter().position(|name| name == "tool_call_ended").unwrap();
    assert!(started < done);
    let records = fixture.records().await;
    let at = |wanted: &str| records.iter().find(|it| name(&it.event) == wanted).unwrap().at;
    let ran = at("tool_call_ended").since(at("tool_call_started"));
    assert!(ran > Duration::from_millis(500), "it counts as running while it runs, not {ran:?}");
}

#[tokio::test(start_paused = true)]
async fn a_cli_that_does_not_stop_when_cancelled_is_stopped() {
    let fixture = Fixture::open(CliVersion::Current).await;
    let message = fixture.say("A @slow @deaf").await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    let began = tokio::time::Instant::now();
    fixture.cancel().await;
    let next = fixture.say("B").await;
    assert_eq!(fixture.ended(&message).await.stop, StopReason::Cancelled);
    assert_eq!(began.elapsed().as_secs(), 10, "after as long as it has for it");
    fixture.ended(&next).await.assert_answers("B");
}

#[tokio::test(start_paused = true)]
async fn failures_of_the_model_service_and_its_retries_are_recorded() {
    let kinds = [
        (429, Kind::ModelRateLimited),
        (529, Kind::ModelOverloaded),
        (500, Kind::ModelServerError),
        (403, Kind::ModelPermission),
        (400, Kind::ModelBadRequest),
        (413, Kind::ContextTooLong),
        (401, Kind::ModelAuthentication),
    ];
    for age in [CliVersion::Current, CliVersion::Old] {
        let fixture = Fixture::open(age).await;
        for (status, kind) in kinds {
            let ended = fixture.run(&format!("A @api-{status}")).await;
            assert_eq!((ended.stop, ended.fault), (StopReason::Failed, Some(kind)), "{status}");
            assert!(ended.events.contains(&"retry_scheduled".to_owned()), "{ended:?}");
            assert_eq!(ended.text, "", "an error is not an answer");
            fixture.run("B").await.assert_answers("B");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn no_failure_looks_like_a_finished_turn() {
    let fixture = Fixture::open(CliVersion::Current).await;
    for word in ["@broke", "@broke-quietly", "@odd"] {
        let ended = fixture.run(&format!("A {word}")).await;
        assert_eq!((ended.stop, ended.fault), (StopReason::Failed, Some(Kind::CliTurnFailed)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_conversation_the_cli_has_or_has_not_is_found_by_trying_the_other() {
    let fixture = Fixture::open(CliVersion::Current).await;
    // It has one under this id that we know nothing of.
    fixture.played.persisted().insert(fixture.id);
    fixture.run("A").await.assert_answers("A");
    assert_eq!(fixture.played.launches(), [Launch::Fresh, Launch::Resume]);
    // It has lost it.
    fixture.run("B @die-mid").await;
    fixture.played.persisted().clear();
    let ended = fixture.run("C").await;
    ended.assert_answers("C");
    assert!(ended.events.contains(&"fault_raised".to_owned()), "it is told: {ended:?}");
    let last = fixture.played.launches().split_off(2);
    assert_eq!(last, [Launch::Resume, Launch::Fresh]);
}

#[tokio::test(start_paused = true)]
async fn after_a_restart_the_cut_turn_has_its_fault_and_the_queue_goes_on() {
    let fixture = Fixture::open(CliVersion::Current).await;
    fixture.run("A").await.assert_answers("A");
    let cut = fixture.say("B @slow").await;
    let queued = fixture.say("C").await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    // The engine is lost without a word; its lease runs out.
    let next = fixture.restarted().await;
    drop(fixture.engine);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(next.engine.recover().await.unwrap(), 0, "a living engine finished it meanwhile");
    next.ended(&cut).await.assert_answers("B");
    next.ended(&queued).await.assert_answers("C");
}

#[tokio::test(start_paused = true)]
async fn a_session_of_a_dead_writer_is_taken_over() {
    let fixture = Fixture::open(CliVersion::Current).await;
    fixture.run("A").await.assert_answers("A");
    let cut = fixture.say("B @silent").await;
    let queued = fixture.say("C").await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    fixture.engine.shutdown(Duration::ZERO).await;
    let ended = fixture.ended(&cut).await;
    assert_eq!((ended.stop, ended.fault), (StopReason::Failed, Some(Kind::ShuttingDown)));
    let next = fixture.restarted().await;
    next.engine.recover().await.unwrap();
    next.ended(&queued).await.assert_answers("C");
    next.engine.shutdown(Duration::ZERO).await;
    check(&next.records().await).unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_turn_of_which_nothing_was_answered_when_the_engine_died_is_asked_again() {
    let fixture = Fixture::open(CliVersion::Current).await;
    fixture.run("A").await.assert_answers("A");
    // As a writer leaves it that dies right after it began the turn.
    let lease = fixture.journal.info(fixture.id).await.unwrap().unwrap();
    fixture.engine.shutdown(Duration::ZERO).await;
    let message = CommandId::from("m");
    let request = LeaseRequest {
        session: fixture.id,
        holder: "victim".into(),
        ttl: Duration::from_secs(15),
        if_missing: IfMissing::Refuse,
        dead_holder: None,
    };
    let victim = fixture.journal.take_lease(request).await.unwrap();
    let entry = |turn, event: Event| {
        let (at, event) = (fixture.world.clock.now(), event.into());
        Entry { at, trace: Trace::NONE, turn, event }
    };
    let content = vec![Block::Text("B".into())];
    let entries = vec![
        entry(0, Event::MessageAccepted { command: message.clone(), content }),
        entry(2, Event::TurnStarted { message: message.clone() }),
    ];
    fixture.journal.append(Append::new(&victim, lease.head, entries)).await.unwrap();
    fixture.journal.release(&victim).await.unwrap();
    let next = fixture.restarted().await;
    assert_eq!(next.engine.recover().await.unwrap(), 1);
    next.ended(&message).await.assert_answers("B");
}

#[tokio::test(start_paused = true)]
async fn a_session_of_another_engine_is_left_to_it() {
    let fixture = Fixture::open(CliVersion::Current).await;
    let id = budao_core::event::SessionId(fixture.world.uuid());
    let (holder, ttl) = ("another".to_owned(), Duration::from_secs(1));
    let if_missing = IfMissing::Create;
    let request = LeaseRequest { session: id, holder, ttl, if_missing, dead_holder: None };
    let lease = fixture.journal.take_lease(request).await.unwrap();
    let opened = Event::SessionOpened { settings: Default::default(), origin: None };
    let (at, event) = (fixture.world.clock.now(), opened.into());
    let entries = vec![Entry { at, trace: Trace::NONE, turn: 0, event }];
    fixture.journal.append(Append::new(&lease, 0, entries)).await.unwrap();
    fixture.journal.release(&lease).await.unwrap();
    let other = Fixture { id, ..fixture };
    let body = CommandBody::Message { content: vec![Block::Text("A".into())] };
    let command =
        Command { id: "c".to_owned().into(), by: "test".into(), trace: Trace::NONE, body };
    // It must not wait in the inbox for that engine: whoever asked is told no, and that is final.
    let fault = other.engine.submit(id, command).await.unwrap_err();
    assert_eq!(fault.kind(), Kind::WrongEngine);
    assert_eq!(fault.detail().text(Fact::Engine), Some("native"));
    assert_eq!(other.played.launches(), [], "no CLI was started for it");
    assert_eq!(other.journal.inbox(id).await.unwrap(), []);
}

#[tokio::test(start_paused = true)]
async fn the_bound_that_was_hit_names_itself() {
    let fixture = Fixture::open(CliVersion::Current).await;
    fixture.run("A @dead").await;
    let fault = fixture.records().await.into_iter().find_map(|record| match record.event {
        Event::TurnEnded { fault, .. } => fault,
        _ => None,
    });
    assert!(fault.unwrap().detail().get(Fact::LimitName).is_some());
}

//! Turns that go well, are cancelled, wait for a person, or are disturbed by results that are not theirs.

use std::time::Duration;

use budao_claude::{
    Launch,
    machine::{self, Action, Env, Input, Machine},
    permissions,
};
use budao_core::{
    engine::{Engine, SessionOptions},
    event::{
        Answer, Command, CommandBody, Decision, Event, Origin, Settings, StopReason, Thinking,
    },
    fault::Kind,
    tool::{Mode, Permissions},
    trace::Trace,
};
use budao_testkit::claude::CliVersion;

use crate::{
    check::check,
    common::{Fixture, name},
};

const AGES: [CliVersion; 2] = [CliVersion::Current, CliVersion::Old];

async fn checked(fixture: &Fixture) {
    fixture.engine.shutdown(Duration::from_secs(5)).await;
    let records = fixture.records().await;
    check(&records).unwrap_or_else(|wrong| panic!("{wrong}: {records:#?}"));
}

#[tokio::test(start_paused = true)]
async fn a_turn_is_journalled_in_the_words_of_the_native_loop() {
    let fixture = Fixture::open(CliVersion::Current).await;
    let ended = fixture.run("one").await;
    ended.assert_answers("one");
    let expected = ["turn_started", "step_started", "text_delta", "model_answered", "turn_ended"];
    assert_eq!(ended.events, expected);
    fixture.run("two").await.assert_answers("two");
    assert_eq!(fixture.played.launches(), [Launch::Fresh], "one process for the session's life");
    checked(&fixture).await;
}

#[tokio::test(start_paused = true)]
async fn the_seeds_story_ends_with_every_answer_in_its_own_turn() {
    // A completes; an old error result arrives when B is sent; then C.
    for age in AGES {
        let fixture = Fixture::open(age).await;
        fixture.run("A").await.assert_answers("A");
        for (prompt, word) in [("B", "@stale-before"), ("C", ""), ("D", "@stale-bare"), ("E", "")] {
            fixture.run(&format!("{prompt} {word}")).await.assert_answers(prompt);
        }
        let late = fixture
            .records()
            .await
            .iter()
            .filter(|it| name(&it.event) == "late_arrival_dropped")
            .count();
        assert_eq!(late, 2, "both are on record ({age:?})");
        checked(&fixture).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_result_stamped_with_another_prompt_or_of_foreign_origin_ends_nothing() {
    let fixture = Fixture::open(CliVersion::Current).await;
    fixture.run("A").await.assert_answers("A");
    for word in ["@stale-mid", "@foreign", "@stale-mid @slow", "@junk", "@late", "@slow @late"] {
        fixture.run(&format!("B {word}")).await.assert_answers("B");
        fixture.run("C").await.assert_answers("C");
    }
    let dropped = fixture.records().await.into_iter().find_map(|record| match record.event {
        Event::LateArrivalDropped { of_turn, .. } => Some(of_turn),
        _ => None,
    });
    assert_eq!(dropped, Some(1), "it is known whose it was");
    checked(&fixture).await;
}

#[tokio::test(start_paused = true)]
async fn cancel_and_prompt_without_a_gap_lose_nothing() {
    for age in AGES {
        for gap in [0, 1, 5, 20, 100] {
            let fixture = Fixture::open(age).await;
            let gap = Duration::from_millis(gap);
            let first = fixture.say("A @slow").await;
            tokio::time::sleep(gap).await;
            fixture.cancel().await;
            fixture.cancel().await;
            let second = fixture.say("B").await;
            assert_eq!(fixture.ended(&first).await.stop, StopReason::Cancelled, "{age:?} {gap:?}");
            fixture.ended(&second).await.assert_answers("B");
            // And of an idle session.
            fixture.cancel().await;
            tokio::time::sleep(gap).await;
            fixture.run("C").await.assert_answers("C");
            checked(&fixture).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn prompts_that_come_during_a_turn_are_answered_in_order() {
    let fixture = Fixture::open(CliVersion::Current).await;
    let mut messages = Vec::new();
    for prompt in ["A @slow", "B", "C"] {
        messages.push((prompt, fixture.say(prompt).await));
    }
    for (prompt, message) in &messages {
        fixture.ended(message).await.assert_answers(prompt);
    }
    checked(&fixture).await;
}

#[tokio::test(start_paused = true)]
async fn of_three_prompts_the_middle_one_is_taken_back_and_never_reaches_the_cli() {
    let fixture = Fixture::open(CliVersion::Current).await;
    let first = fixture.say("A @slow").await;
    let second = fixture.say("B @slow").await;
    let third = fixture.say("C").await;
    let answer = fixture.ask(CommandBody::Withdraw { message: second.clone() }).await;
    assert!(matches!(answer, Answer::Accepted { .. }), "{answer:?}");
    fixture.ended(&first).await.assert_answers("A");
    fixture.ended(&third).await.assert_answers("C");
    for message in [first, second] {
        let answer = fixture.ask(CommandBody::Withdraw { message }).await;
        assert!(matches!(answer, Answer::Rejected { .. }), "it does not wait: {answer:?}");
    }
    checked(&fixture).await;
}

#[tokio::test(start_paused = true)]
async fn the_default_model_of_the_cli_has_a_name_and_can_be_selected_again() {
    let model = |model: &str| Settings {
        model: model.to_owned(),
        labels: [("engine".to_owned(), "claude".to_owned())].into(),
        ..Settings::default()
    };
    let fixture = Fixture::seeded(CliVersion::Current, 1, model(budao_claude::DEFAULT_MODEL)).await;
    fixture.run("A").await.assert_answers("A");
    let args = budao_claude::arguments(&fixture.played.starts()[0].clone());
    assert!(!args.contains(&"--model".to_owned()), "{args:?}");
    checked(&fixture).await;

    let (limits, timeouts, scrubber) = Default::default();
    let (now, uuid, trace) = (budao_testkit::world::BEGIN, uuid::Uuid::nil(), Trace::NONE);
    let steady = now;
    let env = Env {
        now,
        steady,
        uuid,
        trace,
        limits: &limits,
        timeouts: &timeouts,
        scrubber: &scrubber,
        server: None,
    };
    let mut machine = Machine::new(fixture.id, budao_core::session::Session::default());
    let settings = Box::new(model("default"));
    machine::step(&mut machine, Input::Opened { settings, origin: None }, &env);
    machine::step(&mut machine, Input::Warm, &env);
    let mut models = Vec::new();
    for name in ["sonnet", "default"] {
        let body = CommandBody::Settings { settings: Box::new(model(name)), before: None };
        let command = Command { id: "c".to_owned().into(), by: "test".into(), trace, body };
        let decided = machine::step(&mut machine, Input::Command(command), &env);
        models.extend(decided.actions.into_iter().filter_map(|action| match action {
            Action::Send { line, .. } => Some(line["request"]["model"].clone()),
            _ => None,
        }));
    }
    assert_eq!(models, ["sonnet", "default"]);
}

#[tokio::test(start_paused = true)]
async fn a_tool_runs_when_a_person_allows_it() {
    for word in ["@tool", "@early"] {
        let fixture = Fixture::open(CliVersion::Current).await;
        let message = fixture.say(&format!("A {word}")).await;
        let question = fixture.wait_for_question().await;
        let answer = fixture.decide(&question, Decision::Allow).await;
        assert!(matches!(answer, Answer::Accepted { .. }));
        let ended = fixture.ended(&message).await;
        ended.assert_answers("A");
        let calls: Vec<&str> = ended
            .events
            .iter()
            .map(String::as_str)
            .filter(|name| name.starts_with("question") || name.starts_with("tool_call"))
            .collect();
        let expected =
            ["question_asked", "question_answered", "tool_call_started", "tool_call_ended"];
        assert_eq!(calls, expected, "{word}");
        let again = fixture.decide(&question, Decision::Deny).await;
        assert!(matches!(again, Answer::Rejected { .. }), "answered once and for all");
        checked(&fixture).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_denied_tool_ends_failed_and_the_turn_goes_on() {
    let fixture = Fixture::open(CliVersion::Current).await;
    let message = fixture.say("A @tool").await;
    fixture.decide(&fixture.wait_for_question().await, Decision::Deny).await;
    fixture.ended(&message).await.assert_answers("A");
    assert_eq!(fault_of_call(&fixture).await, Some(Kind::DeniedByPerson));
    checked(&fixture).await;
}

async fn fault_of_call(fixture: &Fixture) -> Option<Kind> {
    fixture.records().await.into_iter().find_map(|record| match record.event {
        Event::ToolCallEnded { outcome, .. } => {
            Some(outcome.fault().map(budao_core::fault::Fault::kind))
        }
        _ => None,
    })?
}

#[tokio::test(start_paused = true)]
async fn a_question_is_closed_when_it_is_withdrawn_or_the_turn_is_cancelled() {
    let fixture = Fixture::open(CliVersion::Current).await;
    fixture.run("A @withdraw").await.assert_answers("A");
    let message = fixture.say("B @tool").await;
    fixture.until(|record| record.turn == 2 && name(&record.event) == "question_asked").await;
    fixture.cancel().await;
    let ended = fixture.ended(&message).await;
    assert_eq!(ended.stop, StopReason::Cancelled);
    assert!(ended.events.contains(&"question_answered".to_owned()), "{ended:?}");
    fixture.run("C").await.assert_answers("C");
    checked(&fixture).await;
}

#[tokio::test(start_paused = true)]
async fn an_unanswered_question_expires_and_the_turn_continues() {
    let fixture = Fixture::open(CliVersion::Current).await;
    let ended = fixture.run("A @tool").await;
    ended.assert_answers("A");
    assert!(ended.events.contains(&"question_expired".to_owned()), "{ended:?}");
    checked(&fixture).await;
}

#[tokio::test(start_paused = true)]
async fn modes_that_are_set_are_enforced() {
    let mode = |mode: Mode| Settings {
        permissions: Permissions { mode, ..Permissions::default() },
        ..Settings::default()
    };
    let auto = Fixture::seeded(CliVersion::Current, 1, mode(Mode::Auto)).await;
    auto.run("A @tool").await.assert_answers("A");
    assert_eq!(fault_of_call(&auto).await, None);
    let readonly = Fixture::seeded(CliVersion::Current, 1, mode(Mode::Readonly)).await;
    readonly.run("A @tool").await.assert_answers("A");
    assert_eq!(fault_of_call(&readonly).await, Some(Kind::DeniedByPolicy));
    let plan = Settings {
        extra: [(permissions::MODE.to_owned(), "plan".into())].into(),
        ..mode(Mode::Auto)
    };
    let plan = Fixture::seeded(CliVersion::Current, 1, plan).await;
    plan.run("A @tool").await.assert_answers("A");
    assert_eq!(fault_of_call(&plan).await, Some(Kind::DeniedByPolicy), "plan mode does not write");
    let wrong = Settings {
        extra: [(permissions::MODE.to_owned(), "yolo".into())].into(),
        ..Settings::default()
    };
    let opening = SessionOptions { settings: wrong, ..SessionOptions::default() };
    assert_eq!(plan.engine.open(opening).await.unwrap_err().kind(), Kind::ConstraintViolated);
}

#[tokio::test(start_paused = true)]
async fn settings_reach_the_cli_while_it_runs_or_when_it_is_started_again() {
    let fixture = Fixture::open(CliVersion::Current).await;
    fixture.run("A").await.assert_answers("A");
    let mut settings = Settings {
        model: "other".into(),
        thinking: Some(Thinking::High),
        labels: [("engine".to_owned(), "claude".to_owned())].into(),
        ..Settings::default()
    };
    fixture.ask(CommandBody::Settings { settings: Box::new(settings.clone()), before: None }).await;
    fixture.run("B").await.assert_answers("B");
    assert_eq!(fixture.played.launches(), [Launch::Fresh], "model and effort need no restart");
    settings.system = Some("be brief".into());
    fixture.ask(CommandBody::Settings { settings: Box::new(settings), before: None }).await;
    fixture.run("C").await.assert_answers("C");
    assert_eq!(fixture.played.launches(), [Launch::Fresh, Launch::Resume]);
    checked(&fixture).await;
}

#[tokio::test(start_paused = true)]
async fn an_unprompted_turn_of_the_cli_is_a_turn_of_its_own() {
    let fixture = Fixture::open(CliVersion::Current).await;
    fixture.run("A @background").await.assert_answers("A");
    let records = fixture.until(|it| it.turn == 2 && name(&it.event) == "turn_ended").await;
    let Event::TurnEnded { stop, .. } = &records.last().unwrap().event else { panic!() };
    assert_eq!(*stop, StopReason::EndTurn);
    fixture.run("B").await.assert_answers("B");
    checked(&fixture).await;
}

#[tokio::test(start_paused = true)]
async fn a_prompt_that_meets_such_a_turn_is_not_mixed_with_it() {
    // The CLI begins its turn a tenth of a second after the end of A; B is sent just before and just after.
    for wait in [0, 50, 99, 100, 101, 150] {
        let fixture = Fixture::open(CliVersion::Current).await;
        fixture.run("A @background").await.assert_answers("A");
        tokio::time::sleep(Duration::from_millis(wait)).await;
        fixture.run("B").await.assert_answers("B");
        checked(&fixture).await;
    }
}

#[tokio::test(start_paused = true)]
async fn every_word_is_shown_once_whatever_happens_to_the_stream() {
    let fixture = Fixture::open(CliVersion::Current).await;
    let cut = fixture.run("A @cut").await;
    cut.assert_answers("A");
    let models = ["answer_abandoned", "retry_scheduled", "recovered"];
    for event in models {
        assert!(cut.events.contains(&event.to_owned()), "{event} of {cut:?}");
    }
    fixture.run("B @whole").await.assert_answers("B");
    fixture.run("C @unstreamed").await.assert_answers("C");
    fixture.run("D @quiet").await.assert_answers("D");
    checked(&fixture).await;
}

#[tokio::test(start_paused = true)]
async fn twenty_thousand_pieces_are_all_there_in_order() {
    let fixture = Fixture::open(CliVersion::Current).await;
    let ended = fixture.run("A @many").await;
    let numbers: String = (0..20_000).map(|index| format!(" {index}")).collect();
    assert_eq!(ended.text, format!("the answer to A{numbers}"));
    let pieces = ended.events.iter().filter(|name| *name == "text_delta").count();
    assert!(pieces < 500, "joined before they are recorded, not {pieces}");
}

#[tokio::test(start_paused = true)]
async fn a_fork_begins_with_its_parents_conversation() {
    let fixture = Fixture::open(CliVersion::Current).await;
    fixture.run("A").await;
    let origin = Some(Origin::Fork { parent: fixture.id, at: 5, copied: 5 });
    let id =
        fixture.engine.open(SessionOptions { origin, ..SessionOptions::default() }).await.unwrap();
    let parent = fixture.id;
    let fork = Fixture { id, ..fixture };
    fork.run("B").await.assert_answers("B");
    assert_eq!(fork.played.launches(), [Launch::Fresh, Launch::Fork(parent)]);
}

#[tokio::test(start_paused = true)]
async fn plans_are_refused_with_a_reason_and_closing_ends_the_process() {
    let fixture = Fixture::open(CliVersion::Current).await;
    fixture.run("A").await;
    let answer = fixture.ask(CommandBody::Plan { question: "q".into(), confirm: false }).await;
    let Answer::Rejected { fault } = answer else { panic!("{answer:?}") };
    assert_eq!(fault.kind(), Kind::UnsupportedOperation);
    fixture.ask(CommandBody::Close).await;
    fixture.run("B").await.assert_answers("B");
    assert_eq!(fixture.played.launches(), [Launch::Fresh, Launch::Resume]);
    checked(&fixture).await;
}

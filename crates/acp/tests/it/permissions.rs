//! Who may call what: modes are enforced, questions are asked, and silence is no consent.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use budao_core::{
    engine::Engine as _,
    event::{Command, CommandBody, Decision, Event, SessionId, Settings},
};
use budao_journal::{Journal, PageLimits};
use serde_json::json;

use crate::{
    editor::{Editor, Party, UserBehaviour},
    fixture::Fixture,
};

fn is_question(value: &serde_json::Value) -> bool {
    value["method"] == "session/request_permission"
}

#[tokio::test(start_paused = true)]
async fn the_default_is_to_ask_and_the_question_shows_the_call() {
    let stage = Fixture::new(1);
    let tool_runs = stage.tool_runs.clone();
    let (mut editor, session) = Editor::open(stage.bridge).await;
    let id = editor.prompt(&session, "P1 touch").await;
    assert_eq!(editor.stop(id).await, "end_turn");
    assert_eq!(tool_runs.load(Ordering::SeqCst), 1);
    let lines = editor.hang_up().await;
    let question = lines.iter().find(|line| is_question(&line.value)).unwrap();
    let mut params = question.value["params"].clone();
    params["sessionId"] = "[session]".into();
    insta::assert_json_snapshot!(params);
}

#[tokio::test(start_paused = true)]
async fn a_no_reaches_the_model_and_nothing_runs() {
    let stage = Fixture::new(2);
    let tool_runs = stage.tool_runs.clone();
    let (mut editor, session) = Editor::open(stage.bridge).await;
    editor.behaviour = UserBehaviour::Option("reject");
    let id = editor.prompt(&session, "P1 touch").await;
    assert_eq!(editor.stop(id).await, "end_turn");
    assert_eq!(tool_runs.load(Ordering::SeqCst), 0);
    assert_eq!(editor.updates("tool_call_update").last().unwrap()["status"], "failed");
    editor.hang_up().await;
}

#[tokio::test(start_paused = true)]
async fn an_answer_is_remembered_only_on_request_of_the_user() {
    for (option, questions, runs) in
        [("allow", 2, 2), ("allow_always", 1, 2), ("reject", 2, 0), ("reject_always", 1, 0)]
    {
        let stage = Fixture::new(3);
        let tool_runs = stage.tool_runs.clone();
        let (mut editor, session) = Editor::open(stage.bridge).await;
        editor.behaviour = UserBehaviour::Option(option);
        for name in ["P1", "P2"] {
            let id = editor.prompt(&session, &format!("{name} touch")).await;
            assert_eq!(editor.stop(id).await, "end_turn");
        }
        assert_eq!(tool_runs.load(Ordering::SeqCst), runs, "{option}");
        let lines = editor.hang_up().await;
        let question_count = lines.iter().filter(|line| is_question(&line.value)).count();
        assert_eq!(question_count, questions, "{option}");
    }
}

#[tokio::test(start_paused = true)]
async fn plan_mode_does_not_write_and_auto_does_not_ask() {
    let stage = Fixture::new(4);
    let tool_runs = stage.tool_runs.clone();
    let (mut editor, session) = Editor::open(stage.bridge).await;
    for (mode, runs) in [("plan", 0), ("auto", 1)] {
        let params = json!({"sessionId": session, "modeId": mode});
        assert!(editor.ask("session/set_mode", params).await["error"].is_null());
        let id = editor.prompt(&session, &format!("P{mode} touch")).await;
        assert_eq!(editor.stop(id).await, "end_turn");
        assert_eq!(tool_runs.load(Ordering::SeqCst), runs, "{mode}");
        let look = editor.prompt(&session, &format!("Plook{mode} look")).await;
        assert_eq!(editor.stop(look).await, "end_turn");
    }
    let modes = editor.updates("current_mode_update");
    assert_eq!(modes.len(), 2);
    let lines = editor.hang_up().await;
    assert!(!lines.iter().any(|line| is_question(&line.value)));
}

#[tokio::test(start_paused = true)]
async fn options_are_set_together_and_answered_whole() {
    let (mut editor, session) = Editor::open(Fixture::new(5).bridge).await;
    let set = |option: &str, value: &str| json!({"sessionId": session, "configId": option, "value": value});
    let sent = [
        editor.send("session/set_config_option", set("mode", "auto")).await,
        editor.send("session/set_config_option", set("model", "other")).await,
        editor.send("session/set_config_option", set("thought_level", "high")).await,
    ];
    let mut last = json!(null);
    for id in sent {
        last = editor.answer(id).await;
    }
    let options = last["result"]["configOptions"].as_array().unwrap();
    let values: Vec<_> = options.iter().map(|option| &option["currentValue"]).collect();
    assert_eq!(values, ["auto", "other", "high"]);
    for (option, value) in [("mode", "yolo"), ("model", "none"), ("colour", "red")] {
        let answer = editor.ask("session/set_config_option", set(option, value)).await;
        assert_eq!(answer["error"]["code"], -32602, "{option}");
    }
    let params = json!({"sessionId": session, "modeId": "yolo"});
    assert_eq!(editor.ask("session/set_mode", params).await["error"]["code"], -32602);
    editor.hang_up().await;
}

#[tokio::test(start_paused = true)]
async fn settings_of_an_editor_survive_concurrent_changes() {
    let stage = Fixture::new(8);
    let (runtime, journal) = (stage.runtime.clone(), stage.journal.clone());
    let (mut editor, session) = Editor::open(stage.bridge).await;
    let id: SessionId = session.parse().unwrap();
    let change = async |name: &str, change: fn(&mut Settings)| {
        let before = recorded_settings(&journal, id).await;
        let mut settings = Box::new(before.clone());
        change(&mut settings);
        let body = CommandBody::Settings { settings, before: Some(Box::new(before)) };
        runtime.submit(id, Command::new(name, "page", body)).await.unwrap()
    };
    let model = json!({"sessionId": session, "configId": "model", "value": "other"});
    let (_, answer) = tokio::join!(
        change("title", |settings| settings.title = Some("from the page".to_owned())),
        editor.ask("session/set_config_option", model.clone()),
    );
    assert_eq!(answer["result"]["configOptions"][1]["currentValue"], "other", "{answer}");
    change("model", |settings| settings.model = "obedient".to_owned()).await;
    editor.read_for(Duration::from_secs(1)).await;
    editor.ask("session/set_config_option", model).await;
    let settings = recorded_settings(&journal, id).await;
    assert_eq!(settings.model, "other", "the second choice is a change again");
    assert_eq!(settings.title.as_deref(), Some("from the page"));
    editor.hang_up().await;
}

/// The settings as the newest record has them.
async fn recorded_settings(journal: &Arc<dyn Journal>, id: SessionId) -> Settings {
    let page = journal.read(id, 0, PageLimits::default()).await.unwrap();
    let changes = page.records.iter().filter_map(|stored| match stored.event().unwrap() {
        Event::SessionOpened { settings, .. } | Event::SettingsChanged { settings } => {
            Some(settings)
        }
        _ => None,
    });
    changes.last().expect("a session begins with its settings").clone()
}

#[tokio::test(start_paused = true)]
async fn a_question_is_withdrawn_when_its_turn_is_stopped() {
    let (mut editor, session) = Editor::open(Fixture::new(6).bridge).await;
    editor.behaviour = UserBehaviour::Silent;
    let id = editor.prompt(&session, "P1 touch").await;
    let question = editor.until(is_question).await;
    editor.cancel(&session).await;
    assert_eq!(editor.stop(id).await, "cancelled");
    editor.read_for(Duration::from_secs(1)).await;
    let withdrawn = editor.transcript.iter().any(|line| {
        line.from == Party::Agent
            && line.value["method"] == "$/cancel_request"
            && line.value["params"]["requestId"] == question["id"]
    });
    assert!(withdrawn, "{:?}", editor.transcript);
    // An answer that comes too late means nothing to the next prompt.
    editor.choose(&question, "allow").await;
    editor.behaviour = UserBehaviour::Option("reject");
    let next = editor.prompt(&session, "P2 touch").await;
    assert_eq!(editor.stop(next).await, "end_turn");
    editor.hang_up().await;
}

#[tokio::test(start_paused = true)]
async fn an_editor_that_is_gone_counts_as_a_denial() {
    let stage = Fixture::new(7);
    let (journal, tool_runs) = (stage.journal.clone(), stage.tool_runs.clone());
    let (mut editor, session) = Editor::open(stage.bridge).await;
    editor.behaviour = UserBehaviour::Silent;
    editor.prompt(&session, "P1 touch").await;
    editor.until(is_question).await;
    editor.vanish().await;
    let page = journal.read(session.parse().unwrap(), 0, PageLimits::default()).await.unwrap();
    let decided = page.records.iter().find_map(|stored| match stored.event().unwrap() {
        Event::QuestionAnswered { decision, .. } => Some(decision),
        _ => None,
    });
    assert_eq!(decided, Some(Decision::Deny));
    assert_eq!(tool_runs.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_makes_no_sense_is_a_no() {
    let stage = Fixture::new(8);
    let tool_runs = stage.tool_runs.clone();
    let (mut editor, session) = Editor::open(stage.bridge).await;
    editor.behaviour = UserBehaviour::Silent;
    let id = editor.prompt(&session, "P1 touch").await;
    let question = editor.until(is_question).await;
    let error = json!({"code": -32601, "message": "no such method"});
    editor.raw(&json!({"jsonrpc": "2.0", "id": question["id"], "error": error}).to_string()).await;
    assert_eq!(editor.stop(id).await, "end_turn");
    assert_eq!(tool_runs.load(Ordering::SeqCst), 0);
    editor.hang_up().await;
}

//! Two engines on one journal, and a session whose writer does not answer: a prompt that was answered with a fault never
//! runs afterwards.

use std::{sync::Arc, time::Duration};

use budao_acp::{Bridge, EditorOptions};
use budao_claude::{Claude, ClaudeConfig};
use budao_core::{
    engine::Engine as _,
    event::{Command, CommandBody, Event, SessionId},
    fault::Kind,
    message::Block,
    trace::Trace,
};
use budao_journal::{IfMissing, LeaseRequest, PageLimits};
use budao_testkit::{claude::CliVersion, launcher::PlayedCliLauncher};
use serde_json::{Value, json};

use crate::{
    check::AgentKind,
    editor::Editor,
    fixture::{Fixture, words},
};

/// A bridge over the Claude CLI, on the journal of a stage.
fn claude_beside(stage: &Fixture) -> (Bridge, Claude) {
    let (world, journal) = (stage.bridge.world.clone(), Arc::clone(&stage.journal));
    let config = ClaudeConfig::new(
        Arc::clone(&journal),
        world,
        PlayedCliLauncher::new(CliVersion::Current) as _,
    );
    let engine = Claude::new(config);
    let editor_options =
        EditorOptions { engine: "claude".to_owned(), ..stage.bridge.editor_options.clone() };
    (Bridge { engine: Arc::new(engine.clone()), editor_options, ..stage.bridge.clone() }, engine)
}

async fn ids(editor: &mut Editor) -> Vec<String> {
    let listed = editor.ask("session/list", json!({})).await;
    let sessions = listed["result"]["sessions"].as_array().unwrap().iter();
    sessions.map(|session| session["sessionId"].as_str().unwrap().to_owned()).collect()
}

/// The messages a session ever took up.
async fn taken_up(stage: &Fixture, session: &str) -> Vec<String> {
    let session: SessionId = session.parse().unwrap();
    let page = stage.journal.read(session, 0, PageLimits::default()).await.unwrap();
    let events = page.records.iter().map(|stored| stored.record().unwrap().event);
    let texts = events.filter_map(|event| match event {
        Event::MessageAccepted { content, .. } => Some(budao_core::message::text_of(&content)),
        _ => None,
    });
    texts.collect()
}

fn message(text: &str) -> Command {
    let body = CommandBody::Message { content: vec![Block::Text(text.to_owned())] };
    Command { id: text.into(), by: "test".into(), trace: Trace::NONE, body }
}

#[tokio::test(start_paused = true)]
async fn a_session_of_another_engine_is_neither_offered_nor_loaded_and_the_reason_names_it() {
    let stage = Fixture::new(1);
    let (claude, engine) = claude_beside(&stage);
    let bridges = [stage.bridge.clone(), claude];
    let mut sessions = Vec::new();
    for (bridge, agent_kind) in bridges.iter().zip([AgentKind::Obedient, AgentKind::Claude]) {
        let (mut editor, session) = Editor::open(bridge.clone()).await;
        editor.agent_kind = agent_kind;
        let id = editor.prompt(&session, "P1 say 2").await;
        assert_eq!(editor.stop(id).await, "end_turn");
        editor.hang_up().await;
        sessions.push(session);
    }
    for ours in [0, 1] {
        let (bridge, theirs) = (&bridges[ours], 1 - ours);
        let mut editor = Editor::connect(bridge.clone());
        editor.initialize().await;
        assert_eq!(ids(&mut editor).await, [sessions[ours].clone()]);
        for method in ["session/load", "session/resume"] {
            let params = json!({"sessionId": sessions[theirs], "cwd": "/tmp", "mcpServers": []});
            let began = tokio::time::Instant::now();
            let refused = editor.ask(method, params).await;
            assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
            let error = &refused["error"];
            assert_eq!(error["data"]["kind"], "wrong_engine", "{method}: {refused}");
            let name = bridges[theirs].editor_options.engine.as_str();
            assert!(error["message"].as_str().unwrap().contains(name), "{method}: {refused}");
        }
        assert_eq!(editor.text(), "", "nothing of it is shown");
        editor.hang_up().await;
    }
    engine.shutdown(Duration::ZERO).await;
}

#[tokio::test(start_paused = true)]
async fn a_message_for_a_session_of_another_engine_is_refused_at_once_and_never_runs() {
    let stage = Fixture::new(2);
    let (claude, engine) = claude_beside(&stage);
    let bridges = [stage.bridge.clone(), claude];
    for ours in [0, 1] {
        let (editor, session) = Editor::open(bridges[1 - ours].clone()).await;
        editor.hang_up().await;
        // The engine that has it lets it go.
        let idle = Duration::from_secs(24 * 3_600);
        tokio::time::sleep(idle).await;
        let id: SessionId = session.parse().unwrap();
        let began = tokio::time::Instant::now();
        let refused = bridges[ours].engine.submit(id, message("P1 say 2")).await.unwrap_err();
        assert_eq!(refused.kind(), Kind::WrongEngine);
        assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
        assert_eq!(stage.journal.inbox(id).await.unwrap(), []);
        let (mut editor, _) = Editor::open(bridges[1 - ours].clone()).await;
        editor.agent_kind = if ours == 0 { AgentKind::Claude } else { AgentKind::Obedient };
        let params = json!({"sessionId": session, "cwd": "/tmp", "mcpServers": []});
        assert!(editor.ask("session/load", params).await["error"].is_null());
        let prompt = editor.prompt(&session, "P2 say 2").await;
        assert_eq!(editor.stop(prompt).await, "end_turn");
        assert_eq!(taken_up(&stage, &session).await, ["P2 say 2"]);
        editor.hang_up().await;
    }
    engine.shutdown(Duration::ZERO).await;
}

/// An editor with a session that has had its first prompt.
async fn opened(stage: &Fixture) -> (Editor, String) {
    let (mut editor, session) = Editor::open(stage.bridge.clone()).await;
    let first = editor.prompt(&session, "P1 say 2").await;
    assert_eq!(editor.stop(first).await, "end_turn");
    (editor, session)
}

/// Somebody has the session and does not answer, until its lease runs out.
async fn hold(stage: &Fixture, session: &str, ttl: Duration) {
    stage.runtime.shutdown(Duration::ZERO).await;
    let request = LeaseRequest {
        session: session.parse().unwrap(),
        holder: "nobody answers".to_owned(),
        ttl,
        if_missing: IfMissing::Refuse,
        dead_holder: None,
    };
    stage.journal.take_lease(request).await.unwrap();
}

async fn fails_in_time(editor: &mut Editor, id: u64) -> Value {
    assert_eq!(editor.stop(id).await, "-32603");
    editor.answer(id).await["error"]["data"].clone()
}

#[tokio::test(start_paused = true)]
async fn an_unanswered_prompt_does_not_run_under_the_next_one() {
    let stage = Fixture::new(3);
    let (mut editor, session) = opened(&stage).await;
    hold(&stage, &session, Duration::from_secs(50)).await;
    let second = editor.prompt(&session, "P2 say 2").await;
    assert_eq!(fails_in_time(&mut editor, second).await["kind"], "request_timed_out");
    // The lease runs out, and the next writer takes the session over.
    editor.read_for(Duration::from_secs(120)).await;
    let third = editor.prompt(&session, "P3 say 2").await;
    assert_eq!(editor.stop(third).await, "end_turn");
    assert_eq!(taken_up(&stage, &session).await, ["P1 say 2", "P3 say 2"]);
    assert_eq!(editor.text(), words("P1", 2) + &words("P3", 2));
    editor.hang_up().await;
}

#[tokio::test(start_paused = true)]
async fn an_unanswered_prompt_does_not_run_after_a_restart_of_the_bridge() {
    let stage = Fixture::new(4);
    let (mut editor, session) = opened(&stage).await;
    hold(&stage, &session, Duration::from_secs(50)).await;
    let second = editor.prompt(&session, "P2 say 2").await;
    fails_in_time(&mut editor, second).await;
    editor.hang_up().await;
    stage.runtime.shutdown(Duration::ZERO).await;
    tokio::time::sleep(Duration::from_secs(120)).await;
    stage.runtime.recover().await.unwrap();
    let (mut editor, _) = Editor::open(stage.bridge.clone()).await;
    let params = json!({"sessionId": session, "cwd": "/tmp", "mcpServers": []});
    assert!(editor.ask("session/load", params).await["error"].is_null());
    let third = editor.prompt(&session, "P3 say 2").await;
    assert_eq!(editor.stop(third).await, "end_turn");
    assert_eq!(taken_up(&stage, &session).await, ["P1 say 2", "P3 say 2"]);
    editor.transcript.clear();
    editor.hang_up().await;
}

#[tokio::test(start_paused = true)]
async fn an_unanswered_prompt_that_was_cancelled_does_not_run_later() {
    let stage = Fixture::new(5);
    let (mut editor, session) = opened(&stage).await;
    hold(&stage, &session, Duration::from_secs(50)).await;
    let second = editor.prompt(&session, "P2 say 2").await;
    editor.read_for(Duration::from_millis(100)).await;
    editor.cancel(&session).await;
    let third = editor.prompt(&session, "P3 say 2").await;
    assert_eq!(editor.stop(second).await, "cancelled");
    assert_eq!(editor.stop(third).await, "end_turn", "it is not the one that was cancelled");
    editor.read_for(Duration::from_secs(120)).await;
    assert_eq!(taken_up(&stage, &session).await, ["P1 say 2", "P3 say 2"]);
    editor.hang_up().await;
}

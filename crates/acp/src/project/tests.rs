//! Tests of the projection, record by record.

use budao_core::{
    event::{
        CallStart, Compaction, Decision, Epoch, Event, QuestionPurpose, SessionId, StopReason,
        Task, TaskEnd,
    },
    fault::{Fact, Fault, Kind, Operation},
    message::{ModelStop, ToolUse},
    time::Timestamp,
    tool::{Mode, Output, Todo, TodoStatus},
    trace::Trace,
};
use serde_json::json;

use super::*;
use crate::editor_options::ModelChoice;

/// Projects the events of one turn and returns the actions as JSON lines.
fn play(projector: &mut Projector, events: Vec<Event>) -> String {
    let mut lines = Vec::new();
    for (index, event) in events.into_iter().enumerate() {
        let record = Record {
            session: SessionId(uuid::Uuid::nil()),
            epoch: Epoch(1),
            seq: index as u64 + 1,
            at: Timestamp::from_micros(0),
            trace: Trace::NONE,
            turn: 1,
            event,
        };
        for action in projector.project(&record) {
            lines.push(match action {
                EditorAction::Update(update) => serde_json::to_string(&update).unwrap(),
                EditorAction::AskPermission(ask) => format!(
                    "ASK {} {} rules={} {}",
                    ask.question,
                    ask.digest,
                    ask.allows_rule,
                    serde_json::to_string(&ask.call).unwrap()
                ),
                EditorAction::WithdrawQuestion(question) => format!("UNASK {question}"),
            });
        }
    }
    lines.join("\n")
}

fn projector(lang: Lang, editor_capabilities: EditorCapabilities) -> Projector {
    let editor_options = EditorOptions {
        models: vec![ModelChoice::new("one", "One")],
        context_tokens: 1000,
        ..EditorOptions::default()
    };
    let mut projector = Projector::new(Arc::new(editor_options), lang, editor_capabilities);
    projector.settings =
        Settings { workspace: Some("/w".into()), model: "one".into(), ..Settings::default() };
    projector
}

fn live(lang: Lang, editor_capabilities: EditorCapabilities) -> Projector {
    let mut projector = projector(lang, editor_capabilities);
    projector.go_live();
    projector.add_own_message(CommandId::from("m1"));
    projector
}

fn begin() -> Vec<Event> {
    let message = CommandId::from("m1");
    let content = vec![Block::Text("do it".into())];
    vec![
        Event::MessageAccepted { command: message.clone(), content },
        Event::TurnStarted { message },
        Event::StepStarted { step: 1, attempt: 1, model: "one".into() },
    ]
}

fn end(stop: StopReason, fault: Option<Fault>) -> Event {
    Event::TurnEnded { stop, fault, steps: 1, usage: Usage::default() }
}

fn text(text: &str) -> Event {
    Event::TextDelta { step: 1, text: text.into() }
}

fn usage() -> Usage {
    Usage { input_tokens: 7, output_tokens: 3, ..Usage::default() }
}

fn wants(id: &str, name: &str, arguments: &Value) -> Block {
    let arguments = arguments.to_string();
    Block::ToolUse(ToolUse { id: id.into(), name: name.into(), arguments })
}

fn answered(content: Vec<Block>) -> Event {
    Event::ModelAnswered {
        step: 1,
        content,
        stop: ModelStop::EndTurn,
        usage: usage(),
        response: None,
    }
}

fn started(call: &str, tool: &str, arguments: Value) -> Event {
    Event::ToolCallStarted(CallStart {
        call: call.into(),
        tool: tool.into(),
        arguments,
        repairs: Vec::new(),
        attempt: 1,
        idempotent: false,
        reconcile: false,
    })
}

fn ended(call: &str, tool: &str, outcome: Outcome) -> Event {
    Event::ToolCallEnded { call: call.into(), tool: tool.into(), outcome, duration_ms: 1 }
}

fn done(data: Value) -> Outcome {
    Outcome::Done(Output { data, ..Output::default() })
}

#[test]
fn an_answer_is_shown_as_it_comes() {
    let mut events = begin();
    events.extend([
        Event::ThinkingDelta { step: 1, text: "hm".into() },
        text("Hello "),
        text("world"),
        answered(vec![
            Block::Thinking { text: "hm, well".into(), signature: None },
            Block::Text("Hello world.".into()),
        ]),
        end(StopReason::EndTurn, None),
    ]);
    insta::assert_snapshot!(play(&mut live(Lang::En, EditorCapabilities::default()), events));
}

#[test]
fn history_is_shown_with_the_user_s_words_and_what_failed() {
    let mut events = begin();
    let fault =
        Fault::new(Kind::ModelOverloaded, Operation::ModelRequest).with(Fact::Service, "anthropic");
    events.extend([text("Hel"), end(StopReason::Failed, Some(fault))]);
    insta::assert_snapshot!(play(&mut projector(Lang::En, EditorCapabilities::default()), events));
}

#[test]
fn a_broken_answer_is_announced_and_shown_once() {
    let mut events = begin();
    events.extend([
        text("One two "),
        Event::AnswerAbandoned { step: 1, attempt: 1 },
        Event::RetryScheduled {
            operation: Operation::ModelRequest,
            kind: Kind::ModelStreamCut,
            attempt: 1,
            next_attempt: 2,
            max_attempts: 3,
            wait_ms: 1500,
            due_at: Timestamp::from_micros(0),
            scope: Default::default(),
        },
        Event::StepStarted { step: 1, attempt: 2, model: "one".into() },
        text("One "),
        text("two three"),
        Event::AnswerAbandoned { step: 1, attempt: 2 },
        text("Something else"),
        answered(vec![Block::Text("Something else".into())]),
        end(StopReason::EndTurn, None),
    ]);
    let notices = EditorCapabilities { notices: true, ..EditorCapabilities::default() };
    let shown = [
        play(&mut live(Lang::En, EditorCapabilities::default()), events.clone()),
        play(&mut live(Lang::En, notices), events.clone()),
        play(&mut live(Lang::Zh, notices), events),
    ];
    insta::assert_snapshot!(shown.join("\n----\n"));
}

#[test]
fn calls_have_kinds_places_and_differences() {
    let mut events = begin();
    let edit = json!({"path": "./src/a.rs", "old_string": "1", "new_string": "2"});
    let edits = json!({"edits": [{"path": "a", "find": "x", "replace": "y"}, {"path": "b", "find": "p", "replace": "q"}]});
    let run = json!({"cmd": "ls -l\nrm x"});
    events.extend([
        answered(vec![
            wants("c1", "fs_read", &json!({"path": "a.txt", "offset": 5})),
            wants("c2", "fs_edit", &edit),
            wants("c3", "bash_run", &run),
        ]),
        started("c1", "fs_read", json!({"path": "a.txt", "offset": 5})),
        ended("c1", "fs_read", done(json!({"content": "```\ncode\n```\n", "totalLines": 9}))),
        started("c2", "fs_edit", edit),
        ended("c2", "fs_edit", done(json!({"ok": true}))),
        started("c3", "bash_run", run),
        Event::ToolOutputDelta { call: "c3".into(), text: "one\n".into() },
        Event::ToolOutputDelta { call: "c3".into(), text: "two\n".into() },
        ended("c3", "bash_run", done(json!({"code": 0, "output": "one\ntwo\n"}))),
        started("c4", "fs_multi_edit", edits),
        started("c5", "mcp__x__y", json!({"a": 1})),
        ended("c5", "mcp__x__y", done(json!({"a": [1, 2]}))),
        end(StopReason::Cancelled, None),
    ]);
    insta::assert_snapshot!(play(&mut live(Lang::En, EditorCapabilities::default()), events));
}

#[test]
fn a_question_is_shown_and_withdrawn() {
    let mut events = begin();
    let arguments = json!({"path": "a", "content": "new"});
    let question_asked = |question: &str, call: &str| Event::QuestionAsked {
        question: QuestionId(question.into()),
        call: call.into(),
        tool: "fs_write".into(),
        arguments: arguments.clone(),
        repairs: Vec::new(),
        digest: "d1".into(),
        idempotent: false,
        reason: "it writes".into(),
        purpose: QuestionPurpose::Permission,
        expires_at: Timestamp::from_micros(0),
    };
    let denied =
        Fault::new(Kind::DeniedByPerson, Operation::ToolCall).with(Fact::ToolName, "fs_write");
    events.extend([
        question_asked("q1", "c1"),
        Event::QuestionAnswered {
            question: QuestionId("q1".into()),
            call: "c1".into(),
            decision: Decision::Deny,
            by: "editor".into(),
            note: None,
            arguments: None,
        },
        ended("c1", "fs_write", denied.into()),
        question_asked("q2", "c2"),
        ended("c2", "fs_write", Fault::new(Kind::Cancelled, Operation::ToolCall).into()),
        end(StopReason::Cancelled, None),
    ]);
    insta::assert_snapshot!(play(&mut live(Lang::En, EditorCapabilities::default()), events));
}

#[test]
fn lists_and_tasks_are_the_editor_s_plan() {
    let todo = |id: &str, status| Todo {
        id: id.into(),
        title: format!("Do {id}"),
        status,
        assignee: None,
        notes: None,
    };
    let task = Task {
        id: budao_core::event::TaskId("t1".into()),
        title: "First".into(),
        prompt: "p".into(),
        extra: BTreeMap::new(),
    };
    let completed = TaskEnd::Completed { output: "All of it.".into() };
    let events = vec![
        Event::TodosChanged {
            todos: vec![
                todo("a", TodoStatus::Completed),
                todo("b", TodoStatus::InProgress),
                todo("c", TodoStatus::Pending),
            ],
        },
        Event::PlanMade { tasks: vec![task.clone()], summary: "s".into() },
        Event::TaskStarted { task: task.clone(), attempt: 1 },
        Event::TaskEnded { task: task.id, end: completed.clone() },
        Event::AggregateEnded { end: completed },
    ];
    insta::assert_snapshot!(play(&mut live(Lang::En, EditorCapabilities::default()), events));
}

#[test]
fn settings_and_compaction_are_shown() {
    let mut settings =
        Settings { workspace: Some("/w".into()), model: "one".into(), ..Settings::default() };
    settings.permissions.mode = Mode::Readonly;
    settings.title = Some("A title".into());
    let compacted = Event::HistoryCompacted(Compaction {
        messages: 4,
        summary: "Before: much.".into(),
        by_model: true,
        tokens_before: 100,
        tokens_after: 10,
        usage: budao_core::message::Usage::default(),
    });
    let events = vec![
        Event::SettingsChanged { settings: settings.clone() },
        Event::SettingsChanged { settings },
        compacted,
        Event::SessionResumed { sealed: Vec::new() },
        Event::Annotated {
            topic: "claude.commands".into(),
            data: json!({"commands": [
                {"name": "review", "about": "Reviews", "hint": "what"},
                {"name": "plain", "about": "", "hint": ""},
                {"name": ""},
            ]}),
        },
        Event::Annotated {
            topic: "claude.background_text".into(),
            data: json!({"text": "By the way."}),
        },
        Event::Annotated { topic: "serve.nonce".into(), data: json!(1) },
    ];
    let all =
        EditorCapabilities { notices: true, compaction: true, ..EditorCapabilities::default() };
    let shown = [
        play(&mut live(Lang::En, EditorCapabilities::default()), events.clone()),
        play(&mut live(Lang::Zh, all), events),
    ];
    insta::assert_snapshot!(shown.join("\n----\n"));
}

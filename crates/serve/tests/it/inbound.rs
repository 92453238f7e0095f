//! What clients send: every shape that is taken, and every mistake with its one refusal.

use budao_core::{
    Lang,
    event::{Decision, Epoch, SessionId},
    fault::Fact,
    message::Block,
    tool::Mode,
};
use budao_serve::inbound::{
    Cursor, EVENTS, FrameLimits, FrameRefusal, Inbound, MessageConfig, OnDisconnect,
    PlanPreference, Request, SessionRequest, parse,
};
use proptest::prelude::*;
use rstest::rstest;
use serde_json::{Value, json};

const SESSION: &str = "01900000-0000-7000-8000-000000000001";

fn id() -> SessionId {
    SESSION.parse().unwrap()
}

fn read(frame: &Value) -> Result<Inbound, FrameRefusal> {
    parse(&frame.to_string(), &FrameLimits::default())
}

/// What a well-formed frame asks for.
fn asks(mut frame: Value) -> Request {
    if frame["session_id"].is_null() {
        frame["session_id"] = SESSION.into();
    }
    read(&frame).unwrap_or_else(|refusal| panic!("{}: {refusal:?}", refusal.fault)).request
}

fn at(seq: u64) -> Cursor {
    Cursor { session: None, epoch: None, seq }
}

#[rstest]
#[case::in_content(json!({ "content": { "last_seq": 7 } }), at(7))]
#[case::bare(json!({ "content": 7 }), at(7))]
#[case::at_the_top(json!({ "seq": 7 }), at(7))]
#[case::in_metadata(json!({ "metadata": { "last_seq": 7, "received_count": 3 } }), at(7))]
#[case::last_seq_at_the_top(json!({ "last_seq": 7 }), at(7))]
#[case::by_id(
    json!({ "content": { "last_event_id": format!("{SESSION}.5eed0001.7") } }),
    Cursor { session: Some(id()), epoch: Some(Epoch(0x5eed_0001)), seq: 7 }
)]
fn every_shape_of_an_ack_is_taken(#[case] mut frame: Value, #[case] cursor: Cursor) {
    frame["event"] = "user.ack".into();
    assert_eq!(asks(frame), Request::Ack(cursor));
}

#[test]
fn an_event_id_names_its_session() {
    let frame = json!({
        "event": "user.ack", "content": { "last_event_id": format!("{SESSION}.5eed0001.7") },
    });
    assert_eq!(read(&frame).unwrap().session, Some(id()));
}

#[rstest]
#[case(json!("Hello"), "Hello")]
#[case(json!({ "text": "Hello" }), "Hello")]
#[case(json!({ "message": "Hello", "unknown": [1, 2] }), "Hello")]
#[case(json!({ "question": "Hello" }), "Hello")]
fn a_message_is_text_or_an_object(#[case] content: Value, #[case] text: &str) {
    let content_of = asks(json!({ "event": "user.message", "content": content }));
    let (content, config) = (vec![Block::Text(text.to_owned())], MessageConfig::default());
    let expected = Request::Message { content, plan: None, config };
    assert_eq!(content_of, expected);
}

#[rstest]
#[case(json!({ "content": { "text": "Plan this", "mode": "plan", "confirm": true } }), true)]
#[case(json!({ "content": "Plan this", "metadata": { "mode": "plan" } }), false)]
fn a_message_may_be_a_question_for_a_plan(#[case] mut frame: Value, #[case] confirm: bool) {
    frame["event"] = "user.message".into();
    let content = vec![Block::Text("Plan this".to_owned())];
    let (plan, config) = (Some(PlanPreference { confirm }), MessageConfig::default());
    assert_eq!(asks(frame), Request::Message { content, plan, config });
}

#[rstest]
#[case(json!({ "model": "a, b" }), Some(vec!["a", "b"]), None)]
#[case(json!({ "answer_schema": { "type": "string" } }), None, Some(json!({ "type": "string" })))]
#[case(json!({ "answer_schema": null }), None, Some(Value::Null))]
fn a_message_may_change_the_model_and_the_schema_of_its_answer(
    #[case] config: Value,
    #[case] models: Option<Vec<&str>>,
    #[case] answer_schema: Option<Value>,
) {
    let content = json!({ "text": "Hello", "config": config });
    let models = models.map(|models| models.into_iter().map(str::to_owned).collect());
    let request = asks(json!({ "event": "user.message", "content": content }));
    let content = vec![Block::Text("Hello".to_owned())];
    let config = MessageConfig { models, answer_schema };
    assert_eq!(request, Request::Message { content, plan: None, config });
}

#[rstest]
#[case(json!({ "confirmed": true }), Decision::Allow)]
#[case(json!({ "approved": true }), Decision::Allow)]
#[case(json!({ "confirmed": true, "approved": true }), Decision::Allow)]
#[case(json!({ "approved": false, "feedback": "no" }), Decision::Deny)]
#[case(json!(true), Decision::Allow)]
#[case(json!(false), Decision::Deny)]
fn confirmed_and_approved_are_the_same(#[case] content: Value, #[case] expected: Decision) {
    let frame = json!({ "event": "user.response", "step_id": "ask_1", "content": content });
    let Request::Response { decision, question, .. } = asks(frame) else { panic!("a response") };
    assert_eq!((decision, &*question.0), (expected, "ask_1"));
}

#[test]
fn a_response_may_bring_other_tasks_and_what_it_is_bound_to() {
    let frame = json!({
        "event": "user.response", "step_id": "ask_1",
        "content": { "approved": true, "modified_tasks": [{ "id": 1 }], "note": "fewer" },
        "metadata": { "digest": "abc", "response_time_ms": 12 },
    });
    let Request::Response { note, arguments, digest, .. } = asks(frame) else {
        panic!("a response")
    };
    assert_eq!(note.as_deref(), Some("fewer"));
    assert_eq!(arguments, Some(json!([{ "id": 1 }])));
    assert_eq!(digest.as_deref(), Some("abc"));
}

#[rstest]
#[case(json!({ "content": { "last_seq": 42 } }))]
#[case(json!({ "last_seq": 42 }))]
fn a_cursor_is_found_in_content_or_at_the_top(#[case] mut frame: Value) {
    frame["event"] = "user.reconnect".into();
    assert_eq!(asks(frame.clone()), Request::Reconnect { cursor: Some(at(42)) });
    frame["event"] = "user.reconnect_with_state".into();
    let cursor = Some(at(42));
    assert_eq!(asks(frame), Request::ReconnectWithState { signed_state: None, cursor });
}

#[rstest]
#[case(json!({ "signed_state": "b64" }))]
#[case(json!({ "content": { "signed_state": "b64" } }))]
fn a_signed_state_is_found_in_content_or_at_the_top(#[case] mut frame: Value) {
    frame["event"] = "user.reconnect_with_state".into();
    let read = read(&frame).unwrap();
    let signed_state = Some("b64".to_owned());
    assert_eq!(read.session, None);
    assert_eq!(read.request, Request::ReconnectWithState { signed_state, cursor: None });
}

#[test]
fn a_session_is_created_as_wished() {
    let frame = json!({
        "event": "user.create_session", "command_id": "c-1",
        "content": {
            "client_id": "web", "session_name": "Desk",
            "preferences": { "language": "zh-CN", "theme": "dark" },
            "config": {
                "model": "demo", "permission_mode": "readonly", "on_disconnect": "cancel",
                "max_steps": 4, "patience_ms": 60000, "tools": ["fs_*"], "mode": "plan", "confirm": true,
            },
        },
    });
    let inbound = read(&frame).unwrap();
    assert_eq!(inbound.command.unwrap().to_string(), "c-1");
    let expected = SessionRequest {
        language: Some(Lang::Zh),
        title: Some("Desk".to_owned()),
        models: Some(vec!["demo".to_owned()]),
        system: None,
        mode: Some(Mode::Readonly),
        tools: Some(vec!["fs_*".to_owned()]),
        max_steps: Some(4),
        patience_ms: Some(60_000),
        answer_schema: None,
        on_disconnect: Some(OnDisconnect::Cancel),
        plan: Some(PlanPreference { confirm: true }),
        labels: vec![("client_id", "web".to_owned())],
    };
    assert_eq!(inbound.request, Request::CreateSession(Box::new(expected)));
}

#[rstest]
#[case(json!("a"), &["a"])]
#[case(json!("a, b"), &["a", "b"])]
#[case(json!(["a", "b,c"]), &["a", "b,c"])]
fn models_come_as_one_name_with_commas_or_as_a_list(#[case] model: Value, #[case] names: &[&str]) {
    let config = json!({ "model": model });
    let frame = json!({ "event": "user.create_session", "content": { "config": config } });
    let Request::CreateSession(creation) = read(&frame).unwrap().request else { panic!() };
    assert_eq!(creation.models.unwrap(), names);
}

#[rstest]
#[case(json!({ "task_id": "t1" }), "t1")]
#[case(json!({ "task_id": 1 }), "1")]
#[case(json!("t1"), "t1")]
fn a_task_is_named_by_text_or_number(#[case] content: Value, #[case] expected: &str) {
    let Request::CancelTask { task } =
        asks(json!({ "event": "user.cancel_task", "content": content }))
    else {
        panic!("a task")
    };
    assert_eq!(&*task.0, expected);
}

#[test]
fn a_trace_is_carried() {
    let frame = json!({
        "event": "user.cancel", "session_id": SESSION,
        "metadata": { "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01" },
    });
    assert_eq!(read(&frame).unwrap().trace.to_string(), "4bf92f3577b34da6a3ce929d0e0e4736");
}

/// Every mistake has one refusal, which names the field and the rule.
#[test]
fn mistakes_are_refused_by_field_and_rule() {
    let limits = FrameLimits::default();
    let deep = "[".repeat(100_000);
    let huge = format!(r#"{{"event":"user.message","content":"{}"}}"#, "x".repeat(1 << 20));
    let long = json!({ "event": "user.ack", "command_id": "x".repeat(129), "seq": 1 }).to_string();
    let texts: Vec<(&str, String)> = vec![
        ("nothing", String::new()),
        ("not JSON", "hello".to_owned()),
        ("cut off", r#"{"event":"user.mess"#.to_owned()),
        ("two in one", "{} {}".to_owned()),
        ("a list", "[]".to_owned()),
        ("too deep", deep),
        ("too large", huge),
        ("no event", "{}".to_owned()),
        ("event is a number", r#"{"event":5}"#.to_owned()),
        ("unknown event", r#"{"event":"user.mesage"}"#.to_owned()),
        ("an event of ours", r#"{"event":"agent.final_answer"}"#.to_owned()),
        ("long command id", long),
    ];
    let frames = vec![
        ("no session", json!({ "event": "user.message", "content": "x" })),
        ("session is a number", json!({ "event": "user.cancel", "session_id": 5 })),
        ("session is no id", json!({ "event": "user.cancel", "session_id": "../etc" })),
        ("reserved command id", json!({ "event": "user.ack", "command_id": "own-1", "seq": 1 })),
        ("empty command id", json!({ "event": "user.ack", "command_id": "", "seq": 1 })),
        ("command id is a number", json!({ "event": "user.ack", "command_id": 1, "seq": 1 })),
        ("metadata is text", json!({ "event": "user.ack", "seq": 1, "metadata": "x" })),
        ("blank message", json!({ "event": "user.message", "content": "  " })),
        ("no content", json!({ "event": "user.message" })),
        ("content is a number", json!({ "event": "user.message", "content": 5 })),
        ("no text in it", json!({ "event": "user.message", "content": { "a": 1 } })),
        ("text is a list", json!({ "event": "user.message", "content": { "text": [] } })),
        (
            "unknown mode",
            json!({ "event": "user.message", "content": { "text": "x", "mode": "yolo" } }),
        ),
        (
            "images are text",
            json!({ "event": "user.message", "content": { "text": "x", "images": "y" } }),
        ),
        ("tasks are text", json!({ "event": "user.solve_tasks", "content": { "tasks": "x" } })),
        ("no tasks", json!({ "event": "user.solve_tasks" })),
        ("no step", json!({ "event": "user.response", "content": { "confirmed": true } })),
        ("no decision", json!({ "event": "user.response", "step_id": "q", "content": {} })),
        (
            "decision is text",
            json!({ "event": "user.response", "step_id": "q", "content": { "confirmed": "yes" } }),
        ),
        (
            "two decisions",
            json!({ "event": "user.response", "step_id": "q", "content": { "confirmed": true, "approved": false } }),
        ),
        ("no task", json!({ "event": "user.cancel_task", "content": {} })),
        ("task is a list", json!({ "event": "user.restart_task", "content": { "task_id": [] } })),
        ("negative ack", json!({ "event": "user.ack", "content": -1 })),
        ("ack of a fraction", json!({ "event": "user.ack", "content": { "last_seq": 1.5 } })),
        ("ack of nothing", json!({ "event": "user.ack", "content": {} })),
        (
            "foreign event id",
            json!({ "event": "user.ack", "content": { "last_event_id": "conn-17" } }),
        ),
        (
            "two cursors",
            json!({ "event": "user.ack", "content": { "last_seq": 1, "last_event_id": format!("{SESSION}.5eed0001.7") } }),
        ),
        (
            "another session's event",
            json!({ "event": "user.ack", "session_id": "01900000-0000-7000-8000-000000000009", "content": { "last_event_id": format!("{SESSION}.5eed0001.7") } }),
        ),
        ("bad epoch", json!({ "event": "user.reconnect", "last_seq": 1, "epoch": "latest" })),
        ("nothing to restore", json!({ "event": "user.reconnect_with_state", "session_id": null })),
        ("state is an object", json!({ "event": "user.reconnect_with_state", "signed_state": {} })),
        ("content is a list", json!({ "event": "user.create_session", "content": [] })),
        (
            "language is a number",
            json!({ "event": "user.create_session", "content": { "preferences": { "language": 1 } } }),
        ),
        (
            "unknown permission mode",
            json!({ "event": "user.create_session", "content": { "config": { "permission_mode": "yolo" } } }),
        ),
        (
            "no steps",
            json!({ "event": "user.create_session", "content": { "config": { "max_steps": 0 } } }),
        ),
        (
            "a model twice",
            json!({ "event": "user.create_session", "content": { "config": { "model": "a,a" } } }),
        ),
        (
            "a model that is a number",
            json!({ "event": "user.create_session", "content": { "config": { "model": [1] } } }),
        ),
        ("turn is a text", json!({ "event": "user.retry", "content": { "turn": "last" } })),
        ("turn is negative", json!({ "event": "user.retry", "content": -1 })),
        ("question is a list", json!({ "event": "user.replan", "content": { "question": [] } })),
    ];
    let homeless = ["no session", "nothing to restore"];
    let frames = frames.into_iter().map(|(name, mut frame)| {
        if frame["session_id"].is_null() && !homeless.contains(&name) {
            frame["session_id"] = SESSION.into();
        }
        (name, frame.to_string())
    });
    let mut rendered = String::new();
    for (name, text) in texts.into_iter().chain(frames) {
        let refusal = parse(&text, &limits).expect_err(name);
        rendered += &format!("{name}\n    {}\n", line(&refusal));
    }
    insta::assert_snapshot!("mistakes", rendered);
}

fn line(refusal: &FrameRefusal) -> String {
    let fault = &refusal.fault;
    let facts = [
        Fact::Field,
        Fact::Constraint,
        Fact::ProvidedValue,
        Fact::Limit,
        Fact::LimitName,
        Fact::Nearest,
        Fact::Position,
    ];
    let facts: Vec<String> = facts
        .into_iter()
        .filter_map(|fact| Some(format!("{fact}: {}", fault.detail().get(fact)?)))
        .collect();
    format!("{} {}", fault.row().code, facts.join("; "))
}

#[test]
fn a_refusal_names_the_command_it_answers() {
    let frame = json!({
        "event": "user.message", "command_id": "c-9", "session_id": SESSION, "content": 5,
    });
    let refusal = read(&frame).unwrap_err();
    assert_eq!(refusal.command.unwrap().to_string(), "c-9");
    assert_eq!(refusal.session, Some(id()));
    assert_eq!(refusal.action, Some("message"));
}

#[test]
fn nesting_is_counted_outside_of_strings_only() {
    let brackets = "[".repeat(500);
    let frame = json!({ "event": "user.message", "session_id": SESSION, "content": brackets });
    assert!(read(&frame).is_ok());
    let deepest = "[".repeat(62) + &"]".repeat(62);
    let text = format!(r#"{{"event":"user.ack","seq":1,"x":{{"y":{deepest}}}}}"#);
    assert!(parse(&text, &FrameLimits::default()).is_ok());
    let deeper = format!(r#"{{"event":"user.ack","seq":1,"x":{{"y":[{deepest}]}}}}"#);
    assert!(parse(&deeper, &FrameLimits::default()).is_err());
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        ".{0,12}".prop_map(Value::from),
        Just(Value::from(SESSION)),
    ];
    let names = prop::sample::select(vec![
        "event",
        "session_id",
        "content",
        "metadata",
        "last_seq",
        "last_event_id",
        "text",
        "confirmed",
        "tasks",
        "task_id",
        "config",
        "preferences",
        "signed_state",
        "epoch",
        "x",
    ]);
    leaf.prop_recursive(4, 24, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(names.clone().prop_map(str::to_owned), inner, 0..6)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in ".{0,200}") {
        let _ = parse(&text, &FrameLimits::default());
    }

    #[test]
    fn any_frame_is_read_or_refused(
        event in prop::sample::select(EVENTS.to_vec()), content in any_json(), more in any_json(),
    ) {
        let mut frame = json!({ "event": event, "session_id": SESSION, "content": content });
        if let Value::Object(more) = more {
            for (name, value) in more {
                frame.as_object_mut().unwrap().entry(name).or_insert(value);
            }
        }
        if let Err(refusal) = read(&frame) {
            let fault = refusal.fault;
            prop_assert!(fault.detail().get(Fact::Field).is_some(), "{fault}");
        }
    }
}

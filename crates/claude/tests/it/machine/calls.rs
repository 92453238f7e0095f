//! Calls: asked about once, one outcome each, whatever order their lines come in.

use budao_core::{
    event::{Decision, Event, QuestionId},
    fault::Kind,
    tool::{Outcome, TodoStatus},
};
use serde_json::json;

use super::*;

/// The outcome in the last of these events that has one.
fn outcome(events: &[Event]) -> Outcome {
    let mut ended = events.iter().rev().filter_map(|event| match event {
        Event::ToolCallEnded { outcome, .. } => Some(outcome.clone()),
        _ => None,
    });
    ended.next().unwrap_or_else(|| panic!("no call ended: {events:?}"))
}

fn data(events: &[Event]) -> Value {
    match outcome(events) {
        Outcome::Done(output) => output.data,
        Outcome::Failed(failure) => panic!("failed: {failure:?}"),
    }
}

fn fault(events: &[Event]) -> Kind {
    match outcome(events) {
        Outcome::Done(output) => panic!("done: {output:?}"),
        Outcome::Failed(failure) => failure.fault.kind(),
    }
}

fn questions(events: &[Event]) -> Vec<(String, String)> {
    let questions = events.iter().filter_map(|event| match event {
        Event::QuestionAsked { question, reason, .. } => {
            Some((question.to_string(), reason.clone()))
        }
        _ => None,
    });
    questions.collect()
}

/// A turn whose answer calls a tool, and is complete.
fn calling(mode: Mode, tool: &str) -> (Conversation, String) {
    let (mut conversation, prompt) = Conversation::started_with(mode);
    conversation.line(stream_begins("m1"));
    conversation.line(whole("m1", json!([call("t1", tool, json!({"todos": []}))])));
    conversation.line(stream_ends());
    (conversation, prompt)
}

#[test]
fn of_what_a_tool_gave_texts_are_joined_and_pictures_are_kept_by_their_weight() {
    let (mut conversation, _) = calling(Mode::Auto, "Read");
    assert_eq!(
        data(&conversation.line(gave("t1", json!([text_block("a"), text_block("b")])))),
        json!("a\nb")
    );
    let (mut conversation, _) = calling(Mode::Auto, "Read");
    let picture = json!({"type": "image", "source": {"type": "base64", "data": "AAAAAAAA"}});
    let other = json!({"type": "link", "to": "x"});
    let events = conversation.line(gave("t1", json!([text_block("a"), picture, other])));
    let without_image = json!({"type": "image", "bytes_in_base64": 8});
    assert_eq!(data(&events), json!([text_block("a"), without_image, other]));
}

#[test]
fn a_long_output_is_kept_by_its_head_and_tail_and_cut_between_letters() {
    let cut = |content: Value| {
        let (mut conversation, _) = calling(Mode::Auto, "Read");
        conversation.limits.output_bytes = 15;
        match outcome(&conversation.line(gave("t1", content))) {
            Outcome::Done(output) => (output.data, output.cut.map(|cut| cut.total_bytes)),
            Outcome::Failed(failure) => panic!("{failure:?}"),
        }
    };
    assert_eq!(cut(json!("exactly 15 byte")), (json!("exactly 15 byte"), None));
    assert_eq!(cut(json!("0123456789abcdef")), (json!("0123456\n…\n9abcdef"), Some(16)));
    // Seven bytes are three and a half of these letters.
    assert_eq!(cut(json!("éééééééééé")), (json!("ééé\n…\nééé"), Some(20)));
    assert_eq!(cut(json!({"a": 1})), (json!({"a": 1}), None));
    let long = json!({"a": "0123456789"});
    assert_eq!(cut(long), (json!("{\"a\":\"0\n…\n56789\"}"), Some(18)));
}

#[test]
fn the_to_do_list_is_recorded_after_the_cli_has_written_it() {
    let (mut conversation, _) = Conversation::started();
    let todos = json!({"todos": [
        {"content": "dig", "status": "completed"},
        {"content": "sow", "status": "in_progress"},
        {"content": "reap", "status": "some day"},
    ]});
    conversation.line(whole("m1", json!([call("t1", "TodoWrite", todos)])));
    let events = conversation.line(gave("t1", json!("ok")));
    let Some(Event::TodosChanged { todos }) = events.last() else { panic!("{events:?}") };
    let titles: Vec<_> = todos.iter().map(|todo| (&*todo.id, &*todo.title, todo.status)).collect();
    assert_eq!(
        titles,
        [
            ("1", "dig", TodoStatus::Completed),
            ("2", "sow", TodoStatus::InProgress),
            ("3", "reap", TodoStatus::Pending)
        ]
    );
}

#[test]
fn a_question_that_comes_before_its_answer_is_complete_waits_for_it() {
    let (mut conversation, _) = Conversation::started_with(Mode::Approval);
    conversation.line(stream_begins("m1"));
    assert_eq!(conversation.line(permission_request("r1", "t1", "Bash")), []);
    conversation.line(whole("m1", json!([call("t1", "Bash", json!({}))])));
    assert_eq!(names(&conversation.line(stream_ends())), ["model_answered", "question_asked"]);
}

#[test]
fn a_question_that_waits_and_is_withdrawn_is_never_asked() {
    let (mut conversation, _) = Conversation::started_with(Mode::Approval);
    conversation.line(stream_begins("m1"));
    conversation.line(permission_request("r1", "t1", "Bash"));
    let withdrawn = json!({"type": "control_cancel_request", "request_id": "r1"});
    assert_eq!(conversation.line(withdrawn.clone()), []);
    conversation.line(whole("m1", json!([call("t1", "Bash", json!({}))])));
    assert_eq!(names(&conversation.line(stream_ends())), ["model_answered"]);
    assert_eq!(conversation.line(withdrawn), [], "nor is one that nobody knows");
}

#[test]
fn a_question_of_a_sub_agent_does_not_complete_the_agents_own_answer() {
    let (mut conversation, _) = Conversation::started_with(Mode::Approval);
    conversation.line(whole("m1", json!([call("t1", "Task", json!({}))])));
    assert_eq!(
        names(&conversation.line(permission_request("r1", "inner", "Bash"))),
        ["question_asked"]
    );
}

#[test]
fn a_question_withdrawn_when_no_turn_runs_is_nobodys() {
    let (mut conversation, prompt) = Conversation::started();
    conversation.line(result(&prompt));
    let withdrawn = json!({"type": "control_cancel_request", "request_id": "r1"});
    assert_eq!(conversation.line(withdrawn), []);
}

#[test]
fn a_question_about_a_whole_answer_completes_it() {
    let (mut conversation, _) = Conversation::started();
    conversation.line(whole("m1", json!([call("t1", "Bash", json!({}))])));
    assert_eq!(
        names(&conversation.line(permission_request("r1", "t1", "Bash"))),
        ["model_answered", "tool_call_started"]
    );
    assert_eq!(conversation.permitted().as_deref(), Some("allow"));
    assert_eq!(conversation.line(permission_request("r2", "t1", "Bash")), [], "it runs already");
    assert_eq!(conversation.permitted().as_deref(), Some("allow"));
}

#[test]
fn a_tool_result_before_the_complete_answer_is_kept() {
    let (mut conversation, _) = Conversation::started();
    conversation.line(stream_begins("m1"));
    conversation.line(whole("m1", json!([call("t1", "Read", json!({}))])));
    assert_eq!(conversation.line(gave("t1", json!("early"))), []);
    let events = conversation.line(stream_ends());
    assert_eq!(names(&events), ["model_answered", "tool_call_started", "tool_call_ended"]);
    assert_eq!(data(&events), json!("early"));
    assert_eq!(conversation.line(gave("t1", json!("again"))), [], "one outcome is enough");
    assert_eq!(conversation.line(gave("t9", json!("whose?"))), [], "a call nobody made has none");
}

#[test]
fn a_result_of_an_unknown_call_does_not_complete_an_answer() {
    let (mut conversation, _) = Conversation::started();
    conversation.line(whole("m1", json!([call("t1", "Read", json!({}))])));
    assert_eq!(conversation.line(gave("t9", json!("whose?"))), []);
    assert_eq!(
        names(&conversation.line(gave("t1", json!("mine")))),
        ["model_answered", "tool_call_started", "tool_call_ended"]
    );
}

#[test]
fn a_turn_that_is_being_cancelled_denies_permissions_at_once() {
    let (mut conversation, _) = calling(Mode::Approval, "Bash");
    conversation.ask(CommandBody::Cancel { reason: None });
    assert_eq!(conversation.line(permission_request("r1", "t1", "Bash")), []);
    assert_eq!(conversation.permitted().as_deref(), Some("deny"));
    let mut failed = gave("t1", json!("stopped"));
    failed["message"]["content"][0]["is_error"] = json!(true);
    assert_eq!(fault(&conversation.line(failed)), Kind::Cancelled);
}

#[test]
fn a_call_of_a_sub_agent_is_asked_about_under_a_name_of_its_own() {
    let (mut conversation, _) = Conversation::started_with(Mode::Approval);
    let first = questions(&conversation.line(permission_request("r1", "inner", "Bash")));
    let second = questions(&conversation.line(permission_request("r2", "inner", "Bash")));
    assert_eq!((first.len(), second.len()), (1, 1));
    assert_ne!(first[0].0, second[0].0);
    let question = QuestionId(first[0].0.as_str().into());
    conversation.ask(CommandBody::Decide {
        question,
        decision: Decision::Allow,
        note: None,
        arguments: None,
        digest: None,
    });
    assert_eq!(conversation.permitted().as_deref(), Some("allow"));
    assert_eq!(conversation.sent()[0]["response"]["request_id"], "r1");
}

#[test]
fn the_person_reads_why_the_cli_asks_and_asked_twice_is_two_questions() {
    let (mut conversation, _) = calling(Mode::Approval, "Write");
    let mut line = permission_request("r1", "t1", "Write");
    line["request"]["blocked_path"] = json!("/etc/hosts");
    let first = questions(&conversation.line(line));
    let mut line = permission_request("r2", "t1", "Write");
    line["request"]["decision_reason"] = json!("it is outside");
    let second = questions(&conversation.line(line));
    assert!(first[0].1.ends_with(": /etc/hosts"), "{first:?}");
    assert_eq!(second[0].1, "it is outside");
    assert_ne!(first[0].0, second[0].0);
}

#[test]
fn a_call_denied_by_policy_or_by_the_clis_own_rules_ends_denied() {
    let (mut conversation, _) = calling(Mode::Readonly, "Bash");
    let events = conversation.line(permission_request("r1", "t1", "Bash"));
    assert_eq!(names(&events), ["tool_call_ended"]);
    assert_eq!(fault(&events), Kind::DeniedByPolicy);
    assert_eq!(conversation.permitted().as_deref(), Some("deny"));

    let (mut conversation, _) = calling(Mode::Auto, "Bash");
    let denied = json!({"type": "system", "subtype": "permission_denied", "tool_use_id": "t1"});
    assert_eq!(conversation.line(denied), []);
    let mut failed = gave("t1", json!("no"));
    failed["message"]["content"][0]["is_error"] = json!(true);
    let events = conversation.line(failed);
    assert_eq!(names(&events), ["tool_call_ended"], "it never ran");
    assert_eq!(fault(&events), Kind::DeniedByPolicy);
}

#[test]
fn a_failed_tool_is_recorded_with_its_output() {
    let (mut conversation, _) = calling(Mode::Auto, "Bash");
    let mut failed = gave("t1", json!("exit 2"));
    failed["message"]["content"][0]["is_error"] = json!(true);
    let Outcome::Failed(failure) = outcome(&conversation.line(failed)) else {
        panic!("it is done")
    };
    assert_eq!((failure.fault.kind(), failure.data), (Kind::ToolFailed, Some(json!("exit 2"))));
}

#[test]
fn a_result_for_a_call_that_is_asked_about_closes_its_question() {
    let (mut conversation, _) = calling(Mode::Approval, "Bash");
    conversation.line(permission_request("r1", "t1", "Bash"));
    let events = conversation.line(gave("t1", json!("whatever")));
    assert_eq!(names(&events), ["question_answered", "tool_call_ended"]);
    assert_eq!(fault(&events), Kind::Cancelled);
}

#[test]
fn a_question_that_is_open_when_the_next_answer_begins_is_closed() {
    let (mut conversation, _) = calling(Mode::Approval, "Bash");
    conversation.line(permission_request("r1", "t1", "Bash"));
    let events = conversation.line(stream_begins("m2"));
    assert_eq!(names(&events), ["question_answered", "tool_call_ended", "step_started"]);
}

#[test]
fn a_call_the_cli_runs_without_asking_counts_as_running_after_a_while() {
    let (mut conversation, _) = calling(Mode::Approval, "Read");
    assert_eq!(conversation.wake(), Some(Duration::from_millis(200)));
    assert_eq!(conversation.later(Duration::from_millis(199)), []);
    assert_eq!(names(&conversation.later(Duration::from_millis(1))), ["tool_call_started"]);
    assert_eq!(conversation.later(Duration::from_millis(200)), []);
    let events = conversation.line(gave("t1", json!("read")));
    let Some(Event::ToolCallEnded { duration_ms, .. }) = events.last() else {
        panic!("{events:?}")
    };
    assert_eq!(*duration_ms, 200);
}

#[test]
fn a_call_that_waits_for_a_person_is_not_counted_as_running() {
    let (mut conversation, _) = calling(Mode::Approval, "Bash");
    conversation.line(permission_request("r1", "t1", "Bash"));
    assert_eq!(conversation.later(Duration::from_secs(1)), []);
}

#[test]
fn an_open_call_has_an_unknown_outcome_once_the_turn_continues() {
    let (mut conversation, _) = calling(Mode::Auto, "Bash");
    let events = conversation.line(stream_begins("m2"));
    assert_eq!(names(&events), ["tool_call_ended", "step_started"]);
    assert_eq!(fault(&events), Kind::OutcomeUnknown);
}

#[test]
fn unknown_requests_are_refused_and_unexpected_answers_are_dropped() {
    let (mut conversation, _) = Conversation::started();
    let line = json!({"type": "control_request", "request_id": "r1",
        "request": {"subtype": "sing"}});
    assert_eq!(conversation.line(line), []);
    assert_eq!(conversation.sent()[0]["response"]["subtype"], "error");
    let answered = |id: &str, subtype: &str| {
        json!({"type": "control_response", "response": {
        "request_id": id, "subtype": subtype, "error": "no"}})
    };
    assert_eq!(conversation.line(answered("r9", "error")), []);
    conversation.ask(CommandBody::Settings {
        settings: Box::new(Settings { model: "other".into(), ..Settings::default() }),
        before: None,
    });
    let ids: Vec<String> = conversation
        .sent()
        .iter()
        .map(|line| line["request_id"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(names(&conversation.line(answered(&ids[0], "error"))), ["fault_raised"]);
    assert_eq!(conversation.line(answered(&ids[0], "error")), [], "each is answered once");
}

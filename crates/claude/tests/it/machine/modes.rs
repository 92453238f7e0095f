//! Permission modes: the one a session is set to is the one in force, whoever changed it.

use budao_claude::{arguments, permissions};
use budao_core::event::{Decision, QuestionId};
use serde_json::json;

use super::*;

/// What the last input recorded the session to be set to.
fn recorded(events: &[Event]) -> Option<Mode> {
    events.iter().rev().find_map(|event| match event {
        Event::SettingsChanged { settings } => Some(settings.permissions.mode),
        _ => None,
    })
}

fn set(mode: Mode) -> CommandBody {
    let permissions = Permissions { mode, ..Permissions::default() };
    let settings = Box::new(Settings { permissions, ..Settings::default() });
    CommandBody::Settings { settings, before: None }
}

fn status(mode: &str) -> Value {
    json!({"type": "system", "subtype": "status", "status": null, "permissionMode": mode})
}

fn init_in(prompts: &[&str], mode: &str) -> Value {
    let mut line = init(prompts);
    line["permissionMode"] = mode.into();
    line
}

/// Requests for another mode that the last input sent: id, mode.
fn modes_sent(conversation: &Conversation) -> Vec<(String, String)> {
    let sent = conversation.sent();
    let requests = sent.iter().filter(|it| it["request"]["subtype"] == "set_permission_mode");
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    requests.map(|it| (text(&it["request_id"]), text(&it["request"]["mode"]))).collect()
}

fn answer(request: &str, response: Value) -> Value {
    json!({"type": "control_response",
        "response": {"subtype": "success", "request_id": request, "response": response}})
}

/// A turn in plan mode whose plan was handed in and waits for a person.
fn planned() -> Conversation {
    let (mut conversation, _) = Conversation::started_with(Mode::Readonly);
    conversation.line(stream_begins("m1"));
    conversation.line(whole("m1", json!([call("t1", "ExitPlanMode", json!({"plan": "do it"}))])));
    conversation.line(stream_ends());
    conversation.line(permission_request("r1", "t1", "ExitPlanMode"));
    conversation
}

fn decide(conversation: &mut Conversation, decision: Decision) {
    let question = QuestionId("ask_call_1_1_1".into());
    let (note, arguments, digest) = (None, None, None);
    conversation.ask(CommandBody::Decide { question, decision, note, arguments, digest });
}

#[test]
fn every_start_of_the_cli_names_its_permission_mode() {
    for (mode, word) in
        [(Mode::Approval, "default"), (Mode::Auto, "default"), (Mode::Readonly, "plan")]
    {
        let (conversation, _) = (Conversation::started_with(mode).0, ());
        let settings = conversation.machine.session().settings.clone();
        for launch in [budao_claude::Launch::Fresh, budao_claude::Launch::Resume] {
            let session = SessionId(Uuid::from_u128(7));
            let settings = settings.clone();
            let start = budao_claude::LaunchSpec { session, launch, settings, mcp_servers: None };
            let args = arguments(&start);
            let at = args.iter().position(|arg| arg == "--permission-mode").expect("it is passed");
            assert_eq!(args[at + 1], word, "{launch:?}");
        }
    }
}

#[test]
fn a_mode_the_cli_reports_is_the_sessions_mode() {
    let (mut conversation, prompt) = Conversation::started_with(Mode::Approval);
    assert_eq!(recorded(&conversation.line(status("plan"))), Some(Mode::Readonly));
    assert_eq!(recorded(&conversation.line(status("plan"))), None, "said again");
    let events = conversation.line(status("acceptEdits"));
    assert_eq!(recorded(&events), Some(Mode::Approval));
    assert_eq!(conversation.machine.session().settings.extra[permissions::MODE], "acceptEdits");
    conversation.line(result(&prompt));
    // An older CLI says it only when a turn begins.
    let prompt = conversation.say("again");
    assert_eq!(recorded(&conversation.line(init_in(&[&prompt], "plan"))), Some(Mode::Readonly));
    assert!(modes_sent(&conversation).is_empty(), "the CLI is there already");
}

#[test]
fn a_report_older_than_our_change_does_not_undo_it() {
    let (mut conversation, _) = Conversation::started_with(Mode::Approval);
    conversation.ask(set(Mode::Readonly));
    let [(request, mode)] = modes_sent(&conversation).try_into().unwrap();
    assert_eq!(mode, "plan");
    assert_eq!(recorded(&conversation.line(status("default"))), None, "said before it heard of it");
    assert_eq!(recorded(&conversation.line(answer(&request, json!({"mode": "plan"})))), None);
    assert_eq!(recorded(&conversation.line(status("plan"))), None);
    assert_eq!(conversation.machine.session().settings.permissions.mode, Mode::Readonly);
    assert_eq!(recorded(&conversation.line(status("default"))), Some(Mode::Approval), "news again");
}

#[test]
fn a_mode_the_cli_refuses_is_not_shown_as_in_force() {
    let (mut conversation, _) = Conversation::started_with(Mode::Approval);
    conversation.ask(set(Mode::Readonly));
    let [(request, _)] = modes_sent(&conversation).try_into().unwrap();
    let events = conversation.line(json!({"type": "control_response", "response":
        {"subtype": "error", "request_id": request, "error": "not now"}}));
    assert_eq!(recorded(&events), Some(Mode::Approval));
    assert!(events.iter().any(|event| matches!(event, Event::FaultRaised { .. })), "and told");
}

#[test]
fn a_permission_mode_that_is_not_offered_is_undone_once() {
    let (mut conversation, _) = Conversation::started_with(Mode::Approval);
    assert_eq!(recorded(&conversation.line(status("telepathy"))), None);
    let [(request, mode)] = modes_sent(&conversation).try_into().unwrap();
    assert_eq!(mode, "default");
    conversation.line(json!({"type": "control_response", "response":
        {"subtype": "error", "request_id": request, "error": "no"}}));
    assert!(modes_sent(&conversation).is_empty(), "no endless argument");
}

#[test]
fn an_approved_plan_ends_plan_mode_with_and_without_a_report_of_the_cli() {
    for says_so in [true, false] {
        let mut conversation = planned();
        decide(&mut conversation, Decision::Allow);
        let sent = conversation.sent().pop().unwrap();
        let updates = &sent["response"]["response"]["updatedPermissions"];
        assert_eq!(updates[0]["mode"], "default", "{sent}");
        let mode_reported =
            if says_so { recorded(&conversation.line(status("default"))) } else { None };
        let events = conversation.line(gave("t1", json!("approved")));
        assert_eq!(mode_reported.or(recorded(&events)), Some(Mode::Approval), "{says_so}");
        assert!(mode_reported.is_none() || recorded(&events).is_none(), "once");
    }
}

#[test]
fn a_rejected_plan_leaves_plan_mode_on() {
    let mut conversation = planned();
    decide(&mut conversation, Decision::Deny);
    let events = conversation.line(json!({"type": "user", "message": {"content": [
        {"type": "tool_result", "tool_use_id": "t1", "is_error": true, "content": "no"}]}}));
    assert_eq!(recorded(&events), None);
    assert_eq!(conversation.machine.session().settings.permissions.mode, Mode::Readonly);
}

#[test]
fn a_model_that_begins_to_plan_is_in_plan_mode_at_once() {
    let (mut conversation, _) = Conversation::started_with(Mode::Approval);
    conversation.line(stream_begins("m1"));
    conversation.line(whole("m1", json!([call("t1", "EnterPlanMode", json!({}))])));
    conversation.line(stream_ends());
    assert_eq!(recorded(&conversation.line(gave("t1", json!("entered")))), Some(Mode::Readonly));
    conversation.line(stream_begins("m2"));
    conversation.line(whole("m2", json!([call("t2", "Bash", json!({"command": "make"}))])));
    conversation.line(stream_ends());
    conversation.line(permission_request("r2", "t2", "Bash"));
    assert_eq!(conversation.permitted().as_deref(), Some("deny"));
}

#[test]
fn the_engine_of_a_session_is_no_setting() {
    let mut conversation = Conversation::of(Session::default());
    let mut settings = Settings::default();
    settings.labels.insert(Settings::ENGINE.to_owned(), "claude".to_owned());
    conversation.input(Input::Opened { settings: Box::new(settings), origin: None });
    conversation.ask(set(Mode::Auto));
    assert_eq!(conversation.machine.session().settings.labels[Settings::ENGINE], "claude");
}

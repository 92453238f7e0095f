//! Parses each `user.*` event into its [`Request`].

use std::str::FromStr as _;

use budao_core::{
    Fault, Lang,
    event::{CommandId, Decision, Epoch, QuestionId, SessionId, Settlement, TaskId, TurnNumber},
    fallback,
    fault::Fact,
    message::{Block, CallId},
    tool::Mode,
};
use serde_json::Value;

use super::{
    Cursor, MessageConfig, OnDisconnect, PlanPreference, Request, SessionRequest,
    fields::{self, Fields},
    timers, worker,
};

/// Maximum length of a title or a label in characters; longer ones are truncated.
const LABEL_CHARS: usize = 120;
/// The accepted names of a message's text within an object.
const TEXT_FIELDS: [&str; 6] = ["text", "message", "content", "question", "prompt", "query"];

/// Parses an event. The session may come from the frame or from its cursor; both must agree.
pub(super) fn request(
    event: &str,
    frame: &Fields<'_>,
    session: Option<SessionId>,
) -> Result<(Option<SessionId>, Request), Fault> {
    let request = read_request(event, frame, session)?;
    let named = match &request {
        Request::Ack(cursor)
        | Request::Reconnect { cursor: Some(cursor) }
        | Request::ReconnectWithState { cursor: Some(cursor), .. } => cursor.session,
        _ => None,
    };
    match (session, named) {
        (Some(session), Some(named)) if session != named => {
            let rule = "`last_event_id` is an event of the session";
            Err(fields::constraint_fault("last_event_id", rule, &named.to_string()))
        }
        _ => Ok((session.or(named), request)),
    }
}

fn read_request(
    event: &str,
    frame: &Fields<'_>,
    session: Option<SessionId>,
) -> Result<Request, Fault> {
    let require_session =
        || session.map(drop).ok_or_else(|| fields::missing_fault("session_id", "text"));
    match event {
        "user.create_session" => return read_creation(frame),
        "user.ack" => return read_ack(frame),
        "user.reconnect" => return read_reconnect(frame, session),
        "user.reconnect_with_state" => return read_reconnect_with_state(frame, session),
        "user.offer_tools" => return worker::read_offer(frame),
        "user.drain_worker" => return worker::read_drain(frame),
        _ => require_session()?,
    }
    match event {
        "user.message" => read_message(frame),
        "user.solve_tasks" => read_solve_tasks(frame),
        "user.response" => read_response(frame),
        "user.revoke_permission" => Ok(Request::RevokePermission { tool: read_tool_name(frame)? }),
        "user.cancel" => Ok(Request::Cancel { reason: read_reason(frame)? }),
        "user.withdraw" => Ok(Request::Withdraw { message: read_message_id(frame)? }),
        "user.settle_doubt" => read_settle_doubt(frame),
        "user.set_timer" => timers::read_set_timer(frame),
        "user.cancel_timer" => timers::read_cancel_timer(frame),
        "user.retry" => Ok(Request::Retry { turn: read_turn(frame)? }),
        "user.cancel_task" => Ok(Request::CancelTask { task: read_task(frame)? }),
        "user.restart_task" | "user.retry_task" => {
            Ok(Request::RestartTask { task: read_task(frame)? })
        }
        "user.cancel_plan" => Ok(Request::CancelPlan),
        "user.replan" => Ok(Request::Replan { question: read_question(frame)? }),
        "user.tool_claim" => Ok(Request::ToolClaim(worker::read_claim(frame)?)),
        "user.tool_output" => worker::read_output(frame),
        "user.tool_result" => worker::read_result(frame),
        "user.close_session" => Ok(Request::CloseSession),
        _ => Ok(Request::RequestState),
    }
}

/// The content, if it is an object.
fn content<'a>(frame: &Fields<'a>) -> Option<Fields<'a>> {
    frame.get("content").and_then(Value::as_object).map(|map| Fields::nested(map, "content"))
}

fn metadata<'a>(frame: &Fields<'a>) -> Option<Fields<'a>> {
    frame.get("metadata").and_then(Value::as_object).map(|map| Fields::nested(map, "metadata"))
}

// ── sessions ──

fn read_creation(frame: &Fields<'_>) -> Result<Request, Fault> {
    let Some(content) = frame.object("content")? else {
        return Ok(Request::CreateSession(Box::default()));
    };
    let mut creation = SessionRequest {
        title: content.first_text(&["session_name", "project_name"])?.map(cut_label),
        ..SessionRequest::default()
    };
    if let Some(preferences) = content.object("preferences")? {
        creation.language = preferences.text("language")?.and_then(Lang::from_tag);
    }
    if let Some(config) = content.object("config")? {
        read_session_config(&mut creation, &config)?;
    }
    for name in ["client_id", "client_version", "app_version"] {
        creation.labels.extend(content.text(name)?.map(|text| (name, cut_label(text))));
    }
    if let Some(metadata) = metadata(frame) {
        creation.labels.extend(metadata.text("source")?.map(|text| ("source", cut_label(text))));
    }
    Ok(Request::CreateSession(Box::new(creation)))
}

fn cut_label(text: &str) -> String {
    crate::texts::cut(text.trim(), LABEL_CHARS).into_owned()
}

fn read_session_config(creation: &mut SessionRequest, config: &Fields<'_>) -> Result<(), Fault> {
    creation.models = read_models(config)?;
    creation.system = config.text("system")?.map(str::to_owned);
    creation.mode =
        read_choice(config, "permission_mode", &["auto", "approval", "readonly"], |name| {
            Mode::from_str(name).ok()
        })?;
    creation.on_disconnect =
        read_choice(config, "on_disconnect", &["continue", "cancel"], |name| {
            OnDisconnect::from_str(name).ok()
        })?;
    creation.max_steps = match config.integer("max_steps")? {
        None => None,
        Some(steps @ 1..) => Some(u32::try_from(steps).unwrap_or(u32::MAX)),
        Some(0) => {
            return Err(fields::constraint_fault(&config.path("max_steps"), "max_steps > 0", "0"));
        }
    };
    creation.patience_ms = config.integer("patience_ms")?;
    creation.answer_schema = config.get("answer_schema").cloned();
    creation.tools = match config.get("tools") {
        None => None,
        Some(tools) => Some(read_names(&config.path("tools"), tools)?),
    };
    creation.plan = read_plan_preference(Some(config))?;
    Ok(())
}

/// One model, `a,b`, or a list.
fn read_models(config: &Fields<'_>) -> Result<Option<Vec<String>>, Fault> {
    let path = config.path("model");
    let (models, received) = match config.get("model") {
        Some(list @ Value::Array(_)) => {
            let models = read_names(&path, list)?;
            (models.clone(), models.join(","))
        }
        _ => match config.text("model")? {
            Some(text) => {
                (text.split(',').map(|name| name.trim().to_owned()).collect(), text.to_owned())
            }
            None => return Ok(None),
        },
    };
    fallback::check_models(&path, &models).map_err(|fault| {
        let rule = fault.detail().text(Fact::Expected).unwrap_or_default().to_owned();
        fields::constraint_fault(&path, &rule, &received)
    })?;
    Ok(Some(models).filter(|models| !models.is_empty()))
}

fn read_names(path: &str, value: &Value) -> Result<Vec<String>, Fault> {
    let wrong = || fields::wrong_type_fault(path, "a list of names", value);
    let items = value.as_array().ok_or_else(wrong)?;
    items.iter().map(|item| item.as_str().map(str::to_owned).ok_or_else(wrong)).collect()
}

fn read_choice<T>(
    fields: &Fields<'_>,
    name: &str,
    allowed: &[&str],
    read: impl Fn(&str) -> Option<T>,
) -> Result<Option<T>, Fault> {
    let Some(text) = fields.text(name)? else { return Ok(None) };
    read(text).map(Some).ok_or_else(|| {
        let rule = format!("{name} is one of {}", allowed.join(", "));
        let allowed: Vec<String> = allowed.iter().map(ToString::to_string).collect();
        fields::constraint_fault(&fields.path(name), &rule, text).with(Fact::Allowed, allowed)
    })
}

/// Parses `mode: "plan"` and `confirm` from the content, metadata or config.
fn read_plan_preference(fields: Option<&Fields<'_>>) -> Result<Option<PlanPreference>, Fault> {
    let Some(fields) = fields else { return Ok(None) };
    let modes = ["chat", "plan"];
    let plans = read_choice(fields, "mode", &modes, |name| match name {
        "chat" => Some(false),
        "plan" => Some(true),
        _ => None,
    })?;
    let confirm = fields.flag("confirm")?.unwrap_or(false);
    Ok((plans == Some(true)).then_some(PlanPreference { confirm }))
}

// ── runs ──

fn read_message(frame: &Fields<'_>) -> Result<Request, Fault> {
    let (path, text) = match frame.get("content") {
        None => return Err(fields::missing_fault("content", "text, or an object with `text`")),
        Some(Value::String(text)) => ("content", text.as_str()),
        Some(Value::Object(map)) => {
            let content = Fields::nested(map, "content");
            let text = content.first_text(&TEXT_FIELDS)?;
            ("content.text", text.ok_or_else(|| fields::missing_fault("content.text", "text"))?)
        }
        Some(other) => {
            return Err(fields::wrong_type_fault(
                "content",
                "text, or an object with `text`",
                other,
            ));
        }
    };
    if text.trim().is_empty() {
        return Err(fields::constraint_fault(path, "a message is not blank", text));
    }
    let mut blocks = vec![Block::Text(text.to_owned())];
    if let Some(images) = content(frame).and_then(|content| content.get("images")) {
        blocks.extend(read_images(images)?);
    }
    let in_content = read_plan_preference(content(frame).as_ref())?;
    let plan = in_content.or(read_plan_preference(metadata(frame).as_ref())?);
    let config = content(frame).map(|content| content.object("config")).transpose()?.flatten();
    let config = config.map(|config| read_message_config(&config)).transpose()?.unwrap_or_default();
    Ok(Request::Message { content: blocks, plan, config })
}

fn read_message_config(config: &Fields<'_>) -> Result<MessageConfig, Fault> {
    let answer_schema = config.get_raw("answer_schema").cloned();
    Ok(MessageConfig { models: read_models(config)?, answer_schema })
}

fn read_images(images: &Value) -> Result<Vec<Block>, Fault> {
    let path = "content.images";
    let expected = "a list of objects with `media_type` and `data`";
    let wrong = || fields::wrong_type_fault(path, expected, images);
    let one = |image: &Value| {
        let field = |name: &str| image.get(name).and_then(Value::as_str).map(str::to_owned);
        match (field("media_type"), field("data")) {
            (Some(media_type), Some(data)) => Ok(Block::Image { media_type, data }),
            _ => Err(wrong()),
        }
    };
    images.as_array().ok_or_else(wrong)?.iter().map(one).collect()
}

fn read_solve_tasks(frame: &Fields<'_>) -> Result<Request, Fault> {
    let expected = "tasks, or an object with `tasks`";
    let (question, tasks) = match frame.get("content") {
        None => return Err(fields::missing_fault("content.tasks", expected)),
        Some(tasks @ Value::Array(_)) => ("", tasks.clone()),
        Some(whole @ Value::Object(map)) => {
            let content = Fields::nested(map, "content");
            let question = content.first_text(&["question", "plan_summary"])?.unwrap_or_default();
            (question, content.get("tasks").unwrap_or(whole).clone())
        }
        Some(other) => return Err(fields::wrong_type_fault("content", expected, other)),
    };
    match &tasks {
        Value::Array(_) | Value::Object(_) => {}
        other => return Err(fields::wrong_type_fault("content.tasks", "a list of tasks", other)),
    }
    Ok(Request::SolveTasks { question: question.to_owned(), tasks })
}

fn read_response(frame: &Fields<'_>) -> Result<Request, Fault> {
    let inside = content(frame);
    let named = match (frame.text("step_id")?, inside) {
        (Some(step), _) => Some(step),
        (None, Some(content)) => content.first_text(&["step_id", "question_id"])?,
        (None, None) => None,
    };
    let question =
        named.ok_or_else(|| fields::missing_fault("step_id", "the `step_id` of the question"))?;
    let question = QuestionId(question.into());
    if let Some(Value::Bool(yes)) = frame.get("content") {
        let decision = decision_from(*yes);
        let (note, arguments, digest) = (None, None, None);
        let remember = false;
        return Ok(Request::Response { question, decision, note, arguments, digest, remember });
    }
    let Some(content) = frame.object("content")? else {
        return Err(fields::missing_fault("content.confirmed", "true or false"));
    };
    let digest = match content.text("digest")? {
        Some(digest) => Some(digest),
        None => metadata(frame).map_or(Ok(None), |metadata| metadata.text("digest"))?,
    };
    let edited = ["tasks", "modified_tasks", "arguments", "tool_args"];
    let remember = read_choice(&content, "remember", &["session"], |scope| {
        (scope == "session").then_some(true)
    })?;
    let decision = read_decision(&content)?;
    if remember.is_some() && decision == Decision::Deny {
        let rule = "only a permission is remembered";
        return Err(fields::constraint_fault("content.remember", rule, "session"));
    }
    Ok(Request::Response {
        remember: remember.unwrap_or(false),
        question,
        decision,
        note: content.first_text(&["feedback", "note", "reason"])?.map(str::to_owned),
        arguments: edited.iter().find_map(|name| content.get(name)).cloned(),
        digest: digest.map(str::to_owned),
    })
}

fn decision_from(yes: bool) -> Decision {
    if yes { Decision::Allow } else { Decision::Deny }
}

/// Parses `confirmed` or `approved`. Contradicting values are refused.
fn read_decision(content: &Fields<'_>) -> Result<Decision, Fault> {
    match (content.flag("confirmed")?, content.flag("approved")?) {
        (Some(confirmed), Some(approved)) if confirmed != approved => {
            let rule = "`confirmed` and `approved` say the same";
            Err(fields::constraint_fault("content.confirmed", rule, &confirmed.to_string()))
        }
        (Some(yes), _) | (None, Some(yes)) => Ok(decision_from(yes)),
        (None, None) => Err(fields::missing_fault("content.confirmed", "true or false")),
    }
}

fn read_reason(frame: &Fields<'_>) -> Result<Option<String>, Fault> {
    let reason = match (frame.get("content"), metadata(frame)) {
        (Some(Value::String(text)), _) => Some(text.as_str()),
        (Some(Value::Object(map)), _) if map.contains_key("reason") => {
            Fields::nested(map, "content").text("reason")?
        }
        (_, Some(metadata)) => metadata.text("reason")?,
        (_, None) => None,
    };
    Ok(reason.map(str::to_owned))
}

/// The name of the tool whose permission is revoked.
fn read_tool_name(frame: &Fields<'_>) -> Result<String, Fault> {
    let expected = "the name of a tool";
    let name = match frame.get("content") {
        Some(Value::Object(map)) => Fields::nested(map, "content").text("tool_name")?,
        Some(Value::String(name)) => Some(name.as_str()),
        None => None,
        Some(other) => return Err(fields::wrong_type_fault("content", expected, other)),
    };
    let name = name.filter(|name| !name.is_empty()).map(str::to_owned);
    name.ok_or_else(|| fields::missing_fault("content.tool_name", expected))
}

/// The command id of the message to withdraw.
fn read_message_id(frame: &Fields<'_>) -> Result<CommandId, Fault> {
    let expected = "the command_id of a message";
    let id = match frame.get("content") {
        Some(Value::Object(map)) => Fields::nested(map, "content").text("message")?,
        Some(Value::String(id)) => Some(id.as_str()),
        None => None,
        Some(other) => return Err(fields::wrong_type_fault("content", expected, other)),
    };
    let id = id.filter(|id| !id.is_empty());
    id.map(CommandId::from).ok_or_else(|| fields::missing_fault("content.message", expected))
}

/// Parses a person's settlement of a call whose outcome is unknown.
fn read_settle_doubt(frame: &Fields<'_>) -> Result<Request, Fault> {
    const OUTCOMES: [&str; 3] = ["happened", "did_not_happen", "left_to_model"];
    let content = frame.object("content")?.ok_or_else(|| {
        fields::missing_fault("content", "an object with `call_id` and `outcome`")
    })?;
    let call = content.text("call_id")?.filter(|id| !id.is_empty());
    let call = call.ok_or_else(|| fields::missing_fault("content.call_id", "the id of a call"))?;
    let outcome = read_choice(&content, "outcome", &OUTCOMES, |name| {
        OUTCOMES.contains(&name).then(|| name.to_owned())
    })?;
    let result = content.get("result").cloned();
    let settlement = match (outcome.as_deref(), result) {
        (Some("happened"), result) => Settlement::Happened { result: result.unwrap_or_default() },
        (Some(_), Some(_)) => {
            let rule = "only a call that happened has a `result`";
            return Err(fields::constraint_fault("content.result", rule, "a result"));
        }
        (Some("did_not_happen"), None) => Settlement::DidNotHappen,
        (Some(_), None) => Settlement::LeftToModel,
        (None, _) => return Err(fields::missing_fault("content.outcome", "one of three words")),
    };
    let note = content.text("note")?.map(str::to_owned);
    Ok(Request::SettleDoubt { call: CallId::from(call), settlement, note })
}

/// The number of a turn, as the content or in it.
fn read_turn(frame: &Fields<'_>) -> Result<Option<TurnNumber>, Fault> {
    match frame.get("content") {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Object(map)) => Fields::nested(map, "content").integer("turn"),
        Some(other) => fields::integer("content", other).map(Some),
    }
}

/// A task's id, as text or number. Numbers are converted to text.
fn read_task(frame: &Fields<'_>) -> Result<TaskId, Fault> {
    let (path, id) = match frame.get("content") {
        Some(Value::Object(map)) => {
            ("content.task_id", Fields::nested(map, "content").get("task_id"))
        }
        other => ("content", other),
    };
    let in_metadata = || metadata(frame).and_then(|metadata| metadata.get("task_id"));
    match id.or_else(in_metadata) {
        Some(Value::String(id)) if !id.trim().is_empty() => Ok(TaskId(id.trim().into())),
        Some(Value::Number(id)) => Ok(TaskId(id.to_string().into())),
        Some(other) => Err(fields::wrong_type_fault(path, "the id of a task", other)),
        None => Err(fields::missing_fault("content.task_id", "the id of a task")),
    }
}

fn read_question(frame: &Fields<'_>) -> Result<Option<String>, Fault> {
    let question = match frame.get("content") {
        None => None,
        Some(Value::String(text)) => Some(text.as_str()),
        Some(_) => match frame.object("content")? {
            Some(content) => content.text("question")?,
            None => None,
        },
    };
    Ok(question.filter(|question| !question.trim().is_empty()).map(str::to_owned))
}

// ── cursors ──

fn read_ack(frame: &Fields<'_>) -> Result<Request, Fault> {
    if let Some(number @ Value::Number(_)) = frame.get("content") {
        let seq = fields::integer("content", number)?;
        return Ok(Request::Ack(Cursor { session: None, epoch: read_epoch(frame)?, seq }));
    }
    let named = match read_cursor(frame)? {
        Some(cursor) => Some(cursor),
        None => {
            let seq = match (frame.integer("seq")?, metadata(frame)) {
                (Some(seq), _) => Some(seq),
                (None, Some(metadata)) => metadata.integer("last_seq")?,
                (None, None) => None,
            };
            let epoch = read_epoch(frame)?;
            seq.map(|seq| Cursor { session: None, epoch, seq })
        }
    };
    let expected = "the position of the last event";
    named.map(Request::Ack).ok_or_else(|| fields::missing_fault("content.last_seq", expected))
}

fn read_reconnect(frame: &Fields<'_>, session: Option<SessionId>) -> Result<Request, Fault> {
    let cursor = read_cursor(frame)?;
    let named = session.or(cursor.and_then(|cursor| cursor.session));
    named.ok_or_else(|| fields::missing_fault("session_id", "text"))?;
    Ok(Request::Reconnect { cursor })
}

fn read_reconnect_with_state(
    frame: &Fields<'_>,
    session: Option<SessionId>,
) -> Result<Request, Fault> {
    let inside = content(frame).and_then(|content| content.get("signed_state"));
    let state = match frame.get("signed_state").or(inside) {
        None => None,
        Some(Value::String(state)) => Some(state.clone()),
        Some(other) => {
            return Err(fields::wrong_type_fault(
                "signed_state",
                "the text that was exported",
                other,
            ));
        }
    };
    let cursor = read_cursor(frame)?;
    let named = session.or(cursor.and_then(|cursor| cursor.session));
    if state.is_none() && named.is_none() {
        return Err(fields::missing_fault("signed_state", "the text that was exported"));
    }
    Ok(Request::ReconnectWithState { signed_state: state, cursor })
}

/// The cursor from the content, otherwise from the top level.
fn read_cursor(frame: &Fields<'_>) -> Result<Option<Cursor>, Fault> {
    if let Some(content) = content(frame)
        && let Some(cursor) = read_cursor_in(&content)?
    {
        return Ok(Some(Cursor { epoch: cursor.epoch.or(read_epoch(frame)?), ..cursor }));
    }
    read_cursor_in(frame)
}

fn read_cursor_in(fields: &Fields<'_>) -> Result<Option<Cursor>, Fault> {
    let seq = fields.integer("last_seq")?;
    let Some(id) = fields.text("last_event_id")? else {
        let epoch = read_epoch(fields)?;
        return Ok(seq.map(|seq| Cursor { session: None, epoch, seq }));
    };
    let path = fields.path("last_event_id");
    let rule = "an event_id as it was received: session.epoch.seq";
    let of_id = event_id(id).ok_or_else(|| fields::constraint_fault(&path, rule, id))?;
    match seq {
        Some(seq) if seq != of_id.seq => {
            let rule = "`last_event_id` and `last_seq` name the same event";
            Err(fields::constraint_fault(&path, rule, id))
        }
        _ => Ok(Some(of_id)),
    }
}

/// Parses an event id, `{session}.{epoch}.{seq}`.
pub(crate) fn event_id(id: &str) -> Option<Cursor> {
    let mut parts = id.split('.');
    let (session, epoch, seq) = (parts.next()?, parts.next()?, parts.next()?);
    let (session, seq) = (session.parse().ok()?, seq.parse().ok()?);
    let epoch = parse_epoch(epoch)?;
    parts.next().is_none().then_some(Cursor { session: Some(session), epoch: Some(epoch), seq })
}

/// Parses `epoch`: eight hex digits.
fn read_epoch(fields: &Fields<'_>) -> Result<Option<Epoch>, Fault> {
    let Some(text) = fields.text("epoch")? else { return Ok(None) };
    let rule = "an epoch as it was received: eight hex digits";
    parse_epoch(text)
        .map(Some)
        .ok_or_else(|| fields::constraint_fault(&fields.path("epoch"), rule, text))
}

fn parse_epoch(text: &str) -> Option<Epoch> {
    let digits = text.len() == 8 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    digits.then(|| u32::from_str_radix(text, 16).ok().map(Epoch)).flatten()
}

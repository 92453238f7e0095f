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
const TEXTS: [&str; 6] = ["text", "message", "content", "question", "prompt", "query"];

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
            Err(fields::violated("last_event_id", rule, &named.to_string()))
        }
        _ => Ok((session.or(named), request)),
    }
}

fn read_request(
    event: &str,
    frame: &Fields<'_>,
    session: Option<SessionId>,
) -> Result<Request, Fault> {
    let require_session = || session.map(drop).ok_or_else(|| fields::missing("session_id", "text"));
    match event {
        "user.create_session" => return creation(frame),
        "user.ack" => return ack(frame),
        "user.reconnect" => return reconnect(frame, session),
        "user.reconnect_with_state" => return reconnect_with_state(frame, session),
        "user.offer_tools" => return worker::offer(frame),
        "user.drain_worker" => return worker::drain(frame),
        _ => require_session()?,
    }
    match event {
        "user.message" => message(frame),
        "user.solve_tasks" => solve_tasks(frame),
        "user.response" => response(frame),
        "user.revoke_permission" => Ok(Request::RevokePermission { tool: tool_name(frame)? }),
        "user.cancel" => Ok(Request::Cancel { reason: reason(frame)? }),
        "user.withdraw" => Ok(Request::Withdraw { message: message_id(frame)? }),
        "user.settle_doubt" => settle_doubt(frame),
        "user.set_timer" => timers::set_timer(frame),
        "user.cancel_timer" => timers::cancel_timer(frame),
        "user.retry" => Ok(Request::Retry { turn: turn(frame)? }),
        "user.cancel_task" => Ok(Request::CancelTask { task: task(frame)? }),
        "user.restart_task" | "user.retry_task" => Ok(Request::RestartTask { task: task(frame)? }),
        "user.cancel_plan" => Ok(Request::CancelPlan),
        "user.replan" => Ok(Request::Replan { question: question(frame)? }),
        "user.tool_claim" => Ok(Request::ToolClaim(worker::claim(frame)?)),
        "user.tool_output" => worker::output(frame),
        "user.tool_result" => worker::result(frame),
        "user.close_session" => Ok(Request::CloseSession),
        _ => Ok(Request::RequestState),
    }
}

/// The content, if it is an object.
fn content<'a>(frame: &Fields<'a>) -> Option<Fields<'a>> {
    frame.get("content").and_then(Value::as_object).map(|map| Fields::under(map, "content"))
}

fn metadata<'a>(frame: &Fields<'a>) -> Option<Fields<'a>> {
    frame.get("metadata").and_then(Value::as_object).map(|map| Fields::under(map, "metadata"))
}

// ── sessions ──

fn creation(frame: &Fields<'_>) -> Result<Request, Fault> {
    let Some(content) = frame.object("content")? else {
        return Ok(Request::CreateSession(Box::default()));
    };
    let mut creation = SessionRequest {
        title: content.first_text(&["session_name", "project_name"])?.map(label),
        ..SessionRequest::default()
    };
    if let Some(preferences) = content.object("preferences")? {
        creation.language = preferences.text("language")?.and_then(Lang::from_tag);
    }
    if let Some(config) = content.object("config")? {
        configure(&mut creation, &config)?;
    }
    for name in ["client_id", "client_version", "app_version"] {
        creation.labels.extend(content.text(name)?.map(|text| (name, label(text))));
    }
    if let Some(metadata) = metadata(frame) {
        creation.labels.extend(metadata.text("source")?.map(|text| ("source", label(text))));
    }
    Ok(Request::CreateSession(Box::new(creation)))
}

fn label(text: &str) -> String {
    crate::texts::cut(text.trim(), LABEL_CHARS).into_owned()
}

fn configure(creation: &mut SessionRequest, config: &Fields<'_>) -> Result<(), Fault> {
    creation.models = models(config)?;
    creation.system = config.text("system")?.map(str::to_owned);
    creation.mode = one_of(config, "permission_mode", &["auto", "approval", "readonly"], |name| {
        Mode::from_str(name).ok()
    })?;
    creation.on_disconnect = one_of(config, "on_disconnect", &["continue", "cancel"], |name| {
        OnDisconnect::from_str(name).ok()
    })?;
    creation.max_steps = match config.whole("max_steps")? {
        None => None,
        Some(steps @ 1..) => Some(u32::try_from(steps).unwrap_or(u32::MAX)),
        Some(0) => {
            return Err(fields::violated(&config.path("max_steps"), "max_steps > 0", "0"));
        }
    };
    creation.patience_ms = config.whole("patience_ms")?;
    creation.answer_schema = config.get("answer_schema").cloned();
    creation.tools = match config.get("tools") {
        None => None,
        Some(tools) => Some(names(&config.path("tools"), tools)?),
    };
    creation.plan = plan_preference(Some(config))?;
    Ok(())
}

/// One model, `a,b`, or a list.
fn models(config: &Fields<'_>) -> Result<Option<Vec<String>>, Fault> {
    let path = config.path("model");
    let (models, said) = match config.get("model") {
        Some(list @ Value::Array(_)) => {
            let models = names(&path, list)?;
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
        fields::violated(&path, &rule, &said)
    })?;
    Ok(Some(models).filter(|models| !models.is_empty()))
}

fn names(path: &str, value: &Value) -> Result<Vec<String>, Fault> {
    let wrong = || fields::wrong_type(path, "a list of names", value);
    let items = value.as_array().ok_or_else(wrong)?;
    items.iter().map(|item| item.as_str().map(str::to_owned).ok_or_else(wrong)).collect()
}

fn one_of<T>(
    fields: &Fields<'_>,
    name: &str,
    allowed: &[&str],
    read: impl Fn(&str) -> Option<T>,
) -> Result<Option<T>, Fault> {
    let Some(text) = fields.text(name)? else { return Ok(None) };
    read(text).map(Some).ok_or_else(|| {
        let rule = format!("{name} is one of {}", allowed.join(", "));
        let allowed: Vec<String> = allowed.iter().map(ToString::to_string).collect();
        fields::violated(&fields.path(name), &rule, text).with(Fact::Allowed, allowed)
    })
}

/// Parses `mode: "plan"` and `confirm` from the content, metadata or config.
fn plan_preference(fields: Option<&Fields<'_>>) -> Result<Option<PlanPreference>, Fault> {
    let Some(fields) = fields else { return Ok(None) };
    let modes = ["chat", "plan"];
    let plans = one_of(fields, "mode", &modes, |name| match name {
        "chat" => Some(false),
        "plan" => Some(true),
        _ => None,
    })?;
    let confirm = fields.flag("confirm")?.unwrap_or(false);
    Ok((plans == Some(true)).then_some(PlanPreference { confirm }))
}

// ── runs ──

fn message(frame: &Fields<'_>) -> Result<Request, Fault> {
    let (path, text) = match frame.get("content") {
        None => return Err(fields::missing("content", "text, or an object with `text`")),
        Some(Value::String(text)) => ("content", text.as_str()),
        Some(Value::Object(map)) => {
            let content = Fields::under(map, "content");
            let text = content.first_text(&TEXTS)?;
            ("content.text", text.ok_or_else(|| fields::missing("content.text", "text"))?)
        }
        Some(other) => {
            return Err(fields::wrong_type("content", "text, or an object with `text`", other));
        }
    };
    if text.trim().is_empty() {
        return Err(fields::violated(path, "a message is not blank", text));
    }
    let mut blocks = vec![Block::Text(text.to_owned())];
    if let Some(images) = content(frame).and_then(|content| content.get("images")) {
        blocks.extend(pictures(images)?);
    }
    let in_content = plan_preference(content(frame).as_ref())?;
    let plan = in_content.or(plan_preference(metadata(frame).as_ref())?);
    let config = content(frame).map(|content| content.object("config")).transpose()?.flatten();
    let config = config.map(|config| message_config(&config)).transpose()?.unwrap_or_default();
    Ok(Request::Message { content: blocks, plan, config })
}

fn message_config(config: &Fields<'_>) -> Result<MessageConfig, Fault> {
    let answer_schema = config.sent("answer_schema").cloned();
    Ok(MessageConfig { models: models(config)?, answer_schema })
}

fn pictures(images: &Value) -> Result<Vec<Block>, Fault> {
    let path = "content.images";
    let expected = "a list of objects with `media_type` and `data`";
    let wrong = || fields::wrong_type(path, expected, images);
    let one = |image: &Value| {
        let field = |name: &str| image.get(name).and_then(Value::as_str).map(str::to_owned);
        match (field("media_type"), field("data")) {
            (Some(media_type), Some(data)) => Ok(Block::Image { media_type, data }),
            _ => Err(wrong()),
        }
    };
    images.as_array().ok_or_else(wrong)?.iter().map(one).collect()
}

fn solve_tasks(frame: &Fields<'_>) -> Result<Request, Fault> {
    let expected = "tasks, or an object with `tasks`";
    let (question, tasks) = match frame.get("content") {
        None => return Err(fields::missing("content.tasks", expected)),
        Some(tasks @ Value::Array(_)) => ("", tasks.clone()),
        Some(whole @ Value::Object(map)) => {
            let content = Fields::under(map, "content");
            let question = content.first_text(&["question", "plan_summary"])?.unwrap_or_default();
            (question, content.get("tasks").unwrap_or(whole).clone())
        }
        Some(other) => return Err(fields::wrong_type("content", expected, other)),
    };
    match &tasks {
        Value::Array(_) | Value::Object(_) => {}
        other => return Err(fields::wrong_type("content.tasks", "a list of tasks", other)),
    }
    Ok(Request::SolveTasks { question: question.to_owned(), tasks })
}

fn response(frame: &Fields<'_>) -> Result<Request, Fault> {
    let inside = content(frame);
    let named = match (frame.text("step_id")?, inside) {
        (Some(step), _) => Some(step),
        (None, Some(content)) => content.first_text(&["step_id", "question_id"])?,
        (None, None) => None,
    };
    let question =
        named.ok_or_else(|| fields::missing("step_id", "the `step_id` of the question"))?;
    let question = QuestionId(question.into());
    if let Some(Value::Bool(yes)) = frame.get("content") {
        let decision = decision(*yes);
        let (note, arguments, digest) = (None, None, None);
        let remember = false;
        return Ok(Request::Response { question, decision, note, arguments, digest, remember });
    }
    let Some(content) = frame.object("content")? else {
        return Err(fields::missing("content.confirmed", "true or false"));
    };
    let digest = match content.text("digest")? {
        Some(digest) => Some(digest),
        None => metadata(frame).map_or(Ok(None), |metadata| metadata.text("digest"))?,
    };
    let edited = ["tasks", "modified_tasks", "arguments", "tool_args"];
    let remember =
        one_of(&content, "remember", &["session"], |scope| (scope == "session").then_some(true))?;
    let decision = decided(&content)?;
    if remember.is_some() && decision == Decision::Deny {
        let rule = "only a permission is remembered";
        return Err(fields::violated("content.remember", rule, "session"));
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

fn decision(yes: bool) -> Decision {
    if yes { Decision::Allow } else { Decision::Deny }
}

/// Parses `confirmed` or `approved`. Contradicting values are refused.
fn decided(content: &Fields<'_>) -> Result<Decision, Fault> {
    match (content.flag("confirmed")?, content.flag("approved")?) {
        (Some(confirmed), Some(approved)) if confirmed != approved => {
            let rule = "`confirmed` and `approved` say the same";
            Err(fields::violated("content.confirmed", rule, &confirmed.to_string()))
        }
        (Some(yes), _) | (None, Some(yes)) => Ok(decision(yes)),
        (None, None) => Err(fields::missing("content.confirmed", "true or false")),
    }
}

fn reason(frame: &Fields<'_>) -> Result<Option<String>, Fault> {
    let reason = match (frame.get("content"), metadata(frame)) {
        (Some(Value::String(text)), _) => Some(text.as_str()),
        (Some(Value::Object(map)), _) if map.contains_key("reason") => {
            Fields::under(map, "content").text("reason")?
        }
        (_, Some(metadata)) => metadata.text("reason")?,
        (_, None) => None,
    };
    Ok(reason.map(str::to_owned))
}

/// The name of the tool whose permission is revoked.
fn tool_name(frame: &Fields<'_>) -> Result<String, Fault> {
    let expected = "the name of a tool";
    let name = match frame.get("content") {
        Some(Value::Object(map)) => Fields::under(map, "content").text("tool_name")?,
        Some(Value::String(name)) => Some(name.as_str()),
        None => None,
        Some(other) => return Err(fields::wrong_type("content", expected, other)),
    };
    let name = name.filter(|name| !name.is_empty()).map(str::to_owned);
    name.ok_or_else(|| fields::missing("content.tool_name", expected))
}

/// The command id of the message to withdraw.
fn message_id(frame: &Fields<'_>) -> Result<CommandId, Fault> {
    let expected = "the command_id of a message";
    let id = match frame.get("content") {
        Some(Value::Object(map)) => Fields::under(map, "content").text("message")?,
        Some(Value::String(id)) => Some(id.as_str()),
        None => None,
        Some(other) => return Err(fields::wrong_type("content", expected, other)),
    };
    let id = id.filter(|id| !id.is_empty());
    id.map(CommandId::from).ok_or_else(|| fields::missing("content.message", expected))
}

/// What a person says of a call whose outcome is unknown.
fn settle_doubt(frame: &Fields<'_>) -> Result<Request, Fault> {
    const OUTCOMES: [&str; 3] = ["happened", "did_not_happen", "left_to_model"];
    let content = frame
        .object("content")?
        .ok_or_else(|| fields::missing("content", "an object with `call_id` and `outcome`"))?;
    let call = content.text("call_id")?.filter(|id| !id.is_empty());
    let call = call.ok_or_else(|| fields::missing("content.call_id", "the id of a call"))?;
    let outcome = one_of(&content, "outcome", &OUTCOMES, |name| {
        OUTCOMES.contains(&name).then(|| name.to_owned())
    })?;
    let result = content.get("result").cloned();
    let settlement = match (outcome.as_deref(), result) {
        (Some("happened"), result) => Settlement::Happened { result: result.unwrap_or_default() },
        (Some(_), Some(_)) => {
            let rule = "only a call that happened has a `result`";
            return Err(fields::violated("content.result", rule, "a result"));
        }
        (Some("did_not_happen"), None) => Settlement::DidNotHappen,
        (Some(_), None) => Settlement::LeftToModel,
        (None, _) => return Err(fields::missing("content.outcome", "one of three words")),
    };
    let note = content.text("note")?.map(str::to_owned);
    Ok(Request::SettleDoubt { call: CallId::from(call), settlement, note })
}

/// The number of a turn, as the content or in it.
fn turn(frame: &Fields<'_>) -> Result<Option<TurnNumber>, Fault> {
    match frame.get("content") {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Object(map)) => Fields::under(map, "content").whole("turn"),
        Some(other) => fields::whole("content", other).map(Some),
    }
}

/// A task's id, as text or number. Numbers are converted to text.
fn task(frame: &Fields<'_>) -> Result<TaskId, Fault> {
    let (path, id) = match frame.get("content") {
        Some(Value::Object(map)) => {
            ("content.task_id", Fields::under(map, "content").get("task_id"))
        }
        other => ("content", other),
    };
    let in_metadata = || metadata(frame).and_then(|metadata| metadata.get("task_id"));
    match id.or_else(in_metadata) {
        Some(Value::String(id)) if !id.trim().is_empty() => Ok(TaskId(id.trim().into())),
        Some(Value::Number(id)) => Ok(TaskId(id.to_string().into())),
        Some(other) => Err(fields::wrong_type(path, "the id of a task", other)),
        None => Err(fields::missing("content.task_id", "the id of a task")),
    }
}

fn question(frame: &Fields<'_>) -> Result<Option<String>, Fault> {
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

fn ack(frame: &Fields<'_>) -> Result<Request, Fault> {
    if let Some(number @ Value::Number(_)) = frame.get("content") {
        let seq = fields::whole("content", number)?;
        return Ok(Request::Ack(Cursor { session: None, epoch: epoch(frame)?, seq }));
    }
    let named = match cursor(frame)? {
        Some(cursor) => Some(cursor),
        None => {
            let seq = match (frame.whole("seq")?, metadata(frame)) {
                (Some(seq), _) => Some(seq),
                (None, Some(metadata)) => metadata.whole("last_seq")?,
                (None, None) => None,
            };
            let epoch = epoch(frame)?;
            seq.map(|seq| Cursor { session: None, epoch, seq })
        }
    };
    let expected = "the position of the last event";
    named.map(Request::Ack).ok_or_else(|| fields::missing("content.last_seq", expected))
}

fn reconnect(frame: &Fields<'_>, session: Option<SessionId>) -> Result<Request, Fault> {
    let cursor = cursor(frame)?;
    let named = session.or(cursor.and_then(|cursor| cursor.session));
    named.ok_or_else(|| fields::missing("session_id", "text"))?;
    Ok(Request::Reconnect { cursor })
}

fn reconnect_with_state(frame: &Fields<'_>, session: Option<SessionId>) -> Result<Request, Fault> {
    let inside = content(frame).and_then(|content| content.get("signed_state"));
    let state = match frame.get("signed_state").or(inside) {
        None => None,
        Some(Value::String(state)) => Some(state.clone()),
        Some(other) => {
            return Err(fields::wrong_type("signed_state", "the text that was exported", other));
        }
    };
    let cursor = cursor(frame)?;
    let named = session.or(cursor.and_then(|cursor| cursor.session));
    if state.is_none() && named.is_none() {
        return Err(fields::missing("signed_state", "the text that was exported"));
    }
    Ok(Request::ReconnectWithState { signed_state: state, cursor })
}

/// The cursor from the content, otherwise from the top level.
fn cursor(frame: &Fields<'_>) -> Result<Option<Cursor>, Fault> {
    if let Some(content) = content(frame)
        && let Some(cursor) = cursor_in(&content)?
    {
        return Ok(Some(Cursor { epoch: cursor.epoch.or(epoch(frame)?), ..cursor }));
    }
    cursor_in(frame)
}

fn cursor_in(fields: &Fields<'_>) -> Result<Option<Cursor>, Fault> {
    let seq = fields.whole("last_seq")?;
    let Some(id) = fields.text("last_event_id")? else {
        let epoch = epoch(fields)?;
        return Ok(seq.map(|seq| Cursor { session: None, epoch, seq }));
    };
    let path = fields.path("last_event_id");
    let rule = "an event_id as it was received: session.epoch.seq";
    let of_id = event_id(id).ok_or_else(|| fields::violated(&path, rule, id))?;
    match seq {
        Some(seq) if seq != of_id.seq => {
            let rule = "`last_event_id` and `last_seq` name the same event";
            Err(fields::violated(&path, rule, id))
        }
        _ => Ok(Some(of_id)),
    }
}

/// Parses an event id, `{session}.{epoch}.{seq}`.
pub(crate) fn event_id(id: &str) -> Option<Cursor> {
    let mut parts = id.split('.');
    let (session, epoch, seq) = (parts.next()?, parts.next()?, parts.next()?);
    let (session, seq) = (session.parse().ok()?, seq.parse().ok()?);
    let epoch = hex(epoch)?;
    parts.next().is_none().then_some(Cursor { session: Some(session), epoch: Some(epoch), seq })
}

/// Parses `epoch`: eight hex digits.
fn epoch(fields: &Fields<'_>) -> Result<Option<Epoch>, Fault> {
    let Some(text) = fields.text("epoch")? else { return Ok(None) };
    let rule = "an epoch as it was received: eight hex digits";
    hex(text).map(Some).ok_or_else(|| fields::violated(&fields.path("epoch"), rule, text))
}

fn hex(text: &str) -> Option<Epoch> {
    let digits = text.len() == 8 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    digits.then(|| u32::from_str_radix(text, 16).ok().map(Epoch)).flatten()
}

//! Submits a run to its session: a message, answers to questions, results of calls.
//!
//! Every command has an id that follows from the run's id. So a run that is sent again has no second effect, and one with the
//! same id and other content is refused by the engine.

use std::sync::Arc;

use budao_core::{
    Fault, Kind,
    ag_ui::{AgentInput, ENGINE_NAME, INPUT_TOPIC},
    event::{CommandBody, CommandId, Decision, QuestionId, Seq, Settings},
    message::{Block, CallId},
    remote::WorkerReport,
};
use futures::future;
use serde_json::{Value, json};

use super::{
    Thread, WORKER,
    ids::{RunAnnotation, message_command, run_command},
};
use crate::{
    commands::command_body,
    http_api::Caller,
    inbound::{MessageConfig, Request},
    server::{CommandRequest, Server},
};

/// One effect of a run.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum RunAction {
    /// A message of the user.
    Message(Vec<Block>),
    /// The last turn, which failed, continues.
    Retry,
    /// An answer to a question.
    Answer {
        question: QuestionId,
        decision: Decision,
        note: Option<String>,
        arguments: Option<Value>,
    },
    /// The result of a call that the front end ran.
    Result { call: CallId, attempt: u32, report: WorkerReport },
}

/// A run and its effects.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Submission {
    pub(crate) annotation: RunAnnotation,
    pub(crate) actions: Vec<RunAction>,
}

/// Submits a run. Returns the position before its effects.
///
/// # Errors
/// `command_repeated` if the run's id was used with other content; the engine's fault if an answer or a result does not
/// fit the session.
pub(crate) async fn submit_run(
    server: &Arc<Server>,
    caller: &Caller,
    thread: &Thread,
    submission: Submission,
) -> Result<Seq, Fault> {
    let Submission { annotation, actions } = submission;
    let (command, body) = annotation.command();
    let noted = submit(server, caller, thread, command, body);
    let commands =
        actions.into_iter().flat_map(|action| commands_for(&annotation.run, action, thread));
    let mut commands: Vec<_> = commands.collect();
    let at = match (commands.pop(), commands.is_empty()) {
        // Both wait in the session's queue at the same time, so one commit has them.
        (Some((command, body)), true) => {
            let (noted, sent) =
                future::join(noted, submit(server, caller, thread, command, body)).await;
            noted?.min(sent?)
        }
        (last, _) => {
            let at = noted.await?;
            for (command, body) in commands.into_iter().chain(last) {
                submit(server, caller, thread, command, body).await?;
            }
            at
        }
    };
    server.command_submitted(thread.session);
    Ok(at)
}

/// Submits what a front end gives a relayed agent beside the message of a run. Another engine takes no such input.
/// A run that was submitted before keeps the input that it had.
///
/// # Errors
/// `limit_reached` if the input is larger than the relay allows.
pub(crate) async fn submit_input(
    server: &Arc<Server>,
    caller: &Caller,
    thread: &Thread,
    run: &str,
    input: AgentInput,
) -> Result<(), Fault> {
    let labels = &thread.state.settings.labels;
    if labels.get(Settings::ENGINE).is_none_or(|engine| engine != ENGINE_NAME) {
        return Ok(());
    }
    let has_started =
        thread.state.turn.as_ref().map(|turn| &turn.message) == input.message.as_ref();
    if has_started && input.message.is_some() {
        return Ok(());
    }
    let body = CommandBody::Annotate { topic: INPUT_TOPIC.to_owned(), data: json!(input) };
    match submit(server, caller, thread, run_command(run, "input"), body).await {
        Err(fault) if fault.kind() == Kind::CommandRepeated => Ok(()),
        submitted => submitted.map(drop),
    }
}

async fn submit(
    server: &Server,
    caller: &Caller,
    thread: &Thread,
    command: CommandId,
    body: CommandBody,
) -> Result<Seq, Fault> {
    let (by, command) = (caller.identity.name(), Some(command));
    let request = CommandRequest { by, command, trace: caller.trace, parent: caller.parent, body };
    server.submit(thread.session, request).await
}

fn commands_for(run: &str, action: RunAction, thread: &Thread) -> Vec<(CommandId, CommandBody)> {
    match action {
        RunAction::Message(content) => {
            let config = MessageConfig::default();
            let request = Request::Message { content, plan: None, config };
            let body = command_body(request, &thread.meta);
            body.map(|body| (message_command(run), body)).into_iter().collect()
        }
        RunAction::Retry => vec![(message_command(run), CommandBody::Retry { turn: None })],
        RunAction::Answer { question, decision, note, arguments } => {
            let command = run_command(run, &question.0);
            vec![(
                command,
                CommandBody::Decide { question, decision, note, arguments, digest: None },
            )]
        }
        RunAction::Result { call, attempt, report } => {
            let claim =
                CommandBody::ClaimCall { call: call.clone(), attempt, worker: WORKER.to_owned() };
            let claimed = (run_command(run, &format!("{call}:claim")), claim);
            let reported = run_command(run, &format!("{call}:result"));
            let (worker, report) = (WORKER.to_owned(), Box::new(report));
            vec![claimed, (reported, CommandBody::ReportCall { call, attempt, worker, report })]
        }
    }
}

/// Cancels the running turn of a thread.
///
/// # Errors
/// `unknown_session` if there is no such thread, or if it belongs to another user.
pub(crate) async fn cancel_thread(
    server: &Arc<Server>,
    caller: &Caller,
    id: &str,
) -> Result<(), Fault> {
    let permit = server.admission.admit(&caller.identity.tenant)?;
    let thread = Thread::get(server, caller, &permit, id).await?;
    let body = CommandBody::Cancel { reason: None };
    let (trace, parent) = (caller.trace, caller.parent);
    let request = CommandRequest { by: caller.identity.name(), command: None, trace, parent, body };
    server.submit(thread.session, request).await.map(drop)
}

//! Submits a run to its session: a message, answers to questions, results of calls.
//!
//! Every command has an id that follows from the run's id. So a run that is sent again has no second effect, and one with the
//! same id and other content is refused by the engine.

use std::sync::Arc;

use budao_core::{
    Fault,
    event::{CommandBody, CommandId, Decision, QuestionId, Seq},
    message::{Block, CallId},
    remote::WorkerReport,
};
use serde_json::Value;

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
    let at = submit(server, caller, thread, command, body).await?;
    for action in actions {
        for (command, body) in commands_for(&annotation.run, action, thread) {
            submit(server, caller, thread, command, body).await?;
        }
    }
    server.command_submitted(thread.session);
    Ok(at)
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

//! Calls that a server finishes later: it answers with the id of a task, and is asked for the result.
//!
//! The id is durable before the first question. A later attempt of the call, also in another process, finds it and asks
//! on; it never makes the call a second time. A lost connection does not end a task.

use std::{sync::PoisonError, time::Duration};

use budao_core::fault::Operation;
use budao_tools::CallContext;
use rmcp::model::{
    CallToolResult, CancelTaskParams, CancelTaskRequest, ClientRequest, ErrorCode, ErrorData,
    GetTaskParams, GetTaskRequest, GetTaskResult, ServerResult, Task, TaskPayload,
    UpdateTaskParams, UpdateTaskRequest,
};
use serde::{Deserialize, Serialize};

use crate::{
    connection::ServerConnection,
    error::{FaultContext, ServerError, bounded},
    input,
    server::ServerShared,
};

/// The longest id of a task, in bytes.
const ID_BYTES_MAX: usize = 1_024;

/// The pause between two questions if the server does not say, and the bounds of what it may say.
const POLL: Duration = Duration::from_secs(1);
const POLL_MIN: Duration = Duration::from_millis(50);
const POLL_MAX: Duration = Duration::from_secs(60);

/// How long one question may take.
const QUESTION_MAX: Duration = Duration::from_secs(30);

/// How long the cancellation of a task may take; a call that is stopped has little time.
const CANCEL_MAX: Duration = Duration::from_millis(1_500);

/// What is durable of a call that became a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TaskCheckpoint {
    /// The id that the server gave the task.
    mcp_task: String,
    /// The server's own name of the tool.
    tool: String,
}

/// Follows a task of a server to its end.
pub(crate) struct TaskFollower<'a> {
    pub(crate) shared: &'a ServerShared,
    pub(crate) context: &'a CallContext,
}

impl TaskCheckpoint {
    /// The checkpoint of an earlier attempt of this call; `None` if it did not become a task.
    pub(crate) async fn find(context: &CallContext, tool: &str) -> Option<Self> {
        let found = context.memory.last_checkpoint().await?;
        let found: Self = serde_json::from_value(found).ok()?;
        (found.tool == tool).then_some(found)
    }

    /// Makes the task of a running call durable. If the session cannot record it, the task is followed all the same, and
    /// does not survive this process.
    pub(crate) async fn record(
        task: &Task,
        tool: &str,
        context: &CallContext,
    ) -> Result<Self, ServerError> {
        if task.task_id.is_empty() || task.task_id.len() > ID_BYTES_MAX {
            return Err(ServerError::Unclear("a task without a usable id".into()));
        }
        let checkpoint = Self { mcp_task: task.task_id.clone(), tool: tool.to_owned() };
        let data = serde_json::to_value(&checkpoint).unwrap_or_default();
        if !context.memory.checkpoint(data).await {
            tracing::warn!(session = %context.session, tool, "task is not durable");
        }
        Ok(checkpoint)
    }
}

/// Keeps the id of a followed task. No other call may follow it: its result may belong to another session.
struct TaskGuard<'a>(&'a ServerShared, &'a str);

impl<'a> TaskGuard<'a> {
    fn enter(shared: &'a ServerShared, task: &'a str) -> Result<Self, ServerError> {
        let mut tasks = shared.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        match tasks.insert(task.to_owned()) {
            true => Ok(Self(shared, task)),
            false => Err(ServerError::Unclear("the id of a task of another call".into())),
        }
    }
}

impl Drop for TaskGuard<'_> {
    fn drop(&mut self) {
        self.0.tasks.lock().unwrap_or_else(PoisonError::into_inner).remove(self.1);
    }
}

impl TaskFollower<'_> {
    /// Asks for the task until it ends. Returns `None` if the call was stopped.
    pub(crate) async fn follow(
        &self,
        checkpoint: &TaskCheckpoint,
        first: Option<u64>,
    ) -> Result<Option<CallToolResult>, ServerError> {
        let _guard = TaskGuard::enter(self.shared, &checkpoint.mcp_task)?;
        let clock = &self.context.world.clock;
        let (mut poll, mut shown) = (interval(first), None);
        loop {
            tokio::select! {
                biased;
                () = self.context.cancel.cancelled() => {
                    self.stop(checkpoint).await;
                    return Ok(None);
                }
                () = clock.sleep(poll) => {}
            }
            let Some(connection) = self.shared.connection() else { continue };
            let task = match self.ask(&connection, checkpoint).await {
                Ok(task) => task.task,
                Err(error) if is_passing(&error) => {
                    tracing::debug!(server = %self.shared.name, ?error, "asking for a task failed");
                    connection.doubt.notify_one();
                    continue;
                }
                Err(error) => return Err(error),
            };
            if task.task.task_id != checkpoint.mcp_task {
                return Err(ServerError::Unclear("an answer about another task".into()));
            }
            poll = interval(task.task.poll_interval_ms);
            if let Some(message) = task.task.status_message.filter(|it| shown.as_ref() != Some(it))
            {
                self.context.notes.show(format!("{}\n", bounded(&message)));
                shown = Some(message);
            }
            match task.payload {
                TaskPayload::Completed { result } => {
                    let result = serde_json::from_value(result.into());
                    return match result {
                        Ok(result) => Ok(Some(result)),
                        Err(error) => Err(ServerError::Unclear(error.to_string().into())),
                    };
                }
                TaskPayload::Failed { error } => return Err(ServerError::Refused(reason(&error))),
                TaskPayload::Cancelled => {
                    let text = "the server cancelled the task";
                    return Err(ServerError::Refused(ErrorData::internal_error(text, None)));
                }
                TaskPayload::InputRequired { input_requests } => {
                    let answers = input::answer(&input_requests, self.shared, "task", self.context);
                    let answers = tokio::select! {
                        biased;
                        () = self.context.cancel.cancelled() => {
                            self.stop(checkpoint).await;
                            return Ok(None);
                        }
                        answers = answers => answers?,
                    };
                    let params = UpdateTaskParams::new(checkpoint.mcp_task.clone(), answers);
                    let request = ClientRequest::UpdateTaskRequest(UpdateTaskRequest::new(params));
                    drop(connection.request(request, QUESTION_MAX).await?);
                }
                _ => {}
            }
        }
    }

    async fn ask(
        &self,
        connection: &ServerConnection,
        checkpoint: &TaskCheckpoint,
    ) -> Result<GetTaskResult, ServerError> {
        let params = GetTaskParams::new(checkpoint.mcp_task.clone());
        let request = ClientRequest::GetTaskRequest(GetTaskRequest::new(params));
        let cancelled = self.context.cancel.cancelled();
        let answer = tokio::select! {
            biased;
            answer = connection.request(request, QUESTION_MAX) => answer?,
            // The loop sees the stop at once.
            () = cancelled => return Err(ServerError::TimedOut(QUESTION_MAX)),
        };
        match answer {
            ServerResult::GetTaskResult(task) => Ok(task),
            _ => Err(ServerError::Unclear("a result that is not a task".into())),
        }
    }

    /// Cancels the task at the server, unless only this process ends: the next one asks for it again.
    pub(crate) async fn stop(&self, checkpoint: &TaskCheckpoint) {
        if self.context.memory.is_parked() {
            return;
        }
        let Some(connection) = self.shared.connection() else { return };
        let params = CancelTaskParams::new(checkpoint.mcp_task.clone());
        let request = ClientRequest::CancelTaskRequest(CancelTaskRequest::new(params));
        if let Err(error) = connection.request(request, CANCEL_MAX).await {
            let context = FaultContext::bare(&self.shared.name, Operation::ToolCall);
            let fault = error.fault(&context);
            tracing::warn!(server = %self.shared.name, %fault, "cancelling a task failed");
        }
    }
}

/// Whether another question may be answered: the task goes on without a connection.
fn is_passing(error: &ServerError) -> bool {
    match error {
        ServerError::Down | ServerError::Lost | ServerError::TimedOut(_) => true,
        ServerError::Wire(error) => !crate::error::is_rejection(&**error),
        _ => false,
    }
}

fn interval(hint: Option<u64>) -> Duration {
    hint.map_or(POLL, |millis| Duration::from_millis(millis).clamp(POLL_MIN, POLL_MAX))
}

/// The error of a failed task.
fn reason(error: &rmcp::model::JsonObject) -> ErrorData {
    let code = error.get("code").and_then(serde_json::Value::as_i64);
    let code = code.and_then(|code| i32::try_from(code).ok()).unwrap_or(-32603);
    let message = error.get("message").and_then(serde_json::Value::as_str).unwrap_or_default();
    ErrorData::new(ErrorCode(code), message.to_owned(), None)
}

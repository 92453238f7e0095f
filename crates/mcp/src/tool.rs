//! A server's tool as an implementation of the tool interface.

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use budao_core::{
    fault::{Fault, Kind, Operation},
    tool::{Effect, Failure, ToolOrigin, ToolSpec},
};
use budao_tools::{CallContext, ReconcileRule, Reconciliation, Tool, ToolResult};
use rmcp::model::{CallToolResult, Task, ToolAnnotations};
use serde_json::Value;

use crate::{
    answer::{self, ResultForm},
    config::{McpServerConfig, Timeouts},
    connection::{CallAnswer, CallRequest},
    error::{FaultContext, ServerError},
    input::InputCheckpoint,
    name,
    server::ServerShared,
    task::{TaskCheckpoint, TaskFollower},
};

/// A tool of a server. It looks up the connection at each call, so it stays valid across reconnects.
pub(crate) struct McpTool {
    spec: Arc<ToolSpec>,
    server_tool_name: String,
    shared: Arc<ServerShared>,
    /// Whether to return the server's result unchanged.
    is_whole: bool,
    details: ToolDetails,
    /// The time limits of a call and of a task.
    timeouts: Timeouts,
}

/// What is known of a tool besides its specification.
#[derive(Debug, Default)]
pub(crate) struct ToolDetails {
    /// How to find out what became of an interrupted call; `None` if the configuration does not say.
    pub(crate) reconcile: Option<ReconcileRule>,
    /// The digest of a tool that changed since it was approved. A call that is allowed approves it.
    pub(crate) changed: Option<String>,
    /// Whether the server may finish a call later, as a task.
    pub(crate) has_tasks: bool,
    /// Whether the server ends a call with questions and goes on when it gets the answers.
    pub(crate) is_stateless: bool,
}

impl McpTool {
    pub(crate) fn new(
        tool: rmcp::model::Tool,
        config: &McpServerConfig,
        details: ToolDetails,
        shared: Arc<ServerShared>,
    ) -> Self {
        let mut spec = spec(&tool, config);
        let is_changed = details.changed.is_some();
        spec.source = ToolOrigin::Mcp { server: config.name.clone(), is_changed };
        if details.has_tasks {
            // The limit of a plain call is kept in `run`.
            spec.deadline = Some(config.timeouts.task + TASK_SLACK);
        }
        let (spec, is_whole) = (Arc::new(spec), config.whole_results);
        let (server_tool_name, timeouts) = (tool.name.into_owned(), config.timeouts);
        Self { spec, server_tool_name, shared, is_whole, details, timeouts }
    }

    fn fault_context(&self, context: &CallContext) -> FaultContext<'_> {
        FaultContext {
            operation: Operation::ToolCall,
            server: &self.shared.name,
            tool: Some(&self.spec.name),
            server_tool_name: &self.server_tool_name,
            idempotent: self.spec.idempotent,
            limit: context.limits.frame_bytes_hard,
        }
    }

    /// Asks the server's read-only tool. The caller bounds the time and tries again.
    async fn ask(
        &self,
        rule: &ReconcileRule,
        arguments: &Value,
        context: &CallContext,
    ) -> Result<Reconciliation, Failure> {
        let Some(question) = rule.question(arguments, context) else {
            tracing::warn!(tool = %self.spec.name, "call not reconciled: an argument of the question is missing");
            return Ok(Reconciliation::CannotTell);
        };
        let fault_context = FaultContext {
            operation: Operation::ReconcileCall,
            server_tool_name: &rule.ask,
            idempotent: true,
            ..self.fault_context(context)
        };
        let Some(connection) = self.shared.connection() else {
            return Err(answer::plain(ServerError::Down.fault(&fault_context)));
        };
        let request = CallRequest { tool: &rule.ask, arguments: Some(question), waiting: None };
        let answer = connection.call(request, &self.shared, context).await;
        let Some(CallAnswer::Done(result)) =
            answer.map_err(|error| answer::plain(error.fault(&fault_context)))?
        else {
            return Ok(Reconciliation::CannotTell);
        };
        let (form, depth) = (ResultForm::PlainData, context.limits.json_depth);
        let answer = answer::of_result(result, form, &fault_context, depth)?;
        Ok(rule.read(answer, arguments, context))
    }

    async fn run(&self, arguments: Value, context: &CallContext) -> Result<ToolResult, Fault> {
        let fault_context = self.fault_context(context);
        if let Some(task) = self.earlier_task(context).await {
            return self.follow(&task, None, context).await;
        }
        let waiting = self.earlier_questions(context).await;
        let Some(connection) = self.shared.connection() else {
            return Err(ServerError::Down.fault(&fault_context));
        };
        let arguments = match arguments {
            Value::Object(map) => Some(map),
            _ => None,
        };
        let request = CallRequest { tool: &self.server_tool_name, arguments, waiting };
        let limit = self.timeouts.call.unwrap_or(context.limits.tool_deadline);
        let began = context.world.clock.now();
        let answer = tokio::select! {
            biased;
            answer = connection.call(request, &self.shared, context) => answer,
            () = context.deadline(limit) => Err(ServerError::TimedOut(limit)),
        };
        match answer {
            Ok(Some(CallAnswer::Done(result))) => Ok(self.result_of(result, context)),
            Ok(Some(CallAnswer::Task(task))) => self.follow_new(&task, context).await,
            Ok(None) => {
                let took = context.world.clock.now().since(began);
                Err(self.stopped(took, limit, context))
            }
            Err(error) => {
                let is_doubtful = matches!(error, ServerError::Lost | ServerError::Wire(_));
                let fault = error.fault(&fault_context);
                // A server that does not know a tool it listed has changed its tools without a notification.
                if is_doubtful || fault.kind() == Kind::UnknownTool {
                    connection.doubt.notify_one();
                }
                Err(if is_doubtful {
                    connection.last_words(fault, &context.world).await
                } else {
                    fault
                })
            }
        }
    }

    fn result_of(&self, result: CallToolResult, context: &CallContext) -> ToolResult {
        let form = if self.is_whole { ResultForm::Whole } else { ResultForm::Data };
        answer::of_result(result, form, &self.fault_context(context), context.limits.json_depth)
    }

    fn stopped(&self, took: Duration, limit: Duration, context: &CallContext) -> Fault {
        let fault_context = self.fault_context(context);
        let unconfirmed =
            || fault_context.unconfirmed(Kind::Cancelled).via("mcp_server", fault_context.server);
        stopped(took, limit).map_or_else(unconfirmed, |error| error.fault(&fault_context))
    }

    /// The task that an earlier attempt of this call became.
    async fn earlier_task(&self, context: &CallContext) -> Option<TaskCheckpoint> {
        if context.attempt < 2 || !self.details.is_stateless {
            return None;
        }
        TaskCheckpoint::find(context, &self.server_tool_name).await
    }

    /// The questions with which the server ended an earlier attempt of this call.
    async fn earlier_questions(&self, context: &CallContext) -> Option<InputCheckpoint> {
        if context.attempt < 2 || !self.details.is_stateless {
            return None;
        }
        InputCheckpoint::find(context, &self.server_tool_name).await
    }

    /// Makes a new task durable, then follows it.
    async fn follow_new(&self, task: &Task, context: &CallContext) -> Result<ToolResult, Fault> {
        let fault_context = self.fault_context(context);
        let recorded = TaskCheckpoint::record(task, &self.server_tool_name, context).await;
        let checkpoint = recorded.map_err(|error| error.fault(&fault_context))?;
        self.follow(&checkpoint, task.poll_interval_ms, context).await
    }

    async fn follow(
        &self,
        checkpoint: &TaskCheckpoint,
        poll: Option<u64>,
        context: &CallContext,
    ) -> Result<ToolResult, Fault> {
        let follower = TaskFollower { shared: &self.shared, context };
        let (limit, began) = (self.timeouts.task, context.world.clock.now());
        let ended = tokio::select! {
            biased;
            ended = follower.follow(checkpoint, poll) => ended,
            () = context.deadline(limit) => {
                follower.stop(checkpoint).await;
                Err(ServerError::TimedOut(limit))
            }
        };
        match ended {
            Ok(Some(result)) => Ok(self.result_of(result, context)),
            Ok(None) => {
                let took = context.world.clock.now().since(began);
                Err(self.stopped(took, limit, context))
            }
            Err(error) => Err(error.fault(&self.fault_context(context))),
        }
    }
}

/// The error for a cancelled call, since the cancellation carries no reason. The caller's deadline starts shortly
/// before the call does, so a cancellation near the deadline counts as a timeout.
fn stopped(took: Duration, limit: Duration) -> Option<ServerError> {
    let lag = (limit / 4).min(LAG_MAX);
    (took + lag >= limit).then_some(ServerError::TimedOut(limit))
}

/// Slack of the runner's own deadline for a task, which is only a safety net.
const TASK_SLACK: Duration = Duration::from_secs(30);

/// The longest delay between the start of a deadline and the start of its call.
const LAG_MAX: Duration = Duration::from_secs(1);

#[async_trait]
impl Tool for McpTool {
    fn spec(&self) -> Arc<ToolSpec> {
        self.spec.clone()
    }

    async fn call(&self, arguments: Value, context: &CallContext) -> ToolResult {
        if let Some(digest) = &self.details.changed {
            self.shared.approve(&self.server_tool_name, digest);
        }
        match self.run(arguments, context).await {
            Ok(result) => result,
            Err(fault) => Err(answer::plain(fault.scrub(&self.shared.scrubber))),
        }
    }

    fn can_reconcile(&self) -> bool {
        self.details.reconcile.is_some() || self.details.is_stateless
    }

    async fn reconcile(
        &self,
        arguments: Value,
        context: &CallContext,
    ) -> Result<Reconciliation, Failure> {
        if self.details.is_stateless {
            let tool = &self.server_tool_name;
            let is_task = TaskCheckpoint::find(context, tool).await.is_some();
            if is_task || InputCheckpoint::find(context, tool).await.is_some() {
                return Ok(Reconciliation::StillRuns);
            }
        }
        let Some(rule) = &self.details.reconcile else { return Ok(Reconciliation::CannotTell) };
        self.ask(rule, &arguments, context).await.map_err(|failure| Failure {
            fault: failure.fault.scrub(&self.shared.scrubber),
            ..failure
        })
    }
}

impl fmt::Debug for McpTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("McpTool").field(&self.spec.name).finish()
    }
}

fn spec(tool: &rmcp::model::Tool, config: &McpServerConfig) -> ToolSpec {
    let hints = tool.annotations.as_ref().filter(|_| config.trust_hints);
    let effect = hints.map_or(Effect::Executes, effect);
    let idempotent = hints.is_some_and(ToolAnnotations::is_idempotent);
    let title = tool.title.as_deref().unwrap_or_default();
    ToolSpec {
        name: name::of(&config.name, &tool.name).into(),
        description: tool.description.as_deref().unwrap_or(title).into(),
        schema: Arc::new(tool.schema_as_json_value()),
        effect,
        // A call that only reads is safe to repeat.
        idempotent: idempotent || effect == Effect::Reads,
        confirm: config.asks(&tool.name),
        repair: false,
        deadline: config.timeouts.call,
        output_bytes: None,
        source: ToolOrigin::Mcp { server: config.name.clone(), is_changed: false },
    }
}

/// The effect of a tool by its hints; without hints, the worst case.
fn effect(hints: &ToolAnnotations) -> Effect {
    match (hints.read_only_hint, hints.destructive_hint, hints.open_world_hint) {
        (Some(true), _, _) => Effect::Reads,
        (_, Some(false), Some(false)) => Effect::Writes,
        _ => Effect::Executes,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(annotations: &Value, trust_hints: bool) -> (Effect, bool) {
        let tool = json!({
            "name": "t", "inputSchema": { "type": "object" }, "annotations": annotations,
        });
        let mut config = McpServerConfig::stdio("s", "x", [""; 0]);
        config.trust_hints = trust_hints;
        let spec = spec(&serde_json::from_value(tool).unwrap(), &config);
        (spec.effect, spec.idempotent)
    }

    #[test]
    fn hints_are_believed_only_as_far_as_they_go() {
        let additive = json!({ "destructiveHint": false, "openWorldHint": false });
        let repeatable = json!({ "idempotentHint": true });
        assert_eq!(of(&json!({ "readOnlyHint": true }), true), (Effect::Reads, true));
        assert_eq!(of(&additive, true), (Effect::Writes, false));
        assert_eq!(of(&repeatable, true), (Effect::Executes, true));
        assert_eq!(of(&json!({}), true), (Effect::Executes, false));
        assert_eq!(of(&json!({ "readOnlyHint": false }), true), (Effect::Executes, false));
    }

    #[test]
    fn a_call_that_is_stopped_near_its_deadline_was_stopped_by_it() {
        let is_deadline = |took: u64, limit: u64| {
            stopped(Duration::from_millis(took), Duration::from_millis(limit)).is_some()
        };
        assert!(is_deadline(59_500, 60_000) && is_deadline(250, 300));
        assert!(!is_deadline(58_000, 60_000) && !is_deadline(0, 300));
    }

    #[test]
    fn a_server_that_is_not_trusted_is_not_believed() {
        let all = json!({ "readOnlyHint": true, "idempotentHint": true });
        assert_eq!(of(&all, false), (Effect::Executes, false));
    }
}

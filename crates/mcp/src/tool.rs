//! A server's tool as an implementation of the tool interface.

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use budao_core::{
    fault::{Fault, Kind, Operation},
    tool::{Effect, ToolOrigin, ToolSpec},
};
use budao_tools::{CallContext, Tool, ToolResult};
use rmcp::model::ToolAnnotations;
use serde_json::Value;

use crate::{
    answer::{self, ResultForm},
    config::McpServerConfig,
    error::{FaultContext, ServerError},
    name,
    server::ServerShared,
};

/// A tool of a server. It looks up the connection at each call, so it stays valid across reconnects.
pub(crate) struct McpTool {
    spec: Arc<ToolSpec>,
    server_tool_name: String,
    shared: Arc<ServerShared>,
    /// Whether to return the server's result unchanged.
    is_whole: bool,
}

impl McpTool {
    pub(crate) fn new(
        tool: rmcp::model::Tool,
        config: &McpServerConfig,
        shared: Arc<ServerShared>,
    ) -> Self {
        let spec = Arc::new(spec(&tool, config));
        let is_whole = config.whole_results;
        Self { spec, server_tool_name: tool.name.into_owned(), shared, is_whole }
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

    async fn run(&self, arguments: Value, context: &CallContext) -> Result<ToolResult, Fault> {
        let fault_context = self.fault_context(context);
        let Some(connection) = self.shared.connection() else {
            return Err(ServerError::Down.fault(&fault_context));
        };
        let arguments = match arguments {
            Value::Object(map) => Some(map),
            _ => None,
        };
        let limit = self.spec.deadline.unwrap_or(context.limits.tool_deadline);
        let began = context.world.clock.now();
        let answer = tokio::select! {
            biased;
            answer = connection.call(&self.server_tool_name, arguments, context) => answer,
            () = context.world.clock.sleep(limit) => Err(ServerError::TimedOut(limit)),
        };
        match answer {
            Ok(Some(result)) => {
                let form = if self.is_whole { ResultForm::Whole } else { ResultForm::Data };
                Ok(answer::of_result(result, form, &fault_context, context.limits.json_depth))
            }
            Ok(None) => {
                let took = context.world.clock.now().since(began);
                Err(stopped(took, limit).map_or_else(
                    || {
                        fault_context
                            .unconfirmed(Kind::Cancelled)
                            .via("mcp_server", fault_context.server)
                    },
                    |error| error.fault(&fault_context),
                ))
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
}

/// The error for a cancelled call, since the cancellation carries no reason. The caller's deadline starts shortly
/// before the call does, so a cancellation near the deadline counts as a timeout.
fn stopped(took: Duration, limit: Duration) -> Option<ServerError> {
    let lag = (limit / 4).min(LAG_MAX);
    (took + lag >= limit).then_some(ServerError::TimedOut(limit))
}

/// The longest delay between the start of a deadline and the start of its call.
const LAG_MAX: Duration = Duration::from_secs(1);

#[async_trait]
impl Tool for McpTool {
    fn spec(&self) -> Arc<ToolSpec> {
        self.spec.clone()
    }

    async fn call(&self, arguments: Value, context: &CallContext) -> ToolResult {
        match self.run(arguments, context).await {
            Ok(result) => result,
            Err(fault) => Err(answer::plain(fault.scrub(&self.shared.scrubber))),
        }
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
        confirm: false,
        repair: false,
        deadline: config.timeouts.call,
        output_bytes: None,
        source: ToolOrigin::Mcp { server: config.name.clone() },
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

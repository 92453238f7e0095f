//! A tool of a server, as the call path sees it.

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use budao_core::{
    fault::{Fault, Kind, Operation},
    tool::{Effect, Source, ToolSpec},
};
use budao_tools::{CallContext, Tool, ToolResult};
use rmcp::model::ToolAnnotations;
use serde_json::Value;

use crate::{
    answer,
    config::Config,
    name,
    server::Shared,
    trouble::{About, Trouble},
};

/// A tool of a server. It finds the connection when it is called, so it outlives reconnects.
pub(crate) struct McpTool {
    spec: Arc<ToolSpec>,
    called: String,
    shared: Arc<Shared>,
}

impl McpTool {
    pub(crate) fn new(tool: rmcp::model::Tool, config: &Config, shared: Arc<Shared>) -> Self {
        let spec = Arc::new(spec(&tool, config));
        Self { spec, called: tool.name.into_owned(), shared }
    }

    fn about(&self, context: &CallContext) -> About<'_> {
        About {
            operation: Operation::ToolCall,
            server: &self.shared.name,
            tool: Some(&self.spec.name),
            called: &self.called,
            idempotent: self.spec.idempotent,
            limit: context.limits.frame_bytes_hard,
        }
    }

    async fn run(&self, arguments: Value, context: &CallContext) -> Result<ToolResult, Fault> {
        let about = self.about(context);
        let Some(link) = self.shared.link() else { return Err(Trouble::Down.fault(&about)) };
        let arguments = match arguments {
            Value::Object(map) => Some(map),
            _ => None,
        };
        let limit = self.spec.deadline.unwrap_or(context.limits.tool_deadline);
        let answer = tokio::select! {
            biased;
            answer = link.call(&self.called, arguments, context) => answer,
            () = context.world.clock.sleep(limit) => Err(Trouble::Slow(limit)),
        };
        match answer {
            Ok(Some(result)) => Ok(answer::of_result(result, &about, context.limits.json_depth)),
            Ok(None) => Err(self.stopped(&about)),
            Err(trouble) => {
                let is_doubtful = matches!(trouble, Trouble::Lost | Trouble::Wire(_));
                let fault = trouble.fault(&about);
                // A server that does not know its own tool has changed without saying so.
                if is_doubtful || fault.kind() == Kind::UnknownTool {
                    link.doubt.notify_one();
                }
                Err(if is_doubtful { link.last_words(fault, &context.world).await } else { fault })
            }
        }
    }

    /// A call that was told to stop. Only the call path knows whether by a person or by its deadline, and it
    /// says so in place of this fault, which is therefore not of an aborted kind.
    fn stopped(&self, about: &About<'_>) -> Fault {
        about
            .fault(Kind::ToolFailed)
            .because("the call was told to stop, and the server was told so")
            .via("mcp_server", &*self.shared.name)
    }
}

#[async_trait]
impl Tool for McpTool {
    fn spec(&self) -> Arc<ToolSpec> {
        self.spec.clone()
    }

    async fn call(&self, arguments: Value, context: &CallContext) -> ToolResult {
        match self.run(arguments, context).await {
            Ok(result) => result,
            Err(fault) => Err(answer::plain(fault.scrubbed(&self.shared.scrubber))),
        }
    }
}

impl fmt::Debug for McpTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("McpTool").field(&self.spec.name).finish()
    }
}

fn spec(tool: &rmcp::model::Tool, config: &Config) -> ToolSpec {
    let hints = tool.annotations.as_ref().filter(|_| config.trust_hints);
    let effect = hints.map_or(Effect::Executes, effect);
    let idempotent = hints.is_some_and(ToolAnnotations::is_idempotent);
    let title = tool.title.as_deref().unwrap_or_default();
    ToolSpec {
        name: name::of(&config.name, &tool.name).into(),
        description: tool.description.as_deref().unwrap_or(title).into(),
        schema: Arc::new(tool.schema_as_json_value()),
        effect,
        // What only reads can be read again.
        idempotent: idempotent || effect == Effect::Reads,
        confirm: false,
        repair: false,
        deadline: config.timeouts.call,
        output_bytes: None,
        source: Source::Mcp { server: config.name.clone() },
    }
}

/// What a tool does, by its hints; when in doubt, the worst.
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

    fn of(annotations: Value, trust_hints: bool) -> (Effect, bool) {
        let tool = json!({
            "name": "t", "inputSchema": { "type": "object" }, "annotations": annotations,
        });
        let mut config = Config::stdio("s", "x", [""; 0]);
        config.trust_hints = trust_hints;
        let spec = spec(&serde_json::from_value(tool).unwrap(), &config);
        (spec.effect, spec.idempotent)
    }

    #[test]
    fn hints_are_believed_only_as_far_as_they_go() {
        let additive = json!({ "destructiveHint": false, "openWorldHint": false });
        let repeatable = json!({ "idempotentHint": true });
        assert_eq!(of(json!({ "readOnlyHint": true }), true), (Effect::Reads, true));
        assert_eq!(of(additive, true), (Effect::Writes, false));
        assert_eq!(of(repeatable, true), (Effect::Executes, true));
        assert_eq!(of(json!({}), true), (Effect::Executes, false));
        assert_eq!(of(json!({ "readOnlyHint": false }), true), (Effect::Executes, false));
    }

    #[test]
    fn a_server_that_is_not_trusted_is_not_believed() {
        let all = json!({ "readOnlyHint": true, "idempotentHint": true });
        assert_eq!(of(all, false), (Effect::Executes, false));
    }
}

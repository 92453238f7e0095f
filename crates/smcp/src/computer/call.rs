//! Runs a tool call on a computer: finds the tool, gets confirmation, runs it with a deadline, and reports.

use crate::codes::smcp_code;
use std::{sync::Arc, time::Duration};

use budao_core::{
    fault::{Fact, Fault, Kind, Operation},
    limits::Limits,
    message::CallId,
    span::{Span, SpanOperation, code_of},
    tool::Failure,
};
use budao_tools::{CallContext, Toolbox, isolation};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::{
    confirm::Question,
    history::{self, CallRecord},
    result_limits::{ResultLimits, fit},
    state::{ComputerState, RunningCall, too_large},
    tool_servers::OfferedTool,
};
use crate::wire::{
    asked_by,
    request::{Fields, ToolCall},
    trace_of,
};

/// Time that an MCP server has to stop after its deadline.
const GRACE: Duration = Duration::from_secs(1);

/// A call's entry in the table of running calls; removed when dropped.
struct CallGuard<'a> {
    state: &'a ComputerState,
    req_id: String,
    cancel: CancellationToken,
}

impl Drop for CallGuard<'_> {
    fn drop(&mut self) {
        self.state.calls().remove(&self.req_id);
    }
}

/// The origin of a tool call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Caller {
    /// The agent in the room. Its calls need confirmation.
    Agent,
    /// The owner of the computer. Its calls need no confirmation.
    Owner,
}

impl ComputerState {
    /// Runs a tool call and adds it to the history.
    ///
    /// # Errors
    /// The fault that ended the call without a result.
    pub(super) async fn call(
        &self,
        request: &Value,
        req_id: &str,
        caller: Caller,
    ) -> Result<Value, Fault> {
        let fields = Fields::new("client:tool_call", Operation::ToolCall, request)?;
        fields.name("req_id")?;
        let call = fields.tool_call()?;
        let entry = self.enter(req_id, caller)?;
        let offered = self.offer.find(&call.tool_name)?;
        let params = request.get("params").cloned().unwrap_or_default();
        let at = self.world.clock.now();
        let parameters = history::render_params(&params, &self.scrubber());
        // The MCP server receives this span id, and the exported span carries it.
        let context = self.context(req_id, &entry.cancel);
        let id = context.span();
        let result = self.run(&offered, params, &call, context, caller).await;
        self.world.export_span(|| Span {
            trace: trace_of(req_id),
            id,
            parent: asked_by(req_id),
            session: None,
            began: at,
            ended: self.world.clock.now(),
            failed: result.as_ref().err().map(code_of),
            about: SpanOperation::ServedCall { tool: offered.exposed.clone() },
        });
        self.history.add(CallRecord {
            at,
            req_id: req_id.to_owned(),
            server: offered.bundle_id.clone(),
            tool: offered.called.clone(),
            parameters,
            timeout: call.timeout,
            took: self.world.clock.now().since(at),
            error: result.as_ref().err().map(|fault| smcp_code(fault.kind())),
        });
        result
    }

    /// Confirms, checks and runs the call until its answer, its deadline or its cancellation.
    async fn run(
        &self,
        offered: &OfferedTool,
        params: Value,
        call: &ToolCall,
        mut context: CallContext,
        caller: Caller,
    ) -> Result<Value, Fault> {
        let clock = &self.world.clock;
        let fault = |kind| {
            Fault::new(kind, Operation::ToolCall).with(Fact::ToolName, offered.exposed.clone())
        };
        let slow = || fault(Kind::DeadlinePassed).with(Fact::TimeoutMs, call.timeout);
        let began = clock.now();
        if caller == Caller::Agent {
            tokio::select! {
                biased;
                () = context.cancel.cancelled() => return Err(fault(Kind::Cancelled).not_started()),
                allowed = self.confirmed(offered, &params, &context.call.0) => allowed?,
                () = clock.sleep(call.timeout) => return Err(slow().not_started()),
            }
        }
        // The time for the confirmation counts against the call's deadline.
        let left = call.timeout.saturating_sub(clock.now().since(began));
        context.limits = Arc::new(Limits {
            tool_deadline: left.max(Duration::from_millis(1)),
            ..(*self.limits).clone()
        });
        check(offered, params.clone(), &context.limits)?;
        let result = tokio::select! {
            biased;
            result = offered.tool.call(params, &context) => result,
            () = clock.sleep(left + GRACE) => return Err(slow().unconfirmed()),
        };
        match result {
            Ok(value) => self.fit_to_limits(rendered(value), offered),
            Err(Failure { fault, .. }) => Err(fault.with(Fact::ToolName, offered.exposed.clone())),
        }
    }

    fn enter(&self, req_id: &str, caller: Caller) -> Result<CallGuard<'_>, Fault> {
        let mut calls = self.calls();
        if calls.contains_key(req_id) {
            return Err(Fault::new(Kind::DuplicateCallId, Operation::ToolCall)
                .with(Fact::CallId, req_id.to_owned()));
        }
        let limit = self.config.calls_max;
        if calls.len() >= limit {
            return Err(Fault::new(Kind::LimitReached, Operation::ToolCall)
                .with(Fact::LimitName, "calls_max")
                .with(Fact::Limit, i64::try_from(limit).unwrap_or(i64::MAX)));
        }
        let cancel = CancellationToken::new();
        calls.insert(req_id.to_owned(), RunningCall { caller, cancel: cancel.clone() });
        Ok(CallGuard { state: self, req_id: req_id.to_owned(), cancel })
    }

    /// Asks for confirmation, unless the tool has `auto_apply`.
    async fn confirmed(
        &self,
        offered: &OfferedTool,
        params: &Value,
        req_id: &str,
    ) -> Result<(), Fault> {
        if offered.meta.auto_apply == Some(true) {
            return Ok(());
        }
        let question =
            Question { req_id, bundle_id: &offered.bundle_id, tool: &offered.called, params };
        match self.config.confirm.confirm(&question).await.refusal() {
            None => Ok(()),
            Some(why) => Err(Fault::new(Kind::NeedsConfirmation, Operation::AskPermission)
                .with(Fact::ToolName, offered.exposed.clone())
                .with(Fact::Reason, why.clone())
                .with_cause(why)),
        }
    }

    fn context(&self, req_id: &str, cancel: &CancellationToken) -> CallContext {
        CallContext {
            world: self.world.clone(),
            call: CallId::from(req_id),
            trace: trace_of(req_id),
            cancel: cancel.clone(),
            limits: Arc::clone(&self.limits),
            scrubber: self.scrubber(),
            ..isolation::context()
        }
    }

    /// Moves large parts of a result into blobs. A result that is still too large is refused with its size, because
    /// sending it could close the connection.
    fn fit_to_limits(&self, result: Value, offered: &OfferedTool) -> Result<Value, Fault> {
        let limit = self.config.result_bytes_max;
        let room = ResultLimits { inline: self.config.inline_bytes_max, result: limit };
        fit(result, room, &self.blobs, &self.world).map_err(|bytes| {
            too_large(bytes, limit, Operation::ToolCall)
                .with(Fact::ToolName, offered.exposed.clone())
        })
    }
}

/// Checks the arguments against the tool's schema.
fn check(offered: &OfferedTool, params: Value, limits: &Limits) -> Result<(), Fault> {
    let toolbox = Toolbox::builder().add_shared(offered.tool.clone())?.build();
    let name = offered.tool.spec().name.clone();
    let checked = toolbox.check_value(&name, params, limits);
    checked.map(drop).map_err(|fault| fault.with(Fact::ToolName, offered.exposed.clone()))
}

/// Converts an MCP result to the protocol's form, which has `meta` instead of `_meta`.
fn rendered(mut result: Value) -> Value {
    if let Some(map) = result.as_object_mut() {
        map.insert("isError".into(), false.into());
        if let Some(meta) = map.remove("_meta").filter(|meta| !meta.is_null()) {
            map.insert("meta".into(), meta);
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_result_is_passed_on_as_it_is() {
        let block = json!({ "type": "text", "text": "x", "_meta": { "own": true } });
        let result = |meta: &str| {
            let mut result = json!({
                "content": [block, block], "structuredContent": { "n": 1 }, "isError": false,
            });
            result[meta] = json!({ "a": 1 });
            result
        };
        assert_eq!(rendered(result("_meta")), result("meta"));
        let silent = json!({ "content": [] });
        assert_eq!(rendered(silent), json!({ "content": [], "isError": false }));
    }
}

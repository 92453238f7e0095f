//! The way of a tool call on a computer: found, confirmed, run apart with a deadline, and told.

use budao_core::{
    fault::{Fact, Fault, Kind, Operation},
    limits::Limits,
    tool::Failure,
};
use budao_tools::{CallContext, Toolbox, alone};
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};
use tokio_util::sync::CancellationToken;

use super::{Desk, Question, offer::Offered};
use crate::wire::{request::Fields, trace_of};

/// An MCP server that was told to stop has this long to do so.
const GRACE: Duration = Duration::from_secs(1);

/// A call's place in the table; leaves it when the call is over.
struct Entry<'a> {
    desk: &'a Desk,
    req_id: String,
    cancel: CancellationToken,
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        self.desk.calls().remove(&self.req_id);
    }
}

impl Desk {
    /// Runs a tool call.
    ///
    /// # Errors
    /// Whatever kept it from an answer.
    pub(super) async fn call(&self, request: &Value, req_id: &str) -> Result<Value, Fault> {
        let fields = Fields::new("client:tool_call", Operation::ToolCall, request)?;
        fields.name("req_id")?;
        let call = fields.tool_call()?;
        let entry = self.enter(req_id)?;
        let offered = self.offer.find(&call.tool_name)?;
        let params = request.get("params").cloned().unwrap_or_default();
        let clock = &self.world.clock;
        let slow = || {
            Fault::new(Kind::DeadlinePassed, Operation::ToolCall)
                .with(Fact::TimeoutMs, call.timeout)
                .with(Fact::ToolName, offered.exposed.clone())
        };
        let stopped = || {
            Fault::new(Kind::Cancelled, Operation::ToolCall)
                .with(Fact::ToolName, offered.exposed.clone())
        };
        let began = clock.now();
        tokio::select! {
            biased;
            () = entry.cancel.cancelled() => return Err(stopped()),
            allowed = self.confirmed(&offered, &params, req_id) => allowed?,
            () = clock.sleep(call.timeout) => return Err(slow()),
        }
        // The question to a person took of the call's time, too.
        let left = call.timeout.saturating_sub(clock.now().since(began));
        let context = self.context(req_id, left, &entry.cancel);
        check(&offered, params.clone(), &context.limits)?;
        let result = tokio::select! {
            biased;
            result = offered.tool.call(params, &context) => result,
            () = clock.sleep(left + GRACE) => return Err(slow()),
        };
        match result {
            Ok(value) => self.fit(rendered(value), &offered),
            Err(Failure { fault, .. }) => Err(fault.with(Fact::ToolName, offered.exposed)),
        }
    }

    fn enter(&self, req_id: &str) -> Result<Entry<'_>, Fault> {
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
        calls.insert(req_id.to_owned(), cancel.clone());
        Ok(Entry { desk: self, req_id: req_id.to_owned(), cancel })
    }

    /// Only what says so runs without asking.
    async fn confirmed(
        &self,
        offered: &Offered,
        params: &Value,
        req_id: &str,
    ) -> Result<(), Fault> {
        if offered.meta.auto_apply == Some(true) {
            return Ok(());
        }
        let question =
            Question { req_id, bundle_id: &offered.bundle_id, tool: &offered.called, params };
        let said = self.config.confirm.confirm(&question).await;
        let why = match said {
            Some(true) => return Ok(()),
            Some(false) => "the person at the computer said no",
            None => "nobody at the computer could be asked",
        };
        Err(Fault::new(Kind::NeedsConfirmation, Operation::AskPermission)
            .with(Fact::ToolName, offered.exposed.clone())
            .because(why))
    }

    fn context(&self, req_id: &str, left: Duration, cancel: &CancellationToken) -> CallContext {
        let limits =
            Limits { tool_deadline: left.max(Duration::from_millis(1)), ..(*self.limits).clone() };
        CallContext {
            world: self.world.clone(),
            trace: trace_of(req_id),
            cancel: cancel.clone(),
            limits: Arc::new(limits.clone()),
            scrubber: self.scrubber.clone(),
            ..alone::context_with(limits)
        }
    }

    /// A result that is too large is refused with its size: it would cost somebody the connection.
    fn fit(&self, result: Value, offered: &Offered) -> Result<Value, Fault> {
        let (limit, bytes) = (self.config.result_bytes_max, result.to_string().len());
        if bytes <= limit {
            return Ok(result);
        }
        let count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        Err(Fault::new(Kind::OutputTooLarge, Operation::ToolCall)
            .with(Fact::Limit, count(limit))
            .with(Fact::Actual, count(bytes))
            .with(Fact::ToolName, offered.exposed.clone()))
    }
}

/// Do the arguments fit the tool?
fn check(offered: &Offered, params: Value, limits: &Limits) -> Result<(), Fault> {
    let toolbox = Toolbox::builder().add_shared(offered.tool.clone())?.build();
    let name = offered.tool.spec().name.clone();
    let checked = toolbox.check_value(&name, params, limits);
    checked.map(drop).map_err(|fault| fault.with(Fact::ToolName, offered.exposed.clone()))
}

/// What a tool answered, as an MCP result.
fn rendered(value: Value) -> Value {
    let is_wrapped = value.get("ok") == Some(&Value::Bool(true)) && value.get("data").is_some();
    let value = if is_wrapped { value["data"].clone() } else { value };
    let text = |text: String| json!([{ "type": "text", "text": text }]);
    match value {
        Value::Null => json!({ "content": [], "isError": false }),
        Value::String(said) => json!({ "content": text(said), "isError": false }),
        Value::Object(mut map) if map.get("content").is_some_and(Value::is_array) => {
            map.insert("isError".into(), false.into());
            Value::Object(map)
        }
        other => {
            let mut result = json!({ "content": text(other.to_string()), "isError": false });
            if other.is_object() {
                result["structuredContent"] = other;
            }
            result
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_becomes_a_result() {
        let text = |text: &str| json!([{ "type": "text", "text": text }]);
        assert_eq!(rendered(json!("x")), json!({ "content": text("x"), "isError": false }));
        assert_eq!(rendered(Value::Null), json!({ "content": [], "isError": false }));
        let structured = rendered(json!({ "n": 1 }));
        assert_eq!(structured["structuredContent"], json!({ "n": 1 }));
        assert_eq!(structured["content"], text(r#"{"n":1}"#));
        let picture = json!([{ "type": "image", "data": "AA==", "mimeType": "image/png" }]);
        assert_eq!(rendered(json!({ "content": picture }))["content"], picture);
        assert_eq!(rendered(json!({ "ok": true, "data": "y" }))["content"], text("y"));
    }
}

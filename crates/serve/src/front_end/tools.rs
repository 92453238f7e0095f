//! Tools that a front end runs itself. They are the remote tools of the session protocol, offered by a worker without a
//! connection: the front end claims a call and reports its end in one request.

use std::sync::Arc;

use budao_core::{
    Fault, Kind,
    event::CommandBody,
    fault::{Fact, Operation},
    remote::{OfferedTool, ToolOffer},
    trace::SpanId,
};
use budao_remote::{OfferScope, WorkerIdentity, WorkerLimits, WorkerOffer};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Thread, WORKER};
use crate::{
    http_api::Caller,
    server::{CommandRequest, Server},
};

/// A tool as a front end describes it.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct FrontEndTool {
    name: String,
    #[serde(default)]
    description: String,
    #[serde(default)]
    parameters: Value,
    /// `readOnly` and `idempotent`: properties of the tool that only the front end knows.
    #[serde(default)]
    metadata: Value,
}

impl FrontEndTool {
    fn to_offered_tool(&self, limits: &WorkerLimits) -> OfferedTool {
        let is = |name: &str| self.metadata.get(name).and_then(Value::as_bool).unwrap_or(false);
        let parameters = match &self.parameters {
            Value::Object(schema) if !schema.is_empty() => self.parameters.clone(),
            _ => json!({ "type": "object" }),
        };
        OfferedTool {
            name: self.name.clone(),
            description: self.description.clone(),
            parameters,
            read_only: is("readOnly"),
            idempotent: is("idempotent"),
            confirm: false,
            reconcile: false,
            deadline_ms: None,
            // The front end may be closed for hours before a person comes back.
            wait_ms: u64::try_from(limits.wait_max.as_millis()).ok(),
        }
    }
}

/// Offers the tools of a front end to its thread. Tools that are on offer already are not offered again.
///
/// # Errors
/// `unsupported_operation` if the server takes no tools of workers; `constraint_violated` for a tool that does not fit.
pub(crate) async fn offer_tools(
    server: &Arc<Server>,
    caller: &Caller,
    thread: &Thread,
    tools: &[FrontEndTool],
) -> Result<(), Fault> {
    let known = thread.state.settings.offers.iter().find(|offer| offer.worker == WORKER);
    if tools.is_empty() && known.is_none() {
        return Ok(());
    }
    let workers = server.config.workers.as_ref().ok_or_else(|| {
        Fault::new(Kind::UnsupportedOperation, Operation::RegisterTool)
            .with(Fact::Reason, "this server takes no tools of workers")
    })?;
    let tools: Vec<OfferedTool> =
        tools.iter().map(|tool| tool.to_offered_tool(workers.limits())).collect();
    if known.is_some_and(|known| known.tools == tools) {
        return Ok(());
    }
    let (tenant, user) = (caller.identity.tenant.clone(), caller.identity.name());
    let identity = WorkerIdentity { tenant, user: user.clone(), patterns: None };
    let offer = WorkerOffer {
        worker: WORKER.to_owned(),
        worker_id: format!("{WORKER}-{}", thread.session),
        capacity: 1,
        tools,
        holding: Vec::new(),
    };
    workers.check(&identity, &OfferScope::Session(thread.session), &offer).await?;
    // An operator who goes on with a user's thread replaces what the user's front end offers.
    let by = known.map_or_else(|| user.clone(), |known| known.by.clone());
    let offer = Box::new(ToolOffer { worker: offer.worker, by, tools: offer.tools });
    let bounds = workers.limits().session_bounds();
    let body = CommandBody::OfferTools { offer, bounds };
    let (trace, parent) = (caller.trace, SpanId::NONE);
    let request = CommandRequest { by: user, command: None, trace, parent, body };
    server.submit(thread.session, request).await.map(drop)
}

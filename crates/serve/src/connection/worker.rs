//! The requests of workers on a connection: offers, claims, progress and results.
//!
//! A claim and a result are commands to the session that made the call, so any server takes them. They are submitted
//! by tasks of their own, because a worker has many calls at the same time.

use std::sync::{Arc, atomic::Ordering};

use budao_core::{
    Fault, Kind,
    event::{CommandBody, CommandId, SessionId},
    fault::{Fact, Operation},
    remote::{ToolOffer, WorkerReport},
    trace::{SpanId, Trace},
    world::Clock,
};
use budao_remote::{
    CallKey, CallPurpose, ClaimCheck, OfferScope, ProcessRef, WorkerIdentity, WorkerLink,
    WorkerMessage, WorkerOffer, Workers,
};
use serde_json::{Map, Value, json};

use super::Connection;
use crate::{
    frame::{
        Frame,
        connection::{self as frames, CommandRef},
        worker as worker_frames,
    },
    inbound::{ClaimRef, Inbound, Request, WorkerResult},
    outbox::{EncodedFrame, Outbox, OutboxClosed},
    server::CommandRequest,
    session_meta,
};

/// Claims and results of one connection that are submitted at the same time.
pub(super) const SUBMISSIONS: usize = 256;

/// Sends a worker's messages to its connection.
#[derive(Debug)]
struct ConnectionLink {
    number: u64,
    outbox: Outbox,
    clock: Arc<dyn Clock>,
}

impl WorkerLink for ConnectionLink {
    fn deliver(&self, message: WorkerMessage) {
        let now = self.clock.now();
        let frame = match &message {
            WorkerMessage::Call { worker_id, offer } => worker_frames::call(now, worker_id, offer),
            WorkerMessage::Cancel { worker_id, key, attempt, reason } => {
                worker_frames::cancel(now, worker_id, key, *attempt, *reason)
            }
        };
        // A closed outbox has a reader that ends; the worker is disconnected then.
        let _ = self.outbox.deliver(EncodedFrame::from(&frame));
    }

    fn number(&self) -> u64 {
        self.number
    }
}

/// The command that a worker's frame is part of.
struct WorkerCommand {
    session: SessionId,
    command: Option<CommandId>,
    trace: Trace,
    parent: SpanId,
}

/// Whether a request is a claim or a result, which are submitted by tasks of their own.
pub(super) fn is_submission(request: &Request) -> bool {
    matches!(request, Request::ToolClaim(_) | Request::ToolResult { .. })
}

impl Connection {
    fn workers(&self) -> Result<&Workers, Fault> {
        self.server.config.workers.as_ref().ok_or_else(|| {
            Fault::new(Kind::UnsupportedOperation, Operation::RegisterTool)
                .with(Fact::Reason, "this server takes no tools of workers")
        })
    }

    /// Whether a frame concerns a call that this connection was offered. The open calls bound such frames.
    pub(super) fn is_expected(&self, inbound: &Inbound) -> bool {
        let (Request::ToolClaim(claim) | Request::ToolResult { claim, .. }) = &inbound.request
        else {
            return false;
        };
        let (Some(workers), Some(session)) = (&self.server.config.workers, inbound.session) else {
            return false;
        };
        workers.is_expected(&self.id, &CallKey { session, call: claim.call.clone() })
    }

    /// Handles a claim or a result next to the reader, at most [`SUBMISSIONS`] at the same time.
    pub(super) async fn submit_later(
        self: &Arc<Self>,
        inbound: Inbound,
    ) -> Result<(), OutboxClosed> {
        let Ok(slot) = Arc::clone(&self.submissions).acquire_owned().await else { return Ok(()) };
        let connection = Arc::clone(self);
        let submission = self.server.running.track_future(async move {
            // A closed outbox ends the connection; its reader notices.
            let _ = connection.handle_inbound(inbound).await;
            drop(slot);
        });
        self.server.world.spawn.spawn(Box::pin(submission));
        Ok(())
    }

    /// Executes a request of a worker and returns its answer.
    pub(super) async fn perform_for_worker(
        self: &Arc<Self>,
        inbound: Inbound,
    ) -> Result<Option<Frame>, Fault> {
        let Inbound { session, command, trace, parent, request, .. } = inbound;
        let action = request.action();
        let is_quiet = matches!(request, Request::ToolOutput { .. }) && command.is_none();
        let context =
            |session: SessionId| WorkerCommand { session, command: command.clone(), trace, parent };
        let more = match request {
            Request::OfferTools(offer) => {
                let command_ref = CommandRef { action, session, command: command.as_ref() };
                self.offer_tools(*offer, command_ref, trace).await?;
                return Ok(None);
            }
            Request::DrainWorker { worker_id } => {
                let held = self.workers()?.drain(self.process(&worker_id))?;
                json!({ "held": held })
            }
            Request::ToolClaim(claim) => {
                self.claim(context(session.ok_or_else(super::missing_session_fault)?), claim)
                    .await?
            }
            Request::ToolResult { claim, result } => {
                self.submit_result(
                    context(session.ok_or_else(super::missing_session_fault)?),
                    claim,
                    *result,
                )
                .await?
            }
            Request::ToolOutput { claim, delta } => {
                let session = session.ok_or_else(super::missing_session_fault)?;
                let key = CallKey { session, call: claim.call };
                self.workers()?.show_output(self.process(&claim.worker_id), &key, delta)?;
                json!({})
            }
            _ => json!({}),
        };
        if is_quiet {
            return Ok(None);
        }
        let more = match more {
            Value::Object(more) => more,
            _ => Map::new(),
        };
        let command_ref = CommandRef { action, session, command: command.as_ref() };
        Ok(Some(frames::render_accepted(self.server.now(), command_ref, more, self.lang())))
    }

    fn process<'a>(&'a self, worker_id: &'a str) -> ProcessRef<'a> {
        let (tenant, user) = (&self.identity.tenant, &self.user);
        ProcessRef { tenant, user, connection: &self.id, worker_id }
    }

    /// Offers tools to one session of the caller, or to all sessions of its tenant. The answer precedes the first call.
    async fn offer_tools(
        &self,
        offer: WorkerOffer,
        command_ref: CommandRef<'_>,
        trace: Trace,
    ) -> Result<(), Fault> {
        let (workers, session) = (self.workers()?, command_ref.session);
        let scope = self.offer_scope(session).await?;
        workers.check_newest(self.process(&offer.worker_id), self.number)?;
        let identity = WorkerIdentity {
            tenant: self.identity.tenant.clone(),
            user: self.user.clone(),
            patterns: Some(self.identity.offers.clone()),
        };
        let versions = workers.check(&identity, &scope, &offer).await?;
        if let Some(session) = session {
            let (worker, by, tools) =
                (offer.worker.clone(), identity.user.clone(), offer.tools.clone());
            let offer = Box::new(ToolOffer { worker, by: by.clone(), tools });
            let bounds = workers.limits().session_bounds();
            let body = CommandBody::OfferTools { offer, bounds };
            let request = CommandRequest { by, command: None, trace, parent: SpanId::NONE, body };
            self.server.submit(session, request).await?;
        }
        let link = ConnectionLink {
            number: self.number,
            outbox: self.outbox.clone(),
            clock: Arc::clone(&self.server.world.clock),
        };
        let tools = versions.into_iter();
        let tools: Vec<Value> =
            tools.map(|(name, version)| json!({ "name": name, "version": version })).collect();
        let more = Map::from_iter([
            ("tools".to_owned(), Value::Array(tools)),
            ("worker_id".to_owned(), offer.worker_id.as_str().into()),
            ("grace_ms".to_owned(), crate::frame::millis(workers.limits().grace).into()),
        ]);
        let answer = frames::render_accepted(self.server.now(), command_ref, more, self.lang());
        self.is_worker.store(true, Ordering::Relaxed);
        // A closed outbox has a reader that ends, which disconnects the worker.
        if self.reply(&answer).await.is_ok() {
            workers.connect(&identity, scope, &offer, (&self.id, Arc::new(link)));
        }
        Ok(())
    }

    /// An ordinary token offers to its own sessions; the right `tools:offer` opens the whole tenant.
    async fn offer_scope(&self, session: Option<SessionId>) -> Result<OfferScope, Fault> {
        let Some(session) = session else {
            if self.identity.offers.is_empty() {
                return Err(Fault::new(Kind::NotAllowed, Operation::RegisterTool)
                    .with(Fact::EventName, "user.offer_tools")
                    .with(Fact::Reason, "the token lacks the scope tools:offer"));
            }
            return Ok(OfferScope::Tenant);
        };
        let server = &self.server;
        let meta = server.session_meta.check(&*server.journal, session, &self.identity).await?;
        match meta.tenant() == Some(self.identity.tenant.as_str()) {
            true => Ok(OfferScope::Session(session)),
            false => Err(session_meta::unknown_session(session)),
        }
    }

    /// Claims a call. The answer follows when the claim is durable.
    async fn claim(&self, context: WorkerCommand, claim: ClaimRef) -> Result<Value, Fault> {
        let workers = self.workers()?;
        let ClaimRef { call, attempt, worker_id } = claim;
        let (key, process) = (CallKey { session: context.session, call }, self.process(&worker_id));
        let checked = match workers.check_claim(process, &key, attempt) {
            Ok(ClaimCheck::Open(purpose)) => Ok(purpose),
            Ok(ClaimCheck::Declared) => {
                self.check_declared(&key, process).await.map(|()| CallPurpose::Run)
            }
            Err(fault) => Err(fault),
        };
        let answer = match checked {
            Ok(CallPurpose::Reconcile) => {
                workers.claim_reconcile(process, &key);
                Ok(())
            }
            Ok(CallPurpose::Run) => {
                let (call, worker) = (key.call.clone(), worker_id.clone());
                self.submit_for_worker(context, CommandBody::ClaimCall { call, attempt, worker })
                    .await
            }
            Err(fault) => Err(fault),
        };
        workers.claim_answered(process, &key, attempt, answer.is_ok());
        answer?;
        Ok(json!({ "step_id": key.call.to_string(), "attempt": attempt }))
    }

    /// Checks a repeated claim of a call that is not open on this server: the session's records name the worker and the
    /// version of the tool.
    async fn check_declared(&self, key: &CallKey, process: ProcessRef<'_>) -> Result<(), Fault> {
        self.check_tenant(key.session).await?;
        let (state, _) = budao_journal::fold(&*self.server.journal, key.session).await?;
        let call = state.turn.as_ref().and_then(|turn| turn.call(&key.call));
        let remote = call.and_then(|call| Some((call, call.remote.as_deref()?)));
        let Some((call, remote)) = remote else {
            return Err(Fault::new(Kind::CallNotOpen, Operation::ToolCall)
                .with(Fact::CallId, key.call.to_string())
                .with(Fact::Session, key.session.to_string())
                .with(Fact::Reason, "it is over"));
        };
        self.workers()?.check_route(process, key, (&call.tool, &remote.route))
    }

    /// Checks that a session belongs to the tenant of this connection. To others it does not exist.
    async fn check_tenant(&self, session: SessionId) -> Result<(), Fault> {
        let server = &self.server;
        let meta = server.session_meta.get(&*server.journal, session).await?;
        match meta.tenant() == Some(self.identity.tenant.as_str()) {
            true => Ok(()),
            false => Err(session_meta::unknown_session(session)),
        }
    }

    /// Submits the result of a call. The answer follows when the result is durable.
    async fn submit_result(
        &self,
        context: WorkerCommand,
        claim: ClaimRef,
        result: WorkerResult,
    ) -> Result<Value, Fault> {
        let workers = self.workers()?;
        let ClaimRef { call, attempt, worker_id } = claim;
        let key = CallKey { session: context.session, call: call.clone() };
        let process = self.process(&worker_id);
        let purpose = workers.check_report(process, &key)?;
        match (result, purpose) {
            (WorkerResult::Reconciliation(found), _) => {
                workers.reconcile(process, &key, found)?;
            }
            (WorkerResult::Report(report), Some(CallPurpose::Reconcile)) => {
                workers.fail_reconcile(process, &key, report)?;
            }
            (WorkerResult::Report(report), _) => {
                let answer = self.report(context, call, attempt, worker_id.clone(), report).await;
                // A server that could not make it durable may be asked again.
                if answer.as_ref().err().is_none_or(|fault| fault.kind() == Kind::CallNotOpen) {
                    workers.result_answered(process, &key);
                }
                answer?;
            }
        }
        Ok(json!({ "step_id": key.call.to_string(), "attempt": attempt }))
    }

    async fn report(
        &self,
        context: WorkerCommand,
        call: budao_core::message::CallId,
        attempt: u32,
        worker: String,
        report: WorkerReport,
    ) -> Result<(), Fault> {
        // The call may be over, and this a repetition whose first answer was lost.
        self.check_tenant(context.session).await?;
        let report = Box::new(report);
        let body = CommandBody::ReportCall { call, attempt, worker, report };
        self.submit_for_worker(context, body).await
    }

    async fn submit_for_worker(
        &self,
        context: WorkerCommand,
        body: CommandBody,
    ) -> Result<(), Fault> {
        let WorkerCommand { session, command, trace, parent } = context;
        // The session is another user's. Workers of two users do not answer each other's commands by choosing the same id.
        let command = command.map(|id| CommandId::from(format!("worker:{}:{id}", self.user)));
        let request = CommandRequest { by: self.user.clone(), command, trace, parent, body };
        self.server.submit(session, request).await.map(drop)
    }

    /// Takes the connection away from its workers.
    pub(super) fn disconnect_workers(&self) {
        if let (true, Ok(workers)) = (self.is_worker.load(Ordering::Relaxed), self.workers()) {
            workers.disconnect(&self.id);
        }
    }
}

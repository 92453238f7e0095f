//! One client connection: handles its requests and tracks the sessions it observes.

mod observed_sessions;
mod worker;

use std::{
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use budao_core::{
    Fault, Kind, Lang, Timestamp,
    event::{CommandBody, CommandId, Seq, SessionId},
    fault::{Fact, FactValue, Operation},
    trace::{SpanId, Trace},
};
use budao_journal::fold;
use serde_json::{Map, json};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::{
    admission::AdmissionPermit,
    auth::Identity,
    commands::{answer_fields, command_body, replan_fields},
    frame::{
        Frame, close,
        connection::{self as frames, CommandRef, ExportedState, Head},
    },
    hub::Hub,
    inbound::{self, Cursor, FrameRefusal, Inbound, Request, SessionRequest},
    observe::{ObserveMode, ObserveRequest},
    outbox::{CloseReason, EncodedFrame, Outbox, OutboxClosed},
    server::{CommandRequest, Server},
    signed_state::SignedState,
};

/// The cost of folding a session's state, charged to the replay allowance as this many records.
pub(crate) const FOLD_COST_RECORDS: u64 = 8;

/// One client connection, over WebSocket, SSE or in process.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) server: Arc<Server>,
    pub(crate) id: String,
    /// A connection that opened later has a greater number.
    number: u64,
    pub(crate) identity: Identity,
    /// The name of the identity in records, as `tenant/user`.
    user: String,
    pub(crate) outbox: Outbox,
    pub(crate) since: Timestamp,
    /// The language from the request's headers. `command_language`, which a command named, takes precedence.
    lang: Lang,
    command_language: Mutex<Option<Lang>>,
    pub(crate) permit: AdmissionPermit,
    observed: Mutex<Vec<ObservedSession>>,
    /// Whether a worker has offered tools on this connection.
    is_worker: AtomicBool,
    /// Slots for claims and results that are submitted next to the reader.
    submissions: Arc<Semaphore>,
}

/// A session that the client observes or is about to observe.
#[derive(Debug)]
struct ObservedSession {
    session: SessionId,
    hub: Option<Arc<Hub>>,
    /// Stops the replay that precedes live frames.
    cancel: CancellationToken,
    /// The last position handed to the transport.
    sent: Seq,
    /// The last position acknowledged by the client.
    acked: Option<Seq>,
}

/// How a connection ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DisconnectReason {
    /// The client or the server closed it normally.
    Orderly,
    /// The connection was lost; an `ObserverLost` record follows.
    Lost { code: u16, reason: String },
}

impl DisconnectReason {
    /// Classifies a connection that the server closed with this reason.
    pub(crate) fn of(close_reason: CloseReason) -> Self {
        match close_reason.code {
            close::RESTARTING | close::NORMAL => Self::Orderly,
            code => Self::Lost { code, reason: close_reason.reason },
        }
    }
}

impl Connection {
    pub(crate) fn new(
        server: Arc<Server>,
        identity: Identity,
        lang: Lang,
        permit: AdmissionPermit,
    ) -> Arc<Self> {
        Arc::new(Self {
            lang,
            command_language: Mutex::default(),
            id: server.world.uuid().to_string(),
            number: server.connections.fetch_add(1, Ordering::Relaxed),
            outbox: server.outbox(),
            since: server.now(),
            observed: Mutex::default(),
            is_worker: AtomicBool::new(false),
            submissions: Arc::new(Semaphore::new(worker::SUBMISSIONS)),
            server,
            user: identity.name(),
            identity,
            permit,
        })
    }

    fn lock_observed(&self) -> MutexGuard<'_, Vec<ObservedSession>> {
        self.observed.lock().expect("no code panics while holding this")
    }

    fn uptime(&self) -> Duration {
        self.server.now().since(self.since)
    }

    /// The language named in a command, if any.
    fn command_language(&self) -> Option<Lang> {
        *self.command_language.lock().expect("no code panics while holding this")
    }

    fn set_language(&self, language: Option<Lang>) {
        if language.is_some() {
            *self.command_language.lock().expect("no code panics while holding this") = language;
        }
    }

    /// The client's language.
    pub(crate) fn lang(&self) -> Lang {
        self.command_language().unwrap_or(self.lang)
    }

    async fn reply(&self, frame: &Frame) -> Result<(), OutboxClosed> {
        self.outbox.send(EncodedFrame::from(frame)).await
    }

    /// Sends `system.connected`, the first frame.
    pub(crate) async fn send_connected(&self) -> Result<(), OutboxClosed> {
        let config = &self.server.config;
        let fields = frames::ConnectedFields {
            connection: &self.id,
            version: env!("CARGO_PKG_VERSION"),
            heartbeat: config.limits.heartbeat,
            unobserved: config.limits.unobserved_timeout,
            retention: config.limits.retention,
            frame_bytes: config.shared_limits.frame_bytes,
            json_depth: config.shared_limits.json_depth,
            takes_offers: config.workers.is_some(),
        };
        self.reply(&frames::render_connected(self.server.now(), &fields, self.lang())).await
    }

    /// `system.heartbeat`, with the head of each observed session.
    pub(crate) fn heartbeat(&self) -> Frame {
        let observed = self.lock_observed();
        let heads: Vec<Head> = observed
            .iter()
            .filter_map(|observed| {
                let position = observed.hub.as_ref()?.position();
                let (session, epoch) = (observed.session, position.epoch?);
                Some(Head { session, epoch, seq: position.head, frame: position.frame })
            })
            .collect();
        let uptime = self.server.uptime().as_secs();
        frames::render_heartbeat(self.server.now(), &heads, uptime, self.lang())
    }

    /// Records that frames were handed to the transport.
    pub(crate) fn mark_sent(&self, frames: &[EncodedFrame]) {
        self.outbox.mark_sent(frames);
        let mut observed = self.lock_observed();
        for (session, _, seq) in frames.iter().filter_map(|frame| frame.at) {
            if let Some(observed) = observed.iter_mut().find(|known| known.session == session) {
                observed.sent = seq;
            }
        }
    }

    /// Handles a text frame. Every frame gets an answer, except an acknowledgement without an id. Texts that cannot be
    /// parsed do not count for the rate limits.
    pub(crate) async fn handle_text(self: &Arc<Self>, text: &str) -> Result<(), OutboxClosed> {
        let trace = self.server.world.trace();
        match inbound::parse(text, &self.server.inbound_limits()) {
            Err(refusal) => self.refuse(refusal, trace).await,
            Ok(inbound) => {
                let admitted = match self.is_expected(&inbound) {
                    true => Ok(()),
                    false => self.permit.charge_command(text.len()),
                };
                if let Err(fault) = admitted {
                    return self.refuse(refusal_with(&inbound, fault), trace).await;
                }
                let inbound = Inbound { trace: inbound.trace.or(trace), ..inbound };
                match worker::is_submission(&inbound.request) {
                    true => self.submit_later(inbound).await,
                    false => self.handle_inbound(inbound).await,
                }
            }
        }
    }

    /// Refuses a message that is not a text frame. It counts as a command for the rate limits.
    pub(crate) async fn refuse_frame(&self, fault: Fault) -> Result<(), OutboxClosed> {
        let trace = self.server.world.trace();
        let fault = match self.permit.charge_command(0) {
            Ok(()) => fault,
            Err(too_fast) => too_fast,
        };
        self.refuse(fault.into(), trace).await
    }

    async fn refuse(&self, refusal: FrameRefusal, trace: Trace) -> Result<(), OutboxClosed> {
        let FrameRefusal { fault, action, session, command, language } = refusal;
        self.set_language(language);
        let fault = self.server.scrub_for_client(fault, trace);
        let command_ref =
            CommandRef { action: action.unwrap_or("frame"), session, command: command.as_ref() };
        self.reply(&frames::render_rejected(self.server.now(), command_ref, &fault, self.lang()))
            .await
    }

    async fn handle_inbound(self: &Arc<Self>, inbound: Inbound) -> Result<(), OutboxClosed> {
        let trace = inbound.trace;
        self.set_language(inbound.language);
        let refusal = refusal_with(&inbound, Fault::new(Kind::Bug, Operation::SubmitCommand));
        match self.perform(inbound).await {
            Ok(None) => Ok(()),
            Ok(Some(frame)) => self.reply(&frame).await,
            Err(fault) => self.refuse(FrameRefusal { fault, ..refusal }, trace).await,
        }
    }

    /// Executes a request. Returns the answer, or `None` if the answer is sent later or is a record.
    async fn perform(self: &Arc<Self>, inbound: Inbound) -> Result<Option<Frame>, Fault> {
        if inbound.request.is_of_worker() {
            return self.perform_for_worker(inbound).await;
        }
        let Inbound { session, command, trace, parent, request, .. } = inbound;
        let session = match request {
            Request::CreateSession(creation) => {
                self.create_session(*creation, command.as_ref()).await?;
                return Ok(None);
            }
            Request::ReconnectWithState { signed_state: Some(state), cursor } => {
                self.restore_state(&state, cursor, command, trace).await?;
                return Ok(None);
            }
            Request::Ack(_) => session
                .or_else(|| self.only_observed_session())
                .ok_or_else(missing_session_fault)?,
            _ => session.ok_or_else(missing_session_fault)?,
        };
        let meta =
            self.server.session_meta.check(&*self.server.journal, session, &self.identity).await?;
        let command_ref = CommandRef {
            action: request.action(),
            session: Some(session),
            command: command.as_ref(),
        };
        match request {
            Request::Reconnect { cursor } | Request::ReconnectWithState { cursor, .. } => {
                let request = ObserveRequest {
                    command,
                    ..ObserveRequest::new(session, cursor, ObserveMode::Resume)
                };
                self.observe(meta, request)?;
                Ok(None)
            }
            Request::Ack(cursor) => {
                self.acknowledge(session, cursor).await?;
                let lang = self.command_language().unwrap_or(meta.language);
                let answer =
                    |_| frames::render_accepted(self.server.now(), command_ref, Map::new(), lang);
                Ok(command.as_ref().map(answer))
            }
            Request::RequestState => {
                let lang = self.command_language().unwrap_or(meta.language);
                self.export_state(session, command.as_ref(), lang).await.map(Some)
            }
            request => {
                let mut more = answer_fields(&request);
                let replans = matches!(request, Request::Replan { .. });
                let config = request.config();
                let remembered = self.server.tool_to_remember(session, &request).await?;
                let Some(body) = command_body(request, &meta) else {
                    return Ok(None);
                };
                let (by, command) = (self.identity.name(), command.clone());
                self.server.configure(session, config, &by).await?;
                let request = CommandRequest { by, command, trace, parent, body };
                let at = self.server.submit(session, request).await?;
                if let Some(tool) = remembered {
                    self.server.remember(session, tool, &self.identity.name()).await?;
                }
                if replans {
                    more.extend(replan_fields(&*self.server.journal, session, at).await?);
                }
                let lang = self.command_language().unwrap_or(meta.language);
                if !self.is_observing(session) {
                    // A client that sends a command observes its effects.
                    self.observe(meta, ObserveRequest::after_command(session, at))?;
                }
                Ok(Some(frames::render_accepted(self.server.now(), command_ref, more, lang)))
            }
        }
    }

    /// Opens a session and observes it. The session's first record is the answer.
    async fn create_session(
        self: &Arc<Self>,
        creation: SessionRequest,
        command: Option<&CommandId>,
    ) -> Result<(), Fault> {
        self.check_session_limit(None)?;
        let opened = self.server.open(&self.identity, creation, command).await?;
        let meta = self.server.session_meta.get(&*self.server.journal, opened.session).await?;
        self.observe_new(meta, ObserveRequest::new(opened.session, None, ObserveMode::Fresh)).await
    }

    /// Resumes with a signed state. A state works once, and only for the identity it was signed for.
    async fn restore_state(
        self: &Arc<Self>,
        state: &str,
        cursor: Option<Cursor>,
        command: Option<CommandId>,
        trace: Trace,
    ) -> Result<(), Fault> {
        let name = self.identity.name();
        let state = SignedState::verify(state, &name, &self.server.config.keys, self.server.now())?;
        let session = state.session;
        let meta =
            self.server.session_meta.check(&*self.server.journal, session, &self.identity).await?;
        self.check_session_limit(Some(session))?;
        // The nonce is the command id, so a second use of the state is rejected as a repeated command.
        let used_by = command.clone().unwrap_or_else(|| CommandId::own(self.server.world.uuid()));
        let data = json!({
            "nonce": format!("{:032x}", state.nonce),
            "expires_at": state.expires,
            "used_by": used_by,
        });
        let request = CommandRequest {
            by: name,
            command: Some(format!("state-{:032x}", state.nonce).into()),
            trace,
            parent: SpanId::NONE,
            body: CommandBody::Annotate { topic: "serve.nonce".to_owned(), data },
        };
        self.server.submit(session, request).await.map_err(|fault| match fault.kind() {
            Kind::CommandRepeated => Fault::new(Kind::StateReused, Operation::VerifyState)
                .with(Fact::Session, session.to_string()),
            _ => fault,
        })?;
        let from = cursor.unwrap_or(Cursor {
            session: Some(session),
            epoch: Some(state.epoch),
            seq: state.seq,
        });
        let epoch = from.epoch.or(Some(state.epoch));
        let request = ObserveRequest {
            epoch,
            command,
            ..ObserveRequest::new(session, Some(from), ObserveMode::Restore)
        };
        self.observe(meta, request)
    }

    /// `user.request_state`: exports the client's position as a signed state.
    async fn export_state(
        &self,
        session: SessionId,
        command: Option<&CommandId>,
        lang: Lang,
    ) -> Result<Frame, Fault> {
        let server = &self.server;
        let (folded, _) = {
            let _slot = server.replays.acquire(self.permit.charge_replay(FOLD_COST_RECORDS)).await;
            fold(&*server.journal, session).await?
        };
        let info = server.journal.info(session).await?;
        let epoch = info.ok_or_else(|| crate::session_meta::unknown_session(session))?.epoch;
        // Not the head: a resume must deliver the frames that were not sent yet.
        let known = self
            .lock_observed()
            .iter()
            .find(|known| known.session == session)
            .map(|known| known.sent);
        let seq = known.unwrap_or(folded.head).min(folded.head);
        let valid = server.config.limits.signed_state;
        let state =
            SignedState::new(self.identity.name(), session, (epoch, seq), valid, &server.world);
        let signed = state.sign(&server.config.keys);
        let exported = ExportedState {
            session,
            command,
            epoch,
            seq,
            signed: &signed,
            valid_until: state.expires,
            messages: folded.history.len(),
            step: folded.turn.as_ref().map_or(0, |turn| turn.step),
        };
        Ok(frames::render_state(server.now(), &exported, lang))
    }

    /// Records the client's acknowledged position, which must not exceed the head.
    async fn acknowledge(&self, session: SessionId, cursor: Cursor) -> Result<(), Fault> {
        let position = self
            .lock_observed()
            .iter()
            .find(|known| known.session == session)
            .and_then(|known| known.hub.as_ref().map(|hub| hub.position()));
        let (head, epoch) = match position {
            Some(position) if cursor.seq <= position.head => (position.head, position.epoch),
            _ => {
                let info = self.server.journal.info(session).await?;
                let info = info.ok_or_else(|| crate::session_meta::unknown_session(session))?;
                (info.head, Some(info.epoch))
            }
        };
        if cursor.epoch.is_some_and(|named| epoch.is_some_and(|epoch| epoch != named)) {
            return Err(Fault::new(Kind::EpochMismatch, Operation::AcceptFrame)
                .with(Fact::Session, session.to_string())
                .with(Fact::HeadSeq, head));
        }
        if cursor.seq > head {
            return Err(Fault::new(Kind::ConstraintViolated, Operation::AcceptFrame)
                .with(Fact::Field, "content.last_seq")
                .with(Fact::Constraint, format!("last_seq ≤ {head}, the last event there is"))
                .with(Fact::ProvidedValue, FactValue::Json(json!(cursor.seq)))
                .with(Fact::HeadSeq, head));
        }
        if let Some(known) = self.lock_observed().iter_mut().find(|known| known.session == session)
        {
            known.acked = known.acked.max(Some(cursor.seq));
        }
        Ok(())
    }

    /// The session of an acknowledgement that names none: the only observed one.
    fn only_observed_session(&self) -> Option<SessionId> {
        match &self.lock_observed()[..] {
            [only] => Some(only.session),
            _ => None,
        }
    }

    pub(crate) fn is_observing(&self, session: SessionId) -> bool {
        self.lock_observed().iter().any(|known| known.session == session)
    }

    fn check_session_limit(&self, session: Option<SessionId>) -> Result<(), Fault> {
        let limit = self.server.config.limits.sessions_per_connection;
        let observed = self.lock_observed();
        let others = observed.iter().filter(|known| Some(known.session) != session).count();
        if others < limit {
            return Ok(());
        }
        Err(Fault::new(Kind::LimitReached, Operation::OpenSession)
            .with(Fact::Limit, limit)
            .with(Fact::LimitName, "sessions_per_connection"))
    }
}

/// The parts of a request that its refusal repeats.
fn refusal_with(inbound: &Inbound, fault: Fault) -> FrameRefusal {
    FrameRefusal {
        fault,
        action: Some(inbound.request.action()),
        session: inbound.session,
        command: inbound.command.clone(),
        language: inbound.language,
    }
}

fn missing_session_fault() -> Fault {
    Fault::new(Kind::ConstraintViolated, Operation::AcceptFrame)
        .with(Fact::Field, "session_id")
        .with(Fact::Constraint, "the frame names a session")
        .with(Fact::ProvidedValue, FactValue::Json(serde_json::Value::Null))
}

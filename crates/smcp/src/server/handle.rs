//! Handles the messages of one client, in the order they arrive.

use crate::codes::smcp_code;
use std::{
    borrow::Cow,
    net::IpAddr,
    sync::{Arc, PoisonError},
    time::Duration,
};

use budao_core::fault::{Fact, Fault, Kind, Operation};
use serde_json::{Value, json};

use super::{
    Inner,
    access::Grant,
    budget::ReachedLimit,
    client_connection::ClientConnection,
    relay::{self, ParsedRequest},
    rooms::{JoinResult, Key, Member},
    send::{AnswerTarget, notify},
};
use crate::wire::{
    Dialect, NAMESPACE, Role,
    error::{self, Rendering},
    event::{self, NotificationEvent, RequestEvent},
    passthrough::{self, PlainCall},
    request::{self, Fields},
    trace_of,
};

/// The hub's side of one connection. The connection's own task calls it.
#[derive(Debug)]
pub struct ConnectionHandler {
    pub(super) hub: Arc<Inner>,
    pub(super) key: Key,
    /// The id that the client gets; it differs from the transport's, which would let its reader speak for the client.
    pub(super) sid: String,
    grant: Grant,
}

/// A refused connection: what its client is told.
pub(super) struct ConnectRefusal {
    /// The code and the sentence.
    pub(super) message: String,
    /// The whole error.
    pub(super) error: Value,
    /// Whether the client showed a wrong token, or none.
    pub(super) is_wrong_token: bool,
}

/// Admits a connection, or returns the refusal.
pub(super) fn enter(
    hub: &Arc<Inner>,
    key: Key,
    connection: Arc<dyn ClientConnection>,
    auth: Option<&Value>,
    version: Option<String>,
) -> Result<ConnectionHandler, ConnectRefusal> {
    let admitted = hub.config.access.admit(auth).and_then(|grant| {
        let limit = hub.config.limits.connections_max;
        if hub.closing.is_cancelled() {
            return Err(Fault::new(Kind::ShuttingDown, Operation::Authenticate));
        }
        if hub.is_full(limit) {
            return Err(full("connections_max", limit, Operation::Authenticate));
        }
        if hub.budget.is_clogged() {
            let over = ReachedLimit::Total(hub.config.limits.queue_bytes_total_max);
            return Err(over.refusal(Operation::Authenticate));
        }
        Ok(grant)
    });
    let grant = match admitted {
        Ok(grant) => grant,
        Err(fault) => return Err(refuse_connection(hub, fault)),
    };
    let sid = hub.world.trace().to_string();
    {
        let mut state = hub.state();
        state.rooms.connect(key, sid.clone(), version);
        state.connections.insert(key, connection);
    }
    Ok(ConnectionHandler { hub: Arc::clone(hub), key, sid, grant })
}

fn refuse_connection(hub: &Inner, fault: Fault) -> ConnectRefusal {
    let fault = hub.finish(fault, "");
    let code = smcp_code(fault.kind());
    hub.stats.refused(code);
    tracing::warn!(
        error_code = code, error_message = %fault, trace_id = %fault.trace(), "a connection was refused"
    );
    ConnectRefusal {
        message: format!("{code} {}", error::sentence(&fault, hub.config.lang)),
        error: error::flat(&fault, hub.rendering()),
        is_wrong_token: fault.kind() == Kind::NotAuthenticated,
    }
}

/// The fault for a limit of [`Limits`](super::Limits) that was reached.
pub(super) fn full(name: &'static str, limit: usize, operation: Operation) -> Fault {
    Fault::new(Kind::LimitReached, operation)
        .with(Fact::LimitName, name)
        .with(Fact::Limit, i64::try_from(limit).unwrap_or(i64::MAX))
}

fn notify_room(hub: &Arc<Inner>, event: &'static str, member: &Member) {
    let role = match member.role {
        Role::Agent => "agent",
        Role::Computer => "computer",
    };
    let payload = json!({ "office_id": member.room, role: member.name });
    notify(hub, &member.others, event, &payload);
}

impl ConnectionHandler {
    /// Handles one event as JSON text; `id` is the acknowledgement id if the client expects an answer.
    ///
    /// The caller passes the connection each time: storing it here would create a reference cycle.
    pub fn handle_event(
        &self,
        connection: Arc<dyn ClientConnection>,
        text: &str,
        has_attachments: bool,
        id: Option<i64>,
    ) {
        let answer = AnswerTarget::new(self.key, Arc::clone(&connection), id);
        let limits = self.hub.config.limits;
        let is_usual = !has_attachments && text.len() <= limits.request_bytes_max;
        if let Some(PlainCall { routed, call, text }) =
            is_usual.then(|| passthrough::call(text)).flatten()
        {
            self.hub.stats.came(RequestEvent::ToolCall.into());
            let (tool, text) = (Some(call), Cow::Borrowed(text));
            let request =
                ParsedRequest { request_event: RequestEvent::ToolCall, routed, tool, text };
            return relay::pass_on(self, request, answer);
        }
        let is_over = text.len() > limits.frame_bytes_max;
        let limit = if is_over { limits.frame_bytes_max } else { limits.request_bytes_max };
        let (name, payload) = match request::event(text, has_attachments, limit) {
            Ok(result) => result,
            // The event is unknown at this point, so the refusal uses the carrier that every caller can read.
            Err(fault) => {
                self.refuse(&answer, Carrier::Result, "", fault);
                if is_over {
                    self.cut(connection, text.len());
                }
                return;
            }
        };
        self.hub.stats.came(known(&name));
        if let Ok(request_event) = name.parse::<RequestEvent>() {
            let is_drafted =
                matches!(request_event, RequestEvent::GetFinder | RequestEvent::GetDpe);
            if !is_drafted || self.hub.config.dialect == Dialect::V02 {
                return relay::begin(self, request_event, payload, answer);
            }
        }
        match name.parse::<NotificationEvent>() {
            Ok(notification) => self.notify(notification, &payload, &answer),
            Err(_) => {
                let fault = Fault::new(Kind::UnknownEvent, Operation::AcceptFrame);
                let name: String = name.chars().take(80).collect();
                self.refuse(&answer, Carrier::Flat, "", fault.with(Fact::EventName, name));
            }
        }
    }

    /// Closes the connection after the answer that gives the reason.
    fn cut(&self, connection: Arc<dyn ClientConnection>, bytes: usize) {
        tracing::warn!(bytes, "closing connection: client sends too much");
        self.hub.stats.count(|all| all.connections_closed += 1);
        connection.close();
    }

    /// Removes the connection from its room and notifies the room.
    pub fn leave(&self) {
        self.hub.budget.forget(self.key);
        let left = {
            let mut state = self.hub.state();
            state.connections.remove(&self.key);
            state.known.forget(self.key);
            state.ended.remove(&self.key);
            state.rooms.disconnect(self.key)
        };
        if let Some(left) = left {
            notify_room(&self.hub, event::LEFT, &left);
        }
    }
}

/// Returns the event's name if the protocol has it, so that unknown names share one counter.
fn known(name: &str) -> &str {
    let is_ours = name.parse::<RequestEvent>().is_ok() || name.parse::<NotificationEvent>().is_ok();
    if is_ours { name } else { "unknown" }
}

/// The shape of an answer that carries a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Carrier {
    /// The answer is the error object.
    Flat,
    /// The answer is a tool result with `isError`.
    Result,
    /// The answer is `false` and a text, as callers of other hubs unpack it.
    Pair,
    /// The same, and the error object: for requests with `error_details`.
    Triple,
}

impl ConnectionHandler {
    /// Answers with a fault. Counts and logs it and adds its trace.
    pub(super) fn refuse(
        &self,
        answer: &AnswerTarget,
        carrier: Carrier,
        req_id: &str,
        fault: Fault,
    ) {
        let fault = self.hub.finish(fault, req_id);
        let code = smcp_code(fault.kind());
        self.hub.stats.refused(code);
        tracing::warn!(
            req_id, error_code = code, error_message = %fault, trace_id = %fault.trace(),
            "request refused"
        );
        answer.send(&self.hub, render(&fault, carrier, self.hub.rendering()));
    }

    fn notify(&self, notification: NotificationEvent, payload: &Value, answer: &AnswerTarget) {
        let req_id = payload.get("req_id").and_then(Value::as_str).unwrap_or_default().to_owned();
        let wants_details = payload.get("error_details") == Some(&Value::Bool(true));
        let pair = if wants_details { Carrier::Triple } else { Carrier::Pair };
        let (carrier, done) = match notification {
            NotificationEvent::Join => (pair, self.join(payload)),
            NotificationEvent::Leave => (pair, self.leave_room(payload)),
            NotificationEvent::List => (Carrier::Flat, self.list(payload)),
            NotificationEvent::Cancel => (Carrier::Flat, self.cancel(payload)),
            _ => (Carrier::Flat, self.update(notification, payload)),
        };
        match done {
            Ok(args) => answer.send(&self.hub, args),
            Err(fault) => self.refuse(answer, carrier, &req_id, fault),
        }
    }

    fn join(&self, payload: &Value) -> Result<Vec<Value>, Fault> {
        let join =
            Fields::new(NotificationEvent::Join.into(), Operation::JoinRoom, payload)?.join()?;
        self.grant.allows(&join)?;
        let joined = self.hub.state().rooms.join(self.key, join)?;
        if let JoinResult::Joined { left, entered } = joined {
            if let Some(left) = left {
                notify_room(&self.hub, event::LEFT, &left);
            }
            notify_room(&self.hub, event::ENTERED, &entered);
        }
        Ok(vec![true.into(), Value::Null])
    }

    fn leave_room(&self, payload: &Value) -> Result<Vec<Value>, Fault> {
        let fields = Fields::new(NotificationEvent::Leave.into(), Operation::LeaveRoom, payload)?;
        let room = fields.name("office_id")?;
        let left = self.hub.state().rooms.leave(self.key, &room)?;
        notify_room(&self.hub, event::LEFT, &left);
        Ok(vec![true.into(), Value::Null])
    }

    fn list(&self, payload: &Value) -> Result<Vec<Value>, Fault> {
        let fields = Fields::new(NotificationEvent::List.into(), Operation::RelayCall, payload)?;
        let req_id = fields.name("req_id")?;
        let room = fields.name("office_id")?;
        let seen = self.hub.state().rooms.list(self.key, &room)?;
        let sessions: Vec<Value> = seen
            .into_iter()
            .map(|seen| {
                let mut session = json!({
                    "sid": seen.sid, "name": seen.name, "role": seen.role, "office_id": room,
                });
                if let Some(version) = seen.version {
                    session["a2c_version"] = version.into();
                }
                session
            })
            .collect();
        Ok(vec![json!({ "sessions": sessions, "req_id": req_id })])
    }

    fn update(
        &self,
        notification: NotificationEvent,
        payload: &Value,
    ) -> Result<Vec<Value>, Fault> {
        let fields = Fields::new(notification.into(), Operation::RelayCall, payload)?;
        let computer = fields.name("computer")?;
        let listeners = self.hub.state().rooms.listeners(self.key, &computer)?;
        if let Some(event) = notification.notification() {
            notify(&self.hub, &listeners, event, &json!({ "computer": computer }));
        }
        Ok(vec![Value::Null])
    }

    /// Forwards a cancel to the computer that runs the call, or had it a moment ago.
    fn cancel(&self, payload: &Value) -> Result<Vec<Value>, Fault> {
        let fields = Fields::new(NotificationEvent::Cancel.into(), Operation::RelayCall, payload)?;
        let req_id = fields.name("req_id")?;
        let (found, unsent) = {
            let state = self.hub.state();
            let agent = state.rooms.cancelling_agent(self.key);
            let id = (self.key, req_id.clone());
            (agent.map(|agent| (agent, state.computer_of(&id))), state.unsent.get(&id).cloned())
        };
        self.hub.stats.count(|all| match &found {
            Ok((_, Some(_))) => all.cancels.passed_on += 1,
            Ok((_, None)) => all.cancels.unknown += 1,
            Err(_) => all.cancels.refused += 1,
        });
        let (agent, computer) = found?;
        if let Some(given_up) = unsent {
            // The call waits for room in the queue; a notification now would overtake it.
            given_up.cancel();
        } else if let Some(computer) = computer {
            let payload = json!({ "agent": agent, "req_id": req_id });
            notify(&self.hub, &[computer], event::CANCELLED, &payload);
        }
        Ok(vec![Value::Null])
    }
}

impl Inner {
    /// Whether the connection limit is reached. Connections that broke during their setup do not count.
    fn is_full(&self, limit: usize) -> bool {
        let mut state = self.state();
        if state.connections.len() >= limit {
            let gone = state.connections.iter().filter(|(_, connection)| !connection.is_open());
            let gone: Vec<Key> = gone.map(|(key, _)| *key).collect();
            for key in gone {
                self.budget.forget(key);
                state.connections.remove(&key);
                state.known.forget(key);
                state.ended.remove(&key);
                state.rooms.disconnect(key);
            }
        }
        state.connections.len() >= limit
    }

    /// Notes a wrong token and returns the delay of its answer.
    pub(super) fn guess_delay(&self, address: Option<IpAddr>) -> Duration {
        let pause = self.config.limits.wrong_token_pause;
        let mut guesses = self.guesses.lock().unwrap_or_else(PoisonError::into_inner);
        guesses.delay(address, self.world.clock.now(), pause)
    }

    /// The error for a client that asks for another namespace.
    pub(super) fn other_namespace(&self) -> Value {
        let fault = Fault::new(Kind::BadRequest, Operation::Connect)
            .with(Fact::Field, "namespace")
            .with(Fact::Expected, NAMESPACE);
        let fault = self.finish(fault, "");
        self.stats.refused(smcp_code(fault.kind()));
        tracing::warn!(error_message = %fault, trace_id = %fault.trace(), "a namespace was refused");
        error::flat(&fault, self.rendering())
    }

    /// How errors are rendered for clients.
    pub(super) fn rendering(&self) -> Rendering {
        Rendering { dialect: self.config.dialect, lang: self.config.lang }
    }

    /// Adds trace and hop and scrubs secrets. Only then may a fault be sent or logged. Without a request id the trace
    /// is a new one.
    pub(super) fn finish(&self, fault: Fault, req_id: &str) -> Fault {
        let trace = if req_id.is_empty() { self.world.trace() } else { trace_of(req_id) };
        let fault = fault.with_trace(trace);
        fault.via("server", "hub").scrub(&self.scrubber)
    }
}

/// The arguments of the answer that carries this fault.
pub(super) fn render(fault: &Fault, carrier: Carrier, rendering: Rendering) -> Vec<Value> {
    let message = || Value::from(error::sentence(fault, rendering.lang));
    match carrier {
        Carrier::Flat => vec![error::flat(fault, rendering)],
        Carrier::Result => vec![error::result(fault, rendering)],
        Carrier::Pair => vec![false.into(), message()],
        Carrier::Triple => vec![false.into(), message(), error::flat(fault, rendering)],
    }
}

//! Handles the messages of one client, in the order they arrive.

use std::{borrow::Cow, sync::Arc};

use budao_core::fault::{Fact, Fault, Kind, Operation, render};
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
    Dialect, Role, error,
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
    grant: Grant,
}

/// Admits a connection, or returns the text of the refusal.
pub(super) fn enter(
    hub: &Arc<Inner>,
    key: Key,
    line: Arc<dyn ClientConnection>,
    auth: Option<&Value>,
    version: Option<String>,
) -> Result<ConnectionHandler, String> {
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
        Err(fault) => {
            let told = render::render_for_peer(&fault, budao_core::Lang::En);
            hub.stats.refused(told.smcp);
            tracing::warn!(error_code = told.smcp, error_message = %fault, "connection refused");
            return Err(format!("{} {}", told.smcp, told.message));
        }
    };
    {
        let mut state = hub.state();
        state.rooms.connect(key, version);
        state.lines.insert(key, line);
    }
    Ok(ConnectionHandler { hub: Arc::clone(hub), key, grant })
}

/// The fault for a limit of [`Limits`](super::Limits) that was reached.
pub(super) fn full(name: &'static str, limit: usize, operation: Operation) -> Fault {
    Fault::new(Kind::LimitReached, operation)
        .with(Fact::LimitName, name)
        .with(Fact::Limit, i64::try_from(limit).unwrap_or(i64::MAX))
}

fn notify_room(hub: &Arc<Inner>, event: &'static str, member: &Member) {
    let who = match member.role {
        Role::Agent => "agent",
        Role::Computer => "computer",
    };
    let payload = json!({ "office_id": member.room, who: member.name });
    notify(hub, &member.others, event, &payload);
}

impl ConnectionHandler {
    /// Handles one event as JSON text; `id` is the acknowledgement id if the client expects an answer.
    ///
    /// The caller passes the connection each time: storing it here would create a reference cycle.
    pub fn hear(
        &self,
        line: Arc<dyn ClientConnection>,
        text: &str,
        has_attachments: bool,
        id: Option<i64>,
    ) {
        let answer = AnswerTarget::new(self.key, Arc::clone(&line), id);
        let limits = self.hub.config.limits;
        let is_usual = !has_attachments && text.len() <= limits.request_bytes_max;
        if let Some(PlainCall { routed, call, text }) =
            is_usual.then(|| passthrough::call(text)).flatten()
        {
            self.hub.stats.came(RequestEvent::ToolCall.into());
            let (tool, text) = (Some(call), Cow::Borrowed(text));
            let asked = ParsedRequest { ask: RequestEvent::ToolCall, routed, tool, text };
            return relay::pass_on(self, asked, answer);
        }
        let is_over = text.len() > limits.frame_bytes_max;
        let limit = if is_over { limits.frame_bytes_max } else { limits.request_bytes_max };
        let (name, payload) = match request::event(text, has_attachments, limit) {
            Ok(said) => said,
            // The event is unknown at this point, so the refusal uses the carrier that every caller can read.
            Err(fault) => {
                self.refuse(&answer, Carrier::Result, "", fault);
                if is_over {
                    self.cut(line, text.len());
                }
                return;
            }
        };
        self.hub.stats.came(known(&name));
        if let Ok(ask) = name.parse::<RequestEvent>() {
            let is_drafted = matches!(ask, RequestEvent::GetFinder | RequestEvent::GetDpe);
            if !is_drafted || self.hub.config.dialect == Dialect::V02 {
                return relay::begin(self, ask, payload, answer);
            }
        }
        match name.parse::<NotificationEvent>() {
            Ok(tell) => self.tell(tell, &payload, &answer),
            Err(_) => {
                let fault = Fault::new(Kind::UnknownEvent, Operation::AcceptFrame);
                let name: String = name.chars().take(80).collect();
                self.refuse(&answer, Carrier::Flat, "", fault.with(Fact::EventName, name));
            }
        }
    }

    /// Closes the connection after the answer that gives the reason.
    fn cut(&self, line: Arc<dyn ClientConnection>, bytes: usize) {
        tracing::warn!(bytes, "closing connection: client sends too much");
        self.hub.stats.count(|all| all.connections_closed += 1);
        line.close();
    }

    /// Removes the connection from its room and notifies the room.
    pub fn leave(&self) {
        self.hub.budget.forget(self.key);
        let left = {
            let mut state = self.hub.state();
            state.lines.remove(&self.key);
            state.known.forget(self.key);
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
    /// The answer is `false`, a text, and the error object.
    Pair,
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
        let code = fault.row().smcp;
        self.hub.stats.refused(code);
        tracing::warn!(
            req_id, error_code = code, error_message = %fault, trace_id = %fault.trace(),
            "request refused"
        );
        answer.send(&self.hub, render(&fault, carrier, self.hub.config.dialect));
    }

    fn tell(&self, tell: NotificationEvent, payload: &Value, answer: &AnswerTarget) {
        let req_id = payload.get("req_id").and_then(Value::as_str).unwrap_or_default().to_owned();
        let (carrier, done) = match tell {
            NotificationEvent::Join => (Carrier::Pair, self.join(payload)),
            NotificationEvent::Leave => (Carrier::Pair, self.leave_room(payload)),
            NotificationEvent::List => (Carrier::Flat, self.list(payload)),
            NotificationEvent::Cancel => (Carrier::Flat, self.cancel(payload)),
            _ => (Carrier::Flat, self.update(tell, payload)),
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
        let (agent, req_id) = (fields.name("agent")?, fields.name("req_id")?);
        let room = fields.name("office_id")?;
        let seen = self.hub.state().rooms.list(self.key, &agent, &room)?;
        let sessions: Vec<Value> = seen
            .into_iter()
            .map(|seen| {
                // The transport's own id would let its reader impersonate the connection.
                let mut session = json!({
                    "sid": format!("s{}", seen.key), "name": seen.name, "role": seen.role,
                    "office_id": room,
                });
                if let Some(version) = seen.version {
                    session["a2c_version"] = version.into();
                }
                session
            })
            .collect();
        Ok(vec![json!({ "sessions": sessions, "req_id": req_id })])
    }

    fn update(&self, tell: NotificationEvent, payload: &Value) -> Result<Vec<Value>, Fault> {
        let fields = Fields::new(tell.into(), Operation::RelayCall, payload)?;
        let computer = fields.name("computer")?;
        let listeners = self.hub.state().rooms.listeners(self.key, &computer)?;
        if let Some(event) = tell.notification() {
            notify(&self.hub, &listeners, event, &json!({ "computer": computer }));
        }
        Ok(vec![Value::Null])
    }

    /// Forwards a cancel to the computer that runs the call.
    fn cancel(&self, payload: &Value) -> Result<Vec<Value>, Fault> {
        let fields = Fields::new(NotificationEvent::Cancel.into(), Operation::RelayCall, payload)?;
        let (agent, req_id) = (fields.name("agent")?, fields.name("req_id")?);
        let (found, unsent) = {
            let state = self.hub.state();
            let allowed = state.rooms.may_cancel(self.key, &agent);
            let id = (self.key, req_id.clone());
            (allowed.map(|_| state.calls.get(&id).copied()), state.unsent.get(&id).cloned())
        };
        self.hub.stats.count(|all| match &found {
            Ok(Some(_)) => all.cancels.passed_on += 1,
            Ok(None) => all.cancels.unknown += 1,
            Err(_) => all.cancels.refused += 1,
        });
        let computer = found?;
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
        if state.lines.len() >= limit {
            let gone = state.lines.iter().filter(|(_, line)| !line.is_open());
            let gone: Vec<Key> = gone.map(|(key, _)| *key).collect();
            for key in gone {
                self.budget.forget(key);
                state.lines.remove(&key);
                state.known.forget(key);
                state.rooms.disconnect(key);
            }
        }
        state.lines.len() >= limit
    }

    /// Adds trace and hop and scrubs secrets. Only then may a fault be sent or logged.
    pub(super) fn finish(&self, fault: Fault, req_id: &str) -> Fault {
        let fault = if req_id.is_empty() { fault } else { fault.with_trace(trace_of(req_id)) };
        fault.via("server", "hub").scrub(&self.scrubber)
    }
}

/// The arguments of the answer that carries this fault.
pub(super) fn render(fault: &Fault, carrier: Carrier, dialect: Dialect) -> Vec<Value> {
    match carrier {
        Carrier::Flat => vec![error::flat(fault, dialect)],
        Carrier::Result => vec![error::result(fault, dialect)],
        Carrier::Pair => {
            let message = render::render_for_peer(fault, budao_core::Lang::En).message;
            vec![false.into(), message.into(), error::flat(fault, dialect)]
        }
    }
}

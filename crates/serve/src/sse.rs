//! A session's events as server-sent events. `Last-Event-ID` is the cursor.

use std::{convert::Infallible, fmt::Write as _, sync::Arc};

use axum::{
    Extension,
    body::{Body, Bytes},
    extract::{Path, Query, State, rejection::QueryRejection},
    response::{IntoResponse as _, Response},
};
use budao_core::{
    Fault, Kind,
    event::SessionId,
    fault::{Fact, Operation},
};
use futures::{future::BoxFuture, stream};
use http::{HeaderMap, header};
use serde::Deserialize;

use crate::{
    connection::{Connection, DisconnectReason},
    frame::{close, connection::render_shutdown},
    http_api::{Caller, fault_response},
    inbound::{self, Cursor},
    observe::{ObserveMode, ObserveRequest},
    outbox::{CloseMode, CloseReason, EncodedFrame},
    problem::Problem,
    server::Server,
    socket::ABNORMAL_CLOSURE,
};

/// Start position of the events.
#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(default)]
pub(crate) struct EventsQuery {
    /// The `event_id` of the last event that the client has. `Last-Event-ID` takes precedence.
    last_event_id: Option<String>,
    /// The `seq` of the last event that the client has; used if there is no event id. Without any cursor, the stream
    /// starts at the beginning.
    last_seq: Option<u64>,
}

/// The events of a session: the missed ones after the cursor `Last-Event-ID`, then live ones.
#[utoipa::path(
    get,
    path = "/v1/sessions/{session}/events",
    params(
        ("session" = String, Path, description = "The session's id, a UUID"),
        ("Last-Event-ID" = Option<String>, Header, description = "The `event_id` of the last event that the client has"),
        EventsQuery,
    ),
    responses(
        (status = 200, description = "A stream of server-sent events, one frame each, with heartbeats", content_type = "text/event-stream"),
        (status = "default", description = "A fault as problem details (RFC 9457)", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn events(
    State(server): State<Arc<Server>>,
    Extension(caller): Extension<Caller>,
    Path(session): Path<String>,
    from: Result<Query<EventsQuery>, QueryRejection>,
    headers: HeaderMap,
) -> Response {
    let Query(from) = match from {
        Ok(from) => from,
        Err(rejection) => {
            let fault = Fault::new(Kind::BadRequest, Operation::ServeRequest)
                .with(Fact::Field, "query")
                .with(Fact::Received, rejection.body_text());
            return fault_response(&server, fault, &caller);
        }
    };
    match start_stream(&server, &caller, &session, &from, &headers).await {
        Err(fault) => fault_response(&server, fault, &caller),
        Ok(connection) => {
            let next_heartbeat = server.world.clock.sleep(server.config.limits.heartbeat);
            let running = server.running.token();
            let retry = server.config.limits.reconnect_delay.as_millis();
            let first = Some(Bytes::from(format!("retry: {retry}\n\n")));
            let streaming = SseStream {
                connection: StreamGuard(connection),
                next_heartbeat,
                first,
                is_over: false,
                _running: running,
            };
            let body = Body::from_stream(stream::unfold(streaming, SseStream::next));
            let headers =
                [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-store")];
            (headers, [("x-accel-buffering", "no")], body).into_response()
        }
    }
}

async fn start_stream(
    server: &Arc<Server>,
    caller: &Caller,
    session: &str,
    from: &EventsQuery,
    headers: &HeaderMap,
) -> Result<Arc<Connection>, Fault> {
    let session: SessionId = session.parse().map_err(|_| {
        Fault::new(Kind::UnknownSession, Operation::ServeRequest)
            .with(Fact::Session, session.chars().take(80).collect::<String>())
    })?;
    let meta = server.session_meta.check(&*server.journal, session, &caller.identity).await?;
    let cursor = read_cursor(session, from, headers)?;
    let permit = server.admission.admit(&caller.identity.tenant)?;
    let lang = caller.accepted_lang.unwrap_or(meta.language);
    let connection = Connection::new(Arc::clone(server), caller.identity.clone(), lang, permit);
    let _ = connection.send_connected().await;
    connection.observe(meta, ObserveRequest::new(session, cursor, ObserveMode::Resume))?;
    Ok(connection)
}

fn read_cursor(
    session: SessionId,
    from: &EventsQuery,
    headers: &HeaderMap,
) -> Result<Option<Cursor>, Fault> {
    let header = headers.get("last-event-id").and_then(|id| id.to_str().ok());
    let Some(id) = header.filter(|id| !id.is_empty()).or(from.last_event_id.as_deref()) else {
        return Ok(from.last_seq.map(|seq| Cursor { session: None, epoch: None, seq }));
    };
    let cursor = inbound::read_event_id(id).filter(|cursor| cursor.session == Some(session));
    cursor.map(Some).ok_or_else(|| {
        Fault::new(Kind::ConstraintViolated, Operation::ServeRequest)
            .with(Fact::Field, "Last-Event-ID")
            .with(Fact::Constraint, "an event_id of this session: session.epoch.seq")
            .with(
                Fact::ProvidedValue,
                serde_json::Value::from(id.chars().take(120).collect::<String>()),
            )
    })
}

/// Ends the connection when the response is dropped. SSE has no closing handshake, so the reader counts as lost unless
/// the server ended the stream.
pub(crate) struct StreamGuard(pub(crate) Arc<Connection>);

impl Drop for StreamGuard {
    fn drop(&mut self) {
        let connection = Arc::clone(&self.0);
        let gone = CloseReason::new(ABNORMAL_CLOSURE, "the event stream ended");
        let close_reason = match connection.server.stopping.is_cancelled() {
            true => CloseReason::new(close::RESTARTING, "restarting"),
            false => connection.outbox.close_reason().unwrap_or(gone),
        };
        connection.outbox.close(close_reason.clone(), CloseMode::Discard);
        let spawn = Arc::clone(&connection.server.world.spawn);
        spawn.spawn(Box::pin(async move {
            connection.end_observations(&DisconnectReason::of(close_reason)).await;
        }));
    }
}

struct SseStream {
    connection: StreamGuard,
    next_heartbeat: BoxFuture<'static, ()>,
    first: Option<Bytes>,
    is_over: bool,
    _running: tokio_util::task::task_tracker::TaskTrackerToken,
}

impl SseStream {
    async fn next(mut self) -> Option<(Result<Bytes, Infallible>, Self)> {
        if let Some(first) = self.first.take() {
            return Some((Ok(first), self));
        }
        if self.is_over {
            return None;
        }
        let connection = Arc::clone(&self.connection.0);
        let server = &connection.server;
        connection.outbox.record_activity(server.now());
        let chunk = tokio::select! {
            biased;
            () = server.stopping.cancelled() => {
                self.is_over = true;
                let wait = server.config.limits.reconnect_delay;
                let frame = render_shutdown(server.now(), wait, connection.lang());
                encode_events(&[EncodedFrame::from(&frame)])
            }
            () = &mut self.next_heartbeat => {
                self.next_heartbeat = server.world.clock.sleep(server.config.limits.heartbeat);
                encode_events(&[EncodedFrame::from(&connection.heartbeat())])
            }
            frames = connection.outbox.next() => {
                // A client that was too slow reconnects automatically with its last event id.
                let Ok(frames) = frames else { return None };
                connection.mark_sent(&frames);
                self.is_over = frames.iter().any(reports_unknown_session);
                encode_events(&frames)
            }
        };
        Some((Ok(chunk), self))
    }
}

/// Whether a frame of a stream reports that its session was deleted. Nothing follows it.
pub(crate) fn reports_unknown_session(frame: &EncodedFrame) -> bool {
    let kind: &str = Kind::UnknownSession.into();
    frame.at.is_none()
        && serde_json::from_str::<serde_json::Value>(&frame.text)
            .is_ok_and(|frame| frame["metadata"]["kind"] == kind)
}

/// Encodes frames as events. Frames without a position get no id, so they do not move the cursor.
fn encode_events(frames: &[EncodedFrame]) -> Bytes {
    let mut text = String::with_capacity(frames.iter().map(|frame| frame.text.len() + 96).sum());
    for frame in frames {
        if let Some((session, epoch, seq)) = frame.at {
            let _ = writeln!(text, "id: {session}.{epoch}.{seq}");
        }
        let _ = write!(text, "data: {}\n\n", frame.text);
    }
    text.into()
}

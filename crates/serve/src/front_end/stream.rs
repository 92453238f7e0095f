//! A run as server-sent events: records from the hub, projected, from a position to the end of the run.
//!
//! Each event has the id `{event_id}.{index}`: the position of its record and its index among the events of that record. The
//! observation begins where the projection needs it, which may be before the first event that is sent. Front ends take
//! a clean end of the body for success, so a stream that ends before its run resets the connection.

use std::{fmt::Write as _, io, sync::Arc};

use axum::{
    body::{Body, Bytes},
    response::{IntoResponse as _, Response},
};
use budao_core::{
    Fault, Kind, Record,
    event::{Epoch, Seq, SessionId},
    fault::Operation,
    session::Session,
};
use futures::{future::BoxFuture, stream};
use http::{HeaderName, HeaderValue, header};

use super::{PagedReader, Thread};
use crate::{
    admission::AdmissionPermit,
    connection::Connection,
    frame::close,
    http_api::Caller,
    observe::{ObserveMode, ObserveRequest},
    observer_format::{ObserverFormat, decode_record},
    outbox::{CloseMode, CloseReason, EncodedFrame},
    server::Server,
    session_meta::unknown_session,
    sse::{StreamGuard, reports_unknown_session},
};

/// The header with the address at which a cut stream continues, relative to the request's.
pub(crate) const RESUME: HeaderName = HeaderName::from_static("x-budao-resume");

/// The part of a stream before the events of its records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Prelude {
    /// Nothing: the client continues after its cursor, or the run begins here.
    Nothing,
    /// The conversation so far, if a run is active at the start of the stream.
    IfActive,
    /// The conversation so far in any case; a thread whose turn does not run ends the stream.
    Always,
}

/// One event of a front end's protocol.
#[derive(Debug)]
enum StreamEvent {
    Plain(String),
    /// The conversation up to the record; only the stream can read it.
    Snapshot,
    /// The last event of the run.
    End(String),
}

/// Collects the events of one record.
#[derive(Debug, Default)]
pub(crate) struct EventSink(Vec<StreamEvent>);

impl EventSink {
    /// Adds an event as JSON.
    pub(crate) fn push(&mut self, json: impl Into<String>) {
        self.0.push(StreamEvent::Plain(json.into()));
    }

    /// Adds an event with the whole conversation.
    pub(crate) fn push_snapshot(&mut self) {
        self.0.push(StreamEvent::Snapshot);
    }

    /// Adds an event after which the stream ends.
    pub(crate) fn push_end(&mut self, json: impl Into<String>) {
        self.0.push(StreamEvent::End(json.into()));
    }

    /// The number of events up to the end of the run, and whether the run ends.
    pub(crate) fn count(&self) -> (usize, bool) {
        let end = self.0.iter().position(|event| matches!(event, StreamEvent::End(_)));
        (end.map_or(self.0.len(), |end| end + 1), end.is_some())
    }

    /// The events as JSON, with those of `snapshot` in the place of each snapshot, and whether each ends the stream.
    #[cfg(test)]
    pub(crate) fn into_json(self, snapshot: impl Fn() -> Vec<String>) -> Vec<(String, bool)> {
        let json = |event| match event {
            StreamEvent::Plain(json) => vec![(json, false)],
            StreamEvent::Snapshot => snapshot().into_iter().map(|json| (json, false)).collect(),
            StreamEvent::End(json) => vec![(json, true)],
        };
        self.0.into_iter().flat_map(json).collect()
    }
}

/// Projects records to the events of a front end's protocol.
pub(crate) trait Projection: Send {
    /// Adds the events of a record. Records come in order, without gaps.
    fn project(&mut self, record: &Record, sink: &mut EventSink);

    /// Adds the last events of a stream that a fault ends, and not its run.
    fn fail(&mut self, fault: &Fault, sink: &mut EventSink);

    /// Adds the events that bring a client to the current position.
    fn prelude(&mut self, prelude: Prelude, sink: &mut EventSink);

    /// The events with the conversation up to a position.
    fn snapshot(
        &self,
        connection: Arc<Connection>,
        session: SessionId,
        until: Seq,
    ) -> BoxFuture<'static, Result<Vec<String>, Fault>>;

    /// The text after the last event.
    fn trailer(&self) -> &'static str {
        ""
    }
}

/// The start of a stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StreamPlan {
    /// The observation begins after this position.
    pub(crate) from: Seq,
    /// Events up to this one are not sent: the position of a record and the index of an event.
    pub(crate) after: (Seq, usize),
    pub(crate) prelude: Prelude,
    /// This many events more are not sent.
    pub(crate) skip: usize,
}

impl StreamPlan {
    /// A plan for the events after a position, and the state at which the projection begins: before the turn that runs
    /// at that position.
    pub(crate) async fn new(
        reader: &PagedReader<'_>,
        thread: &Thread,
        after: (Seq, usize),
        prelude: Prelude,
    ) -> Result<(Self, Session), Fault> {
        let state = reader.fold_at(thread, after.0).await?;
        // The record of the cursor itself may have events left, and it may have ended its turn.
        let turn = state.turn.as_ref().map(|turn| turn.began);
        let ended = match (turn, after.1) {
            (None, index) if index < usize::MAX && after.0 > 0 => {
                let before = reader.fold_at(thread, after.0 - 1).await?;
                Some(before.turn.map_or(after.0, |turn| turn.began))
            }
            _ => None,
        };
        let began = turn.or(ended);
        let from = began.map_or(after.0, |began| began.saturating_sub(1).min(after.0));
        let state = match from == after.0 {
            true => state,
            false => reader.fold_at(thread, from).await?,
        };
        Ok((Self { from, after, prelude, skip: 0 }, state))
    }

    /// A plan for a thread without a running turn: the conversation so far and the end of its last turn. The projection
    /// begins before that turn.
    pub(crate) async fn after_last_turn(
        reader: &PagedReader<'_>,
        thread: &Thread,
    ) -> Result<(Self, Session), Fault> {
        let head = thread.state.head;
        let from = reader.last_turn(thread).await?.unwrap_or(head);
        let state = reader.fold_at(thread, from).await?;
        let (after, prelude) = ((head, usize::MAX), Prelude::Always);
        Ok((Self { from, after, prelude, skip: 0 }, state))
    }
}

/// Answers with a stream.
pub(crate) fn respond(
    server: &Arc<Server>,
    caller: &Caller,
    permit: AdmissionPermit,
    thread: &Thread,
    plan: StreamPlan,
    projection: Box<dyn Projection>,
    headers: Vec<(HeaderName, String)>,
) -> Result<Response, Fault> {
    let connection =
        Connection::new(Arc::clone(server), caller.identity.clone(), caller.lang, permit);
    let request = ObserveRequest {
        after: plan.from,
        format: ObserverFormat::Records,
        ..ObserveRequest::new(thread.session, None, ObserveMode::Fresh)
    };
    connection.observe(thread.meta.clone(), request)?;
    let run = RunStream {
        connection: StreamGuard(connection),
        next_heartbeat: server.world.clock.sleep(server.config.limits.heartbeat),
        projection,
        plan,
        thread_key: (thread.session, thread.epoch),
        last_seq: plan.from,
        has_prelude: false,
        is_over: false,
        _running: server.running.token(),
    };
    let body = Body::from_stream(stream::unfold(run, RunStream::next));
    let fixed = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-cache, no-store"),
    ];
    let mut response = (fixed, [("x-accel-buffering", "no")], body).into_response();
    for (name, value) in headers {
        if let Ok(value) = HeaderValue::from_str(&value) {
            response.headers_mut().insert(name, value);
        }
    }
    Ok(response)
}

struct RunStream {
    connection: StreamGuard,
    next_heartbeat: BoxFuture<'static, ()>,
    projection: Box<dyn Projection>,
    plan: StreamPlan,
    thread_key: (SessionId, Epoch),
    /// The position of the last record.
    last_seq: Seq,
    has_prelude: bool,
    is_over: bool,
    _running: tokio_util::task::task_tracker::TaskTrackerToken,
}

impl RunStream {
    async fn next(mut self) -> Option<(io::Result<Bytes>, Self)> {
        if self.is_over {
            return None;
        }
        let result = match self.next_chunk().await {
            Ok(chunk) => Ok(chunk),
            Err(fault) => {
                tracing::info!(session = %self.thread_key.0, %fault, "front end stream interrupted");
                self.is_over = true;
                // The connection is reset: the client must not take the end for success.
                Err(io::Error::other("the stream was interrupted"))
            }
        };
        Some((result, self))
    }

    /// The next bytes to send. An error interrupts the stream.
    async fn next_chunk(&mut self) -> Result<Bytes, Fault> {
        let mut text = String::new();
        let connection = Arc::clone(&self.connection.0);
        let server = &connection.server;
        self.add_prelude(&mut text).await?;
        while text.is_empty() {
            connection.outbox.record_activity(server.now());
            tokio::select! {
                biased;
                () = server.stopping.cancelled() => {
                    return Err(Fault::new(Kind::ShuttingDown, Operation::FollowRecords));
                }
                () = &mut self.next_heartbeat => {
                    self.next_heartbeat = server.world.clock.sleep(server.config.limits.heartbeat);
                    text.push_str(": alive\n\n");
                }
                frames = connection.outbox.next() => {
                    let frames = frames.map_err(|closed| {
                        Fault::new(Kind::ConnectionLost, Operation::FollowRecords)
                            .with_cause(closed.reason)
                    })?;
                    for frame in &frames {
                        self.add_record(frame, &mut text).await?;
                        if self.is_over {
                            break;
                        }
                        self.add_prelude(&mut text).await?;
                    }
                    connection.mark_sent(&frames);
                }
            }
        }
        Ok(text.into())
    }

    /// Sends the prelude once the projection has reached the start of the stream.
    async fn add_prelude(&mut self, text: &mut String) -> Result<(), Fault> {
        if self.has_prelude || self.last_seq < self.plan.after.0 || self.is_over {
            return Ok(());
        }
        self.has_prelude = true;
        let mut sink = EventSink::default();
        self.projection.prelude(self.plan.prelude, &mut sink);
        self.send(sink, None, text).await
    }

    async fn add_record(&mut self, frame: &EncodedFrame, text: &mut String) -> Result<(), Fault> {
        let damaged = || Fault::new(Kind::ConnectionLost, Operation::FollowRecords);
        if reports_unknown_session(frame) {
            return self.add_deletion(text).await;
        }
        // Another frame without a position reports that the session cannot be followed.
        let Some((_, _, seq)) = frame.at else { return Err(damaged()) };
        if seq != self.last_seq + 1 {
            return Err(damaged().with_cause("records are missing"));
        }
        self.last_seq = seq;
        let record = decode_record(frame)?;
        let mut sink = EventSink::default();
        self.projection.project(&record, &mut sink);
        self.send(sink, Some(seq), text).await
    }

    /// Ends the stream with an error: the session was deleted.
    async fn add_deletion(&mut self, text: &mut String) -> Result<(), Fault> {
        let mut sink = EventSink::default();
        self.projection.fail(&unknown_session(self.thread_key.0), &mut sink);
        // The client has seen no event of this one, whatever its cursor.
        self.plan.skip = 0;
        self.send(sink, None, text).await
    }

    /// Writes events. Of a prelude, only the last event has an id, so that a client that is cut off inside it gets all
    /// of it again.
    async fn send(
        &mut self,
        sink: EventSink,
        seq: Option<Seq>,
        text: &mut String,
    ) -> Result<(), Fault> {
        let (session, epoch) = self.thread_key;
        let last = sink.0.len().saturating_sub(1);
        for (index, event) in sink.0.into_iter().enumerate() {
            if seq.is_some_and(|seq| (seq, index) <= self.plan.after) {
                continue;
            }
            let is_end = matches!(event, StreamEvent::End(_));
            if self.plan.skip > 0 {
                self.plan.skip -= 1;
            } else {
                let json = match event {
                    StreamEvent::Plain(json) | StreamEvent::End(json) => json,
                    StreamEvent::Snapshot => {
                        let connection = Arc::clone(&self.connection.0);
                        let until = seq.unwrap_or(self.last_seq);
                        let reading = self.projection.snapshot(connection, session, until);
                        let mut events = reading.await?;
                        let last = events.pop().unwrap_or_default();
                        // Without an id: a client that is cut off here gets all of the snapshot again.
                        for json in events {
                            let _ = write!(text, "data: {json}\n\n");
                        }
                        last
                    }
                };
                let written = match seq {
                    Some(seq) => writeln!(text, "id: {session}.{epoch}.{seq}.{index}"),
                    None if index == last => {
                        writeln!(text, "id: {session}.{epoch}.{}", self.last_seq)
                    }
                    None => Ok(()),
                };
                let _ = written.and_then(|()| write!(text, "data: {json}\n\n"));
            }
            if is_end {
                self.end(text);
                break;
            }
        }
        Ok(())
    }

    fn end(&mut self, text: &mut String) {
        text.push_str(self.projection.trailer());
        self.is_over = true;
        let done = CloseReason::new(close::NORMAL, "the run is over");
        self.connection.0.outbox.close(done, CloseMode::Discard);
    }
}

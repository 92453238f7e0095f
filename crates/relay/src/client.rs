//! Performs a POST and reports its events to the session, until the session leaves it.

use std::sync::Arc;

use budao_core::{
    fault::{Fact, Fault, Kind, Operation},
    trace::Trace,
};
use budao_engine::SignalSender;
use budao_models::event_source::{EventSource, PostError, StreamError};
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::{
    SERVICE,
    decider::Signal,
    machine::{Input, limit, protocol, upstream_cut},
};

/// Longest text of the agent that is kept for the operator, in characters.
const EXCERPT_CHARS: usize = 500;

/// The most bytes of events that wait for their session. They are recorded together, twice, in one append.
const WAITING_BYTES: u32 = 8 * 1024 * 1024;

/// A request of one run.
pub(crate) struct Post {
    pub(crate) source: EventSource,
    /// Counts how often the session was loaded; the reports carry it.
    pub(crate) generation: u32,
    pub(crate) post_number: u32,
    pub(crate) body: Vec<u8>,
    pub(crate) trace: Trace,
    pub(crate) event_bytes: usize,
}

impl Post {
    /// Runs until the stream ends or `left` is cancelled, which ends the connection.
    pub(crate) async fn run(self, signals: SignalSender<Signal>, left: CancellationToken) {
        let (generation, post_number) = (self.generation, self.post_number);
        let work = async {
            let (fault, is_unsent) = self.relay(&signals).await;
            let input = Input::Failed { post_number, fault, is_unsent };
            signals.send(Signal { generation, input, _room: None }).await;
        };
        tokio::select! {
            biased;
            () = left.cancelled() => {}
            () = work => {}
        }
    }

    /// Reports every event. Returns why there are no more; the session ignores it after the event that ends the run.
    async fn relay(self, signals: &SignalSender<Signal>) -> (Fault, bool) {
        let Self { source, generation, post_number, body, trace, event_bytes } = self;
        let mut events = match source.post(body, trace, event_bytes).await {
            Ok(events) => events,
            Err(error) => return request_fault(error),
        };
        let room = Arc::new(Semaphore::new(WAITING_BYTES as usize));
        let mut is_first = true;
        loop {
            let data = match events.next().await {
                Some(Ok(data)) => data,
                Some(Err(error)) => return (stream_fault(error, is_first, event_bytes), false),
                None => {
                    return (upstream_cut("cut").with_cause("the agent ended the stream"), false);
                }
            };
            let event: Value = match serde_json::from_str(&data) {
                Ok(event) => event,
                // The end of the body cut the last event off.
                Err(_) if events.ended() => {
                    return (upstream_cut("cut").with_cause("half an event"), false);
                }
                Err(error) => {
                    let cause = if is_first { "not_agui" } else { "malformed" };
                    let excerpt: String = data.chars().take(EXCERPT_CHARS).collect();
                    let fault = protocol(cause, None).caused_by(&error).with_cause(excerpt);
                    return (fault, false);
                }
            };
            is_first = false;
            let bytes = u32::try_from(data.len()).unwrap_or(u32::MAX).min(WAITING_BYTES);
            let room = Arc::clone(&room).acquire_many_owned(bytes).await.ok();
            let input = Input::Upstream { post_number, event, bytes: data.len() };
            if !signals.send(Signal { generation, input, _room: room }).await {
                return (upstream_cut("cut"), false);
            }
        }
    }
}

/// The fault for a request without an event stream, and whether no byte of it left.
fn request_fault(error: PostError) -> (Fault, bool) {
    match error {
        PostError::Unsent { kind, cause } => {
            let fault = Fault::new(kind, Operation::ModelRequest).with(Fact::Service, SERVICE);
            (fault.with_cause(cause), true)
        }
        PostError::Broken { cause } => (upstream_cut("cut").with_cause(cause), false),
        PostError::Refused { status, body } => {
            let fault = Fault::new(Kind::UpstreamRefused, Operation::ModelRequest)
                .with(Fact::Service, SERVICE)
                .with(Fact::Status, i64::from(status))
                .with_cause(body.chars().take(EXCERPT_CHARS).collect::<String>());
            // An agent that broke down may have acted before.
            (if status >= 500 { fault.unconfirmed() } else { fault }, false)
        }
        PostError::NotEvents { media } => (protocol("not_agui", None).with_cause(media), false),
    }
}

fn stream_fault(error: StreamError, is_first: bool, event_bytes: usize) -> Fault {
    match error {
        StreamError::Broken(cause) => upstream_cut("cut").with_cause(cause),
        StreamError::Malformed(reason) => {
            let cause = if is_first { "not_agui" } else { "malformed" };
            protocol(cause, None).with_cause(reason)
        }
        StreamError::TooLong => limit("event_bytes", event_bytes as u64),
    }
}

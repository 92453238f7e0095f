//! Progress of `ask`: a client that sent a progress token gets an event stream of notifications, and its response last.
//!
//! Notifications that the client does not read in time are dropped; the response is not.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{
    body::{Body, Bytes},
    response::{IntoResponse as _, Response},
};
use budao_core::{Record, Timestamp, activity::Activity};
use futures::{FutureExt as _, future::BoxFuture, stream};
use http::{HeaderMap, header};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::{
    handler,
    tools::ToolCall,
    wire::{Era, RpcRequest},
};
use crate::{http_api::Caller, server::Server};

/// The most notifications that wait for a slow client.
const QUEUE_NOTIFICATIONS: usize = 32;
/// The shortest time between two notifications about text and output. Steps and calls are always reported.
const NOTIFICATION_PAUSE: Duration = Duration::from_millis(500);
/// The longest progress token that is a text, in bytes: each notification repeats it.
const TOKEN_MAX: usize = 1024;
/// The longest message of a notification, in characters.
const MESSAGE_MAX: usize = 200;

/// Sends notifications about one run.
#[derive(Debug)]
pub(super) struct ProgressReporter {
    token: Value,
    sender: mpsc::Sender<Bytes>,
    sent: u64,
    sent_at: Option<Timestamp>,
}

impl ProgressReporter {
    /// Reports a record of the run, if it is worth a notification.
    pub(super) fn report(&mut self, record: &Record) {
        let Some((message, is_step)) = Activity::of(&record.event).and_then(|it| describe(&it))
        else {
            return;
        };
        let is_soon = self.sent_at.is_some_and(|at| record.at.since(at) < NOTIFICATION_PAUSE);
        if is_soon && !is_step {
            return;
        }
        let mut params = json!({ "progressToken": self.token, "progress": self.sent + 1 });
        if let Some(message) = message {
            params["message"] = message.chars().take(MESSAGE_MAX).collect::<String>().into();
        }
        let method = "notifications/progress";
        let body = json!({ "jsonrpc": "2.0", "method": method, "params": params });
        if self.sender.try_send(encode_event(&body)).is_ok() {
            (self.sent, self.sent_at) = (self.sent + 1, Some(record.at));
        }
    }
}

/// The text of a notification, and whether it is about a step or a call.
fn describe<'a>(activity: &Activity<'a>) -> Option<(Option<&'a str>, bool)> {
    match *activity {
        Activity::CallStarted { tool, .. } => Some((Some(tool), true)),
        Activity::TurnStarted { .. }
        | Activity::StepStarted { .. }
        | Activity::CallEnded { .. }
        | Activity::RetryScheduled { .. } => Some((None, true)),
        Activity::CallOutput { text, .. } => {
            Some((text.lines().rfind(|line| !line.trim().is_empty()), false))
        }
        Activity::Text { .. } | Activity::Thought { .. } => Some((None, false)),
        _ => None,
    }
}

/// The progress token of a call of `ask` whose client reads event streams and does not follow a task.
pub(super) fn read_progress_token(request: &RpcRequest, headers: &HeaderMap) -> Option<Value> {
    let token = request.params.get("_meta")?.get("progressToken")?;
    let is_ask = request.method == "tools/call"
        && request.params.get("name").is_some_and(|name| name == "ask")
        && matches!(ToolCall::read("ask", request.params.get("arguments")), Some(Ok(_)));
    let accepted = headers.get_all(header::ACCEPT).iter().filter_map(|it| it.to_str().ok());
    let reads_events = accepted.into_iter().any(|it| it.contains("text/event-stream"));
    let is_task = request.era == Era::Stateless && request.has_tasks();
    let is_token =
        token.is_number() || token.as_str().is_some_and(|token| token.len() <= TOKEN_MAX);
    (is_ask && reads_events && !is_task && is_token).then(|| token.clone())
}

/// Answers a call with a stream of its progress.
pub(super) fn respond(
    server: Arc<Server>,
    caller: Caller,
    request: RpcRequest,
    token: Value,
) -> Response {
    let (sender, receiver) = mpsc::channel(QUEUE_NOTIFICATIONS);
    let reporter = ProgressReporter { token, sender, sent: 0, sent_at: None };
    let stream_server = Arc::clone(&server);
    let answer = async move {
        let answer = handler::answer(&server, &caller, &request, Some(reporter)).await;
        let id = request.id.clone().unwrap_or_default();
        encode_event(&answer.map_or_else(|error| error.body(&id), |result| request.body(result)))
    };
    let stream = ProgressStream { server: stream_server, receiver, answer: Some(answer.boxed()) };
    let body = Body::from_stream(stream::unfold(stream, ProgressStream::next));
    let headers =
        [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-store")];
    (headers, [("x-accel-buffering", "no")], body).into_response()
}

/// The stream of a response. Dropping it ends the wait for the run, not the run.
struct ProgressStream {
    server: Arc<Server>,
    receiver: mpsc::Receiver<Bytes>,
    /// None after the response.
    answer: Option<BoxFuture<'static, Bytes>>,
}

impl ProgressStream {
    async fn next(mut self) -> Option<(Result<Bytes, Infallible>, Self)> {
        let answer = self.answer.as_mut()?;
        let heartbeat = self.server.world.clock.sleep(self.server.config.limits.heartbeat);
        let bytes = tokio::select! {
            biased;
            Some(notification) = self.receiver.recv() => notification,
            last = answer => {
                self.answer = None;
                let mut all = Vec::new();
                while let Ok(notification) = self.receiver.try_recv() {
                    all.extend_from_slice(&notification);
                }
                all.extend_from_slice(&last);
                all.into()
            }
            () = heartbeat => Bytes::from_static(b":\n\n"),
        };
        Some((Ok(bytes), self))
    }
}

/// A message as an event. JSON has no line breaks outside of texts, where they are escaped.
fn encode_event(message: &Value) -> Bytes {
    format!("event: message\ndata: {message}\n\n").into()
}

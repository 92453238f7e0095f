//! The hub's interface to a client's connection. `socket.rs` implements it for Socket.IO; the simulator implements it
//! without sockets, to run the hub on virtual time.

use std::{error::Error, fmt, sync::Arc, time::Duration};

use budao_core::Timestamp;
use futures::{FutureExt as _, future::BoxFuture};
use serde_json::{
    Value,
    value::{RawValue, to_raw_value},
};

/// A connection to a client, as the hub uses it.
pub trait ClientConnection: fmt::Debug + Send + Sync {
    /// Whether anything can still be sent.
    fn is_open(&self) -> bool;

    /// Whether all resources are released; a closed connection may still be writing.
    fn is_gone(&self) -> bool {
        !self.is_open()
    }

    /// Closes the connection after everything that was sent before.
    fn close(self: Arc<Self>);

    /// Closes the connection with an error as the reason. Does not wait for a client that reads nothing.
    fn cut(self: Arc<Self>, _why: &Value) {
        self.close();
    }

    /// Releases written packets and returns the time since which the oldest remaining packet has waited.
    fn sweep(&self) -> Option<Timestamp> {
        None
    }

    /// Sends an event that needs no answer.
    ///
    /// # Errors
    /// If the event was not sent.
    fn notify(&self, event: &'static str, payload: &Value) -> Result<(), DeliveryError>;

    /// Sends an event and returns its future answer, which fails after `timeout`.
    ///
    /// # Errors
    /// If the event was not sent.
    fn ask(
        &self,
        event: &'static str,
        payload: &Value,
        timeout: Duration,
    ) -> Result<Pending, DeliveryError>;

    /// Answers the client's event with this id.
    ///
    /// # Errors
    /// If the answer was not sent.
    fn answer(self: Arc<Self>, id: i64, args: &[Value]) -> Result<(), DeliveryError>;

    /// Like [`ClientConnection::ask`], for JSON text that is sent unchanged. A text-based connection parses neither
    /// it nor the answer.
    ///
    /// # Errors
    /// If the event was not sent.
    fn ask_text(
        &self,
        event: &'static str,
        text: &RawValue,
        timeout: Duration,
    ) -> Result<PendingText, DeliveryError> {
        let payload: Value = serde_json::from_str(text.get())?;
        let answer = self.ask(event, &payload, timeout)?;
        let text = |value: Value| -> Result<_, AnswerError> {
            if value.is_null() { Ok(None) } else { Ok(Some(to_raw_value(&value)?)) }
        };
        Ok(answer.map(move |answer| answer.and_then(text)).boxed())
    }

    /// Like [`ClientConnection::answer`], with one argument of JSON text that is sent unchanged.
    ///
    /// # Errors
    /// If the answer was not sent.
    fn answer_text(self: Arc<Self>, id: i64, text: &RawValue) -> Result<(), DeliveryError> {
        self.answer(id, &[serde_json::from_str(text.get())?])
    }
}

/// The future answer of a client.
pub type Pending = BoxFuture<'static, Result<Value, AnswerError>>;

/// The future answer as JSON text; `None` for null.
pub type PendingText = BoxFuture<'static, Result<Option<Box<RawValue>>, AnswerError>>;

/// The reason why something was not sent.
#[derive(Debug)]
pub enum DeliveryError {
    /// The queue is full; a later attempt may succeed.
    Full,
    /// The connection is closed, or the message cannot be encoded. A retry fails as well.
    Disconnected(Box<dyn Error + Send + Sync>),
}

/// The reason why there is no answer.
#[derive(Debug)]
pub enum AnswerError {
    /// The client's answer cannot be parsed.
    Malformed(Box<dyn Error + Send + Sync>),
    /// The client did not answer within its time limit.
    TimedOut,
    /// The connection ended before the answer.
    Disconnected,
}

impl fmt::Display for DeliveryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => f.write_str("the queue is full"),
            Self::Disconnected(error) => error.fmt(f),
        }
    }
}

impl From<serde_json::Error> for DeliveryError {
    fn from(error: serde_json::Error) -> Self {
        Self::Disconnected(Box::new(error))
    }
}

impl From<serde_json::Error> for AnswerError {
    fn from(error: serde_json::Error) -> Self {
        Self::Malformed(Box::new(error))
    }
}

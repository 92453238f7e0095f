//! What carries words between the hub and a client. Socket.IO does in `socket.rs`; the simulator brings lines without
//! sockets, so that the hub itself can be played on virtual time.

use std::{error::Error, fmt, sync::Arc, time::Duration};

use budao_core::Timestamp;
use futures::{FutureExt as _, future::BoxFuture};
use serde_json::{
    Value,
    value::{RawValue, to_raw_value},
};

/// A connection to a client, as the hub uses it.
pub trait ClientConnection: fmt::Debug + Send + Sync {
    /// Can anything still be sent?
    fn is_open(&self) -> bool;

    /// Has it let go of everything?
    fn is_gone(&self) -> bool {
        !self.is_open()
    }

    /// Closes it, behind what was sent already.
    fn close(self: Arc<Self>);

    /// Closes it with an error that says why, and does not wait for a client that reads nothing.
    fn cut(self: Arc<Self>, _why: &Value) {
        self.close();
    }

    /// Lets go of what has been written, and says since when the oldest of the rest has waited.
    fn sweep(&self) -> Option<Timestamp> {
        None
    }

    /// Sends an event.
    ///
    /// # Errors
    /// If it was not sent.
    fn tell(&self, event: &'static str, payload: &Value) -> Result<(), DeliveryError>;

    /// Sends an event that is to be answered, within `patience` at the latest.
    ///
    /// # Errors
    /// If it was not sent.
    fn ask(
        &self,
        event: &'static str,
        payload: &Value,
        patience: Duration,
    ) -> Result<Pending, DeliveryError>;

    /// Answers the client's event with this id.
    ///
    /// # Errors
    /// If it was not sent.
    fn answer(self: Arc<Self>, id: i64, args: &[Value]) -> Result<(), DeliveryError>;

    /// As [`ClientConnection::ask`], for JSON that is sent as it stands. A line on which text travels need not read it, nor the answer.
    ///
    /// # Errors
    /// If it was not sent.
    fn ask_text(
        &self,
        event: &'static str,
        text: &RawValue,
        patience: Duration,
    ) -> Result<PendingText, DeliveryError> {
        let payload: Value = serde_json::from_str(text.get())?;
        let answer = self.ask(event, &payload, patience)?;
        let text = |value: Value| -> Result<_, AnswerError> {
            if value.is_null() { Ok(None) } else { Ok(Some(to_raw_value(&value)?)) }
        };
        Ok(answer.map(move |answer| answer.and_then(text)).boxed())
    }

    /// As [`ClientConnection::answer`], with one argument that is sent as it stands.
    ///
    /// # Errors
    /// If it was not sent.
    fn answer_text(self: Arc<Self>, id: i64, text: &RawValue) -> Result<(), DeliveryError> {
        self.answer(id, &[serde_json::from_str(text.get())?])
    }
}

/// An answer that has not come yet.
pub type Pending = BoxFuture<'static, Result<Value, AnswerError>>;

/// The same as text; nothing if it is a null.
pub type PendingText = BoxFuture<'static, Result<Option<Box<RawValue>>, AnswerError>>;

/// Why something was not sent.
#[derive(Debug)]
pub enum DeliveryError {
    /// Too much waits already: another try may do.
    Full,
    /// It cannot be sent, now or later.
    Disconnected(Box<dyn Error + Send + Sync>),
}

/// Why there is no answer.
#[derive(Debug)]
pub enum AnswerError {
    /// What came is no answer.
    Malformed(Box<dyn Error + Send + Sync>),
    /// It took too long.
    TimedOut,
    /// The client is gone.
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

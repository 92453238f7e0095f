//! Socket.IO as a [`Line`].

use std::{convert::Infallible, sync::Arc, time::Duration};

use futures::FutureExt as _;
use serde::Serialize;
use serde_json::{Value, value::RawValue};
use socketioxide::{
    AckError, SendError, SocketError,
    adapter::LocalAdapter,
    extract::{AckSender, TryData},
    handler::{FromConnectParts, FromMessageParts as _, MessageHandler, Value as Data},
};

use super::{
    Inner, gate,
    handle::{Desk, enter},
    line::{Line, Pending, PendingText, Unanswered, Unsent},
};
use crate::wire::version::QUERY;

type Socket = socketioxide::socket::Socket<LocalAdapter>;

/// A connection of Socket.IO that is being made.
pub(super) struct Wire(Arc<Socket>);

impl FromConnectParts<LocalAdapter> for Wire {
    type Error = Infallible;

    fn from_connect_parts(socket: &Arc<Socket>, _: &Option<Data>) -> Result<Self, Infallible> {
        Ok(Self(Arc::clone(socket)))
    }
}

/// Lets a connection in, with everything registered, before it learns that it is.
pub(super) async fn greet(
    hub: Arc<Inner>,
    Wire(socket): Wire,
    TryData(auth): TryData<Value>,
) -> Result<(), String> {
    let version = gate::value(socket.req_parts().uri.query().unwrap_or_default(), QUERY);
    let desk = Arc::new(enter(&hub, socket.clone(), auth.ok().as_ref(), version)?);
    let leaving = Arc::clone(&desk);
    socket.on_disconnect(move || {
        let desk = Arc::clone(&leaving);
        async move { desk.leave() }
    });
    socket.on_fallback(Ear(desk));
    Ok(())
}

/// Hears what comes from one connection.
struct Ear(Arc<Desk>);

impl MessageHandler<LocalAdapter, Ear> for Ear {
    fn call(&self, socket: Arc<Socket>, data: Data, id: Option<i64>) {
        settled(&socket);
        let Data::Str(text, attachments) = data else { return };
        self.0.hear(socket, &text, attachments.is_some(), id);
    }
}

/// The library tells a client that it is connected a moment before it believes so itself, and until then refuses to send
/// to it. A client that is quick, and a thread that is interrupted just there, would lose what is sent.
fn settled(socket: &Socket) {
    for _ in 0..10_000 {
        if socket.connected() {
            return;
        }
        std::thread::yield_now();
    }
}

/// Arguments that are sent one by one.
struct Spread<'a>(&'a [Value]);

impl Serialize for Spread<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeTuple;
        let mut tuple = serializer.serialize_tuple(self.0.len())?;
        for value in self.0 {
            tuple.serialize_element(value)?;
        }
        tuple.end()
    }
}

impl From<SendError> for Unsent {
    fn from(error: SendError) -> Self {
        match error {
            SendError::Socket(SocketError::InternalChannelFull) => Self::Full,
            error => Self::Gone(Box::new(error)),
        }
    }
}

impl From<AckError> for Unanswered {
    fn from(error: AckError) -> Self {
        match error {
            AckError::Decode(_) => Self::Garbage(Box::new(error)),
            AckError::Timeout => Self::TooLate,
            AckError::Socket(_) => Self::Gone,
        }
    }
}

/// What answers the event with this id.
fn sender(socket: &Arc<Socket>, id: i64) -> AckSender {
    let mut nothing = Data::Str("[]".into(), None);
    let Ok(sender) = AckSender::from_message_parts(socket, &mut nothing, &Some(id));
    sender
}

impl Line for Socket {
    fn is_open(&self) -> bool {
        self.connected()
    }

    fn close(self: Arc<Self>) {
        // It may be closed already.
        let _ = self.disconnect();
    }

    fn tell(&self, event: &'static str, payload: &Value) -> Result<(), Unsent> {
        Ok(self.emit(event, payload)?)
    }

    fn ask(
        &self,
        event: &'static str,
        payload: &Value,
        patience: Duration,
    ) -> Result<Pending, Unsent> {
        let answer = self.timeout(patience).emit_with_ack::<_, Value>(event, payload)?;
        Ok(answer.map(|answer| answer.map_err(Unanswered::from)).boxed())
    }

    fn answer(self: Arc<Self>, id: i64, args: &[Value]) -> Result<(), Unsent> {
        Ok(sender(&self, id).send(&Spread(args))?)
    }

    fn ask_text(
        &self,
        event: &'static str,
        text: &RawValue,
        patience: Duration,
    ) -> Result<PendingText, Unsent> {
        let answer = self.timeout(patience).emit_with_ack(event, text)?;
        Ok(answer.map(|answer| answer.map_err(Unanswered::from)).boxed())
    }

    fn answer_text(self: Arc<Self>, id: i64, text: &RawValue) -> Result<(), Unsent> {
        Ok(sender(&self, id).send(&(text,))?)
    }
}

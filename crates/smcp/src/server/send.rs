//! Sending, with nothing lost in silence.
//!
//! A connection has a bounded queue. When it is full the send is tried again, and a connection that does not
//! read for too long is closed: its client comes back and asks anew, which is better than an answer that
//! never comes.

use std::{sync::Arc, time::Duration};

use serde::Serialize;
use serde_json::Value;
use socketioxide::{
    SendError, SocketError,
    adapter::LocalAdapter,
    extract::{AckSender, SocketRef},
    handler::{FromMessageParts as _, Value as Data},
    socket::Socket,
};

use super::{Inner, rooms::Key};

/// Between two tries.
const PAUSE: Duration = Duration::from_millis(10);

/// Where an answer goes.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    socket: Arc<Socket<LocalAdapter>>,
    id: Option<i64>,
}

/// Arguments that are sent one by one.
#[derive(Clone, Debug)]
struct Spread(Vec<Value>);

impl Serialize for Spread {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeTuple;
        let mut tuple = serializer.serialize_tuple(self.0.len())?;
        for value in &self.0 {
            tuple.serialize_element(value)?;
        }
        tuple.end()
    }
}

/// Is it worth trying again?
pub(super) fn is_full(error: &SendError) -> bool {
    matches!(error, SendError::Socket(SocketError::InternalChannelFull))
}

impl Answer {
    pub(super) fn new(socket: Arc<Socket<LocalAdapter>>, id: Option<i64>) -> Self {
        Self { socket, id }
    }

    /// Did the client ask for an answer?
    pub(super) fn is_wanted(&self) -> bool {
        self.id.is_some()
    }

    /// Answers, if an answer was asked for.
    pub(super) fn send(&self, hub: &Arc<Inner>, args: Vec<Value>) {
        if self.id.is_none() {
            return;
        }
        let args = Spread(args);
        let Err(error) = self.try_send(&args) else { return };
        if !is_full(&error) {
            tracing::debug!(%error, "an answer had nowhere to go");
            return;
        }
        let (hub, this) = (hub.clone(), self.clone());
        let spawn = hub.world.spawn.clone();
        spawn.spawn(Box::pin(async move {
            if !again(&hub, || this.try_send(&args)).await {
                let _ = this.socket.disconnect();
            }
        }));
    }

    fn try_send(&self, args: &Spread) -> Result<(), SendError> {
        let Ok(sender) = AckSender::from_message_parts(
            &self.socket,
            &mut Data::Str("[]".into(), None),
            &self.id,
        );
        sender.send(args)
    }
}

/// Tells several connections something.
pub(super) fn notify(hub: &Arc<Inner>, to: &[Key], event: &'static str, payload: &Value) {
    let sockets: Vec<SocketRef> = {
        let state = hub.state();
        to.iter().filter_map(|key| state.sockets.get(key).cloned()).collect()
    };
    for socket in sockets {
        let Err(error) = socket.emit(event, payload) else { continue };
        if !is_full(&error) {
            tracing::debug!(%error, event, "a notification had nowhere to go");
            continue;
        }
        let (hub, payload) = (hub.clone(), payload.clone());
        let spawn = hub.world.spawn.clone();
        spawn.spawn(Box::pin(async move {
            if !again(&hub, || socket.emit(event, &payload)).await {
                let _ = socket.disconnect();
            }
        }));
    }
}

/// Tries again until there is room. False if there never was: then the connection is to be closed.
async fn again(hub: &Inner, send: impl Fn() -> Result<(), SendError>) -> bool {
    hub.stats.count(|all| all.sends_delayed += 1);
    let tries = hub.config.limits.send.as_millis() / PAUSE.as_millis();
    for _ in 0..tries {
        hub.world.clock.sleep(PAUSE).await;
        match send() {
            Err(error) if is_full(&error) => {}
            _ => return true,
        }
    }
    hub.stats.count(|all| all.connections_closed += 1);
    tracing::warn!("a connection that does not read is closed");
    false
}

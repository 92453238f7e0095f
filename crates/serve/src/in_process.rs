//! A server without a listener: the caller supplies message channels. Everything above the bytes works as on a
//! WebSocket. The simulator serves its clients this way, on virtual time.

use std::sync::Arc;

use axum::{Error, extract::ws::Message};
use budao_core::{Fault, Lang, engine::Engine, world::World};
use budao_journal::Reader;
use futures::{sink, stream};
use tokio::sync::mpsc;

use crate::{
    auth::Identity,
    config::Config,
    connection::Connection,
    server::Server,
    socket::{self, ABNORMAL_CLOSURE},
    sweep,
};

/// A server without a listener. Clones share the state.
#[derive(Clone, Debug)]
pub struct InProcessServer(Arc<Server>);

/// A message between client and server, in either direction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientMessage {
    /// A JSON frame.
    Frame(String),
    /// A ping from the server, or a pong from the client.
    Heartbeat,
    /// A close frame with its code and reason.
    Close(u16, String),
}

impl InProcessServer {
    /// Creates the server and starts its retention task.
    #[must_use]
    pub fn new(
        config: Config,
        engine: Arc<dyn Engine>,
        journal: Arc<dyn Reader>,
        world: World,
    ) -> Self {
        let server = Server::new(config, engine, journal, world, true);
        server.world.spawn.spawn(Box::pin(sweep::run(Arc::clone(&server))));
        Self(server)
    }

    /// Serves one client until it closes or a channel is closed. A full channel counts as a slow observer.
    ///
    /// # Errors
    /// If a connection limit is reached.
    pub async fn serve(
        &self,
        identity: Identity,
        from: mpsc::Receiver<ClientMessage>,
        to: mpsc::Sender<ClientMessage>,
    ) -> Result<(), Fault> {
        let permit = self.0.admission.admit(&identity.tenant)?;
        let connection = Connection::new(Arc::clone(&self.0), identity, Lang::En, permit);
        let outgoing = sink::unfold(to, |to, message: Message| async move {
            match to_client(message) {
                Some(message) => to.send(message).await.map(|()| to).map_err(Error::new),
                None => Ok(to),
            }
        });
        let incoming = stream::unfold(from, |mut from| async move {
            let message = from.recv().await?;
            Some((Ok(from_client(message)), from))
        });
        let (outgoing, incoming) = (Box::pin(outgoing), Box::pin(incoming));
        socket::serve_streams(connection, outgoing, incoming).await;
        Ok(())
    }

    /// Announces the shutdown to all clients and closes their connections.
    pub fn close(&self) {
        self.0.stopping.cancel();
    }

    /// The bytes queued for all observers.
    #[must_use]
    pub fn waiting_bytes(&self) -> usize {
        self.0.budget.used_bytes()
    }

    /// The number of observers closed for being too slow.
    #[must_use]
    pub fn slow_observers(&self) -> usize {
        self.0.budget.slow_observers()
    }
}

fn to_client(message: Message) -> Option<ClientMessage> {
    match message {
        Message::Text(text) => Some(ClientMessage::Frame(text.to_string())),
        Message::Ping(_) => Some(ClientMessage::Heartbeat),
        Message::Close(Some(frame)) => {
            Some(ClientMessage::Close(frame.code, frame.reason.to_string()))
        }
        Message::Close(None) => Some(ClientMessage::Close(ABNORMAL_CLOSURE, String::new())),
        Message::Binary(_) | Message::Pong(_) => None,
    }
}

fn from_client(message: ClientMessage) -> Message {
    match message {
        ClientMessage::Frame(text) => Message::Text(text.into()),
        ClientMessage::Heartbeat => Message::Pong(bytes::Bytes::new()),
        ClientMessage::Close(code, reason) => {
            Message::Close(Some(axum::extract::ws::CloseFrame { code, reason: reason.into() }))
        }
    }
}

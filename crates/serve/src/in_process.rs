//! A server without a listener: whoever has lines of some kind brings them. What happens on a line is what happens
//! on a WebSocket; only the bytes are missing. The simulator serves its clients this way, on virtual time.

use std::sync::Arc;

use axum::{Error, extract::ws::Message};
use budao_core::{Fault, Lang, engine::Engine, world::World};
use budao_journal::Journal;
use futures::{sink, stream};
use tokio::sync::mpsc;

use crate::{
    auth::Identity,
    config::Config,
    connection::Connection,
    server::Server,
    socket::{self, ABNORMAL},
    sweep,
};

/// A server without a listener. Clones are the same one.
#[derive(Clone, Debug)]
pub struct InProcessServer(Arc<Server>);

/// What goes over a line, either way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientMessage {
    /// A frame.
    Frame(String),
    /// Are you there? And the answer to that.
    Heartbeat,
    /// Good-bye, with a code and a reason.
    Close(u16, String),
}

impl InProcessServer {
    /// Opens it.
    #[must_use]
    pub fn new(
        config: Config,
        engine: Arc<dyn Engine>,
        journal: Arc<dyn Journal>,
        world: World,
    ) -> Self {
        let server = Server::new(config, engine, journal, world, true);
        server.world.spawn.spawn(Box::pin(sweep::run(Arc::clone(&server))));
        Self(server)
    }

    /// Serves one client until it is gone, or the line is. A line that takes no more words is a slow observer.
    ///
    /// # Errors
    /// When there are too many already.
    pub async fn attend(
        &self,
        who: Identity,
        from: mpsc::Receiver<ClientMessage>,
        to: mpsc::Sender<ClientMessage>,
    ) -> Result<(), Fault> {
        let ticket = self.0.admission.enter(&who.tenant)?;
        let connection = Connection::new(Arc::clone(&self.0), who, Lang::En, ticket);
        let outgoing = sink::unfold(to, |to, message: Message| async move {
            match word(message) {
                Some(word) => to.send(word).await.map(|()| to).map_err(Error::new),
                None => Ok(to),
            }
        });
        let incoming = stream::unfold(from, |mut from| async move {
            let word = from.recv().await?;
            Some((Ok(message(word)), from))
        });
        let (outgoing, incoming) = (Box::pin(outgoing), Box::pin(incoming));
        socket::attend_on(connection, outgoing, incoming).await;
        Ok(())
    }

    /// Tells everybody when to come back, and takes nobody any more.
    pub fn close(&self) {
        self.0.stopping.cancel();
    }

    /// Bytes that wait for all observers now.
    #[must_use]
    pub fn waiting_bytes(&self) -> usize {
        self.0.budget.used()
    }

    /// Observers that were too slow, and were let go.
    #[must_use]
    pub fn detached(&self) -> usize {
        self.0.budget.detached()
    }
}

fn word(message: Message) -> Option<ClientMessage> {
    match message {
        Message::Text(text) => Some(ClientMessage::Frame(text.to_string())),
        Message::Ping(_) => Some(ClientMessage::Heartbeat),
        Message::Close(Some(frame)) => {
            Some(ClientMessage::Close(frame.code, frame.reason.to_string()))
        }
        Message::Close(None) => Some(ClientMessage::Close(ABNORMAL, String::new())),
        Message::Binary(_) | Message::Pong(_) => None,
    }
}

fn message(word: ClientMessage) -> Message {
    match word {
        ClientMessage::Frame(text) => Message::Text(text.into()),
        ClientMessage::Heartbeat => Message::Pong(bytes::Bytes::new()),
        ClientMessage::Close(code, reason) => {
            Message::Close(Some(axum::extract::ws::CloseFrame { code, reason: reason.into() }))
        }
    }
}

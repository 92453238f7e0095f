//! The public handles of a session: [`Client`] sends, [`Events`] receives, [`Reply`] answers one event.

use std::{sync::Arc, time::Duration};

use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::DropGuard;

use crate::{
    Config, Error, Payload, Stats, packet,
    session::Session,
    shared::{OutgoingPacket, Shared},
};
use budao_core::world::World;

/// A handle of a session, bound to one namespace. Clones are cheap; dropping the last one ends the session.
#[derive(Clone, Debug)]
pub struct Client {
    shared: Arc<Shared>,
    namespace_index: usize,
    _alive: Arc<DropGuard>,
}

/// The receiving end of a session: events of all namespaces, in the order they arrived.
#[derive(Debug)]
pub struct Events {
    inbox: mpsc::Receiver<Event>,
}

/// An item of [`Events`]: a change of the connection, or an event from the server.
#[derive(Debug)]
pub enum Event {
    /// A namespace is connected. Sent after the first connection and after every reconnection.
    Connected {
        /// The namespace's name, for example `/chat`.
        namespace: Arc<str>,
        /// The Socket.IO session id that the server assigned to this namespace; a reconnection brings a new one.
        sid: String,
    },
    /// The connection was lost or could not be made. Another attempt follows unless the session ends.
    Disconnected {
        /// The reason for the loss or the failed attempt.
        error: Error,
        /// Delay before the next attempt; `None` if the session ends.
        retry_in: Option<Duration>,
    },
    /// The server sent an event.
    Message {
        /// The namespace that the event belongs to.
        namespace: Arc<str>,
        /// The event's name.
        name: String,
        /// The arguments after the name, with their attachments.
        payload: Payload,
        /// The handle for the answer; `None` if the server asked for no acknowledgement.
        reply: Option<Reply>,
    },
}

/// The right to answer one event of the server, once. Dropping it sends nothing.
#[derive(Debug)]
pub struct Reply {
    pub(crate) shared: Arc<Shared>,
    pub(crate) namespace_index: usize,
    pub(crate) id: i64,
    pub(crate) epoch: u64,
}

impl Reply {
    /// Queues the answer. An answer is never sent over a later connection than the one its event came from.
    ///
    /// # Errors
    /// If that connection is gone, the queue has no room within [`Limits::send`](crate::Limits::send), or the packet
    /// is too large.
    pub async fn send(self, payload: Payload) -> Result<(), Error> {
        let encoding =
            packet::answer(&self.shared.namespaces[self.namespace_index].name, self.id, payload);
        let Self { shared, namespace_index, epoch, .. } = self;
        let outgoing = OutgoingPacket { namespace_index, encoding, call: None, epoch: Some(epoch) };
        bounded(&shared, shared.enqueue(outgoing)).await
    }
}

/// Bounds the wait for room in the queue to `limits.send`.
async fn bounded(
    shared: &Shared,
    sending: impl Future<Output = Result<(), Error>>,
) -> Result<(), Error> {
    tokio::select! {
        biased;
        result = sending => result,
        () = shared.world.clock.sleep(shared.limits.send) => {
            Err(Error::Full { name: "queue_max", limit: shared.limits.queue_max })
        }
    }
}

impl Events {
    /// Returns the next event, or `None` after the session has ended. [`Client::ended`] gives the reason.
    pub async fn next(&mut self) -> Option<Event> {
        self.inbox.recv().await
    }
}

impl Client {
    /// Connects and returns after the first attempt, successful or not. The session reconnects after later losses.
    ///
    /// # Errors
    /// The error of the first attempt. The session is over then.
    pub async fn connect(config: Config, world: World) -> Result<(Self, Events), Error> {
        let (first_result, first) = oneshot::channel();
        let (client, events) = Self::launch(config, world, Some(first_result));
        first.await.unwrap_or(Err(Error::Closed))?;
        Ok((client, events))
    }

    /// Starts a session without waiting for a connection. A failed first attempt is retried like any later one.
    #[must_use]
    pub fn start(config: Config, world: World) -> (Self, Events) {
        Self::launch(config, world, None)
    }

    fn launch(
        mut config: Config,
        world: World,
        first: Option<oneshot::Sender<Result<(), Error>>>,
    ) -> (Self, Events) {
        if config.namespaces.is_empty() {
            config = config.namespace("/");
        }
        let names = config.namespaces.iter().map(|(name, _)| name.clone()).collect();
        let shared = Arc::new(Shared::new(config.limits, world, names));
        let (sender, inbox) = mpsc::channel(config.limits.inbox_max.max(1));
        let alive = Arc::new(shared.closing.clone().drop_guard());
        let session = Session::new(config, shared.clone(), sender, first);
        shared.world.spawn.clone().spawn(Box::pin(session.run()));
        (Self { shared, namespace_index: 0, _alive: alive }, Events { inbox })
    }

    /// Returns a handle of the same session for another namespace; `None` if the configuration does not have it.
    #[must_use]
    pub fn on(&self, namespace: &str) -> Option<Self> {
        let namespace_index = self.shared.namespace_index(namespace)?;
        Some(Self { namespace_index, ..self.clone() })
    }

    /// The name of this handle's namespace.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.shared.namespaces[self.namespace_index].name
    }

    /// Sends an event that needs no answer. Success means that the event is queued, not that it arrived.
    ///
    /// # Errors
    /// If the session has ended, the packet is too large, or the queue has no room in time.
    pub async fn emit(&self, name: &str, payload: Payload) -> Result<(), Error> {
        let encoding = packet::event(self.namespace(), name, payload, None);
        let outgoing = OutgoingPacket {
            namespace_index: self.namespace_index,
            encoding,
            call: None,
            epoch: None,
        };
        bounded(&self.shared, self.shared.enqueue(outgoing)).await
    }

    /// Sends an event and waits for its answer. `timeout` covers the wait for the queue and for the answer.
    ///
    /// # Errors
    /// If the deadline passes, the connection is lost after the event was sent, or the event cannot be queued.
    pub async fn call(
        &self,
        name: &str,
        payload: Payload,
        timeout: Duration,
    ) -> Result<Payload, Error> {
        self.shared.call(self.namespace_index, name, payload, timeout).await
    }

    /// The error that ended the session; `None` while it runs.
    #[must_use]
    pub fn ended(&self) -> Option<Error> {
        self.shared.ended()
    }

    /// A copy of the session's counters.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.shared.stats()
    }

    /// The number of calls in this namespace that wait for an answer.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.shared.namespaces[self.namespace_index].waiting()
    }

    /// Ends the session: sends a disconnect for every namespace and fails all waiting calls with [`Error::Closed`].
    pub fn close(&self) {
        self.shared.closing.cancel();
    }
}

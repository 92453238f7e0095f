//! The handles of a session.

use std::{sync::Arc, time::Duration};

use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::DropGuard;

use crate::{
    Config, Error, Payload, Stats, packet,
    session::Session,
    shared::{OutgoingPacket, Shared},
};
use budao_core::world::World;

/// A handle of a session, for one of its namespaces. Clones are cheap; when the last one is gone, the
/// session ends.
#[derive(Clone, Debug)]
pub struct Client {
    shared: Arc<Shared>,
    space: usize,
    _alive: Arc<DropGuard>,
}

/// What happens, in order.
#[derive(Debug)]
pub struct Events {
    inbox: mpsc::Receiver<Event>,
}

/// Something that happened.
#[derive(Debug)]
pub enum Event {
    /// A namespace is connected; also after every reconnection.
    Connected {
        /// Which one.
        namespace: Arc<str>,
        /// The id the server gave it.
        sid: String,
    },
    /// The connection is gone, or could not be made. Unless the session ends, another try follows.
    Disconnected {
        /// Why.
        error: Error,
        /// When the next try comes.
        retry_in: Option<Duration>,
    },
    /// An event of the server.
    Message {
        /// Where.
        namespace: Arc<str>,
        /// Its name.
        name: String,
        /// Its arguments.
        payload: Payload,
        /// How to answer, if the server asked for one.
        reply: Option<Reply>,
    },
}

/// Answers one event of the server.
#[derive(Debug)]
pub struct Reply {
    pub(crate) shared: Arc<Shared>,
    pub(crate) space: usize,
    pub(crate) id: i64,
    pub(crate) epoch: u64,
}

impl Reply {
    /// Sends the answer. Fails if the connection that asked is gone: another one must not be answered.
    ///
    /// # Errors
    /// If it could not be queued.
    pub async fn send(self, payload: Payload) -> Result<(), Error> {
        let encoding = packet::answer(&self.shared.spaces[self.space].name, self.id, payload);
        let Self { shared, space, epoch, .. } = self;
        let outgoing = OutgoingPacket { space, encoding, call: None, epoch: Some(epoch) };
        bounded(&shared, shared.enqueue(outgoing)).await
    }
}

/// Waits for room in the queue, but not for ever.
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
    /// The next event; nothing when the session is over. [`Client::ended`] says why.
    pub async fn next(&mut self) -> Option<Event> {
        self.inbox.recv().await
    }
}

impl Client {
    /// Connects, and fails if the first try does. Later losses are followed by new tries.
    ///
    /// # Errors
    /// What the first try ran into.
    pub async fn connect(config: Config, world: World) -> Result<(Self, Events), Error> {
        let (told, first) = oneshot::channel();
        let (client, events) = Self::launch(config, world, Some(told));
        first.await.unwrap_or(Err(Error::Closed))?;
        Ok((client, events))
    }

    /// Begins to connect and goes on trying, from the first time on.
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
        (Self { shared, space: 0, _alive: alive }, Events { inbox })
    }

    /// The same session, for another of its namespaces.
    #[must_use]
    pub fn on(&self, namespace: &str) -> Option<Self> {
        let space = self.shared.space(namespace)?;
        Some(Self { space, ..self.clone() })
    }

    /// The namespace this handle is for.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.shared.spaces[self.space].name
    }

    /// Sends an event that needs no answer. Returning says that it is queued, not that it arrived.
    ///
    /// # Errors
    /// If it could not be queued.
    pub async fn emit(&self, name: &str, payload: Payload) -> Result<(), Error> {
        let encoding = packet::event(self.namespace(), name, payload, None);
        let outgoing = OutgoingPacket { space: self.space, encoding, call: None, epoch: None };
        bounded(&self.shared, self.shared.enqueue(outgoing)).await
    }

    /// Sends an event and waits for its answer, at most for `timeout` in all.
    ///
    /// # Errors
    /// If no answer came: by its deadline, because the connection was lost, or because it could not be sent.
    pub async fn call(
        &self,
        name: &str,
        payload: Payload,
        timeout: Duration,
    ) -> Result<Payload, Error> {
        self.shared.call(self.space, name, payload, timeout).await
    }

    /// Why the session is over, once it is.
    #[must_use]
    pub fn ended(&self) -> Option<Error> {
        self.shared.ended()
    }

    /// What happened so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.shared.stats()
    }

    /// Calls that wait for an answer, in this namespace.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.shared.spaces[self.space].waiting()
    }

    /// Ends the session: says goodbye, and fails what still waits with [`Error::Closed`].
    pub fn close(&self) {
        self.shared.closing.cancel();
    }
}

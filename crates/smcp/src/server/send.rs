//! Sends answers and notifications without losing any silently.
//!
//! A connection's queue is limited in packets and in bytes. A send to a queue with too many packets is retried, and
//! its bytes are charged meanwhile. A connection that exceeds its bytes, or accepts nothing for too long, is closed:
//! its client reconnects and asks again, so no answer is missing silently and the hub's memory stays bounded.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use serde_json::{Value, value::RawValue};

use super::{
    Inner,
    budget::{Charge, ReachedLimit, Share},
    client_connection::{ClientConnection, DeliveryError},
    rooms::Key,
};
use crate::wire::error;

/// Interval between two attempts.
const PAUSE: Duration = Duration::from_millis(10);

/// Extra bytes charged for a send that is retried, to bound the number of such tasks.
const TASK_BYTES: usize = 16 << 10;

/// The connection and the acknowledgement id that an answer is for.
#[derive(Clone, Debug)]
pub(super) struct AnswerTarget {
    key: Key,
    connection: Arc<dyn ClientConnection>,
    id: Option<i64>,
}

/// The arguments of an answer.
#[derive(Debug)]
pub(super) enum AnswerArgs {
    Values(Vec<Value>),
    /// One argument as JSON text, forwarded unchanged.
    Text(Box<RawValue>),
}

impl From<Vec<Value>> for AnswerArgs {
    fn from(values: Vec<Value>) -> Self {
        Self::Values(values)
    }
}

impl AnswerArgs {
    fn send(&self, connection: &Arc<dyn ClientConnection>, id: i64) -> Result<(), DeliveryError> {
        match self {
            Self::Values(values) => Arc::clone(connection).answer(id, values),
            Self::Text(text) => Arc::clone(connection).answer_text(id, text),
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Values(values) => values.iter().map(|value| value.to_string().len()).sum(),
            Self::Text(text) => text.get().len(),
        }
    }
}

impl AnswerTarget {
    pub(super) fn new(key: Key, connection: Arc<dyn ClientConnection>, id: Option<i64>) -> Self {
        Self { key, connection, id }
    }

    /// Whether the client expects an answer.
    pub(super) fn is_wanted(&self) -> bool {
        self.id.is_some()
    }

    /// Sends the answer, if the client expects one.
    pub(super) fn send(&self, hub: &Arc<Inner>, args: impl Into<AnswerArgs>) {
        let Some(id) = self.id else { return };
        let args = args.into();
        match args.send(&self.connection, id) {
            Ok(()) => {}
            Err(DeliveryError::Disconnected(error)) => {
                tracing::debug!(%error, "answer dropped: client disconnected");
            }
            Err(DeliveryError::Full) => {
                let (connection, bytes) = (Arc::clone(&self.connection), args.bytes() + TASK_BYTES);
                insist(hub, self.key, Arc::clone(&connection), bytes, move || {
                    args.send(&connection, id)
                });
            }
        }
    }
}

/// Sends a notification to several connections.
pub(super) fn notify(hub: &Arc<Inner>, to: &[Key], event: &'static str, payload: &Value) {
    let connections: Vec<(Key, Arc<dyn ClientConnection>)> = {
        let state = hub.state();
        to.iter().filter_map(|key| Some((*key, state.connections.get(key).cloned()?))).collect()
    };
    for (key, connection) in connections {
        match connection.notify(event, payload) {
            Ok(()) => {}
            Err(DeliveryError::Disconnected(error)) => {
                tracing::debug!(%error, event, "notification dropped: client disconnected");
            }
            Err(DeliveryError::Full) => {
                let (payload, bytes) = (payload.clone(), payload.to_string().len() + TASK_BYTES);
                insist(hub, key, Arc::clone(&connection), bytes, move || {
                    connection.notify(event, &payload)
                });
            }
        }
    }
}

/// Retries a send in the background. Closes the connection if its queue stays full or its byte limit is reached.
fn insist(
    hub: &Arc<Inner>,
    key: Key,
    connection: Arc<dyn ClientConnection>,
    bytes: usize,
    send: impl Fn() -> Result<(), DeliveryError> + Send + Sync + 'static,
) {
    let charge = match make_room(hub, key, bytes, Share::Whole) {
        Ok(charge) => charge,
        Err(over) => return cut(hub, key, &connection, over),
    };
    let hub = Arc::clone(hub);
    let spawn = Arc::clone(&hub.world.spawn);
    spawn.spawn(Box::pin(async move {
        let charge = Mutex::new(Some(charge));
        let sent = again(&hub, || {
            // The queue charges the bytes itself; releasing them first avoids a double charge.
            let held = charge.lock().unwrap_or_else(PoisonError::into_inner).take();
            let sent = send();
            if matches!(sent, Err(DeliveryError::Full)) {
                *charge.lock().unwrap_or_else(PoisonError::into_inner) = held;
            }
            sent
        });
        if !sent.await {
            cut(&hub, key, &connection, ReachedLimit::Time(hub.config.limits.send));
        }
    }));
}

/// Charges bytes to a connection. At the total limit, closes the other connection with the most queued bytes.
pub(super) fn make_room(
    hub: &Arc<Inner>,
    key: Key,
    bytes: usize,
    share: Share,
) -> Result<Charge, ReachedLimit> {
    let take = || hub.budget.take(key, bytes, share);
    match take() {
        Err(ReachedLimit::Total(_)) => hub.sweep_queues(),
        taken => return taken,
    }
    loop {
        let over = match take() {
            Err(over @ ReachedLimit::Total(_)) => over,
            taken => return taken,
        };
        let slowest = hub.budget.largest().filter(|slowest| *slowest != key);
        let Some(slowest) = slowest else { return Err(over) };
        let connection = hub.state().connections.get(&slowest).cloned();
        match connection {
            Some(connection) => cut(hub, slowest, &connection, over),
            None => hub.budget.forget(slowest),
        }
    }
}

/// Closes a connection that reads too slowly, with the limit it reached as the reason.
pub(super) fn cut(
    hub: &Arc<Inner>,
    key: Key,
    connection: &Arc<dyn ClientConnection>,
    over: ReachedLimit,
) {
    // Concurrent sends may detect the same limit.
    if !hub.budget.close(key) {
        return;
    }
    hub.stats.count(|all| {
        all.connections_closed += 1;
        *all.closed_slow.entry(over.name().to_owned()).or_default() += 1;
    });
    tracing::warn!(
        connection = key,
        limit_name = over.name(),
        "closing connection: client reads too slowly"
    );
    let why = error::flat(&hub.finish(over.too_slow(), ""), hub.rendering());
    let connection = Arc::clone(connection);
    // Spawned, because closing notifies the room, which may close further connections.
    hub.world.spawn.spawn(Box::pin(async move { connection.cut(&why) }));
}

/// Retries until the send succeeds or fails for good. Returns false if the queue stayed full for `limits.send`.
async fn again(hub: &Inner, send: impl Fn() -> Result<(), DeliveryError>) -> bool {
    hub.stats.count(|all| all.sends_delayed += 1);
    let tries = hub.config.limits.send.as_millis() / PAUSE.as_millis();
    for _ in 0..tries {
        hub.world.clock.sleep(PAUSE).await;
        match send() {
            Err(DeliveryError::Full) => {}
            _ => return true,
        }
    }
    false
}

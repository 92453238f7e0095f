//! State shared by a client's handles and its session: the send queue and the calls that wait for answers.
//!
//! The queue is the same with and without a connection, so a loss moves nothing. Each queued packet holds a semaphore
//! permit; senders get permits in the order they asked.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use budao_core::world::World;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, oneshot};
use tokio_util::sync::CancellationToken;

use crate::{
    Error, Limits, Payload,
    engine::ClientPacket,
    packet::{self, EncodedPacket},
};

/// Packets in one send to the transport.
const BATCH_MAX: usize = 64;

/// Counters since the start of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Connections made, the first one included.
    pub connections: u64,
    /// Answers that arrived after their call had ended.
    pub late_answers: u64,
    /// Answers to the server that were dropped because their connection was gone.
    pub dropped_replies: u64,
    /// Events that arrived after [`Events`](crate::Events) was dropped.
    pub untaken_events: u64,
    /// Packets dropped because the server advertised a smaller limit after they were queued.
    pub oversized_packets: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) connections: AtomicU64,
    pub(crate) late_answers: AtomicU64,
    pub(crate) dropped_replies: AtomicU64,
    pub(crate) untaken_events: AtomicU64,
    pub(crate) oversized_packets: AtomicU64,
}

pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) limits: Limits,
    pub(crate) world: World,
    pub(crate) namespaces: Vec<Namespace>,
    pub(crate) closing: CancellationToken,
    pub(crate) counters: Counters,
    outbox: Mutex<Outbox>,
    queue_permits: Arc<Semaphore>,
    /// Wakes the writer when a packet or a pong is queued.
    pub(crate) ready: Notify,
    payload_max: AtomicUsize,
}

/// A namespace of the session and its waiting calls.
#[derive(Debug)]
pub(crate) struct Namespace {
    pub(crate) name: Arc<str>,
    calls: Mutex<Calls>,
}

#[derive(Debug, Default)]
struct Calls {
    last: i64,
    waiting: BTreeMap<i64, PendingCall>,
}

#[derive(Debug)]
struct PendingCall {
    answer: oneshot::Sender<Result<Payload, Error>>,
    is_sent: bool,
}

#[derive(Debug, Default)]
struct Outbox {
    pongs: usize,
    queue: VecDeque<QueuedPacket>,
    bytes: usize,
    /// The number of connections so far; 0 before the first one.
    epoch: u64,
    is_online: bool,
    ended: Option<Error>,
}

#[derive(Debug)]
struct QueuedPacket {
    namespace_index: usize,
    encoding: EncodedPacket,
    bytes: usize,
    call: Option<i64>,
    /// For an answer, the connection it belongs to; `None` for other packets.
    epoch: Option<u64>,
    _permit: OwnedSemaphorePermit,
}

/// A packet that is not queued yet.
#[derive(Debug)]
pub(crate) struct OutgoingPacket {
    pub(crate) namespace_index: usize,
    pub(crate) encoding: EncodedPacket,
    pub(crate) call: Option<i64>,
    pub(crate) epoch: Option<u64>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    pub(crate) fn new(limits: Limits, world: World, names: Vec<Arc<str>>) -> Self {
        let namespaces =
            names.into_iter().map(|name| Namespace { name, calls: Mutex::default() }).collect();
        Self {
            queue_permits: Arc::new(Semaphore::new(limits.queue_max.min(Semaphore::MAX_PERMITS))),
            payload_max: AtomicUsize::new(usize::MAX),
            limits,
            world,
            namespaces,
            closing: CancellationToken::new(),
            counters: Counters::default(),
            outbox: Mutex::default(),
            ready: Notify::new(),
        }
    }

    pub(crate) fn namespace_index(&self, name: &str) -> Option<usize> {
        self.namespaces.iter().position(|namespace| &*namespace.name == name)
    }

    /// Queues a packet. Waits for room only while there is a connection; otherwise a full queue is an error.
    pub(crate) async fn enqueue(&self, outgoing: OutgoingPacket) -> Result<(), Error> {
        let bytes = outgoing.encoding.bytes();
        let limit = self.payload_max.load(Ordering::Relaxed);
        if bytes > limit {
            return Err(Error::TooLarge { limit, actual: bytes });
        }
        let full = || Error::Full { name: "queue_max", limit: self.limits.queue_max };
        let permit = match self.queue_permits.clone().try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) if self.is_online() => {
                self.queue_permits.clone().acquire_owned().await.map_err(|_| Error::Closed)?
            }
            Err(_) => return Err(self.ended().unwrap_or_else(full)),
        };
        let mut outbox = lock(&self.outbox);
        if let Some(error) = &outbox.ended {
            return Err(error.clone());
        }
        if outgoing.epoch.is_some_and(|epoch| epoch != outbox.epoch || !outbox.is_online) {
            count(&self.counters.dropped_replies);
            return Err(Error::Lost(crate::Loss::Closed { code: None, reason: String::new() }));
        }
        if outbox.bytes + bytes > self.limits.queue_bytes_max {
            return Err(Error::Full {
                name: "queue_bytes_max",
                limit: self.limits.queue_bytes_max,
            });
        }
        outbox.bytes += bytes;
        let OutgoingPacket { namespace_index, encoding, call, epoch } = outgoing;
        outbox.queue.push_back(QueuedPacket {
            namespace_index,
            encoding,
            bytes,
            call,
            epoch,
            _permit: permit,
        });
        drop(outbox);
        self.ready.notify_one();
        Ok(())
    }

    /// Queues a pong, ahead of all other packets.
    pub(crate) fn pong(&self) {
        lock(&self.outbox).pongs += 1;
        self.ready.notify_one();
    }

    /// Takes the next batch to send. Skips calls that have ended and answers for an earlier connection.
    pub(crate) fn take(&self) -> Vec<ClientPacket> {
        let mut outbox = lock(&self.outbox);
        let mut packets: Vec<ClientPacket> = Vec::new();
        for _ in 0..std::mem::take(&mut outbox.pongs) {
            packets.push(ClientPacket::Pong);
        }
        while packets.len() < BATCH_MAX {
            let Some(queued) = outbox.queue.pop_front() else { break };
            outbox.bytes -= queued.bytes;
            if queued.epoch.is_some_and(|epoch| epoch != outbox.epoch) {
                count(&self.counters.dropped_replies);
            } else if let Some(packet) = self.fit(queued) {
                packets.push(packet);
            }
        }
        packets
    }

    /// Returns the packet if its size fits the server's limit and its caller still waits.
    fn fit(&self, queued: QueuedPacket) -> Option<ClientPacket> {
        let limit = self.payload_max.load(Ordering::Relaxed);
        let calls = &self.namespaces[queued.namespace_index].calls;
        if queued.bytes > limit {
            count(&self.counters.oversized_packets);
            let waiting = queued.call.and_then(|id| lock(calls).waiting.remove(&id));
            let too_large = Error::TooLarge { limit, actual: queued.bytes };
            if let Some(waiting) = waiting {
                let _ = waiting.answer.send(Err(too_large));
            } else {
                tracing::warn!(error = %too_large, "event dropped: too large");
            }
            return None;
        }
        if let Some(id) = queued.call {
            lock(calls).waiting.get_mut(&id)?.is_sent = true;
        }
        Some(ClientPacket::Message(queued.encoding))
    }

    fn is_online(&self) -> bool {
        lock(&self.outbox).is_online
    }

    pub(crate) fn ended(&self) -> Option<Error> {
        lock(&self.outbox).ended.clone()
    }

    /// Marks the session as connected and returns the number of the connection.
    pub(crate) fn go_online(&self, payload_max: Option<usize>) -> u64 {
        let heed = self.limits.heed_advertised_size;
        let limit = payload_max.filter(|_| heed).unwrap_or(usize::MAX);
        self.payload_max.store(limit, Ordering::Relaxed);
        count(&self.counters.connections);
        let mut outbox = lock(&self.outbox);
        outbox.pongs = 0;
        outbox.epoch += 1;
        outbox.is_online = true;
        self.ready.notify_one();
        outbox.epoch
    }

    /// Marks the session as disconnected. Calls that were sent fail; the others stay in the queue.
    pub(crate) fn go_offline(&self, error: &Error) {
        lock(&self.outbox).is_online = false;
        for namespace in &self.namespaces {
            namespace.fail(error, |waiting| waiting.is_sent);
        }
    }

    /// Ends the session. Drops the queue and fails all calls with `error`.
    pub(crate) fn end(&self, error: &Error) {
        let left = {
            let mut outbox = lock(&self.outbox);
            outbox.is_online = false;
            outbox.ended = Some(error.clone());
            outbox.bytes = 0;
            std::mem::take(&mut outbox.queue)
        };
        drop(left);
        for namespace in &self.namespaces {
            namespace.fail(error, |_| true);
        }
        self.queue_permits.close();
    }

    pub(crate) fn stats(&self) -> Stats {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Stats {
            connections: of(&self.counters.connections),
            late_answers: of(&self.counters.late_answers),
            dropped_replies: of(&self.counters.dropped_replies),
            untaken_events: of(&self.counters.untaken_events),
            oversized_packets: of(&self.counters.oversized_packets),
        }
    }

    /// Sends an event and waits for its answer. `timeout` covers the wait for the queue and for the answer.
    pub(crate) async fn call(
        &self,
        namespace_index: usize,
        name: &str,
        payload: Payload,
        timeout: Duration,
    ) -> Result<Payload, Error> {
        let (id, answer) = self.namespaces[namespace_index].register(self.limits.calls_max)?;
        let _forget = CallGuard { namespace: &self.namespaces[namespace_index], id };
        let encoding =
            packet::event(&self.namespaces[namespace_index].name, name, payload, Some(id));
        let outgoing = OutgoingPacket { namespace_index, encoding, call: Some(id), epoch: None };
        let exchange = async {
            self.enqueue(outgoing).await?;
            answer.await.unwrap_or(Err(Error::Closed))
        };
        tokio::select! {
            biased;
            result = exchange => result,
            () = self.world.clock.sleep(timeout) => Err(Error::TimedOut(timeout)),
        }
    }
}

impl Namespace {
    fn register(
        &self,
        calls_max: usize,
    ) -> Result<(i64, oneshot::Receiver<Result<Payload, Error>>), Error> {
        let (answer, receiver) = oneshot::channel();
        let mut calls = lock(&self.calls);
        if calls.waiting.len() >= calls_max {
            return Err(Error::Full { name: "calls_max", limit: calls_max });
        }
        // An id is never reused within a session, so an answer cannot reach another call.
        calls.last += 1;
        let id = calls.last;
        calls.waiting.insert(id, PendingCall { answer, is_sent: false });
        Ok((id, receiver))
    }

    /// Delivers an answer to its call. Returns false if the call has ended.
    pub(crate) fn answer(&self, id: i64, payload: Payload) -> bool {
        let waiting = lock(&self.calls).waiting.remove(&id);
        waiting.is_some_and(|waiting| waiting.answer.send(Ok(payload)).is_ok())
    }

    pub(crate) fn waiting(&self) -> usize {
        lock(&self.calls).waiting.len()
    }

    fn fail(&self, error: &Error, which: impl Fn(&PendingCall) -> bool) {
        let mut calls = lock(&self.calls);
        let all = std::mem::take(&mut calls.waiting);
        let (failed, kept) = all.into_iter().partition(|(_, waiting)| which(waiting));
        calls.waiting = kept;
        drop(calls);
        let failed: BTreeMap<i64, PendingCall> = failed;
        for waiting in failed.into_values() {
            let _ = waiting.answer.send(Err(error.clone()));
        }
    }
}

/// Removes a call from the table when its caller stops waiting.
struct CallGuard<'a> {
    namespace: &'a Namespace,
    id: i64,
}

impl Drop for CallGuard<'_> {
    fn drop(&mut self) {
        lock(&self.namespace.calls).waiting.remove(&self.id);
    }
}

//! What waits for one observer: bounded, written by many, sent by one.
//!
//! Whoever delivers live frames never waits: when an observer is too far behind, its outbox is closed with
//! a code that says "come back with your cursor", and the run goes on. Whoever replays history or answers
//! commands waits for room instead, so reading fast and writing much cannot overflow it.

#[cfg(test)]
mod tests;

use std::{
    collections::VecDeque,
    mem,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicI64, AtomicUsize, Ordering},
    },
};

use axum::extract::ws::Utf8Bytes;
use budao_core::{
    Timestamp,
    event::{Epoch, Seq, SessionId},
};
use tokio::sync::Notify;

use crate::frame::{Frame, close};

/// What a frame costs besides its text.
const OVERHEAD: usize = 96;
/// How much is handed to the transport at once. It keeps a copy until the line takes it, which is counted nowhere and may
/// be there once for every line: so it is little.
pub(crate) const BATCH_BYTES: usize = 16 * 1024;

/// A frame as it is sent. Clones share the text.
#[derive(Clone, Debug)]
pub(crate) struct EncodedFrame {
    pub(crate) text: Utf8Bytes,
    /// Where it stands, if it came of a record.
    pub(crate) at: Option<(SessionId, Epoch, Seq)>,
}

impl EncodedFrame {
    fn cost(&self) -> usize {
        self.text.len() + OVERHEAD
    }
}

impl From<&Frame> for EncodedFrame {
    fn from(frame: &Frame) -> Self {
        let at = frame.session().zip(frame.place());
        Self {
            text: frame.encode().into(),
            at: at.map(|(session, place)| (session, place.epoch, place.seq)),
        }
    }
}

/// Why a connection ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CloseReason {
    pub(crate) code: u16,
    pub(crate) reason: String,
}

impl CloseReason {
    pub(crate) fn new(code: u16, reason: impl Into<String>) -> Self {
        Self { code, reason: reason.into() }
    }
}

/// What becomes of what still waits when an outbox is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CloseMode {
    /// It is sent first.
    Drain,
    /// It is dropped: the client gets it when it comes back.
    Discard,
}

/// The bytes that wait for all observers.
#[derive(Debug)]
pub(crate) struct Budget {
    used: AtomicUsize,
    limit: usize,
    /// Observers that were too slow and were let go.
    detached: AtomicUsize,
}

impl Budget {
    pub(crate) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { used: AtomicUsize::new(0), limit, detached: AtomicUsize::new(0) })
    }

    pub(crate) fn is_over(&self) -> bool {
        self.used.load(Ordering::Relaxed) > self.limit
    }

    /// Is half of it used? The other half is left to live frames.
    fn is_tight(&self) -> bool {
        self.used.load(Ordering::Relaxed) > self.limit / 2
    }

    /// Observers that were too slow and were let go.
    pub(crate) fn detached(&self) -> usize {
        self.detached.load(Ordering::Relaxed)
    }

    /// How much waits.
    pub(crate) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }
}

#[derive(Debug, Default)]
struct Queue {
    frames: VecDeque<EncodedFrame>,
    /// Of the frames here and of those the writer holds.
    bytes: usize,
    goodbye: Option<CloseReason>,
}

/// What waits for one observer. Clones are the same outbox.
#[derive(Clone, Debug)]
pub(crate) struct Outbox(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    queue: Mutex<Queue>,
    limit: usize,
    budget: Arc<Budget>,
    /// Something came, or it was closed.
    filled: Notify,
    /// Something went, or it was closed.
    emptied: Notify,
    /// When its reader was last known to be there.
    heard: AtomicI64,
}

impl Drop for Inner {
    fn drop(&mut self) {
        let bytes = self.queue.get_mut().map_or(0, |queue| queue.bytes);
        self.budget.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// The outbox is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OutboxClosed;

impl Outbox {
    pub(crate) fn new(limit: usize, budget: Arc<Budget>, now: Timestamp) -> Self {
        Self(Arc::new(Inner {
            queue: Mutex::default(),
            limit,
            budget,
            filled: Notify::new(),
            emptied: Notify::new(),
            heard: AtomicI64::new(now.as_micros()),
        }))
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.0.queue.lock().expect("no code panics while holding this")
    }

    /// Its reader is there.
    pub(crate) fn hear(&self, now: Timestamp) {
        self.0.heard.store(now.as_micros(), Ordering::Relaxed);
    }

    /// When its reader was last known to be there.
    pub(crate) fn heard(&self) -> Timestamp {
        Timestamp::from_micros(self.0.heard.load(Ordering::Relaxed))
    }

    /// Delivers at once, or closes the outbox because its reader is too far behind.
    pub(crate) fn deliver(&self, frame: EncodedFrame) -> Result<(), OutboxClosed> {
        self.deliver_all(&[frame])
    }

    /// The same for several, which the writer finds together.
    pub(crate) fn deliver_all(&self, frames: &[EncodedFrame]) -> Result<(), OutboxClosed> {
        let mut queue = self.queue();
        if queue.goodbye.is_some() {
            return Err(OutboxClosed);
        }
        for frame in frames {
            let cost = frame.cost();
            // One frame always fits, however large it is.
            if queue.bytes > 0 && queue.bytes + cost > self.0.limit {
                drop(queue);
                self.too_slow();
                return Err(OutboxClosed);
            }
            self.put(&mut queue, frame.clone(), cost);
        }
        drop(queue);
        if !frames.is_empty() {
            self.0.filled.notify_one();
        }
        Ok(())
    }

    /// Delivers when there is room: half of the outbox is left to live frames.
    pub(crate) async fn send(&self, frame: EncodedFrame) -> Result<(), OutboxClosed> {
        let cost = frame.cost();
        self.with_room(|queue| self.put(queue, frame, cost)).await?;
        self.0.filled.notify_one();
        Ok(())
    }

    /// Waits until less than half of it is used. When too much waits for everybody together, until nothing waits
    /// here: many who ask for a history and do not read it take no more than a frame each.
    pub(crate) async fn room(&self) -> Result<(), OutboxClosed> {
        self.with_room(|_| ()).await
    }

    /// Waits for room and uses it before anybody else can.
    async fn with_room(&self, uses: impl FnOnce(&mut Queue)) -> Result<(), OutboxClosed> {
        loop {
            let emptied = self.0.emptied.notified();
            {
                let mut queue = self.queue();
                if queue.goodbye.is_some() {
                    return Err(OutboxClosed);
                }
                let bound = if self.0.budget.is_tight() { 0 } else { self.0.limit / 2 };
                if queue.bytes <= bound {
                    uses(&mut queue);
                    return Ok(());
                }
            }
            emptied.await;
        }
    }

    fn put(&self, queue: &mut Queue, frame: EncodedFrame, cost: usize) {
        queue.bytes += cost;
        self.0.budget.used.fetch_add(cost, Ordering::Relaxed);
        queue.frames.push_back(frame);
    }

    /// The reader is too far behind.
    pub(crate) fn too_slow(&self) {
        self.0.budget.detached.fetch_add(1, Ordering::Relaxed);
        self.close(
            CloseReason::new(close::TOO_SLOW, "too slow; come back with your cursor"),
            CloseMode::Discard,
        );
    }

    /// Ends it. The first reason stands.
    pub(crate) fn close(&self, goodbye: CloseReason, rest: CloseMode) {
        let mut queue = self.queue();
        if queue.goodbye.is_none() {
            queue.goodbye = Some(goodbye);
        }
        if rest == CloseMode::Discard {
            let dropped: usize = mem::take(&mut queue.frames).iter().map(EncodedFrame::cost).sum();
            self.release(&mut queue, dropped);
        }
        drop(queue);
        self.0.filled.notify_one();
        self.0.emptied.notify_waiters();
    }

    /// Is it closed, and why?
    pub(crate) fn goodbye(&self) -> Option<CloseReason> {
        self.queue().goodbye.clone()
    }

    /// How much waits.
    pub(crate) fn bytes(&self) -> usize {
        self.queue().bytes
    }

    fn release(&self, queue: &mut Queue, bytes: usize) {
        queue.bytes -= bytes;
        self.0.budget.used.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// The next frames to send. For the one writer; what it took counts until [`Outbox::sent`].
    pub(crate) async fn next(&self) -> Result<Vec<EncodedFrame>, CloseReason> {
        loop {
            let filled = self.0.filled.notified();
            {
                let mut queue = self.queue();
                if !queue.frames.is_empty() {
                    return Ok(take_batch(&mut queue.frames));
                }
                if let Some(goodbye) = &queue.goodbye {
                    return Err(goodbye.clone());
                }
            }
            filled.await;
        }
    }

    /// These were handed to the transport.
    pub(crate) fn sent(&self, frames: &[EncodedFrame]) {
        let bytes = frames.iter().map(EncodedFrame::cost).sum();
        let mut queue = self.queue();
        self.release(&mut queue, bytes);
        drop(queue);
        self.0.emptied.notify_waiters();
    }

    /// Waits until it is closed.
    pub(crate) async fn closed(&self) -> CloseReason {
        loop {
            let emptied = self.0.emptied.notified();
            if let Some(goodbye) = self.goodbye() {
                return goodbye;
            }
            emptied.await;
        }
    }

    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

fn take_batch(frames: &mut VecDeque<EncodedFrame>) -> Vec<EncodedFrame> {
    let mut bytes = 0;
    let fits = |frame: &&EncodedFrame| {
        bytes += frame.cost();
        bytes <= BATCH_BYTES
    };
    let count = frames.iter().take_while(fits).count().max(1);
    if count == frames.len() {
        // The room it took goes with it.
        return mem::take(frames).into();
    }
    frames.drain(..count).collect()
}

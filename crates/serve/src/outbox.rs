//! The bounded queue of frames for one observer: many producers, one writer.
//!
//! Delivering a live frame never waits. If an observer is too far behind, its outbox is closed with a code that tells
//! the client to resume with its cursor, and the turn continues. Replays and answers to commands wait for room instead,
//! so a client that sends many commands cannot overflow its outbox.

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

/// Bytes charged per frame in addition to its text.
const FRAME_OVERHEAD_BYTES: usize = 96;
/// Bytes handed to the transport at once. The transport holds a copy per connection that no limit counts, so the value
/// is small.
pub(crate) const BATCH_BYTES: usize = 16 * 1024;

/// An encoded frame. Clones share the text.
#[derive(Clone, Debug)]
pub(crate) struct EncodedFrame {
    pub(crate) text: Utf8Bytes,
    /// The position, if the frame comes from a record.
    pub(crate) at: Option<(SessionId, Epoch, Seq)>,
}

impl EncodedFrame {
    fn charged_bytes(&self) -> usize {
        self.text.len() + FRAME_OVERHEAD_BYTES
    }
}

impl From<&Frame> for EncodedFrame {
    fn from(frame: &Frame) -> Self {
        let at = frame.session().zip(frame.position());
        Self {
            text: frame.encode().into(),
            at: at.map(|(session, position)| (session, position.epoch, position.seq)),
        }
    }
}

/// The close code and reason of a connection.
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

/// The treatment of queued frames when an outbox is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CloseMode {
    /// They are sent before the close frame.
    Drain,
    /// They are dropped; the client gets them after a resume.
    Discard,
}

/// The bytes queued for all observers together.
#[derive(Debug)]
pub(crate) struct Budget {
    used: AtomicUsize,
    limit: usize,
    /// The number of observers closed for being too slow.
    slow_observers: AtomicUsize,
}

impl Budget {
    pub(crate) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { used: AtomicUsize::new(0), limit, slow_observers: AtomicUsize::new(0) })
    }

    pub(crate) fn is_exceeded(&self) -> bool {
        self.used.load(Ordering::Relaxed) > self.limit
    }

    /// True if more than half of the limit is used. The other half is reserved for live frames.
    fn is_half_used(&self) -> bool {
        self.used.load(Ordering::Relaxed) > self.limit / 2
    }

    /// The number of observers closed for being too slow.
    pub(crate) fn slow_observers(&self) -> usize {
        self.slow_observers.load(Ordering::Relaxed)
    }

    /// The bytes currently queued.
    pub(crate) fn used_bytes(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }
}

#[derive(Debug, Default)]
struct Queue {
    frames: VecDeque<EncodedFrame>,
    /// Bytes of the queued frames and of those the writer has taken but not sent.
    bytes: usize,
    close_reason: Option<CloseReason>,
}

/// The outbox of one observer. Clones share the queue.
#[derive(Clone, Debug)]
pub(crate) struct Outbox(Arc<OutboxState>);

#[derive(Debug)]
struct OutboxState {
    queue: Mutex<Queue>,
    limit: usize,
    budget: Arc<Budget>,
    /// Signals the writer: a frame was queued, or the outbox was closed.
    frames_added: Notify,
    /// Signals producers: frames were sent, or the outbox was closed.
    frames_removed: Notify,
    /// The time at which the client last sent a frame or took a part of its stream, in microseconds.
    last_activity: AtomicI64,
}

impl Drop for OutboxState {
    fn drop(&mut self) {
        let bytes = self.queue.get_mut().map_or(0, |queue| queue.bytes);
        self.budget.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// The error of a delivery to a closed outbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OutboxClosed;

impl Outbox {
    pub(crate) fn new(limit: usize, budget: Arc<Budget>, now: Timestamp) -> Self {
        Self(Arc::new(OutboxState {
            queue: Mutex::default(),
            limit,
            budget,
            frames_added: Notify::new(),
            frames_removed: Notify::new(),
            last_activity: AtomicI64::new(now.as_micros()),
        }))
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.0.queue.lock().expect("no code panics while holding this")
    }

    /// Records that the client sent a frame or took a part of its stream.
    pub(crate) fn record_activity(&self, now: Timestamp) {
        self.0.last_activity.store(now.as_micros(), Ordering::Relaxed);
    }

    /// The time of the last recorded activity of the client.
    pub(crate) fn last_activity(&self) -> Timestamp {
        Timestamp::from_micros(self.0.last_activity.load(Ordering::Relaxed))
    }

    /// Queues a frame without waiting. If the outbox is over its limit, closes it as too slow.
    pub(crate) fn deliver(&self, frame: EncodedFrame) -> Result<(), OutboxClosed> {
        self.deliver_all(&[frame])
    }

    /// Like [`Outbox::deliver`] for several frames, with one notification to the writer.
    pub(crate) fn deliver_all(&self, frames: &[EncodedFrame]) -> Result<(), OutboxClosed> {
        let mut queue = self.queue();
        if queue.close_reason.is_some() {
            return Err(OutboxClosed);
        }
        for frame in frames {
            let cost = frame.charged_bytes();
            // An empty queue accepts a frame of any size.
            if queue.bytes > 0 && queue.bytes + cost > self.0.limit {
                drop(queue);
                self.close_as_too_slow();
                return Err(OutboxClosed);
            }
            self.put(&mut queue, frame.clone(), cost);
        }
        drop(queue);
        if !frames.is_empty() {
            self.0.frames_added.notify_one();
        }
        Ok(())
    }

    /// Queues a frame once there is room. Half of the outbox is reserved for live frames.
    pub(crate) async fn send(&self, frame: EncodedFrame) -> Result<(), OutboxClosed> {
        let cost = frame.charged_bytes();
        self.with_room(|queue| self.put(queue, frame, cost)).await?;
        self.0.frames_added.notify_one();
        Ok(())
    }

    /// Waits until at most half of the outbox is used. If the common budget is half used, waits until the outbox is
    /// empty, so clients that request a history without reading it hold one frame each.
    pub(crate) async fn wait_for_room(&self) -> Result<(), OutboxClosed> {
        self.with_room(|_| ()).await
    }

    /// Waits for room and applies `uses` under the same lock.
    async fn with_room(&self, uses: impl FnOnce(&mut Queue)) -> Result<(), OutboxClosed> {
        loop {
            let emptied = self.0.frames_removed.notified();
            {
                let mut queue = self.queue();
                if queue.close_reason.is_some() {
                    return Err(OutboxClosed);
                }
                let bound = if self.0.budget.is_half_used() { 0 } else { self.0.limit / 2 };
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

    /// Closes the outbox because the client is too far behind.
    pub(crate) fn close_as_too_slow(&self) {
        self.0.budget.slow_observers.fetch_add(1, Ordering::Relaxed);
        self.close(
            CloseReason::new(close::TOO_SLOW, "too slow; reconnect with your cursor"),
            CloseMode::Discard,
        );
    }

    /// Closes the outbox. The first reason is kept.
    pub(crate) fn close(&self, close_reason: CloseReason, mode: CloseMode) {
        let mut queue = self.queue();
        if queue.close_reason.is_none() {
            queue.close_reason = Some(close_reason);
        }
        if mode == CloseMode::Discard {
            let dropped: usize =
                mem::take(&mut queue.frames).iter().map(EncodedFrame::charged_bytes).sum();
            self.release(&mut queue, dropped);
        }
        drop(queue);
        self.0.frames_added.notify_one();
        self.0.frames_removed.notify_waiters();
    }

    /// The reason if the outbox is closed.
    pub(crate) fn close_reason(&self) -> Option<CloseReason> {
        self.queue().close_reason.clone()
    }

    /// The bytes queued or taken but not sent.
    pub(crate) fn bytes(&self) -> usize {
        self.queue().bytes
    }

    fn release(&self, queue: &mut Queue, bytes: usize) {
        queue.bytes -= bytes;
        self.0.budget.used.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Takes the next frames to send. Only one writer may call it; the frames count until [`Outbox::mark_sent`].
    pub(crate) async fn next(&self) -> Result<Vec<EncodedFrame>, CloseReason> {
        loop {
            let filled = self.0.frames_added.notified();
            {
                let mut queue = self.queue();
                if !queue.frames.is_empty() {
                    return Ok(take_batch(&mut queue.frames));
                }
                if let Some(close_reason) = &queue.close_reason {
                    return Err(close_reason.clone());
                }
            }
            filled.await;
        }
    }

    /// Releases the bytes of frames that were handed to the transport.
    pub(crate) fn mark_sent(&self, frames: &[EncodedFrame]) {
        let bytes = frames.iter().map(EncodedFrame::charged_bytes).sum();
        let mut queue = self.queue();
        self.release(&mut queue, bytes);
        drop(queue);
        self.0.frames_removed.notify_waiters();
    }

    /// Waits until the outbox is closed.
    pub(crate) async fn wait_for_close(&self) -> CloseReason {
        loop {
            let emptied = self.0.frames_removed.notified();
            if let Some(close_reason) = self.close_reason() {
                return close_reason;
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
        bytes += frame.charged_bytes();
        bytes <= BATCH_BYTES
    };
    let count = frames.iter().take_while(fits).count().max(1);
    if count == frames.len() {
        // Takes the buffer too, so an idle outbox holds no memory.
        return mem::take(frames).into();
    }
    frames.drain(..count).collect()
}

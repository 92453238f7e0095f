//! The queue of appends: bounded, and at most one append of a session is with a worker at a time.

use std::{
    collections::{HashSet, VecDeque},
    sync::Mutex,
};

use budao_core::event::{Seq, SessionId};
use budao_journal::AppendError;
use tokio::sync::{Notify, oneshot};

use super::EncodedAppend;
use crate::connection::lock;

/// Appends that wait at most, and their size.
const WAITING: usize = 16 * 1024;
const WAITING_BYTES: usize = 256 << 20;
/// The largest group.
const GROUP: usize = 1024;
const GROUP_BYTES: usize = 4 << 20;

/// An append that waits for a worker, or is with one.
#[derive(Debug)]
pub(crate) struct QueuedAppend {
    number: u64,
    pub(super) append: EncodedAppend,
    pub(super) reply: oneshot::Sender<Result<Seq, AppendError>>,
}

#[derive(Debug, Default)]
struct QueueState {
    waiting: VecDeque<QueuedAppend>,
    bytes: usize,
    /// Sessions with an append at a worker.
    in_progress: HashSet<SessionId>,
    last_number: u64,
    is_closed: bool,
}

/// The appends of this process that wait.
#[derive(Debug, Default)]
pub(crate) struct AppendQueue {
    state: Mutex<QueueState>,
    ready: Notify,
}

impl AppendQueue {
    /// Adds an append. `None` if the queue is full or closed.
    pub(super) fn push(
        &self,
        append: EncodedAppend,
        reply: oneshot::Sender<Result<Seq, AppendError>>,
    ) -> Option<u64> {
        let mut state = lock(&self.state);
        let is_full = state.waiting.len() >= WAITING
            || (state.bytes + append.bytes > WAITING_BYTES && !state.waiting.is_empty());
        if state.is_closed || is_full {
            return None;
        }
        state.last_number += 1;
        let number = state.last_number;
        state.bytes += append.bytes;
        state.waiting.push_back(QueuedAppend { number, append, reply });
        drop(state);
        self.ready.notify_one();
        Some(number)
    }

    /// Removes an append that no worker has yet. Returns whether it was there.
    pub(super) fn remove(&self, number: u64) -> bool {
        let mut state = lock(&self.state);
        let Some(index) = state.waiting.iter().position(|queued| queued.number == number) else {
            return false;
        };
        let removed = state.waiting.remove(index);
        state.bytes -= removed.map_or(0, |queued| queued.append.bytes);
        true
    }

    /// The number of appends that wait.
    pub(crate) fn len(&self) -> usize {
        lock(&self.state).waiting.len()
    }

    pub(super) fn is_closed(&self) -> bool {
        lock(&self.state).is_closed
    }

    /// Refuses further appends; those that wait are still written.
    pub(crate) fn close(&self) {
        lock(&self.state).is_closed = true;
    }

    /// Whether nothing waits and no worker has an append.
    pub(crate) fn is_idle(&self) -> bool {
        let state = lock(&self.state);
        state.waiting.is_empty() && state.in_progress.is_empty()
    }

    /// Waits for appends and takes those that may go together.
    pub(super) async fn take_group(&self) -> Vec<QueuedAppend> {
        loop {
            let notified = self.ready.notified();
            let group = self.try_take();
            if !group.is_empty() {
                return group;
            }
            notified.await;
        }
    }

    fn try_take(&self) -> Vec<QueuedAppend> {
        let mut state = lock(&self.state);
        let (mut group, mut left) = (Vec::new(), VecDeque::new());
        let (mut bytes, mut is_more) = (0, false);
        while let Some(queued) = state.waiting.pop_front() {
            let is_taken = state.in_progress.contains(&queued.append.session);
            let is_full =
                group.len() >= GROUP || (bytes + queued.append.bytes > GROUP_BYTES && bytes > 0);
            if is_taken || is_full {
                is_more |= !is_taken;
                left.push_back(queued);
                continue;
            }
            bytes += queued.append.bytes;
            state.bytes -= queued.append.bytes;
            state.in_progress.insert(queued.append.session);
            group.push(queued);
        }
        state.waiting = left;
        drop(state);
        if is_more {
            self.ready.notify_one();
        }
        group
    }

    /// Lets the next appends of these sessions go.
    pub(super) fn finish(&self, sessions: impl IntoIterator<Item = SessionId>) {
        let mut state = lock(&self.state);
        for session in sessions {
            state.in_progress.remove(&session);
        }
        let is_more = !state.waiting.is_empty();
        drop(state);
        if is_more {
            self.ready.notify_one();
        }
    }
}

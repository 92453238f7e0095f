//! A request that waits at a gate, as its task sees it. Small: ten thousand may wait.

use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, Ordering},
};

use budao_core::gate::HoldReport;
use tokio::sync::Notify;

/// A message of a gate to a waiting request.
#[derive(Debug)]
pub(super) enum WaitUpdate {
    /// The request still waits.
    Report(Box<HoldReport>),
    /// The request may be made.
    Granted,
    /// The request is refused.
    Refused(Box<HoldReport>),
}

/// The latest update for one waiting request. An end replaces a report that was not read.
#[derive(Debug, Default)]
pub(super) struct Waiter {
    update: Mutex<Option<WaitUpdate>>,
    /// The request goes on to wait without this waiter's task.
    is_detached: AtomicBool,
    changed: Notify,
}

impl Waiter {
    pub(super) fn send(&self, update: WaitUpdate) {
        *self.lock() = Some(update);
        self.changed.notify_one();
    }

    /// Detaches the request from its task, unless the task has an update to take. Returns whether it did.
    pub(super) fn detach(&self) -> bool {
        let is_read = self.lock().is_none();
        self.is_detached.store(is_read, Ordering::SeqCst);
        is_read
    }

    pub(super) fn is_detached(&self) -> bool {
        self.is_detached.load(Ordering::SeqCst)
    }

    pub(super) fn is_granted(&self) -> bool {
        matches!(*self.lock(), Some(WaitUpdate::Granted))
    }

    pub(super) async fn next(&self) -> WaitUpdate {
        loop {
            if let Some(update) = self.lock().take() {
                return update;
            }
            self.changed.notified().await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<WaitUpdate>> {
        self.update.lock().expect("no code panics while holding this")
    }
}

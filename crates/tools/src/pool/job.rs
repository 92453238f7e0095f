//! A future that is polled on the pool's threads.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU8, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
};

use futures::future::BoxFuture;
use tokio::runtime::Runtime;

use super::ExhaustedResource;

const WAITING: u8 = 0;
const QUEUED: u8 = 1;
const POLLED: u8 = 2;
const POLLED_AND_WOKEN: u8 = 3;
const OVER: u8 = 4;

/// A future on the pool: queued when woken, and off the thread while it waits.
pub(super) struct PoolJob {
    future: Mutex<Option<BoxFuture<'static, ()>>>,
    state: AtomicU8,
    stopped: AtomicBool,
    /// Set before the first poll.
    begun: AtomicBool,
    threads: tokio::runtime::Handle,
}

impl PoolJob {
    pub(super) fn start(
        runtime: &Runtime,
        future: BoxFuture<'static, ()>,
    ) -> Result<Arc<Self>, ExhaustedResource> {
        let job = Arc::new(Self {
            future: Mutex::new(Some(future)),
            state: AtomicU8::new(QUEUED),
            stopped: AtomicBool::new(false),
            begun: AtomicBool::new(false),
            threads: runtime.handle().clone(),
        });
        // Tokio panics when it has no thread and can start none.
        let queued = catch_unwind(AssertUnwindSafe(|| job.clone().queue()));
        queued.map_err(ExhaustedResource::of_panic)?;
        Ok(job)
    }

    fn queue(self: Arc<Self>) {
        let threads = self.threads.clone();
        drop(threads.spawn_blocking(move || self.run()));
    }

    pub(super) fn stop(self: &Arc<Self>) {
        if self.state.load(Ordering::Acquire) != OVER {
            self.stopped.store(true, Ordering::Release);
            self.clone().wake();
        }
    }

    /// Stops a future that was never polled. Returns whether it never will be.
    pub(super) fn stop_unless_begun(&self) -> bool {
        if self.begun.load(Ordering::SeqCst) {
            return false;
        }
        // `run` marks the beginning before it looks for a stop, so one of the two sees the other.
        self.stopped.store(true, Ordering::SeqCst);
        !self.begun.load(Ordering::SeqCst)
    }

    /// Polls until the future is pending or finished.
    fn run(self: Arc<Self>) {
        let waker = Waker::from(self.clone());
        let mut context = Context::from_waker(&waker);
        let mut slot = self.future.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        self.begun.store(true, Ordering::SeqCst);
        loop {
            self.state.store(POLLED, Ordering::Release);
            let Some(future) = slot.as_mut() else { return };
            let over = self.stopped.load(Ordering::SeqCst) || {
                // The future catches panics of the work; this catches bugs in the pool itself.
                let polled = catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(&mut context)));
                !matches!(polled, Ok(Poll::Pending))
            };
            if over {
                self.state.store(OVER, Ordering::Release);
                *slot = None;
                return;
            }
            let waits =
                self.state.compare_exchange(POLLED, WAITING, Ordering::AcqRel, Ordering::Acquire);
            if waits.is_ok() {
                return;
            }
        }
    }
}

impl Wake for PoolJob {
    fn wake(self: Arc<Self>) {
        let next = |state| match state {
            WAITING => Some(QUEUED),
            POLLED => Some(POLLED_AND_WOKEN),
            _ => None,
        };
        let changed = self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, next);
        if changed == Ok(WAITING) {
            self.queue();
        }
    }
}

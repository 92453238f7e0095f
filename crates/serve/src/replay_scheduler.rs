//! Limits the CPU share of history replays.
//!
//! Any client can request a history repeatedly, and each replay costs CPU time. Duty-cycle limiter: after reading a
//! piece for `t`, a replay slot stays idle for a multiple of `t`, so live frames are not delayed. Clients above their
//! allowance (per connection and per tenant) use a separate queue with one slot that idles much longer.

use std::{
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use budao_core::{Timestamp, world::Clock};
use tokio::sync::{Semaphore, SemaphorePermit};

/// Slots for clients within their allowance. Together they use about one core; a single client always finds an idle
/// slot. `idle_max` bounds the idle time when a busy machine makes reads slow.
const LIGHT_SHARE: Share = Share { slots: 5, idle_factor: 3, idle_max: Duration::from_millis(2) };
/// The slot for clients above their allowance: about 5 % of a core.
const HEAVY_SHARE: Share =
    Share { slots: 1, idle_factor: 19, idle_max: Duration::from_millis(100) };

/// The CPU share of a queue.
#[derive(Clone, Copy, Debug)]
struct Share {
    slots: usize,
    /// Idle time as a multiple of the reading time.
    idle_factor: u32,
    /// Upper bound of the idle time, also after a jump of the clock.
    idle_max: Duration,
}

/// A client's recent replay volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReplayUsage {
    /// Within the allowance of its connection and tenant.
    Light,
    /// Above one of the allowances.
    Heavy,
}

/// Grants replay slots.
#[derive(Debug)]
pub(crate) struct ReplayScheduler {
    clock: Arc<dyn Clock>,
    light: SlotQueue,
    heavy: SlotQueue,
}

impl ReplayScheduler {
    pub(crate) fn new(clock: &Arc<dyn Clock>) -> Self {
        let now = clock.now();
        Self {
            clock: Arc::clone(clock),
            light: SlotQueue::new(LIGHT_SHARE, now),
            heavy: SlotQueue::new(HEAVY_SHARE, now),
        }
    }

    /// Waits for a slot. The permit must not be held while waiting for a client.
    pub(crate) async fn acquire(&self, usage: ReplayUsage) -> ReplayPermit<'_> {
        let queue = match usage {
            ReplayUsage::Light => &self.light,
            ReplayUsage::Heavy => &self.heavy,
        };
        let slot = queue.permits.acquire().await.expect("the semaphore is never closed");
        let idle_until = queue.take_slot();
        let mut permit =
            ReplayPermit { queue, clock: &*self.clock, idle_until, began: None, _slot: slot };
        let wait = idle_until.since(self.clock.now());
        if wait > Duration::ZERO {
            self.clock.sleep(wait.min(queue.share.idle_max)).await;
        }
        permit.began = Some(self.clock.now());
        permit
    }
}

/// A queue for the slots of one share.
#[derive(Debug)]
struct SlotQueue {
    permits: Semaphore,
    /// The end of the idle time of each free slot.
    idle_until: Mutex<Vec<Timestamp>>,
    share: Share,
}

impl SlotQueue {
    fn new(share: Share, now: Timestamp) -> Self {
        let idle_until = Mutex::new(vec![now; share.slots]);
        Self { permits: Semaphore::new(share.slots), idle_until, share }
    }

    fn idle_until(&self) -> MutexGuard<'_, Vec<Timestamp>> {
        self.idle_until.lock().expect("no code panics while holding this")
    }

    /// Takes the free slot whose idle time ends first.
    fn take_slot(&self) -> Timestamp {
        let mut idle_until = self.idle_until();
        let first = (0..idle_until.len()).min_by_key(|index| idle_until[*index]);
        first.map_or_else(Timestamp::default, |index| idle_until.swap_remove(index))
    }
}

/// A replay slot. Dropping it starts the slot's idle time, even after an aborted read.
#[derive(Debug)]
pub(crate) struct ReplayPermit<'a> {
    queue: &'a SlotQueue,
    clock: &'a dyn Clock,
    idle_until: Timestamp,
    began: Option<Timestamp>,
    /// Released after `drop` has recorded the idle time.
    _slot: SemaphorePermit<'a>,
}

impl Drop for ReplayPermit<'_> {
    fn drop(&mut self) {
        let now = self.clock.now();
        let idle_until = match self.began {
            None => self.idle_until,
            Some(began) => {
                let Share { idle_factor, idle_max, .. } = self.queue.share;
                now.after(now.since(began).saturating_mul(idle_factor).min(idle_max))
            }
        };
        self.queue.idle_until().push(idle_until);
    }
}

#[cfg(test)]
mod tests {
    use futures::{FutureExt as _, future::BoxFuture};
    use tokio::time::Instant;

    use super::*;

    /// Tokio's paused time: it advances only when all tasks wait.
    #[derive(Debug)]
    struct PausedClock(Instant);

    impl Clock for PausedClock {
        fn now(&self) -> Timestamp {
            Timestamp::from_micros(1_000_000_000_000).after(self.0.elapsed())
        }

        fn sleep(&self, wait: Duration) -> BoxFuture<'static, ()> {
            Box::pin(tokio::time::sleep(wait))
        }
    }

    fn replays() -> ReplayScheduler {
        let clock: Arc<dyn Clock> = Arc::new(PausedClock(Instant::now()));
        ReplayScheduler::new(&clock)
    }

    const PIECE: Duration = Duration::from_millis(1);

    /// Reads this many pieces in sequence and returns the time taken.
    async fn read(replays: &ReplayScheduler, usage: ReplayUsage, pieces: u32) -> Duration {
        let began = Instant::now();
        for _ in 0..pieces {
            let _turn = replays.acquire(usage).await;
            tokio::time::sleep(PIECE).await;
        }
        began.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn a_light_replay_does_not_wait() {
        assert_eq!(read(&replays(), ReplayUsage::Light, 1000).await, PIECE * 1000);
    }

    #[tokio::test(start_paused = true)]
    async fn heavy_replays_leave_nineteen_twentieths_of_the_time_to_others() {
        let replays = replays();
        let crowd = (0..20).map(|_| read(&replays, ReplayUsage::Heavy, 5));
        let slowest = futures::future::join_all(crowd).await.into_iter().max().unwrap();
        assert!(slowest >= PIECE * (99 * 20), "{slowest:?} for 100 pieces");
        assert!(slowest <= PIECE * (101 * 20), "{slowest:?} for 100 pieces");
    }

    #[tokio::test(start_paused = true)]
    async fn a_light_replay_does_not_queue_behind_heavy_ones() {
        let replays = replays();
        let crowd =
            futures::future::join_all((0..1000).map(|_| read(&replays, ReplayUsage::Heavy, 5)));
        let honest = async {
            tokio::task::yield_now().await;
            read(&replays, ReplayUsage::Light, 10).await
        };
        tokio::select! {
            biased;
            _ = crowd => panic!("the heavy replays were served first"),
            took = honest => assert_eq!(took, PIECE * 10),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_leaves_does_not_shorten_the_idle_time_of_its_slot() {
        let replays = replays();
        let permit = replays.acquire(ReplayUsage::Heavy).await;
        tokio::time::sleep(PIECE).await;
        drop(permit);
        for _ in 0..3 {
            let left = replays.acquire(ReplayUsage::Heavy).now_or_never();
            assert!(left.is_none(), "the slot is still idle");
        }
        let began = Instant::now();
        drop(replays.acquire(ReplayUsage::Heavy).await);
        assert_eq!(began.elapsed(), PIECE * 19);
    }

    #[tokio::test(start_paused = true)]
    async fn the_idle_time_after_a_long_read_is_bounded() {
        let replays = replays();
        let permit = replays.acquire(ReplayUsage::Heavy).await;
        tokio::time::sleep(Duration::from_secs(60)).await;
        drop(permit);
        let began = Instant::now();
        drop(replays.acquire(ReplayUsage::Heavy).await);
        assert_eq!(began.elapsed(), HEAVY_SHARE.idle_max);
    }
}

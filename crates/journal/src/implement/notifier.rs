//! Wakes followers, writers and waiting callers inside this process.
//!
//! A slot exists only while a session has a subscription, so idle sessions cost nothing. The slot caches the last
//! batches: a follower that keeps up reads no recent record from the disk.

use std::{
    collections::{HashMap, VecDeque},
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak,
        atomic::{AtomicU64, Ordering},
    },
};

use budao_core::event::{Seq, SessionId};
use tokio::sync::Notify;

use crate::contract::{CachedEvent, StoredRecord};

/// Cache bound of a subscribed session: enough for followers that keep up.
const LIVE_CACHE: CacheLimits = CacheLimits { records: 64, bytes: 64 * 1024 };
/// Cache bound while a follower is behind: several batches of a busy session, so that a short delay causes no disk
/// read.
const CATCH_UP_CACHE: CacheLimits = CacheLimits { records: 1024, bytes: 1024 * 1024 };

/// Cache bound of a session whose only follower has caught up.
const NO_CACHE: CacheLimits = CacheLimits { records: 0, bytes: 0 };

/// Encoded size up to which the newest batches keep their decoded events, for a follower that is a few batches behind.
const DECODED_BYTES: usize = 16 * 1024;

/// The size limits of a cache.
#[derive(Clone, Copy)]
struct CacheLimits {
    records: usize,
    bytes: usize,
}

/// The slots of all subscribed sessions of a journal.
#[derive(Default)]
pub struct Notifier {
    slots: Mutex<HashMap<SessionId, Weak<Slot>>>,
    on_subscribe: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl fmt::Debug for Notifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Notifier").field("slots", &lock(&self.slots).len()).finish()
    }
}

/// The signals and the cache of one subscribed session.
struct Slot {
    session: SessionId,
    notifier: Weak<Notifier>,
    records: ChangeSignal,
    inbox: ChangeSignal,
    answers: ChangeSignal,
    recent: Mutex<RecentRecords>,
}

/// A repeatable notification with a counter. Much smaller than a watch channel; every subscribed session has three.
#[derive(Default)]
struct ChangeSignal {
    count: AtomicU64,
    notify: Notify,
}

impl ChangeSignal {
    fn count(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }

    fn signal(&self) {
        self.count.fetch_add(1, Ordering::AcqRel);
        self.notify.notify_waiters();
    }

    /// Waits until the counter differs from `seen`, then updates `seen`.
    async fn wait_for_change(&self, seen: &mut u64) {
        loop {
            // The order matters: `notified` registers first, so no signal between it and the count is lost.
            let notified = self.notify.notified();
            let count = self.count();
            if count != *seen {
                *seen = count;
                return;
            }
            notified.await;
        }
    }
}

/// A subscription to the changes of one session.
///
/// Most implementers need only [`super::follow()`], which reads and marks positions by itself.
pub struct Subscription {
    slot: Arc<Slot>,
    /// The counter of each signal when this subscription last checked it.
    records: u64,
    inbox: u64,
    answers: u64,
}

impl fmt::Debug for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscription").field("session", &self.slot.session).finish_non_exhaustive()
    }
}

impl Notifier {
    /// Sets the callback that runs after every new subscription.
    pub fn on_subscribe(&self, wake: Box<dyn Fn() + Send + Sync>) {
        // Only the first call takes effect; a second one would be a bug.
        let _ = self.on_subscribe.set(wake);
    }

    /// Subscribes to a session. The subscription receives everything announced from now on.
    pub fn subscribe(self: &Arc<Self>, session: SessionId) -> Subscription {
        let slot = {
            let mut slots = lock(&self.slots);
            let known = slots.get(&session).and_then(Weak::upgrade);
            known.unwrap_or_else(|| {
                let slot = Arc::new(Slot {
                    session,
                    notifier: Arc::downgrade(self),
                    records: ChangeSignal::default(),
                    inbox: ChangeSignal::default(),
                    answers: ChangeSignal::default(),
                    recent: Mutex::default(),
                });
                slots.insert(session, Arc::downgrade(&slot));
                slot
            })
        };
        if let Some(wake) = self.on_subscribe.get() {
            wake();
        }
        Subscription {
            records: slot.records.count(),
            inbox: slot.inbox.count(),
            answers: slot.answers.count(),
            slot,
        }
    }

    /// Whether no session has a subscription.
    pub fn is_idle(&self) -> bool {
        lock(&self.slots).is_empty()
    }

    /// Whether this session has a subscription.
    pub fn has_subscribers(&self, session: SessionId) -> bool {
        lock(&self.slots).contains_key(&session)
    }

    /// The sessions with a subscription.
    pub fn subscribed_sessions(&self) -> Vec<SessionId> {
        lock(&self.slots).keys().copied().collect()
    }

    /// Announces durable records to the session's subscriptions. An empty `batch` announces only a new head.
    pub fn announce_records(&self, session: SessionId, head: Seq, batch: Vec<StoredRecord>) {
        if let Some(slot) = self.slot(session) {
            let is_news = lock(&slot.recent).push(head, batch);
            if is_news {
                slot.records.signal();
            }
        }
    }

    /// Announces that records were removed or replaced, or the session was deleted. Clears the cache.
    pub fn announce_history_change(&self, session: SessionId) {
        if let Some(slot) = self.slot(session) {
            lock(&slot.recent).reset();
            slot.records.signal();
            slot.answers.signal();
            slot.inbox.signal();
        }
    }

    /// Makes every subscription of a session read the journal again.
    pub fn wake_all(&self, session: SessionId) {
        if let Some(slot) = self.slot(session) {
            lock(&slot.recent).reread_requests += 1;
            slot.records.signal();
            slot.inbox.signal();
            slot.answers.signal();
        }
    }

    /// Announces a new command in the inbox.
    pub fn announce_command(&self, session: SessionId) {
        if let Some(slot) = self.slot(session) {
            slot.inbox.signal();
        }
    }

    /// Announces a new answer to a command.
    pub fn announce_answer(&self, session: SessionId) {
        if let Some(slot) = self.slot(session) {
            slot.answers.signal();
        }
    }

    /// Makes every subscription of every session check for answers.
    pub fn announce_all_answers(&self) {
        // The slots are collected first: dropping the last reference to a slot takes the same lock.
        let slots: Vec<Arc<Slot>> = lock(&self.slots).values().filter_map(Weak::upgrade).collect();
        for slot in slots {
            slot.answers.signal();
        }
    }

    fn slot(&self, session: SessionId) -> Option<Arc<Slot>> {
        lock(&self.slots).get(&session).and_then(Weak::upgrade)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let Some(notifier) = self.notifier.upgrade() else { return };
        let mut slots = lock(&notifier.slots);
        // A new subscription may have replaced the slot since the last one was dropped.
        if slots.get(&self.session).is_some_and(|slot| slot.strong_count() == 0) {
            slots.remove(&self.session);
        }
    }
}

impl Subscription {
    /// Waits until records were announced since the last call.
    pub async fn wait_for_record_change(&mut self) {
        self.slot.records.wait_for_change(&mut self.records).await;
    }

    /// Marks all announcements so far as seen. A read after this call is at least as new as they are.
    pub fn mark_records_seen(&mut self) {
        self.records = self.slot.records.count();
    }

    /// Waits until a command was announced since the last call.
    pub async fn wait_for_inbox_change(&mut self) {
        self.slot.inbox.wait_for_change(&mut self.inbox).await;
    }

    /// Waits until an answer was announced since the last call.
    pub async fn wait_for_answer_change(&mut self) {
        self.slot.answers.wait_for_change(&mut self.answers).await;
    }

    /// The records after a position, if the cache holds them.
    pub fn cached_after(&self, after: Seq) -> Option<Vec<StoredRecord>> {
        lock(&self.slot.recent).records_after(after)
    }

    /// Registers a follower: the cache keeps the records that it has not received yet.
    pub fn register_follower(&self) {
        lock(&self.slot.recent).followers += 1;
    }

    /// Unregisters a follower and shrinks the cache.
    pub fn unregister_follower(&self) {
        let mut recent = lock(&self.slot.recent);
        recent.followers = recent.followers.saturating_sub(1);
        recent.evict_to(LIVE_CACHE);
        recent.strip_to(0);
    }

    /// Whether `after` is the last record known to this process. If so, the cache is shrunk under the same lock, so
    /// that records announced meanwhile stay in it.
    pub fn has_caught_up(&self, after: Seq) -> bool {
        let mut recent = lock(&self.slot.recent);
        let is_at_head = recent.is_at_head(after);
        if is_at_head {
            let is_only_follower = recent.followers <= 1;
            recent.evict_to(if is_only_follower { NO_CACHE } else { LIVE_CACHE });
            recent.strip_to(0);
        }
        is_at_head
    }

    /// The number of [`Notifier::wake_all`] calls so far. Read it before the journal and pass it to
    /// [`Subscription::mark_reread`].
    pub fn reread_requests(&self) -> u64 {
        lock(&self.slot.recent).reread_requests
    }

    /// Reports that the journal was read up to `head`. Wake-ups counted in `reread_requests` need no further read.
    pub fn mark_reread(&self, reread_requests: u64, head: Seq) {
        let mut recent = lock(&self.slot.recent);
        recent.known_head = recent.known_head.max(head);
        if recent.reread_requests == reread_requests {
            recent.rereads_done = reread_requests;
        }
    }
}

/// The cached batches of a session, consecutive.
#[derive(Default)]
struct RecentRecords {
    batches: VecDeque<Vec<StoredRecord>>,
    records: usize,
    bytes: usize,
    /// The number of newest batches that have decoded events, and their encoded size.
    decoded: usize,
    decoded_bytes: usize,
    /// The last record announced, cached or not.
    last: Option<Seq>,
    followers: usize,
    /// The highest head that the subscriptions were woken for.
    announced: Seq,
    /// The highest head known; beyond this process's records when another process writes.
    known_head: Seq,
    /// The number of requests to read the journal again, and how many of those a later read has covered.
    reread_requests: u64,
    rereads_done: u64,
}

impl RecentRecords {
    fn is_at_head(&self, after: Seq) -> bool {
        self.rereads_done == self.reread_requests
            && self.known_head == after
            && self.last == Some(after)
    }

    /// Empties the cache and forgets the head; the next follower reads the journal.
    fn reset(&mut self) {
        self.clear();
        self.known_head = 0;
        self.announced = 0;
        self.reread_requests += 1;
    }

    fn clear(&mut self) {
        self.batches.clear();
        self.last = None;
        self.records = 0;
        self.bytes = 0;
        self.decoded = 0;
        self.decoded_bytes = 0;
    }

    /// Adds a batch. Returns whether its head is new.
    fn push(&mut self, head: Seq, batch: Vec<StoredRecord>) -> bool {
        let is_news = head > self.announced;
        self.announced = self.announced.max(head);
        self.known_head = self.known_head.max(head);
        self.add_for_followers(batch);
        is_news
    }

    fn add_for_followers(&mut self, batch: Vec<StoredRecord>) {
        let Some(first) = batch.first() else { return };
        let before = self.batches.back().and_then(|batch| batch.last());
        if before.is_some_and(|last| last.seq + 1 != first.seq || last.epoch != first.epoch) {
            self.clear();
        }
        self.add(batch);
        self.evict_to(if self.followers > 0 { CATCH_UP_CACHE } else { LIVE_CACHE });
    }

    fn evict_to(&mut self, bound: CacheLimits) {
        while self.records > bound.records || self.bytes > bound.bytes {
            let Some(oldest) = self.batches.pop_front() else { break };
            self.records -= oldest.len();
            self.bytes -= body_bytes(&oldest);
            if self.decoded > self.batches.len() {
                self.decoded -= 1;
                self.decoded_bytes -= body_bytes(&oldest);
            }
        }
    }

    /// Drops decoded events of the oldest batches until the others fit. The newest batch keeps its events: a follower
    /// that keeps up has not read it yet.
    fn strip_to(&mut self, bytes: usize) {
        while self.decoded > 1 && self.decoded_bytes > bytes {
            let oldest = self.batches.len() - self.decoded;
            let Some(batch) = self.batches.get_mut(oldest) else { break };
            batch.iter_mut().for_each(|record| record.cached_event = CachedEvent::default());
            self.decoded -= 1;
            self.decoded_bytes -= body_bytes(batch);
        }
    }

    fn add(&mut self, batch: Vec<StoredRecord>) {
        let bytes = body_bytes(&batch);
        self.last = batch.last().map(|last| last.seq);
        self.records += batch.len();
        self.bytes += bytes;
        self.decoded += 1;
        self.decoded_bytes += bytes;
        self.batches.push_back(batch);
        self.strip_to(DECODED_BYTES);
    }

    fn records_after(&self, after: Seq) -> Option<Vec<StoredRecord>> {
        let first = self.batches.front()?.first()?.seq;
        let last = self.batches.back()?.last()?.seq;
        if after + 1 < first || after >= last {
            return None;
        }
        let known = |batch: &Vec<StoredRecord>| batch.last().is_some_and(|last| last.seq <= after);
        let from = self.batches.partition_point(known);
        let wanted = self.batches.range(from..).flatten().filter(|record| record.seq > after);
        let mut records = Vec::with_capacity(usize::try_from(last - after).unwrap_or_default());
        records.extend(wanted.cloned());
        Some(records)
    }
}

fn body_bytes(batch: &[StoredRecord]) -> usize {
    batch.iter().map(|record| record.body.len()).sum()
}

/// Locks a mutex even if it is poisoned: the guarded data is consistent after every statement.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use budao_core::{
        event::{Epoch, Event},
        time::Timestamp,
        trace::Trace,
    };
    use futures::FutureExt as _;

    use super::*;

    const ID: SessionId = SessionId(uuid::Uuid::nil());

    fn stored(seq: Seq) -> StoredRecord {
        let (at, trace, body) = (Timestamp::default(), Trace::NONE, Vec::new().into());
        let cached_event = CachedEvent::default();
        StoredRecord { session: ID, epoch: Epoch(1), seq, at, trace, turn: 0, body, cached_event }
    }

    /// The same seed must give the same bytes; a `watch` channel wakes its receivers in random order.
    #[tokio::test]
    async fn the_notifier_wakes_subscriptions_in_the_order_of_their_waits() {
        let notifier = Arc::new(Notifier::default());
        let woken = Arc::new(Mutex::new(Vec::new()));
        let waiting: Vec<_> = (0..20)
            .map(|number| {
                let (mut subscription, woken) = (notifier.subscribe(ID), Arc::clone(&woken));
                tokio::spawn(async move {
                    subscription.wait_for_answer_change().await;
                    lock(&woken).push(number);
                })
            })
            .collect();
        tokio::task::yield_now().await;
        notifier.announce_answer(ID);
        for one in waiting {
            one.await.unwrap();
        }
        assert_eq!(*lock(&woken), (0..20).collect::<Vec<_>>());
    }

    #[test]
    fn a_subscription_with_all_announced_records_has_caught_up() {
        let notifier = Arc::new(Notifier::default());
        let subscription = notifier.subscribe(ID);
        assert!(!subscription.has_caught_up(0), "nothing was announced yet");
        notifier.announce_records(ID, 2, vec![stored(1), stored(2)]);
        assert!(subscription.has_caught_up(2));
        assert!(!subscription.has_caught_up(1), "one record behind");
    }

    #[test]
    fn the_notifier_caches_records_until_the_last_follower_has_them() {
        let notifier = Arc::new(Notifier::default());
        let subscription = notifier.subscribe(ID);
        let many = |from: Seq| (from..from + 200).map(stored).collect::<Vec<_>>();
        subscription.register_follower();
        notifier.announce_records(ID, 200, many(1));
        notifier.announce_records(ID, 400, many(201));
        assert_eq!(subscription.cached_after(0).map(|batch| batch.len()), Some(400));
        assert_eq!(subscription.cached_after(250).map(|batch| batch.len()), Some(150));
        assert!(
            !subscription.has_caught_up(399) && subscription.cached_after(399).is_some(),
            "the follower is behind, so the records stay cached"
        );
        assert!(
            subscription.has_caught_up(400) && subscription.cached_after(399).is_none(),
            "the follower has all records, so none stay cached"
        );
        subscription.unregister_follower();
        notifier.announce_records(ID, 600, many(401));
        assert!(subscription.cached_after(400).is_none(), "without followers no record is cached");
    }

    /// Method: the bodies cannot be decoded, so only a cached event is readable.
    #[test]
    fn the_newest_batches_keep_decoded_events_until_a_follower_has_caught_up() {
        let notifier = Arc::new(Notifier::default());
        let subscription = notifier.subscribe(ID);
        let event = Arc::new(Event::Annotated { topic: "t".into(), data: 1.into() });
        let body = bytes::Bytes::from(vec![b'x'; DECODED_BYTES / 2]);
        let announce = |seq| {
            let cached_event = CachedEvent::of(&event);
            let record = StoredRecord { body: body.clone(), cached_event, ..stored(seq) };
            notifier.announce_records(ID, seq, vec![record]);
        };
        let decoded = |after| {
            let records = subscription.cached_after(after).unwrap();
            records.iter().filter(|record| record.shared_event().is_ok()).count()
        };
        (1..=3).for_each(announce);
        assert_eq!(decoded(0), 2, "as many as fit");
        subscription.register_follower();
        let other = notifier.subscribe(ID);
        other.register_follower();
        assert!(subscription.has_caught_up(3));
        assert_eq!(decoded(0), 1, "an idle session keeps those of its newest batch");
        announce(4);
        assert_eq!(decoded(0), 2, "of the two newest batches");
    }

    #[tokio::test]
    async fn a_reread_of_one_subscription_does_not_hide_records_from_another() {
        let notifier = Arc::new(Notifier::default());
        let (early, mut late) = (notifier.subscribe(ID), notifier.subscribe(ID));
        early.mark_reread(early.reread_requests(), 2);
        notifier.announce_records(ID, 2, vec![stored(1), stored(2)]);
        assert!(late.wait_for_record_change().now_or_never().is_some());
        assert!(
            late.wait_for_record_change().now_or_never().is_none(),
            "one announcement wakes it once"
        );
        notifier.announce_records(ID, 2, Vec::new());
        assert!(
            late.wait_for_record_change().now_or_never().is_none(),
            "an announcement that it already has does not wake it"
        );
        late.mark_records_seen();
        notifier.announce_history_change(ID);
        assert!(late.wait_for_record_change().now_or_never().is_some());
    }

    #[test]
    fn a_subscription_rereads_after_records_of_another_writer() {
        let notifier = Arc::new(Notifier::default());
        let subscription = notifier.subscribe(ID);
        notifier.announce_records(ID, 4, Vec::new());
        // The writer of this process announces an older batch late.
        notifier.announce_records(ID, 2, vec![stored(1), stored(2)]);
        assert!(!subscription.has_caught_up(2));
    }

    #[test]
    fn a_wake_up_makes_a_subscription_reread_once() {
        let notifier = Arc::new(Notifier::default());
        let subscription = notifier.subscribe(ID);
        notifier.announce_records(ID, 2, vec![stored(1), stored(2)]);
        let before = subscription.reread_requests();
        notifier.wake_all(ID);
        subscription.mark_reread(before, 2);
        assert!(!subscription.has_caught_up(2), "the read began before the announcement");
        subscription.mark_reread(subscription.reread_requests(), 2);
        assert!(subscription.has_caught_up(2));
        notifier.announce_history_change(ID);
        notifier.announce_records(ID, 2, vec![stored(1), stored(2)]);
        assert!(!subscription.has_caught_up(2), "announcements from before the change are void");
    }
}

//! Wakes followers, writers and waiters inside this process.
//!
//! A slot exists only while somebody listens to its session, so idle sessions cost nothing. It keeps the
//! last few batches: a follower that keeps up never asks the disk for what was just written.

use std::{
    collections::{HashMap, VecDeque},
    fmt,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak},
};

use budao_core::event::{Seq, SessionId};
use tokio::sync::watch;

use crate::contract::{Fresh, Stored};

/// Kept for each session somebody listens to: enough for whoever keeps up, little beside the session itself.
const RECENT: Bound = Bound { records: 64, bytes: 64 * 1024 };
/// Kept while somebody follows and has not caught up: several rounds of a busy session, so that being late for
/// a moment does not mean to read from the disk.
const BEHIND: Bound = Bound { records: 1024, bytes: 1024 * 1024 };

/// How much is kept.
#[derive(Clone, Copy)]
struct Bound {
    records: usize,
    bytes: usize,
}

/// All slots of a journal.
#[derive(Default)]
pub(crate) struct Bell {
    slots: Mutex<HashMap<SessionId, Weak<Slot>>>,
    on_listen: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl fmt::Debug for Bell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bell").field("slots", &lock(&self.slots).len()).finish()
    }
}

/// What is known of a session somebody listens to.
struct Slot {
    session: SessionId,
    bell: Weak<Bell>,
    records: watch::Sender<Seq>,
    inbox: watch::Sender<u64>,
    answers: watch::Sender<u64>,
    recent: Mutex<Recent>,
}

/// Listens to one session.
pub(crate) struct Ear {
    slot: Arc<Slot>,
    records: watch::Receiver<Seq>,
    inbox: watch::Receiver<u64>,
    answers: watch::Receiver<u64>,
}

impl fmt::Debug for Ear {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ear").field("session", &self.slot.session).finish_non_exhaustive()
    }
}

impl Bell {
    /// Has `wake` called whenever somebody begins to listen.
    pub(crate) fn on_listen(&self, wake: Box<dyn Fn() + Send + Sync>) {
        // A second call would be a mistake of ours; the first one stays.
        let _ = self.on_listen.set(wake);
    }

    /// Begins to listen. Everything announced from now on is heard.
    pub(crate) fn listen(self: &Arc<Self>, session: SessionId) -> Ear {
        let slot = {
            let mut slots = lock(&self.slots);
            let known = slots.get(&session).and_then(Weak::upgrade);
            known.unwrap_or_else(|| {
                let slot = Arc::new(Slot {
                    session,
                    bell: Arc::downgrade(self),
                    records: watch::Sender::new(0),
                    inbox: watch::Sender::new(0),
                    answers: watch::Sender::new(0),
                    recent: Mutex::default(),
                });
                slots.insert(session, Arc::downgrade(&slot));
                slot
            })
        };
        if let Some(wake) = self.on_listen.get() {
            wake();
        }
        Ear {
            records: slot.records.subscribe(),
            inbox: slot.inbox.subscribe(),
            answers: slot.answers.subscribe(),
            slot,
        }
    }

    /// Is anybody listening to anything?
    pub(crate) fn is_silent(&self) -> bool {
        lock(&self.slots).is_empty()
    }

    /// Does anybody listen to this session?
    pub(crate) fn is_heard(&self, session: SessionId) -> bool {
        lock(&self.slots).contains_key(&session)
    }

    /// The sessions somebody listens to.
    pub(crate) fn heard(&self) -> Vec<SessionId> {
        lock(&self.slots).keys().copied().collect()
    }

    /// Tells of records that became durable; `batch` may be empty when only the head is known.
    pub(crate) fn records(&self, session: SessionId, head: Seq, batch: Vec<Stored>) {
        if let Some(slot) = self.slot(session) {
            lock(&slot.recent).push(head, batch);
            slot.records.send_if_modified(|known| {
                let is_news = head > *known;
                *known = head.max(*known);
                is_news
            });
        }
    }

    /// Tells that the history is not what it was: records removed, replaced or deleted.
    pub(crate) fn history_changed(&self, session: SessionId) {
        if let Some(slot) = self.slot(session) {
            lock(&slot.recent).forget();
            slot.records.send_modify(|known| *known = 0);
            slot.answers.send_modify(|count| *count += 1);
            slot.inbox.send_modify(|count| *count += 1);
        }
    }

    /// Has everybody look again, whatever they know.
    pub(crate) fn poke(&self, session: SessionId) {
        if let Some(slot) = self.slot(session) {
            lock(&slot.recent).pokes += 1;
            slot.records.send_modify(|_| ());
            slot.inbox.send_modify(|count| *count += 1);
            slot.answers.send_modify(|count| *count += 1);
        }
    }

    /// Tells of a command.
    pub(crate) fn command(&self, session: SessionId) {
        if let Some(slot) = self.slot(session) {
            slot.inbox.send_modify(|count| *count += 1);
        }
    }

    /// Tells of an answer.
    pub(crate) fn answered(&self, session: SessionId) {
        if let Some(slot) = self.slot(session) {
            slot.answers.send_modify(|count| *count += 1);
        }
    }

    /// Has everybody look for their answers.
    pub(crate) fn all_answered(&self) {
        // Taken out first: a slot that is dropped while we hold the lock would want it too.
        let slots: Vec<Arc<Slot>> = lock(&self.slots).values().filter_map(Weak::upgrade).collect();
        for slot in slots {
            slot.answers.send_modify(|count| *count += 1);
        }
    }

    fn slot(&self, session: SessionId) -> Option<Arc<Slot>> {
        lock(&self.slots).get(&session).and_then(Weak::upgrade)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let Some(bell) = self.bell.upgrade() else { return };
        let mut slots = lock(&bell.slots);
        // Somebody may have begun to listen anew between our last ear and now.
        if slots.get(&self.session).is_some_and(|slot| slot.strong_count() == 0) {
            slots.remove(&self.session);
        }
    }
}

impl Ear {
    pub(crate) async fn records_changed(&mut self) {
        // The sender lives in our own slot, so it cannot be gone.
        let _ = self.records.changed().await;
    }

    /// Whatever is read from now on is at least as new as this moment.
    pub(crate) fn mark_records_seen(&mut self) {
        self.records.mark_unchanged();
    }

    pub(crate) async fn inbox_changed(&mut self) {
        let _ = self.inbox.changed().await;
    }

    pub(crate) async fn answers_changed(&mut self) {
        let _ = self.answers.changed().await;
    }

    /// The records after a position, if they are among the last few.
    pub(crate) fn recent(&self, after: Seq) -> Option<Vec<Stored>> {
        lock(&self.slot.recent).after(after)
    }

    /// Somebody follows from now on: what it has not got yet is kept for it.
    pub(crate) fn begin_to_follow(&self) {
        lock(&self.slot.recent).followers += 1;
    }

    /// One less follows.
    pub(crate) fn end_following(&self) {
        let mut recent = lock(&self.slot.recent);
        recent.followers = recent.followers.saturating_sub(1);
        recent.keep_only(RECENT);
    }

    /// Whoever follows has everything: what was kept for it is let go.
    pub(crate) fn caught_up(&self) {
        lock(&self.slot.recent).keep_only(RECENT);
    }

    /// Is this the last record, as far as this process was told? What comes later is heard.
    pub(crate) fn is_at_head(&self, after: Seq) -> bool {
        let recent = lock(&self.slot.recent);
        recent.looked == recent.pokes && recent.told == after && recent.last == Some(after)
    }

    /// To be asked before the journal is read, for [`Ear::looked`].
    pub(crate) fn pokes(&self) -> u64 {
        lock(&self.slot.recent).pokes
    }

    /// The journal was read, so whoever was poked before needs not.
    pub(crate) fn looked(&self, pokes: u64, head: Seq) {
        let mut recent = lock(&self.slot.recent);
        recent.told = recent.told.max(head);
        if recent.pokes == pokes {
            recent.looked = pokes;
        }
    }
}

/// The last batches of a session, consecutive.
#[derive(Default)]
struct Recent {
    batches: VecDeque<Vec<Stored>>,
    records: usize,
    bytes: usize,
    /// The last record that was told of, kept or not.
    last: Option<Seq>,
    followers: usize,
    /// The highest head anyone told of; beyond our records when another process writes.
    told: Seq,
    /// Times everybody was to look again, and how many of those somebody has looked after.
    pokes: u64,
    looked: u64,
}

impl Recent {
    /// Nothing that is known holds any more; somebody must look.
    fn forget(&mut self) {
        self.clear();
        self.told = 0;
        self.pokes += 1;
    }

    fn clear(&mut self) {
        self.batches.clear();
        self.last = None;
        self.records = 0;
        self.bytes = 0;
    }

    fn push(&mut self, head: Seq, batch: Vec<Stored>) {
        self.told = self.told.max(head);
        self.keep(batch);
    }

    fn keep(&mut self, batch: Vec<Stored>) {
        let Some(first) = batch.first() else { return };
        let before = self.batches.back().and_then(|batch| batch.last());
        if before.is_some_and(|last| last.seq + 1 != first.seq || last.epoch != first.epoch) {
            self.clear();
        }
        self.add(batch);
        self.keep_only(if self.followers > 0 { BEHIND } else { RECENT });
    }

    fn keep_only(&mut self, bound: Bound) {
        while self.records > bound.records || self.bytes > bound.bytes {
            let Some(oldest) = self.batches.pop_front() else { break };
            self.records -= oldest.len();
            self.bytes -= size(&oldest);
        }
    }

    fn add(&mut self, batch: Vec<Stored>) {
        // Whoever keeps up needs the last batch only; what is kept for others is bytes.
        if let Some(before) = self.batches.back_mut() {
            before.iter_mut().for_each(|record| record.fresh = Fresh::default());
        }
        self.last = batch.last().map(|last| last.seq);
        self.records += batch.len();
        self.bytes += size(&batch);
        self.batches.push_back(batch);
    }

    fn after(&self, after: Seq) -> Option<Vec<Stored>> {
        let first = self.batches.front()?.first()?.seq;
        let last = self.batches.back()?.last()?.seq;
        if after + 1 < first || after >= last {
            return None;
        }
        let known = |batch: &Vec<Stored>| batch.last().is_some_and(|last| last.seq <= after);
        let from = self.batches.partition_point(known);
        let wanted = self.batches.range(from..).flatten().filter(|record| record.seq > after);
        Some(wanted.cloned().collect())
    }
}

fn size(batch: &[Stored]) -> usize {
    batch.iter().map(|record| record.body.len()).sum()
}

/// A poisoned lock guards plain data that is whole after every statement.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use budao_core::{event::Epoch, time::Timestamp, trace::Trace};

    use super::*;

    const ID: SessionId = SessionId(uuid::Uuid::nil());

    fn stored(seq: Seq) -> Stored {
        let (at, trace, body) = (Timestamp::default(), Trace::NONE, Vec::new().into());
        let fresh = Fresh::default();
        Stored { session: ID, epoch: Epoch(1), seq, at, trace, turn: 0, body, fresh }
    }

    #[test]
    fn who_was_told_everything_need_not_look() {
        let bell = Arc::new(Bell::default());
        let ear = bell.listen(ID);
        assert!(!ear.is_at_head(0), "nobody has looked yet");
        bell.records(ID, 2, vec![stored(1), stored(2)]);
        assert!(ear.is_at_head(2));
        assert!(!ear.is_at_head(1), "one record behind");
    }

    #[test]
    fn who_is_late_finds_what_it_missed_until_it_has_caught_up() {
        let bell = Arc::new(Bell::default());
        let ear = bell.listen(ID);
        let many = |from: Seq| (from..from + 200).map(stored).collect::<Vec<_>>();
        ear.begin_to_follow();
        bell.records(ID, 200, many(1));
        bell.records(ID, 400, many(201));
        assert_eq!(ear.recent(0).map(|batch| batch.len()), Some(400));
        assert_eq!(ear.recent(250).map(|batch| batch.len()), Some(150));
        ear.caught_up();
        assert!(ear.recent(399).is_none() && ear.is_at_head(400), "it has them and need not look");
        ear.end_following();
        bell.records(ID, 600, many(401));
        assert!(ear.recent(400).is_none(), "nobody follows: nothing is kept for anybody");
    }

    #[test]
    fn records_of_another_writer_are_looked_for() {
        let bell = Arc::new(Bell::default());
        let ear = bell.listen(ID);
        bell.records(ID, 4, Vec::new());
        // Our own writer tells of an older batch late.
        bell.records(ID, 2, vec![stored(1), stored(2)]);
        assert!(!ear.is_at_head(2));
    }

    #[test]
    fn who_is_poked_looks_again_once() {
        let bell = Arc::new(Bell::default());
        let ear = bell.listen(ID);
        bell.records(ID, 2, vec![stored(1), stored(2)]);
        let before = ear.pokes();
        bell.poke(ID);
        ear.looked(before, 2);
        assert!(!ear.is_at_head(2), "that look was begun before the poke");
        ear.looked(ear.pokes(), 2);
        assert!(ear.is_at_head(2));
        bell.history_changed(ID);
        bell.records(ID, 2, vec![stored(1), stored(2)]);
        assert!(!ear.is_at_head(2), "what was told before the change does not hold");
    }
}

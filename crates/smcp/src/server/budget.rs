//! Byte budget of the send queues: a limit for each connection and one for all of them.
//!
//! The hub charges a connection for everything it holds for it: queued packets, sends that wait for a full queue, and
//! poll answers that are being written. Dropping a [`Charge`] returns its bytes.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use budao_core::fault::{Fact, Fault, Kind, Operation};

use super::rooms::Key;

/// The limits and the current charges. Clones share one budget.
#[derive(Clone, Debug)]
pub(super) struct Budget(Arc<Mutex<BudgetState>>);

#[derive(Debug)]
struct BudgetState {
    each_max: usize,
    total_max: usize,
    accounts: BTreeMap<Key, Account>,
    /// Bytes charged to open connections.
    sum: usize,
    /// Bytes still held by connections that are closed.
    releasing: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct Account {
    bytes: usize,
    is_closing: bool,
}

/// The share of a connection's limit that a send may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Share {
    /// For requests, which can be refused. The other half stays free for answers and notifications.
    Half,
    /// For answers and notifications, which cannot be refused.
    Whole,
}

/// The limit that was reached, with its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReachedLimit {
    /// Bytes of one connection.
    Connection(usize),
    /// Bytes of all connections.
    Total(usize),
    /// Time without progress on a connection.
    Time(Duration),
}

impl ReachedLimit {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Connection(_) => "queue_bytes_max",
            Self::Total(_) => "queue_bytes_total_max",
            Self::Time(_) => "send",
        }
    }

    /// The fault for a refused request. The request was not sent, so it may be repeated.
    pub(super) fn refusal(self, operation: Operation) -> Fault {
        self.describe(Fault::new(Kind::LimitReached, operation))
    }

    /// The fault that a closed connection gets as its reason.
    pub(super) fn too_slow(self) -> Fault {
        self.describe(Fault::new(Kind::ObserverTooSlow, Operation::RelayCall))
    }

    fn describe(self, fault: Fault) -> Fault {
        let fault = fault.with(Fact::LimitName, self.name());
        match self {
            Self::Connection(limit) | Self::Total(limit) => fault.with(Fact::Limit, limit),
            Self::Time(limit) => fault.with(Fact::LimitMs, limit),
        }
    }
}

/// Bytes that stay charged until this is dropped.
#[derive(Debug)]
pub(super) struct Charge {
    budget: Budget,
    key: Key,
    bytes: usize,
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.budget.state().give_back(self.key, self.bytes);
    }
}

impl Budget {
    pub(super) fn new(each_max: usize, total_max: usize) -> Self {
        let accounts = BTreeMap::new();
        let state = BudgetState { each_max, total_max, accounts, sum: 0, releasing: 0 };
        Self(Arc::new(Mutex::new(state)))
    }

    fn state(&self) -> MutexGuard<'_, BudgetState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Charges a connection. A connection with an empty queue may exceed its limit with one packet.
    pub(super) fn take(
        &self,
        key: Key,
        bytes: usize,
        share: Share,
    ) -> Result<Charge, ReachedLimit> {
        let mut state = self.state();
        let of = |limit: usize| if share == Share::Half { limit / 2 } else { limit };
        let account = state.accounts.get(&key).copied().unwrap_or_default();
        if account.is_closing || (account.bytes > 0 && account.bytes + bytes > of(state.each_max)) {
            return Err(ReachedLimit::Connection(state.each_max));
        }
        if state.sum > 0 && state.sum + bytes > state.total_max {
            return Err(ReachedLimit::Total(state.total_max));
        }
        state.sum += bytes;
        state.accounts.entry(key).or_default().bytes += bytes;
        Ok(Charge { budget: self.clone(), key, bytes })
    }

    /// Marks a connection as closing: it gets nothing more, and its bytes no longer count against the others. Returns
    /// false if it was already marked.
    pub(super) fn close(&self, key: Key) -> bool {
        let mut state = self.state();
        let account = state.accounts.entry(key).or_default();
        if account.is_closing {
            return false;
        }
        account.is_closing = true;
        let bytes = account.bytes;
        state.sum -= bytes;
        state.releasing += bytes;
        true
    }

    /// Removes a connection that has ended.
    pub(super) fn forget(&self, key: Key) {
        self.close(key);
        let mut state = self.state();
        if state.accounts.get(&key).is_some_and(|account| account.bytes == 0) {
            state.accounts.remove(&key);
        }
    }

    /// The open connection with the most charged bytes.
    pub(super) fn largest(&self) -> Option<Key> {
        let state = self.state();
        let open = state.accounts.iter().filter(|(_, account)| !account.is_closing);
        open.max_by_key(|(_, account)| account.bytes).map(|(key, _)| *key)
    }

    /// Whether closed connections hold so many bytes that new ones must be refused.
    pub(super) fn is_clogged(&self) -> bool {
        let state = self.state();
        state.releasing > state.total_max
    }

    /// All charged bytes, of open and closed connections.
    pub(super) fn bytes(&self) -> usize {
        let state = self.state();
        state.sum + state.releasing
    }
}

impl BudgetState {
    fn give_back(&mut self, key: Key, bytes: usize) {
        let Some(account) = self.accounts.get_mut(&key) else { return };
        account.bytes -= bytes;
        let Account { bytes: left, is_closing } = *account;
        if is_closing {
            self.releasing -= bytes;
        } else {
            self.sum -= bytes;
        }
        if left == 0 {
            self.accounts.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_connection_and_all_of_them_have_a_limit_each() {
        let budget = Budget::new(100, 150);
        let first = budget.take(1, 90, Share::Whole).unwrap();
        assert_eq!(budget.take(1, 11, Share::Whole).unwrap_err(), ReachedLimit::Connection(100));
        assert_eq!(budget.take(2, 61, Share::Whole).unwrap_err(), ReachedLimit::Total(150));
        let second = budget.take(2, 60, Share::Whole).unwrap();
        assert_eq!((budget.bytes(), budget.largest()), (150, Some(1)));
        drop(first);
        assert_eq!((budget.bytes(), budget.largest()), (60, Some(2)));
        drop(second);
        assert_eq!((budget.bytes(), budget.largest()), (0, None));
    }

    #[test]
    fn questions_leave_half_for_what_cannot_be_refused() {
        let budget = Budget::new(100, 1000);
        let _question = budget.take(1, 50, Share::Half).unwrap();
        assert!(budget.take(1, 1, Share::Half).is_err());
        assert!(budget.take(1, 50, Share::Whole).is_ok());
    }

    #[test]
    fn a_value_above_the_limit_is_admitted_alone() {
        let budget = Budget::new(10, 20);
        let large = budget.take(1, 1000, Share::Whole).unwrap();
        assert!(budget.take(1, 1, Share::Whole).is_err());
        drop(large);
        assert!(budget.take(1, 1, Share::Whole).is_ok());
    }

    #[test]
    fn bytes_of_closed_connections_count_for_new_connections_only() {
        let budget = Budget::new(100, 100);
        let held = budget.take(1, 90, Share::Whole).unwrap();
        assert!(budget.close(1) && !budget.close(1));
        assert!(budget.take(1, 1, Share::Whole).is_err(), "it gets nothing more");
        let other = budget.take(2, 90, Share::Whole).unwrap();
        budget.close(2);
        assert!(budget.is_clogged());
        drop((held, other));
        assert_eq!((budget.bytes(), budget.is_clogged()), (0, false));
        budget.forget(1);
        assert!(budget.state().accounts.is_empty(), "nothing is kept of who is gone");
    }
}

//! What the processes of workers know, outside all of them: which functions began, which ends were accepted, and which
//! processes have an excuse for a call without an end.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, MutexGuard},
};

use serde_json::Value;

/// Session, call and attempt.
type CallName = (String, String, u64);

/// The book of all processes.
#[derive(Debug, Default)]
pub(crate) struct WorkerBook(Mutex<Entries>);

/// A result that a server accepted.
#[derive(Clone, Debug)]
pub(crate) struct AcceptedResult {
    pub(crate) content: Value,
    /// The servers that had been killed by then.
    kills: usize,
}

#[derive(Debug, Default)]
struct Entries {
    begun: BTreeMap<String, u32>,
    /// Results that were accepted, by call.
    reported: BTreeMap<(String, String), AcceptedResult>,
    /// Servers that were killed so far.
    kills: usize,
    /// Calls whose functions hang or end late.
    hanging: BTreeSet<(String, String)>,
    /// Calls that a process stopped because it was told to.
    stopped: BTreeSet<(String, String)>,
    /// Processes that were killed, ended, or were away for longer than the grace.
    gone: BTreeSet<String>,
    cuts: usize,
}

impl WorkerBook {
    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.0.lock().expect("nobody panics with it")
    }

    /// A function begins.
    pub(crate) fn begin(&self, key: &str) {
        *self.entries().begun.entry(key.to_owned()).or_default() += 1;
    }

    /// The function of a call hangs, or ends after its deadline.
    pub(crate) fn hang(&self, call: &CallName) {
        self.entries().hanging.insert((call.0.clone(), call.1.clone()));
    }

    /// A process stops a call because the turn was cancelled.
    pub(crate) fn stop(&self, call: &CallName) {
        self.entries().stopped.insert((call.0.clone(), call.1.clone()));
    }

    /// The server accepted a result.
    pub(crate) fn record_report(&self, call: &CallName, content: &Value) {
        let name = (call.0.clone(), call.1.clone());
        let mut entries = self.entries();
        let (content, kills) = (content.clone(), entries.kills);
        entries.reported.insert(name, AcceptedResult { content, kills });
    }

    /// A server was killed.
    pub(crate) fn kill_server(&self) {
        self.entries().kills += 1;
    }

    /// A process was killed, ended, or is away for longer than the grace.
    pub(crate) fn leave(&self, id: &str) {
        self.entries().gone.insert(id.to_owned());
    }

    /// A process lost its connection because the script cut it.
    pub(crate) fn cut(&self) {
        self.entries().cuts += 1;
    }

    /// The number of connections that the script cut.
    pub(crate) fn cuts(&self) -> usize {
        self.entries().cuts
    }

    pub(crate) fn count_starts(&self) -> BTreeMap<String, u32> {
        self.entries().begun.clone()
    }

    pub(crate) fn is_gone(&self, id: &str) -> bool {
        self.entries().gone.contains(id)
    }

    pub(crate) fn hangs(&self, session: &str, call: &str) -> bool {
        self.entries().hanging.contains(&(session.to_owned(), call.to_owned()))
    }

    pub(crate) fn was_stopped(&self, session: &str, call: &str) -> bool {
        self.entries().stopped.contains(&(session.to_owned(), call.to_owned()))
    }

    pub(crate) fn reports(&self) -> BTreeMap<(String, String), AcceptedResult> {
        self.entries().reported.clone()
    }

    /// Whether a server that took an answer about an earlier attempt may have died with it. Such an answer is not a
    /// record, so the worker is asked again.
    pub(crate) fn may_have_lost(&self, accepted: &AcceptedResult) -> bool {
        accepted.content["reconciliation"].is_string() && accepted.kills < self.entries().kills
    }
}

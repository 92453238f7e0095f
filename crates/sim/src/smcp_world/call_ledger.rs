//! Tracks every call from outside the hub: received, forwarded, answered. The ledger checks the laws of the hub at the
//! moment each event happens.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, MutexGuard},
    time::Duration,
};

use serde_json::Value;

use crate::{
    check::{Violation, Violations},
    play::SimResult,
    script::Script,
};

use super::connection::MemberId;

/// Tolerance between a deadline and its answer.
const SLACK: Duration = Duration::from_millis(50);

/// All calls of a simulation.
#[derive(Debug)]
pub(super) struct CallLedger {
    violations: Violations,
    pages: Mutex<CallLedgerState>,
}

#[derive(Debug, Default)]
struct CallLedgerState {
    calls: BTreeMap<u64, Call>,
    /// Late answers that each hub received, by hub number.
    late: BTreeMap<u32, u64>,
    /// Numbers of the connections that are closed.
    shut: BTreeSet<u64>,
    digest: crc32fast::Hasher,
    words: usize,
    counts: BTreeMap<String, usize>,
}

/// A request of an agent.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) who: MemberId,
    /// Name of the computer it is addressed to.
    pub(super) computer: String,
    pub(super) req_id: String,
    pub(super) is_tool: bool,
    /// Time the hub has for the answer.
    pub(super) within: Duration,
    /// The hub that received it, the connection, and the time; `None` before that.
    heard: Option<(u32, u64, Duration)>,
    /// The computer's connection it was forwarded to; `None` before that.
    asked: Option<u64>,
    /// Number of cancels the hub has forwarded, or tried to forward, to the computer.
    cancelled: u32,
    given: Option<Value>,
    answered: bool,
}

impl Call {
    pub(super) fn new(who: MemberId, computer: String, req_id: String, within: Duration) -> Self {
        Self {
            who,
            computer,
            req_id,
            is_tool: true,
            within,
            heard: None,
            asked: None,
            cancelled: 0,
            given: None,
            answered: false,
        }
    }

    fn is_under_way(&self, wire: u64) -> bool {
        self.is_tool && !self.answered && self.heard.is_some_and(|(_, on, _)| on == wire)
    }
}

impl CallLedger {
    pub(super) fn new(violations: Violations) -> Self {
        Self { violations, pages: Mutex::default() }
    }

    fn pages(&self) -> MutexGuard<'_, CallLedgerState> {
        self.pages.lock().expect("nobody panics with it")
    }

    fn law(&self, holds: bool, promise: &'static str, seen: impl FnOnce() -> String) {
        self.violations.expect(holds, promise, seen);
    }

    /// Adds a call just before the agent sends it.
    pub(super) fn write(&self, nonce: u64, call: Call) {
        self.pages().calls.insert(nonce, call);
    }

    /// The hub receives a request. Returns whether another call in flight has the same id.
    pub(super) fn hears(&self, nonce: u64, hub: u32, wire: u64, now: Duration) -> bool {
        let mut pages = self.pages();
        let Some(req_id) = pages.calls.get(&nonce).map(|call| call.req_id.clone()) else {
            return false;
        };
        let taken = |call: &Call| call.is_under_way(wire) && call.req_id == req_id;
        let is_taken = pages.calls.values().any(taken);
        if let Some(call) = pages.calls.get_mut(&nonce) {
            call.heard = Some((hub, wire, now));
        }
        is_taken
    }

    /// The hub has processed a request: one with an id in use must be refused.
    pub(super) fn check_request(&self, nonce: u64, was_taken: bool) {
        let pages = self.pages();
        let Some(call) = pages.calls.get(&nonce).filter(|call| call.is_tool) else { return };
        let refused = call.answered && call.asked.is_none();
        self.law(!was_taken || refused, "an id means one call at a time", || format!("{call:?}"));
    }

    /// The call in flight that a cancel on this connection refers to, with its cancel count.
    pub(super) fn meant(&self, wire: u64, req_id: &str) -> Option<(u64, u32)> {
        let pages = self.pages();
        let fits = |call: &&Call| call.is_under_way(wire) && call.req_id == req_id;
        let mut found = pages.calls.iter().filter(|(_, call)| fits(call));
        found.next().map(|(nonce, call)| (*nonce, call.cancelled))
    }

    /// The hub has processed a cancel: it must have reached the computer, unless that is disconnected.
    pub(super) fn check_cancel(&self, meant: Option<(u64, u32)>) {
        let Some((nonce, before)) = meant else { return };
        let pages = self.pages();
        let Some(call) = pages.calls.get(&nonce) else { return };
        let gone = call.asked.is_none_or(|wire| pages.shut.contains(&wire));
        let right = call.answered || gone || call.cancelled == before + 1;
        self.law(right, "a cancel reaches its call", || format!("{call:?}"));
    }

    /// Marks a connection as closed.
    pub(super) fn shut(&self, wire: u64) {
        self.pages().shut.insert(wire);
    }

    /// The hub forwards a request over this connection.
    pub(super) fn asks(&self, payload: &Value, wire: u64, who: &MemberId) {
        let mut pages = self.pages();
        let nonce = payload["nonce"].as_u64().unwrap_or(u64::MAX);
        let Some(call) = pages.calls.get_mut(&nonce) else {
            return self
                .law(false, "a computer is asked what somebody asked", || payload.to_string());
        };
        let right = call.who.room == who.room && call.computer == who.name;
        self.law(right, "nothing goes to another room or computer", || {
            format!("{call:?} went to {who:?}")
        });
        self.law(call.asked.is_none() && !call.answered, "a computer is asked once", || {
            format!("{call:?}")
        });
        call.asked = Some(wire);
    }

    /// The hub forwards a cancel over this connection, or tries to. The computer must have received the call before.
    pub(super) fn tells_cancel(&self, payload: &Value, wire: u64, who: &MemberId) {
        let mut pages = self.pages();
        let req_id = payload["req_id"].as_str().unwrap_or_default();
        let had = |call: &Call| call.is_tool && call.asked == Some(wire) && call.req_id == req_id;
        let all = pages.calls.values_mut().filter(|call| had(call));
        // Ended calls count too: a repeated cancel may arrive after the end.
        match all.min_by_key(|call| call.answered) {
            Some(call) => call.cancelled += 1,
            None => self.law(false, "a cancel comes to a computer that has the call", || {
                format!("{payload} to {who:?}")
            }),
        }
    }

    /// The hub has received a computer's answer; it is late if the call was answered without it.
    pub(super) fn gives(&self, nonce: u64, value: &Value, hub: u32) {
        let mut pages = self.pages();
        let Some(call) = pages.calls.get_mut(&nonce) else { return };
        if call.answered {
            *pages.late.entry(hub).or_default() += 1;
        } else {
            call.given = Some(value.clone());
        }
    }

    /// The hub answers a request.
    pub(super) fn answers(&self, nonce: u64, args: &[Value], now: Duration) {
        let mut pages = self.pages();
        let Some(call) = pages.calls.get_mut(&nonce) else { return };
        if std::mem::replace(&mut call.answered, true) {
            return;
        }
        let first = args.first().cloned().unwrap_or_default();
        let code = first["code"].as_u64().or_else(|| first["meta"]["error_code"].as_u64());
        let failed = code.is_some() || first["isError"] == true;
        let own = failed || call.given.as_ref() == Some(&first);
        self.law(own, "an answer is that of its own call, as the computer gave it", || {
            format!("{call:?} was answered {first}")
        });
        let took = call.heard.map_or(Duration::ZERO, |(_, _, at)| now.saturating_sub(at));
        self.law(took <= call.within + SLACK, "a question is answered within its deadline", || {
            format!("{call:?} after {took:?}")
        });
        let told = code.map_or("answered".to_owned(), |code| code.to_string());
        *pages.counts.entry(told).or_default() += 1;
    }

    /// Adds a message that reached a client to the digest: the same seed gives the same messages.
    pub(super) fn note(&self, now: Duration, word: &str) {
        let mut pages = self.pages();
        pages.words += 1;
        pages.digest.update(&now.as_micros().to_le_bytes());
        pages.digest.update(word.as_bytes());
    }

    /// Checks that every request this hub received is answered.
    pub(super) fn check_answers(&self, hub: u32, promise: &'static str) {
        let pages = self.pages();
        let open = |call: &&Call| !call.answered && call.heard.is_some_and(|(of, ..)| of == hub);
        if let Some(call) = pages.calls.values().find(open) {
            self.law(false, promise, || format!("{call:?}"));
        }
    }

    /// Marks the open calls of a killed hub as answered, because it answers nothing more.
    pub(super) fn forget(&self, hub: u32) {
        let mut pages = self.pages();
        for call in pages.calls.values_mut() {
            call.answered |= call.heard.is_some_and(|(of, ..)| of == hub);
        }
    }

    pub(super) fn late(&self, hub: u32) -> u64 {
        self.pages().late.get(&hub).copied().unwrap_or_default()
    }

    pub(super) fn sum_up(&self, script: &Script, violations: Vec<Violation>) -> SimResult {
        let pages = self.pages();
        let told = pages.counts.get("answered").copied().unwrap_or_default();
        let line = |(nonce, call): (&u64, &Call)| format!("{nonce} {call:?}");
        SimResult {
            violations,
            digest: pages.digest.clone().finalize(),
            records: pages.words,
            turns: pages.counts.values().sum(),
            effects: told,
            events: pages.counts.clone(),
            story: if script.story { pages.calls.iter().map(line).collect() } else { Vec::new() },
        }
    }
}

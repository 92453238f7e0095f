//! A faulty journal: confirmed writes survive every kill, and reads and writes fail as the script says.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use budao_core::{
    event::{Seq, SessionId},
    fault::{Fault, Kind, Operation},
};
use budao_journal::{Journal, Lease, LeaseToken, Memory};
use budao_testkit::journal::{AppendInfo, InterceptedJournal, Interceptor, JournalCall, Verdict};
use rand::{RngExt as _, rngs::StdRng};

use crate::{
    check::Violations,
    script::DiskFault,
    world::{SimClock, chance},
};

/// The disk that all processes share. Clones share one state.
#[derive(Clone)]
pub(crate) struct Disk {
    /// The durable content.
    kept: Memory,
    clock: SimClock,
    mood: Arc<Mutex<DiskState>>,
    writes: Arc<AtomicU64>,
    /// The token of the last lease of each session.
    holders: Arc<Mutex<BTreeMap<SessionId, LeaseToken>>>,
    violations: Violations,
}

struct DiskState {
    dice: StdRng,
    trouble: Option<(DiskFault, Duration)>,
}

impl fmt::Debug for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Disk")
    }
}

impl Disk {
    pub(crate) fn new(kept: Memory, clock: SimClock, seed: u64, violations: Violations) -> Self {
        let mood = Arc::new(Mutex::new(DiskState { dice: chance(seed, "disk"), trouble: None }));
        let (writes, holders) = (Arc::default(), Arc::default());
        Self { kept, clock, mood, writes, holders, violations }
    }

    /// The journal on this disk, as a process sees it.
    pub(crate) fn journal(&self) -> Arc<dyn Journal> {
        Arc::new(InterceptedJournal::new(Arc::new(self.kept.clone()), self.clone()))
    }

    /// Starts a fault that ends by itself after `lasts` of virtual time.
    pub(crate) fn trouble(&self, trouble: DiskFault, lasts: Duration) {
        let until = self.clock.elapsed() + lasts;
        self.mood.lock().expect("nobody panics with it").trouble = Some((trouble, until));
    }

    /// Ends the current fault.
    pub(crate) fn calm(&self) {
        self.mood.lock().expect("nobody panics with it").trouble = None;
    }

    /// The content without any fault, for checks.
    pub(crate) fn durable(&self) -> &Memory {
        &self.kept
    }

    fn now(&self) -> Option<DiskFault> {
        let mood = self.mood.lock().expect("nobody panics with it");
        let (trouble, until) = mood.trouble?;
        (self.clock.elapsed() < until).then_some(trouble)
    }

    /// Waits a random time before and after a write, so that a kill can fall on either side of it.
    async fn turn_round(&self) {
        let most = if self.now() == Some(DiskFault::Slow) { 2_000_000 } else { 400 };
        let micros = {
            let mut mood = self.mood.lock().expect("nobody panics with it");
            mood.dice.random_range(0..most)
        };
        if micros > most / 2 {
            tokio::time::sleep(Duration::from_micros(micros)).await;
        }
    }

    /// What becomes of the next write. A full disk still accepts a closing append.
    fn write(&self, call: JournalCall) -> Verdict {
        let fault = |kind| Fault::new(kind, operation(call));
        let odd = self.writes.fetch_add(1, Ordering::Relaxed) % 2 == 1;
        match self.now() {
            Some(DiskFault::Full) if !fits_full_disk(call) => {
                Verdict::Refuse(fault(Kind::DiskFull))
            }
            Some(DiskFault::Unconfirmed) => Verdict::Unconfirmed(fault(Kind::SyncFailed)),
            Some(DiskFault::Refusing) => Verdict::Refuse(fault(Kind::JournalBusy)),
            Some(DiskFault::Flaky) if odd => Verdict::Refuse(fault(Kind::JournalBusy)),
            _ => Verdict::Proceed,
        }
    }

    fn read(&self, call: JournalCall) -> Verdict {
        match self.now() {
            Some(DiskFault::Unreadable) => {
                Verdict::Refuse(Fault::new(Kind::JournalBusy, operation(call)))
            }
            _ => Verdict::Proceed,
        }
    }
}

/// The writes that a full disk still accepts, from its reserved space.
fn fits_full_disk(call: JournalCall) -> bool {
    match call {
        JournalCall::Append(append) => append.is_closing,
        JournalCall::Renew | JournalCall::Release | JournalCall::Withdraw => true,
        _ => false,
    }
}

fn operation(call: JournalCall) -> Operation {
    match call {
        JournalCall::TakeLease | JournalCall::Renew | JournalCall::Release => Operation::TakeLease,
        JournalCall::Append(_)
        | JournalCall::PutBlob
        | JournalCall::ClaimOnce
        | JournalCall::SettleOnce => Operation::AppendRecords,
        JournalCall::Submit | JournalCall::Withdraw => Operation::SubmitCommand,
        _ => Operation::ReadRecords,
    }
}

#[async_trait]
impl Interceptor for Disk {
    async fn before(&self, call: JournalCall) -> Verdict {
        if !call.is_write() {
            return self.read(call);
        }
        self.turn_round().await;
        self.write(call)
    }

    async fn after(&self, call: JournalCall) {
        if call.is_write() {
            self.turn_round().await;
        }
    }

    /// Notes the token: only this holder may write the session from now on.
    fn lease_taken(&self, lease: &Lease) {
        let mut holders = self.holders.lock().expect("nobody panics with it");
        holders.insert(lease.session, lease.token);
    }

    /// Checks that the writer is the last holder of the lease.
    fn appended(&self, append: AppendInfo, head: Seq) {
        let AppendInfo { session, token, .. } = append;
        let holder = self.holders.lock().expect("nobody panics with it").get(&session).copied();
        self.violations.expect(holder == Some(token), "only the last holder writes", || {
            format!("{session} at {head}: {token:?} wrote, {holder:?} has it")
        });
    }
}

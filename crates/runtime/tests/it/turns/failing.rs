//! A journal whose appends and leases can be told to fail.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use budao_core::{Fault, Kind, fault::Operation};
use budao_journal::Journal;
use budao_testkit::journal::{InterceptedJournal, Interceptor, JournalCall, Verdict};

/// What the next of them fail with, and how many of them.
#[derive(Debug, Default)]
struct Next(Mutex<Option<(Kind, u32)>>);

impl Next {
    fn set(&self, kind: Kind, times: u32) {
        *self.0.lock().unwrap() = (times > 0).then_some((kind, times));
    }

    fn take(&self, operation: Operation) -> Result<(), Fault> {
        let mut next = self.0.lock().unwrap();
        let failed = *next;
        *next = failed.and_then(|(kind, left)| (left > 1).then_some((kind, left - 1)));
        failed.map_or(Ok(()), |(kind, _)| Err(Fault::new(kind, operation)))
    }
}

#[derive(Debug, Default)]
pub(crate) struct Fails {
    appends: Next,
    leases: Next,
}

pub(crate) type Failing = InterceptedJournal<Fails>;

pub(crate) fn wrap(inner: Arc<dyn Journal>) -> Arc<Failing> {
    Arc::new(InterceptedJournal::new(inner, Fails::default()))
}

impl Fails {
    /// The next appends fail.
    pub(crate) fn fail(&self, kind: Kind, times: u32) {
        self.appends.set(kind, times);
    }

    /// Sessions cannot be had, so often.
    pub(crate) fn fail_leases(&self, kind: Kind, times: u32) {
        self.leases.set(kind, times);
    }

    /// How many appends are still to fail.
    pub(crate) fn left(&self) -> u32 {
        self.appends.0.lock().unwrap().map_or(0, |(_, left)| left)
    }
}

#[async_trait]
impl Interceptor for Fails {
    async fn before(&self, call: JournalCall) -> Verdict {
        let taken = match call {
            JournalCall::Append(_) => self.appends.take(Operation::AppendRecords),
            JournalCall::TakeLease => self.leases.take(Operation::TakeLease),
            _ => Ok(()),
        };
        taken.map_or_else(Verdict::Refuse, |()| Verdict::Proceed)
    }
}

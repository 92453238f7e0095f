//! A journal, and a tool, that kill their own process at a chosen point.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use async_trait::async_trait;
use budao_testkit::journal::{InterceptedJournal, Interceptor, JournalCall, Verdict};

/// When to die: at a named point of the work, the so-many-th time it is passed.
#[derive(Clone, Debug)]
pub(crate) struct Moment {
    point: String,
    time: u32,
}

/// The points a journal is passed at, before and after each. An append that has a snapshot with it is a point of its
/// own.
pub(crate) const POINTS: &[&str] = &[
    "before-append",
    "after-append",
    "before-snapshot",
    "after-snapshot",
    "before-lease",
    "after-lease",
    "before-renewal",
    "after-renewal",
    "before-read",
    "after-read",
    "before-snapshot-read",
    "after-snapshot-read",
];

/// And those of a tool: before its effect, and between the effect and its record.
pub(crate) const IN_TOOL: &[&str] = &["before-effect", "after-effect"];

/// Those of a person that answers questions: before the answer is recorded, and before the person gets the receipt.
pub(crate) const OF_ANSWERS: &[&str] = &["before-answer", "after-answer"];

impl Moment {
    pub(crate) fn parse(text: &str) -> Self {
        let (point, time) = text.split_once(' ').expect("a moment has two words");
        Self { point: point.to_owned(), time: time.parse().expect("a number") }
    }
}

/// SIGKILL: no destructor, no flush, no goodbye.
pub(crate) fn die() {
    rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL)
        .expect("a process may kill itself");
    loop {
        std::thread::park();
    }
}

/// Kills the process when its moment has come.
#[derive(Debug)]
pub(crate) struct Kills {
    moment: Option<Moment>,
    passed: AtomicU32,
}

/// The points around the calls of a journal.
#[derive(Debug)]
pub(crate) struct KillPoints(pub(crate) Arc<Kills>);

pub(crate) type Killing = InterceptedJournal<KillPoints>;

impl Kills {
    pub(crate) fn new(moment: Option<Moment>) -> Arc<Self> {
        Arc::new(Self { moment, passed: AtomicU32::new(0) })
    }

    /// This point is passed. The process may be killed here.
    pub(crate) fn pass(&self, point: &str) {
        let Some(moment) = self.moment.as_ref().filter(|moment| moment.point == point) else {
            return;
        };
        if self.passed.fetch_add(1, Ordering::SeqCst) + 1 == moment.time {
            die();
        }
    }
}

/// The names of the points around a call.
fn points(call: JournalCall) -> Vec<&'static str> {
    match call {
        JournalCall::Append(append) => {
            [("append", true), ("answer", append.has_answers), ("snapshot", append.has_snapshot)]
                .into_iter()
                .filter_map(|(point, is_passed)| is_passed.then_some(point))
                .collect()
        }
        JournalCall::TakeLease => vec!["lease"],
        JournalCall::Renew => vec!["renewal"],
        JournalCall::Release => vec!["release"],
        JournalCall::Submit => vec!["submit"],
        JournalCall::Read => vec!["read"],
        JournalCall::Snapshot => vec!["snapshot-read"],
        _ => Vec::new(),
    }
}

#[async_trait]
impl Interceptor for KillPoints {
    async fn before(&self, call: JournalCall) -> Verdict {
        points(call).into_iter().for_each(|point| self.0.pass(&format!("before-{point}")));
        Verdict::Proceed
    }

    async fn after(&self, call: JournalCall) {
        points(call).into_iter().for_each(|point| self.0.pass(&format!("after-{point}")));
    }
}

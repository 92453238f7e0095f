//! A journal, and a tool, that kill their own process at a chosen point.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use async_trait::async_trait;
use budao_core::event::Seq;
use budao_journal::{Append, AppendError, Journal};

use crate::intercepted_journal::{Appends, InterceptedJournal};

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

/// Those of somebody who answers questions: what they said is being recorded, and is recorded and they do not know.
pub(crate) const OF_ANSWERS: &[&str] = &["before-answer", "after-answer"];

impl Moment {
    pub(crate) fn parse(text: &str) -> Self {
        let (point, time) = text.split_once(' ').expect("a moment has two words");
        Self { point: point.to_owned(), time: time.parse().expect("a number") }
    }
}

/// SIGKILL: no destructor, no flush, no goodbye.
fn die() {
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

pub(crate) type Killing = InterceptedJournal<Arc<Kills>>;

impl Kills {
    pub(crate) fn new(moment: Option<Moment>) -> Arc<Self> {
        Arc::new(Self { moment, passed: AtomicU32::new(0) })
    }

    /// This point is passed. Perhaps nobody gets any further.
    pub(crate) fn pass(&self, point: &str) {
        let Some(moment) = self.moment.as_ref().filter(|moment| moment.point == point) else {
            return;
        };
        if self.passed.fetch_add(1, Ordering::SeqCst) + 1 == moment.time {
            die();
        }
    }
}

#[async_trait]
impl Appends for Arc<Kills> {
    async fn append(&self, inner: &dyn Journal, append: Append) -> Result<Seq, AppendError> {
        let has_snapshot = append.snapshot.is_some();
        let has_answer = !append.answers.is_empty() || !append.taken.is_empty();
        self.pass("before-append");
        if has_answer {
            self.pass("before-answer");
        }
        if has_snapshot {
            self.pass("before-snapshot");
        }
        let done = inner.append(append).await;
        self.pass("after-append");
        if has_answer {
            self.pass("after-answer");
        }
        if has_snapshot {
            self.pass("after-snapshot");
        }
        done
    }

    fn passes(&self, point: &'static str) {
        self.pass(point);
    }
}

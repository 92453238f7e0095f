//! A journal that kills its own process at a chosen append.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use async_trait::async_trait;
use budao_core::event::Seq;
use budao_journal::{Append, AppendError, Journal, Sqlite};

use crate::around::{Appends, Around};

/// When to die.
#[derive(Clone, Debug)]
pub(crate) enum Moment {
    /// Before append number *n* is made.
    Before(u32),
    /// After it is durable, before anyone hears of it.
    After(u32),
    /// In a tool: `begun` before its effect, `done` after it.
    Tool(String, String),
}

impl Moment {
    pub(crate) fn parse(text: &str) -> Self {
        let (what, which) = text.split_once(' ').expect("a moment has two words");
        match what {
            "before" => Self::Before(which.parse().expect("a number")),
            "after" => Self::After(which.parse().expect("a number")),
            _ => Self::Tool(what.into(), which.into()),
        }
    }

    pub(crate) fn in_tool(moment: &Option<Self>, call: &str, now: &str) {
        if let Some(Self::Tool(when, which)) = moment
            && when == now
            && which == call
        {
            die();
        }
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

/// When to die, and how many appends there were.
#[derive(Debug)]
pub(crate) struct Kills {
    moment: Option<Moment>,
    appends: AtomicU32,
}

pub(crate) type Killing = Around<Kills>;

impl Killing {
    pub(crate) fn new(inner: Sqlite, moment: Option<Moment>) -> Self {
        let appends = Kills { moment, appends: AtomicU32::new(0) };
        Self { inner: Arc::new(inner), appends }
    }
}

#[async_trait]
impl Appends for Kills {
    async fn append(&self, inner: &dyn Journal, append: Append) -> Result<Seq, AppendError> {
        let number = self.appends.fetch_add(1, Ordering::SeqCst) + 1;
        if matches!(self.moment, Some(Moment::Before(wanted)) if wanted == number) {
            die();
        }
        let done = inner.append(append).await;
        if matches!(self.moment, Some(Moment::After(wanted)) if wanted == number) {
            die();
        }
        done
    }
}

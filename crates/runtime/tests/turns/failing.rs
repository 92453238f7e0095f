//! A journal whose appends can be told to fail.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use budao_core::{Fault, Kind, event::Seq, fault::Operation};
use budao_journal::{Append, AppendError, Journal};

use crate::around::{Appends, Around};

/// What the next appends fail with, and how many of them.
#[derive(Debug)]
pub(crate) struct Fails(Mutex<Option<(Kind, u32)>>);

pub(crate) type Failing = Around<Fails>;

impl Failing {
    pub(crate) fn new(inner: Arc<dyn Journal>) -> Arc<Self> {
        Arc::new(Self { inner, appends: Fails(Mutex::new(None)) })
    }

    /// The next appends fail.
    pub(crate) fn fail(&self, kind: Kind, times: u32) {
        *self.appends.0.lock().unwrap() = (times > 0).then_some((kind, times));
    }

    /// How many appends are still to fail.
    pub(crate) fn left(&self) -> u32 {
        self.appends.0.lock().unwrap().map_or(0, |(_, left)| left)
    }
}

#[async_trait]
impl Appends for Fails {
    async fn append(&self, inner: &dyn Journal, append: Append) -> Result<Seq, AppendError> {
        let failed = {
            let mut next = self.0.lock().unwrap();
            let failed = *next;
            *next = failed.and_then(|(kind, left)| (left > 1).then_some((kind, left - 1)));
            failed
        };
        match failed {
            Some((kind, _)) => Err(Fault::new(kind, Operation::AppendRecords).into()),
            None => inner.append(append).await,
        }
    }
}

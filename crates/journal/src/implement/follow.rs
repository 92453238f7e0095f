//! The follower stream: history first, then live records, without a gap or a repeat.
//!
//! The follower subscribes before it reads. Records that arrive between the two are announced as well and dropped by
//! position. Live batches come from the notifier's cache if it has them, else from the journal.

use std::sync::Arc;

use async_trait::async_trait;
use budao_core::{
    event::{Seq, SessionId},
    fault::{Fact, Fault, Kind, Operation},
};
use futures::stream::{self, BoxStream, StreamExt};

use crate::{
    contract::{Gap, Page, PageLimits, StoredRecord},
    implement::notifier::{Notifier, Subscription},
};

/// A source of pages for a follower: one of the journal implementations.
#[async_trait]
pub trait PageSource: Send + Sync + 'static {
    /// The records after a position, as [`crate::Reader::read`] returns them.
    async fn page(
        self: Arc<Self>,
        session: SessionId,
        after: Seq,
        limits: PageLimits,
    ) -> Result<Page, Fault>;
}

struct Follower<P> {
    pages: Arc<P>,
    subscription: Subscription,
    session: SessionId,
    after: Seq,
    is_over: bool,
}

/// Every record after a position, then new ones as they are announced, as [`crate::Reader::follow`] promises.
pub fn follow<P: PageSource>(
    pages: Arc<P>,
    notifier: &Arc<Notifier>,
    session: SessionId,
    after: Seq,
) -> BoxStream<'static, Result<Vec<StoredRecord>, Fault>> {
    let subscription = notifier.subscribe(session);
    subscription.register_follower();
    let follower = Follower { pages, subscription, session, after, is_over: false };
    stream::unfold(follower, |mut follower| async move {
        if follower.is_over {
            return None;
        }
        let next = follower.next().await;
        match &next {
            Ok(batch) => follower.after = batch.last().map_or(follower.after, |last| last.seq),
            Err(_) => follower.is_over = true,
        }
        Some((next, follower))
    })
    .boxed()
}

impl<P: PageSource> Follower<P> {
    async fn next(&mut self) -> Result<Vec<StoredRecord>, Fault> {
        loop {
            self.subscription.mark_records_seen();
            if let Some(batch) = self.subscription.cached_after(self.after) {
                return Ok(batch);
            }
            if self.subscription.has_caught_up(self.after) {
                self.subscription.wait_for_record_change().await;
                continue;
            }
            let reread_requests = self.subscription.reread_requests();
            let page =
                self.pages.clone().page(self.session, self.after, PageLimits::default()).await?;
            self.subscription.mark_reread(reread_requests, page.head);
            if let Some(gap) = page.gap {
                return Err(gap_fault(self.session, &gap, page.first_available));
            }
            if !page.records.is_empty() {
                return Ok(page.records);
            }
            self.subscription.wait_for_record_change().await;
        }
    }
}

impl<P> Drop for Follower<P> {
    fn drop(&mut self) {
        self.subscription.unregister_follower();
    }
}

fn gap_fault(session: SessionId, gap: &Gap, oldest: Seq) -> Fault {
    Fault::new(Kind::HistoryGap, Operation::FollowRecords)
        .with(Fact::Session, session.to_string())
        .with(Fact::FromSeq, gap.from)
        .with(Fact::ToSeq, gap.to)
        .with(Fact::OldestSeq, oldest)
        .with(Fact::Reason, gap.reason.as_str())
}

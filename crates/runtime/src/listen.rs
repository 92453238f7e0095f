//! A session's events for embedders: as a stream, filtered by type, or delivered to a listener.

use std::{panic::AssertUnwindSafe, sync::Arc};

use budao_core::{
    Fault, Kind, Record,
    engine::Engine,
    event::Seq,
    fault::{Fact, Operation},
};
use budao_journal::fold_at;
use futures::{FutureExt, Stream, StreamExt, future::BoxFuture, stream};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{
    Session,
    channel::{Bookmark, Channel, ChannelEvent, Envelope, Projector},
};

/// A listener ends after more than this many subscription failures in a row.
const TRIES: u32 = 8;

/// A running listener. Dropping the handle ends it.
#[derive(Debug)]
pub struct ListenerHandle(#[expect(dead_code, reason = "held for its drop")] DropGuard);

impl Session {
    /// Streams the events after position `since`, then live ones, in one order across `channels`.
    ///
    /// The stream ends only after an error: `history_gap` if retention has removed the next record,
    /// `epoch_mismatch` if the history was replaced, or a journal fault.
    ///
    /// # Errors
    /// The records cannot be read.
    pub async fn events(
        &self,
        channels: &[Channel],
        since: Seq,
    ) -> Result<impl Stream<Item = Result<Envelope, Fault>> + Send + use<>, Fault> {
        let (projector, after) = self.projector(since).await?;
        let records = self.runtime.follow(self.id, after).await?;
        let wanted = channels.to_vec();
        let events = records.scan(projector, move |projector, record| {
            let events = match record {
                Ok(record) => select_envelopes(projector.project(&record), &record, &wanted, since),
                Err(fault) => vec![Err(fault)],
            };
            futures::future::ready(Some(stream::iter(events)))
        });
        Ok(events.flatten())
    }

    /// Returns a projector for `since` and the position to project from. That is the beginning of the turn at
    /// `since`, so that snapshots of its calls are complete.
    async fn projector(&self, since: Seq) -> Result<(Projector, Seq), Fault> {
        let lang = self.state().await?.settings.language;
        let journal = self.runtime.journal();
        let state = match fold_at(&**journal, self.id, since).await {
            Ok(state) => state,
            // Retention removed the records before the bookmark; those after it are complete.
            Err(fault) if fault.kind() == Kind::HistoryGap => {
                return Ok((Projector::new(lang), since));
            }
            Err(fault) => return Err(fault),
        };
        let Some(turn) = &state.turn else { return Ok((Projector::at(lang, &state), since)) };
        let oldest = journal.info(self.id).await?.map_or(1, |info| info.first_available);
        let begin = turn.began.max(oldest).saturating_sub(1);
        Ok((Projector::at(lang, &state), begin.min(since)))
    }

    /// Streams events of all channels after position `since`, filtered and converted by `pick`.
    ///
    /// ```no_run
    /// # use budao_runtime::{Session, channel::ChannelEvent};
    /// # async fn errors(session: Session) -> Result<(), budao_core::Fault> {
    /// let errors = session
    ///     .select(0, |event| match event {
    ///         ChannelEvent::ToolError { call, error } => Some((call.name, error)),
    ///         _ => None,
    ///     })
    ///     .await?;
    /// # drop(errors);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The records cannot be read.
    pub async fn select<T: Send, F>(
        &self,
        since: Seq,
        pick: F,
    ) -> Result<impl Stream<Item = Result<T, Fault>> + Send + use<T, F>, Fault>
    where
        F: Fn(ChannelEvent) -> Option<T> + Send + 'static,
    {
        let all = [Channel::Progress, Channel::Control, Channel::Monitor];
        let events = self.events(&all, since).await?;
        Ok(events.filter_map(move |event| {
            let picked = match event {
                Ok(envelope) => pick(envelope.event).map(Ok),
                Err(fault) => Some(Err(fault)),
            };
            futures::future::ready(picked)
        }))
    }

    /// Calls `listener` with every event until the handle is dropped. If it panics or exceeds `limits.hook`,
    /// the runtime logs that and calls it with the next event; the session is not affected. If the records
    /// cannot be read, the listener gets an `error` of the monitor channel, whatever `channels` says, and
    /// resumes once they can.
    ///
    /// # Errors
    /// The records cannot be read at the start.
    pub async fn listen<F, R>(
        &self,
        channels: &[Channel],
        since: Seq,
        listener: F,
    ) -> Result<ListenerHandle, Fault>
    where
        F: Fn(Envelope) -> R + Send + Sync + 'static,
        R: Future<Output = ()> + Send + 'static,
    {
        // Fails early: a fault that exists at the start is returned to the caller.
        drop(self.projector(since).await?);
        let hearing = ListenerTask {
            session: self.clone(),
            channels: channels.to_vec(),
            since,
            failures: 0,
            listener: Box::new(move |event| Box::pin(listener(event))),
        };
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let spawn = Arc::clone(&self.runtime.world().spawn);
        spawn.spawn(Box::pin(async move {
            stopped.run_until_cancelled(hearing.run()).await;
        }));
        Ok(ListenerHandle(stop.drop_guard()))
    }
}

fn select_envelopes(
    events: Vec<Envelope>,
    record: &Record,
    wanted: &[Channel],
    since: Seq,
) -> Vec<Result<Envelope, Fault>> {
    if record.seq <= since {
        return Vec::new();
    }
    events.into_iter().filter(|event| wanted.contains(&event.channel)).map(Ok).collect()
}

type Listener = Box<dyn Fn(Envelope) -> BoxFuture<'static, ()> + Send + Sync>;

/// A listener and the position that it has reached.
struct ListenerTask {
    session: Session,
    channels: Vec<Channel>,
    since: Seq,
    failures: u32,
    listener: Listener,
}

impl ListenerTask {
    /// Delivers events, and subscribes again after a failure.
    async fn run(mut self) {
        loop {
            let fault = match self.session.events(&self.channels, self.since).await {
                Ok(events) => self.deliver_all(events).await,
                Err(fault) => fault,
            };
            self.failures += 1;
            let resumes = self.can_resume(&fault);
            tracing::warn!(session = %self.session.id, %fault, resumes, "listener interrupted");
            self.deliver(self.fault_envelope(&fault)).await;
            if !resumes {
                return;
            }
            let wait = self.session.runtime.limits().retry.delay(self.failures, 0.0);
            self.session.runtime.world().clock.sleep(wait).await;
        }
    }

    /// Delivers events until the stream fails, and returns the fault.
    async fn deliver_all(
        &mut self,
        events: impl Stream<Item = Result<Envelope, Fault>> + Send,
    ) -> Fault {
        futures::pin_mut!(events);
        while let Some(event) = events.next().await {
            match event {
                Ok(event) => {
                    (self.since, self.failures) = (event.bookmark.seq, 0);
                    self.deliver(event).await;
                }
                Err(fault) => return fault,
            }
        }
        Fault::new(Kind::ShuttingDown, Operation::FollowRecords)
    }

    /// Can the listener subscribe again? After a gap it continues at the oldest available record.
    fn can_resume(&mut self, fault: &Fault) -> bool {
        match fault.kind() {
            Kind::UnknownSession | Kind::EpochMismatch | Kind::JournalDamaged => false,
            Kind::HistoryGap => {
                let oldest = fault.detail().number(Fact::OldestSeq);
                let oldest = oldest.and_then(|oldest| Seq::try_from(oldest).ok()).unwrap_or(1);
                self.since = self.since.max(oldest.saturating_sub(1));
                self.failures <= TRIES
            }
            _ => self.failures <= TRIES,
        }
    }

    fn fault_envelope(&self, fault: &Fault) -> Envelope {
        let timestamp = self.session.runtime.world().clock.now().as_millis();
        Envelope {
            bookmark: Bookmark { seq: self.since, timestamp },
            channel: Channel::Monitor,
            event: ChannelEvent::of_fault(fault, budao_core::Lang::En),
        }
    }

    async fn deliver(&self, event: Envelope) {
        let runtime = &self.session.runtime;
        let delivery = AssertUnwindSafe(async { (self.listener)(event).await }).catch_unwind();
        let why = tokio::select! {
            biased;
            delivered = delivery => delivered.is_err().then_some("it panicked"),
            () = runtime.world().clock.sleep(runtime.limits().hook) => Some("it took too long"),
        };
        if let Some(reason) = why {
            let fault = Fault::new(Kind::ListenerFailed, Operation::NotifyListener)
                .with(Fact::Listener, format!("of session {}", self.session.id))
                .with(Fact::Reason, reason);
            tracing::warn!(session = %self.session.id, %fault, "listener failed");
        }
    }
}

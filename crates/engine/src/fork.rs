//! Forks: a session with a copy of another one's conversation, up to a point between turns.
//!
//! A fork has the records that the model and readers need: messages, answers, calls, decisions, plans and settings.
//! Faults, retries, waits, deltas, timers, costs and the gateways' own facts stay with the parent, so that nothing is
//! counted or fires twice. The copy is one append, so it is complete or absent.

use std::{collections::BTreeSet, time::Duration};

use budao_core::{
    engine::{ForkPoint, ForkRequest, wrong_engine},
    event::{CommandId, Entry, Event, Origin, Record, Seq, SessionId, Settings},
    fault::{Fact, Fault, Kind, Operation},
    tool::{Outcome, Truncation},
};
use budao_journal::{Append, Digest, IfMissing, Lease, LeaseRequest, Page, PageLimits};
use serde_json::json;

use crate::{decider::DeciderFactory, host::Host};

/// Validity of the lease while the copy is written.
const COPY_LEASE: Duration = Duration::from_secs(60);
/// The most records of a copy.
const RECORDS_MAX: usize = 50_000;
/// The most bytes of a copy's records.
const BYTES_MAX: usize = 64 << 20;

impl<F: DeciderFactory> Host<F> {
    /// Copies a session up to a point; see [`budao_core::engine::Engine::fork`].
    pub(crate) async fn fork_session(&self, request: ForkRequest) -> Result<SessionId, Fault> {
        let conversation = self.read_conversation(request).await?;
        let (entries, settings) = conversation.into_entries(request.parent)?;
        if !self.factory().accepts(&settings) {
            return Err(wrong_engine(request.parent, &settings));
        }
        let session = request.session.unwrap_or_else(|| SessionId(self.config().world.uuid()));
        let lease = self.lease_new_session(session).await?;
        let written = self.write_copy(&lease, entries).await;
        self.config().journal.release(&lease).await?;
        written.map(|()| session)
    }

    /// Reads the parent up to the fork point and keeps the records of the conversation.
    async fn read_conversation(&self, request: ForkRequest) -> Result<ForkCopy, Fault> {
        let mut conversation = ForkCopy::new(request.point);
        let mut after = 0;
        loop {
            let journal = &self.config().journal;
            let page = journal.read(request.parent, after, PageLimits::default()).await?;
            refuse_gap(request.parent, &page)?;
            let Some(last) = page.records.last() else { return conversation.finish() };
            after = last.seq;
            for stored in &page.records {
                if conversation.add(stored.record()?, stored.body.len())? {
                    return Ok(conversation);
                }
            }
        }
    }

    async fn lease_new_session(&self, session: SessionId) -> Result<Lease, Fault> {
        let journal = &self.config().journal;
        let holder = self.config().holder.clone();
        let (ttl, if_missing, dead_holder) = (COPY_LEASE, IfMissing::Create, None);
        let request = LeaseRequest { session, holder, ttl, if_missing, dead_holder };
        let lease = journal.take_lease(request).await?;
        if lease.head == 0 {
            return Ok(lease);
        }
        journal.release(&lease).await?;
        Err(Fault::new(Kind::CommandRepeated, Operation::OpenSession)
            .with(Fact::CommandId, session.to_string())
            .with(Fact::Session, session.to_string()))
    }

    async fn write_copy(&self, lease: &Lease, entries: Vec<Entry>) -> Result<(), Fault> {
        let journal = &self.config().journal;
        for digest in entries.iter().filter_map(|entry| stored_output_digest(&entry.event)) {
            // An output that retention removed is missing in the parent as well.
            if let Some(content) = journal.blob(digest.parse::<Digest>()?).await? {
                journal.put_blob(lease.session, content).await?;
            }
        }
        let append = Append::new(lease, 0, entries);
        journal.append(append).await.map_err(|error| error.into_fault(lease.session))?;
        Ok(())
    }
}

fn refuse_gap(session: SessionId, page: &Page) -> Result<(), Fault> {
    let Some(first) = page.gap.as_ref().and(page.records.first()) else { return Ok(()) };
    Err(Fault::new(Kind::HistoryGap, Operation::ReadRecords)
        .with(Fact::Session, session.to_string())
        .with(Fact::FromSeq, 1)
        .with(Fact::ToSeq, first.seq - 1)
        .with(Fact::OldestSeq, first.seq))
}

/// The name of a call's output that is stored apart from the record.
fn stored_output_digest(event: &Event) -> Option<&str> {
    match event {
        Event::ToolCallEnded { outcome: Outcome::Done(output), .. } => match &output.cut {
            Some(Truncation { kept: Some(digest), .. }) => Some(digest),
            _ => None,
        },
        _ => None,
    }
}

/// The conversation records of the parent that were read so far.
#[derive(Debug)]
struct ForkCopy {
    point: ForkPoint,
    kept: Vec<Record>,
    bytes: usize,
    is_running: bool,
    /// The number of kept records up to the last position between turns, and that position.
    last_boundary: (usize, Seq),
    /// The command of the message that the fork ends before, once it is read.
    message: Option<CommandId>,
}

impl ForkCopy {
    fn new(point: ForkPoint) -> Self {
        let (kept, bytes, is_running) = (Vec::new(), 0, false);
        Self { point, kept, bytes, is_running, last_boundary: (0, 0), message: None }
    }

    /// Adds one record of the parent. Returns true once the fork point is reached.
    fn add(&mut self, record: Record, bytes: usize) -> Result<bool, Fault> {
        let seq = record.seq;
        if self.point == ForkPoint::BeforeMessage(seq) {
            self.message = accepted_command(&record.event).cloned();
        }
        match &record.event {
            Event::TurnStarted { message } if self.message.as_ref() == Some(message) => {
                return Ok(true);
            }
            Event::TurnStarted { .. } => self.is_running = true,
            Event::TurnEnded { .. } => self.is_running = false,
            _ => {}
        }
        if is_conversation(&record.event) {
            self.bytes += bytes;
            self.kept.push(record);
            self.check_limits()?;
        }
        if !self.is_running {
            self.last_boundary = (self.kept.len(), seq);
        }
        match self.point {
            ForkPoint::After(at) if at == seq && self.last_boundary.1 == at => Ok(true),
            ForkPoint::After(at) if at <= seq => {
                Err(fork_point_fault("at", at, "at lies between turns"))
            }
            _ => Ok(false),
        }
    }

    fn check_limits(&self) -> Result<(), Fault> {
        let (limit, name) = match (self.kept.len() > RECORDS_MAX, self.bytes > BYTES_MAX) {
            (true, _) => (RECORDS_MAX, "fork_records"),
            (false, true) => (BYTES_MAX, "fork_bytes"),
            (false, false) => return Ok(()),
        };
        Err(Fault::new(Kind::LimitReached, Operation::OpenSession)
            .with(Fact::Limit, limit)
            .with(Fact::LimitName, name))
    }

    /// Ends the read at the parent's head. Any other fork point was not found and is invalid.
    fn finish(self) -> Result<Self, Fault> {
        match self.point {
            ForkPoint::End => Ok(self),
            ForkPoint::After(at) => Err(fork_point_fault("at", at, "at lies between turns")),
            ForkPoint::BeforeMessage(at) => {
                let rule = "before is the position of a message that a turn has begun to answer";
                Err(fork_point_fault("before", at, rule))
            }
        }
    }

    /// The records of the copy, and the settings that the session was opened with.
    fn into_entries(self, parent: SessionId) -> Result<(Vec<Entry>, Settings), Fault> {
        let (mut kept, at) = (self.kept, self.last_boundary.1);
        kept.truncate(self.last_boundary.0);
        let answered: BTreeSet<CommandId> = kept
            .iter()
            .filter_map(|record| match &record.event {
                Event::TurnStarted { message } => Some(message.clone()),
                _ => None,
            })
            .collect();
        // A message that waited in the queue at the fork point is left out.
        kept.retain(|record| {
            accepted_command(&record.event).is_none_or(|id| answered.contains(id))
        });
        let copied = kept.len() as Seq;
        let settings = match kept.first().map(|record| &record.event) {
            Some(Event::SessionOpened {
                origin: Some(Origin::Call { .. } | Origin::Stage { .. }),
                ..
            }) => {
                return Err(Fault::new(Kind::UnsupportedOperation, Operation::OpenSession)
                    .with(Fact::Reason, "the session of a sub-task is not forked"));
            }
            Some(Event::SessionOpened { settings, .. }) => settings.clone(),
            _ => {
                return Err(Fault::new(Kind::UnknownSession, Operation::OpenSession)
                    .with(Fact::Session, parent.to_string()));
            }
        };
        let origin = Origin::Fork { parent, at, copied };
        Ok((kept.into_iter().map(|record| to_entry(record, &origin)).collect(), settings))
    }
}

fn fork_point_fault(field: &'static str, at: Seq, rule: &'static str) -> Fault {
    Fault::new(Kind::ConstraintViolated, Operation::OpenSession)
        .with(Fact::Field, field)
        .with(Fact::Constraint, rule)
        .with(Fact::ProvidedValue, json!(at))
}

/// The command of a message, a pipeline or a retry that was accepted.
fn accepted_command(event: &Event) -> Option<&CommandId> {
    match event {
        Event::MessageAccepted { command, .. }
        | Event::PipelineAccepted { command, .. }
        | Event::RetryAccepted { command, .. }
        | Event::TimerFired { command, .. } => Some(command),
        _ => None,
    }
}

fn to_entry(record: Record, origin: &Origin) -> Entry {
    let event = match record.event {
        Event::SessionOpened { settings, .. } => Event::SessionOpened {
            settings: strip_parent_grants(settings),
            origin: Some(origin.clone()),
        },
        Event::SettingsChanged { settings } => {
            Event::SettingsChanged { settings: strip_parent_grants(settings) }
        }
        Event::TimerFired { command, content, .. } => Event::MessageAccepted { command, content },
        event => event,
    };
    Entry { at: record.at, trace: record.trace, turn: record.turn, event: event.into() }
}

/// The settings without the tools that workers offer to the parent and without its remembered permissions.
fn strip_parent_grants(mut settings: Settings) -> Settings {
    settings.offers.clear();
    settings.permissions.remembered.clear();
    settings
}

/// Whether a fork copies this event.
fn is_conversation(event: &Event) -> bool {
    !matches!(
        event,
        Event::SessionResumed { .. }
            | Event::SessionEnded { .. }
            | Event::CloseRequested { .. }
            | Event::MessageWithdrawn { .. }
            | Event::TimerSet(_)
            | Event::TimerCancelled { .. }
            | Event::RequestHeld { .. }
            | Event::RequestReleased { .. }
            | Event::PatienceChanged { .. }
            | Event::TextDelta { .. }
            | Event::ThinkingDelta { .. }
            | Event::AnswerAbandoned { .. }
            | Event::ToolOutputDelta { .. }
            | Event::FaultRaised { .. }
            | Event::RetryScheduled { .. }
            | Event::Recovered { .. }
            | Event::RecoveryFailed { .. }
            | Event::LateArrivalDropped { .. }
            | Event::ObserverLost(_)
            | Event::PlanRefused { .. }
            | Event::Annotated { .. }
    )
}

//! The model of a journal, which fits on a page, and the machine that compares a real one with it.
//!
//! Each implementation of a journal brings an [`Opener`].

#![allow(clippy::unwrap_used, reason = "a step that fails here fails the test that plays it")]

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use budao_core::{event::Answer, fault::Kind};
use budao_journal::{
    Append, AppendError, IfMissing, Journal, Lease, LeaseRequest, Retention, SubmitOutcome,
    conformance::fixture::message,
};
use proptest::prelude::*;
use proptest_state_machine::{ReferenceStateMachine, StateMachineTest};

use crate::records::{entries, number, session};

const SESSIONS: u64 = 3;
const HOLDERS: usize = 2;

/// The expected state of a journal: its sessions by number.
#[derive(Clone, Debug, Default)]
pub struct Model(BTreeMap<u64, Story>);

#[derive(Clone, Debug, Default)]
struct Story {
    head: u64,
    removed_to: u64,
    snapshot: Option<u64>,
    /// The snapshot is one that retention made; those of the steps cannot be decoded.
    is_usable: bool,
    holder: Option<usize>,
    /// In the order they came; true once answered.
    commands: Vec<(u8, bool)>,
}

/// One operation on a journal.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the fields are numbers of sessions, holders and records")]
pub enum Step {
    /// A holder asks for the lease.
    Take { session: u64, holder: usize },
    /// A holder gives the lease back.
    Release { session: u64, holder: usize },
    /// A holder appends; `off_by` makes the expected head wrong.
    Append { session: u64, holder: usize, count: u64, off_by: u64, snapshot: bool, answer: bool },
    /// A former holder appends.
    Stale { session: u64 },
    /// A command arrives in the inbox.
    Submit { session: u64, id: u8, is_other: bool },
    /// Retention keeps this many records of each session.
    Trim { keep: u64 },
    /// The session is deleted.
    Delete { session: u64 },
    /// The journal is closed and opened again.
    Reopen,
}

impl ReferenceStateMachine for Model {
    type State = Self;
    type Transition = Step;

    fn init_state() -> BoxedStrategy<Self> {
        Just(Self::default()).boxed()
    }

    fn transitions(_: &Self) -> BoxedStrategy<Step> {
        let (session, holder) = (0..SESSIONS, 0..HOLDERS);
        prop_oneof![
            3 => (session.clone(), holder.clone())
                .prop_map(|(session, holder)| Step::Take { session, holder }),
            1 => (session.clone(), holder.clone())
                .prop_map(|(session, holder)| Step::Release { session, holder }),
            8 => (session.clone(), holder, 0_u64..30, 0_u64..12, any::<bool>(), any::<bool>())
                .prop_map(|(session, holder, count, off_by, snapshot, answer)| {
                    let off_by = off_by.saturating_sub(9);
                    Step::Append { session, holder, count, off_by, snapshot, answer }
                }),
            1 => session.clone().prop_map(|session| Step::Stale { session }),
            3 => (session.clone(), 0_u8..4, any::<bool>())
                .prop_map(|(session, id, is_other)| Step::Submit { session, id, is_other }),
            1 => (0_u64..20).prop_map(|keep| Step::Trim { keep }),
            1 => session.prop_map(|session| Step::Delete { session }),
            1 => Just(Step::Reopen),
        ]
        .boxed()
    }

    fn apply(mut model: Self, step: &Step) -> Self {
        match step {
            Step::Take { session, holder } => {
                let story = model.0.entry(*session).or_default();
                if story.holder.is_none() {
                    story.holder = Some(*holder);
                }
            }
            Step::Release { session, holder } => {
                if let Some(story) = model.held(*session, *holder) {
                    story.holder = None;
                }
            }
            Step::Append { session, holder, count, off_by: 0, snapshot, answer } => {
                if let Some(story) = model.held(*session, *holder) {
                    story.head += count;
                    if *snapshot {
                        story.snapshot = Some(story.head);
                        story.is_usable = false;
                    }
                    let waiting = story.commands.iter_mut().find(|(_, is_answered)| !is_answered);
                    if let Some(waiting) = waiting.filter(|_| *answer) {
                        waiting.1 = true;
                    }
                }
            }
            Step::Submit { session, id, is_other: false } => {
                if let Some(story) = model.0.get_mut(session)
                    && !story.commands.iter().any(|(known, _)| known == id)
                {
                    story.commands.push((*id, false));
                }
            }
            Step::Submit { session, id, is_other: true } => {
                // An unknown id takes whatever it asks; a known one refuses another ask.
                if let Some(story) = model.0.get_mut(session)
                    && !story.commands.iter().any(|(known, _)| *known == id + 100)
                {
                    story.commands.push((id + 100, false));
                }
            }
            Step::Trim { keep } => {
                for story in model.0.values_mut() {
                    let wanted = story.head.saturating_sub(*keep);
                    let is_foldable = story.is_usable || story.removed_to == 0;
                    if wanted > story.removed_to.max(story.snapshot.unwrap_or(0)) && is_foldable {
                        (story.snapshot, story.is_usable) = (Some(story.head), true);
                    }
                    let to = wanted.min(story.snapshot.unwrap_or(0));
                    story.removed_to = story.removed_to.max(to);
                }
            }
            Step::Delete { session } => {
                model.0.remove(session);
            }
            Step::Append { .. } | Step::Stale { .. } | Step::Reopen => {}
        }
        model
    }
}

impl Model {
    fn held(&mut self, session: u64, holder: usize) -> Option<&mut Story> {
        self.0.get_mut(&session).filter(|story| story.holder == Some(holder))
    }
}

/// Opens one journal again and again. Each value has an empty journal of its own.
#[async_trait]
pub trait Opener: Sized {
    /// An empty journal, not open yet.
    fn new() -> Self;

    /// Opens the journal, for the first time or again.
    async fn open(&self) -> Arc<dyn Journal>;
}

/// The real journal, with the leases that were granted.
#[derive(Debug)]
pub struct RealJournal<O> {
    runtime: Arc<tokio::runtime::Runtime>,
    opener: O,
    journal: Arc<dyn Journal>,
    leases: BTreeMap<(u64, usize), Lease>,
    stale: BTreeMap<u64, Lease>,
}

impl<O: Opener> StateMachineTest for RealJournal<O> {
    type SystemUnderTest = Self;
    type Reference = Model;

    fn init_test(_: &Model) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let opener = O::new();
        let journal = runtime.block_on(opener.open());
        let (leases, stale) = (BTreeMap::new(), BTreeMap::new());
        Self { runtime: Arc::new(runtime), opener, journal, leases, stale }
    }

    fn apply(mut real: Self, model: &Model, step: Step) -> Self {
        let runtime = Arc::clone(&real.runtime);
        runtime.block_on(real.perform(model, step));
        runtime.block_on(real.compare(model));
        real
    }

    fn teardown(real: Self, _: Model) {
        real.runtime.block_on(real.journal.close());
    }
}

impl<O: Opener> RealJournal<O> {
    /// `model` is the state after the step.
    async fn perform(&mut self, model: &Model, step: Step) {
        match step {
            Step::Take { session: name, holder } => self.take(model, name, holder).await,
            Step::Release { session: name, holder } => {
                if let Some(lease) = self.leases.remove(&(name, holder)) {
                    self.journal.release(&lease).await.unwrap();
                    self.stale.insert(name, lease);
                }
            }
            Step::Append { session: name, holder, count, off_by, snapshot, answer } => {
                self.append(model, name, holder, (count, off_by, snapshot, answer)).await;
            }
            Step::Stale { session: name } => {
                if let Some(lease) = self.stale.get(&name) {
                    let append = Append::new(lease, 0, entries(0, 1, 1));
                    assert_eq!(self.journal.append(append).await, Err(AppendError::Fenced));
                }
            }
            Step::Submit { session: name, id, is_other } => {
                let id = if is_other { id + 100 } else { id };
                let command = message(&id.to_string(), if is_other { "y" } else { "x" });
                let done = self.journal.submit(session(name), command).await;
                let Some(story) = model.0.get(&name) else {
                    assert_eq!(done.unwrap_err().kind(), Kind::UnknownSession);
                    return;
                };
                let is_answered = story.commands.iter().find(|(known, _)| *known == id).unwrap().1;
                assert_eq!(matches!(done.unwrap(), SubmitOutcome::Answered(_)), is_answered);
            }
            Step::Trim { keep } => {
                let retention = Retention { records: Some(keep), ..Retention::default() };
                self.journal.retain(retention).await.unwrap();
            }
            Step::Delete { session: name } => {
                self.journal.delete(session(name)).await.unwrap();
                for holder in 0..HOLDERS {
                    if let Some(lease) = self.leases.remove(&(name, holder)) {
                        self.stale.insert(name, lease);
                    }
                }
            }
            Step::Reopen => {
                self.journal.close().await;
                self.journal = self.opener.open().await;
            }
        }
    }

    async fn take(&mut self, model: &Model, name: u64, holder: usize) {
        let request = LeaseRequest {
            session: session(name),
            holder: holder.to_string(),
            ttl: std::time::Duration::from_secs(60),
            if_missing: IfMissing::Create,
            dead_holder: None,
        };
        let taken = self.journal.take_lease(request).await;
        let story = &model.0[&name];
        if story.holder != Some(holder) {
            assert_eq!(taken.unwrap_err().kind(), Kind::SessionBusy);
            return;
        }
        let lease = taken.unwrap();
        assert_eq!(lease.head, story.head);
        if let Some(old) = self.leases.insert((name, holder), lease) {
            self.stale.insert(name, old);
        }
    }

    async fn append(
        &mut self,
        model: &Model,
        name: u64,
        holder: usize,
        (count, off_by, snapshot, answer): (u64, u64, bool, bool),
    ) {
        let Some(lease) = self.leases.get(&(name, holder)) else { return };
        let story = &model.0[&name];
        // The model has made the step already, if it was to be made.
        let before = if off_by == 0 { story.head - count } else { story.head };
        let waiting = self.journal.inbox(session(name)).await.unwrap();
        let answers = match waiting.first() {
            Some(first) if answer => vec![(first.id.clone(), Answer::Accepted { at: before })],
            _ => vec![],
        };
        let append = Append {
            answers,
            snapshot: snapshot.then(|| vec![1, 2, 3]),
            ..Append::new(lease, before + off_by, entries(before, count, 3))
        };
        let done = self.journal.append(append).await;
        if off_by == 0 {
            assert_eq!(done, Ok(story.head));
        } else {
            assert_eq!(done, Err(AppendError::Conflict { head: before }));
        }
    }

    async fn compare(&self, model: &Model) {
        for name in 0..SESSIONS {
            let info = self.journal.info(session(name)).await.unwrap();
            let Some(story) = model.0.get(&name) else {
                assert_eq!(info, None);
                continue;
            };
            let info = info.unwrap();
            assert_eq!((info.head, info.first_available), (story.head, story.removed_to + 1));
            assert_eq!(info.lease.map(|lease| lease.holder), story.holder.map(|h| h.to_string()));
            let limits = budao_journal::PageLimits::default();
            let page = self.journal.read(session(name), 0, limits).await.unwrap();
            let numbers: Vec<u64> = page.records.iter().map(number).collect();
            assert_eq!(numbers, (story.removed_to + 1..=story.head).collect::<Vec<_>>());
            let snapshot = self.journal.snapshot(session(name)).await.unwrap();
            assert_eq!(snapshot.map(|snapshot| snapshot.seq), story.snapshot);
            let waiting = self.journal.inbox(session(name)).await.unwrap();
            let waiting: Vec<String> = waiting.iter().map(|c| c.id.to_string()).collect();
            let expected = story.commands.iter().filter(|(_, is_answered)| !is_answered);
            assert_eq!(waiting, expected.map(|(id, _)| id.to_string()).collect::<Vec<_>>());
        }
    }
}

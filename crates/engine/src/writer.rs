//! The one writer of a session: holds the lease, reads the inbox, appends batches before they are answered.
//!
//! Every engine writes through a [`SessionWriter`]. It starts when the lease is granted and the session is loaded.
//! A [`Batch`] is answered only after [`SessionWriter::commit`] has made it durable.

use std::{collections::VecDeque, fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use budao_core::{
    event::{Answer, Command, CommandId, Seq, SessionId},
    fault::{Category, Fact, Fault, Kind, Operation},
    limits::Limits,
    session::Session,
    time::Timestamp,
    world::{Clock, World},
};
use budao_journal::{
    Append, AppendError, ChangeWatch, Entry, IfMissing, Journal, Lease, LeaseInfo, LeaseRequest,
    fold,
};

use crate::{
    batch::{AdmittedCommand, Batch, RememberedAnswer, Reply, TaskRefusal},
    restart::{WriterExit, is_transient},
    subscribers::CommitSubscribers,
    written::{WriterPosition, WrittenPositions},
};

/// Answers kept in memory for commands that are repeated soon.
const RECENT_ANSWERS_MAX: usize = 64;
/// Tries of one append; the wait before try `n + 1` is `n` times [`APPEND_RETRY_WAIT`].
const APPEND_TRIES: u32 = 4;
const APPEND_RETRY_WAIT: Duration = Duration::from_millis(100);
/// Upper bound for a plausible lease, unless four of this process's leases are longer. A longer one is treated as
/// clock skew.
const PLAUSIBLE_LEASE: Duration = Duration::from_secs(60);
/// A live holder renews its lease within this time, unless one of this process's leases is longer.
const RENEWAL_DEADLINE: Duration = Duration::from_secs(15);

/// Knows which lease holders have died, so that their leases need not run out first.
pub trait HolderLiveness: Send + Sync + fmt::Debug {
    /// Whether the process behind this holder name is certainly dead; `false` when in doubt.
    fn is_dead(&self, holder: &str) -> bool;

    /// Whether the process behind this holder name is a living server whose death will be noticed; `false` when in
    /// doubt.
    fn is_alive(&self, holder: &str) -> bool {
        let _ = holder;
        false
    }
}

/// Knows nothing about other holders: every lease runs out by itself.
#[derive(Debug)]
pub struct UnknownLiveness;

impl HolderLiveness for UnknownLiveness {
    fn is_dead(&self, _holder: &str) -> bool {
        false
    }
}

/// Frees disk space, memory or quota after an append failed for lack of it.
#[async_trait]
pub trait SpaceReclaimer: Send + Sync {
    /// Frees as much as possible. Returns whether another try of the append may succeed.
    async fn reclaim(&self, fault: &Fault) -> bool;
}

/// Frees no space, so a full journal fails at once.
#[derive(Clone, Copy, Debug)]
pub struct NoReclaimer;

#[async_trait]
impl SpaceReclaimer for NoReclaimer {
    async fn reclaim(&self, _fault: &Fault) -> bool {
        false
    }
}

/// The parts of the host that a writer uses to start.
#[derive(Clone, Copy, Debug)]
pub struct WriterConfig<'a> {
    /// The journal that holds the session.
    pub journal: &'a Arc<dyn Journal>,
    /// Clock, randomness and task spawning.
    pub world: &'a World,
    /// Lease duration, renewal interval, snapshot distance.
    pub limits: &'a Limits,
    /// The name under which the lease is taken; unique for each process run.
    pub holder: &'a str,
    /// Tells which leases may be taken before they expire.
    pub liveness: &'a dyn HolderLiveness,
    /// Receives the writer's position after each commit.
    pub written: &'a WrittenPositions,
}

/// The lease holder of one session.
#[derive(Debug)]
pub struct SessionWriter {
    journal: Arc<dyn Journal>,
    clock: Arc<dyn Clock>,
    session: SessionId,
    lease: Lease,
    lease_ttl: Duration,
    renewal: Duration,
    renew_at: Timestamp,
    /// The position of the last snapshot.
    snapshot: Seq,
    /// The least distance between two snapshots.
    snapshot_distance: Seq,
    watch: ChangeWatch,
    /// The last read of the inbox failed and must be repeated.
    must_reread_inbox: bool,
    /// The session has no records yet and its opening is under way: no command can be answered.
    is_opening: bool,
    /// The session has just been opened: commands that arrived before can be answered.
    was_just_opened: bool,
    recent_answers: VecDeque<RememberedAnswer>,
    subscribers: CommitSubscribers,
    position: Arc<WriterPosition>,
}

/// The result of a commit.
#[derive(Debug)]
pub struct CommitResult {
    /// The entries that were appended.
    pub entries: Vec<Entry>,
    /// Whether anything was appended. Answers count, also without entries.
    pub wrote: bool,
}

/// Commands whose answer only the journal has.
#[derive(Debug, Default)]
pub struct AnsweredCommands(Vec<CommandId>);

/// How a command reached the writer.
#[derive(Clone, Copy, Debug)]
pub enum CommandArrival<'a> {
    /// It waits in the journal's inbox.
    Inbox,
    /// Its caller sent it to this process; with what [`SessionWriter::find_answered`] found.
    Direct(&'a AnsweredCommands),
}

impl SessionWriter {
    /// Takes the lease and loads the session.
    ///
    /// # Errors
    /// `session_busy` when another process holds the lease, `unknown_session`, or a journal fault.
    pub async fn start(
        config: WriterConfig<'_>,
        session: SessionId,
        if_missing: IfMissing,
    ) -> Result<(Self, Session), Fault> {
        let WriterConfig { journal, world, limits, .. } = config;
        let watch = journal.watch(session);
        let lease = take_lease(config, session, if_missing).await?;
        let (state, snapshot) = match lease.head {
            0 => (Session::default(), 0),
            _ => match fold(&**journal, session).await {
                Ok(folded) => folded,
                Err(fault) => {
                    let released = journal.release(&lease).await;
                    if let Err(fault) = released {
                        tracing::warn!(%session, %fault, "lease release failed");
                    }
                    return Err(fault);
                }
            },
        };
        let writer = Self {
            journal: Arc::clone(journal),
            clock: Arc::clone(&world.clock),
            session,
            lease,
            lease_ttl: limits.lease,
            renewal: limits.lease_renewal,
            renew_at: world.clock.now().after(limits.lease_renewal),
            snapshot,
            snapshot_distance: limits.snapshot_records,
            watch,
            must_reread_inbox: false,
            is_opening: if_missing == IfMissing::Create && state.head == 0,
            was_just_opened: false,
            recent_answers: VecDeque::new(),
            subscribers: CommitSubscribers::new(session, &state, &world.spans),
            position: config.written.register(session, state.head),
        };
        Ok((writer, state))
    }

    /// The time of the next lease renewal; at most one renewal interval ahead, also after the clock was set back.
    #[must_use]
    pub fn renew_at(&self, now: Timestamp) -> Timestamp {
        self.renew_at.min(now.after(self.renewal))
    }

    /// Renews the lease if it is time. Returns whether the inbox must be read again.
    ///
    /// # Errors
    /// [`WriterExit::Fenced`] when another writer holds the lease.
    pub async fn renew(&mut self, now: Timestamp) -> Result<bool, WriterExit> {
        let was_set_back = self.renew_at > now.after(self.renewal);
        if now < self.renew_at && !was_set_back {
            return Ok(false);
        }
        match self.journal.renew(&self.lease, self.lease_ttl).await {
            Ok(lease) => self.lease = lease,
            Err(fault) if fault.kind() == Kind::Fenced => return Err(WriterExit::Fenced),
            // An expired lease stays valid until another process takes it.
            Err(fault) => tracing::warn!(session = %self.session, %fault, "lease renewal failed"),
        }
        self.renew_at = now.after(self.renewal);
        Ok(self.must_reread_inbox)
    }

    /// Completes when the inbox may hold a new command.
    pub async fn wait_for_inbox_change(&mut self) {
        if !std::mem::take(&mut self.was_just_opened) {
            self.watch.wait_for_change().await;
        }
    }

    /// Reads the commands that other processes submitted.
    pub async fn read_inbox(&mut self) -> Vec<Command> {
        if self.is_opening {
            return Vec::new();
        }
        match self.journal.inbox(self.session).await {
            Ok(commands) => {
                self.must_reread_inbox = false;
                commands
            }
            Err(fault) => {
                tracing::warn!(session = %self.session, %fault, "inbox read failed");
                self.must_reread_inbox = true;
                Vec::new()
            }
        }
    }

    /// Releases the lease.
    pub async fn release(&self) {
        if let Err(fault) = self.journal.release(&self.lease).await {
            tracing::warn!(session = %self.session, %fault, "lease release failed");
        }
    }

    /// Releases the lease of a session whose turn waits. The session stays reserved for this process.
    pub async fn reserve(&self, time: Duration) {
        if let Err(fault) = self.journal.reserve(&self.lease, time).await {
            tracing::warn!(session = %self.session, %fault, "lease reservation failed");
        }
    }

    /// Adds the caller of an opening to the batch. Returns `false` if the session has records; its caller is then
    /// refused once the batch is durable, so that it finds the session.
    #[must_use]
    pub fn admit_opening(&self, state: &Session, reply: Reply<()>, batch: &mut Batch) -> bool {
        if state.head > 0 {
            let fault = Fault::new(Kind::CommandRepeated, Operation::OpenSession)
                .with(Fact::CommandId, self.session.to_string())
                .with(Fact::Session, self.session.to_string());
            batch.add_opening(reply, Err(fault));
            return false;
        }
        batch.add_opening(reply, Ok(()));
        true
    }

    /// Asks the journal once which of these commands have an answer that this process does not remember.
    pub async fn find_answered(&self, mut direct: Vec<CommandId>) -> AnsweredCommands {
        let is_remembered =
            |id: &CommandId| self.recent_answers.iter().any(|known| known.id == *id);
        direct.retain(|id| !id.is_own() && !is_remembered(id));
        if direct.is_empty() {
            return AnsweredCommands::default();
        }
        // If the journal cannot tell, each caller asks the inbox.
        AnsweredCommands(self.journal.answered(self.session, &direct).await.unwrap_or(direct))
    }

    /// Admits a command that is new. A repetition gets its earlier answer from memory; if only the journal has that
    /// answer, the caller is sent to the inbox.
    pub fn admit(
        &self,
        state: &Session,
        command: &Command,
        arrival: CommandArrival<'_>,
        reply: Reply<Answer>,
        batch: &mut Batch,
    ) -> Option<AdmittedCommand> {
        let from_inbox = matches!(arrival, CommandArrival::Inbox);
        if state.head == 0 {
            // The lease was taken once and the session never opened.
            let fault = Fault::new(Kind::UnknownSession, Operation::SubmitCommand)
                .with(Fact::Session, self.session.to_string());
            if from_inbox {
                batch.reject(command.id.clone(), fault.clone());
            }
            drop(reply.send(Err(fault.into())));
            return None;
        }
        let (reply, body_hash) =
            batch.answer_repetition(self.session, command, reply, &self.recent_answers)?;
        let recorded = (!from_inbox && !command.id.is_own()).then(|| command.clone());
        if let CommandArrival::Direct(answered) = arrival
            && answered.0.contains(&command.id)
        {
            drop(reply.send(Err(TaskRefusal::UseInbox)));
            return None;
        }
        Some(AdmittedCommand { body_hash, recorded, from_inbox, reply })
    }

    /// Makes a batch durable, then answers its callers. `state` is the session after the batch.
    ///
    /// # Errors
    /// When the append failed; the callers of the batch have received a refusal.
    pub async fn commit(
        &mut self,
        batch: Batch,
        state: &Session,
        reclaimer: &dyn SpaceReclaimer,
    ) -> Result<CommitResult, WriterExit> {
        let wrote = !batch.is_empty();
        if wrote && let Err(exit) = self.append(&batch, state, reclaimer).await {
            let refusal = match &exit {
                WriterExit::Failed(fault) if fault.kind() != Kind::CommandRepeated => {
                    TaskRefusal::Fault(fault.clone())
                }
                _ => TaskRefusal::UseInbox,
            };
            batch.refuse(&refusal);
            return Err(exit);
        }
        if self.is_opening && state.head > 0 {
            (self.is_opening, self.was_just_opened) = (false, true);
        }
        let entries = batch.answer_all(&mut self.recent_answers, RECENT_ANSWERS_MAX);
        self.position.advance(state.head);
        self.subscribers.publish(&entries);
        Ok(CommitResult { entries, wrote })
    }

    async fn append(
        &mut self,
        batch: &Batch,
        state: &Session,
        reclaimer: &dyn SpaceReclaimer,
    ) -> Result<(), WriterExit> {
        let head = state.head;
        // The distance grows with the history, so that snapshots cost a constant share of all writes.
        let is_due = head - self.snapshot >= self.snapshot_distance.max(self.snapshot / 2);
        let snapshot = is_due.then(|| serde_json::to_vec(state).ok()).flatten();
        if snapshot.is_some() {
            self.snapshot = head;
        }
        let append = || batch.append(self.session, self.lease.token, head, snapshot.clone());
        self.append_with_retries(append, head, reclaimer).await
    }

    /// Appends; repeats transient failures here, so that running work is not thrown away for them.
    async fn append_with_retries(
        &self,
        append: impl Fn() -> Append,
        head: Seq,
        reclaimer: &dyn SpaceReclaimer,
    ) -> Result<(), WriterExit> {
        let mut attempt = 0;
        loop {
            attempt += 1;
            let fault = match self.journal.append(append()).await {
                Ok(_) => return Ok(()),
                // Only this writer appends, so the records are there and only the reply was lost.
                Err(AppendError::Conflict { head: there }) if attempt > 1 && there == head => {
                    return Ok(());
                }
                Err(AppendError::Fenced) => return Err(WriterExit::Fenced),
                Err(error) => error.into_fault(self.session),
            };
            let is_full = fault.row().category == Category::Resource;
            let tries = if is_full { 2 } else { APPEND_TRIES };
            if attempt >= tries || !is_transient(&fault) || fault.kind() == Kind::CommandRepeated {
                return Err(WriterExit::Failed(fault));
            }
            if !is_full {
                tracing::warn!(session = %self.session, %fault, attempt, "append failed, retrying");
                self.clock.sleep(APPEND_RETRY_WAIT * attempt).await;
            } else if !reclaimer.reclaim(&fault).await {
                return Err(WriterExit::Failed(fault));
            }
        }
    }
}

/// Takes the lease: at once if its holder is known to be dead.
async fn take_lease(
    config: WriterConfig<'_>,
    session: SessionId,
    if_missing: IfMissing,
) -> Result<Lease, Fault> {
    let request = LeaseRequest {
        session,
        holder: config.holder.to_owned(),
        ttl: config.limits.lease,
        if_missing,
        dead_holder: None,
    };
    let fault = match config.journal.take_lease(request.clone()).await {
        Err(fault) if fault.kind() == Kind::SessionBusy => fault,
        taken => return taken,
    };
    let Some(lease) = config.journal.info(session).await?.and_then(|info| info.lease) else {
        return Err(fault);
    };
    let is_dead = config.liveness.is_dead(&lease.holder);
    if !is_dead && !is_from_skewed_clock(config, session, &lease).await? {
        return Err(fault);
    }
    let request = LeaseRequest { dead_holder: Some(lease.holder), ..request };
    config.journal.take_lease(request).await
}

/// Whether the lease was granted before the clock was set back. It would then block every writer until the clock
/// catches up. A live holder renews it within [`RENEWAL_DEADLINE`], so an implausibly long lease that stays unchanged is dead.
async fn is_from_skewed_clock(
    config: WriterConfig<'_>,
    session: SessionId,
    lease: &LeaseInfo,
) -> Result<bool, Fault> {
    let ttl = config.limits.lease;
    if lease.expires.since(config.world.clock.now()) <= PLAUSIBLE_LEASE.max(ttl * 4) {
        return Ok(false);
    }
    config.world.clock.sleep(RENEWAL_DEADLINE.max(ttl)).await;
    let now = config.journal.info(session).await?.and_then(|info| info.lease);
    Ok(now.as_ref() == Some(lease))
}

/// The fault that says that another writer holds the session.
#[must_use]
pub fn session_busy(session: SessionId) -> Fault {
    Fault::new(Kind::SessionBusy, Operation::OpenSession).with(Fact::Session, session.to_string())
}

/// The fault that says that the session's task ended before it could answer.
#[must_use]
pub fn task_gone(session: SessionId) -> Fault {
    Fault::new(Kind::ShuttingDown, Operation::SubmitCommand)
        .with(Fact::Session, session.to_string())
}

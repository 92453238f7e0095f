//! Being the one writer of a session: the lease, the inbox, and rounds that are durable before they are answered.
//!
//! What every engine does alike, whatever decides in it. A [`Tenure`] begins when the lease is had and the session
//! read; what is decided goes into a [`Round`], which [`Tenure::commit`] makes durable and only then answers.

mod lives;
mod round;
mod sessions;

use std::{collections::VecDeque, fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use budao_core::{
    event::{Command, CommandId, Seq, SessionId},
    fault::{Category, Fact, Fault, Kind, Operation},
    limits::Limits,
    seams::{Clock, Spans, World},
    session::Session,
    span::Weaver,
    time::Timestamp,
};

use self::{lives::is_passing, round::Taken};
pub use self::{
    lives::{After, Exit, Lives},
    round::{Admitted, Reply, Round},
    sessions::{Handed, Sessions, confirm, hand_in, wrong_engine},
};
use crate::{
    Append, AppendError, Entry, Journal, Lease, LeaseInfo, LeaseRequest, Missing, Watch, fold,
};

/// Answers remembered, for commands that come again at once.
const REMEMBERED: usize = 64;
/// Tries of one append, and the wait that grows between them.
const APPEND_TRIES: u32 = 4;
const APPEND_WAIT: Duration = Duration::from_millis(100);

/// Knows which holders of leases are gone, so that nobody waits for them.
pub trait Census: Send + Sync + fmt::Debug {
    /// Is whoever took leases under this name certainly gone? When in doubt, no: the lease runs out.
    fn is_gone(&self, holder: &str) -> bool;
}

/// Knows of nobody.
#[derive(Debug)]
pub struct NoCensus;

impl Census for NoCensus {
    fn is_gone(&self, _holder: &str) -> bool {
        false
    }
}

/// Makes room when a disk, memory or a quota is full.
#[async_trait]
pub trait Room: Send + Sync {
    /// Tries to. Is it worth another try?
    async fn make(&self, fault: &Fault) -> bool;
}

/// Has no room to make.
#[derive(Clone, Copy, Debug)]
pub struct NoRoom;

#[async_trait]
impl Room for NoRoom {
    async fn make(&self, _fault: &Fault) -> bool {
        false
    }
}

/// A lease that runs longer than this, or than four of ours, is none that anybody gives; and whoever lives renews
/// within this, or within one of ours.
const LEASE_LONGEST: Duration = Duration::from_secs(60);
const LEASE_USUAL: Duration = Duration::from_secs(15);

/// Who wants to write, and what it is bound to.
#[derive(Clone, Copy, Debug)]
pub struct Terms<'a> {
    /// Where.
    pub journal: &'a Arc<dyn Journal>,
    /// Time.
    pub world: &'a World,
    /// The bounds.
    pub limits: &'a Limits,
    /// Under which name.
    pub holder: &'a str,
    /// Who is gone.
    pub census: &'a dyn Census,
}

/// One time of being a session's writer.
#[derive(Debug)]
pub struct Tenure {
    journal: Arc<dyn Journal>,
    clock: Arc<dyn Clock>,
    id: SessionId,
    lease: Lease,
    ttl: Duration,
    renewal: Duration,
    renew_at: Timestamp,
    /// The position of the last snapshot, and how far they are apart at least.
    snapshot: Seq,
    apart: Seq,
    watch: Watch,
    /// The inbox could not be read and must be looked at again.
    missed: bool,
    /// Whoever made us come is about to open the session; until then nobody can be answered.
    is_opening: bool,
    /// It was opened: what came before that can be answered now.
    is_opened: bool,
    remembered: VecDeque<Taken>,
    spans: Arc<dyn Spans>,
    weaver: Weaver,
}

/// What became of a round.
#[derive(Debug)]
pub struct Committed {
    /// What was recorded.
    pub entries: Vec<Entry>,
    /// Was anything made durable at all?
    pub wrote: bool,
}

impl Tenure {
    /// Becomes the session's writer, and reads it.
    ///
    /// # Errors
    /// When somebody else has it (`session_busy`), there is none, or the journal fails.
    pub async fn begin(
        terms: Terms<'_>,
        id: SessionId,
        missing: Missing,
    ) -> Result<(Self, Session), Fault> {
        let Terms { journal, world, limits, .. } = terms;
        let watch = journal.watch(id);
        let lease = take_lease(terms, id, missing).await?;
        let (session, snapshot) = match lease.head {
            0 => (Session::default(), 0),
            _ => fold(&**journal, id).await?,
        };
        let tenure = Self {
            journal: Arc::clone(journal),
            clock: Arc::clone(&world.clock),
            id,
            lease,
            ttl: limits.lease,
            renewal: limits.lease_renewal,
            renew_at: world.clock.now().after(limits.lease_renewal),
            snapshot,
            apart: limits.snapshot_records,
            watch,
            missed: false,
            is_opening: missing == Missing::Create && session.head == 0,
            is_opened: false,
            remembered: VecDeque::new(),
            spans: Arc::clone(&world.spans),
            weaver: Weaver::new(id, &session),
        };
        Ok((tenure, session))
    }

    /// When the lease is renewed next: soon, also if the clock was set back meanwhile.
    #[must_use]
    pub fn renew_at(&self, now: Timestamp) -> Timestamp {
        self.renew_at.min(now.after(self.renewal))
    }

    /// Renews the lease if it is time. Must the inbox be looked at again?
    ///
    /// # Errors
    /// When another writer has the session.
    pub async fn renew(&mut self, now: Timestamp) -> Result<bool, Exit> {
        let was_set_back = self.renew_at > now.after(self.renewal);
        if now < self.renew_at && !was_set_back {
            return Ok(false);
        }
        match self.journal.renew(&self.lease, self.ttl).await {
            Ok(lease) => self.lease = lease,
            Err(fault) if fault.kind() == Kind::Fenced => return Err(Exit::Fenced),
            // A lease that has run out still works until somebody takes it.
            Err(fault) => tracing::warn!(session = %self.id, %fault, "the lease was not renewed"),
        }
        self.renew_at = now.after(self.renewal);
        Ok(self.missed)
    }

    /// Completes when somebody may have left something in the inbox.
    pub async fn changed(&mut self) {
        if !std::mem::take(&mut self.is_opened) {
            self.watch.changed().await;
        }
    }

    /// Commands that other processes left for us.
    pub async fn inbox(&mut self) -> Vec<Command> {
        if self.is_opening {
            return Vec::new();
        }
        match self.journal.inbox(self.id).await {
            Ok(commands) => {
                self.missed = false;
                commands
            }
            Err(fault) => {
                tracing::warn!(session = %self.id, %fault, "the inbox could not be read");
                self.missed = true;
                Vec::new()
            }
        }
    }

    /// Gives the session back.
    pub async fn release(&self) {
        if let Err(fault) = self.journal.release(&self.lease).await {
            tracing::warn!(session = %self.id, %fault, "the lease was not given back");
        }
    }

    /// May a session be opened here? One that is there already may not.
    #[must_use]
    pub fn opens(&self, session: &Session, reply: Reply<()>, round: &mut Round) -> bool {
        if session.head > 0 {
            let fault = Fault::new(Kind::CommandRepeated, Operation::OpenSession)
                .with(Fact::Session, self.id.to_string());
            drop(reply.send(Err(fault)));
            return false;
        }
        round.opened(reply);
        true
    }

    /// Is this command to be taken up? If it was before, whoever sent it gets that answer.
    pub async fn admit(
        &self,
        session: &Session,
        command: &Command,
        waits: bool,
        reply: Reply<budao_core::event::Answer>,
        round: &mut Round,
    ) -> Option<Admitted> {
        if session.head == 0 {
            // Taken once and never opened. Who waits at its inbox is told like anybody else.
            let fault = Fault::new(Kind::UnknownSession, Operation::SubmitCommand)
                .with(Fact::Session, self.id.to_string());
            if waits {
                round.reject(command.id.clone(), fault.clone());
            }
            drop(reply.send(Err(fault)));
            return None;
        }
        let (reply, ask) = round.answer_again(self.id, command, reply, &self.remembered)?;
        let kept = (!waits && !command.id.is_own()).then(|| command.clone());
        if kept.is_some() && self.is_old(&command.id).await {
            // Whoever is told "busy" asks through the inbox, which knows every answer.
            drop(reply.send(Err(busy(self.id))));
            return None;
        }
        Some(Admitted { ask, kept, waits, reply })
    }

    /// Was a command with this id taken up before, longer ago than we remember?
    async fn is_old(&self, id: &CommandId) -> bool {
        !matches!(self.journal.answer(self.id, id).await, Ok(None))
    }

    /// Makes a round durable, then answers whoever waits for it. `session` is the state after it.
    ///
    /// # Errors
    /// When it could not be made durable; whoever waits is told.
    pub async fn commit(
        &mut self,
        round: Round,
        session: &Session,
        room: &dyn Room,
    ) -> Result<Committed, Exit> {
        let wrote = !round.is_nothing();
        if wrote && let Err(exit) = self.append(&round, session, room).await {
            let fault = match &exit {
                Exit::Failed(fault) if fault.kind() != Kind::CommandRepeated => fault.clone(),
                // Whoever is told "busy" asks through the inbox, which knows every answer.
                _ => busy(self.id),
            };
            round.refuse(&fault);
            return Err(exit);
        }
        if self.is_opening && session.head > 0 {
            (self.is_opening, self.is_opened) = (false, true);
        }
        let entries = round.answer_all(&mut self.remembered, REMEMBERED);
        self.trace(&entries);
        Ok(Committed { entries, wrote })
    }

    /// Tells whoever collects traces what is over with these.
    fn trace(&mut self, entries: &[Entry]) {
        if !self.spans.is_on() {
            return;
        }
        for entry in entries {
            for span in self.weaver.take(entry.at, entry.trace, entry.turn, &entry.event) {
                self.spans.tell(span);
            }
        }
    }

    async fn append(
        &mut self,
        round: &Round,
        session: &Session,
        room: &dyn Room,
    ) -> Result<(), Exit> {
        let head = session.head;
        // The longer the history, the rarer: what snapshots cost stays in proportion to what is written.
        let due = head - self.snapshot >= self.apart.max(self.snapshot / 2);
        let snapshot = due.then(|| serde_json::to_vec(session).ok()).flatten();
        if snapshot.is_some() {
            self.snapshot = head;
        }
        let append = || round.append(self.id, self.lease.token, head, snapshot.clone());
        self.append_at_last(append, head, room).await
    }

    /// Appends; what passes is tried again here, so that running work is not thrown away for it.
    async fn append_at_last(
        &self,
        append: impl Fn() -> Append,
        head: Seq,
        room: &dyn Room,
    ) -> Result<(), Exit> {
        let mut attempt = 0;
        loop {
            attempt += 1;
            let fault = match self.journal.append(append()).await {
                Ok(_) => return Ok(()),
                // Only we write: the records are there, and only the answer was lost.
                Err(AppendError::Conflict { head: there }) if attempt > 1 && there == head => {
                    return Ok(());
                }
                Err(AppendError::Fenced) => return Err(Exit::Fenced),
                Err(error) => error.into_fault(self.id),
            };
            let is_full = fault.row().category == Category::Resource;
            let last = if is_full { 2 } else { APPEND_TRIES };
            if attempt >= last || !is_passing(&fault) || fault.kind() == Kind::CommandRepeated {
                return Err(Exit::Failed(fault));
            }
            if !is_full {
                tracing::warn!(session = %self.id, %fault, "the append is tried again");
                self.clock.sleep(APPEND_WAIT * attempt).await;
            } else if !room.make(&fault).await {
                return Err(Exit::Failed(fault));
            }
        }
    }
}

/// Becomes the session's writer: at once if its holder is known to be gone.
async fn take_lease(terms: Terms<'_>, id: SessionId, missing: Missing) -> Result<Lease, Fault> {
    let request = LeaseRequest {
        session: id,
        holder: terms.holder.to_owned(),
        ttl: terms.limits.lease,
        missing,
        instead_of: None,
    };
    let fault = match terms.journal.take_lease(request.clone()).await {
        Err(fault) if fault.kind() == Kind::SessionBusy => fault,
        taken => return taken,
    };
    let Some(lease) = terms.journal.info(id).await?.and_then(|info| info.lease) else {
        return Err(fault);
    };
    if !terms.census.is_gone(&lease.holder) && !is_forgotten(terms, id, &lease).await? {
        return Err(fault);
    }
    let request = LeaseRequest { instead_of: Some(lease.holder), ..request };
    terms.journal.take_lease(request).await
}

/// A lease that runs longer than leases do was given before the clock was set back. It would bind everybody until the
/// clock is there again; but whoever lives renews it long before a whole lease has passed.
async fn is_forgotten(terms: Terms<'_>, id: SessionId, lease: &LeaseInfo) -> Result<bool, Fault> {
    let ttl = terms.limits.lease;
    if lease.expires.since(terms.world.clock.now()) <= LEASE_LONGEST.max(ttl * 4) {
        return Ok(false);
    }
    terms.world.clock.sleep(LEASE_USUAL.max(ttl)).await;
    let now = terms.journal.info(id).await?.and_then(|info| info.lease);
    Ok(now.as_ref() == Some(lease))
}

/// Another writer has the session.
#[must_use]
pub fn busy(session: SessionId) -> Fault {
    Fault::new(Kind::SessionBusy, Operation::OpenSession).with(Fact::Session, session.to_string())
}

/// The task that was to answer is gone.
#[must_use]
pub fn gone(session: SessionId) -> Fault {
    Fault::new(Kind::ShuttingDown, Operation::SubmitCommand)
        .with(Fact::Session, session.to_string())
}

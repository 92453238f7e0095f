//! A journal that intercepts the calls to another one: fails them, delays them, or ends the process around them.
//!
//! [`InterceptedJournal`] is the only wrapper around a journal. Each test brings an [`Interceptor`]; [`FlakyJournal`]
//! takes its verdicts from a script.

use std::{
    collections::VecDeque,
    fmt,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use budao_core::{
    event::{Answer, Command, CommandId, Seq, SessionId},
    fault::Fault,
};
use budao_journal::{
    Admin, Append, AppendError, Census, ChainPage, ChangeWatch, Cluster, Digest, FaultRate, Filter,
    HistoryInfo, Inbox, Journal, JournalLoad, Lease, LeaseRequest, LeaseToken, NodeBeat, Note,
    OnceKeys, OnceOwner, OnceSettlement, OnceState, Page, PageLimits, RateQuery, Reader, Retention,
    RetentionReport, SessionSummary, Snapshot, StoredRecord, SubmitOutcome, TimedSession,
    TimerQuery, UnfinishedSession, Writer,
};
use bytes::Bytes;
use futures::stream::BoxStream;
use tokio::sync::Semaphore;

/// A call that an interceptor decides about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum JournalCall {
    /// A call of [`Writer::take_lease`].
    TakeLease,
    /// A call of [`Writer::renew`].
    Renew,
    /// A call of [`Writer::release`].
    Release,
    /// A call of [`Writer::append`].
    Append(AppendInfo),
    /// A call of [`Writer::put_blob`].
    PutBlob,
    /// A call of [`OnceKeys::claim_once`].
    ClaimOnce,
    /// A call of [`OnceKeys::settle_once`].
    SettleOnce,
    /// A call of [`Inbox::submit`].
    Submit,
    /// A call of [`Inbox::withdraw`].
    Withdraw,
    /// A call of [`Inbox::inbox`].
    Inbox,
    /// A call of [`Inbox::answer`].
    Answer,
    /// A call of [`Inbox::answered`].
    Answered,
    /// A call of [`Reader::info`].
    Info,
    /// A call of [`Reader::read`].
    Read,
    /// A call of [`Reader::snapshot`].
    Snapshot,
    /// A call of [`Reader::blob`].
    Blob,
    /// A call of [`Reader::sessions`].
    Sessions,
    /// A call of [`Reader::unfinished`].
    Unfinished,
    /// A call of [`Reader::sessions_with_timers`].
    SessionsWithTimers,
}

impl JournalCall {
    /// Whether the call changes the journal.
    #[must_use]
    pub fn is_write(self) -> bool {
        use JournalCall::{
            Append, ClaimOnce, PutBlob, Release, Renew, SettleOnce, Submit, TakeLease, Withdraw,
        };
        matches!(self, TakeLease | Renew | Release | Append(_) | PutBlob | Submit | Withdraw)
            || matches!(self, ClaimOnce | SettleOnce)
    }
}

/// The facts about an append that an interceptor decides by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AppendInfo {
    /// The session to append to.
    pub session: SessionId,
    /// The writer's token.
    pub token: LeaseToken,
    /// Whether a full disk still accepts it: [`Append::is_closing`].
    pub is_closing: bool,
    /// Whether the append has a snapshot.
    pub has_snapshot: bool,
    /// Whether the append answers a command.
    pub has_answers: bool,
}

impl AppendInfo {
    fn of(append: &Append) -> Self {
        Self {
            session: append.session,
            token: append.token,
            is_closing: append.is_closing(),
            has_snapshot: append.snapshot.is_some(),
            has_answers: !append.answers.is_empty() || !append.direct_commands.is_empty(),
        }
    }
}

/// What becomes of a call.
#[derive(Debug)]
pub enum Verdict {
    /// The call is made.
    Proceed,
    /// The call is not made and fails.
    Refuse(Fault),
    /// The call is made and reported as failed.
    Unconfirmed(Fault),
    /// The call is not made and never answered.
    Hang,
}

/// Decides about the calls to a journal.
#[async_trait]
pub trait Interceptor: Send + Sync + fmt::Debug + 'static {
    /// Runs before a call and decides what becomes of it.
    async fn before(&self, _call: JournalCall) -> Verdict {
        Verdict::Proceed
    }

    /// Runs after a call that proceeded, successful or not.
    async fn after(&self, _call: JournalCall) {}

    /// Runs when the inner journal has given a lease, confirmed or not.
    fn lease_taken(&self, _lease: &Lease) {}

    /// Runs when the inner journal has made an append durable, confirmed or not.
    fn appended(&self, _append: AppendInfo, _head: Seq) {}
}

/// A journal whose calls pass an [`Interceptor`].
#[derive(Debug)]
pub struct InterceptedJournal<I> {
    /// The journal that keeps the data.
    pub inner: Arc<dyn Journal>,
    /// Decides about the calls.
    pub interceptor: I,
}

impl<I: Interceptor> InterceptedJournal<I> {
    /// Wraps a journal.
    #[must_use]
    pub fn new(inner: Arc<dyn Journal>, interceptor: I) -> Self {
        Self { inner, interceptor }
    }

    async fn intercept<T, E: From<Fault>>(
        &self,
        call: JournalCall,
        made: impl Future<Output = Result<T, E>> + Send,
    ) -> Result<T, E> {
        match self.interceptor.before(call).await {
            Verdict::Refuse(fault) => Err(fault.into()),
            Verdict::Hang => std::future::pending().await,
            Verdict::Unconfirmed(fault) => {
                drop(made.await);
                Err(fault.into())
            }
            Verdict::Proceed => {
                let done = made.await;
                self.interceptor.after(call).await;
                done
            }
        }
    }
}

#[async_trait]
impl<I: Interceptor> Reader for InterceptedJournal<I> {
    async fn info(&self, session: SessionId) -> Result<Option<HistoryInfo>, Fault> {
        self.intercept(JournalCall::Info, self.inner.info(session)).await
    }

    async fn read(
        &self,
        session: SessionId,
        after: Seq,
        limits: PageLimits,
    ) -> Result<Page, Fault> {
        self.intercept(JournalCall::Read, self.inner.read(session, after, limits)).await
    }

    fn follow(
        &self,
        session: SessionId,
        after: Seq,
    ) -> BoxStream<'static, Result<Vec<StoredRecord>, Fault>> {
        self.inner.follow(session, after)
    }

    async fn snapshot(&self, session: SessionId) -> Result<Option<Snapshot>, Fault> {
        self.intercept(JournalCall::Snapshot, self.inner.snapshot(session)).await
    }

    async fn blob(&self, digest: Digest) -> Result<Option<Bytes>, Fault> {
        self.intercept(JournalCall::Blob, self.inner.blob(digest)).await
    }

    async fn sessions(&self, filter: Filter) -> Result<Vec<SessionSummary>, Fault> {
        self.intercept(JournalCall::Sessions, self.inner.sessions(filter)).await
    }

    async fn unfinished(
        &self,
        after: Option<SessionId>,
        limit: usize,
    ) -> Result<Vec<UnfinishedSession>, Fault> {
        self.intercept(JournalCall::Unfinished, self.inner.unfinished(after, limit)).await
    }

    async fn sessions_with_timers(&self, query: TimerQuery) -> Result<Vec<TimedSession>, Fault> {
        self.intercept(JournalCall::SessionsWithTimers, self.inner.sessions_with_timers(query))
            .await
    }

    async fn rates(&self, query: RateQuery) -> Result<Vec<FaultRate>, Fault> {
        self.inner.rates(query).await
    }

    fn load(&self) -> JournalLoad {
        self.inner.load()
    }
}

#[async_trait]
impl<I: Interceptor> Inbox for InterceptedJournal<I> {
    async fn submit(&self, session: SessionId, command: Command) -> Result<SubmitOutcome, Fault> {
        self.intercept(JournalCall::Submit, self.inner.submit(session, command)).await
    }

    async fn withdraw(
        &self,
        session: SessionId,
        command: Command,
        fault: Fault,
    ) -> Result<Answer, Fault> {
        let made = self.inner.withdraw(session, command, fault);
        self.intercept(JournalCall::Withdraw, made).await
    }

    async fn inbox(&self, session: SessionId) -> Result<Vec<Command>, Fault> {
        self.intercept(JournalCall::Inbox, self.inner.inbox(session)).await
    }

    async fn answer(&self, session: SessionId, id: &CommandId) -> Result<Option<Answer>, Fault> {
        self.intercept(JournalCall::Answer, self.inner.answer(session, id)).await
    }

    async fn answered(
        &self,
        session: SessionId,
        ids: &[CommandId],
    ) -> Result<Vec<CommandId>, Fault> {
        self.intercept(JournalCall::Answered, self.inner.answered(session, ids)).await
    }

    async fn await_answer(&self, session: SessionId, id: &CommandId) -> Result<Answer, Fault> {
        self.inner.await_answer(session, id).await
    }

    fn watch(&self, session: SessionId) -> ChangeWatch {
        self.inner.watch(session)
    }
}

#[async_trait]
impl<I: Interceptor> Writer for InterceptedJournal<I> {
    async fn take_lease(&self, request: LeaseRequest) -> Result<Lease, Fault> {
        let made = async {
            let lease = self.inner.take_lease(request).await?;
            self.interceptor.lease_taken(&lease);
            Ok(lease)
        };
        self.intercept(JournalCall::TakeLease, made).await
    }

    async fn renew(&self, lease: &Lease, ttl: Duration) -> Result<Lease, Fault> {
        self.intercept(JournalCall::Renew, self.inner.renew(lease, ttl)).await
    }

    async fn release(&self, lease: &Lease) -> Result<(), Fault> {
        self.intercept(JournalCall::Release, self.inner.release(lease)).await
    }

    async fn reserve(&self, lease: &Lease, time: Duration) -> Result<(), Fault> {
        self.intercept(JournalCall::Release, self.inner.reserve(lease, time)).await
    }

    async fn append(&self, append: Append) -> Result<Seq, AppendError> {
        let info = AppendInfo::of(&append);
        let made = async {
            let head = self.inner.append(append).await?;
            self.interceptor.appended(info, head);
            Ok(head)
        };
        self.intercept(JournalCall::Append(info), made).await
    }

    async fn put_blob(&self, session: SessionId, content: Bytes) -> Result<Digest, Fault> {
        self.intercept(JournalCall::PutBlob, self.inner.put_blob(session, content)).await
    }
}

#[async_trait]
impl<I: Interceptor> OnceKeys for InterceptedJournal<I> {
    async fn claim_once(
        &self,
        key: Digest,
        owner: OnceOwner,
        attempt: u32,
    ) -> Result<OnceState, Fault> {
        let made = self.inner.claim_once(key, owner, attempt);
        self.intercept(JournalCall::ClaimOnce, made).await
    }

    async fn settle_once(
        &self,
        owner: OnceOwner,
        attempt: u32,
        settlement: OnceSettlement,
    ) -> Result<(), Fault> {
        let made = self.inner.settle_once(owner, attempt, settlement);
        self.intercept(JournalCall::SettleOnce, made).await
    }
}

#[async_trait]
impl<I: Interceptor> Admin for InterceptedJournal<I> {
    fn kind(&self) -> &'static str {
        self.inner.kind()
    }

    async fn retain(&self, retention: Retention) -> Result<RetentionReport, Fault> {
        self.inner.retain(retention).await
    }

    async fn delete(&self, session: SessionId) -> Result<bool, Fault> {
        self.inner.delete(session).await
    }

    async fn rebuild_views(&self) -> Result<(), Fault> {
        self.inner.rebuild_views().await
    }

    async fn chain(
        &self,
        session: SessionId,
        after: Seq,
        limit: usize,
    ) -> Result<ChainPage, Fault> {
        self.inner.chain(session, after, limit).await
    }
}

#[async_trait]
impl<I: Interceptor> Cluster for InterceptedJournal<I> {
    async fn beat(&self, beat: NodeBeat) -> Result<bool, Fault> {
        self.inner.beat(beat).await
    }

    async fn census(&self, holder: &str) -> Result<Census, Fault> {
        self.inner.census(holder).await
    }

    async fn leave(&self, holder: &str) -> Result<(), Fault> {
        self.inner.leave(holder).await
    }

    async fn orphaned_sessions(
        &self,
        dead: &[String],
        after: Option<SessionId>,
        limit: usize,
    ) -> Result<Vec<UnfinishedSession>, Fault> {
        self.inner.orphaned_sessions(dead, after, limit).await
    }

    async fn note(&self, name: &str) -> Result<Option<Note>, Fault> {
        self.inner.note(name).await
    }

    async fn set_note(
        &self,
        name: &str,
        expected: u64,
        body: Vec<u8>,
    ) -> Result<Option<u64>, Fault> {
        self.inner.set_note(name, expected, body).await
    }
}

/// Verdicts for the next calls, by the name of the call: `append`, `take_lease`.
#[derive(Debug, Default)]
pub struct ScriptedVerdicts(Mutex<VecDeque<(&'static str, Verdict)>>);

#[async_trait]
impl Interceptor for ScriptedVerdicts {
    async fn before(&self, call: JournalCall) -> Verdict {
        let name: &'static str = call.into();
        let mut script = self.0.lock().expect("no code panics while holding this");
        let at = script.iter().position(|(planned, _)| *planned == name);
        at.and_then(|at| script.remove(at)).map_or(Verdict::Proceed, |(_, verdict)| verdict)
    }
}

/// A journal whose next calls go as a script says, and all others as usual.
pub type FlakyJournal = InterceptedJournal<ScriptedVerdicts>;

impl FlakyJournal {
    /// Wraps a journal, with nothing planned.
    #[must_use]
    pub fn flaky(inner: Arc<dyn Journal>) -> Arc<Self> {
        Arc::new(Self::new(inner, ScriptedVerdicts::default()))
    }

    /// Plans a verdict for the next call of this name that has none yet.
    pub fn plan(&self, call: &'static str, verdict: Verdict) {
        self.script().push_back((call, verdict));
    }

    /// Whether every planned verdict was used.
    #[must_use]
    pub fn is_through(&self) -> bool {
        self.script().is_empty()
    }

    fn script(&self) -> std::sync::MutexGuard<'_, VecDeque<(&'static str, Verdict)>> {
        self.interceptor.0.lock().expect("no code panics while holding this")
    }
}

/// Holds one call, the next of its name after [`HeldCall::arm`], until it is released. Others proceed.
#[derive(Debug)]
pub struct HeldCall {
    name: &'static str,
    is_armed: AtomicBool,
    reached: Semaphore,
    released: Semaphore,
}

impl HeldCall {
    /// Holds nothing yet. `name` is the call's name, such as `inbox`.
    #[must_use]
    pub fn new(name: &'static str) -> Arc<Self> {
        let (reached, released) = (Semaphore::new(0), Semaphore::new(0));
        Arc::new(Self { name, is_armed: AtomicBool::new(false), reached, released })
    }

    /// Holds the next call.
    pub fn arm(&self) {
        self.is_armed.store(true, Ordering::SeqCst);
    }

    /// Waits until a call is held.
    ///
    /// # Panics
    /// Never: the semaphore is not closed.
    pub async fn reached(&self) {
        self.reached.acquire().await.expect("the semaphore is not closed").forget();
    }

    /// Lets the held call proceed.
    pub fn release(&self) {
        self.released.add_permits(1);
    }
}

#[async_trait]
impl Interceptor for Arc<HeldCall> {
    async fn before(&self, call: JournalCall) -> Verdict {
        if <&'static str>::from(call) == self.name && self.is_armed.swap(false, Ordering::SeqCst) {
            self.reached.add_permits(1);
            self.released.acquire().await.expect("the semaphore is not closed").forget();
        }
        Verdict::Proceed
    }
}

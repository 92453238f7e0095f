//! Where calls run: apart from the threads that run the sessions, so that a tool that blocks its thread
//! stalls nobody.
//!
//! A call is polled on a thread of its own pool, and holds that thread only while it is being polled: a
//! call that waits costs no thread, a call that blocks costs one, and nobody waits behind it. What cannot
//! be stopped is abandoned: counted while it lives, and its answer dropped when it comes at last.

mod job;

use std::{
    any::Any,
    fmt,
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

use budao_core::{
    fault::{Fact, Fault},
    world::World,
};
use futures::{
    FutureExt as _,
    future::{AbortHandle, Abortable, BoxFuture},
};
use tokio::{runtime::Runtime, sync::oneshot};

use self::job::PoolJob;

/// Threads that calls may hold at once.
const THREADS_MAX: usize = 512;

/// Threads for what tools themselves spawn, and for timers and sockets.
const WORKERS: usize = 2;

/// Runs calls, hooks and guards apart from everything else.
#[derive(Debug)]
pub struct Pool {
    place: PoolBackend,
    tally: Arc<PoolCounters>,
}

enum PoolBackend {
    /// A runtime of our own, made when it is first needed.
    Threads(OnceLock<Runtime>),
    /// Tasks of the world's own: for simulation, where everything must run on one thread.
    Tasks,
}

/// What a pool has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolStats {
    /// Calls and hooks that run now and are waited for.
    pub running: usize,
    /// Those that were given up and still run.
    pub abandoned: usize,
    /// Answers that came after their call was given up, so far.
    pub late: usize,
    /// Panics caught so far.
    pub panics: usize,
}

#[derive(Debug, Default)]
struct PoolCounters {
    running: AtomicUsize,
    abandoned: AtomicUsize,
    late: AtomicUsize,
    panics: AtomicUsize,
}

/// Why a piece of work gave no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoAnswer {
    /// Its time was over.
    TookTooLong,
    /// It panicked, with these words.
    Panicked(String),
    /// It was stopped.
    Stopped,
}

impl NoAnswer {
    /// Why, in words.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::TookTooLong => "it took too long",
            Self::Panicked(_) => "it panicked",
            Self::Stopped => "it was stopped",
        }
    }

    /// The fault with the reason, and with what only an operator may read.
    #[must_use]
    pub fn explain(self, fault: Fault, limit: Duration) -> Fault {
        let fault = fault.with(Fact::Reason, self.reason());
        match self {
            Self::TookTooLong => fault.with(Fact::TimeoutMs, limit),
            Self::Panicked(said) => fault.with_cause(said),
            Self::Stopped => fault,
        }
    }
}

/// How a piece of work ended.
#[derive(Debug)]
pub(crate) enum PoolOutcome<T> {
    /// By itself.
    Returned(T),
    /// It panicked; what it said, if it said anything.
    Panicked(Option<String>),
    /// It was stopped before it ended.
    Dropped,
}

/// A piece of work. Dropping it stops the work.
pub(crate) enum PoolTask<T> {
    /// It was over at once. None when that was told.
    Finished(Option<PoolOutcome<T>>),
    /// It runs.
    Running(RunningTask<T>),
}

/// A piece of work that runs.
pub(crate) struct RunningTask<T> {
    answer: oneshot::Receiver<PoolOutcome<T>>,
    stop: StopHandle,
    watch: Arc<WorkTracker>,
}

enum StopHandle {
    Job(Arc<PoolJob>),
    Task(AbortHandle),
}

/// Follows one piece of work from its start to its very end.
#[derive(Debug)]
struct WorkTracker {
    tally: Arc<PoolCounters>,
    given_up: AtomicBool,
    over: AtomicBool,
}

impl Pool {
    /// A pool with threads of its own.
    #[must_use]
    pub fn threads() -> Self {
        Self { place: PoolBackend::Threads(OnceLock::new()), tally: Arc::default() }
    }

    /// A pool that spawns tasks through [`World::spawn`]. A call that blocks its thread blocks everything
    /// else on it: for simulations, and for tools that are known to be quick.
    #[must_use]
    pub fn tasks() -> Self {
        Self { place: PoolBackend::Tasks, tally: Arc::default() }
    }

    /// What it has seen so far.
    #[must_use]
    pub fn counts(&self) -> PoolStats {
        let read = |count: &AtomicUsize| count.load(Ordering::Relaxed);
        PoolStats {
            running: read(&self.tally.running),
            abandoned: read(&self.tally.abandoned),
            late: read(&self.tally.late),
            panics: read(&self.tally.panics),
        }
    }

    /// Runs a piece of work apart from the caller and within its time. What takes longer is stopped, and
    /// what cannot be stopped is left behind.
    ///
    /// # Errors
    /// Why there is no answer.
    pub async fn within<T: Send + 'static>(
        &self,
        world: &World,
        limit: Duration,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, NoAnswer> {
        let mut work = self.start(world, work);
        let ended = tokio::select! {
            biased;
            ended = work.ended() => ended,
            () = world.clock.sleep(limit) => return Err(NoAnswer::TookTooLong),
        };
        match ended {
            PoolOutcome::Returned(value) => Ok(value),
            PoolOutcome::Panicked(said) => {
                Err(NoAnswer::Panicked(said.unwrap_or_else(|| "a panic without words".to_owned())))
            }
            PoolOutcome::Dropped => Err(NoAnswer::Stopped),
        }
    }

    /// Starts a piece of work.
    pub(crate) fn start<T: Send + 'static>(
        &self,
        world: &World,
        work: impl Future<Output = T> + Send + 'static,
    ) -> PoolTask<T> {
        self.start_in(&self.place, world, work)
    }

    /// Starts a piece of work that is known to be quick: as a task, wherever the others run.
    pub(crate) fn start_quick<T: Send + 'static>(
        &self,
        world: &World,
        work: impl Future<Output = T> + Send + 'static,
    ) -> PoolTask<T> {
        self.start_in(&PoolBackend::Tasks, world, work)
    }

    fn start_in<T: Send + 'static>(
        &self,
        place: &PoolBackend,
        world: &World,
        work: impl Future<Output = T> + Send + 'static,
    ) -> PoolTask<T> {
        let mut guarded = CatchPanic { work: Some(Box::pin(work)) };
        if matches!(place, PoolBackend::Tasks)
            && let Poll::Ready(ended) = guarded.poll_unpin(&mut Context::from_waker(Waker::noop()))
        {
            // What is quick is mostly over when it is first looked at, and needs no task of its own.
            self.tally.panics.fetch_add(ended.panics(), Ordering::Relaxed);
            return PoolTask::Finished(Some(ended));
        }
        let (sender, answer) = oneshot::channel();
        self.tally.running.fetch_add(1, Ordering::Relaxed);
        let watch = Arc::new(WorkTracker {
            tally: self.tally.clone(),
            given_up: AtomicBool::new(false),
            over: AtomicBool::new(false),
        });
        let (life, tally) = (WorkGuard(Some(watch.clone())), self.tally.clone());
        let whole: BoxFuture<'static, ()> = Box::pin(async move {
            let mut life = life;
            let ended = guarded.await;
            // Over before anyone can hear of it, or it would count as abandoned for a moment.
            life.end();
            tally.panics.fetch_add(ended.panics(), Ordering::Relaxed);
            if sender.send(ended).is_err() {
                tally.late.fetch_add(1, Ordering::Relaxed);
            }
        });
        let stop = match place {
            PoolBackend::Threads(runtime) => {
                StopHandle::Job(PoolJob::start(runtime.get_or_init(runtime_of_tools), whole))
            }
            PoolBackend::Tasks => {
                let (handle, registration) = AbortHandle::new_pair();
                let task = Abortable::new(whole, registration);
                let task = async move { task.await.unwrap_or_default() };
                world.spawn.spawn(Box::pin(task));
                StopHandle::Task(handle)
            }
        };
        PoolTask::Running(RunningTask { answer, stop, watch })
    }
}

fn runtime_of_tools() -> Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .max_blocking_threads(THREADS_MAX)
        .thread_name("budao-tool")
        .enable_all()
        .build()
        .expect("a process that can start no thread cannot go on")
}

impl Drop for Pool {
    fn drop(&mut self) {
        if let PoolBackend::Threads(runtime) = &mut self.place
            && let Some(runtime) = runtime.take()
        {
            // Waiting here could take for ever: a tool may never return.
            runtime.shutdown_background();
        }
    }
}

impl fmt::Debug for PoolBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Threads(_) => "Threads",
            Self::Tasks => "Tasks",
        })
    }
}

impl<T> PoolOutcome<T> {
    fn panics(&self) -> usize {
        usize::from(matches!(self, Self::Panicked(_)))
    }
}

impl<T> PoolTask<T> {
    /// Waits for the end.
    pub(crate) async fn ended(&mut self) -> PoolOutcome<T> {
        match self {
            Self::Finished(ended) => ended.take().unwrap_or(PoolOutcome::Dropped),
            Self::Running(running) => (&mut running.answer).await.unwrap_or(PoolOutcome::Dropped),
        }
    }

    /// Asks for the work to be dropped. If it is being polled right now, that has to wait.
    pub(crate) fn stop(&self) {
        if let Self::Running(running) = self {
            running.stop();
        }
    }
}

impl<T> RunningTask<T> {
    fn stop(&self) {
        match &self.stop {
            StopHandle::Job(job) => job.stop(),
            StopHandle::Task(handle) => handle.abort(),
        }
    }
}

impl<T> Drop for RunningTask<T> {
    fn drop(&mut self) {
        self.watch.give_up();
        self.stop();
    }
}

impl WorkTracker {
    /// Nobody waits for it any more. If it still runs, it counts as abandoned from now on.
    fn give_up(&self) {
        if !self.given_up.swap(true, Ordering::SeqCst) {
            self.tally.running.fetch_sub(1, Ordering::SeqCst);
            self.tally.abandoned.fetch_add(1, Ordering::SeqCst);
            self.settle();
        }
    }

    fn end(&self) {
        self.over.store(true, Ordering::SeqCst);
        self.settle();
    }

    /// Given up and over: whoever comes second takes it from the count, once.
    fn settle(&self) {
        if self.given_up.load(Ordering::SeqCst) && self.over.swap(false, Ordering::SeqCst) {
            self.tally.abandoned.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

/// Lives as long as the work itself, however it ends.
struct WorkGuard(Option<Arc<WorkTracker>>);

impl WorkGuard {
    fn end(&mut self) {
        if let Some(watch) = self.0.take() {
            watch.end();
        }
    }
}

impl Drop for WorkGuard {
    fn drop(&mut self) {
        self.end();
    }
}

/// Catches panics of polling *and* of dropping.
struct CatchPanic<T> {
    work: Option<BoxFuture<'static, T>>,
}

impl<T> Future for CatchPanic<T> {
    type Output = PoolOutcome<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<PoolOutcome<T>> {
        let Some(work) = self.work.as_mut() else { return Poll::Ready(PoolOutcome::Dropped) };
        let ended = match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(context))) {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(value)) => PoolOutcome::Returned(value),
            Err(payload) => PoolOutcome::Panicked(panic_message(payload)),
        };
        self.clear();
        Poll::Ready(ended)
    }
}

impl<T> CatchPanic<T> {
    fn clear(&mut self) {
        let work = self.work.take();
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(work))) {
            drop(panic_message(payload));
        }
    }
}

impl<T> Drop for CatchPanic<T> {
    fn drop(&mut self) {
        self.clear();
    }
}

/// What a panic said. Its payload may be anything, and may panic again when it is dropped.
pub(crate) fn panic_message(payload: Box<dyn Any + Send>) -> Option<String> {
    let text = payload
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| payload.downcast_ref::<String>().cloned());
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        // A payload that panics on being dropped is leaked rather than dropped once more.
        std::mem::forget(again);
    }
    text
}

impl<T> fmt::Debug for PoolTask<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Finished(_) => f.write_str("Over"),
            Self::Running(running) => {
                f.debug_struct("Runs").field("watch", &running.watch).finish_non_exhaustive()
            }
        }
    }
}

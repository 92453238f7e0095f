//! The pool that runs calls, separate from the threads of the sessions, so that a blocking tool stalls no session.
//!
//! A call occupies a pool thread only while it is polled: a waiting call occupies none, a blocking call occupies one.
//! A call that cannot be stopped is abandoned: the pool counts it while it runs and drops its late answer.

mod job;

use std::{
    any::Any,
    fmt,
    future::Future,
    io,
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

/// Maximum threads that calls may occupy at once.
pub(crate) const THREADS_MAX: usize = 512;

/// Threads for tasks that tools spawn, and for timers and sockets.
const WORKERS: usize = 2;

/// Runs calls, hooks and guards isolated from the sessions.
#[derive(Debug)]
pub struct Pool {
    backend: PoolBackend,
    counters: Arc<PoolCounters>,
}

enum PoolBackend {
    /// A dedicated runtime, created on first use.
    Threads(OnceLock<Runtime>),
    /// Tasks spawned through the injected world, for simulations that run on one thread.
    Tasks,
}

/// Counters of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolStats {
    /// Calls and hooks that run now and have a waiting caller.
    pub running: usize,
    /// Abandoned calls and hooks that still run.
    pub abandoned: usize,
    /// Answers that arrived after their call was abandoned, since the start.
    pub late: usize,
    /// Panics caught since the start.
    pub panics: usize,
}

#[derive(Debug, Default)]
struct PoolCounters {
    running: AtomicUsize,
    abandoned: AtomicUsize,
    late: AtomicUsize,
    panics: AtomicUsize,
}

/// Why work on the pool gave no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoAnswer {
    /// The time limit passed.
    TookTooLong,
    /// The work panicked with this message.
    Panicked(String),
    /// The work was dropped before it ended.
    Stopped,
    /// The system has no thread or no file descriptor for the work, which did not begin.
    NoRoom(ExhaustedResource),
}

impl NoAnswer {
    /// A short constant description of the reason.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::TookTooLong => "it took too long",
            Self::Panicked(_) => "it panicked",
            Self::Stopped => "it was stopped",
            Self::NoRoom(_) => "the system has no room for it",
        }
    }

    /// Adds the reason to a fault, and details for the operator.
    #[must_use]
    pub fn explain(self, fault: Fault, limit: Duration) -> Fault {
        let fault = fault.with(Fact::Reason, self.reason());
        match self {
            Self::TookTooLong => fault.with(Fact::TimeoutMs, limit),
            Self::Panicked(message) => fault.with_cause(message),
            Self::Stopped => fault,
            Self::NoRoom(exhausted) => fault.with_cause(exhausted.cause),
        }
    }
}

/// A resource of the operating system that the pool needs and does not get.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExhaustedResource {
    /// The resource: `open_files` or `threads`.
    pub resource: &'static str,
    /// The system's own text, for the operator.
    pub cause: String,
}

/// How work on the pool ended.
#[derive(Debug)]
pub(crate) enum PoolOutcome<T> {
    /// The work returned a value.
    Returned(T),
    /// The work panicked; the message, if the payload has one.
    Panicked(Option<String>),
    /// The work was dropped before it ended.
    Dropped,
    /// The work did not begin.
    NoRoom(ExhaustedResource),
}

/// A handle of work on the pool. Dropping it stops the work.
pub(crate) enum PoolTask<T> {
    /// The work ended on its first poll. `None` after the outcome was taken.
    Finished(Option<PoolOutcome<T>>),
    /// The work still runs on a thread or task.
    Running(RunningTask<T>),
}

/// A handle of running work. Dropping it abandons and stops the work.
pub(crate) struct RunningTask<T> {
    answer: oneshot::Receiver<PoolOutcome<T>>,
    stop: StopHandle,
    watch: Arc<WorkTracker>,
}

enum StopHandle {
    Job(Arc<PoolJob>),
    Task(AbortHandle),
}

/// Tracks one piece of work for the counters, from its start to its end.
#[derive(Debug)]
struct WorkTracker {
    counters: Arc<PoolCounters>,
    given_up: AtomicBool,
    over: AtomicBool,
}

impl Pool {
    /// Creates a pool with its own threads.
    #[must_use]
    pub fn threads() -> Self {
        Self { backend: PoolBackend::Threads(OnceLock::new()), counters: Arc::default() }
    }

    /// Creates a pool that spawns tasks through [`World::spawn`]. A call that blocks also blocks its thread's other
    /// tasks, so this pool is for simulations and for tools known to be quick.
    #[must_use]
    pub fn tasks() -> Self {
        Self { backend: PoolBackend::Tasks, counters: Arc::default() }
    }

    /// The current values of the counters.
    #[must_use]
    pub fn counts(&self) -> PoolStats {
        let read = |count: &AtomicUsize| count.load(Ordering::Relaxed);
        PoolStats {
            running: read(&self.counters.running),
            abandoned: read(&self.counters.abandoned),
            late: read(&self.counters.late),
            panics: read(&self.counters.panics),
        }
    }

    /// Runs work on the pool and waits at most `limit`. Work that takes longer is stopped; work that cannot be
    /// stopped is abandoned.
    ///
    /// # Errors
    /// The reason why there is no answer.
    pub async fn within<T: Send + 'static>(
        &self,
        world: &World,
        limit: Duration,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, NoAnswer> {
        Self::wait(self.start(world, work), world, limit).await
    }

    /// As [`Pool::within`], for work that only waits: it takes no thread of the pool.
    pub(crate) async fn within_quick<T: Send + 'static>(
        &self,
        world: &World,
        limit: Duration,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, NoAnswer> {
        Self::wait(self.start_quick(world, work), world, limit).await
    }

    async fn wait<T: Send + 'static>(
        mut work: PoolTask<T>,
        world: &World,
        limit: Duration,
    ) -> Result<T, NoAnswer> {
        let ended = tokio::select! {
            biased;
            ended = work.ended() => ended,
            () = world.clock.sleep(limit) => return Err(NoAnswer::TookTooLong),
        };
        match ended {
            PoolOutcome::Returned(value) => Ok(value),
            PoolOutcome::Panicked(message) => Err(NoAnswer::Panicked(
                message.unwrap_or_else(|| "a panic without words".to_owned()),
            )),
            PoolOutcome::Dropped => Err(NoAnswer::Stopped),
            PoolOutcome::NoRoom(exhausted) => Err(NoAnswer::NoRoom(exhausted)),
        }
    }

    /// Starts work on the pool.
    pub(crate) fn start<T: Send + 'static>(
        &self,
        world: &World,
        work: impl Future<Output = T> + Send + 'static,
    ) -> PoolTask<T> {
        self.start_in(&self.backend, world, work)
    }

    /// Starts work that is known to be quick as a task, even if the pool has threads.
    pub(crate) fn start_quick<T: Send + 'static>(
        &self,
        world: &World,
        work: impl Future<Output = T> + Send + 'static,
    ) -> PoolTask<T> {
        self.start_in(&PoolBackend::Tasks, world, work)
    }

    fn start_in<T: Send + 'static>(
        &self,
        backend: &PoolBackend,
        world: &World,
        work: impl Future<Output = T> + Send + 'static,
    ) -> PoolTask<T> {
        let mut guarded = CatchPanic { work: Some(Box::pin(work)) };
        if matches!(backend, PoolBackend::Tasks)
            && let Poll::Ready(ended) = guarded.poll_unpin(&mut Context::from_waker(Waker::noop()))
        {
            // Quick work usually ends on its first poll and needs no task.
            self.counters.panics.fetch_add(ended.panics(), Ordering::Relaxed);
            return PoolTask::Finished(Some(ended));
        }
        let (sender, answer) = oneshot::channel();
        self.counters.running.fetch_add(1, Ordering::Relaxed);
        let watch = Arc::new(WorkTracker {
            counters: self.counters.clone(),
            given_up: AtomicBool::new(false),
            over: AtomicBool::new(false),
        });
        let (life, counters) = (WorkGuard(Some(watch.clone())), self.counters.clone());
        let whole: BoxFuture<'static, ()> = Box::pin(async move {
            let mut life = life;
            let ended = guarded.await;
            // Ends the tracking before the answer is sent; otherwise the work would briefly count as abandoned.
            life.end();
            counters.panics.fetch_add(ended.panics(), Ordering::Relaxed);
            if sender.send(ended).is_err() {
                counters.late.fetch_add(1, Ordering::Relaxed);
            }
        });
        let stop = match backend {
            PoolBackend::Threads(runtime) => {
                let started = created(runtime).and_then(|runtime| PoolJob::start(runtime, whole));
                match started {
                    Ok(job) => StopHandle::Job(job),
                    Err(exhausted) => {
                        watch.give_up();
                        return PoolTask::Finished(Some(PoolOutcome::NoRoom(exhausted)));
                    }
                }
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

/// The runtime of the pool. One that could not be created is tried again for the next call.
fn created(slot: &OnceLock<Runtime>) -> Result<&Runtime, ExhaustedResource> {
    if let Some(runtime) = slot.get() {
        return Ok(runtime);
    }
    let build = || {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(WORKERS)
            .max_blocking_threads(THREADS_MAX)
            .thread_name("budao-tool")
            .enable_all()
            .build()
    };
    // Tokio panics when it cannot start its first thread.
    let runtime = match catch_unwind(build) {
        Ok(Ok(runtime)) => runtime,
        Ok(Err(error)) => return Err(ExhaustedResource::of_error(&error)),
        Err(payload) => return Err(ExhaustedResource::of_panic(payload)),
    };
    if let Err(second) = slot.set(runtime) {
        // Another call created it at the same time.
        second.shutdown_background();
    }
    Ok(slot.get().expect("it was set above"))
}

impl ExhaustedResource {
    fn of_error(error: &io::Error) -> Self {
        let threads = error.kind() == io::ErrorKind::WouldBlock;
        let resource = if threads { "threads" } else { "open_files" };
        Self { resource, cause: error.to_string() }
    }

    fn of_panic(payload: Box<dyn Any + Send>) -> Self {
        let cause = panic_message(payload).unwrap_or_else(|| "the runtime panicked".to_owned());
        Self { resource: "threads", cause }
    }

    /// The fault of a call that did not begin.
    pub(crate) fn into_fault(self, fault: Fault) -> Fault {
        fault.with(Fact::LimitName, self.resource).not_started().with_cause(self.cause)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if let PoolBackend::Threads(runtime) = &mut self.backend
            && let Some(runtime) = runtime.take()
        {
            // Waiting here could block forever, because a tool may never return.
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
    /// Waits until the work has ended.
    pub(crate) async fn ended(&mut self) -> PoolOutcome<T> {
        match self {
            Self::Finished(ended) => ended.take().unwrap_or(PoolOutcome::Dropped),
            Self::Running(running) => (&mut running.answer).await.unwrap_or(PoolOutcome::Dropped),
        }
    }

    /// Drops work that was never polled, because every thread is busy or none can start. Returns whether that was so.
    pub(crate) fn stop_unless_begun(&self) -> bool {
        match self {
            Self::Running(RunningTask { stop: StopHandle::Job(job), .. }) => {
                job.stop_unless_begun()
            }
            _ => false,
        }
    }

    /// Requests that the work is dropped. If it is being polled, that happens after the poll.
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
    /// Marks the work as abandoned if it still runs.
    fn give_up(&self) {
        if !self.given_up.swap(true, Ordering::SeqCst) {
            self.counters.running.fetch_sub(1, Ordering::SeqCst);
            self.counters.abandoned.fetch_add(1, Ordering::SeqCst);
            self.settle();
        }
    }

    fn end(&self) {
        self.over.store(true, Ordering::SeqCst);
        self.settle();
    }

    /// Decrements the abandoned count once the work is both given up and over. Whichever comes second does it.
    fn settle(&self) {
        if self.given_up.load(Ordering::SeqCst) && self.over.swap(false, Ordering::SeqCst) {
            self.counters.abandoned.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

/// Marks the work as over when dropped, however the work ends.
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

/// Catches panics from polling *and* from dropping the work.
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

/// The message of a panic. The payload may be of any type and may panic when dropped.
pub(crate) fn panic_message(payload: Box<dyn Any + Send>) -> Option<String> {
    let text = payload
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| payload.downcast_ref::<String>().cloned());
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        // A second panic's payload is leaked, because dropping it could panic again.
        std::mem::forget(again);
    }
    text
}

impl<T> fmt::Debug for PoolTask<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Finished(_) => f.write_str("Finished"),
            Self::Running(running) => {
                f.debug_struct("Running").field("watch", &running.watch).finish_non_exhaustive()
            }
        }
    }
}

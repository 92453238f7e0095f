//! The traits that an engine implements: a decider for each loaded session, and a factory that makes deciders.
//!
//! The host calls a decider from one task only, so a decider needs no locks. Deciding is synchronous and does no I/O:
//! it turns an input into events. The host makes the events durable, then calls [`Decider::act`], which starts the
//! work that is due. Work runs on tasks of its own and reports back through a [`SignalSender`].

use std::{fmt, time::Duration};

use budao_core::{
    event::{Answer, Command, CommandId, Origin, SessionId, Settings},
    fault::Fault,
    session::Session,
    time::Timestamp,
};
use budao_journal::Entry;
use futures::future::BoxFuture;
use tokio::sync::mpsc;

use crate::{
    batch::Batch,
    host::{Host, SessionLoader},
    session_task::Message,
    writer::SpaceReclaimer,
};

/// An input of a decider. `S` is the engine's own signal type.
#[derive(Debug)]
pub enum HostInput<S> {
    /// The session has no records and is to be opened.
    Open {
        /// The settings it starts with.
        settings: Box<Settings>,
        /// The session or pipeline that created it; `None` for a user's session.
        origin: Option<Origin>,
    },
    /// A new writer has loaded a session that has records.
    Resumed,
    /// The journal had no space left: the turn must end with this fault.
    Aborted(Fault),
    /// A command that was not answered before.
    Command(Command),
    /// A report of the engine's own work.
    Signal(S),
    /// The time that [`Decider::wake_at`] asked for has come.
    TimerFired,
    /// The grace period of a shutdown is over. An engine that can resume a turn leaves it for the next writer; one
    /// that cannot ends the turn with this fault.
    Parked(Fault),
}

/// Decides for one loaded session.
pub trait Decider: Send + 'static {
    /// The reports of the engine's own work.
    type Signal: Send + fmt::Debug + 'static;

    /// The session's state, with every event of the current batch applied.
    fn state(&self) -> &Session;

    /// Decides about one input: applies the events to the state and adds them to the batch. Returns the answer to a
    /// command.
    fn decide(
        &mut self,
        input: HostInput<Self::Signal>,
        batch: &mut Batch,
    ) -> Option<(CommandId, Answer)>;

    /// Adds further events that follow from the batch and need no wait, so that they share its sync.
    fn before_commit(&mut self, batch: &mut Batch) {
        let _ = batch;
    }

    /// Receives the entries of a durable batch.
    fn after_commit(&mut self, entries: &[Entry]) {
        let _ = entries;
    }

    /// Starts the work that is due and stops work that no longer is. The events of work that fails at once go into
    /// `failed`, which is committed next. Called after every commit; must not start the same work twice.
    fn act(&mut self, failed: &mut Batch);

    /// The time at which the host sends [`HostInput::TimerFired`]; `None` for no timer.
    fn wake_at(&self) -> Option<Timestamp> {
        None
    }

    /// Whether the session has no turn and no running work.
    fn is_idle(&self) -> bool;

    /// Whether the session may be unloaded. Called when it is idle.
    fn can_unload(&self) -> bool {
        true
    }

    /// Whether the turn does nothing but wait for something that the factory can wait for: the session may then be
    /// unloaded although its turn is open.
    fn can_suspend(&self) -> bool {
        false
    }

    /// Leaves the wait of the turn to the factory, which loads the session when the wait is over. Returns how long it
    /// may last at most, or `None` if it has just ended; the session then stays loaded.
    fn suspend(&mut self) -> Option<Duration> {
        None
    }

    /// After [`HostInput::Parked`]: whether work is still stopping that should be waited for.
    fn is_winding_down(&self) -> bool {
        false
    }

    /// Releases the session's resources outside of this process. The host waits for the future, up to a bound, before
    /// it releases the lease.
    fn close(&mut self) -> Option<BoxFuture<'static, ()>> {
        None
    }
}

/// Makes the deciders of one engine.
pub trait DeciderFactory: fmt::Debug + Send + Sync + Sized + 'static {
    /// The engine's decider.
    type Decider: Decider;

    /// Whether this engine runs sessions with these settings.
    fn accepts(&self, settings: &Settings) -> bool;

    /// Checks and completes the settings of a new session, or those of a command that changes them.
    ///
    /// # Errors
    /// When the engine cannot run a session with these settings.
    fn prepare(&self, settings: &mut Settings) -> Result<(), Fault>;

    /// Whether a copy of a session's records is a session too: no other program has a part of the conversation.
    fn can_fork(&self) -> bool {
        false
    }

    /// Makes the decider of a session that was just loaded. It must start no work: the host calls
    /// [`Decider::act`] when the inbox has been read.
    fn load(&self, context: SessionContext<Self>, state: Session) -> Self::Decider;

    /// Whether the factory waits for a session that [`Decider::suspend`] left to it.
    fn is_suspended(&self, session: SessionId) -> bool {
        let _ = session;
        false
    }

    /// The task of a suspended session has ended: from now on, the factory may load the session with this loader.
    fn after_unload(&self, session: SessionId, loader: SessionLoader<Self>) {
        let _ = (session, loader);
    }

    /// Frees space when an append fails for lack of it.
    fn reclaimer(&self) -> &dyn SpaceReclaimer;
}

/// The signal type of an engine.
pub type SignalOf<F> = <<F as DeciderFactory>::Decider as Decider>::Signal;

/// The id of a loaded session and its links to the host.
#[derive(Debug)]
pub struct SessionContext<F: DeciderFactory> {
    /// The session's id.
    pub session: SessionId,
    /// How often this task has loaded the session, from 1. Signals of an earlier generation are stale.
    pub generation: u32,
    /// The channel on which the session's work reports.
    pub signals: SignalSender<SignalOf<F>>,
    /// The host, for work that runs sessions of its own.
    pub host: Host<F>,
}

/// Sends signals to one session's task.
#[derive(Debug)]
pub struct SignalSender<S>(pub(crate) mpsc::Sender<Message<S>>);

impl<S> Clone for SignalSender<S> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<S> SignalSender<S> {
    /// Sends a signal; waits while the session's queue is full. Returns `false` if the task has ended.
    pub async fn send(&self, signal: S) -> bool {
        self.0.send(Message::Signal(signal)).await.is_ok()
    }
}

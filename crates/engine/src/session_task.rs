//! The task of one session: takes the lease, loads the session, runs it, and starts over when the journal failed.
//!
//! The task owns the session's message channel across restarts, so no message is lost between two loads.

mod run;

use std::{panic::AssertUnwindSafe, time::Duration};

use budao_core::{
    event::{Answer, Command, Origin, SessionId, Settings},
    fault::Fault,
    time::Timestamp,
};
use budao_journal::IfMissing;
use futures::FutureExt;
use tokio::sync::{mpsc, oneshot};

use self::run::LoadedSession;
use crate::{
    batch::{Reply, TaskRefusal},
    decider::{DeciderFactory, SignalOf},
    host::Host,
    restart::{RestartDecision, RestartPolicy, WriterExit},
};

/// Messages that may wait for one session.
pub(crate) const QUEUE_MESSAGES: usize = 256;

/// A message to a session's task.
#[derive(Debug)]
pub(crate) enum Message<S> {
    Open {
        settings: Box<Settings>,
        origin: Option<Origin>,
        reply: Reply<()>,
    },
    Command {
        command: Box<Command>,
        /// Whether it was read from the journal's inbox.
        from_inbox: bool,
        reply: Reply<Answer>,
    },
    /// A report of the engine's own work.
    Signal(S),
    /// Finish the turn within the grace period, then end. `reply` is sent or dropped once the task has stopped.
    Stop {
        grace: Duration,
        reply: oneshot::Sender<()>,
    },
}

/// A requested shutdown. It survives restarts of the session.
#[derive(Debug, Default)]
pub(crate) struct ShutdownRequest {
    /// Turns may run until then.
    pub(crate) deadline: Option<Timestamp>,
    /// Dropped with the task: the callers wait for that.
    callers: Vec<oneshot::Sender<()>>,
}

impl ShutdownRequest {
    /// Adds a caller. A second request can shorten the grace period but never extend it.
    pub(crate) fn add(&mut self, deadline: Timestamp, caller: oneshot::Sender<()>) {
        self.callers.push(caller);
        self.deadline = Some(self.deadline.map_or(deadline, |before| before.min(deadline)));
    }
}

/// A session's task, loaded or not.
pub(crate) struct SessionTask<F: DeciderFactory> {
    pub(crate) host: Host<F>,
    pub(crate) session: SessionId,
    pub(crate) if_missing: IfMissing,
    pub(crate) sender: mpsc::Sender<Message<SignalOf<F>>>,
    pub(crate) messages: mpsc::Receiver<Message<SignalOf<F>>>,
    /// How often the session was loaded.
    pub(crate) generation: u32,
    /// Timers were set when the session was last loaded.
    pub(crate) has_timers: bool,
    /// The last writer left the wait of the turn to the factory.
    pub(crate) is_suspended: bool,
    pub(crate) stop: ShutdownRequest,
}

impl<F: DeciderFactory> SessionTask<F> {
    /// Starts the task of a session and returns its channel.
    pub(crate) fn start(
        host: Host<F>,
        session: SessionId,
        if_missing: IfMissing,
    ) -> mpsc::Sender<Message<SignalOf<F>>> {
        let (sender, messages) = mpsc::channel(QUEUE_MESSAGES);
        let spawn = std::sync::Arc::clone(&host.config().world.spawn);
        let task = Self {
            host,
            session,
            if_missing,
            sender: sender.clone(),
            messages,
            generation: 0,
            has_timers: false,
            is_suspended: false,
            stop: ShutdownRequest::default(),
        };
        spawn.spawn(Box::pin(task.run()));
        sender
    }

    async fn run(mut self) {
        let host = self.host.clone();
        let config = host.config();
        let mut restarts = RestartPolicy::new(self.session);
        let mut is_abandoned = false;
        let end = loop {
            let exit =
                AssertUnwindSafe(self.run_once(restarts.take_abort_fault())).catch_unwind().await;
            match restarts.decide(exit, &config.limits.retry) {
                RestartDecision::Restart(wait) if wait.is_zero() => {}
                RestartDecision::Restart(wait) => config.world.clock.sleep(wait).await,
                RestartDecision::End(end) => break end,
                RestartDecision::Abandon(fault) => {
                    is_abandoned = true;
                    break Err(fault.into());
                }
            }
        };
        let (session, has_timers) = (self.session, self.has_timers);
        let is_suspended = self.is_suspended;
        self.leave(end).await;
        if is_suspended {
            host.factory().after_unload(session, host.loader());
        }
        if has_timers {
            host.notify_timer_waker();
        }
        if is_abandoned {
            // Only after the task has left the registry: until then the session counts as loaded.
            host.poll_until_finished(session);
        }
    }

    /// Takes the lease, loads the session and runs it until there is a reason to stop.
    async fn run_once(&mut self, abort: Option<Fault>) -> WriterExit {
        use crate::decider::Decider as _;
        self.generation += 1;
        let mut loaded = match LoadedSession::load(self).await {
            Ok(loaded) => loaded,
            Err(exit) => return exit,
        };
        let result = loaded.run(&mut self.messages, &mut self.stop, abort).await;
        let exit = result.unwrap_or_else(|exit| exit);
        self.has_timers = !loaded.decider.state().timers.is_empty();
        self.is_suspended = matches!(exit, WriterExit::Suspended(_));
        self.close(&mut loaded).await;
        match exit {
            WriterExit::Fenced => {}
            WriterExit::Suspended(time) => loaded.writer.reserve(time).await,
            _ => loaded.writer.release().await,
        }
        exit
    }

    /// Waits until the decider has released its resources, because the next writer may acquire the same ones.
    async fn close(&mut self, loaded: &mut LoadedSession<F>) {
        use crate::decider::Decider as _;
        let Some(mut closed) = loaded.decider.close() else { return };
        let config = self.host.config();
        let bound = config.limits.kill_grace * 2 + Duration::from_secs(5);
        let mut timeout = config.world.clock.sleep(bound);
        let mut kept = Vec::new();
        loop {
            tokio::select! {
                biased;
                () = &mut closed => break,
                () = &mut timeout => break,
                // A full queue must not keep the work from ending: its last signals are dropped.
                Some(message) = self.messages.recv(), if kept.len() < QUEUE_MESSAGES => match message {
                    Message::Signal(_) => {}
                    other => kept.push(other),
                },
            }
        }
        for message in kept {
            let sender = self.sender.clone();
            config.world.spawn.spawn(Box::pin(async move {
                drop(sender.send(message).await);
            }));
        }
    }

    /// Leaves the registry. Queued messages go to the next task, or are refused.
    pub(crate) async fn leave(mut self, end: Result<(), TaskRefusal>) {
        self.host.registry().remove(self.session, &self.sender);
        self.messages.close();
        while let Some(message) = self.messages.recv().await {
            match (message, &end) {
                (Message::Signal(_), _) => {}
                (Message::Stop { reply, .. }, _) => drop(reply.send(())),
                (Message::Open { reply, .. }, Err(refusal)) => {
                    drop(reply.send(Err(refusal.clone())));
                }
                (Message::Command { reply, .. }, Err(refusal)) => {
                    drop(reply.send(Err(refusal.clone())));
                }
                (message, Ok(())) => {
                    let (host, session) = (self.host.clone(), self.session);
                    let forward = async move {
                        drop(host.send(session, IfMissing::Refuse, message).await);
                    };
                    self.host.config().world.spawn.spawn(Box::pin(forward));
                }
            }
        }
    }
}

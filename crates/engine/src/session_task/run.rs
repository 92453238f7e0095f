//! A loaded session: collects messages into a batch, decides, commits, answers, acts.
//!
//! Messages that gathered during the last commit are decided together and share one append. If the append fails,
//! its outcome is unknown: the state is dropped and loaded again from the journal.

use std::{sync::Arc, time::Duration};

use budao_core::{
    engine::wrong_engine,
    event::CommandBody,
    fault::{Fault, Kind, Operation},
    time::Timestamp,
};
use budao_journal::Entry;
use tokio::sync::{mpsc, oneshot};

use super::{Message, QUEUE_MESSAGES, SessionTask, ShutdownRequest};
use crate::{
    alarm::Alarm,
    batch::Batch,
    decider::{Decider, DeciderFactory, HostInput, SessionContext, SignalOf, SignalSender},
    host::Host,
    restart::WriterExit,
    writer::{AnsweredCommands, CommandArrival, SessionWriter},
};

/// Loaded sessions up to which each idle one stays for the whole of `idle_keep`; above, the time shrinks.
const FULL_IDLE_SESSIONS: u32 = 64;

/// A session between load and unload.
pub(super) struct LoadedSession<F: DeciderFactory> {
    host: Host<F>,
    pub(super) writer: SessionWriter,
    pub(super) decider: F::Decider,
    idle_since: Timestamp,
    /// The decider has been told that the grace period is over.
    is_parked: bool,
}

impl<F: DeciderFactory> LoadedSession<F> {
    /// Takes the lease and loads the session. On failure, returns the exit with its reason.
    pub(super) async fn load(task: &SessionTask<F>) -> Result<Self, WriterExit> {
        let host = task.host.clone();
        let config = host.config();
        let started = SessionWriter::start(host.writer_config(), task.session, task.if_missing);
        let (writer, state) = started.await.map_err(|fault| match fault.kind() {
            Kind::SessionBusy => WriterExit::Fenced,
            _ => WriterExit::Failed(fault),
        })?;
        if state.head > 0 && !host.factory().accepts(&state.settings) {
            writer.release().await;
            return Err(WriterExit::Failed(wrong_engine(task.session, &state.settings)));
        }
        if state.head > 0 && !config.serves_place(&state.settings) {
            writer.release().await;
            // Commands go to the inbox, where a server of that place finds them.
            return Err(WriterExit::Fenced);
        }
        let context = SessionContext {
            session: task.session,
            generation: task.generation,
            signals: SignalSender(task.sender.clone()),
            host: host.clone(),
        };
        let decider = host.factory().load(context, state);
        let idle_since = config.world.clock.now();
        Ok(Self { writer, decider, idle_since, is_parked: false, host })
    }

    /// Runs until there is a reason to stop.
    pub(super) async fn run(
        &mut self,
        messages: &mut mpsc::Receiver<Message<SignalOf<F>>>,
        stop: &mut ShutdownRequest,
        abort: Option<Fault>,
    ) -> Result<WriterExit, WriterExit> {
        self.resume(abort).await?;
        let clock = Arc::clone(&self.host.config().world.clock);
        let mut alarm = Alarm::default();
        loop {
            let now = clock.now();
            if let Some(exit) = self.check_exit(now, stop).await? {
                return Ok(exit);
            }
            if self.writer.renew(now).await? {
                self.take_inbox(stop).await?;
            }
            self.fire_timer(now).await?;
            let wake_at = self.next_wake_time(now, stop);
            tokio::select! {
                biased;
                Some(first) = messages.recv() => {
                    let mut batch = vec![first];
                    while batch.len() < QUEUE_MESSAGES && let Ok(next) = messages.try_recv() {
                        batch.push(next);
                    }
                    self.process(batch, stop).await?;
                }
                () = self.writer.wait_for_inbox_change() => self.take_inbox(stop).await?,
                () = alarm.wait_until(wake_at, now, &*clock) => {}
            }
        }
    }

    /// The first batches of a loaded session. Work starts only when the inbox has been read: a cancel may wait there.
    async fn resume(&mut self, abort: Option<Fault>) -> Result<(), WriterExit> {
        let mut batch = Batch::default();
        match abort {
            // The end of the turn is all that fits on a full disk.
            Some(fault) => drop(self.decider.decide(HostInput::Aborted(fault), &mut batch)),
            None if self.decider.state().head > 0 => {
                drop(self.decider.decide(HostInput::Resumed, &mut batch));
            }
            None => {}
        }
        self.commit(batch).await?;
        self.take_inbox(&mut ShutdownRequest::default()).await
    }

    /// Takes the commands that other processes submitted.
    async fn take_inbox(&mut self, stop: &mut ShutdownRequest) -> Result<(), WriterExit> {
        let messages = self.writer.read_inbox().await.into_iter().map(|command| {
            let (reply, _) = oneshot::channel();
            Message::Command { command: Box::new(command), from_inbox: true, reply }
        });
        self.process(messages.collect(), stop).await
    }

    /// One batch: decide, commit, answer, act.
    async fn process(
        &mut self,
        messages: Vec<Message<SignalOf<F>>>,
        stop: &mut ShutdownRequest,
    ) -> Result<(), WriterExit> {
        let direct = messages.iter().filter_map(|message| match message {
            Message::Command { command, from_inbox: false, .. } => Some(command.id.clone()),
            _ => None,
        });
        let answered = self.writer.find_answered(direct.collect()).await;
        let mut batch = Batch::default();
        for message in messages {
            self.decide_message(message, &answered, &mut batch, stop);
        }
        self.commit_and_act(batch).await
    }

    fn decide_message(
        &mut self,
        message: Message<SignalOf<F>>,
        answered: &AnsweredCommands,
        batch: &mut Batch,
        stop: &mut ShutdownRequest,
    ) {
        match message {
            Message::Signal(signal) => drop(self.decider.decide(HostInput::Signal(signal), batch)),
            Message::Open { settings, origin, reply } => {
                if self.writer.admit_opening(self.decider.state(), reply, batch) {
                    self.decider.decide(HostInput::Open { settings, origin }, batch);
                }
            }
            Message::Command { mut command, from_inbox, reply } => {
                let state = self.decider.state();
                let arrival = match from_inbox {
                    true => CommandArrival::Inbox,
                    false => CommandArrival::Direct(answered),
                };
                let admitted = self.writer.admit(state, &command, arrival, reply, batch);
                let Some(admitted) = admitted else { return };
                if let CommandBody::Settings { settings, before: Some(before) } = &mut command.body
                {
                    settings.rebase(before, &self.decider.state().settings);
                }
                if let Some((id, answer)) = self.decider.decide(HostInput::Command(*command), batch)
                {
                    batch.answer(admitted, id, answer);
                }
            }
            Message::Stop { grace, reply } => {
                stop.add(self.host.config().world.clock.now().after(grace), reply);
            }
        }
    }

    async fn fire_timer(&mut self, now: Timestamp) -> Result<(), WriterExit> {
        if self.decider.wake_at().is_none_or(|at| at > now) {
            return Ok(());
        }
        let mut batch = Batch::default();
        self.decider.decide(HostInput::TimerFired, &mut batch);
        self.commit_and_act(batch).await
    }

    async fn commit_and_act(&mut self, mut batch: Batch) -> Result<(), WriterExit> {
        self.decider.before_commit(&mut batch);
        self.commit(batch).await?;
        loop {
            let mut failed = Batch::default();
            self.decider.act(&mut failed);
            if failed.is_empty() {
                return Ok(());
            }
            self.commit(failed).await?;
        }
    }

    async fn commit(&mut self, batch: Batch) -> Result<Vec<Entry>, WriterExit> {
        let reclaimer = self.host.factory().reclaimer();
        let result = self.writer.commit(batch, self.decider.state(), reclaimer).await?;
        if result.wrote {
            self.idle_since = self.host.config().world.clock.now();
        }
        self.decider.after_commit(&result.entries);
        Ok(result.entries)
    }

    async fn check_exit(
        &mut self,
        now: Timestamp,
        stop: &ShutdownRequest,
    ) -> Result<Option<WriterExit>, WriterExit> {
        let is_idle = self.decider.is_idle();
        match stop.deadline {
            Some(_) if is_idle => Ok(Some(WriterExit::Stopped)),
            Some(deadline) if now >= deadline => {
                self.park().await?;
                let may_wait = self.decider.is_winding_down() && now < self.kill_time(deadline);
                Ok((!may_wait).then_some(WriterExit::Stopped))
            }
            None if self.can_unload() && now.since(self.idle_since) >= self.idle_keep() => {
                Ok(self.suspend_or_unload(now))
            }
            _ => Ok(None),
        }
    }

    /// Leaves a waiting turn to the factory, unless its wait has just ended.
    fn suspend_or_unload(&mut self, now: Timestamp) -> Option<WriterExit> {
        if self.decider.is_idle() {
            return Some(WriterExit::Idle);
        }
        let suspended = self.decider.suspend();
        if suspended.is_none() {
            self.idle_since = now;
        }
        suspended.map(WriterExit::Suspended)
    }

    /// Tells the decider once that the grace period is over.
    async fn park(&mut self) -> Result<(), WriterExit> {
        if std::mem::replace(&mut self.is_parked, true) {
            return Ok(());
        }
        let mut batch = Batch::default();
        let fault = Fault::new(Kind::ShuttingDown, Operation::RunTurn);
        self.decider.decide(HostInput::Parked(fault), &mut batch);
        self.commit_and_act(batch).await
    }

    fn can_unload(&self) -> bool {
        (self.decider.is_idle() || self.decider.can_suspend()) && self.decider.can_unload()
    }

    /// How long an idle session stays loaded: less when many are.
    fn idle_keep(&self) -> Duration {
        let keep = self.host.config().idle_keep;
        match u32::try_from(self.host.registry().len()).unwrap_or(u32::MAX) {
            0..=FULL_IDLE_SESSIONS => keep,
            loaded => keep * FULL_IDLE_SESSIONS / loaded,
        }
    }

    /// The time at which the task ends even if parked work is still stopping.
    fn kill_time(&self, deadline: Timestamp) -> Timestamp {
        deadline.after(self.host.config().limits.kill_grace * 2)
    }

    fn next_wake_time(&self, now: Timestamp, stop: &ShutdownRequest) -> Timestamp {
        let mut wake = self.writer.renew_at(now);
        if let Some(at) = self.decider.wake_at() {
            wake = wake.min(at);
        }
        match stop.deadline {
            Some(deadline) if now < deadline => wake = wake.min(deadline),
            Some(deadline) => wake = wake.min(self.kill_time(deadline)),
            None if self.can_unload() => wake = wake.min(self.idle_since.after(self.idle_keep())),
            None => {}
        }
        wake.max(now.after(Duration::from_millis(1)))
    }
}

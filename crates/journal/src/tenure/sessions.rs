//! The sessions an engine has loaded, by id; and the way in to one that another process has.

use std::{sync::Arc, time::Duration};

use budao_core::{
    event::{Answer, Command, CommandId, SessionId, Settings},
    fault::{Fact, Fault, Kind, Operation},
    seams::Clock,
};
use dashmap::DashMap;
use tokio::sync::mpsc;

use super::busy;
use crate::{Journal, Submitted};

/// How long another process may take to answer a command it was handed.
const REMOTE_ANSWER: Duration = Duration::from_secs(30);
/// Tries to reach a session's task while one is ending and the next takes over.
const REACH: u32 = 16;

/// The ways in to the tasks of loaded sessions. Clones are the same ones.
#[derive(Debug)]
pub struct Sessions<M>(Arc<DashMap<SessionId, mpsc::Sender<M>>>);

impl<M> Clone for Sessions<M> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<M> Default for Sessions<M> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<M> Sessions<M> {
    /// How many are loaded.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Is none loaded?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Is this one loaded, and not just ending?
    #[must_use]
    pub fn has(&self, session: SessionId) -> bool {
        self.0.get(&session).is_some_and(|sender| !sender.is_closed())
    }

    /// All of them, the oldest first: the map's own order is chance.
    #[must_use]
    pub fn all(&self) -> Vec<mpsc::Sender<M>> {
        let mut all: Vec<_> =
            self.0.iter().map(|entry| (*entry.key(), entry.value().clone())).collect();
        all.sort_unstable_by_key(|(session, _)| *session);
        all.into_iter().map(|(_, sender)| sender).collect()
    }

    /// The way in to a session's task, which is started if there is none.
    pub fn handle(
        &self,
        session: SessionId,
        start: impl Fn() -> mpsc::Sender<M>,
    ) -> mpsc::Sender<M> {
        let mut entry = self.0.entry(session).or_insert_with(&start);
        if entry.is_closed() {
            *entry = start();
        }
        entry.clone()
    }

    /// Hands a message to a session's task, loading it if need be.
    ///
    /// # Errors
    /// When there are too many sessions, or this one's tasks end as fast as they are started.
    pub async fn send(
        &self,
        session: SessionId,
        limit: usize,
        start: impl Fn() -> mpsc::Sender<M>,
        mut message: M,
    ) -> Result<(), Fault> {
        if self.0.len() >= limit && !self.0.contains_key(&session) {
            return Err(Fault::new(Kind::TooManySessions, Operation::OpenSession)
                .with(Fact::Limit, limit)
                .with(Fact::LimitName, "sessions"));
        }
        // A task that is just ending closes its channel; the next one takes over.
        for _ in 0..REACH {
            match self.handle(session, &start).send(message).await {
                Ok(()) => return Ok(()),
                Err(mpsc::error::SendError(back)) => message = back,
            }
            tokio::task::yield_now().await;
        }
        Err(busy(session))
    }

    /// A task is no longer its session's.
    pub fn leave(&self, session: SessionId, task: &mpsc::Sender<M>) {
        self.0.remove_if(&session, |_, sender| sender.same_channel(task));
    }
}

/// A command in the inbox of a session that another process writes.
#[derive(Debug)]
pub struct Handed {
    session: SessionId,
    command: Command,
    waited: Duration,
}

/// Puts a command into the inbox of a session that another process writes.
///
/// # Errors
/// When it could not be made durable. It is withdrawn then: a disk may have kept what it did not confirm.
pub async fn hand_in(
    journal: &dyn Journal,
    session: SessionId,
    command: Command,
) -> Result<Result<Answer, Handed>, Fault> {
    match journal.submit(session, command.clone()).await {
        Ok(Submitted::Answered(answer)) => Ok(Ok(answer)),
        Ok(Submitted::New | Submitted::Pending) => {
            Ok(Err(Handed { session, command, waited: Duration::ZERO }))
        }
        Err(fault) => give_up(journal, session, command, fault).await.map(Ok),
    }
}

impl Handed {
    /// Waits for its answer, for so long.
    ///
    /// # Errors
    /// When nobody has answered for longer than anybody should wait. It is withdrawn then, and never takes effect.
    pub async fn answer(
        &mut self,
        journal: &dyn Journal,
        clock: &dyn Clock,
        wait: Duration,
    ) -> Result<Option<Answer>, Fault> {
        let wait = wait.min(REMOTE_ANSWER);
        tokio::select! {
            biased;
            answer = journal.await_answer(self.session, &self.command.id) => match answer {
                Ok(answer) => return Ok(Some(answer)),
                Err(fault) => return self.give_up(journal, fault).await.map(Some),
            },
            () = clock.sleep(wait) => self.waited += wait,
        }
        if self.waited < REMOTE_ANSWER {
            return Ok(None);
        }
        let fault = Fault::new(Kind::RequestTimedOut, Operation::SubmitCommand)
            .with(Fact::CommandId, self.command.id.to_string())
            .with(Fact::TimeoutMs, REMOTE_ANSWER)
            .with(Fact::ElapsedMs, REMOTE_ANSWER);
        self.give_up(journal, fault).await.map(Some)
    }

    async fn give_up(&self, journal: &dyn Journal, fault: Fault) -> Result<Answer, Fault> {
        give_up(journal, self.session, self.command.clone(), fault).await
    }
}

/// Nobody answered a command, and whoever sent it is told so: it is withdrawn, so that it never takes effect later.
/// If it was answered after all, that answer counts.
async fn give_up(
    journal: &dyn Journal,
    session: SessionId,
    command: Command,
    fault: Fault,
) -> Result<Answer, Fault> {
    if matches!(fault.kind(), Kind::UnknownSession | Kind::CommandRepeated | Kind::LimitReached) {
        return Err(fault);
    }
    let id = command.id.clone();
    match journal.withdraw(session, command, fault.clone()).await {
        Ok(Answer::Rejected { fault: rejected }) if rejected == fault => Err(fault),
        Ok(answer) => Ok(answer),
        Err(trouble) => {
            tracing::error!(%session, command = %id, fault = %trouble, "a command was not withdrawn");
            Err(fault)
        }
    }
}

/// A session's task answered a command of this process with a fault. What it wrote tells whether that is true: a disk
/// may have kept what it did not confirm.
///
/// # Errors
/// The fault, unless the journal has another answer.
pub async fn confirm(
    journal: &dyn Journal,
    session: SessionId,
    id: &CommandId,
    fault: Fault,
) -> Result<Answer, Fault> {
    match journal.answer(session, id).await {
        Ok(Some(answer)) => Ok(answer),
        Ok(None) | Err(_) => Err(fault),
    }
}

/// The session belongs to another engine, and this one cannot run it.
#[must_use]
pub fn wrong_engine(session: SessionId, settings: &Settings) -> Fault {
    Fault::new(Kind::WrongEngine, Operation::OpenSession)
        .with(Fact::Session, session.to_string())
        .with(Fact::Engine, settings.engine().to_owned())
}

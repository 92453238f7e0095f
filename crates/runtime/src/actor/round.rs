//! One round of a session: decide, make durable, answer.

use std::{
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::Arc,
    time::Duration,
};

use budao_core::{
    event::{self as core, Answer, Ask, Command, CommandId, Event, Origin, Seq, Settings},
    fault::{Category, Fact, Fault, Kind, Operation},
    turn::{self, Env, Input, Work},
};
use budao_journal::{Append, AppendError, Entry};
use tokio::sync::oneshot;

use super::{
    Actor, Message,
    start::{Exit, busy, is_passing, repeated},
};
use crate::{clean, work};

/// Answers remembered, for commands that come again at once.
const REMEMBERED: usize = 64;
/// Tries of one append, and the wait that grows between them.
const APPEND_TRIES: u32 = 4;
const APPEND_WAIT: Duration = Duration::from_millis(100);

/// A command that was taken up, for when it comes again.
pub(super) struct Taken {
    pub(super) id: CommandId,
    /// What was asked, in short: the same id for something else is no repetition.
    pub(super) ask: u64,
    pub(super) answer: Answer,
}

fn fingerprint(ask: &Ask) -> u64 {
    let mut hasher = DefaultHasher::new();
    serde_json::to_vec(ask).unwrap_or_default().hash(&mut hasher);
    hasher.finish()
}

/// What one round decided, and who waits for it.
#[derive(Default)]
pub(super) struct Round {
    pub(super) entries: Vec<Entry>,
    /// Answers to commands of the inbox.
    pub(super) answers: Vec<(CommandId, Answer)>,
    /// Commands that came directly, with an id that may come again.
    pub(super) taken: Vec<(Command, Answer)>,
    /// Every answer of the round.
    pub(super) known: Vec<Taken>,
    pub(super) replies: Vec<(oneshot::Sender<Result<Answer, Fault>>, Answer)>,
    pub(super) opened: Vec<oneshot::Sender<Result<(), Fault>>>,
}

impl Round {
    fn refuse(self, fault: &Fault) {
        for (reply, _) in self.replies {
            drop(reply.send(Err(fault.clone())));
        }
        for reply in self.opened {
            drop(reply.send(Err(fault.clone())));
        }
    }
}

impl Actor {
    /// One round: decide, make durable, answer, act.
    pub(super) async fn take(&mut self, messages: Vec<Message>) -> Result<(), Exit> {
        let mut round = Round::default();
        for message in messages {
            self.decide(message, &mut round).await;
        }
        self.check_at_once(&mut round);
        self.commit(round).await?;
        self.act();
        Ok(())
    }

    pub(super) async fn decide(&mut self, message: Message, round: &mut Round) {
        match message {
            Message::Aside(input) => drop(self.step(*input, round)),
            Message::Report { life, over, input } => self.report(life, over, *input, round),
            Message::Open { settings, origin, reply } => self.open(*settings, origin, reply, round),
            Message::Command { command, waits, reply } => {
                self.command(*command, waits, reply, round).await;
            }
            Message::Stop { patience, reply } => {
                self.waiting.push(reply);
                self.stopping = Some(self.shared.world.clock.now().after(patience));
            }
        }
    }

    /// What work has to say. What an earlier life started is void, except that its calls are counted.
    pub(super) fn report(
        &mut self,
        life: u32,
        over: Option<Work>,
        input: Input,
        round: &mut Round,
    ) {
        let ours = life == self.life;
        if let (true, Some(work)) = (ours, over) {
            self.running.remove(&work);
        }
        let is_call = matches!(input, Input::CallEnded { .. });
        // A call that was stopped only because we stop is left as it is: whoever resumes runs it again
        // or says that nobody knows.
        let parked = self.is_parking() && stopped(&input);
        if (ours && !parked) || (!ours && is_call) {
            self.step(input, round);
        }
    }

    pub(super) fn is_parking(&self) -> bool {
        self.stopping.is_some_and(|until| self.shared.world.clock.now() >= until)
    }

    pub(super) fn open(
        &mut self,
        settings: Settings,
        origin: Option<Origin>,
        reply: oneshot::Sender<Result<(), Fault>>,
        round: &mut Round,
    ) {
        if self.session.head > 0 {
            let fault = Fault::new(Kind::CommandRepeated, Operation::OpenSession)
                .with(Fact::Session, self.id.to_string());
            return drop(reply.send(Err(fault)));
        }
        self.step(
            Input::Noted { turn: 0, event: Event::SessionOpened { settings, origin } },
            round,
        );
        round.opened.push(reply);
    }

    /// Takes up a command, unless it was taken up before.
    pub(super) async fn command(
        &mut self,
        command: Command,
        waits: bool,
        reply: oneshot::Sender<Result<Answer, Fault>>,
        round: &mut Round,
    ) {
        if self.session.head == 0 {
            let fault = Fault::new(Kind::UnknownSession, Operation::SubmitCommand)
                .with(Fact::Session, self.id.to_string());
            return drop(reply.send(Err(fault)));
        }
        let ask = fingerprint(&command.ask);
        let before =
            round.known.iter().chain(&self.remembered).find(|taken| taken.id == command.id);
        match before {
            Some(taken) if taken.ask == ask => {
                return round.replies.push((reply, taken.answer.clone()));
            }
            Some(taken) => return drop(reply.send(Err(repeated(self.id, &taken.id)))),
            None => {}
        }
        let kept = (!waits && !command.id.is_own()).then(|| command.clone());
        if kept.is_some() && self.is_old(&command.id).await {
            // Whoever is told "busy" asks through the inbox, which knows every answer.
            return drop(reply.send(Err(busy(self.id))));
        }
        let Some((id, answer)) = self.step(Input::Command(command), round) else { return };
        match kept {
            Some(command) => round.taken.push((command, answer.clone())),
            None if waits => round.answers.push((id.clone(), answer.clone())),
            None => {}
        }
        round.known.push(Taken { id, ask, answer: answer.clone() });
        round.replies.push((reply, answer));
    }

    /// Was a command with this id taken up before, longer ago than we remember?
    pub(super) async fn is_old(&self, id: &CommandId) -> bool {
        !matches!(self.shared.journal.answer(self.id, id).await, Ok(None))
    }

    /// Lets the turn decide. Its events are applied to the state and wait in the round to be durable.
    pub(super) fn step(&mut self, input: Input, round: &mut Round) -> Option<(CommandId, Answer)> {
        let world = &self.shared.world;
        let now = world.clock.now();
        let may_retry = || {
            let provider = self.tools.provider.lock().expect("no code panics while holding this");
            self.shared.providers.take_retry(&provider, now)
        };
        let env = Env {
            now,
            jitter: world.jitter(),
            may_retry: &may_retry,
            trace: world.trace(),
            limits: &self.shared.limits,
        };
        // Scrubbed before it is decided about, so that the state in memory is the fold of what is kept.
        let input = clean::input(input, &self.shared.scrubber, self.shared.limits.json_depth);
        let decided = turn::step(&mut self.session, input, &env);
        for entry in decided.entries {
            self.known.lock().expect("no code panics while holding this").apply(&entry.event);
            if let Event::SettingsChanged { .. } = entry.event {
                // A request under way is still the old provider's.
                let provider = Arc::clone(&self.tools.provider);
                self.tools = work::Tools { provider, ..work::Tools::default() };
            }
            let core::Entry { at, trace, turn, event } = entry;
            round.entries.push(Entry { at, trace, turn, event: event.into() });
        }
        decided.answer.map(|(id, answer)| (id, clean::answer(answer, &self.shared.scrubber)))
    }

    /// Makes a round durable, then answers whoever waits for it.
    pub(super) async fn commit(&mut self, round: Round) -> Result<(), Exit> {
        let nothing =
            round.entries.is_empty() && round.answers.is_empty() && round.taken.is_empty();
        if !nothing {
            if let Err(exit) = self.append(&round).await {
                let fault = match &exit {
                    Exit::Failed(fault) if fault.kind() != Kind::CommandRepeated => fault.clone(),
                    // Whoever is told "busy" asks through the inbox, which knows every answer.
                    _ => busy(self.id),
                };
                round.refuse(&fault);
                return Err(exit);
            }
            self.idle_since = self.shared.world.clock.now();
        }
        for answered in round.known {
            self.remembered.push_back(answered);
            if self.remembered.len() > REMEMBERED {
                self.remembered.pop_front();
            }
        }
        round.replies.into_iter().for_each(|(reply, answer)| drop(reply.send(Ok(answer))));
        round.opened.into_iter().for_each(|reply| drop(reply.send(Ok(()))));
        if round.entries.iter().any(|entry| matches!(*entry.event, Event::SessionEnded { .. })) {
            self.shared.let_go_of_tools(self.id);
        }
        let mut teller = std::mem::take(&mut self.teller);
        teller.tell(|| self.desk(), &round.entries, &self.session.history);
        self.teller = teller;
        Ok(())
    }

    pub(super) async fn append(&mut self, round: &Round) -> Result<(), Exit> {
        let written = round.entries.len() as Seq;
        let expected = self.session.head - written;
        // The longer the history, the rarer: what snapshots cost stays in proportion to what is written.
        let apart = self.shared.limits.snapshot_records.max(self.snapshot / 2);
        let due = self.session.head - self.snapshot >= apart;
        let snapshot = due.then(|| serde_json::to_vec(&self.session).ok()).flatten();
        if snapshot.is_some() {
            self.snapshot = self.session.head;
        }
        let append = || Append {
            session: self.id,
            token: self.lease.token,
            expected,
            entries: round.entries.clone(),
            answers: round.answers.clone(),
            taken: round.taken.clone(),
            snapshot: snapshot.clone(),
        };
        self.append_at_last(append).await
    }

    /// Appends; what passes is tried again here, so that running work is not thrown away for it.
    pub(super) async fn append_at_last(&self, append: impl Fn() -> Append) -> Result<(), Exit> {
        let mut attempt = 0;
        loop {
            attempt += 1;
            let fault = match self.shared.journal.append(append()).await {
                Ok(_) => return Ok(()),
                // Only we write: the records are there, and only the answer was lost.
                Err(AppendError::Conflict { head }) if attempt > 1 && head == self.session.head => {
                    return Ok(());
                }
                Err(AppendError::Fenced) => return Err(Exit::Fenced),
                Err(error) => error.into_fault(self.id),
            };
            let is_resource = fault.row().category == Category::Resource;
            let last = if is_resource { 2 } else { APPEND_TRIES };
            if attempt >= last || !is_passing(&fault) || fault.kind() == Kind::CommandRepeated {
                return Err(Exit::Failed(fault));
            }
            if is_resource {
                self.shared.clean_up(&fault).await;
            } else {
                tracing::warn!(session = %self.id, %fault, "the append is tried again");
                self.shared.world.clock.sleep(APPEND_WAIT * attempt).await;
            }
        }
    }
}

/// Is this a call that ended because it was stopped?
fn stopped(input: &Input) -> bool {
    match input {
        Input::CallEnded { outcome, .. } => {
            outcome.fault().is_some_and(|fault| fault.kind() == Kind::Cancelled)
        }
        _ => false,
    }
}

//! One round of a session: decide, make durable, answer.

use std::sync::Arc;

use async_trait::async_trait;
use budao_core::{
    event::{self as core, Answer, Command, CommandId, Event, Origin, Settings},
    fault::{Fault, Kind},
    turn::{self, Env, Input, Work},
};
use budao_journal::{
    Entry,
    tenure::{Committed, Exit, Room, Round},
};
use tokio::sync::oneshot;

use super::{Actor, Message};
use crate::{clean, runtime::Shared, work};

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
                let until = self.shared.world.clock.now().after(patience);
                // Who asks again asks for no more patience than there was.
                self.stopping = Some(self.stopping.map_or(until, |before| before.min(until)));
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
            self.running.retain(|(known, _)| *known != work);
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
        self.parked || self.stopping.is_some_and(|until| self.shared.world.clock.now() >= until)
    }

    pub(super) fn open(
        &mut self,
        settings: Settings,
        origin: Option<Origin>,
        reply: oneshot::Sender<Result<(), Fault>>,
        round: &mut Round,
    ) {
        if !self.tenure.opens(&self.session, reply, round) {
            return;
        }
        self.step(
            Input::Noted { turn: 0, event: Event::SessionOpened { settings, origin } },
            round,
        );
    }

    /// Takes up a command, unless it was taken up before.
    pub(super) async fn command(
        &mut self,
        command: Command,
        waits: bool,
        reply: oneshot::Sender<Result<Answer, Fault>>,
        round: &mut Round,
    ) {
        let admitted = self.tenure.admit(&self.session, &command, waits, reply, round).await;
        let Some(admitted) = admitted else { return };
        if let Some((id, answer)) = self.step(Input::Command(command), round) {
            round.answer(admitted, id, answer);
        }
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
        let shared = Arc::clone(&self.shared);
        let Committed { entries, wrote } =
            self.tenure.commit(round, &self.session, &*shared).await?;
        if wrote {
            self.idle_since = shared.world.clock.now();
        }
        if entries.iter().any(|entry| matches!(*entry.event, Event::SessionEnded { .. })) {
            shared.let_go_of_tools(self.id);
        }
        let mut teller = std::mem::take(&mut self.teller);
        teller.tell(|| self.desk(), &entries, &self.session.history);
        self.teller = teller;
        Ok(())
    }
}

/// Is this a call that ended because it was stopped?
fn stopped(input: &Input) -> bool {
    let Input::CallEnded { outcome, .. } = input else { return false };
    outcome.fault().is_some_and(|fault| fault.kind() == Kind::Cancelled)
}

#[async_trait]
impl Room for Shared {
    async fn make(&self, fault: &Fault) -> bool {
        self.clean_up(fault).await;
        true
    }
}

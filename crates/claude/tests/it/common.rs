//! An engine whose CLI is played over a pipe, and ways to talk to it.

use std::{sync::Arc, time::Duration};

use budao_claude::{Claude, ClaudeConfig, CliTimeouts};
use budao_core::{
    engine::{Engine, SessionOptions},
    event::{
        Answer, Command, CommandBody, CommandId, Decision, Event, QuestionId, Record, SessionId,
        Settings, StopReason, TurnNumber,
    },
    fault::{Fault, Kind},
    limits::Limits,
    message::Block,
    trace::Trace,
    world::World,
};
use budao_journal::{Journal, Memory};
use budao_testkit::{claude::CliVersion, launcher::PlayedCliLauncher, world};
use futures::StreamExt;

/// A session and its engine.
pub(crate) struct Fixture {
    pub(crate) engine: Claude,
    pub(crate) journal: Arc<dyn Journal>,
    pub(crate) played: Arc<PlayedCliLauncher>,
    pub(crate) world: World,
    pub(crate) id: SessionId,
}

/// Short enough that a paused clock has not much to do.
pub(crate) fn timeouts() -> CliTimeouts {
    CliTimeouts { quiet: Duration::from_secs(300), ..CliTimeouts::default() }
}

impl Fixture {
    pub(crate) async fn open(age: CliVersion) -> Self {
        Self::seeded(age, 1, Settings::default()).await
    }

    pub(crate) async fn seeded(age: CliVersion, seed: u64, settings: Settings) -> Self {
        let world = world::seeded(seed);
        let journal: Arc<dyn Journal> = Arc::new(Memory::new(world.clone(), Limits::default()));
        let played = PlayedCliLauncher::new(age);
        let mut config = ClaudeConfig::new(journal.clone(), world.clone(), played.clone());
        config.timeouts = timeouts();
        let engine = Claude::new(config);
        let id =
            engine.open(SessionOptions { settings, ..SessionOptions::default() }).await.unwrap();
        Self { engine, journal, played, world, id }
    }

    /// The same journal and CLI, another engine: as after a restart.
    pub(crate) async fn restarted(&self) -> Self {
        let mut config =
            ClaudeConfig::new(self.journal.clone(), self.world.clone(), self.played.clone());
        config.timeouts = timeouts();
        Self {
            engine: Claude::new(config),
            journal: self.journal.clone(),
            played: self.played.clone(),
            world: self.world.clone(),
            id: self.id,
        }
    }

    pub(crate) async fn ask(&self, body: CommandBody) -> Answer {
        let id = CommandId::own(self.world.uuid());
        let command = Command { id, by: "test".into(), trace: Trace::NONE, body };
        self.engine.submit(self.id, command).await.unwrap()
    }

    /// Sends words; the name of the message.
    pub(crate) async fn say(&self, text: &str) -> CommandId {
        let id = CommandId::own(self.world.uuid());
        let body = CommandBody::Message { content: vec![Block::Text(text.into())] };
        let command = Command { id: id.clone(), by: "test".into(), trace: Trace::NONE, body };
        let answer = self.engine.submit(self.id, command).await.unwrap();
        assert!(matches!(answer, Answer::Accepted { .. }), "{answer:?}");
        id
    }

    pub(crate) async fn cancel(&self) {
        let answer = self.ask(CommandBody::Cancel { reason: None }).await;
        assert!(matches!(answer, Answer::Accepted { .. }), "{answer:?}");
    }

    pub(crate) async fn decide(&self, question: &QuestionId, decision: Decision) -> Answer {
        let question = question.clone();
        let (note, arguments, digest) = (None, None, None);
        self.ask(CommandBody::Decide { question, decision, note, arguments, digest }).await
    }

    /// Sends words and waits for the end of the turn that answers them.
    pub(crate) async fn run(&self, text: &str) -> Ended {
        let message = self.say(text).await;
        self.ended(&message).await
    }

    /// The records up to the first that fits, which is the last.
    pub(crate) async fn until(&self, mut fits: impl FnMut(&Record) -> bool) -> Vec<Record> {
        let mut records = self.engine.follow(self.id, 0).await.unwrap();
        let mut seen = Vec::new();
        let patience = Duration::from_secs(48 * 3_600);
        let all = async {
            while let Some(record) = records.next().await {
                seen.push(record.unwrap());
                if fits(seen.last().unwrap()) {
                    break;
                }
            }
        };
        let in_time = tokio::time::timeout(patience, all).await;
        assert!(in_time.is_ok(), "never came; there is {seen:#?}");
        seen
    }

    /// Waits for the end of the turn that answers a message.
    pub(crate) async fn ended(&self, message: &CommandId) -> Ended {
        let mut number = None;
        let records = self
            .until(|record| match &record.event {
                Event::TurnStarted { message: answers } if answers == message => {
                    number = Some(record.turn);
                    false
                }
                Event::TurnEnded { .. } => Some(record.turn) == number,
                _ => false,
            })
            .await;
        Ended::of(records.last().unwrap().turn, &records)
    }

    /// Waits for a question.
    pub(crate) async fn wait_for_question(&self) -> QuestionId {
        let mut question = None;
        self.until(|record| match &record.event {
            Event::QuestionAsked { question: asked, .. } => {
                question = Some(asked.clone());
                true
            }
            _ => false,
        })
        .await;
        question.unwrap()
    }

    /// Every record there is.
    pub(crate) async fn records(&self) -> Vec<Record> {
        let head = self.journal.info(self.id).await.unwrap().unwrap().head;
        self.until(|record| record.seq == head).await
    }
}

/// How a turn ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) stop: StopReason,
    pub(crate) fault: Option<Kind>,
    /// What a person saw, voided words taken out.
    pub(crate) text: String,
    /// The names of its events, in order, words left out.
    pub(crate) events: Vec<String>,
}

impl Ended {
    fn of(turn: TurnNumber, records: &[Record]) -> Self {
        let records: Vec<&Record> = records.iter().filter(|record| record.turn == turn).collect();
        let last = &records.last().unwrap().event;
        let Event::TurnEnded { stop, fault, .. } = last else { panic!("no end: {last:?}") };
        Self {
            stop: *stop,
            fault: fault.as_ref().map(Fault::kind),
            text: final_text(&records),
            events: records.iter().map(|record| name(&record.event)).collect(),
        }
    }

    pub(crate) fn assert_answers(&self, prompt: &str) {
        assert_eq!(self.stop, StopReason::EndTurn, "{self:?}");
        assert_eq!(self.text, budao_testkit::claude::answer(prompt), "{self:?}");
    }
}

/// The name of an event.
pub(crate) fn name(event: &Event) -> String {
    let value = serde_json::to_value(event).unwrap();
    value.as_object().unwrap().keys().next().unwrap().clone()
}

/// What a person sees of a turn in the end: words minus those that were voided.
pub(crate) fn final_text(records: &[&Record]) -> String {
    let (mut final_text, mut step) = (String::new(), String::new());
    for record in records {
        match &record.event {
            Event::TextDelta { text, .. } => step.push_str(text),
            Event::AnswerAbandoned { .. } => step.clear(),
            Event::ModelAnswered { .. } => final_text.push_str(&std::mem::take(&mut step)),
            _ => {}
        }
    }
    final_text + &step
}

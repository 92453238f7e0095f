//! Plays a session: feeds inputs, keeps the records, and checks what must hold after every one.

use std::{collections::HashMap, time::Duration};

use budao_core::{
    Fault, Kind, Timestamp,
    event::{Answer, Command, CommandBody, Decision, Entry, Event, QuestionId, Settings},
    fallback::ModelOutlook,
    fault::Operation,
    limits::Limits,
    message::{Block, CallId, ModelStop, ToolUse, Usage},
    session::{Session, unpaired},
    tool::{Outcome, Output},
    trace::Trace,
    turn::{self, CallVerdict, Env, Input, Work},
};
use serde_json::{Value, json};

pub(crate) struct Play {
    pub(crate) session: Session,
    pub(crate) entries: Vec<Entry>,
    pub(crate) limits: Limits,
    pub(crate) now: Timestamp,
    pub(crate) busy_slots: usize,
    pub(crate) is_observed: bool,
    /// What the gates report of the models `m`, `n` and `o`.
    pub(crate) outlooks: Vec<ModelOutlook>,
    commands: u32,
}

impl Play {
    pub(crate) fn new() -> Self {
        Self::with_models("m")
    }

    /// Plays a session with a list of models.
    pub(crate) fn with_models(models: &str) -> Self {
        let models = models.split(',');
        let mut play = Self {
            session: Session::default(),
            entries: Vec::new(),
            limits: Limits::default(),
            now: Timestamp::from_micros(1_000_000),
            busy_slots: 0,
            is_observed: true,
            outlooks: Vec::new(),
            commands: 0,
        };
        let settings = Settings::default().with_models(models.map(str::to_owned).collect());
        play.input(Input::RecordOnly {
            turn: 0,
            event: Event::SessionOpened { settings, origin: None },
        });
        play
    }

    /// Plays a session whose turns do not wait for their service.
    pub(crate) fn without_patience() -> Self {
        let mut play = Self::new();
        play.limits.gate.patience_watched = Duration::ZERO;
        play.limits.gate.patience_background = Duration::ZERO;
        play
    }

    /// Feeds one input and returns the names of the events that followed.
    pub(crate) fn input(&mut self, input: Input) -> Vec<&'static str> {
        self.step(input).0
    }

    fn step(&mut self, input: Input) -> (Vec<&'static str>, Option<Answer>) {
        let env = Env {
            now: self.now,
            jitter: 0.0,
            busy_slots: self.busy_slots,
            is_observed: self.is_observed,
            trace: Trace::from_random(7),
            outlooks: &self.outlooks,
            limits: &self.limits,
            server: None,
        };
        let decided = turn::step(&mut self.session, input, &env);
        let names = decided.entries.iter().map(|entry| name(&entry.event)).collect();
        self.entries.extend(decided.entries);
        self.check();
        (names, decided.answer.map(|(_, answer)| answer))
    }

    /// What must hold after every input.
    fn check(&self) {
        for work in self.due() {
            if let Work::Model { .. } = work {
                assert_eq!(unpaired(&self.session.history, 0), None, "asked with a broken history");
            }
        }
        let waits = self.session.turn.is_some() != self.due().is_empty();
        assert!(waits, "a running turn always waits for something: {:?}", self.session.turn);
    }

    /// Reads the records back: must be the very session.
    pub(crate) fn replayed(&self) -> Session {
        let mut session = Session::default();
        for entry in &self.entries {
            let event = Event::decode(&entry.event.encode()).unwrap();
            assert_eq!(event, *entry.event, "an event survives being kept");
            session.apply(&event, entry.at, entry.trace);
        }
        assert_eq!(session, self.session, "the fold of the records is the session");
        session
    }

    pub(crate) fn due(&self) -> Vec<Work> {
        turn::due(&self.session, &self.limits)
    }

    pub(crate) fn command(&mut self, body: CommandBody) -> (Vec<&'static str>, Answer) {
        self.commands += 1;
        let id = format!("c{}", self.commands).as_str().into();
        let command = Command { id, by: "ada".into(), trace: Trace::NONE, body };
        let (names, answer) = self.step(Input::Command(command));
        (names, answer.expect("every command gets an answer"))
    }

    pub(crate) fn say(&mut self, text: &str) -> Vec<&'static str> {
        self.command(CommandBody::Message { content: vec![Block::Text(text.into())] }).0
    }

    pub(crate) fn cancel(&mut self) -> Vec<&'static str> {
        self.command(CommandBody::Cancel { reason: None }).0
    }

    pub(crate) fn decide(
        &mut self,
        question: &str,
        decision: Decision,
        edited: Option<Value>,
    ) -> Answer {
        let body = CommandBody::Decide {
            question: QuestionId(question.into()),
            decision,
            note: Some("because".into()),
            arguments: edited,
            digest: None,
        };
        self.command(body).1
    }

    pub(crate) fn asking(&self) -> (u64, u32, u32) {
        match self.due().as_slice() {
            [Work::Model { turn, step, attempt }]
            | [Work::Model { turn, step, attempt }, Work::Wake { .. }] => (*turn, *step, *attempt),
            other => panic!("no model is due but {other:?}"),
        }
    }

    pub(crate) fn delta(&mut self, text: &str) -> Vec<&'static str> {
        let (turn, step, attempt) = self.asking();
        self.input(Input::Delta { turn, step, attempt, text: text.into(), thought: String::new() })
    }

    pub(crate) fn answer(&mut self, content: Vec<Block>, stop: ModelStop) -> Vec<&'static str> {
        let (turn, step, attempt) = self.asking();
        let usage = Usage { input_tokens: 10, output_tokens: 5, ..Usage::default() };
        self.input(Input::ModelAnswered {
            turn,
            step,
            attempt,
            content,
            stop,
            usage,
            response: None,
        })
    }

    pub(crate) fn answer_text(&mut self, text: &str) -> Vec<&'static str> {
        self.answer(vec![Block::Text(text.into())], ModelStop::EndTurn)
    }

    /// The model asks for calls; returns their ids.
    pub(crate) fn answer_calls(&mut self, calls: &[(&str, &str)]) -> Vec<CallId> {
        let uses = calls.iter().map(|(tool, arguments)| {
            // Providers repeat ids; we must not care.
            let id = CallId::from("same");
            Block::ToolUse(ToolUse { id, name: (*tool).into(), arguments: (*arguments).into() })
        });
        self.answer(uses.collect(), ModelStop::ToolUse);
        match self.due().as_slice() {
            [Work::Check { calls, .. }] => calls.clone(),
            other => panic!("no check is due but {other:?}"),
        }
    }

    pub(crate) fn model_fails(&mut self, kind: Kind) -> Vec<&'static str> {
        let (turn, step, attempt) = self.asking();
        let fault = Fault::new(kind, Operation::ModelRequest);
        self.input(Input::ModelFailed { turn, step, attempt, fault })
    }

    pub(crate) fn turn(&self) -> u64 {
        self.session.turns
    }

    pub(crate) fn check_calls(
        &mut self,
        verdicts: Vec<(CallId, CallVerdict)>,
    ) -> Vec<&'static str> {
        self.input(Input::CallsChecked { turn: self.turn(), verdicts })
    }

    pub(crate) fn run_all(&mut self, calls: &[CallId], idempotent: bool) -> Vec<&'static str> {
        let verdicts = calls.iter().map(|id| (id.clone(), run(idempotent))).collect();
        self.check_calls(verdicts)
    }

    pub(crate) fn end_call(
        &mut self,
        call: &CallId,
        attempt: u32,
        outcome: Outcome,
    ) -> Vec<&'static str> {
        let turn = self.turn();
        self.input(Input::ToolCallEnded { turn, call: call.clone(), attempt, outcome })
    }

    pub(crate) fn wait(&mut self, wait: Duration) -> Vec<&'static str> {
        self.now = self.now.after(wait);
        self.input(Input::TimerFired { turn: self.turn() })
    }

    pub(crate) fn count(&self, wanted: &str) -> usize {
        self.entries.iter().filter(|entry| name(&entry.event) == wanted).count()
    }

    /// The outcome each call has in the records; panics if one has two.
    pub(crate) fn outcomes(&self) -> HashMap<CallId, Outcome> {
        let mut outcomes = HashMap::new();
        for entry in &self.entries {
            if let Event::ToolCallEnded { call, outcome, .. } = &*entry.event {
                let before = outcomes.insert(call.clone(), outcome.clone());
                assert_eq!(before, None, "{call} has two outcomes");
            }
        }
        outcomes
    }
}

pub(crate) fn run(idempotent: bool) -> CallVerdict {
    CallVerdict::Run {
        arguments: json!({}),
        repairs: Vec::new(),
        idempotent,
        reconcile: false,
        route: None,
    }
}

pub(crate) fn ask() -> CallVerdict {
    CallVerdict::Ask {
        arguments: json!({"path": "a"}),
        repairs: Vec::new(),
        idempotent: false,
        digest: "d".into(),
        reason: "it writes".into(),
    }
}

pub(crate) fn refuse(kind: Kind) -> CallVerdict {
    CallVerdict::Settled(failed(kind))
}

pub(crate) fn failed(kind: Kind) -> Outcome {
    Fault::new(kind, Operation::ToolCall).into()
}

pub(crate) fn done() -> Outcome {
    Outcome::Done(Output { data: json!(1), ..Output::default() })
}

/// An event's name, as it is in the records.
pub(crate) fn name(event: &Event) -> &'static str {
    let value = serde_json::to_value(event).unwrap();
    let name = value.as_object().unwrap().keys().next().unwrap().clone();
    Box::leak(name.into_boxed_str())
}

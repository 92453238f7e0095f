//! Plays a session that runs pipelines: feeds inputs, keeps the records, checks what must always hold.

use std::{collections::BTreeSet, time::Duration};

use budao_core::{
    Fault, Kind, Timestamp,
    event::{
        Answer, ChildLink, Command, CommandBody, Decision, Entry, Event, Origin, QuestionId,
        SessionId, Settings, TaskEnd, TaskId,
    },
    fault::Operation,
    limits::Limits,
    message::{Block, ModelStop, Usage},
    pipeline::{Pipeline, StageJob},
    session::Session,
    trace::Trace,
    turn::{self, Env},
};
use budao_pipeline::{Input, Work};
use serde_json::Value;
use uuid::Uuid;

pub(crate) struct Play {
    pub(crate) session: Session,
    pub(crate) entries: Vec<Entry>,
    pub(crate) limits: Limits,
    pub(crate) now: Timestamp,
    commands: u32,
}

impl Play {
    pub(crate) fn new() -> Self {
        Self::of(None)
    }

    pub(crate) fn of(origin: Option<Origin>) -> Self {
        let mut play = Self {
            session: Session::default(),
            entries: Vec::new(),
            limits: Limits::default(),
            now: Timestamp::from_micros(1_000_000),
            commands: 0,
        };
        let settings = Settings { model: "m".into(), ..Settings::default() };
        play.input(turn::Input::RecordOnly {
            turn: 0,
            event: Event::SessionOpened { settings, origin },
        });
        play
    }

    /// A session that solves these tasks.
    pub(crate) fn solving(tasks: Value) -> Self {
        let mut play = Self::new();
        let answer = play.command(CommandBody::Solve { question: "why?".into(), tasks }).1;
        assert!(matches!(answer, Answer::Accepted { .. }), "{answer:?}");
        play
    }

    pub(crate) fn input(&mut self, input: impl Into<Input>) -> Vec<&'static str> {
        self.step(input).0
    }

    fn step(&mut self, input: impl Into<Input>) -> (Vec<&'static str>, Option<Answer>) {
        let env = Env {
            now: self.now,
            jitter: 0.0,
            busy_slots: 0,
            is_observed: true,
            trace: Trace::from_random(7),
            outlooks: &[],
            limits: &self.limits,
            server: None,
        };
        let decided = budao_pipeline::step(&mut self.session, input, &env);
        let names = decided.entries.iter().map(|entry| name(&entry.event)).collect();
        self.entries.extend(decided.entries);
        self.check();
        (names, decided.answer.map(|(_, answer)| answer))
    }

    /// What must hold after every input.
    fn check(&self) {
        let due = self.due();
        let idle = self.session.turn.is_none();
        assert_eq!(
            idle,
            due.is_empty(),
            "a running turn always waits for something: {:?}",
            self.session.pipeline
        );
        let jobs = due.iter().filter(|work| matches!(work, Work::Stage { .. })).count();
        assert!(jobs <= self.limits.parallel_calls, "too many at once: {due:?}");
    }

    /// Reads the records back: must be the very session.
    pub(crate) fn replayed(&self) -> Session {
        let mut session = Session::default();
        for entry in &self.entries {
            let event = Event::decode(&entry.event.encode()).expect("an event decodes");
            assert_eq!(event, *entry.event, "an event survives being kept");
            session.apply(&event, entry.at, entry.trace);
        }
        assert_eq!(session, self.session, "the fold of the records is the session");
        let kept = serde_json::to_vec(&session).expect("a session is JSON");
        let back: Session = serde_json::from_slice(&kept).expect("and back");
        assert_eq!(back, session, "a session survives being kept");
        session
    }

    pub(crate) fn crash(&mut self) -> Vec<&'static str> {
        self.session = self.replayed();
        self.input(turn::Input::Resumed)
    }

    pub(crate) fn due(&self) -> Vec<Work> {
        budao_pipeline::due(&self.session, &self.limits)
    }

    pub(crate) fn command(&mut self, body: CommandBody) -> (Vec<&'static str>, Answer) {
        self.commands += 1;
        let id = format!("c{}", self.commands).as_str().into();
        let command = Command { id, by: "ada".into(), trace: Trace::NONE, body };
        let (names, answer) = self.step(turn::Input::Command(command));
        (names, answer.expect("every command gets an answer"))
    }

    /// A command that must be refused, and changes nothing.
    pub(crate) fn refused(&mut self, body: CommandBody) -> Fault {
        let before = self.session.clone();
        let (names, answer) = self.command(body);
        let Answer::Rejected { fault } = answer else { panic!("{answer:?}") };
        assert_eq!(names, [""; 0]);
        assert_eq!(self.session, before);
        fault
    }

    pub(crate) fn plan(&mut self, confirm: bool) -> Vec<&'static str> {
        self.command(CommandBody::Plan { question: "why?".into(), confirm }).0
    }

    pub(crate) fn say(&mut self, text: &str) -> Vec<&'static str> {
        self.command(CommandBody::Message { content: vec![Block::Text(text.into())] }).0
    }

    pub(crate) fn cancel(&mut self) -> Vec<&'static str> {
        self.command(CommandBody::Cancel { reason: None }).0
    }

    pub(crate) fn decide(&mut self, decision: Decision, edited: Option<Value>) -> Answer {
        let open = self.pipeline().confirmation.clone().expect("a plan waits");
        let body = CommandBody::Decide {
            question: QuestionId(open.question.0),
            decision,
            note: None,
            arguments: edited,
            digest: Some(open.digest),
        };
        self.command(body).1
    }

    pub(crate) fn pipeline(&self) -> &Pipeline {
        self.session.pipeline.as_ref().expect("there was a pipeline")
    }

    /// The jobs whose children must be at work.
    pub(crate) fn jobs(&self) -> Vec<StageJob> {
        let jobs = self.due().into_iter().filter_map(|work| match work {
            Work::Stage { job, .. } => Some(job),
            _ => None,
        });
        jobs.collect()
    }

    /// The jobs whose children must stop.
    pub(crate) fn stops(&self) -> Vec<StageJob> {
        let jobs = self.due().into_iter().filter_map(|work| match work {
            Work::Stop { job, .. } => Some(job),
            _ => None,
        });
        jobs.collect()
    }

    pub(crate) fn tasks_at_work(&self) -> Vec<String> {
        self.jobs().iter().filter_map(|job| Some(job.task.as_ref()?.to_string())).collect()
    }

    pub(crate) fn end(&mut self, job: &StageJob, end: TaskEnd) -> Vec<&'static str> {
        let usage = Usage { input_tokens: 10, output_tokens: 5, ..Usage::default() };
        let turn = self.session.turns;
        self.input(Input::StageEnded { turn, job: job.clone(), end, usage })
    }

    /// The one stage that is at work answers.
    pub(crate) fn answer(&mut self, text: &str) -> Vec<&'static str> {
        let jobs = self.jobs();
        let [job] = jobs.as_slice() else { panic!("not one job but {jobs:?}") };
        self.end(job, completed(text))
    }

    pub(crate) fn solve(&mut self, task: &str, end: TaskEnd) -> Vec<&'static str> {
        let job = self.job(task);
        self.end(&job, end)
    }

    pub(crate) fn job(&self, task: &str) -> StageJob {
        let jobs = self.pipeline().jobs();
        let found = jobs.into_iter().find(|job| job.task.as_ref().is_some_and(|id| *id.0 == *task));
        found.unwrap_or_else(|| panic!("task {task} is not at work"))
    }

    /// Children that were told to stop have stopped.
    pub(crate) fn all_stop(&mut self) -> Vec<&'static str> {
        let stops = self.stops();
        let names = stops.iter().flat_map(|job| self.end(job, cancelled()));
        names.collect()
    }

    pub(crate) fn opened(&mut self, job: &StageJob, child: u128) -> Vec<&'static str> {
        let (turn, child) = (self.session.turns, SessionId(Uuid::from_u128(child)));
        self.input(Input::StageOpened { turn, job: job.clone(), child })
    }

    pub(crate) fn wait(&mut self, wait: Duration) -> Vec<&'static str> {
        self.now = self.now.after(wait);
        self.input(turn::Input::TimerFired { turn: self.session.turns })
    }

    pub(crate) fn count(&self, wanted: &str) -> usize {
        self.entries.iter().filter(|entry| name(&entry.event) == wanted).count()
    }

    /// Every start has exactly one terminal event, and nothing ends that did not begin.
    pub(crate) fn check_starts(&self) {
        let mut open = BTreeSet::new();
        for entry in &self.entries {
            if let Some(what) = started(&entry.event) {
                assert!(open.insert(what.clone()), "{what} started while it runs");
            }
            if let Some((what, must_have_begun)) = ended(&entry.event) {
                assert!(open.remove(&what) || !must_have_begun, "{what} ended without a start");
            }
        }
        assert!(open.is_empty(), "never ended: {open:?}");
    }
}

fn started(event: &Event) -> Option<String> {
    Some(match event {
        Event::TurnStarted { .. } => "turn".to_owned(),
        Event::PlanStarted { .. } => "plan".to_owned(),
        Event::TaskStarted { task, .. } => format!("task {}", task.id),
        Event::AggregateStarted { .. } => "aggregate".to_owned(),
        Event::ChildOpened(ChildLink { child, .. }) => format!("child {child}"),
        _ => return None,
    })
}

/// What ended, and whether it must have begun: given tasks are a plan nobody made, and a task may be
/// cancelled while it waits.
fn ended(event: &Event) -> Option<(String, bool)> {
    Some(match event {
        Event::TurnEnded { .. } => ("turn".to_owned(), true),
        Event::PlanMade { .. } => ("plan".to_owned(), false),
        Event::PlanRefused { .. } | Event::PlanCancelled { .. } => ("plan".to_owned(), true),
        Event::TaskEnded { task, .. } => (format!("task {task}"), false),
        Event::AggregateEnded { .. } => ("aggregate".to_owned(), true),
        Event::ChildEnded { child, .. } => (format!("child {child}"), true),
        _ => return None,
    })
}

pub(crate) fn completed(output: &str) -> TaskEnd {
    TaskEnd::Completed { output: output.into() }
}

pub(crate) fn failed(kind: Kind) -> TaskEnd {
    TaskEnd::Failed { fault: Fault::new(kind, Operation::ModelRequest) }
}

pub(crate) fn cancelled() -> TaskEnd {
    TaskEnd::Cancelled { reason: "stopped".into() }
}

pub(crate) fn id(task: &str) -> TaskId {
    TaskId(task.into())
}

/// The model of an ordinary turn answers.
pub(crate) fn answer_model(play: &mut Play, text: &str) -> Vec<&'static str> {
    let due = play.due();
    let [Work::Turn(turn::Work::Model { turn, step, attempt })] = due.as_slice() else {
        panic!("{due:?}")
    };
    let (turn, step, attempt) = (*turn, *step, *attempt);
    let (content, stop) = (vec![Block::Text(text.into())], ModelStop::EndTurn);
    play.input(turn::Input::ModelAnswered {
        turn,
        step,
        attempt,
        content,
        stop,
        usage: Usage::default(),
        response: None,
    })
}

/// An event's name, as it is in the records.
pub(crate) fn name(event: &Event) -> &'static str {
    let value = serde_json::to_value(event).expect("events are JSON");
    let name = value.as_object().and_then(|object| object.keys().next()).cloned();
    Box::leak(name.expect("events are tagged").into_boxed_str())
}

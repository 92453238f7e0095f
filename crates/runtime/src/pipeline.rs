//! The stages of a pipeline: each job is a child session of the same runtime.
//!
//! A job's child follows from the job, so work that is started again (after a crash, after an eviction)
//! finds the child and goes on waiting for it. Dropping the work leaves the child alone; only
//! [`stop`] ends it.

use std::sync::Arc;

use budao_core::{
    engine::Engine,
    event::{Answer, Ask, Event, Origin, SessionId, Stage, TaskEnd, TurnNumber},
    fault::{Fault, Kind, Operation},
    message::Usage,
    pipeline::{Job, Pipeline, prompt},
    session::Session,
    tool::{Mode, Permissions},
    trace::SpanId,
    turn::Input,
};
use serde_json::{Value, json};

use crate::{
    Runtime, TurnResult,
    child::{self, Child, Heard, Rest, Wanted},
    work::Desk,
};

/// How the children of pipelines are set, where they differ from their session.
///
/// Unless said otherwise, a planner may look but not touch, a solver has what its session has, and an
/// aggregator has no tools.
#[derive(Clone, Debug)]
pub struct Stages {
    /// Who plans.
    pub planner: StageSettings,
    /// Who solves.
    pub solver: StageSettings,
    /// Who combines.
    pub aggregator: StageSettings,
}

/// How the child of one stage is set; what is not said is as in its session.
#[derive(Clone, Debug, Default)]
pub struct StageSettings {
    /// The model.
    pub model: Option<String>,
    /// Standing instructions.
    pub system: Option<Arc<str>>,
    /// Tools on offer; never more than the session has.
    pub tools: Option<Vec<String>>,
    /// Model requests; never more than the session has.
    pub max_steps: Option<u32>,
}

impl Default for Stages {
    fn default() -> Self {
        let aggregator = StageSettings { tools: Some(Vec::new()), ..StageSettings::default() };
        Self { planner: StageSettings::default(), solver: StageSettings::default(), aggregator }
    }
}

impl Stages {
    fn of(&self, stage: Stage) -> &StageSettings {
        match stage {
            Stage::Planning => &self.planner,
            Stage::Solving => &self.solver,
            Stage::Aggregation => &self.aggregator,
        }
    }
}

/// A job with everything taken from the session when its work began.
#[derive(Debug)]
pub(crate) struct Brief {
    turn: TurnNumber,
    job: Job,
    child: Child,
}

impl Brief {
    pub(crate) fn new(desk: &Desk, session: &Session, turn: TurnNumber, job: Job) -> Option<Self> {
        let pipeline = session.pipeline.as_ref()?;
        let own = desk.shared.stages.of(job.stage);
        let wanted = Wanted {
            title: title(pipeline, &job)?,
            model: own.model.clone(),
            system: own.system.clone(),
            permissions: (job.stage == Stage::Planning).then(|| looking(session)),
            tools: own.tools.clone(),
            max_steps: own.max_steps,
        };
        let child = Child {
            id: child_id(desk.session, turn, &job),
            settings: child::settings(&session.settings, wanted),
            origin: Origin::Stage {
                parent: desk.session,
                stage: job.stage,
                task: job.task.clone(),
                depth: session.depth() + 1,
            },
            prompt: told(desk, session, pipeline, &job)?,
            trace: session.trace(),
            span: SpanId::of_turn(desk.session, turn),
        };
        Some(Self { turn, job, child })
    }
}

/// The same job has the same child.
pub(crate) fn child_id(parent: SessionId, turn: TurnNumber, job: &Job) -> SessionId {
    let Job { round, stage, task, attempt } = job;
    let stage: &'static str = (*stage).into();
    let task = task.as_ref().map_or("", |task| &*task.0);
    let numbers = format!("{turn}.{round}.{attempt}");
    child::id(parent, &["stage", &numbers, stage, task])
}

/// The session's permissions without anything that writes.
fn looking(session: &Session) -> Permissions {
    let own = &session.settings.permissions;
    Permissions { mode: Mode::Readonly, allow: Vec::new(), ..own.clone() }
}

fn title(pipeline: &Pipeline, job: &Job) -> Option<String> {
    Some(match &job.task {
        Some(task) => pipeline.task(task)?.task.title.clone(),
        None => job.stage.to_string(),
    })
}

fn told(desk: &Desk, session: &Session, pipeline: &Pipeline, job: &Job) -> Option<String> {
    let lang = session.settings.language;
    Some(match (job.stage, &job.task) {
        (Stage::Planning, _) => {
            prompt::planner(&pipeline.question, pipeline.refused.as_ref(), lang)
        }
        (Stage::Solving, task) => prompt::solver(&pipeline.task(task.as_ref()?)?.task),
        (Stage::Aggregation, _) => {
            // Four bytes are about a token: the results may fill half of the context.
            let room = usize::try_from(desk.shared.limits.context_tokens.saturating_mul(2));
            prompt::aggregator(pipeline, room.unwrap_or(usize::MAX), lang)
        }
    })
}

/// Has the child at work, and reports how it came to rest.
pub(crate) async fn run(desk: Desk, brief: Brief) -> Input {
    let Brief { turn, job, child } = brief;
    let rest = watched(&desk, turn, &job, &child).await;
    ended(turn, job, rest)
}

async fn watched(desk: &Desk, turn: TurnNumber, job: &Job, child: &Child) -> Result<Rest, Fault> {
    let mut watch = child::attend(&desk.runtime, child).await?;
    desk.report(Input::StageOpened { turn, job: job.clone(), child: child.id }).await;
    loop {
        match watch.next().await? {
            Heard::Rest(rest) => return Ok(rest),
            Heard::Asks { question, tool } => {
                let data = json!({
                    "child": child.id,
                    "question": question,
                    "tool": tool,
                    "stage": job.stage,
                    "task": job.task,
                });
                let event = Event::Noted { topic: "pipeline.child_asks".to_owned(), data };
                desk.report(Input::Noted { turn, event }).await;
            }
        }
    }
}

/// Stops the child of a job, and reports that it has stopped.
pub(crate) async fn stop(desk: Desk, turn: TurnNumber, job: Job) -> Input {
    let rest = child::stop(&desk.runtime, child_id(desk.session, turn, &job)).await;
    ended(turn, job, rest)
}

fn ended(turn: TurnNumber, job: Job, rest: Result<Rest, Fault>) -> Input {
    match rest {
        Ok(Rest { end, usage }) => Input::StageEnded { turn, job, end, usage },
        Err(fault) => failed(turn, job, fault),
    }
}

fn failed(turn: TurnNumber, job: Job, fault: Fault) -> Input {
    Input::StageEnded { turn, job, end: TaskEnd::Failed { fault }, usage: Usage::default() }
}

/// A job the session knows nothing of: our mistake, told like any other fault.
pub(crate) fn unknown(turn: TurnNumber, job: Job) -> Input {
    let fault = Fault::new(Kind::Bug, Operation::StartAgent).because("no such task in the plan");
    failed(turn, job, fault)
}

impl Runtime {
    /// Has a question planned, solved and aggregated, and waits for the answer or for a person.
    ///
    /// # Errors
    /// When it was not accepted. A run that failed is an `Ok` with its fault.
    pub async fn plan(
        &self,
        session: SessionId,
        question: impl Into<String>,
        confirm: bool,
    ) -> Result<TurnResult, Fault> {
        self.pipeline(session, Ask::Plan { question: question.into(), confirm }).await
    }

    /// Has tasks solved and aggregated, without a planner, and waits for the answer.
    ///
    /// # Errors
    /// When they are no plan. A run that failed is an `Ok` with its fault.
    pub async fn solve(
        &self,
        session: SessionId,
        question: impl Into<String>,
        tasks: Value,
    ) -> Result<TurnResult, Fault> {
        self.pipeline(session, Ask::Solve { question: question.into(), tasks }).await
    }

    async fn pipeline(&self, session: SessionId, ask: Ask) -> Result<TurnResult, Fault> {
        let command = self.command("user", ask);
        let id = command.id.clone();
        match self.submit(session, command).await? {
            Answer::Rejected { fault } => Err(fault),
            Answer::Accepted { at } => self.wait_for(session, &id, at).await,
        }
    }
}

//! The stages of a pipeline: each job is a child session of the same runtime.
//!
//! The child's id derives from the job. Work that starts again after a crash or an eviction finds the child
//! and waits for it. Dropping the work does not end the child; only [`stop`] does.

use std::sync::Arc;

use budao_core::{
    engine::Engine,
    event::{Answer, CommandBody, Event, Origin, SessionId, Stage, TaskEnd, TurnNumber},
    fault::{Fault, Kind, Operation},
    message::Usage,
    pipeline::{Pipeline, StageJob},
    session::Session,
    tool::{Mode, Permissions},
    trace::SpanId,
    turn,
};
use budao_pipeline::{Input, prompt};
use serde_json::{Value, json};

use crate::{
    Runtime, TurnResult,
    child::{self, Child, ChildEvent, ChildOverrides, ChildResult},
    work::WorkContext,
};

/// Settings of pipeline children, where they differ from their session.
///
/// By default a planner has read-only permissions, a solver has those of its session, and an aggregator has no tools.
#[derive(Clone, Debug)]
pub struct Stages {
    /// For the child that makes the plan; always read-only.
    pub planner: StageSettings,
    /// For each child that solves one task.
    pub solver: StageSettings,
    /// For the child that combines the results.
    pub aggregator: StageSettings,
}

/// Settings of one stage's child; `None` inherits from the session.
#[derive(Clone, Debug, Default)]
pub struct StageSettings {
    /// Name of the model, as [`ModelSource`](crate::ModelSource) knows it.
    pub model: Option<String>,
    /// The system prompt.
    pub system: Option<Arc<str>>,
    /// Patterns of offered tools; those that the session lacks are left out.
    pub tools: Option<Vec<String>>,
    /// Upper bound of model requests; at most the session's own.
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

/// A job with its inputs copied from the session when its work started.
#[derive(Debug)]
pub(crate) struct Brief {
    turn: TurnNumber,
    job: StageJob,
    child: Child,
}

impl Brief {
    pub(crate) fn new(
        work_context: &WorkContext,
        session: &Session,
        turn: TurnNumber,
        job: StageJob,
    ) -> Option<Self> {
        let pipeline = session.pipeline.as_ref()?;
        let own = work_context.shared.stages.of(job.stage);
        let wanted = ChildOverrides {
            title: job_title(pipeline, &job)?,
            model: own.model.clone(),
            system: own.system.clone(),
            permissions: (job.stage == Stage::Planning).then(|| read_only_permissions(session)),
            tools: own.tools.clone(),
            max_steps: own.max_steps,
        };
        let mut settings = child::child_settings(&session.settings, wanted);
        child::share_caps(&mut settings, &work_context.shared.limits, work_context.session, turn);
        let child = Child {
            id: child_id(work_context.session, turn, &job),
            settings,
            origin: Origin::Stage {
                parent: work_context.session,
                stage: job.stage,
                task: job.task.clone(),
                depth: session.depth() + 1,
            },
            prompt: prompt_for(work_context, session, pipeline, &job)?,
            trace: session.trace(),
            span: SpanId::of_turn(work_context.session, turn),
        };
        Some(Self { turn, job, child })
    }
}

/// Derives the child's id from the job; the same job has the same child.
pub(crate) fn child_id(parent: SessionId, turn: TurnNumber, job: &StageJob) -> SessionId {
    let StageJob { round, stage, task, attempt } = job;
    let stage: &'static str = (*stage).into();
    let task = task.as_ref().map_or("", |task| &*task.0);
    let numbers = format!("{turn}.{round}.{attempt}");
    child::child_id(parent, &["stage", &numbers, stage, task])
}

/// The session's permissions in read-only mode, without its allow rules.
fn read_only_permissions(session: &Session) -> Permissions {
    let own = &session.settings.permissions;
    Permissions { mode: Mode::Readonly, allow: Vec::new(), ..own.clone() }
}

fn job_title(pipeline: &Pipeline, job: &StageJob) -> Option<String> {
    Some(match &job.task {
        Some(task) => pipeline.task(task)?.task.title.clone(),
        None => job.stage.to_string(),
    })
}

fn prompt_for(
    work_context: &WorkContext,
    session: &Session,
    pipeline: &Pipeline,
    job: &StageJob,
) -> Option<String> {
    let lang = session.settings.language;
    Some(match (job.stage, &job.task) {
        (Stage::Planning, _) => {
            prompt::planner(&pipeline.question, pipeline.refused.as_ref(), lang)
        }
        (Stage::Solving, task) => prompt::solver(&pipeline.task(task.as_ref()?)?.task, job.attempt),
        (Stage::Aggregation, _) => {
            // A token has about four bytes, so this is half of the context.
            let room = usize::try_from(work_context.shared.limits.context_tokens.saturating_mul(2));
            prompt::aggregator(pipeline, room.unwrap_or(usize::MAX), lang)
        }
    })
}

/// Runs the child and reports its end.
pub(crate) async fn run(work_context: WorkContext, brief: Brief) -> Input {
    let Brief { turn, job, child } = brief;
    let rest = run_job(&work_context, turn, &job, &child).await;
    record_cost(&work_context, turn, child.id, &rest).await;
    ended_input(turn, job, rest)
}

async fn run_job(
    work_context: &WorkContext,
    turn: TurnNumber,
    job: &StageJob,
    child: &Child,
) -> Result<ChildResult, Fault> {
    let mut watch = child::start_and_watch(&work_context.runtime, child).await?;
    work_context.report(Input::StageOpened { turn, job: job.clone(), child: child.id }).await;
    loop {
        match watch.next().await? {
            ChildEvent::Ended(rest) => return Ok(rest),
            ChildEvent::QuestionAsked { question, tool } => {
                let data = json!({
                    "child": child.id,
                    "question": question,
                    "tool": tool,
                    "stage": job.stage,
                    "task": job.task,
                });
                let event =
                    Event::Annotated { topic: "pipeline.child_question_asked".to_owned(), data };
                work_context.report(turn::Input::RecordOnly { turn, event }).await;
            }
        }
    }
}

/// Stops the child of a job and reports its end.
pub(crate) async fn stop(work_context: WorkContext, turn: TurnNumber, job: StageJob) -> Input {
    let child = child_id(work_context.session, turn, &job);
    let rest = child::stop(&work_context.runtime, child).await;
    record_cost(&work_context, turn, child, &rest).await;
    ended_input(turn, job, rest)
}

/// Records the cost of a job's child session.
async fn record_cost(
    work_context: &WorkContext,
    turn: TurnNumber,
    child: SessionId,
    rest: &Result<ChildResult, Fault>,
) {
    let cost = rest.as_ref().ok().and_then(|rest| rest.cost_record(&work_context.runtime, child));
    if let Some(event) = cost {
        work_context.report(turn::Input::RecordOnly { turn, event }).await;
    }
}

fn ended_input(turn: TurnNumber, job: StageJob, rest: Result<ChildResult, Fault>) -> Input {
    match rest {
        Ok(ChildResult { end, usage, .. }) => Input::StageEnded { turn, job, end, usage },
        Err(fault) => failed_input(turn, job, fault),
    }
}

fn failed_input(turn: TurnNumber, job: StageJob, fault: Fault) -> Input {
    Input::StageEnded { turn, job, end: TaskEnd::Failed { fault }, usage: Usage::default() }
}

/// Reports a job that the session's plan does not contain, as a `bug` fault.
pub(crate) fn unknown_input(turn: TurnNumber, job: StageJob) -> Input {
    let fault = Fault::new(Kind::Bug, Operation::StartAgent).with_cause("no such task in the plan");
    failed_input(turn, job, fault)
}

impl Runtime {
    /// Plans, solves and aggregates a question, and waits for the answer or for a question to a person. With
    /// `confirm`, a person confirms the plan first.
    ///
    /// # Errors
    /// The command was rejected. A failed run is an `Ok` with its fault.
    pub async fn plan(
        &self,
        session: SessionId,
        question: impl Into<String>,
        confirm: bool,
    ) -> Result<TurnResult, Fault> {
        self.pipeline(session, CommandBody::Plan { question: question.into(), confirm }).await
    }

    /// Solves and aggregates the given tasks without a planner, and waits for the answer.
    ///
    /// # Errors
    /// `tasks` is not a valid plan. A failed run is an `Ok` with its fault.
    pub async fn solve(
        &self,
        session: SessionId,
        question: impl Into<String>,
        tasks: Value,
    ) -> Result<TurnResult, Fault> {
        self.pipeline(session, CommandBody::Solve { question: question.into(), tasks }).await
    }

    async fn pipeline(&self, session: SessionId, body: CommandBody) -> Result<TurnResult, Fault> {
        let command = self.command("user", body);
        let id = command.id.clone();
        match self.submit(session, command).await? {
            Answer::Rejected { fault } => Err(fault),
            Answer::Accepted { at } => self.wait_for(session, &id, at).await,
        }
    }
}

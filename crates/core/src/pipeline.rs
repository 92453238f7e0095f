//! State of a plan → solve → aggregate pipeline: its tasks and the progress of each, folded from events.
//!
//! A pipeline runs as a turn of its session. It is queued like a message, has a turn number and a trace, is cancelled
//! like a turn, and its answer is the turn's answer. It never uses the session's own model: each stage runs in a child
//! session. The rules are in the crate `budao-pipeline`; this is the state that they read.
//!
//! Every start has one terminal event. A plan is made, refused or cancelled; a task and the aggregation end completed,
//! failed or cancelled, after their child has stopped. A person confirms a plan before it counts as made, so an edited
//! plan replaces the original one.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::{
    event::{ChildLink, Event, QuestionId, Scope, SessionId, Stage, Task, TaskEnd, TaskId},
    fault::{Fault, Kind},
    time::Timestamp,
};

/// Takes the place of the call and tool names in a question about a plan.
pub const PLAN: &str = "plan";

/// Options of a pipeline besides its question.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PipelineOptions {
    /// Whether a person must confirm the plan before its tasks start.
    pub confirm: bool,
    /// Tasks from the command; when present, no planner runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tasks: Option<Vec<Task>>,
}

/// A pipeline and its progress.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Pipeline {
    /// The question to plan for.
    pub question: String,
    /// The options from the command.
    pub asked: PipelineOptions,
    /// Counts the plans of this pipeline; a replan increases it.
    pub round: u32,
    /// The current stage; absent before the first and after the last.
    pub stage: Option<Stage>,
    /// The current attempt of the planner or the aggregator, from 1.
    pub attempt: u32,
    /// The child that plans or aggregates; absent until it is opened.
    pub child: Option<SessionId>,
    /// Why the planner's last answer was not a valid plan.
    pub refused: Option<Fault>,
    /// The plan that waits for a person's confirmation.
    pub confirmation: Option<Confirmation>,
    /// The question of the requested new plan, which starts when no job runs any more.
    pub replan: Option<String>,
    /// The planner's description of the plan.
    pub summary: String,
    /// The tasks, in the planner's order.
    pub tasks: Vec<TaskState>,
    /// The aggregator's text, once it completed.
    pub output: Option<String>,
}

/// A valid plan that has not started.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PlanDraft {
    /// The tasks, in the planner's order.
    pub tasks: Vec<Task>,
    /// The planner's description of the plan; may be empty.
    pub summary: String,
}

impl PlanDraft {
    /// The plan as the arguments of a confirmation question.
    #[must_use]
    pub fn to_arguments(&self) -> Value {
        json!({ "summary": self.summary, "tasks": self.tasks })
    }

    /// The plan from the arguments of a confirmation question; empty if they have another format.
    #[must_use]
    pub fn of_arguments(arguments: &Value) -> Self {
        Self::deserialize(arguments).unwrap_or_default()
    }

    /// Hash over the plan; a confirmation is bound to it.
    #[must_use]
    pub fn digest(&self) -> String {
        let digest = Sha256::digest(self.to_arguments().to_string());
        digest.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// A plan that waits for a person's confirmation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Confirmation {
    /// The question that the decision must name.
    pub question: QuestionId,
    /// The plan as the person sees it.
    pub draft: PlanDraft,
    /// Hash over the plan; the decision is bound to it.
    pub digest: String,
    /// The time at which an unconfirmed plan is cancelled.
    pub expires_at: Timestamp,
}

/// A task and its progress.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskState {
    /// The task as planned.
    pub task: Task,
    /// The current attempt; 0 before the first.
    pub attempt: u32,
    /// Whether a child works on the task.
    pub running: bool,
    /// The child that works on the task; absent until it is opened.
    pub child: Option<SessionId>,
    /// Set while the task is being stopped.
    pub stopping: Option<StopRequest>,
    /// The end of the last attempt; absent until then.
    pub end: Option<TaskEnd>,
}

/// A request to stop a task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StopRequest {
    /// The sender of the request.
    pub by: String,
    /// Whether the task starts again after it stopped.
    pub restart: bool,
}

/// One job for one child session. Equal jobs are the same job and share the same child.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct StageJob {
    /// The plan the job belongs to, counted by [`Pipeline::round`].
    pub round: u32,
    /// The stage the job belongs to.
    pub stage: Stage,
    /// The task to solve; absent outside the solving stage.
    pub task: Option<TaskId>,
    /// The attempt, from 1.
    pub attempt: u32,
}

impl StageJob {
    /// The scope of this job's faults.
    #[must_use]
    pub fn scope(&self) -> Scope {
        Scope { stage: Some(self.stage), task: self.task.clone(), ..Scope::default() }
    }
}

impl Pipeline {
    /// A pipeline that has not started.
    #[must_use]
    pub fn new(question: String, asked: PipelineOptions) -> Self {
        Self { question, asked, ..Self::default() }
    }

    /// The scope of a fault that concerns a whole stage.
    #[must_use]
    pub fn scope_of(stage: Stage) -> Scope {
        Scope { stage: Some(stage), ..Scope::default() }
    }

    /// Whether a stage is running.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.stage.is_some()
    }

    /// The jobs whose children are running, in the order of the plan.
    #[must_use]
    pub fn jobs(&self) -> Vec<StageJob> {
        let job = |stage, task, attempt| StageJob { round: self.round, stage, task, attempt };
        match self.stage {
            Some(Stage::Planning) if self.confirmation.is_some() => Vec::new(),
            Some(stage @ (Stage::Planning | Stage::Aggregation)) => {
                vec![job(stage, None, self.attempt)]
            }
            Some(stage @ Stage::Solving) => {
                let running = self.tasks.iter().filter(|state| state.running);
                running
                    .map(|state| job(stage, Some(state.task.id.clone()), state.attempt))
                    .collect()
            }
            None => Vec::new(),
        }
    }

    /// Whether the child of this job is running.
    #[must_use]
    pub fn runs(&self, job: &StageJob) -> bool {
        self.jobs().contains(job)
    }

    /// The child of a running job; absent until it is opened.
    #[must_use]
    pub fn child_of(&self, job: &StageJob) -> Option<SessionId> {
        match &job.task {
            Some(task) => self.task(task)?.child,
            None => self.child,
        }
    }

    /// A task of the plan, by id.
    #[must_use]
    pub fn task(&self, id: &TaskId) -> Option<&TaskState> {
        self.tasks.iter().find(|state| state.task.id == *id)
    }

    /// The number of completed tasks, and of all others.
    #[must_use]
    pub fn tally(&self) -> (u32, u32) {
        let worked = self.tasks.iter().filter(|state| state.is_completed()).count();
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        (count(worked), count(self.tasks.len() - worked))
    }

    /// Applies one event. Events that do not concern a pipeline are ignored.
    pub fn apply(&mut self, event: &Event) {
        match event {
            Event::PlanStarted { question } => self.plan(question),
            Event::FaultRaised { fault, scope } => self.faulted(fault, scope),
            Event::QuestionAsked { question, arguments, digest, expires_at, .. }
                if self.stage == Some(Stage::Planning) =>
            {
                self.confirmation = Some(Confirmation {
                    question: question.clone(),
                    draft: PlanDraft::of_arguments(arguments),
                    digest: digest.clone(),
                    expires_at: *expires_at,
                });
            }
            Event::PlanMade { tasks, summary } => self.solve(tasks, summary),
            Event::ReplanRequested { question, .. } => self.replan = Some(question.clone()),
            Event::ChildOpened(ChildLink { child, stage: Some(_), task, .. }) => match task {
                Some(task) => self.with_task(task, |state| state.child = Some(*child)),
                None => self.child = Some(*child),
            },
            Event::TaskStarted { task, attempt } => self.with_task(&task.id, |state| {
                let task = state.task.clone();
                *state = TaskState { attempt: *attempt, running: true, ..TaskState::new(task) };
            }),
            Event::TaskStopRequested { task, by, restart } => self.with_task(task, |state| {
                state.stopping = Some(StopRequest { by: by.clone(), restart: *restart });
            }),
            Event::TaskEnded { task, end } => self.with_task(task, |state| {
                state.running = false;
                state.stopping = None;
                state.end = Some(end.clone());
            }),
            Event::TaskRestarted { task, .. } => self.with_task(task, |state| state.end = None),
            Event::AggregateStarted { .. } => {
                (self.stage, self.attempt, self.child) = (Some(Stage::Aggregation), 1, None);
            }
            Event::AggregateEnded { end } => {
                self.stage = None;
                if let TaskEnd::Completed { output } = end {
                    self.output = Some(output.clone());
                }
            }
            Event::PlanRefused { fault } => {
                (self.stage, self.confirmation) = (None, None);
                self.refused = Some(fault.clone());
            }
            Event::PlanCancelled { .. } => (self.stage, self.confirmation) = (None, None),
            Event::PipelineEnded { .. } => (self.stage, self.replan) = (None, None),
            _ => {}
        }
    }

    /// Resets the state for a new planner.
    fn plan(&mut self, question: &str) {
        *self = Self {
            question: question.to_owned(),
            asked: PipelineOptions { confirm: self.asked.confirm, tasks: None },
            round: self.round + 1,
            stage: Some(Stage::Planning),
            attempt: 1,
            ..Self::default()
        };
    }

    /// Sets the tasks of a valid plan.
    fn solve(&mut self, tasks: &[Task], summary: &str) {
        self.round = self.round.max(1);
        summary.clone_into(&mut self.summary);
        self.tasks = tasks.iter().cloned().map(TaskState::new).collect();
        self.asked.tasks = None;
        (self.confirmation, self.refused) = (None, None);
        self.stage = Some(Stage::Solving);
    }

    /// Records why the planner's answer was refused. The next attempt runs in a new child.
    fn faulted(&mut self, fault: &Fault, scope: &Scope) {
        let planning = self.stage == Some(Stage::Planning) && scope.stage == self.stage;
        if planning && fault.kind() == Kind::PlanCoercionFailed {
            self.refused = Some(fault.clone());
            self.attempt += 1;
            self.child = None;
        }
    }

    fn with_task(&mut self, id: &TaskId, change: impl FnOnce(&mut TaskState)) {
        if let Some(state) = self.tasks.iter_mut().find(|state| state.task.id == *id) {
            change(state);
        }
    }
}

impl TaskState {
    fn new(task: Task) -> Self {
        Self { task, attempt: 0, running: false, child: None, stopping: None, end: None }
    }

    /// Whether the task has not started yet.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        !self.running && self.end.is_none()
    }

    /// Whether the task completed.
    #[must_use]
    pub fn is_completed(&self) -> bool {
        matches!(self.end, Some(TaskEnd::Completed { .. }))
    }
}

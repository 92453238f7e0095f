//! Plan → solve → aggregate, as a fold: which tasks there are and how far each is.
//!
//! A pipeline runs *as a turn* of its session: it is accepted and queued like a message, it has a turn
//! number and a trace, messages that arrive meanwhile wait, cancel stops it, and its answer is the
//! turn's answer. What it does not do is ask the session's own model: every stage is a child session of
//! its own, and this state says which children must be at work ([`crate::turn::due`]).
//!
//! Every start has one terminal event: a plan is made, refused or cancelled; a task and the aggregation
//! end completed, failed or cancelled; and they end when their child has stopped, not before. A person
//! confirms a plan *before* it counts as made, so an edited plan is simply the plan.

pub mod plan;
pub mod prompt;

use serde::{Deserialize, Serialize};

use crate::{
    event::{Event, QuestionId, Scope, SessionId, Stage, Task, TaskEnd, TaskId},
    fault::{Fault, Kind},
    time::Timestamp,
};

/// What a question about a plan names in place of a call and a tool.
pub const PLAN: &str = "plan";

/// What a pipeline was asked for, besides its question.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PipelineOptions {
    /// Must a person confirm the plan?
    pub confirm: bool,
    /// Tasks that were given, so that no planner is asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tasks: Option<Vec<Task>>,
}

/// A pipeline and how far it is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Pipeline {
    /// What was asked.
    pub question: String,
    /// How it was asked.
    pub asked: PipelineOptions,
    /// Counts the plans of this run; a plan made anew is another round.
    pub round: u32,
    /// The stage it is in; none before the first and once it is through.
    pub stage: Option<Stage>,
    /// Which try of the planner or the aggregator.
    pub attempt: u32,
    /// The child that plans or aggregates, once it was opened.
    pub child: Option<SessionId>,
    /// Why the planner's last answer was no plan, while it is asked again, or why there is none.
    pub refused: Option<Fault>,
    /// A plan that waits for a person.
    pub confirmation: Option<Confirmation>,
    /// Another plan is wanted for this question, as soon as nothing runs any more.
    pub replan: Option<String>,
    /// The plan in words.
    pub summary: String,
    /// The tasks, in the planner's order.
    pub tasks: Vec<TaskState>,
    /// What the aggregator made of it.
    pub output: Option<String>,
}

/// A plan a person must confirm.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Confirmation {
    /// The question.
    pub question: QuestionId,
    /// The plan as it was shown.
    pub draft: plan::PlanDraft,
    /// What the answer is bound to.
    pub digest: String,
    /// Unanswered by then, the plan is given up.
    pub expires_at: Timestamp,
}

/// A task and how far it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskState {
    /// The task.
    pub task: Task,
    /// Which try; 0 before the first.
    pub attempt: u32,
    /// Is it being worked on?
    pub running: bool,
    /// The child that works on it, once it was opened.
    pub child: Option<SessionId>,
    /// It is being stopped.
    pub stopping: Option<StopRequest>,
    /// How it ended.
    pub end: Option<TaskEnd>,
}

/// Why a task is being stopped.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StopRequest {
    /// Who asked.
    pub by: String,
    /// Will it be worked on again?
    pub restart: bool,
}

/// One piece of work for one child session. Equal jobs are the same job, and have the same child.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct StageJob {
    /// Of which round.
    pub round: u32,
    /// Of which stage.
    pub stage: Stage,
    /// Which task, when solving.
    pub task: Option<TaskId>,
    /// Which try.
    pub attempt: u32,
}

impl StageJob {
    /// What a fault of it is about.
    #[must_use]
    pub fn scope(&self) -> Scope {
        Scope { stage: Some(self.stage), task: self.task.clone(), ..Scope::default() }
    }
}

impl Pipeline {
    /// A pipeline that has not begun.
    #[must_use]
    pub fn new(question: String, asked: PipelineOptions) -> Self {
        Self { question, asked, ..Self::default() }
    }

    /// What a fault of a whole stage is about.
    #[must_use]
    pub fn scope_of(stage: Stage) -> Scope {
        Scope { stage: Some(stage), ..Scope::default() }
    }

    /// Is there something left to do?
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.stage.is_some()
    }

    /// The jobs whose children are at work, in the order of the plan.
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

    /// Is this job's child at work?
    #[must_use]
    pub fn runs(&self, job: &StageJob) -> bool {
        self.jobs().contains(job)
    }

    /// The child of a job that runs, once it was opened.
    #[must_use]
    pub fn child_of(&self, job: &StageJob) -> Option<SessionId> {
        match &job.task {
            Some(task) => self.task(task)?.child,
            None => self.child,
        }
    }

    /// A task of the plan.
    #[must_use]
    pub fn task(&self, id: &TaskId) -> Option<&TaskState> {
        self.tasks.iter().find(|state| state.task.id == *id)
    }

    /// How many tasks worked, and how many did not.
    #[must_use]
    pub fn tally(&self) -> (u32, u32) {
        let worked = self.tasks.iter().filter(|state| state.is_completed()).count();
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        (count(worked), count(self.tasks.len() - worked))
    }

    /// One event of the fold.
    pub fn apply(&mut self, event: &Event) {
        match event {
            Event::PlanStarted { question } => self.plan(question),
            Event::FaultRaised { fault, scope } => self.faulted(fault, scope),
            Event::QuestionAsked { question, arguments, digest, expires_at, .. }
                if self.stage == Some(Stage::Planning) =>
            {
                self.confirmation = Some(Confirmation {
                    question: question.clone(),
                    draft: plan::PlanDraft::of_arguments(arguments),
                    digest: digest.clone(),
                    expires_at: *expires_at,
                });
            }
            Event::PlanMade { tasks, summary } => self.solve(tasks, summary),
            Event::ReplanRequested { question, .. } => self.replan = Some(question.clone()),
            Event::ChildOpened { child, stage: Some(_), task, .. } => match task {
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

    /// A planner is asked: whatever another plan had left is gone.
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

    /// There is a plan.
    fn solve(&mut self, tasks: &[Task], summary: &str) {
        self.round = self.round.max(1);
        summary.clone_into(&mut self.summary);
        self.tasks = tasks.iter().cloned().map(TaskState::new).collect();
        self.asked.tasks = None;
        (self.confirmation, self.refused) = (None, None);
        self.stage = Some(Stage::Solving);
    }

    /// The planner's answer was no plan: it is asked again, in a child of its own.
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

    /// Does it wait to be worked on?
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        !self.running && self.end.is_none()
    }

    /// Did it work?
    #[must_use]
    pub fn is_completed(&self) -> bool {
        matches!(self.end, Some(TaskEnd::Completed { .. }))
    }
}

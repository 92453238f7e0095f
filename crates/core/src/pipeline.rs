//! Plan → solve → aggregate, as a fold: which tasks there are and how far each is.

use serde::{Deserialize, Serialize};

use crate::event::{Event, Stage, Task, TaskEnd, TaskId};

/// A pipeline and how far it is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Pipeline {
    /// What was asked.
    pub question: String,
    /// The stage it is in; none once it is through.
    pub stage: Option<Stage>,
    /// The plan in words.
    pub summary: String,
    /// The tasks, in the planner's order.
    pub tasks: Vec<TaskState>,
    /// What the aggregator made of it.
    pub output: Option<String>,
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
    /// How it ended.
    pub end: Option<TaskEnd>,
}

impl Pipeline {
    /// Is there something left to do?
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.stage.is_some()
    }

    /// One event of the fold.
    pub fn apply(&mut self, event: &Event) {
        match event {
            Event::PlanStarted { question } => {
                *self = Self { question: question.clone(), ..Self::default() };
                self.stage = Some(Stage::Planning);
            }
            Event::PlanMade { tasks, summary } => {
                self.summary.clone_from(summary);
                self.tasks = tasks.iter().cloned().map(TaskState::new).collect();
                self.stage = Some(Stage::Solving);
            }
            Event::TaskStarted { task, attempt } => self.with_task(&task.id, |state| {
                state.attempt = *attempt;
                state.running = true;
                state.end = None;
            }),
            Event::TaskEnded { task, end } => self.with_task(task, |state| {
                state.running = false;
                state.end = Some(end.clone());
            }),
            Event::AggregateStarted { .. } => self.stage = Some(Stage::Aggregation),
            Event::AggregateEnded { end: TaskEnd::Completed { output } } => {
                self.output = Some(output.clone());
            }
            Event::PlanRefused { .. }
            | Event::PlanCancelled { .. }
            | Event::PipelineEnded { .. } => {
                self.stage = None;
            }
            _ => {}
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
        Self { task, attempt: 0, running: false, end: None }
    }
}

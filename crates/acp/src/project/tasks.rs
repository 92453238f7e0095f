//! Shows to-do lists and the tasks of a pipeline as the editor's plan.

use agent_client_protocol::v1::schema::{Plan, PlanEntry, PlanEntryPriority, PlanEntryStatus};
use budao_core::{
    activity::{Activity, StageEnd, StageStart},
    event::{Stage, TaskId},
    tool::{Todo, TodoStatus},
};

/// Converts a to-do list to a plan.
pub(super) fn from_todos(todos: &[Todo]) -> Plan {
    let entry = |todo: &Todo| {
        let status = match todo.status {
            TodoStatus::Pending => PlanEntryStatus::Pending,
            TodoStatus::InProgress => PlanEntryStatus::InProgress,
            TodoStatus::Completed => PlanEntryStatus::Completed,
        };
        PlanEntry::new(todo.title.clone(), PlanEntryPriority::Medium, status)
    };
    Plan::new(todos.iter().map(entry).collect())
}

/// The tasks of the running pipeline, in plan order.
#[derive(Debug, Default)]
pub(super) struct Tasks(Vec<(TaskId, PlanEntry)>);

impl Tasks {
    /// Applies a fact and returns the plan if it changed.
    pub(super) fn apply(&mut self, activity: Activity<'_>) -> Option<Vec<PlanEntry>> {
        match activity {
            Activity::PlanMade { tasks, .. } => {
                let entry = |title: &str| {
                    PlanEntry::new(title, PlanEntryPriority::Medium, PlanEntryStatus::Pending)
                };
                self.0 = tasks.iter().map(|task| (task.id.clone(), entry(&task.title))).collect();
            }
            Activity::StageStarted(StageStart::Task { task, .. }) => {
                self.set(&task.id, PlanEntryStatus::InProgress)?;
            }
            Activity::TaskRestarted { task, .. } => self.set(task, PlanEntryStatus::Pending)?,
            Activity::StageEnded { task: Some(task), .. } => {
                self.set(task, PlanEntryStatus::Completed)?;
            }
            Activity::StageEnded {
                stage: Stage::Planning, end: StageEnd::Cancelled(_), ..
            } => {
                self.0.clear();
            }
            _ => return None,
        }
        Some(self.0.iter().map(|(_, entry)| entry.clone()).collect())
    }

    fn set(&mut self, task: &TaskId, status: PlanEntryStatus) -> Option<()> {
        let (_, entry) = self.0.iter_mut().find(|(id, _)| id == task)?;
        entry.status = status;
        Some(())
    }
}

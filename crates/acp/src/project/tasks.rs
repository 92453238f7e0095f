//! Shows to-do lists and the tasks of a pipeline as the editor's plan.

use agent_client_protocol::v1::schema::{Plan, PlanEntry, PlanEntryPriority, PlanEntryStatus};
use budao_core::{
    event::{Event, TaskEnd, TaskId},
    tool::{Todo, TodoStatus},
};

/// Converts a to-do list to a plan.
pub(super) fn of_todos(todos: &[Todo]) -> Plan {
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
    /// Applies an event and returns the plan if it changed.
    pub(super) fn apply(&mut self, event: &Event) -> Option<Vec<PlanEntry>> {
        match event {
            Event::PlanMade { tasks, .. } => {
                let entry = |title: &str| {
                    PlanEntry::new(title, PlanEntryPriority::Medium, PlanEntryStatus::Pending)
                };
                self.0 = tasks.iter().map(|task| (task.id.clone(), entry(&task.title))).collect();
            }
            Event::PlanCancelled { .. } => self.0.clear(),
            Event::TaskStarted { task, .. } => self.set(&task.id, PlanEntryStatus::InProgress)?,
            Event::TaskRestarted { task, .. } => self.set(task, PlanEntryStatus::Pending)?,
            Event::TaskEnded { task, .. } => self.set(task, PlanEntryStatus::Completed)?,
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

/// The answer of a pipeline, from the event that ends its aggregation.
pub(super) fn answer(event: &Event) -> Option<&str> {
    match event {
        Event::AggregateEnded { end: TaskEnd::Completed { output } } => Some(output),
        _ => None,
    }
}

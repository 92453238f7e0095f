//! Rules for commands about pipelines and their tasks.

use budao_core::{
    event::{CommandId, Event, Stage, TaskEnd, TaskId},
    fault::{Fact, FactValue, Fault, Kind, Operation},
    pipeline::{PlanDraft, TaskState},
    trace::Trace,
};
use serde_json::Value;

use crate::{Coordinator, plan, running, stages::is_stopping};

impl Coordinator<'_> {
    /// Accepts a pipeline that starts with a planner.
    pub(super) fn plan(
        &mut self,
        command: CommandId,
        question: String,
        confirm: bool,
        trace: Trace,
    ) -> Result<(), Fault> {
        if question.trim().is_empty() {
            return Err(constraint_violated("question", "it says something", question));
        }
        self.accept_pipeline(
            Event::PipelineAccepted { command, question, confirm, tasks: None },
            trace,
        )
    }

    /// Accepts a pipeline with given tasks, without a planner.
    pub(super) fn solve(
        &mut self,
        command: CommandId,
        question: String,
        tasks: Value,
        trace: Trace,
    ) -> Result<(), Fault> {
        let PlanDraft { tasks, .. } = plan::coerce(tasks)?;
        let question = match question.trim().is_empty() {
            true => tasks.iter().map(|task| task.title.as_str()).collect::<Vec<_>>().join("; "),
            false => question,
        };
        let (confirm, tasks) = (false, Some(tasks));
        self.accept_pipeline(Event::PipelineAccepted { command, question, confirm, tasks }, trace)
    }

    fn accept_pipeline(&mut self, accepted: Event, trace: Trace) -> Result<(), Fault> {
        let (depth, limit) = (self.turn.session().depth(), self.turn.env().limits.depth);
        if depth >= limit {
            return Err(Fault::new(Kind::DepthExceeded, Operation::StartAgent)
                .with(Fact::Limit, limit)
                .with(Fact::Depth, depth + 1)
                .with(Fact::LimitName, "depth"));
        }
        self.turn.accept(accepted, trace)
    }

    /// Requests a new plan for the running pipeline or, if none runs, for the last one.
    pub(super) fn replan(
        &mut self,
        command: CommandId,
        by: String,
        question: Option<String>,
        trace: Trace,
    ) -> Result<(), Fault> {
        let last = self.turn.session().pipeline.as_ref();
        let confirm = last.is_some_and(|pipeline| pipeline.asked.confirm);
        let question = question.or_else(|| last.map(|pipeline| pipeline.question.clone()));
        let question = question.unwrap_or_default();
        if !self.is_running() {
            return self.plan(command, question, confirm, trace);
        }
        if question.trim().is_empty() {
            return Err(constraint_violated("question", "it says something", question));
        }
        if self.running_turn().cancelling {
            return Err(constraint_violated(
                "question",
                "the run is not being cancelled",
                question,
            ));
        }
        self.emit(Event::ReplanRequested { question, by });
        self.stop_all();
        Ok(())
    }

    /// Cancels the running pipeline.
    pub(super) fn cancel_plan(&mut self, by: String) -> Result<(), Fault> {
        if !self.is_running() {
            return Err(constraint_violated("plan", "a plan is under way", String::new()));
        }
        self.turn.cancel(by, Some("the plan was cancelled".to_owned()));
        Ok(())
    }

    /// Stops one task. The others continue, and the aggregator learns which task is missing.
    pub(super) fn cancel_task(&mut self, task: TaskId, by: String) -> Result<(), Fault> {
        let state = self.open_task(&task)?;
        match (state.running, &state.stopping, &state.end) {
            (_, _, Some(_)) => {
                return Err(constraint_violated("task", "it has not ended", task.to_string()));
            }
            (true, Some(stopping), _) if !stopping.restart => {}
            (true, _, None) => self.emit(Event::TaskStopRequested { task, by, restart: false }),
            (false, _, None) => {
                let end = TaskEnd::Cancelled { reason: format!("stopped by {by}") };
                self.emit(Event::TaskEnded { task, end });
                self.advance();
            }
        }
        Ok(())
    }

    /// Starts one task again from the beginning.
    pub(super) fn restart_task(&mut self, task: TaskId, by: String) -> Result<(), Fault> {
        let state = self.open_task(&task)?;
        match (state.running, &state.stopping, &state.end) {
            (_, _, Some(_)) => {
                self.restart(task, &by);
                self.advance();
            }
            (true, Some(stopping), None) if stopping.restart => {}
            (true, _, None) => self.emit(Event::TaskStopRequested { task, by, restart: true }),
            // The task has not started yet, so there is nothing to stop.
            (false, _, None) => {}
        }
        Ok(())
    }

    /// A task of the plan that is being solved, or a fault if there is none.
    fn open_task(&self, task: &TaskId) -> Result<&TaskState, Fault> {
        let solving = running(self.turn.session()).filter(|(turn, pipeline)| {
            pipeline.stage == Some(Stage::Solving) && !is_stopping(turn, pipeline)
        });
        let Some((_, pipeline)) = solving else {
            return Err(constraint_violated("task", "its plan is being solved", task.to_string()));
        };
        let unknown = || constraint_violated("task", "it is a task of the plan", task.to_string());
        pipeline.task(task).ok_or_else(unknown)
    }
}

/// The fault for a command that does not fit the current state.
fn constraint_violated(field: &'static str, constraint: &'static str, provided: String) -> Fault {
    Fault::new(Kind::ConstraintViolated, Operation::SubmitCommand)
        .with(Fact::Field, field)
        .with(Fact::Constraint, constraint)
        .with(Fact::ProvidedValue, FactValue::Json(provided.into()))
}

//! Frames for plan, solve and aggregate. Each start has one end: completed, failed or cancelled.
//!
//! A result is sent in full when its task completes. Later frames contain only its beginning, so the total size grows
//! linearly with the results.

use budao_core::{
    Fault, Kind, Lang, Record,
    activity::{Activity, StageEnd, StageStart},
    event::{Scope, Stage, Task, TaskEnd, TaskId},
    pipeline::{Pipeline, TaskState},
    texts::FluentValue,
};
use serde_json::{Map, Value, json};

use super::{Projector, session::usage_json};
use crate::{
    frame::{Frame, millis},
    texts::{BRIEF_CHARS, cut, plan_args, shorten, translate, translate_with},
};

impl Projector {
    pub(super) fn render_pipeline_activity(
        &self,
        record: &Record,
        activity: Activity<'_>,
    ) -> Option<Frame> {
        let frame = match activity {
            Activity::StageStarted(start) => self.render_stage_start(record, start),
            Activity::PlanMade { tasks, summary } => {
                return self.render_plan(record, tasks, summary);
            }
            Activity::StageEnded { stage: Stage::Planning, end, .. } => {
                self.render_plan_end(record, end)
            }
            Activity::StageEnded { stage: Stage::Aggregation, end, .. } => {
                self.render_aggregate_end(record, end)
            }
            Activity::StageEnded { task, end, .. } => self.render_task_end(record, task?, end),
            Activity::TaskRestarted { task, attempt, reason } => self
                .render_task(record, "solver.restarted", "solver-restarted", task)
                .with("attempt", attempt)
                .with("reason", reason),
            Activity::PipelineEnded { complete } => self.render_pipeline_end(record, complete),
            _ => return None,
        };
        Some(frame)
    }

    fn render_stage_start(&self, record: &Record, start: StageStart<'_>) -> Frame {
        match start {
            StageStart::Planning(question) => {
                let frame = self.begin(record, "plan.start");
                self.show_text_with(frame, "plan-start", "question", question)
                    .object(json!({ "question": question }))
                    .with("plan_id", self.plan_id(record, 1))
                    .at_stage(Stage::Planning, None)
            }
            StageStart::Task { task, attempt } => {
                let frame = self.begin(record, "solver.start");
                self.show_text_with(frame, "solver-start", "title", &task.title)
                    .object(json!({ "task": task_json(task) }))
                    .with("attempt", attempt)
                    .at_stage(Stage::Solving, Some(&task.id.0))
            }
            StageStart::Aggregation { completed, failed } => self
                .render_aggregation(record, "aggregate.start", "aggregate-start")
                .object(self.results_json(Map::new()))
                .with("completed", completed)
                .with("failed", failed),
        }
    }

    fn pipeline(&self) -> Option<&Pipeline> {
        self.session.pipeline.as_ref()
    }

    /// The id of the current round's plan; `ahead` is 1 for the round that starts.
    fn plan_id(&self, record: &Record, ahead: u32) -> String {
        let round = self.pipeline().map_or(0, |pipeline| pipeline.round).saturating_add(ahead);
        format!("plan_{}_{}", record.turn, round.max(1))
    }

    /// Sets the shown text only; the content is an object.
    fn show_text(&self, frame: Frame, id: &str) -> Frame {
        frame.show(translate(id, self.language()))
    }

    fn show_text_with(&self, frame: Frame, id: &str, name: &'static str, value: &str) -> Frame {
        let args = [(name, FluentValue::from(shorten(value)))];
        frame.show(translate_with(id, &args, self.language()))
    }

    /// Only a planner's plan has a frame. Tasks from a command are already in that command's frame.
    fn render_plan(&self, record: &Record, tasks: &[Task], summary: &str) -> Option<Frame> {
        if self.pipeline()?.stage != Some(Stage::Planning) {
            return None;
        }
        let tasks: Vec<Value> = tasks.iter().map(task_json).collect();
        let args = plan_args(tasks.len(), summary);
        let frame = self
            .begin(record, "plan.completed")
            .show(translate_with("plan-completed", &args, self.language()))
            .with("plan_id", self.plan_id(record, 0))
            .with("task_count", tasks.len())
            .at_stage(Stage::Planning, None);
        Some(frame.object(json!({ "tasks": tasks, "plan_summary": summary })))
    }

    /// The frame of a plan that was cancelled or failed: the planner failed, or its draft is not a plan.
    fn render_plan_end(&self, record: &Record, end: StageEnd<'_>) -> Frame {
        let (name, fault) = match end {
            StageEnd::Failed(fault) if fault.kind() == Kind::PlanCoercionFailed => {
                ("plan.coercion_error", fault)
            }
            StageEnd::Failed(fault) => ("plan.failed", fault),
            StageEnd::Completed(reason) | StageEnd::Cancelled(reason) => {
                return self
                    .show_text(self.begin(record, "plan.cancelled"), "plan-cancelled")
                    .object(json!({ "reason": reason }))
                    .with("plan_id", self.plan_id(record, 0))
                    .with("reason", reason)
                    .at_stage(Stage::Planning, None);
            }
        };
        let scope = Scope { stage: Some(Stage::Planning), ..Scope::default() };
        let frame = self.begin(record, name).with("plan_id", self.plan_id(record, 0));
        self.render_stage_failure(record, frame, fault, &scope)
    }

    /// A failure that ends a stage: all metadata of the fault, and its text in the content object.
    fn render_stage_failure(
        &self,
        record: &Record,
        frame: Frame,
        fault: &Fault,
        scope: &Scope,
    ) -> Frame {
        let context =
            crate::frame::FaultContext { not_recovered: true, ..self.fault_context(record, scope) };
        let message = budao_core::fault::text::user_text(fault, Lang::En);
        let content = json!({ "message": message, "error": fault.row().code });
        frame.with_fault(fault, &context).object(content)
    }

    /// A frame about a task, with the task in its content.
    fn render_task(&self, record: &Record, name: &'static str, id: &str, task: &TaskId) -> Frame {
        let known = self.pipeline().and_then(|pipeline| pipeline.task(task));
        let title = known.map_or(&*task.0, |state| state.task.title.as_str());
        let content = json!({ "task": self.task_in_plan(task) });
        let frame =
            self.show_text_with(self.begin(record, name), id, "title", title).object(content);
        frame.at_stage(Stage::Solving, Some(&task.0))
    }

    fn task_in_plan(&self, id: &TaskId) -> Value {
        let known = self.pipeline().and_then(|pipeline| pipeline.task(id));
        known.map_or_else(|| json!({ "id": id }), |state| task_json(&state.task))
    }

    fn render_task_end(&self, record: &Record, id: &TaskId, end: StageEnd<'_>) -> Frame {
        let known = self.pipeline().and_then(|pipeline| pipeline.task(id));
        let attempt = known.map_or(Value::Null, |state| state.attempt.into());
        let frame = match end {
            StageEnd::Completed(output) => {
                let result = json!({
                    "output": output,
                    "summary": cut(output, BRIEF_CHARS),
                    "agent_name": "budao",
                });
                self.render_task(record, "solver.completed", "solver-completed", id)
                    .object(json!({ "task": self.task_in_plan(id), "result": result }))
            }
            StageEnd::Cancelled(reason) => self
                .render_task(record, "solver.cancelled", "solver-cancelled", id)
                .with("reason", reason),
            StageEnd::Failed(fault) => {
                let (stage, task) = (Some(Stage::Solving), Some(id.clone()));
                let scope = Scope { stage, task, ..Scope::default() };
                let message = budao_core::fault::text::user_text(fault, Lang::En);
                let error = json!({ "message": message, "code": fault.row().code });
                self.render_stage_failure(
                    record,
                    self.begin(record, "solver.failed"),
                    fault,
                    &scope,
                )
                .object(json!({ "task": self.task_in_plan(id), "error": error }))
            }
        };
        frame.with("attempt", attempt)
    }

    fn render_aggregation(&self, record: &Record, name: &'static str, id: &str) -> Frame {
        self.show_text(self.begin(record, name), id).at_stage(Stage::Aggregation, None)
    }

    fn render_aggregate_end(&self, record: &Record, end: StageEnd<'_>) -> Frame {
        match end {
            StageEnd::Completed(output) => {
                let more = Map::from_iter([("output".to_owned(), output.into())]);
                self.render_aggregation(record, "aggregate.completed", "aggregate-completed")
                    .object(self.results_json(more))
                    .with("result_size_bytes", output.len())
            }
            StageEnd::Cancelled(reason) => self
                .render_aggregation(record, "aggregate.cancelled", "aggregate-cancelled")
                .object(json!({ "reason": reason }))
                .with("reason", reason),
            StageEnd::Failed(fault) => {
                let scope = Scope { stage: Some(Stage::Aggregation), ..Scope::default() };
                self.render_stage_failure(
                    record,
                    self.begin(record, "aggregate.failed"),
                    fault,
                    &scope,
                )
            }
        }
    }

    fn render_pipeline_end(&self, record: &Record, complete: bool) -> Frame {
        let output = self.pipeline().and_then(|pipeline| pipeline.output.as_deref());
        let turn = self.session.turn.as_ref();
        let status = match (output, complete) {
            (Some(_), true) => "success",
            (Some(_), false) => "partial_success",
            (None, _) if turn.is_some_and(|turn| turn.cancelling) => "cancelled",
            (None, _) if self.pipeline().is_some_and(was_stopped) => "cancelled",
            (None, _) => "failed",
        };
        let (tasks, succeeded) =
            self.pipeline().map_or((0, 0), |pipeline| (pipeline.tasks.len(), pipeline.tally().0));
        let output = output.map_or(Value::Null, |output| cut(output, BRIEF_CHARS).into());
        let more = Map::from_iter([("aggregate_output".to_owned(), output)]);
        let took = turn.map(|turn| millis(record.at.since(turn.started_at)));
        let frame = self
            .begin(record, "pipeline.completed")
            .show(translate_with(
                "pipeline-completed",
                &[("status", status.into())],
                self.language(),
            ))
            .object(self.results_json(more))
            .with("status", status)
            .with("task_count", tasks)
            .with("completed", succeeded)
            .with("total_time_ms", took.map_or(Value::Null, Value::from))
            .with("metrics", usage_json(turn.map(|turn| turn.usage).unwrap_or_default()));
        self.add_turn(record, frame)
    }

    /// The content object with the question and the summary of each task's result.
    fn results_json(&self, more: Map<String, Value>) -> Value {
        let Some(pipeline) = self.pipeline() else { return Value::Object(more) };
        let results: Vec<Value> = pipeline.tasks.iter().map(result_json).collect();
        let context = json!({
            "question": pipeline.question,
            "plan_summary": pipeline.summary,
            "task_count": pipeline.tasks.len(),
        });
        let mut content = Map::new();
        content.insert("context".to_owned(), context);
        content.insert("solver_results".to_owned(), results.into());
        content.extend(more);
        Value::Object(content)
    }
}

/// True if nothing failed: the plan was cancelled, or all of its tasks were.
fn was_stopped(pipeline: &Pipeline) -> bool {
    let stopped = |state: &TaskState| matches!(state.end, Some(TaskEnd::Cancelled { .. }));
    pipeline.refused.is_none() && pipeline.tasks.iter().all(stopped)
}

/// A task's status and a summary of at most [`BRIEF_CHARS`] characters.
fn result_json(state: &TaskState) -> Value {
    let (status, summary) = match &state.end {
        Some(TaskEnd::Completed { output }) => ("completed", cut(output, BRIEF_CHARS).into()),
        Some(TaskEnd::Failed { fault }) => ("failed", fault.row().code.into()),
        Some(TaskEnd::Cancelled { reason }) => ("cancelled", shorten(reason).into()),
        None => ("open", Value::Null),
    };
    let task = json!({ "id": state.task.id, "title": state.task.title });
    json!({ "task": task, "status": status, "summary": summary })
}

/// A task as JSON: the planner's fields, with id, title and prompt.
pub(super) fn task_json(task: &Task) -> Value {
    let mut fields: Map<String, Value> = Map::new();
    fields.insert("id".to_owned(), (*task.id.0).into());
    fields.insert("title".to_owned(), task.title.as_str().into());
    fields.insert("prompt".to_owned(), task.prompt.as_str().into());
    for (name, value) in &task.extra {
        fields.entry(name.clone()).or_insert_with(|| value.clone());
    }
    Value::Object(fields)
}

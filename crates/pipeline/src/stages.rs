//! Rules for stages: which jobs start, what their ends lead to, and what stops them.

use budao_core::{
    event::{ChildLink, Event, SessionId, Stage, StopReason, Task, TaskEnd, TaskId, TurnNumber},
    fault::{Fact, Fault, Operation},
    message::{Block, ModelStop, Usage},
    pipeline::{Pipeline, PlanDraft, StageJob, TaskState},
    session::Turn,
};

use crate::{Coordinator, plan, prompt};

/// The most attempts at a plan, the first included.
const PLAN_TRIES: u32 = 2;

/// Whether the child of this job must stop.
pub(super) fn must_stop(turn: &Turn, pipeline: &Pipeline, job: &StageJob) -> bool {
    let task = job.task.as_ref().and_then(|task| pipeline.task(task));
    is_stopping(turn, pipeline) || task.is_some_and(|state| state.stopping.is_some())
}

/// Whether all jobs of the pipeline must stop.
pub(super) fn is_stopping(turn: &Turn, pipeline: &Pipeline) -> bool {
    turn.cancelling || pipeline.replan.is_some()
}

fn operation(stage: Stage) -> Operation {
    match stage {
        Stage::Planning => Operation::GeneratePlan,
        Stage::Solving => Operation::SolveTask,
        Stage::Aggregation => Operation::Aggregate,
    }
}

impl Coordinator<'_> {
    fn is_stopping(&self) -> bool {
        is_stopping(self.running_turn(), self.pipeline())
    }

    /// Why all jobs stop, in words.
    fn stop_reason(&self) -> String {
        let reason = match self.running_turn().cancelling {
            true => "the run was cancelled",
            false => "another plan was asked for",
        };
        reason.to_owned()
    }

    /// Starts the planner, or starts the given tasks if the command carried any.
    pub(super) fn begin(&mut self) {
        match self.pipeline().asked.tasks.clone() {
            Some(tasks) => self.plan_made(PlanDraft { tasks, summary: String::new() }),
            None => {
                let question = self.pipeline().question.clone();
                self.emit(Event::PlanStarted { question });
            }
        }
    }

    pub(super) fn plan_made(&mut self, draft: PlanDraft) {
        let PlanDraft { tasks, summary } = draft;
        self.emit(Event::PlanMade { tasks, summary });
        self.advance();
    }

    /// Starts every job that can start, and ends stages that are complete.
    pub(super) fn advance(&mut self) {
        if self.is_stopping() {
            return self.advance_stop();
        }
        if self.pipeline().stage != Some(Stage::Solving) {
            return;
        }
        self.start_tasks();
        let tasks = &self.pipeline().tasks;
        if tasks.iter().all(|state| state.end.is_some()) {
            self.aggregate();
        }
    }

    /// Waits until no job runs, then ends the pipeline or starts the new plan.
    fn advance_stop(&mut self) {
        if !self.pipeline().jobs().is_empty() {
            return;
        }
        match self.pipeline().replan.clone() {
            Some(question) if !self.running_turn().cancelling => {
                self.emit(Event::PlanStarted { question });
            }
            _ => self.end_cancelled(),
        }
    }

    /// Starts waiting tasks up to the concurrency limit. Starts none once the turn's tokens are spent.
    fn start_tasks(&mut self) {
        if let Some(fault) = self.turn.tokens_spent() {
            return self.fail_waiting(&fault);
        }
        let running = self.pipeline().jobs().len();
        let room = self.turn.env().limits.parallel_calls.saturating_sub(running);
        let waiting = self.pipeline().tasks.iter().filter(|state| state.is_waiting());
        let next: Vec<(Task, u32)> = waiting
            .take(room)
            .map(|state| (state.task.clone(), state.attempt.saturating_add(1)))
            .collect();
        for (task, attempt) in next {
            self.emit(Event::TaskStarted { task, attempt });
        }
    }

    /// Fails every task that has not started.
    fn fail_waiting(&mut self, fault: &Fault) {
        let waiting = self.pipeline().tasks.iter().filter(|state| state.is_waiting());
        let ids: Vec<TaskId> = waiting.map(|state| state.task.id.clone()).collect();
        for task in ids {
            let (round, stage, attempt) = (self.pipeline().round, Stage::Solving, 1);
            let job = StageJob { round, stage, task: Some(task.clone()), attempt };
            let end = self.annotate_end(&job, TaskEnd::Failed { fault: fault.clone() });
            self.raise(&job, &end);
            self.emit(Event::TaskEnded { task, end });
        }
    }

    /// Starts the aggregator after every task ended. If no task completed, the pipeline fails or is cancelled.
    fn aggregate(&mut self) {
        let pipeline = self.pipeline();
        let (completed, failed) = pipeline.tally();
        if completed > 0 {
            return self.emit(Event::AggregateStarted { completed, failed });
        }
        let fault = pipeline.tasks.iter().find_map(|state| match &state.end {
            Some(TaskEnd::Failed { fault }) => Some(fault.clone()),
            _ => None,
        });
        match fault {
            Some(fault) => self.end_failed(Stage::Solving, fault),
            None => self.end_cancelled(),
        }
    }

    /// Records the child of a job, once.
    pub(super) fn stage_opened(&mut self, turn: TurnNumber, job: &StageJob, child: SessionId) {
        if self.awaits_stage(turn, job) && self.pipeline().child_of(job).is_none() {
            let (stage, task) = (Some(job.stage), job.task.clone());
            self.emit(Event::ChildOpened(ChildLink { child, call: None, stage, task }));
        }
    }

    fn awaits_stage(&self, turn: TurnNumber, job: &StageJob) -> bool {
        self.turn.is_current(turn) && self.is_running() && self.pipeline().runs(job)
    }

    /// Handles the end of a job's child.
    pub(super) fn stage_ended(
        &mut self,
        turn: TurnNumber,
        job: &StageJob,
        end: TaskEnd,
        usage: Usage,
    ) {
        if !self.awaits_stage(turn, job) {
            return self.turn.drop_late_report(operation(job.stage), turn, None);
        }
        if let Some(child) = self.pipeline().child_of(job) {
            let (stage, task) = (Some(job.stage), job.task.clone());
            self.emit(Event::ChildEnded { child, call: None, stage, task, usage });
        }
        let end = self.annotate_end(job, end);
        match (job.stage, &job.task) {
            (Stage::Planning, _) => self.end_planning(end),
            (Stage::Solving, Some(task)) => self.end_solving(task.clone(), job, end),
            (Stage::Aggregation, _) => self.end_aggregation(job, end),
            (Stage::Solving, None) => {}
        }
    }

    /// Adds the stage and task to the end's fault, and shortens its output to the recorded limit.
    fn annotate_end(&self, job: &StageJob, end: TaskEnd) -> TaskEnd {
        let stage: &'static str = job.stage.into();
        match end {
            TaskEnd::Failed { fault } => {
                let fault = fault.with(Fact::Stage, stage).with_trace(self.turn.session().trace());
                let fault = match &job.task {
                    Some(task) => fault.with(Fact::TaskId, task.to_string()),
                    None => fault,
                };
                TaskEnd::Failed { fault }
            }
            TaskEnd::Completed { output } if job.stage == Stage::Solving => TaskEnd::Completed {
                output: prompt::cut(&output, self.turn.env().limits.output_bytes),
            },
            other => other,
        }
    }

    /// Handles the planner's answer, failure or cancellation.
    fn end_planning(&mut self, end: TaskEnd) {
        if self.is_stopping() {
            let reason = self.stop_reason();
            self.emit(Event::PlanCancelled { reason });
            return self.advance();
        }
        match end {
            TaskEnd::Completed { output } => match plan::read(&output) {
                Ok(draft) if self.pipeline().asked.confirm => self.ask_for(&draft),
                Ok(draft) => self.plan_made(draft),
                Err(fault) => self.no_plan(fault),
            },
            TaskEnd::Failed { fault } => self.refuse_plan(fault),
            TaskEnd::Cancelled { reason } => {
                self.emit(Event::PlanCancelled { reason });
                self.end_cancelled();
            }
        }
    }

    /// Handles an invalid plan: asks the planner again with the reason, up to the limit.
    fn no_plan(&mut self, fault: Fault) {
        let attempt = self.pipeline().attempt;
        let fault = fault.with_trace(self.turn.session().trace()).attempt(attempt, PLAN_TRIES);
        if attempt >= PLAN_TRIES {
            return self.refuse_plan(fault);
        }
        let scope = Pipeline::scope_of(Stage::Planning);
        self.emit(Event::FaultRaised { fault, scope });
    }

    fn refuse_plan(&mut self, fault: Fault) {
        self.emit(Event::PlanRefused { fault: fault.clone() });
        self.end_failed(Stage::Planning, fault);
    }

    /// Handles the end of one task's work. Other tasks continue.
    fn end_solving(&mut self, task: TaskId, job: &StageJob, end: TaskEnd) {
        let stopping = self.pipeline().task(&task).and_then(|state| state.stopping.clone());
        let end = match &stopping {
            Some(stopping) => TaskEnd::Cancelled { reason: format!("stopped by {}", stopping.by) },
            None if self.is_stopping() => TaskEnd::Cancelled { reason: self.stop_reason() },
            None => end,
        };
        self.raise(job, &end);
        self.emit(Event::TaskEnded { task: task.clone(), end });
        if let Some(stopping) = stopping.filter(|stopping| stopping.restart)
            && !self.is_stopping()
        {
            self.restart(task, &stopping.by);
        }
        self.advance();
    }

    /// Records the fault of a failed job before the event that the fault causes.
    fn raise(&mut self, job: &StageJob, end: &TaskEnd) {
        if let TaskEnd::Failed { fault } = end {
            self.emit(Event::FaultRaised { fault: fault.clone(), scope: job.scope() });
        }
    }

    pub(super) fn restart(&mut self, task: TaskId, by: &str) {
        let attempt =
            self.pipeline().task(&task).map_or(1, |state| state.attempt.saturating_add(1));
        let reason = format!("asked for by {by}");
        self.emit(Event::TaskRestarted { task, attempt, reason });
    }

    /// Handles the aggregator's answer, failure or cancellation.
    fn end_aggregation(&mut self, job: &StageJob, end: TaskEnd) {
        let end = match self.is_stopping() {
            true => TaskEnd::Cancelled { reason: self.stop_reason() },
            false => end,
        };
        self.raise(job, &end);
        self.emit(Event::AggregateEnded { end: end.clone() });
        match end {
            TaskEnd::Completed { output } => self.end_answered(output),
            TaskEnd::Failed { fault } => self.end_failed(Stage::Aggregation, fault),
            TaskEnd::Cancelled { .. } if self.is_stopping() => self.advance(),
            TaskEnd::Cancelled { .. } => self.end_cancelled(),
        }
    }

    /// Ends the pipeline with the aggregator's output as the turn's answer.
    fn end_answered(&mut self, output: String) {
        let complete = self.pipeline().tasks.iter().all(TaskState::is_completed);
        self.emit(Event::PipelineEnded { complete });
        let step = self.running_turn().step.saturating_add(1);
        self.emit(Event::TextDelta { step, text: output.clone() });
        let (content, stop) = (vec![Block::Text(output)], ModelStop::EndTurn);
        let (usage, response) = (Usage::default(), None);
        self.emit(Event::ModelAnswered { step, content, stop, usage, response });
        self.turn.end_turn(StopReason::EndTurn, None);
    }

    pub(super) fn end_failed(&mut self, stage: Stage, fault: Fault) {
        self.emit(Event::PipelineEnded { complete: false });
        self.turn.fail_turn(Pipeline::scope_of(stage), fault);
    }

    /// Gives up an unconfirmed plan, then stops all jobs. The turn ends after they have stopped.
    pub(super) fn stop_all(&mut self) {
        if self.pipeline().confirmation.is_some() {
            let reason = self.stop_reason();
            self.emit(Event::PlanCancelled { reason });
        }
        self.advance();
    }

    /// Ends every started job at once, without waiting for children.
    pub(super) fn halt(&mut self, fault: &Fault) {
        let pipeline = self.pipeline();
        let (stage, jobs) = (pipeline.stage, pipeline.jobs());
        for task in jobs.into_iter().filter_map(|job| job.task) {
            self.emit(Event::TaskEnded { task, end: TaskEnd::Failed { fault: fault.clone() } });
        }
        match stage {
            Some(Stage::Planning) => self.emit(Event::PlanRefused { fault: fault.clone() }),
            Some(Stage::Aggregation) => {
                self.emit(Event::AggregateEnded { end: TaskEnd::Failed { fault: fault.clone() } });
            }
            Some(Stage::Solving) | None => {}
        }
        self.end_failed(stage.unwrap_or(Stage::Solving), fault.clone());
    }
}

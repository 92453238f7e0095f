//! Rules for pipelines: which stages start, what their ends lead to, and what stops them.
//!
//! The state holds no child sessions. A stage that starts makes its [`Work::Stage`] due. A stage that must stop makes
//! [`Work::Stop`] due instead, and ends when the host reports that its child has stopped.

use super::{
    Event, Fact, Fault, Kind, ModelStop, Operation, Stepper, StopReason, TurnNumber, Usage, Work,
};
use crate::{
    event::{Decision, QuestionId, SessionId, Stage, Task, TaskEnd, TaskId},
    message::{Block, CallId},
    pipeline::{
        Confirmation, PLAN, Pipeline, StageJob, TaskState,
        plan::{self, PlanDraft},
        prompt,
    },
    session::Turn,
};

/// The most attempts at a plan, the first included.
const PLAN_TRIES: u32 = 2;

/// The work that is due while a pipeline runs.
pub(super) fn due(turn: &Turn, pipeline: Option<&Pipeline>) -> Vec<Work> {
    let number = turn.number;
    let Some(pipeline) = pipeline else { return Vec::new() };
    if let Some(Confirmation { expires_at, .. }) = &pipeline.confirmation {
        return vec![Work::Wake { turn: number, at: *expires_at }];
    }
    let jobs = pipeline.jobs().into_iter();
    jobs.map(|job| match stops(turn, pipeline, &job) {
        true => Work::Stop { turn: number, job },
        false => Work::Stage { turn: number, job },
    })
    .collect()
}

/// Whether the child of this job must stop.
fn stops(turn: &Turn, pipeline: &Pipeline, job: &StageJob) -> bool {
    let task = job.task.as_ref().and_then(|task| pipeline.task(task));
    is_stopping(turn, pipeline) || task.is_some_and(|state| state.stopping.is_some())
}

/// Whether all jobs of the pipeline must stop.
fn is_stopping(turn: &Turn, pipeline: &Pipeline) -> bool {
    turn.cancelling || pipeline.replan.is_some()
}

fn operation(stage: Stage) -> Operation {
    match stage {
        Stage::Planning => Operation::GeneratePlan,
        Stage::Solving => Operation::SolveTask,
        Stage::Aggregation => Operation::Aggregate,
    }
}

impl Stepper<'_> {
    fn pipeline(&self) -> &Pipeline {
        self.session.pipeline.as_ref().expect("only called while a pipeline is running")
    }

    fn is_stopping(&self) -> bool {
        is_stopping(self.turn(), self.pipeline())
    }

    /// Why all jobs stop, in words.
    fn stop_reason(&self) -> String {
        let reason = match self.turn().cancelling {
            true => "the run was cancelled",
            false => "another plan was asked for",
        };
        reason.to_owned()
    }

    /// Starts the planner, or starts the given tasks if the command carried any.
    pub(super) fn start_pipeline(&mut self) {
        match self.pipeline().asked.tasks.clone() {
            Some(tasks) => self.plan_made(PlanDraft { tasks, summary: String::new() }),
            None => {
                let question = self.pipeline().question.clone();
                self.emit(Event::PlanStarted { question });
            }
        }
    }

    fn plan_made(&mut self, draft: PlanDraft) {
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
            Some(question) if !self.turn().cancelling => {
                self.emit(Event::PlanStarted { question });
            }
            _ => self.end_cancelled(),
        }
    }

    /// Starts waiting tasks up to the concurrency limit. Starts none once the turn's tokens are spent.
    fn start_tasks(&mut self) {
        if let Some(fault) = self.tokens_spent() {
            return self.fail_waiting(&fault);
        }
        let running = self.pipeline().jobs().len();
        let room = self.env.limits.parallel_calls.saturating_sub(running);
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
            let end = self.placed(&job, TaskEnd::Failed { fault: fault.clone() });
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
            self.emit(Event::ChildOpened { child, call: None, stage, task });
        }
    }

    fn awaits_stage(&self, turn: TurnNumber, job: &StageJob) -> bool {
        self.is_current(turn)
            && self.session.pipeline.as_ref().is_some_and(|pipeline| pipeline.runs(job))
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
            return self.late(operation(job.stage), turn, None);
        }
        if let Some(child) = self.pipeline().child_of(job) {
            let (stage, task) = (Some(job.stage), job.task.clone());
            self.emit(Event::ChildEnded { child, call: None, stage, task, usage });
        }
        let end = self.placed(job, end);
        match (job.stage, &job.task) {
            (Stage::Planning, _) => self.planned(end),
            (Stage::Solving, Some(task)) => self.solved(task.clone(), job, end),
            (Stage::Aggregation, _) => self.aggregated(job, end),
            (Stage::Solving, None) => {}
        }
    }

    /// Adds the stage and task to the end's fault, and shortens its output to the recorded limit.
    fn placed(&self, job: &StageJob, end: TaskEnd) -> TaskEnd {
        let stage: &'static str = job.stage.into();
        match end {
            TaskEnd::Failed { fault } => {
                let fault = fault.with(Fact::Stage, stage).with_trace(self.session.trace());
                let fault = match &job.task {
                    Some(task) => fault.with(Fact::TaskId, task.to_string()),
                    None => fault,
                };
                TaskEnd::Failed { fault }
            }
            TaskEnd::Completed { output } if job.stage == Stage::Solving => {
                TaskEnd::Completed { output: prompt::cut(&output, self.env.limits.output_bytes) }
            }
            other => other,
        }
    }

    /// Handles the planner's answer, failure or cancellation.
    fn planned(&mut self, end: TaskEnd) {
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
        let fault = fault.with_trace(self.session.trace()).attempt(attempt, PLAN_TRIES);
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

    /// Asks a person to confirm the plan.
    fn ask_for(&mut self, draft: &PlanDraft) {
        let (turn, round) = (self.turn().number, self.pipeline().round);
        self.emit(Event::QuestionAsked {
            question: QuestionId(format!("ask_plan_{turn}_{round}").into()),
            call: CallId::from(PLAN),
            tool: PLAN.to_owned(),
            arguments: draft.to_arguments(),
            repairs: Vec::new(),
            digest: draft.digest(),
            idempotent: true,
            reason: "the plan must be confirmed before it is carried out".to_owned(),
            expires_at: self.env.now.after(self.env.limits.question),
        });
    }

    /// Handles the end of one task's work. Other tasks continue.
    fn solved(&mut self, task: TaskId, job: &StageJob, end: TaskEnd) {
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
    fn aggregated(&mut self, job: &StageJob, end: TaskEnd) {
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
        let step = self.turn().step.saturating_add(1);
        self.emit(Event::TextDelta { step, text: output.clone() });
        let (content, stop) = (vec![Block::Text(output)], ModelStop::EndTurn);
        self.emit(Event::ModelAnswered { step, content, stop, usage: Usage::default() });
        self.end_turn(StopReason::EndTurn, None);
    }

    fn end_cancelled(&mut self) {
        self.emit(Event::PipelineEnded { complete: false });
        self.end_turn(StopReason::Cancelled, None);
    }

    fn end_failed(&mut self, stage: Stage, fault: Fault) {
        self.emit(Event::PipelineEnded { complete: false });
        self.give_up_in(Pipeline::scope_of(stage), fault);
    }

    /// Cancels the pipeline. The turn ends after all running jobs have stopped.
    pub(super) fn cancel_pipeline(&mut self) {
        if self.pipeline().confirmation.is_some() {
            let reason = self.stop_reason();
            self.emit(Event::PlanCancelled { reason });
        }
        self.advance();
    }

    /// Ends every started job at once, without waiting for children.
    pub(super) fn halt_pipeline(&mut self, fault: &Fault) {
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

    /// Cancels a plan whose confirmation expired.
    pub(super) fn wake_pipeline(&mut self) {
        let Some(confirmation) = self.pipeline().confirmation.clone() else { return };
        if confirmation.expires_at > self.env.now {
            return;
        }
        let Confirmation { question, .. } = confirmation;
        let fault = Fault::new(Kind::QuestionExpired, Operation::AskPermission)
            .with(Fact::ToolName, PLAN)
            .with(Fact::QuestionId, question.to_string());
        self.emit(Event::QuestionExpired { question, call: CallId::from(PLAN) });
        self.emit(Event::PlanCancelled { reason: "nobody confirmed the plan in time".to_owned() });
        self.end_failed(Stage::Planning, fault);
    }

    /// The open confirmation that a question belongs to, if any.
    pub(super) fn open_confirmation(&self, question: &QuestionId) -> Option<Confirmation> {
        self.session.turn.as_ref()?;
        let open = self.session.pipeline.as_ref()?.confirmation.as_ref()?;
        (open.question == *question).then(|| open.clone())
    }

    /// Applies a person's decision on the plan. Edited tasks replace the plan if they are valid.
    pub(super) fn confirmed(
        &mut self,
        open: Confirmation,
        decided: super::command::DecisionArgs,
    ) -> Result<(), Fault> {
        let super::command::DecisionArgs { question, decision, by, note, arguments, .. } = decided;
        let edited = match (decision, arguments) {
            (Decision::Allow, Some(tasks)) => Some(plan::coerce(tasks)?),
            _ => None,
        };
        let edited = edited.map(|draft| match draft.summary.is_empty() {
            true => PlanDraft { summary: open.draft.summary.clone(), ..draft },
            false => draft,
        });
        let edited = edited.filter(|draft| *draft != open.draft);
        self.emit(Event::QuestionAnswered {
            question,
            call: CallId::from(PLAN),
            decision,
            by: by.clone(),
            note: note.clone(),
            arguments: edited.as_ref().map(PlanDraft::to_arguments),
        });
        match decision {
            Decision::Allow => self.plan_made(edited.unwrap_or(open.draft)),
            Decision::Deny => {
                let reason = note.unwrap_or_else(|| format!("declined by {by}"));
                self.emit(Event::PlanCancelled { reason });
                self.end_cancelled();
            }
        }
        Ok(())
    }
}

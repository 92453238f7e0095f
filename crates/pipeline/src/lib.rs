//! Plan, solve, aggregate: a coordinator over child sessions, beside the turn.
//!
//! A pipeline runs as a turn of its session, but no model answers that turn: each stage is a job for a child session.
//! [`step`] and [`due`] are `budao_core::turn`'s with the jobs of pipelines added. A pipeline is in the records of its
//! session ([`budao_core::pipeline`] folds them), and this crate decides which jobs start, what their ends lead to and
//! what stops them. Like the turn it has no clock, no I/O and no waiting, and a restart needs no code of its own.
//!
//! The state holds no child sessions. A job that starts makes its [`Work::Stage`] due. A job that must stop makes
//! [`Work::Stop`] due instead, and ends when the host reports that its child has stopped.

mod commands;
mod confirm;
pub mod plan;
pub mod prompt;
pub mod replay;
mod stages;

use budao_core::{
    event::{Command, CommandBody, Event, SessionId, StopReason, TaskEnd, TurnNumber},
    limits::Limits,
    message::Usage,
    pipeline::{Confirmation, Pipeline, StageJob},
    session::{Session, Turn},
    turn::{self, Env, Stepper, Transition},
};

/// Everything that can wake a session which may run pipelines.
#[expect(
    clippy::large_enum_variant,
    reason = "most inputs are the turn's, and inputs are short-lived"
)]
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// An input of the turn.
    Turn(turn::Input),
    /// A child session was opened for a job.
    StageOpened {
        /// The turn that runs the pipeline.
        turn: TurnNumber,
        /// The job; a stale one is dropped.
        job: StageJob,
        /// The session that does the job.
        child: SessionId,
    },
    /// The child of a job stopped: it answered, failed or was cancelled.
    StageEnded {
        /// The turn that runs the pipeline.
        turn: TurnNumber,
        /// The job; a stale one is dropped.
        job: StageJob,
        /// How the child stopped.
        end: TaskEnd,
        /// Tokens of the child.
        usage: Usage,
    },
}

impl From<turn::Input> for Input {
    fn from(input: turn::Input) -> Self {
        Self::Turn(input)
    }
}

/// Work that a state requires. Two equal values are the same work, so the host starts it once.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Work {
    /// Work of the turn.
    Turn(turn::Work),
    /// Run a child session for a job and report its end.
    Stage {
        /// The turn that runs the pipeline.
        turn: TurnNumber,
        /// The job to run.
        job: StageJob,
    },
    /// Stop the child of a job, if there is one, and report that it stopped.
    Stop {
        /// The turn that runs the pipeline.
        turn: TurnNumber,
        /// The job to stop.
        job: StageJob,
    },
}

/// Decides what follows from `input` and applies it to the session.
pub fn step(session: &mut Session, input: impl Into<Input>, env: &Env<'_>) -> Transition {
    let mut coordinator = Coordinator { turn: Stepper::new(session, env) };
    coordinator.handle(input.into());
    coordinator.settle();
    coordinator.turn.finish()
}

/// The work that this state requires.
#[must_use]
pub fn due(session: &Session, limits: &Limits) -> Vec<Work> {
    let Some((turn, pipeline)) = running(session) else {
        return turn::due(session, limits).into_iter().map(Work::Turn).collect();
    };
    let number = turn.number;
    if let Some(Confirmation { expires_at, .. }) = &pipeline.confirmation {
        return vec![Work::Turn(turn::Work::Wake { turn: number, at: *expires_at })];
    }
    let jobs = pipeline.jobs().into_iter();
    jobs.map(|job| match stages::must_stop(turn, pipeline, &job) {
        true => Work::Stop { turn: number, job },
        false => Work::Stage { turn: number, job },
    })
    .collect()
}

/// The running turn and its pipeline, if a pipeline runs.
fn running(session: &Session) -> Option<(&Turn, &Pipeline)> {
    let turn = session.turn.as_ref().filter(|turn| turn.phase.is_coordinated())?;
    Some((turn, session.pipeline.as_ref()?))
}

/// Decides about pipelines; leaves everything else to the turn.
struct Coordinator<'a> {
    turn: Stepper<'a>,
}

impl Coordinator<'_> {
    fn handle(&mut self, input: Input) {
        match input {
            Input::StageOpened { turn, job, child } => self.stage_opened(turn, &job, child),
            Input::StageEnded { turn, job, end, usage } => self.stage_ended(turn, &job, end, usage),
            Input::Turn(turn::Input::Command(command)) => self.command(command),
            Input::Turn(turn::Input::Aborted { fault }) if self.is_running() => self.halt(&fault),
            Input::Turn(turn::Input::TimerFired { turn })
                if self.is_running() && self.turn.is_current(turn) =>
            {
                self.expire_confirmation();
            }
            Input::Turn(input) => self.turn.handle(input),
        }
    }

    /// Handles commands about pipelines. Each command gets exactly one answer.
    fn command(&mut self, command: Command) {
        let Command { id, by, trace, body } = command;
        let at = self.turn.session().head;
        let taken = match body {
            CommandBody::Plan { question, confirm } => {
                self.plan(id.clone(), question, confirm, trace)
            }
            CommandBody::Solve { question, tasks } => self
                .turn
                .check_nesting(Some(&tasks))
                .and_then(|()| self.solve(id.clone(), question, tasks, trace)),
            CommandBody::CancelTask { task } => self.cancel_task(task, by),
            CommandBody::RestartTask { task } => self.restart_task(task, by),
            CommandBody::CancelPlan => self.cancel_plan(by),
            CommandBody::Replan { question } => self.replan(id.clone(), by, question, trace),
            CommandBody::Decide { question, decision, note, arguments, digest }
                if self.is_open(&question) =>
            {
                let reply = confirm::PlanReply { question, decision, by, note, arguments, digest };
                self.decide(reply)
            }
            body => {
                let command = Command { id, by, trace, body };
                return self.turn.handle(turn::Input::Command(command));
            }
        };
        self.turn.answer(id, trace, at, taken);
    }

    /// Does what the state asks for after any input: begins a pipeline whose turn has started, and ends one whose turn
    /// was cancelled. The end of a turn may start the next one.
    fn settle(&mut self) {
        while let Some((turn, pipeline)) = running(self.turn.session()) {
            let has_begun = pipeline.round > 0 || pipeline.stage.is_some();
            let is_closing = self.turn.session().closing.is_some();
            match (has_begun, turn.cancelling) {
                (false, _) if is_closing => self.end_cancelled(),
                (false, _) => self.begin(),
                (true, true) if pipeline.jobs().is_empty() => self.stop_all(),
                (true, _) => return,
            }
        }
    }

    fn is_running(&self) -> bool {
        running(self.turn.session()).is_some()
    }

    fn pipeline(&self) -> &Pipeline {
        self.turn.session().pipeline.as_ref().expect("only called while a pipeline is running")
    }

    fn running_turn(&self) -> &Turn {
        self.turn.session().turn.as_ref().expect("only called while a turn is running")
    }

    fn emit(&mut self, event: Event) {
        self.turn.emit(event);
    }

    fn end_cancelled(&mut self) {
        self.emit(Event::PipelineEnded { complete: false });
        self.turn.end_turn(StopReason::Cancelled, None);
    }
}

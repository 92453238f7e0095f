//! Derives the inputs that may have led to the next records.
//!
//! The entries of one decision have the same time, so the records of that time (the group) hold what the input brought.

use budao_core::{
    elicitation::Elicitation,
    event::{
        ChildLink, Command, CommandBody, CommandId, Compaction, Event, NewTimer, QuestionPurpose,
        ReconcileVerdict, Record, SessionEnd, Settings, Settlement, Stage, TaskEnd, TurnNumber,
    },
    fault::{Detail, Fact, Fault, Kind, Operation, text},
    gate::{HoldReason, HoldReport},
    message::CallId,
    pipeline::{PLAN, StageJob},
    remote::{OfferBounds, ToolOffer, ToolRoute},
    session::{CallState, Phase, Session, Turn},
    spending,
    timer::{Schedule, TimerRequest},
    tool::{Outcome, Output, ReconcileResult},
    turn::{CallVerdict, Input as TurnInput},
};

use serde_json::{Value, json};

use crate::Input;

/// The most records of one group that are read for inputs.
const GROUP_MAX: usize = 4096;

/// Whether no rule decides the next record: a fault of a hook or of a summary, or an invalid plan.
pub(super) fn is_undecided(session: &Session, rest: &[Record]) -> bool {
    match &rest[0].event {
        Event::FaultRaised { fault, scope } => {
            let is_retried = rest.get(1).is_some_and(|next| {
                next.at == rest[0].at && matches!(next.event, Event::RetryScheduled { .. })
            });
            let is_summary = scope.call.is_none() && scope.step.is_none() && scope.tool.is_none();
            let is_hook = fault.operation() == Operation::RunHook;
            !is_retried && (is_hook || is_summary)
        }
        Event::ChildEnded { stage: Some(Stage::Planning), .. } => {
            session.pipeline.is_some()
                && group(rest).any(|event| matches!(event, Event::FaultRaised { .. }))
        }
        _ => false,
    }
}

/// The inputs that may lead to the next record, the likeliest first.
pub(super) fn candidates(session: &Session, rest: &[Record]) -> Vec<Input> {
    let first = &rest[0];
    let turn = session.turn.as_ref().map_or(0, |turn| turn.number);
    if let Some(body) = command_body(session, &first.event) {
        return vec![command(first, body).into()];
    }
    let reader = GroupReader { session, rest, turn };
    match &first.event {
        Event::SessionOpened { .. }
        | Event::ToolOutputDelta { .. }
        | Event::ToolCallAnnotated { .. }
        | Event::TodosChanged { .. }
        | Event::FileSeen { .. }
        | Event::ChildOpened(ChildLink { stage: None, .. })
        | Event::ChildEnded { stage: None, .. } => {
            let turn = if first.turn == turn { turn } else { 0 };
            vec![TurnInput::RecordOnly { turn, event: first.event.clone() }.into()]
        }
        Event::Annotated { topic, data }
            if topic != spending::TOPIC
                || ["child", "overhead_tokens"].iter().any(|key| data.get(key).is_some()) =>
        {
            let turn = if first.turn == turn { turn } else { 0 };
            vec![TurnInput::RecordOnly { turn, event: first.event.clone() }.into()]
        }
        Event::TextDelta { text, .. } => reader.delta(text.clone(), String::new()),
        Event::ThinkingDelta { text, .. } => reader.delta(String::new(), text.clone()),
        Event::LateArrivalDropped { operation, of_turn, call } => {
            vec![late(*operation, *of_turn, call.clone())]
        }
        Event::TimerFired { .. } => vec![TurnInput::TimersDue.into()],
        Event::SessionResumed { .. } => vec![TurnInput::Resumed.into()],
        Event::SessionEnded { end: SessionEnd::Closed, .. } => {
            vec![command(first, CommandBody::Close).into(), TurnInput::Resumed.into()]
        }
        _ => reader.every_input(),
    }
}

fn group(rest: &[Record]) -> impl Iterator<Item = &Event> {
    let at = rest[0].at;
    let same = rest.iter().take(GROUP_MAX).take_while(move |record| record.at == at);
    same.map(|record| &record.event)
}

fn command(first: &Record, body: CommandBody) -> TurnInput {
    let (id, by) = match &first.event {
        Event::MessageAccepted { command, .. }
        | Event::PipelineAccepted { command, .. }
        | Event::RetryAccepted { command, .. } => (command.clone(), String::new()),
        Event::TimerSet(NewTimer { by, .. })
        | Event::TimerCancelled { by, .. }
        | Event::MessageWithdrawn { by, .. }
        | Event::CancelRequested { by, .. }
        | Event::CloseRequested { by }
        | Event::ToolCallClaimed { by, .. }
        | Event::ToolCallReported { by, .. }
        | Event::QuestionAnswered { by, .. }
        | Event::DoubtSettled { by, .. }
        | Event::TaskStopRequested { by, .. }
        | Event::ReplanRequested { by, .. } => (CommandId("replay".into()), by.clone()),
        _ => (CommandId("replay".into()), String::new()),
    };
    TurnInput::Command(Command { id, by, trace: first.trace, body })
}

/// The command behind a change of settings: each of the grants has a command of its own.
fn settings_command(before: &Settings, settings: Settings) -> CommandBody {
    let (old, new) = (&before.permissions.remembered, &settings.permissions.remembered);
    if let Some(tool) = new.iter().find(|tool| !old.contains(tool)) {
        return CommandBody::RememberPermission { tool: tool.clone() };
    }
    if let Some(tool) = old.iter().find(|tool| !new.contains(tool)) {
        return CommandBody::RevokePermission { tool: tool.clone() };
    }
    if let Some(offer) = settings.offers.iter().find(|offer| !before.offers.contains(offer)) {
        return offer_command(offer.clone());
    }
    let is_ended = |known: &&ToolOffer| {
        let mut offers = settings.offers.iter();
        !offers.any(|offer| (&offer.worker, &offer.by) == (&known.worker, &known.by))
    };
    if let Some(ended) = before.offers.iter().find(is_ended) {
        return offer_command(ToolOffer { tools: Vec::new(), ..ended.clone() });
    }
    CommandBody::Settings { settings: settings.into(), before: None }
}

/// The bounds of the server that took the offer are not recorded, and it was within them.
fn offer_command(offer: ToolOffer) -> CommandBody {
    let bounds = OfferBounds { tools: usize::MAX, bytes: usize::MAX };
    CommandBody::OfferTools { offer: Box::new(offer), bounds }
}

/// The request behind an event that only a command causes.
fn command_body(session: &Session, event: &Event) -> Option<CommandBody> {
    Some(match event.clone() {
        Event::SettingsChanged { settings } => settings_command(&session.settings, settings),
        Event::MessageAccepted { content, .. } => CommandBody::Message { content },
        Event::PipelineAccepted { question, tasks: Some(tasks), .. } => {
            CommandBody::Solve { question, tasks: json!(tasks) }
        }
        Event::PipelineAccepted { question, confirm, .. } => {
            CommandBody::Plan { question, confirm }
        }
        Event::RetryAccepted { of_turn, .. } => CommandBody::Retry { turn: Some(of_turn) },
        Event::TimerSet(NewTimer { timer, schedule, message, .. }) => {
            let when = match schedule {
                Schedule::At(at) => TimerRequest::At(at),
                Schedule::Cron { form, zone } => TimerRequest::Cron { form, zone: Some(zone) },
            };
            CommandBody::SetTimer { timer: Some(timer), when, message }
        }
        Event::TimerCancelled { timer, .. } => CommandBody::CancelTimer { timer },
        Event::MessageWithdrawn { command, .. } => CommandBody::Withdraw { message: command },
        Event::CancelRequested { reason, .. } => CommandBody::Cancel { reason },
        Event::CloseRequested { .. } => CommandBody::Close,
        Event::QuestionAnswered { question, decision, note, arguments, .. } => {
            CommandBody::Decide { question, decision, note, arguments, digest: None }
        }
        Event::DoubtSettled { call, settlement, note, .. } => {
            CommandBody::SettleDoubt { call, settlement: Settlement::clone(&settlement), note }
        }
        Event::ObserverLost(lost) => CommandBody::ObserverLost(lost),
        Event::ToolCallClaimed { call, attempt, worker, .. } => {
            CommandBody::ClaimCall { call, attempt, worker }
        }
        Event::ToolCallReported { call, attempt, worker, report, .. } => {
            CommandBody::ReportCall { call, attempt, worker, report: report.into() }
        }
        Event::TaskStopRequested { task, restart: false, .. } => CommandBody::CancelTask { task },
        Event::TaskStopRequested { task, restart: true, .. } => CommandBody::RestartTask { task },
        Event::ReplanRequested { question, .. } => {
            let is_same = session.pipeline.as_ref().is_some_and(|it| it.question == question);
            CommandBody::Replan { question: (!is_same).then_some(question) }
        }
        _ => return None,
    })
}

/// A result for a turn that has ended.
fn late(operation: Operation, turn: TurnNumber, call: Option<CallId>) -> Input {
    let fault = Fault::new(Kind::Cancelled, operation);
    let (attempt, step) = (u32::MAX, u32::MAX);
    match (operation, call) {
        (Operation::ToolCall, Some(call)) => {
            TurnInput::ToolCallEnded { turn, call, attempt, outcome: fault.into() }.into()
        }
        (Operation::ReconcileCall, Some(call)) => {
            let answer = ReconcileResult::CannotTell;
            TurnInput::CallReconciled { turn, call, attempt, answer }.into()
        }
        (Operation::GeneratePlan | Operation::SolveTask | Operation::Aggregate, _) => {
            let stage = match operation {
                Operation::GeneratePlan => Stage::Planning,
                Operation::SolveTask => Stage::Solving,
                _ => Stage::Aggregation,
            };
            let job = StageJob { round: u32::MAX, stage, task: None, attempt };
            let end = TaskEnd::Failed { fault };
            Input::StageEnded { turn, job, end, usage: budao_core::message::Usage::default() }
        }
        _ => TurnInput::ModelFailed { turn, step, attempt, fault }.into(),
    }
}

/// Reads the group of the next record for the inputs of work.
struct GroupReader<'a> {
    session: &'a Session,
    rest: &'a [Record],
    turn: TurnNumber,
}

impl GroupReader<'_> {
    fn events(&self) -> impl Iterator<Item = &Event> {
        group(self.rest)
    }

    /// The step and attempt that the state awaits.
    fn awaited_attempt(&self) -> Option<(u32, u32)> {
        let turn = self.session.turn.as_ref()?;
        match turn.phase {
            Phase::AwaitingModel { attempt } => Some((turn.step, attempt)),
            _ => None,
        }
    }

    fn delta(&self, text: String, thought: String) -> Vec<Input> {
        let turn = self.turn;
        match self.awaited_attempt() {
            Some((step, attempt)) => {
                vec![TurnInput::Delta { turn, step, attempt, text, thought }.into()]
            }
            None => self.every_input(),
        }
    }

    /// Everything that work may have reported, and a new writer.
    fn every_input(&self) -> Vec<Input> {
        let mut inputs = Vec::new();
        self.add_answers(&mut inputs);
        self.add_outcomes(&mut inputs);
        self.add_check(&mut inputs);
        let mut inputs = inputs.into_iter().map(Input::from).collect();
        self.add_stages(&mut inputs);
        let mut last = vec![TurnInput::TimerFired { turn: self.turn }, TurnInput::Resumed];
        self.add_abort(&mut last);
        inputs.extend(last.into_iter().map(Input::from));
        inputs
    }

    /// What the model or its gate reported.
    fn add_answers(&self, inputs: &mut Vec<TurnInput>) {
        let Some((step, attempt)) = self.awaited_attempt() else { return };
        let turn = self.turn;
        for event in self.events() {
            match event.clone() {
                Event::ModelAnswered { content, stop, usage, response, .. } => {
                    inputs.push(TurnInput::ModelAnswered {
                        turn,
                        step,
                        attempt,
                        content,
                        stop,
                        usage,
                        response,
                    });
                }
                Event::FaultRaised { fault, scope } if scope.call.is_none() => {
                    let plain = fault.clone().without_retry();
                    inputs.push(TurnInput::ModelFailed { turn, step, attempt, fault: plain });
                    inputs.push(TurnInput::ModelFailed { turn, step, attempt, fault });
                }
                Event::RequestHeld { reason, fault, until, before, .. } => {
                    let hold = self.hold(reason, fault, until, before).into();
                    inputs.push(TurnInput::RequestHeld { turn, step, attempt, hold });
                }
                Event::RecoveryFailed { fault, .. } => {
                    // A turn that gives up waiting adds how long it waited.
                    let fault = Some(fault.without_last_cause());
                    let hold = self.hold(HoldReason::Capacity, fault, None, 0).into();
                    inputs.push(TurnInput::RequestHeld { turn, step, attempt, hold });
                }
                Event::ModelChanged { fault, .. } => {
                    let hold = self.hold(HoldReason::Capacity, fault, None, 0).into();
                    inputs.push(TurnInput::HoldReviewed { turn, step, attempt });
                    inputs.push(TurnInput::RequestHeld { turn, step, attempt, hold });
                }
                Event::RequestReleased { .. } => {
                    inputs.push(TurnInput::RequestReleased { turn, step, attempt });
                }
                Event::HistoryCompacted(Compaction {
                    messages,
                    summary,
                    by_model,
                    tokens_after,
                    usage,
                    ..
                }) => inputs.push(TurnInput::HistoryCompacted {
                    turn,
                    messages,
                    summary,
                    by_model,
                    tokens_after,
                    usage,
                }),
                _ => {}
            }
        }
    }

    /// The gate's report behind a recorded hold. The service's own hint is told as the fault's wait.
    fn hold(
        &self,
        reason: HoldReason,
        fault: Option<Fault>,
        until: Option<budao_core::Timestamp>,
        before: u64,
    ) -> HoldReport {
        let now = self.rest[0].at;
        let after = |wait| now.after(wait);
        // Of a gate without room, the time is told by the fault alone.
        let told = || fault.as_ref()?.retry_hint().map(after);
        let until = until.or_else(|| told().filter(|_| reason == HoldReason::Capacity));
        let asked = fault.as_ref().and_then(|fault| fault.detail().number(Fact::WaitMs));
        let asked = asked.and_then(|ms| u64::try_from(ms).ok());
        let hint_until = asked.map(|ms| now.after(std::time::Duration::from_millis(ms)));
        let before = usize::try_from(before).unwrap_or(usize::MAX);
        HoldReport { reason, until, hint_until, before, fault }
    }

    /// What running or interrupted calls reported.
    fn add_outcomes(&self, inputs: &mut Vec<TurnInput>) {
        let Some(current) = &self.session.turn else { return };
        for event in self.events() {
            match event {
                Event::ToolCallEnded { call, outcome, .. } => {
                    inputs.extend(self.read_call_end(current, call, outcome.clone()));
                }
                Event::FaultRaised { fault, scope } => {
                    let Some(call) = &scope.call else { continue };
                    let plain = fault.clone().without_retry();
                    inputs.extend(self.read_call_end(current, call, plain.into()));
                    inputs.extend(self.read_call_end(current, call, fault.clone().into()));
                }
                Event::ReconcileEnded { call, verdict, .. } => {
                    inputs.extend(self.read_reconciliation(call, *verdict));
                }
                Event::QuestionAsked {
                    call,
                    arguments,
                    digest,
                    purpose: QuestionPurpose::Elicitation,
                    ..
                } => inputs.extend(self.input_needed(current, call, arguments, digest)),
                _ => {}
            }
        }
    }

    /// The report that ends the current attempt at a call, or the current attempt to find out about it.
    fn read_call_end(&self, current: &Turn, id: &CallId, outcome: Outcome) -> Option<TurnInput> {
        let (turn, call) = (self.turn, id.clone());
        match (&current.call(id)?.state, outcome) {
            (CallState::Started { attempt, remark, .. }, outcome) => {
                let outcome = without_remark(outcome, remark.as_deref());
                Some(TurnInput::ToolCallEnded { turn, call, attempt: *attempt, outcome })
            }
            (CallState::Reconciling { attempt, .. }, Outcome::Failed(failure)) => {
                let answer = ReconcileResult::Failed(failure.fault);
                Some(TurnInput::CallReconciled { turn, call, attempt: *attempt, answer })
            }
            _ => None,
        }
    }

    /// The request of a running call for input.
    fn input_needed(
        &self,
        current: &Turn,
        id: &CallId,
        arguments: &Value,
        digest: &str,
    ) -> Option<TurnInput> {
        let CallState::Started { attempt, .. } = &current.call(id)?.state else { return None };
        let elicitation = Box::new(Elicitation::of_arguments(arguments)?);
        let (turn, call, digest) = (self.turn, id.clone(), digest.to_owned());
        Some(TurnInput::InputNeeded { turn, call, attempt: *attempt, elicitation, digest })
    }

    fn read_reconciliation(&self, call: &CallId, verdict: ReconcileVerdict) -> Option<TurnInput> {
        let state = &self.session.turn.as_ref()?.call(call)?.state;
        let CallState::Reconciling { attempt, remark, .. } = state else { return None };
        let answer = match verdict {
            ReconcileVerdict::DidNotHappen => ReconcileResult::DidNotHappen,
            ReconcileVerdict::StillRuns => ReconcileResult::StillRuns,
            ReconcileVerdict::CannotTell => ReconcileResult::CannotTell,
            ReconcileVerdict::Happened => {
                let ended = self.events().find_map(|event| match event {
                    Event::ToolCallEnded { call: ended, outcome, .. } if ended == call => {
                        Some(outcome.clone())
                    }
                    _ => None,
                })?;
                ReconcileResult::Happened(self.output(without_remark(ended, remark.as_deref()))?)
            }
        };
        let (turn, attempt) = (self.turn, *attempt);
        Some(TurnInput::CallReconciled { turn, call: call.clone(), attempt, answer })
    }

    /// The tool's output, without the words that tell the model how it was found out.
    fn output(&self, outcome: Outcome) -> Option<Output> {
        let Outcome::Done(mut output) = outcome else { return None };
        let lang = self.session.settings.language;
        let told = text::line("advice-reconciled", &Detail::new(), lang);
        let note = output.note.take().unwrap_or_default();
        let note = note.strip_prefix(&told).unwrap_or(&note).trim_start().to_owned();
        output.note = (!note.is_empty()).then_some(note);
        Some(output)
    }

    /// The check of the calls that the group starts, asks about or settles.
    fn add_check(&self, inputs: &mut Vec<TurnInput>) {
        let Some(current) = &self.session.turn else { return };
        let requested = |state: &CallState| matches!(state, CallState::Requested { .. });
        let calls = current.calls.iter().filter(|call| requested(&call.state));
        let verdicts: Vec<_> =
            calls.filter_map(|call| Some((call.id.clone(), self.verdict(&call.id)?))).collect();
        if !verdicts.is_empty() {
            inputs.push(TurnInput::CallsChecked { turn: self.turn, verdicts });
        }
    }

    fn verdict(&self, id: &CallId) -> Option<CallVerdict> {
        self.events().find_map(|event| match event.clone() {
            Event::ToolCallStarted(start) | Event::ToolCallQueued(start) if start.call == *id => {
                Some(CallVerdict::Run {
                    arguments: start.arguments,
                    repairs: start.repairs,
                    idempotent: start.idempotent,
                    reconcile: start.reconcile,
                    route: self.route(id),
                })
            }
            Event::QuestionAsked {
                call,
                arguments,
                repairs,
                idempotent,
                digest,
                reason,
                purpose: QuestionPurpose::Permission,
                ..
            } if call == *id => {
                Some(CallVerdict::Ask { arguments, repairs, idempotent, digest, reason })
            }
            Event::ToolCallEnded { call, outcome, .. } if call == *id => {
                Some(CallVerdict::Settled(outcome))
            }
            _ => None,
        })
    }

    /// The worker's tool that the call goes to, if it was offered to workers.
    fn route(&self, id: &CallId) -> Option<ToolRoute> {
        self.events().find_map(|event| match event {
            Event::ToolCallOffered { call, route, .. } if call == id => Some(route.clone()),
            _ => None,
        })
    }

    /// What the children of a pipeline reported.
    fn add_stages(&self, inputs: &mut Vec<Input>) {
        let Some(pipeline) = &self.session.pipeline else { return };
        let turn = self.turn;
        for job in pipeline.jobs() {
            for event in self.events() {
                match event.clone() {
                    Event::ChildOpened(ChildLink { child, stage, task, .. })
                        if stage == Some(job.stage) && task == job.task =>
                    {
                        inputs.push(Input::StageOpened { turn, job: job.clone(), child });
                    }
                    event => {
                        if let Some(end) = stage_end(&job, event) {
                            let usage = self.usage_of(&job);
                            inputs.push(Input::StageEnded { turn, job: job.clone(), end, usage });
                        }
                    }
                }
            }
        }
        let first = &self.rest[0];
        match &first.event {
            Event::PlanCancelled { .. } => {
                inputs.push(command(first, CommandBody::CancelPlan).into());
            }
            Event::TaskRestarted { task, reason, .. } => {
                let body = CommandBody::RestartTask { task: task.clone() };
                let mut restart = command(first, body);
                if let (TurnInput::Command(command), Some(by)) =
                    (&mut restart, reason.strip_prefix("asked for by "))
                {
                    by.clone_into(&mut command.by);
                }
                inputs.push(restart.into());
            }
            _ => {}
        }
    }

    fn usage_of(&self, job: &StageJob) -> budao_core::message::Usage {
        let of_job = self.events().find_map(|event| match event {
            Event::ChildEnded { stage, task, usage, .. }
                if *stage == Some(job.stage) && *task == job.task =>
            {
                Some(*usage)
            }
            _ => None,
        });
        of_job.unwrap_or_default()
    }

    /// The host gave the session up, with the fault that ended its turn. The jobs of a pipeline have the fault as it came;
    /// the turn adds where it happened.
    fn add_abort(&self, inputs: &mut Vec<TurnInput>) {
        let of_job = self.events().find_map(|event| match event {
            Event::PlanRefused { fault }
            | Event::TaskEnded { end: TaskEnd::Failed { fault }, .. }
            | Event::AggregateEnded { end: TaskEnd::Failed { fault } } => Some(fault.clone()),
            _ => None,
        });
        let of_turn = self.events().find_map(|event| match event {
            Event::RecoveryFailed { fault, .. } => Some(fault.clone()),
            _ => None,
        });
        let faults = of_job.into_iter().chain(of_turn);
        inputs.extend(faults.map(|fault| TurnInput::Aborted { fault }));
    }
}

/// The end of a job's child that leads to this event.
fn stage_end(job: &StageJob, event: Event) -> Option<TaskEnd> {
    match (job.stage, event) {
        (Stage::Solving, Event::TaskEnded { task, end }) if Some(&task) == job.task.as_ref() => {
            Some(end)
        }
        (Stage::Aggregation, Event::AggregateEnded { end }) => Some(end),
        (Stage::Planning, Event::PlanMade { tasks, summary }) => {
            let plan = json!({ "summary": summary, "tasks": tasks });
            Some(TaskEnd::Completed { output: plan.to_string() })
        }
        (Stage::Planning, Event::QuestionAsked { tool, arguments, .. }) if tool == PLAN => {
            Some(TaskEnd::Completed { output: arguments.to_string() })
        }
        (Stage::Planning, Event::PlanRefused { fault }) => Some(TaskEnd::Failed { fault }),
        (Stage::Planning, Event::PlanCancelled { reason }) => Some(TaskEnd::Cancelled { reason }),
        _ => None,
    }
}

/// The outcome before the turn added a person's remark to its note.
fn without_remark(mut outcome: Outcome, remark: Option<&str>) -> Outcome {
    let Some(remark) = remark else { return outcome };
    let note = match &mut outcome {
        Outcome::Done(output) => &mut output.note,
        Outcome::Failed(failure) => &mut failure.note,
    };
    if let Some(text) = note.take() {
        let before = text.strip_suffix(remark).unwrap_or(&text).trim_end();
        *note = (!before.is_empty()).then(|| before.to_owned());
    }
    outcome
}

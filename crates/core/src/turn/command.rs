//! Rules for commands: what each does to a session, and its answer.

use super::{
    Answer, Command, CommandBody, CommandId, Event, Fact, Fault, Kind, Operation, QuestionId,
    SessionEnd, Stepper, StopReason, TurnNumber, calls,
};
use crate::{
    event::{Decision, QuestionPurpose, Seq},
    message::CallId,
    nesting,
    remote::WorkerClaim,
    session::Phase,
    spending::RAISE_CAP,
    time::Timestamp,
    timer::TimerId,
    trace::Trace,
};

impl Stepper<'_> {
    /// Handles a command. Each command gets exactly one answer.
    pub(super) fn command(&mut self, command: Command) {
        let Command { id, by, trace, body } = command;
        let at = self.session.head;
        let taken = match body {
            CommandBody::Message { content } => self.message(id.clone(), content, trace),
            CommandBody::Decide { question, decision, note, arguments, digest } => {
                let decided = DecisionArgs { question, decision, by, note, arguments, digest };
                self.check_nesting(decided.arguments.as_ref()).and_then(|()| self.decide(decided))
            }
            CommandBody::SettleDoubt { call, settlement, note } => {
                let (session, limits) = (&self.session, self.env.limits);
                let settled = session.settle_doubt(call, settlement, note, by, limits);
                settled.map(|event| self.emit(event))
            }
            CommandBody::Cancel { reason } => {
                self.cancel(by, reason);
                Ok(())
            }
            CommandBody::Withdraw { message } => self.withdraw(message, by),
            CommandBody::Retry { turn } => self.retry(id.clone(), turn, trace),
            CommandBody::SetTimer { timer, when, message } => {
                let timer = timer.unwrap_or_else(|| TimerId(id.0.clone()));
                self.set_timer(timer, when, message, by)
            }
            CommandBody::CancelTimer { timer } => self.cancel_timer(timer, by),
            CommandBody::Settings { settings, .. } => {
                self.replace_settings(*settings);
                Ok(())
            }
            CommandBody::RememberPermission { tool } => {
                self.remember_permission(tool);
                Ok(())
            }
            CommandBody::RevokePermission { tool } => {
                self.revoke_permission(&tool);
                Ok(())
            }
            CommandBody::Close => {
                self.close(by);
                Ok(())
            }
            CommandBody::OfferTools { offer, bounds } => self.offer_tools(*offer, bounds),
            CommandBody::ClaimCall { call, attempt, worker } => {
                self.claim_call(call, attempt, WorkerClaim { worker, by })
            }
            CommandBody::ReportCall { call, attempt, worker, report } => {
                self.report_call(call, attempt, WorkerClaim { worker, by }, *report)
            }
            CommandBody::Annotate { topic, data } => self
                .check_nesting(Some(&data))
                .map(|()| self.emit(Event::Annotated { topic, data })),
            CommandBody::ObserverLost(lost) => {
                self.emit(Event::ObserverLost(lost));
                Ok(())
            }
            CommandBody::Plan { .. }
            | CommandBody::Solve { .. }
            | CommandBody::CancelTask { .. }
            | CommandBody::RestartTask { .. }
            | CommandBody::CancelPlan
            | CommandBody::Replan { .. } => {
                Err(Fault::new(Kind::UnsupportedOperation, Operation::SubmitCommand)
                    .with(Fact::Reason, "no pipeline runs beside this turn"))
            }
        };
        self.answer(id, trace, at, taken);
    }

    /// Answers the command of this decision. `at` is the position before the command's effects.
    pub fn answer(&mut self, id: CommandId, trace: Trace, at: Seq, taken: Result<(), Fault>) {
        let answer = match taken {
            Ok(()) => Answer::Accepted { at },
            Err(fault) => Answer::Rejected { fault: fault.with_trace(trace) },
        };
        self.decided.answer = Some((id, answer));
    }

    /// Queues a turn with the event that accepts its command, and starts it if no turn runs.
    ///
    /// # Errors
    /// The queue is full.
    pub fn accept(&mut self, accepted: Event, trace: Trace) -> Result<(), Fault> {
        self.session.check_queue(self.env.limits)?;
        let turn = self.session.turn.as_ref().map_or(0, |turn| turn.number);
        self.record(turn, trace, accepted);
        self.start_next();
        Ok(())
    }

    fn message(
        &mut self,
        command: CommandId,
        content: Vec<crate::message::Block>,
        trace: Trace,
    ) -> Result<(), Fault> {
        self.session.check_message(&content, self.env.limits)?;
        self.accept(Event::MessageAccepted { command, content }, trace)
    }

    /// Withdraws one queued message. The running turn and the other queued messages are unaffected.
    fn withdraw(&mut self, message: CommandId, by: String) -> Result<(), Fault> {
        self.session.check_waiting(&message)?;
        self.emit(Event::MessageWithdrawn { command: message, by });
        Ok(())
    }

    /// Starts a turn that continues the failed one: with its history, but new tries, patience, budgets and brake.
    fn retry(
        &mut self,
        command: CommandId,
        turn: Option<TurnNumber>,
        trace: Trace,
    ) -> Result<(), Fault> {
        let of_turn = self.session.retryable_turn(turn)?;
        self.record(0, trace, Event::RetryAccepted { command, of_turn });
        self.start_next();
        Ok(())
    }

    /// Checks that the JSON is shallow enough to be decoded from the journal again.
    ///
    /// # Errors
    /// It has more levels than the limit.
    pub fn check_nesting(&self, value: Option<&serde_json::Value>) -> Result<(), Fault> {
        let limit = self.env.limits.json_depth;
        match value {
            Some(value) if nesting::is_deeper(value, limit) => {
                Err(Fault::new(Kind::LimitReached, Operation::SubmitCommand)
                    .with(Fact::Limit, limit)
                    .with(Fact::LimitName, "json_depth"))
            }
            _ => Ok(()),
        }
    }

    /// Cancels the running turn, if any. The turn ends once its running calls have stopped, or its coordinator ends it.
    pub fn cancel(&mut self, by: String, reason: Option<String>) {
        let Some(turn) = &self.session.turn else { return };
        if turn.cancelling {
            return;
        }
        let phase = turn.phase;
        self.emit(Event::CancelRequested { by, reason });
        match phase {
            Phase::AwaitingModel { .. } | Phase::Waiting { .. } => {
                return self.end_turn(StopReason::Cancelled, None);
            }
            Phase::Pipeline | Phase::Confirming => return,
            Phase::Calling => {}
        }
        let trace = self.session.trace();
        for (call, fault) in calls::not_running(self.turn()) {
            let fault = fault.with_trace(trace);
            self.end_call(call, fault.into());
        }
        self.after_calls();
    }

    /// Ends the session, after the running turn has stopped.
    fn close(&mut self, by: String) {
        match &self.session.turn {
            None if self.session.ended.is_some() => {}
            None => self.emit(Event::SessionEnded { end: SessionEnd::Closed, fault: None }),
            Some(_) if self.session.closing.is_some() => {}
            Some(_) => {
                self.emit(Event::CloseRequested { by: by.clone() });
                self.cancel(by, None);
            }
        }
    }

    /// Applies a person's decision. It counts once, before it expires, and for exactly the arguments asked about.
    fn decide(&mut self, decided: DecisionArgs) -> Result<(), Fault> {
        let open = self
            .open_question(&decided.question)
            .ok_or_else(|| not_open(&decided.question, "it is not pending"))?;
        self.check_answer(&decided, &open.digest, open.expires_at)?;
        if open.purpose == QuestionPurpose::Elicitation {
            return self.answer_elicitation(decided, open);
        }
        let DecisionArgs { question, decision, by, note, arguments, .. } = decided;
        let edited = arguments.filter(|arguments| *arguments != open.arguments);
        let raise = match (decision, open.tool == RAISE_CAP) {
            (Decision::Allow, true) => {
                let arguments = edited.as_ref().unwrap_or(&open.arguments);
                Some(self.env.limits.spending.read_raise(&open.arguments, arguments)?)
            }
            _ => None,
        };
        self.emit(Event::QuestionAnswered {
            question,
            call: open.call.clone(),
            decision,
            by: by.clone(),
            note: note.clone(),
            arguments: edited.clone(),
        });
        if let Some(raise) = raise {
            self.raise_cap(open.call, &raise, &by);
            return Ok(());
        }
        match decision {
            Decision::Deny => {
                let fault =
                    calls::denied_by_person(&open.tool, note).with_trace(self.session.trace());
                self.end_call(open.call, fault.into());
                self.after_calls();
            }
            // The call is checked again before it runs: its arguments may have changed, and a rule may deny it by now.
            Decision::Allow => {}
        }
        Ok(())
    }

    /// Checks that the decision matches the question and is in time.
    fn check_answer(
        &mut self,
        decided: &DecisionArgs,
        digest: &str,
        expires_at: Timestamp,
    ) -> Result<(), Fault> {
        check_digest(&decided.question, decided.digest.as_deref(), digest)?;
        if expires_at <= self.env.now {
            self.handle_timers();
            return Err(question_expired(&decided.question));
        }
        Ok(())
    }

    fn open_question(&self, wanted: &QuestionId) -> Option<AskedQuestion> {
        let turn = self.session.turn.as_ref()?;
        turn.calls.iter().find_map(|call| {
            let open = call.open_question().filter(|open| open.question == wanted)?;
            Some(AskedQuestion {
                call: call.id.clone(),
                tool: call.tool.clone(),
                arguments: open.arguments.clone(),
                digest: open.digest.to_owned(),
                expires_at: open.expires_at,
                purpose: open.purpose,
            })
        })
    }
}

/// Checks that a decision is for the arguments that the question showed.
///
/// # Errors
/// It is bound to other arguments.
pub fn check_digest(
    question: &QuestionId,
    bound_to: Option<&str>,
    digest: &str,
) -> Result<(), Fault> {
    match bound_to {
        Some(other) if other != digest => {
            Err(not_open(question, "the answer is for other arguments"))
        }
        _ => Ok(()),
    }
}

/// The fault for a decision that came too late.
#[must_use]
pub fn question_expired(question: &QuestionId) -> Fault {
    not_open(question, "it has expired")
}

pub(super) fn not_open(question: &QuestionId, reason: &'static str) -> Fault {
    Fault::new(Kind::QuestionNotOpen, Operation::AnswerQuestion)
        .with(Fact::QuestionId, question.to_string())
        .with(Fact::Reason, reason)
}

pub(super) struct DecisionArgs {
    pub(super) question: QuestionId,
    pub(super) decision: Decision,
    pub(super) by: String,
    pub(super) note: Option<String>,
    pub(super) arguments: Option<serde_json::Value>,
    digest: Option<String>,
}

pub(super) struct AskedQuestion {
    pub(super) call: CallId,
    tool: String,
    pub(super) arguments: serde_json::Value,
    digest: String,
    expires_at: Timestamp,
    purpose: QuestionPurpose,
}

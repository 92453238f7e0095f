//! Applies commands to a session of the relay.

use budao_core::{
    ag_ui::INPUT_TOPIC,
    event::{Answer, Command, CommandBody, CommandId, Event, SessionEnd, Settings, TurnNumber},
    fault::{Fact, FactValue, Fault, Kind, Operation},
    message::Block,
    timer::TimerId,
    trace::Trace,
};

use super::{RelayStepper, questions::PersonDecision};
use crate::engine::ENGINE_NAME;

impl RelayStepper<'_> {
    /// Handles a command. Each command gets exactly one answer.
    pub(super) fn command(&mut self, command: Command) {
        let Command { id, by, trace, body } = command;
        self.flush();
        let at = self.m.session.head;
        let taken = self.take(id.clone(), by, trace, body);
        let answer = match taken {
            Ok(()) => Answer::Accepted { at },
            Err(fault) => {
                Answer::Rejected { fault: fault.with_trace(trace).scrub(self.env.scrubber) }
            }
        };
        self.out.answer = Some((id, answer));
    }

    fn take(
        &mut self,
        id: CommandId,
        by: String,
        trace: Trace,
        body: CommandBody,
    ) -> Result<(), Fault> {
        match body {
            CommandBody::Message { content } => return self.message(id, content, trace),
            CommandBody::Decide { question, decision, note, arguments, digest } => {
                let decided = PersonDecision { question, decision, by, note, arguments, digest };
                return self.decide(decided);
            }
            CommandBody::Retry { turn } => return self.retry_turn(id, turn, trace),
            CommandBody::Settings { settings, .. } => return self.change_settings(*settings),
            CommandBody::Cancel { reason } => self.cancel(&by, reason),
            CommandBody::Withdraw { message } => {
                self.m.session.check_waiting(&message)?;
                self.emit(Event::MessageWithdrawn { command: message, by });
            }
            CommandBody::SetTimer { timer, when, message } => {
                let timer = timer.unwrap_or_else(|| TimerId(id.0.clone()));
                let (session, env) = (&self.m.session, self.env);
                let set = session.set_timer(timer, when, message, by, env.now, env.limits)?;
                self.emit(set);
            }
            CommandBody::CancelTimer { timer } => {
                let cancelled = self.m.session.cancel_timer(timer, by)?;
                self.emit(cancelled);
            }
            CommandBody::Close => self.close(&by),
            CommandBody::Annotate { topic, data } if topic == INPUT_TOPIC => {
                return self.take_input(data);
            }
            CommandBody::Annotate { topic, data } => self.emit(Event::Annotated { topic, data }),
            CommandBody::ObserverLost(lost) => self.emit(Event::ObserverLost(lost)),
            CommandBody::SettleDoubt { call, settlement, note } => {
                let (session, limits) = (&self.m.session, self.env.limits);
                let settled = session.settle_doubt(call, settlement, note, by, limits)?;
                self.emit(settled);
            }
            CommandBody::RememberPermission { .. } | CommandBody::RevokePermission { .. } => {
                return Err(unsupported("the agent asks for its own permissions"));
            }
            CommandBody::OfferTools { .. }
            | CommandBody::ClaimCall { .. }
            | CommandBody::ReportCall { .. } => {
                return Err(unsupported("the agent runs its own tools"));
            }
            CommandBody::Plan { .. }
            | CommandBody::Solve { .. }
            | CommandBody::CancelTask { .. }
            | CommandBody::RestartTask { .. }
            | CommandBody::CancelPlan
            | CommandBody::Replan { .. } => {
                return Err(unsupported("the agent makes its own plans"));
            }
        }
        Ok(())
    }

    fn message(
        &mut self,
        command: CommandId,
        content: Vec<Block>,
        trace: Trace,
    ) -> Result<(), Fault> {
        self.m.session.check_message(&content, self.env.limits)?;
        let turn = self.m.session.turn.as_ref().map_or(0, |turn| turn.number);
        self.record(turn, trace, Event::MessageAccepted { command, content });
        self.start_next();
        Ok(())
    }

    /// Asks again: the history of the failed turn without its unfinished answer.
    fn retry_turn(
        &mut self,
        command: CommandId,
        turn: Option<TurnNumber>,
        trace: Trace,
    ) -> Result<(), Fault> {
        let of_turn = self.m.session.retryable_turn(turn)?;
        self.record(0, trace, Event::RetryAccepted { command, of_turn });
        self.start_next();
        Ok(())
    }

    /// Ends the running turn at once. The agent learns of it by the end of its connection.
    fn cancel(&mut self, by: &str, reason: Option<String>) {
        if self.m.session.turn.as_ref().is_none_or(|turn| turn.cancelling) {
            return;
        }
        self.emit(Event::CancelRequested { by: by.to_owned(), reason });
        self.close_questions(by);
        self.end_cancelled();
    }

    /// Stops the running turn. Messages accepted before get an empty turn; then the session ends.
    fn close(&mut self, by: &str) {
        if self.m.session.turn.is_none() {
            return self.emit(Event::SessionEnded { end: SessionEnd::Closed, fault: None });
        }
        self.emit(Event::CloseRequested { by: by.to_owned() });
        self.close_questions(by);
        self.end_cancelled();
    }

    fn change_settings(&mut self, mut settings: Settings) -> Result<(), Fault> {
        check_settings(&settings)?;
        // A session keeps the engine with which it was opened.
        settings.labels.insert(Settings::ENGINE.to_owned(), ENGINE_NAME.to_owned());
        if settings != self.m.session.settings {
            self.emit(Event::SettingsChanged { settings });
        }
        Ok(())
    }
}

fn unsupported(reason: &'static str) -> Fault {
    Fault::new(Kind::UnsupportedOperation, Operation::SubmitCommand).with(Fact::Reason, reason)
}

/// Checks that the relay supports these settings.
pub(crate) fn check_settings(settings: &Settings) -> Result<(), Fault> {
    let Some(schema) = &settings.answer_schema else { return Ok(()) };
    Err(Fault::new(Kind::ConstraintViolated, Operation::SubmitCommand)
        .with(Fact::Field, "answer_schema")
        .with(Fact::Constraint, "absent: a foreign agent takes no schema for answers")
        .with(Fact::ProvidedValue, FactValue::Json((**schema).clone())))
}

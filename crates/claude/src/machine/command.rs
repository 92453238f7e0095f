//! Applies commands to a session that the CLI runs.

use budao_core::{
    event::{
        Answer, Command, CommandBody, CommandId, Decision, Event, QuestionId, SessionEnd, Settings,
        TurnNumber,
    },
    fault::{Advice, Fact, FactValue, Fault, Kind, Operation},
    message::Block,
    timer::TimerId,
    trace::Trace,
};
use serde_json::{Value, json};

use super::Stepper;
use crate::{DEFAULT_MODEL, ENGINE_LABEL, outgoing, permissions};

impl Stepper<'_> {
    /// Handles a command. Each command gets exactly one answer.
    pub(super) fn command(&mut self, command: Command) {
        let Command { id, by, trace, body } = command;
        self.flush();
        let at = self.m.session.head;
        let taken = match body {
            CommandBody::Message { content } => self.message(id.clone(), content, trace),
            CommandBody::Decide { question, decision, note, arguments, digest } => {
                self.decide(DecisionArgs { question, decision, by, note, arguments, digest })
            }
            CommandBody::Cancel { reason } => {
                self.cancel(&by, reason);
                Ok(())
            }
            CommandBody::Withdraw { message } => self.m.session.check_waiting(&message).map(|()| {
                self.emit(Event::MessageWithdrawn { command: message, by });
            }),
            CommandBody::Retry { turn } => self.retry_turn(id.clone(), turn, trace),
            CommandBody::SetTimer { timer, when, message } => {
                let timer = timer.unwrap_or_else(|| TimerId(id.0.clone()));
                let (session, env) = (&self.m.session, self.env);
                let set = session.set_timer(timer, when, message, by, env.now, env.limits);
                set.map(|event| self.emit(event))
            }
            CommandBody::CancelTimer { timer } => {
                self.m.session.cancel_timer(timer, by).map(|event| self.emit(event))
            }
            CommandBody::Settings { settings, .. } => self.change_settings(*settings),
            CommandBody::Close => {
                self.cancel(&by, None);
                self.emit(Event::SessionEnded { end: SessionEnd::Closed, fault: None });
                self.shut_if_ended();
                Ok(())
            }
            CommandBody::Annotate { topic, data } => {
                self.emit(Event::Annotated { topic, data });
                Ok(())
            }
            CommandBody::ObserverLost(lost) => {
                self.emit(Event::ObserverLost(lost));
                Ok(())
            }
            CommandBody::SettleDoubt { call, settlement, note } => {
                let (session, limits) = (&self.m.session, self.env.limits);
                let settled = session.settle_doubt(call, settlement, note, by, limits);
                settled.map(|event| self.emit(event))
            }
            CommandBody::RememberPermission { .. } | CommandBody::RevokePermission { .. } => {
                Err(no_memory_fault())
            }
            CommandBody::OfferTools { .. }
            | CommandBody::ClaimCall { .. }
            | CommandBody::ReportCall { .. } => {
                Err(Fault::new(Kind::UnsupportedOperation, Operation::SubmitCommand)
                    .with(Fact::Reason, "the Claude CLI runs its own tools"))
            }
            CommandBody::Plan { .. }
            | CommandBody::Solve { .. }
            | CommandBody::CancelTask { .. }
            | CommandBody::RestartTask { .. }
            | CommandBody::CancelPlan
            | CommandBody::Replan { .. } => {
                Err(Fault::new(Kind::UnsupportedOperation, Operation::SubmitCommand)
                    .with(Fact::Reason, "the Claude CLI makes its own plans"))
            }
        };
        let answer = match taken {
            Ok(()) => Answer::Accepted { at },
            Err(fault) => {
                Answer::Rejected { fault: fault.with_trace(trace).scrub(self.env.scrubber) }
            }
        };
        self.out.answer = Some((id, answer));
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

    /// Sends the prompt of the failed turn again. Only the CLI could continue an answer that it had begun, and it cannot.
    fn retry_turn(
        &mut self,
        command: CommandId,
        turn: Option<TurnNumber>,
        trace: Trace,
    ) -> Result<(), Fault> {
        let of_turn = self.m.session.retryable_turn(turn)?;
        if self.m.session.unanswered_prompt().is_none() {
            let rule =
                format!("the CLI had begun to answer turn {of_turn}; send a message instead");
            return Err(Fault::new(Kind::ConstraintViolated, Operation::SubmitCommand)
                .with(Fact::Field, "turn")
                .with(Fact::Constraint, rule)
                .with(Fact::ProvidedValue, FactValue::Json(of_turn.into())));
        }
        self.record(0, trace, Event::RetryAccepted { command, of_turn });
        self.start_next();
        Ok(())
    }

    /// Cancels the running turn, if any. The turn ends when the CLI confirms, or after `timeouts.stop`.
    fn cancel(&mut self, by: &str, reason: Option<String>) {
        let Some(turn) = &self.m.session.turn else { return };
        if turn.cancelling {
            return;
        }
        self.emit(Event::CancelRequested { by: by.to_owned(), reason });
        self.close_questions(by);
        let now = self.env.steady;
        if self.m.current_turn.is_some() {
            self.current_turn().stopping = Some(now);
            self.interrupt();
        }
    }

    /// Asks the CLI to stop its current turn.
    pub(super) fn interrupt(&mut self) {
        self.current_turn().interrupts += 1;
        self.request("interrupt", &json!({"subtype": "interrupt"}));
    }

    fn change_settings(&mut self, mut settings: Settings) -> Result<(), Fault> {
        check_settings(&settings)?;
        let old = self.m.session.settings.clone();
        // A session keeps the engine with which it was opened.
        match old.labels.get(ENGINE_LABEL) {
            Some(engine) => settings.labels.insert(ENGINE_LABEL.to_owned(), engine.clone()),
            None => settings.labels.remove(ENGINE_LABEL),
        };
        if settings == old {
            return Ok(());
        }
        self.set(settings);
        let new = self.m.session.settings.clone();
        if self.m.process.is_none() {
            return Ok(());
        }
        if permissions::model(&new) != permissions::model(&old) {
            let model = permissions::model(&new).unwrap_or(DEFAULT_MODEL);
            self.request("model", &json!({"subtype": "set_model", "model": model}));
        }
        if permissions::mode(&new) != permissions::mode(&old) {
            self.send_mode();
        }
        if permissions::effort(&new) != permissions::effort(&old) {
            self.set_effort();
        }
        if permissions::is_thinking_off(&new) != permissions::is_thinking_off(&old) {
            self.set_thinking_off();
        }
        Ok(())
    }

    /// Records new settings. If the CLI needs a restart for them, it restarts before the next turn.
    pub(super) fn set(&mut self, settings: Settings) {
        let is_stale = needs_restart(&self.m.session.settings, &settings);
        self.emit(Event::SettingsChanged { settings });
        if let Some(process) = &mut self.m.process {
            process.is_stale |= is_stale;
        }
    }

    /// Sends the session's thinking level to the CLI. Older versions ignore it.
    pub(super) fn set_effort(&mut self) {
        let settings = json!({"effortLevel": permissions::effort(&self.m.session.settings)});
        self.request("effort", &json!({"subtype": "apply_flag_settings", "settings": settings}));
    }

    /// Turns the CLI's thinking off, or leaves it to the CLI again. A model that always thinks ignores it.
    pub(super) fn set_thinking_off(&mut self) {
        let off = permissions::is_thinking_off(&self.m.session.settings);
        let tokens = if off { json!(0) } else { Value::Null };
        let request = json!({"subtype": "set_max_thinking_tokens", "max_thinking_tokens": tokens});
        self.request("thinking", &request);
    }

    /// Applies a person's decision: once, in time, and only for the arguments that the question showed.
    fn decide(&mut self, decided: DecisionArgs) -> Result<(), Fault> {
        let DecisionArgs { question, decision, by, note, arguments, digest } = decided;
        let Some(open_question) = self.m.questions.get(&question) else {
            return Err(not_open(&question, "it is not pending"));
        };
        if digest.as_ref().is_some_and(|bound_to| *bound_to != open_question.digest) {
            return Err(not_open(&question, "the answer is for other arguments"));
        }
        if open_question.expires_at <= self.env.now {
            self.handle_timers();
            return Err(not_open(&question, "it has expired"));
        }
        let open_question = self.m.questions.remove(&question).expect("it was just looked at");
        let edited = arguments.filter(|arguments| *arguments != open_question.arguments);
        self.emit(Event::QuestionAnswered {
            question,
            call: open_question.call.clone(),
            decision,
            by,
            note: note.clone(),
            arguments: edited.clone(),
        });
        self.waited_for_person();
        match decision {
            Decision::Allow => {
                let arguments = edited.unwrap_or(open_question.arguments);
                self.start_call(&open_question.call, &arguments);
                let answer = match open_question.tool == permissions::HAND_IN_PLAN {
                    true => outgoing::approve_plan(&arguments, permissions::DEFAULT),
                    false => outgoing::allow(&arguments),
                };
                self.send(outgoing::answer(&open_question.request, &answer));
            }
            Decision::Deny => {
                let reply_text = note.clone().unwrap_or_else(|| DENIED.to_owned());
                let fault = denied_by_person(&open_question.tool, note);
                self.end_call(&open_question.call, fault.into());
                self.send(outgoing::answer(&open_question.request, &outgoing::deny(&reply_text)));
            }
        }
        Ok(())
    }

    /// Resets the silence timers: the CLI was silent because it waited for a person.
    pub(super) fn waited_for_person(&mut self) {
        let now = self.env.steady;
        if let Some(process) = &mut self.m.process {
            (process.last_line_at, process.last_progress_at) = (now, now);
        }
    }
}

/// The model's text for a denial without a note.
const DENIED: &str =
    "A person decided that this must not be done. Do not try it again in another way.";

fn denied_by_person(tool: &str, note: Option<String>) -> Fault {
    let fault =
        Fault::new(Kind::DeniedByPerson, Operation::ToolCall).with(Fact::ToolName, tool.to_owned());
    match note {
        Some(note) => fault.with(Fact::Note, note.clone()).advise_model([Advice::Custom(note)]),
        None => fault,
    }
}

fn not_open(question: &QuestionId, reason: &'static str) -> Fault {
    Fault::new(Kind::QuestionNotOpen, Operation::AnswerQuestion)
        .with(Fact::QuestionId, question.to_string())
        .with(Fact::Reason, reason)
}

/// Checks that the CLI supports these settings.
pub(crate) fn check_settings(settings: &Settings) -> Result<(), Fault> {
    let wrong = |field: &'static str, constraint: String, value: &Value| {
        Err(Fault::new(Kind::ConstraintViolated, Operation::SubmitCommand)
            .with(Fact::Field, field)
            .with(Fact::Constraint, constraint)
            .with(Fact::ProvidedValue, FactValue::Json(value.clone())))
    };
    if let Some(mode) = settings.extra.get(permissions::MODE)
        && !mode.as_str().is_some_and(|mode| permissions::MODES.contains(&mode))
    {
        return wrong(permissions::MODE, format!("one of {}", permissions::MODES.join(", ")), mode);
    }
    if let Some(thinking) = settings.extra.get(permissions::THINKING)
        && thinking != permissions::OFF
    {
        return wrong(permissions::THINKING, format!("`{}`", permissions::OFF), thinking);
    }
    if let Some(schema) = &settings.answer_schema {
        let rule = "absent: the Claude engine has no schema for answers".to_owned();
        return wrong("answer_schema", rule, schema);
    }
    // The model becomes a command-line argument and must not be read as a flag.
    if settings.model.starts_with('-') {
        return wrong(
            "model",
            "does not begin with a dash".to_owned(),
            &settings.model.clone().into(),
        );
    }
    Ok(())
}

/// Does the CLI apply this change only at its start?
fn needs_restart(old: &Settings, new: &Settings) -> bool {
    let restarts = |settings: &Settings| {
        let directories = settings.extra.get(permissions::DIRECTORIES).cloned();
        (
            settings.system.clone(),
            settings.workspace.clone(),
            settings.tools.clone(),
            settings.max_steps,
            permissions::rules(settings),
            directories,
        )
    };
    restarts(old) != restarts(new)
}

struct DecisionArgs {
    question: QuestionId,
    decision: Decision,
    by: String,
    note: Option<String>,
    arguments: Option<Value>,
    digest: Option<String>,
}

fn no_memory_fault() -> Fault {
    Fault::new(Kind::UnsupportedOperation, Operation::SubmitCommand)
        .with(Fact::Reason, "the engine of this session remembers no permissions")
}

//! Frames for a session's lifecycle, its messages and its turns.

use budao_core::{
    Fault, Kind, Lang, Record,
    activity::{Activity, ControlRequest, MessageContent},
    event::{CommandId, Origin, Scope, SessionEnd, Settings, Stage, StopReason},
    fault::Operation,
    message::{Block, CallId, Role, Usage, text_of},
    texts::FluentValue,
    timer::Schedule,
};
use serde_json::{Value, json};

use super::{Projector, pipeline::task_json};
use crate::{
    frame::{Frame, millis},
    texts::{PARTIAL_CHARS, cut, shorten, translate, translate_with},
};

impl Projector {
    pub(super) fn render_session_activity(
        &self,
        record: &Record,
        activity: Activity<'_>,
    ) -> Option<Frame> {
        let frame = match activity {
            Activity::SessionOpened { settings, origin } => {
                self.render_opening(record, settings, origin)
            }
            Activity::SettingsChanged { settings } => self.render_settings_change(record, settings),
            Activity::SessionResumed { sealed } => self.render_resumption(record, sealed),
            Activity::SessionEnded { end, fault } => self.render_session_end(record, end, fault),
            Activity::MessageAccepted { command, content } => {
                self.with_command(self.render_message(record, content), command)
            }
            Activity::TimerSet { timer, schedule, message, next, by } => {
                let args = [("timer", shorten(&timer.0).into()), ("next", next.to_string().into())];
                let frame = self.notice(record, "timer_set");
                let frame = self.with_args(frame, "timer-set", &args).with("message", message);
                with_schedule(frame, schedule)
                    .with("timer_id", timer.to_string())
                    .with("next_at", next.to_string())
                    .with("by", by)
            }
            Activity::TimerCancelled { timer, by } => {
                let args = [("timer", shorten(&timer.0).into())];
                let frame = self.notice(record, "timer_cancelled");
                self.with_args(frame, "timer-cancelled", &args)
                    .with("timer_id", timer.to_string())
                    .with("by", by)
            }
            Activity::ControlRequested { by, request } => {
                return self.render_control(record, by, request);
            }
            Activity::TurnEnded { stop, fault, steps, usage } => {
                let frame = match stop {
                    StopReason::EndTurn | StopReason::MaxTokens => self.render_final_answer(record),
                    StopReason::Cancelled => {
                        self.with_text(self.begin(record, "agent.interrupted"), "interrupted")
                    }
                    _ => self.render_turn_failure(record, fault),
                };
                self.render_turn_end(record, frame, stop, steps, usage)
            }
            _ => return None,
        };
        Some(frame)
    }

    /// The notice of a request to stop or change work; a close has the frame of the session's end.
    fn render_control(
        &self,
        record: &Record,
        by: &str,
        request: ControlRequest<'_>,
    ) -> Option<Frame> {
        Some(match request {
            ControlRequest::Withdraw(message) => self
                .with_text(self.notice(record, "message_withdrawn"), "message-withdrawn")
                .with("message", message.to_string())
                .with("by", by),
            ControlRequest::Cancel(reason) => self
                .with_text(self.notice(record, "cancelling"), "cancelling")
                .with("by", by)
                .with("reason", reason.map_or(Value::Null, Value::from)),
            ControlRequest::Replan(question) => self
                .with_text(self.notice(record, "replanning"), "replanning")
                .with("mode", "in_run")
                .with("question", shorten(question))
                .with("by", by),
            ControlRequest::StopTask { task, restart } => {
                let id = if restart { "task-restarting" } else { "task-stopping" };
                self.with_text(self.notice(record, "task_stopping"), id)
                    .with("restart", restart)
                    .with("by", by)
                    .at_stage(Stage::Solving, Some(&task.0))
            }
            ControlRequest::Close => return None,
        })
    }

    /// Sets a catalog text: English in the content, the session's language in `show_content`.
    pub(super) fn with_text(&self, frame: Frame, id: &str) -> Frame {
        frame.text(translate(id, Lang::En)).show(translate(id, self.language()))
    }

    /// Sets a catalog text with arguments, as [`Projector::with_text`] does.
    fn with_args(&self, frame: Frame, id: &str, args: &[(&'static str, FluentValue<'_>)]) -> Frame {
        frame.text(translate_with(id, args, Lang::En)).show(translate_with(
            id,
            args,
            self.language(),
        ))
    }

    fn render_opening(
        &self,
        record: &Record,
        settings: &Settings,
        origin: Option<&Origin>,
    ) -> Frame {
        let lang = self.language.unwrap_or(settings.language);
        let frame = self
            .begin(record, "agent.session_created")
            .text(translate("session-created", Lang::En))
            .show(translate("session-created", lang))
            .with("agent_name", "budao")
            .with("session_id", record.session.to_string())
            .with("created_at", record.at.to_string())
            .with("command_id", settings.extra.get("serve.command").cloned().unwrap_or_default());
        let frame = match origin {
            Some(Origin::Call { parent, call, .. }) => frame
                .with("parent_session_id", parent.to_string())
                .with("parent_call_id", call.to_string()),
            Some(Origin::Stage { parent, stage, task, .. }) => frame
                .with("parent_session_id", parent.to_string())
                .at_stage(*stage, task.as_ref().map(|task| &task.0)),
            Some(Origin::Fork { parent, at, .. }) => {
                frame.with("forked_from", parent.to_string()).with("forked_at", *at)
            }
            None => frame,
        };
        with_settings(frame, settings, lang)
    }

    fn render_settings_change(&self, record: &Record, settings: &Settings) -> Frame {
        let lang = self.language.unwrap_or(settings.language);
        let frame = self
            .notice(record, "settings_changed")
            .text(translate("settings-changed", Lang::En))
            .show(translate("settings-changed", lang));
        with_settings(frame, settings, lang)
    }

    fn render_resumption(&self, record: &Record, sealed: &[CallId]) -> Frame {
        let sealed: Vec<String> = sealed.iter().map(ToString::to_string).collect();
        self.with_text(self.notice(record, "session_resumed"), "session-resumed")
            .with("type", "warning")
            .with("severity", if sealed.is_empty() { "low" } else { "medium" })
            .with("sealed_calls", sealed)
    }

    fn render_session_end(&self, record: &Record, end: SessionEnd, fault: Option<&Fault>) -> Frame {
        let frame = self.begin(record, "agent.session_end");
        let (reason, status) = match end {
            SessionEnd::Closed => ("user_request", "completed"),
            SessionEnd::Error => ("error", "error"),
        };
        let scope = Scope::default();
        let context = crate::frame::FaultContext {
            not_recovered: true,
            ..self.fault_context(record, &scope)
        };
        let frame = match fault {
            Some(fault) => frame.with_all(crate::frame::common_fields(fault, &context)),
            None => frame,
        };
        let id = match end {
            SessionEnd::Closed => "session-closed",
            SessionEnd::Error => "session-failed",
        };
        let usage = self.session.usage;
        self.with_text(frame, id)
            .with("reason", reason)
            .with("completion_status", status)
            .with("total_turns", self.session.turns)
            .with("stats", usage_json(usage))
    }

    fn render_message(&self, record: &Record, content: MessageContent<'_>) -> Frame {
        match content {
            MessageContent::Blocks(content) => {
                let is_image = |block: &&Block| matches!(block, Block::Image { .. });
                let images = content.iter().filter(is_image).count();
                self.begin(record, "user.message")
                    .text(text_of(content))
                    .show_content(PARTIAL_CHARS)
                    .with("images", if images == 0 { Value::Null } else { images.into() })
            }
            MessageContent::Pipeline { question, tasks: Some(tasks), .. } => {
                let args = [("count", tasks.len().into()), ("question", shorten(question).into())];
                let tasks: Vec<Value> = tasks.iter().map(task_json).collect();
                self.begin(record, "user.solve_tasks")
                    .object(json!({ "question": question, "tasks": tasks }))
                    .show(translate_with("tasks-given", &args, self.language()))
            }
            MessageContent::Pipeline { question, confirm, tasks: None } => self
                .begin(record, "user.message")
                .text(question)
                .show(cut(question, PARTIAL_CHARS))
                .with("mode", "plan")
                .with("confirm", confirm),
            MessageContent::Timer { timer, content, due, missed, next } => self
                .begin(record, "user.message")
                .text(text_of(content))
                .show_content(PARTIAL_CHARS)
                .with("timer_id", timer.to_string())
                .with("due_at", due.to_string())
                .with("missed", missed)
                .with("next_at", next.map_or(Value::Null, |next| next.to_string().into())),
            MessageContent::Retry { of_turn } => {
                let frame = self.notice(record, "turn_retried").with("retry_of", of_turn);
                self.with_text(frame, "turn-retried")
            }
        }
    }

    /// Adds the command id, and whether the message waits for an earlier turn.
    fn with_command(&self, frame: Frame, command: &CommandId) -> Frame {
        let waits = self.session.turn.is_some() || !self.session.queue.is_empty();
        let named = (!command.is_own()).then(|| command.to_string());
        frame.with("command_id", named.map_or(Value::Null, Value::from)).with("queued", waits)
    }

    /// The final answer: the text of the model's last message.
    fn render_final_answer(&self, record: &Record) -> Frame {
        let last = self.session.history.last().filter(|last| last.role == Role::Assistant);
        let text = last.map(|last| text_of(&last.content)).unwrap_or_default();
        let is_empty = text.trim().is_empty();
        let is_shaped = self.session.settings.answer_schema.is_some();
        let kind = if is_shaped { "json" } else { "text" };
        let frame = self.begin(record, "agent.final_answer").text(text).with("answer_type", kind);
        match is_empty {
            true => frame.show(translate("answer-ready", self.language())),
            false => frame.show_content(usize::MAX),
        }
    }

    fn render_turn_failure(&self, record: &Record, fault: Option<&Fault>) -> Frame {
        let unknown = Fault::new(Kind::Bug, Operation::RunTurn);
        let stage = self.session.pipeline.as_ref().and_then(|pipeline| pipeline.stage);
        let scope = Scope { stage, ..Scope::default() };
        let context = crate::frame::FaultContext {
            not_recovered: true,
            ..self.fault_context(record, &scope)
        };
        self.begin(record, "agent.error").with_fault(fault.unwrap_or(&unknown), &context)
    }

    fn render_turn_end(
        &self,
        record: &Record,
        frame: Frame,
        stop: StopReason,
        steps: u32,
        usage: Usage,
    ) -> Frame {
        let turn = self.session.turn.as_ref();
        let took = turn.map(|turn| millis(record.at.since(turn.started_at)));
        let model = match self.session.settings.model.as_str() {
            "" => Value::Null,
            model => model.into(),
        };
        let spending = &self.session.spending;
        let has_cost = !spending.currency.is_empty();
        let money =
            |micros: u64| if has_cost { currency_units(micros).into() } else { Value::Null };
        let currency = if has_cost { spending.currency.as_str().into() } else { Value::Null };
        let count = |count: u64| if count > 0 { count.into() } else { Value::Null };
        self.add_turn(record, frame)
            .with("cached_tokens", count(usage.cached_tokens))
            .with("estimated_tokens", count(usage.estimated_tokens))
            .with("cost", money(spending.turn))
            .with("session_cost", money(spending.session))
            .with("currency", currency)
            .with("stop_reason", <&str>::from(stop))
            .with("steps", steps)
            .with("model", model)
            .with("generation_time_ms", took.map_or(Value::Null, Value::from))
            .with("input_tokens", usage.input_tokens)
            .with("output_tokens", usage.output_tokens)
            .with("total_tokens", usage.input_tokens.saturating_add(usage.output_tokens))
    }
}

fn with_schedule(frame: Frame, schedule: &Schedule) -> Frame {
    match schedule {
        Schedule::At(at) => frame.with("at", at.to_string()),
        Schedule::Cron { form, zone } => {
            frame.with("cron", form.as_str()).with("zone", zone.as_str())
        }
    }
}

fn with_settings(frame: Frame, settings: &Settings, lang: Lang) -> Frame {
    let text = |text: &str| if text.is_empty() { Value::Null } else { text.into() };
    frame
        .with("language", <&str>::from(lang))
        .with("model", text(&settings.model))
        .with("permission_mode", <&str>::from(settings.permissions.mode))
        .with("remembered_tools", remembered_json(settings))
        .with("session_name", settings.title.as_deref().map_or(Value::Null, text))
}

/// The tools that a person allowed for the rest of the session; null if there are none.
fn remembered_json(settings: &Settings) -> Value {
    match settings.permissions.remembered.as_slice() {
        [] => Value::Null,
        tools => tools.into(),
    }
}

/// An amount in units of its currency.
#[expect(clippy::cast_precision_loss, reason = "amounts of people are far below 2^53 millionths")]
pub(crate) fn currency_units(micros: u64) -> f64 {
    micros as f64 / 1e6
}

/// Token usage as a JSON object.
pub(super) fn usage_json(usage: Usage) -> Value {
    json!({
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens.saturating_add(usage.output_tokens),
    })
}

//! Frames for tool calls, their questions, and child sessions.

use budao_core::{
    Lang, Record, Timestamp,
    activity::{Activity, QuestionDetails},
    elicitation::Elicitation,
    event::{Decision, QuestionId, QuestionPurpose, Scope, SessionId, Settlement, Stage, TaskId},
    fault::{render, text},
    message::CallId,
    spending::RAISE_CAP,
    texts::FluentValue,
    tool::{Outcome, Permissions, Repair},
};
use serde_json::{Value, json};

use super::{Projector, pipeline::task_json, session::usage_json};
use crate::{
    frame::{Frame, metadata_of},
    texts::{plan_args, shorten, translate_with},
};

/// The tool name in a question about a plan.
const PLAN: &str = "plan";

/// The word for a settlement, as `user.settle_doubt` has it.
fn settlement_name(settlement: &Settlement) -> &'static str {
    match settlement {
        Settlement::Happened { .. } => "happened",
        Settlement::DidNotHappen => "did_not_happen",
        Settlement::LeftToModel => "left_to_model",
    }
}

impl Projector {
    pub(super) fn render_call_activity(
        &self,
        record: &Record,
        activity: Activity<'_>,
    ) -> Option<Frame> {
        let frame = match activity {
            Activity::QuestionAsked(asked) => QuestionFrame::from(asked)
                .render(self.begin(record, "agent.user_confirm"), record.at, self.language())
                .with("call_id", asked.call.to_string())
                .with("remember", permission_scope(&asked))
                .with("reason", text::reason(asked.reason, self.language())),
            Activity::QuestionClosed { question, call, answer: Some(answer) } => {
                let confirmed = answer.decision == Decision::Allow;
                let id = if confirmed { "question-confirmed" } else { "question-declined" };
                self.with_text(self.notice(record, "confirmation_answered"), id)
                    .with_step_id(question.0.clone())
                    .with("question_id", question.to_string())
                    .with("confirmed", confirmed)
                    .with("approved", confirmed)
                    .with("call_id", call.to_string())
                    .with("by", answer.by)
                    .with("note", answer.note.map_or(Value::Null, Value::from))
                    .with("edited", answer.is_edited)
            }
            Activity::QuestionClosed { question, call, answer: None } => self
                .with_text(self.begin(record, "agent.timeout"), "question-expired")
                .with_step_id(question.0.clone())
                .with("reason", "question_expired")
                .with("question_id", question.to_string())
                .with("call_id", call.to_string()),
            Activity::CallStarted { call, tool, arguments, repairs, attempt } => self
                .render_call_start(record, call, tool, arguments, repairs)
                .with("attempt", attempt),
            Activity::ReconcileStarted { call, tool, attempt } => self
                .with_tool_text(self.notice(record, "call_reconciling"), "call-reconciling", tool)
                .with_step_id(call.0.clone())
                .with("call_id", call.to_string())
                .with("attempt", attempt),
            Activity::ReconcileEnded { call, tool, verdict } => self
                .with_tool_text(self.notice(record, "call_reconciled"), "call-reconciled", tool)
                .with_step_id(call.0.clone())
                .with("call_id", call.to_string())
                .with("verdict", json!(verdict)),
            Activity::DoubtSettled { call, tool, settlement, by, note } => self
                .with_tool_text(self.notice(record, "doubt_settled"), "doubt-settled", tool)
                .with_step_id(call.0.clone())
                .with("call_id", call.to_string())
                .with("outcome", settlement_name(settlement))
                .with("by", by)
                .with("note", note.map_or(Value::Null, Value::from)),
            Activity::CallOutput { call, text } => self
                .begin(record, "agent.tool_output")
                .with_step_id(call.0.clone())
                .text(text)
                .show(crate::texts::cut(text, crate::texts::PARTIAL_CHARS))
                .with("call_id", call.to_string()),
            Activity::CallAnnotated { call, tool, topic, data } => self
                .with_tool_text(self.notice(record, "call_noted"), "call-noted", tool)
                .with_step_id(call.0.clone())
                .with("call_id", call.to_string())
                .with("topic", topic)
                .with("data", data.clone()),
            Activity::CallEnded { call, tool, outcome, duration_ms } => self
                .render_call_end(record, call, tool, outcome)
                .with("execution_time_ms", duration_ms),
            Activity::Child { child, call, stage, task, usage: None } => {
                let frame = self.with_text(self.notice(record, "child_opened"), "child-opened");
                with_child(frame, child, call, stage, task)
            }
            Activity::Child { child, call, stage, task, usage: Some(usage) } => {
                let frame = self.with_text(self.notice(record, "child_ended"), "child-ended");
                with_child(frame, child, call, stage, task).with("metrics", usage_json(usage))
            }
            Activity::TodosChanged { todos } => self
                .with_text(self.notice(record, "todos_changed"), "todos-changed")
                .with("todos", json!(todos)),
            _ => return None,
        };
        Some(frame)
    }

    /// Sets a catalog text that names a tool.
    fn with_tool_text(&self, frame: Frame, id: &str, tool: &str) -> Frame {
        let args = [("tool", shorten(tool).into())];
        frame.text(translate_with(id, &args, Lang::En)).show(translate_with(
            id,
            &args,
            self.language(),
        ))
    }

    fn render_call_start(
        &self,
        record: &Record,
        call: &CallId,
        tool: &str,
        arguments: &Value,
        repairs: &[Repair],
    ) -> Frame {
        let step = self.session.turn.as_ref().map_or(Value::Null, |turn| turn.step.into());
        let repairs = if repairs.is_empty() { Value::Null } else { json!(repairs) };
        self.with_tool_text(self.begin(record, "agent.tool_call"), "tool-call", tool)
            .with_step_id(call.0.clone())
            .with("tool", tool)
            .with("tool_name", tool)
            .with("call_id", call.to_string())
            .with("args", arguments.clone())
            .with("status", "running")
            .with("step", step)
            .with("repairs", repairs)
    }

    fn render_call_end(
        &self,
        record: &Record,
        call: &CallId,
        tool: &str,
        outcome: &Outcome,
    ) -> Frame {
        let frame = self
            .begin(record, "agent.tool_result")
            .with_step_id(call.0.clone())
            .with("tool", tool)
            .with("tool_name", tool)
            .with("call_id", call.to_string())
            .with("status", if outcome.is_done() { "success" } else { "failed" });
        match outcome {
            Outcome::Done(output) if tool == RAISE_CAP => {
                let text = |key: &str| output.data[key].as_str().unwrap_or_default().to_owned();
                let args = ["setting", "more"].map(|key| (key, text(key).into()));
                frame
                    .text(translate_with("cap-raised", &args, Lang::En))
                    .show(translate_with("cap-raised", &args, self.language()))
                    .with("content_type", "text")
            }
            Outcome::Done(output) => {
                let (content, sort) = match &output.data {
                    Value::String(text) => (text.clone(), "text"),
                    other => (other.to_string(), "json"),
                };
                let cut = output.cut.as_ref().map_or(Value::Null, |cut| cut.total_bytes.into());
                self.with_tool_text(frame, "tool-done", tool)
                    .text(content)
                    .with("content_type", sort)
                    .with("note", output.note.as_deref().map_or(Value::Null, Value::from))
                    .with("total_bytes", cut)
            }
            Outcome::Failed(failure) => {
                let scope = Scope {
                    call: Some(call.clone()),
                    tool: Some(tool.to_owned()),
                    ..Scope::default()
                };
                let context = self.fault_context(record, &scope);
                let model = render::render_for_model(failure, Lang::En);
                let frame = match outcome.is_in_doubt() {
                    true => frame.with("in_doubt", true),
                    false => frame,
                };
                frame
                    .text(text::user_text(&failure.fault, Lang::En))
                    .show(text::user_text(&failure.fault, self.language()))
                    .with("error", model.error.clone())
                    .with("content_type", "text")
                    .with("retryable", model.retryable)
                    .with("next", model.next)
                    .with("data", failure.data.clone().unwrap_or(Value::Null))
                    .with_all(metadata_of(&failure.fault, &context))
            }
        }
    }

    /// The open questions, for an observer that resumes. The frames have no position, because the original frames have
    /// one.
    #[must_use]
    pub fn open_questions(&self, session: SessionId, at: Timestamp) -> Vec<Frame> {
        let Some(turn) = &self.session.turn else { return Vec::new() };
        let again = |question: QuestionFrame<'_>| {
            let frame = Frame::new("agent.user_confirm", at).about(session);
            self.add_stage(question.render(frame, at, self.language()).with("resent", true))
        };
        let calls = turn.calls.iter().filter_map(|call| {
            let open = call.open_question()?;
            let question = QuestionFrame {
                question: open.question,
                tool: &call.tool,
                arguments: open.arguments,
                digest: open.digest,
                purpose: open.purpose,
                expires_at: open.expires_at,
            };
            Some(again(question).with("call_id", call.id.to_string()))
        });
        let plan = self.session.pipeline.as_ref().and_then(|plan| plan.confirmation.as_ref());
        let plan = plan.map(|open| {
            let arguments = open.draft.to_arguments();
            again(QuestionFrame {
                question: &open.question,
                tool: PLAN,
                arguments: &arguments,
                digest: &open.digest,
                purpose: QuestionPurpose::Permission,
                expires_at: open.expires_at,
            })
        });
        calls.chain(plan).collect()
    }
}

/// For how long an answer to the question can hold: `session`, or null if every call is asked about.
fn permission_scope(asked: &QuestionDetails<'_>) -> Value {
    if asked.reason == Permissions::ASKED_BY_MODE { "session".into() } else { Value::Null }
}

/// The fields of a question frame.
struct QuestionFrame<'a> {
    question: &'a QuestionId,
    tool: &'a str,
    arguments: &'a Value,
    digest: &'a str,
    purpose: QuestionPurpose,
    expires_at: Timestamp,
}

impl<'a> From<QuestionDetails<'a>> for QuestionFrame<'a> {
    fn from(asked: QuestionDetails<'a>) -> Self {
        let QuestionDetails { question, tool, arguments, digest, purpose, expires_at, .. } = asked;
        Self { question, tool, arguments, digest, purpose, expires_at }
    }
}

impl QuestionFrame<'_> {
    fn render(&self, frame: Frame, at: Timestamp, lang: Lang) -> Frame {
        let elicitation = match self.purpose {
            QuestionPurpose::Permission => None,
            QuestionPurpose::Elicitation => Elicitation::of_arguments(self.arguments),
        };
        let frame = match (elicitation, self.tool) {
            (Some(asked), _) => self.add_input_question(&asked, frame, lang),
            (None, PLAN) => self.add_plan_question(frame, lang),
            (None, _) => self.add_call_question(frame, lang),
        };
        frame
            .with_step_id(self.question.0.clone())
            .with("question_id", self.question.to_string())
            .with("requires_confirmation", true)
            .with("options", json!(["confirm", "decline"]))
            .with("digest", self.digest)
            .with("expires_at", self.expires_at.to_string())
            .with("timeout_seconds", self.expires_at.since(at).as_secs())
    }

    fn add_plan_question(&self, frame: Frame, lang: Lang) -> Frame {
        let draft = budao_core::pipeline::PlanDraft::of_arguments(self.arguments);
        let tasks: Vec<Value> = draft.tasks.iter().map(task_json).collect();
        let args = plan_args(tasks.len(), &draft.summary);
        frame
            .text(translate_with("confirm-plan", &args, Lang::En))
            .show(translate_with("confirm-plan", &args, lang))
            .with("scope", PLAN)
            .with("stage", <&str>::from(Stage::Planning))
            .with("plan_summary", draft.summary)
            .with("task_count", tasks.len())
            .with("tasks", tasks)
    }

    fn add_input_question(&self, asked: &Elicitation, frame: Frame, lang: Lang) -> Frame {
        let (id, args) = elicitation_text(asked);
        let frame = frame
            .text(translate_with(id, &args, Lang::En))
            .show(translate_with(id, &args, lang))
            .with("scope", "elicitation")
            .with("tool_name", self.tool)
            .with("server", asked.server.as_str())
            .with("message", asked.message.as_str());
        match (&asked.url, &asked.host) {
            (Some(url), Some(host)) => frame.with("url", url.as_str()).with("host", host.as_str()),
            _ => frame.with("fields", json!(asked.fields)),
        }
    }

    fn add_call_question(&self, frame: Frame, lang: Lang) -> Frame {
        let (id, args) = permission_text(self.tool, self.arguments);
        frame
            .text(translate_with(id, &args, Lang::En))
            .show(translate_with(id, &args, lang))
            .with("scope", "tool")
            .with("tool_name", self.tool)
            .with("tool_args", self.arguments.clone())
    }
}

/// The text of a question for a permission, and its arguments.
pub(crate) fn permission_text(
    tool: &str,
    arguments: &Value,
) -> (&'static str, Vec<(&'static str, FluentValue<'static>)>) {
    let text = |key: &str| arguments[key].as_str().unwrap_or_default().to_owned();
    match tool {
        RAISE_CAP => (
            "confirm-raise-cap",
            ["setting", "spent", "cap", "more"].map(|key| (key, text(key).into())).to_vec(),
        ),
        tool => ("confirm-call", vec![("tool", shorten(tool).into())]),
    }
}

/// The text of a question for input, and its arguments.
pub(crate) fn elicitation_text(
    asked: &Elicitation,
) -> (&'static str, [(&'static str, FluentValue<'static>); 3]) {
    let id = if asked.url.is_some() { "ask-address" } else { "ask-input" };
    let text = |text: &str| FluentValue::from(text.to_owned());
    let host = text(asked.host.as_deref().unwrap_or_default());
    (id, [("server", text(&asked.server)), ("message", text(&asked.message)), ("host", host)])
}

fn with_child(
    frame: Frame,
    child: SessionId,
    call: Option<&CallId>,
    stage: Option<Stage>,
    task: Option<&TaskId>,
) -> Frame {
    let frame = frame
        .with("child_session_id", child.to_string())
        .with("call_id", call.map_or(Value::Null, |call| call.to_string().into()));
    let frame = match call {
        Some(call) => frame.with_step_id(call.0.clone()),
        None => frame,
    };
    match stage {
        Some(stage) => frame.at_stage(stage, task.map(|task| &task.0)),
        None => frame,
    }
}

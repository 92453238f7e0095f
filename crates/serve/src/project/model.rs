//! Frames for model requests, deltas and answers.

use budao_core::{
    Fault, Kind, Lang, Record,
    activity::Activity,
    event::Scope,
    fallback::ModelChangeReason,
    fault::{Operation, text},
    message::{Block, ModelStop, ToolUse, Usage, text_of},
};
use serde_json::{Value, json};

use super::Projector;
use crate::{
    frame::{Delta, Frame, common_fields},
    texts::{PARTIAL_CHARS, count_words, cut, translate, translate_with},
};

impl Projector {
    pub(super) fn render_model_activity(
        &self,
        record: &Record,
        activity: Activity<'_>,
    ) -> Option<Frame> {
        let frame = match activity {
            Activity::StepStarted { step, attempt, model } => {
                let model = if model.is_empty() { Value::Null } else { model.into() };
                self.render_thinking(record, step, "")
                    .with("streaming", false)
                    .with("attempt", attempt)
                    .with("model", model)
            }
            Activity::Thought { step, text } => {
                self.render_thinking(record, step, text).with("streaming", true)
            }
            Activity::Text { step, text } => self.render_delta(record, step, text),
            Activity::AnswerAbandoned { step, attempt } => {
                self.render_abandonment(record, step, attempt)
            }
            Activity::Answered { step, content, stop, usage } => {
                return self.render_answer(record, step, content, stop, usage);
            }
            Activity::ModelChanged { step, from, to, reason, fault } => {
                let kind = self.change_cause(reason, fault);
                self.render_model_change(record, step, from, kind)
                    .text(text::model_changed(reason, from, to, Lang::En))
                    .show(text::model_changed(reason, from, to, self.language()))
                    .with("from_model", from)
                    .with("to_model", to)
                    .with("change_reason", <&str>::from(reason))
            }
            Activity::Compacted { messages, by_model, tokens_before, tokens_after, .. } => self
                .render_compaction(record)
                .with("messages", messages)
                .with("by_model", by_model)
                .with("tokens_before", tokens_before)
                .with("tokens_after", tokens_after),
            _ => return None,
        };
        Some(frame)
    }

    fn render_thinking(&self, record: &Record, step: u32, thought: &str) -> Frame {
        self.begin(record, "agent.thinking")
            .text(thought)
            .show(translate("thinking", self.language()))
            .with("step", step)
    }

    fn render_delta(&self, record: &Record, step: u32, text: &str) -> Frame {
        self.begin(record, "agent.partial_answer").text(text).delta(Delta {
            is_streaming: true,
            is_final: false,
            word_count: count_words(text),
            step,
            stage: None,
            task_id: None,
        })
    }

    /// Withdraws the deltas of a step: the client discards its partial answer.
    fn render_abandonment(&self, record: &Record, step: u32, attempt: u32) -> Frame {
        self.begin(record, "agent.partial_answer")
            .text("")
            .show(translate("answer-abandoned", self.language()))
            .with("is_streaming", false)
            .with("is_final", true)
            .with("abandoned", true)
            .with("word_count", 0)
            .with("step", step)
            .with("attempt", attempt)
    }

    /// The frame of a step with calls, or with a refusal. The last step's text is in the frame of the turn's end.
    fn render_answer(
        &self,
        record: &Record,
        step: u32,
        content: &[Block],
        stop: ModelStop,
        usage: Usage,
    ) -> Option<Frame> {
        let calls: Vec<Value> = content.iter().filter_map(call_json).collect();
        if calls.is_empty() && stop != ModelStop::Refusal {
            return None;
        }
        let text = text_of(content);
        let shown = match text.trim().is_empty() {
            true => {
                translate_with("calls-wanted", &[("count", calls.len().into())], self.language())
            }
            false => cut(&text, PARTIAL_CHARS).into_owned(),
        };
        let frame = self
            .begin(record, "agent.llm_message")
            .show(shown)
            .with("agent_name", "budao")
            .with("step", step)
            .with("total_length", text.chars().count())
            .with("final_response", false)
            .with("stop_reason", json!(stop))
            .with("input_tokens", usage.input_tokens)
            .with("output_tokens", usage.output_tokens);
        let message = json!({ "role": "assistant", "content": text, "tool_calls": calls });
        Some(frame.object(json!({ "messages": [message], "total_messages": 1 })))
    }

    /// The failure that a change of the model recovers from; none for a return to an earlier model.
    fn change_cause(&self, reason: ModelChangeReason, fault: Option<&Fault>) -> Option<Kind> {
        let failing = self.session.turn.as_ref().and_then(|turn| turn.failing.as_ref());
        let kind = fault.map(Fault::kind).or(failing.map(|failing| failing.kind));
        kind.filter(|_| reason != ModelChangeReason::Returned)
    }

    /// A change because of a failure is its recovery; a return to an earlier model is a notice.
    fn render_model_change(
        &self,
        record: &Record,
        step: u32,
        from: &str,
        kind: Option<Kind>,
    ) -> Frame {
        let Some(kind) = kind else {
            return self.notice(record, "model_changed").with("step", step);
        };
        let fault = Fault::new(kind, Operation::ModelRequest);
        let scope = Scope { step: Some(step), ..Scope::default() };
        self.begin(record, "error.recovery_started")
            .with_all(common_fields(&fault, &self.fault_context(record, &scope)))
            .with("context", json!({ "model": from }))
            .with("recovery_action", "change_model")
            .with("original_error", fault.row().type_name)
    }

    /// A compaction during a failure is its recovery; otherwise it is a notice.
    fn render_compaction(&self, record: &Record) -> Frame {
        let turn = self.session.turn.as_ref();
        let Some((failing, step)) = turn.and_then(|turn| Some((turn.failing.as_ref()?, turn.step)))
        else {
            return self.with_text(self.notice(record, "history_compacted"), "history-compacted");
        };
        let fault = Fault::new(failing.kind, Operation::CompactHistory);
        let scope = Scope { step: Some(step), ..Scope::default() };
        let row = fault.row();
        let frame = self
            .begin(record, "error.recovery_started")
            .with_all(common_fields(&fault, &self.fault_context(record, &scope)))
            .with("context", self.retry_context(&scope))
            .with("recovery_action", "compact_history")
            .with("original_error", row.type_name);
        self.with_text(frame, "recovery-started")
    }
}

fn call_json(block: &Block) -> Option<Value> {
    match block {
        Block::ToolUse(ToolUse { id, name, arguments }) => {
            Some(json!({ "id": id, "name": name, "arguments": arguments }))
        }
        _ => None,
    }
}

//! The model's answers as the CLI forwards them. Each text is shown once, even if its stream breaks.

use std::time::Duration;

use budao_core::{
    event::{Event, Scope},
    fault::{Fault, Operation},
    message::{Block, CallId, text_of},
    session::Phase,
};

use super::{Stepper, calls, lines::Attribution};
use crate::{
    answer_draft::{AnswerDraft, UnseenText},
    outcome::{self, ReportedError},
    wire::{Assistant, Delta, MessageHead, Retry, StreamEvent, StreamLine, User},
};

impl Stepper<'_> {
    pub(super) fn stream(&mut self, stream: StreamLine) {
        if stream.parent_tool_use_id.is_some() {
            return;
        }
        let begins = matches!(stream.event, StreamEvent::MessageStart { .. });
        match self.attribute(&stream.user_message_uuids) {
            Attribution::CurrentTurn => {}
            Attribution::Unattributed if begins => {
                let turn = self.turn_before();
                return self.late(turn);
            }
            Attribution::CliTurn | Attribution::Unattributed => return,
        }
        match stream.event {
            StreamEvent::MessageStart { message } => self.answer_begins(&message),
            StreamEvent::ContentBlockDelta { index, delta } => self.piece(index, delta),
            StreamEvent::MessageDelta { delta, usage } => {
                let current = self.current_turn();
                if delta.stop_reason.is_some() {
                    current.last_stop.clone_from(&delta.stop_reason);
                }
                if let Some(draft) = &mut current.draft {
                    draft.ends(delta.stop_reason.as_deref(), usage);
                }
            }
            StreamEvent::MessageStop => match stream.abandoned_blocks {
                Some(abandoned) => self.abandon(abandoned.from_block_index),
                None => self.finish_answer(),
            },
            StreamEvent::Other => {}
        }
    }

    fn answer_begins(&mut self, head: &MessageHead) {
        self.finish_answer();
        self.open_step(head.model.clone());
        self.current_turn().draft = Some(AnswerDraft::streamed(head));
    }

    /// Starts a model request: the next step, or another attempt of the current one.
    fn open_step(&mut self, model: Option<String>) {
        self.seal_calls();
        let step = self.turn().step;
        let model = model.unwrap_or_else(|| self.m.session.settings.model.clone());
        let current = self.current_turn();
        let (step, attempt) = match current.next_attempt_number.take() {
            Some(attempt) => (step, attempt),
            None => (step + 1, 1),
        };
        current.attempt = attempt;
        self.emit(Event::StepStarted { step, attempt, model });
    }

    fn piece(&mut self, index: usize, delta: Delta) {
        let (is_thought, text) = match delta {
            Delta::TextDelta { text } => (false, text),
            Delta::ThinkingDelta { thinking } => (true, thinking),
            Delta::Other => return,
        };
        let Some(draft) = &mut self.current_turn().draft else { return };
        draft.piece(index, is_thought, &text);
        self.buffer_text(is_thought, &text);
    }

    /// Handles complete blocks of an answer. Only the part that the stream did not bring is new.
    pub(super) fn assistant(&mut self, assistant: &Assistant) {
        if assistant.parent_tool_use_id.is_some() {
            return;
        }
        let head = &assistant.message;
        match self.attribute(&assistant.user_message_uuids) {
            Attribution::CurrentTurn => {}
            Attribution::CliTurn => return self.buffer_cli_turn(&text_in(head)),
            Attribution::Unattributed => {
                let turn = self.turn_before();
                return self.late(turn);
            }
        }
        if let Some(reported) = reported_error(assistant) {
            self.current_turn().reported = Some(reported);
            return;
        }
        let is_same = |draft: &AnswerDraft| draft.message.is_some() && draft.message == head.id;
        if !self.current_turn().draft.as_ref().is_some_and(is_same) {
            self.finish_answer();
            self.open_step(head.model.clone());
            self.current_turn().draft = Some(AnswerDraft::unstreamed(head));
        }
        let Some(draft) = &mut self.current_turn().draft else { return };
        let unseen = draft.take(head);
        self.buffer_unseen(&unseen);
    }

    fn buffer_unseen(&mut self, unseen: &UnseenText) {
        self.buffer_text(true, &unseen.thought);
        self.buffer_text(false, &unseen.text);
    }

    /// Handles a stream that was abandoned from block `first` on; earlier blocks stay valid.
    fn abandon(&mut self, first: usize) {
        let Some(mut draft) = self.current_turn().draft.take() else { return };
        let void = draft.abandon_from(first);
        if draft.is_empty() {
            return self.give_answer_up(void);
        }
        if void {
            let shown = draft.shown_text();
            self.give_answer_up(true);
            self.open_step(None);
            self.buffer_unseen(&shown);
        }
        self.current_turn().draft = Some(draft);
        self.finish_answer();
    }

    /// Voids this attempt; the next answer is another attempt of the same step.
    fn give_answer_up(&mut self, was_shown: bool) {
        let (step, attempt) = (self.turn().step, self.current_turn().attempt);
        if was_shown {
            self.emit(Event::AnswerAbandoned { step, attempt });
        }
        self.current_turn().next_attempt_number = Some(attempt + 1);
    }

    /// Records that the shown text of an unfinished answer is void.
    pub(super) fn abandon_partial(&mut self) {
        self.flush();
        let Some(turn) = &self.m.session.turn else { return };
        if let (true, Phase::AwaitingModel { attempt }) = (turn.partial, turn.phase) {
            let step = turn.step;
            self.emit(Event::AnswerAbandoned { step, attempt });
        }
    }

    /// Records the complete answer, gives its calls ids and handles the lines that were deferred for them.
    pub(super) fn finish_answer(&mut self) {
        let Some(draft) = self.current_turn().draft.take() else { return };
        self.flush();
        let (mut content, stop, usage) = draft.finish();
        let (number, step, now) = (self.turn().number, self.turn().step, self.env.steady);
        let mut calls = 0;
        for block in &mut content {
            if let Block::ToolUse(call) = block {
                calls += 1;
                let name = CallId::from(format!("call_{number}_{step}_{calls}").as_str());
                let theirs = std::mem::replace(&mut call.id, name.clone());
                self.current_turn().calls.insert(theirs.0.to_string(), name);
            }
        }
        self.record_recovery();
        let current = self.current_turn();
        current.has_shown_text |= !text_of(&content).is_empty();
        current.has_content |= !content.is_empty();
        self.emit(Event::ModelAnswered { step, content, stop, usage, response: None });
        let current = self.current_turn();
        current.called_at = (calls > 0).then_some(now);
        for deferred in std::mem::take(&mut current.deferred) {
            self.take_deferred(deferred);
        }
    }

    /// Records that an attempt succeeded after failed ones.
    fn record_recovery(&mut self) {
        let turn = self.turn();
        let Some(failing) = turn.failing.clone() else { return };
        let scope = Scope { step: Some(turn.step), ..Scope::default() };
        let attempts = self.current_turn().attempt;
        let elapsed_ms = millis(self.env.now.since(failing.since));
        self.emit(Event::Recovered {
            operation: Operation::ModelRequest,
            kind: failing.kind,
            attempts,
            elapsed_ms,
            scope,
        });
    }

    /// Records that the CLI retries the model request by itself; otherwise its wait looks like silence.
    pub(super) fn retry(&mut self, retry: &Retry) {
        if self.attribute(&[]) != Attribution::CurrentTurn {
            return;
        }
        let waits = matches!(self.turn().phase, Phase::Waiting { .. });
        if let Some(draft) = self.current_turn().draft.take() {
            self.give_answer_up(draft.was_shown());
        } else if waits || self.current_turn().next_attempt_number.is_none() {
            self.open_step(None);
        }
        let (step, attempt) = (self.turn().step, self.current_turn().attempt);
        let kind = outcome::retried_kind(retry.error_status, retry.error.as_deref().unwrap_or(""));
        let wait = Duration::try_from_secs_f64(retry.retry_delay_ms / 1_000.0).unwrap_or_default();
        let max_attempts = retry.max_retries.saturating_add(1).max(attempt + 1);
        let scope = Scope { step: Some(step), ..Scope::default() };
        let fault = outcome::with_service(Fault::new(kind, Operation::ModelRequest))
            .attempt(attempt, max_attempts)
            .retry_after(wait)
            .with_trace(self.m.session.trace());
        self.emit(Event::FaultRaised { fault, scope: scope.clone() });
        self.emit(Event::RetryScheduled {
            operation: Operation::ModelRequest,
            kind,
            attempt,
            next_attempt: attempt + 1,
            max_attempts,
            wait_ms: millis(wait),
            due_at: self.env.now.after(wait),
            scope,
        });
        self.current_turn().next_attempt_number = Some(attempt + 1);
    }

    /// Handles a `user` line: tool results, the echo of a prompt, or the output of a CLI command.
    pub(super) fn user(&mut self, user: &User) {
        if user.parent_tool_use_id.is_some() {
            return;
        }
        let echoes = |prompt: &str| user.is_replay && user.uuid.as_deref() == Some(prompt);
        if self
            .m
            .current_turn
            .as_ref()
            .is_some_and(|current| !current.is_own && echoes(&current.prompt))
        {
            return self.has_begun();
        }
        if self.attribute(&[]) != Attribution::CurrentTurn {
            return;
        }
        for result in calls::results(&user.message.content) {
            self.tool_result(result);
        }
        if let Some(output) = user.message.content.as_str().and_then(command_output) {
            self.record_whole_answer(output);
        }
    }

    /// Records text that arrived outside a stream as an answer of its own.
    pub(super) fn record_whole_answer(&mut self, text: &str) {
        self.finish_answer();
        self.open_step(None);
        let head = MessageHead {
            content: vec![serde_json::json!({"type": "text", "text": text})],
            stop_reason: Some("end_turn".to_owned()),
            ..MessageHead::default()
        };
        let mut draft = AnswerDraft::unstreamed(&head);
        let unseen = draft.take(&head);
        self.current_turn().draft = Some(draft);
        self.buffer_unseen(&unseen);
        self.finish_answer();
    }
}

/// The error that the CLI reports in place of an answer. CLI 2.1.9 does not mark the one about the output limit.
fn reported_error(assistant: &Assistant) -> Option<ReportedError> {
    let text = text_in(&assistant.message);
    let is_synthetic = assistant.message.model.as_deref() == Some("<synthetic>");
    let error = match &assistant.error {
        Some(error) => error.clone(),
        None if !is_synthetic || !text.starts_with("API Error") => return None,
        None if text.contains("output token maximum") => outcome::OUTPUT_LIMIT.to_owned(),
        None => "unknown".to_owned(),
    };
    Some(ReportedError { error, text })
}

fn text_in(head: &MessageHead) -> String {
    head.content.iter().filter_map(|block| block["text"].as_str()).collect()
}

/// Extracts the output of a command of the CLI itself.
fn command_output(content: &str) -> Option<&str> {
    let inside = content.strip_prefix("<local-command-stdout>")?;
    let inside = inside.strip_suffix("</local-command-stdout>").unwrap_or(inside).trim();
    (!inside.is_empty()).then_some(inside)
}

pub(super) fn millis(wait: Duration) -> u64 {
    u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)
}

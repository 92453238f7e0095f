//! Answers prompts at the end of their turns, and ends the session's task.

use agent_client_protocol::v1::schema::{
    CloseSessionResponse, ContentChunk, DeleteSessionResponse, MessageId, SessionUpdate,
};
use budao_core::{
    event::{CommandId, Decision, Event, Record, StopReason, TurnNumber},
    fault::Fault,
};

use super::{EditorSession, LeaveResponder, Prompt, QueuedCommand};
use crate::{
    faults,
    outcome::{self, EndedTurn, PromptAnswer},
};

impl EditorSession {
    /// Handles the start of a turn. If it answers the active prompt, an earlier cancel of that prompt applies to it.
    pub(super) fn handle_turn_start(&mut self, message: &CommandId, turn: TurnNumber) {
        let Some(prompt) = &mut self.prompts.active else { return };
        if prompt.command == *message {
            prompt.turn = Some(turn);
            if prompt.cancelled {
                self.commands.push(QueuedCommand::Cancel);
            }
        }
    }

    /// Handles the end of a turn; if it answers the active prompt, the prompt is answered.
    pub(super) async fn handle_turn_end(&mut self, record: &Record) {
        self.hidden_turns.retain(|hidden| hidden.turn != Some(record.turn));
        let is_its = |prompt: &Prompt| prompt.turn == Some(record.turn);
        let Some(prompt) = self.prompts.active.take_if(|prompt| is_its(prompt)) else { return };
        let Event::TurnEnded { stop, fault, .. } = &record.event else { return };
        let ended = EndedTurn {
            turn: record.turn,
            trace: prompt.trace.or(record.trace),
            stop: *stop,
            fault: fault.as_ref(),
            cancelled: prompt.cancelled,
        };
        self.settle(prompt, &ended).await;
    }

    /// Handles the engine's answer to a message. A message whose prompt has already been answered is withdrawn.
    pub(super) async fn handle_message_result(
        &mut self,
        message: CommandId,
        refused: Option<&Fault>,
    ) {
        let is_active =
            self.prompts.active.as_ref().is_some_and(|prompt| prompt.command == message);
        match refused {
            Some(fault) if is_active => self.handle_refusal(fault).await,
            None if !is_active => {
                self.commands.push(QueuedCommand::Withdraw { message });
            }
            _ => {}
        }
    }

    /// Hides the rest of the prompt's turn and stops it, because the prompt is answered before the turn's end.
    pub(super) fn retract(&mut self, prompt: &Prompt) {
        self.hide(prompt);
        self.commands.push(match prompt.turn {
            Some(_) => QueuedCommand::Cancel,
            None => QueuedCommand::Withdraw { message: prompt.command.clone() },
        });
    }

    /// Answers the active prompt with a fault: the engine rejected it, or its append is unconfirmed. If the
    /// message is durable after all, its turn appears in the history but is not shown after this answer.
    pub(super) async fn handle_refusal(&mut self, fault: &Fault) {
        let Some(prompt) = self.prompts.active.take() else { return };
        self.hide(&prompt);
        let ended = EndedTurn {
            turn: 0,
            trace: prompt.trace,
            stop: StopReason::Failed,
            fault: Some(fault),
            cancelled: prompt.cancelled,
        };
        self.settle(prompt, &ended).await;
    }

    /// Answers the prompt of a cancelled turn that does not end; the rest of the turn is hidden.
    pub(super) async fn handle_cancel_timeout(&mut self) {
        self.cancel_timer = None;
        let Some(prompt) = self.prompts.active.take() else { return };
        tracing::warn!(
            session = %self.session, prompt = prompt.number,
            "cancelled turn did not end in time"
        );
        // A started turn has already been cancelled; a message without a turn is withdrawn.
        match prompt.turn {
            Some(_) => self.hide(&prompt),
            None => self.retract(&prompt),
        }
        let questions: Vec<_> = self.questions.keys().cloned().collect();
        for question in questions {
            self.decide(&question, Decision::Deny, Some("the turn was stopped"), None);
        }
        let ended = EndedTurn {
            turn: prompt.turn.unwrap_or(0),
            trace: prompt.trace,
            stop: StopReason::Cancelled,
            fault: None,
            cancelled: true,
        };
        self.settle(prompt, &ended).await;
    }

    /// Answers a prompt that was withdrawn before the engine got it.
    pub(super) fn answer_cancelled(&mut self, prompt: Prompt) {
        let ended = EndedTurn {
            turn: 0,
            trace: prompt.trace,
            stop: StopReason::Cancelled,
            fault: None,
            cancelled: true,
        };
        self.respond(prompt, &ended);
    }

    async fn settle(&mut self, prompt: Prompt, ended: &EndedTurn<'_>) {
        self.cancel_timer = None;
        self.respond(prompt, ended);
        if self.leave_responder.is_some() {
            return self.finish_leaving().await;
        }
        self.start_next_prompt().await;
    }

    /// Answers a prompt whose turn has ended. Prompts that never became a turn are refused where they are taken.
    fn respond(&mut self, prompt: Prompt, ended: &EndedTurn<'_>) {
        let PromptAnswer { answer, preface, log_label } =
            outcome::prompt_answer(ended, self.bridge.execution_error, self.bridge.lang);
        if let Some(text) = preface {
            let id = MessageId::new(format!("{}.end", ended.turn));
            let chunk = ContentChunk::new(text.into()).message_id(id);
            self.outbox.send(SessionUpdate::AgentMessageChunk(chunk));
        }
        self.outbox.flush();
        let counts = self.projector.counts;
        let elapsed = self.bridge.world.clock.now().as_micros() - prompt.since.as_micros();
        tracing::info!(
            target: "budao_acp::prompt",
            session = %self.session,
            prompt = prompt.number,
            turn = ended.turn,
            stop = log_label,
            total_elapsed_ms = elapsed / 1000,
            updates = self.outbox.updates - prompt.updates_before,
            text_bytes = counts.text_bytes,
            calls = counts.calls,
            retries = counts.retries,
            trace = %ended.trace,
            "prompt ended"
        );
        self.outbox.answer(prompt.responder, answer);
    }

    /// Leaves the session for the editor: cancels its turn, then closes it. A session that is not open is deleted at once.
    pub(super) async fn leave(&mut self, leave: LeaveResponder) {
        if !self.is_open {
            self.leave_responder = Some(leave);
            return self.finish_leaving().await;
        }
        for prompt in std::mem::take(&mut self.prompts.waiting) {
            self.answer_cancelled(prompt);
        }
        if let Some(prompt) = &mut self.prompts.active {
            prompt.cancelled = true;
            self.cancel_timer = Some(self.bridge.world.clock.sleep(super::CANCEL_TIMEOUT));
        }
        self.leave_responder = Some(leave);
        self.commands.push(QueuedCommand::Close);
    }

    pub(super) fn handle_close_result(&mut self, refused: Option<&Fault>) {
        if let Some(fault) = refused {
            tracing::warn!(session = %self.session, %fault, "closing session failed");
            if let Some(prompt) = self.prompts.active.take() {
                self.retract(&prompt);
                self.answer_cancelled(prompt);
            }
        }
    }

    /// Leaves the session once no prompt and no queued command is left. The task then handles the deferred commands.
    pub(super) async fn finish_leaving(&mut self) {
        if self.prompts.active.is_some() || !self.commands.is_idle() {
            return;
        }
        let Some(leave) = self.leave_responder.take() else { return };
        self.forget_session();
        self.bridge.services.forget(self.session).await;
        match leave {
            LeaveResponder::Close(reply) => {
                self.outbox.answer(reply, Ok(CloseSessionResponse::new()));
            }
            LeaveResponder::Delete(reply) => {
                let deleted = self.bridge.engine.delete(self.session).await;
                let answer = deleted
                    .map(|_| DeleteSessionResponse::new())
                    .map_err(|fault| faults::to_error(&fault, self.bridge.lang));
                self.outbox.answer(reply, answer);
            }
        }
    }

    /// Returns to the state before the session was opened.
    fn forget_session(&mut self) {
        self.is_open = false;
        (self.records, self.pending_settings, self.cancel_timer) = (None, None, None);
        self.questions.clear();
        self.hidden_turns.clear();
    }

    /// Cleans up after the editor disconnected: denies the open questions, because no answer can arrive.
    pub(super) async fn shut_down(mut self) {
        self.commands.drop_waiting();
        let questions: Vec<_> = self.questions.keys().cloned().collect();
        for question in questions {
            self.decide(&question, Decision::Deny, Some("the editor is gone"), None);
        }
        self.start_command();
        while !self.commands.is_idle() {
            let _ = self.commands.wait_for_answer().await;
            self.start_command();
        }
    }
}

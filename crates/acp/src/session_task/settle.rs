//! How prompts are answered, and how a session is let go.

use agent_client_protocol::v1::schema::{
    CloseSessionResponse, ContentChunk, DeleteSessionResponse, MessageId, SessionUpdate,
};
use budao_core::{
    event::{CommandId, Decision, Event, Record, StopReason, TurnNumber},
    fault::Fault,
};

use super::{Job, LeaveResponder, Prompt, SessionTask};
use crate::{
    faults,
    outcome::{self, EndedTurn, PromptAnswer},
};

impl SessionTask {
    /// A turn began. If it answers the prompt, it is that prompt's; a cancel that came before it began
    /// is meant for it.
    pub(super) fn turn_started(&mut self, message: &CommandId, turn: TurnNumber) {
        let Some(prompt) = &mut self.prompts.active else { return };
        if prompt.command == *message {
            prompt.turn = Some(turn);
            if prompt.cancelled {
                self.jobs.push(Job::Cancel);
            }
        }
    }

    /// A turn ended. If it is the prompt's, the prompt is answered.
    pub(super) async fn turn_ended(&mut self, record: &Record) {
        self.muted.retain(|muted| muted.turn != Some(record.turn));
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

    /// The engine answered a message. One whose prompt has its answer already is taken back.
    pub(super) async fn handed_in(&mut self, message: CommandId, refused: Option<&Fault>) {
        let is_active =
            self.prompts.active.as_ref().is_some_and(|prompt| prompt.command == message);
        match refused {
            Some(fault) if is_active => self.refused(fault).await,
            None if !is_active => {
                self.jobs.push(Job::Withdraw { message });
            }
            _ => {}
        }
    }

    /// The prompt is answered before its turn has ended: nothing more of it is shown, and it is kept from running.
    pub(super) fn retract(&mut self, prompt: &Prompt) {
        self.mute(prompt);
        self.jobs.push(match prompt.turn {
            Some(_) => Job::Cancel,
            None => Job::Withdraw { message: prompt.command.clone() },
        });
    }

    /// The engine did not accept the prompt, or could not say whether it did: a disk may have kept what it
    /// did not confirm. If its turn comes to pass all the same, it is in the history, and not shown after
    /// this answer.
    pub(super) async fn refused(&mut self, fault: &Fault) {
        let Some(prompt) = self.prompts.active.take() else { return };
        self.mute(&prompt);
        let ended = EndedTurn {
            turn: 0,
            trace: prompt.trace,
            stop: StopReason::Failed,
            fault: Some(fault),
            cancelled: prompt.cancelled,
        };
        self.settle(prompt, &ended).await;
    }

    /// A stopped turn does not end. The editor is answered; what still comes of the turn is kept from it.
    pub(super) async fn out_of_patience(&mut self) {
        self.patience = None;
        let Some(prompt) = self.prompts.active.take() else { return };
        tracing::warn!(session = %self.session, prompt = prompt.number, "a stopped turn does not end");
        // It was asked to stop when it was cancelled; what has not begun is taken back as well.
        match prompt.turn {
            Some(_) => self.mute(&prompt),
            None => self.retract(&prompt),
        }
        let questions: Vec<_> = self.questions.keys().cloned().collect();
        for question in questions {
            self.decide(&question, Decision::Deny, Some("the turn was stopped"));
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

    /// A prompt that was taken back before its turn began: nothing ever knew of it.
    pub(super) fn never_began(&mut self, prompt: Prompt) {
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
        self.patience = None;
        self.respond(prompt, ended);
        if self.leaving.is_some() {
            return self.leave_if_done().await;
        }
        self.begin_next().await;
    }

    /// The one place where a prompt is answered.
    fn respond(&mut self, prompt: Prompt, ended: &EndedTurn<'_>) {
        let PromptAnswer { answer, before, word } =
            outcome::tell(ended, self.bridge.execution_error, self.bridge.lang);
        if let Some(said) = before {
            let id = MessageId::new(format!("{}.end", ended.turn));
            let chunk = ContentChunk::new(said.into()).message_id(id);
            self.outbox.tell(SessionUpdate::AgentMessageChunk(chunk));
        }
        self.outbox.flush();
        let counts = self.projector.counts;
        let elapsed = self.bridge.world.clock.now().as_micros() - prompt.since.as_micros();
        tracing::info!(
            target: "budao_acp::prompt",
            session = %self.session,
            prompt = prompt.number,
            turn = ended.turn,
            stop = word,
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

    /// The editor lets the session go: what runs is stopped, then it is closed.
    pub(super) fn leave(&mut self, leave: LeaveResponder) {
        for prompt in std::mem::take(&mut self.prompts.waiting) {
            self.never_began(prompt);
        }
        if let Some(prompt) = &mut self.prompts.active {
            prompt.cancelled = true;
            self.patience = Some(self.bridge.world.clock.sleep(super::CANCEL_TIMEOUT));
        }
        self.leaving = Some(leave);
        self.jobs.push(Job::Close);
    }

    pub(super) fn closed(&mut self, refused: Option<&Fault>) {
        if let Some(fault) = refused {
            tracing::warn!(session = %self.session, %fault, "a session could not be closed");
            if let Some(prompt) = self.prompts.active.take() {
                self.retract(&prompt);
                self.never_began(prompt);
            }
        }
    }

    /// Once nothing is left to be answered, the session is let go.
    pub(super) async fn leave_if_done(&mut self) {
        if self.prompts.active.is_some() || !self.jobs.is_idle() {
            return;
        }
        let Some(leave) = self.leaving.take() else { return };
        self.is_over = true;
        self.bridge.host.forget(self.session).await;
        match leave {
            LeaveResponder::Close(reply) => {
                self.outbox.answer(reply, Ok(CloseSessionResponse::new()));
            }
            LeaveResponder::Delete(reply) => {
                let deleted = self.bridge.journal.delete(self.session).await;
                let answer = deleted
                    .map(|_| DeleteSessionResponse::new())
                    .map_err(|fault| faults::error(&fault, self.bridge.lang));
                self.outbox.answer(reply, answer);
            }
        }
    }

    /// The editor is gone, or done with the session. Whoever was asked cannot answer any more: that is a no.
    pub(super) async fn depart(mut self) {
        self.jobs.forget_waiting();
        let questions: Vec<_> = self.questions.keys().cloned().collect();
        for question in questions {
            self.decide(&question, Decision::Deny, Some("the editor is gone"));
        }
        self.start_job();
        while !self.jobs.is_idle() {
            let _ = self.jobs.done().await;
            self.start_job();
        }
    }
}

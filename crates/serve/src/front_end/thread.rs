//! A front end's thread as a session.
//!
//! The id of the session follows from the caller and the thread's id, so every user has threads of their own: a thread
//! of another user does not exist. The id of an existing session is a thread's id too.

use std::sync::Arc;

use budao_core::{
    Fault, Kind, Lang,
    event::{CommandId, Epoch, QuestionId, SessionId},
    fault::{Fact, Operation},
    message::{Block, CallId},
    remote::{WorkerError, WorkerReport},
    session::{Call, CallState, Session},
};
use budao_journal::fold;

use super::{RunAction, WORKER, ids};
use crate::{
    admission::AdmissionPermit,
    connection::FOLD_COST_RECORDS,
    http_api::Caller,
    inbound::{OnDisconnect, SessionRequest},
    server::{Server, session_of},
    session_meta::{self, SessionMeta},
    texts::translate,
};

/// The prefix of the command that opens the session of a thread.
const THREAD_PREFIX: &str = "thread:";

/// The session of a thread, at its head.
#[derive(Debug)]
pub(crate) struct Thread {
    pub(crate) session: SessionId,
    pub(crate) epoch: Epoch,
    pub(crate) meta: SessionMeta,
    pub(crate) state: Session,
}

impl Thread {
    /// Opens the session of a new thread.
    pub(crate) async fn open(
        server: &Arc<Server>,
        caller: &Caller,
        permit: &AdmissionPermit,
        id: &str,
        system: Option<String>,
    ) -> Result<Self, Fault> {
        let creation = SessionRequest {
            system,
            language: caller.accepted_lang,
            // A stream ends at every pause, so its end must not cancel the turn.
            on_disconnect: Some(OnDisconnect::Continue),
            ..SessionRequest::default()
        };
        let opened = server.open(&caller.identity, creation, Some(&opening_command(id))).await?;
        Self::load(server, caller, permit, opened.session).await
    }

    /// The session of a thread that has one and is the caller's.
    pub(crate) async fn find(
        server: &Arc<Server>,
        caller: &Caller,
        permit: &AdmissionPermit,
        id: &str,
    ) -> Result<Option<Self>, Fault> {
        ids::check_id("threadId", id)?;
        let named: Option<SessionId> = id.parse().ok();
        let own = session_of(&caller.identity, &opening_command(id));
        for session in named.into_iter().chain([own]) {
            match Self::load(server, caller, permit, session).await {
                Err(fault) if fault.kind() == Kind::UnknownSession => {}
                found => return found.map(Some),
            }
        }
        Ok(None)
    }

    /// The session of a thread that must exist.
    ///
    /// # Errors
    /// `unknown_session` if there is none, or if it belongs to another user.
    pub(crate) async fn get(
        server: &Arc<Server>,
        caller: &Caller,
        permit: &AdmissionPermit,
        id: &str,
    ) -> Result<Self, Fault> {
        Self::find(server, caller, permit, id).await?.ok_or_else(|| {
            Fault::new(Kind::UnknownSession, Operation::OpenSession)
                .with(Fact::Session, id.chars().take(80).collect::<String>())
                .with(Fact::Field, "threadId")
                .with(Fact::Constraint, "a thread that exists and is yours")
        })
    }

    /// Loads a session that the caller may use.
    pub(crate) async fn load(
        server: &Arc<Server>,
        caller: &Caller,
        permit: &AdmissionPermit,
        session: SessionId,
    ) -> Result<Self, Fault> {
        let journal = &*server.journal;
        let meta = server.session_meta.check(journal, session, &caller.identity).await?;
        let info =
            journal.info(session).await?.ok_or_else(|| session_meta::unknown_session(session))?;
        let _slot = server.replays.acquire(permit.charge_replay(FOLD_COST_RECORDS)).await;
        let (state, _) = fold(journal, session).await?;
        Ok(Self { session, epoch: info.epoch, meta, state })
    }

    /// Whether no turn runs and none will start.
    pub(crate) fn is_idle(&self) -> bool {
        self.state.turn.is_none() && self.state.queue.is_empty()
    }

    /// Whether the last run may be over: no turn runs and none will start, or the turn may wait for the front end alone.
    pub(crate) fn may_be_over(&self) -> bool {
        let has_questions = self.open_questions().next().is_some();
        self.is_idle() || has_questions || self.open_front_end_calls().next().is_some()
    }

    /// The result of a call that the front end ran; `None` if the thread knows the end of the call.
    ///
    /// # Errors
    /// `constraint_violated` for a call that was never made.
    pub(crate) fn result_of(
        &self,
        field: &str,
        call: CallId,
        report: WorkerReport,
    ) -> Result<Option<RunAction>, Fault> {
        if let Some((_, attempt)) = self.open_front_end_calls().find(|(open, _)| **open == call) {
            return Ok(Some(RunAction::Result { call, attempt, report }));
        }
        let is_it = |block: &Block| matches!(block, Block::ToolUse(made) if made.id == call);
        let made = self.state.history.iter().any(|message| message.content.iter().any(is_it));
        let running = self.state.turn.as_ref().is_some_and(|turn| turn.call(&call).is_some());
        match made || running {
            true => Ok(None),
            false => Err(ids::constraint_fault(
                field,
                "a call of this thread that waits for its result",
                &call.0,
            )),
        }
    }

    /// Refuses a message while a question stays open, and adds failures for calls whose result the front end does not
    /// send. The actions of a run that has already started are returned unchanged.
    ///
    /// # Errors
    /// `constraint_violated` with the open questions that the run does not answer.
    pub(crate) fn complete_actions(
        &self,
        run: &str,
        mut actions: Vec<RunAction>,
    ) -> Result<Vec<RunAction>, Fault> {
        let own = ids::message_command(run);
        let has_started = self.state.turn.as_ref().is_some_and(|turn| turn.message == own);
        if has_started || self.state.queue.iter().any(|queued| queued.command == own) {
            return Ok(actions);
        }
        let Some(message) = actions
            .iter()
            .position(|action| matches!(action, RunAction::Message(_) | RunAction::Retry))
        else {
            return Ok(actions);
        };
        let message = actions.remove(message);
        let answers = |question: &QuestionId| {
            let it = |action: &RunAction| matches!(action, RunAction::Answer { question: answered, .. } if answered == question);
            actions.iter().any(it)
        };
        let open: Vec<&str> =
            self.open_questions().filter(|open| !answers(open)).map(|open| &*open.0).collect();
        if !open.is_empty() {
            let rule = "the open questions are answered before the next message";
            return Err(ids::constraint_fault("resume", rule, &open.join(", ")));
        }
        let has_result = |call: &CallId, actions: &[RunAction]| {
            let it = |action: &RunAction| matches!(action, RunAction::Result { call: ended, .. } if ended == call);
            actions.iter().any(it)
        };
        for (call, attempt) in self.open_front_end_calls() {
            if !has_result(call, &actions) {
                let message = Some(translate("front-end-went-on", Lang::En));
                let report =
                    WorkerReport::Failed(WorkerError { message, ..WorkerError::default() });
                actions.push(RunAction::Result { call: call.clone(), attempt, report });
            }
        }
        actions.push(message);
        Ok(actions)
    }

    fn open_questions(&self) -> impl Iterator<Item = &QuestionId> {
        let calls = self.state.turn.iter().flat_map(|turn| &turn.calls);
        let asked = calls.filter_map(|call| call.open_question().map(|open| open.question));
        let plan = self.state.pipeline.as_ref().and_then(|plan| plan.confirmation.as_ref());
        let plan = plan.filter(|_| self.state.turn.is_some()).map(|open| &open.question);
        asked.chain(plan)
    }

    /// The calls that wait for the front end's result, with their attempts.
    pub(crate) fn open_front_end_calls(&self) -> impl Iterator<Item = (&CallId, u32)> {
        let calls = self.state.turn.iter().flat_map(|turn| &turn.calls);
        calls.filter_map(|Call { id, state, remote, .. }| match (state, remote) {
            (CallState::Started { attempt, .. }, Some(remote))
                if remote.route.worker == WORKER && remote.report.is_none() =>
            {
                Some((id, *attempt))
            }
            _ => None,
        })
    }
}

fn opening_command(id: &str) -> CommandId {
    format!("{THREAD_PREFIX}{id}").into()
}

/// The turn whose answer has this id. Ids of answers begin with `turn-` and the turn's number.
pub(crate) fn turn_of_answer(id: &str) -> Option<u64> {
    let rest = id.strip_prefix("turn-")?;
    let digits = rest.split('.').next()?;
    digits.parse().ok().filter(|turn| *turn > 0)
}

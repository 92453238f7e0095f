//! A person's confirmation of a plan: the question, the decision, and its expiry.

use budao_core::{
    event::{Decision, Event, QuestionId, QuestionPurpose, Stage},
    fault::{Fact, Fault, Kind, Operation},
    message::CallId,
    pipeline::{Confirmation, PLAN, PlanDraft},
    turn,
};
use serde_json::Value;

use crate::{Coordinator, plan};

/// A person's decision on a plan.
pub(super) struct PlanReply {
    pub(super) question: QuestionId,
    pub(super) decision: Decision,
    pub(super) by: String,
    pub(super) note: Option<String>,
    /// The edited plan, if the person changed it.
    pub(super) arguments: Option<Value>,
    /// Binds the decision to the plan that was shown.
    pub(super) digest: Option<String>,
}

impl Coordinator<'_> {
    /// Asks a person to confirm the plan.
    pub(super) fn ask_for(&mut self, draft: &PlanDraft) {
        let (turn, round) = (self.running_turn().number, self.pipeline().round);
        self.emit(Event::QuestionAsked {
            question: QuestionId(format!("ask_plan_{turn}_{round}").into()),
            call: CallId::from(PLAN),
            tool: PLAN.to_owned(),
            arguments: draft.to_arguments(),
            repairs: Vec::new(),
            digest: draft.digest(),
            idempotent: true,
            reason: "the plan must be confirmed before it is carried out".to_owned(),
            purpose: QuestionPurpose::Permission,
            expires_at: self.turn.env().now.after(self.turn.env().limits.question),
        });
    }

    /// Cancels a plan whose confirmation expired.
    pub(super) fn expire_confirmation(&mut self) {
        let Some(confirmation) = self.pipeline().confirmation.clone() else { return };
        if confirmation.expires_at > self.turn.env().now {
            return;
        }
        let Confirmation { question, .. } = confirmation;
        let fault = Fault::new(Kind::QuestionExpired, Operation::AskPermission)
            .with(Fact::ToolName, PLAN)
            .with(Fact::QuestionId, question.to_string());
        self.emit(Event::QuestionExpired { question, call: CallId::from(PLAN) });
        self.emit(Event::PlanCancelled { reason: "nobody confirmed the plan in time".to_owned() });
        self.end_failed(Stage::Planning, fault);
    }

    /// Whether this question is the open confirmation of a plan.
    pub(super) fn is_open(&self, question: &QuestionId) -> bool {
        self.confirmation().is_some_and(|open| open.question == *question)
    }

    fn confirmation(&self) -> Option<&Confirmation> {
        let session = self.turn.session();
        session.turn.as_ref()?;
        session.pipeline.as_ref()?.confirmation.as_ref()
    }

    /// Applies a person's decision on the plan. It counts once, before it expires, and for the plan that was shown.
    pub(super) fn decide(&mut self, reply: PlanReply) -> Result<(), Fault> {
        self.turn.check_nesting(reply.arguments.as_ref())?;
        let Some(open) = self.confirmation().cloned() else { return Ok(()) };
        turn::check_digest(&reply.question, reply.digest.as_deref(), &open.digest)?;
        if open.expires_at <= self.turn.env().now {
            self.expire_confirmation();
            return Err(turn::question_expired(&reply.question));
        }
        let PlanReply { question, decision, by, note, arguments, .. } = reply;
        let edited = match (decision, arguments) {
            (Decision::Allow, Some(tasks)) => read_edited_plan(tasks, &open.draft)?,
            _ => None,
        };
        self.emit(Event::QuestionAnswered {
            question,
            call: CallId::from(PLAN),
            decision,
            by: by.clone(),
            note: note.clone(),
            arguments: edited.as_ref().map(PlanDraft::to_arguments),
        });
        match decision {
            Decision::Allow => self.plan_made(edited.unwrap_or(open.draft)),
            Decision::Deny => {
                let reason = note.unwrap_or_else(|| format!("declined by {by}"));
                self.emit(Event::PlanCancelled { reason });
                self.end_cancelled();
            }
        }
        Ok(())
    }
}

/// The plan as the person edited it; nothing if it is the plan that was shown. An omitted summary stays.
fn read_edited_plan(tasks: Value, shown: &PlanDraft) -> Result<Option<PlanDraft>, Fault> {
    let draft = plan::coerce(tasks)?;
    let summary = match draft.summary.is_empty() {
        true => shown.summary.clone(),
        false => draft.summary,
    };
    let draft = PlanDraft { summary, ..draft };
    Ok(Some(draft).filter(|draft| draft != shown))
}

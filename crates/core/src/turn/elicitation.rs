//! Rules for the input that a running call asks a person for.

use super::{
    CallId, CallState, Event, Fact, Fault, Kind, Operation, QuestionId, Stepper,
    command::{AskedQuestion, DecisionArgs, not_open},
};
use crate::{
    elicitation::Elicitation,
    event::{Decision, QuestionPurpose},
    session::OpenQuestion,
};

/// The most questions for input of one call, over all its attempts.
const QUESTIONS_MAX: usize = 64;

/// The longest reason in a question, in characters.
const REASON_CHARS: usize = 500;

/// The sender of an answer that no person gave.
const NOBODY: &str = "budao";

impl Stepper<'_> {
    /// Asks a person for the input of a running call. A question that an earlier attempt asked is not asked again.
    /// Without an observer, and beyond the most questions of a call, the question is declined at once.
    pub(super) fn input_needed(
        &mut self,
        id: CallId,
        attempt: u32,
        elicitation: &Elicitation,
        digest: String,
    ) {
        let Some(call) = self.turn().call(&id) else { return };
        let is_running =
            matches!(call.state, CallState::Started { attempt: now, .. } if now == attempt);
        if !is_running
            || self.turn().cancelling
            || call.questions.iter().any(|it| it.digest == digest)
        {
            return;
        }
        let number = call.questions.len() + 1;
        let (question, tool) =
            (QuestionId(format!("input_{id}_{number}").into()), call.tool.clone());
        // An earlier attempt waited for it, and this one asks something else.
        self.close_input_questions(&id, |_| true);
        self.emit(Event::QuestionAsked {
            question: question.clone(),
            call: id.clone(),
            tool,
            arguments: elicitation.to_arguments(),
            repairs: Vec::new(),
            digest,
            idempotent: false,
            reason: elicitation.message.chars().take(REASON_CHARS).collect(),
            purpose: QuestionPurpose::Elicitation,
            expires_at: self.env.now.after(self.env.limits.question),
        });
        let refusal = match () {
            () if !self.env.is_observed => Some("no user is connected"),
            () if number > QUESTIONS_MAX => Some("the call has asked too many questions"),
            () => None,
        };
        if let Some(reason) = refusal {
            self.emit(Event::QuestionAnswered {
                question,
                call: id,
                decision: Decision::Deny,
                by: NOBODY.to_owned(),
                note: Some(reason.to_owned()),
                arguments: None,
            });
        }
    }

    /// Records the answer to a question for input. The call goes on with it, whatever it is.
    pub(super) fn answer_elicitation(
        &mut self,
        decided: DecisionArgs,
        open: AskedQuestion,
    ) -> Result<(), Fault> {
        let DecisionArgs { question, decision, by, note, arguments, .. } = decided;
        if self.turn().cancelling {
            return Err(not_open(&question, "its turn is cancelled"));
        }
        let content = match (decision, Elicitation::of_arguments(&open.arguments)) {
            (Decision::Allow, Some(elicitation)) => {
                let completed = elicitation.complete(arguments.as_ref());
                Some(completed.map_err(|mismatches| {
                    let fault = Fault::new(Kind::AnswerDoesNotFit, Operation::AnswerQuestion)
                        .with(Fact::QuestionId, question.to_string());
                    mismatches.into_iter().fold(fault, Fault::mismatch)
                })?)
            }
            (Decision::Allow | Decision::Deny, _) => None,
        };
        let (call, arguments) = (open.call, content.filter(|content| !content.is_null()));
        self.emit(Event::QuestionAnswered { question, call, decision, by, note, arguments });
        Ok(())
    }

    /// Ends the open questions for input of a call without an answer.
    pub(super) fn close_input_questions(
        &mut self,
        id: &CallId,
        ends: impl Fn(&OpenQuestion<'_>) -> bool,
    ) {
        let call = self.session.turn.as_ref().and_then(|turn| turn.call(id));
        let open = call.and_then(crate::session::Call::open_question);
        let is_input = |open: &OpenQuestion<'_>| open.purpose == QuestionPurpose::Elicitation;
        let Some(open) = open.filter(|open| is_input(open) && ends(open)) else { return };
        let (question, call) = (open.question.clone(), id.clone());
        self.emit(Event::QuestionExpired { question, call });
    }
}

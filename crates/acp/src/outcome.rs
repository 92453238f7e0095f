//! Maps the end of a turn to a stop reason or an error. A failure never looks like a finished turn.

use agent_client_protocol::{
    Error,
    v1::schema::{PromptResponse, StopReason as Stop},
};
use budao_core::{
    Lang,
    event::{StopReason, TurnNumber},
    fault::{EditorOutcome, Fault, text},
    trace::Trace,
};
use serde_json::json;

use crate::{bridge::ExecutionError, faults, texts::localize};

/// The end of a turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EndedTurn<'a> {
    pub(crate) turn: TurnNumber,
    pub(crate) trace: Trace,
    pub(crate) stop: StopReason,
    pub(crate) fault: Option<&'a Fault>,
    /// True if the editor requested a cancel of this turn.
    pub(crate) cancelled: bool,
}

/// The answer to a prompt.
#[derive(Debug)]
pub(crate) struct PromptAnswer {
    pub(crate) answer: Result<PromptResponse, Error>,
    /// A sentence to show before the answer, if the answer itself does not explain enough.
    pub(crate) preface: Option<String>,
    /// The stop reason or error code, for the log.
    pub(crate) log_label: String,
}

/// Maps the end of a turn to the answer; the first rule that matches decides.
pub(crate) fn prompt_answer(
    ended: &EndedTurn<'_>,
    error_mode: ExecutionError,
    lang: Lang,
) -> PromptAnswer {
    if ended.cancelled {
        return answer_with_stop(ended, Stop::Cancelled, None);
    }
    let outcome = ended.fault.map(|fault| fault.row().editor);
    match (ended.stop, outcome) {
        (StopReason::Cancelled, _) | (StopReason::Failed, Some(EditorOutcome::Cancelled)) => {
            let mut cancelled = answer_with_stop(ended, Stop::Cancelled, None);
            if let Ok(response) = &mut cancelled.answer
                && let Some(meta) = &mut response.meta
            {
                meta.insert("reason".to_owned(), "stopped by another client".into());
            }
            cancelled
        }
        (StopReason::Refusal, _) | (StopReason::Failed, Some(EditorOutcome::Refusal)) => {
            let text = ended.fault.map(|fault| text::user_text(fault, lang));
            let general = localize(lang, "outcome-the-model-declined-to-answer");
            answer_with_stop(ended, Stop::Refusal, Some(text.unwrap_or_else(|| general.to_owned())))
        }
        (StopReason::MaxTokens, _) | (StopReason::Failed, Some(EditorOutcome::MaxTokens)) => {
            answer_with_stop(ended, Stop::MaxTokens, None)
        }
        (StopReason::MaxTurnRequests, _)
        | (StopReason::Failed, Some(EditorOutcome::MaxTurnRequests)) => {
            answer_with_stop(ended, Stop::MaxTurnRequests, None)
        }
        (StopReason::EndTurn, None) => answer_with_stop(ended, Stop::EndTurn, None),
        (StopReason::EndTurn | StopReason::Failed, _) => answer_with_fault(ended, error_mode, lang),
    }
}

fn answer_with_stop(ended: &EndedTurn<'_>, stop: Stop, preface: Option<String>) -> PromptAnswer {
    let mut meta = serde_json::Map::new();
    meta.insert("turn".to_owned(), ended.turn.into());
    if ended.trace.is_some() {
        meta.insert("trace".to_owned(), ended.trace.to_string().into());
    }
    let log_label =
        serde_json::to_value(stop).ok().and_then(|value| value.as_str().map(str::to_owned));
    PromptAnswer {
        answer: Ok(PromptResponse::new(stop).meta(meta)),
        preface,
        log_label: log_label.unwrap_or_default(),
    }
}

fn answer_with_fault(
    ended: &EndedTurn<'_>,
    error_mode: ExecutionError,
    lang: Lang,
) -> PromptAnswer {
    use budao_core::fault::{Kind, Operation};
    let unnamed =
        || Fault::new(Kind::Bug, Operation::RunTurn).with_cause("a turn failed without a fault");
    let fault = ended.fault.cloned().unwrap_or_else(unnamed).with_trace(ended.trace);
    let mut error = faults::to_error(&fault, lang);
    let log_label = fault.row().code.to_owned();
    // `AUTH_REQUIRED` always stays an error, because the editor needs it to offer sign-in.
    if error_mode == ExecutionError::Refusal
        && error.code != agent_client_protocol::ErrorCode::AUTH_REQUIRED
    {
        let preface = Some(text::user_text(&fault, lang));
        return PromptAnswer { log_label, ..answer_with_stop(ended, Stop::Refusal, preface) };
    }
    if let Some(data) = error.data.as_mut() {
        data["turn"] = json!(ended.turn);
    }
    PromptAnswer { answer: Err(error), preface: None, log_label }
}

#[cfg(test)]
mod tests {
    use budao_core::fault::{Kind, Operation};

    use super::*;

    fn ended(stop: StopReason, fault: Option<&Fault>) -> EndedTurn<'_> {
        EndedTurn { turn: 3, trace: Trace::NONE, stop, fault, cancelled: false }
    }

    fn answer_name(ended: &EndedTurn<'_>, error_mode: ExecutionError) -> String {
        match prompt_answer(ended, error_mode, Lang::En).answer {
            Ok(response) => format!("{:?}", response.stop_reason),
            Err(error) => error.code.value().to_string(),
        }
    }

    #[test]
    fn every_end_of_a_turn_has_its_answer() {
        let table: Vec<String> = [
            (StopReason::EndTurn, None),
            (StopReason::MaxTokens, Some(Kind::OutputLimit)),
            (StopReason::MaxTurnRequests, Some(Kind::StepsExhausted)),
            (StopReason::Refusal, Some(Kind::ModelRefused)),
            (StopReason::Cancelled, None),
            (StopReason::Failed, None),
            (StopReason::Failed, Some(Kind::ModelAuthentication)),
            (StopReason::Failed, Some(Kind::ModelPermission)),
            (StopReason::Failed, Some(Kind::ModelRateLimited)),
            (StopReason::Failed, Some(Kind::BudgetSpent)),
            (StopReason::Failed, Some(Kind::CliExited)),
            (StopReason::Failed, Some(Kind::CliTurnFailed)),
            (StopReason::Failed, Some(Kind::UnknownSession)),
            (StopReason::EndTurn, Some(Kind::CliTurnFailed)),
        ]
        .into_iter()
        .map(|(stop, kind)| {
            let fault = kind.map(|kind| Fault::new(kind, Operation::RunTurn));
            let ended = ended(stop, fault.as_ref());
            let kind = kind.map_or("-".to_owned(), |kind| kind.row().name.to_owned());
            let (error, refusal) = (
                answer_name(&ended, ExecutionError::Error),
                answer_name(&ended, ExecutionError::Refusal),
            );
            format!("{stop:<17} {kind:<20} {error:<15} {refusal}")
        })
        .collect();
        insta::assert_snapshot!(table.join("\n"));
    }

    #[test]
    fn a_turn_the_editor_stopped_is_cancelled_however_it_ended() {
        let fault = Fault::new(Kind::CliTurnFailed, Operation::RunTurn);
        for stop in [StopReason::EndTurn, StopReason::Failed, StopReason::Cancelled] {
            let ended = EndedTurn { cancelled: true, ..ended(stop, Some(&fault)) };
            assert_eq!(answer_name(&ended, ExecutionError::Error), "Cancelled");
            assert_eq!(answer_name(&ended, ExecutionError::Refusal), "Cancelled");
        }
    }

    #[test]
    fn an_error_has_a_description_and_advice() {
        let fault = Fault::new(Kind::ModelRateLimited, Operation::ModelRequest)
            .with(budao_core::fault::Fact::Status, 429)
            .with(budao_core::fault::Fact::Service, "anthropic")
            .attempt(3, 3);
        let answers = [Lang::En, Lang::Zh].map(|lang| {
            prompt_answer(&ended(StopReason::Failed, Some(&fault)), ExecutionError::Error, lang)
                .answer
                .unwrap_err()
        });
        insta::assert_json_snapshot!(answers);
    }
}

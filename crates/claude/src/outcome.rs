//! Maps a CLI result to the stop reason and fault of a turn.
//!
//! A failure never looks like a finished turn: an unknown result is a failure whatever it claims, and so is
//! an execution error in a turn that was not cancelled.

use budao_core::{
    event::StopReason,
    fault::{Fact, Fault, Kind, Operation},
};

use crate::{PROGRAM, SERVICE, wire::TurnReport};

/// An error that the CLI reported in place of an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReportedError {
    /// The CLI's error name, such as `rate_limit` or `authentication_failed`.
    pub(crate) error: String,
    /// The CLI's message, for the operator.
    pub(crate) text: String,
}

/// The CLI's error name for an answer that reached the output limit.
pub(crate) const OUTPUT_LIMIT: &str = "max_output_tokens";

/// Returns the stop reason and fault of a turn that was not cancelled. `last_stop` is the provider's stop reason of
/// the last answer, for a CLI whose result has none.
pub(crate) fn of(
    result: &TurnReport,
    reported: Option<&ReportedError>,
    last_stop: Option<&str>,
) -> (StopReason, Option<Fault>) {
    let error = reported.map_or("", |reported| reported.error.as_str());
    let last_stop = last_stop.filter(|_| result.subtype == "success");
    let stop = result.stop_reason.as_deref().or(last_stop);
    if stop == Some("refusal") {
        return (StopReason::Refusal, Some(fault_of(Kind::ModelRefused, result, reported)));
    }
    if stop == Some("max_tokens") || (result.is_error && error == OUTPUT_LIMIT) {
        return (StopReason::MaxTokens, None);
    }
    match result.subtype.as_str() {
        "error_max_turns" => {
            let fault = fault_of(Kind::StepsExhausted, result, reported)
                .with(Fact::Limit, result.num_turns)
                .with(Fact::LimitName, "max_turns");
            (StopReason::MaxTurnRequests, Some(fault))
        }
        "error_max_budget_usd" => failure(fault_of(Kind::BudgetSpent, result, reported)),
        "success" if !result.is_error => (StopReason::EndTurn, None),
        "success" => failure(fault_of(kind_of(result, error), result, reported)),
        "error_during_execution" => failure(turn_failed("it broke off", result, reported)),
        "error_max_structured_output_retries" => {
            failure(turn_failed("its answers never had the form asked for", result, reported))
        }
        _ => failure(turn_failed("it ended in a way we do not know", result, reported)),
    }
}

fn failure(fault: Fault) -> (StopReason, Option<Fault>) {
    (StopReason::Failed, Some(fault))
}

fn turn_failed(
    reason: &'static str,
    result: &TurnReport,
    reported: Option<&ReportedError>,
) -> Fault {
    let reason = match result.terminal_reason.as_deref() {
        Some(terminal) => format!("{reason} ({terminal})"),
        None => reason.to_owned(),
    };
    fault_of(Kind::CliTurnFailed, result, reported).with(Fact::Reason, reason)
}

/// Creates a fault of this kind with the CLI's message as its cause, cut to 2 000 characters.
fn fault_of(kind: Kind, result: &TurnReport, reported: Option<&ReportedError>) -> Fault {
    let fault = with_service(Fault::new(kind, Operation::ModelRequest));
    let fault = match status_of(result) {
        Some(status) => fault.with(Fact::Status, u64::from(status)),
        None => fault,
    };
    let cause = match result.messages() {
        cause if cause.is_empty() => {
            reported.map(|reported| reported.text.clone()).unwrap_or_default()
        }
        cause => cause,
    };
    let cause = format!("{} {cause}", result.subtype);
    fault.with_cause(cause.chars().take(2_000).collect::<String>())
}

/// Adds the facts `program` and `service`, which the texts of several kinds use.
pub(crate) fn with_service(fault: Fault) -> Fault {
    fault.with(Fact::Program, PROGRAM).with(Fact::Service, SERVICE)
}

fn kind_of(result: &TurnReport, error: &str) -> Kind {
    match result.terminal_reason.as_deref() {
        Some("prompt_too_long" | "blocking_limit") => return Kind::ContextTooLong,
        Some("budget_exhausted") => return Kind::BudgetSpent,
        _ => {}
    }
    kind(status_of(result), error)
}

/// Maps HTTP status and error name of a failed model request to a kind.
pub(crate) fn kind(status: Option<u16>, error: &str) -> Kind {
    match (status, error) {
        (Some(403), _) => Kind::ModelPermission,
        (Some(401), _)
        | (None, "authentication_failed" | "oauth_org_not_allowed" | "cloud_credential_error") => {
            Kind::ModelAuthentication
        }
        (_, "billing_error" | "account_on_hold") => Kind::ModelQuota,
        (_, "verification_required") => Kind::ModelPermission,
        (Some(404), _) | (_, "model_not_found") => Kind::UnknownModel,
        (Some(429), _) | (None, "rate_limit") => Kind::ModelRateLimited,
        (Some(529), _) | (None, "overloaded") => Kind::ModelOverloaded,
        (Some(413), _) => Kind::ContextTooLong,
        (Some(500..), _) | (None, "server_error") => Kind::ModelServerError,
        (Some(400..), _) | (None, "invalid_request") => Kind::ModelBadRequest,
        _ => Kind::CliTurnFailed,
    }
}

/// The kind of a failure that the CLI retries. Without a status, the connection broke.
pub(crate) fn retried_kind(status: Option<u16>, error: &str) -> Kind {
    match kind(status, error) {
        Kind::CliTurnFailed => Kind::ModelStreamCut,
        kind => kind,
    }
}

/// The HTTP status: from its field, or parsed from an older CLI's text (`API Error: 429 …`).
fn status_of(result: &TurnReport) -> Option<u16> {
    result.api_error_status.or_else(|| {
        let (_, after) = result.result.as_deref()?.split_once("API Error: ")?;
        let digits: String = after.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().ok().filter(|status| (400..600).contains(status))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn judged(result: Value, error: Option<&str>) -> (StopReason, Option<Kind>) {
        let result: TurnReport = serde_json::from_value(result).unwrap();
        let reported =
            error.map(|error| ReportedError { error: error.into(), text: String::new() });
        let (stop, fault) = of(&result, reported.as_ref(), None);
        (stop, fault.map(|fault| fault.kind()))
    }

    fn api(status: u16, error: &str) -> (StopReason, Option<Kind>) {
        let result = json!({"subtype": "success", "is_error": true, "stop_reason": "stop_sequence",
            "terminal_reason": "api_error", "api_error_status": status});
        judged(result, Some(error))
    }

    #[test]
    fn failures_of_the_api_are_recognised_although_the_cli_reports_success() {
        let kinds = [
            (429, "rate_limit", Kind::ModelRateLimited),
            (529, "server_error", Kind::ModelOverloaded),
            (500, "server_error", Kind::ModelServerError),
            (401, "authentication_failed", Kind::ModelAuthentication),
            (403, "authentication_failed", Kind::ModelPermission),
            (400, "unknown", Kind::ModelBadRequest),
            (413, "invalid_request", Kind::ContextTooLong),
            (400, "billing_error", Kind::ModelQuota),
            (404, "model_not_found", Kind::UnknownModel),
        ];
        for (status, error, kind) in kinds {
            assert_eq!(api(status, error), (StopReason::Failed, Some(kind)), "{status} {error}");
        }
        let old = json!({"subtype": "success", "is_error": true,
            "result": "API Error: 429 {\"type\":\"error\"}"});
        assert_eq!(judged(old, Some("unknown")).1, Some(Kind::ModelRateLimited));
    }

    #[test]
    fn limits_and_refusals_have_their_own_ends() {
        let limit = json!({"subtype": "success", "is_error": true, "stop_reason": "stop_sequence"});
        assert_eq!(judged(limit, Some("max_output_tokens")), (StopReason::MaxTokens, None));
        let refusal = json!({"subtype": "success", "is_error": true, "stop_reason": "refusal"});
        let refused = (StopReason::Refusal, Some(Kind::ModelRefused));
        assert_eq!(judged(refusal, Some("invalid_request")), refused);
        let steps = json!({"subtype": "error_max_turns", "is_error": true, "num_turns": 3});
        let exhausted = (StopReason::MaxTurnRequests, Some(Kind::StepsExhausted));
        assert_eq!(judged(steps, None), exhausted);
        let budget = json!({"subtype": "error_max_budget_usd", "is_error": true});
        assert_eq!(judged(budget, None), (StopReason::Failed, Some(Kind::BudgetSpent)));
    }

    #[test]
    fn no_failure_looks_like_a_finished_turn() {
        for is_error in [true, false] {
            for subtype in ["error_during_execution", "sideways", ""] {
                let result = json!({"subtype": subtype, "is_error": is_error});
                let failed = (StopReason::Failed, Some(Kind::CliTurnFailed));
                assert_eq!(judged(result, None), failed, "{subtype} {is_error}");
            }
        }
        let done = json!({"subtype": "success", "is_error": false, "stop_reason": "end_turn"});
        assert_eq!(judged(done, None), (StopReason::EndTurn, None));
    }
}

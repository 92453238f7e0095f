//! Permission questions: the options for the editor's user, and the meaning of the answer.

use agent_client_protocol::{
    Error,
    v1::schema::{
        PermissionOption, PermissionOptionKind, RequestPermissionOutcome, RequestPermissionRequest,
        RequestPermissionResponse,
    },
};
use budao_core::{
    Lang,
    event::{Decision, SessionId},
};

use crate::{
    editor_options::SettingsChange,
    project::PermissionRequest,
    texts::{fill, localize},
};

const ALLOW: &str = "allow";
const ALLOW_ALWAYS: &str = "allow_always";
const REJECT: &str = "reject";
const REJECT_ALWAYS: &str = "reject_always";

/// Builds the protocol's request for a question.
pub(crate) fn build_request(
    session: SessionId,
    question: &PermissionRequest,
    lang: Lang,
) -> RequestPermissionRequest {
    let mut options = vec![
        PermissionOption::new(
            ALLOW,
            localize(lang, "permission-allow"),
            PermissionOptionKind::AllowOnce,
        ),
        PermissionOption::new(
            REJECT,
            localize(lang, "permission-reject"),
            PermissionOptionKind::RejectOnce,
        ),
    ];
    if question.allows_rule {
        let tool = &question.tool;
        let named = |id| fill(lang, id, &[("tool", tool.as_str().into())]);
        let (always, never) = (named("permission-always"), named("permission-never"));
        options.insert(
            1,
            PermissionOption::new(ALLOW_ALWAYS, always, PermissionOptionKind::AllowAlways),
        );
        options.push(PermissionOption::new(
            REJECT_ALWAYS,
            never,
            PermissionOptionKind::RejectAlways,
        ));
    }
    RequestPermissionRequest::new(session.to_string(), question.call.clone(), options)
}

/// The user's answer: the decision, a rule for later calls, and a note for the model.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PermissionAnswer {
    pub(crate) decision: Decision,
    pub(crate) rule: Option<SettingsChange>,
    pub(crate) note: Option<&'static str>,
}

/// Reads the answer. Every response except an allowing option is a denial.
pub(crate) fn read_answer(
    answer: &Result<RequestPermissionResponse, Error>,
    tool: &str,
) -> PermissionAnswer {
    let deny = |note| PermissionAnswer { decision: Decision::Deny, rule: None, note: Some(note) };
    let chosen = match answer {
        Ok(RequestPermissionResponse {
            outcome: RequestPermissionOutcome::Selected(selected),
            ..
        }) => selected.option_id.0.as_ref(),
        Ok(_) => return deny("the question was withdrawn in the editor"),
        Err(_) => return deny("the editor could not ask its user"),
    };
    let allow = |rule| PermissionAnswer { decision: Decision::Allow, rule, note: None };
    match chosen {
        ALLOW => allow(None),
        ALLOW_ALWAYS => allow(Some(SettingsChange::AllowTool(tool.to_owned()))),
        REJECT => PermissionAnswer { decision: Decision::Deny, rule: None, note: None },
        REJECT_ALWAYS => PermissionAnswer {
            decision: Decision::Deny,
            rule: Some(SettingsChange::DenyTool(tool.to_owned())),
            note: None,
        },
        _ => deny("the editor chose an unknown option"),
    }
}

#[cfg(test)]
mod tests {
    use agent_client_protocol::v1::schema::SelectedPermissionOutcome;

    use super::*;

    #[test]
    fn only_a_clear_yes_is_a_yes() {
        let selected = |id: &str| {
            let chosen = SelectedPermissionOutcome::new(id.to_owned());
            let outcome = RequestPermissionOutcome::Selected(chosen);
            read_answer(&Ok(RequestPermissionResponse::new(outcome)), "bash_run")
        };
        assert_eq!(selected(ALLOW).decision, Decision::Allow);
        assert_eq!(selected(ALLOW).rule, None);
        let always = selected(ALLOW_ALWAYS);
        assert_eq!(always.rule, Some(SettingsChange::AllowTool("bash_run".into())));
        for no in [REJECT, REJECT_ALWAYS, "", "yes", "Allow"] {
            assert_eq!(selected(no).decision, Decision::Deny, "{no}");
        }
        let cancelled = RequestPermissionResponse::new(RequestPermissionOutcome::Cancelled);
        assert_eq!(read_answer(&Ok(cancelled), "x").decision, Decision::Deny);
        assert_eq!(read_answer(&Err(Error::internal_error()), "x").decision, Decision::Deny);
    }
}

//! Questions of a tool server for input, which it asks in the middle of a call.
//!
//! An editor with forms shows the form. Any other editor shows one field after the other, each as a request with
//! numbered options; a field that needs typed text has only its default, or can be left out. An address is always a
//! request with its host and two options.

use agent_client_protocol::{
    Error,
    v1::schema::{
        CreateElicitationRequest, CreateElicitationResponse, ElicitationAction,
        ElicitationFormMode, ElicitationSchema, ElicitationScope, ElicitationSessionScope,
        PermissionOption, PermissionOptionKind, RequestPermissionOutcome, RequestPermissionRequest,
        RequestPermissionResponse,
    },
};
use budao_core::{
    Lang,
    elicitation::{Elicitation, FieldKind, FormField},
    event::SessionId,
};
use serde_json::{Map, Value, json};

use crate::{
    project::PermissionRequest,
    texts::{fill, localize},
    user_question::UserAnswer,
};

/// Id of the option that declines.
const DECLINE: &str = "decline";
/// How often a form is shown again after an answer that does not fit.
const TRIES_MAX: u32 = 3;

/// A question of a server, and the values so far.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct InputQuestion {
    asked: Elicitation,
    values: Map<String, Value>,
    /// The fields that are answered, of an editor without forms.
    answered: usize,
    tries: u32,
}

/// The question in one line, with its server and the host of an address.
pub(crate) fn headline(asked: &Elicitation, lang: Lang) -> String {
    let args = [
        ("server", asked.server.clone().into()),
        ("message", asked.message.clone().into()),
        ("host", asked.host.clone().unwrap_or_default().into()),
        ("url", asked.url.clone().unwrap_or_default().into()),
    ];
    fill(lang, if asked.url.is_some() { "input-address" } else { "input-question" }, &args)
}

impl InputQuestion {
    pub(crate) fn new(asked: Elicitation) -> Self {
        Self { asked, values: Map::new(), answered: 0, tries: 0 }
    }

    /// Whether a form can show the question.
    pub(crate) fn is_form(&self) -> bool {
        !self.asked.fields.is_empty()
    }

    /// The form of the server, with the same fields.
    pub(crate) fn form_request(
        &self,
        session: SessionId,
        request: &PermissionRequest,
        lang: Lang,
    ) -> Option<CreateElicitationRequest> {
        let schema: ElicitationSchema = serde_json::from_value(self.asked.to_schema()).ok()?;
        let scope = ElicitationSessionScope::new(session.to_string())
            .tool_call_id(request.call.tool_call_id.clone());
        let mode = ElicitationFormMode::new(ElicitationScope::Session(scope), schema);
        Some(CreateElicitationRequest::new(mode, headline(&self.asked, lang)))
    }

    /// Reads the filled form. `Err` if the editor could not show it.
    pub(crate) fn read_form(
        &mut self,
        answer: &Result<CreateElicitationResponse, Error>,
    ) -> Result<UserAnswer, ()> {
        let content = match answer {
            Ok(response) => match &response.action {
                ElicitationAction::Accept(accepted) => accepted.content.clone().unwrap_or_default(),
                _ => return Ok(UserAnswer::Declined("The user declined to answer.")),
            },
            Err(_) => return Err(()),
        };
        let content = serde_json::to_value(content).unwrap_or_default();
        self.tries += 1;
        Ok(match self.asked.complete(Some(&content)) {
            Ok(values) => UserAnswer::Complete(values),
            Err(_) if self.tries < TRIES_MAX => UserAnswer::Next,
            Err(_) => UserAnswer::Declined("The user's answer does not fit the form."),
        })
    }

    /// The next field, or the address, as a request with numbered options.
    pub(crate) fn numbered_request(
        &self,
        session: SessionId,
        request: &PermissionRequest,
        lang: Lang,
    ) -> RequestPermissionRequest {
        let mut call = request.call.clone();
        let title = headline(&self.asked, lang);
        let choices = self.next_options(lang);
        let mut text = title.clone();
        if let Some(field) = self.asked.fields.get(self.answered) {
            text.push_str(&format!("\n{}: {}", field.title, field.expected()));
            text.extend(field.description.iter().map(|about| format!(" — {about}")));
        }
        let mut options = Vec::new();
        for (index, (label, _)) in choices.iter().enumerate() {
            let name = format!("{}. {label}", index + 1);
            text.push_str(&format!("\n{name}"));
            let kind = PermissionOptionKind::AllowOnce;
            options.push(PermissionOption::new(index.to_string(), name, kind));
        }
        call.fields = call.fields.title(title).content(vec![text.into()]);
        let decline = localize(lang, "user-question-do-not-answer");
        options.push(PermissionOption::new(DECLINE, decline, PermissionOptionKind::RejectOnce));
        RequestPermissionRequest::new(session.to_string(), call, options)
    }

    /// Reads the chosen option. Anything other than one of the options declines.
    pub(crate) fn read_option(
        &mut self,
        answer: &Result<RequestPermissionResponse, Error>,
        lang: Lang,
    ) -> UserAnswer {
        let chosen = match answer {
            Ok(RequestPermissionResponse {
                outcome: RequestPermissionOutcome::Selected(selected),
                ..
            }) => selected.option_id.0.parse::<usize>().ok(),
            Ok(_) | Err(_) => None,
        };
        let choice = chosen.and_then(|index| self.next_options(lang).into_iter().nth(index));
        let Some((_, value)) = choice else {
            return UserAnswer::Declined("The user declined to answer.");
        };
        if let (Some(field), Some(value)) = (self.asked.fields.get(self.answered), value) {
            self.values.insert(field.name.clone(), value);
        }
        self.answered += 1;
        if self.answered < self.asked.fields.len() {
            return UserAnswer::Next;
        }
        match self.asked.complete(Some(&Value::Object(self.values.clone()))) {
            Ok(values) => UserAnswer::Complete(values),
            Err(_) => UserAnswer::Declined("The editor has no form for the answer."),
        }
    }

    /// The options for the next field, each with its value; one without a value leaves the field out.
    fn next_options(&self, lang: Lang) -> Vec<(String, Option<Value>)> {
        let Some(field) = self.asked.fields.get(self.answered) else {
            let id = if self.asked.url.is_some() { "input-opened" } else { "input-yes" };
            return vec![(localize(lang, id).to_owned(), None)];
        };
        let mut choices = field_options(field);
        if !field.required {
            choices.push((localize(lang, "input-leave-out").to_owned(), None));
        }
        choices
    }
}

/// The values of a field that need no typing.
fn field_options(field: &FormField) -> Vec<(String, Option<Value>)> {
    match &field.kind {
        FieldKind::Boolean => {
            vec![("true".to_owned(), Some(json!(true))), ("false".to_owned(), Some(json!(false)))]
        }
        FieldKind::Choice { options } => {
            options.iter().map(|it| (it.title.clone(), Some(json!(it.value)))).collect()
        }
        FieldKind::Choices { options, .. } => {
            options.iter().map(|it| (it.title.clone(), Some(json!([it.value])))).collect()
        }
        FieldKind::Text { .. } | FieldKind::Number { .. } => {
            let default = field.default.iter();
            default.map(|value| (value.to_string(), Some(value.clone()))).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use agent_client_protocol::v1::schema::SelectedPermissionOutcome;

    use super::*;

    fn chosen(id: &str) -> Result<RequestPermissionResponse, Error> {
        let selected = SelectedPermissionOutcome::new(id.to_owned());
        Ok(RequestPermissionResponse::new(RequestPermissionOutcome::Selected(selected)))
    }

    fn question(properties: &Value, required: &[&str]) -> InputQuestion {
        let schema = json!({ "type": "object", "properties": properties, "required": required });
        InputQuestion::new(Elicitation::form("shop", "What?", &schema).unwrap())
    }

    fn pick(question: &mut InputQuestion, id: &str) -> UserAnswer {
        question.read_option(&chosen(id), Lang::En)
    }

    #[test]
    fn fields_are_answered_one_after_the_other_by_number() {
        let properties = json!({
            "size": { "type": "string", "enum": ["s", "l"] },
            "gift": { "type": "boolean" },
            "count": { "type": "integer", "default": 2 },
        });
        let mut asked = question(&properties, &["size"]);
        assert_eq!(pick(&mut asked, "1"), UserAnswer::Next);
        // The third option of a value that is not required leaves it out.
        assert_eq!(pick(&mut asked, "2"), UserAnswer::Next);
        let values = json!({ "size": "l", "count": 2 });
        assert_eq!(pick(&mut asked, "0"), UserAnswer::Complete(values));
        let mut asked = question(&properties, &["size"]);
        assert!(matches!(pick(&mut asked, DECLINE), UserAnswer::Declined(_)));
        let mut asked = question(&properties, &["size"]);
        assert!(matches!(pick(&mut asked, "7"), UserAnswer::Declined(_)));
    }

    #[test]
    fn a_text_that_must_be_typed_cannot_be_answered_by_number() {
        let asked = question(&json!({ "name": { "type": "string" } }), &["name"]);
        assert!(asked.next_options(Lang::En).is_empty());
    }

    #[test]
    fn an_address_has_one_way_to_accept() {
        let address = Elicitation::address("s", "Sign in", "https://a.example/x", "a.example");
        let mut asked = InputQuestion::new(address.unwrap());
        assert!(!asked.is_form());
        assert!(headline(&asked.asked, Lang::En).contains("a.example"));
        assert_eq!(pick(&mut asked, "0"), UserAnswer::Complete(Value::Null));
    }
}

//! Questions of the model to the person, which the Claude CLI asks with its tool `AskUserQuestion`.
//!
//! An editor with forms shows all questions in one form. Any other editor shows them one after the other, each as
//! a request with numbered options.

use agent_client_protocol::{
    Error,
    v1::schema::{
        CreateElicitationRequest, CreateElicitationResponse, ElicitationAction,
        ElicitationContentValue, ElicitationFormMode, ElicitationSchema, ElicitationScope,
        ElicitationSessionScope, EnumOption, MultiSelectPropertySchema, PermissionOption,
        PermissionOptionKind, RequestPermissionOutcome, RequestPermissionRequest,
        RequestPermissionResponse, StringPropertySchema,
    },
};
use budao_core::{Lang, event::SessionId};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{project::PermissionRequest, texts::localize};

/// The tool with which the model asks.
const TOOL: &str = "AskUserQuestion";
/// Upper bounds of a call that is shown as questions; beyond them it is an ordinary permission request.
const QUESTIONS_MAX: usize = 16;
const OPTIONS_MAX: usize = 32;
/// Id of the option that skips the question.
const SKIP: &str = "skip";

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
struct Choice {
    label: String,
    #[serde(default)]
    description: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct UserQuestion {
    question: String,
    #[serde(default)]
    header: String,
    options: Vec<Choice>,
    #[serde(default)]
    multi_select: bool,
}

/// The questions of one call, and the answers so far.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct UserQuestions {
    arguments: Value,
    questions: Vec<UserQuestion>,
    answers: Vec<String>,
}

/// The consequence of one answer of the person.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum UserAnswer {
    /// All questions are answered; the arguments of the call, with the answers.
    Complete(Value),
    /// The next question is to be asked.
    Next,
    /// The person does not answer; a note for the model.
    Declined(&'static str),
}

impl UserQuestions {
    /// Reads the questions of a call; `None` if it is another tool, or cannot be shown as questions.
    pub(crate) fn read(request: &PermissionRequest) -> Option<Self> {
        if request.tool != TOOL {
            return None;
        }
        let arguments = request.call.fields.raw_input.clone()?;
        let questions: Vec<UserQuestion> =
            serde_json::from_value(arguments["questions"].clone()).ok()?;
        let fits = |question: &UserQuestion| (1..=OPTIONS_MAX).contains(&question.options.len());
        let can_show = (1..=QUESTIONS_MAX).contains(&questions.len()) && questions.iter().all(fits);
        can_show.then(|| Self { arguments, questions, answers: Vec::new() })
    }

    /// One form with all questions; each has a list and a field for another answer.
    pub(crate) fn form_request(
        &self,
        session: SessionId,
        request: &PermissionRequest,
        lang: Lang,
    ) -> CreateElicitationRequest {
        let mut schema = ElicitationSchema::new();
        for (index, question) in self.questions.iter().enumerate() {
            let (list, other) = field_names(index);
            let options: Vec<_> = question.options.iter().map(enum_option).collect();
            let title = Some(question.header.clone()).filter(|header| !header.is_empty());
            let about = question.question.clone();
            schema = match question.multi_select {
                true => {
                    let list_schema = MultiSelectPropertySchema::titled(options);
                    schema.property(list, list_schema.title(title).description(about), false)
                }
                false => {
                    let list_schema = StringPropertySchema::new().one_of(options);
                    schema.property(list, list_schema.title(title).description(about), false)
                }
            };
            let title = localize(lang, "user-question-another-answer").to_owned();
            schema = schema.property(other, StringPropertySchema::new().title(title), false);
        }
        let scope = ElicitationSessionScope::new(session.to_string())
            .tool_call_id(request.call.tool_call_id.clone());
        let mode = ElicitationFormMode::new(ElicitationScope::Session(scope), schema);
        let message = match self.questions.as_slice() {
            [only] => only.question.clone(),
            _ => localize(lang, "user-question-the-agent-asks").to_owned(),
        };
        CreateElicitationRequest::new(mode, message)
    }

    /// Reads the filled form. `Err` if the editor could not show it.
    pub(crate) fn read_form(
        &mut self,
        answer: &Result<CreateElicitationResponse, Error>,
    ) -> Result<UserAnswer, ()> {
        let content = match answer {
            Ok(response) => match &response.action {
                ElicitationAction::Accept(accepted) => accepted.content.clone().unwrap_or_default(),
                _ => return Ok(UserAnswer::Declined("The user did not answer the questions.")),
            },
            Err(_) => return Err(()),
        };
        for index in 0..self.questions.len() {
            let (list, other) = field_names(index);
            let text = |name: &str| content.get(name).map(answer_text).filter(|it| !it.is_empty());
            let Some(answer) = text(&other).or_else(|| text(&list)) else {
                return Ok(UserAnswer::Declined("The user left a question without an answer."));
            };
            self.answers.push(answer);
        }
        Ok(UserAnswer::Complete(self.answered_arguments()))
    }

    /// The next question as a request with numbered options.
    pub(crate) fn numbered_request(
        &self,
        session: SessionId,
        request: &PermissionRequest,
        lang: Lang,
    ) -> RequestPermissionRequest {
        let mut call = request.call.clone();
        let mut options = Vec::new();
        if let Some(question) = self.questions.get(self.answers.len()) {
            call.fields =
                call.fields.title(question.question.clone()).content(vec![question.text().into()]);
            let number = |(index, choice): (usize, &Choice)| {
                let name = format!("{}. {}", index + 1, choice.label);
                PermissionOption::new(index.to_string(), name, PermissionOptionKind::AllowOnce)
            };
            options.extend(question.options.iter().enumerate().map(number));
        }
        let skip = localize(lang, "user-question-do-not-answer");
        options.push(PermissionOption::new(SKIP, skip, PermissionOptionKind::RejectOnce));
        RequestPermissionRequest::new(session.to_string(), call, options)
    }

    /// Reads the chosen option. Any other response counts as declined.
    pub(crate) fn read_option(
        &mut self,
        answer: &Result<RequestPermissionResponse, Error>,
    ) -> UserAnswer {
        let chosen = match answer {
            Ok(RequestPermissionResponse {
                outcome: RequestPermissionOutcome::Selected(selected),
                ..
            }) => selected.option_id.0.parse::<usize>().ok(),
            Ok(_) | Err(_) => None,
        };
        let question = self.questions.get(self.answers.len());
        let choice = chosen.and_then(|index| question?.options.get(index));
        let Some(choice) = choice else {
            return UserAnswer::Declined("The user did not answer the question.");
        };
        self.answers.push(choice.label.clone());
        match self.answers.len() == self.questions.len() {
            true => UserAnswer::Complete(self.answered_arguments()),
            false => UserAnswer::Next,
        }
    }

    /// The call's arguments with the answers, in the form that the CLI reads.
    fn answered_arguments(&self) -> Value {
        let mut arguments = self.arguments.clone();
        let pairs = self.questions.iter().zip(&self.answers);
        arguments["answers"] =
            pairs.map(|(question, answer)| (question.question.clone(), json!(answer))).collect();
        arguments
    }
}

impl UserQuestion {
    /// The question with its numbered options, as text.
    fn text(&self) -> String {
        let mut text = self.question.clone();
        for (index, choice) in self.options.iter().enumerate() {
            text.push_str(&format!("\n{}. {}", index + 1, choice.label));
            if !choice.description.is_empty() {
                text.push_str(&format!(" — {}", choice.description));
            }
        }
        text
    }
}

/// Names of a question's two fields in the form.
fn field_names(index: usize) -> (String, String) {
    (format!("question_{}", index + 1), format!("question_{}_other", index + 1))
}

fn enum_option(choice: &Choice) -> EnumOption {
    let about = Some(choice.description.clone()).filter(|about| !about.is_empty());
    EnumOption::new(choice.label.clone(), choice.label.clone()).description(about)
}

fn answer_text(value: &ElicitationContentValue) -> String {
    match value {
        ElicitationContentValue::String(text) => text.trim().to_owned(),
        ElicitationContentValue::StringArray(texts) => texts.join(", "),
        ElicitationContentValue::Integer(number) => number.to_string(),
        ElicitationContentValue::Number(number) => number.to_string(),
        ElicitationContentValue::Boolean(is_true) => is_true.to_string(),
        _ => String::new(),
    }
}

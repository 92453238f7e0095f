//! Questions to the editor's user: permissions, and questions of the model and of tool servers.

use agent_client_protocol::{
    Error, JsonRpcRequest, RequestCancellationHandle,
    v1::schema::{CreateElicitationRequest, CreateElicitationResponse, RequestPermissionResponse},
};
use budao_core::{
    Lang,
    event::{CommandBody as EngineCommand, Decision, QuestionId, SessionId},
};
use serde_json::Value;

use super::{EditorSession, SettingsResponder};
use crate::{
    command_queue::QueuedCommand,
    input_question::InputQuestion,
    permission,
    project::PermissionRequest,
    user_question::{UserAnswer, UserQuestions},
};

/// Upper bound of open questions.
pub(super) const OPEN_QUESTIONS_MAX: usize = 256;

/// An answer of the editor to a question.
#[derive(Debug)]
pub(super) enum EditorAnswer {
    Permission(Result<RequestPermissionResponse, Error>),
    Form(Result<CreateElicitationResponse, Error>),
}

/// The editor's answer, with its question.
pub(super) type EditorReply = (QuestionId, EditorAnswer);

/// An open question. It is sent to the editor once the session is live.
pub(super) struct Question {
    request: PermissionRequest,
    /// The questions of the model or of a tool server; `None` for a permission.
    input: Option<InputRequest>,
    /// The editor could not show the form.
    is_form_refused: bool,
    cancellation: Option<RequestCancellationHandle>,
}

/// A request for input, as opposed to a permission.
enum InputRequest {
    /// Questions of the model.
    Model(UserQuestions),
    /// A question of a tool server for input.
    Server(InputQuestion),
}

impl InputRequest {
    fn read(request: &PermissionRequest) -> Option<Self> {
        match &request.elicitation {
            Some(asked) => Some(Self::Server(InputQuestion::new(asked.clone()))),
            None => UserQuestions::read(request).map(Self::Model),
        }
    }

    /// The question as one form; `None` if no form can show it.
    fn form_request(
        &self,
        session: SessionId,
        request: &PermissionRequest,
        lang: Lang,
    ) -> Option<CreateElicitationRequest> {
        match self {
            Self::Model(questions) => Some(questions.form_request(session, request, lang)),
            Self::Server(question) if !question.is_form() => None,
            Self::Server(question) => question.form_request(session, request, lang),
        }
    }

    /// Reads the editor's answer. `Err` if it could not show the form.
    fn read_answer(&mut self, answer: &EditorAnswer, lang: Lang) -> Result<UserAnswer, ()> {
        match (self, answer) {
            (Self::Model(questions), EditorAnswer::Form(answer)) => questions.read_form(answer),
            (Self::Server(question), EditorAnswer::Form(answer)) => question.read_form(answer),
            (Self::Model(questions), EditorAnswer::Permission(answer)) => {
                Ok(questions.read_option(answer))
            }
            (Self::Server(question), EditorAnswer::Permission(answer)) => {
                Ok(question.read_option(answer, lang))
            }
        }
    }
}

impl EditorSession {
    /// Stores a question, and sends it to the editor unless a replay runs or the turn is hidden.
    pub(super) fn add_question(&mut self, request: PermissionRequest, is_hidden: bool) {
        let id = request.question.clone();
        let input = InputRequest::read(&request);
        let question = Question { request, input, is_form_refused: false, cancellation: None };
        self.questions.insert(id.clone(), question);
        if is_hidden {
            self.decide(
                &id,
                Decision::Deny,
                Some("the editor no longer waits for an answer"),
                None,
            );
        } else if self.replay.is_none() {
            self.ask(&id);
        }
    }

    pub(super) fn withdraw_question(&mut self, question: &QuestionId) {
        if let Some(Question { cancellation: Some(handle), .. }) = self.questions.remove(question)
            && let Err(error) = handle.cancel()
        {
            tracing::debug!(%error, "question dropped: editor disconnected");
        }
    }

    /// Asks the editor's user. Any failure counts as a denial.
    pub(super) fn ask(&mut self, question: &QuestionId) {
        let Some(open) = self.questions.get(question) else { return };
        let (session, lang) = (self.session, self.bridge.lang);
        let has_forms = self.editor_capabilities.forms && !open.is_form_refused;
        let form = open.input.as_ref().filter(|_| has_forms);
        let form = form.and_then(|input| input.form_request(session, &open.request, lang));
        let request = match (form, &open.input) {
            (Some(form), _) => return self.send_question(question, form, EditorAnswer::Form),
            (None, Some(InputRequest::Model(questions))) => {
                questions.numbered_request(session, &open.request, lang)
            }
            (None, Some(InputRequest::Server(input))) => {
                input.numbered_request(session, &open.request, lang)
            }
            (None, None) => permission::build_request(session, &open.request, lang),
        };
        self.send_question(question, request, EditorAnswer::Permission);
    }

    fn send_question<R: JsonRpcRequest>(
        &mut self,
        question: &QuestionId,
        request: R,
        wrap: impl FnOnce(Result<R::Response, Error>) -> EditorAnswer + Send + 'static,
    ) {
        self.outbox.flush();
        // The channel slot is reserved now, so that the answer cannot be lost.
        let Ok(room) = self.answer_sender.clone().try_reserve_owned() else {
            return self.decide(
                question,
                Decision::Deny,
                Some("too many questions are open"),
                None,
            );
        };
        let prepared = self.outbox.connection().prepare_request(request);
        let handle = prepared.cancellation_handle();
        if let Some(open) = self.questions.get_mut(question) {
            open.cancellation = Some(handle);
        }
        let id = question.clone();
        let sent = prepared.on_receiving_result(async move |answer| {
            room.send((id, wrap(answer)));
            Ok(())
        });
        if sent.is_err() {
            self.decide(question, Decision::Deny, Some("the editor is gone"), None);
        }
    }

    pub(super) fn handle_answer(&mut self, question: &QuestionId, answer: &EditorAnswer) {
        let Some(open) = self.questions.get_mut(question) else { return };
        open.cancellation = None;
        let answered = match (&mut open.input, answer) {
            (Some(input), answer) => match input.read_answer(answer, self.bridge.lang) {
                Ok(answered) => answered,
                Err(()) => {
                    open.is_form_refused = true;
                    UserAnswer::Next
                }
            },
            (None, EditorAnswer::Permission(answer)) => {
                let read = permission::read_answer(answer, &open.request.tool);
                if let Some(rule) = read.rule {
                    self.queue_settings_change(rule, SettingsResponder::None);
                }
                return self.decide(question, read.decision, read.note, None);
            }
            (None, EditorAnswer::Form(_)) => return,
        };
        match answered {
            UserAnswer::Next => self.ask(question),
            UserAnswer::Complete(arguments) => {
                self.decide(question, Decision::Allow, None, Some(arguments));
            }
            UserAnswer::Declined(note) => {
                self.decide(question, Decision::Deny, Some(note), None);
            }
        }
    }

    pub(super) fn decide(
        &mut self,
        question: &QuestionId,
        decision: Decision,
        note: Option<&str>,
        arguments: Option<Value>,
    ) {
        let Some(open) = self.questions.get(question) else { return };
        let body = EngineCommand::Decide {
            question: question.clone(),
            decision,
            note: note.map(str::to_owned),
            arguments,
            digest: Some(open.request.digest.clone()),
        };
        self.commands.push(QueuedCommand::Decide { body });
    }
}

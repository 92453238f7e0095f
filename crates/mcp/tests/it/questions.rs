//! Questions of servers to people, and requests for texts of a model, of servers of both eras.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use budao_core::{
    elicitation::{Elicitation, ElicitationAnswer},
    fault::{Fault, Kind},
    tool::Todo,
};
use budao_mcp::{McpServerConfig, SamplingMode, ServerHandle};
use budao_testkit::mcp::TaskFolder;
use budao_tools::{CallContext, Memory, Note, NoteSender, Sample, SampleRequest, isolation};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::common::{call_with, connect, done, failed, fake, seen, within};

/// A session with a person who gives one answer to every question, once they are let.
#[derive(Debug)]
pub(crate) struct Person {
    answer: ElicitationAnswer,
    asked: Mutex<Vec<(Elicitation, String)>>,
    sampled: Mutex<Vec<SampleRequest>>,
    checkpoints: Mutex<Vec<Value>>,
    /// Set while the person is away: a question waits.
    is_away: bool,
    was_asked: Notify,
}

impl Person {
    pub(crate) fn new(answer: ElicitationAnswer) -> Arc<Self> {
        Arc::new(Self::away(answer, false))
    }

    fn away(answer: ElicitationAnswer, is_away: bool) -> Self {
        Self {
            answer,
            asked: Mutex::default(),
            sampled: Mutex::default(),
            checkpoints: Mutex::default(),
            is_away,
            was_asked: Notify::new(),
        }
    }

    pub(crate) fn context(self: &Arc<Self>) -> CallContext {
        CallContext { memory: Arc::clone(self) as _, ..isolation::context() }
    }

    pub(crate) fn questions(&self) -> Vec<Elicitation> {
        self.asked.lock().unwrap().iter().map(|(asked, _)| asked.clone()).collect()
    }
}

#[async_trait]
impl Memory for Person {
    fn todos(&self) -> Vec<Todo> {
        Vec::new()
    }

    fn seen_digest(&self, _path: &str) -> Option<Option<String>> {
        None
    }

    async fn checkpoint(&self, data: Value) -> bool {
        self.checkpoints.lock().unwrap().push(data);
        true
    }

    async fn last_checkpoint(&self) -> Option<Value> {
        self.checkpoints.lock().unwrap().last().cloned()
    }

    async fn ask_person(&self, elicitation: &Elicitation, place: &str) -> ElicitationAnswer {
        self.asked.lock().unwrap().push((elicitation.clone(), place.to_owned()));
        self.was_asked.notify_one();
        if self.is_away {
            std::future::pending::<()>().await;
        }
        self.answer.clone()
    }

    async fn sample(
        &self,
        request: SampleRequest,
        _cancel: &CancellationToken,
    ) -> Result<Sample, Fault> {
        self.sampled.lock().unwrap().push(request);
        Ok(Sample { text: "42".to_owned(), model: "m".to_owned() })
    }
}

/// Lets the fake ask something in the middle of a call. Returns the client's answer.
async fn ask(server: &ServerHandle, method: &str, params: Value, context: CallContext) -> Value {
    let arguments = json!({ "method": method, "params": params });
    let answer = done(call_with(server, "ask", arguments, context).await);
    serde_json::from_str::<Value>(answer.as_str().unwrap()).unwrap()
}

const ELICIT: &str = "elicitation/create";

fn form(properties: &Value) -> Value {
    json!({ "message": "Who?", "requestedSchema": { "type": "object", "properties": properties } })
}

#[tokio::test]
async fn a_form_reaches_the_person_behind_the_call_and_the_answer_the_server() {
    let server = connect(fake(&[])).await;
    let person = Person::new(ElicitationAnswer::Accepted(json!({ "name": "Ann" })));
    let params = form(&json!({ "name": { "type": "string", "title": "Your name" } }));
    let answer = ask(&server, ELICIT, params, person.context()).await;
    assert_eq!(answer["result"], json!({ "action": "accept", "content": { "name": "Ann" } }));
    let asked = &person.questions()[0];
    assert_eq!((&*asked.server, &*asked.message), ("fake", "Who?"));
    assert_eq!(asked.fields[0].title, "Your name");
    let hello = &seen(&server, "initialize").await[0];
    let capabilities = &hello["params"]["capabilities"];
    assert_eq!(capabilities["elicitation"], json!({ "form": {}, "url": {} }));
    assert!(capabilities["sampling"].is_null(), "{capabilities}");
    within(server.shutdown()).await;
}

#[tokio::test]
async fn a_decline_and_an_expiry_are_distinguished() {
    let server = connect(fake(&[])).await;
    for (answer, action) in
        [(ElicitationAnswer::Declined, "decline"), (ElicitationAnswer::Expired, "cancel")]
    {
        let person = Person::new(answer);
        let said = ask(&server, ELICIT, form(&json!({})), person.context()).await;
        assert_eq!(said["result"], json!({ "action": action }));
    }
    within(server.shutdown()).await;
}

#[tokio::test]
async fn an_address_is_put_to_the_person_with_its_host() {
    let server = connect(fake(&[])).await;
    let person = Person::new(ElicitationAnswer::Accepted(Value::Null));
    let params = json!({
        "mode": "url", "message": "Sign in", "url": "https://login.example/a?b=c", "elicitationId": "e1",
    });
    let answer = ask(&server, ELICIT, params, person.context()).await;
    assert_eq!(answer["result"], json!({ "action": "accept" }));
    assert_eq!(person.questions()[0].host.as_deref(), Some("login.example"));
    let params = json!({
        "mode": "url", "message": "Open", "url": "file:///etc/passwd", "elicitationId": "e2",
    });
    let answer = ask(&server, ELICIT, params, person.context()).await;
    assert_eq!(answer["result"], json!({ "action": "decline" }));
    assert_eq!(person.questions().len(), 1, "nobody is asked to open that");
    within(server.shutdown()).await;
}

#[tokio::test]
async fn a_call_that_needs_an_address_opened_first_is_made_again_once_the_person_has() {
    let address = json!({
        "mode": "url", "message": "Sign in", "url": "https://login.example/a", "elicitationId": "e1",
    });
    let arguments = json!({ "code": -32042, "data": { "elicitations": [address] } });
    let server = connect(fake(&[])).await;
    let person = Person::new(ElicitationAnswer::Accepted(Value::Null));
    let answer = done(call_with(&server, "error", arguments.clone(), person.context()).await);
    assert_eq!(answer, json!("done"));
    assert_eq!(person.questions()[0].host.as_deref(), Some("login.example"));
    within(server.shutdown()).await;

    let server = connect(fake(&[])).await;
    let no = Person::new(ElicitationAnswer::Declined);
    let fault = failed(call_with(&server, "error", arguments, no.context()).await).fault;
    assert_eq!(fault.kind(), Kind::UpstreamSignInNeeded, "{fault}");
    within(server.shutdown()).await;
}

/// Asks with parameters that no person should see. Returns what the person is shown instead.
async fn refused(params: Value) -> String {
    let server = connect(fake(&[])).await;
    let person = Person::new(ElicitationAnswer::Accepted(json!({})));
    let (notes, mut shown) = NoteSender::channel(64);
    let context = CallContext { notes, ..person.context() };
    let answer = ask(&server, ELICIT, params, context).await;
    assert_eq!(answer["result"], json!({ "action": "decline" }), "{answer}");
    assert!(person.questions().is_empty());
    within(server.shutdown()).await;
    match shown.recv().await {
        Some(Note::Output(text)) => text,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_request_for_a_password_is_declined_and_reported() {
    let password = json!({ "password": { "type": "string" } });
    let told = refused(form(&password)).await;
    assert!(told.contains("fake") && told.contains("secret"), "{told}");
    // A format that the protocol does not have.
    let hidden = json!({ "word": { "type": "string", "format": "password" } });
    let told = refused(form(&hidden)).await;
    assert!(told.contains("fake") && told.contains("secret"), "{told}");
}

#[tokio::test]
async fn a_schema_bomb_is_declined_and_the_call_goes_on() {
    let deep = (0..20).fold(
        json!({ "type": "string" }),
        |inner, _| json!({ "type": "object", "properties": { "a": inner } }),
    );
    let told = refused(form(&json!({ "a": deep }))).await;
    assert!(told.contains("fake"), "{told}");
    let wide: serde_json::Map<String, Value> =
        (0..10_000).map(|n| (format!("f{n}"), json!({ "type": "string" }))).collect();
    let told = refused(form(&wide.into())).await;
    assert!(told.contains("fake"), "{told}");
    let itself = json!({ "a": { "$ref": "#/properties/a" } });
    let told = refused(form(&itself)).await;
    assert!(told.contains("fake"), "{told}");
}

#[tokio::test]
async fn a_question_that_may_be_of_either_of_two_calls_is_declined() {
    let server = connect(fake(&[])).await;
    let other = CallContext { idempotency_key: "other".into(), ..isolation::context() };
    let cancel = other.cancel.clone();
    let slow = call_with(&server, "slow", json!({}), other);
    let person = Person::new(ElicitationAnswer::Accepted(json!({})));
    let asks = async {
        crate::common::has_slow(&server, 1).await;
        let answer = ask(&server, ELICIT, form(&json!({})), person.context()).await;
        cancel.cancel();
        answer
    };
    let (outcome, answer) = tokio::join!(slow, asks);
    assert_eq!(failed(outcome).fault.kind(), Kind::Cancelled);
    assert_eq!(answer["result"], json!({ "action": "decline" }));
    assert!(person.questions().is_empty());
    within(server.shutdown()).await;
}

#[tokio::test]
async fn a_call_that_waits_for_a_person_ends_when_it_is_cancelled() {
    let server = connect(fake(&[])).await;
    let person = Arc::new(Person::away(ElicitationAnswer::Declined, true));
    let context = person.context();
    let cancel = context.cancel.clone();
    let arguments = json!({ "method": ELICIT, "params": form(&json!({})) });
    let call = call_with(&server, "ask", arguments, context);
    let stop = async {
        person.was_asked.notified().await;
        cancel.cancel();
    };
    let (outcome, ()) = tokio::join!(call, stop);
    assert_eq!(failed(outcome).fault.kind(), Kind::Cancelled);
    within(server.shutdown()).await;
}

struct Stateless {
    _folder: tempfile::TempDir,
    tasks: TaskFolder,
}

impl Stateless {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let tasks = TaskFolder::new(folder.path());
        Self { _folder: folder, tasks }
    }

    fn config(&self) -> McpServerConfig {
        fake(&["--stateless", "--tasks", self.tasks.path().to_str().unwrap()])
    }
}

#[tokio::test]
async fn a_server_without_a_handshake_gets_the_answer_with_the_repeated_call() {
    let it = Stateless::new();
    let server = connect(it.config()).await;
    let person = Person::new(ElicitationAnswer::Accepted(json!({ "name": "Ann" })));
    let answer = done(call_with(&server, "form", json!({}), person.context()).await);
    let expected = r#"kept: {"k1":{"action":"accept","content":{"name":"Ann"}}}"#;
    assert_eq!(answer, json!(expected));
    let checkpoints = person.checkpoints.lock().unwrap().clone();
    assert_eq!(checkpoints[0]["state"], "kept", "durable before the person is asked");
    assert_eq!(checkpoints[1], json!({ "mcp_input_sent": 1 }), "void before the answer is sent");
    within(server.shutdown()).await;
}

#[tokio::test]
async fn a_call_that_waits_for_a_person_goes_on_in_the_next_process() {
    let it = Stateless::new();
    let server = connect(it.config()).await;
    let away = Arc::new(Person::away(ElicitationAnswer::Declined, true));
    let call = call_with(&server, "form", json!({}), away.context());
    // The process ends while the question is open.
    tokio::select! {
        _ = call => panic!("it cannot end"),
        () = away.was_asked.notified() => {}
    }
    within(server.shutdown()).await;
    let server = connect(it.config()).await;
    let person = Person::new(ElicitationAnswer::Accepted(json!({ "name": "Ann" })));
    person.checkpoints.lock().unwrap().clone_from(&away.checkpoints.lock().unwrap());
    let again = CallContext { attempt: 2, ..person.context() };
    let answer = done(call_with(&server, "form", json!({}), again).await);
    assert!(answer.as_str().unwrap().contains("Ann"), "{answer}");
    assert_eq!(it.tasks.forms(), 2, "one call, and one with the answer");
    let place = |person: &Person| person.asked.lock().unwrap()[0].1.clone();
    assert_eq!(place(&away), place(&person), "it is the same question");
    within(server.shutdown()).await;
}

fn sampling_params() -> Value {
    let content = json!({ "type": "text", "text": "What is six times seven?" });
    json!({ "messages": [{ "role": "user", "content": content }], "maxTokens": 10 })
}

#[tokio::test]
async fn a_text_of_the_model_is_given_only_if_the_configuration_allows_it() {
    let person = Person::new(ElicitationAnswer::Accepted(json!({})));
    let method = "sampling/createMessage";
    let server = connect(fake(&[])).await;
    let answer = ask(&server, method, sampling_params(), person.context()).await;
    assert_eq!(answer["error"]["code"], -32601);
    within(server.shutdown()).await;

    let server = connect(McpServerConfig { sampling: SamplingMode::Allow, ..fake(&[]) }).await;
    let answer = ask(&server, method, sampling_params(), person.context()).await;
    assert_eq!(answer["result"]["content"]["text"], "42", "{answer}");
    assert!(person.questions().is_empty());
    within(server.shutdown()).await;

    let server = connect(McpServerConfig { sampling: SamplingMode::Ask, ..fake(&[]) }).await;
    let answer = ask(&server, method, sampling_params(), person.context()).await;
    assert_eq!(answer["result"]["content"]["text"], "42", "{answer}");
    assert!(person.questions()[0].message.contains("six times seven"));
    let no = Person::new(ElicitationAnswer::Declined);
    let answer = ask(&server, method, sampling_params(), no.context()).await;
    assert_eq!(answer["error"]["code"], -1, "{answer}");
    assert!(no.sampled.lock().unwrap().is_empty());
    within(server.shutdown()).await;
}

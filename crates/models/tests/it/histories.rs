//! Histories that one service wrote, sent to every other: calls stay paired, nothing is reordered, what a service
//! sealed returns to it in its place, and no other service receives it.

use std::{collections::BTreeSet, sync::Arc};

use crate::support::{request, shared};
use budao_core::message::{Block, Message, ModelRequest, Role};
use budao_models::probe::{EarlierRequests, Wire};
use budao_testkit::{
    request_rules,
    sse::{self, ModelOutput},
};
use proptest::prelude::*;
use serde_json::{Value, json};

/// Generated histories, each written by one service and sent to all of them.
const HISTORIES: u32 = 10_000;

/// One thing that a history or a request says, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
enum HistoryPart {
    User(String),
    Answer(String),
    Call(String),
    Result(String),
    Seal(String),
}

/// One answer of a model, without its texts, ids and seals, which are numbered.
#[derive(Clone, Copy, Debug)]
enum Part {
    Thinking,
    Text,
    Call,
}

#[derive(Clone, Debug)]
struct Plan {
    answers: Vec<Vec<Part>>,
    /// Whether results come in reverse, with a text of the user in front.
    is_interrupted: bool,
}

fn plans() -> impl Strategy<Value = Vec<Plan>> {
    let part = prop_oneof![Just(Part::Thinking), Just(Part::Text), Just(Part::Call)];
    let answer = prop::collection::vec(part, 0..5);
    let answers = prop::collection::vec(answer, 1..4);
    let plan = (answers, any::<bool>())
        .prop_map(|(answers, is_interrupted)| Plan { answers, is_interrupted });
    prop::collection::vec(plan, 1..4)
}

/// Writes histories as one service would.
struct Writer {
    wire: Wire,
    count: usize,
    messages: Vec<Message>,
}

impl Writer {
    fn next(&mut self, what: &str) -> String {
        self.count += 1;
        format!("{what}{}.", self.count)
    }

    /// An id that differs from the one before only in a character that services refuse, or is too long for them.
    fn call_id(&mut self) -> String {
        self.count += 1;
        let long = "x".repeat(80);
        let prefixes = ["call_", "call:", "call.", long.as_str()];
        format!("{}{}", prefixes[self.count % 4], self.count / 4)
    }

    fn output(&mut self, part: Part) -> ModelOutput {
        match part {
            Part::Thinking => {
                let seal = self.next("seal");
                ModelOutput::Thinking(vec![self.next("thought")], seal)
            }
            Part::Text => ModelOutput::text(&self.next("answer")),
            Part::Call => {
                let id = self.call_id();
                ModelOutput::call(&id, "fs.read", &json!({"path": self.count}))
            }
        }
    }

    /// The blocks of an answer, through the service's own events and their decoder.
    fn answer(&mut self, parts: &[Part]) {
        let outputs: Vec<_> = parts.iter().map(|part| self.output(*part)).collect();
        let events = match self.wire {
            Wire::Anthropic => sse::anthropic(&outputs),
            Wire::Chat => sse::openai(&outputs),
            Wire::Responses => sse::responses(&outputs),
            Wire::Gemini => sse::gemini(&outputs),
        };
        let bytes = events.concat().into_bytes();
        let content = self.wire.answer_blocks(bytes, self.messages.len()).unwrap();
        let calls = content.iter().filter(|block| matches!(block, Block::ToolUse(_))).count();
        let asked = parts.iter().filter(|part| matches!(part, Part::Call)).count();
        assert_eq!(calls, asked, "no call is lost while it is read");
        self.messages.push(Message { role: Role::Assistant, content });
    }

    fn results(&mut self, is_interrupted: bool) {
        let calls = self.messages.last().unwrap().content.iter().filter_map(|block| match block {
            Block::ToolUse(call) => Some(call.id.clone()),
            _ => None,
        });
        let content = r#"{"ok":true,"data":null}"#;
        let result = |call| Block::ToolResult { call, is_error: false, content: content.into() };
        let mut blocks: Vec<_> = calls.map(result).collect();
        if is_interrupted {
            blocks.reverse();
            blocks.insert(0, Block::Text(self.next("user")));
        }
        if !blocks.is_empty() {
            self.messages.push(Message { role: Role::User, content: blocks });
        }
    }
}

fn write(wire: Wire, plans: &[Plan]) -> Vec<Message> {
    let mut writer = Writer { wire, count: 0, messages: Vec::new() };
    for plan in plans {
        let text = writer.next("user");
        writer.messages.push(Message::user(text));
        for answer in &plan.answers {
            writer.answer(answer);
            writer.results(plan.is_interrupted);
        }
    }
    let text = writer.next("user");
    writer.messages.push(Message::user(text));
    writer.messages
}

/// The seal in a block of the service that wrote it.
fn seal(block: &Block) -> Option<String> {
    match block {
        Block::Thinking { signature, .. } => signature.clone(),
        Block::Opaque(json) => {
            let value: Value = serde_json::from_str(json).unwrap();
            let seal = [&value["encrypted_content"], &value["signature"]];
            seal.into_iter().find_map(Value::as_str).map(str::to_owned)
        }
        _ => None,
    }
}

/// What a service must be told of a history.
fn expected(writer: Wire, reader: Wire, history: &[Message]) -> Vec<HistoryPart> {
    let mut said = Vec::new();
    for message in history {
        let mut of_message: Vec<HistoryPart> = message
            .content
            .iter()
            .filter_map(|block| match (block, message.role) {
                (Block::Text(text), Role::User) => Some(HistoryPart::User(text.clone())),
                (Block::Text(text), Role::Assistant) => Some(HistoryPart::Answer(text.clone())),
                (Block::ToolUse(call), _) => Some(HistoryPart::Call(call.id.to_string())),
                (Block::ToolResult { call, .. }, _) => Some(HistoryPart::Result(call.to_string())),
                (block, _) => seal(block).filter(|_| writer == reader).map(HistoryPart::Seal),
            })
            .collect();
        if message.role == Role::User {
            of_message.sort_by_key(|said| !matches!(said, HistoryPart::Result(_)));
        }
        if reader == Wire::Chat {
            // This format has the texts of an answer in front of its calls.
            of_message.sort_by_key(|said| matches!(said, HistoryPart::Call(_)));
        }
        if reader == Wire::Responses {
            while matches!(of_message.last(), Some(HistoryPart::Seal(_))) {
                of_message.pop();
            }
        }
        said.extend(of_message);
    }
    joined(said)
}

/// Joins neighbouring texts of one author, because some formats do.
fn joined(said: Vec<HistoryPart>) -> Vec<HistoryPart> {
    let mut joined: Vec<HistoryPart> = Vec::new();
    for said in said {
        match (joined.last_mut(), said) {
            (Some(HistoryPart::User(text)), HistoryPart::User(more)) => text.push_str(&more),
            (Some(HistoryPart::Answer(text)), HistoryPart::Answer(more)) => text.push_str(&more),
            (_, said) => joined.push(said),
        }
    }
    joined
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn by_role(role: &Value, text: String) -> HistoryPart {
    if role == "user" { HistoryPart::User(text) } else { HistoryPart::Answer(text) }
}

/// What a request says, in the order of its body.
fn received(reader: Wire, body: &Value) -> Vec<HistoryPart> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let said = match reader {
        Wire::Anthropic => list(&body["messages"])
            .iter()
            .flat_map(|message| {
                let parts = list(&message["content"]).into_iter();
                parts.map(|part| match part["type"].as_str().unwrap() {
                    "text" => by_role(&message["role"], text(&part["text"])),
                    "tool_use" => HistoryPart::Call(text(&part["id"])),
                    "tool_result" => HistoryPart::Result(text(&part["tool_use_id"])),
                    "thinking" => HistoryPart::Seal(text(&part["signature"])),
                    other => panic!("{other} is none of this service's"),
                })
            })
            .collect(),
        Wire::Chat => list(&body["messages"]).iter().flat_map(chat_message).collect(),
        Wire::Responses => list(&body["input"])
            .iter()
            .map(|item| match item["type"].as_str().unwrap() {
                "message" => by_role(&item["role"], text(&item["content"])),
                "function_call" => HistoryPart::Call(text(&item["call_id"])),
                "function_call_output" => HistoryPart::Result(text(&item["call_id"])),
                "reasoning" => HistoryPart::Seal(text(&item["encrypted_content"])),
                other => panic!("{other} is none of this service's"),
            })
            .collect(),
        Wire::Gemini => list(&body["contents"])
            .iter()
            .flat_map(|content| {
                let parts = list(&content["parts"]).into_iter();
                parts.flat_map(|part| gemini_part(&content["role"], &part))
            })
            .collect(),
    };
    joined(said)
}

fn chat_message(message: &Value) -> Vec<HistoryPart> {
    if message["role"] == "tool" {
        return vec![HistoryPart::Result(text(&message["tool_call_id"]))];
    }
    let calls = message["tool_calls"].as_array().cloned().unwrap_or_default();
    let calls = calls.iter().map(|call| HistoryPart::Call(text(&call["id"])));
    let words = message["content"].as_str().map(|words| by_role(&message["role"], words.into()));
    words.into_iter().chain(calls).collect()
}

fn gemini_part(role: &Value, part: &Value) -> Vec<HistoryPart> {
    let seal = part["thoughtSignature"].as_str().map(|seal| HistoryPart::Seal(seal.into()));
    let said = match (&part["functionCall"]["id"], &part["functionResponse"]["id"]) {
        (Value::String(id), _) => HistoryPart::Call(id.clone()),
        (_, Value::String(id)) => HistoryPart::Result(id.clone()),
        _ => by_role(role, text(&part["text"])),
    };
    seal.into_iter().chain([said]).collect()
}

/// Replaces the ids of calls by their order, because a request may have to change them.
fn with_numbered_ids(said: Vec<HistoryPart>) -> Vec<HistoryPart> {
    let ids: Vec<String> = said
        .iter()
        .filter_map(|said| match said {
            HistoryPart::Call(id) => Some(id.clone()),
            _ => None,
        })
        .collect();
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len(), "two calls have one id");
    let number = |id: &String| ids.iter().position(|it| it == id).expect("no call").to_string();
    said.into_iter()
        .map(|said| match said {
            HistoryPart::Call(id) => HistoryPart::Call(number(&id)),
            HistoryPart::Result(id) => HistoryPart::Result(number(&id)),
            said => said,
        })
        .collect()
}

/// Every call has its result before the model speaks again.
fn check_pairs(said: &[HistoryPart]) {
    let mut open = BTreeSet::new();
    let mut has_results = false;
    for said in said {
        match said {
            HistoryPart::Call(id) => {
                assert!(!has_results || open.is_empty(), "a call between results");
                has_results = false;
                open.insert(id);
            }
            HistoryPart::Result(id) => {
                has_results = true;
                assert!(open.remove(id), "a result without its call");
            }
            HistoryPart::User(_) => assert!(open.is_empty(), "calls without results: {open:?}"),
            HistoryPart::Answer(_) | HistoryPart::Seal(_) => {}
        }
    }
}

/// A provider that has seen the history grow sends the same bytes as one that has not.
fn check_growth(reader: Wire, request: &ModelRequest, whole: &[u8]) {
    let earlier = EarlierRequests::default();
    for length in 1..=request.messages.len() {
        let messages = Arc::new(request.messages[..length].to_vec());
        let grown = ModelRequest { messages, ..request.clone() };
        let body = reader.next_request_body(&earlier, &grown).concat();
        if length == request.messages.len() {
            assert!(body == whole, "{reader:?}: {}", String::from_utf8_lossy(&body));
        }
    }
}

fn check(writer: Wire, reader: Wire, history: &[Message]) {
    let messages = shared(history.iter().cloned());
    let request = ModelRequest { messages, cache_key: Some("s".into()), ..request("") };
    let bytes = reader.request_body(&request);
    check_growth(reader, &request, &bytes);
    let body: Value = serde_json::from_slice(&bytes).unwrap();
    if reader == Wire::Responses {
        request_rules::responses(&body, |_| writer == reader).unwrap();
    }
    let got = received(reader, &body);
    let want = expected(writer, reader, history);
    check_pairs(&got);
    assert_eq!(with_numbered_ids(got), with_numbered_ids(want), "{writer:?} to {reader:?}");
    if writer != reader {
        let raw = String::from_utf8(bytes).unwrap();
        assert!(!raw.contains("seal"), "{reader:?} received what {writer:?} sealed");
    }
}

/// Goal: the model of a session can be changed at any time.
/// Method: histories of every service, through its own events and decoder, as requests to every service.
#[test]
fn a_history_is_understood_by_every_service() {
    let cases = HISTORIES / u32::try_from(Wire::ALL.len()).unwrap();
    let config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
    proptest!(config, |(plans in plans())| {
        for writer in Wire::ALL {
            let history = write(writer, &plans);
            for reader in Wire::ALL {
                check(writer, reader, &history);
            }
        }
    });
}

/// Without this, a history in which nothing is sealed would prove nothing.
#[test]
fn every_service_that_seals_gets_its_seals_back() {
    let parts = vec![Part::Thinking, Part::Text, Part::Thinking, Part::Call];
    let plan = Plan { answers: vec![parts], is_interrupted: false };
    for (wire, seals) in
        [(Wire::Anthropic, 2), (Wire::Chat, 0), (Wire::Responses, 2), (Wire::Gemini, 2)]
    {
        let history = write(wire, std::slice::from_ref(&plan));
        let said = expected(wire, wire, &history);
        let count = said.iter().filter(|said| matches!(said, HistoryPart::Seal(_))).count();
        assert_eq!(count, seals, "{wire:?}");
    }
}

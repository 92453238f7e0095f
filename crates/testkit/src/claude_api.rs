//! A model service on loopback for the real Claude CLI. It chooses each answer by a word in the prompt, because the CLI
//! sends requests of its own between those of the user, in no fixed order.
//!
//! The last word of the prompt that begins with `%` selects the answer: `%slow`, `%cut`, `%malformed`, `%status-429`,
//! `%write:PATH` (the Write tool), `%run:WORDS` (the Bash tool, dashes for blanks), `%background` (the Bash tool with a
//! command that stays running), `%think`, `%refuse`, `%max`, `%empty`, `%ask`
//! (the AskUserQuestion tool), `%plan` (writes the plan file that the CLI names and
//! submits it), `%enter` (enters plan mode). Without such a word the answer is "hello world". After a tool's result it
//! is "after the tool".

use std::{
    convert::Infallible,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use axum::{
    Json, Router,
    body::{Body, Bytes},
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use futures::{StreamExt, stream};
use serde_json::{Value, json};
use tokio::{net::TcpListener, task::JoinHandle};

use crate::sse::{ModelOutput, anthropic};

/// A running service. Dropping it stops the server task.
#[derive(Debug)]
pub struct ClaudeApi {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<Value>>>,
    server: JoinHandle<()>,
}

impl ClaudeApi {
    /// Starts a service on a free loopback port.
    ///
    /// # Panics
    /// If no loopback port can be bound.
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback can be listened on");
        let address = listener.local_addr().expect("a listener has an address");
        let asked: Arc<Mutex<Vec<Value>>> = Arc::default();
        let app = Router::new().fallback(answer).with_state(asked.clone());
        let server = tokio::spawn(async move {
            axum::serve(listener, app).await.ok();
        });
        Self { address, asked, server }
    }

    /// The base URL to give to the CLI.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The bodies of all requests received so far that were valid JSON, oldest first.
    #[must_use]
    pub fn asked(&self) -> Vec<Value> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for ClaudeApi {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn answer(State(asked): State<Arc<Mutex<Vec<Value>>>>, body: Bytes) -> Response {
    let Ok(request) = serde_json::from_slice::<Value>(&body) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let count = {
        let mut asked = asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.push(request.clone());
        asked.len()
    };
    let word = last_word(&request).unwrap_or_default();
    if let Some(status) = word.strip_prefix("%status-").and_then(|code| code.parse::<u16>().ok()) {
        let error = json!({"type": "error", "error": {"type": "error", "message": "as told"}});
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_REQUEST);
        return (status, Json(error)).into_response();
    }
    if request["stream"] != true {
        return Json(json!({"id": format!("msg_{count}"), "type": "message", "role": "assistant",
            "model": request["model"], "stop_reason": "end_turn", "stop_sequence": null,
            "content": [{"type": "text", "text": "the whole answer"}],
            "usage": {"input_tokens": 3, "output_tokens": 4}}))
        .into_response();
    }
    let events = match word.as_str() {
        "%plan" => speak(&planning(&request, count), count),
        _ => events(&word, has_result(&request), count),
    };
    let gap = Duration::from_millis(if word == "%slow" { 50 } else { 0 });
    let body = stream::iter(events).then(move |event| async move {
        tokio::time::sleep(gap).await;
        Ok::<_, Infallible>(event)
    });
    let headers = [("content-type", "text/event-stream")];
    (headers, Body::from_stream(body)).into_response()
}

/// The events of an answer. A broken answer stops at the break.
fn events(word: &str, has_result: bool, count: usize) -> Vec<String> {
    let call = |name: &str, arguments: Value| {
        vec![
            ModelOutput::text("let me "),
            ModelOutput::call(&format!("toolu_{count}"), name, &arguments),
        ]
    };
    let (word, rest) = word.split_once(':').unwrap_or((word, ""));
    let sayings = match word {
        _ if has_result => vec![ModelOutput::text("after the tool")],
        "%write" => call("Write", json!({"file_path": rest, "content": "written"})),
        "%run" => call("Bash", json!({"command": rest.replace('-', " "), "description": "run"})),
        "%background" => call(
            "Bash",
            json!({"command": "sleep 1; echo over", "description": "wait", "run_in_background": true}),
        ),
        "%enter" => call("EnterPlanMode", json!({})),
        "%ask" => call("AskUserQuestion", json!({"questions": [color_question()]})),
        "%think" => {
            vec![
                ModelOutput::Thinking(vec!["hm".into()], "sig".into()),
                ModelOutput::text("hello world"),
            ]
        }
        "%slow" => vec![ModelOutput::text(&"word ".repeat(400))],
        "%empty" => Vec::new(),
        _ => vec![ModelOutput::text("hello world")],
    };
    let mut events = speak(&sayings, count);
    match word {
        _ if has_result => {}
        "%cut" => events.truncate(4),
        "%malformed" => {
            events.truncate(4);
            events.push("event: content_block_delta\ndata: {nonsense\n\n".to_owned());
        }
        "%refuse" | "%max" => {
            let reason = if word == "%max" { "max_tokens" } else { "refusal" };
            for event in &mut events {
                *event = event.replace("end_turn", reason);
            }
        }
        _ => {}
    }
    events
}

/// The question that `%ask` asks.
fn color_question() -> Value {
    json!({"question": "Which color?", "header": "Color", "multiSelect": false, "options": [
        {"label": "Red", "description": "Like a rose"},
        {"label": "Blue", "description": "Like the sea"},
    ]})
}

fn speak(sayings: &[ModelOutput], count: usize) -> Vec<String> {
    let named = |event: String| event.replace("\"msg_1\"", &format!("\"msg_{count}\""));
    anthropic(sayings).into_iter().map(named).collect()
}

/// The text that `%plan` writes into the plan file.
pub const PLAN: &str = "# The plan\n1. Do it.";

/// The next planning step: write the plan file, then submit it, then confirm in text.
fn planning(request: &Value, count: usize) -> Vec<ModelOutput> {
    let messages = request["messages"].as_array().map(Vec::as_slice).unwrap_or_default();
    let asked = messages.iter().rposition(|message| text_of(message).contains("%plan"));
    let since = &messages[asked.unwrap_or_default()..];
    let id = format!("toolu_{count}");
    match since.iter().filter(|message| message["role"] == "assistant").count() {
        0 => match plan_file(&request.to_string()) {
            Some(path) => {
                let arguments = json!({"file_path": path, "content": PLAN});
                vec![ModelOutput::text("let me "), ModelOutput::call(&id, "Write", &arguments)]
            }
            None => vec![ModelOutput::text("no plan file was named")],
        },
        1 => vec![ModelOutput::call(&id, "ExitPlanMode", &json!({}))],
        _ => vec![ModelOutput::text("after the plan")],
    }
}

/// The path of the plan file that the CLI names in its request; `None` if it names none.
fn plan_file(request: &str) -> Option<String> {
    let request = request.replace("\\n", "\n");
    let at = request.rfind("/plans/")?;
    let is_end = |letter: char| letter.is_whitespace() || "\"'`()\\".contains(letter);
    let from = request[..at].rfind(is_end).map_or(0, |end| end + 1);
    let until = request[at..].find(".md")? + at + ".md".len();
    Some(request[from..until].to_owned())
}

fn users(request: &Value) -> impl DoubleEndedIterator<Item = &Value> {
    let messages = request["messages"].as_array().into_iter().flatten();
    messages.filter(|message| message["role"] == "user")
}

/// Returns whether the last message holds a tool's result and no prompt after it. The CLI puts both into one message
/// when a tool was cancelled.
fn has_result(request: &Value) -> bool {
    let last = users(request).next_back().and_then(|last| last["content"].as_array());
    let says_how = |block: &Value| block["text"].as_str().is_some_and(|text| text.contains('%'));
    let mut blocks = last.into_iter().flatten().rev();
    blocks
        .find(|block| block["type"] == "tool_result" || says_how(block))
        .is_some_and(|block| block["type"] == "tool_result")
}

/// The last `%` word in the prompts of the request.
fn last_word(request: &Value) -> Option<String> {
    users(request).rev().find_map(|message| {
        let text = text_of(message);
        let mut words = text.split_whitespace().rev();
        words.find(|word| word.starts_with('%')).map(str::to_owned)
    })
}

fn text_of(message: &Value) -> String {
    match &message["content"] {
        Value::String(text) => text.clone(),
        blocks => {
            let blocks = blocks.as_array().into_iter().flatten();
            blocks.filter_map(|block| block["text"].as_str()).collect::<Vec<_>>().join(" ")
        }
    }
}

//! What a request and a delta cost in each wire format.
//!
//! The bars: a request from a history of 1 000 messages in 20 µs, because a history only grows; a delta in 1 µs. The
//! first request of a session is encoded whole and its time has no bar; its memory has: 1.2 times its JSON.

use std::sync::Arc;

use budao_core::{
    message::{Block, CallId, Message, ModelRequest, Role, ToolUse},
    trace::{SpanId, Trace},
};
use budao_models::probe::{EarlierRequests, Wire};
use budao_testkit::{
    bench::{Better, Measurement, Suite, Unit, emit, heap_peak},
    sse::{self, ModelOutput},
};

const MESSAGES: usize = 1_000;
const DELTAS: u32 = 1_000;
/// The argument that makes this program build one request, of the wire format that follows, or of none.
const BUILD: &str = "--build";
/// What the heap may hold while a request is built, beyond its history, as a multiple of its JSON.
const REQUEST_MEMORY: f64 = 1.2;

/// Questions, calls, results and answers in turn.
fn history() -> Vec<Arc<Message>> {
    let message = |index: usize| match index % 4 {
        0 => Message::user(format!("Question {index}: what does the file say about {index}?")),
        1 => Message {
            role: Role::Assistant,
            content: vec![Block::ToolUse(ToolUse {
                id: CallId::from(format!("call_{index}").as_str()),
                name: "fs_read".into(),
                arguments: format!(r#"{{"path":"notes/{index}.md"}}"#),
            })],
        },
        2 => Message {
            role: Role::User,
            content: vec![Block::ToolResult {
                call: CallId::from(format!("call_{}", index - 1).as_str()),
                is_error: false,
                content: format!(r#"{{"ok":true,"data":"{}"}}"#, "a line of text; ".repeat(20)),
            }],
        },
        _ => Message::assistant("It says what you expected, and a little more than that."),
    };
    (0..MESSAGES).map(message).chain([Message::user("And now?")]).map(Arc::new).collect()
}

fn request() -> ModelRequest {
    ModelRequest {
        model: "m".into(),
        system: Some("Be brief.".into()),
        messages: Arc::new(history()),
        tools: Arc::new([]),
        answer: None,
        max_tokens: 1_000,
        thinking_tokens: None,
        cache_key: Some("session".into()),
        trace: Trace::NONE,
        span: SpanId::NONE,
    }
}

/// An answer of many deltas, as the service sends it.
fn answer(wire: Wire) -> Vec<u8> {
    let text = [ModelOutput::text(&"word ".repeat(DELTAS as usize))];
    let events = match wire {
        Wire::Anthropic => sse::anthropic(&text),
        Wire::Chat => sse::openai(&text),
        Wire::Responses => sse::responses(&text),
        Wire::Gemini => sse::gemini(&text),
    };
    events.concat().into_bytes()
}

/// The most that the heap holds more when one request is built than when none is, in processes of their own. It is built as
/// the provider builds the first one of a session.
fn request_memory(wire: Wire, json_bytes: usize) {
    let program = std::env::current_exe().expect("this program");
    let peak = |name: &str| heap_peak(&program, &[BUILD, name]);
    let Some((none, one)) = peak("none").zip(peak(&format!("{wire:?}"))) else { return };
    let bytes = one.saturating_sub(none);
    emit(&Measurement {
        bench: format!("models/request_memory_{wire:?}").to_lowercase(),
        value: bytes as f64 / json_bytes as f64,
        unit: "x its JSON".into(),
        bar: Some(REQUEST_MEMORY),
        better: Better::Lower,
        low: None,
        high: None,
        note: Some(format!("{bytes} bytes at most for {json_bytes}, beyond the history")),
    });
}

#[expect(clippy::print_stderr, reason = "a bench prints what it measures")]
fn main() {
    let request = request();
    let mut args = std::env::args().skip(1);
    if args.next().as_deref() == Some(BUILD) {
        let name = args.next().unwrap_or_default();
        let wire = Wire::ALL.into_iter().find(|wire| format!("{wire:?}") == name);
        let earlier = EarlierRequests::default();
        std::hint::black_box(wire.map(|wire| wire.next_request_body(&earlier, &request)));
        return;
    }
    let bodies = Wire::ALL.map(|wire| wire.request_body(&request).len());
    eprintln!("bytes of a request: {bodies:?}, in the order of {:?}", Wire::ALL);
    let answers = Wire::ALL.map(|wire| (wire, answer(wire)));
    let mut suite = Suite::from_args(15);
    for wire in &Wire::ALL {
        let name = format!("models/request_{wire:?}").to_lowercase();
        let earlier = EarlierRequests::default();
        let request = &request;
        drop(wire.next_request_body(&earlier, request));
        suite.case(&name, Unit::MicrosCpu, Some(20.0), move || {
            wire.next_request_body(&earlier, request)
        });
        let name = format!("models/first_request_{wire:?}").to_lowercase();
        suite.case(&name, Unit::MicrosCpu, None, || wire.request_body(request));
    }
    for (wire, bytes) in &answers {
        let name = format!("models/thousand_deltas_{wire:?}").to_lowercase();
        // A thousand deltas in a thousand microseconds.
        suite.case(&name, Unit::MicrosCpu, Some(1_000.0), || {
            wire.answer_blocks(bytes.clone(), 3).expect("a whole answer")
        });
    }
    let measures_memory = suite.wants("models/request_memory");
    suite.run();
    if measures_memory {
        Wire::ALL.into_iter().zip(bodies).for_each(|(wire, bytes)| request_memory(wire, bytes));
    }
}

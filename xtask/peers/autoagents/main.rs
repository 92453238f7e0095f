//! What one tool call and one turn cost in `autoagents`. Prints lines for `cargo xtask bench`.
//!
//! A turn is the one of our own bench: the user asks, the model asks for `add(2, 3)`, the tool runs, the
//! model answers. A conversation has twenty turns and keeps all of them; `turn_short` is the same with a
//! memory of eight messages, as in its own bench.

use std::fmt;
use std::future::Future;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use autoagents::core::agent::memory::SlidingWindowMemory;
use autoagents::core::agent::prebuilt::executor::ReActAgent;
use autoagents::core::agent::task::Task;
use autoagents::core::agent::{AgentBuilder, AgentDeriveT, AgentHooks, BaseAgent, DirectAgent};
use autoagents::core::tool::{ToolCallError, ToolRuntime, ToolT};
use autoagents::llm::chat::{
    ChatMessage, ChatProvider, ChatResponse, ChatRole, StructuredOutputFormat, Tool,
};
use autoagents::llm::completion::{CompletionProvider, CompletionRequest, CompletionResponse};
use autoagents::llm::embedding::EmbeddingProvider;
use autoagents::llm::error::LLMError;
use autoagents::llm::models::ModelsProvider;
use autoagents::llm::{FunctionCall, LLMProvider, ToolCall};
use futures::StreamExt as _;
use futures::executor::block_on;
use futures::future::join_all;
use rustix::time::{ClockId, clock_gettime};
use serde::Deserialize;
use serde_json::{Value, json};

const CALLS: u32 = 20_000;
const ROUNDS: usize = 15;
/// Turns of one conversation, and messages it then has.
const TURNS: u32 = 20;
const MESSAGES: usize = TURNS as usize * 4;
const SHORT: usize = 8;
/// Conversations of a round.
const CONVERSATIONS: u32 = 100;
/// Conversations side by side, and how many turns each of them has.
const AT_ONCE: u32 = 128;
const TURNS_AT_ONCE: u32 = 5;

#[derive(Debug, Clone)]
struct Add;

#[derive(Deserialize)]
struct AddInput {
    a: i64,
    b: i64,
}

impl ToolT for Add {
    fn name(&self) -> &str {
        "add"
    }
    fn description(&self) -> &str {
        "Adds."
    }
    fn args_schema(&self) -> Value {
        json!({"type": "object", "required": ["a", "b"], "additionalProperties": false,
               "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}})
    }
}

#[async_trait]
impl ToolRuntime for Add {
    async fn execute(&self, args: Value) -> Result<Value, ToolCallError> {
        let input: AddInput = serde_json::from_value(args)?;
        Ok(json!(input.a + input.b))
    }
}

/// What its own processor does with a call, without the events.
async fn call(tools: &[Box<dyn ToolT>], name: &str, arguments: &str) -> Value {
    let Some(tool) = tools.iter().find(|tool| tool.name() == name) else {
        return json!({"error": format!("Tool '{name}' not found")});
    };
    match serde_json::from_str(arguments) {
        Ok(arguments) => match tool.execute(arguments).await {
            Ok(output) => output,
            Err(error) => json!({"error": format!("Tool execution failed: {error}")}),
        },
        Err(error) => json!({"error": format!("Failed to parse arguments: {error}")}),
    }
}

/// Asks for one call, then answers with what the tool said.
#[derive(Debug)]
struct Fake;

#[derive(Debug)]
struct Answer {
    text: Option<String>,
    calls: Option<Vec<ToolCall>>,
}

impl ChatResponse for Answer {
    fn text(&self) -> Option<String> {
        self.text.clone()
    }
    fn tool_calls(&self) -> Option<Vec<ToolCall>> {
        self.calls.clone()
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text.as_deref().unwrap_or_default())
    }
}

#[async_trait]
impl ChatProvider for Fake {
    async fn chat_with_tools(
        &self,
        messages: &[ChatMessage],
        _tools: Option<&[Tool]>,
        _schema: Option<StructuredOutputFormat>,
    ) -> Result<Box<dyn ChatResponse>, LLMError> {
        let answered = messages.last().is_some_and(|message| message.role == ChatRole::Tool);
        Ok(Box::new(if answered {
            Answer { text: Some("5".to_owned()), calls: None }
        } else {
            let function =
                FunctionCall { name: "add".to_owned(), arguments: r#"{"a":2,"b":3}"#.to_owned() };
            let call = ToolCall { id: "x".to_owned(), call_type: "function".to_owned(), function };
            Answer { text: None, calls: Some(vec![call]) }
        }))
    }
}

#[async_trait]
impl CompletionProvider for Fake {
    async fn complete(
        &self,
        _request: &CompletionRequest,
        _schema: Option<StructuredOutputFormat>,
    ) -> Result<CompletionResponse, LLMError> {
        Err(LLMError::Generic("not a completion model".to_owned()))
    }
}

#[async_trait]
impl EmbeddingProvider for Fake {
    async fn embed(&self, _input: Vec<String>) -> Result<Vec<Vec<f32>>, LLMError> {
        Err(LLMError::Generic("not an embedding model".to_owned()))
    }
}

#[async_trait]
impl ModelsProvider for Fake {}

impl LLMProvider for Fake {}

#[derive(Debug, Clone)]
struct Adder;

impl AgentDeriveT for Adder {
    type Output = String;

    fn description(&self) -> &str {
        "Adds."
    }
    fn output_schema(&self) -> Option<Value> {
        None
    }
    fn name(&self) -> &str {
        "adder"
    }
    fn tools(&self) -> Vec<Box<dyn ToolT>> {
        vec![Box::new(Add)]
    }
}

impl AgentHooks for Adder {}

type Conversation = BaseAgent<ReActAgent<Adder>, DirectAgent>;

/// An agent of its own for each conversation: its memory belongs to it. Its events are read, as they
/// must be.
async fn conversation(messages: usize) -> Conversation {
    let builder = AgentBuilder::<_, DirectAgent>::new(ReActAgent::new(Adder));
    let memory = Box::new(SlidingWindowMemory::new(messages));
    let handle = builder.llm(Arc::new(Fake)).memory(memory).build().await.expect("an agent");
    let mut events = handle.rx;
    tokio::spawn(async move { while events.next().await.is_some() {} });
    handle.agent
}

async fn turns(agent: &Conversation, count: u32) {
    for _ in 0..count {
        let answer = agent.run(Task::new("What is 2 + 3?")).await.expect("a turn");
        assert_eq!(answer, "5");
        // Whoever reads the events gets to run.
        tokio::task::yield_now().await;
    }
}

async fn cpu_of(work: impl Future<Output = ()>) -> Duration {
    let before = cpu_time();
    work.await;
    cpu_time() - before
}

/// Conversations one after the other.
async fn alone(messages: usize) -> f64 {
    let mut spent = Duration::ZERO;
    for _ in 0..CONVERSATIONS {
        let agent = conversation(messages).await;
        spent += cpu_of(turns(&agent, TURNS)).await;
    }
    spent.as_secs_f64() * 1e6 / f64::from(CONVERSATIONS * TURNS)
}

async fn at_once() -> f64 {
    let all = join_all((0..AT_ONCE).map(|_| conversation(MESSAGES))).await;
    let together = async {
        join_all(all.iter().map(|agent| turns(agent, TURNS_AT_ONCE))).await;
    };
    cpu_of(together).await.as_secs_f64() * 1e6 / f64::from(AT_ONCE * TURNS_AT_ONCE)
}

fn cpu_time() -> Duration {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

fn calls(arguments: &str) -> f64 {
    let tools: Vec<Box<dyn ToolT>> = vec![Box::new(Add)];
    let before = cpu_time();
    for _ in 0..CALLS {
        black_box(block_on(call(&tools, "add", black_box(arguments))));
    }
    (cpu_time() - before).as_secs_f64() * 1e6 / f64::from(CALLS)
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.iter().any(|arg| arg == "--version") {
        println!("autoagents {}", env!("CARGO_PKG_VERSION"));
        return;
    }
    let filter = args.iter().find(|arg| !arg.starts_with('-'));
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("tokio");
    let cases: [(&str, &dyn Fn() -> f64); 5] = [
        ("peer/autoagents/call_good", &|| calls(r#"{"a": 2, "b": 40}"#)),
        ("peer/autoagents/call_bad", &|| calls(r#"{"a": "two", "b": 40}"#)),
        ("peer/autoagents/turn_memory", &|| runtime.block_on(alone(MESSAGES))),
        ("peer/autoagents/turn_at_once", &|| runtime.block_on(at_once())),
        ("peer/autoagents/turn_short", &|| runtime.block_on(alone(SHORT))),
    ];
    let wanted: Vec<_> =
        cases.iter().filter(|(name, _)| filter.is_none_or(|text| name.contains(text))).collect();
    let mut rounds = vec![Vec::new(); wanted.len()];
    // The first round warms up and does not count.
    for round in 0..=ROUNDS {
        for (index, (_, measure)) in wanted.iter().enumerate() {
            let each = measure();
            if round > 0 {
                rounds[index].push(each);
            }
        }
    }
    for ((name, _), values) in wanted.iter().zip(&mut rounds) {
        values.sort_by(f64::total_cmp);
        let at = |part: usize| values[(values.len() - 1) * part / 4];
        println!(
            "{}",
            json!({"bench": name, "value": at(2), "low": at(1), "high": at(3), "unit": "µs CPU",
                   "better": "lower"})
        );
    }
}

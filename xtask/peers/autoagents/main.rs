//! What a tool call, a turn, a kept session and a start cost in `autoagents`, and what it does in the
//! failure probes.
//!
//! A turn is the one of our own bench: the user asks, the model asks for `add(2, 3)`, the tool runs, the
//! model answers. A conversation has twenty turns and keeps all of them; `turn_short` is the same with a
//! memory of eight messages, as in its own bench. `probe b` and `probe c TEXT` are called by `cargo xtask
//! probes`.

use std::fmt;
use std::future::Future;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
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
/// Sessions of one turn that are kept, to see what they take.
const KEPT: u32 = 10_000;
/// Where the probe of endless calls gives up on a peer that does not.
const CAP: u32 = 301;

/// Adds; or fails with this text.
#[derive(Debug, Clone, Default)]
struct Add(Option<String>);

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
        if let Some(text) = &self.0 {
            return Err(ToolCallError::RuntimeError(text.clone().into()));
        }
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

/// Asks for one call, then answers. Told to be stubborn it only ever asks, and wrongly.
#[derive(Debug, Default)]
struct Fake {
    stubborn: bool,
    calls: AtomicU32,
    /// What the last result of a tool was.
    told: Mutex<String>,
}

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
        let last = messages.last().filter(|message| message.role == ChatRole::Tool);
        let capped = self.calls.fetch_add(1, Ordering::Relaxed) + 1 >= CAP && self.stubborn;
        if let (Some(message), true) = (last, self.told.lock().is_ok_and(|told| told.is_empty())) {
            *self.told.lock().expect("not poisoned") = format!("{:?}", message.message_type);
        }
        Ok(Box::new(if capped || (last.is_some() && !self.stubborn) {
            Answer { text: Some("5".to_owned()), calls: None }
        } else {
            let arguments = if self.stubborn { r#"{"a":"two"}"# } else { r#"{"a":2,"b":3}"# };
            let function = FunctionCall { name: "add".to_owned(), arguments: arguments.to_owned() };
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

#[derive(Debug, Clone, Default)]
struct Adder(Add);

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
        vec![Box::new(self.0.clone())]
    }
}

impl AgentHooks for Adder {}

type Conversation = BaseAgent<ReActAgent<Adder>, DirectAgent>;

/// An agent of its own for each conversation: its memory belongs to it. Its events are read, as they
/// must be.
async fn conversation(messages: usize) -> Conversation {
    converse(messages, Arc::default(), Add::default()).await
}

async fn converse(messages: usize, model: Arc<Fake>, tool: Add) -> Conversation {
    let builder = AgentBuilder::<_, DirectAgent>::new(ReActAgent::new(Adder(tool)));
    let memory = Box::new(SlidingWindowMemory::new(messages));
    let handle = builder.llm(model).memory(memory).build().await.expect("an agent");
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

/// Kilobytes for each of many kept sessions of one turn. Each has an agent of its own, as it must.
async fn kept_sessions() -> f64 {
    let mut kept = Vec::new();
    for _ in 0..KEPT / 10 {
        kept.push(conversation(MESSAGES).await);
        turns(kept.last().expect("one"), 1).await;
    }
    let before = resident();
    for _ in 0..KEPT {
        kept.push(conversation(MESSAGES).await);
        turns(kept.last().expect("one"), 1).await;
    }
    let grown = resident().saturating_sub(before) as f64 / f64::from(KEPT) / 1024.0;
    drop(kept);
    grown
}

/// Resident bytes of this process.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = statm.split_whitespace().nth(1).and_then(|n| n.parse().ok()).unwrap_or(0);
    pages * 4096
}

/// This program once more, to say one number.
fn afresh(mode: &str) -> f64 {
    let program = std::env::current_exe().expect("this program");
    let output = std::process::Command::new(program).arg(mode).output().expect("it runs");
    String::from_utf8_lossy(&output.stdout).trim().parse().expect("a number")
}

async fn probe_endless() -> Value {
    let fake = Arc::new(Fake { stubborn: true, ..Fake::default() });
    let agent = converse(MESSAGES, Arc::clone(&fake), Add::default()).await;
    let ended = match agent.run(Task::new("What is 2 + 3?")).await {
        Ok(answer) => format!("answer: {answer}"),
        Err(error) => format!("error: {error}"),
    };
    json!({"model_calls": fake.calls.load(Ordering::Relaxed), "ended": ended})
}

async fn probe_secret(text: &str) -> Value {
    let fake = Arc::new(Fake::default());
    let agent = converse(MESSAGES, Arc::clone(&fake), Add(Some(text.to_owned()))).await;
    let escaped = match agent.run(Task::new("What is 2 + 3?")).await {
        Ok(_) => String::new(),
        Err(error) => format!("{error} {error:?}"),
    };
    let told = fake.told.lock().expect("not poisoned").clone();
    json!({"model_saw": told, "escaped": escaped})
}

fn cpu_time() -> Duration {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

fn calls(arguments: &str) -> f64 {
    let tools: Vec<Box<dyn ToolT>> = vec![Box::new(Add::default())];
    let before = cpu_time();
    for _ in 0..CALLS {
        black_box(block_on(call(&tools, "add", black_box(arguments))));
    }
    (cpu_time() - before).as_secs_f64() * 1e6 / f64::from(CALLS)
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("tokio");
    match args[..] {
        ["--version"] => println!("autoagents {}", env!("CARGO_PKG_VERSION")),
        ["--first-turn"] => {
            runtime.block_on(async { turns(&conversation(MESSAGES).await, 1).await });
            println!("{}", cpu_time().as_secs_f64() * 1e3);
        }
        ["--sessions"] => println!("{}", runtime.block_on(kept_sessions())),
        ["probe", "b"] => println!("{}", runtime.block_on(probe_endless())),
        ["probe", "c", text] => println!("{}", runtime.block_on(probe_secret(text))),
        _ => measure(&args, &runtime),
    }
}

fn measure(args: &[&str], runtime: &tokio::runtime::Runtime) {
    let filter = args.iter().find(|arg| !arg.starts_with('-'));
    let cases: [(&str, &dyn Fn() -> f64); 5] = [
        ("peer/autoagents/call_good", &|| calls(r#"{"a": 2, "b": 40}"#)),
        ("peer/autoagents/call_bad", &|| calls(r#"{"a": "two", "b": 40}"#)),
        ("peer/autoagents/turn_memory", &|| runtime.block_on(alone(MESSAGES))),
        ("peer/autoagents/turn_at_once", &|| runtime.block_on(at_once())),
        ("peer/autoagents/turn_short", &|| runtime.block_on(alone(SHORT))),
    ];
    let wanted: Vec<_> =
        cases.iter().filter(|(name, _)| filter.is_none_or(|text| name.contains(*text))).collect();
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
    for ((name, _), values) in wanted.iter().zip(rounds) {
        tell(name, values, "µs CPU");
    }
    let once: [(&str, &str, usize, &str); 2] = [
        ("peer/autoagents/turn_start", "--first-turn", 5, "ms CPU"),
        ("peer/autoagents/turn_session", "--sessions", 1, "kB"),
    ];
    for (name, mode, rounds, unit) in once {
        if filter.is_none_or(|text| name.contains(*text)) {
            tell(name, (0..=rounds).map(|_| afresh(mode)).skip(1).collect(), unit);
        }
    }
}

fn tell(name: &str, mut values: Vec<f64>, unit: &str) {
    values.sort_by(f64::total_cmp);
    let at = |part: usize| values[(values.len() - 1) * part / 4];
    println!(
        "{}",
        json!({"bench": name, "value": at(2), "low": at(1), "high": at(3), "unit": unit,
               "better": "lower"})
    );
}

//! What a turn, a kept session and a start cost in `rig`, and what it does in the failure probes.
//!
//! A turn is the one of our own bench: the user asks, the model asks for `add(2, 3)`, the tool runs, the
//! model answers. A conversation has twenty turns and keeps all of them in the history its caller owns.
//! `probe a FOLDER AFTER|resume`, `probe b` and `probe c TEXT` are called by `cargo xtask probes`. `rig` stores
//! nothing: after a kill its user asks again.

use std::future::Future;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures::future::join_all;
use futures::stream;
use rig_agent::completion::{CompletionRequest, CompletionResponse, Usage};
use rig_agent::tool::{Tool, ToolContext};
use rig_agent::{Agent, AgentBuilder};
use rig_core::driver::{Exchange, Model, Opened, Opening, Transport};
use rig_core::message::{
    AssistantContent, Message, Origin, ToolCall, ToolFunction, ToolName, UserContent,
};
use rig_core::test_utils::{MockFrame, MockScript};
use rustix::process::{Signal, getpid, kill_process};
use rustix::time::{ClockId, clock_gettime};
use serde::Deserialize;
use serde_json::{Value, json};

const ROUNDS: usize = 15;
/// Turns of one conversation.
const TURNS: u32 = 20;
/// Conversations of a round.
const CONVERSATIONS: u32 = 20;
/// Conversations side by side, and how many turns each of them has.
const AT_ONCE: u32 = 128;
const TURNS_AT_ONCE: u32 = 5;
/// Sessions of one turn that are kept, to see what they take.
const KEPT: u32 = 10_000;
/// Calls in the batch of the probe that is killed.
const BATCH: [&str; 3] = ["x", "y", "z"];
/// Where the probe of endless calls gives up on a peer that does not.
const CAP: u32 = 301;

#[derive(Deserialize)]
struct AddInput {
    a: i64,
    b: i64,
}

/// Why the tool failed: the text of the probe.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct ProbeError(String);

/// Adds; or fails with this text.
#[derive(Clone)]
struct Add(Option<String>);

impl Tool for Add {
    const NAME: &'static str = "add";
    type Args = AddInput;
    type Output = String;
    type Error = ProbeError;

    fn description(&self) -> String {
        "Adds.".to_owned()
    }

    fn parameters(&self) -> Value {
        json!({"type": "object", "required": ["a", "b"], "additionalProperties": false,
               "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}})
    }

    async fn call(&self, _: &mut ToolContext, input: AddInput) -> Result<String, ProbeError> {
        match &self.0 {
            Some(text) => Err(ProbeError(text.clone())),
            None => Ok((input.a + input.b).to_string()),
        }
    }
}

#[derive(Deserialize)]
struct EffectInput {
    number: usize,
}

/// Writes a line into a ledger, in order while there is a kill to come, and kills the process after one of them.
#[derive(Clone)]
struct Effect {
    ledger: PathBuf,
    after: Option<usize>,
}

impl Effect {
    fn waits(&self, number: usize) -> bool {
        let done = || std::fs::read_to_string(&self.ledger).unwrap_or_default().lines().count();
        self.after.is_some_and(|after| number > after || done() < number)
    }
}

impl Tool for Effect {
    const NAME: &'static str = "effect";
    type Args = EffectInput;
    type Output = String;
    type Error = ProbeError;

    fn description(&self) -> String {
        "Does something that cannot be undone.".to_owned()
    }

    fn parameters(&self) -> Value {
        json!({"type": "object", "required": ["number"], "properties": {"number": {"type": "integer"}}})
    }

    async fn call(&self, _: &mut ToolContext, input: EffectInput) -> Result<String, ProbeError> {
        while self.waits(input.number) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let ledger = std::fs::OpenOptions::new().create(true).append(true).open(&self.ledger);
        let mut ledger = ledger.map_err(|error| ProbeError(error.to_string()))?;
        let line = format!("{}\n", input.number);
        let written = ledger.write_all(line.as_bytes()).and_then(|()| ledger.sync_all());
        written.map_err(|error| ProbeError(error.to_string()))?;
        if self.after == Some(input.number) {
            kill_process(getpid(), Signal::KILL).expect("it may kill itself");
        }
        Ok("done".to_owned())
    }
}

/// Asks for its calls, then answers with what the tool said. Told to be stubborn it only ever asks.
#[derive(Clone)]
struct Fake {
    wanted: Vec<(&'static str, &'static str, Value)>,
    stubborn: bool,
    calls: Arc<AtomicU32>,
}

impl Transport<MockScript> for Fake {
    fn send(&self, request: CompletionRequest, _: Exchange) -> Opening<MockFrame> {
        if self.calls.fetch_add(1, Ordering::Relaxed) + 1 >= CAP && self.stubborn {
            return Opening::ready(answer(vec![AssistantContent::text("cap")]));
        }
        let told = request.chat_history.last().and_then(told);
        let content = match told.filter(|_| !self.stubborn) {
            Some(text) => vec![AssistantContent::text(text)],
            None => {
                let call = |(id, name, arguments): &(&'static str, &'static str, Value)| {
                    let name = ToolName::new(*name).expect("a name");
                    let function = ToolFunction::new(name, arguments.clone());
                    AssistantContent::ToolCall(ToolCall::from_wire(*id, function))
                };
                self.wanted.iter().map(call).collect()
            }
        };
        Opening::ready(answer(content))
    }
}

fn answer(content: Vec<AssistantContent>) -> Opened<MockFrame> {
    let origin = Origin::new("fake.api", "fake", "");
    let response = CompletionResponse::new(content, Usage::new(), origin, Value::Null);
    Opened::new(stream::iter([Ok(MockFrame::Response(Box::new(response)))]))
}

/// What a tool said, if this is its result.
fn told(message: &Message) -> Option<String> {
    let Message::User { content } = message else { return None };
    content.iter().find_map(|item| match item {
        UserContent::ToolResult(result) => {
            let texts = result.content.iter().map(|part| {
                serde_json::to_value(part)
                    .ok()
                    .and_then(|part| Some(part["text"].as_str()?.to_owned()))
            });
            Some(texts.map(Option::unwrap_or_default).collect())
        }
        _ => None,
    })
}

fn agent(arguments: Value, stubborn: bool, fails: Option<String>, turns: usize) -> (Agent, Fake) {
    let wanted = vec![("x", "add", arguments)];
    let fake = Fake { wanted, stubborn, calls: Arc::default() };
    let model = Model::new(MockScript::new("fake"), fake.clone());
    // Its own default is one model call, too few for any tool.
    (AgentBuilder::new(model).tool(Add(fails)).default_max_turns(turns).build(), fake)
}

fn adder() -> Agent {
    agent(json!({"a": 2, "b": 3}), false, None, 3).0
}

async fn turns(agent: &Agent, count: u32) -> Vec<Message> {
    let mut history = Vec::new();
    for _ in 0..count {
        let answer = agent.chat("What is 2 + 3?", &mut history).await.expect("a turn");
        assert_eq!(answer.output(), "5");
    }
    history
}

async fn cpu_of(work: impl Future<Output = ()>) -> Duration {
    let before = cpu_time();
    work.await;
    cpu_time() - before
}

/// Conversations one after the other.
async fn alone() -> f64 {
    let agent = adder();
    let work = async {
        for _ in 0..CONVERSATIONS {
            turns(&agent, TURNS).await;
        }
    };
    cpu_of(work).await.as_secs_f64() * 1e6 / f64::from(CONVERSATIONS * TURNS)
}

async fn at_once() -> f64 {
    let agent = adder();
    let together = async {
        join_all((0..AT_ONCE).map(|_| turns(&agent, TURNS_AT_ONCE))).await;
    };
    cpu_of(together).await.as_secs_f64() * 1e6 / f64::from(AT_ONCE * TURNS_AT_ONCE)
}

/// Kilobytes for each of many kept sessions of one turn, one agent for all of them.
async fn kept_sessions() -> f64 {
    let agent = adder();
    let mut kept = Vec::new();
    for _ in 0..KEPT / 10 {
        kept.push(turns(&agent, 1).await);
    }
    let before = resident();
    for _ in 0..KEPT {
        kept.push(turns(&agent, 1).await);
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

fn cpu_time() -> Duration {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// This program once more, to say one number.
fn afresh(mode: &str) -> f64 {
    let program = std::env::current_exe().expect("this program");
    let output = std::process::Command::new(program).arg(mode).output().expect("it runs");
    String::from_utf8_lossy(&output.stdout).trim().parse().expect("a number")
}

/// One message with three calls. The process dies after effect `point`, or no effect kills it.
async fn probe_batch(folder: &Path, point: &str) -> Value {
    let wanted =
        BATCH.iter().enumerate().map(|(number, id)| (*id, "effect", json!({"number": number})));
    let fake = Fake { wanted: wanted.collect(), stubborn: false, calls: Arc::default() };
    let effect = Effect { ledger: folder.join("ledger"), after: point.parse().ok() };
    let model = Model::new(MockScript::new("fake"), fake);
    let agent = AgentBuilder::new(model).tool(effect).default_max_turns(3).build();
    let ended = match agent.chat("Do the three effects.", &mut Vec::new()).await {
        Ok(_) => "answer".to_owned(),
        Err(error) => format!("error: {error}"),
    };
    json!({"ended": ended})
}

async fn probe_endless() -> Value {
    let (agent, fake) = agent(json!({"a": "two"}), true, None, CAP as usize);
    let ended = match agent.chat("What is 2 + 3?", &mut Vec::new()).await {
        Ok(answer) => answer.output(),
        Err(error) => format!("error: {error}"),
    };
    json!({"model_calls": fake.calls.load(Ordering::Relaxed), "ended": ended})
}

async fn probe_secret(text: String) -> Value {
    let (agent, _) = agent(json!({"a": 2, "b": 3}), false, Some(text), 3);
    match agent.chat("What is 2 + 3?", &mut Vec::new()).await {
        // The model answers with what it was told.
        Ok(answer) => json!({"model_saw": answer.output(), "escaped": ""}),
        Err(error) => json!({"model_saw": "", "escaped": format!("{error} {error:?}")}),
    }
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("tokio");
    match args[..] {
        ["--version"] => println!("rig {}", env!("CARGO_PKG_VERSION")),
        ["--first-turn"] => {
            runtime.block_on(async { turns(&adder(), 1).await });
            println!("{}", cpu_time().as_secs_f64() * 1e3);
        }
        ["--sessions"] => println!("{}", runtime.block_on(kept_sessions())),
        ["probe", "a", folder, point] => {
            println!("{}", runtime.block_on(probe_batch(Path::new(folder), point)));
        }
        ["probe", "b"] => println!("{}", runtime.block_on(probe_endless())),
        ["probe", "c", text] => println!("{}", runtime.block_on(probe_secret(text.to_owned()))),
        _ => measure(&args, &runtime),
    }
}

fn measure(args: &[&str], runtime: &tokio::runtime::Runtime) {
    let filter = args.iter().find(|arg| !arg.starts_with('-'));
    let cases: [(&str, &str, usize, &dyn Fn() -> f64); 4] = [
        ("peer/rig/turn_memory", "µs CPU", ROUNDS, &|| runtime.block_on(alone())),
        ("peer/rig/turn_at_once", "µs CPU", ROUNDS, &|| runtime.block_on(at_once())),
        ("peer/rig/turn_start", "ms CPU", 5, &|| afresh("--first-turn")),
        ("peer/rig/turn_session", "kB", 1, &|| afresh("--sessions")),
    ];
    for (name, unit, rounds, work) in cases {
        if filter.is_some_and(|text| !name.contains(*text)) {
            continue;
        }
        // The first warms up and does not count.
        let mut values: Vec<f64> = (0..=rounds).map(|_| work()).skip(1).collect();
        values.sort_by(f64::total_cmp);
        let at = |part: usize| values[(values.len() - 1) * part / 4];
        println!(
            "{}",
            json!({"bench": name, "value": at(2), "low": at(1), "high": at(3), "unit": unit,
                   "better": "lower"})
        );
    }
}

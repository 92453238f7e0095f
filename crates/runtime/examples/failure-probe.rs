//! What we do in the failure probes; `cargo xtask probes` runs this beside its peers (`xtask/peers/*/probe.py`) and
//! judges what it prints.
//!
//!     failure-probe a FOLDER AFTER|resume [keyed]  three calls in one message, killed right after effect AFTER
//!     failure-probe b                              a model that repeats one invalid call for ever
//!     failure-probe c TEXT [panic|said]            a tool fails with this text

#![expect(clippy::print_stdout, reason = "it says what it saw")]

use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use budao_core::{
    Fault,
    limits::Limits,
    message::{Block, CallId, ModelRequest, ModelStop, Piece, ToolUse, Usage},
    tool::{Mode, Permissions},
};
use budao_journal::open;
use budao_models::{Model, PieceStream};
use budao_runtime::{Agent, AgentBuilder, world};
use budao_tools::{RawTool, ToolError, ToolOptions};
use serde_json::{Value, json};

const CALLS: u32 = 3;
/// Where the probe of endless calls gives up, as with the peers.
const CAP: u32 = 301;

/// Asks for calls until it is told what became of them, then answers; or asks for ever.
#[derive(Debug)]
struct Fake {
    tool: &'static str,
    calls: Vec<Value>,
    stubborn: bool,
    asked: Arc<AtomicU32>,
    saw: Arc<Mutex<Vec<String>>>,
}

#[async_trait::async_trait]
impl Model for Fake {
    fn provider(&self) -> &str {
        "fake"
    }

    fn name(&self) -> &str {
        "fake"
    }

    async fn stream(&self, request: ModelRequest) -> Result<PieceStream, Fault> {
        let asked = self.asked.fetch_add(1, Ordering::Relaxed) + 1;
        let blocks = request.messages.last().map(|message| message.content.iter());
        let told: Vec<String> = blocks
            .into_iter()
            .flatten()
            .filter_map(|block| match block {
                Block::ToolResult { content, .. } => Some(content.clone()),
                _ => None,
            })
            .collect();
        let is_over = if self.stubborn { asked >= CAP } else { !told.is_empty() };
        self.saw.lock().expect("nobody panics holding it").extend(told);
        let usage = Usage { input_tokens: 10, output_tokens: 5, cached_tokens: 0 };
        let pieces: Vec<Piece> = if is_over {
            let said = Block::Text("so be it".into());
            vec![Piece::Block(said), Piece::End { stop: ModelStop::EndTurn, usage }]
        } else {
            let calls = self.calls.iter().enumerate().map(|(index, arguments)| {
                let id = CallId::from(format!("call-{asked}-{index}").as_str());
                let arguments = arguments.to_string();
                Piece::Block(Block::ToolUse(ToolUse { id, name: self.tool.into(), arguments }))
            });
            calls.chain([Piece::End { stop: ModelStop::ToolUse, usage }]).collect()
        };
        Ok(Box::pin(futures::stream::iter(pieces.into_iter().map(Ok))))
    }
}

impl Fake {
    fn new(tool: &'static str, calls: Vec<Value>) -> Self {
        Self { tool, calls, stubborn: false, asked: Arc::default(), saw: Arc::default() }
    }
}

fn agent(model: Fake, tool: RawTool) -> AgentBuilder {
    let permissions = Permissions { mode: Mode::Auto, ..Permissions::default() };
    Agent::builder(model).tool(tool).permissions(permissions)
}

/// A line for each effect, on disk before anything goes on; in order while there is a kill to come. A service that
/// takes a key does nothing for a key it has seen.
fn effect(ledger: PathBuf, after: Option<u64>, keyed: bool) -> RawTool {
    let schema = json!({"type": "object", "properties": {"number": {"type": "integer"}},
                        "required": ["number"], "additionalProperties": false});
    let run = move |arguments: Value, context: budao_tools::CallContext| {
        let ledger = ledger.clone();
        async move {
            let number = arguments["number"].as_u64().unwrap_or_default();
            let lines = || fs::read_to_string(&ledger).unwrap_or_default();
            while after
                .is_some_and(|after| number > after || lines().lines().count() < number as usize)
            {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            let key = context.idempotency_key.to_string();
            if !(keyed && lines().contains(&key)) {
                let mut file = fs::OpenOptions::new().append(true).create(true).open(&ledger)?;
                file.write_all(format!("{number} {key}\n").as_bytes())?;
                file.sync_all()?;
            }
            if after == Some(number) {
                let own = rustix::process::getpid();
                rustix::process::kill_process(own, rustix::process::Signal::KILL)?;
            }
            Ok(json!("done"))
        }
    };
    let run = move |arguments, context| {
        let done = run(arguments, context);
        async move { done.await.map_err(|error: ToolError| error.into_failure("effect")) }
    };
    let tool = RawTool::new("effect", "Does something that cannot be undone.", schema, run);
    tool.options(ToolOptions::default().idempotent(keyed))
}

async fn batch(folder: &Path, after: Option<u64>, keyed: bool) -> Result<(), Fault> {
    let calls = (0..CALLS).map(|number| json!({"number": number})).collect();
    let fake = Fake::new("effect", calls);
    let (asked, saw) = (Arc::clone(&fake.asked), Arc::clone(&fake.saw));
    let file = folder.join("journal.db");
    let journal = open(&file.display().to_string(), world::system()).await?;
    // A dead process's lease must not hold up the next one.
    let limits = Limits { lease: Duration::from_millis(1), ..Limits::default() };
    let tool = effect(folder.join("ledger"), after, keyed);
    let agent = agent(fake, tool).limits(limits).journal(journal).build()?;
    let known = folder.join("session");
    let session = match fs::read_to_string(&known) {
        Ok(id) => agent.resume(id.parse().expect("an id we wrote")).await?,
        Err(_) => {
            let session = agent.session().await?;
            fs::write(&known, session.id().to_string()).expect("room for an id");
            session.send("Do the three effects.").await?;
            session
        }
    };
    loop {
        let state = session.state().await?;
        if state.turn.is_none() && state.queue.is_empty() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let saw = saw.lock().expect("nobody panics holding it");
    let unknown = budao_core::Kind::OutcomeUnknown.row().code;
    let in_doubt = saw.iter().filter(|text| text.contains(unknown)).count();
    let asked = asked.load(Ordering::Relaxed);
    println!(
        "{}",
        json!({"ended": "answer", "model_calls": asked, "in_doubt": in_doubt, "saw": *saw})
    );
    Ok(())
}

async fn endless() -> Result<(), Fault> {
    let schema = json!({"type": "object", "required": ["a", "b"], "additionalProperties": false,
                        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}});
    let tool = RawTool::new("add", "Adds.", schema, |_, _| async { Ok(json!(5)) });
    let fake = Fake { stubborn: true, ..Fake::new("add", vec![json!({"a": "two"})]) };
    let asked = Arc::clone(&fake.asked);
    let result = agent(fake, tool).build()?.session().await?.run("What is 2 + 3?").await?;
    let asked = asked.load(Ordering::Relaxed);
    let ended = match result.fault {
        _ if asked >= CAP => "the probe's own cap".to_owned(),
        Some(fault) => format!("a failed turn, {}", fault.kind().row().code),
        None => "answer".to_owned(),
    };
    println!("{}", json!({"model_calls": asked, "ended": ended}));
    Ok(())
}

async fn secret(text: String, how: &str) -> Result<(), Fault> {
    let schema = json!({"type": "object", "properties": {"amount": {"type": "integer"}}});
    let how = how.to_owned();
    let tool = RawTool::new("pay", "Pays.", schema, move |_, _| {
        let (text, how) = (text.clone(), how.clone());
        async move {
            let error = match how.as_str() {
                "panic" => panic!("{text}"),
                "said" => ToolError::new(text),
                _ => ToolError::from(std::io::Error::other(text)),
            };
            Err(error.into_failure("pay"))
        }
    });
    let fake = Fake::new("pay", vec![json!({"amount": 5})]);
    let saw = Arc::clone(&fake.saw);
    let result = agent(fake, tool).build()?.session().await?.run("Pay five.").await?;
    let escaped = result.fault.map(|fault| format!("{fault} {fault:?}")).unwrap_or_default();
    let saw = saw.lock().expect("nobody panics holding it").join("\n");
    println!("{}", json!({"model_saw": saw, "escaped": escaped}));
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Fault> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["a", folder, after, ref rest @ ..] => {
            batch(Path::new(folder), after.parse().ok(), rest == ["keyed"]).await
        }
        ["b"] => endless().await,
        ["c", text] => secret(text.to_owned(), "error").await,
        ["c", text, how] => secret(text.to_owned(), how).await,
        _ => panic!("see the first lines of this program"),
    }
}

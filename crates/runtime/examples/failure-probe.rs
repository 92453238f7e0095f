//! What we do in the failure probes; `cargo xtask probes` runs this beside its peers (`xtask/peers/*/probe.py`) and
//! judges what it prints.
//!
//!     failure-probe a FOLDER AFTER|resume [one] [keyed|reconciled|resolved]
//!         three calls in one message, killed right after effect AFTER; `one`: with one slot for calls instead of three
//!     failure-probe b                      a model that repeats one invalid call for ever
//!     failure-probe c TEXT [panic|said]    a tool fails with this text

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
    engine::Engine as _,
    event::{CommandBody, Settlement},
    limits::Limits,
    message::{Block, CallId, ModelRequest, ModelStop, Piece, Role, ToolUse, Usage},
    tool::{Mode, Permissions},
};
use budao_journal::open;
use budao_models::{Model, PieceStream};
use budao_runtime::{Agent, AgentBuilder, AgentExt as _, world};
use budao_tools::{RawTool, Reconciliation, ToolError, ToolOptions};
use serde_json::{Value, json};

const CALLS: u32 = 3;
/// Where the probe of endless calls gives up, as with the peers.
const CAP: u32 = 301;

/// What the author of the tool, or a person, adds to the defaults of probe A.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extra {
    Nothing,
    /// The tool passes the key of its call on.
    Keyed,
    /// The tool can find out whether a call was done.
    Reconciled,
    /// A person looks at the ledger and settles what is in doubt.
    Resolved,
}

impl Extra {
    fn parse(args: &[&str]) -> Self {
        match args.last() {
            Some(&"keyed") => Self::Keyed,
            Some(&"reconciled") => Self::Reconciled,
            Some(&"resolved") => Self::Resolved,
            _ => Self::Nothing,
        }
    }
}

/// Asks for calls until it gets their results, then answers; or asks for ever.
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
        // A person who said that a call did not happen is answered with that call.
        let again = undone(&request);
        let is_over = match self.stubborn {
            true => asked >= CAP,
            false => !told.is_empty() || (again.is_empty() && is_settled(&request)),
        };
        let calls = if again.is_empty() { &self.calls } else { &again };
        self.saw.lock().expect("nobody panics holding it").extend(told);
        let usage = Usage { input_tokens: 10, output_tokens: 5, ..Usage::default() };
        let pieces: Vec<Piece> = if is_over {
            let said = Block::Text("so be it".into());
            vec![Piece::Block(said), Piece::End { stop: ModelStop::EndTurn, usage }]
        } else {
            let calls = calls.iter().enumerate().map(|(index, arguments)| {
                let id = CallId::from(format!("call-{asked}-{index}").as_str());
                let arguments = arguments.to_string();
                Piece::Block(Block::ToolUse(ToolUse { id, name: self.tool.into(), arguments }))
            });
            calls.chain([Piece::End { stop: ModelStop::ToolUse, usage }]).collect()
        };
        Ok(Box::pin(futures::stream::iter(pieces.into_iter().map(Ok))))
    }
}

/// What a person said of calls in doubt since the model last spoke.
fn settlements(request: &ModelRequest) -> Vec<String> {
    let new = request.messages.iter().rev().take_while(|message| message.role == Role::User);
    let texts = new.flat_map(|message| &message.content).filter_map(|block| match block {
        Block::Text(text) if text.contains("A person settled") => Some(text.clone()),
        _ => None,
    });
    texts.collect()
}

fn is_settled(request: &ModelRequest) -> bool {
    !settlements(request).is_empty()
}

/// The arguments of the calls that a person said did not happen.
fn undone(request: &ModelRequest) -> Vec<Value> {
    let said = settlements(request).join("\n");
    let blocks = request.messages.iter().flat_map(|message| &message.content);
    let calls = blocks.filter_map(|block| match block {
        Block::ToolUse(call) => Some(call),
        _ => None,
    });
    let is_undone = |call: &&ToolUse| {
        said.lines().any(|line| line.contains(&*call.id.0) && line.contains("did not happen"))
    };
    calls.filter(is_undone).filter_map(|call| serde_json::from_str(&call.arguments).ok()).collect()
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
fn effect(ledger: PathBuf, after: Option<u64>, extra: Extra) -> RawTool {
    let (keyed, known) = (extra == Extra::Keyed, ledger.clone());
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
    let tool = tool.options(ToolOptions::default().idempotent(keyed));
    if extra != Extra::Reconciled {
        return tool;
    }
    tool.reconcile(move |_, context| {
        let is_written = has_line(&known, &context.idempotency_key);
        async move {
            Ok(match is_written {
                true => Reconciliation::happened("done"),
                false => Reconciliation::DidNotHappen,
            })
        }
    })
}

fn has_line(ledger: &Path, key: &str) -> bool {
    fs::read_to_string(ledger).unwrap_or_default().lines().any(|line| line.ends_with(key))
}

/// Waits until the session has nothing to do.
async fn settled(session: &budao_runtime::Session) -> Result<(), Fault> {
    loop {
        let state = session.state().await?;
        if state.turn.is_none() && state.queue.is_empty() {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// A person reads the ledger, settles each doubt, and tells the agent to go on. Returns how many were settled.
async fn resolve(
    agent: &Agent,
    session: &budao_runtime::Session,
    ledger: &Path,
) -> Result<usize, Fault> {
    let doubts = session.state().await?.doubts.all_open().to_vec();
    for doubt in &doubts {
        let key = format!("{}.{}", session.id(), doubt.call);
        let settlement = match has_line(ledger, &key) {
            true => Settlement::Happened { result: json!("done") },
            false => Settlement::DidNotHappen,
        };
        let body = CommandBody::SettleDoubt { call: doubt.call.clone(), settlement, note: None };
        let command = agent.runtime().command("ada", body);
        agent.runtime().submit(session.id(), command).await?;
    }
    if !doubts.is_empty() {
        session.send("Go on.").await?;
        settled(session).await?;
    }
    Ok(doubts.len())
}

async fn batch(folder: &Path, after: Option<u64>, slots: usize, extra: Extra) -> Result<(), Fault> {
    let calls = (0..CALLS).map(|number| json!({"number": number})).collect();
    let fake = Fake::new("effect", calls);
    let (asked, saw) = (Arc::clone(&fake.asked), Arc::clone(&fake.saw));
    let file = folder.join("journal.db");
    let journal = open(&file.display().to_string(), world::system()).await?;
    // A dead process's lease must not hold up the next one.
    let lease = Duration::from_millis(1);
    let limits = Limits { lease, parallel_calls: slots, ..Limits::default() };
    let tool = effect(folder.join("ledger"), after, extra);
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
    settled(&session).await?;
    let person = match extra {
        Extra::Resolved => resolve(&agent, &session, &folder.join("ledger")).await?,
        _ => 0,
    };
    let saw = saw.lock().expect("nobody panics holding it");
    let unknown = budao_core::Kind::OutcomeUnknown.row().code;
    let in_doubt = saw.iter().filter(|text| text.contains(unknown)).count();
    let asked = asked.load(Ordering::Relaxed);
    println!(
        "{}",
        json!({"ended": "answer", "model_calls": asked, "in_doubt": in_doubt, "person": person, "saw": *saw})
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
            let slots = if rest.contains(&"one") { 1 } else { CALLS as usize };
            batch(Path::new(folder), after.parse().ok(), slots, Extra::parse(rest)).await
        }
        ["b"] => endless().await,
        ["c", text] => secret(text.to_owned(), "error").await,
        ["c", text, how] => secret(text.to_owned(), how).await,
        _ => panic!("see the first lines of this program"),
    }
}

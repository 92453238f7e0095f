//! A turn with three side-effecting calls, killed with SIGKILL at every journalled state and in the tools.
//!
//! Goal: after resume no effect was repeated, every call has exactly one outcome, unknown ones are said
//! to be unknown, the history is well paired and the turn ends.
//! Method: this program runs itself as the victim, told at which append (before or after it), or at which
//! moment of a tool, to kill itself; then once more to resume; then it reads the journal and the ledger.

#![expect(clippy::print_stdout, reason = "it is its own test runner")]

#[path = "../support/around.rs"]
mod around;
mod killing;

use std::{
    collections::{HashMap, HashSet},
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    sync::Arc,
};

use budao_core::{
    Kind,
    event::{Event, SessionId},
    message::CallId,
    session::{Session, unpaired},
    tool::{Mode, Outcome, Permissions},
};
use budao_journal::{Journal, Options, PageLimits, Sqlite};
use budao_models::script::{Order, Script};
use budao_runtime::{Agent, world};
use budao_tools::RawTool;
use killing::{Killing, Moment};
use serde_json::json;

const DIRECTORY: &str = "BUDAO_CRASH_DIRECTORY";
const MOMENT: &str = "BUDAO_CRASH_MOMENT";
const CALLS: usize = 3;

const NAME: &str = "a_turn_killed_at_every_state_repeats_nothing";

fn main() -> ExitCode {
    let asked = |flag: &str| std::env::args().any(|argument| argument == flag);
    match std::env::var_os(DIRECTORY) {
        Some(directory) => victim(&PathBuf::from(directory)),
        // Test runners ask what there is before they run it.
        None if asked("--list") => {
            if !asked("--ignored") {
                println!("{NAME}: test");
            }
            ExitCode::SUCCESS
        }
        None => inspector(),
    }
}

/// One life of the process: opens or resumes the session and drives it to its end, unless it dies.
fn victim(directory: &Path) -> ExitCode {
    let moment = std::env::var(MOMENT).ok().map(|text| Moment::parse(&text));
    let runtime = tokio::runtime::Runtime::new().expect("a tokio runtime");
    runtime.block_on(async {
        let world = world::real();
        let file = directory.join("journal.db");
        let journal = Sqlite::open(&file, world.clone(), Options::default()).await.expect("opens");
        let journal: Arc<dyn Journal> = Arc::new(Killing::new(journal, moment.clone()));
        let model = Script::new()
            .calls((0..CALLS).map(|_| ("ledger", json!({}))))
            .say("all three are written")
            .order(Order::History)
            .model(Arc::clone(&world.clock));
        let permissions = Permissions { mode: Mode::Auto, ..Permissions::default() };
        // A dead victim's lease must not hold up the next one.
        let lease = std::time::Duration::from_millis(1);
        let limits = budao_core::limits::Limits { lease, ..Default::default() };
        let agent = Agent::builder(model)
            .tool(ledger(directory.join("ledger"), moment))
            .permissions(permissions)
            .limits(limits)
            .journal(journal)
            .build()
            .expect("an agent");
        let known = std::fs::read_to_string(directory.join("session")).ok();
        let session = match known {
            Some(id) => agent.resume(id.parse().expect("an id")).await.expect("resumes"),
            None => {
                let session = agent.session().await.expect("opens");
                std::fs::write(directory.join("session"), session.id().to_string()).expect("kept");
                session.send("Write three lines.").await.expect("accepted");
                session
            }
        };
        while !is_settled(&session.state().await.expect("a state")) {
            tokio::time::sleep(std::time::Duration::from_millis(2)).await;
        }
    });
    ExitCode::SUCCESS
}

fn is_settled(session: &Session) -> bool {
    session.turn.is_none() && session.queue.is_empty()
}

/// Appends a line with its call's name, synced; not idempotent.
fn ledger(path: PathBuf, moment: Option<Moment>) -> RawTool {
    let schema = json!({"type": "object", "properties": {}});
    RawTool::new("ledger", "Writes a line.", schema, move |_, context| {
        let (path, moment) = (path.clone(), moment.clone());
        async move {
            let call = context.call.to_string();
            Moment::in_tool(&moment, &call, "begun");
            let mut file =
                std::fs::OpenOptions::new().append(true).create(true).open(path).expect("a ledger");
            file.write_all(format!("{call}\n").as_bytes()).expect("written");
            file.sync_all().expect("synced");
            Moment::in_tool(&moment, &call, "done");
            Ok(json!("written"))
        }
    })
}

/// Kills a victim at every moment there is and looks at what is left.
fn inspector() -> ExitCode {
    let mut killed = 0;
    for side in ["before", "after"] {
        for append in 1.. {
            assert!(append < 100, "a turn of this size has fewer appends");
            let died = case(&format!("{side} {append}"));
            if !died {
                break;
            }
            killed += 1;
        }
    }
    for moment in ["begun", "done"] {
        for call in 1..=CALLS {
            assert!(case(&format!("{moment} call_1_1_{call}")), "the victim lived");
            killed += 1;
        }
    }
    assert!(killed > 10, "only {killed} kills: the moments are not reached");
    println!("test {NAME} ... ok ({killed} kills)");
    println!("\ntest result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out");
    ExitCode::SUCCESS
}

/// One victim, killed at a moment, resumed, inspected. Did it die?
fn case(moment: &str) -> bool {
    let directory = tempfile::tempdir().expect("a directory");
    let life = |moment: Option<&str>| {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.env(DIRECTORY, directory.path());
        if let Some(moment) = moment {
            command.env(MOMENT, moment);
        }
        command.output().expect("the victim runs")
    };
    let first = life(Some(moment));
    let died = !first.status.success();
    let kept = directory.path().join("session").exists();
    if died && kept {
        let second = life(None);
        assert!(
            second.status.success(),
            "{moment}: the second life failed: {}",
            String::from_utf8_lossy(&second.stderr)
        );
    }
    if kept {
        let runtime = tokio::runtime::Runtime::new().expect("a tokio runtime");
        runtime.block_on(inspect(directory.path(), moment));
    }
    died
}

async fn inspect(directory: &Path, moment: &str) {
    let id: SessionId =
        std::fs::read_to_string(directory.join("session")).expect("kept").parse().expect("an id");
    let file = directory.join("journal.db");
    let journal = Sqlite::open(&file, world::real(), Options::default()).await.expect("opens");
    let page = journal.read(id, 0, PageLimits::default()).await.expect("reads");
    let mut session = Session::default();
    let mut outcomes: HashMap<CallId, Outcome> = HashMap::new();
    let (mut accepted, mut ended) = (0, 0);
    for stored in &page.records {
        let record = stored.record().expect("decodes");
        session.apply_record(&record);
        match record.event {
            Event::MessageAccepted { .. } => accepted += 1,
            Event::TurnEnded { .. } => ended += 1,
            Event::CallEnded { call, outcome, .. } => {
                let before = outcomes.insert(call.clone(), outcome);
                assert!(before.is_none(), "{moment}: {call} has two outcomes");
            }
            _ => {}
        }
    }
    assert_eq!(accepted, ended, "{moment}: what was accepted was answered");
    assert!(is_settled(&session), "{moment}: the turn never ended");
    assert_eq!(unpaired(&session.history, 0), None, "{moment}: history is not well paired");
    check_ledger(directory, moment, &outcomes, accepted);
}

fn check_ledger(
    directory: &Path,
    moment: &str,
    outcomes: &HashMap<CallId, Outcome>,
    accepted: usize,
) {
    let text = std::fs::read_to_string(directory.join("ledger")).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    let unique: HashSet<&str> = lines.iter().copied().collect();
    assert_eq!(lines.len(), unique.len(), "{moment}: an effect was repeated: {lines:?}");
    if accepted > 0 {
        assert_eq!(outcomes.len(), CALLS, "{moment}: every call has an outcome");
    }
    for (call, outcome) in outcomes {
        let written = unique.contains(call.to_string().as_str());
        match outcome {
            Outcome::Done(_) => assert!(written, "{moment}: {call} is said to be done and is not"),
            Outcome::Failed(failure) => {
                let kind = failure.fault.kind();
                assert_eq!(kind, Kind::OutcomeUnknown, "{moment}: {call} is not told as it is");
            }
        }
    }
}

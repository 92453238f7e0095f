//! A turn with three side-effecting calls, killed with SIGKILL at every named point of its work, and again while it
//! gets up.
//!
//! Goal: after resume no effect was repeated, every call has exactly one outcome, unknown ones are said
//! to be unknown, the history is well paired and the turn ends.
//! Method: this program runs itself as the victim, told at which point, and at which passing of it, to kill itself;
//! then to resume, which is killed at every point too; then to resume for good; then it reads the journal and the
//! ledger. The same once more with somebody who is asked before each call, killed around the record of what they say;
//! and in batches, at named points and at random times. `BUDAO_CRASH_DEEP` kills the second life after every death of
//! the first, not only after one of each kind.

#![expect(clippy::print_stdout, reason = "it is its own test runner")]

mod batches;
mod killing;
mod person;
mod storm;

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    sync::Arc,
};

use budao_core::{
    Kind,
    event::{CallStart, Event, Record, SessionId},
    fault::Progress,
    message::CallId,
    session::{Session, unpaired},
    tool::{Mode, Outcome, Permissions},
};
use budao_journal::{Journal, PageLimits, open};
use budao_models::script::{Script, StepOrder};
use budao_runtime::{Agent, world};
use budao_tools::RawTool;
use killing::{IN_TOOL, KillPoints, Killing, Kills, Moment, OF_ANSWERS, POINTS};
use serde_json::json;

const DIRECTORY: &str = "BUDAO_CRASH_DIRECTORY";
const MOMENT: &str = "BUDAO_CRASH_MOMENT";
const PERSON: &str = "BUDAO_CRASH_PERSON";
const DEEP: &str = "BUDAO_CRASH_DEEP";
const CALLS: usize = 3;
/// Passings of one point that are tried; renewals would go on for ever.
const PASSINGS: u32 = 40;

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
    let (is_last, has_person) = (moment.is_none(), std::env::var_os(PERSON).is_some());
    let runtime = tokio::runtime::Runtime::new().expect("a tokio runtime");
    runtime.block_on(async {
        let world = world::system();
        let file = directory.join("journal.db");
        let journal = open(&file.display().to_string(), world.clone()).await.expect("opens");
        let kills = Kills::new(moment);
        let journal: Arc<dyn Journal> =
            Arc::new(Killing::new(journal, KillPoints(Arc::clone(&kills))));
        let model = Script::new()
            .calls((0..batches::calls()).map(|_| ("ledger", json!({}))))
            .say("all three are written")
            .order(StepOrder::History)
            .into_model(Arc::clone(&world.clock));
        let mode = if has_person { Mode::Approval } else { Mode::Auto };
        let permissions = Permissions { mode, ..Permissions::default() };
        // A dead victim's lease must not hold up the next one; renewals and snapshots are to be passed as well.
        let limits = budao_core::limits::Limits {
            lease: std::time::Duration::from_millis(1),
            lease_renewal: std::time::Duration::from_millis(1),
            snapshot_records: 4,
            parallel_calls: batches::slots(),
            ..Default::default()
        };
        let agent = Agent::builder(model)
            .tool(ledger(directory.join("ledger"), kills))
            .permissions(permissions)
            .limits(limits)
            .journal(journal)
            .build()
            .expect("an agent");
        let known = std::fs::read_to_string(directory.join("session")).ok();
        let (session, armed) = match known {
            Some(id) => {
                let armed = storm::arm();
                let session = agent.resume(id.parse().expect("an id")).await.expect("resumes");
                person::repeat(directory, &agent, session.id()).await;
                (session, armed)
            }
            None => {
                let session = agent.session().await.expect("opens");
                keep_id(directory, session.id());
                let armed = storm::arm();
                session.send("Write three lines.").await.expect("accepted");
                (session, armed)
            }
        };
        while !is_settled(&session.state().await.expect("a state")) {
            if has_person {
                person::answer(directory, &agent, &session).await;
            }
            tokio::time::sleep(std::time::Duration::from_millis(2)).await;
        }
        storm::report_life(armed);
        if is_last {
            person::try_again(directory, &agent, session.id()).await;
        }
    });
    ExitCode::SUCCESS
}

/// Whole or not at all: the process may be killed while it writes.
fn keep_id(directory: &Path, session: SessionId) {
    let unfinished = directory.join("session.new");
    std::fs::write(&unfinished, session.to_string()).expect("written");
    std::fs::rename(unfinished, directory.join("session")).expect("kept");
}

fn is_settled(session: &Session) -> bool {
    session.turn.is_none() && session.queue.is_empty()
}

/// Appends a line with its call's name, synced; not idempotent.
fn ledger(path: PathBuf, kills: Arc<Kills>) -> RawTool {
    let schema = json!({"type": "object", "properties": {}});
    let (known, points) = (path.clone(), Arc::clone(&kills));
    let tool = RawTool::new("ledger", "Writes a line.", schema, move |_, context| {
        let (path, kills) = (path.clone(), Arc::clone(&kills));
        async move {
            let call = context.call.to_string();
            kills.pass("before-effect");
            let mut file =
                std::fs::OpenOptions::new().append(true).create(true).open(path).expect("a ledger");
            file.write_all(format!("{call}\n").as_bytes()).expect("written");
            file.sync_all().expect("synced");
            kills.pass("after-effect");
            Ok(json!("written"))
        }
    });
    batches::with_reconcile(tool, &known, &points)
}

/// Kills a victim at every moment there is and looks at what is left.
fn inspector() -> ExitCode {
    if storm::is_alone() {
        return random_kills();
    }
    let deep = std::env::var_os(DEEP).is_some();
    let mut counts: BTreeMap<&str, (u32, u32)> = BTreeMap::new();
    let all: Vec<&str> = POINTS.iter().chain(IN_TOOL).copied().collect();
    let scenes = all.iter().map(|point| (*point, false, &all[..]));
    for (point, has_person, others) in
        scenes.chain(OF_ANSWERS.iter().map(|it| (*it, true, OF_ANSWERS)))
    {
        for time in 1..=PASSINGS {
            let others = if deep || time == 2 { others } else { &[] };
            let (died, again) = case(&format!("{point} {time}"), others, has_person);
            let count = counts.entry(point).or_default();
            *count = (count.0 + u32::from(died), count.1 + again);
            if !died {
                break;
            }
        }
        // What a first life never passes is passed when it gets up.
        let (first, again) = counts[point];
        assert!(first + again > 0 || is_of_getting_up(point), "{point} is never passed");
    }
    let (first, again) =
        counts.values().fold((0, 0), |(one, two), (first, again)| (one + first, two + again));
    assert!(first > 30 && again > 30, "only {first} kills and {again} while getting up");
    for (point, (first, again)) in &counts {
        println!("  {point}: {first} kills, then {again} while getting up");
    }
    println!("  in a batch: {} kills", batches::inspect_all());
    random_kills();
    println!("test {NAME} ... ok ({first} kills, {again} while getting up)");
    println!("\ntest result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out");
    ExitCode::SUCCESS
}

fn random_kills() -> ExitCode {
    println!("  at random: {}", storm::inspect_all());
    ExitCode::SUCCESS
}

fn is_of_getting_up(point: &str) -> bool {
    point.ends_with("read")
}

/// One victim, killed at a moment, resumed, inspected; and killed while it resumes, at each of these other points. Did
/// it die, and how often did it die again?
fn case(moment: &str, others: &[&str], has_person: bool) -> (bool, u32) {
    let life = |directory: &Path, moment: Option<&str>| life(directory, moment, has_person);
    let directory = tempfile::tempdir().expect("a directory");
    let died = !life(directory.path(), Some(moment)).status.success();
    if !directory.path().join("session").exists() {
        return (died, 0);
    }
    let mut again = 0;
    if died {
        for point in others {
            let other = tempfile::tempdir().expect("a directory");
            copy(directory.path(), other.path());
            let second = format!("{point} 1");
            again += u32::from(!life(other.path(), Some(&second)).status.success());
            get_up(other.path(), &format!("{moment}, then {second}"), has_person);
        }
    }
    if died {
        get_up(directory.path(), moment, has_person);
    }
    (died, again)
}

/// One life of a victim.
fn life(directory: &Path, moment: Option<&str>, has_person: bool) -> std::process::Output {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.env(DIRECTORY, directory);
    if has_person {
        command.env(PERSON, "1");
    }
    if let Some(moment) = moment {
        command.env(MOMENT, moment);
    }
    command.output().expect("the victim runs")
}

/// A life without a kill, and what is left then.
fn get_up(directory: &Path, moment: &str, has_person: bool) {
    let last = life(directory, None, has_person);
    assert!(
        last.status.success(),
        "{moment}: the last life failed: {}",
        String::from_utf8_lossy(&last.stderr)
    );
    let runtime = tokio::runtime::Runtime::new().expect("a tokio runtime");
    runtime.block_on(inspect(directory, moment, CALLS));
}

fn copy(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).expect("a folder") {
        let entry = entry.expect("an entry");
        if entry.path().is_file() {
            std::fs::copy(entry.path(), to.join(entry.file_name())).expect("copied");
        }
    }
}

/// What the journal and the ledger tell of the calls of a batch.
struct BatchOutcomes {
    outcomes: HashMap<CallId, Outcome>,
    /// Calls whose start is recorded.
    begun: HashSet<CallId>,
    /// The call of each effect.
    ledger: Vec<String>,
}

impl BatchOutcomes {
    /// Calls with an effect.
    fn done(&self) -> usize {
        self.ledger.iter().collect::<HashSet<_>>().len()
    }

    /// Effects beyond the first of a call.
    fn repeated(&self) -> usize {
        self.ledger.len() - self.done()
    }

    fn in_doubt_not_begun(&self) -> usize {
        let in_doubt = self.outcomes.iter().filter(|(_, outcome)| outcome.is_in_doubt());
        in_doubt.filter(|(call, _)| !self.begun.contains(call)).count()
    }
}

async fn inspect(directory: &Path, moment: &str, calls: usize) -> BatchOutcomes {
    let id: SessionId =
        std::fs::read_to_string(directory.join("session")).expect("kept").parse().expect("an id");
    let file = directory.join("journal.db");
    let journal = open(&file.display().to_string(), world::system()).await.expect("opens");
    let page = journal.read(id, 0, PageLimits::default()).await.expect("reads");
    let mut session = Session::default();
    let (mut outcomes, mut begun) = (HashMap::new(), HashSet::new());
    let (mut accepted, mut ended) = (0, 0);
    let decoded = page.records.iter().map(|stored| stored.record().expect("decodes"));
    let records: Vec<Record> = decoded.collect();
    person::inspect(directory, moment, &records);
    for record in records {
        session.apply_record(&record);
        match record.event {
            Event::MessageAccepted { .. } => accepted += 1,
            Event::TurnEnded { .. } => ended += 1,
            Event::ToolCallStarted(CallStart { call, .. }) => drop(begun.insert(call)),
            Event::ToolCallEnded { call, outcome, .. } => {
                let before: Option<Outcome> = outcomes.insert(call.clone(), outcome);
                assert!(before.is_none(), "{moment}: {call} has two outcomes");
            }
            _ => {}
        }
    }
    assert_eq!(accepted, ended, "{moment}: what was accepted was answered");
    assert!(is_settled(&session), "{moment}: the turn never ended");
    assert_eq!(unpaired(&session.history, 0), None, "{moment}: history is not well paired");
    if accepted > 0 {
        assert_eq!(outcomes.len(), calls, "{moment}: every call has an outcome");
    }
    let text = std::fs::read_to_string(directory.join("ledger")).unwrap_or_default();
    let ledger = text.lines().map(str::to_owned).collect();
    let batch = BatchOutcomes { outcomes, begun, ledger };
    check_ledger(moment, &batch);
    batch
}

fn check_ledger(moment: &str, batch: &BatchOutcomes) {
    let ledger = &batch.ledger;
    assert_eq!(batch.repeated(), 0, "{moment}: an effect was repeated: {ledger:?}");
    for (call, outcome) in &batch.outcomes {
        let written = ledger.contains(&call.to_string());
        match outcome {
            Outcome::Done(_) => assert!(written, "{moment}: {call} is said to be done and is not"),
            // A call that was interrupted on every attempt, and each time did nothing, is not tried again.
            Outcome::Failed(failure) if failure.fault.progress() == Progress::NotBegun => {
                assert!(!written, "{moment}: {call} is said not to have begun and is done");
            }
            Outcome::Failed(failure) => {
                let kind = failure.fault.kind();
                assert_eq!(kind, Kind::OutcomeUnknown, "{moment}: {call} is not told as it is");
            }
        }
    }
}

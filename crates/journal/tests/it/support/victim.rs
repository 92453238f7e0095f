//! A process that is killed, stopped or starved while it writes, and the process that judges what is left.
//!
//! The victim says on its standard output what was acknowledged, one line each, before it does anything
//! else. The judge believes those lines and nothing else.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
};

use budao_core::event::{Answer, Seq};
use budao_journal::{
    Admin, Append, AppendError, Inbox, Reader, Writer, conformance::fixture::message,
    sqlite::Sqlite,
};

use super::open;
use budao_testkit::{
    records::{entries, entry, lease, read_all, session},
    world::system as world,
};

/// Small, good, and the same everywhere.
#[derive(Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound.max(1)
    }
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    // The judge may be gone; then nobody needs to know.
    let _ = out.write_all(format!("{line}\n").as_bytes()).and_then(|()| out.flush());
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// Plays a victim. `role` is what [`spawn`] was given.
pub(crate) fn play(role: &str) {
    let words: Vec<&str> = role.split(' ').collect();
    match words[..] {
        ["append", path, sessions, seed] => {
            let (sessions, seed) = (sessions.parse().unwrap(), seed.parse().unwrap());
            runtime().block_on(append_for_ever(Path::new(path), sessions, seed));
        }
        ["hold", path, number] => {
            runtime().block_on(hold(Path::new(path), number.parse().unwrap()));
        }
        ["full", directory] => runtime().block_on(fill(Path::new(directory))),
        ["checkpoint", path] => runtime().block_on(write_to_checkpoints(Path::new(path))),
        ["script", path] => runtime().block_on(script(Path::new(path))),
        _ => panic!("no such role: {role}"),
    }
}

/// Many sessions append, submit and answer as fast as they can, until the end.
async fn append_for_ever(path: &Path, sessions: u64, seed: u64) {
    let journal = open(path).await;
    let mut tasks = Vec::new();
    for number in 0..sessions {
        let journal = journal.clone();
        let mut random = Random::new(seed ^ number);
        tasks.push(tokio::spawn(async move {
            let lease = lease(&journal, session(number), "victim").await;
            let mut head = lease.head;
            let mut waiting: Vec<String> = Vec::new();
            loop {
                match random.below(8) {
                    0 => {
                        let id = format!("c{head}-{}", random.below(1 << 40));
                        journal.submit(session(number), message(&id, "x")).await.unwrap();
                        say(&format!("submitted {number} {id}"));
                        waiting.push(id);
                    }
                    1 if !waiting.is_empty() => {
                        let id = waiting.remove(0);
                        let answer = (id.as_str().into(), Answer::Accepted { at: head });
                        let append = Append {
                            answers: vec![answer],
                            ..Append::new(&lease, head, entries(head, 1, 5))
                        };
                        head = journal.append(append).await.unwrap();
                        say(&format!("answered {number} {id} {head}"));
                    }
                    _ => {
                        let count = 1 + random.below(20);
                        let weight = [5, 200, 3000][usize::try_from(random.below(3)).unwrap()];
                        let entries = entries(head, count, weight);
                        head = journal.append(Append::new(&lease, head, entries)).await.unwrap();
                        say(&format!("appended {number} {head}"));
                    }
                }
            }
        }));
    }
    // They go on for ever; one that ends has failed.
    let (ended, ..) = futures::future::select_all(tasks).await;
    ended.unwrap();
}

/// Appends until the write-ahead log was carried over into the file; closing does it once more.
async fn write_to_checkpoints(path: &Path) {
    let journal = open(path).await;
    let lease = lease(&journal, session(0), "checkpoint").await;
    let mut head = lease.head;
    while journal.counters().checkpoints == 0 {
        let append = Append::new(&lease, head, entries(head, 20, 3000));
        head = journal.append(append).await.unwrap();
        say(&format!("appended 0 {head}"));
    }
    journal.close().await;
    say("done");
}

/// Appends one by one until it is fenced.
async fn hold(path: &Path, number: u64) {
    let journal = open(path).await;
    let lease = lease(&journal, session(number), "holder").await;
    let mut head = lease.head;
    loop {
        match journal.append(Append::new(&lease, head, entries(head, 1, 5))).await {
            Ok(new) => {
                head = new;
                say(&format!("appended {number} {head}"));
            }
            Err(AppendError::Fenced) => break say("fenced"),
            Err(error) => panic!("{error}"),
        }
    }
}

/// Fills a small disk to the last byte, ends its turn on it, and goes on when there is room again.
async fn fill(directory: &Path) {
    let path = directory.join("journal.db");
    let options = budao_journal::sqlite::SqliteOptions {
        reserve_bytes: 256 << 10,
        ..budao_journal::sqlite::SqliteOptions::default()
    };
    let journal = Sqlite::open(&path, world(), options).await.unwrap();
    let lease = lease(&journal, session(0), "full").await;
    let filler = directory.join("filler");
    std::fs::write(&filler, vec![1; 512 << 10]).unwrap();
    let mut head = 0;
    let fault = loop {
        let append = Append::new(&lease, head, entries(head, 10, 3000));
        match journal.append(append).await {
            Ok(new) => head = new,
            Err(AppendError::Failed(fault)) => break fault,
            Err(error) => panic!("{error}"),
        }
    };
    assert_eq!(fault.kind(), budao_core::Kind::DiskFull, "{fault}");
    // Smaller ones may still find a corner; then that is full as well.
    while let Ok(new) = journal.append(Append::new(&lease, head, entries(head, 1, 5))).await {
        head = new;
    }
    say(&format!("full at {head}"));
    let closing =
        |event: budao_core::Event| budao_journal::Entry { event: event.into(), ..entry(0, 1) };
    let raised =
        budao_core::Event::FaultRaised { fault, scope: budao_core::event::Scope::default() };
    let ended = budao_core::Event::TurnEnded {
        stop: budao_core::event::StopReason::Failed,
        fault: None,
        steps: 1,
        usage: budao_core::message::Usage::default(),
    };
    let last = vec![closing(raised), closing(ended)];
    head = journal.append(Append::new(&lease, head, last)).await.unwrap();
    say("the fault and the end of the turn are written");
    let refused = journal.append(Append::new(&lease, head, entries(head, 40, 9000))).await;
    assert!(matches!(refused, Err(AppendError::Failed(_))), "{refused:?}");
    let limits = budao_journal::PageLimits { records: 1_000_000, bytes: usize::MAX };
    let page = journal.read(session(0), 0, limits).await.unwrap();
    assert_eq!((page.head, page.records.len() as u64), (head, head), "readers go on");
    std::fs::remove_file(filler).unwrap();
    for _ in 0..80 {
        head = journal.append(Append::new(&lease, head, entries(head, 1, 5))).await.unwrap();
    }
    assert!(directory.join("journal.db-reserve").exists(), "the room is set aside again");
    journal.close().await;
    let found = Sqlite::check(&path).await.unwrap();
    assert_eq!((found.findings, found.records), (vec![], head));
    say("done");
}

/// A fixed list of operations; each is tried until it works, as a runtime would.
async fn script(path: &Path) {
    let opened = loop {
        match Sqlite::open(path, world(), super::options()).await {
            Ok(journal) => break journal,
            Err(fault) => say(&format!("failed open {}", fault.row().code)),
        }
    };
    let journal = &opened;
    for number in 0..2 {
        let request = budao_journal::LeaseRequest {
            session: session(number),
            holder: "script".into(),
            ttl: std::time::Duration::from_secs(3600),
            if_missing: budao_journal::IfMissing::Create,
            dead_holder: None,
        };
        let lease = loop {
            match journal.take_lease(request.clone()).await {
                Ok(lease) => break lease,
                Err(fault) => say(&format!("failed lease {}", fault.row().code)),
            }
        };
        let id = format!("m{number}");
        loop {
            match journal.submit(session(number), message(&id, "x")).await {
                Ok(_) => break say(&format!("submitted {number} {id}")),
                Err(fault) => say(&format!("failed submit {}", fault.row().code)),
            }
        }
        let mut head = 0;
        for (count, weight) in [(1, 5), (20, 100), (2, 9000)] {
            let target = head + count;
            while head < target {
                let append = Append::new(&lease, head, entries(head, target - head, weight));
                match journal.append(append).await {
                    Ok(new) => head = new,
                    // It may have been written although we were told otherwise.
                    Err(AppendError::Conflict { head: found }) => head = found,
                    Err(AppendError::Fenced) => panic!("nobody else writes"),
                    Err(AppendError::Failed(fault)) => {
                        say(&format!("failed append {}", fault.row().code));
                    }
                }
            }
            say(&format!("appended {number} {head}"));
        }
    }
    opened.close().await;
    say("done");
}

/// A victim that runs.
pub(crate) struct Victim {
    pub(crate) child: Child,
    pub(crate) lines: std::io::Lines<BufReader<ChildStdout>>,
}

/// Starts a victim: this very program, told by `launch` how to find its role.
pub(crate) fn spawn(mut launch: Command, role: &str) -> Victim {
    launch.env("JOURNAL_VICTIM", role).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = launch.spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    Victim { child, lines }
}

/// What was acknowledged.
#[derive(Debug, Default)]
pub(crate) struct Acknowledged {
    pub(crate) heads: BTreeMap<u64, Seq>,
    pub(crate) submitted: Vec<(u64, String)>,
    pub(crate) answered: Vec<(u64, String)>,
}

impl Acknowledged {
    /// Takes up a line. Is it one of ours?
    pub(crate) fn read_line(&mut self, line: &str) -> bool {
        let words: Vec<&str> = line.split(' ').collect();
        let mut reached = |number: &str, head: &str| {
            let head: Seq = head.parse().unwrap();
            let known = self.heads.entry(number.parse().unwrap()).or_default();
            *known = head.max(*known);
        };
        match words[..] {
            ["appended", number, head] => reached(number, head),
            ["submitted", number, id] => {
                self.submitted.push((number.parse().unwrap(), id.to_owned()));
            }
            ["answered", number, id, head] => {
                reached(number, head);
                self.answered.push((number.parse().unwrap(), id.to_owned()));
            }
            _ => return false,
        }
        true
    }

    /// Everything acknowledged is there, once, in order; whatever else is there is whole.
    pub(crate) async fn verify(&self, path: &Path, context: &str) {
        if !path.exists() {
            assert!(self.heads.is_empty() && self.submitted.is_empty(), "{context}");
            return;
        }
        let found = Sqlite::check(path).await.unwrap();
        assert_eq!(found.findings, [], "{context}");
        assert_eq!(found.lost, None, "{context}");
        let journal = open(path).await;
        for (number, head) in &self.heads {
            // Reading checks that every record is the one after the last, and says its number.
            let records = read_all(&journal, session(*number)).await;
            let last = records.last().map_or(0, |record| record.seq);
            assert!(last >= *head, "{context}: session {number} has {last}, acknowledged {head}");
        }
        for (number, id) in &self.submitted {
            let known = journal.submit(session(*number), message(id, "x")).await.unwrap();
            assert_ne!(known, budao_journal::SubmitOutcome::New, "{context}: command {id} is lost");
        }
        for (number, id) in &self.answered {
            let answer = journal.answer(session(*number), &id.as_str().into()).await.unwrap();
            assert!(answer.is_some(), "{context}: the answer to {id} is lost");
        }
        journal.close().await;
    }
}

/// Kills a writing process again and again and judges what is left each time.
pub(crate) fn crash(launch: &dyn Fn() -> Command, kills: u32, seed: u64, directory: &Path) {
    let mut random = Random::new(seed);
    let mut acknowledged = Acknowledged::default();
    let mut path = PathBuf::new();
    for kill in 0..kills {
        if kill % 10 == 0 {
            path = directory.join(format!("journal-{kill}.db"));
            acknowledged = Acknowledged::default();
        }
        let sessions = 1 + random.below(24);
        let role = format!("append {} {sessions} {}", path.display(), random.below(u64::MAX));
        let mut victim = spawn(launch(), &role);
        let lines = random.below(120);
        for _ in 0..lines {
            let Some(Ok(line)) = victim.lines.next() else { panic!("the victim ended by itself") };
            acknowledged.read_line(&line);
        }
        victim.child.kill().unwrap();
        // What it had said before it died counts as well.
        for line in victim.lines.map_while(Result::ok) {
            acknowledged.read_line(&line);
        }
        victim.child.wait().unwrap();
        let context = format!("seed {seed}, kill {kill}");
        runtime().block_on(acknowledged.verify(&path, &context));
    }
}

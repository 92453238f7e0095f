//! Real processes: killed, stopped, and starved of their disk.

use std::process::Command;

use crate::support::{
    open, options,
    victim::{self, Acknowledged, Victim},
};
use budao_core::fault::Kind;
use budao_journal::{
    Admin, AppendError, IfMissing, LeaseRequest, Reader, Writer,
    conformance::fixture::manual_world, sqlite::Sqlite,
};
use budao_testkit::records::{append, read_all, session};
use futures::StreamExt;
use rustix::process::{Pid, Signal, kill_process};

/// Not a test: the role other tests give to a process of this program.
#[test]
fn victim_role() {
    if let Ok(role) = std::env::var("JOURNAL_VICTIM") {
        victim::play(&role);
        // The test harness has nothing to add.
        std::process::exit(0);
    }
}

fn launch() -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["crash::victim_role", "--exact", "--nocapture", "--test-threads=1"]);
    command
}

/// Goal: nothing acknowledged is lost, nothing is doubled, nothing is half, after SIGKILL at any moment.
/// Method: kill and judge; `cargo xtask crash` sets `BUDAO_CRASH_KILLS` and does it hundreds of times with another seed.
#[test]
fn survives_being_killed_while_many_sessions_write() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let kills = number("BUDAO_CRASH_KILLS").unwrap_or(12);
    let seed = number("BUDAO_CRASH_SEED").unwrap_or(20_261_115);
    let directory = tempfile::tempdir().unwrap();
    victim::crash(&launch, u32::try_from(kills).unwrap(), seed, directory.path());
    eprintln!(
        "{kills} kills, seed {seed}: every acknowledged record is there, none twice, none in part"
    );
}

fn signal(victim: &Victim, signal: Signal) {
    let pid = Pid::from_child(&victim.child);
    kill_process(pid, signal).unwrap();
}

/// Hears one more acknowledgement.
fn read_line(victim: &mut Victim, acknowledged: &mut Acknowledged) {
    while !acknowledged.read_line(&victim.lines.next().unwrap().unwrap()) {}
}

/// Goal: a writer that was stopped, lost its lease and goes on does no harm.
/// Method: SIGSTOP, steal with a clock an hour ahead, write, SIGCONT; a third process follows throughout.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_writer_that_continues_is_refused_and_nothing_doubles() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal.db");
    let follower = open(&path).await;
    let (ahead, clock) = manual_world();
    let second = Sqlite::open(&path, ahead, quick()).await.unwrap();
    for round in 0..5 {
        let mut victim = victim::spawn(launch(), &format!("hold {} {round}", path.display()));
        let mut acknowledged = Acknowledged::default();
        for _ in 0..10 {
            read_line(&mut victim, &mut acknowledged);
        }
        let mut stream = follower.follow(session(round), 0);
        clock.advance(std::time::Duration::from_secs(100 * 365 * 24 * 3600));
        let request = LeaseRequest {
            session: session(round),
            holder: "second".into(),
            ttl: std::time::Duration::from_secs(60),
            if_missing: IfMissing::Refuse,
            dead_holder: None,
        };
        let taken = loop {
            signal(&victim, Signal::STOP);
            match second.take_lease(request.clone()).await {
                Ok(lease) => break lease,
                // It was stopped in the middle of a transaction, which keeps every other writer waiting.
                Err(fault) => assert_eq!(fault.kind(), Kind::JournalBusy, "{fault}"),
            }
            signal(&victim, Signal::CONT);
            read_line(&mut victim, &mut acknowledged);
        };
        let head = append(&second, &taken, taken.head, 5).await;
        signal(&victim, Signal::CONT);
        let rest: Vec<String> = victim.lines.map_while(Result::ok).collect();
        assert!(rest.iter().any(|line| line.ends_with("fenced")), "{rest:?}");
        assert!(victim.child.wait().unwrap().success());
        for line in &rest {
            acknowledged.read_line(line);
        }
        assert!(acknowledged.heads[&round] <= taken.head, "acknowledged after it was fenced");
        assert_eq!(read_all(&second, session(round)).await.len() as u64, head);
        let mut followed = 0;
        while followed < head {
            for record in stream.next().await.unwrap().unwrap() {
                assert_eq!(record.seq, followed + 1);
                followed = record.seq;
            }
        }
        let stale = budao_journal::Append {
            token: budao_journal::LeaseToken(taken.token.0 - 1),
            ..budao_journal::Append::new(&taken, head, vec![])
        };
        assert_eq!(second.append(stale).await, Err(AppendError::Fenced));
    }
    second.close().await;
    follower.close().await;
    assert_eq!(Sqlite::check(&path).await.unwrap().findings, []);
}

fn quick() -> budao_journal::sqlite::SqliteOptions {
    budao_journal::sqlite::SqliteOptions {
        busy_timeout: std::time::Duration::from_millis(100),
        ..options()
    }
}

/// Goal: on a full disk the fault and the end of the turn are written, and writing resumes with room.
/// Method: a file system of three megabytes, in a mount namespace of its own.
#[test]
fn a_full_disk_still_takes_the_fault_and_the_end_of_the_turn() {
    let directory = tempfile::tempdir().unwrap();
    let mount = format!("mount -t tmpfs -o size=3m tmpfs {}", directory.path().display());
    let may = Command::new("unshare").args(["-rm", "sh", "-c", &mount]).output();
    if !may.is_ok_and(|done| done.status.success()) {
        if std::env::var_os("CI").is_some() {
            panic!("no file system can be mounted: a full disk cannot be had");
        }
        eprintln!("SKIPPED: no file system can be mounted, a full disk was not had");
        return;
    }
    let this = std::env::current_exe().unwrap();
    let role = "crash::victim_role --exact --nocapture --test-threads=1";
    let mut command = Command::new("unshare");
    command.args(["-rm", "sh", "-c", &format!("{mount} && exec {} {role}", this.display())]);
    let mut victim = victim::spawn(command, &format!("full {}", directory.path().display()));
    let lines: Vec<String> = victim.lines.map_while(Result::ok).collect();
    assert!(victim.child.wait().unwrap().success(), "{lines:?}");
    assert!(lines.iter().any(|line| line.ends_with("done")), "{lines:?}");
}

/// Strace counts no further.
const NEVER: u32 = 65_535;

/// Goal: a process killed while the write-ahead log is carried over into the file loses nothing that was acknowledged.
/// Method: strace kills it as it begins the n-th write to the file itself, which nothing but a checkpoint makes, or the
/// n-th sync of it. A share of all n; `BUDAO_CRASH_DEEP`, which `cargo xtask crash` sets, takes more.
#[test]
fn survives_being_killed_in_the_middle_of_a_checkpoint() {
    if !has_strace("nobody was killed in a checkpoint") {
        return;
    }
    let share = if std::env::var_os("BUDAO_CRASH_DEEP").is_some() { 60 } else { 4 };
    let directory = tempfile::tempdir().unwrap();
    let mut kills = 0;
    for call in ["pwrite64", "fdatasync"] {
        let (died, all) = killed_at(directory.path(), call, NEVER);
        assert!(!died && all > 2, "{call}: {all}");
        let step = (all / share).max(1);
        for index in (1..=all).step_by(usize::try_from(step).unwrap()) {
            kills += u32::from(killed_at(directory.path(), call, index).0);
        }
    }
    eprintln!("{kills} kills at writes to the file and syncs of it");
    assert!(kills >= share, "only {kills} kills");
}

/// Runs to checkpoints, and is killed as it begins this call on the file itself. Did it die, and how many were begun?
fn killed_at(directory: &std::path::Path, call: &str, index: u32) -> (bool, u32) {
    let path = directory.join(format!("{call}-{index}.db"));
    let trace = directory.join("trace");
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-e", &format!("trace={call}"), "-P"]).arg(&path);
    command.args(["-e", &format!("inject={call}:signal=SIGKILL:when={index}")]);
    command.arg("-o").arg(&trace).arg(std::env::current_exe().unwrap());
    command.args(["crash::victim_role", "--exact", "--nocapture", "--test-threads=1"]);
    let mut victim = victim::spawn(command, &format!("checkpoint {}", path.display()));
    let (mut acknowledged, mut is_done) = (Acknowledged::default(), false);
    for line in victim.lines.by_ref().map_while(Result::ok) {
        acknowledged.read_line(&line);
        is_done |= line.ends_with("done");
    }
    victim.child.wait().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(acknowledged.verify(&path, &format!("killed at {call} number {index}")));
    for suffix in ["", "-wal", "-shm", "-watermark"] {
        let _ = std::fs::remove_file(directory.join(format!("{call}-{index}.db{suffix}")));
    }
    let begun = std::fs::read_to_string(&trace).unwrap();
    let begun = begun.lines().filter(|line| line.contains(&format!("{call}("))).count();
    (!is_done, u32::try_from(begun).unwrap())
}

/// Is strace here? Says what was not tested if it is not.
fn has_strace(otherwise: &str) -> bool {
    let is_here = Command::new("strace").arg("-V").output().is_ok();
    if !is_here {
        assert!(std::env::var_os("CI").is_none(), "strace is missing: {otherwise}");
        eprintln!("SKIPPED: strace is missing, {otherwise}");
    }
    is_here
}

/// Goal: an I/O error at any call costs that request at most, never what was acknowledged, never the process.
/// Method: strace makes the n-th call fail, for every n of a scripted scenario.
#[test]
fn survives_an_error_at_every_call_to_the_disk() {
    if !has_strace("errors of the disk were not injected") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    for (call, error) in [
        ("fdatasync", "EIO"),
        ("fdatasync", "ENOSPC"),
        ("ftruncate", "EIO"),
        ("pwrite64", "EIO"),
        ("pwrite64", "ENOSPC"),
    ] {
        let mut index = 1;
        while inject(directory.path(), call, error, index) {
            index += 1;
        }
        assert!(index > 1, "{call} is never called");
    }
}

/// Runs the script with one call failing. Was there such a call?
fn inject(directory: &std::path::Path, call: &str, error: &str, index: u32) -> bool {
    let context = format!("{call} number {index} fails with {error}");
    let path = directory.join(format!("{call}-{error}-{index}.db"));
    let trace = directory.join("trace");
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-e", &format!("trace={call}")]);
    command.args(["-e", &format!("inject={call}:error={error}:when={index}")]);
    command.arg("-o").arg(&trace).arg(std::env::current_exe().unwrap());
    command.args(["crash::victim_role", "--exact", "--nocapture", "--test-threads=1"]);
    let mut victim = victim::spawn(command, &format!("script {}", path.display()));
    let mut acknowledged = Acknowledged::default();
    let mut is_done = false;
    for line in victim.lines.by_ref() {
        let line = line.unwrap();
        acknowledged.read_line(&line);
        is_done |= line.ends_with("done");
        let is_known = !line.starts_with("failed") || line.contains(" ERR_");
        assert!(is_known, "{context}: {line}");
        assert!(!line.contains("ERR_BUG"), "{context}: {line}");
    }
    assert!(victim.child.wait().unwrap().success() && is_done, "{context}: it did not end well");
    let was_hit = std::fs::read_to_string(&trace).unwrap().contains("(INJECTED)");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(acknowledged.verify(&path, &context));
    assert_eq!(acknowledged.heads.values().sum::<u64>(), 46, "{context}");
    for suffix in ["", "-wal", "-shm", "-watermark"] {
        let _ = std::fs::remove_file(directory.join(format!("{call}-{error}-{index}.db{suffix}")));
    }
    was_hit
}

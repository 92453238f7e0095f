//! `budao journal copy` that is killed in the middle and run again: the copy is complete and equal.

use std::{
    path::Path,
    process::{Child, Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use budao_core::event::Answer;
use budao_journal::{Access, Append, Backends, Journal, conformance::fixture::message};
use budao_journal_postgres::{Credentials, PostgresBackend};
use budao_testkit::{
    postgres::PostgresServer,
    records::{append, entries, lease, session},
    world,
};

const SESSIONS: u64 = 150;
const KILLS: u64 = 5;
/// Long enough for any wait here on a busy machine; reaching it is a failure.
const LIMIT: Duration = Duration::from_secs(120);

async fn open(url: &str, access: Access) -> Option<Arc<dyn Journal>> {
    let backends = Backends::embedded();
    let backends = backends.with(Arc::new(PostgresBackend::new(Credentials::default())));
    backends.open(url, access, world::system()).await.ok()
}

/// Sessions with everything that a copy moves.
async fn fill(journal: &dyn Journal) {
    for number in 1..=SESSIONS {
        let lease = lease(journal, session(number), "writer").await;
        let head = append(journal, &lease, 0, 20).await;
        journal.submit(lease.session, message("waits", "x")).await.unwrap();
        journal.submit(lease.session, message("answered", "x")).await.unwrap();
        let answers = vec![("answered".into(), Answer::Accepted { at: head })];
        let snapshot = Some(vec![7; 200]);
        let last = Append { answers, snapshot, ..Append::new(&lease, head, entries(head, 9, 40)) };
        journal.append(last).await.unwrap();
        journal.put_blob(lease.session, format!("output {number}").into()).await.unwrap();
        journal.release(&lease).await.unwrap();
    }
}

fn start_copy(home: &Path, from: &str, to: &str) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_budao"));
    command.args(["journal", "copy", from, to, "--json"]).current_dir(home).env_clear();
    command.env("HOME", home).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

/// Runs a copy to its end and returns its report.
fn finish_copy(home: &Path, from: &str, to: &str) -> serde_json::Value {
    let output = start_copy(home, from, to).wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The sessions in the target so far, the one that is being copied included; 0 while there is no journal.
async fn copied(target: &mut Option<Arc<dyn Journal>>, url: &str) -> u64 {
    if target.is_none() {
        *target = open(url, Access::ReadOnly).await;
    }
    let Some(journal) = target else { return 0 };
    let ids = journal.transfer().unwrap().session_ids(None, 1000).await;
    ids.map_or(0, |ids| ids.len() as u64)
}

async fn killed_and_run_again(home: &Path, from: &str, to: &str) {
    let began = Instant::now();
    let mut target = None;
    for kill in 1..=KILLS {
        let mut child = start_copy(home, from, to);
        // Each run gets further than the one before.
        while copied(&mut target, to).await < kill * SESSIONS / (KILLS + 2) {
            assert_eq!(child.try_wait().unwrap(), None, "the copy ended before kill {kill}");
            assert!(began.elapsed() < LIMIT, "kill {kill}: the copy gets nowhere");
            tokio::task::yield_now().await;
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(copied(&mut target, to).await < SESSIONS, "killed in the middle");
    }
    let report = finish_copy(home, from, to);
    assert_eq!((&report["sessions"], &report["conflicts"]), (&SESSIONS.into(), &0.into()));
    let again = finish_copy(home, from, to);
    assert_eq!(
        (&again["records"], &again["commands"], &again["blobs"]),
        (&0.into(), &0.into(), &0.into())
    );
}

/// Everything in a journal, with positions, epochs, digests, snapshots, commands, answers and outputs.
async fn exported(url: &str) -> String {
    let journal = open(url, Access::ReadOnly).await.unwrap();
    let mut lines = Vec::new();
    let report = journal.export(None, &mut lines).await.unwrap();
    assert_eq!((report.sessions, report.records, report.cut), (SESSIONS, SESSIONS * 29, 0));
    journal.close().await;
    String::from_utf8(lines).unwrap()
}

async fn check_copies(targets: &[&str], home: &Path) {
    let source = home.join("source.db").display().to_string();
    let journal = open(&source, Access::Create).await.unwrap();
    fill(&*journal).await;
    journal.close().await;
    let mut from = source.clone();
    for to in targets {
        killed_and_run_again(home, &from, to).await;
        assert!(exported(to).await == exported(&source).await, "{to} is not equal to its source");
        from = (*to).to_owned();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_to_a_file_that_is_killed_again_and_again_is_complete_and_equal_in_the_end() {
    let home = tempfile::tempdir().unwrap();
    let target = home.path().join("target.db").display().to_string();
    check_copies(&[&target], home.path()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copies_up_to_postgres_and_down_again_that_are_killed_are_complete_and_equal_in_the_end() {
    let Some(server) = PostgresServer::start() else { return };
    let home = tempfile::tempdir().unwrap();
    let below = home.path().join("below.db").display().to_string();
    check_copies(&[&server.url("budao"), &below], home.path()).await;
}

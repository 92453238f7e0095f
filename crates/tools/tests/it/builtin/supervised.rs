//! Programs under a supervisor: their streams are their own, and their end is told and complete.

use std::{io, time::Duration};

use budao_tools::launch::{Child, GracePeriods, Input, Launcher, Start};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::builtin::support::{launcher, processes_with};

fn mark() -> u128 {
    u128::from(std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 1_u8))
}

fn shell(script: &str) -> Start {
    let mut start = Start::new("sh", mark());
    start.args = vec!["-c".into(), script.into()];
    start.input = Input::Piped;
    start
}

async fn spawn(start: Start) -> Child {
    start.spawn(Some(&launcher())).await.unwrap()
}

async fn read(child: &mut Child) -> String {
    let mut text = String::new();
    child.stdout.take().unwrap().read_to_string(&mut text).await.unwrap();
    text
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let polling = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(tokio::time::timeout(Duration::from_secs(120), polling).await.is_ok(), "never: {what}");
}

#[tokio::test]
async fn a_program_has_its_own_streams_and_its_end_is_reported() {
    let mut child = spawn(shell("cat; echo bad >&2; exit 7")).await;
    let mut input = child.stdin.take().unwrap();
    input.write_all(b"hello").await.unwrap();
    drop(input);
    assert_eq!(read(&mut child).await, "hello");
    let mut errors = String::new();
    child.stderr.take().unwrap().read_to_string(&mut errors).await.unwrap();
    assert_eq!(errors, "bad\n");
    let ended = child.wait().await;
    assert_eq!((ended.code, ended.signal, ended.left), (Some(7), None, 0));
    let mut child = spawn(shell("kill -9 $$")).await;
    assert_eq!(child.wait().await.signal, Some(9));
}

#[tokio::test]
async fn a_supervisor_holds_no_stream_open_that_its_program_closed() {
    let mut child = spawn(shell("exec >&- <&-; sleep 1000")).await;
    // The output ends although the program runs, and nothing can be written to it.
    assert_eq!(read(&mut child).await, "");
    let mut input = child.stdin.take().unwrap();
    let error = async {
        loop {
            if let Err(error) = input.write_all(b"x").await {
                return error;
            }
        }
    };
    let error = tokio::time::timeout(Duration::from_secs(120), error).await.unwrap();
    assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    child.kill();
    assert_eq!(child.wait().await.signal, Some(9));
}

#[tokio::test]
async fn a_missing_program_is_reported_like_the_system_reports_it() {
    let missing = Start::new("/nowhere/at-all", mark()).spawn(Some(&launcher())).await;
    assert_eq!(missing.unwrap_err().kind(), io::ErrorKind::NotFound);
    let folder = Start::new("/tmp", mark()).spawn(Some(&launcher())).await;
    assert_eq!(folder.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    // A launcher that is missing is not taken for the program.
    let ours = Launcher::new("/nowhere/launcher");
    let missing = Start::new("true", mark()).spawn(Some(&ours)).await;
    assert_eq!(missing.unwrap_err().kind(), io::ErrorKind::Other);
    let wrong = Launcher::new("/bin/true");
    let wrong = Start::new("true", mark()).spawn(Some(&wrong)).await;
    assert_eq!(wrong.unwrap_err().kind(), io::ErrorKind::Other);
}

#[tokio::test]
async fn a_dropped_handle_ends_what_ignores_every_signal_and_left_the_group() {
    let mut start = shell(
        "trap '' TERM HUP INT; (setsid sh -c 'trap \"\" TERM; sleep 1000' &); echo up; sleep 1000",
    );
    // A grace of an hour for whoever asks; none for an orphan.
    start.grace_periods = GracePeriods {
        stop: Duration::from_secs(3_600),
        orphan: Duration::ZERO,
        left: Duration::ZERO,
    };
    let marker = format!("BUDAO_COMMAND={:032x}", start.mark);
    let mut child = spawn(start).await;
    let mut up = [0; 3];
    child.stdout.as_mut().unwrap().read_exact(&mut up).await.unwrap();
    until("all are up", || processes_with(&marker).len() >= 5).await;
    child.terminate();
    drop(child);
    until("no process is left", || processes_with(&marker).is_empty()).await;
}

//! Background commands: started, watched, ended.

use std::time::Duration;

use budao_core::{Kind, limits::Limits};
use budao_tools::builtin::{BuiltinOptions, Shells};
use serde_json::{Value, json};

use crate::builtin::{
    commands::until,
    support::{Fixture, kind, launcher, processes_with},
};

fn fixture() -> Fixture {
    fixture_with(Shells::default())
}

fn fixture_with(shells: Shells) -> Fixture {
    let limits = Limits { kill_grace: Duration::from_millis(1_000), ..Limits::default() };
    Fixture::with_limits(
        BuiltinOptions { launcher: Some(launcher()), shells, ..BuiltinOptions::default() },
        limits,
    )
}

async fn start(fixture: &Fixture, cmd: &str) -> Value {
    let started = fixture.done("bash_run", json!({ "cmd": cmd, "background": true })).await;
    json!({ "shell_id": started["shell_id"] })
}

/// Waits until the output has come, and returns the report.
async fn wait_for(fixture: &Fixture, shell: &Value, has: impl Fn(&Value) -> bool) -> Value {
    for _ in 0..1_000 {
        let logs = fixture.done("bash_logs", shell.clone()).await;
        if has(&logs) {
            return logs;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it never came");
}

fn redacted(mut rendered: Value) -> Value {
    if rendered["data"]["shell_id"].is_string() {
        rendered["data"]["shell_id"] = "‹id›".into();
    }
    if rendered["shell_id"].is_string() {
        rendered["shell_id"] = "‹id›".into();
    }
    rendered
}

#[tokio::test]
async fn output_is_there_while_the_command_runs() {
    let fixture = fixture();
    let cmd = "echo first; while [ ! -e go ]; do sleep 0.02; done; echo second; exit 5";
    let started =
        fixture.call_and_render("bash_run", json!({ "cmd": cmd, "background": true })).await;
    let shell = json!({ "shell_id": started["data"]["shell_id"].clone() });
    let shell = if shell["shell_id"].is_null() {
        json!({ "shell_id": started["shell_id"] })
    } else {
        shell
    };
    insta::assert_json_snapshot!("background", redacted(started));
    let live = wait_for(&fixture, &shell, |logs| logs["output"] == "first\n").await;
    assert_eq!((live["running"].as_bool(), &live["code"]), (Some(true), &Value::Null));
    fixture.write("go", "");
    let over = wait_for(&fixture, &shell, |logs| logs["running"] == false).await;
    insta::assert_json_snapshot!("logs_after_the_end", redacted(over));
}

#[tokio::test]
async fn a_kill_kills_the_whole_tree_and_waits() {
    let fixture = fixture();
    let mark = format!("{:09}", std::process::id() + 300_000_000);
    let cmd = format!(
        "trap '' TERM; (setsid sh -c \"trap '' TERM; sleep 1000.{mark}\" &); echo up; \
         while :; do sleep 1000.{mark}; done"
    );
    let shell = start(&fixture, &cmd).await;
    wait_for(&fixture, &shell, |logs| logs["output"] == "up\n").await;
    assert!(!processes_with(&mark).is_empty());
    let killed = fixture.done("bash_kill", shell.clone()).await;
    assert!(processes_with(&mark).is_empty(), "{:?}", processes_with(&mark));
    insta::assert_json_snapshot!("kill", redacted(killed));
    let again = fixture.done("bash_kill", shell).await;
    assert_eq!(again["message"], "The command had already ended.");
}

#[tokio::test]
async fn an_id_of_an_earlier_process_is_lost_and_an_invented_one_is_unknown() {
    let (before, mut after) = (fixture(), fixture());
    after.context.session = before.context.session;
    let shell = start(&before, "sleep 1000").await;
    let mut lost = after.call_and_render("bash_logs", shell.clone()).await;
    lost["error"] =
        lost["error"].as_str().unwrap().replace(shell["shell_id"].as_str().unwrap(), "‹id›").into();
    insta::assert_json_snapshot!("shell_lost", lost);
    assert_eq!(after.fails("bash_kill", shell.clone()).await, Kind::ShellLost);
    let unknown = after.call_and_render("bash_logs", json!({ "shell_id": "shell-1" })).await;
    insta::assert_json_snapshot!("shell_unknown", unknown);
    // Another session of the same process sees nothing of it.
    let mut context = before.context.clone();
    context.session = fixture().context.session;
    let outcome = before.call_in("bash_logs", shell.clone(), context).await;
    assert_eq!(kind(&outcome), Kind::ShellUnknown);
    before.done("bash_kill", shell).await;
}

#[tokio::test]
async fn shells_are_few_and_end_with_their_session() {
    let shells = Shells::default();
    let fixture = fixture_with(shells.clone());
    let mark = format!("{:09}", std::process::id() + 400_000_000);
    for _ in 0..8 {
        start(&fixture, &format!("setsid sleep 1000.{mark} & sleep 1000.{mark}")).await;
    }
    let refused = fixture
        .call("bash_run", json!({ "cmd": format!("sleep 1000.{mark}"), "background": true }));
    assert_eq!(kind(&refused.await), Kind::LimitReached);
    shells.end_session(fixture.context.session).await;
    until(|| processes_with(&mark).is_empty()).await;
    let shell = start(&fixture, "echo again").await;
    wait_for(&fixture, &shell, |logs| logs["output"] == "again\n").await;
}

#[tokio::test]
async fn shells_end_with_the_tools() {
    let fixture = fixture();
    let mark = format!("{:09}", std::process::id() + 500_000_000);
    start(&fixture, &format!("setsid sleep 1000.{mark} & sleep 1000.{mark}")).await;
    until(|| processes_with(&mark).len() >= 2).await;
    tokio::task::spawn_blocking(move || drop(fixture)).await.unwrap();
    until(|| processes_with(&mark).is_empty()).await;
}

#[tokio::test]
async fn a_background_command_can_have_a_deadline() {
    let fixture = fixture();
    let run = json!({ "cmd": "echo on; sleep 1000", "background": true, "timeout_ms": 1_500 });
    let shell = json!({ "shell_id": fixture.done("bash_run", run).await["shell_id"] });
    let over = wait_for(&fixture, &shell, |logs| logs["running"] == false).await;
    assert_eq!(
        (over["status"].as_str(), over["output"].as_str()),
        (Some("timed_out"), Some("on\n"))
    );
}

//! `budao demo` from its first word to its exit code.

use std::{
    path::Path,
    process::{Command, Output},
};

use serde_json::Value;

fn demo(directory: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_budao"));
    command
        .arg("demo")
        .args(args)
        .current_dir(directory)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("TMPDIR", directory);
    command
}

/// The exit code, and the line of every act.
fn acts(command: &mut Command) -> (Option<i32>, Vec<Value>) {
    let Output { status, stdout, .. } = command.output().unwrap();
    let lines = String::from_utf8(stdout).unwrap();
    (status.code(), lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
}

/// The acts and what was checked in them, with their outcomes.
fn outcomes(acts: &[Value]) -> Vec<(String, Vec<String>, bool)> {
    let names = |act: &Value| act["checks"].as_object().unwrap().keys().cloned().collect();
    let name = |act: &Value| act["act"].as_str().unwrap().to_owned();
    acts.iter().map(|act| (name(act), names(act), act["ok"] == true)).collect()
}

#[test]
fn every_act_keeps_its_claims_and_is_in_the_journal_that_it_names() {
    let directory = tempfile::tempdir().unwrap();
    let (code, acts) = acts(&mut demo(directory.path(), &["--json"]));
    insta::assert_debug_snapshot!(outcomes(&acts));
    assert_eq!(code, Some(0), "{acts:?}");
    let journal = acts[0]["journal"].as_str().unwrap();
    for act in acts.iter().filter(|act| !act["session"].is_null()) {
        let mut replay = Command::new(env!("CARGO_BIN_EXE_budao"));
        replay.args(["replay", "--json", "--journal", journal, act["session"].as_str().unwrap()]);
        let printed = replay.env_clear().output().unwrap();
        assert!(String::from_utf8_lossy(&printed.stdout).contains("turn_ended"), "{act}");
    }
}

#[test]
fn a_failed_act_is_reported_and_sets_the_exit_code() {
    let directory = tempfile::tempdir().unwrap();
    // Without a shell the tool cannot write its line; everything else can be shown.
    let (code, acts) = acts(demo(directory.path(), &["--json"]).env("PATH", directory.path()));
    let failed: Vec<_> =
        outcomes(&acts).into_iter().filter(|(_, _, ok)| !ok).map(|(name, ..)| name).collect();
    assert_eq!(failed, ["kill"], "{acts:?}");
    assert_eq!(acts[3]["checks"]["tool_ran_once"], false, "{acts:?}");
    assert_eq!(code, Some(1));
}

#[test]
fn without_a_terminal_the_demo_is_plain_text_in_the_requested_language() {
    let directory = tempfile::tempdir().unwrap();
    let Output { status, stdout, stderr } =
        demo(directory.path(), &["--lang", "zh"]).output().unwrap();
    let printed = String::from_utf8(stdout).unwrap();
    assert!(status.success(), "{printed}");
    assert!(stderr.is_empty(), "{}", String::from_utf8_lossy(&stderr));
    assert!(!printed.contains('\u{1b}'), "no colour: {printed}");
    let lines = ["ERR_VAL_002", "ERR_RATE_001", "✂ SIGKILL", "ledger.txt: 1 行", "5/5 幕通过"];
    for line in lines {
        assert!(printed.contains(line), "{line} in {printed}");
    }
    assert!(!printed.lines().any(|line| line.starts_with('✗')), "every check is good: {printed}");
}

#[test]
fn a_folder_that_cannot_be_made_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let gone = directory.path().join("gone");
    let Output { status, stderr, .. } =
        demo(directory.path(), &[]).env("TMPDIR", &gone).output().unwrap();
    let printed = String::from_utf8(stderr).unwrap();
    assert_eq!(status.code(), Some(1), "{printed}");
    assert!(printed.contains("gone/budao-demo-"), "{printed}");
}

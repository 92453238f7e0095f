//! `budao sessions` and the arguments that name a session, on the real program.

use std::{
    path::Path,
    process::{Command, Output, Stdio},
};

use serde_json::Value;

fn budao(directory: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_budao"))
        .current_dir(directory)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("BUDAO_JOURNAL", directory.join("journal.db"))
        .stdin(Stdio::null())
        .args(args)
        .output()
        .unwrap()
}

fn text(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

fn listed(directory: &Path) -> Vec<Value> {
    let listed = budao(directory, &["sessions", "--json"]);
    let lines = String::from_utf8(listed.stdout).unwrap();
    lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// A script in a file, for `--model script:FILE`.
fn script(directory: &Path, steps: &str) -> String {
    std::fs::write(directory.join("script.toml"), steps).unwrap();
    "script:script.toml".to_owned()
}

#[test]
fn a_session_is_named_by_the_beginning_of_its_id() {
    let home = tempfile::tempdir().unwrap();
    for task in ["say one", "say two"] {
        assert!(budao(home.path(), &["run", "--model", "demo:fast", task]).status.success());
    }
    let all = listed(home.path());
    let ids: Vec<&str> = all.iter().map(|item| item["session"].as_str().unwrap()).collect();
    let same = ids[0].chars().zip(ids[1].chars()).take_while(|(a, b)| a == b).count();
    for id in &ids {
        for command in [&["sessions", "show"][..], &["replay"]] {
            let beginning = &id[..=same];
            let found = budao(home.path(), &[command, &[beginning]].concat());
            assert!(found.status.success(), "{command:?} {beginning}: {}", text(&found));
        }
    }
    let both = budao(home.path(), &["sessions", "show", &ids[0][..same]]);
    assert!(!both.status.success());
    assert!(ids.iter().all(|id| text(&both).contains(id)), "{}", text(&both));
    let none = budao(home.path(), &["sessions", "show", "ffff"]);
    assert!(text(&none).contains("ERR_SESS_001"), "{}", text(&none));
    let wrong = budao(home.path(), &["sessions", "show", "xyz"]);
    assert_eq!(wrong.status.code(), Some(2), "{}", text(&wrong));
}

#[test]
fn a_failed_session_is_listed_as_failed_with_the_remedy() {
    let home = tempfile::tempdir().unwrap();
    let model = script(home.path(), "[[step]]\nfault = \"model_authentication\"\n");
    let failed = budao(home.path(), &["run", "--model", &model, "fail"]);
    assert_eq!(failed.status.code(), Some(1), "{}", text(&failed));
    let all = listed(home.path());
    assert_eq!(all[0]["state"], "failed", "{all:?}");
    assert_eq!(all[0]["not_recovered"], 1, "{all:?}");
    let id = all[0]["session"].as_str().unwrap();
    let found = budao(home.path(), &["sessions", "list", "--state", "failed", "--since", "1h"]);
    assert!(text(&found).contains(id), "{}", text(&found));
    let idle = budao(home.path(), &["sessions", "list", "--state", "idle"]);
    assert!(!text(&idle).contains(id), "{}", text(&idle));
    let shown = text(&budao(home.path(), &["sessions", "show", id]));
    assert!(shown.contains("state              failed"), "{shown}");
    assert!(shown.contains("budao sessions retry"), "{shown}");
    assert!(shown.contains("last_fault         ERR_AUTH_"), "{shown}");
    let resumed = text(&budao(home.path(), &["resume", id]));
    assert!(resumed.contains(&format!("budao sessions retry {id}")), "{resumed}");
}

/// A fault that ended no turn is shown like one that did.
#[test]
fn the_last_fault_of_a_session_is_shown_though_its_turn_went_on() {
    let home = tempfile::tempdir().unwrap();
    let limited = "[[step]]\nfault = \"model_rate_limited\"\n[[step]]\ntext = \"done\"\n";
    let model = script(home.path(), limited);
    let run = budao(home.path(), &["run", "--model", &model, "go"]);
    assert_eq!(run.status.code(), Some(0), "{}", text(&run));
    let all = listed(home.path());
    let shown =
        text(&budao(home.path(), &["sessions", "show", all[0]["session"].as_str().unwrap()]));
    assert!(shown.contains("state              idle"), "{shown}");
    assert!(shown.contains("last_fault         ERR_RATE_001"), "{shown}");
    assert!(shown.contains("last_fault_at      20"), "{shown}");
}

#[test]
fn invalid_arguments_are_refused_before_anything_is_created() {
    let home = tempfile::tempdir().unwrap();
    for (args, expected) in [
        (&["run", ""][..], "the text is empty"),
        (&["run", " \t"], "the text is empty"),
        (&["run", "--max-steps", "0", "task"], "--max-steps"),
        (&["sessions", "list", "--state", "faild"], "a similar value exists: 'failed'"),
        (&["sessions", "--since", "yesterday"], "neither a span like"),
    ] {
        let refused = budao(home.path(), args);
        assert_eq!(refused.status.code(), Some(2), "{args:?}: {}", text(&refused));
        assert!(text(&refused).contains(expected), "{args:?}: {}", text(&refused));
        assert!(!home.path().join("journal.db").exists(), "{args:?}");
    }
    let refused = budao(home.path(), &["run", "--tools", "fs_raed", "task"]);
    assert!(text(&refused).contains("perhaps `fs_read`"), "{}", text(&refused));
    let refused = budao(home.path(), &["run", "--tools", "nothing", "task"]);
    assert!(text(&refused).contains("and `nothing` is none"), "{}", text(&refused));
}

#[test]
fn a_run_without_an_approver_warns_that_the_task_may_be_incomplete() {
    let home = tempfile::tempdir().unwrap();
    let steps = "[[step]]\n[[step.call]]\ntool = \"bash_run\"\narguments = { cmd = \"touch made\" }\n\
                 [[step]]\ntext = \"could not\"\n";
    let model = script(home.path(), steps);
    let done = budao(home.path(), &["run", "--model", &model, "write a file"]);
    assert_eq!(done.status.code(), Some(3), "{}", text(&done));
    assert!(text(&done).contains("1 call needed approval"), "{}", text(&done));
    let id = listed(home.path())[0]["session"].as_str().unwrap().to_owned();
    let records = text(&budao(home.path(), &["replay", "--json", &id]));
    assert!(!records.contains("question_answered"), "nobody decided: {records}");
}

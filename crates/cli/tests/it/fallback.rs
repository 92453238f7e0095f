//! `--model a,b` as a user meets it: which lists are refused and how, and what is said when the model changes.

use std::{
    path::Path,
    process::{Command, Output},
};

fn budao(directory: &Path, args: &[&str]) -> (i32, String, String) {
    budao_with(directory, args, "off")
}

/// Runs the program with this level of log lines.
fn budao_with(directory: &Path, args: &[&str], log: &str) -> (i32, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_budao"))
        .args(args)
        .current_dir(directory)
        .env_clear()
        .env("HOME", directory)
        .env("BUDAO_JOURNAL", directory.join("journal.db"))
        .env("BUDAO_LOG", log)
        .output();
    let Output { status, stdout, stderr } = output.unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (status.code().unwrap(), text(stdout), text(stderr))
}

#[test]
fn a_wrong_list_of_models_is_refused_before_anything_starts() {
    let directory = tempfile::tempdir().unwrap();
    let nine = "demo,demo:fast,openai:a,openai:b,openai:c,openai:d,openai:e,openai:f,openai:g";
    let mut told = String::new();
    for list in ["demo,demo", "demo,", ",demo", "demo,antropic:claude-x", "demo,openai:", nine] {
        for lang in ["en", "zh"] {
            let (code, _, run) =
                budao(directory.path(), &["run", "--lang", lang, "--model", list, "hello"]);
            let serve = ["serve", "--lang", lang, "--listen", "127.0.0.1:0", "--model", list];
            let (served, _, serve) = budao(directory.path(), &serve);
            assert_ne!((code, served), (0, 0), "{list}: {run}");
            assert_eq!(run.lines().next(), serve.lines().next(), "{list}");
            told += &format!("--- {list}\n{run}\n");
        }
    }
    let (code, _, claude) = budao(
        directory.path(),
        &["serve", "--engine", "claude", "--claude", "/bin/true", "--model", "opus,sonnet"],
    );
    assert_ne!(code, 0, "{claude}");
    insta::assert_snapshot!("wrong_lists", told + "--- opus,sonnet\n" + &claude);
}

/// A script whose model fails for good, and one that answers.
fn scripts(directory: &Path) {
    let spent = "[[step]]\nfault = \"model_quota\"\nrepeat = \"forever\"\n";
    std::fs::write(directory.join("spent.toml"), spent).unwrap();
    let works = "[[step]]\ntext = \"the second answers\"\n";
    std::fs::write(directory.join("works.toml"), works).unwrap();
}

#[test]
fn a_turn_is_answered_by_the_next_model_and_the_user_learns_why() {
    let directory = tempfile::tempdir().unwrap();
    scripts(directory.path());
    for (lang, expected) in [
        ("en", "⇄ The quota for script:spent.toml is spent. script:works.toml is asked instead."),
        ("zh", "⇄ script:spent.toml 的配额已用完，改用 script:works.toml。"),
    ] {
        let list = "script:spent.toml,script:works.toml";
        let (code, stdout, stderr) =
            budao(directory.path(), &["run", "--lang", lang, "--model", list, "hello"]);
        assert_eq!(code, 0, "{stderr}");
        assert!(stdout.contains("the second answers"), "{stdout}");
        assert!(format!("{stdout}{stderr}").contains(expected), "{stdout}{stderr}");
    }
}

#[test]
fn the_operator_finds_the_change_in_the_log() {
    let directory = tempfile::tempdir().unwrap();
    scripts(directory.path());
    let args = ["run", "--model", "script:spent.toml,script:works.toml", "hello"];
    let (code, _, stderr) = budao_with(directory.path(), &args, "warn");
    assert_eq!(code, 0, "{stderr}");
    let line = stderr.lines().find(|line| line.contains("model changed")).unwrap_or_default();
    for field in ["session=", "turn=1", "script:spent.toml", "script:works.toml", "quota_spent"] {
        assert!(line.contains(field), "{field}: {stderr}");
    }
}

#[test]
fn a_list_of_models_can_be_configured() {
    let directory = tempfile::tempdir().unwrap();
    scripts(directory.path());
    let file = "model = [\"script:spent.toml\", \"script:works.toml\"]\n\n\
                [models]\ntext_only = [\"script:works.toml\"]\n\n\
                [models.fallback]\nafter = 500\non_content_filter = true\n";
    std::fs::write(directory.path().join("budao.toml"), file).unwrap();
    let (code, stdout, stderr) =
        budao(directory.path(), &["run", "--config", "budao.toml", "hello"]);
    assert_eq!(code, 0, "{stderr}");
    assert!(stdout.contains("the second answers"), "{stdout}");
    let (_, shown, _) = budao(directory.path(), &["config", "show", "--config", "budao.toml"]);
    assert!(shown.contains("[models.fallback]\nafter = 500\non_content_filter = true"), "{shown}");
    let (_, shown, _) = budao(directory.path(), &["config", "show"]);
    assert!(
        shown.contains("[models.fallback]\nafter = 10000\non_content_filter = false"),
        "{shown}"
    );
}

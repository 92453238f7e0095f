//! The configuration as a user meets it: which word counts, what is refused and how, and what is logged.

use std::{
    net::TcpListener,
    path::Path,
    process::{Command, Output},
};

use serde_json::Value;

fn budao(directory: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_budao"));
    command
        .args(args)
        .current_dir(directory)
        .env_clear()
        .env("HOME", directory)
        .env("BUDAO_JOURNAL", directory.join("journal.db"));
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// The exit code, stdout and stderr.
fn run_command(command: &mut Command) -> (i32, String, String) {
    let Output { status, stdout, stderr } = command.output().unwrap();
    (status.code().unwrap(), text(&stdout), text(&stderr))
}

/// A script that says one word, and a file that names it as the model.
fn word(directory: &Path, word: &str) -> String {
    let script = format!("[[step]]\ntext = \"the word of the {word}\"\n");
    std::fs::write(directory.join(format!("{word}.script.toml")), script).unwrap();
    format!("script:{word}.script.toml")
}

#[test]
fn flags_are_stronger_than_the_environment_and_that_is_stronger_than_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let [file, environment, flag] =
        ["file", "environment", "flag"].map(|name| word(directory, name));
    std::fs::write(directory.join("budao.toml"), format!("model = \"{file}\"\n")).unwrap();
    let run = || budao(directory, &["run", "--config", "budao.toml", "hello"]);
    let answer_of = |command: &mut Command| {
        let (code, stdout, stderr) = run_command(command);
        assert_eq!(code, 0, "{stderr}");
        stdout
    };
    assert!(answer_of(&mut run()).contains("the word of the file"));
    assert!(
        answer_of(run().env("BUDAO_MODEL", &environment)).contains("the word of the environment")
    );
    let all = answer_of(run().env("BUDAO_MODEL", &environment).args(["--model", &flag]));
    assert!(all.contains("the word of the flag"), "{all}");
}

#[test]
fn the_file_in_the_users_configuration_directory_counts_without_being_named() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let (code, stdout, _) = run_command(&mut budao(directory, &["config", "init"]));
    assert_eq!(code, 0);
    let path = directory.join(".config/budao/config.toml");
    assert_eq!(Path::new(stdout.trim()), path);
    let (code, _, stderr) = run_command(&mut budao(directory, &["config", "init"]));
    assert_eq!((code, stderr.contains("--force")), (2, true), "{stderr}");
    std::fs::write(&path, format!("model = \"{}\"\n", word(directory, "home"))).unwrap();
    let (_, stdout, _) = run_command(&mut budao(directory, &["run", "hello"]));
    assert!(stdout.contains("the word of the home"), "{stdout}");
}

#[test]
fn a_broken_file_ends_with_code_2_and_names_line_key_and_nearest_name() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    std::fs::write(directory.join("bad.toml"), "[serve]\nlisen = \"127.0.0.1:0\"\n").unwrap();
    for args in [
        &["config", "check", "bad.toml"][..],
        &["config", "show", "--config", "bad.toml"],
        &["serve", "--config", "bad.toml"],
        &["run", "--config", "bad.toml", "hello"],
    ] {
        let (code, _, stderr) = run_command(&mut budao(directory, args));
        assert_eq!(code, 2, "{args:?}: {stderr}");
        for expected in ["bad.toml:2", "lisen", "Did you mean `listen`?", "ERR_CONF_001"] {
            assert!(stderr.contains(expected), "{args:?}: {stderr}");
        }
    }
    let (code, _, stderr) =
        run_command(budao(directory, &["config", "show"]).env("BUDAO__LIMITS__STPES", "5"));
    assert_eq!(code, 2);
    assert!(stderr.contains("Did you mean `steps`?"), "{stderr}");
}

#[test]
fn a_check_reports_every_wrong_key_and_value_at_once_in_the_readers_language() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let file = "# 设置\n[serve]\nlisten = 5\nlisen = \"x\"\n\n[models]\nbar = 2\n\n[serve.limits]\n\
                observers = \"many\"\nobservrs = 1\n\n[nothing]\na = 1\nb = 2\n\n[limits]\nsteps = 3\n";
    std::fs::write(directory.join("bad.toml"), file).unwrap();
    let check = ["config", "check", "bad.toml"];
    let (code, _, stderr) = run_command(&mut budao(directory, &check));
    assert_eq!(code, 2, "{stderr}");
    for expected in [
        "bad.toml:3 `listen` is wrong: it must be a text in quotes",
        "bad.toml:4 `lisen`",
        "bad.toml:7 `bar`",
        "bad.toml:10 `observers`",
        "bad.toml:11 `observrs`",
        "bad.toml:13 `nothing`",
    ] {
        assert!(stderr.replace("\n", " ").contains(expected), "{expected}: {stderr}");
    }
    assert_eq!(stderr.matches("ERR_CONF_001").count(), 6, "{stderr}");
    let (_, _, chinese) = run_command(budao(directory, &check).env("BUDAO_LANG", "zh"));
    for expected in ["应当是 带引号的文本", "以下之一：`", "`listen`"] {
        assert!(chinese.contains(expected), "{expected}: {chinese}");
    }
    for english in ["one of", "Did you mean", "a text"] {
        assert!(!chinese.contains(english), "{english}: {chinese}");
    }
}

#[test]
fn the_shown_configuration_is_the_effective_one_and_secrets_stay_references() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let file = "[limits]\nsteps = 5\n\n[[smcp]]\nurl = \"http://127.0.0.1:9\"\nroom = \"a\"\n\
                token = \"${env:ROOM}\"\n";
    std::fs::write(directory.join("budao.toml"), file).unwrap();
    let show = || budao(directory, &["config", "show", "--json", "--config", "budao.toml"]);
    let (code, _, stderr) = run_command(&mut show());
    assert_eq!((code, stderr.contains("${env:ROOM}")), (2, true), "{stderr}");
    let printed = show().env("ROOM", "hunter2hunter2").env("BUDAO__LIMITS__DEPTH", "1").output();
    let printed: Value = serde_json::from_slice(&printed.unwrap().stdout).unwrap();
    assert_eq!(printed["limits"]["steps"], 5, "the file");
    assert_eq!(printed["limits"]["depth"], 1, "the environment");
    assert_eq!(printed["limits"]["json_depth"], 64, "the default");
    assert_eq!(printed["smcp"][0]["token"], "${env:ROOM}");
}

#[test]
fn a_port_in_use_is_reported_with_its_owner_and_the_option_for_another() {
    let directory = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let args = ["serve", "--listen", &address];
    let (code, _, stderr) = run_command(&mut budao(directory.path(), &args));
    assert_eq!(code, 1, "{stderr}");
    let process = format!("process {}", std::process::id());
    for expected in [address.as_str(), process.as_str(), "--listen 127.0.0.1:0", "ERR_CONF_003"] {
        assert!(stderr.contains(expected), "{expected}: {stderr}");
    }
}

#[test]
fn every_fault_is_one_log_line_with_session_turn_and_trace() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let script = "[[step]]\n[[step.call]]\ntool = \"fs_read\"\narguments = { file = \"key sk-ant-api03-0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-abcdefghijk-AA\" }\n\
                  [[step]]\ntext = \"done\"\n";
    std::fs::write(directory.join("script.toml"), script).unwrap();
    let config = "model = \"script:script.toml\"\n[log]\nlevel = \"off,budao::fault=info\"\nformat = \"json\"\n\
                  file = \"logs/budao.log\"\nkeep = 2\n";
    std::fs::write(directory.join("budao.toml"), config).unwrap();
    for old in ["2001-01-01", "2001-01-02", "2001-01-03"] {
        std::fs::create_dir_all(directory.join("logs")).unwrap();
        std::fs::write(directory.join(format!("logs/budao.log.{old}")), "").unwrap();
    }
    let (code, _, stderr) = run_command(&mut budao(
        directory,
        &["run", "--config", "budao.toml", "--permission", "auto", "go"],
    ));
    assert_eq!(code, 0, "{stderr}");
    let mut files: Vec<_> = std::fs::read_dir(directory.join("logs"))
        .unwrap()
        .map(|file| file.unwrap().path())
        .collect();
    files.sort();
    assert_eq!(files.len(), 2, "old files go: {files:?}");
    let lines = std::fs::read_to_string(files.last().unwrap()).unwrap();
    assert_eq!(lines.lines().count(), 1, "{lines}");
    let line: Value = serde_json::from_str(lines.trim()).unwrap();
    for (field, expected) in [
        ("level", "WARN"),
        ("code", "ERR_VAL_002"),
        ("event_type", "error.validation"),
        ("errorType", "validation"),
        ("operation", "tool_call"),
        ("tool", "fs_read"),
        ("message", "fault recorded"),
    ] {
        assert_eq!(line[field], expected, "{field}: {line}");
    }
    assert_eq!((&line["recoverable"], &line["turn"]), (&Value::Bool(true), &Value::from(1)));
    assert!(line["fault"].as_str().unwrap().contains("path: required"), "{line}");
    assert_eq!(line["trace"].as_str().unwrap().len(), 32, "{line}");
    assert_eq!(line["session"].as_str().unwrap().len(), 36, "{line}");
    assert!(!lines.contains("sk-ant"), "{lines}");
}

#[test]
fn a_failure_that_is_not_tried_again_is_one_log_line() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    std::fs::write(directory.join("script.toml"), "[[step]]\nfault = \"model_authentication\"\n")
        .unwrap();
    let config = "model = \"script:script.toml\"\n[log]\nlevel = \"off,budao::fault=info\"\nformat = \"json\"\n\
                  file = \"budao.log\"\nrotation = \"never\"\n";
    std::fs::write(directory.join("budao.toml"), config).unwrap();
    let (code, _, stderr) =
        run_command(&mut budao(directory, &["run", "--config", "budao.toml", "go"]));
    assert_eq!(code, 1, "{stderr}");
    let lines = std::fs::read_to_string(directory.join("budao.log")).unwrap();
    assert_eq!(lines.lines().count(), 1, "{lines}");
    assert!(lines.contains("ERR_AUTH_001"), "{lines}");
}

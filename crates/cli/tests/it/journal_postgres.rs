//! The commands on a journal in PostgreSQL, from the first run to a copy back into a file.

use std::{
    path::Path,
    process::{Command, Output, Stdio},
};

use budao_testkit::postgres::{PostgresServer, ROLE_WITH_PASSWORD};

/// Runs a command on a journal, with a password in the environment or without.
fn budao(home: &Path, journal: &str, password: Option<&str>, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_budao"));
    command.args(args).current_dir(home).env_clear().env("HOME", home).stdin(Stdio::null());
    command.env("BUDAO_JOURNAL", journal);
    if let Some(password) = password {
        command.env("PGPASSWORD", password);
    }
    command.output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What a command that succeeds prints.
fn printed(output: &Output) -> String {
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout) + &text(&output.stderr)
}

#[test]
fn a_session_is_run_listed_replayed_copied_and_checked() {
    let Some(server) = PostgresServer::start() else { return };
    let home = tempfile::tempdir().unwrap();
    let journal = server.url("budao");
    let run = |args: &[&str]| printed(&budao(home.path(), &journal, None, args));
    let said = run(&["run", "--model", "demo:fast", "say hello"]);
    assert!(said.contains("hello"), "{said}");
    let listed = run(&["sessions", "list"]);
    let session = listed.split_whitespace().next().unwrap().to_owned();
    assert!(listed.contains("idle"), "{listed}");
    assert!(run(&["replay", &session]).contains("hello"));
    assert!(run(&["journal", "check", &journal]).contains("The journal is intact."));
    assert!(run(&["journal", "stats", &journal]).contains("sessions       1"));
    let file = home.path().join("copy.db").display().to_string();
    assert!(run(&["journal", "copy", &journal, &file]).contains("1 session copied"));
    let copied = printed(&budao(home.path(), &file, None, &["sessions", "list"]));
    assert_eq!(copied, listed);
    assert!(run(&["sessions", "delete", &session]).len() < 400);
    assert!(!run(&["sessions", "list"]).contains(&session));
}

#[test]
fn an_operator_gives_every_session_a_new_epoch_and_a_file_refuses_it() {
    let Some(server) = PostgresServer::start() else { return };
    let home = tempfile::tempdir().unwrap();
    let journal = server.url("budao");
    let run = |args: &[&str]| printed(&budao(home.path(), &journal, None, args));
    run(&["run", "--model", "demo:fast", "say hello"]);
    let generation = || server.sql("SELECT generation FROM budao.meta");
    assert_eq!(generation(), "0");
    let said = run(&["journal", "new-epochs", &journal]);
    assert!(said.contains("a new epoch when it is next used"), "{said}");
    assert_eq!(generation(), "1");
    let file = home.path().join("copy.db").display().to_string();
    run(&["journal", "copy", &journal, &file]);
    let refused = budao(home.path(), &journal, None, &["journal", "new-epochs", &file]);
    assert!(text(&refused.stderr).contains("ERR_JRNL_013"), "{}", text(&refused.stderr));
    let missing = server.url("nothing_here");
    let refused = budao(home.path(), &journal, None, &["journal", "new-epochs", &missing]);
    assert!(!refused.status.success());
    assert_eq!(server.sql("SELECT count(*) FROM pg_namespace WHERE nspname = 'nothing_here'"), "0");
}

#[test]
fn a_wrong_password_is_refused_in_both_languages_and_never_printed() {
    let Some(server) = PostgresServer::start() else { return };
    let home = tempfile::tempdir().unwrap();
    server.sql(&format!("CREATE ROLE {ROLE_WITH_PASSWORD} LOGIN PASSWORD 'hush-hush'"));
    server.sql(&format!("CREATE DATABASE secured OWNER {ROLE_WITH_PASSWORD}"));
    let address = server.address();
    let plain = format!("postgres://{ROLE_WITH_PASSWORD}@{address}/secured");
    let with_password = format!("postgres://{ROLE_WITH_PASSWORD}:wrong-wrong@{address}/secured");
    for lang in ["en", "zh"] {
        let list = ["--lang", lang, "sessions", "list"];
        for (journal, password) in [(&plain, Some("wrong-wrong")), (&with_password, None)] {
            let refused = budao(home.path(), journal, password, &list);
            let said = text(&refused.stderr) + &text(&refused.stdout);
            assert_eq!(refused.status.code(), Some(2), "{said}");
            assert!(said.contains("ERR_JRNL_015") && said.contains(ROLE_WITH_PASSWORD), "{said}");
            assert!(!said.contains("wrong-wrong"), "{said}");
        }
    }
    let run = ["run", "--model", "demo:fast", "say hello"];
    printed(&budao(home.path(), &plain, Some("hush-hush"), &run));
}

#[test]
fn a_mistake_in_an_address_is_named_and_no_file_is_made() {
    let home = tempfile::tempdir().unwrap();
    let list = ["sessions", "list"];
    for (journal, named) in [
        ("postgres://me@localhost/db?sslmod=disable", "sslmode"),
        ("postgres://me@localhost:port/db", "a port number"),
        ("postgres://me@127.0.0.1:1/db", "ERR_JRNL_014"),
    ] {
        let refused = budao(home.path(), journal, None, &list);
        let said = text(&refused.stderr);
        assert!(!refused.status.success() && said.contains(named), "{journal}: {said}");
    }
    assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0);
}

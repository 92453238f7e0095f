//! The program as a user meets it: whole commands with everything they print.
//!
//! `BUDAO_TRANSCRIPTS=overwrite cargo nextest run -p budao-cli --test it explain` takes over what changed.

use std::{
    path::Path,
    process::{Command, Output},
};

use crate::transcript;

#[test]
fn commands_print_what_the_transcripts_show() {
    transcript::check(Path::new("tests/cmd/explain.txt"));
}

#[test]
fn the_readmes_show_what_really_happens() {
    transcript::check(Path::new("../../README.md"));
    transcript::check(Path::new("../../README.zh.md"));
}

fn budao(args: &[&str], env: &[(&str, &str)]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_budao"))
        .args(args)
        .env_clear()
        .envs(env.iter().copied())
        .output()
        .expect("the program starts")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("the program writes UTF-8")
}

#[test]
fn data_goes_to_stdout_and_talk_to_stderr() {
    let found = budao(&["explain", "--list"], &[]);
    assert!(text(&found.stdout).starts_with("CODE "));
    assert!(text(&found.stderr).contains("kinds."));

    let unknown = budao(&["explain", "ERR_TIMEOUT_01"], &[]);
    assert_eq!(unknown.status.code(), Some(2));
    assert_eq!(text(&unknown.stdout), "");
    assert!(text(&unknown.stderr).contains("ERR_TIMEOUT_001"));

    let json = budao(&["explain", "--json", "--list", "timeout"], &[]);
    let pages: serde_json::Value = serde_json::from_slice(&json.stdout).expect("it is JSON");
    assert!(pages.as_array().is_some_and(|pages| pages.len() > 1));
}

#[test]
fn the_environment_chooses_the_language() {
    let explain = |env: &[(&str, &str)]| {
        let output = budao(&["explain", "bug"], env);
        assert!(output.stderr.is_empty(), "{}", text(&output.stderr));
        text(&output.stdout).lines().next().expect("there is a head").to_owned()
    };
    let (english, chinese) = (explain(&[]), explain(&[("LANG", "zh_CN.UTF-8")]));
    assert_ne!(english, chinese);
    assert_eq!(explain(&[("LC_ALL", "C"), ("LANG", "zh_CN.UTF-8")]), english);
    assert_eq!(explain(&[("LANGUAGE", "fr:zh"), ("LANG", "fr_FR.UTF-8")]), chinese);
    assert_eq!(explain(&[("LANG", "fr_FR.UTF-8")]), english, "and nobody is lectured about it");
    assert_eq!(explain(&[("BUDAO_LANG", "zh"), ("LANG", "en_US")]), chinese);
}

#[test]
fn a_pipe_has_no_colours_and_no_line_is_too_wide() {
    use unicode_width::UnicodeWidthStr as _;
    for lang in ["en", "zh"] {
        let list = budao(&["explain", "--list", "--lang", lang], &[("CLICOLOR_FORCE", "1")]);
        let codes = text(&list.stdout)
            .lines()
            .skip(1)
            .map(|line| line.split(' ').next().expect("a line has a first word").to_owned());
        let mut pages = text(&list.stdout).to_owned();
        for code in codes {
            pages.push_str(text(&budao(&["explain", &code, "--lang", lang], &[]).stdout));
        }
        assert!(!pages.contains('\u{1b}'));
        let wide: Vec<_> = pages.lines().filter(|line| line.width() > 80).collect();
        assert!(wide.is_empty(), "{wide:#?}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn an_answer_that_cannot_be_written_is_a_failure_and_a_closed_pipe_is_not() {
    let full = std::fs::File::options().write(true).open("/dev/full").expect("Linux has one");
    let status = Command::new(env!("CARGO_BIN_EXE_budao"))
        .args(["explain", "bug"])
        .stdout(full)
        .stderr(std::process::Stdio::null())
        .status()
        .expect("the program starts");
    assert_eq!(status.code(), Some(1));

    let (reader, writer) = std::io::pipe().expect("a pipe can be made");
    drop(reader);
    let output = Command::new(env!("CARGO_BIN_EXE_budao"))
        .args(["explain", "bug"])
        .stdout(writer)
        .stderr(std::process::Stdio::piped())
        .spawn()
        .and_then(std::process::Child::wait_with_output)
        .expect("the program starts");
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""));
}

/// Each protocol's crate has its own numbers; all of them come from one catalog.
#[test]
fn the_numbers_of_every_kind_are_those_of_the_catalog() {
    let catalog = std::fs::read_to_string("../../catalog/faults.toml").expect("the catalog");
    let catalog: toml::Table = catalog.parse().expect("it is TOML");
    let rows = catalog["kind"].as_array().expect("a list of kinds");
    let json = budao(&["explain", "--json", "--list"], &[]);
    let pages: serde_json::Value = serde_json::from_slice(&json.stdout).expect("it is JSON");
    let pages = pages.as_array().expect("a list of kinds");
    assert_eq!(pages.len(), rows.len());
    for row in rows {
        let page = pages.iter().find(|page| page["name"] == row["name"].as_str().expect("a name"));
        let page = page.expect("every kind is listed");
        for column in ["smcp", "http", "json_rpc"] {
            assert_eq!(page[column].as_i64(), row[column].as_integer(), "{column} of {page}");
        }
    }
}

//! A process without file descriptors or threads refuses a call as a fault of the system and goes on.
//!
//! Method: the test starts itself again, with a limit that the other tests must not have.

use std::{
    fs::File,
    process::{Command, Output},
};

use budao_core::{
    fault::{Fact, Kind, Progress},
    tool::Outcome,
};
use budao_tools::{Toolbox, isolation};
use serde_json::json;

use crate::call_path::support::{any, done, failed, of, run_in};

/// Set in the second process; its value is the resource that is missing there.
const MISSING: &str = "BUDAO_TEST_MISSING";

fn again(test: &str, missing: &str, set_up: &str) -> Output {
    let program = std::env::current_exe().unwrap();
    Command::new("sh")
        .args(["-c", &format!("{set_up} exec \"$0\" \"$@\"")])
        .arg(program)
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .env(MISSING, missing)
        .output()
        .unwrap()
}

fn is_second(missing: &str) -> bool {
    std::env::var(MISSING).is_ok_and(|value| value == missing)
}

fn works() -> Toolbox {
    of(any("works", |_, _| async { Ok(json!("fine")) }))
}

fn call(toolbox: &Toolbox) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(run_in(toolbox, isolation::context()))
}

fn assert_exhausted(outcome: Outcome, resource: &str) {
    let fault = failed(outcome).fault;
    assert_eq!(fault.kind(), Kind::SystemExhausted);
    assert_eq!(fault.detail().text(Fact::LimitName), Some(resource));
    assert_eq!(fault.progress(), Progress::NotBegun);
}

fn assert_passed(output: &Output) {
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{output:?}");
}

#[test]
fn without_file_descriptors_a_call_does_not_begin_and_the_next_one_may() {
    if !is_second("open_files") {
        let name = "call_path::exhausted::without_file_descriptors_a_call_does_not_begin_and_the_next_one_may";
        return assert_passed(&again(name, "open_files", "ulimit -n 64;"));
    }
    let toolbox = works();
    let files: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    assert!(files.len() < 64);
    assert_exhausted(call(&toolbox), "open_files");
    drop(files);
    assert_eq!(done(call(&toolbox)).data, json!("fine"));
}

#[test]
fn without_threads_a_call_does_not_begin() {
    if !is_second("threads") {
        let name = "call_path::exhausted::without_threads_a_call_does_not_begin";
        // No machine has room for a stack of this size.
        let set_up = "export RUST_MIN_STACK=1000000000000000;";
        return assert_passed(&again(name, "threads", set_up));
    }
    assert_exhausted(call(&works()), "threads");
}

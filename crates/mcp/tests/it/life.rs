//! Servers that do not start, die, come back, and are ended.

use std::time::Duration;

use budao_core::fault::{Fact, Kind};
use budao_mcp::{McpServerConfig, ServerHandle, ServerSet, ServerState, Transport};
use budao_tools::Toolbox;
use serde_json::json;

use crate::common::{
    call, call_with, connect, dead, done, exists, failed, fake, fake_path, has_slow, is_ready,
    limits, names, refused, seen, toolbox, until, variables, within, world,
};

#[tokio::test]
async fn a_server_that_cannot_start_is_reported_with_its_command_and_error_output() {
    let fault = refused(fake(&["--needs", "/nowhere/at/all"])).await;
    assert_eq!(fault.kind(), Kind::McpServerFailed);
    let detail = fault.detail();
    assert!(detail.text(Fact::Command).unwrap().contains("fake_mcp_server"), "{fault:?}");
    assert_eq!(detail.number(Fact::ExitCode), Some(3));
    assert_eq!(detail.text(Fact::StderrTail), Some("fatal: the file I need is not there"));
    assert_eq!(fault.hops()[0].name, "fake");
}

#[tokio::test]
async fn a_command_that_does_not_exist_is_named() {
    let fault = refused(McpServerConfig::stdio("ghost", "/no/such/program", ["--x"])).await;
    assert_eq!(fault.kind(), Kind::McpServerFailed);
    assert_eq!(fault.detail().text(Fact::Command), Some("/no/such/program --x"));
    assert!(!fault.causes().is_empty());
}

#[tokio::test]
async fn a_server_that_never_answers_the_handshake_is_ended() {
    let mut config = fake(&["--mute", "--lingers"]);
    config.timeouts.start = Duration::from_millis(300);
    let fault = refused(config).await;
    assert_eq!(fault.kind(), Kind::McpServerFailed);
    assert_eq!(fault.detail().number(Fact::TimeoutMs), Some(300), "{fault}");
}

#[tokio::test]
async fn a_refused_handshake_is_reported_with_its_reason() {
    let fault = refused(fake(&["--unwilling"])).await;
    assert_eq!(fault.kind(), Kind::McpServerFailed);
    assert!(fault.detail().text(Fact::Reason).unwrap().contains("not today"), "{fault}");
}

#[tokio::test]
async fn a_server_that_dies_in_a_call_fails_it_at_once_and_comes_back() {
    let server = connect(fake(&[])).await;
    let before = server.generation();
    let tools = toolbox(&server);
    let fault = failed(call(&server, "die_reading", json!({})).await).fault;
    assert_eq!(fault.kind(), Kind::McpServerFailed, "{fault}");
    assert!(fault.may_auto_retry());
    assert_eq!(fault.detail().number(Fact::ExitCode), Some(7), "{fault:?}");
    assert!(fault.causes().iter().any(|cause| cause.contains("the disk is on fire")), "{fault:?}");
    // Gone, and there again.
    within(server.watch().wait_for(|generation| *generation >= before + 2)).await.unwrap();
    until(&server, is_ready).await;
    assert_eq!(done(call(&server, "echo", json!({ "text": "back" })).await), json!("back"));
    // A tool that was taken before the death works with the new process.
    let context = budao_tools::isolation::context();
    let old = tools.check_value("mcp__fake__echo", json!({ "text": "old" }), &context.limits);
    assert_eq!(done(old.unwrap().run(context).await), json!("old"));
    server.shutdown().await;
}

#[tokio::test]
async fn a_lost_call_that_must_not_be_repeated_has_an_unknown_outcome() {
    let server = connect(fake(&[])).await;
    let fault = failed(call(&server, "die", json!({})).await).fault;
    assert_eq!(fault.kind(), Kind::OutcomeUnknown);
    assert!(!fault.may_auto_retry());
    assert_eq!(fault.hops()[0].name, "fake");
    server.shutdown().await;
}

#[tokio::test]
async fn a_death_takes_every_running_call_with_it_at_once() {
    let server = connect(fake(&[])).await;
    let slow = (0..5).map(|_| call(&server, "slow", json!({})));
    let die = async {
        has_slow(&server, 5).await;
        call(&server, "die", json!({})).await
    };
    let (slow, _) = tokio::join!(futures::future::join_all(slow), die);
    for outcome in slow {
        assert_eq!(failed(outcome).fault.kind(), Kind::OutcomeUnknown);
    }
    server.shutdown().await;
}

#[tokio::test]
async fn while_a_server_is_down_it_has_no_tools_and_old_ones_fail_at_once() {
    let mut config = fake(&[]);
    config.reconnect.tries = 1;
    let server = connect(config).await;
    let tools = server.tools();
    call(&server, "die", json!({})).await;
    let state = until(&server, |state| matches!(state, ServerState::Down { .. })).await;
    assert!(matches!(state, ServerState::Down { again_in: None, .. }), "{state:?}");
    assert!(names(&server).is_empty());
    let context = budao_tools::isolation::context();
    let answer = within(tools[0].call(json!({ "text": "x" }), &context)).await;
    assert_eq!(answer.unwrap_err().fault.kind(), Kind::McpServerFailed);
    // Tries are used up; a person may ask for one more.
    server.restart();
    until(&server, is_ready).await;
    assert_eq!(done(call(&server, "echo", json!({ "text": "x" })).await), json!("x"));
    server.shutdown().await;
}

#[tokio::test]
async fn a_server_that_is_not_there_yet_is_tried_until_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let needed = folder.path().join("needed");
    let config = fake(&["--needs", needed.to_str().unwrap()]);
    let server = ServerHandle::open(config, &variables(), &world(), &limits()).unwrap();
    let mut state = server.watch_state();
    assert!(within(server.ready()).await.is_err());
    for _ in 0..3 {
        within(state.changed()).await.unwrap();
    }
    std::fs::write(&needed, "").unwrap();
    until(&server, is_ready).await;
    assert_eq!(server.tools().len(), 18);
    server.shutdown().await;
}

/// Goal: a server that dies as soon as it is up is not started without pause.
/// Method: each failure doubles the wait, though every start succeeded.
#[tokio::test]
async fn a_server_that_dies_again_and_again_is_started_ever_more_slowly() {
    let mut config = fake(&["--dies-listing"]);
    config.reconnect.max = Duration::from_secs(60);
    let server = ServerHandle::open(config, &variables(), &world(), &limits()).unwrap();
    let mut state = server.watch_state();
    let mut waits = Vec::new();
    while waits.len() < 4 {
        within(state.changed()).await.unwrap();
        if let ServerState::Down { fault, again_in } = &*state.borrow_and_update() {
            assert!(fault.to_string().contains("the list is lost"), "{fault}");
            waits.push(again_in.unwrap());
        }
    }
    assert!(waits.is_sorted() && waits[3] > waits[0] * 4, "{waits:?}");
    server.shutdown().await;
}

#[tokio::test]
async fn a_server_that_does_not_list_again_keeps_its_tools_and_its_calls_while_it_is_busy() {
    let mut config = fake(&["--lists-once"]);
    config.timeouts.list = Duration::from_millis(50);
    let server = connect(config).await;
    let (id, before) = (server.process_id(), server.generation());
    let context = budao_tools::isolation::context();
    let busy = call_with(&server, "slow", json!({}), context.clone());
    let meanwhile = async {
        has_slow(&server, 1).await;
        // By the time of the third list the second has been given up.
        done(call(&server, "grow", json!({})).await);
        while seen(&server, "tools/list").await.len() < 3 {}
        assert_eq!((server.process_id(), server.tools().len()), (id, 18));
        context.cancel.cancel();
    };
    let (busy, ()) = tokio::join!(busy, meanwhile);
    assert_eq!(failed(busy).fault.kind(), Kind::Cancelled);
    // Idle, and still silent: it is started anew.
    within(server.watch().wait_for(|generation| *generation >= before + 2)).await.unwrap();
    assert_ne!(server.process_id(), id);
    server.shutdown().await;
}

#[tokio::test]
async fn after_shutdown_no_process_is_left_and_no_zombie() {
    let server = connect(fake(&[])).await;
    let id = server.process_id().unwrap();
    assert!(exists(id));
    within(server.shutdown()).await;
    assert!(!exists(id));
    assert_eq!(server.state(), ServerState::Stopped);
    assert!(server.tools().is_empty() && server.process_id().is_none());
}

#[tokio::test]
async fn a_server_that_ignores_everything_is_killed_with_all_its_children() {
    // Ignored signals stay ignored in the program that takes the shell's place.
    let script = format!("trap '' TERM; exec {} --lingers --parent", fake_path().display());
    let mut config = fake(&[]);
    if let Transport::Stdio(stdio) = &mut config.transport {
        stdio.command = "sh".into();
        stdio.args = vec!["-c".into(), script];
    }
    let server = connect(config).await;
    let id = server.process_id().unwrap();
    let child = child_of(id);
    within(server.shutdown()).await;
    assert!(!exists(id));
    dead(child).await;
}

#[tokio::test]
async fn a_child_that_keeps_the_output_open_does_not_hide_a_death() {
    let server = connect(fake(&["--parent"])).await;
    let id = server.process_id().unwrap();
    let child = child_of(id);
    let fault = failed(call(&server, "die_reading", json!({})).await).fault;
    assert_eq!(fault.kind(), Kind::McpServerFailed);
    dead(child).await;
    assert!(!exists(id));
    server.shutdown().await;
}

#[tokio::test]
async fn dropping_a_server_ends_its_process() {
    let server = connect(fake(&["--lingers"])).await;
    let id = server.process_id().unwrap();
    drop(server);
    dead(id).await;
}

/// Goal: even a runtime that is torn down leaves nothing behind.
#[test]
fn a_runtime_that_goes_takes_its_servers_with_it() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let (server, id, child) = runtime.block_on(async {
        let server = connect(fake(&["--lingers", "--parent"])).await;
        let id = server.process_id().unwrap();
        (server, id, child_of(id))
    });
    runtime.shutdown_timeout(Duration::from_secs(5));
    drop(server);
    let after = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    after.block_on(async {
        for id in [id, child] {
            dead(id).await;
        }
    });
}

#[tokio::test]
async fn a_shutdown_in_the_middle_of_the_start_leaves_nothing_either() {
    let server =
        ServerHandle::open(fake(&["--mute", "--lingers"]), &variables(), &world(), &limits())
            .unwrap();
    within(server.shutdown()).await;
    assert_eq!(server.state(), ServerState::Stopped);
}

#[tokio::test]
async fn a_secret_of_the_configuration_is_in_no_fault() {
    let mut config =
        McpServerConfig::stdio("leaky", "sh", ["-c", "echo \"token $TOKEN refused\" >&2; exit 4"]);
    if let Transport::Stdio(stdio) = &mut config.transport {
        stdio.env.insert("TOKEN".into(), "correct-horse-battery".to_owned().into());
    }
    let fault = refused(config).await;
    let shown = format!("{fault} {fault:?} {}", serde_json::to_string(&fault).unwrap());
    assert!(!shown.contains("correct-horse"), "{shown}");
    assert!(shown.contains("refused"), "{shown}");
}

#[tokio::test]
async fn one_server_that_fails_costs_the_others_nothing() {
    let mut other = fake(&[]);
    other.name = "other".into();
    let mut off = fake(&[]);
    (off.name, off.enabled) = ("off".into(), false);
    let ghost = McpServerConfig::stdio("ghost", "/no/such/program", [""; 0]);
    let servers =
        ServerSet::open([fake(&[]), ghost, other, off], &variables(), &world(), &limits()).unwrap();
    let failed = within(servers.ready(&world(), Duration::from_secs(20))).await;
    assert_eq!(failed.len(), 1);
    assert_eq!(failed[0].0, "ghost");
    assert_eq!(servers.tools().len(), 36);
    assert!(servers.get("off").is_none() && servers.iter().count() == 3);
    let toolbox = servers.offer(&Toolbox::builder().build()).unwrap();
    assert_eq!(toolbox.specs().len(), 36);
    let before = servers.generation();
    let mut watch = servers.watch();
    call(servers.get("other").unwrap(), "grow", json!({})).await;
    within(watch.wait_for(|generation| *generation > before)).await.unwrap();
    assert_eq!(servers.offer(&toolbox).unwrap().specs().len(), 37);
    within(servers.shutdown()).await;
    assert!(servers.tools().is_empty());
}

#[tokio::test]
async fn two_servers_of_one_name_are_refused() {
    let refused =
        ServerSet::open([fake(&[]), fake(&[])], &variables(), &world(), &limits()).unwrap_err();
    assert_eq!(refused.kind(), Kind::ConfigurationWrong);
}

/// The child of a process that has one.
fn child_of(id: u32) -> u32 {
    let path = format!("/proc/{id}/task/{id}/children");
    let children = std::fs::read_to_string(path).unwrap();
    children.split_whitespace().next().unwrap().parse().unwrap()
}

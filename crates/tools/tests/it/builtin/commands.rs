//! Commands: every one ends, with everything it started, in one well-formed answer.

use std::time::{Duration, Instant};

use budao_core::{Kind, limits::Limits, tool::Outcome};
use budao_tools::{
    builtin::{BuiltinOptions, Environment},
    launch::Confinement,
};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::builtin::support::{Fixture, data, kind, launcher, processes_with, render_outcome};

/// A fixture where ending things does not take long.
fn fixture() -> Fixture {
    fixture_with(BuiltinOptions { launcher: Some(launcher()), ..BuiltinOptions::default() })
}

fn fixture_with(options: BuiltinOptions) -> Fixture {
    Fixture::with_limits(options, limits())
}

fn limits() -> Limits {
    Limits { kill_grace: Duration::from_millis(1_000), ..Limits::default() }
}

/// A number that stands in the command line of every process of one test.
fn mark() -> String {
    let random = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 1_u8);
    format!("{:09}", random % 1_000_000_000)
}

fn nobody_is_left(mark: &str) {
    let left = processes_with(mark);
    assert!(left.is_empty(), "still there: {left:?}");
}

#[tokio::test]
async fn a_command_answers_with_its_output() {
    let fixture = fixture();
    fixture.write("a.txt", "hello\n");
    let run = fixture
        .call_and_render(
            "bash_run",
            json!({ "cmd": "cat a.txt; echo note >&2; pwd -P >/dev/null" }),
        )
        .await;
    insta::assert_json_snapshot!("run", run);
    assert_eq!(
        *fixture.memory.shown.lock().unwrap(),
        "hello\nnote\n",
        "it was shown while it came"
    );
}

#[tokio::test]
async fn a_failed_command_reports_its_reason() {
    let fixture = fixture();
    let run = json!({ "cmd": "echo partial; echo 'no such host' >&2; exit 3" });
    insta::assert_json_snapshot!("exit_3", fixture.call_and_render("bash_run", run).await);
    let missing = json!({ "cmd": "definitely_not_a_program_0" });
    insta::assert_json_snapshot!("exit_127", fixture.call_and_render("bash_run", missing).await);
    let killed = json!({ "cmd": "echo before; kill -9 $$" });
    insta::assert_json_snapshot!("signal_9", fixture.call_and_render("bash_run", killed).await);
}

#[tokio::test]
async fn a_command_has_no_input_and_the_configured_environment() {
    let given = [("PATH", "/usr/bin:/bin"), ("MY_API_KEY", "hush"), ("COLOUR", "blue")];
    let given = given.map(|(name, value)| (name.into(), value.into()));
    let environment = Environment::filtered(given, &[]);
    let options =
        BuiltinOptions { launcher: Some(launcher()), environment, ..BuiltinOptions::default() };
    let fixture = fixture_with(options);
    let run =
        fixture.done("bash_run", json!({ "cmd": "cat; echo $MY_API_KEY-$COLOUR; env" })).await;
    let output = run["output"].as_str().unwrap();
    assert!(output.starts_with("-blue\n") && !output.contains("hush"), "{output}");
}

/// Everything that makes a process hard to end.
fn stubborn(mark: &str) -> String {
    format!(
        "trap '' TERM HUP INT; \
         setsid sh -c \"trap '' TERM HUP; sleep 1000.{mark}; :\" & \
         (sh -c 'sleep 1000.{mark} & sleep 1000.{mark} & exit 0' &); \
         (setsid sh -c 'setsid sh -c \"trap \\\"\\\" TERM; while :; do sleep 1.{mark}; done\" >/dev/null 2>&1 &' &); \
         nohup sleep 1000.{mark} >/dev/null 2>&1 & \
         echo ready; \
         while :; do sleep 1000.{mark}; done"
    )
}

#[tokio::test]
async fn a_deadline_ends_every_descendant() {
    let (fixture, mark) = (fixture(), mark());
    let run = json!({ "cmd": stubborn(&mark), "timeout_ms": 2_000 });
    let outcome = fixture.call("bash_run", run).await;
    assert_eq!(kind(&outcome), Kind::DeadlinePassed);
    assert_eq!(data(&outcome)["output"], "ready\n");
    assert!(data(&outcome).get("could_not_be_ended").is_none());
    nobody_is_left(&mark);
    let mut rendered = render_outcome(&outcome);
    rendered["data"] = "…".into();
    insta::assert_json_snapshot!("deadline", rendered);
}

#[tokio::test]
async fn a_cancel_ends_every_descendant() {
    let (fixture, mark) = (fixture(), mark());
    let mut context = fixture.context.clone();
    context.cancel = CancellationToken::new();
    let cancel = context.cancel.clone();
    let run = json!({ "cmd": stubborn(&mark) });
    let call = fixture.call_in("bash_run", run, context);
    let (outcome, ()) = tokio::join!(call, async {
        until(|| processes_with(&mark).len() >= 8).await;
        cancel.cancel();
    });
    assert_eq!(kind(&outcome), Kind::Cancelled);
    nobody_is_left(&mark);
}

#[tokio::test]
async fn a_call_that_is_dropped_takes_its_command_with_it() {
    // The launcher hears of it as of the death of this process: its socket closes.
    let (fixture, mark) = (fixture(), mark());
    let run = json!({ "cmd": stubborn(&mark) });
    tokio::select! {
        biased;
        _ = fixture.call("bash_run", run) => unreachable!("it runs for ever"),
        () = until(|| processes_with(&mark).len() >= 8) => {}
    }
    until(|| processes_with(&mark).is_empty()).await;
}

#[tokio::test]
async fn orphans_of_a_finished_command_are_ended_and_reported() {
    let (fixture, mark) = (fixture(), mark());
    let run = json!({ "cmd": format!("sleep 1000.{mark} & disown; setsid sleep 1000.{mark} & echo done") });
    let outcome = fixture.call("bash_run", run).await;
    assert_eq!(data(&outcome)["left_running_and_ended"], 2);
    assert_eq!(data(&outcome)["output"], "done\n");
    nobody_is_left(&mark);
}

#[tokio::test]
async fn a_command_that_starts_faster_than_it_is_killed_is_ended() {
    let (fixture, mark) = (fixture(), mark());
    let cmd = format!(
        "trap '' TERM; again() {{ trap '' TERM; (sleep 0.01; again) & (sleep 0.3{mark} &) ; }}; \
         again; again; again; again; sleep 1000.{mark}"
    );
    let outcome = fixture.call("bash_run", json!({ "cmd": cmd, "timeout_ms": 400 })).await;
    assert_eq!(kind(&outcome), Kind::DeadlinePassed);
    nobody_is_left(&mark);
}

#[tokio::test]
async fn a_command_that_kills_its_launcher_is_ended_all_the_same() {
    let (fixture, mark) = (fixture(), mark());
    let cmd = format!("setsid sleep 1000.{mark} & kill -9 $PPID; sleep 1000.{mark}");
    let outcome = fixture.call("bash_run", json!({ "cmd": cmd, "timeout_ms": 20_000 })).await;
    assert_eq!(kind(&outcome), Kind::KilledBySignal);
    // They are killed, but without their launcher nobody awaits their end.
    let began = Instant::now();
    while !processes_with(&mark).is_empty() && began.elapsed() < Duration::from_secs(60) {
        std::thread::yield_now();
    }
    nobody_is_left(&mark);
}

#[tokio::test]
async fn a_command_that_deletes_its_own_directory_gets_its_answer_and_so_does_the_next() {
    let fixture = fixture();
    let gone = fixture.done("bash_run", json!({ "cmd": "rm -rf \"$PWD\"; echo gone" })).await;
    assert_eq!((gone["code"].as_i64(), gone["output"].as_str()), (Some(0), Some("gone\n")));
    insta::assert_json_snapshot!(
        "workspace_gone",
        fixture.call_and_render("bash_run", json!({ "cmd": "ls" })).await
    );
    assert_eq!(fixture.fails("fs_read", json!({ "path": "a" })).await, Kind::FileNotFound);
    assert_eq!(
        fixture.fails("fs_write", json!({ "path": "a", "content": "" })).await,
        Kind::FileNotFound
    );
}

#[tokio::test]
async fn fifty_megabytes_are_bounded_and_counted() {
    let fixture = fixture();
    let cmd = "head -c 50000000 /dev/zero | tr '\\0' x; echo; echo the end >&2";
    let outcome = fixture.call("bash_run", json!({ "cmd": cmd })).await;
    let data = data(&outcome);
    assert_eq!(data["output_bytes"], 50_000_009);
    assert!(data["output"].as_str().unwrap().ends_with("the end\n"));
    assert!(render_outcome(&outcome).to_string().len() <= 64 * 1024);
    assert!(fixture.memory.shown.lock().unwrap().len() <= 64 * 1024);
}

#[tokio::test]
async fn a_long_output_is_kept_whole_beside_what_is_shown() {
    let fixture = fixture();
    let outcome = fixture.call("bash_run", json!({ "cmd": "seq 1 100000" })).await;
    let name = data(&outcome)["output_kept"].as_str().unwrap();
    let whole = fixture.context.blobs.get(name).await.unwrap().unwrap();
    assert_eq!(whole.len() as u64, data(&outcome)["output_bytes"].as_u64().unwrap());
    assert!(whole.starts_with(b"1\n2\n") && whole.ends_with(b"99999\n100000\n"));
}

#[tokio::test]
async fn bytes_that_are_no_text_are_shown_as_well_as_can_be() {
    let fixture = fixture();
    let run = fixture.done("bash_run", json!({ "cmd": "printf 'a\\377\\376b\\000c\\n'" })).await;
    assert_eq!(run["output"], "a\u{fffd}\u{fffd}b\0c\n");
}

#[tokio::test]
async fn both_pipes_can_be_filled_at_once() {
    let fixture = fixture();
    let cmd = "head -c 3000000 /dev/zero >&2 & head -c 3000000 /dev/zero; wait";
    let outcome = fixture.call("bash_run", json!({ "cmd": cmd })).await;
    assert_eq!(data(&outcome)["output_bytes"], 6_000_000);
}

#[tokio::test]
async fn an_invalid_command_line_is_reported() {
    let fixture = fixture();
    let long = json!({ "cmd": format!(": {}", "x".repeat(200_000)) });
    assert_eq!(fixture.fails("bash_run", long).await, Kind::CommandNotStarted);
    let nul = json!({ "cmd": "echo a\0b" });
    assert_eq!(fixture.fails("bash_run", nul).await, Kind::CommandNotStarted);
    let slow = json!({ "cmd": "true", "timeout_ms": 86_400_000 });
    insta::assert_json_snapshot!(
        "timeout_too_long",
        fixture.call_and_render("bash_run", slow).await
    );
}

#[tokio::test]
async fn a_confined_command_writes_only_inside() {
    let outside = tempfile::tempdir().unwrap();
    let confine = Confinement::read_anywhere();
    let options = BuiltinOptions {
        launcher: Some(launcher()),
        confine: Some(confine),
        ..BuiltinOptions::default()
    };
    let fixture = fixture_with(options);
    let cmd = format!(
        "echo in > in.txt; mkdir d; echo x > /dev/null; echo out > {0}/out.txt; mkdir {0}/dir; \
         sh -c 'rm -rf {0}'; cat in.txt",
        outside.path().display()
    );
    let outcome = fixture.call("bash_run", json!({ "cmd": cmd })).await;
    if outcome.fault().is_some_and(|fault| fault.kind() == Kind::SandboxUnavailable) {
        eprintln!("skipped: this kernel has no Landlock, and said so");
        return;
    }
    // What it says on its two outputs comes in no order that could be relied on.
    assert!(data(&outcome)["output"].as_str().unwrap().contains("in\n"), "{outcome:?}");
    assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 0);
    assert!(fixture.path("in.txt").exists() && fixture.path("d").exists());
}

#[tokio::test]
async fn a_command_that_cannot_be_confined_does_not_run() {
    let gone = Confinement { read: vec!["/".into()], write: vec!["/no/such/place".into()] };
    for launcher in [Some(launcher()), None] {
        let options =
            BuiltinOptions { launcher, confine: Some(gone.clone()), ..BuiltinOptions::default() };
        let fixture = fixture_with(options);
        let outcome = fixture.call("bash_run", json!({ "cmd": "touch ran" })).await;
        assert_eq!(kind(&outcome), Kind::SandboxUnavailable);
        assert!(!fixture.path("ran").exists());
    }
}

#[tokio::test]
async fn without_a_launcher_the_group_is_ended() {
    let fixture = fixture_with(BuiltinOptions::default());
    let ok = fixture.done("bash_run", json!({ "cmd": "echo hello" })).await;
    assert_eq!(ok["output"], "hello\n");
    assert_eq!(fixture.fails("bash_run", json!({ "cmd": "exit 4" })).await, Kind::ExitStatus);
    let mark = mark();
    let cmd = format!(
        "trap '' TERM; sh -c \"trap '' TERM; sleep 1000.{mark}\" & sleep 1000.{mark}; wait"
    );
    let outcome = fixture.call("bash_run", json!({ "cmd": cmd, "timeout_ms": 300 })).await;
    assert_eq!(kind(&outcome), Kind::DeadlinePassed);
    until(|| processes_with(&mark).is_empty()).await;
}

#[tokio::test]
async fn a_missing_launcher_is_reported() {
    let launcher = budao_tools::launch::Launcher::new("/no/such/program");
    let fixture =
        fixture_with(BuiltinOptions { launcher: Some(launcher), ..BuiltinOptions::default() });
    assert_eq!(fixture.fails("bash_run", json!({ "cmd": "true" })).await, Kind::CommandNotStarted);
    // A program that is no launcher ends or says nothing of use; that is an answer too.
    let mut other = budao_tools::launch::Launcher::new("/bin/true");
    other.args.clear();
    let fixture =
        fixture_with(BuiltinOptions { launcher: Some(other), ..BuiltinOptions::default() });
    assert_eq!(fixture.fails("bash_run", json!({ "cmd": "true" })).await, Kind::CommandNotStarted);
}

/// Waits for something to be so, for at most a minute.
pub(crate) async fn until(mut so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !so() {
        assert!(began.elapsed() < Duration::from_secs(60), "it never was so");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn commands_of_one_step_run_side_by_side() {
    let fixture = fixture();
    // Each ends only when all have begun.
    let all = "until [ $(ls began-* | wc -l) = 6 ]; do sleep 0.02; done";
    let cmd = |n| format!("touch began-{n}; {all}; echo {n}");
    let runs = (0..6).map(|n| fixture.call("bash_run", json!({ "cmd": cmd(n) })));
    let outcomes = futures::future::join_all(runs).await;
    for (n, outcome) in outcomes.iter().enumerate() {
        let Outcome::Done(output) = outcome else { panic!("{outcome:?}") };
        assert_eq!(output.data["output"], format!("{n}\n"));
    }
}

//! The programs `budao smcp server` and `budao smcp computer`, killed with SIGKILL in the middle of calls.
//!
//! Goal: every call has one answer, of the right kind: what a computer may have begun is never said to be something else.
//! No effect takes place twice. Whoever lives is back in the room by itself.
//! Method: the effect of a tool is a line in a file. The tool is held before its effect and after it, a program that is
//! to hear nothing more is frozen, and then somebody is killed. `cargo xtask crash` does it more often.

mod fixture;

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, AtomicU32, Ordering},
};

use budao_core::fault::Kind;
use budao_testkit::program::until;
use budao_testkit::{
    mcp::Point::{AfterEffect, BeforeEffect},
    world,
};
use fixture::{CallResult, Fixture, freeze};

/// Rounds of every test, and kills of the storm.
fn rounds() -> (u32, u32) {
    if std::env::var_os("BUDAO_CRASH_DEEP").is_some() { (12, 60) } else { (1, 4) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hub_killed_at_any_moment_of_a_call_leaves_one_true_answer_and_all_members_reconnect() {
    let Some(mut stage) = Fixture::open().await else { return };
    let (rounds, _) = rounds();
    for round in 0..rounds {
        // It never reads the call.
        let name = format!("unread {round}");
        freeze(&stage.hub).await;
        let call = stage.call(&name, false);
        stage.hub_is_sent_something().await;
        stage.kill_hub();
        assert_eq!(stage.end_of(&name, call).await, Some(Kind::OutcomeUnknown));
        stage.start_hub();
        stage.all_are_back().await;
        assert_eq!(stage.times(&name), 0, "it was never passed on");

        // The computer has it and has not begun; it begins when the hub is dead.
        let name = format!("passed on {round}");
        let call = stage.call(&name, true);
        stage.stands(BeforeEffect, &name).await;
        stage.kill_hub();
        assert_eq!(stage.end_of(&name, call).await, Some(Kind::OutcomeUnknown));
        stage.ledger.let_on(AfterEffect, &name).unwrap();
        stage.ledger.let_on(BeforeEffect, &name).unwrap();
        until("the effect takes place", || stage.times(&name) == 1).await;
        stage.start_hub();
        stage.all_are_back().await;

        // The computer has answered, and nobody reads it.
        let name = format!("answered {round}");
        let call = stage.call(&name, true);
        stage.ledger.let_on(BeforeEffect, &name).unwrap();
        stage.stands(AfterEffect, &name).await;
        freeze(&stage.hub).await;
        stage.ledger.let_on(AfterEffect, &name).unwrap();
        stage.hub_is_sent_something().await;
        stage.kill_hub();
        assert_eq!(stage.end_of(&name, call).await, Some(Kind::OutcomeUnknown));
        assert_eq!(stage.times(&name), 1);
        stage.start_hub();
        stage.all_are_back().await;
    }
    eprintln!("{} hubs killed in a call: {}", rounds * 3, stage.judge().await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_computer_killed_at_any_moment_of_a_call_leaves_one_true_answer_and_can_come_back() {
    let Some(mut stage) = Fixture::open().await else { return };
    let (rounds, _) = rounds();
    for round in 0..rounds {
        // It never reads the call.
        let name = format!("unread {round}");
        freeze(&stage.computer).await;
        let call = stage.call(&name, false);
        stage.hub_has_a_call().await;
        stage.kill_computer();
        assert_eq!(stage.end_of(&name, call).await, Some(Kind::ComputerGone));
        stage.start_computer();
        stage.all_are_back().await;
        assert_eq!(stage.times(&name), 0, "no server ever had it");

        // Its MCP server has the call and has not begun; it ends with its computer and never begins.
        let name = format!("passed on {round}");
        let call = stage.call(&name, true);
        stage.stands(BeforeEffect, &name).await;
        stage.kill_computer();
        assert_eq!(stage.end_of(&name, call).await, Some(Kind::ComputerGone));
        stage.start_computer();
        stage.all_are_back().await;
        stage.ledger.let_on(AfterEffect, &name).unwrap();
        stage.ledger.let_on(BeforeEffect, &name).unwrap();
        let passed_on = name;

        // It is done, and the computer does not know.
        let name = format!("done {round}");
        let call = stage.call(&name, true);
        stage.ledger.let_on(BeforeEffect, &name).unwrap();
        stage.stands(AfterEffect, &name).await;
        stage.kill_computer();
        assert_eq!(stage.end_of(&name, call).await, Some(Kind::ComputerGone));
        assert_eq!(stage.times(&name), 1);
        stage.ledger.let_on(AfterEffect, &name).unwrap();
        stage.start_computer();
        stage.all_are_back().await;

        assert_eq!(stage.times(&passed_on), 0, "its server ended with its computer");

        // It is done, and everybody knows.
        let name = format!("told {round}");
        let call = stage.call(&name, false);
        assert_eq!(stage.end_of(&name, call).await, None);
        stage.kill_computer();
        stage.start_computer();
        stage.all_are_back().await;
    }
    eprintln!("{} computers killed in a call: {}", rounds * 4, stage.judge().await);
}

/// Calls at a time.
const CALLERS: u32 = 6;

/// Goal: the same at moments nobody chose.
/// Method: calls all the time; hub or computer is killed after a random number of effects, and comes back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_of_kills_among_calls_repeats_no_effect_and_answers_every_call_once() {
    let Some(stage) = Fixture::open().await else { return };
    let seed = std::env::var("BUDAO_SEED").ok().and_then(|text| text.parse().ok());
    let seed = seed.unwrap_or_else(|| u64::from(std::process::id()));
    eprintln!("seed {seed}");
    let dice = world::seeded(seed).entropy;
    let (_, kills) = rounds();
    let stage = Arc::new(tokio::sync::RwLock::new(stage));
    let (over, next) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
    let ended: Arc<Mutex<Vec<(String, CallResult)>>> = Arc::default();
    let callers: Vec<_> = (0..CALLERS)
        .map(|_| {
            let (stage, over, next) = (stage.clone(), over.clone(), next.clone());
            let ended = ended.clone();
            tokio::spawn(async move {
                while !over.load(Ordering::Relaxed) {
                    let name = format!("call {}", next.fetch_add(1, Ordering::Relaxed));
                    let call = stage.read().await.call(&name, false);
                    let end = call.await.unwrap();
                    let has_failed = end.is_err();
                    ended.lock().unwrap().push((name, end));
                    if has_failed {
                        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
                    }
                }
            })
        })
        .collect();
    let (mut hubs, mut computers) = (0, 0);
    let first = dice.bits();
    for kill in 0..u64::from(kills) {
        let effects = || stage.try_read().map_or(0, |stage| stage.ledger.lines().len());
        let enough = effects() + 1 + usize::try_from(dice.bits() % 40).unwrap();
        until("calls go on", || effects() >= enough).await;
        let mut stage = stage.write().await;
        if first.wrapping_add(kill).is_multiple_of(2) {
            hubs += 1;
            stage.kill_hub();
            stage.start_hub();
        } else {
            computers += 1;
            stage.kill_computer();
            stage.start_computer();
        }
    }
    over.store(true, Ordering::Relaxed);
    for caller in callers {
        caller.await.unwrap();
    }
    let stage = stage.read().await;
    stage.all_are_back().await;
    for (name, end) in &*ended.lock().unwrap() {
        stage.check(name, end);
    }
    eprintln!("{hubs} hubs and {computers} computers killed: {}", stage.judge().await);
}

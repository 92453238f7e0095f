//! The programs `budao smcp server` and `budao smcp computer`, killed with SIGKILL in the middle of calls.
//!
//! Goal: every call has one answer, of the right kind: what a computer may have begun is never said to be something else.
//! No effect takes place twice. Whoever lives is back in the room by itself.
//! Method: the effect of a tool is a line in a file. The tool is held before its effect and after it, a program that is
//! to hear nothing more is frozen, and then somebody is killed. `cargo xtask crash` does it more often.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stderr, reason = "what was not tested, and counts, are said")]

mod fixture;

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, AtomicU32, Ordering},
};

use budao_core::fault::Kind;
use budao_testkit::{
    mcp::Point::{AfterEffect, BeforeEffect},
    world,
};
use fixture::{CallResult, Fixture, until};

/// Rounds of every test, and kills of the storm.
fn rounds() -> (u32, u32) {
    if std::env::var_os("BUDAO_CRASH_DEEP").is_some() { (12, 60) } else { (1, 4) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hub_killed_at_any_moment_of_a_call_leaves_one_true_answer_and_everybody_comes_back() {
    let Some(mut scene) = Fixture::open().await else { return };
    let (rounds, _) = rounds();
    for round in 0..rounds {
        // It never reads the call.
        let name = format!("unread {round}");
        scene.hub.freeze().await;
        let call = scene.call(&name, false);
        scene.hub_is_sent_something().await;
        scene.kill_hub();
        assert_eq!(scene.end_of(&name, call).await, Some(Kind::OutcomeUnknown));
        scene.start_hub();
        scene.all_are_back().await;
        assert_eq!(scene.times(&name), 0, "it was never passed on");

        // The computer has it and has not begun; it begins when the hub is dead.
        let name = format!("passed on {round}");
        let call = scene.call(&name, true);
        scene.stands(BeforeEffect, &name).await;
        scene.kill_hub();
        assert_eq!(scene.end_of(&name, call).await, Some(Kind::OutcomeUnknown));
        scene.ledger.let_on(AfterEffect, &name).unwrap();
        scene.ledger.let_on(BeforeEffect, &name).unwrap();
        until("the effect takes place", || scene.times(&name) == 1).await;
        scene.start_hub();
        scene.all_are_back().await;

        // The computer has answered, and nobody reads it.
        let name = format!("answered {round}");
        let call = scene.call(&name, true);
        scene.ledger.let_on(BeforeEffect, &name).unwrap();
        scene.stands(AfterEffect, &name).await;
        scene.hub.freeze().await;
        scene.ledger.let_on(AfterEffect, &name).unwrap();
        scene.hub_is_sent_something().await;
        scene.kill_hub();
        assert_eq!(scene.end_of(&name, call).await, Some(Kind::OutcomeUnknown));
        assert_eq!(scene.times(&name), 1);
        scene.start_hub();
        scene.all_are_back().await;
    }
    eprintln!("{} hubs killed in a call: {}", rounds * 3, scene.judge().await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_computer_killed_at_any_moment_of_a_call_leaves_one_true_answer_and_can_come_back() {
    let Some(mut scene) = Fixture::open().await else { return };
    let (rounds, _) = rounds();
    for round in 0..rounds {
        // It never reads the call.
        let name = format!("unread {round}");
        scene.computer.freeze().await;
        let call = scene.call(&name, false);
        scene.hub_has_a_call().await;
        scene.kill_computer();
        assert_eq!(scene.end_of(&name, call).await, Some(Kind::ComputerGone));
        scene.start_computer();
        scene.all_are_back().await;
        assert_eq!(scene.times(&name), 0, "no server ever had it");

        // Its MCP server has the call and has not begun; it ends with its computer and never begins.
        let name = format!("passed on {round}");
        let call = scene.call(&name, true);
        scene.stands(BeforeEffect, &name).await;
        scene.kill_computer();
        assert_eq!(scene.end_of(&name, call).await, Some(Kind::ComputerGone));
        scene.start_computer();
        scene.all_are_back().await;
        scene.ledger.let_on(AfterEffect, &name).unwrap();
        scene.ledger.let_on(BeforeEffect, &name).unwrap();
        let passed_on = name;

        // It is done, and the computer does not know.
        let name = format!("done {round}");
        let call = scene.call(&name, true);
        scene.ledger.let_on(BeforeEffect, &name).unwrap();
        scene.stands(AfterEffect, &name).await;
        scene.kill_computer();
        assert_eq!(scene.end_of(&name, call).await, Some(Kind::ComputerGone));
        assert_eq!(scene.times(&name), 1);
        scene.ledger.let_on(AfterEffect, &name).unwrap();
        scene.start_computer();
        scene.all_are_back().await;

        assert_eq!(scene.times(&passed_on), 0, "its server ended with its computer");

        // It is done, and everybody knows.
        let name = format!("told {round}");
        let call = scene.call(&name, false);
        assert_eq!(scene.end_of(&name, call).await, None);
        scene.kill_computer();
        scene.start_computer();
        scene.all_are_back().await;
    }
    eprintln!("{} computers killed in a call: {}", rounds * 4, scene.judge().await);
}

/// Calls at a time.
const CALLERS: u32 = 6;

/// Goal: the same at moments nobody chose.
/// Method: calls all the time; hub or computer is killed after a random number of effects, and comes back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_of_kills_among_calls_repeats_no_effect_and_answers_every_call_once() {
    let Some(scene) = Fixture::open().await else { return };
    let seed = std::env::var("BUDAO_SEED").ok().and_then(|text| text.parse().ok());
    let seed = seed.unwrap_or_else(|| u64::from(std::process::id()));
    eprintln!("seed {seed}");
    let dice = world::seeded(seed).entropy;
    let (_, kills) = rounds();
    let scene = Arc::new(tokio::sync::RwLock::new(scene));
    let (over, next) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
    let ended: Arc<Mutex<Vec<(String, CallResult)>>> = Arc::default();
    let callers: Vec<_> = (0..CALLERS)
        .map(|_| {
            let (scene, over, next) = (scene.clone(), over.clone(), next.clone());
            let ended = ended.clone();
            tokio::spawn(async move {
                while !over.load(Ordering::Relaxed) {
                    let name = format!("call {}", next.fetch_add(1, Ordering::Relaxed));
                    let call = scene.read().await.call(&name, false);
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
        let effects = || scene.try_read().map_or(0, |scene| scene.ledger.lines().len());
        let enough = effects() + 1 + usize::try_from(dice.bits() % 40).unwrap();
        until("calls go on", || effects() >= enough).await;
        let mut scene = scene.write().await;
        if first.wrapping_add(kill).is_multiple_of(2) {
            hubs += 1;
            scene.kill_hub();
            scene.start_hub();
        } else {
            computers += 1;
            scene.kill_computer();
            scene.start_computer();
        }
    }
    over.store(true, Ordering::Relaxed);
    for caller in callers {
        caller.await.unwrap();
    }
    let scene = scene.read().await;
    scene.all_are_back().await;
    for (name, end) in &*ended.lock().unwrap() {
        scene.check(name, end);
    }
    eprintln!("{hubs} hubs and {computers} computers killed: {}", scene.judge().await);
}

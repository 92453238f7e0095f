//! Random walks: whatever happens in whatever order, with crashes anywhere, every start has one end.

use std::{collections::HashSet, time::Duration};

use budao_core::{
    Kind,
    event::{CommandBody, Decision, Event, TaskEnd},
    message::Usage,
    pipeline::StageJob,
    turn,
};
use budao_pipeline::{Input, Work};
use proptest::prelude::*;
use serde_json::json;

use crate::play::{Play, answer_model, cancelled, completed, failed, id};

/// What the world does next. Numbers choose among what is possible then.
#[derive(Clone, Debug)]
enum Move {
    Plan(bool),
    Solve(u8),
    Say,
    Cancel,
    CancelPlan,
    Replan,
    CancelTask(u8),
    RestartTask(u8),
    Decide(u8),
    Crash,
    Wait(u16),
    Work(u8, u8),
    Late(u8),
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let one = prop_oneof![
        3 => any::<bool>().prop_map(Move::Plan),
        2 => any::<u8>().prop_map(Move::Solve),
        1 => Just(Move::Say),
        1 => Just(Move::Cancel),
        1 => Just(Move::CancelPlan),
        1 => Just(Move::Replan),
        2 => any::<u8>().prop_map(Move::CancelTask),
        2 => any::<u8>().prop_map(Move::RestartTask),
        2 => any::<u8>().prop_map(Move::Decide),
        2 => Just(Move::Crash),
        1 => any::<u16>().prop_map(Move::Wait),
        16 => (any::<u8>(), any::<u8>()).prop_map(|(which, how)| Move::Work(which, how)),
        1 => any::<u8>().prop_map(Move::Late),
    ];
    prop::collection::vec(one, 1..100)
}

fn end(how: u8) -> TaskEnd {
    match how % 8 {
        0 => failed(Kind::ModelOverloaded),
        1 => cancelled(),
        2 => completed("no plan"),
        3 => failed(Kind::ModelBadRequest),
        _ => completed(r#"["one", "two", "three", "four"]"#),
    }
}

fn perform(play: &mut Play, work: &Work, how: u8) {
    match work {
        Work::Stage { job, .. } if how.is_multiple_of(3) => {
            drop(play.opened(job, child(play, job)));
        }
        Work::Stage { job, .. } => drop(play.end(job, end(how / 3))),
        Work::Stop { job, .. } => drop(play.end(job, end(how))),
        Work::Turn(turn::Work::Wake { turn, .. }) => {
            drop(play.input(turn::Input::TimerFired { turn: *turn }));
        }
        Work::Turn(turn::Work::Model { .. }) => drop(answer_model(play, "words")),
        other => panic!("nobody called a tool: {other:?}"),
    }
}

/// The same job has the same child, and no other has.
fn child(play: &Play, job: &StageJob) -> u128 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    (play.session.turns, job).hash(&mut hasher);
    u128::from(hasher.finish())
}

fn make(play: &mut Play, step: &Move) {
    let task = |how: u8| id(&(how % 5 + 1).to_string());
    match step {
        Move::Plan(confirm) => drop(play.plan(*confirm)),
        Move::Solve(count) => {
            let tasks: Vec<_> = (0..=count % 6).map(|n| json!(format!("task {n}"))).collect();
            play.command(CommandBody::Solve { question: "q".into(), tasks: json!(tasks) });
        }
        Move::Say => drop(play.say("hello")),
        Move::Cancel => drop(play.cancel()),
        Move::CancelPlan => drop(play.command(CommandBody::CancelPlan)),
        Move::Replan => drop(play.command(CommandBody::Replan { question: None })),
        Move::CancelTask(how) => drop(play.command(CommandBody::CancelTask { task: task(*how) })),
        Move::RestartTask(how) => drop(play.command(CommandBody::RestartTask { task: task(*how) })),
        Move::Decide(how) => decide(play, *how),
        Move::Crash => drop(play.crash()),
        Move::Wait(minutes) => drop(play.wait(Duration::from_secs(60 * u64::from(*minutes)))),
        Move::Work(which, how) => {
            let due = play.due();
            if !due.is_empty() {
                perform(play, &due[usize::from(*which) % due.len()], *how);
            }
        }
        Move::Late(how) => {
            let job = StageJob {
                round: u32::from(how % 3),
                stage: budao_core::event::Stage::Solving,
                task: Some(task(*how)),
                attempt: 99,
            };
            let (turn, usage) = (u64::from(how % 4), Usage::default());
            play.input(Input::StageEnded { turn, job, end: completed("late"), usage });
        }
    }
}

fn decide(play: &mut Play, how: u8) {
    let open = play.session.pipeline.as_ref().and_then(|pipeline| pipeline.confirmation.as_ref());
    if open.is_none() {
        return;
    }
    match how % 4 {
        0 => drop(play.decide(Decision::Deny, None)),
        1 => drop(play.decide(Decision::Allow, Some(json!([])))),
        2 => drop(play.decide(Decision::Allow, Some(json!(["edited"])))),
        _ => drop(play.decide(Decision::Allow, None)),
    }
}

/// Drives the session until nothing is due: it must come to rest by itself.
fn settle(play: &mut Play) {
    for _ in 0..2_000 {
        match play.due().first().cloned() {
            None => return,
            Some(Work::Turn(turn::Work::Wake { turn, at })) => {
                play.now = play.now.max(at);
                play.input(turn::Input::TimerFired { turn });
            }
            Some(work) => perform(play, &work, 13),
        }
    }
    panic!("did not come to rest: {:?}", play.session.pipeline);
}

fn check(play: &Play) {
    play.check_starts();
    let (mut attempts, mut round) = (HashSet::new(), 0);
    for entry in &play.entries {
        match &*entry.event {
            Event::PlanMade { .. } => round += 1,
            Event::TaskStarted { task, attempt } => {
                let fresh = attempts.insert((entry.turn, round, task.id.clone(), *attempt));
                assert!(fresh, "try {attempt} of task {} began twice", task.id);
            }
            _ => {}
        }
    }
    let accepted = play.count("message_accepted") + play.count("pipeline_accepted");
    assert_eq!(accepted, play.count("turn_started"), "everything accepted is answered");
    assert_eq!(play.count("pipeline_accepted"), play.count("pipeline_ended"));
    play.replayed();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_every_start_has_exactly_one_end(steps in moves()) {
        let mut play = Play::new();
        play.limits.parallel_calls = 2;
        for step in &steps {
            make(&mut play, step);
        }
        settle(&mut play);
        check(&play);
    }
}

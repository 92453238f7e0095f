//! Random walks: whatever happens in whatever order, the promises hold.

use std::{collections::HashMap, time::Duration};

use budao_core::{
    Fault, Kind,
    event::{CallStart, CommandBody, Decision, Event, ReconcileVerdict},
    fault::Operation,
    message::{Block, CallId, ModelStop, ToolUse, Usage},
    session::unpaired,
    tool::{Output, ReconcileResult},
    turn::{CallVerdict, Input, Work},
};
use proptest::prelude::*;

use crate::turn::play::{Play, ask, done, failed, refuse, run};

/// What the world does next. Numbers choose among what is possible then.
#[derive(Clone, Debug)]
enum Move {
    Say,
    Cancel,
    Close,
    Withdraw(u8),
    Retry,
    Decide(bool),
    Crash,
    Wait(u16),
    Work(u8, u8),
    Late(u8),
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let one = prop_oneof![
        3 => Just(Move::Say),
        1 => Just(Move::Cancel),
        1 => Just(Move::Close),
        1 => any::<u8>().prop_map(Move::Withdraw),
        2 => Just(Move::Retry),
        2 => any::<bool>().prop_map(Move::Decide),
        1 => Just(Move::Crash),
        2 => any::<u16>().prop_map(Move::Wait),
        12 => (any::<u8>(), any::<u8>()).prop_map(|(which, how)| Move::Work(which, how)),
        1 => any::<u8>().prop_map(Move::Late),
    ];
    prop::collection::vec(one, 1..120)
}

const FAILURES: [Kind; 6] = [
    Kind::ModelOverloaded,
    Kind::ModelStreamCut,
    Kind::ModelAuthentication,
    Kind::ContextTooLong,
    Kind::ModelBadRequest,
    Kind::ModelRateLimited,
];

fn answer(how: u8) -> (Vec<Block>, ModelStop) {
    let call = |name: &str| {
        let arguments = format!(r#"{{"n":{}}}"#, how % 5);
        Block::ToolUse(ToolUse { id: CallId::from("x"), name: name.into(), arguments })
    };
    match how % 6 {
        0 | 1 => (vec![Block::Text("words".into())], ModelStop::EndTurn),
        2 => (vec![call("a")], ModelStop::ToolUse),
        3 => (vec![Block::Text("see".into()), call("a"), call("b"), call("c")], ModelStop::ToolUse),
        4 => (vec![], ModelStop::EndTurn),
        _ => (vec![call("a")], ModelStop::MaxTokens),
    }
}

fn verdict(how: u8) -> CallVerdict {
    match how % 5 {
        0 | 1 => CallVerdict::Run {
            arguments: serde_json::json!({}),
            repairs: Vec::new(),
            idempotent: how.is_multiple_of(2),
            reconcile: how.is_multiple_of(3),
            route: None,
        },
        2 => ask(),
        3 => refuse(Kind::InvalidArguments),
        _ => refuse(Kind::DeniedByPolicy),
    }
}

fn perform(play: &mut Play, work: Work, how: u8) {
    let input = match work {
        Work::Compact { turn, .. } => Input::HistoryCompacted {
            turn,
            // Cutting everything but the last message keeps pairs whole only at a turn's start; the
            // runtime cuts where it is safe, and so does this.
            messages: safe_cut(play),
            summary: "s".into(),
            by_model: false,
            tokens_after: 10,
            usage: Usage::default(),
        },
        Work::Model { turn, step, attempt } => match how % 4 {
            0 => {
                let fault = budao_core::Fault::new(
                    FAILURES[usize::from(how / 4) % FAILURES.len()],
                    budao_core::fault::Operation::ModelRequest,
                );
                Input::ModelFailed { turn, step, attempt, fault }
            }
            1 => {
                let (text, thought) = ("t".into(), "h".into());
                Input::Delta { turn, step, attempt, text, thought }
            }
            _ => {
                let (content, stop) = answer(how / 4);
                let usage = Usage { input_tokens: 3, output_tokens: 4, ..Usage::default() };
                Input::ModelAnswered { turn, step, attempt, content, stop, usage, response: None }
            }
        },
        Work::Check { turn, calls } => {
            let verdicts = calls.into_iter().enumerate();
            let verdicts = verdicts
                .map(|(index, call)| (call, verdict(how.wrapping_add(index as u8 * 3))))
                .collect();
            Input::CallsChecked { turn, verdicts }
        }
        Work::Call { turn, call, attempt } => {
            let outcome = match how % 4 {
                0 => failed(Kind::NetworkUnavailable),
                1 => failed(Kind::ToolSaidNo),
                _ => done(),
            };
            Input::ToolCallEnded { turn, call, attempt, outcome }
        }
        Work::Reconcile { turn, call, attempt } => {
            let fault = Fault::new(Kind::NetworkUnavailable, Operation::ReconcileCall);
            let answer = match how % 4 {
                0 => ReconcileResult::Failed(fault),
                1 => ReconcileResult::CannotTell,
                2 => ReconcileResult::DidNotHappen,
                _ => ReconcileResult::Happened(Output::default()),
            };
            Input::CallReconciled { turn, call, attempt, answer }
        }
        Work::Wake { turn, .. } => Input::TimerFired { turn },
    };
    play.input(input);
}

fn safe_cut(play: &Play) -> u64 {
    let history = &play.session.history;
    let first = play.session.turn.as_ref().map_or(0, |turn| turn.first_message);
    assert_eq!(unpaired(history, 0), None);
    first as u64
}

fn make(play: &mut Play, step: &Move) {
    match step {
        Move::Say => drop(play.say("hello")),
        Move::Cancel => drop(play.cancel()),
        Move::Close => drop(play.command(CommandBody::Close)),
        Move::Retry => drop(play.command(CommandBody::Retry { turn: None })),
        Move::Withdraw(which) => {
            let queue = &play.session.queue;
            let waits = queue.get(usize::from(*which) % queue.len().max(1));
            if let Some(message) = waits.map(|queued| queued.command.clone()) {
                play.command(CommandBody::Withdraw { message });
            }
        }
        Move::Decide(allow) => {
            let asked = play.entries.iter().rev().find_map(|entry| match &*entry.event {
                Event::QuestionAsked { question, .. } => Some(question.clone()),
                _ => None,
            });
            if let Some(question) = asked {
                let decision = if *allow { Decision::Allow } else { Decision::Deny };
                let (note, arguments, digest) = (None, None, None);
                play.command(CommandBody::Decide { question, decision, note, arguments, digest });
            }
        }
        Move::Crash => {
            play.session = play.replayed();
            play.input(Input::Resumed);
        }
        Move::Wait(seconds) => {
            play.now = play.now.after(Duration::from_secs(u64::from(*seconds)));
            play.input(Input::TimerFired { turn: play.turn() });
        }
        Move::Work(which, how) => {
            let due = play.due();
            if !due.is_empty() {
                let work = due[usize::from(*which) % due.len()].clone();
                perform(play, work, *how);
            }
        }
        Move::Late(how) => {
            let call = CallId::from(format!("call_{}_1_1", how % 3).as_str());
            let turn = u64::from(how % 3);
            play.input(Input::ToolCallEnded { turn, call, attempt: 9, outcome: done() });
        }
    }
}

/// Drives the session until nothing is due: it must come to rest by itself.
fn settle(play: &mut Play) {
    for _ in 0..2_000 {
        match play.due().first().cloned() {
            None => return,
            Some(Work::Wake { turn, at }) => {
                play.now = play.now.max(at);
                play.input(Input::TimerFired { turn });
            }
            // 8 answers with words, ends checks in a run and calls in success.
            Some(Work::Model { turn, step, attempt }) => {
                let content = vec![Block::Text("done".into())];
                let (stop, usage) = (ModelStop::EndTurn, Usage::default());
                play.input(Input::ModelAnswered {
                    turn,
                    step,
                    attempt,
                    content,
                    stop,
                    usage,
                    response: None,
                });
            }
            Some(Work::Check { turn, calls }) => {
                let verdicts = calls.into_iter().map(|call| (call, run(false))).collect();
                play.input(Input::CallsChecked { turn, verdicts });
            }
            Some(work) => perform(play, work, 2),
        }
    }
    panic!("did not come to rest: {:?}", play.session.turn);
}

fn check(play: &Play) {
    let (mut turns, mut open_turn) = (0, None);
    // What the first start said about the call holds: a later one cannot make it repeatable.
    let mut starts: HashMap<CallId, bool> = HashMap::new();
    for entry in &play.entries {
        match &*entry.event {
            Event::TurnStarted { .. } => {
                assert_eq!(open_turn, None, "two turns at once");
                turns += 1;
                open_turn = Some(turns);
                assert_eq!(entry.turn, turns);
            }
            Event::TurnEnded { .. } => {
                assert_eq!(open_turn, Some(entry.turn), "a turn ends once, and only if it began");
                open_turn = None;
            }
            Event::SessionEnded { .. } => {
                assert_eq!(open_turn, None, "ended in the middle of a turn");
            }
            Event::ToolCallStarted(CallStart { call, attempt, idempotent, .. }) => {
                let repeatable = match starts.get(call) {
                    Some(repeatable) => *repeatable,
                    None => true,
                };
                assert!(repeatable, "{call} ran twice, try {attempt}");
                starts.insert(call.clone(), *idempotent);
            }
            Event::ReconcileEnded { call, verdict: ReconcileVerdict::DidNotHappen, .. } => {
                starts.insert(call.clone(), true);
            }
            _ => {}
        }
    }
    assert_eq!(open_turn, None, "a turn never ended");
    let outcomes = play.outcomes();
    for call in starts.keys() {
        assert!(outcomes.contains_key(call), "{call} started and never ended");
    }
    let answered = play.count("turn_started") + play.count("message_withdrawn");
    let accepted = play.count("message_accepted") + play.count("retry_accepted");
    assert_eq!(accepted, answered, "all are answered, or were taken back");
    assert_eq!(unpaired(&play.session.history, 0), None);
    play.replayed();
    crate::turn::replay::agrees(play);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn under_any_sequence_every_call_has_one_outcome_and_every_turn_one_end(steps in moves()) {
        let mut play = Play::new();
        for step in &steps {
            make(&mut play, step);
        }
        settle(&mut play);
        check(&play);
    }
}

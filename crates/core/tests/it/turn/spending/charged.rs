//! What a service charges, whatever becomes of its answers and of the process that asked.

use std::time::Duration;

use budao_core::{
    Kind,
    fault::{Fault, Operation},
    message::Usage,
    turn::{Input, Work},
};
use proptest::prelude::*;

use super::{Cap, PRICE, tokens};

/// What happens to a request that was made.
#[derive(Clone, Copy, Debug)]
enum Fate {
    /// Answered, with this share of the most that it can use, in percent.
    Answered(u64),
    /// Answered by a service that does not count.
    Uncounted(u64),
    Refused,
    /// The stream is cut before the turn has seen a part of its answer.
    BrokenOff(u64),
    /// The process is killed after the service has answered, and the answer is lost.
    Killed(u64),
}

fn fates() -> impl Strategy<Value = Vec<Fate>> {
    let share = || 0_u64..=100;
    let fate = prop_oneof![
        3 => share().prop_map(Fate::Answered),
        1 => share().prop_map(Fate::Uncounted),
        1 => Just(Fate::Refused),
        1 => share().prop_map(Fate::BrokenOff),
        3 => share().prop_map(Fate::Killed),
    ];
    prop::collection::vec(fate, 1..60)
}

proptest! {
    /// Goal: what the service charges never exceeds the cap, in money or in tokens, whatever is killed.
    /// Method: the service charges every request it answers, up to its estimate; the process dies at any of them and
    /// knows only its records. Every answer has a call, so one turn makes all requests.
    #[test]
    fn charged_amounts_never_exceed_the_cap(
        fates in fates(),
        cap in prop::sample::select(vec![Cap::Money, Cap::SessionTokens, Cap::TurnTokens]),
    ) {
        let mut play = cap.play();
        play.limits.steps = 1_000;
        play.say("hi");
        let (mut charged, most) = match cap {
            Cap::Money => (0, Cap::MONEY),
            _ => (0, Cap::TOKENS),
        };
        for fate in fates {
            if !matches!(play.due().first(), Some(Work::Model { .. })) {
                break; // The cap was reached, or the turn failed.
            }
            let (before, reserved) = cap.counted(&play);
            prop_assert!(reserved > 0, "a request without a reservation");
            prop_assert!(before + reserved <= most, "{before} and {reserved}");
            let answer = play.session.estimate_request().output_tokens;
            let output = |share: u64| tokens(0, answer * share / 100);
            let price = |usage: Usage| match cap {
                Cap::Money => PRICE.cost(usage),
                _ => usage.total_tokens(),
            };
            match fate {
                Fate::Answered(share) => {
                    charged += price(output(share));
                    play.call_with(output(share));
                }
                Fate::Uncounted(share) => {
                    charged += price(output(share));
                    play.call_with(Usage::default());
                }
                Fate::Refused => {
                    let fault = Fault::new(Kind::ModelOverloaded, Operation::ModelRequest);
                    let (turn, step, attempt) = play.asking();
                    play.input(Input::ModelFailed { turn, step, attempt, fault });
                    play.wait(Duration::from_secs(600));
                }
                Fate::BrokenOff(share) => {
                    charged += price(output(share));
                    let fault = Fault::new(Kind::ModelStreamCut, Operation::ModelRequest);
                    let (turn, step, attempt) = play.asking();
                    play.input(Input::ModelFailed { turn, step, attempt, fault });
                    if play.session.turn.is_some() {
                        play.wait(Duration::from_secs(600));
                    }
                }
                Fate::Killed(share) => {
                    charged += price(output(share));
                    play.kill();
                }
            }
            if play.session.turn.is_none() {
                break;
            }
            let (counted, reserved) = cap.counted(&play);
            prop_assert!(charged <= counted, "{charged} of {counted} is not known");
            prop_assert!(counted + reserved <= most, "{counted} and {reserved}");
        }
        prop_assert!(charged <= most);
    }
}

//! Random conversations: prompts, cancels, withdrawals, modes and answers in any order, at any moment.
//!
//! `BUDAO_STORMS` is how many; a failure prints its seed, and `BUDAO_STORM` runs that one alone.

use std::time::Duration;

use budao_core::world::World;
use budao_testkit::world;
use serde_json::json;

use crate::{
    editor::{Editor, UserBehaviour},
    fixture::Fixture,
};

/// In every run, and with `BUDAO_FULL`.
const STORMS: u64 = 150;
const STORMS_FULL: u64 = 10_000;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Goal: whatever an editor does and whenever, the conversation as a whole stays right.
/// Method: seeded random actions under a paused clock, then the checker over all of it.
#[test]
fn whatever_an_editor_does_the_conversation_stays_right() {
    each_storm(storm);
}

/// Runs every storm that is wanted, each in a time of its own.
pub(crate) fn each_storm<F: Future<Output = ()>>(storm: impl Fn(u64) -> F) {
    let usual = if std::env::var_os("BUDAO_FULL").is_some() { STORMS_FULL } else { STORMS };
    let seeds = match number("BUDAO_STORM") {
        Some(seed) => seed..seed + 1,
        None => 0..number("BUDAO_STORMS").unwrap_or(usual),
    };
    #[expect(clippy::print_stderr, reason = "whoever reads the log wants to know how many")]
    {
        eprintln!("{} conversations", seeds.end - seeds.start);
    }
    for seed in seeds {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        let guard = Seed(seed);
        runtime.block_on(storm(seed));
        std::mem::forget(guard);
    }
}

/// Says which storm it was when one fails.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        #[expect(clippy::print_stderr, reason = "whoever repeats it needs the number")]
        {
            eprintln!("to see it again: BUDAO_STORM={}", self.0);
        }
    }
}

struct SeededRng(World);

impl SeededRng {
    fn below(&self, most: u64) -> u64 {
        self.0.entropy.bits() % most
    }

    fn pick<T: Copy>(&self, of: &[T]) -> T {
        of[usize::try_from(self.below(of.len() as u64)).unwrap()]
    }
}

async fn storm(seed: u64) {
    let dice = SeededRng(world::seeded(seed ^ 0xA11C_E5ED));
    let (mut editor, session) = Editor::open(Fixture::new(seed).bridge).await;
    let sessions = [session, editor.new_session().await];
    let mut prompts = Vec::new();
    for step in 0..dice.below(25) + 5 {
        let session = sessions[usize::try_from(dice.below(8) / 7).unwrap()].clone();
        match dice.below(14) {
            0..=5 => {
                let verb =
                    dice.pick(&["say", "say", "touch", "look", "wait", "break", "fail", "stall"]);
                let count = dice.below(12) + 1;
                let id = editor.prompt(&session, &format!("P{step} {verb} {count}")).await;
                prompts.push((session, id));
            }
            6 | 7 => editor.cancel(&session).await,
            8 => {
                if !prompts.is_empty() {
                    let (_, id) =
                        &prompts[usize::try_from(dice.below(prompts.len() as u64)).unwrap()];
                    editor.notify("$/cancel_request", json!({"requestId": id})).await;
                }
            }
            9 => {
                let mode = dice.pick(&["default", "plan", "auto"]);
                let params = json!({"sessionId": session, "modeId": mode});
                editor.send("session/set_mode", params).await;
            }
            10 => {
                editor.behaviour = dice
                    .pick(&[0, 1, 2, 3])
                    .try_into()
                    .map(|at: usize| {
                        [
                            UserBehaviour::Option("allow"),
                            UserBehaviour::Option("reject"),
                            UserBehaviour::Option("allow_always"),
                            UserBehaviour::Silent,
                        ][at]
                            .clone()
                    })
                    .unwrap();
            }
            11 => {
                for question in std::mem::take(&mut editor.questions) {
                    editor.choose(&question, dice.pick(&["allow", "reject", "nonsense"])).await;
                }
            }
            _ => editor.read_for(Duration::from_millis(dice.below(300))).await,
        }
    }
    // Whatever still runs is stopped; then everything has its answer.
    for session in &sessions {
        editor.cancel(session).await;
    }
    for (_, id) in prompts {
        editor.stop(id).await;
    }
    editor.read_for(Duration::from_secs(1)).await;
    editor.hang_up().await;
}

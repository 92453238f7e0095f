//! Random conversations over the CLI: prompts, cancels, withdrawals, answers, deaths, at any moment.
//!
//! `BUDAO_STORMS` is how many; a failure prints its seed, and `BUDAO_STORM` runs that one alone.

use std::time::Duration;

use budao_core::world::World;
use budao_testkit::{claude::CliVersion, world};
use serde_json::json;

use super::Fixture;
use crate::{editor::UserBehaviour, storm::each_storm};

const WORDS: &[&str] = &[
    "",
    "",
    "@slow",
    "@tool",
    "@early",
    "@free",
    "@cut",
    "@whole",
    "@unstreamed",
    "@die",
    "@die-mid",
    "@die-tool",
    "@silent",
    "@slow @deaf",
    "@api-429",
    "@broke",
    "@odd",
    "@stray-before",
    "@stray-before-stamped @fine",
    "@stray-mid",
    "@stray-mid-stamped",
    "@stray-mid-foreign @fine",
    "@stray-after",
    "@stray-after-stamped @fine",
    "@stray-after-foreign",
    "@late",
    "@background",
    "@withdraw",
    "@junk",
    "@tool @slow @stray-mid",
];

/// Goal: whatever an editor, the CLI and a person do and whenever, the conversation as a whole stays right.
/// Method: seeded random actions under a paused clock, then the checker over all of it.
#[test]
fn whatever_happens_to_the_cli_the_conversation_stays_right() {
    each_storm(storm);
}

struct SeededRng(World);

impl SeededRng {
    fn below(&self, most: u64) -> u64 {
        self.0.entropy.bits() % most
    }

    fn pick<'a, T>(&self, of: &'a [T]) -> &'a T {
        &of[usize::try_from(self.below(of.len() as u64)).unwrap()]
    }
}

async fn storm(seed: u64) {
    let dice = SeededRng(world::seeded(seed ^ 0x00C1_A0DE));
    let age = if dice.below(4) == 0 { CliVersion::Old } else { CliVersion::Current };
    let mut stage = Fixture::seeded(age, seed).await;
    let mut prompts = Vec::new();
    for step in 0..dice.below(12) + 3 {
        match dice.below(14) {
            0..=5 => {
                let text = format!("P{step} {}", dice.pick(WORDS));
                prompts.push(stage.prompt(&text).await);
            }
            6 | 7 => stage.cancel().await,
            8 => {
                if !prompts.is_empty() {
                    let id = *dice.pick(&prompts);
                    stage.editor.notify("$/cancel_request", json!({"requestId": id})).await;
                }
            }
            9 => stage.played.kill(),
            10 => {
                let moods = [
                    UserBehaviour::Option("allow"),
                    UserBehaviour::Option("reject"),
                    UserBehaviour::Silent,
                ];
                stage.editor.behaviour = dice.pick(&moods).clone();
            }
            11 => {
                for question in std::mem::take(&mut stage.editor.questions) {
                    let option = dice.pick(&["allow", "reject", "nonsense"]);
                    stage.editor.choose(&question, option).await;
                }
            }
            _ => {
                let waits = [0, 1, 5, 20, 100, 300, 1_500];
                stage.editor.read_for(Duration::from_millis(*dice.pick(&waits))).await;
            }
        }
    }
    // Whatever still runs is stopped; then everything has its answer.
    stage.cancel().await;
    for id in prompts {
        stage.editor.stop(id).await;
    }
    stage.editor.read_for(Duration::from_secs(2)).await;
    stage.close().await;
}

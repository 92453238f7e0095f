//! Random interleavings of prompt, cancel, late result, death and permission, with the CLI played over a pipe
//! under a paused clock.

use std::time::Duration;

use budao_core::{
    engine::Engine as _,
    event::{CommandBody, Decision, Event, Settings},
    session::Session,
};
use budao_testkit::claude::CliVersion;

use crate::{check::check, common::Fixture};

/// Lives in every run, and with `BUDAO_FULL`; `BUDAO_INTERLEAVINGS` is another number, `BUDAO_SEED` the seed
/// of the first.
const SOME: u64 = 4_000;
const ALL: u64 = 100_000;

/// What a prompt may be told to make the CLI do. The plain ones stand for most of them.
const WORDS: &[&str] = &[
    "",
    "",
    "",
    "@slow",
    "@slow",
    "@tool",
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
    "@dead",
    "@slow @deaf",
    "@api-429",
    "@broke",
    "@broke-quietly",
    "@odd",
    "@stale-before",
    "@stale-mid",
    "@stale-bare",
    "@foreign",
    "@late",
    "@background",
    "@withdraw",
    "@junk",
    "@slow @late",
    "@tool @stale-mid",
    "@slow @foreign",
    "@tool @slow",
    "@early @cut",
    "@background @late",
    "@stray-before-stamped",
    "@stray-before-foreign @fine",
    "@stray-mid @fine",
    "@stray-after",
    "@stray-after-stamped @fine",
    "@stray-after-foreign",
];

/// Gaps between what is done, in milliseconds.
const GAPS: &[u64] = &[0, 0, 0, 1, 5, 20, 100, 300, 1_000, 11_000];

struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((bits ^ (bits >> 31)) % sides as u64).unwrap()
    }
}

/// Goal: no order of events makes one turn end, feed or colour another, or leaves anything without its end.
/// Method: play many short lives with dice, each in a time of its own so that its seed is all it depends on,
/// let each come to rest, and check its whole history.
#[test]
fn no_interleaving_breaks_what_must_hold() {
    let number = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
    let usual = if std::env::var_os("BUDAO_FULL").is_some() { ALL } else { SOME };
    let runs = number("BUDAO_INTERLEAVINGS").unwrap_or(usual);
    let first = number("BUDAO_SEED").unwrap_or(1);
    let threads = std::thread::available_parallelism().map_or(1, |count| count.get() as u64);
    eprintln!("{runs} interleavings from seed {first}");
    let wrong: Vec<String> = std::thread::scope(|scope| {
        let seeds = |thread| (first + thread..first + runs).step_by(threads as usize);
        let playing: Vec<_> = (0..threads)
            .map(|thread| scope.spawn(move || seeds(thread).find_map(broken)))
            .collect();
        playing.into_iter().filter_map(|thread| thread.join().unwrap()).collect()
    });
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    eprintln!("{runs} interleavings, none broke anything");
}

/// What is wrong with the life of a seed, if anything is.
fn broken(seed: u64) -> Option<String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    let played = std::panic::AssertUnwindSafe(|| runtime.block_on(run_session(seed)));
    let Ok((actions, records)) = std::panic::catch_unwind(played) else {
        return Some(format!("seed {seed}: it panicked"));
    };
    let wrong = check(&records).err()?;
    let lines: Vec<String> = records
        .iter()
        .map(|record| format!("{} {} {:?}", record.seq, record.turn, record.event))
        .collect();
    Some(format!("seed {seed}: {wrong}\n{}\n{}", actions.join("\n"), lines.join("\n")))
}

/// One short generation: what was done, and what is on record when it has come to rest.
async fn run_session(seed: u64) -> (Vec<String>, Vec<budao_core::event::Record>) {
    let mut dice = Dice(seed);
    // Stamps are what tells an old result in the middle of a turn apart; without them its age must.
    let age = if dice.roll(4) == 0 { CliVersion::Old } else { CliVersion::Current };
    let mut fixture = Fixture::seeded(age, seed, Settings::default()).await;
    let mut actions = vec![format!("{age:?}")];
    let mut last = None;
    for prompt in 0..2 + dice.roll(7) {
        match dice.roll(9) {
            0..=3 => {
                let text = format!("p{prompt} {}", WORDS[dice.roll(WORDS.len())]);
                last = Some(fixture.say(&text).await);
                actions.push(text);
            }
            4 | 5 => {
                fixture.cancel().await;
                actions.push("cancel".into());
            }
            6 => {
                let decision = if dice.roll(2) == 0 { Decision::Allow } else { Decision::Deny };
                answer_open_question(&fixture, decision).await;
                actions.push(format!("{decision:?}"));
            }
            7 => {
                if let Some(message) = last.take() {
                    fixture.ask(CommandBody::Withdraw { message }).await;
                    actions.push("withdraw".into());
                }
            }
            _ if dice.roll(6) == 0 => {
                fixture.engine.shutdown(Duration::from_millis(50)).await;
                fixture = fixture.restarted().await;
                fixture.engine.recover().await.unwrap();
                actions.push("restart".into());
            }
            _ => {}
        }
        let gap = GAPS[dice.roll(GAPS.len())];
        tokio::time::sleep(Duration::from_millis(gap)).await;
        actions.push(format!("{gap} ms"));
    }
    let records = rest(&fixture, &mut dice).await;
    (actions, records)
}

/// Answers whatever is asked until nothing runs.
async fn rest(fixture: &Fixture, dice: &mut Dice) -> Vec<budao_core::event::Record> {
    let mut quiet = 0;
    for _ in 0..3_000 {
        let records = fixture.records().await;
        let mut session = Session::default();
        session.apply_all(&records);
        let idle = session.turn.is_none() && session.queue.is_empty();
        // What comes late comes soon; a turn of the CLI's own begins after a tenth of a second.
        quiet = if idle { quiet + 1 } else { 0 };
        if quiet == 3 {
            fixture.engine.shutdown(Duration::from_secs(1)).await;
            return fixture.records().await;
        }
        let decision = if dice.roll(3) > 0 { Decision::Allow } else { Decision::Deny };
        answer_open_question(fixture, decision).await;
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    fixture.records().await
}

async fn answer_open_question(fixture: &Fixture, decision: Decision) {
    let mut open = Vec::new();
    for record in fixture.records().await {
        match record.event {
            Event::QuestionAsked { question, .. } => open.push(question),
            Event::QuestionAnswered { question, .. } | Event::QuestionExpired { question, .. } => {
                open.retain(|it| *it != question);
            }
            _ => {}
        }
    }
    if let Some(question) = open.first() {
        fixture.decide(question, decision).await;
    }
}

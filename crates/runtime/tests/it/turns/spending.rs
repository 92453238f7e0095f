//! Ledgers of a day: what counts in them, and on which day.

use std::{sync::Arc, time::Duration};

use budao_core::{
    Kind,
    engine::{Engine, SessionOptions},
    event::SessionId,
    limits::Limits,
    message::Usage,
    spending::{Ledger, LedgerAmount, LedgerScope, SpendingConfig},
    time::Timestamp,
    world::{Clock, World},
};
use budao_journal::{Journal, Memory};
use budao_models::script::{Script, ScriptStep};
use budao_testkit::world;
use budao_tools::{RawTool, ToolOptions};
use futures::future::BoxFuture;
use serde_json::json;

use crate::turns::fixture::{Fixture, Setup, fault_of};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const MINUTE: Duration = Duration::from_secs(60);

/// An answer that used this many tokens.
fn used(tokens: u64) -> ScriptStep {
    let usage = Usage { input_tokens: 1, output_tokens: tokens - 1, ..Usage::default() };
    ScriptStep::new().text("done").usage(usage)
}

fn capped(script: Script, day_tokens: u64) -> Setup {
    let mut setup = Setup::new(script);
    setup.limits.spending =
        SpendingConfig { day_tokens: Some(day_tokens), ..SpendingConfig::default() };
    setup
}

async fn ledger(journal: &dyn Journal) -> Ledger {
    let note = journal.note(&LedgerScope::All.note()).await.unwrap().expect("a ledger");
    Ledger::stored(&note.body).expect("a ledger reads back")
}

fn tokens(tokens: u64) -> LedgerAmount {
    LedgerAmount { cost: 0, tokens }
}

async fn open(stage: &Fixture) -> SessionId {
    stage.runtime.open(SessionOptions::default()).await.unwrap()
}

/// Goal: a request that midnight overtakes changes nothing of the new day, and leaves nothing reserved.
/// Method: one request begins at 23:59 and is answered at 00:01; in between another session asks, on the new day.
#[tokio::test(start_paused = true)]
async fn an_answer_after_midnight_leaves_the_ledger_of_the_new_day_alone() {
    let script = Script::new().step(used(1_000).delay(2 * MINUTE)).step(used(30));
    let stage = capped(script, 100_000).open().await;
    tokio::time::sleep(DAY - MINUTE).await;
    stage.say("the old day").await;
    tokio::time::sleep(MINUTE + MINUTE / 2).await;
    let other = open(&stage).await;
    stage.runtime.run(other, "the new day").await.unwrap();
    let new_day = ledger(&*stage.journal).await;
    assert_eq!((new_day.day.as_str(), new_day.spent), ("2026-01-02", tokens(30)));
    stage.until("turn_ended").await;
    assert_eq!(ledger(&*stage.journal).await, new_day);
    assert_eq!(new_day.reserved, tokens(0));
}

/// A clock that is ahead.
#[derive(Debug)]
struct AheadClock(Arc<dyn Clock>, Duration);

impl Clock for AheadClock {
    fn now(&self) -> Timestamp {
        self.0.now().after(self.1)
    }

    fn sleep(&self, wait: Duration) -> BoxFuture<'static, ()> {
        self.0.sleep(wait)
    }
}

/// Goal: servers whose clocks differ count into one ledger, so the cap holds for both.
/// Method: around midnight two servers of one journal ask in turn; the one whose clock is behind must not begin a ledger.
#[tokio::test(start_paused = true)]
async fn servers_whose_clocks_differ_count_into_the_ledger_of_the_later_day() {
    let world = world::seeded(1);
    let journal: Arc<dyn Journal> = Arc::new(Memory::new(world.clone(), Limits::default()));
    let clock = Arc::new(AheadClock(Arc::clone(&world.clock), 2 * MINUTE));
    let ahead = World { clock, ..world.clone() };
    let mut stages = Vec::new();
    for world in [world, ahead] {
        let setup = capped(Script::new().step(used(10_000)).forever(), 35_000);
        let setup = Setup { journal: Some(Arc::clone(&journal)), world, ..setup };
        stages.push(setup.runtime().0);
    }
    tokio::time::sleep(DAY - MINUTE).await;
    let mut last = None;
    for index in [1, 0, 1, 0] {
        let stage = &stages[index];
        let session = open(stage).await;
        last = Some(stage.runtime.run(session, "go").await.unwrap());
    }
    let found = ledger(&*journal).await;
    assert_eq!((found.day.as_str(), found.spent), ("2026-01-02", tokens(30_000)));
    assert_eq!(fault_of(&last.unwrap()).kind(), Kind::SpendingCapReached);
}

/// Goal: with tools that are larger than any guess, sessions at once exceed a cap of the day by no more than one request.
/// Method: 40 tools with long descriptions; eight sessions ask at once, and each request uses what such a request uses.
#[tokio::test(start_paused = true)]
async fn eight_sessions_with_many_tools_stay_below_the_cap_and_one_request() {
    const REQUEST: u64 = 26_000;
    const CAP: u64 = 100_000;
    let script = Script::new().step(used(REQUEST).delay(MINUTE)).forever();
    let mut setup = capped(script, CAP);
    setup.tools = (0..40)
        .map(|index| {
            let schema = json!({"type": "object", "properties": {}, "additionalProperties": false});
            let text = "It looks at the moon. ".repeat(110);
            RawTool::new(format!("tool_{index}"), text, schema, |_, _| async { Ok(json!(1)) })
                .options(ToolOptions::read_only())
        })
        .collect();
    let (stage, _) = setup.runtime();
    let mut sessions = Vec::new();
    for _ in 0..8 {
        sessions.push(open(&stage).await);
    }
    let runs = sessions.iter().map(|session| stage.runtime.run(*session, "go"));
    let results = futures::future::join_all(runs).await;
    let refused = results.into_iter().filter(|result| !result.as_ref().unwrap().is_ok()).count();
    let found = ledger(&*stage.journal).await;
    let most = found.spent.tokens + found.reserved.tokens;
    assert!(most <= CAP + REQUEST, "{most} tokens with {refused} refused: {found:?}");
    assert!((1..8).contains(&refused), "{refused} refused: {found:?}");
}

/// Goal: a summary that the service refuses costs nothing; one that breaks off stays spent.
/// Method: the third turn has too long a history; its summary is refused, or is cut after its first piece.
#[tokio::test(start_paused = true)]
async fn a_refused_summary_costs_nothing_and_one_that_broke_off_stays_spent() {
    for is_cut in [false, true] {
        let long = |text: &str, input_tokens| {
            let usage = Usage { input_tokens, output_tokens: 1_000, ..Usage::default() };
            ScriptStep::new().text(text.repeat(4_000)).usage(usage)
        };
        let mut script = Script::new().step(long("x", 10)).step(long("y", 1_010));
        script = match is_cut {
            true => {
                script.step(ScriptStep::new().text("hm").end(budao_models::script::Ending::Cut))
            }
            false => script.fail(Kind::ModelOverloaded),
        };
        let mut setup = capped(script.step(used(100)), 1_000_000);
        setup.limits.context_tokens = 1_500;
        let stage = setup.open().await;
        for text in ["one", "two", "three"] {
            let result = stage.run(text).await;
            assert!(result.is_ok(), "{text} {is_cut}: {result:?}");
        }
        assert_eq!(stage.count("history_compacted").await, 1);
        let found = ledger(&*stage.journal).await;
        assert_eq!(found.reserved, tokens(0));
        assert_eq!(found.spent == tokens(3_120), !is_cut, "{found:?}");
        assert_eq!(found.estimated != tokens(0), is_cut, "{found:?}");
    }
}

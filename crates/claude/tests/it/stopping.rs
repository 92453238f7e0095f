//! Shutdown of an engine with several sessions, and sessions that their task abandoned.

use std::{sync::Arc, time::Duration};

use budao_claude::{Claude, ClaudeConfig};
use budao_core::{
    engine::{Engine as _, SessionOptions},
    event::{Command, CommandBody, CommandId, SessionId, StopReason},
    fault::{Fault, Kind, Operation},
    limits::Limits,
    message::Block,
    trace::Trace,
};
use budao_journal::Memory;
use budao_testkit::{
    claude::CliVersion,
    journal::{FlakyJournal, HeldCall, InterceptedJournal, Verdict},
    launcher::PlayedCliLauncher,
    world,
};
use tokio::time::{Instant, timeout};

use crate::common::{Fixture, timeouts};

fn message(id: CommandId, text: &str) -> Command {
    let body = CommandBody::Message { content: vec![Block::Text(text.into())] };
    Command { id, by: "test".into(), trace: Trace::NONE, body }
}

#[tokio::test(start_paused = true)]
async fn a_second_stop_never_extends_the_grace_period() {
    for (first, second) in [(60, 2), (2, 60)] {
        let fixture = Fixture::open(CliVersion::Current).await;
        fixture.say("A @silent").await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        let began = Instant::now();
        let stop = |seconds| fixture.engine.shutdown(Duration::from_secs(seconds));
        tokio::join!(stop(first), stop(second));
        assert!(began.elapsed() < Duration::from_secs(8), "{first} {second} {:?}", began.elapsed());
    }
}

/// Method: one session's append never returns and its queue is full. The other session must still be stopped, and the
/// shutdown must return.
#[tokio::test(start_paused = true)]
async fn a_session_that_hangs_does_not_keep_the_others_from_stopping() {
    let world = world::seeded(1);
    let journal = FlakyJournal::flaky(Arc::new(Memory::new(world.clone(), Limits::default())));
    let played = PlayedCliLauncher::new(CliVersion::Current);
    let mut config = ClaudeConfig::new(journal.clone(), world.clone(), played.clone());
    config.timeouts = timeouts();
    let engine = Claude::new(config);
    let hung = engine.open(SessionOptions::default()).await.unwrap();
    let other = engine.open(SessionOptions::default()).await.unwrap();
    engine.submit(other, message("b".into(), "B @silent")).await.unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;

    journal.plan("append", Verdict::Hang);
    for _ in 0..400 {
        let (engine, id) = (engine.clone(), CommandId::own(world.uuid()));
        tokio::spawn(async move { engine.submit(hung, message(id, "A")).await });
    }
    tokio::time::sleep(Duration::from_millis(100)).await;

    timeout(Duration::from_secs(60), engine.shutdown(Duration::ZERO)).await.unwrap();
    assert_eq!(stopped(&journal, other).await, (StopReason::Failed, Some(Kind::ShuttingDown)));
}

async fn stopped(journal: &FlakyJournal, session: SessionId) -> (StopReason, Option<Kind>) {
    let (state, _) = budao_journal::fold(journal, session).await.unwrap();
    let last = state.last.expect("a turn ended");
    (last.stop, last.fault.map(|fault| fault.kind()))
}

/// Method: a retry task is about to find the session finished. Before it ends, a turn starts and the session's task
/// abandons the session; it starts no second retry task, because there is one.
#[tokio::test(start_paused = true)]
async fn a_session_that_is_abandoned_while_its_retry_ends_is_finished() {
    let world = world::seeded(1);
    let flaky = FlakyJournal::flaky(Arc::new(Memory::new(world.clone(), Limits::default())));
    let held = HeldCall::new("inbox");
    let journal = Arc::new(InterceptedJournal::new(flaky.clone(), Arc::clone(&held)));
    let mut config = ClaudeConfig::new(journal, world, PlayedCliLauncher::new(CliVersion::Current));
    (config.timeouts, config.idle_keep) = (timeouts(), Duration::from_secs(5));
    let engine = Claude::new(config);
    let session = engine.open(SessionOptions::default()).await.unwrap();
    while engine.loaded() > 0 {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }

    let fault = || Fault::new(Kind::JournalBusy, Operation::AppendRecords);
    flaky.plan("take_lease", Verdict::Refuse(fault()));
    held.arm();
    engine.touch(session);
    held.reached().await;
    engine.submit(session, message("a".into(), "A @silent")).await.unwrap();
    (0..24).for_each(|_| flaky.plan("append", Verdict::Refuse(fault())));
    // The next command cannot be recorded; the task tries, and abandons the session.
    drop(engine.submit(session, message("b".into(), "B")).await);
    while engine.loaded() > 0 {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    held.release();
    timeout(Duration::from_secs(1_200), ended(&flaky, session)).await.unwrap();
}

/// Waits until the session's turn has ended.
async fn ended(journal: &FlakyJournal, session: SessionId) {
    loop {
        let (state, _) = budao_journal::fold(journal, session).await.unwrap();
        if state.turn.is_none() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

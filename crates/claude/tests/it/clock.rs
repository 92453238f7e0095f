//! A wall clock that jumps while the CLI works: the turn's own result still ends the turn.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use budao_claude::{Claude, ClaudeConfig};
use budao_core::{
    engine::{Engine, SessionOptions},
    event::{Command, CommandBody, Event, StopReason},
    limits::Limits,
    message::Block,
    time::Timestamp,
    trace::Trace,
    world::{Clock, World},
};
use budao_journal::{Journal, Memory};
use budao_testkit::{claude::CliVersion, launcher::PlayedCliLauncher, world};
use futures::{StreamExt, future::BoxFuture};

/// A clock whose wall time can be set off; its waits cannot.
#[derive(Debug)]
struct JumpingClock {
    inner: Arc<dyn Clock>,
    offset_micros: AtomicI64,
}

impl Clock for JumpingClock {
    fn now(&self) -> Timestamp {
        let offset = self.offset_micros.load(Ordering::SeqCst);
        Timestamp::from_micros(self.inner.now().as_micros() + offset)
    }

    fn sleep(&self, wait: Duration) -> BoxFuture<'static, ()> {
        self.inner.sleep(wait)
    }
}

#[tokio::test(start_paused = true)]
async fn a_turn_ends_with_its_own_result_although_the_wall_clock_jumps() {
    for age in [CliVersion::Old, CliVersion::Current] {
        for hours in [-3, 3] {
            let inner = world::seeded(1);
            let clock = Arc::new(JumpingClock {
                inner: Arc::clone(&inner.clock),
                offset_micros: AtomicI64::new(0),
            });
            let world = World { clock: Arc::clone(&clock) as _, ..inner };
            let journal: Arc<dyn Journal> = Arc::new(Memory::new(world.clone(), Limits::default()));
            let played = PlayedCliLauncher::new(age);
            let engine = Claude::new(ClaudeConfig::new(journal, world, played));
            let session = engine.open(SessionOptions::default()).await.unwrap();
            let mut records = engine.follow(session, 0).await.unwrap();
            let body = CommandBody::Message { content: vec![Block::Text("A @slow".into())] };
            let (id, by) = ("m".to_owned().into(), "test".to_owned());
            let message = Command { id, by, trace: Trace::NONE, body };
            engine.submit(session, message).await.unwrap();
            let began = tokio::time::Instant::now();
            while let Some(record) = records.next().await {
                match record.unwrap().event {
                    Event::TextDelta { .. } => {
                        let micros = hours * 3_600_000_000;
                        clock.offset_micros.store(micros, Ordering::SeqCst);
                    }
                    Event::LateArrivalDropped { .. } => panic!("{age:?} {hours}: result dropped"),
                    Event::TurnEnded { stop, fault, .. } => {
                        assert_eq!((stop, fault), (StopReason::EndTurn, None), "{age:?} {hours}");
                        break;
                    }
                    _ => {}
                }
            }
            assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
            engine.shutdown(Duration::ZERO).await;
        }
    }
}

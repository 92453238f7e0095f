//! The pause that writers see at a failover, beyond the time that the promotion itself takes.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use budao_core::event::SessionId;
use budao_journal::{Append, AppendError, Journal};
use budao_testkit::{bench::Better, postgres::PostgresServer, records};

use crate::{Figure, WEIGHT, open};

const ROUNDS: usize = 3;
const SESSIONS: usize = 16;

const PAUSE: Figure = Figure {
    name: "failover_pause",
    unit: "s after the promotion",
    bar: 1.0,
    better: Better::Lower,
};

async fn write(journal: Arc<dyn Journal>, answered: Arc<AtomicU64>, stop: Arc<AtomicBool>) {
    let session = SessionId(uuid::Uuid::new_v4());
    let lease = records::lease(&*journal, session, "writer").await;
    let mut head = 0;
    while !stop.load(Ordering::Relaxed) {
        let append = Append::new(&lease, head, records::entries(head, 1, WEIGHT));
        match journal.append(append).await {
            Ok(now) => head = now,
            Err(AppendError::Conflict { head: now }) => head = now,
            Err(_) => continue,
        }
        answered.fetch_add(1, Ordering::Relaxed);
    }
}

async fn more(answered: &AtomicU64, count: u64) {
    let target = answered.load(Ordering::Relaxed) + count;
    while answered.load(Ordering::Relaxed) < target {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Seconds from the end of the promotion until every writer was answered once on average.
async fn pause() -> Option<f64> {
    let primary = PostgresServer::start()?;
    let standby = primary.standby("second");
    primary.sql("ALTER SYSTEM SET synchronous_standby_names = 'second'");
    primary.reload();
    let (first, second) = (primary.address(), standby.address());
    let journal = open(&format!("postgres://postgres@{first},{second}/postgres")).await;
    let (answered, stop) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
    let writers: Vec<_> = (0..SESSIONS)
        .map(|_| tokio::spawn(write(Arc::clone(&journal), answered.clone(), stop.clone())))
        .collect();
    more(&answered, 500).await;
    tokio::task::block_in_place(|| {
        primary.kill();
        standby.promote();
    });
    let promoted = Instant::now();
    more(&answered, SESSIONS as u64).await;
    let pause = promoted.elapsed().as_secs_f64();
    stop.store(true, Ordering::Relaxed);
    for writer in writers {
        writer.await.unwrap();
    }
    journal.close().await;
    Some(pause)
}

pub(crate) async fn measure() {
    let mut pauses = Vec::new();
    for _ in 0..ROUNDS {
        let Some(pause) = pause().await else { return };
        pauses.push(pause);
    }
    let note = format!("{SESSIONS} writers, until each was answered once on average");
    PAUSE.report(pauses, note);
}

//! How long a turn stands still when its server is killed, and when it drains.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use budao_testkit::{
    bench::Better,
    postgres::PostgresServer,
    provider::{Provider, Reply},
};
use rustix::process::Signal;

use crate::{
    node::{Node, answer},
    report,
};

const ROUNDS: usize = 5;
const PATIENCE: Duration = Duration::from_secs(60);

/// Seconds from the end of a server to the first request that another one makes for its turn.
async fn stands_still(program: &Path, signal: Signal) -> Result<f64> {
    let database = PostgresServer::start().context("PostgreSQL is not installed")?;
    let home = tempfile::tempdir().context("make a folder")?;
    let count = Arc::new(AtomicUsize::new(0));
    let model = Provider::answering(move |_| match count.fetch_add(1, Ordering::SeqCst) {
        0 => Reply::silence(),
        _ => answer(),
    })
    .await;
    let first = Node::start(program, &database, &model, home.path()).await?;
    let _second = Node::start(program, &database, &model, home.path()).await?;
    let session = first.open().await?;
    first.say(&session).await?;
    let taken = async {
        model.reached(1).await;
        first.signal(signal)?;
        if signal == Signal::TERM {
            // Its request ends when the turn is parked.
            model.hung_up(1).await;
        }
        let ended = Instant::now();
        model.reached(2).await;
        anyhow::Ok(ended.elapsed().as_secs_f64())
    };
    tokio::time::timeout(PATIENCE, taken).await.context("the turn was never taken over")?
}

pub(crate) async fn measure(program: &Path) -> Result<()> {
    let (mut killed, mut drained) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        killed.push(stands_still(program, Signal::KILL).await?);
        drained.push(stands_still(program, Signal::TERM).await?);
    }
    let bar = |seconds| (Better::Lower, seconds);
    report("take_over_killed", killed, "s", bar(10.0), "kill -9 on the same machine");
    report("take_over_drained", drained, "s", bar(1.0), "SIGTERM, after the turn was parked");
    Ok(())
}

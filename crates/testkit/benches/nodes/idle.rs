//! What a node costs whose clients observe sessions in which nothing happens.

use std::{path::Path, time::Duration};

use anyhow::{Context as _, Result};
use budao_testkit::{bench::Better, postgres::PostgresServer, provider::Provider};
use futures::{StreamExt as _, TryStreamExt as _, stream};

use crate::{
    node::{Node, answer},
    report,
};

const SESSIONS: usize = 1_000;
const AT_ONCE: usize = 16;
/// Time for the node to come to rest: sessions without work are unloaded, views are updated.
const SETTLE: Duration = Duration::from_secs(20);
const ROUNDS: usize = 3;
/// Long against the beat and the comparison of heads, and a whole number of heartbeats of the clients' streams.
const ROUND: Duration = Duration::from_secs(15);

/// Percent of a core in each round.
async fn load(node: &Node) -> Result<Vec<f64>> {
    tokio::time::sleep(SETTLE).await;
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        let before = node.cpu()?;
        tokio::time::sleep(ROUND).await;
        let used = node.cpu()?.saturating_sub(before);
        rounds.push(used.as_secs_f64() / ROUND.as_secs_f64() * 100.0);
    }
    Ok(rounds)
}

/// Opens a session and observes it; the first bytes have arrived when it returns.
async fn observe(node: &Node) -> Result<reqwest::Response> {
    let session = node.open().await?;
    let mut events = node.events(&session).await?;
    events.chunk().await?.context("the stream goes on")?;
    Ok(events)
}

pub(crate) async fn measure(program: &Path) -> Result<()> {
    let database = PostgresServer::start().context("PostgreSQL is not installed")?;
    let home = tempfile::tempdir().context("make a folder")?;
    let model = Provider::answering(|_| answer()).await;
    let node = Node::start(program, &database, &model, home.path()).await?;
    let opened = stream::iter(0..SESSIONS).map(|_| observe(&node)).buffer_unordered(AT_ONCE);
    let streams: Vec<reqwest::Response> = opened.try_collect().await?;
    let note = format!("{SESSIONS} silent sessions, each observed by a stream of its own");
    let rounds = load(&node).await?;
    report("idle", rounds, "% of a core", (Better::Lower, 0.5), &note);
    drop(streams);
    Ok(())
}

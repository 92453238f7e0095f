//! Turns of three nodes beside those of one.
//!
//! The database is not the bottleneck: every commit takes 40 ms (`commit_delay`), as on a distant pair, and commits of all
//! nodes share it. Each node has a fixed number of sessions, whose clients send the next message when a turn has ended.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use budao_testkit::{bench::Better, postgres::PostgresServer, provider::Provider};

use crate::{
    node::{Node, answer},
    report,
};

const NODES: usize = 3;
const SESSIONS: usize = 8;
const ROUNDS: usize = 3;
const ROUND: Duration = Duration::from_secs(8);
/// How a turn's end is seen in the stream of events.
const END: &[u8] = b"agent.final_answer";

/// Runs turns of one session until it is time; counts them.
async fn talk(node: Arc<Node>, stop: Arc<AtomicBool>, count: Arc<AtomicU64>) -> Result<()> {
    let session = node.open().await?;
    let mut events = node.events(&session).await?;
    while !stop.load(Ordering::Relaxed) {
        node.say(&session).await?;
        loop {
            let piece = events.chunk().await?.context("the stream goes on")?;
            if piece.windows(END.len()).any(|part| part == END) {
                break;
            }
        }
        count.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

/// Turns a second of these nodes together.
async fn turns(nodes: &[Arc<Node>]) -> Result<f64> {
    let (stop, count) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
    let began = Instant::now();
    let talking: Vec<_> = nodes
        .iter()
        .flat_map(|node| std::iter::repeat_n(node, SESSIONS))
        .map(|node| tokio::spawn(talk(Arc::clone(node), Arc::clone(&stop), Arc::clone(&count))))
        .collect();
    tokio::time::sleep(ROUND).await;
    stop.store(true, Ordering::Relaxed);
    for client in talking {
        client.await.context("a client panicked")??;
    }
    Ok(count.load(Ordering::Relaxed) as f64 / began.elapsed().as_secs_f64())
}

pub(crate) async fn measure(program: &Path) -> Result<()> {
    let slow = [("commit_delay", "40000"), ("commit_siblings", "0"), ("max_connections", "200")];
    let database = PostgresServer::start_with(&slow).context("PostgreSQL is not installed")?;
    let home = tempfile::tempdir().context("make a folder")?;
    let model = Provider::answering(|_| answer()).await;
    let mut nodes = Vec::new();
    for _ in 0..NODES {
        nodes.push(Arc::new(Node::start(program, &database, &model, home.path()).await?));
    }
    turns(&nodes).await?;
    let (mut ratios, mut rates) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let one = turns(&nodes[..1]).await?;
        let three = turns(&nodes).await?;
        ratios.push(three / one);
        rates.push(three);
    }
    let note = format!(
        "{SESSIONS} sessions a node, simulated commits of 40 ms; three nodes: {rates:.0?} turns/s"
    );
    report("scale_3", ratios, "× one node", (Better::Higher, 2.5), &note);
    Ok(())
}

//! Job leases: a periodic job runs on one node at a time, and on another one when that node is gone.

use budao_core::Fault;

use super::Node;

impl Node {
    /// Takes or keeps the lease of a job. Returns `false` while another listed node that is not gone holds it. Two nodes
    /// may hold a job for a moment, so every job must be safe to run twice.
    ///
    /// # Errors
    /// When the journal fails.
    pub(crate) async fn holds_job(&self, name: &str) -> Result<bool, Fault> {
        let name = format!("job.{name}");
        let note = self.cluster().note(&name).await?;
        let holder = note.as_ref().map(|note| String::from_utf8_lossy(&note.body).into_owned());
        match holder {
            Some(holder) if holder == self.holder() => return Ok(true),
            Some(holder) if self.is_listed(&holder) && !self.census.is_dead(&holder) => {
                return Ok(false);
            }
            _ => {}
        }
        let version = note.map_or(0, |note| note.version);
        let body = self.holder().as_bytes().to_vec();
        Ok(self.cluster().set_note(&name, version, body).await?.is_some())
    }

    fn is_listed(&self, holder: &str) -> bool {
        self.nodes().iter().any(|node| node.holder == holder)
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use budao_core::{limits::Limits, world::World};
    use budao_journal::{Cluster, Memory, NODE_TIMEOUT, NodeBeat, NodeStatus};
    use budao_testkit::world::seeded;

    use super::*;
    use crate::nodes::NodeCensus;

    /// A journal and the servers on it.
    struct Servers {
        journal: Arc<Memory>,
        world: World,
    }

    impl Servers {
        fn start() -> Self {
            let world = seeded(1);
            Self { journal: Arc::new(Memory::new(world.clone(), Limits::default())), world }
        }

        fn node(&self, holder: &str) -> Arc<Node> {
            let census = Arc::new(NodeCensus::new(holder.into(), |_| false));
            let cluster: Arc<dyn Cluster> = self.journal.clone();
            Node::new(cluster, census, self.world.clone(), NodeStatus::default())
        }

        /// Lets these nodes beat and read each other once a second.
        async fn live(&self, nodes: &[&Arc<Node>], seconds: u64) {
            for _ in 0..seconds {
                for node in nodes {
                    let (holder, status) = (node.holder().to_owned(), NodeStatus::default());
                    let (joined, left) = (vec![], vec![]);
                    let beat = NodeBeat { holder, status, joined, left };
                    self.journal.beat(beat).await.unwrap();
                }
                for node in nodes {
                    node.read_census().await.unwrap();
                }
                self.world.clock.sleep(Duration::from_secs(1)).await;
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_job_has_one_holder_until_that_one_is_gone_and_then_another_one() {
        let servers = Servers::start();
        let (first, second, third) = (servers.node("a"), servers.node("b"), servers.node("c"));
        servers.live(&[&first, &second, &third], 10).await;
        assert!(first.holds_job("retention").await.unwrap());
        for _ in 0..20 {
            servers.live(&[&first, &second, &third], 1).await;
            assert!(first.holds_job("retention").await.unwrap(), "it keeps the job");
            assert!(!second.holds_job("retention").await.unwrap());
            assert!(!third.holds_job("retention").await.unwrap());
        }
        assert!(second.holds_job("alerts").await.unwrap(), "each job has its own holder");
        // The holder stops to beat.
        let mut silent = 0;
        while !second.holds_job("retention").await.unwrap() {
            servers.live(&[&second, &third], 1).await;
            silent += 1;
            assert!(silent <= NODE_TIMEOUT.as_secs() + 1, "nobody has the job");
        }
        assert!(silent >= NODE_TIMEOUT.as_secs() - 1, "taken from a living holder");
        assert!(!third.holds_job("retention").await.unwrap());
        // It was only frozen.
        servers.live(&[&first, &second, &third], 2).await;
        assert!(!first.holds_job("retention").await.unwrap(), "the heir keeps it");
        assert!(second.holds_job("retention").await.unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn a_job_of_a_server_that_left_is_taken_at_once() {
        let servers = Servers::start();
        let (first, second) = (servers.node("a"), servers.node("b"));
        servers.live(&[&first, &second], 1).await;
        assert!(first.holds_job("retention").await.unwrap());
        first.leave().await.unwrap();
        servers.live(&[&second], 1).await;
        assert!(second.holds_job("retention").await.unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn of_servers_that_ask_at_the_same_time_one_gets_the_job() {
        let servers = Servers::start();
        let nodes: Vec<Arc<Node>> = (0..8).map(|n| servers.node(&format!("node {n}"))).collect();
        servers.live(&nodes.iter().collect::<Vec<_>>(), 1).await;
        let asked = nodes.iter().map(|node| node.holds_job("retention"));
        let holds = futures::future::try_join_all(asked).await.unwrap();
        assert_eq!(holds.iter().filter(|holds| **holds).count(), 1, "{holds:?}");
    }
}

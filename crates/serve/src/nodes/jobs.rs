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

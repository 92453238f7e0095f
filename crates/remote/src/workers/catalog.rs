//! The tools of each tenant: offers are checked, stored in the journal, and read again when other servers take offers.

use std::{collections::BTreeMap, sync::atomic::Ordering};

use budao_core::{
    fault::{Fault, Kind, Operation},
    remote::OfferedTool,
    time::Timestamp,
};

use super::{WorkerIdentity, Workers};
use crate::{
    limits::limit_reached,
    offers::{OfferScope, SEEN_INTERVAL, TenantTools, WorkerOffer, check_offer, violation_fault},
    roster::{ProcessKey, RosterProcess},
};

/// Writes of a note that other servers may outrun before an offer fails.
const NOTE_TRIES: u32 = 8;

impl Workers {
    /// Checks an offer, and stores it if it is for all sessions of the tenant. Returns the version of each tool.
    ///
    /// # Errors
    /// The broken rule, with its field, or the bound that is reached. The offer has no effect then.
    pub async fn check(
        &self,
        identity: &WorkerIdentity,
        scope: &OfferScope,
        offer: &WorkerOffer,
    ) -> Result<Vec<(String, String)>, Fault> {
        let limits = self.limits();
        let patterns = match scope {
            OfferScope::Tenant => identity.patterns.as_deref(),
            OfferScope::Session(_) => None,
        };
        check_offer(offer, patterns, &self.0.config.reserved, limits)?;
        let reserved = self.admit(identity, offer)?;
        let accepted = match scope {
            OfferScope::Tenant => {
                let by = (offer.worker.as_str(), identity.user.as_str());
                self.store(&identity.tenant, by, &offer.tools).await
            }
            OfferScope::Session(_) => self.check_session_names(identity, offer).await,
        };
        if let (Err(_), Some((id, at))) = (&accepted, &reserved) {
            self.roster().expire(id, *at);
        }
        accepted?;
        let versions = offer.tools.iter().map(|tool| (tool.name.clone(), tool.version()));
        Ok(versions.collect())
    }

    /// A tenant has a bounded number of processes. A new process takes its place at once, so that offers of the same
    /// moment count; it loses it after the grace unless it connects. Returns the new place.
    fn admit(
        &self,
        identity: &WorkerIdentity,
        offer: &WorkerOffer,
    ) -> Result<Option<(ProcessKey, Timestamp)>, Fault> {
        let limits = self.limits();
        if offer.capacity == 0 || offer.capacity > limits.capacity {
            let rule = format!("1 ≤ capacity ≤ {}", limits.capacity);
            return Err(violation_fault("content.capacity", rule, &offer.capacity.to_string()));
        }
        let now = self.now();
        let mut roster = self.roster();
        let id = identity.process(&offer.worker_id);
        if roster.processes.contains_key(&id) {
            return Ok(None);
        }
        let of_tenant = roster.processes.keys().filter(|it| it.tenant == id.tenant);
        let elsewhere = roster.elsewhere.workers_of(&identity.tenant);
        if of_tenant.count().saturating_add(elsewhere) >= limits.workers {
            return Err(limit_reached("tenant_workers", limits.workers));
        }
        roster.processes.insert(id.clone(), RosterProcess::absent(&offer.worker, now));
        drop(roster);
        self.expire_later(id.clone(), now);
        Ok(Some((id, now)))
    }

    /// An offer to one session does not shadow a tool that workers offer to the whole tenant.
    async fn check_session_names(
        &self,
        identity: &WorkerIdentity,
        offer: &WorkerOffer,
    ) -> Result<(), Fault> {
        let known = self.catalog(&identity.tenant).await?;
        for (index, tool) in offer.tools.iter().enumerate() {
            if let Some(other) = known.tools.get(&tool.name)
                && (other.worker != offer.worker || other.owner != identity.user)
            {
                let field = format!("content.tools[{index}].name");
                let rule = format!("the worker `{}` offers this name", other.worker);
                return Err(violation_fault(field, rule, &tool.name));
            }
        }
        Ok(())
    }

    /// Stores what a worker offers to the tenant. Another server that stores at the same time makes it try again.
    async fn store(
        &self,
        tenant: &str,
        by: (&str, &str),
        offered: &[OfferedTool],
    ) -> Result<(), Fault> {
        let mut catalogs = self.0.catalogs.lock().await;
        for _ in 0..NOTE_TRIES {
            self.load(&mut catalogs, tenant).await?;
            let Some((version, known)) = catalogs.get(tenant) else { break };
            let (expected, mut next, now) = (*version, known.clone(), self.now());
            next.refresh(&self.roster().connected_tools(tenant), now, self.limits());
            next.add(by, offered, now, self.limits())?;
            if next == *known {
                return Ok(());
            }
            let has_new_tools = !next.has_same_tools(known);
            let Some(written) = self.write(tenant, expected, &next).await? else { continue };
            catalogs.insert(tenant.to_owned(), (written, next));
            if has_new_tools {
                self.0.generation.fetch_add(1, Ordering::Relaxed);
            }
            return Ok(());
        }
        Err(Fault::new(Kind::JournalBusy, Operation::RegisterTool))
    }

    /// Notes in the journal, now and then, that the tools of the processes here are there.
    pub(crate) async fn keep_tools(&self) {
        let now = self.now();
        {
            let mut seen = self.0.seen.lock().expect("no code panics while holding this");
            if now.since(*seen) < SEEN_INTERVAL {
                return;
            }
            *seen = now;
        }
        let tenants = self.roster().connected_tenants();
        for tenant in tenants {
            if let Err(fault) = self.store(&tenant, ("", ""), &[]).await {
                tracing::warn!(%fault, %tenant, "keeping the tools of connected workers failed");
            }
        }
    }

    async fn write(
        &self,
        tenant: &str,
        expected: u64,
        tools: &TenantTools,
    ) -> Result<Option<u64>, Fault> {
        let Some(store) = &self.0.config.store else { return Ok(Some(expected + 1)) };
        let body = serde_json::to_vec(tools).unwrap_or_default();
        store.set_note(&note_name(tenant), expected, body).await
    }

    /// Reads the note of a tenant, and merges it with what is known here.
    async fn load(
        &self,
        catalogs: &mut BTreeMap<String, (u64, TenantTools)>,
        tenant: &str,
    ) -> Result<(), Fault> {
        let Some(store) = &self.0.config.store else {
            catalogs.entry(tenant.to_owned()).or_default();
            return Ok(());
        };
        let note = store.note(&note_name(tenant)).await?;
        let (version, known) = catalogs.entry(tenant.to_owned()).or_default();
        if let Some(note) = note.filter(|note| note.version != *version) {
            let before = known.clone();
            // A note that another version of the program wrote is replaced by the next offer.
            known.merge(serde_json::from_slice(&note.body).unwrap_or_default());
            *version = note.version;
            if !known.has_same_tools(&before) {
                self.0.generation.fetch_add(1, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    /// The tools of a tenant; read from the journal on first use.
    pub(super) async fn catalog(&self, tenant: &str) -> Result<TenantTools, Fault> {
        let mut catalogs = self.0.catalogs.lock().await;
        if !catalogs.contains_key(tenant) {
            self.load(&mut catalogs, tenant).await?;
        }
        Ok(catalogs.get(tenant).map(|(_, tools)| tools.clone()).unwrap_or_default())
    }

    /// Reads the notes of all known tenants again: other servers may have taken offers.
    pub async fn refresh(&self) {
        let mut catalogs = self.0.catalogs.lock().await;
        let tenants: Vec<String> = catalogs.keys().cloned().collect();
        for tenant in tenants {
            if let Err(fault) = self.load(&mut catalogs, &tenant).await {
                tracing::warn!(%fault, tenant, "reading the tools of workers failed");
            }
        }
    }
}

fn note_name(tenant: &str) -> String {
    format!("worker_tools/{tenant}")
}

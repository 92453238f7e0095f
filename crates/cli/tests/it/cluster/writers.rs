//! How long sessions are without a writer during a storm, measured in the journal while it is well.
//!
//! The test knows which servers it has killed, frozen or cut off from the database. A session that is unfinished and whose
//! writer is one of them, or that has none, waits for a writer. No time counts while the database is not well: then no
//! server could take a session.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard},
    time::{Duration, Instant},
};

use budao_core::event::SessionId;
use budao_journal::Journal;

use super::servers::Servers;

/// The time between two looks.
const PAUSE: Duration = Duration::from_millis(200);
/// A look that takes longer says nothing.
const LOOK_MAX: Duration = Duration::from_secs(2);

/// What became of a server's process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Loss {
    Dead,
    /// It is frozen or cut off from the database, and comes back.
    Silent,
}

#[derive(Debug, Default)]
struct HealthState {
    lost: BTreeMap<String, Loss>,
    is_database_away: bool,
    /// Grows with each change.
    version: u64,
    is_over: bool,
    /// The longest waits that were seen.
    longest: BTreeMap<Loss, Duration>,
}

/// Which servers can write, and what was measured.
#[derive(Debug, Default)]
pub(super) struct Health(Mutex<HealthState>);

impl Health {
    fn state(&self) -> MutexGuard<'_, HealthState> {
        self.0.lock().unwrap()
    }

    fn change(&self, change: impl FnOnce(&mut HealthState)) {
        let mut state = self.state();
        change(&mut state);
        state.version += 1;
    }

    /// A server is lost, by the name of its leases.
    pub(super) fn lose(&self, holder: &str, loss: Loss) {
        self.change(|state| {
            state.lost.insert(holder.to_owned(), loss);
        });
    }

    pub(super) fn regain(&self, holder: &str) {
        self.change(|state| {
            state.lost.remove(holder);
        });
    }

    pub(super) fn set_database(&self, is_away: bool) {
        self.change(|state| state.is_database_away = is_away);
    }

    /// Takes what a look found that began when the servers were in this version; if they have changed since, nothing.
    fn measure(
        &self,
        version: u64,
        began: Instant,
        found: &BTreeMap<SessionId, Loss>,
        waiting: &mut BTreeMap<SessionId, (Instant, Loss)>,
    ) {
        let mut state = self.state();
        if state.version != version {
            return;
        }
        waiting.retain(|session, _| found.contains_key(session));
        for (session, loss) in found {
            let (since, loss) = *waiting.entry(*session).or_insert((began, *loss));
            let longest = state.longest.entry(loss).or_default();
            *longest = (*longest).max(began.duration_since(since));
        }
    }

    /// Ends the measurement. Returns the longest waits for a writer: after a death or without a cause, and after silence.
    pub(super) fn finish(&self) -> [Duration; 2] {
        let mut state = self.state();
        state.is_over = true;
        [Loss::Dead, Loss::Silent].map(|loss| state.longest.get(&loss).copied().unwrap_or_default())
    }
}

/// Looks for unfinished sessions without a writer until the storm is over.
pub(super) async fn watch(servers: Arc<Servers>) {
    let mut waiting: BTreeMap<SessionId, (Instant, Loss)> = BTreeMap::new();
    let mut journal: Option<Arc<dyn Journal>> = None;
    loop {
        let (lost, version) = {
            let state = servers.health.state();
            if state.is_over {
                return;
            }
            let lost = (!state.is_database_away).then(|| state.lost.clone());
            (lost, state.version)
        };
        let began = Instant::now();
        let found = match &lost {
            Some(lost) => tokio::time::timeout(LOOK_MAX, look(&servers, &mut journal, lost)).await,
            None => Ok(None),
        };
        match found {
            Ok(Some(found)) => servers.health.measure(version, began, &found, &mut waiting),
            Ok(None) | Err(_) => {
                waiting.clear();
                journal = None;
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// The sessions that wait for a writer; `None` if the journal does not answer.
async fn look(
    servers: &Servers,
    journal: &mut Option<Arc<dyn Journal>>,
    lost: &BTreeMap<String, Loss>,
) -> Option<BTreeMap<SessionId, Loss>> {
    let journal = match journal {
        Some(journal) => journal,
        None => journal.insert(servers.open_journal().await.ok()?),
    };
    let holders: Vec<String> = lost.keys().cloned().collect();
    let found = journal.orphaned_sessions(&holders, None, 1_000).await.ok()?;
    let loss = |holder: &str| lost.get(holder).copied().unwrap_or(Loss::Dead);
    let orphan = found.into_iter().map(|orphan| {
        (orphan.session, orphan.lease.map_or(Loss::Dead, |lease| loss(&lease.holder)))
    });
    Some(orphan.collect())
}

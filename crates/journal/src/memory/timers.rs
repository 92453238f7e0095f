//! Sessions with timers in a journal in memory.

use std::collections::BTreeMap;

use budao_core::{
    event::{Event, Settings},
    time::Timestamp,
    timer::Timers,
};

use super::state::MemoryState;
use crate::contract::{StoredRecord, TimedSession, TimerQuery};

/// The timers and labels of a session.
#[derive(Debug, Default)]
pub(super) struct TimerState {
    timers: Timers,
    labels: BTreeMap<String, String>,
}

impl TimerState {
    pub(super) fn apply(&mut self, record: &StoredRecord) {
        if record.is_delta() {
            return;
        }
        let Ok(event) = record.shared_event() else { return };
        if let Event::SessionOpened { settings, .. } | Event::SettingsChanged { settings } = &*event
        {
            self.labels.clone_from(&settings.labels);
        }
        self.timers.apply(&event, record.at);
    }
}

impl MemoryState {
    pub(super) fn query_timers(&self, query: &TimerQuery, now: Timestamp) -> Vec<TimedSession> {
        let is_wanted = |state: &TimerState| {
            let tenant = state.labels.get(Settings::TENANT).map_or("", String::as_str);
            query.tenant.as_deref().is_none_or(|wanted| wanted == tenant)
        };
        let mut found: Vec<TimedSession> = self
            .sessions_with_timers(now)
            .filter_map(|(session, state, lease)| {
                let wake_at = state.timers.first_time().filter(|_| is_wanted(state))?;
                let is_later = query.after.is_none_or(|after| (wake_at, session) > after);
                is_later.then(|| TimedSession {
                    session,
                    wake_at,
                    timers: state.timers.clone(),
                    labels: state.labels.clone(),
                    lease,
                })
            })
            .collect();
        found.sort_by_key(|timed| (timed.wake_at, timed.session));
        found.truncate(query.limit);
        found
    }
}

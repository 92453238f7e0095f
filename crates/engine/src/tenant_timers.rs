//! The bound on the timers of a tenant. It spans sessions, so the host enforces it and not a session.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard},
};

use budao_core::{
    event::{Command, CommandBody, SessionId},
    fault::{Fact, Fault, Kind, Operation},
    timer::TimerId,
};
use budao_journal::{Journal, TimerQuery, fold};

/// The timers that commands under way in this process may set. They count before their records can be read.
#[derive(Clone, Debug, Default)]
pub(crate) struct TimerReservations(Arc<Mutex<Reservations>>);

#[derive(Debug, Default)]
struct Reservations {
    next: u64,
    /// In order of arrival: a command counts the reservations before its own.
    open: BTreeMap<u64, ReservedTimer>,
}

#[derive(Debug)]
struct ReservedTimer {
    tenant: String,
    session: SessionId,
    timer: TimerId,
}

/// A reservation for one timer; dropping it releases it. The caller keeps it until the command has its answer.
#[derive(Debug)]
pub(crate) struct TimerReservation {
    all: TimerReservations,
    number: u64,
}

impl Drop for TimerReservation {
    fn drop(&mut self) {
        self.all.lock().open.remove(&self.number);
    }
}

impl TimerReservations {
    fn lock(&self) -> MutexGuard<'_, Reservations> {
        self.0.lock().expect("no code panics while holding this")
    }

    fn reserve(&self, tenant: &str, session: SessionId, timer: TimerId) -> TimerReservation {
        let mut all = self.lock();
        let number = all.next;
        all.next += 1;
        all.open.insert(number, ReservedTimer { tenant: tenant.to_owned(), session, timer });
        TimerReservation { all: self.clone(), number }
    }

    /// Refuses a command that sets one more timer than a tenant may have. Commands of the same moment count in the order
    /// of their arrival; those that other processes take at the same moment do not count.
    ///
    /// # Errors
    /// `limit_reached`, or a fault of the journal.
    pub(crate) async fn reserve_for(
        &self,
        journal: &dyn Journal,
        session: SessionId,
        command: &Command,
        limit: usize,
    ) -> Result<Option<TimerReservation>, Fault> {
        let CommandBody::SetTimer { timer, .. } = &command.body else { return Ok(None) };
        // A repetition gets the answer of the first.
        if journal.answer(session, &command.id).await?.is_some() {
            return Ok(None);
        }
        let (state, _) = fold(journal, session).await?;
        let timer = timer.clone().unwrap_or_else(|| TimerId(command.id.0.clone()));
        if state.timers.get(&timer).is_some() {
            return Ok(None);
        }
        let tenant = state.settings.tenant();
        let reserved = self.reserve(tenant, session, timer);
        let count = reserved.count_timers(journal, tenant, limit).await?;
        if count < limit {
            return Ok(Some(reserved));
        }
        Err(Fault::new(Kind::LimitReached, Operation::SetTimer)
            .with(Fact::Limit, limit)
            .with(Fact::Actual, count)
            .with(Fact::LimitName, "tenant_timers"))
    }
}

impl TimerReservation {
    /// The timers of the tenant: those that are recorded, and those of commands that arrived before this one.
    async fn count_timers(
        &self,
        journal: &dyn Journal,
        tenant: &str,
        limit: usize,
    ) -> Result<usize, Fault> {
        let earlier: Vec<(SessionId, TimerId)> = {
            let all = self.all.lock();
            let of_tenant = all.open.range(..self.number).filter(|(_, it)| it.tenant == tenant);
            of_tenant.map(|(_, it)| (it.session, it.timer.clone())).collect()
        };
        let query =
            TimerQuery { tenant: Some(tenant.to_owned()), after: None, limit: limit.max(1) };
        let mut timers: BTreeSet<(SessionId, TimerId)> = earlier.into_iter().collect();
        for timed in journal.sessions_with_timers(query).await? {
            timers.extend(timed.timers.all().map(|it| (timed.session, it.timer.clone())));
        }
        Ok(timers.len())
    }
}

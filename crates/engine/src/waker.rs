//! Wakes sessions whose timers are due and that no process has loaded.
//!
//! A loaded session fires its own timers. For the others, one task of the host asks the journal which timer is next and
//! sleeps until then, at most [`WAKE_POLL`]. It thus notices timers of other processes and clock changes within that
//! time. To wake a session is to load it; of several servers, the one that gets the lease fires its timers.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use budao_core::{
    event::{SessionId, Settings},
    time::Timestamp,
};
use budao_journal::{TimedSession, TimerQuery};
use tokio::sync::Notify;

use crate::{
    decider::DeciderFactory,
    host::{Host, HostState},
};

/// The longest sleep between two reads of the journal.
const WAKE_POLL: Duration = Duration::from_secs(10);
/// Sessions read at a time.
const WAKE_PAGE: usize = 64;
/// Sessions that are loaded in one round; further ones wait for the next.
const WAKES_PER_ROUND: usize = 256;
/// The pause after a round that did not load all due sessions.
const ROUND_PAUSE: Duration = Duration::from_millis(250);
/// The longest wait before a session that did not wake is loaded again.
const ATTEMPT_WAIT_MAX: Duration = Duration::from_secs(300);

/// The state of a host's waker.
#[derive(Debug, Default)]
pub(crate) struct TimerWaker {
    is_running: AtomicBool,
    is_stopped: AtomicBool,
    /// A session with timers was unloaded: the next time may be earlier than the waker knows.
    changed: Arc<Notify>,
}

impl TimerWaker {
    /// Wakes no further session.
    pub(crate) fn stop(&self) {
        self.is_stopped.store(true, Ordering::SeqCst);
        self.changed.notify_one();
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::SeqCst)
    }
}

/// A session that was loaded because a timer was due, and still has that timer due.
#[derive(Clone, Copy, Debug)]
struct WakeAttempt {
    next: Timestamp,
    wait: Duration,
}

impl<F: DeciderFactory> Host<F> {
    /// Starts the waker, or makes it read the journal again.
    pub(crate) fn notify_timer_waker(&self) {
        let waker = self.waker();
        waker.changed.notify_one();
        if waker.is_running.swap(true, Ordering::SeqCst) {
            return;
        }
        let (host, changed) = (Arc::downgrade(&self.0), Arc::clone(&waker.changed));
        let clock = Arc::clone(&self.config().world.clock);
        self.config().world.spawn.spawn(Box::pin(async move {
            let mut attempts = BTreeMap::new();
            while let Some(wait) = run_round(&host, &mut attempts).await {
                tokio::select! {
                    biased;
                    () = changed.notified() => {}
                    () = clock.sleep(wait) => {}
                }
            }
        }));
    }

    /// Loads the sessions whose timers are due. Returns how long the waker may sleep.
    async fn wake_due_sessions(&self, attempts: &mut BTreeMap<SessionId, WakeAttempt>) -> Duration {
        let now = self.config().world.clock.now();
        let (mut after, mut due, mut loaded) = (None, BTreeSet::new(), 0);
        loop {
            let query = TimerQuery { tenant: None, after, limit: WAKE_PAGE };
            let page = match self.config().journal.sessions_with_timers(query).await {
                Ok(page) => page,
                Err(fault) => {
                    tracing::warn!(%fault, "reading timers failed");
                    return WAKE_POLL;
                }
            };
            let is_last = page.len() < WAKE_PAGE;
            for timed in page {
                after = Some((timed.wake_at, timed.session));
                if timed.wake_at > now {
                    attempts.retain(|session, _| due.contains(session));
                    return timed.wake_at.since(now).min(WAKE_POLL);
                }
                due.insert(timed.session);
                if self.record_attempt_if_due(&timed, now, attempts) {
                    if loaded >= WAKES_PER_ROUND || self.loaded() >= self.config().limits.sessions {
                        return ROUND_PAUSE;
                    }
                    loaded += 1;
                    tracing::debug!(session = %timed.session, due = %timed.wake_at, "session woken");
                    self.wake_session(timed.session);
                }
            }
            if is_last {
                attempts.retain(|session, _| due.contains(session));
                return WAKE_POLL;
            }
        }
    }

    /// Whether this process loads the session now: it is not loaded here, no living server has it, and it runs here.
    fn record_attempt_if_due(
        &self,
        timed: &TimedSession,
        now: Timestamp,
        attempts: &mut BTreeMap<SessionId, WakeAttempt>,
    ) -> bool {
        let config = self.config();
        let is_elsewhere = timed.lease.as_ref().is_some_and(|lease| {
            lease.holder != config.holder && config.liveness.is_alive(&lease.holder)
        });
        let settings = Settings { labels: timed.labels.clone(), ..Settings::default() };
        let is_own = self.factory().accepts(&settings) && config.serves_place(&settings);
        if is_elsewhere || !is_own || self.registry().contains(timed.session) {
            return false;
        }
        let before = attempts.get(&timed.session).copied();
        // A clock that was set back must not delay the next attempt.
        let is_early =
            |before: WakeAttempt| before.next > now && before.next <= now.after(before.wait);
        if before.is_some_and(is_early) {
            return false;
        }
        let wait = before.map_or(WAKE_POLL, |before| (before.wait * 2).min(ATTEMPT_WAIT_MAX));
        attempts.insert(timed.session, WakeAttempt { next: now.after(wait), wait });
        true
    }
}

/// One round, unless the host is gone or stops.
async fn run_round<F: DeciderFactory>(
    host: &Weak<HostState<F>>,
    attempts: &mut BTreeMap<SessionId, WakeAttempt>,
) -> Option<Duration> {
    let host = Host(host.upgrade()?);
    match host.waker().is_stopped() {
        true => None,
        false => Some(host.wake_due_sessions(attempts).await),
    }
}

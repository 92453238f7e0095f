//! Admission control: limits per connection, per tenant and for the whole server.

use std::{
    collections::BTreeMap,
    fmt,
    num::NonZeroU32,
    sync::{Arc, Mutex},
    time::Duration,
};

use budao_core::{
    Timestamp,
    fault::{Fact, Fault, Kind, Operation},
    world::Clock,
};
use governor::{NotUntil, Quota, RateLimiter};

use crate::{
    config::{Limits, Rate},
    replay_scheduler::ReplayUsage,
};

/// Number of tenants above which the rate limiters forget idle ones.
const TENANTS_MAX: usize = 10_000;
/// Upper bound of records read from a history at once.
pub(crate) const PAGE_RECORDS: u32 = 128;

type DirectLimiter = RateLimiter<
    governor::state::NotKeyed,
    governor::state::InMemoryState,
    MonotonicClock,
    governor::middleware::NoOpMiddleware<Duration>,
>;
type KeyedLimiter = RateLimiter<
    String,
    governor::state::keyed::DefaultKeyedStateStore<String>,
    MonotonicClock,
    governor::middleware::NoOpMiddleware<Duration>,
>;

/// Adapts the injected clock to the rate limiters, which need monotonic time. If the clock is set back, time continues
/// from its last value, so no client waits for the clock to catch up.
#[derive(Clone, Debug)]
struct MonotonicClock(Arc<MonotonicState>);

#[derive(Debug)]
struct MonotonicState {
    clock: Arc<dyn Clock>,
    /// The clock's last value, and the monotonic time at that moment.
    seen: Mutex<(Timestamp, Duration)>,
}

impl MonotonicClock {
    fn new(clock: Arc<dyn Clock>) -> Self {
        let seen = Mutex::new((clock.now(), Duration::ZERO));
        Self(Arc::new(MonotonicState { clock, seen }))
    }
}

impl governor::clock::Clock for MonotonicClock {
    type Instant = Duration;

    fn now(&self) -> Duration {
        let now = self.0.clock.now();
        let mut seen = self.0.seen.lock().expect("no code panics while holding this");
        // Zero if the clock was set back.
        let passed = now.since(seen.0);
        *seen = (now, seen.1 + passed);
        seen.1
    }
}

/// Counts connections and limits the rates of commands, bytes and replays.
pub(crate) struct Admission {
    limits: Limits,
    clock: MonotonicClock,
    occupancy: Mutex<Occupancy>,
    all_commands: DirectLimiter,
    tenant_commands: KeyedLimiter,
    tenant_bytes: KeyedLimiter,
    tenant_replays: KeyedLimiter,
}

#[derive(Debug, Default)]
struct Occupancy {
    connections: usize,
    tenants: BTreeMap<String, usize>,
}

impl fmt::Debug for Admission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admission").field("occupancy", &self.occupancy).finish_non_exhaustive()
    }
}

/// The right to one connection; dropping it returns it to the limit.
#[derive(Debug)]
pub(crate) struct AdmissionPermit {
    admission: Arc<Admission>,
    tenant: String,
    commands: DirectLimiter,
    replays: DirectLimiter,
}

impl Drop for AdmissionPermit {
    fn drop(&mut self) {
        let mut occupancy = self.admission.occupancy();
        occupancy.connections -= 1;
        if let Some(count) = occupancy.tenants.get_mut(&self.tenant) {
            *count -= 1;
            if *count == 0 {
                occupancy.tenants.remove(&self.tenant);
            }
        }
    }
}

impl Admission {
    pub(crate) fn new(limits: &Limits, clock: &Arc<dyn Clock>) -> Arc<Self> {
        let clock = MonotonicClock::new(Arc::clone(clock));
        let keyed = |rate| RateLimiter::dashmap_with_clock(quota(rate), clock.clone());
        Arc::new(Self {
            occupancy: Mutex::default(),
            all_commands: RateLimiter::direct_with_clock(quota(limits.all_commands), clock.clone()),
            tenant_commands: keyed(limits.tenant_commands),
            tenant_bytes: keyed(limits.tenant_bytes),
            tenant_replays: keyed(limits.tenant_replays),
            clock,
            limits: limits.clone(),
        })
    }

    fn occupancy(&self) -> std::sync::MutexGuard<'_, Occupancy> {
        self.occupancy.lock().expect("no code panics while holding this")
    }

    /// The number of open connections.
    pub(crate) fn connections(&self) -> usize {
        self.occupancy().connections
    }

    /// Admits a connection.
    ///
    /// # Errors
    /// `limit_reached`, with the name of the limit.
    pub(crate) fn admit(self: &Arc<Self>, tenant: &str) -> Result<AdmissionPermit, Fault> {
        let mut occupancy = self.occupancy();
        if occupancy.connections >= self.limits.connections {
            return Err(limit_reached("connections", self.limits.connections));
        }
        let count = occupancy.tenants.entry(tenant.to_owned()).or_default();
        if *count >= self.limits.tenant_connections {
            return Err(limit_reached("tenant_connections", self.limits.tenant_connections));
        }
        *count += 1;
        occupancy.connections += 1;
        drop(occupancy);
        let direct = |rate| RateLimiter::direct_with_clock(quota(rate), self.clock.clone());
        Ok(AdmissionPermit {
            admission: Arc::clone(self),
            tenant: tenant.to_owned(),
            commands: direct(self.limits.commands),
            replays: direct(self.limits.replays),
        })
    }

    /// Charges a replay of up to one page to the tenant and returns its usage. A client that misses less than one
    /// page is always light, so a client on a bad connection is not slowed down by its tenant.
    pub(crate) fn charge_replay(&self, tenant: &str, records: u64) -> ReplayUsage {
        match self.tenant_replays.check_key_n(&tenant.to_owned(), page_records(records)) {
            Ok(Ok(())) => ReplayUsage::Light,
            Ok(Err(_)) | Err(_) if records < PAGE_RECORDS.into() => ReplayUsage::Light,
            Ok(Err(_)) | Err(_) => ReplayUsage::Heavy,
        }
    }

    /// Charges one command of this size to the tenant.
    ///
    /// # Errors
    /// `limit_reached`, with the name of the limit and the time until a retry can succeed.
    pub(crate) fn charge_command(&self, tenant: &str, bytes: usize) -> Result<(), Fault> {
        let tenant = tenant.to_owned();
        if self.tenant_commands.len() > TENANTS_MAX {
            self.tenant_commands.retain_recent();
            self.tenant_bytes.retain_recent();
            self.tenant_replays.retain_recent();
        }
        let limits = &self.limits;
        self.tenant_commands.check_key(&tenant).map_err(|not_until| {
            rate_exceeded("tenant_commands", limits.tenant_commands, &not_until, &self.clock)
        })?;
        let size = NonZeroU32::new(u32::try_from(bytes).unwrap_or(u32::MAX));
        if let Some(size) = size {
            match self.tenant_bytes.check_key_n(&tenant, size) {
                Ok(Ok(())) => {}
                Ok(Err(not_until)) => {
                    return Err(rate_exceeded(
                        "tenant_bytes",
                        limits.tenant_bytes,
                        &not_until,
                        &self.clock,
                    ));
                }
                Err(_) => {
                    return Err(limit_reached("tenant_bytes", limits.tenant_bytes.burst as usize));
                }
            }
        }
        self.all_commands.check().map_err(|not_until| {
            rate_exceeded("all_commands", limits.all_commands, &not_until, &self.clock)
        })
    }
}

impl AdmissionPermit {
    /// Charges one command of this size to the connection and its tenant.
    ///
    /// # Errors
    /// `limit_reached`, with the name of the limit and the time until a retry can succeed.
    pub(crate) fn charge_command(&self, bytes: usize) -> Result<(), Fault> {
        self.commands.check().map_err(|not_until| {
            rate_exceeded(
                "commands",
                self.admission.limits.commands,
                &not_until,
                &self.admission.clock,
            )
        })?;
        self.admission.charge_command(&self.tenant, bytes)
    }

    /// Charges a replay of up to one page to the connection and its tenant. Heavy if either exceeds its allowance.
    pub(crate) fn charge_replay(&self, records: u64) -> ReplayUsage {
        match self.replays.check_n(page_records(records)) {
            Ok(Ok(())) => self.admission.charge_replay(&self.tenant, records),
            Ok(Err(_)) | Err(_) => ReplayUsage::Heavy,
        }
    }
}

/// Clamps a record count to 1..=`PAGE_RECORDS`.
fn page_records(records: u64) -> NonZeroU32 {
    let records = u32::try_from(records).unwrap_or(PAGE_RECORDS).min(PAGE_RECORDS);
    NonZeroU32::new(records).unwrap_or(NonZeroU32::MIN)
}

fn quota(rate: Rate) -> Quota {
    let at_least_one = |number: u32| NonZeroU32::new(number).unwrap_or(NonZeroU32::MIN);
    Quota::per_second(at_least_one(rate.per_second)).allow_burst(at_least_one(rate.burst))
}

fn limit_reached(name: &'static str, limit: usize) -> Fault {
    Fault::new(Kind::LimitReached, Operation::AcceptFrame)
        .with(Fact::Limit, limit)
        .with(Fact::LimitName, name)
}

fn rate_exceeded(
    name: &'static str,
    rate: Rate,
    not_until: &NotUntil<Duration>,
    clock: &MonotonicClock,
) -> Fault {
    use governor::clock::Clock as _;
    // Rounded up: a client that comes back after the stated milliseconds is not refused again.
    let millis = not_until.wait_time_from(clock.now()).as_nanos().div_ceil(1_000_000);
    let wait = Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX));
    limit_reached(name, rate.per_second as usize).retry_after(wait)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI64, Ordering};

    use futures::future::BoxFuture;

    use super::*;

    /// A clock that moves only when a test sets it.
    #[derive(Debug, Default)]
    struct ManualClock(AtomicI64);

    impl Clock for ManualClock {
        fn now(&self) -> Timestamp {
            Timestamp::from_micros(self.0.load(Ordering::SeqCst))
        }

        fn sleep(&self, _: Duration) -> BoxFuture<'static, ()> {
            Box::pin(std::future::pending())
        }
    }

    fn admission(limits: &Limits) -> (Arc<Admission>, Arc<ManualClock>) {
        let manual_clock = Arc::new(ManualClock(AtomicI64::new(1_000_000_000_000)));
        let clock: Arc<dyn Clock> = Arc::clone(&manual_clock) as _;
        (Admission::new(limits, &clock), manual_clock)
    }

    fn name_of(fault: &Fault) -> String {
        fault.detail().get(Fact::LimitName).unwrap().to_string()
    }

    #[test]
    fn one_tenant_cannot_take_all_connections() {
        let limits = Limits { connections: 3, tenant_connections: 2, ..Limits::default() };
        let (admission, _) = admission(&limits);
        let first = admission.admit("acme").unwrap();
        let _second = admission.admit("acme").unwrap();
        assert_eq!(name_of(&admission.admit("acme").unwrap_err()), "tenant_connections");
        let _third = admission.admit("other").unwrap();
        assert_eq!(name_of(&admission.admit("other").unwrap_err()), "connections");
        drop(first);
        assert!(admission.admit("acme").is_ok(), "a dropped permit admits another connection");
    }

    #[test]
    fn a_burst_is_admitted_and_later_requests_get_a_retry_time() {
        let (admission, manual_clock) = admission(&Limits::default());
        let permit = admission.admit("acme").unwrap();
        let burst = |permit: &AdmissionPermit| {
            (0..1000).filter(|_| permit.charge_command(100).is_ok()).count()
        };
        assert_eq!(burst(&permit), 200);
        let fault = permit.charge_command(100).unwrap_err();
        assert_eq!(name_of(&fault), "commands");
        assert_eq!(fault.retry_hint(), Some(Duration::from_millis(20)));
        manual_clock.0.fetch_add(1_000_000, Ordering::SeqCst);
        assert_eq!(burst(&permit), 50, "a second later");
    }

    #[test]
    fn a_clock_that_is_set_back_blocks_no_client() {
        let (admission, manual_clock) = admission(&Limits::default());
        let permit = admission.admit("acme").unwrap();
        let burst = |permit: &AdmissionPermit| {
            (0..1000).filter(|_| permit.charge_command(100).is_ok()).count()
        };
        assert_eq!(burst(&permit), 200);
        manual_clock.0.fetch_sub(3_600_000_000, Ordering::SeqCst);
        assert_eq!(burst(&permit), 0);
        manual_clock.0.fetch_add(1_000_000, Ordering::SeqCst);
        assert_eq!(burst(&permit), 50);
    }

    #[test]
    fn histories_are_counted_per_connection_and_per_tenant() {
        let limits = Limits {
            replays: Rate { per_second: 128, burst: 384 },
            tenant_replays: Rate { per_second: 256, burst: 640 },
            ..Limits::default()
        };
        let (admission, manual_clock) = admission(&limits);
        let (one, two) = (admission.admit("acme").unwrap(), admission.admit("acme").unwrap());
        let other = admission.admit("other").unwrap();
        let light_count = |permit: &AdmissionPermit| {
            (0..10).filter(|_| permit.charge_replay(9_000) == ReplayUsage::Light).count()
        };
        assert_eq!((light_count(&one), light_count(&two), light_count(&other)), (3, 2, 3));
        let reconnected = admission.admit("acme").unwrap();
        assert_eq!(light_count(&reconnected), 0, "a reconnect gets no new allowance of the tenant");
        let unstable = admission.admit("acme").unwrap();
        assert_eq!(unstable.charge_replay(100), ReplayUsage::Light, "a small replay is light");
        assert_eq!(one.charge_replay(100), ReplayUsage::Heavy, "repeated small replays are heavy");
        manual_clock.0.fetch_add(1_000_000, Ordering::SeqCst);
        assert_eq!((light_count(&one), light_count(&two)), (1, 1), "a second later");
    }

    #[test]
    fn bytes_are_counted_per_tenant() {
        let rate = Rate { per_second: 1_000, burst: 1_000 };
        let (admission, _) = admission(&Limits { tenant_bytes: rate, ..Limits::default() });
        let (one, two) = (admission.admit("acme").unwrap(), admission.admit("other").unwrap());
        one.charge_command(900).unwrap();
        assert_eq!(name_of(&one.charge_command(900).unwrap_err()), "tenant_bytes");
        two.charge_command(900).unwrap();
    }
}

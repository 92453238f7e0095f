//! How much anybody may have of us: per connection, per tenant, and all together.

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
    seams::Clock,
};
use governor::{NotUntil, Quota, RateLimiter};

use crate::{
    config::{Limits, Rate},
    replays::Had,
};

/// Tenants whose rates are remembered before those that are idle are forgotten.
const TENANTS_REMEMBERED: usize = 10_000;
/// Records that are read at once, of some history.
pub(crate) const PIECE: u32 = 128;

type Direct = RateLimiter<
    governor::state::NotKeyed,
    governor::state::InMemoryState,
    Steady,
    governor::middleware::NoOpMiddleware<Duration>,
>;
type Keyed = RateLimiter<
    String,
    governor::state::keyed::DefaultKeyedStateStore<String>,
    Steady,
    governor::middleware::NoOpMiddleware<Duration>,
>;

/// The clock that was handed in, as the limiters want it: never backwards. When it is set back, time goes on from where it
/// was, so that nobody waits for the clock to come by again.
#[derive(Clone, Debug)]
struct Steady(Arc<Ticking>);

#[derive(Debug)]
struct Ticking {
    clock: Arc<dyn Clock>,
    /// When it was last looked at, and what that was for the limiters.
    seen: Mutex<(Timestamp, Duration)>,
}

impl Steady {
    fn new(clock: Arc<dyn Clock>) -> Self {
        let seen = Mutex::new((clock.now(), Duration::ZERO));
        Self(Arc::new(Ticking { clock, seen }))
    }
}

impl governor::clock::Clock for Steady {
    type Instant = Duration;

    fn now(&self) -> Duration {
        let now = self.0.clock.now();
        let mut seen = self.0.seen.lock().expect("no code panics while holding this");
        // Nothing if it went backwards.
        let passed = now.since(seen.0);
        *seen = (now, seen.1 + passed);
        seen.1
    }
}

/// The door: counts who is in and how fast they ask.
pub(crate) struct Admission {
    limits: Limits,
    clock: Steady,
    inside: Mutex<Inside>,
    all_commands: Direct,
    tenant_commands: Keyed,
    tenant_bytes: Keyed,
    tenant_replays: Keyed,
}

#[derive(Debug, Default)]
struct Inside {
    connections: usize,
    tenants: BTreeMap<String, usize>,
}

impl fmt::Debug for Admission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admission").field("inside", &self.inside).finish_non_exhaustive()
    }
}

/// A place inside; dropping it leaves.
#[derive(Debug)]
pub(crate) struct Ticket {
    door: Arc<Admission>,
    tenant: String,
    commands: Direct,
    replays: Direct,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut inside = self.door.inside();
        inside.connections -= 1;
        if let Some(count) = inside.tenants.get_mut(&self.tenant) {
            *count -= 1;
            if *count == 0 {
                inside.tenants.remove(&self.tenant);
            }
        }
    }
}

impl Admission {
    pub(crate) fn new(limits: &Limits, clock: &Arc<dyn Clock>) -> Arc<Self> {
        let clock = Steady::new(Arc::clone(clock));
        let keyed = |rate| RateLimiter::dashmap_with_clock(quota(rate), clock.clone());
        Arc::new(Self {
            inside: Mutex::default(),
            all_commands: RateLimiter::direct_with_clock(quota(limits.all_commands), clock.clone()),
            tenant_commands: keyed(limits.tenant_commands),
            tenant_bytes: keyed(limits.tenant_bytes),
            tenant_replays: keyed(limits.tenant_replays),
            clock,
            limits: limits.clone(),
        })
    }

    fn inside(&self) -> std::sync::MutexGuard<'_, Inside> {
        self.inside.lock().expect("no code panics while holding this")
    }

    /// Connections that are in.
    pub(crate) fn connections(&self) -> usize {
        self.inside().connections
    }

    /// Lets a connection in.
    ///
    /// # Errors
    /// `limit_reached`, with the name of the limit.
    pub(crate) fn enter(self: &Arc<Self>, tenant: &str) -> Result<Ticket, Fault> {
        let mut inside = self.inside();
        if inside.connections >= self.limits.connections {
            return Err(full("connections", self.limits.connections));
        }
        let count = inside.tenants.entry(tenant.to_owned()).or_default();
        if *count >= self.limits.tenant_connections {
            return Err(full("tenant_connections", self.limits.tenant_connections));
        }
        *count += 1;
        inside.connections += 1;
        drop(inside);
        let direct = |rate| RateLimiter::direct_with_clock(quota(rate), self.clock.clone());
        Ok(Ticket {
            door: Arc::clone(self),
            tenant: tenant.to_owned(),
            commands: direct(self.limits.commands),
            replays: direct(self.limits.replays),
        })
    }

    /// The tenant is read so many more records of some history, as far as they make one piece. Has it had much already?
    /// Whoever misses only a few gets them, however much others of the tenant have had: it is on a bad line, perhaps.
    pub(crate) fn replay(&self, tenant: &str, records: u64) -> Had {
        match self.tenant_replays.check_key_n(&tenant.to_owned(), piece(records)) {
            Ok(Ok(())) => Had::Little,
            Ok(Err(_)) | Err(_) if records < PIECE.into() => Had::Little,
            Ok(Err(_)) | Err(_) => Had::Much,
        }
    }

    /// May the tenant send one more command, of this size?
    ///
    /// # Errors
    /// `limit_reached`, with the name of the limit and when to come back.
    pub(crate) fn command(&self, tenant: &str, bytes: usize) -> Result<(), Fault> {
        let tenant = tenant.to_owned();
        if self.tenant_commands.len() > TENANTS_REMEMBERED {
            self.tenant_commands.retain_recent();
            self.tenant_bytes.retain_recent();
            self.tenant_replays.retain_recent();
        }
        let limits = &self.limits;
        self.tenant_commands
            .check_key(&tenant)
            .map_err(|no| fast("tenant_commands", limits.tenant_commands, &no, &self.clock))?;
        let size = NonZeroU32::new(u32::try_from(bytes).unwrap_or(u32::MAX));
        if let Some(size) = size {
            match self.tenant_bytes.check_key_n(&tenant, size) {
                Ok(Ok(())) => {}
                Ok(Err(no)) => {
                    return Err(fast("tenant_bytes", limits.tenant_bytes, &no, &self.clock));
                }
                Err(_) => return Err(full("tenant_bytes", limits.tenant_bytes.burst as usize)),
            }
        }
        self.all_commands
            .check()
            .map_err(|no| fast("all_commands", limits.all_commands, &no, &self.clock))
    }
}

impl Ticket {
    /// May this connection send one more command, of this size?
    ///
    /// # Errors
    /// `limit_reached`, with the name of the limit and when to come back.
    pub(crate) fn command(&self, bytes: usize) -> Result<(), Fault> {
        self.commands
            .check()
            .map_err(|no| fast("commands", self.door.limits.commands, &no, &self.door.clock))?;
        self.door.command(&self.tenant, bytes)
    }

    /// This connection is read so many more records of some history, as far as they make one piece. Has it, or its
    /// tenant, had much already?
    pub(crate) fn replay(&self, records: u64) -> Had {
        match self.replays.check_n(piece(records)) {
            Ok(Ok(())) => self.door.replay(&self.tenant, records),
            Ok(Err(_)) | Err(_) => Had::Much,
        }
    }
}

/// As many records as are read at once, at most.
fn piece(records: u64) -> NonZeroU32 {
    let records = u32::try_from(records).unwrap_or(PIECE).min(PIECE);
    NonZeroU32::new(records).unwrap_or(NonZeroU32::MIN)
}

fn quota(rate: Rate) -> Quota {
    let at_least_one = |number: u32| NonZeroU32::new(number).unwrap_or(NonZeroU32::MIN);
    Quota::per_second(at_least_one(rate.per_second)).allow_burst(at_least_one(rate.burst))
}

fn full(name: &'static str, limit: usize) -> Fault {
    Fault::new(Kind::LimitReached, Operation::AcceptFrame)
        .with(Fact::Limit, limit)
        .with(Fact::LimitName, name)
}

fn fast(name: &'static str, rate: Rate, no: &NotUntil<Duration>, clock: &Steady) -> Fault {
    use governor::clock::Clock as _;
    full(name, rate.per_second as usize).retry_after(no.wait_time_from(clock.now()))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI64, Ordering};

    use futures::future::BoxFuture;

    use super::*;

    /// A clock that stands still until it is moved.
    #[derive(Debug, Default)]
    struct Hands(AtomicI64);

    impl Clock for Hands {
        fn now(&self) -> Timestamp {
            Timestamp::from_micros(self.0.load(Ordering::SeqCst))
        }

        fn sleep(&self, _: Duration) -> BoxFuture<'static, ()> {
            Box::pin(std::future::pending())
        }
    }

    fn door(limits: &Limits) -> (Arc<Admission>, Arc<Hands>) {
        let hands = Arc::new(Hands(AtomicI64::new(1_000_000_000_000)));
        let clock: Arc<dyn Clock> = Arc::clone(&hands) as _;
        (Admission::new(limits, &clock), hands)
    }

    fn name_of(fault: &Fault) -> String {
        fault.detail().get(Fact::LimitName).unwrap().to_string()
    }

    #[test]
    fn a_tenant_cannot_take_everybodys_place() {
        let limits = Limits { connections: 3, tenant_connections: 2, ..Limits::default() };
        let (door, _) = door(&limits);
        let first = door.enter("acme").unwrap();
        let _second = door.enter("acme").unwrap();
        assert_eq!(name_of(&door.enter("acme").unwrap_err()), "tenant_connections");
        let _third = door.enter("other").unwrap();
        assert_eq!(name_of(&door.enter("other").unwrap_err()), "connections");
        drop(first);
        assert!(door.enter("acme").is_ok(), "who leaves makes room");
    }

    #[test]
    fn a_burst_is_let_through_and_the_rest_told_when_to_come_back() {
        let (door, hands) = door(&Limits::default());
        let ticket = door.enter("acme").unwrap();
        let burst = |ticket: &Ticket| (0..1000).filter(|_| ticket.command(100).is_ok()).count();
        assert_eq!(burst(&ticket), 200);
        let fault = ticket.command(100).unwrap_err();
        assert_eq!(name_of(&fault), "commands");
        assert_eq!(fault.retry_hint(), Some(Duration::from_millis(20)));
        hands.0.fetch_add(1_000_000, Ordering::SeqCst);
        assert_eq!(burst(&ticket), 50, "a second later");
    }

    #[test]
    fn a_clock_that_is_set_back_stops_nobody() {
        let (door, hands) = door(&Limits::default());
        let ticket = door.enter("acme").unwrap();
        let burst = |ticket: &Ticket| (0..1000).filter(|_| ticket.command(100).is_ok()).count();
        assert_eq!(burst(&ticket), 200);
        hands.0.fetch_sub(3_600_000_000, Ordering::SeqCst);
        assert_eq!(burst(&ticket), 0);
        hands.0.fetch_add(1_000_000, Ordering::SeqCst);
        assert_eq!(burst(&ticket), 50);
    }

    #[test]
    fn histories_are_counted_per_connection_and_per_tenant() {
        let limits = Limits {
            replays: Rate { per_second: 128, burst: 384 },
            tenant_replays: Rate { per_second: 256, burst: 640 },
            ..Limits::default()
        };
        let (door, hands) = door(&limits);
        let (one, two) = (door.enter("acme").unwrap(), door.enter("acme").unwrap());
        let other = door.enter("other").unwrap();
        let little =
            |ticket: &Ticket| (0..10).filter(|_| ticket.replay(9_000) == Had::Little).count();
        assert_eq!((little(&one), little(&two), little(&other)), (3, 2, 3));
        let anew = door.enter("acme").unwrap();
        assert_eq!(little(&anew), 0, "a new line is no new allowance of the tenant");
        let bad_line = door.enter("acme").unwrap();
        assert_eq!(bad_line.replay(100), Had::Little, "who misses little gets it");
        assert_eq!(one.replay(100), Had::Much, "but not again and again");
        hands.0.fetch_add(1_000_000, Ordering::SeqCst);
        assert_eq!((little(&one), little(&two)), (1, 1), "a second later");
    }

    #[test]
    fn bytes_are_counted_per_tenant() {
        let rate = Rate { per_second: 1_000, burst: 1_000 };
        let (door, _) = door(&Limits { tenant_bytes: rate, ..Limits::default() });
        let (one, two) = (door.enter("acme").unwrap(), door.enter("other").unwrap());
        one.command(900).unwrap();
        assert_eq!(name_of(&one.command(900).unwrap_err()), "tenant_bytes");
        two.command(900).unwrap();
    }
}

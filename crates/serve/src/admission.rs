//! How much anybody may have of us: per connection, per tenant, and all together.

use std::{
    collections::BTreeMap,
    fmt,
    num::NonZeroU32,
    sync::{Arc, Mutex},
};

use budao_core::fault::{Fact, Fault, Kind, Operation};
use governor::{
    DefaultDirectRateLimiter, DefaultKeyedRateLimiter, Quota, RateLimiter, clock::Clock as _,
    clock::DefaultClock,
};

use crate::config::{Limits, Rate};

/// Tenants whose rates are remembered before those that are idle are forgotten.
const TENANTS_REMEMBERED: usize = 10_000;

/// The door: counts who is in and how fast they ask.
pub(crate) struct Admission {
    limits: Limits,
    inside: Mutex<Inside>,
    all_commands: DefaultDirectRateLimiter,
    tenant_commands: DefaultKeyedRateLimiter<String>,
    tenant_bytes: DefaultKeyedRateLimiter<String>,
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
    commands: DefaultDirectRateLimiter,
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
    pub(crate) fn new(limits: &Limits) -> Arc<Self> {
        Arc::new(Self {
            inside: Mutex::default(),
            all_commands: RateLimiter::direct(quota(limits.all_commands)),
            tenant_commands: RateLimiter::keyed(quota(limits.tenant_commands)),
            tenant_bytes: RateLimiter::keyed(quota(limits.tenant_bytes)),
            limits: limits.clone(),
        })
    }

    fn inside(&self) -> std::sync::MutexGuard<'_, Inside> {
        self.inside.lock().expect("no code panics while holding this")
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
        Ok(Ticket {
            door: Arc::clone(self),
            tenant: tenant.to_owned(),
            commands: RateLimiter::direct(quota(self.limits.commands)),
        })
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
        }
        let limits = &self.limits;
        self.tenant_commands
            .check_key(&tenant)
            .map_err(|no| fast("tenant_commands", limits.tenant_commands, &no))?;
        let size = NonZeroU32::new(u32::try_from(bytes).unwrap_or(u32::MAX));
        if let Some(size) = size {
            match self.tenant_bytes.check_key_n(&tenant, size) {
                Ok(Ok(())) => {}
                Ok(Err(no)) => return Err(fast("tenant_bytes", limits.tenant_bytes, &no)),
                Err(_) => return Err(full("tenant_bytes", limits.tenant_bytes.burst as usize)),
            }
        }
        self.all_commands.check().map_err(|no| fast("all_commands", limits.all_commands, &no))
    }
}

impl Ticket {
    /// May this connection send one more command, of this size?
    ///
    /// # Errors
    /// `limit_reached`, with the name of the limit and when to come back.
    pub(crate) fn command(&self, bytes: usize) -> Result<(), Fault> {
        self.commands.check().map_err(|no| fast("commands", self.door.limits.commands, &no))?;
        self.door.command(&self.tenant, bytes)
    }
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

fn fast(
    name: &'static str,
    rate: Rate,
    no: &governor::NotUntil<<DefaultClock as governor::clock::Clock>::Instant>,
) -> Fault {
    let wait = no.wait_time_from(DefaultClock::default().now());
    full(name, rate.per_second as usize).retry_after(wait)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name_of(fault: &Fault) -> String {
        fault.detail().get(Fact::LimitName).unwrap().to_string()
    }

    #[test]
    fn a_tenant_cannot_take_everybodys_place() {
        let limits = Limits { connections: 3, tenant_connections: 2, ..Limits::default() };
        let door = Admission::new(&limits);
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
        let door = Admission::new(&Limits::default());
        let ticket = door.enter("acme").unwrap();
        let accepted = (0..1000).filter(|_| ticket.command(100).is_ok()).count();
        assert!((200..300).contains(&accepted), "{accepted}");
        let fault = ticket.command(100).unwrap_err();
        assert_eq!(name_of(&fault), "commands");
        assert!(fault.retry_hint().is_some());
    }

    #[test]
    fn bytes_are_counted_per_tenant() {
        let rate = Rate { per_second: 1_000, burst: 1_000 };
        let door = Admission::new(&Limits { tenant_bytes: rate, ..Limits::default() });
        let (one, two) = (door.enter("acme").unwrap(), door.enter("other").unwrap());
        one.command(900).unwrap();
        assert_eq!(name_of(&one.command(900).unwrap_err()), "tenant_bytes");
        two.command(900).unwrap();
    }
}

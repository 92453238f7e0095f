//! What a gate learns from the end of a request: holds, limits and outages follow from it.

use std::time::Duration;

use super::{
    Gate, Hold, HoldReason, LoneRefusal, RequestInFlight, Ticket, outage::Outage,
    signal::ServiceSignal,
};
use crate::{event::SessionId, fault::Fault, time::Timestamp};

/// A refusal may concern one request only if the service accepted so many others for it.
pub(super) const LONE_REFUSAL: u32 = 4;
/// The most accepted requests that speak for later refusals.
const CREDIT_MAX: u32 = 16;

impl Gate {
    /// Learns that the service accepted the request of this grant.
    pub(super) fn service_answered(
        &mut self,
        (session, grant, cycle): (SessionId, u64, u32),
        now: Timestamp,
    ) {
        self.refusals = 0;
        self.rate.accepted(cycle, grant);
        self.accepted = self.accepted.max(grant);
        self.credit = (self.credit + 1).min(CREDIT_MAX);
        self.lift_lone_refusal(grant);
        if let Some(outage) = self.outage.take() {
            self.recent.forget_failures();
            self.limit.restart(now);
            self.rate.resume(now, now.since(outage.since));
        }
        self.recent.add(session, now, false, &self.config);
        self.limit.succeeded(self.in_flight.len(), &self.config);
    }

    pub(super) fn failed(
        &mut self,
        ticket: Ticket,
        request: &RequestInFlight,
        fault: &Fault,
        signal: ServiceSignal,
        now: Timestamp,
    ) {
        if !signal.is_of_service() {
            self.free_probe(ticket, now);
            if signal == ServiceSignal::Alive && !request.has_started {
                self.service_answered(request.identity(), now);
            }
            return;
        }
        self.last_error = Some((fault.clone(), now));
        self.plan_refresh(now);
        let is_refused = signal == ServiceSignal::RateLimited;
        if is_refused {
            self.rate.refused_grant(request.grant);
        }
        if self.rate.failed(request.cycle, is_refused) {
            self.limit.restart(now);
        }
        if let Some(accepted) = self.rate.too_few_accepted() {
            self.limit.cap(accepted);
        }
        let hint = fault.retry_hint().filter(|hint| !hint.is_zero());
        match signal {
            ServiceSignal::RateLimited => self.refused(ticket, request, hint, now),
            _ => self.broke(ticket, request, signal, hint, now),
        }
    }

    /// Handles a rate limit: everybody waits until the service wants requests again.
    fn refused(
        &mut self,
        ticket: Ticket,
        request: &RequestInFlight,
        hint: Option<Duration>,
        now: Timestamp,
    ) {
        let is_probe = self.outage.as_ref().is_some_and(|outage| outage.probe == Some(ticket));
        let is_late = self.hold.is_some_and(|hold| request.sent <= hold.since);
        if !is_late {
            self.refusals = self.refusals.saturating_add(1);
        }
        let ceiling = self.config.hint_ceiling;
        let wait = hint.map_or(Duration::ZERO, |hint| hint.min(ceiling)).max(self.backoff(hint));
        let until = now.after(wait);
        if hint.is_some_and(|hint| hint > ceiling) {
            self.limit.end_ramp(now);
            return self.probe_after(ticket, wait, HoldReason::RateLimit, now);
        }
        if is_probe {
            self.outage = None;
            self.recent.forget_failures();
            self.limit.restart(now);
        }
        // A second refusal shows that the first one was no chance.
        self.lone_refusal = None;
        let is_lone = self.credit >= LONE_REFUSAL && self.is_unlimited(now);
        self.credit = self.credit.saturating_sub(LONE_REFUSAL);
        match (&mut self.hold, is_late) {
            (Some(hold), true) => hold.until = hold.until.max(until),
            (None, _) if is_lone && self.accepted > request.grant => {
                self.rate.forgive();
                self.limit.end_ramp(now);
            }
            (hold, _) => {
                let before = hold.take();
                let since = before.map_or(now, |hold| hold.since);
                *hold = Some(Hold { since, until });
                if is_lone && before.is_none() {
                    self.suspect_chance(request);
                }
                match self.rate.refused(now, until, &self.config) {
                    true => self.limit.end_ramp(now),
                    false => self.limit.restart(now),
                }
            }
        }
    }

    fn is_unlimited(&self, now: Timestamp) -> bool {
        self.outage.is_none() && self.rate.get(now, &self.config).is_none()
    }

    /// Remembers what the gate knew before a refusal, if a request that was sent later may still be accepted.
    fn suspect_chance(&mut self, request: &RequestInFlight) {
        let is_later = |other: &RequestInFlight| other.grant > request.grant && !other.has_started;
        if self.in_flight.values().any(is_later) {
            let (grant, rate, limit) = (request.grant, self.rate.clone(), self.limit.clone());
            self.lone_refusal = Some(LoneRefusal { grant, rate, limit });
        }
    }

    /// Opens the gate again after a lone refusal, if the service accepted a request that was sent after it.
    fn lift_lone_refusal(&mut self, grant: u64) {
        if self.lone_refusal.as_ref().is_some_and(|refusal| refusal.grant < grant)
            && let Some(LoneRefusal { rate, limit, .. }) = self.lone_refusal.take()
        {
            (self.hold, self.rate, self.limit) = (None, rate, limit);
            self.rate.forgive();
        }
    }

    /// Shuts the gate until one request probes the service after `wait`.
    fn probe_after(&mut self, ticket: Ticket, wait: Duration, reason: HoldReason, now: Timestamp) {
        let outage = self.outage.get_or_insert_with(|| Outage::new(now, wait, reason));
        outage.probe = outage.probe.filter(|probe| *probe != ticket);
        outage.next_probe = outage.next_probe.max(now.after(wait));
    }

    /// The wait after a refusal that the service's own hint does not explain.
    fn backoff(&self, hint: Option<Duration>) -> Duration {
        // One refusal after a followed hint may be chance; from the second on the hint is too short.
        let steps = self.refusals.saturating_sub(if hint.is_some() { 2 } else { 1 });
        if hint.is_some() && self.refusals < 2 {
            return Duration::ZERO;
        }
        let factor = 1_u32.checked_shl(steps.min(16)).unwrap_or(u32::MAX);
        self.config.backoff.saturating_mul(factor).min(self.config.probe_max)
    }

    /// Handles an overload, a time-out or a failure of the service.
    fn broke(
        &mut self,
        ticket: Ticket,
        request: &RequestInFlight,
        signal: ServiceSignal,
        hint: Option<Duration>,
        now: Timestamp,
    ) {
        if signal.is_overload() {
            self.limit.reduce(request.sent, now, self.in_flight.len(), &self.config);
        } else {
            self.limit.end_ramp(now);
        }
        if request.has_started {
            return;
        }
        if !signal.is_overload() && !self.recent.has_success() {
            self.limit.shrink_by_one();
        }
        self.recent.add(request.session, now, true, &self.config);
        let (ceiling, hint) = (self.config.hint_ceiling, hint.unwrap_or_default());
        if hint > ceiling {
            return self.probe_after(ticket, ceiling, HoldReason::Outage, now);
        }
        match &mut self.outage {
            Some(outage) if outage.probe == Some(ticket) => {
                outage.probe_failed(now, hint, &self.config);
            }
            Some(outage) => outage.next_probe = outage.next_probe.max(now.after(hint)),
            None if self.recent.show_outage(&self.config) => {
                self.outage =
                    Some(Outage::new(now, self.config.probe_min.max(hint), HoldReason::Outage));
            }
            None if !hint.is_zero() => {
                let since = self.hold.map_or(now, |hold| hold.since);
                let until = self.hold.map_or(now, |hold| hold.until).max(now.after(hint));
                self.hold = Some(Hold { since, until });
            }
            None => {}
        }
    }

    pub(super) fn free_probe(&mut self, ticket: Ticket, now: Timestamp) {
        if let Some(outage) = &mut self.outage
            && outage.probe == Some(ticket)
        {
            outage.probe = None;
            outage.next_probe = now;
        }
    }
}

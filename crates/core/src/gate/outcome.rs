//! What a gate learns from the end of a request: holds, limits and outages follow from it.

use std::time::Duration;

use super::{
    Gate, Hold, HoldReason, RequestInFlight, Ticket, outage::Outage, signal::ServiceSignal,
};
use crate::{fault::Fault, time::Timestamp};

impl Gate {
    pub(super) fn service_answered(&mut self, now: Timestamp) {
        self.refusals = 0;
        if self.outage.take().is_some() {
            self.recent.clear();
            self.limit.restart(now);
        }
        self.recent.add(now, false, &self.config);
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
                self.service_answered(now);
            }
            return;
        }
        self.last_error = Some((fault.clone(), now));
        self.plan_refresh(now);
        if self.rate.failed(request.cycle) {
            self.limit.restart(now);
        }
        let hint = fault.retry_hint().filter(|hint| !hint.is_zero());
        match signal {
            ServiceSignal::RateLimited => self.refused(ticket, request.sent, hint, now),
            _ => self.broke(ticket, request, signal, hint, now),
        }
    }

    /// Handles a rate limit: everybody waits until the service wants requests again.
    fn refused(&mut self, ticket: Ticket, sent: Timestamp, hint: Option<Duration>, now: Timestamp) {
        let is_probe = self.outage.as_ref().is_some_and(|outage| outage.probe == Some(ticket));
        let is_late = self.hold.is_some_and(|hold| sent <= hold.since);
        if !is_late {
            self.refusals = self.refusals.saturating_add(1);
        }
        let ceiling = self.config.hint_ceiling;
        let wait = hint.map_or(Duration::ZERO, |hint| hint.min(ceiling)).max(self.backoff(hint));
        let until = now.after(wait);
        if hint.is_some_and(|hint| hint > ceiling) {
            self.limit.trouble(now);
            return self.probe_after(ticket, wait, HoldReason::RateLimit, now);
        }
        if is_probe {
            self.outage = None;
            self.recent.clear();
            self.limit.restart(now);
        }
        match (&mut self.hold, is_late) {
            (Some(hold), true) => hold.until = hold.until.max(until),
            (hold, _) => {
                let since = hold.map_or(now, |hold| hold.since);
                *hold = Some(Hold { since, until });
                match self.rate.refused(now, until, &self.config) {
                    true => self.limit.trouble(now),
                    false => self.limit.restart(now),
                }
            }
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
            self.limit.trouble(now);
        }
        if request.has_started {
            return;
        }
        if !signal.is_overload() && !self.recent.has_success() {
            self.limit.shrink_by_one();
        }
        self.recent.add(now, true, &self.config);
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

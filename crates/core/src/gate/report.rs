//! Reports to the sessions whose requests wait. Planned reports share a walk over the queue, four times a second at most.

use std::{collections::BTreeSet, time::Duration};

use super::{Gate, GateAction, HoldReport, Priority, Ticket, WaitingRequest};
use crate::{fault::Kind, time::Timestamp};

/// The shortest time between two reports about one waiting request.
const REPORT_MIN: Duration = Duration::from_secs(5);
/// Reports that are planned fall on multiples of this time, so that one walk over the queue serves many.
const GRID_MICROS: i64 = 250_000;
/// The time after a failure of the service until the sessions of background work learn what is new.
const REFRESH: Duration = Duration::from_secs(60);

/// What the session of a waiting request knows about its service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KnownState {
    /// The kind of the last failure of the service.
    kind: Option<Kind>,
    /// When the service wants requests again by its own hint.
    hint_until: Option<Timestamp>,
}

impl KnownState {
    fn of(report: &HoldReport) -> Self {
        let kind = report.fault.as_ref().map(crate::fault::Fault::kind);
        Self { kind, hint_until: report.hint_until }
    }

    /// Whether this is news for a session that knows `other`.
    fn is_news_after(self, other: Self) -> bool {
        let known = other.hint_until.map(|at| at.after(REFRESH));
        (self.kind.is_some() && self.kind != other.kind) || self.hint_until > known
    }
}

/// The next time on the grid of reports.
pub(super) fn on_grid(at: Timestamp) -> Timestamp {
    let over = at.as_micros().rem_euclid(GRID_MICROS);
    match over {
        0 => at,
        _ => Timestamp::from_micros(at.as_micros().saturating_add(GRID_MICROS - over)),
    }
}

impl Gate {
    pub(super) fn report_due(&mut self, now: Timestamp) {
        let mut due = BTreeSet::new();
        while let Some((at, ticket)) = self.reports.first().copied()
            && at <= now
        {
            self.reports.pop_first();
            due.insert(ticket);
        }
        if self.refresh_at.is_some_and(|at| at <= now) {
            self.refresh_at = None;
            due.extend(self.outdated(now));
        }
        match due.len() {
            0 => {}
            1 => due.into_iter().for_each(|ticket| self.report_one(ticket, now)),
            _ => {
                for (ticket, before) in self.queue.positions(&due) {
                    self.report(ticket, before, now);
                }
            }
        }
    }

    /// Reports one request. Of one that came last, its place is known without a walk over the queue.
    fn report_one(&mut self, ticket: Ticket, now: Timestamp) {
        let last = self.waiting.get(&ticket).and_then(|own| self.queue.last_position(&own.entry));
        let walk = || self.queue.positions(&BTreeSet::from([ticket])).get(&ticket).copied();
        if let Some(before) = last.or_else(walk) {
            self.report(ticket, before, now);
        }
    }

    fn report(&mut self, ticket: Ticket, before: usize, now: Timestamp) {
        let report = self.hold_report(before, now);
        if let Some(waiting) = self.waiting.get_mut(&ticket) {
            waiting.known = Some(KnownState::of(&report));
        }
        self.plan_report(ticket, now);
        self.actions.push(GateAction::Report(ticket, report));
    }

    /// Plans the next report: each after twice the time, and only if a person waits or none was made.
    pub(super) fn plan_report(&mut self, ticket: Ticket, now: Timestamp) {
        let Some(waiting) = self.waiting.get_mut(&ticket) else { return };
        if let Some(at) = waiting.report_at {
            self.reports.remove(&(at, ticket));
        }
        let again = on_grid(now.after(now.since(waiting.since).max(REPORT_MIN)));
        let is_observed = waiting.entry.priority == Priority::Interactive;
        waiting.report_at = (is_observed || waiting.known.is_none()).then_some(again);
        self.reports.extend(waiting.report_at.map(|at| (at, ticket)));
    }

    /// Plans a look at what the sessions of background work know, after the service failed a request.
    pub(super) fn plan_refresh(&mut self, now: Timestamp) {
        if self.queue.background() > 0 {
            self.refresh_at.get_or_insert(now.after(REFRESH));
        }
    }

    /// The requests of background work whose sessions were told something else.
    fn outdated(&self, now: Timestamp) -> Vec<Ticket> {
        let state = KnownState::of(&self.hold_report(0, now));
        let is_outdated = |waiting: &WaitingRequest| {
            let is_background = waiting.entry.priority == Priority::Background;
            is_background && waiting.known.is_some_and(|known| state.is_news_after(known))
        };
        let outdated = self.waiting.iter().filter(|(_, waiting)| is_outdated(waiting));
        outdated.map(|(ticket, _)| *ticket).collect()
    }

    pub(super) fn hold_report(&self, before: usize, now: Timestamp) -> HoldReport {
        let rate = self.rate.get(now, &self.config);
        let (is_shut, outside) = (self.is_shut(now), |at: Timestamp| self.clock.outside(at));
        let last = self.last_error.as_ref();
        let fault = last.filter(|_| is_shut || rate.is_some()).map(|(fault, _)| fault.clone());
        let hint_until = last
            .filter(|_| is_shut)
            .and_then(|(fault, at)| fault.retry_hint().map(|hint| outside(at.after(hint))));
        let (reason, until) = (self.reason(), self.opens_at(now).map(outside));
        HoldReport { reason, until, hint_until, before, fault }
    }
}

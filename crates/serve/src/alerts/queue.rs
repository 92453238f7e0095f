//! The alert queue: decides which alerts are due. Does no I/O, so tests need no waiting.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use budao_core::{Kind, Timestamp, event::SessionId, fault::Severity, trace::Trace};
use serde::Serialize;

use super::{Rules, Threshold};
use crate::stats::OpenDoubt;

/// Upper bound of sessions and traces named in a message.
const EXAMPLES_MAX: usize = 5;
/// Upper bound of faults stored for thresholds.
const RECENT_FAULTS_MAX: usize = 10_000;

/// The parts of a fault that alerts use.
#[derive(Clone, Debug)]
pub(crate) struct FaultNotice {
    pub(crate) at: Timestamp,
    pub(crate) kind: Kind,
    pub(crate) session: SessionId,
    pub(crate) trace: Trace,
    pub(crate) tool: Option<String>,
    /// The fault's log line.
    pub(crate) line: String,
}

/// The rule behind an alert.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum AlertReason {
    Critical,
    Unrecoverable,
    /// The threshold at this index of the rules.
    Threshold(usize),
    /// Calls whose outcome is unknown for too long.
    Doubt,
}

type Key = (AlertReason, Option<&'static str>);

/// The JSON body sent to the webhook.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct AlertMessage {
    /// Identical if the message is sent again, so that the receiver can drop duplicates.
    id: String,
    rule: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
    #[serde(rename = "errorType", skip_serializing_if = "Option::is_none")]
    error_type: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    category: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    severity: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    threshold: Option<Threshold>,
    /// The number of faults since the last message.
    count: u64,
    first_at: String,
    last_at: String,
    sessions: Vec<String>,
    trace_ids: Vec<String>,
    /// The log line of the last fault.
    message: String,
    /// A command that explains the fault, such as `budao explain ERR_JRNL_007`.
    #[serde(skip_serializing_if = "Option::is_none")]
    explain: Option<String>,
    #[serde(skip)]
    key: Key,
}

#[derive(Debug)]
struct PendingAlert {
    kind: Option<Kind>,
    count: u64,
    first: Timestamp,
    last: Timestamp,
    sessions: BTreeSet<SessionId>,
    traces: Vec<Trace>,
    line: String,
}

/// The pending alerts, and the time of the last message per rule and code.
#[derive(Debug)]
pub(crate) struct AlertQueue {
    rules: Rules,
    pending: BTreeMap<Key, PendingAlert>,
    last_sent: BTreeMap<Key, Timestamp>,
    recent: VecDeque<FaultNotice>,
    /// All faults up to this time are in the queue or sent.
    seen: Timestamp,
    /// Doubts that were due before this time are in the queue or sent.
    doubts_seen: Timestamp,
}

impl AlertQueue {
    pub(super) fn new(rules: Rules, since: Timestamp) -> Self {
        Self {
            rules,
            pending: BTreeMap::new(),
            last_sent: BTreeMap::new(),
            recent: VecDeque::new(),
            seen: since,
            doubts_seen: since,
        }
    }

    /// Adds the calls whose outcome is unknown for as long as the rule says.
    pub(super) fn add_doubts(&mut self, doubts: &[OpenDoubt], now: Timestamp) {
        if self.rules.doubt_after.is_zero() {
            return;
        }
        let from = self.doubts_seen;
        self.doubts_seen = from.max(now);
        for doubt in doubts {
            let due = doubt.since.after(self.rules.doubt_after);
            if due > now || due <= from {
                continue;
            }
            let OpenDoubt { session, call, tool, since } = doubt;
            let line = format!(
                "outcome unknown since {since}: {tool}; settle it with \
                 `budao doubts settle {session} {call}`"
            );
            let notice = FaultNotice {
                at: due,
                kind: Kind::OutcomeUnknown,
                session: *session,
                trace: Trace::NONE,
                tool: Some(tool.clone()),
                line,
            };
            self.seen = self.seen.max(due);
            self.add((AlertReason::Doubt, None), &notice, 1);
        }
    }

    /// Adds faults and checks the thresholds.
    pub(super) fn add_notices(&mut self, notices: Vec<FaultNotice>, now: Timestamp) {
        for notice in notices {
            self.seen = self.seen.max(notice.at);
            let row = notice.kind.row();
            let why = match row.severity {
                Severity::Critical => Some(AlertReason::Critical),
                Severity::Error if !row.recoverable => Some(AlertReason::Unrecoverable),
                _ => None,
            };
            if let Some(why) = why {
                self.add((why, Some(row.code)), &notice, 1);
            }
            if !self.rules.threshold.is_empty() {
                self.recent.push_back(notice);
            }
        }
        let longest = self.rules.threshold.iter().map(|threshold| threshold.within).max();
        let longest = longest.unwrap_or(Duration::ZERO);
        self.recent.retain(|notice| now.since(notice.at) <= longest);
        while self.recent.len() > RECENT_FAULTS_MAX {
            self.recent.pop_front();
        }
        self.check_thresholds(now);
    }

    fn check_thresholds(&mut self, now: Timestamp) {
        for (index, threshold) in self.rules.threshold.clone().iter().enumerate() {
            let key = (AlertReason::Threshold(index), None);
            let fits = |notice: &&FaultNotice| {
                now.since(notice.at) <= threshold.within && threshold.matches(notice)
            };
            let found: Vec<FaultNotice> = self.recent.iter().filter(fits).cloned().collect();
            let count = found.len() as u64;
            let is_paused =
                self.last_sent.get(&key).is_some_and(|at| now.since(*at) < self.rules.min_interval);
            if let Some(last) = found.last().filter(|_| count > threshold.more_than && !is_paused) {
                self.pending.remove(&key);
                self.add(key, last, count);
            }
        }
    }

    fn add(&mut self, key: Key, notice: &FaultNotice, count: u64) {
        let pending = self.pending.entry(key).or_insert_with(|| PendingAlert {
            kind: key.1.map(|_| notice.kind),
            count: 0,
            first: notice.at,
            last: notice.at,
            sessions: BTreeSet::new(),
            traces: Vec::new(),
            line: String::new(),
        });
        pending.count += count;
        pending.first = pending.first.min(notice.at);
        pending.last = pending.last.max(notice.at);
        pending.line.clone_from(&notice.line);
        if pending.sessions.len() < EXAMPLES_MAX {
            pending.sessions.insert(notice.session);
        }
        if pending.traces.len() < EXAMPLES_MAX && notice.trace.is_some() {
            pending.traces.push(notice.trace);
        }
    }

    /// The next message that is due.
    pub(super) fn next_due(&self, now: Timestamp) -> Option<AlertMessage> {
        let is_paused = |key: &Key| {
            self.last_sent.get(key).is_some_and(|at| now.since(*at) < self.rules.min_interval)
        };
        let (key, pending) = self.pending.iter().find(|(key, _)| !is_paused(key))?;
        Some(self.message(*key, pending))
    }

    fn message(&self, key: Key, pending: &PendingAlert) -> AlertMessage {
        let row = pending.kind.map(Kind::row);
        let (rule, threshold) = match key.0 {
            AlertReason::Critical => ("critical", None),
            AlertReason::Unrecoverable => ("unrecoverable", None),
            AlertReason::Threshold(index) => {
                ("threshold", self.rules.threshold.get(index).cloned())
            }
            AlertReason::Doubt => ("doubt", None),
        };
        let about = key.1.map_or_else(|| format!("{:?}", key.0), str::to_owned);
        AlertMessage {
            id: format!("{rule}.{about}.{}", pending.first.as_micros()),
            rule,
            code: key.1,
            kind: row.map(|row| row.name),
            error_type: row.map(|row| row.error_type.into()),
            category: row.map(|row| row.category.into()),
            severity: row.map(|row| row.severity.into()),
            threshold,
            count: pending.count,
            first_at: pending.first.to_string(),
            last_at: pending.last.to_string(),
            sessions: pending.sessions.iter().map(ToString::to_string).collect(),
            trace_ids: pending.traces.iter().map(ToString::to_string).collect(),
            message: pending.line.clone(),
            explain: key.1.map(|code| format!("budao explain {code}")),
            key,
        }
    }

    /// Removes a message that the webhook accepted.
    pub(super) fn mark_sent(&mut self, message: &AlertMessage, now: Timestamp) {
        self.pending.remove(&message.key);
        self.last_sent.insert(message.key, now);
    }

    /// All alerts up to this time are sent; the next start continues here.
    pub(super) fn sent_up_to(&self) -> Timestamp {
        let first = self.pending.values().map(|pending| pending.first).min();
        first.map_or(self.seen, |first| Timestamp::from_micros(first.as_micros() - 1))
    }
}

impl Threshold {
    fn matches(&self, notice: &FaultNotice) -> bool {
        let row = notice.kind.row();
        let error_type: &str = row.error_type.into();
        self.code.as_ref().is_none_or(|code| code == row.code)
            && self.error_type.as_ref().is_none_or(|wanted| wanted == error_type)
            && self.tool.as_ref().is_none_or(|tool| notice.tool.as_ref() == Some(tool))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Timestamp = Timestamp::from_micros(1_794_729_600_000_000);

    fn after(seconds: u64) -> Timestamp {
        START.after(Duration::from_secs(seconds))
    }

    fn notice(kind: Kind, seconds: u64, tool: Option<&str>) -> FaultNotice {
        FaultNotice {
            at: after(seconds),
            kind,
            session: SessionId(uuid::Uuid::nil()),
            trace: Trace::from_random(7),
            tool: tool.map(str::to_owned),
            line: format!("{kind} after {seconds} s"),
        }
    }

    #[test]
    fn a_storm_of_critical_faults_is_one_message_and_the_rest_comes_after_the_pause() {
        let mut queue = AlertQueue::new(Rules::default(), START);
        queue
            .add_notices((0..1_000).map(|_| notice(Kind::SyncFailed, 1, None)).collect(), after(1));
        let first = queue.next_due(after(1)).unwrap();
        assert_eq!((first.count, first.code), (1_000, Some("ERR_JRNL_007")));
        queue.mark_sent(&first, after(1));
        queue.add_notices(vec![notice(Kind::SyncFailed, 2, None)], after(2));
        assert_eq!(queue.next_due(after(2)), None);
        let later = queue.next_due(after(301)).unwrap();
        assert_eq!(later.count, 1);
        assert_ne!(later.id, first.id);
    }

    #[test]
    fn an_alert_that_was_not_accepted_is_sent_again_after_a_restart() {
        let mut queue = AlertQueue::new(Rules::default(), START);
        queue.add_notices(
            vec![notice(Kind::SyncFailed, 5, None), notice(Kind::ToolSaidNo, 9, None)],
            after(9),
        );
        assert!(queue.sent_up_to() < after(5), "it is not told yet");
        let message = queue.next_due(after(9)).unwrap();
        queue.mark_sent(&message, after(9));
        assert_eq!(queue.sent_up_to(), after(9));
    }

    #[test]
    fn faults_that_a_model_can_correct_raise_an_alert_only_above_a_threshold() {
        let threshold = Threshold {
            error_type: Some("validation".to_owned()),
            tool: Some("fs_read".to_owned()),
            more_than: 3,
            within: Duration::from_secs(300),
            ..Threshold::default()
        };
        let rules = Rules { threshold: vec![threshold], ..Rules::default() };
        let mut queue = AlertQueue::new(rules, START);
        let wrong = |seconds, tool| notice(Kind::InvalidArguments, seconds, Some(tool));
        queue.add_notices(
            vec![wrong(1, "fs_read"), wrong(2, "fs_read"), wrong(3, "fs_read")],
            after(3),
        );
        queue.add_notices(vec![wrong(4, "other"), wrong(5, "other")], after(5));
        assert_eq!(queue.next_due(after(5)), None);
        queue.add_notices(vec![wrong(6, "fs_read")], after(6));
        let message = queue.next_due(after(6)).unwrap();
        assert_eq!((message.rule, message.count, message.code), ("threshold", 4, None));
        queue.mark_sent(&message, after(6));
        queue.add_notices(vec![wrong(7, "fs_read")], after(7));
        assert_eq!(queue.next_due(after(7)), None, "it was told");
        queue.add_notices(Vec::new(), after(400));
        assert_eq!(queue.next_due(after(400)), None, "it is over");
    }

    #[test]
    fn a_call_in_doubt_raises_one_alert_when_it_is_not_settled_in_time() {
        let rules = Rules { doubt_after: Duration::from_secs(600), ..Rules::default() };
        let doubt = |seconds: u64, call: &str| OpenDoubt {
            session: SessionId(uuid::Uuid::nil()),
            call: call.into(),
            tool: "pay".to_owned(),
            since: after(seconds),
        };
        let (early, late) = (doubt(10, "call_1"), doubt(500, "call_2"));
        let mut queue = AlertQueue::new(rules.clone(), START);
        queue.add_doubts(&[early.clone(), late.clone()], after(609));
        assert_eq!(queue.next_due(after(609)), None, "a person has time to settle it");
        queue.add_doubts(&[early.clone(), late.clone()], after(610));
        queue.add_doubts(&[early.clone(), late.clone()], after(620));
        let first = queue.next_due(after(620)).unwrap();
        assert_eq!((first.rule, first.count), ("doubt", 1));
        assert!(first.message.contains("budao doubts settle") && first.message.contains("call_1"));
        queue.mark_sent(&first, after(620));
        // A restart continues at the stored position.
        let mut next = AlertQueue::new(rules, queue.sent_up_to());
        next.add_doubts(&[early, late], after(1_200));
        let second = next.next_due(after(1_200)).unwrap();
        assert_eq!((second.count, second.message.contains("call_2")), (1, true));
        let mut off = AlertQueue::new(Rules::default(), START);
        off.add_doubts(&[doubt(0, "call_3")], after(99_999));
        assert_eq!(off.next_due(after(99_999)), None);
    }
}

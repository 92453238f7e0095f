//! The hub's counters, as JSON and in the Prometheus format.
//!
//! Labels come from clients, so their number is limited; further labels are counted as `other`.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use serde::Serialize;

use super::rooms::RoomSnapshot;

/// Labels of one counter.
const LABELS_MAX: usize = 1000;

/// Upper edges of the latency buckets, in milliseconds.
const EDGES_MS: [u64; 12] = [1, 2, 5, 10, 25, 50, 100, 250, 1000, 5000, 30_000, 300_000];

/// The counters of a running hub.
#[derive(Debug, Default)]
pub struct Stats(Mutex<Snapshot>);

/// The counters at one moment. Values with "now" are gauges; the others count since the start.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Snapshot {
    /// Open connections now, in a room or not.
    pub connections: usize,
    /// Rooms with at least one member now.
    pub rooms: usize,
    /// Computers in rooms now.
    pub computers: usize,
    /// Calls under way now.
    pub calls_under_way: usize,
    /// Members of the rooms now, for the first 200 rooms.
    pub present: Vec<RoomSnapshot>,
    /// Requests by event name.
    pub events: BTreeMap<String, u64>,
    /// Failed answers by code, those of computers included.
    pub codes: BTreeMap<u16, u64>,
    /// Refused handshakes by code.
    pub handshakes_refused: BTreeMap<u16, u64>,
    /// Requests by room.
    pub by_room: BTreeMap<String, RequestCounts>,
    /// Requests by computer, as `room/computer`.
    pub by_computer: BTreeMap<String, RequestCounts>,
    /// Tool calls by tool.
    pub by_tool: BTreeMap<String, RequestCounts>,
    /// Time from request to answer.
    pub latency: Latency,
    /// Requests without an answer before the deadline.
    pub answers_lost: u64,
    /// Answers that came after the deadline and were dropped.
    pub answers_late: u64,
    /// Cancel requests by their outcome.
    pub cancels: CancelCounts,
    /// Failed answers from which the hub scrubbed a secret.
    pub scrubbed: u64,
    /// Retries of sends that met a full queue.
    pub sends_delayed: u64,
    /// Connections closed because they read too slowly or sent too large a frame.
    pub connections_closed: u64,
    /// Connections closed because they read too slowly, by the limit they reached.
    pub closed_slow: BTreeMap<String, u64>,
    /// Bytes in all send queues now.
    pub queued_bytes: usize,
}

/// Requests and failures under one label.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct RequestCounts {
    /// All answered requests.
    pub requests: u64,
    /// Requests whose answer was an error.
    pub failed: u64,
    /// Failures since the last success.
    pub failed_in_a_row: u64,
}

/// Cancel requests by their outcome.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct CancelCounts {
    /// For a running call: forwarded to its computer, or ended here while the call waited to be sent.
    pub passed_on: u64,
    /// For a call that is not running.
    pub unknown: u64,
    /// From a client that is not the call's agent.
    pub refused: u64,
}

/// A latency histogram of answered requests.
#[derive(Clone, Debug, Serialize)]
pub struct Latency {
    /// Inclusive upper bounds of the buckets, in milliseconds.
    pub edges_ms: [u64; EDGES_MS.len()],
    /// Requests up to each upper bound and not in an earlier bucket; the last bucket has no bound.
    pub counts: [u64; EDGES_MS.len() + 1],
    /// Sum of all durations, in microseconds.
    pub sum_us: u64,
}

impl Default for Latency {
    fn default() -> Self {
        Self { edges_ms: EDGES_MS, counts: [0; EDGES_MS.len() + 1], sum_us: 0 }
    }
}

impl Latency {
    fn note(&mut self, took: Duration) {
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let bucket = EDGES_MS.iter().position(|edge| us <= *edge * 1000).unwrap_or(EDGES_MS.len());
        self.counts[bucket] += 1;
        self.sum_us = self.sum_us.saturating_add(us);
    }
}

/// An answered request, to be counted.
#[derive(Clone, Copy, Debug)]
pub struct AnsweredRequest<'a> {
    /// The room of both members.
    pub room: &'a str,
    /// The computer that was asked.
    pub computer: &'a str,
    /// The tool; `None` for other requests than tool calls.
    pub tool: Option<&'a str>,
    /// Time from request to answer.
    pub took: Duration,
    /// Whether the answer was an error.
    pub failed: bool,
    /// The error code; `None` for a success or an error without a code.
    pub code: Option<u16>,
}

/// The entry of a label, or of `other` when there are too many labels.
fn slot<'a, T: Default>(map: &'a mut BTreeMap<String, T>, label: &str) -> &'a mut T {
    let is_known = map.contains_key(label);
    if !is_known && map.len() >= LABELS_MAX {
        return map.entry("other".to_owned()).or_default();
    }
    if !is_known {
        map.insert(label.to_owned(), T::default());
    }
    map.get_mut(label).expect("it is there by now")
}

impl Stats {
    fn lock(&self) -> MutexGuard<'_, Snapshot> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the counters under their lock.
    pub fn count(&self, change: impl FnOnce(&mut Snapshot)) {
        change(&mut self.lock());
    }

    /// Counts a received request by its event name.
    pub fn came(&self, event: &str) {
        *slot(&mut self.lock().events, event) += 1;
    }

    /// Counts a request that the hub refused, by its code.
    pub fn refused(&self, code: u16) {
        *self.lock().codes.entry(code).or_default() += 1;
    }

    /// Counts an answered request and its latency.
    pub fn answered(&self, answered: AnsweredRequest<'_>) {
        let mut all = self.lock();
        let AnsweredRequest { room, computer, tool, took, failed, code } = answered;
        let note = |tally: &mut RequestCounts| {
            tally.requests += 1;
            tally.failed += u64::from(failed);
            tally.failed_in_a_row = if failed { tally.failed_in_a_row + 1 } else { 0 };
        };
        note(slot(&mut all.by_room, room));
        note(slot(&mut all.by_computer, &format!("{room}/{computer}")));
        if let Some(tool) = tool {
            note(slot(&mut all.by_tool, tool));
        }
        if let Some(code) = code {
            *all.codes.entry(code).or_default() += 1;
        }
        all.latency.note(took);
    }

    /// A copy of the counters. The hub adds the gauges.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.lock().clone()
    }
}

impl Snapshot {
    /// Renders the counters in the Prometheus text format.
    #[must_use]
    pub fn to_prometheus(&self) -> String {
        let mut text = PrometheusText::default();
        text.gauge("connections", self.connections);
        text.gauge("rooms", self.rooms);
        text.gauge("computers", self.computers);
        text.gauge("calls_under_way", self.calls_under_way);
        text.counter("answers_lost_total", "", self.answers_lost);
        text.counter("answers_late_total", "", self.answers_late);
        text.counter("cancels_total", "outcome=\"passed_on\"", self.cancels.passed_on);
        text.counter("cancels_total", "outcome=\"unknown\"", self.cancels.unknown);
        text.counter("cancels_total", "outcome=\"refused\"", self.cancels.refused);
        text.counter("scrubbed_total", "", self.scrubbed);
        text.counter("sends_delayed_total", "", self.sends_delayed);
        text.counter("connections_closed_total", "", self.connections_closed);
        text.gauge("queued_bytes", self.queued_bytes);
        for (limit, count) in &self.closed_slow {
            text.counter("connections_closed_slow_total", &label("limit", limit), *count);
        }
        for (event, count) in &self.events {
            text.counter("events_total", &label("event", event), *count);
        }
        for (code, count) in &self.codes {
            text.counter("failures_total", &label("code", &code.to_string()), *count);
        }
        for (code, count) in &self.handshakes_refused {
            text.counter("handshakes_refused_total", &label("code", &code.to_string()), *count);
        }
        for (sort, map) in
            [("room", &self.by_room), ("computer", &self.by_computer), ("tool", &self.by_tool)]
        {
            for (name, tally) in map {
                text.counter(&format!("{sort}_requests_total"), &label(sort, name), tally.requests);
            }
            for (name, tally) in map {
                text.counter(&format!("{sort}_failures_total"), &label(sort, name), tally.failed);
            }
        }
        text.latency(&self.latency);
        text.0
    }
}

fn label(name: &str, value: &str) -> String {
    let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    format!("{name}=\"{value}\"")
}

#[derive(Default)]
struct PrometheusText(String, Option<String>);

impl PrometheusText {
    fn head(&mut self, name: &str, sort: &str) {
        if self.1.as_deref() != Some(name) {
            self.0.push_str(&format!("# TYPE smcp_{name} {sort}\n"));
            self.1 = Some(name.to_owned());
        }
    }

    fn gauge(&mut self, name: &str, value: usize) {
        self.head(name, "gauge");
        self.0.push_str(&format!("smcp_{name} {value}\n"));
    }

    fn counter(&mut self, name: &str, labels: &str, value: u64) {
        self.head(name, "counter");
        let labels = if labels.is_empty() { String::new() } else { format!("{{{labels}}}") };
        self.0.push_str(&format!("smcp_{name}{labels} {value}\n"));
    }

    fn latency(&mut self, latency: &Latency) {
        self.head("request_seconds", "histogram");
        let mut sum = 0;
        for (index, count) in latency.counts.iter().enumerate() {
            sum += count;
            let edge = latency.edges_ms.get(index).map_or("+Inf".to_owned(), |ms| {
                #[expect(clippy::cast_precision_loss, reason = "an edge of a bucket")]
                let seconds = *ms as f64 / 1000.0;
                seconds.to_string()
            });
            self.0.push_str(&format!("smcp_request_seconds_bucket{{le=\"{edge}\"}} {sum}\n"));
        }
        #[expect(clippy::cast_precision_loss, reason = "a sum for a rate")]
        let seconds = latency.sum_us as f64 / 1e6;
        self.0.push_str(&format!("smcp_request_seconds_sum {seconds}\n"));
        self.0.push_str(&format!("smcp_request_seconds_count {sum}\n"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(stats: &Stats, tool: &str, code: Option<u16>) {
        stats.answered(AnsweredRequest {
            room: "a",
            computer: "pc",
            tool: Some(tool),
            took: Duration::from_millis(3),
            failed: code.is_some(),
            code,
        });
    }

    #[test]
    fn a_client_cannot_make_the_tables_grow_for_ever() {
        let stats = Stats::default();
        for number in 0..LABELS_MAX * 2 {
            answered(&stats, &format!("tool{number}"), None);
        }
        let snapshot = stats.snapshot();
        assert_eq!(snapshot.by_tool.len(), LABELS_MAX + 1);
        assert_eq!(snapshot.by_tool["other"].requests, LABELS_MAX as u64);
    }

    #[test]
    fn a_duration_on_an_edge_is_below_it_as_prometheus_counts() {
        let mut latency = Latency::default();
        for micros in [1_000, 1_001, 2_000, 300_000_000, 300_000_001] {
            latency.note(Duration::from_micros(micros));
        }
        assert_eq!((latency.counts[0], latency.counts[1]), (1, 2));
        assert_eq!((latency.counts[11], latency.counts[12]), (1, 1));
    }

    #[test]
    fn machines_read_the_same_numbers() {
        let stats = Stats::default();
        stats.came("client:tool_call");
        answered(&stats, "we\"ird", None);
        answered(&stats, "plain", Some(4001));
        insta::assert_snapshot!(stats.snapshot().to_prometheus());
    }
}

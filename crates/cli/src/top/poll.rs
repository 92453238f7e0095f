//! Reads one snapshot from a journal: sessions, statistics and the last events.

use std::{collections::HashMap, sync::Arc};

use budao_core::{
    Fault, Kind, Lang, Timestamp,
    event::{Seq, SessionId},
    fault::Operation,
};
use budao_journal::{Filter, Journal, PageLimits, SessionState, SessionSummary};
use budao_serve::{NodeView, Stats, Window};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{symbols::one_line, terminal::Terminal, transcript::TranscriptPrinter};

/// Maximum sessions per list.
const LISTED: usize = 200;
/// Number of recently changed sessions whose events are read.
const RECENT_EVENTS: usize = 12;
/// Records read from the end of each of them.
const BACK: u64 = 40;
/// Maximum events in a snapshot.
const EVENTS: usize = 50;
/// Maximum unfinished sessions whose writers are looked up.
const WRITTEN: usize = 1_000;

/// One poll's result. Serialized for `--json`.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Snapshot {
    pub(crate) at: Timestamp,
    /// Host of the server that was asked; none if the journal was read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) from: Option<String>,
    /// Number of sessions with a running turn; `waiting_for_decision` counts those that wait for a person.
    pub(crate) running: usize,
    pub(crate) waiting_for_decision: usize,
    /// Asking and running sessions first, then the others, most recently changed first.
    pub(crate) sessions: Vec<SessionRow>,
    /// The servers that share the journal.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) nodes: Vec<NodeView>,
    /// The last events, newest first; empty if a server was asked.
    pub(crate) events: Vec<EventLine>,
    /// The same object as `/api/stats` of a server.
    pub(crate) stats: Value,
    #[serde(skip)]
    pub(crate) numbers: StatsSummary,
}

/// A session and its writer.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct SessionRow {
    #[serde(flatten)]
    pub(crate) summary: SessionSummary,
    /// Holder of the session's lease; none if no process writes it, so that an open turn was interrupted.
    pub(crate) writer: Option<String>,
}

impl SessionRow {
    /// True if a turn is open and no process works on it.
    pub(crate) fn is_interrupted(&self) -> bool {
        self.summary.state == SessionState::Running && self.writer.is_none()
    }
}

/// An event as a transcript line.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct EventLine {
    pub(crate) at: Timestamp,
    pub(crate) session: SessionId,
    pub(crate) seq: Seq,
    pub(crate) line: String,
}

/// The part of the statistics that is shown.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct StatsSummary {
    pub(crate) window: String,
    pub(crate) complete: bool,
    pub(crate) turns: u64,
    pub(crate) steps: u64,
    pub(crate) calls: u64,
    pub(crate) faults: u64,
    pub(crate) retries: Retries,
    pub(crate) recovery_ms: Recovery,
    pub(crate) kinds: Vec<KindCount>,
    pub(crate) buckets: Vec<Bucket>,
    /// Faults by user; absent in the answer of an older server.
    #[serde(default)]
    pub(crate) by_user: Vec<UserCount>,
    /// Calls whose outcome is unknown; absent in the answer of an older server.
    #[serde(default)]
    pub(crate) doubts_open: u64,
    /// The gates to model services: those of the server, or what the records of all processes tell of them.
    #[serde(default)]
    pub(crate) gates: Vec<GateRow>,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct UserCount {
    pub(crate) user: String,
    pub(crate) count: u64,
    pub(crate) not_recovered: u64,
}

/// The state of one gate.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct GateRow {
    /// Empty in what records tell: they have the model alone.
    #[serde(default)]
    pub(crate) endpoint: String,
    pub(crate) model: String,
    pub(crate) state: String,
    #[serde(default)]
    pub(crate) reason: Option<String>,
    #[serde(default)]
    pub(crate) until: Option<String>,
    pub(crate) waiting: usize,
    pub(crate) in_flight: usize,
    #[serde(default)]
    pub(crate) last_error: Option<String>,
}

impl GateRow {
    /// True if requests are held back.
    pub(crate) fn is_held(&self) -> bool {
        self.state == "held"
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct Retries {
    pub(crate) attempts: u64,
    pub(crate) success_rate: Option<f64>,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct Recovery {
    pub(crate) p50: Option<u64>,
    pub(crate) p90: Option<u64>,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct KindCount {
    pub(crate) kind: String,
    pub(crate) code: String,
    pub(crate) count: u64,
    pub(crate) recovered: u64,
    pub(crate) not_recovered: u64,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Bucket {
    pub(crate) by_kind: HashMap<String, u64>,
}

impl Snapshot {
    /// The snapshot as one line of JSON.
    pub(crate) fn json(&self) -> Result<String, Fault> {
        serde_json::to_string(self).map(|text| text + "\n").map_err(|error| odd(&error))
    }
}

/// Polls a journal; keeps statistics and events between polls.
pub(crate) struct JournalPoller {
    journal: Arc<dyn Journal>,
    stats: Stats,
    lang: Lang,
    /// Events per session with the head they were read at; read again only when the head changes.
    recent_events: HashMap<SessionId, (Seq, Vec<EventLine>)>,
}

impl JournalPoller {
    pub(crate) fn new(journal: Arc<dyn Journal>, lang: Lang) -> Self {
        Self { journal, stats: Stats::default(), lang, recent_events: HashMap::new() }
    }

    /// Takes a snapshot of the journal.
    pub(crate) async fn poll(&mut self, window: Window, now: Timestamp) -> Result<Snapshot, Fault> {
        let of = |state| Filter { state, limit: LISTED, ..Filter::default() };
        let running = self.journal.sessions(of(Some(SessionState::Running))).await?;
        let waiting = self.journal.sessions(of(Some(SessionState::WaitingForDecision))).await?;
        let recent = self.journal.sessions(of(None)).await?;
        let (runs, asks) = (running.len(), waiting.len());
        let events = self.events(&recent).await?;
        let mut sessions: Vec<SessionSummary> = waiting.into_iter().chain(running).collect();
        let rest = recent.into_iter().filter(|summary| {
            !matches!(summary.state, SessionState::Running | SessionState::WaitingForDecision)
        });
        sessions.extend(rest);
        sessions.truncate(LISTED);
        let mut writers = self.writers().await?;
        let (stats, numbers) = self.numbers(window, now, &writers).await?;
        let sessions = sessions.into_iter().map(|summary| {
            let writer = writers.remove(&summary.session);
            SessionRow { summary, writer }
        });
        let nodes = self.journal.census("").await?.nodes;
        Ok(Snapshot {
            at: now,
            from: None,
            running: runs,
            waiting_for_decision: asks,
            sessions: sessions.collect(),
            nodes: nodes.iter().map(NodeView::from).collect(),
            events,
            stats,
            numbers,
        })
    }

    /// The statistics, with the open requests of sessions that have a writer in place of a server's gates.
    async fn numbers(
        &mut self,
        window: Window,
        now: Timestamp,
        writers: &HashMap<SessionId, String>,
    ) -> Result<(Value, StatsSummary), Fault> {
        let report = self.stats.report(&*self.journal, window, now).await?;
        let loads = self.stats.model_loads(|session| writers.contains_key(&session));
        let mut stats = serde_json::to_value(&report).map_err(|error| odd(&error))?;
        stats["gates"] = serde_json::to_value(&loads).map_err(|error| odd(&error))?;
        let numbers = StatsSummary::deserialize(&stats).map_err(|error| odd(&error))?;
        Ok((stats, numbers))
    }

    /// Lease holders of unfinished sessions.
    async fn writers(&self) -> Result<HashMap<SessionId, String>, Fault> {
        let unfinished = self.journal.unfinished(None, WRITTEN).await?;
        let held = unfinished.into_iter().filter_map(|found| Some((found.session, found.lease?)));
        Ok(held.map(|(session, lease)| (session, lease.holder)).collect())
    }

    /// The last events of the most recently changed sessions, newest first.
    async fn events(&mut self, recent: &[SessionSummary]) -> Result<Vec<EventLine>, Fault> {
        let recent_events = &recent[..recent.len().min(RECENT_EVENTS)];
        self.recent_events
            .retain(|session, _| recent_events.iter().any(|summary| summary.session == *session));
        for summary in recent_events {
            let known = self
                .recent_events
                .get(&summary.session)
                .is_some_and(|(seq, _)| *seq == summary.head);
            if !known {
                let events = self.read(summary).await?;
                self.recent_events.insert(summary.session, (summary.head, events));
            }
        }
        let mut events: Vec<EventLine> =
            self.recent_events.values().flat_map(|(_, events)| events.iter().cloned()).collect();
        events.sort_by_key(|event| std::cmp::Reverse((event.at, event.seq)));
        events.truncate(EVENTS);
        Ok(events)
    }

    async fn read(&self, summary: &SessionSummary) -> Result<Vec<EventLine>, Fault> {
        let limits = PageLimits { records: usize::try_from(BACK).unwrap_or(1), bytes: 1 << 20 };
        let page = self.journal.read(summary.session, summary.head.saturating_sub(BACK), limits);
        let page = match page.await {
            Ok(page) => page,
            // The session was deleted or replaced since it was listed, or is damaged. `top` does not report that.
            Err(_) => return Ok(Vec::new()),
        };
        let printer = TranscriptPrinter { terminal: &Terminal::plain(), lang: self.lang };
        let mut events = Vec::new();
        for stored in &page.records {
            let Ok(record) = stored.record() else { continue };
            if let Some(line) = printer.line(&record) {
                let (at, session, seq) = (record.at, record.session, record.seq);
                events.push(EventLine { at, session, seq, line: one_line(&line) });
            }
        }
        Ok(events)
    }
}

pub(super) fn odd(error: &serde_json::Error) -> Fault {
    Fault::new(Kind::Bug, Operation::ReadRecords).caused_by(error)
}

//! One look at a journal: sessions, numbers, the last events.

use std::{collections::HashMap, sync::Arc};

use budao_core::{
    Fault, Kind, Lang, Timestamp,
    event::{Seq, SessionId},
    fault::Operation,
};
use budao_journal::{Filter, Journal, PageLimits, SessionState, SessionSummary};
use budao_serve::{Stats, Window};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{symbols::one_line, terminal::Terminal, transcript::TranscriptPrinter};

/// Sessions that are shown.
const LISTED: usize = 200;
/// Sessions whose last events are read.
const HEARD: usize = 12;
/// Records read back from the end of such a session.
const BACK: u64 = 40;
/// Events that are shown.
const EVENTS: usize = 50;
/// Sessions somebody writes, looked at together.
const WRITTEN: usize = 1_000;

/// What was seen.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Snapshot {
    pub(crate) at: Timestamp,
    /// The server that told it; none when the journal was read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) from: Option<String>,
    /// Sessions with a turn that runs, and those that wait for a person.
    pub(crate) running: usize,
    pub(crate) asking: usize,
    /// Running or asking first, then those that changed last.
    pub(crate) sessions: Vec<SessionRow>,
    /// The last ones, the newest first.
    pub(crate) events: Vec<EventLine>,
    /// What `/api/stats` of a server says, from the same journal.
    pub(crate) stats: Value,
    #[serde(skip)]
    pub(crate) numbers: StatsSummary,
}

/// A session.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct SessionRow {
    #[serde(flatten)]
    pub(crate) summary: SessionSummary,
    /// Who writes it; none if nobody does, so that a turn that has not ended was interrupted.
    pub(crate) writer: Option<String>,
}

impl SessionRow {
    /// A turn has not ended and nobody works on it.
    pub(crate) fn is_interrupted(&self) -> bool {
        self.summary.state == SessionState::Running && self.writer.is_none()
    }
}

/// An event in a line.
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
    pub(crate) given_up: u64,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Bucket {
    pub(crate) by_kind: HashMap<String, u64>,
}

impl Snapshot {
    /// As one JSON object.
    pub(crate) fn json(&self) -> Result<String, Fault> {
        serde_json::to_string(self).map(|text| text + "\n").map_err(|error| odd(&error))
    }
}

/// Looks at a journal, again and again.
pub(crate) struct JournalPoller {
    journal: Arc<dyn Journal>,
    stats: Stats,
    lang: Lang,
    /// Events of a session up to a position: read again only when it has changed.
    heard: HashMap<SessionId, (Seq, Vec<EventLine>)>,
}

impl JournalPoller {
    pub(crate) fn new(journal: Arc<dyn Journal>, lang: Lang) -> Self {
        Self { journal, stats: Stats::default(), lang, heard: HashMap::new() }
    }

    /// What there is to see now.
    pub(crate) async fn look(&mut self, window: Window, now: Timestamp) -> Result<Snapshot, Fault> {
        let of = |state| Filter { state, limit: LISTED, ..Filter::default() };
        let running = self.journal.sessions(of(Some(SessionState::Running))).await?;
        let asking = self.journal.sessions(of(Some(SessionState::Asking))).await?;
        let recent = self.journal.sessions(of(None)).await?;
        let (runs, asks) = (running.len(), asking.len());
        let events = self.events(&recent).await?;
        let mut sessions: Vec<SessionSummary> = asking.into_iter().chain(running).collect();
        let rest = recent.into_iter().filter(|summary| {
            !matches!(summary.state, SessionState::Running | SessionState::Asking)
        });
        sessions.extend(rest);
        sessions.truncate(LISTED);
        let mut writers = self.writers().await?;
        let sessions = sessions.into_iter().map(|summary| {
            let writer = writers.remove(&summary.session);
            SessionRow { summary, writer }
        });
        let report = self.stats.ask(&*self.journal, window, now).await?;
        let stats = serde_json::to_value(&report).map_err(|error| odd(&error))?;
        let numbers = StatsSummary::deserialize(&stats).map_err(|error| odd(&error))?;
        Ok(Snapshot {
            at: now,
            from: None,
            running: runs,
            asking: asks,
            sessions: sessions.collect(),
            events,
            stats,
            numbers,
        })
    }

    /// Who writes what is unfinished.
    async fn writers(&self) -> Result<HashMap<SessionId, String>, Fault> {
        let unfinished = self.journal.unfinished(None, WRITTEN).await?;
        let held = unfinished.into_iter().filter_map(|found| Some((found.session, found.lease?)));
        Ok(held.map(|(session, lease)| (session, lease.holder)).collect())
    }

    /// The last events of the sessions that changed last.
    async fn events(&mut self, recent: &[SessionSummary]) -> Result<Vec<EventLine>, Fault> {
        let heard = &recent[..recent.len().min(HEARD)];
        self.heard.retain(|session, _| heard.iter().any(|summary| summary.session == *session));
        for summary in heard {
            let known =
                self.heard.get(&summary.session).is_some_and(|(seq, _)| *seq == summary.head);
            if !known {
                let events = self.read(summary).await?;
                self.heard.insert(summary.session, (summary.head, events));
            }
        }
        let mut events: Vec<EventLine> =
            self.heard.values().flat_map(|(_, events)| events.iter().cloned()).collect();
        events.sort_by_key(|event| std::cmp::Reverse((event.at, event.seq)));
        events.truncate(EVENTS);
        Ok(events)
    }

    async fn read(&self, summary: &SessionSummary) -> Result<Vec<EventLine>, Fault> {
        let limits = PageLimits { records: usize::try_from(BACK).unwrap_or(1), bytes: 1 << 20 };
        let page = self.journal.read(summary.session, summary.head.saturating_sub(BACK), limits);
        let page = match page.await {
            Ok(page) => page,
            // Deleted or replaced since it was listed, or damaged: that is not ours to tell.
            Err(_) => return Ok(Vec::new()),
        };
        let story = TranscriptPrinter { terminal: &Terminal::plain(), lang: self.lang };
        let mut events = Vec::new();
        for stored in &page.records {
            let Ok(record) = stored.record() else { continue };
            if let Some(line) = story.line(&record) {
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

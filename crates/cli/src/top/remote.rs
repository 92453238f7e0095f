//! Reads one snapshot from a server over HTTP: sessions and statistics, which need an operator's token.

use budao_core::{
    Fault, Timestamp,
    event::{Seq, SessionId, Settings},
    tally::FaultTally,
};
use budao_journal::{SessionState, SessionSummary};
use budao_serve::{NodeView, Window};
use serde::Deserialize;
use serde_json::Value;

use super::poll::{SessionRow, Snapshot, StatsSummary, odd};
use crate::remote::Remote;

#[derive(Deserialize)]
struct SessionListResponse {
    sessions: Vec<SessionItem>,
}

#[derive(Default, Deserialize)]
struct NodeListResponse {
    nodes: Vec<NodeView>,
}

/// A session as `/v1/sessions` lists it.
#[derive(Deserialize)]
struct SessionItem {
    session_id: SessionId,
    state: SessionState,
    title: Option<String>,
    #[serde(default)]
    user: Option<String>,
    opened_at: String,
    updated_at: String,
    turns: u64,
    last_code: Option<String>,
    head: Seq,
    #[serde(flatten)]
    faults: FaultTally,
}

impl Remote {
    /// Takes a snapshot of the server's sessions and statistics.
    pub(crate) async fn poll(&self, window: Window, now: Timestamp) -> Result<Snapshot, Fault> {
        let stats: Value = self.get("api/stats", &[("window", window.into())]).await?;
        let waiting: SessionListResponse =
            self.get("v1/sessions", &[("state", "waiting_for_decision")]).await?;
        let running: SessionListResponse = self.get("v1/sessions", &[("state", "running")]).await?;
        let recent: SessionListResponse = self.get("v1/sessions", &[]).await?;
        // An older server does not list nodes.
        let nodes: NodeListResponse = self.get("api/nodes", &[]).await.unwrap_or_default();
        let (runs, asks) = (running.sessions.len(), waiting.sessions.len());
        let is_live = |item: &SessionItem| {
            matches!(item.state, SessionState::Running | SessionState::WaitingForDecision)
        };
        let rest = recent.sessions.into_iter().filter(|item| !is_live(item));
        let all = waiting.sessions.into_iter().chain(running.sessions).chain(rest);
        let sessions: Option<Vec<SessionRow>> = all.map(|item| self.row(item)).collect();
        let numbers = StatsSummary::deserialize(&stats).map_err(|error| odd(&error))?;
        Ok(Snapshot {
            at: now,
            from: Some(self.host()),
            running: runs,
            waiting_for_decision: asks,
            sessions: sessions.ok_or_else(|| self.unread())?,
            nodes: nodes.nodes,
            events: Vec::new(),
            stats,
            numbers,
        })
    }

    fn row(&self, item: SessionItem) -> Option<SessionRow> {
        let owner = item.user.into_iter().map(|user| (Settings::OWNER.to_owned(), user));
        let summary = SessionSummary {
            session: item.session_id,
            state: item.state,
            opened_at: item.opened_at.parse().ok()?,
            updated_at: item.updated_at.parse().ok()?,
            title: item.title,
            labels: owner.collect(),
            turns: item.turns,
            open_turn: None,
            last_code: item.last_code,
            head: item.head,
            timers: budao_journal::TimerView::default(),
            faults: item.faults,
        };
        // A running server resumes interrupted sessions, so none of them counts as interrupted.
        Some(SessionRow { summary, writer: Some(self.host()) })
    }
}

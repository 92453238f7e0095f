//! Reads one snapshot from a server over HTTP: sessions and statistics, which need an operator's token.

use std::time::Duration;

use budao_core::{
    Fault, Kind, Timestamp,
    event::{Seq, SessionId, Settings},
    fault::{Fact, Operation},
    tally::FaultTally,
};
use budao_journal::{SessionState, SessionSummary};
use budao_serve::{NodeView, Window};
use reqwest::{StatusCode, Url};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

use super::poll::{SessionRow, Snapshot, StatsSummary, odd};

/// Time limit of a request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum bytes of an answer.
const BODY_MAX: usize = 8 << 20;

/// A client for one server.
pub(crate) struct Remote {
    client: reqwest::Client,
    url: Url,
    token: Option<String>,
}

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
    /// `url` may be the address as the server prints it, with `#token=…`; `token` takes precedence over that.
    ///
    /// # Errors
    /// `configuration_wrong` if it is not an http or https URL.
    pub(crate) fn new(url: &str, token: Option<&str>) -> Result<Self, Fault> {
        let mut url = Url::parse(url)
            .ok()
            .filter(|url| matches!(url.scheme(), "http" | "https"))
            .ok_or_else(|| {
            Fault::new(Kind::ConfigurationWrong, Operation::LoadConfig)
                .with(Fact::ConfigKey, "--url")
                .with(Fact::Expected, "an http or https address, as `budao serve` prints it")
        })?;
        let printed =
            url.fragment().and_then(|text| text.strip_prefix("token=")).map(str::to_owned);
        url.set_fragment(None);
        let token = token.map(str::to_owned).or(printed);
        // Fails if a provider is installed already, which is fine. Without one, building a client panics.
        let _ = rustls::crypto::ring::default_provider().install_default();
        // Redirects are off, so that the token is sent to no other server.
        let client = reqwest::Client::builder()
            .user_agent(concat!("budao/", env!("CARGO_PKG_VERSION")))
            .redirect(reqwest::redirect::Policy::none())
            .timeout(REQUEST_TIMEOUT)
            .build()
            .map_err(|error| Fault::new(Kind::Bug, Operation::LoadConfig).caused_by(&error))?;
        Ok(Self { client, url, token })
    }

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

    /// Asks the server for a path and reads its JSON.
    ///
    /// # Errors
    /// The server is away, refuses the token, or is no `budao serve`.
    pub(crate) async fn get<T: DeserializeOwned>(
        &self,
        path: &str,
        query: &[(&str, &str)],
    ) -> Result<T, Fault> {
        let mut url = self.url.join(path).map_err(|_| self.unread())?;
        url.query_pairs_mut().extend_pairs(query);
        let mut request = self.client.get(url);
        if let Some(token) = &self.token {
            request = request.bearer_auth(token);
        }
        let mut response = request.send().await.map_err(|error| self.away(&error))?;
        let status = response.status();
        if !status.is_success() {
            return Err(self.refused(status));
        }
        let mut body = Vec::new();
        while let Some(piece) = response.chunk().await.map_err(|error| self.away(&error))? {
            if body.len() + piece.len() > BODY_MAX {
                return Err(self.unread());
            }
            body.extend_from_slice(&piece);
        }
        serde_json::from_slice(&body).map_err(|error| self.unread().caused_by(&error))
    }

    fn host(&self) -> String {
        let host = self.url.host_str().unwrap_or_default();
        self.url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
    }

    fn away(&self, error: &reqwest::Error) -> Fault {
        let kind = match error.is_timeout() {
            true => Kind::RequestTimedOut,
            false => Kind::ConnectionRefused,
        };
        Fault::new(kind, Operation::Connect)
            .with(Fact::Service, self.host())
            .with(Fact::Host, self.host())
            .caused_by(error)
    }

    fn refused(&self, status: StatusCode) -> Fault {
        let kind = match status {
            StatusCode::UNAUTHORIZED => Kind::NotAuthenticated,
            StatusCode::FORBIDDEN => Kind::NotAllowed,
            _ => return self.unread().with_cause(format!("status {status}")),
        };
        Fault::new(kind, Operation::Connect)
            .with(Fact::Reason, format!("refused by {}", self.host()))
    }

    /// The fault for an answer that does not come from a `budao serve`.
    fn unread(&self) -> Fault {
        Fault::new(Kind::ConfigurationWrong, Operation::LoadConfig)
            .with(Fact::ConfigKey, "--url")
            .with(Fact::Expected, "the address of a `budao serve`")
            .with(Fact::Received, self.host())
    }
}

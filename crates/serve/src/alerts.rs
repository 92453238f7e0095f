//! Alerts: sends serious faults to a webhook, at least once and rate-limited.
//!
//! Alerts come from the records (`stats`). A small file stores the position up to which all alerts were sent, so a
//! fault recorded just before a crash is sent after the restart. Faults with the same code are combined into one
//! message; further ones are counted in the next message, after a pause.

mod queue;

use std::{path::PathBuf, sync::Arc, time::Duration};

use budao_core::{
    Fault, Kind, Timestamp,
    fault::{Fact, Operation},
    limits::millis,
};
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize};

use self::queue::AlertMessage;
pub(crate) use self::queue::{AlertQueue, FaultNotice};
use crate::{server::Server, stats::Stats};

/// The note with the position up to which all alerts were sent, for a journal that is not a file.
const CURSOR_NOTE: &str = "alerts.cursor";
/// Time limit for one webhook request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// The webhook and the alert rules.
#[derive(Clone, Debug)]
pub struct Alerts {
    /// The URL that messages are posted to as JSON. It may contain a secret.
    pub webhook: SecretString,
    /// The file that stores the position up to which all alerts were sent; `None` if a restart need not know it.
    pub cursor: Option<PathBuf>,
    /// The selection of the reported faults, and the intervals of messages.
    pub rules: Rules,
}

/// The selection of the reported faults, and the intervals of messages.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Rules {
    /// Interval between checks for new faults.
    #[serde(with = "millis")]
    pub check_interval: Duration,
    /// Minimum time between two messages with the same rule and code.
    #[serde(with = "millis")]
    pub min_interval: Duration,
    /// A call whose outcome is unknown for this long is reported; absent or 0 for never.
    #[serde(skip_serializing_if = "Duration::is_zero", with = "millis")]
    pub doubt_after: Duration,
    /// Additional rules for many faults in a short time. Critical and unrecoverable faults are always reported.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub threshold: Vec<Threshold>,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            check_interval: Duration::from_secs(5),
            min_interval: Duration::from_secs(300),
            doubt_after: Duration::ZERO,
            threshold: vec![],
        }
    }
}

/// Matches many similar faults in a short time. All filters that are set must match.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Threshold {
    /// Only faults with this code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Only faults of this class: `validation`, `runtime`, `logical`, `aborted`, `exception`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_type: Option<String>,
    /// Only faults of this tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// The alert is sent if more than this many faults match …
    pub more_than: u64,
    /// … within this period.
    #[serde(with = "millis")]
    pub within: Duration,
}

/// Continues at the stored position. Must be called before the statistics count any record.
pub(crate) async fn begin(server: &Server) -> Option<(Alerts, AlertQueue)> {
    let alerts = server.config.alerts.clone()?;
    let since = read_cursor(server, &alerts).await.unwrap_or_else(|| server.now());
    let queue = AlertQueue::new(alerts.rules.clone(), since);
    save_cursor(server, &alerts, queue.sent_up_to()).await;
    server.stats.lock().await.watch_faults(since);
    Some((alerts, queue))
}

/// Sends alerts until the server stops.
pub(crate) async fn run(server: Arc<Server>, alerts: Alerts, mut queue: AlertQueue) {
    // Alerts are meant for this URL only, so a redirect counts as a failure.
    let client = reqwest::Client::builder()
        .timeout(REQUEST_TIMEOUT)
        .redirect(reqwest::redirect::Policy::none())
        .referer(false);
    let Ok(client) = client.build() else {
        return tracing::error!("alerts disabled: building HTTP client failed");
    };
    let mut failed = 0;
    let mut source = AlertSource::default();
    loop {
        let mut wait = alerts.rules.check_interval;
        if server.holds_job("alerts").await {
            source.collect_faults(&server, &alerts, &mut queue).await;
        } else {
            source.pause(&server).await;
        }
        while let Some(message) = queue.next_due(server.now()).filter(|_| source.is_active) {
            match post(&client, &alerts, &message).await {
                Ok(()) => {
                    failed = 0;
                    queue.mark_sent(&message, server.now());
                    save_cursor(&server, &alerts, queue.sent_up_to()).await;
                }
                Err(fault) => {
                    failed += 1;
                    wait = server.config.shared_limits.retry.delay(failed, server.world.jitter());
                    let fault = server.scrub_for_client(fault, server.world.trace());
                    tracing::warn!(%fault, failures = failed, "sending alert failed, will retry");
                    break;
                }
            }
        }
        tokio::select! {
            biased;
            () = server.stopping.cancelled() => return,
            () = server.world.clock.sleep(wait) => {}
        }
    }
}

/// The source of new faults: own statistics, or the stored position after the server took the job over.
#[derive(Debug, Default)]
struct AlertSource {
    own: Option<Stats>,
    was_paused: bool,
    is_active: bool,
}

impl AlertSource {
    /// Stops collecting while another server has the job; that server finds the same faults in the journal.
    async fn pause(&mut self, server: &Server) {
        drop(server.stats.lock().await.take_notices());
        (self.own, self.was_paused, self.is_active) = (None, true, false);
    }

    /// Adds new faults to the queue. A server that takes the job over continues at the stored position.
    async fn collect_faults(&mut self, server: &Server, alerts: &Alerts, queue: &mut AlertQueue) {
        if !self.is_active && self.was_paused {
            let since = read_cursor(server, alerts).await.unwrap_or_else(|| server.now());
            *queue = AlertQueue::new(alerts.rules.clone(), since);
            // The server's own statistics have counted these records without notices.
            let mut stats = Stats::default();
            stats.watch_faults(since);
            self.own = Some(stats);
        }
        self.is_active = true;
        let mut shared;
        let stats = match &mut self.own {
            Some(own) => own,
            None => {
                shared = server.stats.lock().await;
                &mut *shared
            }
        };
        match stats.catch_up(&*server.journal, server.now()).await {
            Ok(_) => {
                queue.add_notices(stats.take_notices(), server.now());
                match stats.open_doubts(&*server.journal).await {
                    Ok(doubts) => queue.add_doubts(&doubts, server.now()),
                    Err(fault) => tracing::warn!(%fault, "reading open doubts for alerts failed"),
                }
            }
            Err(fault) => tracing::warn!(%fault, "reading new faults for alerts failed"),
        }
    }
}

async fn post(
    client: &reqwest::Client,
    alerts: &Alerts,
    message: &AlertMessage,
) -> Result<(), Fault> {
    let failed = |kind| Fault::new(kind, Operation::ServeRequest).with(Fact::Service, "webhook");
    let body = serde_json::to_vec(message).map_err(|error| failed(Kind::Bug).caused_by(&error))?;
    let sent = client
        .post(alerts.webhook.expose_secret())
        .header("content-type", "application/json")
        .body(body)
        .send()
        .await;
    // The URL is a secret, and reqwest's errors contain it.
    let response =
        sent.map_err(|error| failed(Kind::NetworkUnavailable).caused_by(&error.without_url()))?;
    match response.status() {
        status if status.is_success() => Ok(()),
        status => Err(failed(Kind::PeerFailed).with_cause(format!("it answered {status}"))),
    }
}

/// The stored position: in the file, else in a note that all servers share.
async fn read_cursor(server: &Server, alerts: &Alerts) -> Option<Timestamp> {
    let text = match (&alerts.cursor, &server.config.node) {
        (Some(file), _) => std::fs::read_to_string(file).ok()?,
        (None, Some(node)) => {
            let note = node.cluster().note(CURSOR_NOTE).await.ok()??;
            String::from_utf8(note.body).ok()?
        }
        (None, None) => return None,
    };
    text.trim().parse().ok().map(Timestamp::from_micros)
}

async fn save_note(server: &Server, at: Timestamp) {
    let Some(node) = &server.config.node else { return };
    let saved = async {
        let version = node.cluster().note(CURSOR_NOTE).await?.map_or(0, |note| note.version);
        let body = at.as_micros().to_string().into_bytes();
        node.cluster().set_note(CURSOR_NOTE, version, body).await
    };
    if let Err(fault) = saved.await {
        tracing::warn!(%fault, "saving alert cursor failed");
    }
}

/// Stores the position up to which all alerts were sent. A failure only repeats alerts, so it is logged.
async fn save_cursor(server: &Server, alerts: &Alerts, at: Timestamp) {
    let Some(cursor) = &alerts.cursor else { return save_note(server, at).await };
    // Appends to the name instead of replacing the extension: `a.next` next to a journal `a.db` may be a user's file.
    let mut next = cursor.as_os_str().to_owned();
    next.push(".next");
    let saved = async {
        tokio::fs::write(&next, format!("{}\n", at.as_micros())).await?;
        tokio::fs::rename(&next, cursor).await
    };
    if let Err(error) = saved.await {
        tracing::warn!(%error, "saving alert cursor failed");
    }
}

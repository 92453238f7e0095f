//! Alerts: a webhook is told of faults that need somebody, at least once and never in a storm.
//!
//! What is told comes from the records (`stats`), so a fault that was recorded just before a crash is told by
//! the next start: how far everything has been told is kept in a small file. Faults of a code are told
//! together, and again only after a pause; what came meanwhile is counted in the next message.

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
pub(crate) use self::queue::{Alarm, AlertQueue};
use crate::server::Server;

/// How long a webhook may take.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Whom to tell, of what.
#[derive(Clone, Debug)]
pub struct Alerts {
    /// Where messages are posted, as JSON.
    pub webhook: SecretString,
    /// Where it is kept how far everything was told.
    pub cursor: PathBuf,
    /// What is told, and how often.
    pub rules: Rules,
}

/// What is told, and how often.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Rules {
    /// Time between looks at what is new.
    #[serde(with = "millis")]
    pub round: Duration,
    /// Time between two messages about the same.
    #[serde(with = "millis")]
    pub pause: Duration,
    /// Besides critical faults and those nobody can recover from: many of a sort in a short time.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub threshold: Vec<Threshold>,
}

impl Default for Rules {
    fn default() -> Self {
        Self { round: Duration::from_secs(5), pause: Duration::from_secs(300), threshold: vec![] }
    }
}

/// Many faults of a sort in a short time. All that is set must fit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Threshold {
    /// Faults with this code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Of this class: `validation`, `runtime`, `logical`, `aborted`, `exception`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_type: Option<String>,
    /// Of this tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// More than this many …
    pub more_than: u64,
    /// … within this time.
    #[serde(with = "millis")]
    pub within: Duration,
}

/// Goes on from where the last start has told everything. Must come before anything is counted.
pub(crate) async fn begin(server: &Server) -> Option<(Alerts, AlertQueue)> {
    let alerts = server.config.alerts.clone()?;
    let since = read_cursor(&alerts).unwrap_or_else(|| server.now());
    let watch = AlertQueue::new(alerts.rules.clone(), since);
    save_cursor(&alerts, watch.sent_up_to()).await;
    server.stats.lock().await.raise_alarms(since);
    Some((alerts, watch))
}

/// Tells the webhook until the server stops.
pub(crate) async fn run(server: Arc<Server>, alerts: Alerts, mut watch: AlertQueue) {
    // What is told is for this address alone: a webhook that sends us elsewhere has not taken it.
    let client = reqwest::Client::builder()
        .timeout(REQUEST_TIMEOUT)
        .redirect(reqwest::redirect::Policy::none())
        .referer(false);
    let Ok(client) = client.build() else {
        return tracing::error!("alerts cannot be sent: no HTTP client");
    };
    let mut failed = 0;
    loop {
        look(&server, &mut watch).await;
        let mut wait = alerts.rules.round;
        while let Some(message) = watch.due(server.now()) {
            match post(&client, &alerts, &message).await {
                Ok(()) => {
                    failed = 0;
                    watch.mark_sent(&message, server.now());
                    save_cursor(&alerts, watch.sent_up_to()).await;
                }
                Err(fault) => {
                    failed += 1;
                    wait = server.config.core.retry.delay(failed, server.world.jitter());
                    let fault = server.clean(fault, server.world.trace());
                    tracing::warn!(%fault, failed, "an alert was not taken; it is kept");
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

/// Takes up what is new.
async fn look(server: &Server, watch: &mut AlertQueue) {
    let mut stats = server.stats.lock().await;
    match stats.catch_up(&*server.journal, server.now()).await {
        Ok(_) => watch.take(stats.take_alarms(), server.now()),
        Err(fault) => tracing::warn!(%fault, "alerts do not know what is new"),
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
    // The address is a secret, and errors like to repeat it.
    let response =
        sent.map_err(|error| failed(Kind::NetworkUnavailable).caused_by(&error.without_url()))?;
    match response.status() {
        status if status.is_success() => Ok(()),
        status => Err(failed(Kind::PeerFailed).with_cause(format!("it answered {status}"))),
    }
}

fn read_cursor(alerts: &Alerts) -> Option<Timestamp> {
    let text = std::fs::read_to_string(&alerts.cursor).ok()?;
    text.trim().parse().ok().map(Timestamp::from_micros)
}

/// Keeps how far everything was told. If that fails something is told twice, so it is only logged.
async fn save_cursor(alerts: &Alerts, at: Timestamp) {
    // Not another extension: beside a journal `a.db` that would be `a.next`, which may be a file of the user.
    let mut next = alerts.cursor.as_os_str().to_owned();
    next.push(".next");
    let saved = async {
        tokio::fs::write(&next, format!("{}\n", at.as_micros())).await?;
        tokio::fs::rename(&next, &alerts.cursor).await
    };
    if let Err(error) = saved.await {
        tracing::warn!(%error, "it was not kept how far alerts were told");
    }
}

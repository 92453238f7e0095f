//! Alerts against a real webhook that fails, and across restarts.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use axum::{
    Router,
    body::Bytes,
    http::StatusCode,
    response::Redirect,
    routing::{get, post},
};
use budao_core::{
    Event, Fault, Kind,
    fault::{Fact, Operation},
};
use budao_journal::Journal;
use budao_models::Script;
use budao_runtime::world;
use budao_serve::alerts::{Alerts, Rules};
use futures::FutureExt as _;
use serde_json::Value;
use tokio::{net::TcpListener, sync::mpsc};

use crate::{
    fixture::{Fixture, Setup, TEST_TIMEOUT, sqlite},
    stats::RecordWriter,
};

/// A webhook that records requests, and accepts them only when the test allows it.
struct Webhook {
    url: String,
    takes: Arc<AtomicBool>,
    got: mpsc::Receiver<Value>,
    /// Requests for where it sends us, if we believed it.
    elsewhere: Arc<AtomicU32>,
}

impl Webhook {
    async fn open() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/hook", listener.local_addr().unwrap());
        let (sender, got) = mpsc::channel(64);
        let takes = Arc::new(AtomicBool::new(false));
        let does_take = Arc::clone(&takes);
        let hook = move |body: Bytes| async move {
            sender.send(serde_json::from_slice(&body).unwrap()).await.unwrap();
            match does_take.load(Ordering::SeqCst) {
                true => StatusCode::NO_CONTENT,
                false => StatusCode::BAD_GATEWAY,
            }
        };
        let elsewhere = Arc::new(AtomicU32::new(0));
        let went = Arc::clone(&elsewhere);
        let away =
            move || async move { went.fetch_add(1, Ordering::SeqCst) }.map(|_| StatusCode::OK);
        let router = Router::new()
            .route("/hook", post(hook))
            .route("/away", get(away.clone()).post(away))
            .route("/moved", post(async || Redirect::temporary("/away")));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { url, takes, got, elsewhere }
    }

    async fn next(&mut self) -> Value {
        tokio::time::timeout(TEST_TIMEOUT, self.got.recv()).await.unwrap().unwrap()
    }
}

async fn stage(journal: &Arc<dyn Journal>, hook: &Webhook, cursor: &std::path::Path) -> Fixture {
    let mut setup = Setup::new(Script::new()).on(journal).with(|config| {
        config.alerts = Some(Alerts {
            webhook: hook.url.clone().into(),
            cursor: Some(cursor.to_owned()),
            rules: Rules { check_interval: Duration::from_millis(20), ..Rules::default() },
        });
        config.shared_limits.retry.base = Duration::from_millis(20);
    });
    setup.world = world::system();
    setup.open_without_recovery().await
}

/// A turn that ends with this fault, now.
async fn fails(journal: &Arc<dyn Journal>, number: u128, kind: Kind) {
    let mut writer = RecordWriter::at(number, world::system().clock.now(), None);
    let fault = Fault::new(kind, Operation::AppendRecords)
        .with(Fact::Path, "journal.db")
        .with_cause("the key is sk-not-shown");
    writer.put(Event::FaultRaised { fault, scope: budao_core::event::Scope::default() });
    writer.write(journal).await;
}

#[tokio::test]
async fn an_alert_arrives_although_the_webhook_fails_and_the_server_is_restarted() {
    // No TLS is spoken here, but the library wants to know how.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let directory = tempfile::tempdir().unwrap();
    let cursor = directory.path().join("journal.db-alerts");
    // A name that the cursor's own temporary file must not take.
    let of_user = directory.path().join("journal.next");
    std::fs::write(&of_user, "words of the user").unwrap();
    let journal = sqlite(&directory).await;
    let mut hook = Webhook::open().await;
    let first = stage(&journal, &hook, &cursor).await;
    fails(&journal, 1, Kind::JournalDamaged).await;
    let refused = hook.next().await;
    assert_eq!(
        (&refused["rule"], &refused["kind"]),
        (&"critical".into(), &"journal_damaged".into())
    );
    let again = hook.next().await;
    assert_eq!(again["id"], refused["id"], "tried again");
    first.stop().await;

    hook.takes.store(true, Ordering::SeqCst);
    let second = stage(&journal, &hook, &cursor).await;
    let taken = loop {
        let got = hook.next().await;
        assert_eq!(got["id"], refused["id"], "the next start tells what was not taken");
        if std::fs::read_to_string(&cursor).is_ok() {
            break got;
        }
    };
    assert_eq!(taken["count"], 1);
    // Told once is enough: what comes next is what happened next.
    fails(&journal, 2, Kind::JournalGone).await;
    let next = loop {
        let got = hook.next().await;
        if got["id"] != refused["id"] {
            break got;
        }
    };
    assert_eq!(next["kind"], "journal_gone");
    second.stop().await;

    let third = stage(&journal, &hook, &cursor).await;
    fails(&journal, 3, Kind::SyncFailed).await;
    let last = loop {
        let got = hook.next().await;
        assert_ne!(got["id"], refused["id"], "not a third time");
        if got["kind"] == "sync_failed" {
            break got;
        }
    };
    assert_eq!(last["explain"], format!("budao explain {}", Kind::SyncFailed.row().code));
    third.stop().await;
    assert_eq!(std::fs::read(&of_user).unwrap(), b"words of the user");
}

#[tokio::test]
async fn a_redirect_of_a_webhook_is_not_followed() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let directory = tempfile::tempdir().unwrap();
    let cursor = directory.path().join("journal.db-alerts");
    let journal = sqlite(&directory).await;
    let mut hook = Webhook::open().await;
    hook.takes.store(true, Ordering::SeqCst);
    let right = std::mem::take(&mut hook.url);
    hook.url = right.replace("/hook", "/moved");
    let first = stage(&journal, &hook, &cursor).await;
    fails(&journal, 1, Kind::JournalDamaged).await;
    // Long enough for it to be tried, and tried again; a stop waits for nothing.
    tokio::time::timeout(Duration::from_millis(300), hook.got.recv()).await.unwrap_err();
    first.stop().await;
    assert_eq!(hook.elsewhere.load(Ordering::SeqCst), 0);
    hook.url = right;
    let second = stage(&journal, &hook, &cursor).await;
    assert_eq!(
        hook.next().await["kind"],
        "journal_damaged",
        "it was not taken, so it is told again"
    );
    second.stop().await;
}

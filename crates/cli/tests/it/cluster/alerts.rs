//! Alerts of several servers on one journal: one of them tells each fault, also when the one that tells them dies before
//! its webhook has taken the last one.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU16, Ordering},
    },
};

use budao_testkit::provider::{Provider, Reply};
use serde_json::{Value, json};

use super::{
    fixture::{self, Server, SharedJournal, until},
    model,
};

/// A webhook that keeps what it got, with what it answered, and takes it with this status.
struct Webhook {
    service: Provider,
    status: Arc<AtomicU16>,
    got: Arc<Mutex<Vec<(Value, u16)>>>,
}

impl Webhook {
    async fn start() -> Self {
        let status = Arc::new(AtomicU16::new(204));
        let got: Arc<Mutex<Vec<(Value, u16)>>> = Arc::default();
        let (answers, keeps) = (Arc::clone(&status), Arc::clone(&got));
        let service = Provider::answering(move |request| {
            let status = answers.load(Ordering::SeqCst);
            keeps.lock().unwrap().push((request.body.clone(), status));
            Reply::status(status)
        });
        Self { service: service.await, status, got }
    }

    /// Waits for a message of this kind that was answered with this status. Returns its id.
    async fn message(&self, kind: &str, status: u16) -> String {
        let find = || {
            let got = self.got.lock().unwrap();
            let found = got.iter().find(|(body, with)| body["kind"] == kind && *with == status);
            found.map(|(body, _)| body["id"].as_str().unwrap().to_owned())
        };
        until("an alert", async || find().is_some()).await;
        find().unwrap()
    }

    /// How often messages were taken, by kind and id.
    fn taken(&self) -> BTreeMap<(String, String), u32> {
        let mut taken = BTreeMap::new();
        for (body, _) in self.got.lock().unwrap().iter().filter(|(_, status)| *status == 204) {
            let text = |key: &str| body[key].as_str().unwrap().to_owned();
            *taken.entry((text("kind"), text("id"))).or_default() += 1;
        }
        taken
    }
}

async fn one_server_dies(journal: SharedJournal) {
    let refusal = Arc::new(AtomicU16::new(401));
    let refuses = Arc::clone(&refusal);
    let provider = Provider::answering(move |_| {
        Reply::refuse(refuses.load(Ordering::SeqCst), &json!({ "error": { "message": "no" } }))
    });
    let (provider, hook) = (provider.await, Webhook::start().await);
    let start = || {
        let url = hook.service.url();
        let variables =
            [("BUDAO__ALERTS__WEBHOOK", url.as_str()), ("BUDAO__ALERTS__CHECK_INTERVAL", "100")];
        let token = ["--token", fixture::TOKEN];
        Server::start_with(&journal, &model(&provider), &token, &variables)
    };
    let mut first = start();
    first.ask().await;
    hook.message("model_authentication", 204).await;
    // The first one has the job; it cannot tell the next fault, which the second one recorded, and dies.
    let mut second = start();
    hook.status.store(503, Ordering::SeqCst);
    refusal.store(403, Ordering::SeqCst);
    second.ask().await;
    let refused = hook.message("model_permission", 503).await;
    first.kill();
    hook.status.store(204, Ordering::SeqCst);
    assert_eq!(hook.message("model_permission", 204).await, refused, "it is the same message");
    // A third one goes on where the second one was.
    second.kill();
    let third = start();
    refusal.store(402, Ordering::SeqCst);
    third.ask().await;
    hook.message("model_quota", 204).await;
    let taken = hook.taken();
    let kinds: Vec<&str> = taken.keys().map(|(kind, _)| kind.as_str()).collect();
    assert_eq!(kinds, ["model_authentication", "model_permission", "model_quota"], "{taken:?}");
    // The second one may have died before it noted that its message was taken.
    assert_eq!(taken.values().next(), Some(&1), "its position was noted: {taken:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_server_alerts_of_each_fault_on_a_file_though_the_alerting_server_dies() {
    one_server_dies(SharedJournal::file()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_server_alerts_of_each_fault_on_postgres_though_the_alerting_server_dies() {
    let Some(journal) = SharedJournal::postgres() else { return };
    one_server_dies(journal).await;
}

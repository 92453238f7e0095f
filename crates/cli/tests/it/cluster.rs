//! Several `budao serve` processes on one journal are one service: a server that dies, freezes or drains costs nobody a
//! turn, and none judges what another one runs.

mod alerts;
mod audit;
pub(crate) mod fixture;
mod history;
mod network;
mod servers;
mod storm;
mod timers;
mod writers;

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use budao_testkit::provider::{Provider, Reply};
use rustix::process::Signal;

use self::fixture::{Machine, Server, SharedJournal, answer, bounded, until};

/// 10 s are promised; the rest is for a machine that runs other tests too. A lease alone would take 15 s.
const DEATH_LIMIT: Duration = Duration::from_secs(14);
/// 25 s are promised.
const SILENCE_LIMIT: Duration = Duration::from_secs(30);
/// Less than the 8 s of silence after which a server counts as gone, so that its successor was told.
const DRAIN_LIMIT: Duration = Duration::from_secs(7);

/// A service that never answers its first `silent` requests.
async fn slow_service(silent: usize) -> Provider {
    let count = Arc::new(AtomicUsize::new(0));
    Provider::answering(move |_| match count.fetch_add(1, Ordering::SeqCst) < silent {
        true => Reply::silence(),
        false => answer(),
    })
    .await
}

fn model(provider: &Provider) -> String {
    format!("openai:m@{}/v1", provider.url())
}

async fn killed(journal: SharedJournal, machine: Machine) {
    let provider = slow_service(1).await;
    let start = || {
        let token = ["--token", fixture::TOKEN];
        let (home, url) = (journal.home.path(), &journal.url);
        Server::start_on(machine, home, url, &model(&provider), &token, &[])
    };
    let (mut first, second) = (start(), start());
    let session = first.ask().await;
    bounded("the first request", provider.reached(1)).await;
    let died = Instant::now();
    first.kill();
    bounded("a request of the survivor", provider.reached(2)).await;
    let took = died.elapsed();
    assert!(took <= DEATH_LIMIT, "taken over after {took:?}");
    assert_eq!(second.answers(&session, 1).await, ["done"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn my_turn_goes_on_within_10_s_though_its_server_was_killed() {
    killed(SharedJournal::file(), Machine::Shared).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn my_turn_goes_on_within_10_s_though_its_server_on_postgres_was_killed() {
    let Some(journal) = SharedJournal::postgres() else { return };
    killed(journal, Machine::Shared).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn my_turn_goes_on_within_10_s_though_its_server_on_another_machine_was_killed() {
    let Some(journal) = SharedJournal::postgres() else { return };
    killed(journal, Machine::Own).await;
}

/// A frozen process may hold a lock of the file; it is then thawed and frozen again.
async fn freeze(frozen: &Server, other: &Server) {
    until("the other server writes", async || {
        frozen.signal(Signal::STOP);
        let opened = other.try_post("/v1/sessions", serde_json::json!({})).await;
        if opened.is_err() {
            frozen.signal(Signal::CONT);
        }
        opened.is_ok()
    })
    .await;
}

async fn frozen(journal: SharedJournal) {
    let provider = slow_service(1).await;
    let first = Server::start(&journal, &model(&provider));
    let second = Server::start(&journal, &model(&provider));
    let session = first.ask().await;
    bounded("the first request", provider.reached(1)).await;
    let stopped = Instant::now();
    freeze(&first, &second).await;
    bounded("a request of the survivor", provider.reached(2)).await;
    let took = stopped.elapsed();
    assert!(took <= SILENCE_LIMIT, "taken over after {took:?}");
    assert_eq!(second.answers(&session, 1).await, ["done"]);
    first.signal(Signal::CONT);
    first.say(&session, "again").await;
    for server in [&first, &second] {
        assert_eq!(server.answers(&session, 2).await, ["done", "done"]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn my_turn_goes_on_within_25_s_though_its_server_was_frozen_and_is_answered_once() {
    frozen(SharedJournal::file()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn my_turn_goes_on_within_25_s_though_its_server_on_postgres_was_frozen() {
    let Some(journal) = SharedJournal::postgres() else { return };
    frozen(journal).await;
}

async fn drained(journal: SharedJournal) {
    let provider = slow_service(1).await;
    let first = Server::start(&journal, &model(&provider));
    let second = Server::start(&journal, &model(&provider));
    let session = first.ask().await;
    bounded("the first request", provider.reached(1)).await;
    first.signal(Signal::TERM);
    // Its request ends when the turn is parked.
    bounded("the end of the first request", provider.hung_up(1)).await;
    let parked = Instant::now();
    bounded("a request of the other server", provider.reached(2)).await;
    let took = parked.elapsed();
    assert!(took <= DRAIN_LIMIT, "taken over after {took:?}");
    assert_eq!(second.answers(&session, 1).await, ["done"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_turns_of_a_server_that_drains_go_on_at_once_on_another() {
    drained(SharedJournal::file()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_turns_of_a_server_on_postgres_that_drains_go_on_at_once_on_another() {
    let Some(journal) = SharedJournal::postgres() else { return };
    drained(journal).await;
}

async fn observed(journal: SharedJournal) {
    let provider = slow_service(usize::MAX).await;
    let timeout = [("BUDAO__SERVE__LIMITS__UNOBSERVED_TIMEOUT", "6000")];
    let token = ["--token", fixture::TOKEN];
    let first = Server::start_with(&journal, &model(&provider), &token, &timeout);
    let second = Server::start_with(&journal, &model(&provider), &token, &timeout);
    let watched = first.ask().await;
    let mut events = second.events(&watched).await;
    bounded("an event", events.next()).await;
    let unwatched = first.ask().await;
    until("the run without an observer is cancelled", async || {
        first.state(&unwatched).await != "running"
    })
    .await;
    assert_eq!(second.state(&watched).await, "running");
    drop(events);
    until("the other one too, when its observer has left", async || {
        second.state(&watched).await != "running"
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_is_observed_on_another_server_is_not_cancelled() {
    observed(SharedJournal::file()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_on_postgres_that_is_observed_on_another_server_is_not_cancelled() {
    let Some(journal) = SharedJournal::postgres() else { return };
    observed(journal).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_of_a_database_have_one_key() {
    let Some(journal) = SharedJournal::postgres() else { return };
    let provider = slow_service(0).await;
    let token = |server: &Server| server.line.trim().split_once('#').unwrap().1.to_owned();
    let first = Server::start_with(&journal, &model(&provider), &[], &[]);
    let second = Server::start_with(&journal, &model(&provider), &[], &[]);
    assert_eq!(token(&first), token(&second), "the printed token is derived from the key");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_bound_to_a_place_runs_only_on_servers_of_that_place() {
    let journal = SharedJournal::file();
    let provider = slow_service(1).await;
    let at = |place: &str| {
        let args = ["--token", fixture::TOKEN, "--place", place];
        Server::start_with(&journal, &model(&provider), &args, &[])
    };
    let mut here = at("here");
    let there = at("there");
    let session = here.ask().await;
    bounded("the first request", provider.reached(1)).await;
    here.kill();
    // This message waits in the inbox for a server of the place.
    let path = format!("/v1/sessions/{session}/messages");
    let body = serde_json::json!({ "content": "again" });
    let (said, answers) = tokio::join!(there.try_post(&path, body), async {
        let back = at("here");
        (there.answers(&session, 2).await, back)
    });
    assert!(said.is_ok(), "{said:?}");
    assert_eq!(answers.0, ["done", "done"]);
    let metrics = there.get("/metrics").await;
    assert!(!metrics.contains("\nbudao_sessions_taken_over_total"), "{metrics}");
    assert!(there.get("/api/nodes").await.contains("\"places\":[\"here\"]"));
}

async fn counted(journal: SharedJournal) {
    let provider = slow_service(0).await;
    let servers = [(); 2].map(|()| Server::start(&journal, &model(&provider)));
    for (server, turns) in servers.iter().zip([3, 2]) {
        for _ in 0..turns {
            let session = server.ask().await;
            server.answers(&session, 1).await;
        }
    }
    for (server, turns) in servers.iter().zip([3, 2]) {
        let metrics = server.get("/metrics").await;
        let line = format!("\nbudao_turns_total{{stop=\"end_turn\"}} {turns}\n");
        assert!(metrics.contains(&line), "{metrics}");
    }
    for server in &servers {
        until("the sum over both servers", async || {
            let stats = server.get("/api/stats?window=1h").await;
            let stats: serde_json::Value = serde_json::from_str(&stats).unwrap();
            assert!(stats["turns"].as_u64().is_some_and(|turns| turns <= 5), "{stats}");
            stats["turns"] == 5
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_metrics_of_a_server_count_its_own_turns_and_its_statistics_those_of_all() {
    counted(SharedJournal::file()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_metrics_of_a_server_on_postgres_count_its_own_turns_and_its_statistics_those_of_all() {
    let Some(journal) = SharedJournal::postgres() else { return };
    counted(journal).await;
}

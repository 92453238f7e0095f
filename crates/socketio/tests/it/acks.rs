//! Very many calls at once, each with its own answer.
//!
//! Every run does a share; `cargo xtask test --only acks` does a million per server.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use budao_socketio::Payload;
use tokio::sync::Semaphore;

use crate::common::{connect, servers};

const SHARE: usize = 50_000;
const FULL: usize = 1_000_000;

/// At once.
const WINDOW: usize = 500;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_answer_reaches_the_call_that_asked() {
    let total = if std::env::var_os("BUDAO_FULL").is_some() { FULL } else { SHARE };
    for server in servers().await {
        let (client, _events) = connect(server.config()).await;
        let window = Arc::new(Semaphore::new(WINDOW));
        let right = Arc::new(AtomicUsize::new(0));
        let started = std::time::Instant::now();
        for number in 0..total {
            let permit = window.clone().acquire_owned().await.unwrap();
            let (client, right) = (client.clone(), right.clone());
            tokio::spawn(async move {
                let sent = Payload::of(number);
                let answer = client.call("echo", sent.clone(), Duration::from_secs(60)).await;
                assert_eq!(answer, Ok(sent));
                right.fetch_add(1, Ordering::Relaxed);
                drop(permit);
            });
        }
        let all = window.acquire_many(u32::try_from(WINDOW).unwrap()).await.unwrap();
        drop(all);
        assert_eq!(right.load(Ordering::Relaxed), total, "{}", server.name());
        let stats = client.stats();
        assert_eq!((client.waiting(), stats.late_answers, stats.connections), (0, 0, 1));
        eprintln!("{}: {total} answers in {:?}", server.name(), started.elapsed());
    }
}

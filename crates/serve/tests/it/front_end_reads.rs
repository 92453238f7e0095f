//! What the requests of front ends read of a journal: little, and few at once.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use async_trait::async_trait;
use budao_core::{
    Fault,
    event::{Seq, SessionId},
};
use budao_journal::{
    Digest, FaultRate, Filter, HistoryInfo, Journal, Page, PageLimits, RateQuery, Reader,
    SessionSummary, Snapshot, StoredRecord, TimedSession, TimerQuery, UnfinishedSession,
};
use budao_models::Script;
use budao_runtime::world;
use budao_serve::{Auth, Config, serve};
use bytes::Bytes;
use futures::{future::join_all, stream::BoxStream};
use serde_json::json;
use tokio::{net::TcpListener, sync::oneshot};

use crate::{
    fixture::{Fixture, Setup, keys},
    http::client,
};

/// Turns of the long conversation; each has some ten records.
const TURNS: usize = 190;
/// Replay slots of a server: five light ones and a heavy one.
const SLOTS: usize = 6;
/// How often a read yields, so that others that may read at the same time do.
const YIELDS: usize = 20;

/// Counts the records that are read, and the reads at one time.
#[derive(Debug)]
struct CountingReader {
    journal: Arc<dyn Journal>,
    records: AtomicUsize,
    reading: AtomicUsize,
    most: AtomicUsize,
}

#[async_trait]
impl Reader for CountingReader {
    async fn info(&self, session: SessionId) -> Result<Option<HistoryInfo>, Fault> {
        self.journal.info(session).await
    }

    async fn read(
        &self,
        session: SessionId,
        after: Seq,
        limits: PageLimits,
    ) -> Result<Page, Fault> {
        let reading = self.reading.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(reading, Ordering::SeqCst);
        for _ in 0..YIELDS {
            tokio::task::yield_now().await;
        }
        let page = self.journal.read(session, after, limits).await;
        self.reading.fetch_sub(1, Ordering::SeqCst);
        if let Ok(page) = &page {
            self.records.fetch_add(page.records.len(), Ordering::SeqCst);
        }
        page
    }

    fn follow(
        &self,
        session: SessionId,
        after: Seq,
    ) -> BoxStream<'static, Result<Vec<StoredRecord>, Fault>> {
        self.journal.follow(session, after)
    }

    async fn snapshot(&self, session: SessionId) -> Result<Option<Snapshot>, Fault> {
        self.journal.snapshot(session).await
    }

    async fn blob(&self, digest: Digest) -> Result<Option<Bytes>, Fault> {
        self.journal.blob(digest).await
    }

    async fn sessions(&self, filter: Filter) -> Result<Vec<SessionSummary>, Fault> {
        self.journal.sessions(filter).await
    }

    async fn unfinished(
        &self,
        after: Option<SessionId>,
        limit: usize,
    ) -> Result<Vec<UnfinishedSession>, Fault> {
        self.journal.unfinished(after, limit).await
    }

    async fn sessions_with_timers(&self, query: TimerQuery) -> Result<Vec<TimedSession>, Fault> {
        self.journal.sessions_with_timers(query).await
    }

    async fn rates(&self, query: RateQuery) -> Result<Vec<FaultRate>, Fault> {
        self.journal.rates(query).await
    }
}

/// A second server on the stage's journal, which counts what it reads.
async fn counting_server(stage: &Fixture) -> (String, Arc<CountingReader>, oneshot::Sender<()>) {
    let reader = Arc::new(CountingReader {
        journal: Arc::clone(&stage.journal),
        records: AtomicUsize::new(0),
        reading: AtomicUsize::new(0),
        most: AtomicUsize::new(0),
    });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let (stop, stopped) = oneshot::channel::<()>();
    let (engine, journal) = (Arc::new(stage.runtime.clone()), Arc::clone(&reader));
    let config = Config::new(Auth::open(), keys());
    tokio::spawn(async move {
        let stopped = async { drop(stopped.await) };
        serve(listener, config, engine, journal, world::system(), stopped).await.unwrap();
    });
    (address, reader, stop)
}

/// Sends a message to the chat and reads its answer; returns the run.
async fn say(stage: &Fixture, number: usize) -> String {
    let text = json!([{ "type": "text", "text": "go" }]);
    let message = json!({ "id": format!("m{number}"), "role": "user", "parts": text });
    let body = json!({ "id": "long", "messages": [message], "trigger": "submit-message" });
    let response = client().post(stage.url("/api/chat")).json(&body).send().await.unwrap();
    let run = response.headers()["x-workflow-run-id"].to_str().unwrap().to_owned();
    assert!(response.text().await.unwrap().contains("[DONE]"));
    run
}

#[tokio::test]
async fn requests_for_an_old_chat_read_its_last_turn_and_wait_for_replay_slots() {
    let stage = Setup::new(Script::new().say("fine").forever()).open().await;
    let mut runs = Vec::new();
    for number in 0..TURNS {
        runs.push(say(&stage, number).await);
    }
    let session: SessionId = runs[0].split('.').next().unwrap().parse().unwrap();
    let head = usize::try_from(stage.journal.info(session).await.unwrap().unwrap().head).unwrap();
    assert!(head > 1_200, "{head} records: longer than a page");
    let (address, reader, stop) = counting_server(&stage).await;
    let get = |path: String| async move {
        let response = client().get(path).send().await.unwrap();
        (response.status().as_u16(), response.text().await.unwrap())
    };

    // Without `startIndex`, an idle chat has nothing to send: only its state is read.
    let (status, _) = get(format!("{address}/api/chat/long/stream")).await;
    assert_eq!(status, 204);
    let state = reader.records.swap(0, Ordering::SeqCst);
    let last = format!("{address}/api/chat/long/stream?startIndex=0");
    let (status, body) = get(last.clone()).await;
    assert_eq!(status, 200, "{body}");
    assert!(body.contains("fine") && body.matches(r#""type":"start""#).count() == 1, "{body}");
    let read = reader.records.load(Ordering::SeqCst);
    assert!(read <= 3 * state + 200, "{read} records of {head} were read, {state} for the state");

    let old = format!("{address}/api/chat/{}/stream?startIndex=-2", runs[TURNS - 2]);
    let requests =
        (0..40).map(|number| get(if number % 2 == 0 { old.clone() } else { last.clone() }));
    for (status, body) in join_all(requests).await {
        assert_eq!(status, 200, "{body}");
    }
    let most = reader.most.load(Ordering::SeqCst);
    assert!((2..=SLOTS).contains(&most), "{most} reads at once");
    stop.send(()).unwrap();
}

//! Followers in another node: how long after its append a record arrives.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use budao_core::event::SessionId;
use budao_journal::{Append, Journal};
use budao_testkit::{bench::Better, postgres::PostgresServer, records};
use futures::StreamExt as _;

use crate::{Figure, WEIGHT, open};

const SESSIONS: u64 = 64;
/// Pause between two appends of a session.
const PAUSE: Duration = Duration::from_millis(200);
const APPENDS: u64 = 60;

const HALF: Figure =
    Figure { name: "follow_p50", unit: "ms after the append", bar: 6.0, better: Better::Lower };
const MOST: Figure = Figure { name: "follow_p99", bar: 50.0, ..HALF };

/// When each position of a session was answered.
type Answered = Arc<Mutex<Vec<Instant>>>;

/// Appends at a steady pace; sessions start at different moments.
async fn write(journal: Arc<dyn Journal>, session: SessionId, number: u64, answered: Answered) {
    let lease = records::lease(&*journal, session, "writer").await;
    tokio::time::sleep(PAUSE.mul_f64(number as f64 / SESSIONS as f64)).await;
    let mut pace = tokio::time::interval(PAUSE);
    for head in 0..APPENDS {
        pace.tick().await;
        let append = Append::new(&lease, head, records::entries(head, 1, WEIGHT));
        journal.append(append).await.unwrap();
        answered.lock().unwrap().push(Instant::now());
    }
}

/// Milliseconds between the answer and the arrival of each record; 0 for one that arrived first.
async fn follow(journal: Arc<dyn Journal>, session: SessionId, answered: Answered) -> Vec<f64> {
    let mut stream = journal.follow(session, 0);
    let mut arrived = Vec::new();
    while (arrived.len() as u64) < APPENDS {
        let batch = stream.next().await.unwrap().unwrap();
        arrived.extend(batch.iter().map(|_| Instant::now()));
    }
    // The last answer may come after the last arrival.
    while (answered.lock().unwrap().len() as u64) < APPENDS {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let answered = answered.lock().unwrap();
    let late = |(arrival, answer): (&Instant, &Instant)| arrival.saturating_duration_since(*answer);
    arrived.iter().zip(&*answered).map(late).map(|late| late.as_secs_f64() * 1e3).collect()
}

pub(crate) async fn measure(server: &PostgresServer) {
    let url = server.url("follow");
    let (writer, reader) = (open(&url).await, open(&url).await);
    let mut tasks = Vec::new();
    for number in 0..SESSIONS {
        let session = SessionId(uuid::Uuid::new_v4());
        // The session exists before anybody follows it.
        let lease = records::lease(&*writer, session, "writer").await;
        writer.release(&lease).await.unwrap();
        let answered = Answered::default();
        tokio::spawn(write(Arc::clone(&writer), session, number, Arc::clone(&answered)));
        tasks.push(tokio::spawn(follow(Arc::clone(&reader), session, answered)));
    }
    let mut late = Vec::new();
    for task in tasks {
        late.extend(task.await.unwrap());
    }
    late.sort_by(f64::total_cmp);
    let at = |percent: usize| late[(late.len() - 1) * percent / 100];
    let note = format!("{SESSIONS} followers on other connections, 5 appends/s each session");
    HALF.report(vec![at(50)], note.clone());
    MOST.report(vec![at(99)], note);
    writer.close().await;
    reader.close().await;
}

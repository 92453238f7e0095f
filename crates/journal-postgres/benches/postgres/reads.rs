//! Reading a history back.

use std::time::Instant;

use budao_core::event::SessionId;
use budao_journal::{Append, PageLimits};
use budao_testkit::{bench::Better, postgres::PostgresServer, records};

use crate::{Figure, WEIGHT, micros, open};

const RECORDS: u64 = 10_000;
const BATCH: u64 = 5;
/// Rounds, and how often a round reads the whole history: the server's CPU time has a resolution of 10 ms.
const ROUNDS: usize = 7;
const READS: u64 = 10;

const RATE: Figure =
    Figure { name: "read_back", unit: "records/s", bar: 500_000.0, better: Better::Higher };
const SERVER_CPU: Figure =
    Figure { name: "read_back_server_cpu", unit: "µs CPU", bar: 0.5, better: Better::Lower };

pub(crate) async fn measure(server: &PostgresServer) {
    let journal = open(&server.url("read_back")).await;
    let session = SessionId(uuid::Uuid::new_v4());
    let lease = records::lease(&*journal, session, "writer").await;
    let mut head = 0;
    while head < RECORDS {
        let append = Append::new(&lease, head, records::entries(head, BATCH, WEIGHT));
        head = journal.append(append).await.unwrap();
    }
    server.sql("CHECKPOINT");
    let limits = PageLimits { records: 10_000, bytes: 8 << 20 };
    let (mut rates, mut costs) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let (began, served) = (Instant::now(), server.cpu_time());
        for _ in 0..READS {
            let mut after = 0;
            while after < head {
                let page = journal.read(session, after, limits).await.unwrap();
                after = page.records.last().unwrap().seq;
            }
        }
        let count = (RECORDS * READS) as f64;
        rates.push(count / began.elapsed().as_secs_f64());
        costs.push(micros(server.cpu_time() - served) / count);
    }
    let note = format!("{RECORDS} records of {WEIGHT} bytes in batches of {BATCH}");
    RATE.report(rates, note.clone());
    SERVER_CPU.report(costs, format!("a record; {note}"));
    journal.close().await;
}

//! Sessions in a file: what one more costs when the file holds so many.

use std::time::Duration;

use budao_core::{
    event::{Event, SessionId},
    trace::Trace,
};
use budao_journal::{Append, Entry, IfMissing, Journal, LeaseRequest, open};
use budao_runtime::world;
use budao_testkit::bench::cpu_time;
use futures::future;

use crate::{PIECE, report};

/// How many sessions a file holds, and how many files of that size are made.
const SIZES: [(u32, u32); 6] = [(1, 9), (10, 9), (100, 9), (1_000, 3), (10_000, 1), (100_000, 1)];
/// Sessions that are opened together, and how many times in one large file.
const WAVE: u32 = 100;
const WAVES: u32 = 9;

pub(crate) async fn measure() {
    for (size, files) in SIZES {
        let mut rounds = Vec::new();
        for _ in 0..files {
            let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
            let file = folder.path().join("journal.db").display().to_string();
            let journal = open(&file, world::system()).await.expect("a journal");
            for part in 0..size.div_ceil(WAVE) {
                add(&*journal, WAVE.min(size - part * WAVE)).await;
            }
            for _ in 0..WAVES / files {
                let before = cpu_time();
                add(&*journal, WAVE).await;
                rounds.push((cpu_time() - before).as_secs_f64() * 1e6 / f64::from(WAVE));
            }
        }
        let note =
            "a session more in the file: opened, one durable record, let go; a hundred at once";
        report(&format!("growth/sessions_{size}"), rounds, "µs CPU", note);
    }
}

/// Opens so many sessions at once, appends a record to each and lets them go.
async fn add(journal: &dyn Journal, count: u32) {
    let one = || async {
        let request = LeaseRequest {
            session: SessionId(world::system().uuid()),
            holder: "bench".into(),
            ttl: Duration::from_secs(3600),
            if_missing: IfMissing::Create,
            dead_holder: None,
        };
        let lease = journal.take_lease(request).await.expect("a lease");
        let event = Event::TextDelta { step: 1, text: "x".repeat(PIECE) };
        let trace = Trace::from_random(0x4bf9_2f35_77b3_4da6);
        let entry = Entry { at: world::system().clock.now(), trace, turn: 1, event: event.into() };
        journal.append(Append::new(&lease, 0, vec![entry])).await.expect("appended");
        journal.release(&lease).await.expect("released");
    };
    future::join_all((0..count).map(|_| one())).await;
}

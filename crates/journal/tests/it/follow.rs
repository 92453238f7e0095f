//! A million deliveries: followers on other handles, random pages, reconnects everywhere, while a writer writes.

use std::sync::Arc;

use crate::support::victim::Random;
use budao_journal::{
    Append, Reader, Writer,
    sqlite::{Sqlite, SqliteOptions},
};
use budao_testkit::{
    records::{entries, lease, number, session},
    world::system as world,
};
use futures::{StreamExt, future::join_all};

/// Follows from the start to the end, leaving after a random number of records and coming back.
async fn follow_to(journal: Sqlite, end: u64, seed: u64, stay: u64) -> u64 {
    let mut random = Random::new(seed);
    let mut after = 0;
    while after < end {
        let leave = after + 1 + random.below(stay);
        let mut stream = journal.follow(session(1), after);
        while after < leave.min(end) {
            for record in stream.next().await.unwrap().unwrap() {
                assert_eq!(record.seq, after + 1, "seed {seed}");
                if record.seq % 64 == 0 {
                    assert_eq!(number(&record), record.seq, "seed {seed}");
                }
                after = record.seq;
            }
        }
    }
    after
}

/// Goal: every follower gets exactly the sequence, whatever it does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_million_deliveries_are_exactly_the_sequence() {
    const END: u64 = 50_000;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal.db");
    let options = || SqliteOptions { reserve_bytes: 0, ..SqliteOptions::default() };
    let writer = Arc::new(Sqlite::open(&path, world(), options()).await.unwrap());
    let other = Sqlite::open(&path, world(), options()).await.unwrap();
    let lease_held = lease(&*writer, session(1), "w").await;
    let mut followers = Vec::new();
    for seed in 0..20 {
        // Half of them share nothing with the writer but the file.
        let journal = if seed % 2 == 0 { (*writer).clone() } else { other.clone() };
        let stay = [50, 1_000, 20_000, u64::MAX][usize::try_from(seed / 2 % 4).unwrap()];
        followers.push(tokio::spawn(follow_to(journal, END, seed, stay)));
    }
    let mut random = Random::new(7);
    let mut head = 0;
    while head < END {
        let count = (1 + random.below(40)).min(END - head);
        head =
            writer.append(Append::new(&lease_held, head, entries(head, count, 3))).await.unwrap();
    }
    let delivered: u64 = join_all(followers).await.into_iter().map(Result::unwrap).sum();
    assert!(delivered >= 1_000_000, "{delivered}");
}

/// Goal: a reconnect at every index loses and repeats nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reconnect_at_every_index_goes_on_exactly() {
    const END: u64 = 300;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal.db");
    let journal = crate::support::open(&path).await;
    let lease_held = lease(&journal, session(1), "w").await;
    let writing = async {
        let mut head = 0;
        while head < END {
            let count = (1 + head % 7).min(END - head);
            head = journal
                .append(Append::new(&lease_held, head, entries(head, count, 3)))
                .await
                .unwrap();
        }
    };
    let following = async {
        for index in 0..END {
            let mut stream = journal.follow(session(1), index);
            let batch = stream.next().await.unwrap().unwrap();
            assert_eq!(batch[0].seq, index + 1);
        }
    };
    tokio::join!(writing, following);
}

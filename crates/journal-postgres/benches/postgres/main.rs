//! The journal's figures on PostgreSQL beside `pgbench -N` on the same server, one JSON line per number.
//!
//! `cargo xtask bench postgres` builds and starts this program. Appends and `pgbench` take turns, round after round, so
//! that a slow second of the machine hits both. Every append is durable when it is counted. The servers have their
//! default settings, with room for 300 connections.

#![allow(clippy::print_stdout, clippy::unwrap_used, clippy::cast_precision_loss, missing_docs)]

mod appends;
mod database;
mod failover;
mod follow;
mod reads;

use std::{sync::Arc, time::Duration};

use budao_journal::{Access, Journal};
use budao_journal_postgres::{Credentials, Postgres, PostgresOptions};
use budao_testkit::{
    bench::{Better, Measurement, emit},
    postgres::PostgresServer,
    world,
};

/// Bytes of a record's payload, without its envelope.
const WEIGHT: usize = 480;

fn main() {
    let filter = std::env::args().skip(1).find(|arg| !arg.starts_with('-')).unwrap_or_default();
    let wants = |name: &str| format!("postgres/{name}").contains(&filter);
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let Some(server) = PostgresServer::start_with(&[("max_connections", "300")]) else { return };
    if wants("appends") {
        database::prepare_pgbench(&server);
        runtime.block_on(appends::measure(&server));
    }
    if wants("standby") {
        runtime.block_on(appends::measure_with_standby(&server));
    }
    if wants("read_back") {
        runtime.block_on(reads::measure(&server));
    }
    if wants("follow") {
        runtime.block_on(follow::measure(&server));
    }
    if wants("failover") {
        runtime.block_on(failover::measure());
    }
}

async fn open(url: &str) -> Arc<dyn Journal> {
    let (credentials, options) = (Credentials::default(), PostgresOptions::default());
    let opened = Postgres::open(url, Access::Create, &credentials, world::system(), options).await;
    Arc::new(opened.unwrap())
}

/// A figure with its bar.
struct Figure {
    name: &'static str,
    unit: &'static str,
    bar: f64,
    better: Better,
}

impl Figure {
    /// Prints the median of the rounds.
    fn report(&self, mut rounds: Vec<f64>, note: String) {
        rounds.sort_by(f64::total_cmp);
        emit(&Measurement {
            bench: format!("postgres/{}", self.name),
            value: median(&rounds),
            unit: self.unit.to_owned(),
            bar: Some(self.bar),
            better: self.better,
            low: rounds.first().copied(),
            high: rounds.last().copied(),
            note: Some(note),
        });
    }
}

/// The middle of sorted values.
fn median(sorted: &[f64]) -> f64 {
    sorted[sorted.len() / 2]
}

fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

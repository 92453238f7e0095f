//! Clocks, a real world, and lines for `cargo xtask bench`.

use std::{path::Path, sync::Arc, time::Duration};

use budao_core::{
    event::Event,
    time::Timestamp,
    trace::Trace,
    world::{Clock, Entropy, NoopSpanExporter, Spawn, World},
};
use budao_journal::{
    Entry,
    sqlite::{Sqlite, SqliteOptions},
};
use futures::future::BoxFuture;
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

#[derive(Debug)]
struct SystemWorld;

impl Clock for SystemWorld {
    fn now(&self) -> Timestamp {
        let since = std::time::UNIX_EPOCH.elapsed().unwrap();
        Timestamp::from_micros(i64::try_from(since.as_micros()).unwrap())
    }

    fn sleep(&self, wait: Duration) -> BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(wait))
    }
}

impl Entropy for SystemWorld {
    fn bits(&self) -> u64 {
        u64::from_le_bytes(uuid::Uuid::new_v4().as_bytes()[..8].try_into().unwrap())
    }
}

impl Spawn for SystemWorld {
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        tokio::spawn(task);
    }
}

pub(crate) fn world() -> World {
    let real = Arc::new(SystemWorld);
    World {
        clock: real.clone(),
        entropy: real.clone(),
        spawn: real,
        spans: Arc::new(NoopSpanExporter),
    }
}

/// On the disk, not in memory, wherever cargo builds.
pub(crate) fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

pub(crate) async fn open(directory: &Path) -> Sqlite {
    Sqlite::open(&directory.join("journal.db"), world(), SqliteOptions::default()).await.unwrap()
}

/// An entry whose event takes so many bytes.
pub(crate) fn entry(bytes: usize) -> Entry {
    let empty = Event::TextDelta { step: 1, text: String::new() }.encode().len();
    let event = Event::TextDelta { step: 1, text: "x".repeat(bytes - empty) };
    let at = SystemWorld.now();
    Entry { at, trace: Trace::from_random(0x4bf9_2f35_77b3_4da6), turn: 1, event: event.into() }
}

pub(crate) fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.try_into().unwrap(), time.tv_nsec.try_into().unwrap())
}

pub(crate) fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

pub(crate) fn percentile(numbers: &mut [f64], share: f64) -> f64 {
    numbers.sort_by(f64::total_cmp);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index")]
    let index = ((numbers.len() - 1) as f64 * share) as usize;
    numbers[index]
}

pub(crate) fn median(numbers: &mut [f64]) -> f64 {
    percentile(numbers, 0.5)
}

#[derive(Serialize)]
pub(crate) struct Line {
    bench: String,
    value: f64,
    unit: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    bar: Option<f64>,
    better: &'static str,
    #[serde(skip_serializing_if = "String::is_empty")]
    note: String,
}

impl Line {
    fn new(name: &str, value: f64, unit: &str, better: &'static str, note: String) -> Self {
        let value = (value * 1e4).round() / 1e4;
        Self { bench: format!("journal/{name}"), value, unit: unit.into(), bar: None, better, note }
    }

    pub(crate) fn lower(name: &str, value: f64, unit: &str, bar: f64, note: String) -> Self {
        Self { bar: Some(bar), ..Self::new(name, value, unit, "lower", note) }
    }

    pub(crate) fn higher(name: &str, value: f64, unit: &str, bar: f64, note: String) -> Self {
        Self { bar: Some(bar), ..Self::new(name, value, unit, "higher", note) }
    }

    pub(crate) fn info(name: &str, value: f64, unit: &str, note: String) -> Self {
        Self::new(name, value, unit, "lower", note)
    }
}

pub(crate) fn report(line: &Line) {
    println!("{}", serde_json::to_string(line).unwrap());
}

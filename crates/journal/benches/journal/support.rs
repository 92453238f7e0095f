//! A journal on the disk, memory of the process, and lines for `cargo xtask bench`.

use std::path::Path;

use budao_core::{event::Event, trace::Trace};
use budao_journal::{
    Entry,
    sqlite::{Sqlite, SqliteOptions},
};
use budao_testkit::world;
use serde::Serialize;

/// On the disk, not in memory, wherever cargo builds.
pub(crate) fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

pub(crate) async fn open(directory: &Path) -> Sqlite {
    Sqlite::open(&directory.join("journal.db"), world::system(), SqliteOptions::default())
        .await
        .unwrap()
}

/// An entry whose event takes so many bytes.
pub(crate) fn entry(bytes: usize) -> Entry {
    let empty = Event::TextDelta { step: 1, text: String::new() }.encode().len();
    let event = Event::TextDelta { step: 1, text: "x".repeat(bytes - empty) };
    let at = world::system().clock.now();
    Entry { at, trace: Trace::from_random(0x4bf9_2f35_77b3_4da6), turn: 1, event: event.into() }
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

//! A SQLite journal for tests, and the process that they kill while it writes.

#![allow(dead_code, missing_docs, unreachable_pub, clippy::unwrap_used)]

pub mod victim;

use std::path::Path;

use budao_journal::sqlite::{Sqlite, SqliteOptions};
use budao_testkit::world;

pub async fn open(path: &Path) -> Sqlite {
    Sqlite::open(path, world::system(), options()).await.unwrap()
}

pub fn options() -> SqliteOptions {
    SqliteOptions { reserve_bytes: 0, ..SqliteOptions::default() }
}

//! A SQLite journal for tests, and the process that they kill while it writes.

pub(crate) mod victim;

use std::path::Path;

use budao_journal::sqlite::{Sqlite, SqliteOptions};
use budao_testkit::world;

pub(crate) async fn open(path: &Path) -> Sqlite {
    Sqlite::open(path, world::system(), options()).await.unwrap()
}

pub(crate) fn options() -> SqliteOptions {
    SqliteOptions { reserve_bytes: 0, ..SqliteOptions::default() }
}

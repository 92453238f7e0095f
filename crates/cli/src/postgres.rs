//! Journals in PostgreSQL, with the credentials of its own programs.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use budao_journal::Backend;
use budao_journal_postgres::{Credentials, PostgresBackend};

/// The backend of `postgres://` URLs.
pub(crate) fn backend() -> Arc<dyn Backend> {
    let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let home = || set("HOME").map(|home| Path::new(&home).join(".pgpass"));
    let credentials = Credentials {
        user: set("PGUSER").or_else(|| set("USER")),
        password: set("PGPASSWORD"),
        passfile: set("PGPASSFILE").map(PathBuf::from).or_else(home),
    };
    Arc::new(PostgresBackend::new(credentials))
}

//! The contract, held against both implementations.

mod memory {
    use std::sync::Arc;

    use budao_core::{limits::Limits, world::World};
    use budao_journal::{Journal, Memory};

    async fn make(world: World) -> ((), Arc<dyn Journal>) {
        ((), Arc::new(Memory::new(world, Limits::default())))
    }

    budao_journal::conformance_suite!(make);
}

mod sqlite {
    use std::sync::Arc;

    use budao_core::world::World;
    use budao_journal::{
        Journal,
        sqlite::{Sqlite, SqliteOptions},
    };
    use tempfile::TempDir;

    async fn make(world: World) -> (TempDir, Arc<dyn Journal>) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("journal.db");
        let journal = Sqlite::open(&path, world, SqliteOptions::default()).await.unwrap();
        (directory, Arc::new(journal))
    }

    budao_journal::conformance_suite!(make);
}

//! Random operations against a model that fits on a page: whatever is done, in whatever order, with the file
//! closed and opened in between, the journal says what the model says.

use std::sync::Arc;

use crate::support::options;
use async_trait::async_trait;
use budao_journal::{Journal, conformance::fixture::manual_world, sqlite::Sqlite};
use budao_testkit::journal_model::{Opener, RealJournal};
use proptest::test_runner::Config;
use proptest_state_machine::prop_state_machine;

struct SqliteFile(tempfile::TempDir);

#[async_trait]
impl Opener for SqliteFile {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    async fn open(&self) -> Arc<dyn Journal> {
        let file = self.0.path().join("journal.db");
        Arc::new(Sqlite::open(&file, manual_world().0, options()).await.unwrap())
    }
}

prop_state_machine! {
    #![proptest_config(Config { cases: 48, max_shrink_iters: 200, ..Config::default() })]

    #[test]
    fn the_journal_and_its_model_give_the_same_answers(sequential 1..60 => RealJournal<SqliteFile>);
}

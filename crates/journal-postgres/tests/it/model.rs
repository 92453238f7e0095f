//! Random operations against the model of a journal, with the journal closed and opened in between.

use std::sync::Arc;

use async_trait::async_trait;
use budao_core::limits::Limits;
use budao_journal::{Journal, Memory, conformance::fixture::manual_world};
use budao_testkit::{
    journal_model::{Opener, RealJournal},
    postgres::PostgresServer,
};
use proptest::test_runner::Config;
use proptest_state_machine::prop_state_machine;

/// A schema on a server; without one the same journal in memory each time, after the missing server was reported.
enum Schema {
    OnServer { _server: Arc<PostgresServer>, url: String },
    InMemory(Arc<dyn Journal>),
}

#[async_trait]
impl Opener for Schema {
    fn new() -> Self {
        match PostgresServer::shared() {
            Some(server) => {
                let url = server.url(&crate::support::schema());
                Self::OnServer { _server: server, url }
            }
            None => Self::InMemory(Arc::new(Memory::new(manual_world().0, Limits::default()))),
        }
    }

    async fn open(&self) -> Arc<dyn Journal> {
        match self {
            Self::OnServer { url, .. } => {
                Arc::new(crate::support::open(url, manual_world().0).await)
            }
            Self::InMemory(journal) => Arc::clone(journal),
        }
    }
}

prop_state_machine! {
    #![proptest_config(Config { cases: 16, max_shrink_iters: 100, ..Config::default() })]

    #[test]
    fn the_journal_and_its_model_give_the_same_answers(sequential 1..60 => RealJournal<Schema>);
}

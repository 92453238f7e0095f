//! What several subjects need.

pub(crate) mod marker_proxy;
pub(crate) mod writers;

use std::sync::Arc;

use budao_core::{limits::Limits, world::World};
use budao_journal::{Access, Journal, Memory};
use budao_journal_postgres::{Credentials, LeaseClock, Postgres, PostgresOptions};
use budao_testkit::postgres::PostgresServer;
use uuid::Uuid;

pub(crate) use budao_testkit::{
    records::{append, entries, lease, read_all, session},
    world::system as world,
};

/// Keeps the server running while a test uses it.
#[derive(Debug)]
pub(crate) struct Guard(
    #[expect(dead_code, reason = "held, not read")] Option<Arc<PostgresServer>>,
);

/// A schema of a test's own.
pub(crate) fn schema() -> String {
    format!("test_{}", Uuid::new_v4().simple())
}

pub(crate) fn options() -> PostgresOptions {
    PostgresOptions { clock: LeaseClock::World, ..PostgresOptions::default() }
}

pub(crate) async fn open(url: &str, world: World) -> Postgres {
    let credentials = Credentials::default();
    Postgres::open(url, Access::Create, &credentials, world, options()).await.unwrap()
}

/// A journal in a schema of its own; in memory if there is no PostgreSQL, which was reported then.
pub(crate) async fn journal_or_memory(world: World) -> (Guard, Arc<dyn Journal>) {
    match PostgresServer::shared() {
        Some(server) => {
            let journal = open(&server.url(&schema()), world).await;
            (Guard(Some(server)), Arc::new(journal))
        }
        None => (Guard(None), Arc::new(Memory::new(world, Limits::default()))),
    }
}

/// A world whose clock is off by some seconds.
pub(crate) fn manual_world_at(offset_seconds: i64) -> World {
    #[derive(Debug)]
    struct SkewedClock(Arc<dyn budao_core::world::Clock>, i64);
    impl budao_core::world::Clock for SkewedClock {
        fn now(&self) -> budao_core::time::Timestamp {
            let micros = self.0.now().as_micros() + self.1 * 1_000_000;
            budao_core::time::Timestamp::from_micros(micros)
        }

        fn sleep(&self, wait: std::time::Duration) -> futures::future::BoxFuture<'static, ()> {
            self.0.sleep(wait)
        }
    }
    let world = world();
    World { clock: Arc::new(SkewedClock(world.clock.clone(), offset_seconds)), ..world }
}

//! Journals in PostgreSQL, in a program that was built without them: their URLs are known and refused.

use std::sync::Arc;

use async_trait::async_trait;
use budao_core::{Fault, limits::Limits, world::World};
use budao_journal::{
    Access, Backend, CheckReport, ExportReport, Inspection, Journal, OutputFactory, Progress,
};

use crate::missing::{self, ProgramPart};

/// The backend that refuses `postgres://` URLs.
pub(crate) fn backend() -> Arc<dyn Backend> {
    Arc::new(MissingPostgres)
}

#[derive(Debug)]
struct MissingPostgres;

fn missing() -> Fault {
    missing::fault(ProgramPart::Postgres, "--journal postgres:")
}

#[async_trait]
impl Backend for MissingPostgres {
    fn accepts(&self, url: &str) -> bool {
        ["postgres:", "postgresql:"].iter().any(|scheme| url.starts_with(scheme))
    }

    fn kind(&self) -> &'static str {
        "postgres"
    }

    fn url_form(&self) -> &'static str {
        "postgres://USER@HOST/DATABASE"
    }

    async fn open(
        &self,
        _: &str,
        _: Access,
        _: World,
        _: Limits,
    ) -> Result<Arc<dyn Journal>, Fault> {
        Err(missing())
    }

    async fn inspect(&self, _: &str) -> Result<Inspection, Fault> {
        Err(missing())
    }

    async fn check(&self, _: &str, _: Progress) -> Result<CheckReport, Fault> {
        Err(missing())
    }

    async fn salvage(&self, _: &str, _: OutputFactory) -> Result<ExportReport, Fault> {
        Err(missing())
    }
}

//! Journals on PostgreSQL, by URL.

use std::{path::PathBuf, sync::Arc};

use async_trait::async_trait;
use budao_core::{
    fault::{Fault, Kind, Operation},
    limits::Limits,
    world::World,
};
use budao_journal::{Access, Backend, CheckReport, Inspection, Journal, Progress};

use tokio_postgres::config::TargetSessionAttrs;

use crate::{
    address,
    check::Check,
    errors,
    open::{self, Postgres, PostgresOptions},
    schema::SchemaContent,
    settings::Purpose,
};

/// What a login needs beside the address. The program fills it from its environment; this crate never reads that.
#[derive(Clone, Default)]
pub struct Credentials {
    /// The role for an address without one.
    pub user: Option<String>,
    /// The password for an address without one: the value of `PGPASSWORD`.
    pub password: Option<String>,
    /// The password file: the value of `PGPASSFILE`, else `~/.pgpass`. It may be absent.
    pub passfile: Option<PathBuf>,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials").field("user", &self.user).finish_non_exhaustive()
    }
}

/// Opens `postgres://USER@HOST/DATABASE`, and `postgresql://` as well, with the credentials of the program.
#[derive(Clone, Debug, Default)]
pub struct PostgresBackend {
    credentials: Credentials,
}

impl PostgresBackend {
    /// A backend that logs in with these credentials.
    #[must_use]
    pub fn new(credentials: Credentials) -> Self {
        Self { credentials }
    }
}

#[async_trait]
impl Backend for PostgresBackend {
    fn accepts(&self, url: &str) -> bool {
        address::without_scheme(url).is_some()
    }

    fn kind(&self) -> &'static str {
        "postgres"
    }

    fn url_form(&self) -> &'static str {
        "postgres://USER@HOST/DATABASE"
    }

    async fn open(
        &self,
        url: &str,
        access: Access,
        world: World,
        limits: Limits,
    ) -> Result<Arc<dyn Journal>, Fault> {
        let options = PostgresOptions { limits, ..PostgresOptions::default() };
        Ok(Arc::new(Postgres::open(url, access, &self.credentials, world, options).await?))
    }

    async fn inspect(&self, url: &str) -> Result<Inspection, Fault> {
        let address = Arc::new(address::parse(url, &self.credentials)?);
        let pool = open::connect(&address, Purpose::Write).await?;
        let content = open::inspect(&pool).await?;
        Ok(Inspection { file: None, exists: content != SchemaContent::Nothing })
    }

    async fn check(&self, url: &str, progress: Progress) -> Result<CheckReport, Fault> {
        let mut address = address::parse(url, &self.credentials)?;
        address.config.target_session_attrs(TargetSessionAttrs::Any);
        let address = Arc::new(address);
        let pool = open::connect(&address, Purpose::Read).await?;
        if open::inspect(&pool).await? == SchemaContent::Nothing {
            return Err(errors::fault(&address, Kind::NoJournal, Operation::CheckJournal));
        }
        Check { pool: &pool }.run(&progress).await
    }
}

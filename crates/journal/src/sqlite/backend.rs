//! Journals in SQLite files, by URL.

use std::{path::Path, sync::Arc};

use async_trait::async_trait;
use budao_core::{fault::Fault, limits::Limits, world::World};

use super::{PathContent, Sqlite, SqliteOptions};
use crate::{
    backend::{Access, Backend, Inspection, OutputFactory, Progress},
    contract::{CheckReport, ExportReport, Journal},
};

/// Opens `sqlite:PATH`, and a bare path.
#[derive(Clone, Copy, Debug)]
pub struct SqliteBackend;

/// The path in a URL. `sqlite:///a/b` and `sqlite:/a/b` both name `/a/b`.
fn path_of_url(url: &str) -> &Path {
    let path = url.strip_prefix("sqlite:").unwrap_or(url);
    Path::new(path.strip_prefix("//").filter(|_| path.len() < url.len()).unwrap_or(path))
}

#[async_trait]
impl Backend for SqliteBackend {
    fn accepts(&self, url: &str) -> bool {
        let is_ours =
            url.starts_with("sqlite:") || !(url.contains("://") || url.starts_with("memory:"));
        is_ours && !path_of_url(url).as_os_str().is_empty()
    }

    fn kind(&self) -> &'static str {
        "sqlite"
    }

    fn url_form(&self) -> &'static str {
        "sqlite:PATH"
    }

    async fn open(
        &self,
        url: &str,
        access: Access,
        world: World,
        limits: Limits,
    ) -> Result<Arc<dyn Journal>, Fault> {
        let (path, options) =
            (path_of_url(url), SqliteOptions { limits, ..SqliteOptions::default() });
        let journal = match access {
            Access::Create => Sqlite::open(path, world, options).await,
            Access::Existing => Sqlite::open_existing(path, world, options).await,
            Access::ReadOnly => Sqlite::open_read_only(path, world, options).await,
        };
        Ok(Arc::new(journal?))
    }

    async fn inspect(&self, url: &str) -> Result<Inspection, Fault> {
        let (file, content) = Sqlite::inspect(path_of_url(url)).await?;
        Ok(Inspection { file: Some(file), exists: content == PathContent::Journal })
    }

    async fn check(&self, url: &str, progress: Progress) -> Result<CheckReport, Fault> {
        Sqlite::check_with_progress(path_of_url(url), progress).await
    }

    async fn salvage(&self, url: &str, out: OutputFactory) -> Result<ExportReport, Fault> {
        Sqlite::export_salvage(path_of_url(url), out).await
    }
}

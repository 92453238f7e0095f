//! Opens a journal from a URL: `sqlite:PATH` or a bare path for a file, `memory:` for memory.
//!
//! A [`Backend`] of another crate joins with [`Backends::with`].

use std::{fmt, io::Write, path::PathBuf, sync::Arc};

use async_trait::async_trait;
use budao_core::{
    fault::{Fact, Fault, Kind, Operation},
    limits::Limits,
    world::World,
};

use crate::{
    contract::{CheckReport, ExportReport, Journal, unsupported},
    memory::MemoryBackend,
    sqlite::SqliteBackend,
};

/// The access that [`Backend::open`] requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// For writing. A journal that does not exist is created.
    #[default]
    Create,
    /// For writing. A journal that does not exist is a fault.
    Existing,
    /// For reading. Nothing is changed and no schema is migrated.
    ReadOnly,
}

/// The file of a URL, and whether a journal exists there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inspection {
    /// The file, with links resolved; `None` for a journal without a file of its own on this machine.
    pub file: Option<PathBuf>,
    /// Whether there is a journal already.
    pub exists: bool,
}

/// Receives the progress of a check: the amount done and the whole amount.
pub type Progress = Box<dyn Fn(u64, u64) + Send + Sync>;

/// Creates the output of a salvage, once the journal was found.
pub type OutputFactory = Box<dyn FnOnce() -> Result<Box<dyn Write + Send>, Fault> + Send>;

/// A kind of journal: opens one, and checks or salvages one that may not open.
#[async_trait]
pub trait Backend: Send + Sync + fmt::Debug {
    /// Whether the URL names a journal of this kind.
    fn accepts(&self, url: &str) -> bool;

    /// The name of the kind, for people: `sqlite`.
    fn kind(&self) -> &'static str;

    /// The form of the URLs, for people: `sqlite:PATH`.
    fn url_form(&self) -> &'static str;

    /// Opens the journal.
    ///
    /// # Errors
    /// `no_journal`, `not_a_journal`, `journal_of_other_user`, `journal_damaged`, `journal_newer`, `journal_outdated`,
    /// `journal_read_only`, `journal_busy` and others, depending on the backend.
    async fn open(
        &self,
        url: &str,
        access: Access,
        world: World,
        limits: Limits,
    ) -> Result<Arc<dyn Journal>, Fault>;

    /// Resolves a URL to its file and tells whether a journal exists there. Changes nothing.
    ///
    /// # Errors
    /// When no journal can be written there.
    async fn inspect(&self, url: &str) -> Result<Inspection, Fault>;

    /// Verifies all data of a journal, also while it is in use. Changes nothing.
    ///
    /// # Errors
    /// Only when the journal cannot be read at all. Damage is a finding, not an error. `journal_unsupported` if the
    /// backend has its own tools for it.
    async fn check(&self, _url: &str, _progress: Progress) -> Result<CheckReport, Fault> {
        Err(unsupported(Operation::CheckJournal, self.kind()))
    }

    /// Writes the intact records of a damaged journal as JSON lines.
    ///
    /// # Errors
    /// When the journal cannot be read at all, or writing fails; `journal_unsupported`.
    async fn salvage(&self, _url: &str, _out: OutputFactory) -> Result<ExportReport, Fault> {
        Err(unsupported(Operation::BackUpJournal, self.kind()))
    }
}

/// The kinds of journal that a program can open.
#[derive(Clone, Debug)]
pub struct Backends(Vec<Arc<dyn Backend>>);

impl Backends {
    /// The backends that need no service: memory and SQLite.
    #[must_use]
    pub fn embedded() -> Self {
        Self(vec![Arc::new(MemoryBackend), Arc::new(SqliteBackend)])
    }

    /// Adds a kind of journal. Its URLs come before those of the others.
    #[must_use]
    pub fn with(mut self, backend: Arc<dyn Backend>) -> Self {
        self.0.insert(0, backend);
        self
    }

    /// The backend of a URL.
    ///
    /// # Errors
    /// `configuration_wrong` for a scheme that no backend has. The fault names the scheme alone, since a URL may hold a
    /// password.
    pub fn of(&self, url: &str) -> Result<&dyn Backend, Fault> {
        let backend = self.0.iter().find(|backend| backend.accepts(url));
        backend.map(|backend| &**backend).ok_or_else(|| {
            let forms: Vec<&str> = self.0.iter().map(|backend| backend.url_form()).collect();
            let scheme = url.split_once(':').map_or("", |(scheme, _)| scheme);
            Fault::new(Kind::ConfigurationWrong, Operation::OpenJournal)
                .with(Fact::ConfigKey, "--journal")
                .with(Fact::Expected, format!("a path, {}", forms.join(" or ")))
                .with(Fact::Received, format!("{}:", scheme.chars().take(40).collect::<String>()))
        })
    }

    /// Opens the journal of a URL with default limits.
    ///
    /// # Errors
    /// Those of [`Backends::of`] and [`Backend::open`].
    pub async fn open(
        &self,
        url: &str,
        access: Access,
        world: World,
    ) -> Result<Arc<dyn Journal>, Fault> {
        self.of(url)?.open(url, access, world, Limits::default()).await
    }
}

/// Opens the journal of a URL for writing, and creates it if it does not exist.
///
/// # Errors
/// Those of [`Backends::of`] and [`Backend::open`].
pub async fn open(url: &str, world: World) -> Result<Arc<dyn Journal>, Fault> {
    Backends::embedded().open(url, Access::Create, world).await
}

//! Maintenance for operators: check a file, copy it while it is in use, report its size.

use std::{
    fs::{File, OpenOptions},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use budao_core::fault::{Fact, Fault, Kind, Operation};
use rusqlite::Connection;
use rustix::{
    fs::{CWD, RenameFlags, renameat_with},
    io::Errno,
};

use super::{
    Sqlite, SqliteOptions, check, connection_options,
    errors::{SqliteError, io_fault},
    inspect::{inspect, regular_file},
    rows::read_position,
    run_blocking,
    schema::Meta,
    transfer,
    watermark::with_suffix,
};
use crate::contract::{CheckReport, ExportReport, JournalStats, partial_copy};

impl Sqlite {
    /// Verifies everything in the file at `path`, also while it is in use. Changes nothing.
    ///
    /// # Errors
    /// Only when the file is not a journal, is of a newer version, or stays locked. Damage is a finding, not an error.
    pub async fn check(path: &Path) -> Result<CheckReport, Fault> {
        Self::check_with_progress(path, |_, _| {}).await
    }

    /// Like [`Sqlite::check`]; calls `progress` with the number of the current batch and of the last one.
    ///
    /// # Errors
    /// Those of [`Sqlite::check`].
    pub async fn check_with_progress(
        path: &Path,
        progress: impl Fn(u64, u64) + Send + 'static,
    ) -> Result<CheckReport, Fault> {
        let path = path.to_owned();
        let setup = connection_options(&SqliteOptions::default());
        run_blocking(Operation::CheckJournal, move || check::check(&path, setup, &progress)).await
    }

    /// Writes the records salvaged from a damaged file as JSON lines. SQLite need not be able to open the file. `out`
    /// is called only after the file was found.
    ///
    /// # Errors
    /// When the file cannot be read at all, or writing fails.
    pub async fn export_salvage(
        path: &Path,
        out: impl FnOnce() -> Result<Box<dyn std::io::Write + Send>, Fault> + Send + 'static,
    ) -> Result<ExportReport, Fault> {
        let path = path.to_owned();
        run_blocking(Operation::BackUpJournal, move || {
            let path = regular_file(&path, Operation::BackUpJournal)?;
            transfer::export_salvage(&path, &mut *out()?)
        })
        .await
    }
}

/// Counts the rows and measures the files.
pub(super) fn stats(connection: &Connection, path: &Path) -> Result<JournalStats, SqliteError> {
    let number = |sql: &str| connection.query_row(sql, [], |row| read_position(row, 0));
    let meta = Meta::load_required(connection, path)?;
    let size = |path: PathBuf| std::fs::metadata(path).map_or(0, |found| found.len());
    let last = number("SELECT coalesce(max(batch_id), 0) FROM batch")?;
    Ok(JournalStats {
        file_bytes: size(path.to_owned()),
        wal_bytes: size(with_suffix(path, "-wal")),
        free_bytes: number("PRAGMA freelist_count")? * number("PRAGMA page_size")?,
        sessions: number("SELECT count(*) FROM session")?,
        batches: number("SELECT count(*) FROM batch")?,
        records: number("SELECT coalesce(sum(count), 0) FROM batch")?,
        record_bytes: number("SELECT coalesce(sum(length(body)), 0) FROM batch")?,
        commands: number("SELECT count(*) FROM inbox")?,
        pending_commands: number("SELECT count(*) FROM inbox WHERE answer IS NULL")?,
        snapshots: number("SELECT count(*) FROM snapshot")?,
        blobs: number("SELECT count(*) FROM blob")?,
        blob_bytes: number("SELECT coalesce(sum(length(body)), 0) FROM blob")?,
        views_behind: last.saturating_sub(meta.viewed.cast_unsigned()),
        lost: meta.lost,
    })
}

/// Copies to a temporary name beside the target, then renames: the target is complete or absent.
pub(super) fn back_up(
    path: &Path,
    target: &Path,
    setup: super::schema::ConnectionOptions,
) -> Result<(), SqliteError> {
    let io = |error: std::io::Error| target_fault(&error, target);
    if std::fs::symlink_metadata(target).is_ok() {
        return Err(io(std::io::ErrorKind::AlreadyExists.into()).into());
    }
    let partial = partial_copy(target);
    remove_old_partial(&partial)?;
    let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&partial);
    drop(made.map_err(|error| target_fault(&error, &partial))?);
    let copied = copy_database(path, &partial, setup).and_then(|()| {
        File::open(&partial).and_then(|file| file.sync_all()).map_err(io)?;
        rename_without_replacing(&partial, target).map_err(io)?;
        let parent = target.parent().filter(|parent| !parent.as_os_str().is_empty());
        let directory = File::open(parent.unwrap_or(Path::new("."))).map_err(io)?;
        directory.sync_all().map_err(io)?;
        Ok(())
    });
    if copied.is_err() {
        let _ = std::fs::remove_file(&partial);
    }
    copied
}

/// Removes a partial copy that an earlier backup left. Any other file stays unchanged.
fn remove_old_partial(partial: &Path) -> Result<(), Fault> {
    if std::fs::symlink_metadata(partial).is_err() {
        return Ok(());
    }
    let is_ours = inspect(partial, Operation::BackUpJournal).is_ok_and(|found| {
        found.path == partial && found.require_owner(Operation::BackUpJournal).is_ok()
    });
    if !is_ours {
        return Err(target_fault(&std::io::ErrorKind::AlreadyExists.into(), partial));
    }
    std::fs::remove_file(partial).map_err(|error| target_fault(&error, partial))
}

/// Renames without replacing an existing file.
fn rename_without_replacing(from: &Path, to: &Path) -> std::io::Result<()> {
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // The file system does not support an atomic rename without replacement.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
            if std::fs::symlink_metadata(to).is_ok() {
                return Err(std::io::ErrorKind::AlreadyExists.into());
            }
            std::fs::rename(from, to)
        }
        done => Ok(done?),
    }
}

/// The fault for a target that cannot be created. The journal itself is intact.
fn target_fault(error: &std::io::Error, target: &Path) -> Fault {
    use std::io::ErrorKind;
    let kind = match error.kind() {
        ErrorKind::NotFound => Kind::FileNotFound,
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => Kind::FilePermission,
        _ => return io_fault(error, target, Operation::BackUpJournal),
    };
    let path = match (kind, target.parent().filter(|parent| !parent.as_os_str().is_empty())) {
        (Kind::FileNotFound, Some(parent)) => parent,
        _ => target,
    };
    Fault::new(kind, Operation::BackUpJournal)
        .with(Fact::Path, path.display().to_string())
        .caused_by(error)
}

fn copy_database(
    path: &Path,
    partial: &Path,
    setup: super::schema::ConnectionOptions,
) -> Result<(), SqliteError> {
    let source = check::connect(path, setup)?;
    // VACUUM writes only to the copy, but `query_only` forbids it anyway.
    source.pragma_update(None, "query_only", false)?;
    source.execute("VACUUM INTO ?1", [partial.to_string_lossy()])?;
    let copy = Connection::open(partial)?;
    let meta = Meta::load_required(&copy, partial)?;
    Meta { is_copy: true, ..meta }.store(&copy)?;
    copy.close().map_err(|(_, error)| error)?;
    Ok(())
}

//! Returns the pages of removed records to the file system, a few at a time, so that appends need not wait.
//!
//! The file itself gets smaller at the next checkpoint.

use super::{
    errors::SqliteError,
    rows::read_position,
    write_request::{FreeSpace, WriteReply},
    writer_connection::WriterConnection,
};
use crate::contract::AppendError;

/// The most pages that one transaction returns.
const PAGES_PER_TRANSACTION: u64 = 256;
/// Retention leaves one free page for this many pages in use: new records need no growth of the file.
const USED_PAGES_PER_FREE_PAGE: u64 = 5;
/// Write-ahead log frames for each returned page: the page that takes its place, and the pages that point to it.
const WAL_FRAMES_PER_PAGE: u64 = 3;

impl WriterConnection {
    /// Returns up to [`PAGES_PER_TRANSACTION`] free pages. Replies whether more are left to return.
    pub(super) fn return_free_pages(
        &mut self,
        keep: FreeSpace,
    ) -> Result<Result<WriteReply, AppendError>, SqliteError> {
        let connection = self.connection()?;
        let number = |sql: &str| connection.query_row(sql, [], |row| read_position(row, 0));
        let (pages, free) = (number("PRAGMA page_count")?, number("PRAGMA freelist_count")?);
        let kept = match keep {
            FreeSpace::Reusable => pages.saturating_sub(free) / USED_PAGES_PER_FREE_PAGE,
            FreeSpace::None => 0,
        };
        let surplus = free.saturating_sub(kept);
        if surplus > 0 {
            // SQLite returns one page for each row.
            let sql = format!("PRAGMA incremental_vacuum({})", surplus.min(PAGES_PER_TRANSACTION));
            let mut statement = connection.prepare(&sql)?;
            let mut rows = statement.query([])?;
            while rows.next()?.is_some() {}
        }
        let left = number("PRAGMA freelist_count")?;
        self.frames += WAL_FRAMES_PER_PAGE * free.saturating_sub(left);
        Ok(Ok(WriteReply::More(left > kept && left < free)))
    }
}

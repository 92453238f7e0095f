//! The log file of the editor bridge: one line at the start and one at the end of every prompt.
//!
//! Besides it, `BUDAO_LOG` sends lines to stderr as everywhere else.

use std::{
    fs::{File, OpenOptions},
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use tracing_subscriber::{EnvFilter, Layer, layer::SubscriberExt, util::SubscriberInitExt};

use crate::wiring;

/// A file above this makes room for a new one when the program starts.
const BYTES: u64 = 8 * 1024 * 1024;

/// Where it is; none if there is no home directory.
pub(super) fn path() -> Option<PathBuf> {
    wiring::state_directory().map(|directory| directory.join("acp.log"))
}

/// Log lines go there from now on.
pub(super) fn start() {
    let stderr = EnvFilter::try_from_env("BUDAO_LOG").unwrap_or_else(|_| EnvFilter::new("off"));
    let stderr = tracing_subscriber::fmt::layer().with_writer(io::stderr).with_filter(stderr);
    let file = path().and_then(|path| open(&path).ok()).map(|file| {
        tracing_subscriber::fmt::layer()
            .with_ansi(false)
            .with_writer(Arc::new(file))
            .with_filter(EnvFilter::new("budao=info,budao_acp=info,warn"))
    });
    let _ = tracing_subscriber::registry().with(stderr).with(file).try_init();
}

fn open(path: &Path) -> io::Result<File> {
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory)?;
    }
    if std::fs::metadata(path).is_ok_and(|file| file.len() > BYTES) {
        std::fs::rename(path, path.with_extension("log.1"))?;
    }
    OpenOptions::new().create(true).append(true).open(path)
}

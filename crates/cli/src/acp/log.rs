//! The log file of the editor bridge: one line at the start and one at the end of every prompt.
//!
//! What goes into it is scrubbed and each line is bounded: libraries may log what an editor sent, which may be
//! anything. Besides it, `BUDAO_LOG` sends lines to stderr as everywhere else.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
    sync::Arc,
};

use budao_core::scrub::Scrubber;
use tracing_subscriber::{EnvFilter, Layer, layer::SubscriberExt, util::SubscriberInitExt};

use crate::wiring;

/// A file above this makes room for a new one when the program starts.
const BYTES: u64 = 8 * 1024 * 1024;

/// Bytes of one line; what is longer is cut.
const LINE_BYTES: usize = 4 * 1024;

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
            .with_writer(Arc::new(Log { file, scrubber: Scrubber::with_secrets(wiring::keys().1) }))
            .with_filter(EnvFilter::new("budao=info,budao_acp=info,warn"))
    });
    let _ = tracing_subscriber::registry().with(stderr).with(file).try_init();
}

/// A file that takes lines, each scrubbed and short enough.
struct Log {
    file: File,
    scrubber: Scrubber,
}

impl Write for &Log {
    /// A line comes in one piece.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let kept = if line.len() > LINE_BYTES { &line[..LINE_BYTES] } else { line };
        let text = String::from_utf8_lossy(kept);
        let mut text = self.scrubber.scrub(&text).into_owned();
        if kept.len() < line.len() {
            text.push_str(&format!("… ({} bytes)\n", line.len()));
        }
        (&self.file).write_all(text.as_bytes())?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        (&self.file).flush()
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_scrubbed_and_bounded() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("acp.log");
        let log = Log { file: open(&path).unwrap(), scrubber: Scrubber::new() };
        let secret = format!("sk-ant-api03-{}", "Ab3dEf6hIj".repeat(9));
        writeln!(&mut &log, "short and clean").unwrap();
        (&log).write_all(format!("key {secret} {}\n", "x".repeat(1_000_000)).as_bytes()).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("short and clean\n"), "{text}");
        assert!(!text.contains(&secret), "{text}");
        assert!(text.len() < 2 * LINE_BYTES, "{}", text.len());
        assert!(text.ends_with("bytes)\n"), "{text}");
    }
}

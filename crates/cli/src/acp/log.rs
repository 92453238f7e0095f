//! The log file of the editor bridge: one line at the start and one at the end of every prompt.
//!
//! Every line is scrubbed and bounded, because libraries may log whatever an editor sent. `BUDAO_LOG` and `[log]
//! level` also send lines to stderr, as in every subcommand. `[log] file` replaces both.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
    sync::Arc,
};

use budao_core::Fault;
use budao_scrub::Scrubber;
use tracing_subscriber::{
    EnvFilter, Layer as _, fmt::MakeWriter, layer::SubscriberExt as _, util::SubscriberInitExt as _,
};

use crate::{log::Log, setup};

/// Default filter of the log file.
const USUAL: &str = "budao=info,budao_acp=info,warn";

/// Size in bytes above which the next start renames the file to `acp.log.1` and begins a new one.
const BYTES: u64 = 8 * 1024 * 1024;

/// Maximum bytes of one line; longer lines are cut.
const LINE_BYTES: usize = 4 * 1024;

/// Path of the log file, `acp.log` in the state directory; absent if there is no home directory.
pub(super) fn path() -> Option<PathBuf> {
    setup::state_directory().map(|directory| directory.join("acp.log"))
}

/// Installs the global log subscriber: the log file and stderr, or the file named in the configuration.
///
/// # Errors
/// `configuration_wrong` if a level cannot be parsed or the configured file cannot be created.
pub(super) fn start(log: &Log) -> Result<(), Fault> {
    let scrubber = Scrubber::with_secrets(setup::keys().1);
    let mut layers = Vec::new();
    match &log.file {
        Some(path) => {
            let make = ScrubbedMakeWriter { make: log.appender(path)?, scrubber };
            layers.push(log.layer(make, false).with_filter(log.filter(USUAL)?).boxed());
        }
        None => {
            let colours = console::colors_enabled_stderr();
            let stderr = log.layer(io::stderr, colours).with_filter(log.filter("off")?);
            layers.push(stderr.boxed());
            if let Some(file) = path().and_then(|path| open(&path).ok()) {
                let make = ScrubbedMakeWriter { make: Arc::new(file), scrubber };
                layers.push(log.layer(make, false).with_filter(EnvFilter::new(USUAL)).boxed());
            }
        }
    }
    // This fails only if a subscriber is installed already, which then stays.
    let _ = tracing_subscriber::registry().with(layers).try_init();
    Ok(())
}

/// Creates writers that scrub each line and cut it to [`LINE_BYTES`].
struct ScrubbedMakeWriter<M> {
    make: M,
    scrubber: Scrubber,
}

impl<'w, M: MakeWriter<'w>> MakeWriter<'w> for ScrubbedMakeWriter<M> {
    type Writer = ScrubbedWriter<'w, M::Writer>;

    fn make_writer(&'w self) -> Self::Writer {
        ScrubbedWriter { writer: self.make.make_writer(), scrubber: &self.scrubber }
    }
}

/// Writes one line, scrubbed and cut.
struct ScrubbedWriter<'s, W> {
    writer: W,
    scrubber: &'s Scrubber,
}

impl<W: Write> Write for ScrubbedWriter<'_, W> {
    /// `tracing_subscriber` passes each line in one call, so a secret is never split over two.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let kept = if line.len() > LINE_BYTES { &line[..LINE_BYTES] } else { line };
        let text = String::from_utf8_lossy(kept);
        let mut text = self.scrubber.scrub(&text).into_owned();
        if kept.len() < line.len() {
            text.push_str(&format!("… ({} bytes)\n", line.len()));
        }
        self.writer.write_all(text.as_bytes())?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
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
        let make =
            ScrubbedMakeWriter { make: Arc::new(open(&path).unwrap()), scrubber: Scrubber::new() };
        let secret = format!("sk-ant-api03-{}", "Ab3dEf6hIj".repeat(9));
        make.make_writer().write_all(b"short and clean\n").unwrap();
        make.make_writer()
            .write_all(format!("key {secret} {}\n", "x".repeat(1_000_000)).as_bytes())
            .unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("short and clean\n"), "{text}");
        assert!(!text.contains(&secret), "{text}");
        assert!(text.len() < 2 * LINE_BYTES, "{}", text.len());
        assert!(text.ends_with("bytes)\n"), "{text}");
    }
}

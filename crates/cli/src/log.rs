//! Log configuration: format, level, and stderr or rotated files.

use std::{
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
    time::SystemTime,
};

use budao_core::{
    Fault, Kind,
    fault::{Fact, Operation},
};
use serde::{Deserialize, Serialize};
use tracing_appender::rolling::{RollingFileAppender, RollingWriter, Rotation};
use tracing_subscriber::{
    EnvFilter, Layer, Registry, fmt::MakeWriter, layer::SubscriberExt as _,
    util::SubscriberInitExt as _,
};

/// The `[log]` table of the configuration.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Log {
    /// Filter directives: `off`, `error`, `warn`, `info`, `debug`, `trace`, or `budao_serve=debug` for one module,
    /// separated by commas. Each subcommand has its own default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) level: Option<String>,
    /// Text for people or one JSON object per line.
    pub(crate) format: Format,
    /// A file instead of stderr; with rotation, the date is appended to its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) file: Option<PathBuf>,
    /// Interval after which a new file is started.
    pub(crate) rotation: LogRotation,
    /// Number of files kept, at least 1.
    pub(crate) keep: usize,
}

impl Default for Log {
    fn default() -> Self {
        Self {
            level: None,
            format: Format::Human,
            file: None,
            rotation: LogRotation::Daily,
            keep: 14,
        }
    }
}

/// The format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Format {
    Human,
    Json,
}

/// Interval after which a new log file is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LogRotation {
    Hourly,
    Daily,
    Never,
}

impl Log {
    /// Installs the global log subscriber. `usual` is the filter if the configuration has no level.
    ///
    /// # Errors
    /// `configuration_wrong` if a level cannot be parsed or the file cannot be created.
    pub(crate) fn start(&self, usual: &str) -> Result<(), Fault> {
        let filter = self.filter(usual)?;
        let layer = match &self.file {
            Some(path) => self.layer(self.appender(path)?, false),
            None => self.layer(std::io::stderr, console::colors_enabled_stderr()),
        };
        // This fails only if a subscriber is installed already, which then stays.
        let _ = tracing_subscriber::registry().with(layer.with_filter(filter)).try_init();
        Ok(())
    }

    /// The configured filter, else `usual`. Fails if it cannot be parsed.
    pub(crate) fn filter(&self, usual: &str) -> Result<EnvFilter, Fault> {
        let level = self.level.as_deref().unwrap_or(usual);
        EnvFilter::try_new(level).map_err(|error| {
            wrong("log.level", "off, error, warn, info, debug, trace, or module=level", level)
                .caused_by(&error)
        })
    }

    /// A layer that writes lines in the configured format.
    pub(crate) fn layer<W>(
        &self,
        writer: W,
        colours: bool,
    ) -> Box<dyn Layer<Registry> + Send + Sync>
    where
        W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
    {
        let layer = tracing_subscriber::fmt::layer().with_ansi(colours).with_writer(writer);
        match self.format {
            Format::Human => layer.boxed(),
            Format::Json => layer.json().flatten_event(true).with_span_list(false).boxed(),
        }
    }

    /// Opens the rotated log files. Fails if the file cannot be created.
    pub(crate) fn appender(&self, path: &Path) -> Result<Appender, Fault> {
        let location = path.display().to_string();
        let unusable = || wrong("log.file", "a file that can be created", &location);
        let name = path.file_name().and_then(|name| name.to_str()).ok_or_else(unusable)?;
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let rotation = match self.rotation {
            LogRotation::Hourly => Rotation::HOURLY,
            LogRotation::Daily => Rotation::DAILY,
            LogRotation::Never => Rotation::NEVER,
        };
        let directory = directory.unwrap_or_else(|| Path::new("."));
        let files = RollingFileAppender::builder()
            .rotation(rotation)
            .filename_prefix(name)
            .build(directory)
            .map_err(|error| unusable().caused_by(&error))?;
        let old = OldFiles {
            directory: directory.to_owned(),
            name: name.to_owned(),
            rotation: self.rotation,
            keep: self.keep.max(1),
        };
        Ok(Appender { files, old, hour: AtomicU64::new(0) })
    }
}

/// Rotated log files, of which the newest are kept.
///
/// The library's own cleanup would remove every file with the same prefix; this one removes only log files.
pub(crate) struct Appender {
    files: RollingFileAppender,
    old: OldFiles,
    /// Hour of the last cleanup, in hours since 1970.
    hour: AtomicU64,
}

impl<'w> MakeWriter<'w> for Appender {
    type Writer = RollingWriter<'w>;

    fn make_writer(&'w self) -> Self::Writer {
        let writer = self.files.make_writer();
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let hour = now.as_secs() / 3600;
        if self.hour.swap(hour, Ordering::Relaxed) != hour {
            self.old.remove();
        }
        writer
    }
}

/// Finds and removes old log files of one name.
struct OldFiles {
    directory: PathBuf,
    name: String,
    rotation: LogRotation,
    keep: usize,
}

impl OldFiles {
    /// Removes all but the newest `keep` files. A file that cannot be removed is tried again an hour later.
    fn remove(&self) {
        let Ok(entries) = std::fs::read_dir(&self.directory) else { return };
        let mut names: Vec<String> = entries
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .filter(|name| self.is_log_file(name))
            .collect();
        // Dates in this format sort as text.
        names.sort_unstable();
        for name in names.iter().rev().skip(self.keep) {
            let _ = std::fs::remove_file(self.directory.join(name));
        }
    }

    /// True if the name is the log's name followed by a date in the appender's format.
    fn is_log_file(&self, name: &str) -> bool {
        let date = name.strip_prefix(&self.name).and_then(|rest| rest.strip_prefix('.'));
        let shape = match self.rotation {
            LogRotation::Hourly => "0000-00-00-00",
            LogRotation::Daily => "0000-00-00",
            LogRotation::Never => return false,
        };
        date.is_some_and(|date| {
            date.len() == shape.len()
                && date.bytes().zip(shape.bytes()).all(|(found, shape)| match shape {
                    b'0' => found.is_ascii_digit(),
                    _ => found == shape,
                })
        })
    }
}

fn wrong(key: &str, expected: &str, received: &str) -> Fault {
    Fault::new(Kind::ConfigurationWrong, Operation::LoadConfig)
        .with(Fact::ConfigKey, key.to_owned())
        .with(Fact::Expected, expected.to_owned())
        .with(Fact::Received, received.chars().take(80).collect::<String>())
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    /// File names in the directory after one line was logged there.
    fn names_after(log: &Log, directory: &Path) -> Vec<String> {
        let appender = log.appender(&directory.join("app")).unwrap();
        appender.make_writer().write_all(b"a line\n").unwrap();
        let mut names: Vec<String> = std::fs::read_dir(directory)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn only_old_log_files_are_removed_however_other_files_are_named() {
        let directory = tempfile::tempdir().unwrap();
        let others = [
            "app",
            "app.conf",
            "app.d",
            "app.2020-01-01.gz",
            "app.2020-01-01-07",
            "application.db",
        ];
        let old = ["app.2020-01-01", "app.2020-01-02", "app.2020-01-03"];
        for name in others.iter().chain(&old) {
            std::fs::write(directory.path().join(name), "kept").unwrap();
        }
        let names = names_after(&Log { keep: 2, ..Log::default() }, directory.path());
        for name in others {
            assert!(names.iter().any(|found| found == name), "{name} is gone: {names:?}");
        }
        assert_eq!(names.len(), others.len() + 2, "{names:?}");
        assert!(names.iter().any(|found| found == "app.2020-01-03"), "{names:?}");
    }

    #[test]
    fn a_log_file_that_is_never_changed_is_written_on() {
        let directory = tempfile::tempdir().unwrap();
        let log = Log { keep: 1, rotation: LogRotation::Never, ..Log::default() };
        for _ in 0..2 {
            assert_eq!(names_after(&log, directory.path()), ["app"]);
        }
        let lines = std::fs::read_to_string(directory.path().join("app")).unwrap();
        assert_eq!(lines.lines().count(), 2);
    }
}

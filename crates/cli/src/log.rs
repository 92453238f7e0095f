//! Log lines: for people or for machines, to stderr or to files that are changed by the day.

use std::path::PathBuf;

use budao_core::{
    Fault, Kind,
    fault::{Fact, Operation},
};
use serde::{Deserialize, Serialize};
use tracing_appender::rolling::{RollingFileAppender, Rotation};
use tracing_subscriber::{
    EnvFilter, Layer, Registry, layer::SubscriberExt as _, util::SubscriberInitExt as _,
};

/// What is logged, how, and where to.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Log {
    /// What is worth a line: `off`, `error`, `warn`, `info`, `debug`, `trace`, and for single modules
    /// `budao_serve=debug`, with commas between.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) level: Option<String>,
    /// For people or for machines.
    pub(crate) format: Format,
    /// A file instead of stderr; the date is added to its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) file: Option<PathBuf>,
    /// When a new file is begun.
    pub(crate) rotation: Turn,
    /// How many files are kept.
    pub(crate) keep: usize,
}

impl Default for Log {
    fn default() -> Self {
        Self { level: None, format: Format::Human, file: None, rotation: Turn::Daily, keep: 14 }
    }
}

/// Who reads the lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Format {
    Human,
    Json,
}

/// When a new file is begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Turn {
    Hourly,
    Daily,
    Never,
}

impl Log {
    /// Lines are written from now on. `usual` is what is worth a line if nobody says so.
    ///
    /// # Errors
    /// `configuration_wrong` when a level is no level, or the file cannot be made.
    pub(crate) fn start(&self, usual: &str) -> Result<(), Fault> {
        let filter = self.filter(usual)?;
        let layer = match &self.file {
            Some(path) => self.layer(self.appender(path)?, false),
            None => self.layer(std::io::stderr, console::colors_enabled_stderr()),
        };
        // It fails only if lines go somewhere already.
        let _ = tracing_subscriber::registry().with(layer.with_filter(filter)).try_init();
        Ok(())
    }

    /// What is worth a line; `usual` if nobody says so.
    pub(crate) fn filter(&self, usual: &str) -> Result<EnvFilter, Fault> {
        let level = self.level.as_deref().unwrap_or(usual);
        EnvFilter::try_new(level).map_err(|error| {
            wrong("log.level", "off, error, warn, info, debug, trace, or module=level", level)
                .caused_by(&error)
        })
    }

    /// Lines of the format that was asked for.
    pub(crate) fn layer<W>(
        &self,
        writer: W,
        colours: bool,
    ) -> Box<dyn Layer<Registry> + Send + Sync>
    where
        W: for<'w> tracing_subscriber::fmt::MakeWriter<'w> + Send + Sync + 'static,
    {
        let layer = tracing_subscriber::fmt::layer().with_ansi(colours).with_writer(writer);
        match self.format {
            Format::Human => layer.boxed(),
            Format::Json => layer.json().flatten_event(true).with_span_list(false).boxed(),
        }
    }

    /// The files that take lines, one after the other.
    pub(crate) fn appender(&self, path: &std::path::Path) -> Result<RollingFileAppender, Fault> {
        let place = path.display().to_string();
        let unusable = || wrong("log.file", "a file that can be made", &place);
        let name = path.file_name().and_then(|name| name.to_str()).ok_or_else(unusable)?;
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let rotation = match self.rotation {
            Turn::Hourly => Rotation::HOURLY,
            Turn::Daily => Rotation::DAILY,
            Turn::Never => Rotation::NEVER,
        };
        RollingFileAppender::builder()
            .rotation(rotation)
            .filename_prefix(name)
            .max_log_files(self.keep.max(1))
            .build(directory.unwrap_or_else(|| std::path::Path::new(".")))
            .map_err(|error| unusable().caused_by(&error))
    }
}

fn wrong(key: &str, expected: &str, received: &str) -> Fault {
    Fault::new(Kind::ConfigurationWrong, Operation::LoadConfig)
        .with(Fact::ConfigKey, key.to_owned())
        .with(Fact::Expected, expected.to_owned())
        .with(Fact::Received, received.chars().take(80).collect::<String>())
}

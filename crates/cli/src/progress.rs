//! Bars for what takes long. They stand on stderr, and only when that is a terminal.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// Time between two looks at how far something is.
pub(crate) const ROUND: Duration = Duration::from_millis(100);

/// For a number of parts that is told later.
pub(crate) fn parts(what: &'static str) -> ProgressBar {
    styled(ProgressBar::new(0), what, "{msg} {wide_bar} {percent}% {elapsed}")
}

/// For about this many bytes.
pub(crate) fn bytes(all: u64, what: &'static str) -> ProgressBar {
    styled(ProgressBar::new(all), what, "{msg} {wide_bar} {bytes}/{total_bytes} {elapsed}")
}

fn styled(bar: ProgressBar, what: &'static str, template: &str) -> ProgressBar {
    let style =
        ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    bar.with_style(style.progress_chars("━╸ ")).with_message(what)
}

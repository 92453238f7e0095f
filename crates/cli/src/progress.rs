//! Progress bars for long operations, on stderr and only if that is a terminal.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// Time between two updates of a bar.
pub(crate) const ROUND: Duration = Duration::from_millis(100);

/// A bar in percent; the caller sets its length later.
pub(crate) fn parts(message: &'static str) -> ProgressBar {
    styled(ProgressBar::new(0), message, "{msg} {wide_bar} {percent}% {elapsed}")
}

/// A bar in bytes; `all` may be an estimate.
pub(crate) fn bytes(all: u64, message: &'static str) -> ProgressBar {
    styled(ProgressBar::new(all), message, "{msg} {wide_bar} {bytes}/{total_bytes} {elapsed}")
}

fn styled(bar: ProgressBar, message: &'static str, template: &str) -> ProgressBar {
    let style =
        ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    bar.with_style(style.progress_chars("━╸ ")).with_message(message)
}

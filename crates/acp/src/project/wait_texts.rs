//! Texts about waits: for the gate of a service, and for the next try.

use std::time::Duration;

use budao_core::{Fault, Lang, fault::text};

use crate::texts::{fill, localize};

/// Text for a held request: reason, next try, position.
pub(super) fn hold_text(
    lang: Lang,
    fault: Option<&Fault>,
    wait: Option<Duration>,
    before: u64,
) -> String {
    let subject = fault.map(|fault| text::of_kind(fault.kind(), "title", lang));
    let subject = subject.unwrap_or_else(|| localize(lang, "wait-service-busy").to_owned());
    let seconds =
        wait.map_or_else(|| "none".to_owned(), |wait| format!("{:.0}", wait.as_secs_f64()));
    let args = [("what", subject.into()), ("seconds", seconds.into()), ("before", before.into())];
    fill(lang, "wait-held", &args)
}

/// Text for a scheduled retry: number of the try and wait.
pub(super) fn retry_text(
    lang: Lang,
    subject: &str,
    next: u32,
    max_attempts: u32,
    wait_ms: u64,
) -> String {
    #[expect(clippy::cast_precision_loss, reason = "waits are minutes at most")]
    let seconds = wait_ms as f64 / 1000.0;
    let seconds = format!("{seconds:.1}");
    let args = [
        ("what", subject.into()),
        ("seconds", seconds.into()),
        ("next", next.into()),
        ("max", max_attempts.into()),
    ];
    fill(lang, "wait-retry", &args)
}

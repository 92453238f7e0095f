//! Texts about waits: for the gate of a service, and for the next try.

use std::time::Duration;

use budao_core::{Fault, Lang, fault::text};

/// Why a request waits, when the next one is made and how many come first.
pub(super) fn hold_text(
    lang: Lang,
    fault: Option<&Fault>,
    wait: Option<Duration>,
    before: u64,
) -> String {
    let what = fault.map(|fault| text::of_kind(fault.kind(), "title", lang));
    let busy = if lang == Lang::En { "The service is busy" } else { "服务繁忙" };
    let what = what.unwrap_or_else(|| busy.into());
    let seconds = wait.map(|wait| wait.as_secs_f64());
    match (lang, seconds) {
        (Lang::En, Some(seconds)) => {
            format!("{what}; next try in {seconds:.0} s; requests waiting before yours: {before}")
        }
        (Lang::En, None) => format!("{what}; requests waiting before yours: {before}"),
        (Lang::Zh, Some(seconds)) => {
            format!("{what}；{seconds:.0} 秒后再试；前面还有 {before} 个请求在等待")
        }
        (Lang::Zh, None) => format!("{what}；前面还有 {before} 个请求在等待"),
    }
}

/// Which try follows, and after which time.
pub(super) fn retry_text(
    lang: Lang,
    what: &str,
    next: u32,
    max_attempts: u32,
    wait_ms: u64,
) -> String {
    #[expect(clippy::cast_precision_loss, reason = "waits are minutes at most")]
    let seconds = wait_ms as f64 / 1000.0;
    match lang {
        Lang::En => format!("{what}; retrying in {seconds:.1} s (try {next} of {max_attempts})"),
        Lang::Zh => format!("{what}；{seconds:.1} 秒后重试（第 {next} 次，共 {max_attempts} 次）"),
    }
}

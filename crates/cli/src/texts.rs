//! Short texts of the command line in both languages. Texts about faults come from the catalog.

use budao_core::{
    Fault, Lang,
    fault::{Fact, text},
};
use budao_scrub::Scrubber;

/// Lines of a tool server's error output that are shown, and the longest of them.
const LAST_LINES: usize = 5;
const LINE_CHARS: usize = 300;

/// Selects the text for the language.
pub(crate) fn localize<'a>(lang: Lang, en: &'a str, zh: &'a str) -> &'a str {
    match lang {
        Lang::En => en,
        Lang::Zh => zh,
    }
}

/// Adds the address of a network fault to a text: the reader of a terminal operates this program.
pub(crate) fn with_address(text: String, fault: &Fault) -> String {
    let shown = |address: &&str| !text.contains(*address) && !is_hidden(address);
    match fault.address().filter(shown) {
        Some(address) => format!("{text} ({address})"),
        None => text,
    }
}

/// The lines about a tool server that did not start: what happened, and the end of its own error output.
pub(crate) fn missing_server(fault: &Fault, lang: Lang) -> Vec<String> {
    let fault = fault.clone().scrub(&Scrubber::new());
    let mut lines = vec![with_address(text::user_text(&fault, lang), &fault)];
    let tail = fault.detail().text(Fact::StderrTail).unwrap_or_default();
    let tail: Vec<&str> = tail.lines().filter(|line| !line.trim().is_empty()).collect();
    let last = tail.iter().skip(tail.len().saturating_sub(LAST_LINES));
    lines.extend(last.map(|line| line.chars().take(LINE_CHARS).collect()));
    lines
}

/// Whether records hide the address, because remote users read them too: `[private address]`.
pub(crate) fn is_hidden(address: &str) -> bool {
    address.starts_with('[')
}

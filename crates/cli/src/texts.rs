//! The texts of the command line, by id, from `words/{en,zh}.ftl`. Texts about faults come from the catalog.

use budao_core::{
    Fault, Lang,
    fault::{Fact, text},
    texts::{FluentValue, TextCatalog},
};
use budao_scrub::Scrubber;

/// Lines of a tool server's error output that are shown, and the longest of them.
const LAST_LINES: usize = 5;
const LINE_CHARS: usize = 300;

static TEXTS: TextCatalog =
    TextCatalog::new(&[include_str!("../words/en.ftl")], &[include_str!("../words/zh.ftl")]);

/// The text without arguments.
pub(crate) fn localize(lang: Lang, id: &str) -> &'static str {
    TEXTS.text(id, lang)
}

/// The text with these arguments.
pub(crate) fn fill(lang: Lang, id: &str, args: &[(&'static str, FluentValue<'_>)]) -> String {
    TEXTS.fill(id, args, lang)
}

/// A number with its noun, such as `1 step`.
pub(crate) fn count(lang: Lang, id: &str, number: u64) -> String {
    fill(lang, id, &[("count", number.into())])
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_languages_have_the_same_texts() {
        let ids = |lang| TEXTS.ids(lang).collect::<std::collections::BTreeSet<_>>();
        assert_eq!(ids(Lang::En), ids(Lang::Zh));
        for lang in [Lang::En, Lang::Zh] {
            assert!(TEXTS.ids(lang).all(|id| TEXTS.bundle(lang).has_message(id)));
        }
    }
}

//! Short texts of the command line in both languages. Texts about faults come from the catalog.

use budao_core::{Fault, Lang};

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

/// Whether records hide the address, because remote users read them too: `[private address]`.
pub(crate) fn is_hidden(address: &str) -> bool {
    address.starts_with('[')
}

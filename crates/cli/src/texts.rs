//! Short words of the command line in both languages. Sentences about faults come from the catalog.

use budao_core::Lang;

/// The one of two spellings the reader understands.
pub(crate) fn localize<'a>(lang: Lang, en: &'a str, zh: &'a str) -> &'a str {
    match lang {
        Lang::En => en,
        Lang::Zh => zh,
    }
}

//! Short texts for the editor in both languages. Texts about faults come from the catalog.

use budao_core::Lang;

/// Picks the text of the reader's language.
pub(crate) fn localize<'a>(lang: Lang, en: &'a str, zh: &'a str) -> &'a str {
    match lang {
        Lang::En => en,
        Lang::Zh => zh,
    }
}

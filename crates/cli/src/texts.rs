//! Short texts of the command line in both languages. Texts about faults come from the catalog.

use budao_core::Lang;

/// Selects the text for the language.
pub(crate) fn localize<'a>(lang: Lang, en: &'a str, zh: &'a str) -> &'a str {
    match lang {
        Lang::En => en,
        Lang::Zh => zh,
    }
}

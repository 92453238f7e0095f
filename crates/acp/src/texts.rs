//! The texts for the editor, by id, from `words/{en,zh}.ftl`. Texts about faults come from the catalog.

use budao_core::{
    Lang,
    texts::{FluentValue, TextCatalog},
};

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

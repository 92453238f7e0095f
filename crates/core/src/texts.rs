//! Texts for people other than those of faults: Fluent messages, a file for each language.
//!
//! A crate that shows words has one static [`TextCatalog`]. A language is read when its first text is asked for.

use std::{collections::HashMap, sync::OnceLock};

use fluent_bundle::{FluentArgs, FluentResource, concurrent::FluentBundle};

pub use fluent_bundle::FluentValue;

use crate::lang::Lang;

/// The messages of one language.
pub type TextBundle = FluentBundle<FluentResource>;

/// The texts of a crate in both languages.
pub struct TextCatalog {
    sources: [&'static [&'static str]; 2],
    bundles: [OnceLock<TextBundle>; 2],
    /// The messages without arguments, rendered.
    plain: [OnceLock<HashMap<&'static str, String>>; 2],
}

impl TextCatalog {
    /// A catalog of these Fluent sources.
    #[must_use]
    pub const fn new(en: &'static [&'static str], zh: &'static [&'static str]) -> Self {
        Self {
            sources: [en, zh],
            bundles: [const { OnceLock::new() }; 2],
            plain: [const { OnceLock::new() }; 2],
        }
    }

    /// The ids of all messages in a language, in the order of the sources.
    pub fn ids(&self, lang: Lang) -> impl Iterator<Item = &'static str> + use<> {
        let named = |line: &'static str| {
            let (id, _) = line.split_once(" =")?;
            let is_id = id.starts_with(|first: char| first.is_ascii_lowercase());
            (is_id && !id.contains(' ')).then_some(id)
        };
        self.sources[lang as usize].iter().flat_map(|text| text.lines()).filter_map(named)
    }

    /// The messages of a language.
    ///
    /// # Panics
    /// When a source is not valid Fluent; a test of each catalog renders every message.
    #[must_use]
    pub fn bundle(&self, lang: Lang) -> &TextBundle {
        self.bundles[lang as usize].get_or_init(|| load(self.sources[lang as usize], lang))
    }

    /// A text without arguments; `⟨no text⟩` for an unknown id.
    #[must_use]
    pub fn text(&self, id: &str, lang: Lang) -> &str {
        let plain = self.plain[lang as usize].get_or_init(|| self.render_plain(lang));
        plain.get(id).map_or("⟨no text⟩", String::as_str)
    }

    /// A text with arguments; `⟨id⟩` for an unknown id.
    #[must_use]
    pub fn fill(&self, id: &str, args: &[(&'static str, FluentValue<'_>)], lang: Lang) -> String {
        let mut filled = FluentArgs::with_capacity(args.len());
        for (name, value) in args {
            filled.set(*name, value.clone());
        }
        let bundle = self.bundle(lang);
        match bundle.get_message(id).and_then(|message| message.value()) {
            Some(text) => bundle.format_pattern(text, Some(&filled), &mut Vec::new()).into_owned(),
            None => format!("⟨{id}⟩"),
        }
    }

    fn render_plain(&self, lang: Lang) -> HashMap<&'static str, String> {
        let bundle = self.bundle(lang);
        let render = |id| {
            let mut errors = Vec::new();
            let text = bundle.get_message(id)?.value()?;
            let text = bundle.format_pattern(text, None, &mut errors).into_owned();
            errors.is_empty().then_some((id, text))
        };
        self.ids(lang).filter_map(render).collect()
    }
}

impl std::fmt::Debug for TextCatalog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TextCatalog").finish_non_exhaustive()
    }
}

fn load(sources: &[&str], lang: Lang) -> TextBundle {
    let tag = <&str>::from(lang).parse().expect("ours are language tags");
    let mut bundle = TextBundle::new_concurrent(vec![tag]);
    bundle.set_use_isolating(false);
    for source in sources {
        let resource = FluentResource::try_new((*source).to_owned())
            .unwrap_or_else(|(_, errors)| panic!("the texts are checked: {errors:?}"));
        bundle.add_resource(resource).expect("ids of the texts are unique");
    }
    bundle
}

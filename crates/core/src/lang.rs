//! The two languages of texts for people.

use serde::{Deserialize, Serialize};

/// A language with a complete set of texts.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    Hash,
    Serialize,
    Deserialize,
    strum::VariantArray,
    strum::IntoStaticStr,
    strum::Display,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Lang {
    /// English; also the fallback for unknown languages.
    #[default]
    En,
    /// Simplified Chinese, with tag `zh`.
    Zh,
}

impl Lang {
    /// The language that a tag names (`zh-CN`, `zh_Hans`, `en_US.UTF-8`), or `None` if there are no texts for it.
    #[must_use]
    pub fn from_tag(tag: &str) -> Option<Self> {
        let primary = tag.split(['-', '_', '.', '@']).next().unwrap_or_default();
        match primary.to_ascii_lowercase().as_str() {
            "en" | "c" | "posix" => Some(Self::En),
            "zh" | "cmn" => Some(Self::Zh),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_of_every_spelling_are_understood() {
        for (tag, lang) in [
            ("zh", Some(Lang::Zh)),
            ("zh-CN", Some(Lang::Zh)),
            ("zh_Hans_CN.UTF-8", Some(Lang::Zh)),
            ("en_GB", Some(Lang::En)),
            ("C.UTF-8", Some(Lang::En)),
            ("tlh", None),
            ("", None),
        ] {
            assert_eq!(Lang::from_tag(tag), lang, "{tag}");
        }
    }
}

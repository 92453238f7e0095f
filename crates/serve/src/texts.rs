//! Texts for people, in their language: `show_content` and the sentences in `content`.
//!
//! The catalog in core has the texts of faults; this module has all others. They are Fluent messages in
//! `words/{en,zh}.ftl`, and in `words/page.{en,zh}.ftl` for the web page. A test renders each message in both
//! languages.

use std::{borrow::Cow, collections::BTreeMap};

use budao_core::{
    Lang,
    texts::{FluentValue, TextCatalog},
};

/// Maximum length of shown partial text, in characters.
pub const PARTIAL_CHARS: usize = 200;
/// Maximum length of a shown question, summary or title, in characters.
pub const BRIEF_CHARS: usize = 120;

/// Prefix of the message ids for the page's scripts.
const SCRIPTS: &str = "page-js-";
/// Arguments of those messages. Scripts fill them in, so each argument renders as its name in braces.
const SCRIPT_ARGS: [&str; 8] = ["n", "of", "from", "to", "name", "code", "time", "more"];

/// Sessions, then the web page.
static TEXTS: TextCatalog = TextCatalog::new(
    &[include_str!("../words/en.ftl"), include_str!("../words/page.en.ftl")],
    &[include_str!("../words/zh.ftl"), include_str!("../words/page.zh.ftl")],
);

/// Renders a message without arguments. An unknown id renders as `⟨id⟩`.
#[must_use]
pub fn translate(id: &str, lang: Lang) -> String {
    translate_with(id, &[], lang)
}

/// Renders a message with arguments. An unknown id renders as `⟨id⟩`.
#[must_use]
pub fn translate_with(id: &str, args: &[(&'static str, FluentValue<'_>)], lang: Lang) -> String {
    TEXTS.fill(id, args, lang)
}

/// The messages for the page's scripts as a JSON object. Arguments render as `{name}`.
#[must_use]
pub(crate) fn for_scripts(lang: Lang) -> String {
    let args = SCRIPT_ARGS.map(|name| (name, FluentValue::from(format!("{{{name}}}"))));
    let words: BTreeMap<&str, String> = TEXTS
        .ids(lang)
        .filter_map(|id| Some((id.strip_prefix(SCRIPTS)?, translate_with(id, &args, lang))))
        .collect();
    serde_json::to_string(&words).expect("texts always serialise")
}

/// True if the text has more than `chars` code points.
pub(crate) fn is_cut(text: &str, chars: usize) -> bool {
    text.len() > chars && text.char_indices().nth(chars).is_some()
}

/// Truncates to at most `chars` code points, including the ellipsis.
#[must_use]
pub fn cut(text: &str, chars: usize) -> Cow<'_, str> {
    if !is_cut(text, chars) {
        return Cow::Borrowed(text);
    }
    let end = text.char_indices().nth(chars.saturating_sub(1)).map_or(0, |(index, _)| index);
    Cow::Owned(format!("{}…", &text[..end]))
}

/// Counts the words separated by white space.
#[must_use]
pub(crate) fn count_words(text: &str) -> usize {
    if !text.is_ascii() {
        return text.split_whitespace().count();
    }
    // Free of branches and with 8-bit sums, so that the compiler can vectorize it.
    let is_space = |byte: u8| (byte == b' ') | (byte.wrapping_sub(b'\t') < 5);
    let begins = |before: u8, byte: u8| u8::from(is_space(before) & !is_space(byte));
    let Some((&first, rest)) = text.as_bytes().split_first() else { return 0 };
    let pairs = text.as_bytes().chunks(255).zip(rest.chunks(255));
    let begun = pairs.map(|(before, bytes)| {
        let sum: u8 = before.iter().zip(bytes).map(|(before, byte)| begins(*before, *byte)).sum();
        usize::from(sum)
    });
    begun.sum::<usize>() + usize::from(!is_space(first))
}

/// True if the text needs no escaping in JSON.
pub(crate) fn is_plain(text: &[u8]) -> bool {
    let must_be_escaped = |byte: u8| (byte < 0x20) | (byte == b'"') | (byte == b'\\');
    text.chunks(1024).all(|part| !part.iter().fold(false, |any, byte| any | must_be_escaped(*byte)))
}

/// Collapses white space and truncates to [`BRIEF_CHARS`] code points.
#[must_use]
pub fn shorten(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    cut(&line, BRIEF_CHARS).into_owned()
}

/// The arguments of messages about a plan: task count, whether there is a summary, and the summary.
#[must_use]
pub fn plan_args(count: usize, summary: &str) -> [(&'static str, FluentValue<'static>); 3] {
    let summary = shorten(summary);
    let named = usize::from(!summary.is_empty());
    [("count", count.into()), ("named", named.into()), ("summary", summary.into())]
}

/// A wait in seconds, rounded to 0.1 s below 10 s and to 1 s above.
#[must_use]
pub fn seconds(wait: std::time::Duration) -> FluentValue<'static> {
    let seconds = wait.as_secs_f64();
    FluentValue::from(if seconds >= 10.0 {
        seconds.round()
    } else {
        (seconds * 10.0).round() / 10.0
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_in_code_points_with_an_ellipsis_inside_the_limit() {
        assert_eq!(cut("abc", 3), "abc");
        assert_eq!(cut("abcd", 3), "ab…");
        assert_eq!(cut("不倒翁不倒", 5), "不倒翁不倒");
        assert_eq!(cut("不倒翁不倒翁", 5), "不倒翁不…");
        assert_eq!(cut("x", 0), "…");
        assert_eq!(cut("", 0), "");
    }

    #[test]
    fn words_are_counted_by_their_separators() {
        for text in
            ["", " ", "a", " a", "a ", "a b", "\ta\u{b}b\n\nc ", "\u{1c}a", "a\u{a0}b", "不 倒"]
        {
            assert_eq!(count_words(text), text.split_whitespace().count(), "{text:?}");
        }
        for many in [1, 84, 85, 86, 170, 1_000] {
            assert_eq!(count_words(&"ab ".repeat(many)), many);
            assert_eq!(count_words(&" ab".repeat(many)), many);
        }
    }

    #[test]
    fn a_plain_text_is_its_own_json() {
        let all = (0..=0x2ff_u32).filter_map(char::from_u32).map(String::from);
        for text in all.chain([String::new(), "x".repeat(5_000), "x".repeat(2_000) + "\n"]) {
            let is_same = serde_json::to_string(&text).unwrap() == format!("\"{text}\"");
            assert_eq!(is_plain(text.as_bytes()), is_same, "{text:?}");
        }
    }

    #[test]
    fn both_languages_have_the_same_texts() {
        let ids = |lang| TEXTS.ids(lang).collect::<Vec<_>>();
        assert_eq!(ids(Lang::En), ids(Lang::Zh));
    }

    #[test]
    fn every_text_of_the_page_fills_all_placeholders() {
        for lang in [Lang::En, Lang::Zh] {
            let words = for_scripts(lang);
            assert!(words.len() > 1000 && !words.contains("{$"), "{words}");
            for id in
                TEXTS.ids(lang).filter(|id| id.starts_with("page-") && !id.starts_with(SCRIPTS))
            {
                assert!(!translate(id, lang).contains('{'), "{id}");
            }
        }
    }
}

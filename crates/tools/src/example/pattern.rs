//! Generates a short text that matches a regular expression.

use regex_syntax::hir::{Class, ClassUnicodeRange, Hir, HirKind};

/// Maximum size of a generated text.
const CHARS_MAX: usize = 4096;

/// A text of at least `least` characters that contains a match; `None` if none is found easily.
pub(super) fn matching(pattern: &str, least: usize) -> Option<String> {
    let hir = regex_syntax::Parser::new().parse(pattern).ok()?;
    let mut text = String::new();
    write(&hir, 0, &mut text)?;
    if text.chars().count() < least {
        // Extends the last unbounded repetition to reach the length.
        let missing = least - text.chars().count();
        let mut longer = String::new();
        write(&hir, missing, &mut longer)?;
        text = longer;
    }
    let fits = regex::Regex::new(pattern).is_ok_and(|regex| regex.is_match(&text));
    fits.then_some(text)
}

/// Writes a match; unbounded repetitions get `extra` more rounds.
fn write(hir: &Hir, extra: usize, text: &mut String) -> Option<()> {
    if text.len() > CHARS_MAX {
        return None;
    }
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => {}
        HirKind::Literal(literal) => text.push_str(std::str::from_utf8(&literal.0).ok()?),
        HirKind::Class(class) => text.push(one_of(class)?),
        HirKind::Repetition(repetition) => {
            let wanted = (repetition.min as usize).saturating_add(extra);
            let upper = repetition.max.map_or(usize::MAX, |max| max as usize);
            for _ in 0..wanted.min(upper).min(CHARS_MAX) {
                write(&repetition.sub, 0, text)?;
            }
        }
        HirKind::Capture(capture) => write(&capture.sub, extra, text)?,
        HirKind::Concat(parts) => {
            for part in parts {
                write(part, extra, text)?;
            }
        }
        HirKind::Alternation(parts) => write(parts.first()?, extra, text)?,
    }
    Some(())
}

/// A character of the class, preferably a letter or digit.
fn one_of(class: &Class) -> Option<char> {
    let has = |c: char| match class {
        Class::Unicode(class) => class.ranges().iter().any(|r| r.start() <= c && c <= r.end()),
        Class::Bytes(class) => {
            class.ranges().iter().any(|r| char::from(r.start()) <= c && c <= char::from(r.end()))
        }
    };
    let plain = ('a'..='z').chain('0'..='9').chain('A'..='Z').chain(['-', '_', '.', '/', ' ']);
    plain.into_iter().find(|c| has(*c)).or_else(|| match class {
        Class::Unicode(class) => class.ranges().first().map(ClassUnicodeRange::start),
        Class::Bytes(class) => class.ranges().first().map(|range| char::from(range.start())),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usual_patterns_are_met() {
        for (pattern, least) in [
            ("^[a-z][a-z0-9_-]{2,15}$", 0),
            (r"^\d{4}-\d{2}-\d{2}$", 0),
            ("^(GET|POST)$", 0),
            (r"^v?\d+\.\d+\.\d+(-[a-z]+)?$", 0),
            ("^#[0-9a-fA-F]{6}$", 0),
            ("^[A-Z]{2,}$", 5),
            (r"\S", 3),
            ("^[^/]+/[^/]+$", 0),
        ] {
            let text = matching(pattern, least).unwrap_or_else(|| panic!("{pattern}"));
            assert!(regex::Regex::new(pattern).unwrap().is_match(&text), "{pattern}: {text}");
        }
    }

    #[test]
    fn what_cannot_be_met_gives_nothing() {
        assert_eq!(matching("(", 0), None);
        assert_eq!(matching(r"a\bb", 0), None);
    }
}

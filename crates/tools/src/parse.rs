//! Strict parsing of arguments: bounded depth, no duplicate keys, and a position for every error.
//!
//! `serde_json` silently keeps the last of two equal keys, so a call could run with arguments the model did not mean.
//! This parser reports the second key as an error.

use std::{cell::RefCell, fmt};

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// Characters shown on each side of an error.
const EXCERPT: usize = 40;

/// The nesting limit of `serde_json` itself.
const PARSER_DEPTH: usize = 126;

/// Why a text was rejected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ParseError {
    /// The bytes are not valid UTF-8.
    Utf8 {
        /// Byte offset of the first invalid byte.
        position: usize,
    },
    /// The text is nested deeper than allowed.
    TooDeep {
        /// The maximum depth, in levels.
        limit: usize,
    },
    /// A key occurs twice in one object.
    Duplicate {
        /// The duplicate key, unescaped.
        key: String,
        /// Byte offset at which the second occurrence was found.
        position: usize,
    },
    /// The text is not JSON.
    Syntax {
        /// Byte offset of the error.
        position: usize,
        /// True if the text ends before the value is complete.
        ends_early: bool,
    },
}

impl ParseError {
    /// Byte offset of the error; `None` if it has no single position.
    #[must_use]
    pub fn position(&self) -> Option<usize> {
        match self {
            Self::Utf8 { position }
            | Self::Duplicate { position, .. }
            | Self::Syntax { position, .. } => Some(*position),
            Self::TooDeep { .. } => None,
        }
    }
}

/// Parses JSON strictly; `depth` limits the nesting.
///
/// # Errors
/// The first error with its position.
pub fn strict(text: &[u8], depth: usize) -> Result<Value, ParseError> {
    let depth = depth.min(PARSER_DEPTH);
    let text = std::str::from_utf8(text)
        .map_err(|error| ParseError::Utf8 { position: error.valid_up_to() })?;
    let issue = RefCell::new(None);
    let mut json = serde_json::Deserializer::from_str(text);
    let value = Level { left: depth, issue: &issue }.deserialize(&mut json);
    let error = match value.and_then(|value| json.end().map(|()| value)) {
        Ok(value) => return Ok(value),
        Err(error) => error,
    };
    let position = offset(text, error.line(), error.column());
    Err(match issue.into_inner() {
        Some(ParseIssue::TooDeep) => ParseError::TooDeep { limit: depth },
        Some(ParseIssue::Duplicate(key)) => ParseError::Duplicate { key, position },
        None if error.is_eof() => ParseError::Syntax { position: text.len(), ends_early: true },
        None => ParseError::Syntax { position, ends_early: false },
    })
}

/// A short excerpt of the text around a position, with the position marked.
#[must_use]
pub fn excerpt(text: &str, position: usize) -> String {
    let at = floor(text, position);
    let start = text[..at].char_indices().rev().take(EXCERPT).last().map_or(at, |(index, _)| index);
    let end = text[at..].char_indices().nth(EXCERPT).map_or(text.len(), |(index, _)| at + index);
    let mut shown = String::new();
    let mut add = |piece: &str| {
        // Control characters such as line breaks would split the excerpt's line.
        shown.extend(piece.chars().map(|c| if c.is_control() { ' ' } else { c }));
    };
    add(if start > 0 { "…" } else { "" });
    add(&text[start..at]);
    add("<HERE>");
    add(&text[at..end]);
    add(if end < text.len() { "…" } else { "" });
    shown
}

/// The last character boundary at or before `position`.
pub(crate) fn floor(text: &str, position: usize) -> usize {
    let mut at = position.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

/// Converts the parser's line and column to a byte offset.
fn offset(text: &str, line: usize, column: usize) -> usize {
    let before: usize = text.split_inclusive('\n').take(line.saturating_sub(1)).map(str::len).sum();
    // The column is that of the last byte read, counted from 1.
    (before + column.saturating_sub(1)).min(text.len())
}

enum ParseIssue {
    TooDeep,
    Duplicate(String),
}

/// Parses one value with `left` levels of nesting remaining.
struct Level<'a> {
    left: usize,
    issue: &'a RefCell<Option<ParseIssue>>,
}

impl Level<'_> {
    fn below<E: serde::de::Error>(&self) -> Result<Level<'_>, E> {
        match self.left.checked_sub(1) {
            Some(left) => Ok(Level { left, issue: self.issue }),
            None => Err(self.fail(ParseIssue::TooDeep)),
        }
    }

    fn fail<E: serde::de::Error>(&self, issue: ParseIssue) -> E {
        *self.issue.borrow_mut() = Some(issue);
        E::custom("refused")
    }
}

impl<'de> DeserializeSeed<'de> for Level<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Level<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(self.below()?)? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            if map.contains_key(&key) {
                return Err(self.fail(ParseIssue::Duplicate(key)));
            }
            let value = entries.next_value_seed(self.below()?)?;
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn broken(text: &str) -> ParseError {
        strict(text.as_bytes(), 64).unwrap_err()
    }

    #[test]
    fn valid_json_is_read_like_the_standard_parser_reads_it() {
        for text in [
            r#"{"a":[1,-2,3.5,1e3,true,null,"x\n"],"b":{"c":{}}}"#,
            "\"\"",
            " [ ] ",
            "18446744073709551615",
            "-0.0",
        ] {
            let usual: Value = serde_json::from_str(text).unwrap();
            assert_eq!(strict(text.as_bytes(), 64), Ok(usual), "{text}");
        }
    }

    #[test]
    fn a_second_key_is_found_at_any_depth() {
        assert_eq!(
            broken(r#"{"a":1,"b":[{"x":1,"x":2}]}"#),
            ParseError::Duplicate { key: "x".into(), position: 21 }
        );
        assert!(matches!(broken(r#"{"a":1,"\u0061":2}"#), ParseError::Duplicate { .. }));
    }

    #[test]
    fn depth_is_counted_and_bounded() {
        let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        assert!(strict(nested(64).as_bytes(), 64).is_ok());
        assert_eq!(
            strict(nested(65).as_bytes(), 64),
            Ok(()).and(Err(ParseError::TooDeep { limit: 64 }))
        );
        assert_eq!(
            strict(nested(100_000).as_bytes(), 1_000_000).unwrap_err(),
            ParseError::TooDeep { limit: PARSER_DEPTH }
        );
    }

    #[test]
    fn truncated_json_is_distinguished_from_invalid_json() {
        assert_eq!(broken(r#"{"path": "a"#), ParseError::Syntax { position: 11, ends_early: true });
        assert_eq!(
            broken(r#"{"path": "a" "b": 1}"#),
            ParseError::Syntax { position: 13, ends_early: false }
        );
        assert!(matches!(broken("{} {}"), ParseError::Syntax { ends_early: false, .. }));
    }

    #[test]
    fn the_place_is_shown_between_whole_characters() {
        let text = "不倒".repeat(100);
        for position in 0..=text.len() + 3 {
            let shown = excerpt(&text, position);
            assert!(shown.contains("<HERE>") && shown.chars().count() <= 90, "{shown}");
        }
        assert_eq!(excerpt("{\"a\"\n 1}", 6), "{\"a\"  <HERE>1}");
    }

    #[test]
    fn empty_and_blank_have_a_place_too() {
        assert_eq!(broken(""), ParseError::Syntax { position: 0, ends_early: true });
        assert_eq!(json!(broken("\n\n").position()), json!(2));
    }
}

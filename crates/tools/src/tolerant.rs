//! Parses text that is almost JSON if it has only one possible meaning.
//!
//! Accepted: other quotes, unquoted keys, Python literals, one trailing comma, comments in plain words, a code fence
//! around the whole, raw line breaks in strings, and some spellings of numbers and separators. If the schema leaves
//! no doubt, also a missing comma or colon, a bare allowed value and a bare date.
//!
//! The result contains every meaningful character. Omissions and ambiguities end the parsing, because a refused call
//! costs one request, but a call with a wrong meaning can do harm.

use std::borrow::Cow;

use budao_core::nesting;
use serde_json::{Map, Number, Value};

use crate::{explain, parse};

/// Letters that have no escape meaning in any language, and characters that regular expressions escape. After a
/// single backslash they stand for the backslash and themselves.
const LITERAL: &str = "dDwWsSBghijklmpqyzACEFGHIJKLMOPQRTVXYZ.()[]{}+*?|^";

/// Maximum surplus closing brackets that are ignored after the object.
const CLOSERS_EXTRA: usize = 3;

/// Why a text has no single meaning, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unclear {
    /// Byte offset from the start of the text.
    pub(crate) position: usize,
    /// JSON pointer to the value being parsed.
    pub(crate) pointer: String,
    pub(crate) reason: Reason,
}

/// The reason why a text has no single meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reason {
    /// A single backslash that may be an escape or literal.
    Backslash,
    /// Digits that do not form a JSON number.
    Number,
    /// A bare word, or a character that cannot start a value.
    BareWord,
    /// An ellipsis `...` in place of omitted content.
    Ellipsis,
    /// A comment that contains more than words, or that may not be a comment.
    Comment,
    /// A string ends where nothing valid follows, probably at an unescaped quote.
    Quote,
    /// A missing or surplus comma or colon.
    Separator,
    /// Text before or after the object.
    Outside,
    /// A key that occurs twice.
    Duplicate,
    /// The text ends before the value is complete.
    Ends,
    /// Nesting deeper than allowed.
    Depth,
}

impl Reason {
    /// Id of the catalog text that says what to write instead.
    pub(crate) fn advice(self) -> &'static str {
        match self {
            Self::Backslash => "malformed-backslash",
            Self::Number => "malformed-number",
            Self::BareWord => "malformed-word",
            Self::Ellipsis => "malformed-ellipsis",
            Self::Comment => "malformed-comment",
            Self::Quote => "malformed-quote",
            Self::Separator => "malformed-separator",
            Self::Outside => "malformed-outside",
            Self::Duplicate => "malformed-duplicate",
            Self::Ends => "ends-early",
            Self::Depth => "malformed-depth",
        }
    }
}

/// Parses the object that a text clearly means.
///
/// # Errors
/// The first position that has no single meaning.
pub(crate) fn object(schema: &Value, text: &str, depth: usize) -> Result<Value, Unclear> {
    if let Some(inside) = quoted_whole(text)
        && let Ok(value @ Value::Object(_)) = parse::strict(inside.as_bytes(), depth)
    {
        return Ok(value);
    }
    let (start, end) = fenced(text);
    let mut reader = Reader { schema: Some(schema), ..Reader::new(text, start, end) };
    reader.blank()?;
    if reader.peek() != Some('{') {
        return Err(reader.unclear(Reason::Outside));
    }
    let value = reader.value(depth.min(nesting::LEVELS_MAX))?;
    reader.blank()?;
    // Surplus closing brackets do not change the meaning.
    for _ in 0..CLOSERS_EXTRA {
        if matches!(reader.peek(), Some('}' | ']')) {
            reader.skip();
            reader.blank()?;
        }
    }
    reader.finished(value)
}

/// Parses the list or object that a text clearly means.
pub(crate) fn list_or_object(text: &str, depth: usize) -> Option<Value> {
    let mut reader = Reader::new(text, 0, text.len());
    reader.blank().ok()?;
    matches!(reader.peek(), Some('[' | '{')).then_some(())?;
    let value = reader.value(depth.min(nesting::LEVELS_MAX)).ok()?;
    reader.blank().ok()?;
    reader.finished(value).ok()
}

/// The text inside quotes or escapes that enclose all of it.
fn quoted_whole(text: &str) -> Option<Cow<'_, str>> {
    let text = text.trim();
    if let Some(inside) = text.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\'')) {
        let plain = !inside.contains(['\'', '\\']);
        return plain.then_some(Cow::Borrowed(inside));
    }
    // For `{\"path\": …}`, escaped once too often. An unescaped quote would end this string and fail the parse.
    text.starts_with('{').then_some(())?;
    serde_json::from_str::<String>(&format!("\"{text}\"")).ok().map(Cow::Owned)
}

/// Start and end of the text inside a code fence; the whole text if there is none.
fn fenced(text: &str) -> (usize, usize) {
    let all = (0, text.len());
    let before = text.len() - text.trim_start().len();
    let Some(rest) = text[before..].strip_prefix("```") else { return all };
    let language =
        rest.len() - rest.trim_start_matches(|it: char| it.is_ascii_alphanumeric()).len();
    let start = before + 3 + language;
    let end = text.trim_end().len();
    match text[..end].strip_suffix("```") {
        Some(inside) if inside.len() >= start => (start, inside.len()),
        _ => all,
    }
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    end: usize,
    /// The schema of the whole, if known.
    schema: Option<&'a Value>,
    /// Path to the value being parsed.
    path: Vec<String>,
    /// The first single backslash that was taken literally.
    literal: Option<Unclear>,
    /// True if any backslash was an escape, other than of a quote.
    escapes: bool,
}

impl<'a> Reader<'a> {
    fn new(text: &'a str, start: usize, end: usize) -> Self {
        Self { text, at: start, end, schema: None, path: Vec::new(), literal: None, escapes: false }
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..self.end]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn skip(&mut self) {
        self.at += self.peek().map_or(0, char::len_utf8);
    }

    fn unclear(&self, reason: Reason) -> Unclear {
        let reason = match self.peek() {
            None => Reason::Ends,
            Some('…') => Reason::Ellipsis,
            _ if self.rest().starts_with("...") => Reason::Ellipsis,
            Some('#') => Reason::Comment,
            _ => reason,
        };
        let pointer = self.path.iter().map(|part| format!("/{part}")).collect();
        Unclear { position: self.at, pointer, reason }
    }

    /// The value, if nothing follows it and its backslashes are used consistently.
    fn finished(&self, value: Value) -> Result<Value, Unclear> {
        if self.peek().is_some() {
            return Err(self.unclear(Reason::Outside));
        }
        match &self.literal {
            // A text that mixes literal and escaping backslashes may mean the `\n` in `C:\new` literally.
            Some(literal) if self.escapes => Err(literal.clone()),
            _ => Ok(value),
        }
    }

    /// Skips spaces and comments.
    fn blank(&mut self) -> Result<(), Unclear> {
        self.blank_with(true)
    }

    /// Skips spaces and comments before a value. Here `#…` is not a comment, because it may be the value.
    fn blank_before_value(&mut self) -> Result<(), Unclear> {
        self.blank_with(false)
    }

    fn blank_with(&mut self, hash: bool) -> Result<(), Unclear> {
        loop {
            let rest = self.rest();
            let space = |it: char| it.is_whitespace() || matches!(it, '\u{feff}' | '\u{200b}');
            self.at += rest.len() - rest.trim_start_matches(space).len();
            let rest = self.rest();
            let comment = if rest.starts_with("//") {
                rest.find('\n').map(|end| (&rest[2..end], end))
            } else if rest.starts_with("/*") {
                rest.find("*/").map(|end| (&rest[2..end], end + 2))
            } else if hash && rest.starts_with('#') {
                let line = rest.find('\n').map(|end| (&rest[1..end], end));
                line.filter(|(words, _)| !words.contains([':', '=', ',']))
            } else {
                return Ok(());
            };
            // Without a space it may be a path; with quotes or brackets it may be part of the call.
            match comment {
                Some((words, end)) if is_remark(words) => self.at += end,
                _ => return Err(self.unclear(Reason::Comment)),
            }
        }
    }

    fn value(&mut self, left: usize) -> Result<Value, Unclear> {
        match self.peek() {
            Some('{' | '[') if left == 0 => Err(self.unclear(Reason::Depth)),
            Some('{') => self.map(left - 1),
            Some('[') => self.list(left - 1),
            Some(quote) if closing(quote).is_some() => self.string().map(Value::String),
            Some('0'..='9' | '-' | '+' | '.') => self.number(),
            _ => self.word(),
        }
    }

    fn map(&mut self, left: usize) -> Result<Value, Unclear> {
        self.skip();
        let mut map = Map::new();
        loop {
            self.blank()?;
            if self.peek() == Some('}') {
                self.skip();
                return Ok(Value::Object(map));
            }
            let begins = self.unclear(Reason::Duplicate);
            let key = self.key()?;
            self.blank_before_value()?;
            match self.peek() {
                Some(':' | '：') => self.skip(),
                Some(next) if self.names(0, &key) && begins_value(next) => {}
                _ => return Err(self.unclear(Reason::Separator)),
            }
            self.path.push(explain::escaped(&key).into_owned());
            self.blank_before_value()?;
            let value = self.value(left)?;
            self.blank()?;
            let is_text = value.is_string();
            if map.insert(key, value).is_some() {
                return Err(begins);
            }
            // After a string, only a declared key may follow without a comma. Another one may be the rest of a string
            // with unescaped quotes.
            let ended = self
                .next_key()
                .is_some_and(|key| !is_text || (self.names(1, &key) && !map.contains_key(&key)));
            self.separate('}', ended)?;
            self.path.pop();
        }
    }

    fn list(&mut self, left: usize) -> Result<Value, Unclear> {
        self.skip();
        let mut items = Vec::new();
        loop {
            self.blank_before_value()?;
            if self.peek() == Some(']') {
                self.skip();
                return Ok(Value::Array(items));
            }
            self.path.push(items.len().to_string());
            let value = self.value(left)?;
            self.blank()?;
            let ended = value.is_object() && self.peek() == Some('{');
            items.push(value);
            self.separate(']', ended)?;
            self.path.pop();
        }
    }

    /// Parses a comma. Also accepts the closing bracket ahead and, if `ended`, a next entry without a comma.
    fn separate(&mut self, closer: char, ended: bool) -> Result<(), Unclear> {
        match self.peek() {
            Some(',' | '，') => {
                self.skip();
                self.blank_with(closer == '}')?;
                match self.peek() {
                    Some(',' | '，') => Err(self.unclear(Reason::Separator)),
                    _ => Ok(()),
                }
            }
            Some(next) if next == closer || ended => Ok(()),
            _ => Err(self.unclear(Reason::Quote)),
        }
    }

    /// True if the schema declares this key in the object `up` levels above the current location.
    fn names(&self, up: usize, key: &str) -> bool {
        let path = &self.path[..self.path.len().saturating_sub(up)];
        self.schema.is_some_and(|schema| explain::names(schema, path, key))
    }

    /// The quoted key that follows, without consuming it.
    fn next_key(&self) -> Option<String> {
        self.peek().and_then(closing)?;
        Reader::new(self.text, self.at, self.end).string().ok()
    }

    /// Parses a bare text if the schema leaves no doubt: an allowed value, or a date, time, version or address.
    fn bare(&mut self) -> Option<Value> {
        let rest = self.rest();
        let spelled = &rest[..rest.find(ends_bare).unwrap_or(rest.len())];
        let schema = explain::schema_at(self.schema?, &self.path)?;
        let values = schema.get("enum").and_then(Value::as_array);
        let is_meant = match values {
            Some(values) => values.iter().any(|value| value.as_str() == Some(spelled)),
            None => schema.get("type")? == "string" && is_stamp(spelled),
        };
        is_meant.then_some(())?;
        self.at += spelled.len();
        Some(Value::from(spelled))
    }

    fn key(&mut self) -> Result<String, Unclear> {
        if self.peek().is_some_and(|quote| closing(quote).is_some()) {
            return self.string();
        }
        let rest = self.rest();
        let is_part = |it: char| it.is_ascii_alphanumeric() || matches!(it, '_' | '-' | '$');
        let name = &rest[..rest.len() - rest.trim_start_matches(is_part).len()];
        if !name.starts_with(|it: char| it.is_ascii_alphabetic() || it == '_') {
            return Err(self.unclear(Reason::Separator));
        }
        self.at += name.len();
        Ok(name.to_owned())
    }

    fn word(&mut self) -> Result<Value, Unclear> {
        let rest = self.rest();
        let is_part = |it: char| it.is_ascii_alphanumeric() || it == '_';
        let word = &rest[..rest.len() - rest.trim_start_matches(is_part).len()];
        let value = match word {
            "true" | "True" | "TRUE" => Value::Bool(true),
            "false" | "False" | "FALSE" => Value::Bool(false),
            "null" | "None" | "NULL" => Value::Null,
            _ => {
                if let Some(text) = self.bare() {
                    return Ok(text);
                }
                let separates = self.peek().is_some_and(|it| ",:]}；;，：".contains(it));
                let reason = if separates { Reason::Separator } else { Reason::BareWord };
                return Err(self.unclear(reason));
            }
        };
        self.at += word.len();
        Ok(value)
    }

    fn number(&mut self) -> Result<Value, Unclear> {
        let rest = self.rest();
        let spelled = &rest[..rest.find(ends_bare).unwrap_or(rest.len())];
        let Some(number) = number(spelled) else {
            return self.bare().ok_or_else(|| self.unclear(Reason::Number));
        };
        self.at += spelled.len();
        Ok(Value::Number(number))
    }

    fn string(&mut self) -> Result<String, Unclear> {
        let close = self.peek().and_then(closing).unwrap_or('"');
        self.skip();
        let mut text = String::new();
        loop {
            match self.peek() {
                None => return Err(self.unclear(Reason::Ends)),
                Some(it) if it == close => {
                    self.skip();
                    return Ok(text);
                }
                // `${name}` in backticks is a template, not a literal text.
                Some('$') if close == '`' => return Err(self.unclear(Reason::Quote)),
                // A backslash in backticks is itself in some languages and an escape in others.
                Some('\\') if close == '`' => return Err(self.unclear(Reason::Backslash)),
                Some('\\') => self.escape(close, &mut text)?,
                Some(it) => {
                    text.push(it);
                    self.skip();
                }
            }
        }
    }

    /// Parses a backslash escape.
    fn escape(&mut self, close: char, text: &mut String) -> Result<(), Unclear> {
        let here = self.unclear(Reason::Backslash);
        let rest = self.rest();
        let Some(next) = rest[1..].chars().next() else { return Err(self.unclear(Reason::Ends)) };
        if next == close || next == '"' {
            text.push(next);
            self.at += 1 + next.len_utf8();
            return Ok(());
        }
        if LITERAL.contains(next) {
            text.extend(['\\', next]);
            self.at += 1 + next.len_utf8();
            self.literal.get_or_insert(here);
            return Ok(());
        }
        let length = match next {
            '\\' => 2,
            // In `C:\new` the backslash is part of a path and was not doubled.
            _ if ends_in_drive(text) => return Err(here),
            // `\b` and `\f` are not accepted: in practice they are part of a regular expression or of a path such as
            // `C:\bin`.
            '/' | 'n' | 'r' | 't' => 2,
            // A surrogate pair is one character.
            'u' if rest[2..].starts_with(['d', 'D']) && rest.get(6..8) == Some("\\u") => 12,
            'u' => 6,
            _ => return Err(here),
        };
        let spelled = rest.get(..length).map(|escape| format!("\"{escape}\""));
        let unescaped = spelled.and_then(|spelled| serde_json::from_str::<String>(&spelled).ok());
        text.push_str(&unescaped.ok_or(here)?);
        self.at += length;
        self.escapes = true;
        Ok(())
    }
}

/// True if a character ends an unquoted text.
fn ends_bare(it: char) -> bool {
    it.is_whitespace() || ",]}，".contains(it)
}

fn begins_value(it: char) -> bool {
    closing(it).is_some() || it.is_ascii_alphanumeric() || matches!(it, '{' | '[' | '-')
}

/// True for digits with separators that no number has: `2024-01-05`, `10:30`, `1.2.3`.
fn is_stamp(spelled: &str) -> bool {
    spelled.starts_with(|it: char| it.is_ascii_digit())
        && spelled.ends_with(|it: char| it.is_ascii_digit() || it == 'Z')
        && spelled.chars().all(|it| it.is_ascii_digit() || "-:.TZ".contains(it))
        && spelled.contains(['-', ':', '.'])
}

/// True if the text ends in a drive letter and a colon.
fn ends_in_drive(text: &str) -> bool {
    let mut back = text.chars().rev();
    back.next() == Some(':')
        && back.next().is_some_and(|it| it.is_ascii_alphabetic())
        && back.next().is_none_or(|it| !it.is_alphanumeric())
}

/// True if a comment contains only words.
fn is_remark(words: &str) -> bool {
    (words.is_empty() || words.starts_with(char::is_whitespace))
        && !words.contains(['"', '\'', '`', '{', '}', '[', ']'])
}

/// The closing quote for an opening one.
fn closing(quote: char) -> Option<char> {
    match quote {
        '"' | '\'' | '`' => Some(quote),
        '“' | '”' => Some('”'),
        '‘' => Some('’'),
        '«' => Some('»'),
        _ => None,
    }
}

/// Parses a number as in JSON, and also with a plus sign or without digits on one side of the point.
fn number(spelled: &str) -> Option<Number> {
    let (sign, digits) = match spelled.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", spelled.strip_prefix('+').unwrap_or(spelled)),
    };
    let digits: Cow<'_, str> = match (digits.strip_prefix('.'), digits.strip_suffix('.')) {
        (Some(_), Some(_)) => return None,
        (Some(_), None) => format!("0{digits}").into(),
        (None, Some(whole)) => whole.into(),
        (None, None) => digits.into(),
    };
    digits.starts_with(|it: char| it.is_ascii_digit()).then_some(())?;
    let number: Number = serde_json::from_str(&format!("{sign}{digits}")).ok()?;
    // An integer outside the 64-bit range would be rounded.
    let is_exact = !number.is_f64() || digits.contains(['.', 'e', 'E']);
    is_exact.then_some(number)
}

#[cfg(test)]
mod tests;

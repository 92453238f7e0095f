//! The scrubber removes secrets from text and leaves the rest of the sentence unchanged.
//!
//! Faults, log lines and details for peers pass [`Scrubber::scrub`], [`Scrubber::scrub_json`] or a [`ScrubStream`],
//! which match by pattern. Payloads (messages, tool arguments, tool results) stay verbatim, because a change would
//! break edits, digests, signed blocks and re-runs; a policy may scrub chosen tools. Configured secrets are removed
//! everywhere by exact match: [`Scrubber::scrub_exact`] does only that.
//!
//! One automaton finds the literals that mark secrets; a rule then reads a bounded number of bytes at each. A second
//! pass decodes long runs of base64. Nothing backtracks, so hostile text costs a small multiple of ordinary text.
//! A marker such as `[redacted api key]` or `~` replaces only the secret; one marker replaces a connection string with its
//! user, host and database. A public host of a web service stays. A second scrub changes nothing.
//!
//! ```
//! use budao_scrub::Scrubber;
//!
//! let scrubber = Scrubber::with_secrets(["correct-horse-battery"]);
//! let line = "GET /v1 as correct-horse-battery from 10.0.0.7:9000 failed in /home/alice/app";
//! assert_eq!(
//!     scrubber.scrub(line),
//!     "GET /v1 as [redacted secret] from [private address] failed in ~/app",
//! );
//! ```

mod address;
mod assignment;
mod connection;
mod encoded_run;
mod header;
mod home_dir;
mod host_name;
mod known_secrets;
mod pem;
mod replacement;
mod rules;
mod stack_trace;
mod stream;
mod text;
mod token;
mod trigger;
mod url;
mod value;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use self::known_secrets::KnownSecrets;
use self::rules::ScanScope;
use self::value::{Binding, ValueContext};

pub use self::stream::ScrubStream;

/// The most passes over one text. A further pass follows only if the previous one changed something.
const PASSES_MAX: usize = 3;

/// Removes secrets from text. Clones are cheap and share the configured secrets.
#[derive(Clone, Default)]
pub struct Scrubber {
    exact: Option<Arc<KnownSecrets>>,
}

impl fmt::Debug for Scrubber {
    /// Shows neither the secrets nor their number.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Scrubber").finish_non_exhaustive()
    }
}

impl Scrubber {
    /// A scrubber without configured secrets; it works by pattern alone.
    pub fn new() -> Self {
        Self::default()
    }

    /// A scrubber that also removes these secrets in every form: verbatim, inside base64 (both alphabets, any
    /// alignment), percent-encoded, and escaped as in JSON.
    ///
    /// Surrounding whitespace is not part of a secret. A secret of fewer than 6 bytes is ignored: removing every `abc`
    /// would ruin the text and hide nothing.
    pub fn with_secrets<S: AsRef<[u8]>>(secrets: impl IntoIterator<Item = S>) -> Self {
        Self { exact: KnownSecrets::new(secrets).map(Arc::new) }
    }

    /// Replaces configured secrets and everything that looks like a secret.
    pub fn scrub<'a>(&self, text: &'a str) -> Cow<'a, str> {
        match self.scrub_exact(text) {
            Cow::Borrowed(text) => by_pattern(text),
            Cow::Owned(text) => Cow::Owned(by_pattern(&text).into_owned()),
        }
    }

    /// Replaces configured secrets only; for payloads, which otherwise stay verbatim.
    pub fn scrub_exact<'a>(&self, text: &'a str) -> Cow<'a, str> {
        self.exact.as_ref().map_or(Cow::Borrowed(text), |exact| exact.replace(text))
    }

    /// Whether [`Scrubber::scrub`] would leave `text` unchanged.
    pub fn is_clean(&self, text: &str) -> bool {
        self.exact.as_ref().is_none_or(|exact| exact.is_clean(text))
            && rules::scan(text, 0, ScanScope::First).spans.is_empty()
    }

    /// Scrubs every string in `value`, and replaces values under secret names (`password`, `api_key`, `authorization`,
    /// `cookie` …).
    pub fn scrub_json(&self, value: &mut Value) {
        // A work list instead of recursion, because the sender chooses the depth.
        let mut left = vec![(value, None)];
        while let Some((value, name)) = left.pop() {
            match value {
                Value::String(text) => self.scrub_string(text, name),
                Value::Number(_) if name.is_some_and(assignment::names_password) => {
                    *value = Value::from(replacement::Marker::Password.words());
                }
                Value::Array(items) => left.extend(items.iter_mut().map(|item| (item, name))),
                Value::Object(fields) => {
                    if fields.keys().any(|name| !self.is_clean(name)) {
                        *fields = std::mem::take(fields)
                            .into_iter()
                            .map(|(name, value)| (self.scrub(&name).into_owned(), value))
                            .collect();
                    }
                    left.extend(
                        fields.iter_mut().map(|(name, value)| (value, Some(name.as_str()))),
                    );
                }
                Value::Null | Value::Bool(_) | Value::Number(_) => {}
            }
        }
    }

    /// Removes configured secrets only, in place.
    pub fn clean_text(&self, text: &mut String) {
        if let Cow::Owned(clean) = self.scrub_exact(text) {
            *text = clean;
        }
    }

    /// Removes configured secrets only, from every string and key in `value`; for payloads.
    pub fn clean_json(&self, value: &mut Value) {
        let Some(exact) = &self.exact else { return };
        let mut left = vec![value];
        while let Some(value) = left.pop() {
            match value {
                Value::String(text) => self.clean_text(text),
                Value::Array(items) => left.extend(items),
                Value::Object(fields) => {
                    if fields.keys().any(|name| !exact.is_clean(name)) {
                        *fields = std::mem::take(fields)
                            .into_iter()
                            .map(|(name, value)| (exact.replace(&name).into_owned(), value))
                            .collect();
                    }
                    left.extend(fields.values_mut());
                }
                Value::Null | Value::Bool(_) | Value::Number(_) => {}
            }
        }
    }

    /// A scrubber for text that arrives in parts.
    pub fn stream(&self) -> ScrubStream {
        ScrubStream::new(self.exact.clone())
    }

    fn scrub_string(&self, text: &mut String, name: Option<&str>) {
        if let Cow::Owned(known) = self.scrub_exact(text) {
            *text = known;
        }
        let scrubbed = match name.and_then(|name| scrub_named_value(name, text)) {
            Some(scrubbed) => Cow::Owned(scrubbed),
            None => by_pattern(text),
        };
        if let Cow::Owned(scrubbed) = scrubbed {
            *text = scrubbed;
        }
    }
}

/// Replaces everything that looks like a secret.
///
/// A replacement can, very rarely, change how its neighbour is judged, for example when a value becomes shorter.
/// Changed text is therefore scanned again until nothing new is found.
fn by_pattern(text: &str) -> Cow<'_, str> {
    let pass = |text: &str| {
        let spans = rules::scan(text, 0, ScanScope::End).spans;
        (!spans.is_empty()).then(|| replacement::replaced(text, &spans).into_owned())
    };
    let Some(mut out) = pass(text) else { return Cow::Borrowed(text) };
    for _ in 1..PASSES_MAX {
        match pass(&out) {
            Some(next) => out = next,
            None => break,
        }
    }
    Cow::Owned(out)
}

/// The replacement for `text` under a key called `name`, if that name marks a secret.
fn scrub_named_value(name: &str, text: &str) -> Option<String> {
    let lower = name.to_ascii_lowercase();
    if lower.ends_with("authorization") || lower.ends_with("cookie") {
        let line = format!("{name}: {text}");
        let start = line.len() - text.len();
        let mut spans = rules::scan(&line, 0, ScanScope::End).spans;
        spans.retain(|span| span.start >= start);
        let mut out = String::new();
        replacement::replace(&line, start, line.len(), &spans, &mut out);
        return Some(out);
    }
    let (says, marker) = assignment::secret_name(name)?;
    let case = ValueContext { says, tie: Binding::Tight, quoted: true, next: b'"', alone: false };
    value::is_secret(text.as_bytes(), case).then(|| marker.words().to_owned())
}

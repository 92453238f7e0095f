//! The model's own words in the error of its call.
//!
//! Scrubbing replaces a home directory in a fault, and the model would read of a path that it never wrote. What the
//! model reads therefore has its own argument again. Records, users and operators keep the scrubbed form, and
//! configured secrets stay out of both, because they are not restored here.

use std::borrow::Cow;

use budao_scrub::Scrubber;
use serde_json::Value;

use super::{Fact, FactValue};
use crate::tool::Failure;

/// The most arguments and the longest one that are looked at, in bytes.
const ARGUMENTS_MAX: usize = 64;
const BYTES_MAX: usize = 4096;

/// A failure with those texts restored that are, scrubbed, one of the arguments. `written` is the JSON of the arguments.
pub(crate) fn with_own_words<'a>(failure: &'a Failure, written: &str) -> Cow<'a, Failure> {
    let words = scrubbed_words(failure, written);
    if words.is_empty() {
        return Cow::Borrowed(failure);
    }
    let own = |text: &str| words.iter().find(|(_, scrubbed)| scrubbed == text).map(|(own, _)| own);
    let mut restored = failure.clone();
    let facts: Vec<(Fact, String)> = failure
        .fault
        .detail()
        .iter()
        .filter_map(|(fact, value)| match value {
            FactValue::Text(text) => own(text).map(|own| (fact, own.clone())),
            _ => None,
        })
        .collect();
    for (fact, own) in facts {
        restored.fault = restored.fault.with(fact, own);
    }
    for mismatch in &mut restored.fault.0.mismatches {
        let quoted = mismatch.received.as_deref().and_then(|text| text.strip_prefix('"'));
        let bare = quoted.and_then(|text| text.strip_suffix('"'));
        if let Some(own) = bare.and_then(own) {
            mismatch.received = Some(format!("\"{own}\""));
        }
    }
    Cow::Owned(restored)
}

/// The arguments that scrubbing changes, each with its scrubbed form. None if the fault shows no sign of one.
fn scrubbed_words(failure: &Failure, written: &str) -> Vec<(String, String)> {
    let is_marked = |text: &str| text.contains(['~', '[']);
    let fault = &failure.fault;
    let facts = fault.detail().iter().any(|(_, value)| match value {
        FactValue::Text(text) => is_marked(text),
        _ => false,
    });
    let received = || fault.mismatches().iter().filter_map(|it| it.received.as_deref());
    if !facts && !received().any(is_marked) {
        return Vec::new();
    }
    let Ok(arguments) = serde_json::from_str::<Value>(written) else { return Vec::new() };
    let scrubber = Scrubber::new();
    let changed = |own: &str| match scrubber.scrub(own) {
        Cow::Owned(scrubbed) => Some((own.to_owned(), scrubbed)),
        Cow::Borrowed(_) => None,
    };
    texts(&arguments).into_iter().filter_map(changed).collect()
}

/// The texts of a value, breadth first.
fn texts(value: &Value) -> Vec<&str> {
    let (mut found, mut left) = (Vec::new(), std::collections::VecDeque::from([value]));
    while let Some(value) = left.pop_front() {
        match value {
            Value::String(text) if text.len() <= BYTES_MAX => found.push(text.as_str()),
            Value::Array(items) => left.extend(items.iter().take(ARGUMENTS_MAX)),
            Value::Object(map) => left.extend(map.values().take(ARGUMENTS_MAX)),
            _ => {}
        }
        if found.len() >= ARGUMENTS_MAX || left.len() > ARGUMENTS_MAX * ARGUMENTS_MAX {
            break;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::{Fault, Kind, Mismatch, Operation};

    fn scrubbed(fault: Fault, secrets: &[&str]) -> Failure {
        let fault = fault.scrub(&Scrubber::with_secrets(secrets));
        Failure { fault, data: None, note: None }
    }

    #[test]
    fn the_model_reads_the_path_that_it_wrote() {
        let path = "/home/alice/notes.txt";
        let fault = Fault::new(Kind::FileNotFound, Operation::ReadFile)
            .with(Fact::Path, path)
            .mismatch(Mismatch { received: Some(format!("\"{path}\"")), ..Mismatch::default() });
        let failure = scrubbed(fault, &[]);
        assert_eq!(failure.fault.detail().text(Fact::Path), Some("~/notes.txt"));
        let written = format!(r#"{{"file": {{"path": "{path}"}}}}"#);
        let read = with_own_words(&failure, &written);
        assert_eq!(read.fault.detail().text(Fact::Path), Some(path));
        assert_eq!(read.fault.mismatches()[0].received.as_deref(), Some(&*format!("\"{path}\"")));
        for other in [r#"{"path": "/home/bob/other.txt"}"#, r#"{"path": "notes.txt"}"#, "{"] {
            let read = with_own_words(&failure, other);
            assert!(matches!(read, Cow::Borrowed(_)) || read.fault == failure.fault, "{other}");
        }
    }

    #[test]
    fn a_configured_secret_is_not_restored() {
        let secret = "/home/alice/correct-horse-battery";
        let fault = Fault::new(Kind::FileNotFound, Operation::ReadFile).with(Fact::Path, secret);
        let failure = scrubbed(fault, &["correct-horse-battery"]);
        let written = format!(r#"{{"path": "{secret}"}}"#);
        assert!(!format!("{:?}", with_own_words(&failure, &written)).contains("horse"));
    }
}

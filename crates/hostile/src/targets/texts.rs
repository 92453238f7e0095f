//! Targets for texts: scripts, skills and settings, and scrubbing of any text.

use budao_models::Script;
use budao_scrub::Scrubber;

/// A secret of this process; scrubbing must always remove it.
const OWN: &str = "correct-horse-battery-staple";

/// In a longer text an undecided span may exceed the stream's buffer; the stream then decides without the rest, so its
/// output may differ.
const HELD_MAX: usize = 32 * 1024;

/// Scrubbing is idempotent, pieces give the same result as the whole, and a known secret never survives.
pub(super) fn scrub(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let scrubber = Scrubber::with_secrets([OWN]);
    let whole = scrubber.scrub(&text);
    assert!(!whole.contains(OWN), "a secret of our own survived");
    assert_eq!(scrubber.scrub(&whole), whole, "scrubbing twice is scrubbing once");
    let mut stream = scrubber.stream();
    let mut out = String::new();
    let mut rest = &*text;
    while let Some(next) = rest.chars().next() {
        let end = rest.char_indices().nth(13).map_or(rest.len(), |(at, _)| at).max(next.len_utf8());
        out.push_str(&stream.push(&rest[..end]));
        rest = &rest[end..];
    }
    out.push_str(&stream.finish());
    assert!(!out.contains(OWN), "a secret of our own survived in pieces");
    assert!(out == whole || text.len() > HELD_MAX, "pieces make the whole: {out:?} is {whole:?}");
}

/// A script is parsed, or refused with a message.
pub(super) fn script(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Err(fault) = Script::parse(text, "fuzz.toml") {
        assert!(fault.to_string().len() < 64 * 1024, "a refusal is short");
    }
}

pub(super) fn skill(bytes: &[u8]) {
    budao_smcp::computer::probe::skill(&String::from_utf8_lossy(bytes));
}

pub(super) fn settings(bytes: &[u8]) {
    budao_smcp::computer::probe::settings(&String::from_utf8_lossy(bytes));
}

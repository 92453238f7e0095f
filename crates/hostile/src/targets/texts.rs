//! Texts that people and programs write: scripts, skills, settings; and whatever is scrubbed.

use budao_core::scrub::Scrubber;
use budao_models::Script;

/// A secret of this process, which never survives.
const OWN: &str = "correct-horse-battery-staple";

/// Longer texts may hold something undecided that is longer than a stream holds back, which then decides by itself.
const HELD_MAX: usize = 32 * 1024;

/// Scrubbing twice is scrubbing once, pieces make the whole, and a secret of our own never survives.
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

/// A script is read or refused in words.
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

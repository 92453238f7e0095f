//! Long runs of letters and digits: tokens without a prefix, and secrets inside base64.
//!
//! Runs are found by jumping: a run of 24 covers every 24th byte, so most of an ordinary text is skipped. The encoded
//! form already shows whether a run is base64 *of text*, because three bytes of ASCII leave certain bits of their four
//! characters clear. Only runs that pass this test are decoded, at the alignment that passed, and scanned once.

use super::replacement::{Marker, Replacement};
use super::text::{Class, ScanText};
use super::token::{irregular_runs, is_mixed, looks_random};

/// The shortest run that is examined. A shorter one is a word and cannot hold a wrapped secret.
const RUN_MIN: usize = 24;
/// The least number of consecutive ASCII quanta in a run worth decoding.
const QUANTA_MIN: usize = 4;
/// The shortest line of wrapped base64 that is joined with the next one.
const LINE_MIN: usize = 60;

/// A run of base64 characters.
#[derive(Debug)]
pub(super) struct Base64Run {
    pub(super) start: usize,
    pub(super) end: usize,
}

/// The next run of at least [`RUN_MIN`] bytes that starts at `from` or later.
pub(super) fn next_run(bytes: &[u8], from: usize) -> Option<Base64Run> {
    find_run(bytes, from).ok()
}

/// As [`next_run`]; without a run, the first place where one may start when more text arrives.
pub(super) fn find_run(bytes: &[u8], from: usize) -> Result<Base64Run, usize> {
    let mut probe = from + RUN_MIN - 1;
    while probe < bytes.len() {
        let low = probe + 1 - RUN_MIN;
        match bytes[low..=probe].iter().rposition(|&byte| !Class::Base64.has(byte)) {
            Some(offset) => probe = low + offset + RUN_MIN,
            None => {
                let tail = bytes[probe..].iter().position(|&byte| !Class::Base64.has(byte));
                return Ok(Base64Run {
                    start: low,
                    end: tail.map_or(bytes.len(), |tail| probe + tail),
                });
            }
        }
    }
    Err(probe + 1 - RUN_MIN)
}

/// The start of the run that contains `at`, not before `floor`; `at` itself if it is in no run.
pub(super) fn run_start(bytes: &[u8], at: usize, floor: usize) -> usize {
    let inside = bytes.get(at).is_none_or(|&byte| Class::Padded.has(byte));
    if !inside {
        return at;
    }
    let outside = bytes[floor..at].iter().rposition(|&byte| !Class::Padded.has(byte));
    outside.map_or(floor, |offset| floor + offset + 1)
}

/// Finds tokens that are recognisable by shape alone, inside one run.
pub(super) fn shaped(text: &ScanText<'_>, run: &Base64Run, found: &mut Vec<Replacement>) {
    // The sign of a line in a diff is no part of a key.
    let sign = matches!(text.at(run.start), b'+' | b'-') && text.line_starts(run.start);
    let start = run.start + usize::from(sign);
    if is_aws_secret(text, start, run.end) {
        found.push(Replacement::new(start, run.end, Marker::Secret));
        return;
    }
    let mut start = run.start;
    while start < run.end {
        let end = text.run_within(Class::Word, start, run.end - start);
        if end - start >= RUN_MIN {
            found.extend(shape(text, start, end));
        }
        start = end + 1;
    }
}

fn shape(text: &ScanText<'_>, start: usize, end: usize) -> Option<Replacement> {
    let word = text.slice(start, end);
    telegram(text, start, end)
        .or_else(|| twilio(word).then(|| Replacement::new(start, end, Marker::ApiKey)))
        .or_else(|| mailchimp(word).then(|| Replacement::new(start, end, Marker::ApiKey)))
        .or_else(|| airtable(text, start, end))
        .or_else(|| asana(text, start, end))
        .or_else(|| dotted(text, start, end))
}

/// `pat`, fourteen letters and digits, a dot, 64 hex digits. Found by the hex digits.
fn airtable(text: &ScanText<'_>, start: usize, end: usize) -> Option<Replacement> {
    if text.before(start) != b'.' {
        return None;
    }
    let head = text.run_back(Class::Alnum, start - 1, 18);
    let named = start - 1 - head == 17 && text.starts(head, b"pat");
    let hex = text.slice(start, end).iter().all(|&byte| Class::Hex.has(byte));
    (named && hex && end - start >= 32).then(|| Replacement::new(head, end, Marker::Token))
}

/// The length of a secret access key of AWS.
const AWS_SECRET: usize = 40;
/// The least number of irregular runs in such a key: single small letters, and capitals in a row. Words joined by camel
/// case have hardly any; 40 random characters have about ten.
const IRREGULAR_MIN: usize = 3;
/// How far before a key its id (`AKIA…`) may stand, in bytes.
const ID_BEFORE_MAX: usize = 96;

/// Whether a run is a secret access key of AWS: exactly 40 random characters of base64 that do not encode text. Hashes
/// in hex have one case and are none.
fn is_aws_secret(text: &ScanText<'_>, start: usize, end: usize) -> bool {
    let key = text.slice(start, end);
    let plain = |byte: &u8| !matches!(byte, b'_' | b'-');
    if key.len() != AWS_SECRET || !key.iter().all(plain) || !stands_alone(text, start, end) {
        return false;
    }
    // Zeros in base64: a public key, a header, a picture.
    if holds(key, b"AAAA") {
        return false;
    }
    let head = text.slice(start.saturating_sub(ID_BEFORE_MAX), start);
    let id = || [&b"AKIA"[..], b"ASIA", b"[redacted api key]"].iter().any(|id| holds(head, id));
    let cases = key.iter().any(u8::is_ascii_lowercase) && key.iter().any(u8::is_ascii_uppercase);
    let random = || is_mixed(key) && irregular_runs(key) >= IRREGULAR_MIN;
    cases && (random() || id()) && !ascii_lanes(key)[0]
}

fn holds(head: &[u8], id: &[u8]) -> bool {
    memchr::memmem::find(head, id).is_some()
}

/// Whether a run is no part of a host's path, of a longer name or of padded base64.
fn stands_alone(text: &ScanText<'_>, start: usize, end: usize) -> bool {
    let sentence = text.at(end) == b'.' && !Class::Alnum.has(text.at(end + 1));
    text.before(start) != b'.' && (sentence || !matches!(text.at(end), b'=' | b'.'))
}

/// A digit, `/`, the number of a user, a colon and 32 hex digits.
fn asana(text: &ScanText<'_>, start: usize, end: usize) -> Option<Replacement> {
    let hex = text.slice(start, end).iter().all(|&byte| Class::Hex.has(byte));
    if text.before(start) != b':' || end - start != 32 || !hex {
        return None;
    }
    let user = text.run_back(Class::Digit, start - 1, 20);
    let digit = user >= 2 && text.before(user) == b'/' && text.before(user - 1).is_ascii_digit();
    (start - 1 - user >= 12 && digit).then(|| Replacement::new(user - 2, end, Marker::Token))
}

/// `SK` or `AC` and 32 hex digits.
fn twilio(word: &[u8]) -> bool {
    let head = word.starts_with(b"SK") || word.starts_with(b"AC");
    let lower = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    word.len() == 34 && head && word[2..].iter().all(lower)
}

/// 32 hex digits, `-us` and the number of a data centre.
fn mailchimp(word: &[u8]) -> bool {
    let dash = word.get(32..35) == Some(b"-us");
    dash && word[..32].iter().all(|&byte| Class::Hex.has(byte))
        && (1..=2).contains(&(word.len() - 35))
        && word[35..].iter().all(u8::is_ascii_digit)
}

/// A bot's number, a colon and about 35 characters.
fn telegram(text: &ScanText<'_>, start: usize, end: usize) -> Option<Replacement> {
    if text.before(start) != b':' || !(32..=40).contains(&(end - start)) {
        return None;
    }
    let digits = text.run_back(Class::Digit, start - 1, 11);
    let whole = (8..=10).contains(&(start - 1 - digits));
    let named = text.word_starts(digits) || text.ends(digits, b"bot");
    (whole && named).then(|| Replacement::new(digits, end, Marker::Token))
}

/// Three parts separated by dots (Discord), or 32 hex digits, a dot and a secret (Zhipu).
fn dotted(text: &ScanText<'_>, start: usize, end: usize) -> Option<Replacement> {
    if text.at(end) != b'.' || !text.word_starts(start) || text.before(start) == b'.' {
        return None;
    }
    let second = text.run_within(Class::Word, end + 1, 40);
    let word = text.slice(start, end);
    let discord = (24..=28).contains(&word.len()) && second == end + 7 && text.at(second) == b'.';
    if discord {
        let stop = text.run_within(Class::Word, second + 1, 64);
        return (stop >= second + 26 && looks_random(word))
            .then(|| Replacement::new(start, stop, Marker::Token));
    }
    let hex = word.len() == 32 && word.iter().all(|&byte| Class::Hex.has(byte));
    let secret = text.slice(end + 1, second);
    (hex && secret.len() == 16 && looks_random(secret))
        .then(|| Replacement::new(start, second, Marker::ApiKey))
}

/// A run of base64 that may continue over line breaks.
pub(super) struct WrappedBase64 {
    pub(super) start: usize,
    pub(super) end: usize,
    /// The characters without line breaks and padding, if there were line breaks.
    joined: Option<Vec<u8>>,
}

/// The run with its padding and, if it is wrapped, its further lines.
pub(super) fn unwrap_lines(text: &ScanText<'_>, run: &Base64Run) -> WrappedBase64 {
    let padded =
        |end: usize| end + (0..2).take_while(|offset| text.at(end + offset) == b'=').count();
    let mut end = padded(run.end);
    let mut line = run.end - run.start;
    let mut joined: Option<Vec<u8>> = None;
    while line >= LINE_MIN && line.is_multiple_of(4) {
        let Some(length) = text.line_break(end) else { break };
        let next = end + length;
        let stop = text.run(Class::Base64, next);
        if stop < next + 4 {
            break;
        }
        let whole = joined.get_or_insert_with(|| text.slice(run.start, run.end).to_vec());
        whole.extend_from_slice(text.slice(next, stop));
        line = stop - next;
        end = padded(stop);
    }
    WrappedBase64 { start: run.start, end, joined }
}

impl WrappedBase64 {
    /// The decoded run, at each offset where part of it is text.
    pub(super) fn decoded<'a>(
        &'a self,
        text: &'a ScanText<'_>,
    ) -> impl Iterator<Item = String> + 'a {
        let encoded = match &self.joined {
            Some(joined) => joined,
            None => text.slice(self.start, self.end),
        };
        let lanes = ascii_lanes(encoded);
        (0..4).filter(move |&lane| lanes[lane]).map(|lane| decode(&encoded[lane..]))
    }
}

fn decode(encoded: &[u8]) -> String {
    let mut decoded = Vec::with_capacity(encoded.len() / 4 * 3 + 3);
    for quantum in encoded.chunks(4) {
        let bits = quantum.iter().fold(0u32, |bits, &byte| bits << 6 | u32::from(sextet(byte)));
        let bits = bits << (6 * (4 - quantum.len()));
        decoded.extend_from_slice(&bits.to_be_bytes()[1..1 + quantum.len() * 6 / 8]);
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

/// The offsets (0 to 3) at which the characters decode to a stretch of printable ASCII.
///
/// A stretch of four quanta covers every fourth quantum of its lane, so only those are tried first.
fn ascii_lanes(encoded: &[u8]) -> [bool; 4] {
    let mut lanes = [false; 4];
    let fits = |at: usize| encoded.get(at..at + 4).is_some_and(is_ascii_quantum);
    let step = 4 * QUANTA_MIN;
    for block in (step - 4..encoded.len()).step_by(step) {
        for at in block..block + 4 {
            if lanes[at % 4] || !fits(at) {
                continue;
            }
            let before = (1..QUANTA_MIN).take_while(|back| fits(at - 4 * back)).count();
            let after = (1..QUANTA_MIN).take_while(|ahead| fits(at + 4 * ahead)).count();
            lanes[at % 4] = before + 1 + after >= QUANTA_MIN;
        }
    }
    lanes
}

fn is_ascii_quantum(quantum: &[u8]) -> bool {
    let bits = quantum.iter().fold(0u32, |bits, &byte| bits << 6 | u32::from(sextet(byte)));
    let [_, bytes @ ..] = bits.to_be_bytes();
    bytes
        .iter()
        .all(|&byte| byte.is_ascii_graphic() || matches!(byte, b' ' | b'\n' | b'\t' | b'\r'))
}

/// The six bits of a character of either alphabet; `=` and all other bytes count as zero.
fn sextet(byte: u8) -> u8 {
    SEXTETS[byte as usize]
}

static SEXTETS: [u8; 256] = {
    let mut table = [0; 256];
    let alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut value = 0;
    while value < 64 {
        table[alphabet[value] as usize] = value as u8;
        value += 1;
    }
    table[b'-' as usize] = 62;
    table[b'_' as usize] = 63;
    table
};

//! What the scrubber costs per byte: clean text, text with secrets, hostile text, text in pieces.

use budao_scrub::Scrubber;
use budao_testkit::bench::{Suite, Unit};

/// Log lines, code in several languages, hashes, English and Chinese; about one line in five holds a word
/// such as `password` or `token` and has to be judged.
const CLEAN: &str = include_str!("../tests/corpus/innocent.txt");

fn main() {
    let clean = CLEAN.repeat(4);
    let dirty: String = CLEAN.lines().enumerate().map(with_secrets).collect();
    let pieces: Vec<&str> = clean.split_inclusive(' ').collect();
    let dirty_pieces: Vec<&str> = dirty.split_inclusive(' ').collect();
    let scrubber = Scrubber::new();
    let known = Scrubber::with_secrets([
        "a-configured-api-key-0123456789",
        "another-configured-token-abcdef",
        "the-database-password-of-today!",
    ]);
    let speed = |text: &str| Unit::MegabytesPerSecond { bytes: text.len() };
    let mut suite = Suite::from_args(25);

    suite.case("scrub/clean", speed(&clean), Some(300.0), || scrubber.scrub(&clean).len());
    suite.note("scrub/clean", "logs, code, Chinese; nothing to replace");
    suite.case("scrub/clean_with_secrets", speed(&clean), None, || known.scrub(&clean).len());
    suite.note("scrub/clean_with_secrets", "and three configured secrets, in every spelling");
    suite.case("scrub/dirty", speed(&dirty), None, || scrubber.scrub(&dirty).len());
    suite.note("scrub/dirty", "secrets in every tenth line; changed text is scanned again");
    suite.case("scrub/stream", speed(&clean), Some(200.0), || stream(&scrubber, &pieces));
    suite.note("scrub/stream", "clean text word by word, as a model streams it");
    let with_known = || stream(&known, &pieces);
    suite.case("scrub/stream_with_secrets", speed(&clean), None, with_known);
    suite.note("scrub/stream_with_secrets", "and three configured secrets, in every spelling");
    let with_dirty = || stream(&scrubber, &dirty_pieces);
    suite.case("scrub/stream_dirty", speed(&dirty), None, with_dirty);
    suite.note("scrub/stream_dirty", "word by word, with secrets in every tenth line");
    for (name, unit) in HOSTILE {
        let text = unit.repeat(256 * 1024 / unit.len());
        let scrubber = &scrubber;
        let name = format!("scrub/hostile_{name}");
        suite.case(&name, speed(&text), None, move || scrubber.scrub(&text).len());
    }
    suite.run();
}

/// The bytes that come out of a stream.
fn stream(scrubber: &Scrubber, pieces: &[&str]) -> usize {
    let mut stream = scrubber.stream();
    let given: usize = pieces.iter().map(|piece| stream.push(piece).len()).sum();
    given + stream.finish().len()
}

/// Texts made to be slow. Each should stay within a small multiple of clean text.
const HOSTILE: [(&str, &str); 7] = [
    ("keys", "sk-"),
    ("equals", "="),
    ("dots", "a.b.c."),
    ("base64", "QUFBQUFBQUFBQUFB"),
    ("base64_of_text", "cGxhaW4gd29yZHMgaW4g"),
    ("quotes", "\\\\\\\""),
    ("names", "token=***"),
];

/// Puts a secret or two into every tenth line.
fn with_secrets((index, line): (usize, &str)) -> String {
    match index % 20 {
        0 => format!("{line} password=hunter{index} from 10.0.0.7:{index}\n"),
        10 => format!("{line} in /home/alice/app: sk-{}\n", "aB3dE6gH9kL2mN5pQ8rS"),
        _ => format!("{line}\n"),
    }
}

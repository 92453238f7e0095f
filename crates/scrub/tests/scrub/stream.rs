//! Text in pieces: the same as text in one.

use budao_scrub::{ScrubStream, Scrubber};

use super::corpus::secrets;

fn in_pieces<'a>(scrubber: &Scrubber, pieces: impl IntoIterator<Item = &'a str>) -> String {
    let mut stream = scrubber.stream();
    let mut out = String::new();
    for piece in pieces {
        out.push_str(&stream.push(piece));
    }
    out + &stream.finish()
}

fn chars(text: &str) -> impl Iterator<Item = &str> {
    text.char_indices().map(|(at, char)| &text[at..at + char.len_utf8()])
}

/// Goal: no secret passes because it came in two pieces.
/// Method: cut every planted secret at every character, and also into single characters.
#[test]
fn a_cut_at_every_character_changes_nothing() {
    let scrubber = Scrubber::new();
    let mut cuts = 0;
    for secret in secrets() {
        let text = format!("before it: {} and after it, 之后。", secret.text);
        let whole = scrubber.scrub(&text);
        for (cut, _) in text.char_indices() {
            cuts += 1;
            let out = in_pieces(&scrubber, [&text[..cut], &text[cut..]]);
            assert_eq!(out, whole, "{} cut at {cut}", secret.format);
        }
        assert_eq!(in_pieces(&scrubber, chars(&text)), whole, "{} in characters", secret.format);
    }
    eprintln!("security T6: {cuts} secrets cut in two between deltas");
}

/// The same in every setting, with pieces of several sizes and enough text around to make it flow.
#[test]
fn pieces_of_any_size_change_nothing() {
    let scrubber = Scrubber::with_secrets(["correct horse battery"]);
    let filler = "An ordinary line of the log, nothing to see here, 一切正常。\n".repeat(6);
    for (index, secret) in secrets().into_iter().enumerate() {
        // A few settings each; together they are all covered many times over.
        for planted in secret.planted().into_iter().skip(index % 5).step_by(5) {
            let text = format!("{filler}{}\ncorrect horse battery {filler}", planted.text);
            let whole = scrubber.scrub(&text);
            let size = [1, 7, 64, 300][index % 4];
            let pieces = chars(&text).collect::<Vec<_>>();
            let pieces: Vec<String> = pieces.chunks(size).map(<[&str]>::concat).collect();
            let out = in_pieces(&scrubber, pieces.iter().map(String::as_str));
            assert_eq!(out, whole, "{} in {} by {size}", secret.format, planted.setting);
        }
    }
}

/// Goal: a stream sees again what it has changed, as the whole does. Method: traces that are traces only once what stands in
/// them is taken out: a line too long for a frame, and a frame with a key across two lines.
#[test]
fn what_a_replacement_reveals_is_found_in_pieces_too() {
    let scrubber = Scrubber::new();
    let names = "password=".repeat(150);
    let begin = ["-----BEGIN PRI", "VATE KEY-----"].concat();
    let cases = [
        (
            format!("Traceback (most recent call last)\n File d={names}\nValueError: x"),
            "[stack trace, 2 lines]\nValueError: x",
        ),
        (
            format!("Error: x\n    at f (/srv/app{begin}\nMIIBVgIBADANBgkqhkiG9w0BAQ/a.js:1:2)\n"),
            "Error: x\n    [stack trace, 1 line]\n",
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(scrubber.scrub(&text), expected);
        for size in [1, 7, 64, 1000] {
            let pieces = text.as_bytes().chunks(size);
            let pieces = pieces.map(|piece| std::str::from_utf8(piece).unwrap());
            assert_eq!(in_pieces(&scrubber, pieces), expected, "by {size}");
        }
    }
}

/// What is held back is bounded by what may still matter: clean text flows.
#[test]
fn clean_text_flows() {
    let scrubber = Scrubber::new();
    let mut stream = scrubber.stream();
    let (mut given, mut taken) = (0, 0);
    for line in include_str!("../corpus/innocent.txt").split_inclusive('\n') {
        given += line.len();
        taken += stream.push(line).len();
        assert!(given - taken < 800, "{} held back after {line:?}", given - taken);
    }
    assert_eq!(given, taken + stream.finish().len());
}

/// Goal: a secret longer than anything that is held is swallowed whole, and what follows is not.
/// Method: secrets of 300 KB of several sorts, in pieces of 1,000 bytes.
#[test]
fn a_secret_larger_than_the_limit_is_swallowed() {
    let scrubber = Scrubber::new();
    let body = "aB3dE6gH9kL2".repeat(25_000);
    let lines: String = body
        .as_bytes()
        .chunks(64)
        .flat_map(|line| [std::str::from_utf8(line).unwrap(), "\n"])
        .collect();
    let frames = "    at f (/srv/app/a.js:1:2)\n".repeat(10_000);
    let begin = ["-----BEGIN PRI", "VATE KEY-----\n"].concat();
    let end = ["-----END PRI", "VATE KEY-----\n"].concat();
    let cases = [
        (format!("x sk-{body} after"), "x [redacted api key] after"),
        (format!("x password={body} after"), "x password=[redacted password] after"),
        (
            format!("x {{\"password\":\"{body}\"}} after"),
            "x {\"password\":\"[redacted password]\"} after",
        ),
        (format!("Cookie: a={body}; b={body}\nafter"), "Cookie: [redacted cookie]\nafter"),
        (format!("{begin}{lines}{end}after"), "[redacted private key]\nafter"),
        (format!("Error: x\n{frames}after"), "Error: x\n    [stack trace, 10000 lines]\nafter"),
    ];
    for (text, expected) in cases {
        let pieces = text.as_bytes().chunks(1000).map(|piece| std::str::from_utf8(piece).unwrap());
        assert_eq!(in_pieces(&scrubber, pieces), expected);
        assert_eq!(scrubber.scrub(&text), expected);
    }
}

/// A secret anywhere in more base64 than is held does not pass.
#[test]
fn long_base64_is_searched_as_it_passes() {
    use base64::Engine as _;
    let scrubber = Scrubber::new();
    let key = ["sk-", "ant-api03-", "aB3dE6gH9kL2mN5pQ8rS"].concat();
    let clean = "plain words, one after the other. ".repeat(4_000);
    for at in [0, 10_000, 32_768, 60_000, 100_001] {
        let text = format!("{} {key} {}", &clean[..at], &clean[at..]);
        let encoded = base64::engine::general_purpose::STANDARD.encode(&text);
        let pieces =
            encoded.as_bytes().chunks(777).map(|piece| std::str::from_utf8(piece).unwrap());
        let out = in_pieces(&scrubber, pieces);
        for offset in 0..3 {
            let shifted = format!("{}{key}", &"   "[..offset]);
            let sure = &base64::engine::general_purpose::STANDARD_NO_PAD.encode(shifted)[4..28];
            assert!(!out.contains(sure), "at {at}");
        }
        assert!(out.contains("[redacted base64]"), "at {at}");
    }
}

/// What is held stays bounded whatever comes.
#[test]
fn the_hold_is_bounded() {
    for unit in [
        "a",
        "\"password\": \"a b ",
        "-----BEGIN PRIVATE KEY-----\n",
        "://a:",
        "eyJ.",
        "    at x\n",
        "好",
    ] {
        let mut stream: ScrubStream = Scrubber::new().stream();
        let piece = unit.repeat(100);
        for _ in 0..300 {
            stream.push(&piece);
        }
        let rest = stream.finish();
        assert!(rest.len() <= 33 * 1024, "{unit:?} held {}", rest.len());
    }
}

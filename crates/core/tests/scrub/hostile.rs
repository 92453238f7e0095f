//! Hostile text costs a small multiple of innocent text, and twice as much of it twice as much.

use std::time::{Duration, Instant};

use budao_core::scrub::Scrubber;

/// Texts made to be slow, each about `size` bytes.
fn hostile(size: usize) -> Vec<(&'static str, String)> {
    let units = [
        ("sk-", "sk-"),
        ("sk- in words", "-sk-a "),
        ("equals", "="),
        ("dotted", "a.b.c."),
        ("slashes", "/"),
        ("at signs", "://a@"),
        ("URLs", "http://a:b/"),
        ("JWT heads", "eyJ-"),
        ("JWT halves", "-eyJhbGciOi."),
        ("base64", "QUFBQUFBQUFBQUFB"),
        ("base64 of text", "cGFzc3dvcmQgcGFzc3dvcmQg"),
        ("hex", "0123456789abcdef"),
        ("nested quotes", "\\\\\\\""),
        ("backslashes", "\\"),
        ("quotes", "\""),
        ("names", "password="),
        ("names and blanks", "password "),
        ("names and masks", "token=***"),
        ("names and quotes", "\"password\":\""),
        ("unclosed quotes", "token=\"a b "),
        ("quoted sentences", "\"password\": \"must be at least eight characters long, please\" "),
        ("addresses", "10.0.0."),
        ("groups", "fd00:"),
        ("colons", "::1"),
        ("homes", "/home/"),
        ("drives", "C:\\Users\\"),
        ("frames", "    at x\n"),
        ("frames in one line", "    at x"),
        ("frames, escaped", "\\n    at x"),
        ("traces", "Traceback (most recent call last):\n"),
        ("goroutines", "goroutine 1 [x]:\n"),
        ("goroutines, blank lines", "goroutine 1 [x]:\n\n\n\n\n\n"),
        ("key blocks", "-----BEGIN PRIVATE KEY-----"),
        (
            "key blocks with bodies",
            "-----BEGIN PRIVATE KEY-----\nQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFB\n",
        ),
        ("cookies", "cookie: a"),
        ("cookies, filled", "cookie: a=b; "),
        ("authorization", "authorization: "),
        ("digests", "authorization: digest username"),
        ("signatures", "signature="),
        ("webhooks", "hooks.slack.com/services/"),
        ("bearers", "bearer a"),
        ("wrapped lines", "QUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFB\n"),
        ("Chinese", "密码是"),
        ("flags", "--password "),
        ("brackets", "password=(((((("),
        ("types", "password: a = "),
        ("wrappers", "password: Some(Some(Some("),
        ("commas", "password=a,b,c,"),
        ("elements", "<password>"),
        ("users", " -u a:b"),
        ("terraform", ".atlasv1."),
        ("escapes", "\\u003dpassword\\u003d"),
    ];
    units.into_iter().map(|(name, unit)| (name, unit.repeat(size / unit.len()))).collect()
}

fn time(scrubber: &Scrubber, text: &str) -> Duration {
    (0..3)
        .map(|_| {
            let start = Instant::now();
            std::hint::black_box(scrubber.scrub(text));
            start.elapsed()
        })
        .min()
        .unwrap()
}

/// Goal: linear time. Method: each text at one size and at eight times that size; eight times the text
/// may take up to 24 times as long (quadratic would be 64). The least of three runs is taken, and a
/// pair that fails is measured again, since other work on the machine only ever adds.
#[test]
fn eight_times_the_text_takes_about_eight_times_as_long() {
    let scrubber = Scrubber::new();
    scrubber.scrub("warm up");
    let (small, large) = (hostile(16 * 1024), hostile(8 * 16 * 1024));
    for ((name, small), (_, large)) in small.iter().zip(&large) {
        let worst = (0..5)
            .map(|_| {
                let (one, eight) = (time(&scrubber, small), time(&scrubber, large));
                eight.as_secs_f64() / one.as_secs_f64().max(20e-6)
            })
            .fold(f64::MAX, f64::min);
        assert!(worst < 24.0, "{name}: eight times the text took {worst:.1} times as long");
    }
}

/// A megabyte of anything is done soon, even unoptimised and on a busy machine.
#[test]
fn a_megabyte_of_anything_ends() {
    let scrubber = Scrubber::with_secrets(["aaaaaa", "password=password="]);
    for (name, text) in hostile(1024 * 1024) {
        let start = Instant::now();
        std::hint::black_box(scrubber.scrub(&text));
        assert!(start.elapsed() < Duration::from_secs(30), "{name} took {:?}", start.elapsed());
    }
}

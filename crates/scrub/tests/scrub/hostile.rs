//! Hostile text costs a small multiple of innocent text, and twice as much of it twice as much.

use std::time::Duration;

use budao_scrub::Scrubber;
use rustix::time::{ClockId, clock_gettime};

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
        ("database URLs", "postgres://"),
        ("database URLs, nested", "mysql://a@"),
        ("Go connection strings", "a@tcp("),
        ("Go connection strings, filled", "a:b@tcp(c)/"),
        ("keys of connections", "host="),
        ("pairs of connections", "user=a "),
        ("pairs with semicolons", "server=a;"),
        ("quoted pairs", "user='a b c', "),
        ("phrases", "connect to "),
        ("phrases with hosts", "dial tcp a.b:"),
        ("domains", ".internal"),
        ("labels", "a.local."),
        ("ports", "a:6379"),
        ("ports and colons", "db:5432:"),
        ("secret keys", "aB3/dE6gH9kL2mN5pQ8rSt+V1wX4yZ7aC0eF3gJ6 "),
        ("told passwords", "passwd a1"),
        ("encoded URLs", "redis%3A%2F%2F"),
    ];
    units.into_iter().map(|(name, unit)| (name, unit.repeat(size / unit.len()))).collect()
}

/// CPU time of this thread: other work on the machine does not count.
fn cpu() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap())
}

fn cost(scrubber: &Scrubber, text: &str) -> Duration {
    let start = cpu();
    std::hint::black_box(scrubber.scrub(text));
    cpu() - start
}

/// Goal: linear time. Method: each text at one size and at eight times that size, in CPU time; eight
/// times the text may cost up to 24 times as much (quadratic would be 64). A pair that fails is measured
/// again, since a busy machine only ever adds.
#[test]
fn eight_times_the_text_costs_about_eight_times_as_much() {
    let scrubber = Scrubber::new();
    scrubber.scrub("warm up");
    let (small, large) = (hostile(8 * 1024), hostile(8 * 8 * 1024));
    for ((name, small), (_, large)) in small.iter().zip(&large) {
        let ratio = || {
            let (one, eight) = (cost(&scrubber, small), cost(&scrubber, large));
            eight.as_secs_f64() / one.as_secs_f64().max(20e-6)
        };
        let least = (0..6).map(|_| ratio()).find(|&ratio| ratio < 24.0);
        assert!(least.is_some(), "{name}: eight times the text costs more than 24 times as much");
    }
}

/// Much of anything ends soon, even unoptimised.
#[test]
fn much_of_anything_ends() {
    let scrubber = Scrubber::with_secrets(["aaaaaa", "password=password="]);
    for (name, text) in hostile(256 * 1024) {
        let cost = cost(&scrubber, &text);
        assert!(cost < Duration::from_secs(10), "{name} took {cost:?}");
    }
}

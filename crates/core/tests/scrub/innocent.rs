//! Innocent text stays.

use std::borrow::Cow;

use budao_core::scrub::Scrubber;

const LINES: &str = include_str!("../corpus/innocent.txt");

/// Goal: fewer than one innocent line in a thousand is touched.
/// Method: 2,600 lines of code, logs, hashes, addresses, English and Chinese, one by one.
#[test]
fn touches_fewer_than_one_innocent_line_in_a_thousand() {
    let scrubber = Scrubber::new();
    let lines: Vec<&str> = LINES.lines().collect();
    let touched: Vec<_> = lines
        .iter()
        .map(|line| (line, scrubber.scrub(line)))
        .filter(|(line, out)| out != *line)
        .collect();
    assert!(lines.len() >= 2_000, "{} lines", lines.len());
    assert!(touched.len() * 1000 < lines.len(), "touched {}: {touched:#?}", touched.len());
}

/// The lines together are as innocent as they are one by one, and cost no copy.
#[test]
fn borrows_what_it_does_not_change() {
    let scrubber = Scrubber::with_secrets(["not-in-there-at-all"]);
    assert!(matches!(scrubber.scrub(LINES), Cow::Borrowed(_)));
    assert!(matches!(scrubber.scrub_exact(LINES), Cow::Borrowed(_)));
    assert!(scrubber.is_clean(LINES));
}

//! No secret survives that is drawn from public formats, in any setting and in both languages.

use std::collections::BTreeSet;

use base64::engine::{Engine as _, general_purpose::STANDARD};
use budao_scrub::Scrubber;

use super::formats::{DrawnSecret, draw, seed, settings};

/// Secrets drawn for each format in a usual run, and with `BUDAO_FULL`.
const SOME: usize = 3;
const ALL: usize = 100;

/// How many leaks a failure shows.
const SHOWN: usize = 40;

fn examples() -> usize {
    if std::env::var_os("BUDAO_FULL").is_some() { ALL } else { SOME }
}

/// What must not appear of a secret: itself, 12 characters of it, and what it decides in base64.
fn stretches(secret: &DrawnSecret) -> Vec<String> {
    let mut all = secret.hidden.clone();
    for hidden in &secret.hidden {
        let chars: Vec<char> = hidden.chars().collect();
        all.extend(chars.windows(12).map(|window| window.iter().collect::<String>()));
        for offset in 0..3 {
            let encoded = STANDARD.encode(format!("{}{hidden}", &"   "[..offset]));
            let sure: Vec<char> =
                encoded.chars().skip(4).take(encoded.len().saturating_sub(8)).collect();
            all.extend(sure.windows(16).map(|window| window.iter().collect::<String>()));
        }
    }
    all
}

/// Goal: zero leaks over at least 200 formats in at least 10 settings each. Method: draw secrets of every format, plant
/// them in every setting, and look for them in what comes out; what comes out must be settled.
#[test]
fn no_secret_of_a_public_format_survives() {
    let (scrubber, seed) = (Scrubber::new(), seed());
    let (mut formats, mut pairs, mut leaks) = (BTreeSet::new(), 0, Vec::new());
    for secret in draw(seed, examples()) {
        formats.insert(secret.format);
        let stretches = stretches(&secret);
        let planted = settings(&secret.text);
        assert!(planted.len() >= 10, "{} in {} settings", secret.format, planted.len());
        for (setting, text) in planted {
            pairs += 1;
            let out = scrubber.scrub(&text);
            let leak = stretches.iter().find(|stretch| out.contains(*stretch));
            let settled = scrubber.scrub(&out) == out;
            if leak.is_some() || !settled {
                leaks.push(format!("{} in {setting}: {leak:?}\n  {text}\n  {out}", secret.format));
            }
        }
    }
    let (count, some) = (leaks.len(), leaks.len().min(SHOWN));
    assert!(count == 0, "seed {seed}: {count} of {pairs} leak:\n{}", leaks[..some].join("\n"));
    assert!(formats.len() >= 200, "{} formats", formats.len());
    eprintln!("security T6: {} drawn formats, {pairs} pairs, seed {seed}", formats.len());
}

/// Goal: a secret that arrives in two parts is found like a whole one. Method: one secret of every format, cut at every
/// third character.
#[test]
fn no_secret_of_a_public_format_survives_a_cut() {
    let (scrubber, seed) = (Scrubber::new(), seed());
    let mut cuts = 0;
    for secret in draw(seed, 1) {
        let text = format!("before it: {} and after it, 之后。", secret.text);
        let whole = scrubber.scrub(&text);
        for (cut, _) in text.char_indices().step_by(3) {
            cuts += 1;
            let mut stream = scrubber.stream();
            let out = [stream.push(&text[..cut]), stream.push(&text[cut..])].concat();
            assert_eq!(out + &stream.finish(), whole, "{} cut at {cut}", secret.format);
        }
    }
    eprintln!("security T6: {cuts} drawn secrets cut in two between deltas, seed {seed}");
}

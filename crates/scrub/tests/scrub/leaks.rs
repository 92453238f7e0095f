//! No secret survives, in any setting.

use budao_scrub::Scrubber;

use super::corpus::secrets;

/// Goal: zero leaks. Method: every example of every format in every setting; neither the secret nor
/// any 12 characters of it may be in what comes out, nor in what comes out of scrubbing that again.
#[test]
fn no_secret_survives_in_any_setting() {
    let scrubber = Scrubber::new();
    let mut leaks = Vec::new();
    let mut pairs = 0;
    for secret in secrets() {
        let stretches = secret.stretches();
        for planted in secret.planted() {
            pairs += 1;
            let out = scrubber.scrub(&planted.text);
            if let Some(stretch) = stretches.iter().find(|stretch| out.contains(*stretch)) {
                leaks.push(format!(
                    "{} in {}: {stretch:?} of\n  {}\n  {out}",
                    secret.format, planted.setting, planted.text
                ));
            }
            let again = scrubber.scrub(&out);
            if again != out || scrubber.is_clean(&planted.text) || !scrubber.is_clean(&out) {
                let (format, setting) = (&secret.format, planted.setting);
                leaks.push(format!("{format} in {setting}: not settled\n  {out}\n  {again}"));
            }
        }
    }
    assert!(leaks.is_empty(), "{} of {pairs} leak:\n{}", leaks.len(), leaks.join("\n"));
    assert!(pairs > 4_000, "only {pairs} pairs");
    eprintln!("security T6: {pairs} pairs of secret and setting");
}

#[test]
fn knows_at_least_sixty_formats() {
    let mut formats: Vec<String> = secrets().into_iter().map(|secret| secret.format).collect();
    formats.dedup();
    assert!(formats.len() >= 60, "{} formats", formats.len());
}

/// What stands around a secret is not the scrubber's business.
#[test]
fn leaves_the_rest_byte_for_byte() {
    let scrubber = Scrubber::new();
    for secret in secrets() {
        for (before, after) in [
            ("Vorher 之前 → ", " ← nachher 之后 ."),
            ("(see: ", " ) [1] 'x'"),
            ("\u{1f980}\n", "\n\u{1f980}"),
        ] {
            let out = scrubber.scrub(&format!("{before}{}{after}", secret.text)).into_owned();
            assert!(out.starts_with(before), "{}: {out}", secret.format);
            assert!(out.ends_with(after), "{}: {out}", secret.format);
        }
    }
}

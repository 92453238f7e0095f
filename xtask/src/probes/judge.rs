//! Evaluates the results of the probes and renders them as tables, by the same rules for all frameworks.

use std::fmt::Write as _;

use super::{ProbeResults, SECRETS};

/// The number of the effect in each line of a ledger.
pub(super) fn effects(ledger: &str) -> Vec<usize> {
    ledger.lines().filter_map(|line| line.split_whitespace().next()?.parse().ok()).collect()
}

/// Counts the earlier effects that happened again, and the effects that never happened.
pub(super) fn compare(before: &[usize], after: &[usize], calls: usize) -> (usize, usize) {
    let count = |list: &[usize], effect: usize| list.iter().filter(|one| **one == effect).count();
    let again = (0..calls).filter(|effect| count(before, *effect) > 0 && count(after, *effect) > 1);
    let never = (0..calls).filter(|effect| count(after, *effect) == 0);
    (again.count(), never.count())
}

fn leaks(text: &str) -> bool {
    SECRETS.iter().any(|secret| text.contains(secret))
}

/// Shortens a text to fit a cell and removes the secret, which must not appear on a page although it is invented.
fn excerpt(text: &str) -> String {
    let text = SECRETS.iter().fold(text.to_owned(), |text, secret| text.replace(secret, "▮▮▮"));
    let told = serde_json::from_str::<serde_json::Value>(&text).ok();
    let error = told.as_ref().and_then(|told| told["error"].as_str());
    let line = error.unwrap_or(&text).split_whitespace().collect::<Vec<_>>().join(" ");
    let line = line.replace('|', "/");
    if line.chars().count() > 90 { line.chars().take(89).chain(['…']).collect() } else { line }
}

pub(super) fn tables(seen: &ProbeResults) -> String {
    let mut text = String::new();
    let mut say = |line: &str| writeln!(text, "{line}").expect("a string takes all");
    say(
        "| A: killed in a batch of three calls | kills | done before | of these done again | never done | reported as in doubt | a person was needed for |",
    );
    say("|---|---|---|---|---|---|---|");
    for batch in &seen.batches {
        let super::BatchProbe { name, kills, before, again, never, in_doubt, person } = batch;
        say(&format!(
            "| {name} | {kills} | {before} | {again} | {never} | {in_doubt} | {person} |"
        ));
    }
    say("\n| B: one invalid call without end | model calls | ended by |");
    say("|---|---|---|");
    for endless in &seen.endless {
        let super::EndlessProbe { name, model_calls, ended } = endless;
        say(&format!("| {name} | {model_calls} | {ended} |"));
    }
    say(
        "\n| C: a failure whose text contains a key | the model read | key shown to the model | key in the caller's error |",
    );
    say("|---|---|---|---|");
    for secret in &seen.secrets {
        let yes = |is: bool| if is { "**yes**" } else { "no" };
        let saw = match excerpt(&secret.model_saw) {
            saw if saw.is_empty() => "nothing: the run ended with the exception".to_owned(),
            saw => format!("“{saw}”"),
        };
        let (shown, escaped) = (yes(leaks(&secret.model_saw)), yes(leaks(&secret.escaped)));
        say(&format!("| {} | {saw} | {shown} | {escaped} |", secret.name));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::{BatchProbe, EndlessProbe, SecretProbe, TEXT};
    use super::*;

    #[test]
    fn an_effect_counts_as_repeated_only_if_it_had_taken_place_before_the_kill() {
        assert_eq!(effects("0 key\n1\n\n"), [0, 1]);
        assert_eq!(compare(&[0], &[0, 0, 1, 2], 3), (1, 0));
        assert_eq!(compare(&[0, 1], &[0, 1], 3), (0, 1));
        assert_eq!(compare(&[0, 1, 2], &[0, 1, 2, 0, 1, 2], 3), (3, 0));
    }

    #[test]
    fn a_leak_is_seen_wherever_it_is_and_not_printed() {
        let secret = |model_saw: &str, escaped: &str| SecretProbe {
            name: "x".to_owned(),
            model_saw: model_saw.to_owned(),
            escaped: escaped.to_owned(),
        };
        let seen = ProbeResults {
            batches: vec![BatchProbe { name: "x".to_owned(), kills: 3, ..BatchProbe::default() }],
            endless: vec![EndlessProbe {
                name: "x".to_owned(),
                model_calls: 301,
                ended: "cap".to_owned(),
            }],
            secrets: vec![secret(TEXT, ""), secret("", TEXT), secret("it failed", "")],
        };
        let text = tables(&seen);
        assert!(!leaks(&text), "{text}");
        let cells: Vec<&str> = text.lines().rev().take(3).collect();
        assert!(cells[2].ends_with("| **yes** | no |"), "{text}");
        assert!(cells[1].ends_with("| no | **yes** |"), "{text}");
        assert_eq!(cells[0], "| x | “it failed” | no | no |");
        assert!(text.contains("| x | 301 | cap |"));
    }
}

//! Finds the kind for a typed code, number or name.

use budao_core::{Kind, Lang, fault::text};
use strum::VariantArray as _;

use super::{Args, ProtocolNumbers};
use crate::smcp;

/// Maximum number of suggestions.
const NEAREST_MAX: usize = 5;

/// Minimum similarity of a suggestion, from 0 to 1.
const ALIKE: f64 = 0.8;

/// The result of a lookup.
#[derive(Debug, PartialEq)]
pub(super) enum LookupResult {
    /// Exactly one kind matches.
    One(Kind),
    /// The kind this SMCP number primarily stands for, and how many other kinds share the number.
    PrimaryNumber { kind: Kind, number: i64, others: usize },
    /// Several kinds match equally well.
    Several(Vec<Kind>),
    /// No kind matches; these are similar.
    None(Suggestions),
}

/// Kinds similar to the typed text, best first.
#[derive(Debug, PartialEq)]
pub(super) enum Suggestions {
    /// Kinds with a similar number.
    Numbers(Vec<Kind>),
    /// Kinds with a similar code, name or title.
    Names(Vec<Kind>),
}

/// Looks up a number, else a code, a name or title, and an error type, in that order; else suggests similar kinds.
pub(super) fn find(query: &str) -> LookupResult {
    if let Ok(number) = query.trim().parse() {
        return by_number(number);
    }
    let wanted = plain(query);
    let coded = |kind: &Kind| {
        let code = plain(kind.row().code);
        code == wanted || code.strip_prefix("err") == Some(&wanted)
    };
    let named = |kind: &Kind| plain(kind.row().name) == wanted || has_title(*kind, &wanted);
    let typed = |kind: &Kind| plain(kind.row().type_name) == wanted;
    for kinds in [kinds(coded), kinds(named), kinds(typed)] {
        match kinds[..] {
            [] => {}
            [kind] => return LookupResult::One(kind),
            _ => return LookupResult::Several(kinds),
        }
    }
    LookupResult::None(Suggestions::Names(nearest(&wanted)))
}

/// The kinds that match the filters and the text of `--list`.
pub(super) fn filtered(args: &Args, query: &str) -> Vec<Kind> {
    let wanted = plain(query);
    let number = query.trim().parse().ok();
    kinds(|kind| {
        let row = kind.row();
        let fits_text = || {
            [row.code, row.name, row.type_name].iter().any(|text| plain(text).contains(&wanted))
                || titles(*kind).iter().any(|title| title.contains(&wanted))
        };
        args.category.is_none_or(|category| row.category == category)
            && args.remedy.is_none_or(|remedy| row.remedy == remedy)
            && args.severity.is_none_or(|severity| row.severity == severity)
            && number.map_or_else(fits_text, |number| has_number(*kind, number))
    })
}

fn by_number(number: i64) -> LookupResult {
    let with_number = kinds(|kind| has_number(*kind, number));
    let home = |kind: &&Kind| smcp::is_home(**kind) && smcp_number(**kind) == Some(number);
    match (with_number.iter().find(home), &with_number[..]) {
        (Some(kind), _) => {
            LookupResult::PrimaryNumber { kind: *kind, number, others: with_number.len() - 1 }
        }
        (None, []) => LookupResult::None(Suggestions::Numbers(nearest_numbers(number))),
        (None, [kind]) => LookupResult::One(*kind),
        (None, _) => LookupResult::Several(with_number),
    }
}

fn has_number(kind: Kind, number: i64) -> bool {
    ProtocolNumbers::of(kind).all().any(|known| known == number)
}

fn smcp_number(kind: Kind) -> Option<i64> {
    ProtocolNumbers::of(kind).smcp()
}

/// Kinds whose primary SMCP number is at most two edits away, nearest first.
fn nearest_numbers(number: i64) -> Vec<Kind> {
    let mut homes = kinds(|kind| smcp::is_home(*kind));
    let far = |kind: &Kind| {
        let smcp = smcp_number(*kind).unwrap_or_default();
        (strsim::osa_distance(&smcp.to_string(), &number.to_string()), smcp.abs_diff(number))
    };
    homes.retain(|kind| far(kind).0 <= 2);
    homes.sort_by_key(far);
    homes.truncate(NEAREST_MAX);
    homes
}

/// Kinds with a similar code, name or title, most similar first.
fn nearest(wanted: &str) -> Vec<Kind> {
    let mut scored: Vec<_> = Kind::VARIANTS
        .iter()
        .map(|kind| (likeness(wanted, *kind), *kind))
        .filter(|(score, _)| *score >= ALIKE)
        .collect();
    scored.sort_by(|(one, _), (other, _)| other.total_cmp(one));
    let best = scored.first().map_or(0.0, |(score, _)| *score);
    // Suggestions clearly worse than the best one are dropped.
    scored.retain(|(score, _)| best - score < 0.1);
    scored.truncate(NEAREST_MAX);
    scored.into_iter().map(|(_, kind)| kind).collect()
}

fn likeness(wanted: &str, kind: Kind) -> f64 {
    let row = kind.row();
    let [english, chinese] = titles(kind);
    let texts = [plain(row.code), plain(row.name), english, chinese];
    let score = |text: &String| {
        // A part of the text also counts as similar: `timeout`, `disk`.
        let part = wanted.len() >= 3 && text.contains(wanted);
        strsim::normalized_damerau_levenshtein(wanted, text).max(if part { 0.85 } else { 0.0 })
    };
    texts.iter().map(score).fold(0.0, f64::max)
}

fn kinds(fits: impl Fn(&Kind) -> bool) -> Vec<Kind> {
    Kind::VARIANTS.iter().copied().filter(|kind| fits(kind)).collect()
}

fn has_title(kind: Kind, wanted: &str) -> bool {
    !wanted.is_empty() && titles(kind).iter().any(|title| title == wanted)
}

fn titles(kind: Kind) -> [String; 2] {
    [Lang::En, Lang::Zh].map(|lang| plain(&text::of_kind(kind, "title", lang)))
}

/// Letters and digits in lower case, so that `ERR-VAL 001` equals `err_val_001` and `DeadlinePassed` equals `deadline
/// passed`.
fn plain(text: &str) -> String {
    text.chars().filter(|letter| letter.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_found_by_its_code_name_and_titles() {
        for kind in Kind::VARIANTS {
            let row = kind.row();
            let [english, chinese] =
                [Lang::En, Lang::Zh].map(|lang| text::of_kind(*kind, "title", lang));
            let spellings = [
                row.code.to_owned(),
                row.code.to_lowercase(),
                row.code.replace('_', "-"),
                row.code.trim_start_matches("ERR_").to_owned(),
                row.name.to_owned(),
                row.name.replace('_', " "),
                format!("{kind:?}"),
                english,
                chinese,
            ];
            for spelling in spellings {
                assert_eq!(find(&spelling), LookupResult::One(*kind), "{spelling}");
            }
        }
    }

    #[test]
    fn every_number_leads_somewhere() {
        for kind in Kind::VARIANTS {
            let numbers = ProtocolNumbers::of(*kind);
            if let Some(smcp) = numbers.smcp() {
                let LookupResult::PrimaryNumber { kind: home, .. } = by_number(smcp) else {
                    panic!("{smcp} has no page")
                };
                assert_eq!(smcp_number(home), Some(smcp));
            }
            for number in numbers.all() {
                assert!(!matches!(by_number(number), LookupResult::None(_)), "{number}");
            }
        }
    }

    #[test]
    fn a_mistyped_name_gets_a_suggestion() {
        let first = |query: &str| match find(query) {
            LookupResult::None(Suggestions::Names(near) | Suggestions::Numbers(near)) => {
                near.first().copied()
            }
            found => panic!("{query}: {found:?}"),
        };
        assert_eq!(first("ERR_TIMEOUT_01"), Some(Kind::RequestTimedOut));
        assert_eq!(first("EER_VAL_002"), Some(Kind::InvalidArguments));
        assert_eq!(first("dedline_passed"), Some(Kind::DeadlinePassed));
        assert_eq!(first("disk"), Some(Kind::DiskFull));
        assert_eq!(first("工具"), Some(Kind::InvalidArguments));
        assert_eq!(first("4110"), Some(Kind::RoomFull));
        assert_eq!(first("qwertyuiop"), None);
        assert_eq!(first(""), None);
        assert_eq!(first("999999999"), None);
    }
}

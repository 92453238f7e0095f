//! Does a refusal teach? A fixer that reads nothing but our error must be able to mend the call.
//!
//! Method: take a valid call of a realistic tool, change one thing at random, and let the tool's check
//! refuse it. A rule-based fixer gets its own call and the JSON a model would read, applies each mismatch
//! once, and the check says whether the call fits now. No schema, no second try.

mod fixer;
mod mutate;

use std::collections::BTreeMap;

use budao_core::{Lang, limits::Limits, tool::Outcome};
use budao_tools::{RawTool, Toolbox};
use mutate::Dice;
use serde::Deserialize;
use serde_json::{Value, json};

const MUTATIONS: usize = 10_000;
const BAR: f64 = 0.95;

/// One file of the corpus.
#[derive(Debug, Deserialize)]
struct Sample {
    name: String,
    description: String,
    schema: Value,
    calls: Vec<Value>,
}

fn corpus() -> Vec<Sample> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/teaching/corpus");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .expect("the corpus is beside this file")
        .map(|entry| entry.expect("readable").path())
        .collect();
    files.sort();
    files
        .iter()
        .map(|file| {
            let text = std::fs::read_to_string(file).expect("readable");
            serde_json::from_str(&text)
                .unwrap_or_else(|error| panic!("{}: {error}", file.display()))
        })
        .collect()
}

fn toolbox(corpus: &[Sample]) -> Toolbox {
    let mut builder = Toolbox::builder();
    for sample in corpus {
        let tool =
            RawTool::new(&sample.name, &sample.description, sample.schema.clone(), |_, _| async {
                Ok(json!(null))
            });
        builder = builder.add(tool).unwrap_or_else(|fault| panic!("{fault}"));
    }
    builder.build()
}

/// What a model would read about a call that does not fit; nothing if it fits.
fn refusal(toolbox: &Toolbox, name: &str, call: &Value) -> Option<Value> {
    let fault = toolbox.check_value(name, call.clone(), &Limits::default()).err()?;
    let rendered = Outcome::from(fault).render_for_model(Lang::En).0;
    Some(serde_json::from_str(&rendered).expect("a model reads JSON"))
}

#[test]
fn the_corpus_is_large_enough_and_its_calls_fit() {
    let corpus = corpus();
    assert!(corpus.len() >= 60, "{} tools", corpus.len());
    let toolbox = toolbox(&corpus);
    assert_eq!(toolbox.warnings().count(), 0);
    for sample in &corpus {
        assert!(!sample.calls.is_empty(), "{}", sample.name);
        for call in &sample.calls {
            let refused = refusal(&toolbox, &sample.name, call);
            assert!(refused.is_none(), "{} {call}: {refused:?}", sample.name);
        }
    }
}

#[test]
fn every_refusal_of_an_empty_call_comes_with_an_example_that_fits() {
    let corpus = corpus();
    let toolbox = toolbox(&corpus);
    for sample in &corpus {
        let Some(rendered) = refusal(&toolbox, &sample.name, &json!({ "no_such_key_here": 1 }))
        else {
            continue;
        };
        let example =
            rendered.get("example").unwrap_or_else(|| panic!("{}: {rendered}", sample.name));
        assert!(toolbox.fits(&sample.name, example), "{}: {example}", sample.name);
    }
}

#[test]
fn a_fixer_that_reads_nothing_but_our_error_mends_95_of_100_calls() {
    let seed = std::env::var("BUDAO_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    eprintln!("seed {seed}; set BUDAO_SEED for another one");
    let corpus = corpus();
    let toolbox = toolbox(&corpus);
    let mut dice = Dice::new(seed);
    let mut by_change: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    let mut shown = 0;
    let mut made = 0;
    while made < MUTATIONS {
        let sample = dice.pick(&corpus);
        let call = dice.pick(&sample.calls);
        let Some((change, broken)) = mutate::mutate(call, &mut dice) else { continue };
        let Some(rendered) = refusal(&toolbox, &sample.name, &broken) else { continue };
        made += 1;
        let mended = fixer::fix(&broken, &rendered);
        let fits = mended.as_ref().is_some_and(|call| toolbox.fits(&sample.name, call));
        let count = by_change.entry(change).or_default();
        count.0 += usize::from(fits);
        count.1 += 1;
        if !fits && shown < 12 {
            shown += 1;
            eprintln!(
                "{} {change}\n  {broken}\n  {}\n  {}",
                sample.name, rendered["mismatches"], rendered["example"]
            );
        }
    }
    let mended: usize = by_change.values().map(|(fits, _)| fits).sum();
    for (change, (fits, all)) in &by_change {
        eprintln!("{change:24} {fits:5} of {all:5}");
    }
    let share = mended as f64 / made as f64;
    eprintln!("mended {mended} of {made} ({:.2} %)", share * 100.0);
    assert!(share >= BAR, "seed {seed}: {share}");
}

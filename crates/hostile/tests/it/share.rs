//! A share of the fuzzing in every run: each target gets its committed corpus and a bounded number of seeded mutations.
//!
//! `BUDAO_FUZZ` is another number of mutations, `BUDAO_SEED` another seed.

use budao_hostile::{TARGETS, corpus, play, target};

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn feed(name: &str) {
    let target = target(name).expect("a target of that name");
    let (seed, count) =
        (number("BUDAO_SEED").unwrap_or(1), number("BUDAO_FUZZ").unwrap_or(target.share));
    match play(target, &corpus(target), seed, count, None, |_| {}) {
        Ok(tried) => eprintln!("{name}: {tried} inputs, seed {seed}"),
        Err(broken) => panic!(
            "seed {seed}, after {} inputs: {}\n{}",
            broken.tried,
            broken.message,
            broken.input.escape_ascii()
        ),
    }
}

macro_rules! shares {
    ($($name:ident)*) => {
        const NAMED: &[&str] = &[$(stringify!($name)),*];

        mod whatever_is_read_keeps_its_promises {
            $(#[test] fn $name() { super::feed(stringify!($name)); })*
        }
    };
}

shares! {
    inbound signed event wire polling acp claude mcp stream refusal batch import witness history snapshot schema
    arguments scrub script skill settings document
}

#[test]
fn every_target_has_its_share() {
    let all: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
    assert_eq!(NAMED, all);
}

/// Goal: the player finds what is there to be found. Method: a target with a planted mistake.
#[test]
fn a_planted_mistake_is_found_made_small_and_found_again() {
    fn planted(bytes: &[u8]) {
        assert!(!bytes.windows(2).any(|pair| pair == b"]]"), "planted");
    }
    let target = budao_hostile::Target { name: "planted", about: "", share: 0, run: planted };
    let corpus = [br#"{"a":[[1],[2]]}"#[..12].to_vec()];
    let found = |seed| play(&target, &corpus, seed, 100_000, None, |_| {}).unwrap_err();
    let broken = found(1);
    assert_eq!((broken.input, &*broken.message), (b"]]".to_vec(), "planted"));
    assert_eq!(found(1).tried, found(1).tried, "the same seed finds the same");
}

//! Feeds a target: its corpus, then mutations of it, until a count or a time is reached; and makes what broke it small.

use std::{
    panic::{self, AssertUnwindSafe},
    path::{Path, PathBuf},
    time::Instant,
};

use crate::{Mutator, Target};

/// Tries to make a failing input smaller.
const SHRINKS: usize = 2_000;

/// An input that broke a promise.
#[derive(Debug)]
pub struct FailingInput {
    /// What broke it, as small as it could be made.
    pub input: Vec<u8>,
    /// What it said.
    pub said: String,
    /// Inputs tried before it.
    pub tried: u64,
}

/// Where the corpora are.
fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus")
}

/// The committed inputs of a target, in the order of their names.
///
/// # Panics
/// If there are none: a target without a corpus is a mistake.
#[must_use]
pub fn corpus(target: &Target) -> Vec<Vec<u8>> {
    let folder = folder().join(target.name);
    let mut files: Vec<PathBuf> = std::fs::read_dir(&folder)
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.is_file())
        .collect();
    files.sort();
    assert!(!files.is_empty(), "no corpus in {}", folder.display());
    files.iter().filter_map(|path| std::fs::read(path).ok()).collect()
}

/// Feeds a target its corpus and then `count` mutations, or as many as fit before `until`. Returns how many inputs
/// it was fed.
///
/// # Errors
/// The first input that broke it.
pub fn play(
    target: &Target,
    corpus: &[Vec<u8>],
    seed: u64,
    count: u64,
    until: Option<Instant>,
    mut seen: impl FnMut(&[u8]),
) -> Result<u64, Box<FailingInput>> {
    let mut mutator = Mutator::new(corpus, seed);
    let mut tried = 0;
    let mut feed = |input: &[u8]| {
        seen(input);
        if let Err(said) = fed(target, input) {
            let (input, said) = smaller(target, input.to_vec(), said);
            return Err(Box::new(FailingInput { input, said, tried }));
        }
        tried += 1;
        Ok(tried)
    };
    let mut total = 0;
    for input in corpus {
        total = feed(input)?;
    }
    for _ in 0..count {
        if until.is_some_and(|until| Instant::now() >= until) {
            break;
        }
        total = feed(&mutator.next_input())?;
    }
    Ok(total)
}

fn fed(target: &Target, input: &[u8]) -> Result<(), String> {
    panic::catch_unwind(AssertUnwindSafe(|| (target.run)(input))).map_err(|payload| {
        let text = payload.downcast_ref::<String>().map(String::as_str);
        text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("a panic").to_owned()
    })
}

/// Takes away what the failure does not need.
fn smaller(target: &Target, mut input: Vec<u8>, mut said: String) -> (Vec<u8>, String) {
    let (mut size, mut left) = (input.len() / 2, SHRINKS);
    while size > 0 && left > 0 {
        let mut at = 0;
        while at < input.len() && left > 0 {
            left -= 1;
            let mut less = input.clone();
            drop(less.drain(at..(at + size).min(less.len())));
            match fed(target, &less) {
                Err(now) => (input, said) = (less, now),
                Ok(()) => at += size,
            }
        }
        size /= 2;
    }
    (input, said)
}

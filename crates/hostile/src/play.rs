//! Feeds a target its corpus, then mutations, until a count or a time is reached, and shrinks an input that fails.

use std::{
    panic::{self, AssertUnwindSafe},
    path::{Path, PathBuf},
    time::Instant,
};

use crate::{Mutator, Target};

/// Upper bound for the attempts to shrink a failing input.
const SHRINKS: usize = 2_000;

/// An input that made a target panic.
#[derive(Debug)]
pub struct FailingInput {
    /// The input after shrinking.
    pub input: Vec<u8>,
    /// The panic message.
    pub message: String,
    /// Number of inputs tried before this one.
    pub tried: u64,
}

/// The folder with one corpus per target.
fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus")
}

/// The committed inputs of a target, sorted by file name.
///
/// # Panics
/// If there are none: every target needs a corpus.
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

/// Feeds a target its corpus and then `count` mutations, or as many as fit before `until`. Returns the number of
/// inputs.
///
/// # Errors
/// The first input that made the target panic, shrunk.
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
        if let Err(message) = feed(target, input) {
            let (input, message) = smaller(target, input.to_vec(), message);
            return Err(Box::new(FailingInput { input, message, tried }));
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

fn feed(target: &Target, input: &[u8]) -> Result<(), String> {
    panic::catch_unwind(AssertUnwindSafe(|| (target.run)(input))).map_err(|payload| {
        let text = payload.downcast_ref::<String>().map(String::as_str);
        text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("a panic").to_owned()
    })
}

/// Removes parts of the input as long as the target still panics.
fn smaller(target: &Target, mut input: Vec<u8>, mut message: String) -> (Vec<u8>, String) {
    let (mut size, mut left) = (input.len() / 2, SHRINKS);
    while size > 0 && left > 0 {
        let mut at = 0;
        while at < input.len() && left > 0 {
            left -= 1;
            let mut less = input.clone();
            drop(less.drain(at..(at + size).min(less.len())));
            match feed(target, &less) {
                Err(now) => (input, message) = (less, now),
                Ok(()) => at += size,
            }
        }
        size /= 2;
    }
    (input, message)
}

//! All targets in one program: which one is fed, `BUDAO_FUZZ_TARGET` says.
#![no_main]

use std::sync::LazyLock;

use budao_hostile::{Mutator, Target};
use libfuzzer_sys::{fuzz_mutator, fuzz_target, fuzzer_mutate};

/// Of so many changes one is made by our own mutator, which knows the words that parsers look for.
const OURS: u32 = 4;

static TARGET: LazyLock<&Target> = LazyLock::new(|| {
    let name = std::env::var("BUDAO_FUZZ_TARGET").expect("BUDAO_FUZZ_TARGET names a target");
    budao_hostile::target(&name).expect("a target of that name")
});

fuzz_target!(|bytes: &[u8]| (TARGET.run)(bytes));

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    if seed % OURS != 0 {
        return fuzzer_mutate(data, size, max_size);
    }
    let input = Mutator::new(&[data[..size].to_vec()], seed.into()).next_input();
    let size = input.len().min(max_size);
    data[..size].copy_from_slice(&input[..size]);
    size
});

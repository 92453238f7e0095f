//! One program per target, all from this file: which one it is, its name says.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let target = budao_hostile::target(env!("CARGO_BIN_NAME")).expect("a target of that name");
    (target.run)(bytes);
});

//! How fast this machine is right now: a fixed piece of arithmetic and a fixed copy, without a bar. Two runs
//! of `cargo xtask bench` whose yardsticks differ ran on different machines, or on a busy one.

use std::hint::black_box;

use budao_testkit::bench::{Suite, Unit};

fn main() {
    let bytes = vec![7_u8; 1 << 20];
    let mut suite = Suite::from_args(15);
    suite.case("yardstick/arithmetic", Unit::MicrosCpu, None, || {
        (0..10_000_u64).fold(1_u64, |sum, turn| black_box(sum.wrapping_mul(31).wrapping_add(turn)))
    });
    suite.case("yardstick/copy", Unit::MegabytesPerSecond { bytes: bytes.len() }, None, || {
        bytes.clone()
    });
    suite.run();
}

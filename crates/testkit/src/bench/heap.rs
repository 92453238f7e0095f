//! Counts what a program takes from the heap, with valgrind: no allocator of ours is involved, and other work on the
//! machine does not change the figures.

use std::{io, path::Path, process::Command};

/// What a run took from the heap, all its threads included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeapUse {
    /// Allocations, reallocations included.
    pub allocations: u64,
    /// Bytes of all allocations together.
    pub bytes: u64,
}

/// The heap use of a program from its start to its end; none without valgrind.
///
/// # Panics
/// When the program fails.
pub fn heap_use(program: &Path, args: &[&str]) -> Option<HeapUse> {
    // Only the counts matter: nothing is checked.
    let text = valgrind(&["--leak-check=no", "--undef-value-errors=no"], program, args)?;
    Some(parse_use(&text).expect("valgrind prints the heap usage"))
}

/// The most bytes of the heap that a program held at one moment; none without valgrind.
///
/// # Panics
/// When the program fails.
pub fn heap_peak(program: &Path, args: &[&str]) -> Option<u64> {
    let text = valgrind(&["--tool=dhat", "--dhat-out-file=/dev/null"], program, args)?;
    Some(parse_peak(&text).expect("valgrind prints the peak"))
}

#[expect(clippy::print_stderr, reason = "a bench says what it does not measure")]
fn valgrind(options: &[&str], program: &Path, args: &[&str]) -> Option<String> {
    let output = Command::new("valgrind").args(options).arg(program).args(args).output();
    let output = match output {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            eprintln!("NOT MEASURED: valgrind is not installed");
            return None;
        }
        output => output.expect("valgrind starts"),
    };
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "the program failed under valgrind:\n{text}");
    Some(text)
}

/// Parses `==7==   total heap usage: 1,234 allocs, 1,230 frees, 56,789 bytes allocated`.
fn parse_use(text: &str) -> Option<HeapUse> {
    let (_, counts) = text.rsplit_once("total heap usage:")?;
    let counts = counts.lines().next()?;
    Some(HeapUse {
        allocations: number_before(counts, "allocs")?,
        bytes: number_before(counts, "bytes allocated")?,
    })
}

/// Parses `==7== At t-gmax: 56,789 bytes in 12 blocks`.
fn parse_peak(text: &str) -> Option<u64> {
    let (_, peak) = text.rsplit_once("At t-gmax:")?;
    number_before(peak.lines().next()?, "bytes")
}

fn number_before(text: &str, unit: &str) -> Option<u64> {
    let (before, _) = text.split_once(unit)?;
    before.split_whitespace().next_back()?.replace(',', "").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figures_are_read_from_what_valgrind_prints() {
        let text = "==7== HEAP SUMMARY:\n==7==     in use at exit: 5 bytes in 1 blocks\n\
                    ==7==   total heap usage: 1,234 allocs, 1,230 frees, 56,789 bytes allocated\n==7== \n";
        assert_eq!(parse_use(text), Some(HeapUse { allocations: 1_234, bytes: 56_789 }));
        let text = "==7== Total:     99,000 bytes in 44 blocks\n==7== At t-gmax: 8,000 bytes in 4 blocks\n";
        assert_eq!(parse_peak(text), Some(8_000));
        assert_eq!((parse_use("nothing"), parse_peak("nothing")), (None, None));
    }
}

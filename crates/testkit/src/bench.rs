//! Measuring for `cargo xtask bench`: CPU time per iteration, in interleaved rounds.
//!
//! CPU time of the whole process, not the clock on the wall: other work on the machine then costs
//! spread, not truth. Cases of one suite run in turns, round after round, so that a slow second of the
//! machine hits all of them alike. The number is the median of the rounds; beside it goes the middle half.
//!
//! A bench target (`harness = false`) reads like this:
//!
//! ```no_run
//! use budao_testkit::bench::{Suite, Unit};
//!
//! let text = "a clean line\n".repeat(1000);
//! let mut suite = Suite::from_args(15);
//! suite.case("text/copy", Unit::MicrosCpu, Some(50.0), || text.clone());
//! suite.case("text/find", Unit::MegabytesPerSecond { bytes: text.len() }, Some(300.0), || {
//!     text.contains("needle")
//! });
//! suite.run();
//! ```

mod heap;

use std::fmt;
use std::hint::black_box;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

pub use heap::{HeapUse, heap_peak, heap_use};

/// CPU time of one round of one case: long against the clock's resolution, short against changes of machine load.
const ROUND: Duration = Duration::from_millis(20);

/// CPU time spent on a case before measuring starts.
const WARM_UP: Duration = Duration::from_millis(50);

/// The unit of a measurement.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Unit {
    /// Nanoseconds of CPU time per iteration.
    NanosCpu,
    /// Microseconds of CPU time per iteration.
    MicrosCpu,
    /// Milliseconds of CPU time per iteration.
    MillisCpu,
    /// Megabytes (10⁶ bytes) worked through per second of CPU time.
    MegabytesPerSecond {
        /// Bytes that one iteration processes.
        bytes: usize,
    },
    /// Operations per second of CPU time.
    PerSecondCpu {
        /// Operations that one iteration does.
        count: u32,
    },
}

/// Whether a lower or a higher value is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// For times and sizes.
    Lower,
    /// For throughput and other rates.
    Higher,
}

/// One result, printed as a line of JSON for `cargo xtask bench`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Measurement {
    /// `area/what`, unique in the workspace, such as `text/copy`.
    pub bench: String,
    /// The median over the rounds.
    pub value: f64,
    /// The unit as it is printed, such as `µs CPU`.
    pub unit: String,
    /// The value the project promises; absent if it promises none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bar: Option<f64>,
    /// Which side of the bar passes.
    pub better: Better,
    /// The lower quartile of the rounds; absent if there were none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub low: Option<f64>,
    /// The upper quartile of the rounds; absent if there were none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub high: Option<f64>,
    /// Context the reader needs to judge the value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// Cases that are measured alternately, round after round.
pub struct Suite<'a> {
    rounds: u32,
    filter: Option<String>,
    cases: Vec<Case<'a>>,
}

struct Case<'a> {
    name: String,
    unit: Unit,
    bar: Option<f64>,
    note: Option<String>,
    iterate: Box<dyn FnMut() + 'a>,
}

impl<'a> Suite<'a> {
    /// A suite that measures every case in `rounds` rounds.
    pub fn new(rounds: u32) -> Self {
        Self { rounds: rounds.max(1), filter: None, cases: Vec::new() }
    }

    /// As [`Suite::new`], limited to the cases whose name contains the first argument of the program, if there is one.
    /// Flags that cargo passes to a bench are ignored.
    pub fn from_args(rounds: u32) -> Self {
        let filter = std::env::args().skip(1).find(|arg| !arg.starts_with('-'));
        Self { filter, ..Self::new(rounds) }
    }

    /// True if a case of this name would be measured. Check it before an expensive preparation.
    pub fn wants(&self, name: &str) -> bool {
        self.filter.as_ref().is_none_or(|filter| name.contains(filter))
    }

    /// Adds a case: its name (`area/what`), its unit, the promised value if there is one, and one iteration. The return
    /// value of the iteration is kept from being optimised away.
    pub fn case<T>(
        &mut self,
        name: &str,
        unit: Unit,
        bar: Option<f64>,
        mut iteration: impl FnMut() -> T + 'a,
    ) -> &mut Self {
        if self.wants(name) {
            let iterate = Box::new(move || {
                black_box(iteration());
            });
            self.cases.push(Case { name: name.to_owned(), unit, bar, note: None, iterate });
        }
        self
    }

    /// Adds a note for the reader to a case; does nothing if the case is filtered out.
    pub fn note(&mut self, name: &str, note: &str) -> &mut Self {
        if let Some(case) = self.cases.iter_mut().find(|case| case.name == name) {
            case.note = Some(note.to_owned());
        }
        self
    }

    /// Measures every case and prints one line of JSON for each.
    pub fn run(self) {
        for measurement in self.measure() {
            emit(&measurement);
        }
    }

    /// Measures every case and returns the results in the order the cases were added.
    pub fn measure(mut self) -> Vec<Measurement> {
        let batches: Vec<u64> = self.cases.iter_mut().map(warm_up).collect();
        let mut rounds: Vec<Vec<Duration>> = vec![Vec::new(); self.cases.len()];
        for _ in 0..self.rounds {
            for (index, case) in self.cases.iter_mut().enumerate() {
                rounds[index].push(timed(case, batches[index]));
            }
        }
        let cases = self.cases.into_iter().zip(batches).zip(rounds);
        cases.map(|((case, batch), rounds)| summarise(case, batch, &rounds)).collect()
    }
}

/// Measures one case alone. Cases that will be compared belong into one [`Suite`].
pub fn measure<T>(
    name: &str,
    unit: Unit,
    bar: Option<f64>,
    rounds: u32,
    iteration: impl FnMut() -> T,
) -> Measurement {
    let mut suite = Suite::new(rounds);
    suite.case(name, unit, bar, iteration);
    suite.measure().pop().expect("a suite without a filter measures its one case")
}

/// Prints a result for `cargo xtask bench` that [`Suite`] cannot measure, such as memory or a percentile.
#[expect(clippy::print_stdout, reason = "a bench program's standard output is its answer")]
pub fn emit(measurement: &Measurement) {
    let line = serde_json::to_string(measurement).expect("strings and numbers always serialise");
    println!("{line}");
}

/// CPU time this process has used so far, in all its threads.
pub fn cpu_time() -> Duration {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(now.tv_nsec).unwrap_or(0))
}

fn timed(case: &mut Case<'_>, iterations: u64) -> Duration {
    let before = cpu_time();
    for _ in 0..iterations {
        (case.iterate)();
    }
    cpu_time().saturating_sub(before)
}

/// Runs a case until caches and branch predictors are warm; returns the number of iterations per round.
fn warm_up(case: &mut Case<'_>) -> u64 {
    let mut spent = Duration::ZERO;
    let mut iterations = 1;
    loop {
        let took = timed(case, iterations);
        spent += took;
        if spent >= WARM_UP {
            let each = took.as_secs_f64() / iterations as f64;
            let batch = ROUND.as_secs_f64() / each.max(1e-12);
            return (batch as u64).max(1);
        }
        // An iteration that only waits uses no CPU time, so the doubling would never end.
        if iterations >= 1 << 32 {
            return iterations;
        }
        iterations *= 2;
    }
}

fn summarise(case: Case<'_>, batch: u64, rounds: &[Duration]) -> Measurement {
    let seconds = rounds.iter().map(|round| round.as_secs_f64() / batch as f64);
    let mut values: Vec<f64> = seconds.map(|each| case.unit.value(each)).collect();
    values.sort_by(f64::total_cmp);
    Measurement {
        value: quantile(&values, 0.5),
        low: Some(quantile(&values, 0.25)),
        high: Some(quantile(&values, 0.75)),
        bench: case.name,
        unit: case.unit.to_string(),
        bar: case.bar,
        better: case.unit.better(),
        note: case.note,
    }
}

/// The quantile at `part` (0.0 to 1.0) of sorted values, interpolated.
fn quantile(sorted: &[f64], part: f64) -> f64 {
    let position = part * (sorted.len() - 1) as f64;
    let (below, above) = (position.floor(), position.ceil());
    let (low, high) = (sorted[below as usize], sorted[above as usize]);
    low + (high - low) * (position - below)
}

impl Unit {
    /// Converts an iteration's CPU seconds into this unit.
    fn value(self, seconds: f64) -> f64 {
        match self {
            Self::NanosCpu => seconds * 1e9,
            Self::MicrosCpu => seconds * 1e6,
            Self::MillisCpu => seconds * 1e3,
            Self::MegabytesPerSecond { bytes } => bytes as f64 / 1e6 / seconds,
            Self::PerSecondCpu { count } => f64::from(count) / seconds,
        }
    }

    /// Whether a lower or a higher value of this unit is better.
    pub fn better(self) -> Better {
        match self {
            Self::NanosCpu | Self::MicrosCpu | Self::MillisCpu => Better::Lower,
            Self::MegabytesPerSecond { .. } | Self::PerSecondCpu { .. } => Better::Higher,
        }
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NanosCpu => "ns CPU",
            Self::MicrosCpu => "µs CPU",
            Self::MillisCpu => "ms CPU",
            Self::MegabytesPerSecond { .. } => "MB/s CPU",
            Self::PerSecondCpu { .. } => "/s CPU",
        })
    }
}

impl fmt::Debug for Suite<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.cases.iter().map(|case| case.name.as_str()).collect();
        f.debug_struct("Suite").field("rounds", &self.rounds).field("cases", &names).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    fn work(turns: u64) -> u64 {
        (0..turns).fold(1_u64, |sum, turn| black_box(sum.wrapping_mul(31).wrapping_add(turn)))
    }

    #[test]
    fn more_work_is_more_time() {
        let mut suite = Suite::new(5);
        suite.case("once", Unit::MicrosCpu, None, || work(10_000));
        suite.case("more", Unit::MicrosCpu, Some(1e9), || work(30_000)).note("more", "three times");
        let measured = suite.measure();
        // Not "three times": other tests of this process may use CPU time in parallel.
        assert!(measured[1].value > measured[0].value, "{measured:?}");
        assert_eq!(measured[1].note.as_deref(), Some("three times"));
        assert!(measured[0].low <= Some(measured[0].value));
        assert!(measured[0].high >= Some(measured[0].value));
    }

    #[test]
    fn rounds_go_in_turns() {
        // Both cases take more CPU time than a warm-up, so one iteration is one round.
        let log = RefCell::new(Vec::new());
        let heavy = || while_busy(WARM_UP + ROUND);
        let mut suite = Suite::new(2);
        suite.case("a", Unit::MillisCpu, None, || {
            heavy();
            log.borrow_mut().push("a");
        });
        suite.case("b", Unit::MillisCpu, None, || {
            heavy();
            log.borrow_mut().push("b");
        });
        suite.measure();
        assert_eq!(log.into_inner(), ["a", "b", "a", "b", "a", "b"]);
    }

    fn while_busy(time: Duration) {
        let until = cpu_time() + time;
        while cpu_time() < until {}
    }

    #[test]
    fn throughput_counts_the_other_way_round() {
        let unit = Unit::MegabytesPerSecond { bytes: 2_000_000 };
        assert_eq!((unit.value(0.5), unit.better()), (4.0, Better::Higher));
        assert_eq!(Unit::PerSecondCpu { count: 10 }.value(0.5), 20.0);
        assert_eq!((Unit::NanosCpu.value(1.0), Unit::NanosCpu.better()), (1e9, Better::Lower));
    }

    #[test]
    fn quantiles_are_interpolated() {
        assert_eq!(quantile(&[1.0, 2.0, 3.0, 4.0], 0.5), 2.5);
        assert_eq!(quantile(&[7.0], 0.75), 7.0);
    }

    #[test]
    fn a_line_is_what_the_runner_reads() {
        let measurement = Measurement {
            bench: "a/b".to_owned(),
            value: 1.5,
            unit: Unit::MicrosCpu.to_string(),
            bar: Some(2.0),
            better: Better::Lower,
            low: None,
            high: None,
            note: None,
        };
        assert_eq!(
            serde_json::to_string(&measurement).unwrap(),
            r#"{"bench":"a/b","value":1.5,"unit":"µs CPU","bar":2.0,"better":"lower"}"#
        );
    }
}

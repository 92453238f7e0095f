//! Times from a first failure to the success: quantiles and a histogram.

use serde::Serialize;

/// Upper bounds of the recovery-time histogram's buckets, in milliseconds.
const CLASSES: [u64; 12] =
    [50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000, 120_000, 600_000];

/// Times from a first failure to the success, in milliseconds.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct Recovery {
    /// Number of recoveries in the window.
    count: u64,
    /// Median in milliseconds; null without recoveries.
    p50: Option<u64>,
    /// 90th percentile in milliseconds; null without recoveries.
    p90: Option<u64>,
    /// 99th percentile in milliseconds; null without recoveries.
    p99: Option<u64>,
    /// Disjoint classes from 50 ms to 600 s, the shortest first; each recovery is in one class.
    histogram: Vec<HistogramBucket>,
}

/// One class of the recovery-time histogram.
#[derive(Clone, Copy, Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct HistogramBucket {
    /// Upper bound in milliseconds, inclusive; null for the last class.
    le: Option<u64>,
    /// Number of recoveries in this class.
    n: u64,
}

/// The smallest value that at least half of the values do not exceed.
pub(super) fn median(millis: impl Iterator<Item = u64>) -> Option<u64> {
    let mut millis: Vec<u64> = millis.collect();
    millis.sort_unstable();
    millis.get(millis.len().div_ceil(2).max(1) - 1).copied()
}

impl Recovery {
    pub(super) fn new(mut millis: Vec<u64>) -> Self {
        millis.sort_unstable();
        // The smallest value that at least `percent` of the values do not exceed.
        let quantile = |percent: usize| {
            let rank = (millis.len() * percent).div_ceil(100);
            millis.get(rank.max(1) - 1).copied()
        };
        let mut below = 0;
        let mut class = |le: Option<u64>| {
            let upto = le.map_or(millis.len(), |le| millis.partition_point(|value| *value <= le));
            let n = (upto - below) as u64;
            below = upto;
            HistogramBucket { le, n }
        };
        let histogram = CLASSES.map(Some).into_iter().chain([None]).map(&mut class).collect();
        Self {
            count: millis.len() as u64,
            p50: quantile(50),
            p90: quantile(90),
            p99: quantile(99),
            histogram,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_times_that_were_measured() {
        let recovery = Recovery::new((1..=100).rev().collect());
        assert_eq!(
            (recovery.p50, recovery.p90, recovery.p99, recovery.count),
            (Some(50), Some(90), Some(99), 100)
        );
        let one = Recovery::new(vec![7]);
        assert_eq!((one.p50, one.p99), (Some(7), Some(7)));
        assert_eq!(median([9, 1, 5].into_iter()), Some(5));
        assert_eq!((median([4, 2].into_iter()), median([].into_iter())), (Some(2), None));
        let none = Recovery::new(Vec::new());
        assert_eq!((none.p50, none.count), (None, 0));
    }

    #[test]
    fn every_recovery_is_in_one_class_of_the_histogram() {
        let recovery = Recovery::new(vec![0, 50, 51, 1_000, 1_001, 600_000, 600_001, u64::MAX]);
        let of = |le| recovery.histogram.iter().find(|class| class.le == le).unwrap().n;
        assert_eq!((of(Some(50)), of(Some(100)), of(Some(1_000))), (2, 1, 1));
        assert_eq!((of(Some(2_500)), of(Some(600_000)), of(None)), (1, 1, 2));
        assert_eq!(recovery.histogram.iter().map(|class| class.n).sum::<u64>(), 8);
    }
}

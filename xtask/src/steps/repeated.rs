//! Tests that failed and passed when they were repeated at once. A check of thousands of tests on a busy machine that
//! fails by one chance says nothing about the code; a test that passes by chance must not be forgotten either. So a test
//! is repeated once, only if few failed, and the report names it each time.

use anyhow::{Result, bail};

/// If more tests fail in a step, no repetition helps it: many that fail have a cause in common.
pub(super) const MAX: usize = 3;

/// The tests of a step that passed only when they were repeated.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct RepeatedTests(Vec<String>);

impl RepeatedTests {
    pub(super) fn add(&mut self, test: &str) {
        if !self.0.iter().any(|known| known == test) {
            self.0.push(test.to_owned());
        }
    }

    pub(super) fn extend(&mut self, other: &Self) {
        other.0.iter().for_each(|test| self.add(test));
    }

    pub(super) fn names(&self) -> &[String] {
        &self.0
    }

    /// An error when these are more than a check may forgive.
    pub(super) fn checked(self) -> Result<Self> {
        if self.0.len() > MAX {
            bail!("{} tests failed: {}", self.0.len(), self.0.join(", "));
        }
        Ok(self)
    }

    /// What the report says of the step.
    pub(super) fn summary(&self, tests: u64) -> String {
        match self.0.as_slice() {
            [] => format!("{tests} tests"),
            names => {
                format!("{tests} tests; FAILED ONCE, passed when repeated: {}", names.join(", "))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repeated(names: &[&str]) -> RepeatedTests {
        let mut repeated = RepeatedTests::default();
        names.iter().for_each(|name| repeated.add(name));
        repeated
    }

    #[test]
    fn a_test_that_passed_only_when_repeated_is_named() {
        assert_eq!(repeated(&[]).summary(7), "7 tests");
        let summary = "7 tests; FAILED ONCE, passed when repeated: a, b";
        assert_eq!(repeated(&["a", "b", "a"]).summary(7), summary);
    }

    #[test]
    fn many_failures_are_a_failure() {
        assert!(repeated(&["a", "b", "c"]).checked().is_ok());
        assert!(repeated(&["a", "b", "c", "d"]).checked().is_err());
    }
}

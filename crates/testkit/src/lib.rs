//! Scripted model, flaky journal, fault proxy, simulator; for tests only.

pub mod bench;

//! The table of seconds per step in `docs/testing.md`, made from the list of steps.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use crate::page;
use crate::steps::{STEPS, Step, StepScope};

const PAGE: &str = "docs/testing.md";
const PART: &str = "budgets";

/// Writes the table, or checks that it is up to date.
///
/// # Errors
/// When the page has no such part, or with `is_check` when it is out of date.
pub(crate) fn generate(root: &Path, is_check: bool) -> Result<()> {
    let file = root.join(PAGE);
    let before = fs::read_to_string(&file).with_context(|| format!("read `{PAGE}`"))?;
    let after = page::put(&before, PART, &table(STEPS))
        .with_context(|| format!("`{PAGE}` has no part `{PART}`"))?;
    if before == after {
        return Ok(());
    }
    ensure!(!is_check, "`{PAGE}` is out of date: `cargo xtask codegen` writes it");
    fs::write(&file, after).with_context(|| format!("write `{PAGE}`"))?;
    println!("wrote the part `{PART}` of {PAGE}");
    Ok(())
}

fn table(steps: &[Step]) -> String {
    let mut text = "| step | seconds | what |\n|---|---:|---|\n".to_owned();
    let usual = || steps.iter().filter(|step| step.when == StepScope::Always);
    for Step { name, about, budget, .. } in usual() {
        writeln!(text, "| `{name}` | {} | {about} |", budget.as_secs())
            .expect("a string takes all");
    }
    let sum: Duration = usual().map(|step| step.budget).sum();
    writeln!(
        text,
        "| **together** | **{}** | {:.0} minutes |",
        sum.as_secs(),
        sum.as_secs_f64() / 60.0
    )
    .expect("a string takes all");
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repo;

    #[test]
    fn the_page_has_the_budgets_of_the_steps() {
        generate(&repo::root(), true).unwrap();
        let table = table(STEPS);
        assert!(table.contains("| `tests` | ") && !table.contains("| `release` | "), "{table}");
    }
}

//! Kills in a batch of three calls, with one slot and with three, with and without a tool that can find out.
//!
//! Goal: only calls that had begun are in doubt, the others are done; a tool that can find out leaves no doubt.

use std::{
    path::Path,
    process::{Command, Output},
    sync::Arc,
};

use budao_tools::{RawTool, Reconciliation};

use crate::{
    DIRECTORY, MOMENT,
    killing::{IN_TOOL, Kills},
};

const SLOTS: &str = "BUDAO_CRASH_SLOTS";
const RECONCILE: &str = "BUDAO_CRASH_RECONCILE";
/// Environment variable with the number of calls of a batch.
pub(crate) const CALLS: &str = "BUDAO_CRASH_CALLS";

/// The slots for calls that a victim has.
pub(crate) fn slots() -> usize {
    std::env::var(SLOTS).ok().and_then(|text| text.parse().ok()).unwrap_or(8)
}

/// The calls that a victim's model makes.
pub(crate) fn calls() -> usize {
    std::env::var(CALLS).ok().and_then(|text| text.parse().ok()).unwrap_or(crate::CALLS)
}

/// Adds the function that looks into the ledger, if the scene has one.
pub(crate) fn with_reconcile(tool: RawTool, ledger: &Path, kills: &Arc<Kills>) -> RawTool {
    if std::env::var_os(RECONCILE).is_none() {
        return tool;
    }
    let (ledger, kills) = (ledger.to_owned(), Arc::clone(kills));
    tool.reconcile(move |_, context| {
        let (ledger, kills) = (ledger.clone(), Arc::clone(&kills));
        async move {
            kills.pass("before-looking");
            let text = std::fs::read_to_string(ledger).unwrap_or_default();
            let is_written = text.lines().any(|line| *line == *context.call.to_string());
            Ok(match is_written {
                true => Reconciliation::happened("written"),
                false => Reconciliation::DidNotHappen,
            })
        }
    })
}

/// Kills victims after each effect of a batch and counts what is in doubt; returns the kills.
pub(crate) fn inspect_all() -> u32 {
    let mut kills = 0;
    for (slots, reconcile) in [(1, false), (3, false), (1, true), (3, true)] {
        for point in IN_TOOL {
            for time in 1..=crate::CALLS {
                kills += scene(slots, reconcile, &format!("{point} {time}"));
            }
        }
    }
    kills
}

fn scene(slots: usize, reconcile: bool, moment: &str) -> u32 {
    let directory = tempfile::tempdir().expect("a directory");
    let directory = directory.path();
    let died = !life(directory, Some(moment), slots, reconcile).status.success();
    if !died {
        return 0;
    }
    let mut kills = 1;
    if reconcile {
        let again = life(directory, Some("before-looking 1"), slots, reconcile);
        kills += u32::from(!again.status.success());
    }
    let last = life(directory, None, slots, reconcile);
    let said = String::from_utf8_lossy(&last.stderr);
    let scene = format!("{slots} slots, reconcile {reconcile}, {moment}");
    assert!(last.status.success(), "{scene}: the last life failed: {said}");
    let runtime = tokio::runtime::Runtime::new().expect("a tokio runtime");
    let batch = runtime.block_on(crate::inspect(directory, &scene, crate::CALLS));
    let unknown = batch.outcomes.values().filter(|outcome| !outcome.is_done()).count();
    let never_done = crate::CALLS - batch.done();
    match reconcile {
        true => assert_eq!((unknown, never_done), (0, 0), "{scene}: the tool found out"),
        false => {
            assert!((1..=slots).contains(&unknown), "{scene}: {unknown} are in doubt");
            assert!(never_done <= unknown, "{scene}: {never_done} were never done");
        }
    }
    kills
}

/// This program as a victim.
pub(crate) fn victim(directory: &Path, slots: usize, reconcile: bool) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.env(DIRECTORY, directory).env(SLOTS, slots.to_string());
    if reconcile {
        command.env(RECONCILE, "1");
    }
    command
}

fn life(directory: &Path, moment: Option<&str>, slots: usize, reconcile: bool) -> Output {
    let mut command = victim(directory, slots, reconcile);
    if let Some(moment) = moment {
        command.env(MOMENT, moment);
    }
    command.output().expect("the victim runs")
}

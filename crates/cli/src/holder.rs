//! Who we are to a journal, and whether others still are: a process, by number, birth and boot.

use budao_runtime::Census;

/// The name this process takes leases under.
pub(crate) fn name() -> String {
    let pid = std::process::id();
    format!("pid:{pid}:{}:{}", birth(pid).unwrap_or(0), boot().unwrap_or_default())
}

/// Knows which processes of this machine are gone.
#[derive(Debug)]
pub(crate) struct Processes;

impl Census for Processes {
    fn is_gone(&self, holder: &str) -> bool {
        is_gone(holder).unwrap_or(false)
    }
}

/// None when it cannot be told.
fn is_gone(holder: &str) -> Option<bool> {
    let mut parts = holder.strip_prefix("pid:")?.split(':');
    let pid: u32 = parts.next()?.parse().ok()?;
    let born: u64 = parts.next()?.parse().ok()?;
    let boot_then = parts.next().filter(|boot| !boot.is_empty())?;
    // Another boot or another machine: only the same machine's earlier boots are surely over, and we
    // cannot tell the two apart. The lease runs out by itself.
    if boot()? != boot_then {
        return None;
    }
    Some(birth(pid) != Some(born))
}

/// When a process was born, in ticks since boot; none if there is no such process.
fn birth(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold anything, so count from behind it.
    let rest = stat.rsplit_once(')')?.1;
    let state = rest.split_whitespace().next()?;
    if state == "Z" {
        return None;
    }
    rest.split_whitespace().nth(19)?.parse().ok()
}

fn boot() -> Option<String> {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(id.trim().to_owned())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_living_process_is_not_gone_and_a_dead_one_is() {
        assert_eq!(is_gone(&name()), Some(false));
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let born = birth(child.id()).unwrap_or(1);
        let holder = format!("pid:{}:{born}:{}", child.id(), boot().unwrap());
        child.wait().unwrap();
        assert_eq!(is_gone(&holder), Some(true));
    }

    #[test]
    fn a_number_that_was_given_again_is_another_process() {
        let holder = format!("pid:{}:1:{}", std::process::id(), boot().unwrap());
        assert_eq!(is_gone(&holder), Some(true));
    }

    #[test]
    fn when_in_doubt_nobody_is_gone() {
        for holder in ["", "somebody", "pid:x:1:y", "pid:1:1:", "pid:1:1:another-boot"] {
            assert!(!Processes.is_gone(holder), "{holder}");
        }
    }
}

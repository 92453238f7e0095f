//! Identifies this process as a lease holder, by pid, start time and boot, and detects dead holders.

#[cfg(feature = "serve")]
pub(crate) mod known_nodes;
#[cfg(not(feature = "serve"))]
#[path = "missing/known_nodes.rs"]
mod known_nodes;

use budao_core::fault::NodeIdentity;
use budao_runtime::HolderLiveness;

/// The holder name of this process: `pid:NUMBER:START:BOOT-NAMESPACE`.
pub(crate) fn name() -> String {
    let pid = std::process::id();
    format!("pid:{pid}:{}:{}", birth(pid).unwrap_or(0), boot_and_namespace().unwrap_or_default())
}

/// The name and version that the faults which this process records have: `HOST`, or `HOST:PORT` for a server.
pub(crate) fn node_identity(port: Option<u16>) -> NodeIdentity {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let host = host.or_else(|| std::env::var("HOSTNAME").ok()).unwrap_or_default();
    let host = match host.trim() {
        "" => "localhost",
        named => named,
    };
    let node = port.map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
    NodeIdentity { node, version: env!("CARGO_PKG_VERSION").to_owned() }
}

/// Detects processes of this machine that have ended, and servers that are gone.
#[derive(Debug)]
pub(crate) struct KnownHolders;

impl HolderLiveness for KnownHolders {
    fn is_dead(&self, holder: &str) -> bool {
        known_nodes::is_dead(holder)
    }

    fn is_alive(&self, holder: &str) -> bool {
        known_nodes::is_alive(holder)
    }
}

/// None if it cannot be determined.
fn is_gone(holder: &str) -> Option<bool> {
    let mut parts = holder.strip_prefix("pid:")?.split(':');
    let pid: u32 = parts.next()?.parse().ok()?;
    let born: u64 = parts.next()?.parse().ok()?;
    let its_namespace = parts.next().filter(|place| !place.is_empty())?;
    // Another boot, machine or container: its processes are not visible here. Its lease expires by itself.
    if boot_and_namespace()? != its_namespace {
        return None;
    }
    Some(birth(pid) != Some(born))
}

/// Start time of a process in clock ticks since boot; none if it does not exist or is a zombie.
fn birth(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may contain anything, so fields are counted after it.
    let rest = stat.rsplit_once(')')?.1;
    let state = rest.split_whitespace().next()?;
    if state == "Z" {
        return None;
    }
    rest.split_whitespace().nth(19)?.parse().ok()
}

/// The scope in which a pid is unique: boot id and pid namespace. None outside Linux.
fn boot_and_namespace() -> Option<String> {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let namespace = std::fs::read_link("/proc/self/ns/pid").ok()?;
    let number: String = namespace.to_string_lossy().chars().filter(char::is_ascii_digit).collect();
    Some(format!("{}-{number}", boot.trim()))
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_running_process_is_alive_and_an_ended_one_is_dead() {
        assert_eq!(is_gone(&name()), Some(false));
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let born = birth(child.id()).unwrap_or(1);
        let holder = format!("pid:{}:{born}:{}", child.id(), boot_and_namespace().unwrap());
        child.wait().unwrap();
        assert_eq!(is_gone(&holder), Some(true));
    }

    #[test]
    fn a_number_that_was_given_again_is_another_process() {
        let holder = format!("pid:{}:1:{}", std::process::id(), boot_and_namespace().unwrap());
        assert_eq!(is_gone(&holder), Some(true));
    }

    #[test]
    fn an_unknown_holder_counts_as_alive() {
        for holder in ["", "somebody", "pid:x:1:y", "pid:1:1:", "pid:1:1:another-boot"] {
            assert!(!KnownHolders.is_dead(holder), "{holder}");
        }
    }
}

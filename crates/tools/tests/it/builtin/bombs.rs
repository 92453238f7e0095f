//! Bombs: a command may want all processes, memory, disk, descriptors or output there is. It ends, with all it started,
//! in one bounded answer, and the next command works.

use std::time::Duration;

use budao_core::limits::Limits;
use budao_tools::builtin::BuiltinOptions;
use serde_json::json;

use crate::builtin::support::{Fixture, launcher, processes_with, render_outcome};

/// In a usual run, and with `BUDAO_FULL`.
const SOME: usize = 14;
const ALL: usize = 200;

/// What is tried, `size` times as hard. Each is bounded by itself too, so that a failure does not cost the machine.
const BOMBS: [fn(&str, usize) -> String; 14] = [
    |mark, size| format!("for i in $(seq {}); do sleep 1000.{mark} & done; wait", 20 * size),
    |mark, size| {
        format!(
            "f() {{ [ $1 -gt 0 ] && (f $(($1-1)) & f $(($1-1))); sleep 1000.{mark}; }}; f {}",
            3 + size.min(2)
        )
    },
    |mark, size| {
        format!(
            "trap '' TERM INT HUP; for i in $(seq {}); do (trap '' TERM; sleep 1000.{mark}) & done; wait",
            10 * size
        )
    },
    |mark, size| {
        format!(
            "for i in $(seq {}); do setsid sleep 1000.{mark} & done; sleep 1000.{mark}",
            10 * size
        )
    },
    |mark, size| {
        format!(
            "for i in $(seq {}); do (setsid sh -c 'sleep 1000.{mark} & exit' &) ; done; exit 0",
            10 * size
        )
    },
    |_, size| format!("head -c {}000000 /dev/zero", 20 * size),
    |_, size| format!("head -c {}000000 /dev/zero >&2", 20 * size),
    |_, size| format!("yes | head -n {}00000", 5 * size),
    |_, size| format!("head -c {}000000 /dev/urandom", 4 * size),
    |_, size| format!("x=$(head -c {}000000 /dev/zero | tr '\\0' a); echo ${{#x}}", 4 * size),
    |_, size| {
        format!(
            "for i in $(seq {}); do eval \"exec {{fd}}<.\" || break; done; echo $fd",
            300 * size
        )
    },
    |_, size| format!("head -c {}000000 /dev/zero > big && rm big", 8 * size),
    |_, size| format!("for i in $(seq {}); do : > file$i; done; rm -f file*", 300 * size),
    |mark, _| format!("while :; do :; done & while :; do :; done; sleep 1000.{mark}"),
];

/// Goal: no command costs more than its own call. Method: bombs of every sort in several sizes, each with a short
/// deadline; nobody may be left, the answer is bounded, and a small command works right after.
#[tokio::test]
async fn a_bomb_ends_with_everything_it_started_and_the_next_command_works() {
    let limits = Limits { kill_grace: Duration::from_millis(200), ..Limits::default() };
    let options = BuiltinOptions { launcher: Some(launcher()), ..BuiltinOptions::default() };
    let fixture = Fixture::with_limits(options, limits.clone());
    let count = if std::env::var_os("BUDAO_FULL").is_some() { ALL } else { SOME };
    for index in 0..count {
        let mark = format!("5{:04}{index:04}", std::process::id() % 10_000);
        let cmd = BOMBS[index % BOMBS.len()](&mark, 1 + index / BOMBS.len() % 5);
        let outcome = fixture.call("bash_run", json!({ "cmd": cmd, "timeout_ms": 700 })).await;
        let size = render_outcome(&outcome).to_string().len();
        assert!(size <= 2 * limits.output_bytes, "{cmd}: {size} bytes are told");
        assert!(processes_with(&mark).is_empty(), "{cmd}: {:?}", processes_with(&mark));
        let next = fixture.done("bash_run", json!({ "cmd": "echo well" })).await;
        assert_eq!(next["output"], "well\n", "after {cmd}");
    }
    eprintln!("security T18: {count} bombs of {} sorts", BOMBS.len());
}

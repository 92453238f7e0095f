//! Refuses a server whose settings break a promise of the journal.

use budao_core::fault::{Fact, Fault, Kind, Operation};

use crate::{address::Address, errors, pool::Exclusive};

/// The oldest supported server, as `server_version_num`.
const OLDEST_SERVER: i32 = 140_000;

/// Whether the caller writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Write,
    Read,
}

/// Checks version, durability, encoding and whether the server takes writes. Changes nothing.
///
/// # Errors
/// `journal_setting_unsafe` with the setting and the value it needs; `journal_read_only`.
pub(crate) async fn check(
    connection: &mut Exclusive<'_>,
    address: &Address,
    purpose: Purpose,
) -> Result<(), Fault> {
    let found = connection
        .query(
            "SELECT current_setting('server_version_num')::int, current_setting('server_version'), \
             current_setting('fsync'), current_setting('full_page_writes'), \
             current_setting('synchronous_commit'), current_setting('server_encoding'), \
             pg_is_in_recovery(), current_setting('transaction_read_only')",
            &[],
        )
        .await?;
    let row = &found[0];
    let version: i32 = row.get(0);
    if version < OLDEST_SERVER {
        return Err(unsafe_setting(address, "server_version", row.get(1), "14 or newer"));
    }
    for (column, name) in [(2, "fsync"), (3, "full_page_writes"), (4, "synchronous_commit")] {
        if row.get::<_, &str>(column) == "off" {
            return Err(unsafe_setting(address, name, "off", "on"));
        }
    }
    if row.get::<_, &str>(5) != "UTF8" {
        return Err(unsafe_setting(address, "server_encoding", row.get(5), "UTF8"));
    }
    let (is_standby, is_read_only): (bool, &str) = (row.get(6), row.get(7));
    if purpose == Purpose::Write && (is_standby || is_read_only == "on") {
        let cause =
            if is_standby { "the server is a standby" } else { "transactions are read-only" };
        let fault = errors::fault(address, Kind::JournalReadOnly, Operation::OpenJournal);
        return Err(fault.with_cause(cause));
    }
    Ok(())
}

fn unsafe_setting(address: &Address, name: &str, received: &str, expected: &str) -> Fault {
    errors::fault(address, Kind::JournalSettingUnsafe, Operation::OpenJournal)
        .with(Fact::ConfigKey, name.to_owned())
        .with(Fact::Received, received.to_owned())
        .with(Fact::Expected, expected.to_owned())
}

//! Names of a server's tools: `mcp__server__tool`.
//!
//! A name depends on the server and the tool alone, never on other tools. Otherwise a change of the tool list could
//! give a name that the model knows to another tool. A name that cannot hold the tool's whole name ends in a hash of
//! it.

use budao_tools::{NAME_BYTES_MAX, contract::content_hash};

/// The longest server name, in bytes; the rest of the name is for the tool.
pub(crate) const SERVER_BYTES_MAX: usize = 32;

/// The length of the hash, in hex digits.
const HASH_DIGITS: usize = 8;

/// The rule that a server name breaks; `None` if the name is valid.
pub(crate) fn server_problem(name: &str) -> Option<&'static str> {
    let fits = !name.is_empty() && name.len() <= SERVER_BYTES_MAX && name.bytes().all(is_plain);
    if !fits {
        return Some("1 to 32 letters, digits, `_` or `-`");
    }
    // With `__` inside, two servers could have tools with the same name.
    let clear = !name.contains("__") && !name.starts_with('_') && !name.ends_with('_');
    (!clear).then_some("no `__` in it, and no `_` at its ends")
}

/// The name of a server's tool, at most `NAME_BYTES_MAX` bytes.
#[must_use]
pub fn of(server: &str, tool: &str) -> String {
    let prefix = format!("mcp__{server}__");
    let room = NAME_BYTES_MAX.saturating_sub(prefix.len());
    if !tool.is_empty() && tool.len() <= room && tool.bytes().all(is_plain) {
        return prefix + tool;
    }
    let hash = &content_hash(format!("{server}\0{tool}").as_bytes())[..HASH_DIGITS];
    let head = room.saturating_sub(HASH_DIGITS + 1);
    let plain = tool
        .chars()
        .map(|letter| if letter.is_ascii() && is_plain(letter as u8) { letter } else { '_' });
    let plain: String = plain.take(head).collect();
    format!("{prefix}{plain}_{hash}")
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-')
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_plain_name_is_kept_as_it_is() {
        assert_eq!(of("github", "search_issues"), "mcp__github__search_issues");
        assert_eq!(of("a", "_b"), "mcp__a___b");
    }

    #[test]
    fn different_tools_never_share_a_name() {
        let names = ["a.b", "a_b", "a/b", "a b", "ä", "ö", "", &"x".repeat(80), &"x".repeat(81)]
            .map(|tool| of("s", tool));
        let different: HashSet<&String> = names.iter().collect();
        assert_eq!(different.len(), names.len(), "{names:?}");
    }

    #[test]
    fn a_server_name_cannot_run_into_its_tools() {
        for bad in ["", "a__b", "_a", "a_", "a b", "ä", &"x".repeat(33)] {
            assert!(server_problem(bad).is_some(), "{bad}");
        }
        for good in ["a", "a_b", "a-b", "A1", &"x".repeat(32)] {
            assert!(server_problem(good).is_none(), "{good}");
        }
    }

    proptest! {
        #[test]
        fn any_tool_gets_a_name_every_provider_takes(
            server in "[A-Za-z0-9-]{1,32}", tool in any::<String>(),
        ) {
            let name = of(&server, &tool);
            prop_assert!(name.len() <= NAME_BYTES_MAX);
            prop_assert!(name.bytes().all(is_plain));
        }
    }
}

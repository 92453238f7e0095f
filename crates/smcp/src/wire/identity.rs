//! The id of an MCP server on the wire, and the names of its tools.
//!
//! The id comes from the server's name if any plain characters remain, else from a hash of its command or address.
//! The hash uses the configuration as written, so a placeholder is hashed instead of its secret value.

use std::collections::BTreeMap;

use sha2::{Digest as _, Sha256};

/// The parts of a server's configuration that determine its identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerIdentity<'a> {
    /// A local program that speaks MCP over stdio.
    Stdio {
        /// The program to start, as written in the settings.
        command: &'a str,
        /// The program's arguments, in order.
        args: &'a [String],
        /// The program's environment variables.
        env: &'a BTreeMap<String, String>,
    },
    /// A server that is reached over the network.
    Net {
        /// `streamable` or `sse`.
        transport: &'a str,
        /// The server's URL, as written in the settings.
        url: &'a str,
        /// The HTTP headers of every request.
        headers: &'a BTreeMap<String, String>,
    },
}

/// The id of a server whose settings name none.
#[must_use]
pub fn bundle_id(name: &str, essence: &ServerIdentity<'_>) -> String {
    let mut id = String::new();
    for letter in name.chars() {
        let letter = if is_plain(letter) { letter } else { '_' };
        if letter != '_' || !id.ends_with('_') {
            id.push(letter);
        }
    }
    let id = id.trim_matches(['_', '-']);
    if id.is_empty() { hashed(essence) } else { id.to_owned() }
}

/// The rule that an explicit id breaks, as text; `None` if the id is valid.
#[must_use]
pub fn bundle_id_problem(id: &str) -> Option<&'static str> {
    if id.is_empty() || !id.chars().all(is_plain) {
        return Some("letters, digits, `_` and `-`");
    }
    id.contains("__").then_some("no `__` in it")
}

/// The name of a tool on the wire: `bundle_id__tool`.
#[must_use]
pub fn exposed_name(bundle_id: &str, tool: &str) -> String {
    format!("{bundle_id}__{tool}")
}

fn is_plain(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-')
}

fn hashed(essence: &ServerIdentity<'_>) -> String {
    let mut frame = Vec::new();
    match essence {
        ServerIdentity::Stdio { command, args, env } => {
            put(&mut frame, "stdio");
            put(&mut frame, command);
            count(&mut frame, args.len());
            args.iter().for_each(|arg| put(&mut frame, arg));
            put_map(&mut frame, env);
        }
        ServerIdentity::Net { transport, url, headers } => {
            put(&mut frame, transport);
            put(&mut frame, url);
            put_map(&mut frame, headers);
        }
    }
    let digest = Sha256::digest(&frame);
    let hex: String = digest[..8].iter().map(|byte| format!("{byte:02x}")).collect();
    format!("bundle_{hex}")
}

fn count(frame: &mut Vec<u8>, count: usize) {
    frame.extend(u32::try_from(count).unwrap_or(u32::MAX).to_be_bytes());
}

fn put(frame: &mut Vec<u8>, text: &str) {
    count(frame, text.len());
    frame.extend(text.as_bytes());
}

fn put_map(frame: &mut Vec<u8>, map: &BTreeMap<String, String>) {
    count(frame, map.len());
    for (key, value) in map {
        put(frame, key);
        put(frame, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect()
    }

    fn stdio(name: &str, command: &str, args: &[&str], env: &[(&str, &str)]) -> String {
        let args: Vec<String> = args.iter().map(|arg| (*arg).into()).collect();
        bundle_id(name, &ServerIdentity::Stdio { command, args: &args, env: &map(env) })
    }

    fn net(transport: &str, url: &str, headers: &[(&str, &str)]) -> String {
        bundle_id("", &ServerIdentity::Net { transport, url, headers: &map(headers) })
    }

    #[test]
    fn an_id_comes_from_the_name() {
        for (name, id) in [
            ("everything", "everything"),
            ("My Server!", "My_Server"),
            ("a__b", "a_b"),
            ("a.b.c", "a_b_c"),
            ("a-b--c", "a-b--c"),
            ("__lead_trail__", "lead_trail"),
            ("MyServer", "MyServer"),
        ] {
            assert_eq!(stdio(name, "x", &[], &[]), id);
        }
    }

    #[test]
    fn a_name_without_valid_characters_is_replaced_by_a_hash_of_its_server() {
        assert_eq!(stdio("服务", "npx", &["-y", "everything"], &[]), "bundle_8d2a9232fa76e8a5");
        assert_eq!(stdio("!!!", "uvx", &["mcp-server-git"], &[]), "bundle_62515edd7632e701");
        let env = [("TOKEN", "x"), ("DEBUG", "1")];
        assert_eq!(stdio("", "node", &["a.js"], &env), "bundle_05020ad7c2cc048d");
        let env = [("API_KEY", "${input:api_key}")];
        assert_eq!(stdio("", "node", &["server.js"], &env), "bundle_68ae00fea9122c01");
        let url = "https://api.example.com/mcp";
        assert_eq!(net("streamable", url, &[]), "bundle_b413b61fe2e77b15");
        let with = |value| net("streamable", url, &[("Authorization", value)]);
        assert_eq!(with("Bearer z"), "bundle_0706e7b45613df7a");
        assert_eq!(with("Bearer ${input:token}"), "bundle_6366b4fd89f56f6a");
        assert_eq!(net("sse", "https://api.example.com/sse", &[]), "bundle_e1d7b1216a270815");
    }

    #[test]
    fn an_explicit_id_has_rules() {
        assert_eq!(bundle_id_problem("custom_id"), None);
        for bad in ["", "a__b", "a.b", "a b", "ä"] {
            assert!(bundle_id_problem(bad).is_some(), "{bad}");
        }
        assert_eq!(exposed_name("git", "log"), "git__log");
    }
}

//! Checks for the fuzz targets: any bytes as files of a computer. The test suite runs a sample of them.

use std::collections::BTreeMap;

use super::{Settings, skills::front_matter};
use crate::{
    finder::read::{self, FileType},
    wire::identity::{ServerIdentity, bundle_id, bundle_id_problem},
};

/// Parses a `SKILL.md` and checks that its front matter yields only known fields.
///
/// # Panics
/// If the check fails.
pub fn skill(text: &str) {
    let (head, body) = front_matter::split(text);
    assert!(head.len() + body.len() <= text.len() && text.ends_with(body));
    let fields = front_matter::parse_fields(text);
    let known = [
        "description",
        "license",
        "compatibility",
        "version",
        "allowed_tools",
        "tags",
        "skill_metadata",
    ];
    assert!(fields.keys().all(|key| known.contains(&key.as_str())), "{fields:?}");
}

/// Parses a computer's settings, and checks that ids are valid and unique and that error texts are short.
///
/// # Panics
/// If one of these checks fails.
pub fn settings(text: &str) {
    match Settings::read(text) {
        Ok(settings) => {
            let mut ids: Vec<&str> =
                settings.servers.iter().map(|server| server.bundle_id.as_str()).collect();
            assert!(ids.iter().all(|id| bundle_id_problem(id).is_none()), "{ids:?}");
            ids.sort_unstable();
            assert!(ids.windows(2).all(|pair| pair[0] != pair[1]), "an id is given once");
        }
        Err(fault) => assert!(fault.to_string().len() < 16 * 1024, "a refusal is short"),
    }
    let env = BTreeMap::new();
    let id = bundle_id(text, &ServerIdentity::Stdio { command: text, args: &[], env: &env });
    assert_eq!(bundle_id_problem(&id), None, "{id}");
}

/// Parses a document of each file type and checks that it has at least one page.
///
/// # Panics
/// If the check fails.
pub fn document(bytes: &[u8]) {
    for sort in [FileType::Txt, FileType::Md, FileType::Html, FileType::Pdf] {
        if let Ok(parsed) = read::read(sort, bytes) {
            assert!(!parsed.pages.is_empty(), "a document has a page");
        }
    }
}

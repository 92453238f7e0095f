//! Any bytes as what lies on a computer: for the fuzz targets, and for a share of them in every run.

use std::collections::BTreeMap;

use super::{Settings, skills::front_matter};
use crate::{
    finder::read::{self, FileType},
    wire::identity::{ServerIdentity, bundle_id, bundle_id_problem},
};

/// The head of a `SKILL.md`: what is told of it is what fits, and no more than stood there.
///
/// # Panics
/// If a promise does not hold.
pub fn skill(text: &str) {
    let (head, body) = front_matter::split(text);
    assert!(head.len() + body.len() <= text.len() && text.ends_with(body));
    let about = front_matter::about(text);
    let known = [
        "description",
        "license",
        "compatibility",
        "version",
        "allowed_tools",
        "tags",
        "skill_metadata",
    ];
    assert!(about.keys().all(|key| known.contains(&key.as_str())), "{about:?}");
}

/// The settings of a computer: read or refused in words; and an id on the wire is one whatever the name.
///
/// # Panics
/// If a promise does not hold.
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

/// A document of each sort: pages of elements, or why not.
///
/// # Panics
/// If a promise does not hold.
pub fn document(bytes: &[u8]) {
    for sort in [FileType::Txt, FileType::Md, FileType::Html, FileType::Pdf] {
        if let Ok(said) = read::read(sort, bytes) {
            assert!(!said.pages.is_empty(), "a document has a page");
        }
    }
}

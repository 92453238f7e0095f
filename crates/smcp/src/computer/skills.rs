//! Skills: folders with a `SKILL.md`, on this machine or published by a local MCP server.
//!
//! An agent asks for a skill by its name, never by a path. The list of skills is read anew each time, so a removed
//! skill disappears at once.

mod file;
pub(super) mod front_matter;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use budao_core::fault::{Fact, Fault, Kind, Operation};
use budao_mcp::ServerHandle;
use serde_json::{Map, Value, json};

use super::desktop;
use crate::wire::identity::bundle_id_problem;

pub(super) use file::{File, hex, is_text};

/// The main file of a skill.
const ENTRY: &str = "SKILL.md";

/// Limits of the list: skills of one source, and bytes of a `SKILL.md`.
const SKILLS_MAX: usize = 256;
const ENTRY_BYTES_MAX: u64 = 1 << 20;

/// The skills of a computer.
#[derive(Debug, Default)]
pub(super) struct Skills {
    folder: Option<PathBuf>,
    /// Cached digests of unchanged files.
    digests: file::Digests,
}

/// An MCP server that may publish skills.
#[derive(Clone, Debug)]
pub(super) struct SkillSource {
    pub(super) bundle_id: String,
    pub(super) server: Arc<ServerHandle>,
    /// Whether the server runs on this machine. Others must not name local folders.
    pub(super) is_local: bool,
}

/// A skill and its folder.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Skill {
    name: String,
    source: String,
    uri: Option<String>,
    folder: PathBuf,
    fields: Map<String, Value>,
}

impl Skills {
    pub(super) fn new(folder: Option<PathBuf>) -> Self {
        Self { folder, digests: file::Digests::default() }
    }

    /// All skills, sorted by name. Of two skills with the same name, the first is kept.
    pub(super) async fn all(&self, sources: Vec<SkillSource>) -> Vec<Skill> {
        let mut all = Vec::new();
        if let Some(folder) = self.folder.clone() {
            all.extend(on_disk(move || own(&folder)).await.unwrap_or_default());
        }
        for source in sources {
            all.extend(published(source).await);
        }
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all.dedup_by(|later, first| later.name == first.name);
        all
    }

    /// Opens a file of a skill, by default its `SKILL.md`.
    ///
    /// # Errors
    /// If the name is invalid, the skill does not exist, or the file may not be read.
    pub(super) async fn open(
        &self,
        sources: Vec<SkillSource>,
        name: &str,
        rel_path: Option<&str>,
        bytes_max: u64,
    ) -> Result<File, Fault> {
        let fault =
            |kind| Fault::new(kind, Operation::ReadSkill).with(Fact::Skill, name.to_owned());
        if !is_name(name) {
            return Err(fault(Kind::SkillNameInvalid));
        }
        let all = self.all(sources).await;
        let Some(skill) = all.into_iter().find(|skill| skill.name == name) else {
            return Err(fault(Kind::SkillNotFound));
        };
        let rel_path = rel_path.filter(|path| !path.is_empty()).unwrap_or(ENTRY).to_owned();
        let (requested, digests) = (rel_path.clone(), self.digests.clone());
        let opened =
            on_disk(move || file::open(&skill.folder, &requested, bytes_max, &digests)).await;
        let refused = match opened {
            Some(Ok(file)) => return Ok(file),
            Some(Err(refused)) => refused,
            None => file::FileError::NotFound,
        };
        let fault = fault(Kind::SkillResourceUnavailable)
            .with(Fact::RelPath, rel_path)
            .with(Fact::Reason, refused.reason());
        Err(match refused {
            file::FileError::TooLarge(bytes) => fault.with(Fact::TotalSize, bytes),
            _ => fault,
        })
    }
}

impl Skill {
    /// The list entry of a skill, as an agent receives it.
    pub(super) fn to_json(&self) -> Value {
        let mut rendered = json!({
            "name": self.name, "source": self.source, "path": self.folder.to_string_lossy(),
        });
        if let Some(uri) = &self.uri {
            rendered["uri"] = uri.clone().into();
        }
        for (field, value) in &self.fields {
            rendered[field] = value.clone();
        }
        rendered
    }

    fn read(name: String, source: String, folder: PathBuf) -> Option<Self> {
        let text = file::entry(&folder, ENTRY_BYTES_MAX)?;
        let fields = front_matter::parse_fields(&text);
        if fields.get("description").is_none_or(Value::is_null) {
            tracing::warn!(skill = name, "skipping skill: no description");
            return None;
        }
        Some(Self { name, source, uri: None, folder, fields })
    }
}

/// Runs file access on a blocking thread. `None` if it panicked.
async fn on_disk<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    tokio::task::spawn_blocking(work).await.ok()
}

/// The skills of a folder: each subfolder is a skill with the subfolder's name.
fn own(folder: &Path) -> Vec<Skill> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| folder.join(name).join(ENTRY).is_file())
        .collect();
    names.sort();
    names.truncate(SKILLS_MAX);
    let skills = names.into_iter().filter_map(|name| {
        if !is_segment(&name) {
            tracing::warn!(folder = name, "skipping skill folder: invalid name");
            return None;
        }
        let path = std::path::absolute(folder.join(&name)).ok()?;
        Skill::read(name, "user".into(), path)
    });
    skills.collect()
}

/// The skills that an MCP server publishes.
async fn published(source: SkillSource) -> Vec<Skill> {
    let listed = match desktop::listed(&source.server, "skill://").await {
        Ok(listed) => listed,
        Err(fault) => {
            tracing::warn!(server = source.bundle_id, %fault, "listing skills failed");
            return Vec::new();
        }
    };
    let mut skills = Vec::new();
    for resource in listed.into_iter().take(SKILLS_MAX) {
        let uri = resource["uri"].as_str().unwrap_or_default().to_owned();
        let leaf = uri.rsplit('/').next().unwrap_or_default().to_owned();
        // A resource without a source is a file of a skill, not a skill.
        let Some(mode) = resource["_meta"]["source"].as_str() else { continue };
        let folder = resource["_meta"]["mount_dir"].as_str().map(PathBuf::from);
        let Some(folder) =
            folder.filter(|it| mode == "mounted" && source.is_local && it.is_absolute())
        else {
            tracing::warn!(uri, mode, "skipping skill: not in a local folder");
            continue;
        };
        if !is_segment(&leaf) {
            tracing::warn!(uri, "skipping skill: invalid name");
            continue;
        }
        let id = &source.bundle_id;
        let (name, from) = (format!("mcp:{id}:{leaf}"), format!("mcp:{id}"));
        let read = on_disk(move || Skill::read(name, from, folder)).await.flatten();
        skills.extend(read.map(|skill| {
            let mut fields = skill.fields;
            if let Some(version) = resource["_meta"]["version"].as_str() {
                fields.insert("version".into(), version.into());
            }
            Skill { uri: Some(uri), fields, ..skill }
        }));
    }
    skills
}

/// Whether a name is valid: one segment for a local skill, two for a plugin's, three for an MCP server's.
fn is_name(name: &str) -> bool {
    match *name.split(':').collect::<Vec<_>>() {
        [skill] => is_segment(skill),
        [plugin, skill] => is_segment(plugin) && is_segment(skill),
        ["mcp", server, skill] => bundle_id_problem(server).is_none() && is_segment(skill),
        _ => false,
    }
}

/// Whether a segment consists of lower-case letters and digits in words separated by single dashes.
fn is_segment(part: &str) -> bool {
    let is_word = |word: &str| {
        !word.is_empty() && word.bytes().all(|it| it.is_ascii_lowercase() || it.is_ascii_digit())
    };
    part.len() <= 64 && part.split('-').all(is_word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_one_to_three_parts() {
        for good in ["a", "pdf-tools", "plugin:skill", "mcp:My_Server:skill-1"] {
            assert!(is_name(good), "{good}");
        }
        let long = "x".repeat(65);
        for bad in [
            "",
            "A",
            "a_b",
            "-a",
            "a-",
            "a--b",
            "a:",
            "x:y:z",
            "mcp:a__b:c",
            "a:b:c:d",
            "../a",
            &long,
        ] {
            assert!(!is_name(bad), "{bad}");
        }
    }
}

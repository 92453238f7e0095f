//! The documents of a folder. No name and no link can reach a file outside of it.
//!
//! A file is parsed on request and again after a change. The latest parsed files are cached.

use std::{
    collections::{BTreeMap, VecDeque},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::SystemTime,
};

use budao_core::fault::{Fact, Fault, Kind, Operation};
use cap_std::{ambient_authority, fs::Dir};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::{
    element::{Content, short},
    read::{self, FileType, ParsedDocument},
    uri::escaped,
};

/// The limits of a folder of documents.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Documents that are listed; further ones are left out. Default 1000.
    pub documents_max: usize,
    /// Depth of nested folders. Default 8.
    pub depth_max: usize,
    /// Bytes of one document. Default 16 MiB.
    pub bytes_max: u64,
    /// Parsed documents in the cache. Default 8.
    pub kept_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { documents_max: 1000, depth_max: 8, bytes_max: 16 << 20, kept_max: 8 }
    }
}

/// A folder of documents, opened as a capability: paths cannot leave it.
#[derive(Debug)]
pub struct DocumentFolder {
    host: String,
    root: PathBuf,
    dir: Dir,
    limits: Limits,
    cache: Mutex<FolderCache>,
}

/// Results of earlier reads.
#[derive(Debug, Default)]
struct FolderCache {
    /// List entries by path, valid while the file's stamp is the same.
    summaries: BTreeMap<String, (Stamp, Summary)>,
    recent: VecDeque<(String, Stamp, Arc<ParsedDocument>)>,
}

/// Size and modification time of a file. A different stamp means that the file has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Stamp {
    bytes: u64,
    modified: Option<SystemTime>,
}

#[derive(Clone, Debug, Default)]
struct Summary {
    title: Option<String>,
    keywords: Vec<String>,
    summary: Option<String>,
    pages: usize,
}

/// A document in the folder.
#[derive(Clone, Debug)]
pub struct DocumentFile {
    /// The document's name in an address, as `doc-ref`.
    pub reference: String,
    /// The path relative to the folder.
    path: String,
    sort: FileType,
    stamp: Stamp,
}

impl DocumentFolder {
    /// Opens a folder. `host` is the host part of its documents' addresses.
    ///
    /// # Errors
    /// If the folder does not exist.
    pub fn open(host: &str, folder: &Path, limits: Limits) -> Result<Self, Fault> {
        let missing = |error: &std::io::Error| {
            Fault::new(Kind::FileNotFound, Operation::LoadConfig)
                .with(Fact::Path, folder.display().to_string())
                .caused_by(error)
        };
        let root = std::fs::canonicalize(folder).map_err(|error| missing(&error))?;
        let dir =
            Dir::open_ambient_dir(&root, ambient_authority()).map_err(|error| missing(&error))?;
        Ok(Self { host: host.to_owned(), root, dir, limits, cache: Mutex::default() })
    }

    /// The host part of the documents' addresses.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    fn lock_cache(&self) -> MutexGuard<'_, FolderCache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All readable documents, sorted by path. Links and hidden files are skipped.
    #[must_use]
    pub fn items(&self) -> Vec<DocumentFile> {
        let mut items = Vec::new();
        let mut folders = VecDeque::from([(String::new(), 0)]);
        while let Some((folder, depth)) = folders.pop_front() {
            let here = if folder.is_empty() { "." } else { folder.as_str() };
            let Ok(entries) = self.dir.read_dir(here) else { continue };
            for entry in entries.flatten() {
                let Ok(name) = entry.file_name().into_string() else { continue };
                let Ok(sort) = entry.file_type() else { continue };
                if name.starts_with('.') {
                    continue;
                }
                let path =
                    if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
                if sort.is_dir() && depth < self.limits.depth_max {
                    folders.push_back((path, depth + 1));
                } else if sort.is_file()
                    && items.len() < self.limits.documents_max
                    && let Some(sort) = FileType::of(&name)
                    && let Ok(metadata) = entry.metadata()
                {
                    let modified =
                        metadata.modified().ok().map(cap_std::time::SystemTime::into_std);
                    let stamp = Stamp { bytes: metadata.len(), modified };
                    items.push(DocumentFile { reference: reference(&path), path, sort, stamp });
                }
            }
        }
        items.sort_by(|a, b| a.path.cmp(&b.path));
        items
    }

    /// A fingerprint of all documents: it changes when one is added, removed or modified.
    #[must_use]
    pub fn state(&self) -> u64 {
        use std::hash::{DefaultHasher, Hash as _, Hasher as _};
        let mut hasher = DefaultHasher::new();
        for item in self.items() {
            (item.path, item.stamp).hash(&mut hasher);
        }
        hasher.finish()
    }

    /// Finds a document by its `doc-ref`.
    ///
    /// # Errors
    /// Code 4201, with similar names.
    pub fn find(&self, reference: &str) -> Result<DocumentFile, Fault> {
        let mut items = self.items();
        if let Some(index) = items.iter().position(|item| item.reference == reference) {
            return Ok(items.swap_remove(index));
        }
        let names: Vec<&str> = items.iter().map(|item| item.reference.as_str()).collect();
        Err(super::not_found(reference, &names))
    }

    /// Parses a document, or returns it from the cache.
    ///
    /// # Errors
    /// If the file is gone, too large, or not of the type that its name says.
    pub fn read_document(&self, item: &DocumentFile) -> Result<Arc<ParsedDocument>, Fault> {
        let cache = self.lock_cache().recent.iter().find_map(|(path, stamp, parsed)| {
            (*path == item.path && *stamp == item.stamp).then(|| Arc::clone(parsed))
        });
        if let Some(parsed) = cache {
            return Ok(parsed);
        }
        let parsed = Arc::new(self.read(item)?);
        let mut cache = self.lock_cache();
        cache.recent.retain(|(path, ..)| *path != item.path);
        cache.recent.push_back((item.path.clone(), item.stamp, Arc::clone(&parsed)));
        while cache.recent.len() > self.limits.kept_max {
            cache.recent.pop_front();
        }
        Ok(parsed)
    }

    fn read(&self, item: &DocumentFile) -> Result<ParsedDocument, Fault> {
        use std::io::Read as _;
        let gone = |error: &std::io::Error| super::not_found(&item.reference, &[]).caused_by(error);
        let limit = self.limits.bytes_max;
        let file = self.dir.open(&item.path).map_err(|error| gone(&error))?;
        let mut bytes = Vec::new();
        file.take(limit + 1).read_to_end(&mut bytes).map_err(|error| gone(&error))?;
        if bytes.len() as u64 > limit {
            let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
            return Err(Fault::new(Kind::OutputTooLarge, Operation::ReadDocument)
                .with(Fact::LimitName, "bytes_max")
                .with(Fact::Limit, number(limit))
                .with(Fact::Actual, number(item.stamp.bytes))
                .with(Fact::ToolName, item.path.clone()));
        }
        read::read(item.sort, &bytes).map_err(|reason| {
            Fault::new(Kind::FileNotText, Operation::ReadDocument)
                .with(Fact::Path, item.path.clone())
                .with_cause(reason)
        })
    }

    /// The list entry of a document. A document that cannot be read is listed without pages.
    #[must_use]
    pub fn summary(&self, item: &DocumentFile) -> Value {
        let cache = self.lock_cache().summaries.get(&item.path).cloned();
        let summary = match cache {
            Some((stamp, summary)) if stamp == item.stamp => summary,
            _ => {
                let summary = self
                    .read_document(item)
                    .map_or_else(|_| Summary::default(), |parsed| summarise(&parsed));
                let mut cache = self.lock_cache();
                if cache.summaries.len() >= self.limits.documents_max * 2 {
                    cache.summaries.clear();
                }
                cache.summaries.insert(item.path.clone(), (item.stamp, summary.clone()));
                summary
            }
        };
        let name = item.path.rsplit('/').next().unwrap_or(&item.path);
        let title = summary.title.unwrap_or_else(|| name.to_owned());
        let mut rendered = json!({
            "doc_ref": item.reference,
            "uri": format!("dpe://{}/{}", self.host, escaped(&item.reference)),
            "file_uri": file_uri(&self.root, &item.path),
            "file_type": <&str>::from(item.sort),
            "title": title,
            "page_count": summary.pages,
            "keywords": summary.keywords,
            "server": self.host,
        });
        if let Some(text) = summary.summary {
            rendered["summary"] = text.into();
        }
        if let Some(modified) = item.stamp.modified {
            rendered["last_modified"] = super::rfc3339(modified).into();
        }
        rendered
    }
}

fn summarise(parsed: &ParsedDocument) -> Summary {
    let first = parsed.pages.iter().flat_map(|page| &page.elements).find_map(|element| {
        match &element.content {
            Content::Text(text) => Some(short(text)),
            _ => None,
        }
    });
    Summary {
        title: parsed.title.clone(),
        keywords: parsed.keywords.clone(),
        summary: first,
        pages: parsed.pages.len(),
    }
}

/// A short, stable `doc-ref`: the readable part of the file's name and a digest of its path.
fn reference(path: &str) -> String {
    let name = path.rsplit('/').next().unwrap_or(path);
    let stem = name.rsplit_once('.').map_or(name, |(stem, _)| stem);
    let plain: String = stem
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' })
        .take(32)
        .collect();
    let plain = plain.split('-').filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-");
    let digest = Sha256::digest(path.as_bytes());
    let digest: String = digest.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
    if plain.is_empty() { format!("doc-{digest}") } else { format!("{plain}-{digest}") }
}

/// A `file:` URI that starts at the folder's own name, so that it does not reveal the folder's location.
fn file_uri(root: &Path, path: &str) -> String {
    let folder = root.file_name().and_then(|name| name.to_str()).unwrap_or("documents");
    let parts = std::iter::once(folder).chain(path.split('/')).map(escaped);
    format!("file:///{}", parts.collect::<Vec<_>>().join("/"))
}

//! What is remembered of servers between runs: the era of each, and a digest of each tool that was approved.
//!
//! A tool counts as approved when it is first seen, and again when a call of it was allowed after a change. Several
//! processes may use one file: each change reads it again under a lock and replaces it as a whole.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

use budao_core::fault::{Fact, Fault, Kind, Operation};
use budao_tools::contract::content_hash;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    config::{McpServerConfig, Transport},
    era::Era,
};

/// The longest file that is read, in bytes.
const FILE_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// The most servers that are remembered. The records of other servers stay until the file is deleted.
const SERVERS_MAX: usize = 1_000;

/// Hex digits of a digest that are kept.
const DIGEST_DIGITS: usize = 32;

/// What is remembered of all servers; in a file, or in memory only.
#[derive(Debug, Default)]
pub struct ServerStore {
    file: Option<PathBuf>,
    records: Mutex<Records>,
}

type Records = BTreeMap<String, ServerRecord>;

/// What is remembered of one server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ServerRecord {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) era: Option<Era>,
    /// Digests of approved tools, by the server's own names.
    pub(crate) tools: BTreeMap<String, String>,
}

impl ServerStore {
    /// Opens the file, or starts without one if it does not exist yet.
    ///
    /// # Errors
    /// When the file exists and cannot be read. Without it, a changed tool would look like a new one.
    pub fn open(file: impl Into<PathBuf>) -> Result<Self, Fault> {
        let file = file.into();
        let records = read(&file).map_err(|error| unreadable(&file, &error))?;
        Ok(Self { file: Some(file), records: Mutex::new(records) })
    }

    pub(crate) fn get(&self, key: &str) -> ServerRecord {
        self.lock().get(key).cloned().unwrap_or_default()
    }

    /// Changes the record of a server. A file that cannot be written is reported in the log; the change holds for this
    /// process.
    pub(crate) fn update(&self, key: &str, change: impl Fn(&mut ServerRecord)) {
        let mut records = self.lock();
        if !apply(&mut records, key, &change) {
            return;
        }
        let Some(file) = &self.file else { return };
        if let Err(error) = replace(file, |stored: &mut Records| {
            apply(stored, key, &change);
        }) {
            tracing::warn!(file = %file.display(), %error, "remembering servers failed");
        }
    }

    fn lock(&self) -> MutexGuard<'_, Records> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Applies a change. Returns whether the record differs afterwards.
fn apply(records: &mut Records, key: &str, change: &impl Fn(&mut ServerRecord)) -> bool {
    if records.len() >= SERVERS_MAX && !records.contains_key(key) {
        return false;
    }
    let record = records.entry(key.to_owned()).or_default();
    let before = record.clone();
    change(record);
    *record != before
}

/// The key of a server's record: another command or URL under the same name is another server.
pub(crate) fn key(config: &McpServerConfig) -> String {
    let target = match &config.transport {
        Transport::Stdio(stdio) => {
            let words = std::iter::once(&stdio.command).chain(&stdio.args);
            words.map(String::as_str).collect::<Vec<_>>().join("\0")
        }
        Transport::Http(address) | Transport::Sse(address) => address.url.clone(),
    };
    format!("{}@{}", config.name, digest(target.as_bytes()))
}

/// The digest of everything that the server says of a tool.
pub(crate) fn tool_digest(tool: &rmcp::model::Tool) -> String {
    let canonical = serde_json_canonicalizer::to_vec(tool);
    digest(&canonical.or_else(|_| serde_json::to_vec(tool)).unwrap_or_default())
}

pub(crate) fn digest(bytes: &[u8]) -> String {
    content_hash(bytes)[..DIGEST_DIGITS].to_owned()
}

/// Reads a file of records; none if it does not exist.
pub(crate) fn read<T: DeserializeOwned + Default>(file: &Path) -> io::Result<T> {
    match fs::metadata(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(T::default()),
        Err(error) => return Err(error),
        Ok(about) if about.len() > FILE_BYTES_MAX => return Err(io::ErrorKind::FileTooLarge.into()),
        Ok(_) => {}
    }
    Ok(serde_json::from_slice(&fs::read(file)?)?)
}

/// Reads the file again, changes it and replaces it, under a lock that other processes respect.
pub(crate) fn replace<T>(file: &Path, change: impl Fn(&mut T)) -> io::Result<()>
where
    T: DeserializeOwned + Serialize + Default,
{
    let folder = file.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    let lock = private(&file.with_extension("lock"))?;
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive)?;
    let mut records: T = read(file)?;
    change(&mut records);
    let next = file.with_extension("next");
    let mut written = private(&next)?;
    written.set_len(0)?;
    written.write_all(&serde_json::to_vec_pretty(&records)?)?;
    written.sync_data()?;
    fs::rename(&next, file)
}

/// Opens a file that only its owner can read.
pub(crate) fn private(path: &Path) -> io::Result<fs::File> {
    fs::OpenOptions::new().create(true).write(true).truncate(false).mode(0o600).open(path)
}

fn unreadable(file: &Path, error: &io::Error) -> Fault {
    Fault::new(Kind::ConfigurationWrong, Operation::LoadConfig)
        .with(Fact::ConfigKey, file.display().to_string())
        .with(Fact::Expected, "the file as Budao wrote it, or none: all tools are then new")
        .caused_by(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(description: &str) -> rmcp::model::Tool {
        let tool = serde_json::json!({
            "name": "t", "description": description, "inputSchema": { "type": "object" },
        });
        serde_json::from_value(tool).unwrap()
    }

    #[test]
    fn a_digest_changes_with_the_description_and_not_with_the_order_of_keys() {
        assert_ne!(tool_digest(&tool("a")), tool_digest(&tool("b")));
        let schema = |text: &str| {
            let mut tool = tool("a");
            tool.input_schema = std::sync::Arc::new(serde_json::from_str(text).unwrap());
            tool_digest(&tool)
        };
        let one = schema(r#"{"type":"object","properties":{"a":{},"b":{}}}"#);
        assert_eq!(one, schema(r#"{"properties":{"b":{},"a":{}},"type":"object"}"#));
        assert_ne!(one, schema(r#"{"properties":{"a":{}},"type":"object"}"#));
    }

    #[test]
    fn two_processes_keep_what_the_other_one_wrote() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("inner/servers.json");
        let (one, two) = (ServerStore::open(&file).unwrap(), ServerStore::open(&file).unwrap());
        one.update("a", |record| record.era = Some(Era::Handshake));
        two.update("b", |record| record.era = Some(Era::Stateless));
        let next = ServerStore::open(&file).unwrap();
        assert_eq!(next.get("a").era, Some(Era::Handshake));
        assert_eq!(next.get("b").era, Some(Era::Stateless));
        let mode =
            std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&file).unwrap().permissions());
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_damaged_file_is_reported_and_not_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("servers.json");
        fs::write(&file, "{\"a\": [").unwrap();
        let fault = ServerStore::open(&file).unwrap_err();
        assert_eq!(fault.kind(), Kind::ConfigurationWrong);
        assert_eq!(fs::read_to_string(&file).unwrap(), "{\"a\": [");
    }
}

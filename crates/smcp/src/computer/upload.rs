//! Receives uploads in chunks. An upload becomes a complete file or nothing.
//!
//! The first chunk declares size and digest, and chunks arrive in order. A complete file with the right digest is
//! renamed into place in one step. Without a configured folder, all uploads are refused.

use std::{collections::BTreeMap, io, path::PathBuf, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use budao_core::{
    fault::{Fact, Fault, Kind, Operation},
    time::Timestamp,
    world::World,
};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::{fs, io::AsyncWriteExt as _, sync::Mutex};

use super::skills::hex;
use crate::wire::request::Fields;

/// The subfolder for incomplete uploads.
const PARTS: &str = ".parts";

/// Longest file name from a hint, in characters.
const HINT_MAX: usize = 64;

/// The limits of uploads.
#[derive(Clone, Debug)]
pub struct UploadBounds {
    /// Bytes of one file. Default 100 MiB.
    pub bytes: u64,
    /// Concurrent uploads. Default 4.
    pub at_once: usize,
    /// Time limit for the next chunk; the upload is dropped after it. Default 120 s.
    pub idle: Duration,
}

impl Default for UploadBounds {
    fn default() -> Self {
        Self { bytes: 100 << 20, at_once: 4, idle: Duration::from_secs(120) }
    }
}

/// The incomplete uploads of a computer.
#[derive(Debug)]
pub(super) struct Uploads {
    folder: Option<PathBuf>,
    bounds: UploadBounds,
    world: World,
    under_way: Mutex<BTreeMap<String, Upload>>,
}

/// An incomplete upload and its part file.
#[derive(Debug)]
struct Upload {
    part: PathBuf,
    file: fs::File,
    name: String,
    hasher: Sha256,
    received: u64,
    declared: u64,
    sha256: String,
    touched: Timestamp,
}

/// The fault for a refused chunk, with a reason code.
fn failed(reason: &'static str) -> Fault {
    Fault::new(Kind::BlobWriteFailed, Operation::WriteBlob).with(Fact::Reason, reason)
}

impl Uploads {
    pub(super) fn new(folder: Option<PathBuf>, bounds: UploadBounds, world: World) -> Self {
        Self { folder, bounds, world, under_way: Mutex::default() }
    }

    /// Drops all incomplete uploads and their files.
    pub(super) async fn clear(&self) {
        let given_up = std::mem::take(&mut *self.under_way.lock().await);
        for (_, upload) in given_up {
            upload.discard().await;
        }
    }

    /// Accepts one chunk.
    ///
    /// # Errors
    /// If the chunk is refused. Most errors also drop the upload.
    pub(super) async fn put(&self, fields: &Fields<'_>, request: &Value) -> Result<Value, Fault> {
        let Some(folder) = &self.folder else {
            return Err(failed("forbidden").with_cause("there is no folder for uploads"));
        };
        let mut under_way = self.under_way.lock().await;
        self.expire(&mut under_way).await;
        let id = match request.get("upload_id").and_then(Value::as_str) {
            Some(id) => {
                if !under_way.contains_key(id) {
                    return Err(failed("invalid_upload"));
                }
                let is_declared =
                    |field: &&str| request.get(*field).is_some_and(|it| !it.is_null());
                if ["total_size", "sha256", "name_hint"].iter().any(is_declared) {
                    return Err(failed("invalid_declaration"));
                }
                id.to_owned()
            }
            None => {
                if under_way.len() >= self.bounds.at_once {
                    return Err(failed("busy"));
                }
                let id = self.world.trace().to_string();
                under_way.insert(id.clone(), self.begin(folder, &id, request).await?);
                id
            }
        };
        let upload = under_way.get_mut(&id).ok_or_else(|| failed("invalid_upload"))?;
        upload.touched = self.world.clock.now();
        let req_id = fields.text("req_id", 256)?;
        match upload.take(request).await {
            Ok(false) => {
                let offset = &request["chunk_offset"];
                Ok(json!({ "upload_id": id, "chunk_offset": offset, "req_id": req_id }))
            }
            Ok(true) => {
                let Some(upload) = under_way.remove(&id) else {
                    return Err(failed("invalid_upload"));
                };
                let landed = upload.finish(folder).await?;
                Ok(json!({
                    "upload_id": id, "chunk_offset": request["chunk_offset"], "req_id": req_id,
                    "landing_path": landed.path, "total_size": landed.bytes, "sha256": landed.sha256,
                }))
            }
            Err((fault, ChunkFailure::Retryable)) => Err(fault),
            Err((fault, ChunkFailure::Fatal)) => {
                if let Some(upload) = under_way.remove(&id) {
                    upload.discard().await;
                }
                Err(fault)
            }
        }
    }

    async fn begin(
        &self,
        folder: &std::path::Path,
        id: &str,
        request: &Value,
    ) -> Result<Upload, Fault> {
        let declared = request.get("total_size").and_then(Value::as_u64).filter(|bytes| *bytes > 0);
        let declared = declared.ok_or_else(|| failed("invalid_declaration"))?;
        let is_digest =
            |text: &&str| text.len() == 64 && text.bytes().all(|it| it.is_ascii_hexdigit());
        let sha256 = request.get("sha256").and_then(Value::as_str).filter(is_digest);
        let sha256 = sha256.ok_or_else(|| failed("invalid_declaration"))?.to_ascii_lowercase();
        if declared > self.bounds.bytes {
            return Err(failed("too_large").with(Fact::TotalSize, declared));
        }
        let parts = folder.join(PARTS);
        let unwritable = |error: io::Error| failed("forbidden").caused_by(&error);
        fs::create_dir_all(&parts).await.map_err(unwritable)?;
        self.collect(&parts).await;
        let part = parts.join(format!("{id}.part"));
        let file = fs::File::create_new(&part).await.map_err(unwritable)?;
        let hint = request.get("name_hint").and_then(Value::as_str).map(harmless);
        let name = match hint.filter(|hint| !hint.is_empty()) {
            Some(hint) => format!("{id}_{hint}"),
            None => id.to_owned(),
        };
        let touched = self.world.clock.now();
        let hasher = Sha256::new();
        Ok(Upload { part, file, name, hasher, received: 0, declared, sha256, touched })
    }

    /// Drops uploads whose next chunk did not arrive in time.
    async fn expire(&self, under_way: &mut BTreeMap<String, Upload>) {
        let now = self.world.clock.now();
        let is_old =
            |(_, upload): &(&String, &Upload)| now.since(upload.touched) > self.bounds.idle;
        let old: Vec<String> = under_way.iter().filter(is_old).map(|(id, _)| id.clone()).collect();
        for id in old {
            if let Some(upload) = under_way.remove(&id) {
                upload.discard().await;
            }
        }
    }

    /// Removes part files that a killed process left behind.
    async fn collect(&self, parts: &std::path::Path) {
        let Ok(mut entries) = fs::read_dir(parts).await else { return };
        while let Ok(Some(entry)) = entries.next_entry().await {
            let Ok(meta) = entry.metadata().await else { continue };
            let age = meta.modified().ok().and_then(|at| at.elapsed().ok()).unwrap_or_default();
            if meta.is_file() && is_part(&entry.file_name()) && age > self.bounds.idle {
                // A file that cannot be removed now is retried at the next upload.
                let _ = fs::remove_file(entry.path()).await;
            }
        }
    }
}

/// Whether an upload created a file of this name. Other files in the folder belong to the user.
fn is_part(name: &std::ffi::OsStr) -> bool {
    let id = name.to_str().and_then(|name| name.strip_suffix(".part"));
    id.is_some_and(|id| id.len() == 32 && id.bytes().all(|it| it.is_ascii_hexdigit()))
}

/// The consequence of a refused chunk for its upload.
enum ChunkFailure {
    /// The upload continues; the right chunk may follow.
    Retryable,
    /// The upload is dropped.
    Fatal,
}

/// A complete file.
struct FinishedUpload {
    path: String,
    bytes: u64,
    sha256: String,
}

impl Upload {
    /// Accepts one chunk and returns whether it was the last.
    async fn take(&mut self, request: &Value) -> Result<bool, (Fault, ChunkFailure)> {
        let offset = request.get("chunk_offset").and_then(Value::as_u64);
        if offset != Some(self.received) {
            return Err((failed("range"), ChunkFailure::Retryable));
        }
        let text = request.get("blob").and_then(Value::as_str);
        let Some(piece) = text.and_then(|text| STANDARD.decode(text).ok()) else {
            return Err((failed("invalid_declaration"), ChunkFailure::Retryable));
        };
        let is_last = request.get("eof").and_then(Value::as_bool).unwrap_or_default();
        let end = self.received + piece.len() as u64;
        if end > self.declared {
            return Err((failed("range"), ChunkFailure::Fatal));
        }
        if is_last && end != self.declared {
            return Err((failed("range"), ChunkFailure::Retryable));
        }
        if let Err(error) = self.file.write_all(&piece).await {
            return Err((failed("io_error").caused_by(&error), ChunkFailure::Fatal));
        }
        self.hasher.update(&piece);
        self.received = end;
        Ok(is_last)
    }

    async fn finish(mut self, folder: &std::path::Path) -> Result<FinishedUpload, Fault> {
        let sha256 = hex(&std::mem::take(&mut self.hasher).finalize());
        if sha256 != self.sha256 {
            self.discard().await;
            return Err(failed("integrity"));
        }
        let path = folder.join(&self.name);
        let written = async {
            self.file.flush().await?;
            self.file.sync_all().await?;
            fs::rename(&self.part, &path).await?;
            std::path::absolute(&path)
        };
        match written.await {
            Ok(path) => {
                let path = path.to_string_lossy().into_owned();
                Ok(FinishedUpload { path, bytes: self.received, sha256 })
            }
            Err(error) => {
                self.discard().await;
                Err(failed("io_error").caused_by(&error))
            }
        }
    }

    async fn discard(self) {
        drop(self.file);
        // A later upload removes a file that cannot be removed now.
        let _ = fs::remove_file(&self.part).await;
    }
}

/// A safe file name from a hint: its last component, with special characters replaced.
fn harmless(hint: &str) -> String {
    let last = hint.rsplit(['/', '\\']).next().unwrap_or_default();
    let plain = |it: char| if it.is_alphanumeric() || "._-".contains(it) { it } else { '_' };
    let name: String = last.chars().map(plain).take(HINT_MAX).collect();
    name.trim_start_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codes::smcp_code;

    fn uploads(folder: Option<&std::path::Path>, bounds: UploadBounds) -> Uploads {
        let world = budao_testkit::world::seeded(3);
        Uploads::new(folder.map(std::path::Path::to_owned), bounds, world)
    }

    async fn put(uploads: &Uploads, mut request: Value) -> Result<Value, Fault> {
        request["req_id"] = "r".into();
        let fields = Fields::new("client:put_blob", Operation::WriteBlob, &request).unwrap();
        uploads.put(&fields, &request).await
    }

    fn first(data: &[u8], piece: &[u8], is_last: bool) -> Value {
        json!({
            "chunk_offset": 0, "eof": is_last, "blob": STANDARD.encode(piece),
            "total_size": data.len(), "sha256": hex(&Sha256::digest(data)), "name_hint": "../a b.txt",
        })
    }

    fn next(id: &Value, offset: usize, piece: &[u8], is_last: bool) -> Value {
        json!({ "upload_id": id, "chunk_offset": offset, "eof": is_last, "blob": STANDARD.encode(piece) })
    }

    fn reason(answer: Result<Value, Fault>) -> String {
        let fault = answer.unwrap_err();
        assert_eq!(smcp_code(fault.kind()), 4019);
        fault.detail().text(Fact::Reason).unwrap().to_owned()
    }

    fn left_in(folder: &std::path::Path) -> usize {
        std::fs::read_dir(folder.join(PARTS)).unwrap().count()
    }

    #[tokio::test]
    async fn pieces_in_order_become_a_file_with_a_harmless_name() {
        let folder = tempfile::tempdir().unwrap();
        let uploads = uploads(Some(folder.path()), UploadBounds::default());
        let begun = put(&uploads, first(b"hello world", b"hello", false)).await.unwrap();
        let id = &begun["upload_id"];
        assert_eq!(begun["landing_path"], Value::Null);
        let done = put(&uploads, next(id, 5, b" world", true)).await.unwrap();
        let path = PathBuf::from(done["landing_path"].as_str().unwrap());
        assert_eq!(std::fs::read(&path).unwrap(), b"hello world");
        assert_eq!(path.parent(), Some(folder.path()));
        assert!(path.to_str().unwrap().ends_with("_a_b.txt"), "{path:?}");
        assert_eq!((&done["total_size"], left_in(folder.path())), (&json!(11), 0));
        assert_eq!(reason(put(&uploads, next(id, 11, b"x", true)).await), "invalid_upload");
    }

    #[tokio::test]
    async fn each_way_to_fail_has_its_reason() {
        let nowhere = uploads(None, UploadBounds::default());
        assert_eq!(reason(put(&nowhere, first(b"x", b"x", true)).await), "forbidden");
        let folder = tempfile::tempdir().unwrap();
        let bounds = UploadBounds { bytes: 20, at_once: 1, ..UploadBounds::default() };
        let uploads = uploads(Some(folder.path()), bounds);
        for (field, value) in [
            ("total_size", json!(0)),
            ("total_size", json!("11")),
            ("total_size", Value::Null),
            ("sha256", json!("abc")),
            ("sha256", json!(5)),
        ] {
            let mut bad = first(b"hello", b"hello", true);
            bad[field] = value;
            assert_eq!(reason(put(&uploads, bad).await), "invalid_declaration", "{field}");
        }
        let large = [0; 21];
        assert_eq!(reason(put(&uploads, first(&large, b"x", false)).await), "too_large");
        let mut wrong = first(b"hello", b"hello", true);
        wrong["sha256"] = "0".repeat(64).into();
        assert_eq!(reason(put(&uploads, wrong).await), "integrity");
        assert_eq!(left_in(folder.path()), 0, "nothing of it is kept");

        let id = put(&uploads, first(b"hello", b"he", false)).await.unwrap()["upload_id"].clone();
        assert_eq!(reason(put(&uploads, first(b"x", b"x", true)).await), "busy");
        assert_eq!(reason(put(&uploads, next(&id, 3, b"l", false)).await), "range");
        assert_eq!(reason(put(&uploads, next(&id, 2, b"l", true)).await), "range");
        let mut again = next(&id, 2, b"l", false);
        again["sha256"] = "0".repeat(64).into();
        assert_eq!(reason(put(&uploads, again).await), "invalid_declaration");
        let mut garbled = next(&id, 2, b"l", false);
        garbled["blob"] = "!".into();
        assert_eq!(reason(put(&uploads, garbled).await), "invalid_declaration");
        assert!(put(&uploads, next(&id, 2, b"l", false)).await.is_ok(), "it may still go on");
        assert_eq!(reason(put(&uploads, next(&id, 3, b"lo and more", false)).await), "range");
        assert_eq!(reason(put(&uploads, next(&id, 3, b"lo", true)).await), "invalid_upload");
        assert_eq!(left_in(folder.path()), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn an_unfinished_upload_is_removed_after_its_timeout() {
        let folder = tempfile::tempdir().unwrap();
        let bounds = UploadBounds { at_once: 1, ..UploadBounds::default() };
        let uploads = uploads(Some(folder.path()), bounds);
        let id = put(&uploads, first(b"hello", b"he", false)).await.unwrap()["upload_id"].clone();
        tokio::time::advance(Duration::from_secs(121)).await;
        assert_eq!(reason(put(&uploads, next(&id, 2, b"llo", true)).await), "invalid_upload");
        assert!(put(&uploads, first(b"x", b"x", true)).await.is_ok(), "its place is free");
        put(&uploads, first(b"hello", b"he", false)).await.unwrap();
        uploads.clear().await;
        assert_eq!(left_in(folder.path()), 0);
    }

    #[tokio::test]
    async fn only_what_an_upload_left_behind_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let parts = folder.path().join(PARTS);
        std::fs::create_dir(&parts).unwrap();
        let left = format!("{}.part", "0af7651916cd43dd8448eb211c80319c");
        let long_ago = std::time::SystemTime::UNIX_EPOCH;
        for name in [&left, "letter.txt", "chapter.part"] {
            let file = std::fs::File::create(parts.join(name)).unwrap();
            file.set_modified(long_ago).unwrap();
        }
        let uploads = uploads(Some(folder.path()), UploadBounds::default());
        put(&uploads, first(b"x", b"x", true)).await.unwrap();
        assert!(!parts.join(&left).exists());
        assert!(parts.join("letter.txt").exists() && parts.join("chapter.part").exists());
    }

    #[test]
    fn a_suggested_name_is_only_a_name() {
        let names =
            [("../../etc/passwd", "passwd"), ("C:\\x\\y.txt", "y.txt"), (".hidden", "hidden")];
        for (hint, name) in names {
            assert_eq!(harmless(hint), name);
        }
        assert_eq!((harmless("a\nb*c").as_str(), harmless("..")), ("a_b_c", String::new()));
        assert_eq!(harmless(&"x".repeat(500)).len(), HINT_MAX);
    }
}

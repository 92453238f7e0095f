//! Stores data that is too large for an answer and returns it in chunks.
//!
//! A handle is opaque to the agent. It stands for a stored blob, or for a file of a skill, which is looked up and
//! checked again for each chunk. A stored blob is dropped when the room changes, when it expires, or when newer blobs
//! need its space.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use budao_core::{
    Timestamp,
    fault::{Fact, Fault, Kind, Operation},
    world::World,
};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::skills::{File, hex};
use crate::wire::request::Fields;

/// The limits of stored results. Beyond them, the oldest are dropped first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlobBounds {
    /// Total bytes. Default 64 MiB.
    pub bytes: usize,
    /// Number of blobs. Default 1024.
    pub count: usize,
    /// Time after which a blob expires. Default 1 hour.
    pub age: Duration,
}

impl Default for BlobBounds {
    fn default() -> Self {
        Self { bytes: 64 << 20, count: 1024, age: Duration::from_hours(1) }
    }
}

/// A stored part of a result.
#[derive(Debug)]
pub(super) struct Blob {
    pub(super) handle: String,
    pub(super) mime: String,
    pub(super) bytes: Vec<u8>,
    pub(super) sha256: String,
    at: Timestamp,
}

/// All stored blobs, oldest first.
#[derive(Debug)]
pub(super) struct Blobs {
    stored: Mutex<VecDeque<Arc<Blob>>>,
    bounds: BlobBounds,
}

/// The target of a handle.
pub(super) enum Handle {
    Stored,
    /// A file of a skill: the skill's name and the file's relative path.
    Skill(String, String),
}

/// A request for one chunk.
pub(super) struct ChunkRequest {
    pub(super) handle: String,
    offset: u64,
    most: usize,
}

impl ChunkRequest {
    /// # Errors
    /// If a field is missing or invalid.
    pub(super) fn read(fields: &Fields<'_>, chunk_bytes: usize) -> Result<Self, Fault> {
        let most = fields.number("max_chunk_bytes", 1)?;
        let most = most.and_then(|most| usize::try_from(most).ok()).unwrap_or(chunk_bytes);
        Ok(Self {
            handle: fields.text("blob_handle", 8 * 1024)?,
            offset: fields.number("chunk_offset", 0)?.unwrap_or_default(),
            most: most.min(chunk_bytes),
        })
    }
}

/// The fault for data that cannot be returned, with a reason code.
pub(super) fn unavailable(reason: &'static str) -> Fault {
    Fault::new(Kind::BlobUnavailable, Operation::ReadBlob).with(Fact::Reason, reason)
}

impl Blobs {
    pub(super) fn new(bounds: BlobBounds) -> Self {
        Self { stored: Mutex::default(), bounds }
    }

    /// Locks the store after dropping expired blobs.
    fn at(&self, now: Timestamp) -> MutexGuard<'_, VecDeque<Arc<Blob>>> {
        let mut stored = self.stored.lock().unwrap_or_else(PoisonError::into_inner);
        while stored.front().is_some_and(|oldest| now.since(oldest.at) >= self.bounds.age) {
            stored.pop_front();
        }
        stored
    }

    /// Stores a blob and drops the oldest ones to make room. Returns `None` if it is larger than the whole store.
    pub(super) fn keep(&self, mime: &str, bytes: Vec<u8>, world: &World) -> Option<Arc<Blob>> {
        if bytes.len() > self.bounds.bytes {
            return None;
        }
        let now = world.clock.now();
        let blob = Arc::new(Blob {
            handle: format!("b{}", world.trace()),
            mime: mime.to_owned(),
            sha256: hex(&Sha256::digest(&bytes)),
            bytes,
            at: now,
        });
        let mut stored = self.at(now);
        stored.push_back(blob.clone());
        let size =
            |stored: &VecDeque<Arc<Blob>>| stored.iter().map(|it| it.bytes.len()).sum::<usize>();
        while stored.len() > self.bounds.count || size(&stored) > self.bounds.bytes {
            stored.pop_front();
        }
        Some(blob)
    }

    /// Drops all blobs. Called when the room changes, because they belong to the old room's agent.
    pub(super) fn clear(&self) {
        self.stored.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Returns one chunk of a stored blob.
    ///
    /// # Errors
    /// If the blob is gone, or the offset is beyond its end.
    pub(super) fn piece(
        &self,
        request: &ChunkRequest,
        req_id: &str,
        now: Timestamp,
    ) -> Result<Value, Fault> {
        let found = self.at(now).iter().find(|it| it.handle == request.handle).cloned();
        let Some(blob) = found else {
            return Err(unavailable("gone").with(Fact::Blob, request.handle.clone()));
        };
        let all = blob.bytes.len() as u64;
        let start = usize::try_from(beginning(request, all)?).unwrap_or(usize::MAX);
        let end = start.saturating_add(request.most).min(blob.bytes.len());
        Ok(chunk_answer(request, &blob.mime, all, &blob.sha256, &blob.bytes[start..end], req_id))
    }
}

/// Returns one chunk of a file.
///
/// # Errors
/// If the offset is beyond the file's end, or the file cannot be read.
pub(super) fn piece_of(
    mut file: File,
    request: &ChunkRequest,
    req_id: &str,
) -> Result<Value, Fault> {
    let start = beginning(request, file.bytes)?;
    let piece =
        file.read(start, request.most).map_err(|error| unavailable("gone").caused_by(&error))?;
    Ok(chunk_answer(request, file.mime, file.bytes, &file.sha256, &piece, req_id))
}

fn beginning(request: &ChunkRequest, all: u64) -> Result<u64, Fault> {
    if request.offset > all {
        return Err(unavailable("range").with(Fact::TotalSize, all));
    }
    Ok(request.offset)
}

fn chunk_answer(
    request: &ChunkRequest,
    mime: &str,
    all: u64,
    sha256: &str,
    piece: &[u8],
    req_id: &str,
) -> Value {
    json!({
        "blob_handle": request.handle, "mime_type": mime, "total_size": all, "sha256": sha256,
        "chunk_offset": request.offset, "eof": request.offset + piece.len() as u64 >= all,
        "blob": STANDARD.encode(piece), "req_id": req_id,
    })
}

/// The handle of a file of a skill: its name and path, encoded.
pub(super) fn skill_handle(name: &str, rel_path: &str) -> String {
    format!("s{}", URL_SAFE_NO_PAD.encode(format!("{name}\n{rel_path}")))
}

/// Parses a handle.
///
/// # Errors
/// If the handle does not have the form of this computer's handles.
pub(super) fn read_handle(handle: &str) -> Result<Handle, Fault> {
    let invalid = || unavailable("invalid_handle");
    let is_hex = |rest: &str| rest.len() == 32 && rest.bytes().all(|it| it.is_ascii_hexdigit());
    if handle.strip_prefix('b').is_some_and(is_hex) {
        return Ok(Handle::Stored);
    }
    let rest = handle.strip_prefix('s').ok_or_else(invalid)?;
    let text = URL_SAFE_NO_PAD.decode(rest).ok().and_then(|it| String::from_utf8(it).ok());
    let text = text.ok_or_else(invalid)?;
    let (name, rel_path) = text.split_once('\n').ok_or_else(invalid)?;
    Ok(Handle::Skill(name.to_owned(), rel_path.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codes::smcp_code;

    fn request(handle: &str, offset: u64, most: usize) -> ChunkRequest {
        ChunkRequest { handle: handle.to_owned(), offset, most }
    }

    fn blobs(bytes: usize) -> Blobs {
        Blobs::new(BlobBounds { bytes, count: 3, age: Duration::from_secs(60) })
    }

    fn reason(fault: &Fault) -> &str {
        fault.detail().text(Fact::Reason).unwrap()
    }

    #[test]
    fn a_stored_output_is_delivered_in_pieces_to_its_end() {
        let world = budao_testkit::world::seeded(1);
        let blobs = blobs(100);
        let handle = blobs.keep("text/plain", b"hello".to_vec(), &world).unwrap().handle.clone();
        let first = blobs.piece(&request(&handle, 0, 3), "r", world.clock.now()).unwrap();
        assert_eq!((&first["blob"], &first["eof"]), (&json!("aGVs"), &json!(false)));
        let last = blobs.piece(&request(&handle, 3, 3), "r", world.clock.now()).unwrap();
        assert_eq!((&last["blob"], &last["eof"]), (&json!("bG8="), &json!(true)));
        assert_eq!(
            blobs.piece(&request(&handle, 5, 3), "r", world.clock.now()).unwrap()["eof"],
            true
        );
        let beyond = blobs.piece(&request(&handle, 6, 3), "r", world.clock.now()).unwrap_err();
        assert_eq!((smcp_code(beyond.kind()), reason(&beyond)), (4018, "range"));
    }

    #[test]
    fn the_oldest_makes_room_and_what_never_fits_is_not_kept() {
        let world = budao_testkit::world::seeded(1);
        let blobs = blobs(100);
        let keep = |bytes: usize| {
            let stored = blobs.keep("x", vec![0; bytes], &world);
            stored.map(|blob| blob.handle.clone())
        };
        assert_eq!(keep(101), None);
        let (first, second) = (keep(60).unwrap(), keep(60).unwrap());
        let gone = blobs.piece(&request(&first, 0, 1), "r", world.clock.now()).unwrap_err();
        assert_eq!((smcp_code(gone.kind()), reason(&gone)), (4018, "gone"));
        assert!(blobs.piece(&request(&second, 0, 1), "r", world.clock.now()).is_ok());
        blobs.clear();
        assert!(blobs.piece(&request(&second, 0, 1), "r", world.clock.now()).is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_than_so_many_are_kept_and_none_for_longer_than_so_long() {
        let world = budao_testkit::world::seeded(1);
        let blobs = blobs(100);
        let mut handles = Vec::new();
        for _ in 0..4 {
            handles.push(blobs.keep("x", vec![0], &world).unwrap().handle.clone());
            tokio::time::advance(Duration::from_secs(10)).await;
        }
        let is_there =
            |handle: &String| blobs.piece(&request(handle, 0, 1), "r", world.clock.now()).is_ok();
        assert_eq!(handles.iter().map(is_there).collect::<Vec<_>>(), [false, true, true, true]);
        // The second blob is 30 s old now.
        tokio::time::advance(Duration::from_secs(30)).await;
        assert_eq!(handles.iter().map(is_there).collect::<Vec<_>>(), [false, false, true, true]);
        tokio::time::advance(Duration::from_secs(60)).await;
        assert!(blobs.at(world.clock.now()).is_empty(), "what is too old does not take room");
    }

    #[test]
    fn an_invalid_handle_is_refused_as_invalid() {
        let handle = skill_handle("a-b", "sub/x.md");
        assert!(
            matches!(read_handle(&handle), Ok(Handle::Skill(name, path)) if name == "a-b" && path == "sub/x.md")
        );
        for bad in ["", "x", "b12", "s", "s!!", "sAAAA", "b0123456789abcdef0123456789abcdeg"] {
            assert_eq!(reason(&read_handle(bad).err().unwrap()), "invalid_handle", "{bad}");
        }
    }
}

//! Transfers data that is too large for one request or answer, in chunks.

use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use budao_core::fault::{Fact, Fault, Kind, Operation};
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use super::Agent;
use crate::wire::event::RequestEvent;

/// Limits of a fetch: total bytes, bytes of a chunk, and restarts when the data changes meanwhile.
const FETCH_MAX: u64 = 64 << 20;
const PIECE: usize = 256 * 1024;
const TRIES: u32 = 3;

/// Time limit for fetching all stored parts of one result.
pub(super) const FETCH_LIMIT: Duration = Duration::from_secs(120);

/// The data changed between two chunks, or its digest does not match.
struct ContentChanged;

fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Agent {
    /// Fetches all data behind a handle of a computer, at most 64 MiB.
    ///
    /// # Errors
    /// If the computer refuses, the data is too large, or it changed during each of three attempts.
    pub async fn fetch(&self, computer: &str, handle: &str) -> Result<Vec<u8>, Fault> {
        for _ in 0..TRIES {
            if let Ok(bytes) = self.fetch_once(computer, handle).await? {
                return Ok(bytes);
            }
        }
        Err(unclear(computer, "it changed while it was read"))
    }

    async fn fetch_once(
        &self,
        computer: &str,
        handle: &str,
    ) -> Result<Result<Vec<u8>, ContentChanged>, Fault> {
        let mut bytes = Vec::new();
        let mut first: Option<(Value, Value)> = None;
        loop {
            let request = json!({
                "blob_handle": handle, "chunk_offset": bytes.len(), "max_chunk_bytes": PIECE,
            });
            let answer = self.ask(RequestEvent::GetBlob, computer, object(request)).await?;
            let mark = (answer["sha256"].clone(), answer["total_size"].clone());
            if first.get_or_insert_with(|| mark.clone()) != &mark {
                return Ok(Err(ContentChanged));
            }
            if mark.1.as_u64().is_none_or(|all| all > FETCH_MAX) {
                return Err(unclear(computer, "it is too large, or does not say how large it is"));
            }
            let piece = answer["blob"].as_str().and_then(|text| STANDARD.decode(text).ok());
            let piece = piece.ok_or_else(|| unclear(computer, "a piece cannot be read"))?;
            let is_last = answer["eof"] == true;
            if piece.is_empty() && !is_last {
                return Err(unclear(computer, "a piece has nothing in it"));
            }
            bytes.extend(piece);
            if bytes.len() as u64 > FETCH_MAX {
                return Err(unclear(computer, "it is larger than it said"));
            }
            if is_last {
                let is_whole = mark.0.as_str() == Some(digest(&bytes).as_str());
                return Ok(if is_whole { Ok(bytes) } else { Err(ContentChanged) });
            }
        }
    }

    /// Uploads a file to a computer and returns its path there. The computer may change the name.
    ///
    /// # Errors
    /// If the computer refuses a chunk or does not return a path.
    pub async fn send(&self, computer: &str, name: &str, bytes: &[u8]) -> Result<String, Fault> {
        let mut id = Value::Null;
        let mut offset = 0;
        loop {
            let end = (offset + PIECE).min(bytes.len());
            let is_last = end == bytes.len();
            let mut request = json!({
                "chunk_offset": offset, "eof": is_last, "blob": STANDARD.encode(&bytes[offset..end]),
            });
            if id.is_null() {
                request["total_size"] = bytes.len().into();
                request["sha256"] = digest(bytes).into();
                request["name_hint"] = name.into();
            } else {
                request["upload_id"] = id;
            }
            let answer = self.ask(RequestEvent::PutBlob, computer, object(request)).await?;
            if is_last {
                let path = answer["landing_path"].as_str().map(str::to_owned);
                return path.ok_or_else(|| unclear(computer, "it does not say where it is"));
            }
            id = answer["upload_id"].clone();
            offset = end;
        }
    }

    /// Replaces the handles in a result by their data. A handle whose data cannot be fetched stays.
    pub(super) async fn restore(&self, computer: &str, result: &mut Value) {
        let Some(items) = result.get_mut("content").and_then(Value::as_array_mut) else { return };
        let mut index = 0;
        while index < items.len() {
            let handle = items[index].pointer("/_meta/a2c_blob_handle").and_then(Value::as_str);
            if let Some(handle) = handle.map(str::to_owned) {
                match self.fetch(computer, &handle).await {
                    Ok(bytes) => {
                        put_back(&mut items[index], bytes);
                        if join(items, index) {
                            continue;
                        }
                    }
                    Err(fault) => tracing::warn!(%fault, "fetching blob of result failed"),
                }
            }
            index += 1;
        }
    }
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

fn unclear(computer: &str, cause: &'static str) -> Fault {
    Fault::new(Kind::PeerFailed, Operation::ReadBlob)
        .with(Fact::Computer, computer.to_owned())
        .with_cause(cause)
        .via("computer", computer)
}

/// Puts fetched bytes into an item: `text/plain` as text, everything else as Base64.
fn put_back(item: &mut Value, bytes: Vec<u8>) {
    if let Some(meta) = item.get_mut("_meta").and_then(Value::as_object_mut) {
        meta.retain(|key, _| !key.starts_with("a2c_"));
        if meta.is_empty()
            && let Some(item) = item.as_object_mut()
        {
            item.remove("_meta");
        }
    }
    let Some(resource) = item.get_mut("resource").and_then(Value::as_object_mut) else {
        item["data"] = STANDARD.encode(bytes).into();
        return;
    };
    let is_text = resource.get("mimeType").is_some_and(|it| it == "text/plain");
    match String::from_utf8(bytes) {
        Ok(text) if is_text => {
            resource.remove("blob");
            resource.insert("text".into(), text.into());
        }
        Ok(text) => drop(resource.insert("blob".into(), STANDARD.encode(text).into())),
        Err(error) => {
            drop(resource.insert("blob".into(), STANDARD.encode(error.into_bytes()).into()));
        }
    }
}

/// Merges a fetched text with the item before it, which holds its beginning. Returns whether it did.
fn join(items: &mut Vec<Value>, index: usize) -> bool {
    let is_ours = items[index].pointer("/resource/uri").and_then(Value::as_str);
    let is_ours = is_ours.is_some_and(|uri| uri.starts_with("blob:"));
    let Some(before) = index.checked_sub(1).filter(|_| is_ours) else { return false };
    let Some(Value::String(text)) = items[index].pointer("/resource/text").cloned() else {
        return false;
    };
    if items[before]["type"] != "text" {
        return false;
    }
    items[before]["text"] = text.into();
    items.remove(index);
    true
}

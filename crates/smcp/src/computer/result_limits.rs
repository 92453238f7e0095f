//! Makes a result fit into an answer: large parts are stored as blobs, and a handle replaces them.

use std::sync::Arc;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use budao_core::world::World;
use serde_json::{Value, json};

use super::blob::{Blob, Blobs};

/// Bytes of a stored text that stay in the answer.
const HEAD_BYTES: usize = 2 * 1024;

/// Stores bytes with a MIME type; returns `None` if they can never fit.
type StoreBlobFn<'a> = dyn Fn(&str, Vec<u8>) -> Option<Arc<Blob>> + 'a;

/// The size limits of a result.
#[derive(Clone, Copy, Debug)]
pub(super) struct ResultLimits {
    /// Bytes of one image, audio or file that stays inside the result.
    pub(super) inline: usize,
    /// Bytes of the whole result.
    pub(super) result: usize,
}

/// Makes a result fit into its limit.
///
/// # Errors
/// The size in bytes, if the result cannot be made to fit.
pub(super) fn fit(
    mut result: Value,
    room: ResultLimits,
    blobs: &Blobs,
    world: &World,
) -> Result<Value, usize> {
    let keep = |mime: &str, bytes: Vec<u8>| blobs.keep(mime, bytes, world);
    if let Some(items) = result.get_mut("content").and_then(Value::as_array_mut) {
        items.iter_mut().for_each(|item| set_aside(item, room.inline, &keep));
    }
    let size = |result: &Value| result.to_string().len();
    let mut bytes = size(&result);
    while bytes > room.result {
        let before = bytes;
        shorten(&mut result, &keep);
        bytes = size(&result);
        if bytes >= before {
            return Err(bytes);
        }
    }
    Ok(result)
}

/// Stores the data of an item as a blob if it is larger than `most` bytes.
fn set_aside(item: &mut Value, most: usize, keep: &StoreBlobFn<'_>) {
    let pointer = if item.get("data").is_some() { "/data" } else { "/resource/blob" };
    let Some(data) = item.pointer(pointer).and_then(Value::as_str) else { return };
    // Base64 has four characters for three bytes.
    if data.len() / 4 * 3 <= most {
        return;
    }
    let Ok(bytes) = STANDARD.decode(data) else { return };
    let mime = item.get("mimeType").or_else(|| item.pointer("/resource/mimeType"));
    let mime = mime.and_then(Value::as_str).unwrap_or("application/octet-stream").to_owned();
    let Some(blob) = keep(&mime, bytes) else { return };
    if let Some(data) = item.pointer_mut(pointer) {
        *data = "".into();
    }
    mark(item, &blob);
}

/// Adds the blob's handle, size and digest to an item.
fn mark(item: &mut Value, blob: &Blob) {
    if !item["_meta"].is_object() {
        item["_meta"] = json!({});
    }
    item["_meta"]["a2c_blob_handle"] = blob.handle.clone().into();
    item["_meta"]["a2c_total_size"] = blob.bytes.len().into();
    item["_meta"]["a2c_sha256"] = blob.sha256.clone().into();
}

/// Stores the longest text, or the structured content if that is longer, as a blob.
fn shorten(result: &mut Value, keep: &StoreBlobFn<'_>) {
    let structured = result.get("structuredContent").map(ToString::to_string).unwrap_or_default();
    let Some(items) = result.get_mut("content").and_then(Value::as_array_mut) else { return };
    let length = |item: &Value| item.get("text").and_then(Value::as_str).map_or(0, str::len);
    let longest = (0..items.len()).max_by_key(|index| length(&items[*index]));
    let longest = longest.filter(|index| length(&items[*index]) > structured.len());
    if let Some(index) = longest {
        let text = items[index]["text"].as_str().unwrap_or_default().to_owned();
        if text.len() > 2 * HEAD_BYTES
            && let Some(blob) = keep("text/plain", text.clone().into_bytes())
        {
            items[index]["text"] = head(&text).into();
            items.insert(index + 1, attached("text/plain", &blob));
        }
        return;
    }
    if let Some(blob) = keep("application/json", structured.into_bytes()) {
        items.push(attached("application/json", &blob));
        if let Some(map) = result.as_object_mut() {
            map.remove("structuredContent");
        }
    }
}

/// A resource item that stands for a stored blob.
fn attached(mime: &str, blob: &Blob) -> Value {
    let resource = json!({ "uri": format!("blob:{}", blob.handle), "mimeType": mime, "blob": "" });
    let mut item = json!({ "type": "resource", "resource": resource });
    mark(&mut item, blob);
    item
}

fn head(text: &str) -> String {
    let end = (0..=HEAD_BYTES).rev().find(|end| text.is_char_boundary(*end)).unwrap_or_default();
    let bytes = text.len();
    format!(
        "{}\n[… {bytes} bytes in all; the whole text is in the resource that follows]",
        &text[..end]
    )
}

#[cfg(test)]
mod tests {
    use super::{super::blob::BlobBounds, *};

    const ROOM: ResultLimits = ResultLimits { inline: 30, result: 10_000 };

    fn fit_to_limits(result: Value, room: ResultLimits) -> (Result<Value, usize>, Blobs) {
        let blobs = Blobs::new(BlobBounds { bytes: 1 << 20, ..BlobBounds::default() });
        (fit(result, room, &blobs, &budao_testkit::world::seeded(1)), blobs)
    }

    #[test]
    fn a_picture_that_is_large_goes_aside_and_a_small_one_stays() {
        let image = |bytes: usize| json!({ "type": "image", "data": STANDARD.encode(vec![7; bytes]), "mimeType": "image/png" });
        let resource = json!({ "type": "resource", "resource": { "uri": "x:y", "blob": STANDARD.encode([1; 60]) } });
        let result = json!({ "content": [image(30), image(60), resource], "isError": false });
        let limited = fit_to_limits(result.clone(), ROOM).0.unwrap();
        assert_eq!(limited["content"][0], result["content"][0]);
        assert_eq!(limited["content"][1]["data"], "");
        assert_eq!(limited["content"][1]["_meta"]["a2c_total_size"], 60);
        assert_eq!(limited["content"][2]["resource"]["blob"], "");
        assert!(limited["content"][2]["_meta"]["a2c_blob_handle"].is_string());
    }

    #[test]
    fn a_long_text_is_shown_by_its_beginning_and_stored_completely() {
        let long = "文".repeat(20_000);
        let result = json!({ "content": [{ "type": "text", "text": long }, { "type": "text", "text": "short" }] });
        let (limited, _blobs) = fit_to_limits(result, ROOM);
        let limited = limited.unwrap();
        assert!(limited.to_string().len() <= ROOM.result);
        assert!(limited["content"][0]["text"].as_str().unwrap().contains("60000 bytes in all"));
        assert_eq!(limited["content"][1]["_meta"]["a2c_total_size"], 60_000);
        assert_eq!(limited["content"][2]["text"], "short");
    }

    #[test]
    fn structure_that_is_large_goes_aside_too() {
        let result = json!({ "content": [], "structuredContent": { "rows": vec![1; 9000] } });
        let limited = fit_to_limits(result, ROOM).0.unwrap();
        assert_eq!(limited.get("structuredContent"), None);
        assert_eq!(limited["content"][0]["resource"]["mimeType"], "application/json");
    }

    #[test]
    fn a_result_that_cannot_be_cut_to_the_limit_is_refused_with_its_size() {
        let many = vec![json!({ "type": "text", "text": "x".repeat(100) }); 200];
        let bytes = fit_to_limits(json!({ "content": many }), ROOM).0.unwrap_err();
        assert!(bytes > ROOM.result);
    }
}

//! Shortens long outputs: the model gets head and tail, and the whole is stored as a blob.

use std::io;

use budao_core::{
    fault::{Detail, Fact, text},
    nesting,
    tool::{Output, Truncation},
};
use bytes::Bytes;
use serde_json::Value;

use crate::{contract::CallContext, parse::floor};

/// Share of the head in a shortened output; the tail gets the rest, because it shows how the output ended.
const HEAD_PERCENT: usize = 60;

/// Texts are not cut below this size, in bytes.
const TEXT_BYTES_MIN: usize = 256;

/// The output for the model: unchanged if it is within `limit` bytes of JSON, otherwise head and tail.
pub(crate) async fn capped(mut output: Output, limit: usize, context: &CallContext) -> Output {
    let levels = context.limits.json_depth;
    if nesting::flatten(&mut output.data, levels) {
        let with = Detail::new().with(Fact::Limit, levels);
        let remark = text::line("advice-output-deep", &with, context.lang);
        output.note = joined(output.note, &remark);
    }
    let total = json_bytes(&output.data, usize::MAX);
    if total <= limit {
        return output;
    }
    let Output { data, note, .. } = output;
    let kept = keep(&data, total, context).await;
    let shortened_data = shortened(data, limit);
    let cut = Truncation { total_bytes: total as u64, kept };
    let with = Detail::new().with(Fact::TotalSize, total).with(Fact::Limit, limit);
    let remark = match &cut.kept {
        Some(name) => {
            text::line("advice-output-cut-kept", &with.with(Fact::Blob, name.clone()), context.lang)
        }
        None => text::line("advice-output-cut", &with, context.lang),
    };
    Output { data: shortened_data, note: joined(note, &remark), cut: Some(cut) }
}

/// Appends a remark to a note.
pub(crate) fn joined(note: Option<String>, more: &str) -> Option<String> {
    Some(match note {
        Some(note) if !note.is_empty() => format!("{note}\n{more}"),
        _ => more.to_owned(),
    })
}

/// Stores the whole output as a blob: a string verbatim, other values as JSON. `None` if it is too large or storing
/// fails.
async fn keep(data: &Value, total: usize, context: &CallContext) -> Option<String> {
    if total > context.limits.output_bytes_kept {
        return None;
    }
    let bytes = match data {
        Value::String(text) => Bytes::copy_from_slice(text.as_bytes()),
        other => Bytes::from(serde_json::to_vec(other).ok()?),
    };
    match context.blobs.put(bytes).await {
        Ok(name) => Some(name),
        Err(fault) => {
            tracing::warn!(call = %context.call, %fault, "storing long output failed");
            None
        }
    }
}

fn shortened(mut data: Value, limit: usize) -> Value {
    if let Value::String(text) = data {
        return Value::String(head_and_tail(&text, limit.saturating_sub(2)));
    }
    // Cut the longest texts first, so that the structure stays readable.
    for _ in 0..8 {
        let size = json_bytes(&data, usize::MAX);
        if size <= limit {
            return data;
        }
        let longest = longest_text(&data);
        let target = longest.saturating_sub(size - limit).saturating_sub(longest / 16);
        if longest <= TEXT_BYTES_MIN || target < TEXT_BYTES_MIN {
            break;
        }
        cut_texts(&mut data, target);
    }
    if json_bytes(&data, usize::MAX) <= limit {
        return data;
    }
    Value::String(head_and_tail(&data.to_string(), limit.saturating_sub(2)))
}

fn longest_text(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(longest_text).max().unwrap_or(0),
        Value::Object(map) => map.values().map(longest_text).max().unwrap_or(0),
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    }
}

fn cut_texts(value: &mut Value, limit: usize) {
    match value {
        Value::String(text) if text.len() > limit => *text = head_and_tail(text, limit),
        Value::Array(items) => items.iter_mut().for_each(|item| cut_texts(item, limit)),
        Value::Object(map) => map.values_mut().for_each(|value| cut_texts(value, limit)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The start and end of a text with a remark on the omitted part, within `limit` bytes of JSON.
fn head_and_tail(text: &str, limit: usize) -> String {
    let mut room = limit;
    loop {
        let cut = cut_at(text, room);
        let size = json_bytes(&Value::String(cut.clone()), usize::MAX).saturating_sub(2);
        if size <= limit || room == 0 {
            return cut;
        }
        // Escapes make the JSON longer than the text.
        room = (room * limit / size).min(room.saturating_sub(1));
    }
}

fn cut_at(text: &str, room: usize) -> String {
    if text.len() <= room {
        return text.to_owned();
    }
    let marker = format!("\n[… {} bytes left out …]\n", text.len().saturating_sub(room));
    let room = room.saturating_sub(marker.len());
    let head = floor(text, room * HEAD_PERCENT / 100);
    let mut tail = text.len() - (room - head).min(text.len());
    while !text.is_char_boundary(tail) {
        tail += 1;
    }
    let marker = format!("\n[… {} bytes left out …]\n", tail - head);
    format!("{}{marker}{}", &text[..head], &text[tail..])
}

/// Size of a value as JSON, in bytes; counting stops above `enough`.
fn json_bytes(value: &Value, enough: usize) -> usize {
    struct ByteCounter {
        bytes: usize,
        enough: usize,
    }
    impl io::Write for ByteCounter {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.bytes += bytes.len();
            if self.bytes > self.enough {
                Err(io::ErrorKind::Other.into())
            } else {
                Ok(bytes.len())
            }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut count = ByteCounter { bytes: 0, enough };
    // The writer's own error stops the serialization.
    drop(serde_json::to_writer(&mut count, value));
    count.bytes
}

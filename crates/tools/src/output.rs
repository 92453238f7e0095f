//! Shortens long outputs: the model gets head and tail, and the whole is stored as a blob.
//!
//! [`bound`] runs where the tool's data enters, on the thread of the call. It takes time for the bounds, however large
//! the data is; only freeing the data takes longer. [`finish`] then stores the whole and writes the remarks.

use std::io;

use budao_core::{
    fault::{Detail, Fact, text},
    limits::Limits,
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

/// What [`bound`] took from an output, and what [`finish`] has to store.
#[derive(Debug, Default)]
pub(crate) struct Excess {
    is_flattened: bool,
    cut: Option<CutText>,
}

#[derive(Debug)]
struct CutText {
    /// Size of the whole as JSON, in bytes; a lower bound for data larger than what is kept.
    total: usize,
    /// The whole; `None` if it is larger than what is kept.
    whole: Option<Bytes>,
}

/// Shortens data to `limit` bytes of JSON and to the depth that records may have. The data must be safe to walk:
/// [`nesting::bound`].
pub(crate) fn bound(data: &mut Value, limit: usize, limits: &Limits) -> Excess {
    let kept = limits.output_bytes_kept.max(limit);
    let mut removed = cut_long_texts(data, kept, limit);
    let mut measured = measure(data, kept);
    if measured.is_none() {
        removed += cut_long_texts(data, limit, limit);
        measured = measure(data, kept);
    }
    let is_flattened = measured.is_some() && nesting::flatten(data, limits.json_depth);
    if is_flattened {
        measured = measure(data, kept);
    }
    let Some(size) = measured else {
        *data = Value::String(head_only(data, limit, kept));
        return Excess {
            is_flattened,
            cut: Some(CutText { total: kept.max(removed), whole: None }),
        };
    };
    let total = size + removed;
    if total <= limit {
        return Excess { is_flattened, cut: None };
    }
    let keeps = removed == 0 && total <= limits.output_bytes_kept;
    let whole = keeps.then(|| bytes_of(data)).flatten();
    *data = shortened(data.take(), limit);
    Excess { is_flattened, cut: Some(CutText { total, whole }) }
}

/// Stores what was cut off and adds the remarks about it.
pub(crate) async fn finish(
    mut output: Output,
    excess: Excess,
    limit: usize,
    context: &CallContext,
) -> Output {
    if excess.is_flattened {
        let with = Detail::new().with(Fact::Limit, context.limits.json_depth);
        let remark = text::line("advice-output-deep", &with, context.lang);
        output.note = joined(output.note, &remark);
    }
    let Some(CutText { total, whole }) = excess.cut else { return output };
    let kept = match whole {
        Some(whole) => keep(whole, context).await,
        None => None,
    };
    let with = Detail::new().with(Fact::TotalSize, total).with(Fact::Limit, limit);
    let remark = match &kept {
        Some(name) => {
            text::line("advice-output-cut-kept", &with.with(Fact::Blob, name.clone()), context.lang)
        }
        None => text::line("advice-output-cut", &with, context.lang),
    };
    output.note = joined(output.note, &remark);
    output.cut = Some(Truncation { total_bytes: total as u64, kept });
    output
}

/// Appends a remark to a note.
pub(crate) fn joined(note: Option<String>, more: &str) -> Option<String> {
    Some(match note {
        Some(note) if !note.is_empty() => format!("{note}\n{more}"),
        _ => more.to_owned(),
    })
}

/// Stores the whole output as a blob; `None` if that fails.
async fn keep(whole: Bytes, context: &CallContext) -> Option<String> {
    match context.blobs.put(whole).await {
        Ok(name) => Some(name),
        Err(fault) => {
            tracing::warn!(call = %context.call, %fault, "storing long output failed");
            None
        }
    }
}

/// The bytes to store: a string verbatim, other values as JSON.
fn bytes_of(data: &Value) -> Option<Bytes> {
    Some(match data {
        Value::String(text) => Bytes::copy_from_slice(text.as_bytes()),
        other => Bytes::from(serde_json::to_vec(other).ok()?),
    })
}

/// Cuts every text above `over` bytes to `limit` bytes and returns the bytes removed. Looks at as many values as fit
/// into `over` bytes.
fn cut_long_texts(data: &mut Value, over: usize, limit: usize) -> usize {
    fn walk(value: &mut Value, over: usize, limit: usize, left: &mut usize) -> usize {
        let Some(less) = left.checked_sub(1) else { return 0 };
        *left = less;
        match value {
            Value::String(text) if text.len() > over => {
                let length = text.len();
                *text = head_and_tail(text, limit.saturating_sub(2));
                length.saturating_sub(text.len())
            }
            Value::Array(items) => items.iter_mut().map(|item| walk(item, over, limit, left)).sum(),
            Value::Object(map) => map.values_mut().map(|item| walk(item, over, limit, left)).sum(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
        }
    }
    let mut left = over.max(1);
    walk(data, over, limit, &mut left)
}

/// The beginning of a value's JSON and a remark that the rest is left out, within `limit` bytes of JSON.
fn head_only(data: &Value, limit: usize, kept: usize) -> String {
    let json = json_prefix(data, limit);
    let marker = format!("\n[… of more than {kept} bytes, the rest is left out …]");
    let mut room = limit.saturating_sub(marker.len() + 2);
    loop {
        let head = &json[..floor(&json, room)];
        let size = json_bytes(&Value::String(head.to_owned())) + marker.len() + 2;
        if size <= limit || room == 0 {
            return format!("{head}{marker}");
        }
        room = (room * limit / size).min(room - 1);
    }
}

/// The first `limit` bytes of a value's JSON.
pub(crate) fn json_prefix(value: &Value, limit: usize) -> String {
    let mut buffer = Vec::new();
    // The writer's own error ends the serialization.
    drop(serde_json::to_writer(JsonLimit { room: limit, kept: Some(&mut buffer) }, value));
    let mut text = String::from_utf8_lossy(&buffer).into_owned();
    text.truncate(text.trim_end_matches('\u{fffd}').len());
    text
}

/// Size of a value as JSON, in bytes; `None` above `most`.
fn measure(value: &Value, most: usize) -> Option<usize> {
    let mut writer = JsonLimit { room: most, kept: None };
    let written = serde_json::to_writer(&mut writer, value);
    written.is_ok().then(|| most - writer.room)
}

/// A writer that takes `room` bytes and fails beyond them.
struct JsonLimit<'a> {
    room: usize,
    kept: Option<&'a mut Vec<u8>>,
}

impl io::Write for JsonLimit<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(self.room);
        if let Some(kept) = &mut self.kept {
            kept.extend_from_slice(&bytes[..taken]);
        }
        self.room -= taken;
        if taken < bytes.len() { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(taken) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn shortened(mut data: Value, limit: usize) -> Value {
    if let Value::String(text) = data {
        return Value::String(head_and_tail(&text, limit.saturating_sub(2)));
    }
    // Cut the longest texts first, so that the structure stays readable.
    for _ in 0..8 {
        let size = json_bytes(&data);
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
    if json_bytes(&data) <= limit {
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
        let size = json_bytes(&Value::String(cut.clone())).saturating_sub(2);
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

/// Size of a value as JSON, in bytes.
fn json_bytes(value: &Value) -> usize {
    measure(value, usize::MAX).unwrap_or(usize::MAX)
}

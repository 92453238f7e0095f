//! `fs_read`: reads a text file or a range of its lines.
//!
//! A file of moderate size is read whole, decoded and hashed, so that a later write can detect changes. A larger file
//! is streamed; only the requested lines are kept in memory.

use std::io::{BufRead, BufReader, Read};

use budao_core::{
    fault::{Fact, Fault, Kind, Operation},
    tool::{Effect, Failure},
};
use cap_std::fs::File;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{
    budget,
    define::{Builtin, blocking, cancelled, failure},
    documents,
    encoding::{DecodedText, NotText},
    io_errors::{from_io, invalid},
    workspace::Workspace,
};
use crate::contract::{CallContext, Note, ToolResult, content_hash};

const OPERATION: Operation = Operation::ReadFile;
/// How far into a large file the tool reads, in bytes.
const SCAN_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// The `fs_read` tool.
#[derive(Debug)]
pub(super) struct FsRead(pub(super) Workspace);

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    /// Path of the file, relative to the workspace.
    path: String,
    /// First line to return, counted from 1. Default: 1.
    #[schemars(range(min = 1))]
    offset: Option<u64>,
    /// How many lines to return. Default: as many as fit.
    #[schemars(range(min = 1))]
    limit: Option<u64>,
}

impl Builtin for FsRead {
    const NAME: &'static str = "fs_read";
    const ABOUT: &'static str = "Reads a text file of the workspace. Use `offset` and `limit` for a part \
        of it. The answer says how many lines the file has (`totalLines`) and, if not all of what was \
        asked for fits, where to go on (`nextOffset`).";
    const EFFECT: Effect = Effect::Reads;
    const IDEMPOTENT: bool = true;
    const OPERATION: Operation = OPERATION;

    type Args = Args;

    async fn run(&self, args: Args, context: &CallContext) -> ToolResult {
        let (workspace, inner) = (self.0.clone(), context.clone());
        let read =
            blocking(context, OPERATION, move |cancel| read(&workspace, &args, &inner, cancel));
        let (answer, seen) = read.await?;
        if let Some(seen) = seen {
            context.notes.record(seen).await;
        }
        Ok(answer)
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ReadOutput<'a> {
    path: &'a str,
    offset: u64,
    limit: u64,
    truncated: bool,
    total_lines: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_offset: Option<u64>,
    /// The number of a last line that is shown only in part.
    #[serde(skip_serializing_if = "Option::is_none")]
    line_cut: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    encoding: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line_endings: Option<&'static str>,
    content: &'a str,
}

fn read(
    workspace: &Workspace,
    args: &Args,
    context: &CallContext,
    cancel: &CancellationToken,
) -> Result<(Value, Option<Note>), Failure> {
    let (path, limits) = (args.path.as_str(), &*context.limits);
    let mut file = workspace.open_file(path, OPERATION).map_err(failure)?;
    let whole_max = limits.output_bytes_kept;
    let mut bytes = Vec::new();
    let to_fault = |error| failure(from_io(&error, path, OPERATION));
    Read::by_ref(&mut file).take(whole_max as u64 + 1).read_to_end(&mut bytes).map_err(to_fault)?;
    let mut page = LineWindow::new(args, budget::text_room(limits));
    if bytes.len() > whole_max {
        drop(bytes);
        let file = workspace.open_file(path, OPERATION).map_err(failure)?;
        let total = stream(file, &mut page, path, cancel)?;
        return Ok((page.answer(path, total, None)?, None));
    }
    let text = DecodedText::decode(&bytes).map_err(|no| not_text(path, no, bytes.len() as u64))?;
    let key = workspace.key(path, OPERATION).map_err(failure)?;
    let (text, bytes) = documents::as_shown(workspace, &key, context, text, bytes);
    let mut total = 0;
    for line in text.text.split_inclusive('\n') {
        total += 1;
        page.add(line);
    }
    let seen = Note::FileSeen { path: key, digest: Some(content_hash(&bytes)) };
    Ok((page.answer(path, Some(total), Some(&text))?, Some(seen)))
}

/// Streams a file line by line. Returns the number of lines if the end was reached.
fn stream(
    file: File,
    page: &mut LineWindow,
    path: &str,
    cancel: &CancellationToken,
) -> Result<Option<u64>, Failure> {
    let size = file.metadata().map_or(0, |metadata| metadata.len());
    let mut reader = BufReader::with_capacity(256 * 1024, file.take(SCAN_BYTES_MAX));
    let (mut lines, mut scanned, mut in_line) = (0_u64, 0_u64, false);
    // The current line, cut to what could be shown.
    let mut line: Vec<u8> = Vec::new();
    loop {
        if cancel.is_cancelled() {
            return Err(cancelled(OPERATION));
        }
        let chunk = reader.fill_buf().map_err(|error| failure(from_io(&error, path, OPERATION)))?;
        if chunk.is_empty() {
            break;
        }
        if let Some(position) = chunk.iter().position(|byte| *byte == 0) {
            return Err(not_text(path, NotText { position: scanned as usize + position }, size));
        }
        let used = chunk.len();
        for piece in chunk.split_inclusive(|byte| *byte == b'\n') {
            let room = page.room.saturating_add(1).saturating_sub(line.len());
            line.extend_from_slice(&piece[..piece.len().min(room)]);
            in_line = true;
            if piece.ends_with(b"\n") {
                page.add(&String::from_utf8_lossy(&line));
                line.clear();
                lines += 1;
                in_line = false;
            }
        }
        scanned += used as u64;
        reader.consume(used);
    }
    if scanned >= SCAN_BYTES_MAX {
        return Ok(None);
    }
    if in_line {
        page.add(&String::from_utf8_lossy(&line));
        lines += 1;
    }
    Ok(Some(lines))
}

fn not_text(path: &str, no: NotText, size: u64) -> Failure {
    let fault = Fault::new(Kind::FileNotText, OPERATION)
        .with(Fact::Path, path.to_owned())
        .with(Fact::Position, no.position);
    Failure { fault, data: Some(json!({ "path": path, "bytes": size })), note: None }
}

/// The requested lines, as far as they fit into the budget.
struct LineWindow {
    offset: u64,
    limit: Option<u64>,
    room: usize,
    line: u64,
    shown: u64,
    content: String,
    used: usize,
    full: bool,
    line_cut: Option<u64>,
}

impl LineWindow {
    fn new(args: &Args, room: usize) -> Self {
        Self {
            offset: args.offset.unwrap_or(1),
            limit: args.limit,
            room,
            line: 0,
            shown: 0,
            content: String::new(),
            used: 0,
            full: false,
            line_cut: None,
        }
    }

    fn add(&mut self, line: &str) {
        self.line += 1;
        let wanted = self.line >= self.offset && self.limit.is_none_or(|limit| self.shown < limit);
        if !wanted || self.full {
            return;
        }
        let bytes = budget::json_bytes(line);
        if self.used + bytes <= self.room {
            self.content.push_str(line);
            self.used += bytes;
            self.shown += 1;
            return;
        }
        self.full = true;
        // A first line above the budget is shown in part; otherwise it could never be read.
        if bytes > self.room && self.shown == 0 {
            self.content.push_str(budget::head(line, self.room));
            self.shown = 1;
            self.line_cut = Some(self.line);
        }
    }

    fn answer(
        &self,
        path: &str,
        total: Option<u64>,
        text: Option<&DecodedText>,
    ) -> Result<Value, Failure> {
        let past_the_end = total.is_some_and(|total| self.offset > total.max(1));
        if past_the_end {
            let lines = total.unwrap_or(0);
            return Err(failure(invalid(
                OPERATION,
                "/offset",
                "maximum",
                format!("must be at most {lines}, the number of lines of the file"),
                Some(self.offset.to_string()),
            )));
        }
        let end = self.offset + self.shown;
        let truncated = total.is_none_or(|total| end <= total) || self.line_cut.is_some();
        let form = text.map(|text| text.form);
        let answer = ReadOutput {
            path,
            offset: self.offset,
            limit: self.shown,
            truncated,
            total_lines: total,
            next_offset: truncated
                .then_some(end)
                .filter(|end| total.is_none_or(|total| *end <= total)),
            line_cut: self.line_cut,
            encoding: form.and_then(super::encoding::TextFormat::name),
            line_endings: form.is_some_and(|form| form.crlf).then_some("crlf"),
            content: &self.content,
        };
        serde_json::to_value(answer)
            .map_err(|error| failure(Fault::new(Kind::Bug, OPERATION).caused_by(&error)))
    }
}

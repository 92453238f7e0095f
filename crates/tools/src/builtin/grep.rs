//! `fs_grep`: finds lines that match a text or a regular expression.
//!
//! The search engine is ripgrep's and runs in linear time. A pattern that needs too much memory is refused. Files are
//! not memory-mapped, because a mapped file that shrinks during the search would crash the process.

use std::{
    io::{self, Read},
    path::{Path, PathBuf},
};

use budao_core::{
    fault::{Fault, Kind, Operation},
    tool::{Effect, Failure},
};
use cap_std::fs::File;
use grep_matcher::Matcher;
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder, sinks::Lossy};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{
    budget,
    define::{Builtin, blocking, cancelled, failure},
    glob::start,
    io_errors::invalid,
    walk::{Walk, WalkEntry},
    workspace::{Workspace, reading},
};
use crate::contract::{CallContext, ToolResult};

const OPERATION: Operation = Operation::SearchFiles;
/// Maximum size of a compiled pattern, in bytes.
const PATTERN_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Maximum length of a searched line, in bytes.
const LINE_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Maximum size of a shown line, in JSON bytes.
const PREVIEW_ROOM: usize = 300;

/// The `fs_grep` tool.
#[derive(Debug)]
pub(super) struct FsGrep(pub(super) Workspace);

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    /// What to look for.
    #[schemars(length(min = 1, max = 4096))]
    pattern: String,
    /// File or directory to search, relative to the workspace; `.` for all of it.
    path: String,
    /// Take the pattern as a regular expression. Default: false, it is taken literally.
    #[serde(default)]
    regex: bool,
    /// Default: true.
    #[serde(default = "yes")]
    case_sensitive: bool,
    /// The most matching lines to return. Default: 200.
    #[schemars(range(min = 1, max = 2000))]
    max_results: Option<usize>,
}

fn yes() -> bool {
    true
}

impl Builtin for FsGrep {
    const NAME: &'static str = "fs_grep";
    const ABOUT: &'static str = "Searches text files of the workspace for a text or, with `regex`, a regular \
        expression, line by line. Binary files are skipped, and so is what `.gitignore` leaves out.";
    const EFFECT: Effect = Effect::Reads;
    const IDEMPOTENT: bool = true;
    const OPERATION: Operation = OPERATION;

    type Args = Args;

    async fn run(&self, args: Args, context: &CallContext) -> ToolResult {
        let workspace = self.0.clone();
        let room = budget::text_room(&context.limits);
        blocking(context, OPERATION, move |cancel| grep(&workspace, &args, room, cancel)).await
    }
}

#[derive(Debug, Serialize)]
struct GrepMatch {
    path: String,
    line: u64,
    column: usize,
    preview: String,
}

fn grep(
    workspace: &Workspace,
    args: &Args,
    room: usize,
    cancel: &CancellationToken,
) -> Result<Value, Failure> {
    let mut search = Search {
        matcher: compile(args)?,
        searcher: searcher(),
        found: Vec::new(),
        limit: args.max_results.unwrap_or(200),
        room,
        truncated: false,
        binary: 0,
        cancel,
    };
    match workspace.open_file(&args.path, OPERATION) {
        Ok(file) => {
            let key = workspace.key(&args.path, OPERATION).map_err(failure)?;
            search.file(Path::new(&key), file)?;
        }
        Err(fault) if fault.kind() == Kind::NotAFile => {
            let from = start(workspace, &args.path, OPERATION)?;
            search.tree(workspace, &from, &args.path)?;
        }
        Err(fault) => return Err(failure(fault)),
    }
    let mut answer = json!({
        "ok": true,
        "pattern": args.pattern,
        "path": args.path,
        "matches": search.found,
        "truncated": search.truncated,
    });
    if search.binary > 0 {
        answer["binary_files_skipped"] = search.binary.into();
    }
    Ok(answer)
}

struct Search<'a> {
    matcher: RegexMatcher,
    searcher: Searcher,
    found: Vec<GrepMatch>,
    limit: usize,
    room: usize,
    truncated: bool,
    binary: usize,
    cancel: &'a CancellationToken,
}

impl Search<'_> {
    fn tree(&mut self, workspace: &Workspace, from: &Path, path: &str) -> Result<(), Failure> {
        let mut walk = Walk::new(workspace.dir(), from)
            .map_err(|error| failure(workspace.explain(&error, path, OPERATION)))?;
        for entry in walk.by_ref() {
            let WalkEntry::File(path) = entry else { continue };
            // A file that cannot be opened or no longer exists is skipped.
            if let Ok(file) = workspace.dir().open_with(&path, &reading())
                && file.metadata().is_ok_and(|metadata| metadata.is_file())
            {
                self.file(&path, file)?;
            }
            if self.truncated {
                return Ok(());
            }
        }
        self.truncated |= walk.is_cut();
        Ok(())
    }

    fn file(&mut self, path: &Path, file: File) -> Result<(), Failure> {
        let Self { matcher, searcher, found, limit, room, truncated, cancel, .. } = self;
        let (matcher, path): (&RegexMatcher, PathBuf) = (matcher, path.to_path_buf());
        let sink = Lossy(|line, text| {
            let text = text.trim_end_matches(['\n', '\r']);
            let at = matcher.find(text.as_bytes()).ok().flatten().map_or(0, |found| found.start());
            let hit = GrepMatch {
                path: path.display().to_string(),
                line,
                column: text.get(..at).map_or(0, |before| before.chars().count()) + 1,
                preview: preview(text, at),
            };
            let bytes = budget::json_bytes(&hit.path) + budget::json_bytes(&hit.preview) + 60;
            if found.len() == *limit || bytes > *room {
                *truncated = true;
                return Ok(false);
            }
            *room -= bytes;
            found.push(hit);
            Ok(true)
        });
        let mut reader = SearchReader { file, cancel, binary: false, marked: None };
        let searched = searcher.search_reader(matcher, &mut reader, sink);
        if self.cancel.is_cancelled() {
            return Err(cancelled(OPERATION));
        }
        self.binary += usize::from(reader.binary);
        // If a line is too long or the file cannot be read to its end, the matches so far are kept.
        drop(searched);
        Ok(())
    }
}

/// The part of a line around its match that fits into the preview.
fn preview(text: &str, at: usize) -> String {
    let before = text.get(..at).map_or(0, str::len);
    if before <= PREVIEW_ROOM / 2 {
        return budget::head(text, PREVIEW_ROOM).to_owned();
    }
    let lead = budget::tail(&text[..before], PREVIEW_ROOM / 3);
    format!("…{lead}{}", budget::head(&text[before..], PREVIEW_ROOM * 2 / 3))
}

/// A reader that stops on cancellation and detects binary files.
struct SearchReader<'a> {
    file: File,
    cancel: &'a CancellationToken,
    binary: bool,
    /// True if the file starts with a UTF-16 byte order mark. Such a file contains zero bytes but is text; the
    /// searcher decodes it.
    marked: Option<bool>,
}

impl Read for SearchReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.cancel.is_cancelled() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let read = self.file.read(buffer)?;
        let bytes = &buffer[..read];
        let marked = *self
            .marked
            .get_or_insert(bytes.starts_with(b"\xff\xfe") || bytes.starts_with(b"\xfe\xff"));
        self.binary |= !marked && bytes.contains(&0);
        Ok(read)
    }
}

fn searcher() -> Searcher {
    SearcherBuilder::new()
        .line_number(true)
        .binary_detection(BinaryDetection::quit(0))
        .heap_limit(Some(LINE_BYTES_MAX))
        .build()
}

fn compile(args: &Args) -> Result<RegexMatcher, Failure> {
    let mut builder = RegexMatcherBuilder::new();
    builder
        .case_insensitive(!args.case_sensitive)
        .fixed_strings(!args.regex)
        .line_terminator(Some(b'\n'))
        .size_limit(PATTERN_BYTES_MAX)
        .dfa_size_limit(PATTERN_BYTES_MAX)
        .nest_limit(100);
    builder.build(&args.pattern).map_err(|error| failure(bad_pattern(&args.pattern, &error)))
}

/// The fault for an invalid pattern, with the reason and, if known, the position.
fn bad_pattern(pattern: &str, error: &grep_regex::Error) -> Fault {
    let (reason, at) = match regex_syntax::parse(pattern) {
        Err(regex_syntax::Error::Parse(error)) => (error.kind().to_string(), Some(*error.span())),
        Err(regex_syntax::Error::Translate(error)) => {
            (error.kind().to_string(), Some(*error.span()))
        }
        _ => (error.to_string(), None),
    };
    let expected = match at {
        Some(span) => {
            let character =
                pattern.get(..span.start.offset).map_or(0, |head| head.chars().count()) + 1;
            format!("must be a valid regular expression: {reason} (at character {character})")
        }
        None => format!("must be a usable pattern: {reason}"),
    };
    invalid(OPERATION, "/pattern", "format", expected, Some(pattern.to_owned()))
}

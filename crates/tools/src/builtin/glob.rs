//! `fs_glob`: finds paths that match a pattern.

use std::path::{Path, PathBuf};

use budao_core::{
    fault::Operation,
    tool::{Effect, Failure},
};
use globset::{GlobBuilder, GlobMatcher};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{
    budget,
    define::{Builtin, blocking, cancelled, failure},
    io_errors::{invalid, outside},
    walk::{Walk, WalkEntry},
    workspace::Workspace,
};
use crate::contract::{CallContext, ToolResult};

const OPERATION: Operation = Operation::ListFiles;

/// The `fs_glob` tool.
#[derive(Debug)]
pub(super) struct FsGlob(pub(super) Workspace);

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    /// What to look for, for example `**/*.rs` or `src/*`. `*` does not cross `/`, `**` does.
    #[schemars(length(min = 1, max = 4096))]
    pattern: String,
    /// Directory the pattern starts from, relative to the workspace. Default: the workspace.
    cwd: Option<String>,
    /// Also match names that begin with a dot. Default: false.
    #[serde(default)]
    dot: bool,
    /// The most paths to return. Default: 200.
    #[schemars(range(min = 1, max = 5000))]
    limit: Option<usize>,
}

impl Builtin for FsGlob {
    const NAME: &'static str = "fs_glob";
    const ABOUT: &'static str = "Lists paths of the workspace that match a pattern, in order. Directories \
        end in `/`. What `.gitignore` leaves out is left out.";
    const EFFECT: Effect = Effect::Reads;
    const IDEMPOTENT: bool = true;
    const OPERATION: Operation = OPERATION;

    type Args = Args;

    async fn run(&self, args: Args, context: &CallContext) -> ToolResult {
        let workspace = self.0.clone();
        let room = budget::text_room(&context.limits);
        blocking(context, OPERATION, move |cancel| glob(&workspace, &args, room, cancel)).await
    }
}

fn glob(
    workspace: &Workspace,
    args: &Args,
    room: usize,
    cancel: &CancellationToken,
) -> Result<Value, Failure> {
    let cwd = args.cwd.as_deref().unwrap_or(".");
    let start = start(workspace, cwd, OPERATION)?;
    let matcher = compile(workspace, &args.pattern)?;
    let limit = args.limit.unwrap_or(200);
    let walk = Walk::new(workspace.dir(), &start)
        .map_err(|error| failure(workspace.explain(&error, cwd, OPERATION)))?;
    let mut walk = walk.hidden(args.dot);
    let (mut matches, mut used, mut truncated) = (Vec::new(), 0, false);
    for entry in walk.by_ref() {
        if cancel.is_cancelled() {
            return Err(cancelled(OPERATION));
        }
        let (path, end) = match &entry {
            WalkEntry::Directory(path) => (path, "/"),
            WalkEntry::File(path) | WalkEntry::Other(path) => (path, ""),
        };
        if !matcher.is_match(path.strip_prefix(&start).unwrap_or(path)) {
            continue;
        }
        let shown = format!("{}{end}", path.display());
        used += budget::json_bytes(&shown) + 3;
        if matches.len() == limit || used > room {
            truncated = true;
            break;
        }
        matches.push(shown);
    }
    Ok(json!({
        "ok": true,
        "pattern": args.pattern,
        "cwd": cwd,
        "truncated": truncated || walk.is_cut(),
        "count": matches.len(),
        "matches": matches,
    }))
}

/// The path of a directory from the root, with links resolved; empty for the root itself.
pub(super) fn start(
    workspace: &Workspace,
    path: &str,
    operation: Operation,
) -> Result<PathBuf, Failure> {
    workspace.open_dir(path, operation).map_err(failure)?;
    let key = workspace.key(path, operation).map_err(failure)?;
    Ok(if key == "." { PathBuf::new() } else { key.into() })
}

fn compile(workspace: &Workspace, pattern: &str) -> Result<GlobMatcher, Failure> {
    let requested = Path::new(pattern);
    if requested.components().any(|part| part == std::path::Component::ParentDir) {
        return Err(failure(outside(pattern, OPERATION)));
    }
    let inside = workspace.relative(pattern, OPERATION).map_err(failure)?;
    let inside = inside.strip_prefix(".").unwrap_or(&inside).to_string_lossy().into_owned();
    GlobBuilder::new(&inside)
        .literal_separator(true)
        .build()
        .map(|glob| glob.compile_matcher())
        .map_err(|error| {
            let expected = format!("must be a valid pattern: {}", error.kind());
            failure(invalid(OPERATION, "/pattern", "format", expected, Some(pattern.to_owned())))
        })
}

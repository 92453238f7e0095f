//! `fs_write`: writes a whole file.

use budao_core::{
    fault::{Fact, Fault, Kind, Operation},
    tool::{Effect, Failure},
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    define::{Builtin, blocking, failure},
    diff, documents,
    encoding::{DecodedText, TextFormat, UnencodableChar},
    io_errors::invalid,
    store::{self, ExistingFile},
    workspace::Workspace,
};
use crate::contract::{CallContext, Note, Reconciliation, ToolResult, content_hash};

const OPERATION: Operation = Operation::WriteFile;

/// The `fs_write` tool.
#[derive(Debug)]
pub(super) struct FsWrite(pub(super) Workspace);

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    /// Path of the file, relative to the workspace. Missing directories are made.
    path: String,
    /// The whole new content.
    content: String,
}

impl Builtin for FsWrite {
    const NAME: &'static str = "fs_write";
    const ABOUT: &'static str = "Writes a file of the workspace as a whole: a new one, or one that was read \
        before and has not changed since. The old content is replaced at once or not at all. To change a \
        part of a file, use `fs_edit`.";
    const EFFECT: Effect = Effect::Writes;
    const IDEMPOTENT: bool = false;
    const OPERATION: Operation = OPERATION;

    type Args = Args;

    async fn run(&self, args: Args, context: &CallContext) -> ToolResult {
        let (workspace, inner) = (self.0.clone(), context.clone());
        let (answer, seen) =
            blocking(context, OPERATION, move |_| write(&workspace, &args, &inner)).await?;
        context.notes.record(seen).await;
        Ok(answer)
    }

    const RECONCILES: bool = true;

    async fn reconcile(
        &self,
        args: Args,
        context: &CallContext,
    ) -> Result<Reconciliation, Failure> {
        let (workspace, inner) = (self.0.clone(), context.clone());
        let (answer, seen) =
            blocking(context, OPERATION, move |_| compare(&workspace, &args, &inner)).await?;
        if let Some(seen) = seen {
            context.notes.record(seen).await;
        }
        Ok(answer)
    }
}

/// Compares the file with what an interrupted call would have left. A file in the state in which the session last saw
/// it, or that is missing as before, was not written. Any other state tells nothing.
fn compare(
    workspace: &Workspace,
    args: &Args,
    context: &CallContext,
) -> Result<(Reconciliation, Option<Note>), Failure> {
    let path = args.path.as_str();
    let _writing = workspace.lock_writing();
    let location = match workspace.locate(path, OPERATION) {
        Ok(location) => location,
        Err(fault) if fault.kind() == Kind::FileNotFound => {
            return Ok((Reconciliation::DidNotHappen, None));
        }
        Err(_) => return Ok((Reconciliation::CannotTell, None)),
    };
    let kept = context.limits.output_bytes_kept;
    let existing = store::load(&location, path, kept, OPERATION).map_err(failure)?;
    let Some(existing) = existing else {
        let was_missing = context.memory.seen_digest(&location.key).flatten().is_none();
        let answer =
            if was_missing { Reconciliation::DidNotHappen } else { Reconciliation::CannotTell };
        return Ok((answer, None));
    };
    let form =
        DecodedText::decode(&existing.bytes).map_or_else(|_| TextFormat::default(), |it| it.form);
    if form.encode(&args.content).is_ok_and(|bytes| bytes == existing.bytes) {
        let (bytes, lines) = (existing.bytes.len(), args.content.lines().count());
        let result = json!({"ok": true, "path": path, "bytes": bytes, "lines": lines});
        workspace.wrote(context.session, &location.key, &existing.digest);
        let digest = Some(existing.digest.clone());
        let seen = Note::FileSeen { path: location.key.clone(), digest };
        return Ok((Reconciliation::Happened(result), Some(seen)));
    }
    let answer = match workspace.knows(context, &location.key, &existing.digest) {
        Some(true) => Reconciliation::DidNotHappen,
        Some(false) | None => Reconciliation::CannotTell,
    };
    Ok((answer, None))
}

fn write(
    workspace: &Workspace,
    args: &Args,
    context: &CallContext,
) -> Result<(Value, Note), Failure> {
    let path = args.path.as_str();
    let _writing = workspace.lock_writing();
    let location = workspace.locate_or_create(path, OPERATION).map_err(failure)?;
    let kept = context.limits.output_bytes_kept;
    let existing = store::load(&location, path, kept, OPERATION).map_err(failure)?;
    let existing =
        existing.map(|it| documents::existing_as_shown(workspace, &location.key, context, it));
    let before = existing.as_ref().and_then(|existing| DecodedText::decode(&existing.bytes).ok());
    let form = before.as_ref().map_or_else(TextFormat::default, |text| text.form);
    let bytes = form
        .encode(&args.content)
        .map_err(|no| failure(unwritable(OPERATION, "/content", form, no)))?;
    if let Some(existing) = &existing
        && existing.bytes != bytes
    {
        check_known(workspace, context, &location.key, path, existing, OPERATION)
            .map_err(failure)?;
    }
    if !documents::write(workspace, &location.key, &bytes, form, context)? {
        store::stage(&location, &bytes, existing.as_ref(), context.world.entropy.bits())
            .and_then(store::commit)
            .map_err(|error| failure(store::write_fault(&error, path, bytes.len(), OPERATION)))?;
    }
    let digest = content_hash(&bytes);
    workspace.wrote(context.session, &location.key, &digest);
    let mut answer = json!({
        "ok": true,
        "path": path,
        "bytes": bytes.len(),
        "lines": args.content.lines().count(),
        "created": existing.is_none(),
    });
    if let Some(before) = &before
        && let Some(diff) = diff::unified(&location.key, &before.text, &form.unify(&args.content))
    {
        answer["diff"] = Value::from(diff);
    }
    Ok((answer, Note::FileSeen { path: location.key.clone(), digest: Some(digest) }))
}

/// Refuses to replace a file that the session has not seen in its current state.
fn check_known(
    workspace: &Workspace,
    context: &CallContext,
    key: &str,
    path: &str,
    existing: &ExistingFile,
    operation: Operation,
) -> Result<(), Fault> {
    let kind = match workspace.knows(context, key, &existing.digest) {
        Some(true) => return Ok(()),
        Some(false) => Kind::FileChanged,
        None => Kind::FileUnread,
    };
    Err(Fault::new(kind, operation).with(Fact::Path, path.to_owned()))
}

/// The fault for a text with a character that the file's format cannot encode.
pub(super) fn unwritable(
    operation: Operation,
    pointer: &str,
    form: TextFormat,
    no: UnencodableChar,
) -> Fault {
    let charset = form.name().unwrap_or("utf-8");
    let expected = format!("must be text the file's encoding ({charset}) can hold");
    invalid(operation, pointer, "encoding", expected, Some(no.0.to_string()))
}

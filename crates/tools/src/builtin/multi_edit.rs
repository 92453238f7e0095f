//! `fs_multi_edit`: several replacements in several files, applied all together or not at all.

use std::collections::HashMap;

use budao_core::{
    fault::{Fault, text},
    tool::{Effect, Failure},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    define::{Builtin, blocking, failure},
    documents,
    edit::{FileDraft, OPERATION, TextReplacement},
    store,
    workspace::Workspace,
};
use crate::contract::{CallContext, Note, ToolResult, content_hash};

/// The `fs_multi_edit` tool.
#[derive(Debug)]
pub(super) struct FsMultiEdit(pub(super) Workspace);

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    /// The replacements, made in this order. Later ones see what earlier ones did to the same file.
    #[schemars(length(min = 1, max = 200))]
    edits: Vec<Edit>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Edit {
    /// Path of the file, relative to the workspace.
    path: String,
    /// The text to replace, exactly as it stands in the file. It must occur once, unless `replace_all`.
    #[schemars(length(min = 1))]
    find: String,
    /// The text to put in its place, taken literally.
    replace: String,
    /// Replace every occurrence. Default: false.
    #[serde(default)]
    replace_all: bool,
}

impl Builtin for FsMultiEdit {
    const NAME: &'static str = "fs_multi_edit";
    const ABOUT: &'static str = "Makes several literal replacements in one or more files of the workspace. \
        Either all of them are made or none: if one cannot be made, no file is touched and the answer says \
        which ones are wrong.";
    const EFFECT: Effect = Effect::Writes;
    const IDEMPOTENT: bool = false;
    const OPERATION: budao_core::fault::Operation = OPERATION;

    type Args = Args;

    async fn run(&self, args: Args, context: &CallContext) -> ToolResult {
        let (workspace, inner) = (self.0.clone(), context.clone());
        let (answer, seen) =
            blocking(context, OPERATION, move |_| edit_all(&workspace, &args, &inner)).await?;
        for note in seen {
            context.notes.record(note).await;
        }
        Ok(answer)
    }
}

/// The result of one replacement.
#[derive(Debug, Serialize)]
struct EditReport<'a> {
    path: &'a str,
    replacements: usize,
    status: Status,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Status {
    Ok,
    /// The replacement matched, but was not applied because another one failed.
    Skipped,
    Error,
}

fn edit_all(
    workspace: &Workspace,
    args: &Args,
    context: &CallContext,
) -> Result<(Value, Vec<Note>), Failure> {
    let _writing = workspace.lock_writing();
    let mut drafts = Drafts { workspace, context, opened: Vec::new(), by_path: HashMap::new() };
    let made: Vec<_> =
        args.edits.iter().enumerate().map(|(index, edit)| drafts.apply(index, edit)).collect();
    let made = match made.iter().position(Result::is_err) {
        None => made.into_iter().flatten().collect::<Vec<_>>(),
        Some(_) => return Err(refused(args, made, context)),
    };
    let notes = drafts.write()?;
    let lines: Vec<_> = args
        .edits
        .iter()
        .zip(made)
        .map(|(edit, replacements)| EditReport {
            path: &edit.path,
            replacements,
            status: Status::Ok,
            message: None,
        })
        .collect();
    let diffs: Vec<_> = drafts.opened.iter().filter_map(FileDraft::diff).collect();
    Ok((json!({ "ok": true, "results": lines, "diff": diffs.concat() }), notes))
}

/// The failure when nothing was written: the first fault, and the status of every replacement.
fn refused(args: &Args, made: Vec<Result<usize, Fault>>, context: &CallContext) -> Failure {
    let mut first = None;
    let lines: Vec<_> = args
        .edits
        .iter()
        .zip(made)
        .map(|(edit, made)| {
            let (status, replacements, message) = match made {
                Ok(count) => (Status::Skipped, count, None),
                Err(fault) => {
                    let message = text::model_text(&fault, context.lang);
                    first.get_or_insert(fault);
                    (Status::Error, 0, Some(message))
                }
            };
            EditReport { path: &edit.path, replacements, status, message }
        })
        .collect();
    let fault = first.unwrap_or_else(|| Fault::new(budao_core::Kind::Bug, OPERATION));
    Failure { fault, data: Some(json!({ "results": lines })), note: None }
}

/// The files being edited. Each file is opened once, even if the edits spell its path differently.
struct Drafts<'a> {
    workspace: &'a Workspace,
    context: &'a CallContext,
    opened: Vec<FileDraft>,
    by_path: HashMap<String, Result<usize, Fault>>,
}

impl Drafts<'_> {
    fn apply(&mut self, index: usize, edit: &Edit) -> Result<usize, Fault> {
        let opened = self.open(&edit.path)?;
        let change =
            TextReplacement { find: &edit.find, replace: &edit.replace, all: edit.replace_all };
        self.opened[opened].apply(&change, &format!("/edits/{index}/replace"))
    }

    fn open(&mut self, path: &str) -> Result<usize, Fault> {
        if let Some(known) = self.by_path.get(path) {
            return known.clone();
        }
        let opened = match FileDraft::open(self.workspace, path, self.context) {
            Ok(draft) => Ok(self.find_or_push(draft)),
            Err(failure) => Err(failure.fault),
        };
        self.by_path.insert(path.to_owned(), opened.clone());
        opened
    }

    fn find_or_push(&mut self, draft: FileDraft) -> usize {
        let same = self.opened.iter().position(|known| known.location.key == draft.location.key);
        same.unwrap_or_else(|| {
            self.opened.push(draft);
            self.opened.len() - 1
        })
    }

    fn write(&self) -> Result<Vec<Note>, Failure> {
        let encoded: Vec<Vec<u8>> = self
            .opened
            .iter()
            .map(|draft| draft.encode("/edits").map_err(failure))
            .collect::<Result<_, _>>()?;
        let by_editor = self.write_in_editor(&encoded)?;
        self.write_to_disk(&encoded, by_editor)?;
        let notes = self.opened.iter().zip(encoded).map(|(draft, bytes)| {
            let digest = content_hash(&bytes);
            self.workspace.wrote(self.context.session, &draft.location.key, &digest);
            Note::FileSeen { path: draft.location.key.clone(), digest: Some(digest) }
        });
        Ok(notes.collect())
    }

    /// Writes through the editor, up to the first file that it does not write, and returns how many it has written. If
    /// it refuses one, those before it get their old text back.
    fn write_in_editor(&self, encoded: &[Vec<u8>]) -> Result<usize, Failure> {
        for (index, draft) in self.opened.iter().enumerate() {
            let (key, form) = (&draft.location.key, draft.text.form);
            match documents::write(self.workspace, key, &encoded[index], form, self.context) {
                Ok(true) => {}
                Ok(false) => return Ok(index),
                Err(failure) => {
                    self.restore_in_editor(index);
                    return Err(failure);
                }
            }
        }
        Ok(self.opened.len())
    }

    fn restore_in_editor(&self, count: usize) {
        for draft in &self.opened[..count] {
            let (key, form, old) = (&draft.location.key, draft.text.form, &draft.existing.bytes);
            if documents::write(self.workspace, key, old, form, self.context).is_err() {
                tracing::warn!(path = draft.path, "editor did not restore a file");
            }
        }
    }

    /// Writes the files from this one on to the disk, all of them or none.
    fn write_to_disk(&self, encoded: &[Vec<u8>], first: usize) -> Result<(), Failure> {
        let nonce = self.context.world.entropy.bits();
        let mut staged = Vec::new();
        for (draft, bytes) in self.opened.iter().zip(encoded).skip(first) {
            let stage = store::stage(&draft.location, bytes, Some(&draft.existing), nonce);
            staged.push(stage.map_err(|error| {
                self.restore_in_editor(first);
                failure(store::write_fault(&error, &draft.path, bytes.len(), OPERATION))
            })?);
        }
        store::commit_all(staged, nonce).map_err(|undone| {
            self.restore_in_editor(first);
            self.undone(&undone, first)
        })
    }

    fn undone(&self, undone: &store::CommitFailure, first: usize) -> Failure {
        let path = |index: usize| self.opened[first + index].path.clone();
        let fault = store::write_fault(&undone.error, &path(undone.index), 0, OPERATION);
        let stuck: Vec<_> = undone.stuck.iter().map(|index| path(*index)).collect();
        let data = (!stuck.is_empty()).then(|| json!({ "changed_nevertheless": stuck }));
        Failure { fault, data, note: None }
    }
}

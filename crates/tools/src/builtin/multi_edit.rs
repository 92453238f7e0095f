//! `fs_multi_edit`: several replacements in several files, applied all together or not at all.

use std::collections::HashMap;

use budao_core::{
    fault::{Fault, text},
    tool::{Effect, Failure},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{
    define::{Builtin, blocking, cancelled, failure},
    documents,
    edit::{FileDraft, OPERATION, TextReplacement, evident},
    edit_evidence::Evidence,
    store,
    workspace::Workspace,
};
use crate::contract::{CallContext, Note, Reconciliation, ToolResult, content_hash};

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
            blocking(context, OPERATION, move |cancel| edit_all(&workspace, &args, &inner, cancel))
                .await?;
        for note in seen {
            context.notes.record(note).await;
        }
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
            blocking(context, OPERATION, move |_| compare_all(&workspace, &args, &inner)).await?;
        for note in seen {
            context.notes.record(note).await;
        }
        Ok(answer)
    }
}

impl Edit {
    fn change(&self) -> TextReplacement {
        let (find, replace) = (self.find.clone(), self.replace.clone());
        TextReplacement { find, replace, all: self.replace_all }
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
    cancel: &CancellationToken,
) -> Result<(Value, Vec<Note>), Failure> {
    let _writing = workspace.lock_writing();
    // The session may have gone on while the call waited for the lock.
    if cancel.is_cancelled() {
        return Err(cancelled(OPERATION));
    }
    let mut drafts = Drafts { workspace, context, opened: Vec::new(), by_path: HashMap::new() };
    let made: Vec<_> =
        args.edits.iter().enumerate().map(|(index, edit)| drafts.apply(index, edit)).collect();
    let made = match made.iter().position(Result::is_err) {
        None => made.into_iter().flatten().collect::<Vec<_>>(),
        Some(_) => return Err(refused(args, made, context)),
    };
    let notes = drafts.write()?;
    Ok((drafts.report(args, made), notes))
}

/// Finds out from the contents of the files what became of an interrupted call. Some new and some old files mean that
/// it was interrupted between two of them.
fn compare_all(
    workspace: &Workspace,
    args: &Args,
    context: &CallContext,
) -> Result<(Reconciliation, Vec<Note>), Failure> {
    let _writing = workspace.lock_writing();
    let mut drafts = Drafts { workspace, context, opened: Vec::new(), by_path: HashMap::new() };
    let evidence = drafts.examine(args)?;
    if evidence.contains(&Evidence::Ambiguous) {
        return Ok((Reconciliation::CannotTell, Vec::new()));
    }
    let befores: Vec<_> = evidence.into_iter().filter_map(Evidence::into_before).collect();
    if befores.len() < drafts.opened.len() || befores.is_empty() {
        let all_old = befores.is_empty() && !drafts.opened.is_empty();
        let answer =
            if all_old { Reconciliation::DidNotHappen } else { Reconciliation::CannotTell };
        return Ok((answer, Vec::new()));
    }
    for (draft, before) in drafts.opened.iter_mut().zip(befores) {
        draft.rewind(before);
    }
    let edits = args.edits.iter().enumerate();
    let made: Result<Vec<_>, _> = edits.map(|(index, edit)| drafts.apply(index, edit)).collect();
    let answer = Reconciliation::Happened(drafts.report(args, made.map_err(failure)?));
    let seen = drafts.opened.iter().filter_map(|draft| draft.confirm_seen(workspace, context));
    Ok((answer, seen.collect()))
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
        self.opened[opened].apply(&edit.change(), &format!("/edits/{index}/replace"))
    }

    /// Opens the files in any state, and compares each with what the replacements would leave.
    fn examine(&mut self, args: &Args) -> Result<Vec<Evidence>, Failure> {
        let mut changes: Vec<Vec<TextReplacement>> = Vec::new();
        for edit in &args.edits {
            let index = match self.by_path.get(&edit.path) {
                Some(Ok(index)) => *index,
                _ => match evident(FileDraft::load(self.workspace, &edit.path, self.context))? {
                    Some(draft) => self.find_or_push(draft),
                    None => return Ok(vec![Evidence::Ambiguous]),
                },
            };
            self.by_path.insert(edit.path.clone(), Ok(index));
            changes.resize_with(self.opened.len(), Vec::new);
            changes[index].push(edit.change());
        }
        let files = self.opened.iter().zip(&changes);
        Ok(files.map(|(draft, changes)| draft.examine(changes, self.context)).collect())
    }

    /// The result of a call whose replacements were all made, with their counts.
    fn report(&self, args: &Args, made: Vec<usize>) -> Value {
        let lines = args.edits.iter().zip(made).map(|(edit, replacements)| EditReport {
            path: &edit.path,
            replacements,
            status: Status::Ok,
            message: None,
        });
        let lines: Vec<_> = lines.collect();
        let diffs: Vec<_> = self.opened.iter().filter_map(FileDraft::diff).collect();
        json!({ "ok": true, "results": lines, "diff": diffs.concat() })
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

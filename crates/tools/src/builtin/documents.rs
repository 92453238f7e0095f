//! Files as an editor shows them: with changes that are not saved yet.
//!
//! A file must lie in the workspace before an editor is asked for it. Only its text comes from the editor; character
//! set and line ends are those of the file. What the editor cannot read or write goes to the disk, as without one.

use std::{fmt, path::Path, time::Duration};

use async_trait::async_trait;
use budao_core::{
    fault::{Fact, Fault, Kind, Operation},
    tool::Failure,
};
use tokio::runtime::Handle;

use super::{
    define::failure,
    encoding::{DecodedText, TextFormat},
    store::ExistingFile,
    workspace::Workspace,
};
use crate::contract::{CallContext, content_hash};

/// How long a call waits for the editor.
const EDITOR_WAIT: Duration = Duration::from_secs(30);

/// The open documents of an editor. Paths are absolute.
#[async_trait]
pub trait EditorDocuments: Send + Sync + fmt::Debug {
    /// The text that the editor shows, or would show; `None` if it cannot tell.
    async fn read(&self, path: &Path) -> Option<String>;

    /// Replaces the text of a document and saves it. False if the editor does not write files; nothing happened then.
    ///
    /// # Errors
    /// The editor refused, or did not answer.
    async fn write(&self, path: &Path, text: &str) -> Result<bool, Fault>;
}

/// The content of a file as the editor shows it: the text, and the bytes it would be saved as.
pub(super) fn as_shown(
    workspace: &Workspace,
    key: &str,
    context: &CallContext,
    stored: DecodedText,
    bytes: Vec<u8>,
) -> (DecodedText, Vec<u8>) {
    let Some(shown) = read(workspace, key, context) else { return (stored, bytes) };
    let text = stored.form.unify(&shown);
    match stored.form.encode(&text) {
        Ok(unsaved) if text != stored.text => (DecodedText { text, form: stored.form }, unsaved),
        _ => (stored, bytes),
    }
}

/// The same for a file that is to be changed. A file that is not text stays as it is.
pub(super) fn existing_as_shown(
    workspace: &Workspace,
    key: &str,
    context: &CallContext,
    mut existing: ExistingFile,
) -> ExistingFile {
    if let Ok(stored) = DecodedText::decode(&existing.bytes) {
        let bytes = std::mem::take(&mut existing.bytes);
        (_, existing.bytes) = as_shown(workspace, key, context, stored, bytes);
        existing.digest = content_hash(&existing.bytes);
    }
    existing
}

fn read(workspace: &Workspace, key: &str, context: &CallContext) -> Option<String> {
    let documents = workspace.documents()?;
    let path = workspace.path().join(key);
    let clock = context.world.clock.clone();
    let limit = context.limits.output_bytes_kept;
    Handle::current().block_on(async {
        tokio::select! {
            biased;
            text = documents.read(&path) => text.filter(|text| text.len() <= limit),
            () = context.cancel.cancelled() => None,
            () = clock.sleep(EDITOR_WAIT) => {
                tracing::warn!(path = %path.display(), "editor did not read a file in time");
                None
            }
        }
    })
}

/// Writes a file through the editor. False if it must be written to the disk.
pub(super) fn write(
    workspace: &Workspace,
    key: &str,
    bytes: &[u8],
    form: TextFormat,
    context: &CallContext,
) -> Result<bool, Failure> {
    let (Some(documents), None) = (workspace.documents(), form.name()) else { return Ok(false) };
    let Ok(text) = std::str::from_utf8(bytes) else { return Ok(false) };
    let path = workspace.path().join(key);
    let clock = context.world.clock.clone();
    let written = Handle::current().block_on(async {
        tokio::select! {
            biased;
            written = documents.write(&path, text) => written,
            () = clock.sleep(EDITOR_WAIT) => {
                Err(Fault::new(Kind::OutcomeUnknown, Operation::WriteFile)
                    .with(Fact::ToolName, "fs_write")
                    .with_cause("the editor did not answer"))
            }
        }
    });
    written.map_err(failure)
}

//! `fs_edit`: replaces a literal text in a file.

use budao_core::{
    fault::{Detail, Fact, Fault, Kind, Operation},
    tool::{Effect, Failure},
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{
    budget,
    define::{Builtin, blocking, cancelled, failure},
    diff, documents,
    edit_evidence::{self, Evidence, SeenState},
    encoding::{DecodedText, TextFormat},
    io_errors::{advice, invalid},
    store::{self, ExistingFile},
    workspace::{FileLocation, Workspace},
    write::unwritable,
};
use crate::contract::{CallContext, Note, Reconciliation, ToolResult, content_hash};

pub(super) const OPERATION: Operation = Operation::EditFile;
/// Maximum number of match positions that a fault lists.
const LINES_NAMED: usize = 10;
/// Maximum lines of a file searched for the closest match.
const LINES_COMPARED: usize = 20_000;
/// Minimum similarity (0 to 1) for a line to be reported as a close match.
const LIKENESS: f64 = 0.6;
/// Maximum size of the closest match's excerpt, in JSON bytes.
const EXCERPT_ROOM: usize = 800;

/// The `fs_edit` tool.
#[derive(Debug)]
pub(super) struct FsEdit(pub(super) Workspace);

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    /// Path of the file, relative to the workspace.
    path: String,
    /// The text to replace, exactly as it stands in the file. It must occur once, unless `replace_all`.
    #[schemars(length(min = 1))]
    old_string: String,
    /// The text to put in its place, taken literally.
    new_string: String,
    /// Replace every occurrence. Default: false.
    #[serde(default)]
    replace_all: bool,
}

impl Builtin for FsEdit {
    const NAME: &'static str = "fs_edit";
    const ABOUT: &'static str = "Replaces a text in a file of the workspace by another, literally. The text \
        must occur exactly once, unless `replace_all` is set. Refused if the file has changed since it was \
        last read.";
    const EFFECT: Effect = Effect::Writes;
    const IDEMPOTENT: bool = false;
    const OPERATION: Operation = OPERATION;

    type Args = Args;

    async fn run(&self, args: Args, context: &CallContext) -> ToolResult {
        let (workspace, inner) = (self.0.clone(), context.clone());
        let (answer, seen) =
            blocking(context, OPERATION, move |cancel| edit(&workspace, &args, &inner, cancel))
                .await?;
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

impl Args {
    fn change(&self) -> TextReplacement {
        let (find, replace) = (self.old_string.clone(), self.new_string.clone());
        TextReplacement { find, replace, all: self.replace_all }
    }
}

fn edit(
    workspace: &Workspace,
    args: &Args,
    context: &CallContext,
    cancel: &CancellationToken,
) -> Result<(Value, Note), Failure> {
    let path = args.path.as_str();
    let _writing = workspace.lock_writing();
    // The session may have gone on while the call waited for the lock.
    if cancel.is_cancelled() {
        return Err(cancelled(OPERATION));
    }
    let mut draft = FileDraft::open(workspace, path, context)?;
    let count = draft.apply(&args.change(), "/new_string").map_err(failure)?;
    let bytes = draft.encode("/new_string").map_err(failure)?;
    if !documents::write(workspace, &draft.location.key, &bytes, draft.text.form, context)? {
        store::stage(&draft.location, &bytes, Some(&draft.existing), context.world.entropy.bits())
            .and_then(store::commit)
            .map_err(|error| failure(store::write_fault(&error, path, bytes.len(), OPERATION)))?;
    }
    let digest = content_hash(&bytes);
    workspace.wrote(context.session, &draft.location.key, &digest);
    let seen = Note::FileSeen { path: draft.location.key.clone(), digest: Some(digest) };
    Ok((report(&draft, path, count), seen))
}

/// Finds out from the content of the file what became of an interrupted call.
fn compare(
    workspace: &Workspace,
    args: &Args,
    context: &CallContext,
) -> Result<(Reconciliation, Option<Note>), Failure> {
    let _writing = workspace.lock_writing();
    let Some(mut draft) = evident(FileDraft::load(workspace, &args.path, context))? else {
        return Ok((Reconciliation::CannotTell, None));
    };
    let change = args.change();
    let before = match draft.examine(std::slice::from_ref(&change), context) {
        Evidence::NotMade => return Ok((Reconciliation::DidNotHappen, None)),
        Evidence::Ambiguous => return Ok((Reconciliation::CannotTell, None)),
        Evidence::Made { before } => before,
    };
    draft.rewind(before);
    let count = draft.apply(&change, "/new_string").map_err(failure)?;
    let answer = Reconciliation::Happened(report(&draft, &args.path, count));
    Ok((answer, draft.confirm_seen(workspace, context)))
}

fn report(draft: &FileDraft, path: &str, count: usize) -> Value {
    json!({
        "ok": true,
        "path": path,
        "replacements": count,
        "lines": draft.text.text.lines().count(),
        "diff": draft.diff(),
    })
}

/// The draft that is to be compared; `None` if the file cannot be read and another attempt would not help.
pub(super) fn evident(draft: Result<FileDraft, Failure>) -> Result<Option<FileDraft>, Failure> {
    match draft {
        Ok(draft) => Ok(Some(draft)),
        Err(failure) if failure.fault.repeat().auto_retry => Err(failure),
        Err(_) => Ok(None),
    }
}

/// One literal replacement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TextReplacement {
    pub(super) find: String,
    pub(super) replace: String,
    pub(super) all: bool,
}

impl TextReplacement {
    /// The replacement with the line ends that a file's text has in memory.
    fn unify(&self, form: TextFormat) -> Self {
        Self { find: form.unify(&self.find), replace: form.unify(&self.replace), all: self.all }
    }

    /// The text after the replacement; `None` if it cannot be made.
    pub(super) fn make(&self, text: &str) -> Option<String> {
        let Self { find, replace, all } = self;
        let mut places = text.matches(find.as_str());
        let fits = places.next().is_some() && (*all || places.next().is_none());
        (fits && find != replace).then(|| text.replace(find.as_str(), replace))
    }
}

/// A file's content in memory, before and after the replacements.
#[derive(Debug)]
pub(super) struct FileDraft {
    pub(super) path: String,
    pub(super) location: FileLocation,
    pub(super) existing: ExistingFile,
    before: String,
    pub(super) text: DecodedText,
}

impl FileDraft {
    /// Opens an existing text file. Fails with `file_changed` if the file differs from the state the session has
    /// seen.
    pub(super) fn open(
        workspace: &Workspace,
        path: &str,
        context: &CallContext,
    ) -> Result<Self, Failure> {
        let draft = Self::load(workspace, path, context)?;
        // A file that was never read may be edited: matching a unique text shows that the content is known.
        if workspace.knows(context, &draft.location.key, &draft.existing.digest) == Some(false) {
            let fault = Fault::new(Kind::FileChanged, OPERATION);
            return Err(failure(fault.with(Fact::Path, path.to_owned())));
        }
        Ok(draft)
    }

    /// Opens an existing text file in any state.
    pub(super) fn load(
        workspace: &Workspace,
        path: &str,
        context: &CallContext,
    ) -> Result<Self, Failure> {
        let location = workspace.locate(path, OPERATION).map_err(failure)?;
        let kept = context.limits.output_bytes_kept;
        let Some(existing) = store::load(&location, path, kept, OPERATION).map_err(failure)? else {
            let gone = std::io::ErrorKind::NotFound.into();
            return Err(failure(workspace.explain(&gone, path, OPERATION)));
        };
        let existing = documents::existing_as_shown(workspace, &location.key, context, existing);
        let text = DecodedText::decode(&existing.bytes).map_err(|no| {
            let fault = Fault::new(Kind::FileNotText, OPERATION);
            failure(fault.with(Fact::Path, path.to_owned()).with(Fact::Position, no.position))
        })?;
        Ok(Self { path: path.to_owned(), location, existing, before: text.text.clone(), text })
    }

    /// Applies a replacement in memory and returns the number of occurrences. `pointer` locates its new text in the
    /// arguments.
    pub(super) fn apply(
        &mut self,
        change: &TextReplacement,
        pointer: &str,
    ) -> Result<usize, Fault> {
        let change = change.unify(self.text.form);
        if change.find == change.replace {
            let expected = "must differ from the text it replaces";
            return Err(invalid(OPERATION, pointer, "not", expected, None));
        }
        let count = self.text.text.matches(&change.find).count();
        match change.make(&self.text.text) {
            Some(text) => self.text.text = text,
            None if count == 0 => return Err(self.no_match(&change.find)),
            None => return Err(self.several_matches(&change.find, count)),
        }
        Ok(count)
    }

    /// Compares the content with what these replacements would leave.
    pub(super) fn examine(&self, changes: &[TextReplacement], context: &CallContext) -> Evidence {
        let form = self.text.form;
        let changes: Vec<_> = changes.iter().map(|change| change.unify(form)).collect();
        let seen = context.memory.seen_digest(&self.location.key);
        let seen = match seen.as_ref().map(|digest| digest.as_deref().unwrap_or_default()) {
            None => SeenState::Never,
            Some(digest) if digest == self.existing.digest => SeenState::Same,
            Some(digest) => SeenState::Other(digest),
        };
        let digest = |text: &str| form.encode(text).ok().map(|bytes| content_hash(&bytes));
        edit_evidence::examine(&self.text.text, &changes, seen, digest)
    }

    /// Goes back to the text that an edit started from.
    pub(super) fn rewind(&mut self, before: String) {
        self.text.text.clone_from(&before);
        self.before = before;
    }

    /// Notes that the session knows the present state. A file that it never saw stays one that it never saw.
    pub(super) fn confirm_seen(
        &self,
        workspace: &Workspace,
        context: &CallContext,
    ) -> Option<Note> {
        let (key, digest) = (&self.location.key, &self.existing.digest);
        context.memory.seen_digest(key)?;
        workspace.wrote(context.session, key, digest);
        Some(Note::FileSeen { path: key.clone(), digest: Some(digest.clone()) })
    }

    /// Encodes the new content in the file's own format.
    pub(super) fn encode(&self, pointer: &str) -> Result<Vec<u8>, Fault> {
        let DecodedText { text, form } = &self.text;
        form.encode(text).map_err(|no| unwritable(OPERATION, pointer, *form, no))
    }

    /// The diff of all replacements; `None` if the file is too large.
    pub(super) fn diff(&self) -> Option<String> {
        diff::unified(&self.location.key, &self.before, &self.text.text)
    }

    fn no_match(&self, find: &str) -> Fault {
        let fault = Fault::new(Kind::EditNoMatch, OPERATION).with(Fact::Path, self.path.clone());
        let Some(close) = closest(&self.text.text, find) else { return fault };
        let with =
            Detail::new().with(Fact::Line, close.line).with(Fact::Excerpt, close.excerpt.clone());
        let id = if close.spaces_only { "edit-only-spaces-differ" } else { "edit-closest-lines" };
        fault
            .with(Fact::Line, close.line)
            .with(Fact::Excerpt, close.excerpt)
            .advise_model([advice(id, with)])
    }

    fn several_matches(&self, find: &str, count: usize) -> Fault {
        let matches = self.text.text.match_indices(find).take(LINES_NAMED);
        let mut lines: Vec<_> = matches.map(|(at, _)| line_of(&self.text.text, at)).collect();
        lines.dedup();
        let lines: Vec<_> = lines.iter().map(ToString::to_string).collect();
        let mut shown = lines.join(", ");
        if count > LINES_NAMED {
            shown.push_str(", …");
        }
        Fault::new(Kind::EditSeveralMatches, OPERATION)
            .with(Fact::Path, self.path.clone())
            .with(Fact::Matches, count)
            .advise_model([advice("edit-match-lines", Detail::new().with(Fact::Excerpt, shown))])
    }
}

fn line_of(text: &str, at: usize) -> usize {
    text[..at].matches('\n').count() + 1
}

/// A location in the file that nearly matches the searched text.
struct NearMiss {
    line: usize,
    excerpt: String,
    spaces_only: bool,
}

fn closest(text: &str, find: &str) -> Option<NearMiss> {
    let lines: Vec<&str> = text.lines().take(LINES_COMPARED).collect();
    let wanted: Vec<&str> =
        find.lines().map(str::trim).skip_while(|line| line.is_empty()).collect();
    let first = *wanted.first()?;
    let close = |index: usize, spaces_only: bool| {
        let end = (index + find.lines().count()).min(lines.len());
        let excerpt = budget::head(&lines[index..end].join("\n"), EXCERPT_ROOM).to_owned();
        NearMiss { line: index + 1, excerpt, spaces_only }
    };
    let same = (0..lines.len()).find(|index| {
        wanted.iter().enumerate().all(|(offset, wanted)| {
            lines.get(index + offset).is_some_and(|line| line.trim() == *wanted)
        })
    });
    if let Some(index) = same {
        return Some(close(index, true));
    }
    let first = budget::head(first, 200);
    let (index, likeness) = lines
        .iter()
        .map(|line| likeness(first, budget::head(line.trim(), 200)))
        .enumerate()
        // Of several equally similar lines, takes the first.
        .max_by(|(i, a), (j, b)| a.total_cmp(b).then(j.cmp(i)))?;
    (likeness >= LIKENESS).then(|| close(index, false))
}

/// Similarity from 0 to 1. Lines of very different length get 0 without a comparison.
fn likeness(wanted: &str, line: &str) -> f64 {
    let (short, long) = (wanted.len().min(line.len()), wanted.len().max(line.len()));
    if short * 2 < long { 0.0 } else { strsim::normalized_levenshtein(wanted, line) }
}

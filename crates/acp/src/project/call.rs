//! Renders a tool call for an editor: kind, title, locations, diffs and output.
//!
//! The tools of Budao and of the Claude CLI are known by name. Any other call is shown as name and arguments.

use std::path::{Path, PathBuf};

use agent_client_protocol::v1::schema::{
    Diff, ToolCallContent, ToolCallLocation, ToolCallStatus, ToolKind,
};
use budao_core::{Lang, fault::text, tool::Outcome};
use serde_json::Value;

/// Upper bound of shown text, in bytes.
const TEXT_BYTES: usize = 16 * 1024;
/// Upper bound of a shown diff, in bytes; of a larger one only the location is shown.
const DIFF_BYTES: usize = 256 * 1024;
/// Upper bound of a shown plan, in bytes; more than a person can read.
const PLAN_BYTES: usize = 256 * 1024;
/// Upper bound of a title, in characters.
const TITLE_CHARS: usize = 120;

/// A call before its outcome.
#[derive(Debug)]
pub(super) struct CallView<'a> {
    pub(super) tool: &'a str,
    pub(super) arguments: &'a Value,
    pub(super) workspace: Option<&'a str>,
}

impl CallView<'_> {
    pub(super) fn kind(&self) -> ToolKind {
        match self.tool {
            "fs_read" | "Read" | "NotebookRead" => ToolKind::Read,
            "fs_write" | "fs_edit" | "fs_multi_edit" | "Write" | "Edit" | "MultiEdit"
            | "NotebookEdit" => ToolKind::Edit,
            "fs_glob" | "fs_grep" | "Glob" | "Grep" | "LS" => ToolKind::Search,
            "bash_run" | "bash_logs" | "bash_kill" | "Bash" | "BashOutput" | "KillShell" => {
                ToolKind::Execute
            }
            "WebFetch" | "WebSearch" => ToolKind::Fetch,
            "todo_read" | "todo_write" | "TodoWrite" | "task_run" | "Task" | "Agent" | "plan" => {
                ToolKind::Think
            }
            "ExitPlanMode" | "EnterPlanMode" => ToolKind::SwitchMode,
            _ => ToolKind::Other,
        }
    }

    pub(super) fn title(&self) -> String {
        let text = match self.tool {
            "fs_read" | "Read" | "NotebookRead" => self.path().map(|path| format!("Read {path}")),
            "fs_write" | "Write" => self.path().map(|path| format!("Write {path}")),
            "fs_edit" | "Edit" | "MultiEdit" | "NotebookEdit" => {
                self.path().map(|path| format!("Edit {path}"))
            }
            "fs_multi_edit" => {
                let count = self.edits().map_or(0, <[Value]>::len);
                Some(format!("Edit {count} places"))
            }
            "fs_glob" | "Glob" => self.text("pattern").map(|pattern| format!("Find {pattern}")),
            "fs_grep" | "Grep" => self.text("pattern").map(|pattern| format!("Search {pattern}")),
            "bash_run" | "Bash" => {
                let command = self.text("cmd").or_else(|| self.text("command"));
                command.map(|command| format!("`{}`", title_line(command)))
            }
            "WebFetch" => self.text("url").map(|url| format!("Fetch {url}")),
            "WebSearch" => self.text("query").map(|query| format!("Search {query}")),
            "todo_write" | "TodoWrite" => Some("Update the to-do list".to_owned()),
            "task_run" | "Task" | "Agent" => self.text("description").map(str::to_owned),
            "plan" | "ExitPlanMode" => Some("Plan".to_owned()),
            _ => None,
        };
        match text {
            Some(command) if command.starts_with('`') => command,
            Some(title) => title_line(&title),
            None => self.tool.to_owned(),
        }
    }

    /// The files that the call concerns: absolute paths, without duplicates.
    pub(super) fn locations(&self) -> Vec<ToolCallLocation> {
        let own = self.path().into_iter();
        let edited = self.edits().into_iter().flatten().filter_map(|edit| edit["path"].as_str());
        let mut seen: Vec<PathBuf> = Vec::new();
        for path in own.chain(edited) {
            let Some(path) = self.make_absolute(path) else { continue };
            if !seen.contains(&path) {
                seen.push(path);
            }
        }
        let line = self.arguments["offset"].as_u64().and_then(|line| u32::try_from(line).ok());
        seen.into_iter().map(|path| ToolCallLocation::new(path).line(line)).collect()
    }

    /// The content of a question about the call: its diffs, or the plan that it submits.
    pub(super) fn content(&self) -> Vec<ToolCallContent> {
        match (self.tool, self.text("plan")) {
            ("ExitPlanMode", Some(plan)) => vec![truncate(plan, PLAN_BYTES).into()],
            _ => self.differences(),
        }
    }

    /// Whether the user may turn the decision into a rule. Not for plans and questions, which differ from call to call.
    pub(super) fn allows_rule(&self) -> bool {
        !matches!(self.tool, "plan" | "ExitPlanMode" | "AskUserQuestion")
    }

    /// The changes that the call would make, as diffs.
    fn differences(&self) -> Vec<ToolCallContent> {
        let mut found = Vec::new();
        let mut add = |path: Option<&str>, old: Option<&str>, new: Option<&str>| {
            let (Some(path), Some(new)) = (path.and_then(|path| self.make_absolute(path)), new)
            else {
                return;
            };
            if old.map_or(0, str::len) + new.len() <= DIFF_BYTES {
                found.push(Diff::new(path, new).old_text(old.map(str::to_owned)).into());
            }
        };
        match self.tool {
            "fs_write" | "Write" => add(self.path(), None, self.text("content")),
            "fs_edit" | "Edit" => {
                add(self.path(), self.text("old_string"), self.text("new_string"));
            }
            "fs_multi_edit" | "MultiEdit" => {
                for edit in self.edits().into_iter().flatten() {
                    let text = |key: &str| edit[key].as_str();
                    let path = text("path").or_else(|| self.path());
                    let old = text("find").or_else(|| text("old_string"));
                    add(path, old, text("replace").or_else(|| text("new_string")));
                }
            }
            _ => {}
        }
        found
    }

    fn text(&self, key: &str) -> Option<&str> {
        self.arguments[key].as_str()
    }

    fn path(&self) -> Option<&str> {
        ["path", "file_path", "notebook_path"].iter().find_map(|key| self.text(key))
    }

    fn edits(&self) -> Option<&[Value]> {
        self.arguments["edits"].as_array().map(Vec::as_slice)
    }

    /// Makes a path absolute, as editors require; a relative path is relative to the workspace.
    fn make_absolute(&self, path: &str) -> Option<PathBuf> {
        let path = Path::new(path);
        if path.is_absolute() {
            return Some(path.to_owned());
        }
        let inside = path.components().filter(|part| !matches!(part, std::path::Component::CurDir));
        self.workspace.map(|workspace| Path::new(workspace).join(inside.collect::<PathBuf>()))
    }
}

/// The first line of a text, cut to the length of a title.
fn title_line(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    let short: String = line.chars().take(TITLE_CHARS).collect();
    if short.len() == text.len() { short } else { format!("{short} …") }
}

/// Status and content of an ended call. Without content if the call's diffs already show its effect.
pub(super) fn render_outcome(
    outcome: &Outcome,
    has_differences: bool,
    lang: Lang,
) -> (ToolCallStatus, Option<Vec<ToolCallContent>>) {
    match outcome {
        Outcome::Done(_) if has_differences => (ToolCallStatus::Completed, None),
        Outcome::Done(output) => {
            let text = readable_text(&output.data);
            let content = if text.is_empty() { Vec::new() } else { vec![fence_code(&text).into()] };
            (ToolCallStatus::Completed, Some(content))
        }
        Outcome::Failed(failure) => {
            let mut text = text::user_text(&failure.fault, lang);
            for advice in text::recommendations(&failure.fault, lang).iter().take(3) {
                text.push_str("\n- ");
                text.push_str(advice);
            }
            if let Some(output) =
                failure.data.as_ref().map(readable_text).filter(|text| !text.is_empty())
            {
                text.push_str("\n\n");
                text.push_str(&fence_code(&output));
            }
            (ToolCallStatus::Failed, Some(vec![text.into()]))
        }
    }
}

/// The readable part of a tool's output.
fn readable_text(data: &Value) -> String {
    let inner = ["output", "content", "text"].iter().find_map(|key| data[key].as_str());
    match (data, inner) {
        (Value::Null, _) => String::new(),
        (Value::String(text), _) => truncate(text, TEXT_BYTES),
        (_, Some(text)) => truncate(text, TEXT_BYTES),
        (other, None) => {
            truncate(&serde_json::to_string_pretty(other).unwrap_or_default(), TEXT_BYTES)
        }
    }
}

/// Cuts a text to `max_bytes` bytes and notes how many are missing.
fn truncate(text: &str, max_bytes: usize) -> String {
    if text.len() <= max_bytes {
        return text.to_owned();
    }
    let cut = (0..=max_bytes).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    format!("{}\n… {} more bytes", &text[..cut], text.len() - cut)
}

/// Keeps the last `max_bytes` bytes of a running call's output.
pub(super) fn tail(text: &mut String, max_bytes: usize) {
    if text.len() > max_bytes {
        let from = text.len() - max_bytes;
        let cut = (from..=text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len());
        text.drain(..cut);
    }
}

/// Puts text into a code fence, so that an editor does not read it as Markdown.
pub(super) fn fence_code(text: &str) -> String {
    let longest = text.split(|character| character != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat((longest + 1).max(3));
    let end = if text.ends_with('\n') { "" } else { "\n" };
    format!("{fence}\n{text}{end}{fence}")
}

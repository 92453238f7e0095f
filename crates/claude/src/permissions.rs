//! Decides which CLI tools may run, from the session's permissions and the CLI's mode.
//!
//! In plan mode the CLI only asks; if the host allows a write, the CLI performs it. So plan mode denies every
//! change here. The one exception is the plan's own file, which the CLI needs to submit a plan.

use std::path::Path;

use budao_core::{
    event::Settings,
    tool::{Effect, Mode, Permission, Permissions, ToolOrigin, ToolSpec},
};
use serde_json::Value;

use crate::DEFAULT_MODEL;

/// Key of the CLI's mode in a session's extra settings; the value is one of [`MODES`].
pub const MODE: &str = "claude.mode";
/// Key of the list of further directories in a session's extra settings.
pub const DIRECTORIES: &str = "claude.directories";

/// Key in a session's extra settings that turns thinking off; the only value is [`OFF`].
pub const THINKING: &str = "claude.thinking";
/// The value of [`THINKING`].
pub const OFF: &str = "off";

/// The CLI modes that a session supports.
pub const MODES: &[&str] = &["default", "acceptEdits", "plan", "dontAsk", "bypassPermissions"];

/// Effects of the CLI's own tools. A tool in none of the lists counts as executing.
const WRITES: &[&str] = &["Edit", "MultiEdit", "NotebookEdit", "Write"];
const EXECUTES: &[&str] = &["Bash", "KillBash", "KillShell"];
const READS: &[&str] = &[
    "AskUserQuestion",
    "BashOutput",
    "ExitPlanMode",
    "Glob",
    "Grep",
    "LS",
    "NotebookRead",
    "Read",
    "Task",
    "TodoWrite",
    "WebFetch",
    "WebSearch",
];

/// The mode in which only a plan is written.
pub(crate) const PLAN: &str = "plan";
/// The mode in which the CLI asks about calls that its rules do not allow. An approved plan leads to it.
pub(crate) const DEFAULT: &str = "default";

/// The tool that submits a plan. Allowing it ends plan mode, so a person always decides.
pub(crate) const HAND_IN_PLAN: &str = "ExitPlanMode";
/// The tool that starts plan mode.
pub(crate) const BEGIN_PLAN: &str = "EnterPlanMode";
/// The tool with which the model asks the person a question.
const ASK_PERSON: &str = "AskUserQuestion";

/// Reads a text from a session's extra settings.
pub(crate) fn extra<'a>(settings: &'a Settings, key: &str) -> Option<&'a str> {
    settings.extra.get(key).and_then(Value::as_str)
}

/// The CLI's mode for these settings: the configured one, or the one that matches the permissions.
pub(crate) fn mode(settings: &Settings) -> &str {
    extra(settings, MODE).unwrap_or(match settings.permissions.mode {
        Mode::Readonly => PLAN,
        Mode::Auto | Mode::Approval => DEFAULT,
    })
}

/// Returns the settings changed to another CLI mode; `None` if sessions do not support it.
pub(crate) fn in_mode(settings: &Settings, mode: &str) -> Option<Settings> {
    let mut settings = settings.clone();
    let permissions = &mut settings.permissions.mode;
    settings.extra.remove(MODE);
    match mode {
        PLAN => *permissions = Mode::Readonly,
        DEFAULT if *permissions == Mode::Readonly => *permissions = Mode::Approval,
        DEFAULT => {}
        _ if !MODES.contains(&mode) => return None,
        _ => {
            let is_free = mode == "bypassPermissions";
            *permissions = if is_free { Mode::Auto } else { Mode::Approval };
            settings.extra.insert(MODE.to_owned(), mode.into());
        }
    }
    Some(settings)
}

/// The value of `--model`; `None` leaves the choice to the CLI.
pub(crate) fn model(settings: &Settings) -> Option<&str> {
    Some(settings.model.as_str()).filter(|model| !model.is_empty() && *model != DEFAULT_MODEL)
}

/// The thinking level, in the CLI's words.
pub(crate) fn effort(settings: &Settings) -> Option<&'static str> {
    settings.thinking.map(Into::into)
}

/// Is the CLI told not to think?
pub(crate) fn is_thinking_off(settings: &Settings) -> bool {
    extra(settings, THINKING) == Some(OFF)
}

/// The effect of a CLI tool. An unknown tool counts as executing.
fn effect(tool: &str) -> Effect {
    if READS.contains(&tool) {
        Effect::Reads
    } else if WRITES.contains(&tool) {
        Effect::Writes
    } else {
        Effect::Executes
    }
}

/// A call that the CLI asks about.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ToolRequest<'a> {
    pub(crate) tool: &'a str,
    pub(crate) input: &'a Value,
    /// Folder in which the CLI stores plans, an absolute path; `None` if unknown.
    pub(crate) plan_folder: Option<&'a Path>,
}

impl ToolRequest<'_> {
    /// Does the call write a plan into the plan folder? Paths are compared literally, so a path with `..`
    /// is never inside.
    fn writes_plan(&self) -> bool {
        let path = self.input["file_path"].as_str().map(Path::new);
        WRITES.contains(&self.tool)
            && path.is_some_and(|path| {
                path.is_absolute()
                    && path.parent() == self.plan_folder
                    && path.extension().is_some_and(|extension| extension == "md")
            })
    }
}

/// Decides about a call that the CLI asks about.
pub(crate) fn permit(settings: &Settings, request: ToolRequest<'_>) -> Permission {
    let tool = request.tool;
    if mode(settings) == PLAN && tool != HAND_IN_PLAN && effect(tool) != Effect::Reads {
        return match request.writes_plan() {
            true => Permission::Allow,
            false => Permission::Deny("the mode is `plan`: nothing is changed or run"),
        };
    }
    if mode(settings) == "dontAsk" && !is_free(&settings.permissions, tool) {
        return Permission::Deny("the mode is `dontAsk`: nobody is asked");
    }
    let asks_person = tool == HAND_IN_PLAN || tool == ASK_PERSON;
    match settings.permissions.permit(&spec(tool, asks_person)) {
        // The CLI asks only about calls that its own rules do not allow, so being a read is no reason to allow one.
        Permission::Allow if is_free(&settings.permissions, tool) && !asks_person => {
            Permission::Allow
        }
        Permission::Allow => Permission::Ask("the program asks before it does this"),
        other => other,
    }
}

fn is_free(permissions: &Permissions, tool: &str) -> bool {
    let named = |pattern: &String| match pattern.strip_suffix('*') {
        Some(prefix) => tool.starts_with(prefix),
        None => pattern == tool,
    };
    permissions.mode == Mode::Auto || permissions.allow.iter().any(named)
}

fn spec(tool: &str, confirm: bool) -> ToolSpec {
    ToolSpec {
        name: tool.into(),
        description: "".into(),
        schema: Value::Null.into(),
        effect: effect(tool),
        idempotent: false,
        confirm,
        repair: false,
        deadline: None,
        output_bytes: None,
        source: ToolOrigin::Registered,
    }
}

/// Rules that the CLI itself must enforce, because it does not ask about every call. In plan mode it must ask
/// about every change, even one that its user allowed elsewhere: `permit` then admits only the plan.
pub(crate) fn rules(settings: &Settings) -> Option<Value> {
    let permissions = &settings.permissions;
    let (mut deny, mut ask) = (permissions.deny.clone(), permissions.ask.clone());
    let changes = || WRITES.iter().chain(EXECUTES).map(ToString::to_string);
    let is_plan = mode(settings) == PLAN;
    if is_plan {
        ask.extend(changes());
    } else if permissions.mode == Mode::Readonly {
        deny.extend(changes());
    }
    if deny.is_empty() && ask.is_empty() {
        return None;
    }
    let mut rules = serde_json::json!({"permissions": {"deny": deny, "ask": ask}});
    if is_plan {
        // The CLI's own folder stores the plans, not the project, in which plan mode writes nothing.
        rules["plansDirectory"] = "".into();
    }
    Some(rules)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const PLANS: &str = "/users/ada/.claude/plans";

    fn decided(settings: &Settings, tool: &str) -> Permission {
        with_path(settings, tool, "/users/ada/work/src.rs")
    }

    /// The decision about a tool that writes to `path`.
    fn with_path(settings: &Settings, tool: &str, path: &str) -> Permission {
        let input = json!({"file_path": path});
        let plan_folder = Some(Path::new(PLANS));
        permit(settings, ToolRequest { tool, input: &input, plan_folder })
    }

    fn settings(mode: Mode, cli: &str) -> Settings {
        let permissions = Permissions { mode, ..Permissions::default() };
        let extra = [(MODE.to_owned(), Value::from(cli))].into();
        Settings { permissions, extra, ..Settings::default() }
    }

    #[test]
    fn plan_mode_never_writes_and_a_person_hands_the_plan_in() {
        for mode in [Mode::Auto, Mode::Approval] {
            let plan = settings(mode, "plan");
            for tool in ["Write", "Bash", "Edit", "mcp__files__remove", "SomethingNew"] {
                assert!(matches!(decided(&plan, tool), Permission::Deny(_)), "{tool}");
            }
            assert!(matches!(decided(&plan, "ExitPlanMode"), Permission::Ask(_)));
        }
    }

    #[test]
    fn plan_mode_writes_its_plan_and_nothing_beside_it() {
        for plan in [settings(Mode::Approval, "plan"), settings(Mode::Readonly, "plan")] {
            for tool in ["Write", "Edit", "MultiEdit"] {
                let plan_file = format!("{PLANS}/a-fine-plan.md");
                assert_eq!(with_path(&plan, tool, &plan_file), Permission::Allow, "{tool}");
                for path in [
                    "/users/ada/work/plans/a.md",
                    "/users/ada/.claude/plans/a.sh",
                    "/users/ada/.claude/plans/deeper/a.md",
                    "/users/ada/.claude/plans/../settings.md",
                    "/users/ada/.claude/plans/..",
                    ".claude/plans/a.md",
                    "",
                ] {
                    let denied = with_path(&plan, tool, path);
                    assert!(matches!(denied, Permission::Deny(_)), "{tool} {path}");
                }
            }
            let run = with_path(&plan, "Bash", &format!("{PLANS}/a.md"));
            assert!(matches!(run, Permission::Deny(_)), "only what writes files writes a plan");
        }
        let input = json!({"file_path": "a.md"});
        let request = ToolRequest { tool: "Write", input: &input, plan_folder: None };
        let denied = permit(&settings(Mode::Approval, "plan"), request);
        assert!(matches!(denied, Permission::Deny(_)), "a folder nobody knows has no plans");
    }

    #[test]
    fn settings_follow_every_mode_the_cli_may_be_in() {
        for from in [Mode::Approval, Mode::Readonly, Mode::Auto] {
            for before in MODES {
                for after in MODES {
                    let set = in_mode(&settings(from, before), after).unwrap();
                    assert_eq!(mode(&set), *after, "{from:?} {before}");
                    assert_eq!(
                        *after == "plan",
                        set.permissions.mode == Mode::Readonly,
                        "{from:?} {before} {after}: only a plan is read only"
                    );
                }
            }
        }
        assert_eq!(in_mode(&Settings::default(), "telepathy"), None);
    }

    #[test]
    fn the_mode_without_questions_asks_no_question() {
        let mut silent = settings(Mode::Approval, "dontAsk");
        for tool in ["Write", "Bash", "WebFetch", "ExitPlanMode", "AskUserQuestion"] {
            assert!(matches!(decided(&silent, tool), Permission::Deny(_)), "{tool}");
        }
        silent.permissions.allow = vec!["Bash".into()];
        assert_eq!(decided(&silent, "Bash"), Permission::Allow, "somebody said so before");
    }

    #[test]
    fn in_the_mode_that_accepts_edits_what_the_cli_still_asks_is_asked() {
        let edits = settings(Mode::Approval, "acceptEdits");
        for tool in ["Write", "Bash", "mcp__files__remove"] {
            assert!(matches!(decided(&edits, tool), Permission::Ask(_)), "{tool}");
        }
    }

    #[test]
    fn a_permission_request_of_the_cli_becomes_a_question_unless_a_rule_allows_it() {
        let mut asks = settings(Mode::Approval, "default");
        assert!(matches!(decided(&asks, "Bash"), Permission::Ask(_)));
        assert!(matches!(decided(&asks, "WebFetch"), Permission::Ask(_)));
        asks.permissions.allow = vec!["WebFetch".into(), "Bash".into()];
        assert_eq!(decided(&asks, "WebFetch"), Permission::Allow);
        assert_eq!(decided(&asks, "Bash"), Permission::Allow);
        assert_eq!(decided(&settings(Mode::Auto, "default"), "Bash"), Permission::Allow);
        let auto = settings(Mode::Auto, "default");
        assert!(matches!(decided(&auto, "AskUserQuestion"), Permission::Ask(_)));
        assert!(matches!(
            decided(&settings(Mode::Readonly, "default"), "Bash"),
            Permission::Deny(_)
        ));
    }

    #[test]
    fn every_reason_has_a_chinese_text() {
        for (settings, tool) in [
            (settings(Mode::Approval, "plan"), "Bash"),
            (settings(Mode::Approval, "dontAsk"), "Bash"),
            (settings(Mode::Approval, "default"), "Read"),
        ] {
            let (Permission::Ask(reason) | Permission::Deny(reason)) = decided(&settings, tool)
            else {
                panic!("{tool} is asked about or denied");
            };
            let translated = budao_core::fault::text::reason(reason, budao_core::Lang::Zh);
            assert_ne!(translated, reason);
            let with_path = format!("{reason}: /etc/passwd");
            let translated_with_path =
                budao_core::fault::text::reason(&with_path, budao_core::Lang::Zh);
            assert_eq!(translated_with_path, format!("{translated}：/etc/passwd"));
        }
    }

    #[test]
    fn the_cli_gets_rules_for_the_tools_that_it_would_not_ask_about() {
        let readonly = rules(&settings(Mode::Readonly, "default")).unwrap();
        assert!(readonly["permissions"]["deny"].as_array().unwrap().contains(&"Bash".into()));
        assert_eq!(rules(&settings(Mode::Approval, "default")), None);
        // A tool that changes files writes the plan: the CLI must ask about it and not deny it by itself.
        for plan in [settings(Mode::Readonly, "plan"), settings(Mode::Approval, "plan")] {
            let rules = rules(&plan).unwrap();
            assert_eq!(rules["permissions"]["deny"], json!([]));
            assert!(rules["permissions"]["ask"].as_array().unwrap().contains(&"Write".into()));
        }
    }
}

//! Who may use which tool of the CLI: the session's permissions, and the CLI's modes taken at their word.
//!
//! The CLI enforces plan mode only by asking; a host that says yes gets the file written. So we say no.

use budao_core::{
    event::Settings,
    tool::{Effect, Mode, Permissions, Permit, Source, ToolSpec},
};
use serde_json::Value;

use crate::DEFAULT_MODEL;

/// The key of the CLI's mode in a session's extra settings.
pub const MODE: &str = "claude.mode";
/// The key of further directories the CLI may work in, a list.
pub const DIRECTORIES: &str = "claude.directories";

/// The modes of the CLI that a session may be set to.
pub const MODES: &[&str] = &["default", "acceptEdits", "plan", "dontAsk", "bypassPermissions"];

/// Tools that change or run something; all others of the CLI's own only look.
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

/// The tool by which a plan is handed in. Saying yes to it ends plan mode, so a person always says it.
const HAND_IN_PLAN: &str = "ExitPlanMode";
/// The tool by which the model asks the person something.
const ASK_PERSON: &str = "AskUserQuestion";

/// A text among a session's extra settings.
pub(crate) fn extra<'a>(settings: &'a Settings, key: &str) -> Option<&'a str> {
    settings.extra.get(key).and_then(Value::as_str)
}

/// The CLI's mode for these settings: the one that is set, or the one that fits what tools may do.
pub(crate) fn mode(settings: &Settings) -> &str {
    extra(settings, MODE).unwrap_or(match settings.permissions.mode {
        Mode::Readonly => "plan",
        Mode::Auto | Mode::Approval => "default",
    })
}

/// The model the CLI is told, unless it is to choose itself.
pub(crate) fn model(settings: &Settings) -> Option<&str> {
    Some(settings.model.as_str()).filter(|model| !model.is_empty() && *model != DEFAULT_MODEL)
}

/// How hard the CLI's model is to think, in the CLI's word.
pub(crate) fn effort(settings: &Settings) -> Option<&'static str> {
    settings.thinking.map(Into::into)
}

/// What a tool of the CLI's does. One we do not know does the worst.
fn effect(tool: &str) -> Effect {
    if READS.contains(&tool) {
        Effect::Reads
    } else if WRITES.contains(&tool) {
        Effect::Writes
    } else {
        Effect::Executes
    }
}

/// The CLI asks whether a tool may be used: what do the settings say?
pub(crate) fn permit(settings: &Settings, tool: &str) -> Permit {
    if mode(settings) == "plan" && tool != HAND_IN_PLAN && effect(tool) != Effect::Reads {
        return Permit::Deny("the mode is `plan`: nothing is changed or run");
    }
    if mode(settings) == "dontAsk" && !is_free(&settings.permissions, tool) {
        return Permit::Deny("the mode is `dontAsk`: nobody is asked");
    }
    let asks_person = tool == HAND_IN_PLAN || tool == ASK_PERSON;
    match settings.permissions.permit(&spec(tool, asks_person)) {
        // The CLI asks only about what its own rules do not allow, so reading alone is no reason.
        Permit::Allow if is_free(&settings.permissions, tool) && !asks_person => Permit::Allow,
        Permit::Allow => Permit::Ask("the program asks before it does this"),
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
        source: Source::Registered,
    }
}

/// Rules the CLI must know itself, because it does not ask about everything.
pub(crate) fn rules(settings: &Settings) -> Option<Value> {
    let permissions = &settings.permissions;
    let mut deny = permissions.deny.clone();
    if permissions.mode == Mode::Readonly {
        deny.extend(WRITES.iter().chain(EXECUTES).map(ToString::to_string));
    }
    if deny.is_empty() && permissions.ask.is_empty() {
        return None;
    }
    Some(serde_json::json!({"permissions": {"deny": deny, "ask": permissions.ask}}))
}

#[cfg(test)]
mod tests {
    use super::*;

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
                assert!(matches!(permit(&plan, tool), Permit::Deny(_)), "{tool}");
            }
            assert!(matches!(permit(&plan, "ExitPlanMode"), Permit::Ask(_)));
        }
    }

    #[test]
    fn in_the_mode_that_does_not_ask_nobody_is_asked() {
        let mut silent = settings(Mode::Approval, "dontAsk");
        for tool in ["Write", "Bash", "WebFetch", "ExitPlanMode", "AskUserQuestion"] {
            assert!(matches!(permit(&silent, tool), Permit::Deny(_)), "{tool}");
        }
        silent.permissions.allow = vec!["Bash".into()];
        assert_eq!(permit(&silent, "Bash"), Permit::Allow, "somebody said so before");
    }

    #[test]
    fn in_the_mode_that_accepts_edits_what_the_cli_still_asks_is_asked() {
        let edits = settings(Mode::Approval, "acceptEdits");
        for tool in ["Write", "Bash", "mcp__files__remove"] {
            assert!(matches!(permit(&edits, tool), Permit::Ask(_)), "{tool}");
        }
    }

    #[test]
    fn what_the_cli_asks_about_is_asked_unless_somebody_allowed_it() {
        let mut asks = settings(Mode::Approval, "default");
        assert!(matches!(permit(&asks, "Bash"), Permit::Ask(_)));
        assert!(matches!(permit(&asks, "WebFetch"), Permit::Ask(_)));
        asks.permissions.allow = vec!["WebFetch".into(), "Bash".into()];
        assert_eq!(permit(&asks, "WebFetch"), Permit::Allow);
        assert_eq!(permit(&asks, "Bash"), Permit::Allow);
        assert_eq!(permit(&settings(Mode::Auto, "default"), "Bash"), Permit::Allow);
        let auto = settings(Mode::Auto, "default");
        assert!(matches!(permit(&auto, "AskUserQuestion"), Permit::Ask(_)));
        assert!(matches!(permit(&settings(Mode::Readonly, "default"), "Bash"), Permit::Deny(_)));
    }

    #[test]
    fn every_reason_is_also_told_in_chinese() {
        for (settings, tool) in [
            (settings(Mode::Approval, "plan"), "Bash"),
            (settings(Mode::Approval, "dontAsk"), "Bash"),
            (settings(Mode::Approval, "default"), "Read"),
        ] {
            let (Permit::Ask(reason) | Permit::Deny(reason)) = permit(&settings, tool) else {
                panic!("{tool} is asked about or denied");
            };
            let told = budao_core::fault::text::reason(reason, budao_core::Lang::Zh);
            assert_ne!(told, reason);
            let about = format!("{reason}: /etc/passwd");
            let told_about = budao_core::fault::text::reason(&about, budao_core::Lang::Zh);
            assert_eq!(told_about, format!("{told}：/etc/passwd"));
        }
    }

    #[test]
    fn the_cli_is_told_what_it_would_not_ask_about() {
        let readonly = rules(&settings(Mode::Readonly, "default")).unwrap();
        assert!(readonly["permissions"]["deny"].as_array().unwrap().contains(&"Bash".into()));
        assert_eq!(rules(&settings(Mode::Approval, "default")), None);
    }
}

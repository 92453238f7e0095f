//! The committed catalog is valid, and every possible mistake is reported by row and cell.

use std::fs;

use super::*;

/// The three files of the catalog; a test changes one of them.
struct Files {
    rows: String,
    english: String,
    chinese: String,
}

impl Files {
    fn real() -> Self {
        let read = |path: &str| fs::read_to_string(repo::root().join(path)).unwrap();
        Self { rows: read(ROWS), english: read(ENGLISH), chinese: read(CHINESE) }
    }

    /// The reported problems, without line numbers.
    fn problems(&self) -> Vec<String> {
        match Source::read(&self.rows, &self.english, &self.chinese) {
            Ok(_) => Vec::new(),
            Err(error) => format!("{error:#}").lines().skip(1).map(without_line).collect(),
        }
    }
}

fn without_line(problem: &str) -> String {
    let mut parts: Vec<&str> = problem.splitn(3, ':').collect();
    if parts.len() == 3 && parts[1].parse::<usize>().is_ok() {
        parts.remove(1);
    }
    parts.join(":")
}

/// Replaces `from` inside the part of `text` that begins with `head` and ends before `end`.
fn replace_in(text: &mut String, head: &str, end: &str, from: &str, to: &str) {
    let start = text.find(head).unwrap_or_else(|| panic!("`{head}` is in the catalog"));
    let stop = text[start..].find(end).map_or(text.len(), |length| start + length);
    let part = &text[start..stop];
    assert!(part.contains(from), "`{from}` is not in\n{part}");
    let changed = part.replacen(from, to, 1);
    text.replace_range(start..stop, &changed);
}

/// The problems after one change in one row.
fn with_row(name: &str, from: &str, to: &str) -> Vec<String> {
    let mut files = Files::real();
    replace_in(&mut files.rows, &format!("name = \"{name}\"\n"), "\n[[kind]]", from, to);
    files.problems()
}

/// The problems after one change in one English message.
fn with_text(id: &str, from: &str, to: &str) -> Vec<String> {
    let mut files = Files::real();
    replace_in(&mut files.english, &format!("\n{id} ="), "\n\n", from, to);
    files.problems()
}

#[test]
fn the_catalog_is_in_order() {
    assert_eq!(Files::real().problems(), [""; 0]);
}

#[test]
fn a_missing_cell_is_named() {
    assert_eq!(
        with_row("unknown_tool", "severity = \"warn\"\n", ""),
        ["catalog/faults.toml: row `unknown_tool`, cell `severity`: missing"]
    );
}

#[test]
fn a_missing_cell_is_found_in_its_line() {
    let mut files = Files::real();
    replace_in(&mut files.rows, "name = \"unknown_tool\"\n", "\n[[kind]]", "http = 404\n", "");
    let error = Source::read(&files.rows, &files.english, &files.chinese).unwrap_err().to_string();
    let row = files.rows.lines().position(|line| line == "name = \"unknown_tool\"").unwrap();
    assert!(error.contains(&format!("catalog/faults.toml:{row}: row `unknown_tool`")), "{error}");
}

#[test]
fn an_unknown_column_is_named() {
    assert_eq!(
        with_row("unknown_tool", "http = 404", "http = 404\nhttps = 404"),
        ["catalog/faults.toml: row `unknown_tool`, cell `https`: no such column"]
    );
}

#[test]
fn a_cell_of_the_wrong_type_is_named() {
    assert_eq!(
        with_row("unknown_tool", "http = 404", "http = \"404\""),
        ["catalog/faults.toml: row `unknown_tool`, cell `http`: must be a whole number in range"]
    );
}

#[test]
fn a_word_outside_the_vocabulary_is_named() {
    assert_eq!(
        with_row("unknown_tool", "remedy = \"model\"", "remedy = \"nobody\""),
        [
            "catalog/faults.toml: row `unknown_tool`, cell `remedy`: `nobody` is not one of runtime, \
          model, user, operator"
        ]
    );
}

#[test]
fn a_code_stands_once() {
    let problems = with_row("tool_disabled", "ERR_TOOL_002", "ERR_TOOL_001");
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(
        problems[0].starts_with(
            "catalog/faults.toml: row `tool_disabled`, cell `code`: `ERR_TOOL_001` already stands"
        ),
        "{problems:?}"
    );
}

#[test]
fn a_code_has_its_form_and_its_area() {
    assert_eq!(
        with_row("tool_disabled", "ERR_TOOL_002", "TOOL2"),
        ["catalog/faults.toml: row `tool_disabled`, cell `code`: `TOOL2` is not of the form \
          ERR_<AREA>_<nnn>"]
    );
    assert_eq!(
        with_row("tool_disabled", "ERR_TOOL_002", "ERR_TOOLS_002"),
        ["catalog/faults.toml: row `tool_disabled`, cell `code`: `TOOLS` is not one of the areas"]
    );
}

#[test]
fn a_name_stands_once() {
    let mut files = Files::real();
    let row = "name = \"tool_disabled\"\n";
    replace_in(&mut files.rows, row, "\n[[kind]]", "tool_disabled", "unknown_tool");
    let problems = files.problems();
    assert!(
        problems[0].starts_with(
            "catalog/faults.toml: row `unknown_tool`, cell `name`: `unknown_tool` already stands"
        ),
        "{problems:?}"
    );
}

#[test]
fn a_number_needs_a_home() {
    assert_eq!(
        with_row("room_full", "smcp_home = true", "smcp_home = false"),
        ["catalog/faults.toml: SMCP 4101 has no home: one row with `smcp = 4101` needs \
          `smcp_home = true`"]
    );
}

#[test]
fn a_number_has_one_home() {
    assert_eq!(
        with_row("skill_not_found", "smcp_home = false", "smcp_home = true"),
        [
            "catalog/faults.toml: row `skill_not_found`, cell `smcp_home`: SMCP 4014 already has its \
          home in row `mcp_server_not_found`"
        ]
    );
}

#[test]
fn a_number_exists() {
    assert_eq!(
        with_row("bug", "json_rpc = -32603", "json_rpc = 32603"),
        ["catalog/faults.toml: row `bug`, cell `json_rpc`: must be negative"]
    );
    assert_eq!(
        with_row("file_changed", "smcp = 4003", "smcp = 4999"),
        ["catalog/faults.toml: row `file_changed`, cell `smcp`: SMCP has no 4999"]
    );
}

#[test]
fn a_fact_is_known() {
    assert_eq!(
        with_row("file_changed", "context = [", "context = [\"colour\", "),
        ["catalog/faults.toml: row `file_changed`, cell `context`: unknown fact `colour`"]
    );
}

#[test]
fn what_is_always_there_is_a_fact_of_the_row() {
    assert_eq!(
        with_row("file_changed", "always = [", "always = [\"host\", "),
        ["catalog/faults.toml: row `file_changed`, cell `always`: `host` is not among its facts"]
    );
}

#[test]
fn a_fact_has_a_known_type() {
    let mut files = Files::real();
    replace_in(&mut files.rows, "\nline = {", "\n}", "\"number\"", "\"colour\"");
    assert_eq!(
        files.problems()[0],
        "catalog/faults.toml: fact `line`, cell `type`: `colour` is not one of text, number, list, \
         json"
    );
}

#[test]
fn only_the_runtime_repeats_by_itself() {
    assert_eq!(
        with_row("tool_failed", "auto_retry = false", "auto_retry = true"),
        ["catalog/faults.toml: row `tool_failed`, cell `auto_retry`: true, but the next move is \
          `model`'s"]
    );
}

#[test]
fn validation_and_aborted_are_never_retryable() {
    assert_eq!(
        with_row("deadline_passed", "retryable = false", "retryable = true"),
        ["catalog/faults.toml: row `deadline_passed`, cell `retryable`: never true for `aborted`"]
    );
    assert_eq!(
        with_row("deadline_passed", "\"retry_changed\"", "\"retry_same\""),
        [
            "catalog/faults.toml: row `deadline_passed`, cell `next`: `retry_same`, but not retryable"
        ]
    );
}

#[test]
fn an_unknown_placeholder_is_named() {
    assert_eq!(
        with_text("file-changed", "{ $path } was changed", "{ $pth } was changed"),
        ["catalog/en.ftl: row `file_changed`, `.user`: unknown placeholder `$pth`"]
    );
}

#[test]
fn a_placeholder_is_a_fact_of_the_row() {
    assert_eq!(
        with_text("file-changed", "{ $path } was changed", "{ $host } was changed"),
        [
            "catalog/en.ftl: row `file_changed`, `.user`: uses `$host`, which is not among the row's \
          `facts`"
        ]
    );
}

#[test]
fn a_fact_that_may_be_absent_is_not_used_bare() {
    let bare = "catalog/en.ftl: row `edit_no_match`, `.user`: uses `$line` bare; add a `[none]` \
                variant, or add it to the row's `always`";
    assert_eq!(with_text("edit-no-match", "A change to", "In line { $line } a change to"), [bare]);
}

#[test]
fn the_word_none_is_never_shown() {
    let problems = with_text("edit-no-match", "[none] The text", "[none] { $line } The text");
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(problems[0].contains("`.model`: uses `$line` bare"), "{problems:?}");
}

#[test]
fn a_choice_fits_the_type_of_its_fact() {
    assert_eq!(
        with_text("exit-status", "[none]", "[one]"),
        ["catalog/en.ftl: row `exit_status`, `.model`: `$stderr_tail` is of type text, so it cannot \
          choose `[one]`"]
        .into_iter()
        .chain(["catalog/en.ftl: row `exit_status`, `.model`: uses `$stderr_tail` bare; add a \
                 `[none]` variant, or add it to the row's `always`"; 2])
        .collect::<Vec<_>>()
    );
    let problems = with_text("failures-exhausted", "[one] The turn", "[single] The turn");
    assert_eq!(
        problems,
        ["catalog/en.ftl: row `failures_exhausted`, `.model`: `$times` is of type number, so it \
          cannot choose `[single]`"]
    );
}

#[test]
fn a_missing_attribute_is_named() {
    assert_eq!(
        with_text("unknown-tool", "    .check =", "    .checks ="),
        [
            "catalog/en.ftl: row `unknown_tool`, `.check`: missing",
            "catalog/en.ftl: row `unknown_tool`, `.checks`: no such attribute",
        ]
    );
}

#[test]
fn recommendations_are_counted() {
    assert_eq!(
        with_row("unknown_tool", "recommendations = 2", "recommendations = 3"),
        [
            "catalog/en.ftl: row `unknown_tool`, `.rec-3`: missing",
            "catalog/zh.ftl: row `unknown_tool`, `.rec-3`: missing",
        ]
    );
    let too_many = "one too many; the row says `recommendations = 1`";
    assert_eq!(
        with_row("unknown_tool", "recommendations = 2", "recommendations = 1"),
        [
            format!("catalog/en.ftl: row `unknown_tool`, `.rec-2`: {too_many}"),
            format!("catalog/zh.ftl: row `unknown_tool`, `.rec-2`: {too_many}"),
        ]
    );
}

#[test]
fn advice_for_the_model_is_counted() {
    assert_eq!(
        with_row("unknown_tool", "model_advice = 2", "model_advice = 3"),
        [
            "catalog/en.ftl: row `unknown_tool`, `.next-3`: missing",
            "catalog/zh.ftl: row `unknown_tool`, `.next-3`: missing",
        ]
    );
    let too_many = "one too many; the row says `model_advice = 1`";
    assert_eq!(
        with_row("unknown_tool", "model_advice = 2", "model_advice = 1"),
        [
            format!("catalog/en.ftl: row `unknown_tool`, `.next-2`: {too_many}"),
            format!("catalog/zh.ftl: row `unknown_tool`, `.next-2`: {too_many}"),
        ]
    );
    assert_eq!(
        with_row("unknown_tool", "model_advice = 2\n", ""),
        [
            "catalog/faults.toml: row `unknown_tool`, cell `model_advice`: missing",
            "catalog/en.ftl: row `unknown_tool`, `.next-1`: one too many; the row says `model_advice = 0`",
            "catalog/en.ftl: row `unknown_tool`, `.next-2`: one too many; the row says `model_advice = 0`",
            "catalog/zh.ftl: row `unknown_tool`, `.next-1`: one too many; the row says `model_advice = 0`",
            "catalog/zh.ftl: row `unknown_tool`, `.next-2`: one too many; the row says `model_advice = 0`",
        ]
    );
}

#[test]
fn a_list_of_advice_is_short() {
    let problems = with_row("unknown_tool", "model_advice = 2", "model_advice = 4");
    let first = "catalog/faults.toml: row `unknown_tool`, cell `model_advice`: must be at most 3";
    assert_eq!(problems[0], first);
}

/// The catalog with one English line of `cancelled` for both audiences.
fn with_shared_line() -> Files {
    let mut files = Files::real();
    let (line, shared) =
        ("Wait for the user's next message", "Send a message when you want to go on");
    replace_in(&mut files.english, "\ncancelled =", "\n\n", line, shared);
    files
}

#[test]
fn two_audiences_share_a_line_only_with_the_flag_of_the_row() {
    let mut files = with_shared_line();
    assert_eq!(
        files.problems(),
        [
            "catalog/en.ftl: row `cancelled`, `.next-1`: the same line as `.rec-1`; write one for each \
          audience, or set `same_advice = true`"
        ]
    );
    let (from, to) = ("same_advice = false", "same_advice = true");
    replace_in(&mut files.rows, "name = \"cancelled\"\n", "\n[[kind]]", from, to);
    assert_eq!(files.problems(), [""; 0]);
}

#[test]
fn a_row_with_the_flag_has_a_shared_line() {
    assert_eq!(
        with_row("cancelled", "same_advice = false", "same_advice = true"),
        ["catalog/faults.toml: row `cancelled`, cell `same_advice`: true, but `.rec` and `.next` \
          share no line"]
    );
}

#[test]
fn a_missing_message_is_named() {
    let mut files = Files::real();
    files.chinese = files.chinese.replace("\nunknown-tool =", "\nunknown-tol =");
    assert_eq!(
        files.problems(),
        [
            "catalog/zh.ftl: row `unknown_tool`: no message `unknown-tool`",
            "catalog/zh.ftl: message `unknown-tol`: belongs to no row and to nothing else",
        ]
    );
}

#[test]
fn a_line_exists_in_both_languages_with_the_same_arguments() {
    let mut files = Files::real();
    files.english.push_str("\nadvice-look = Look at { $path }\n");
    assert_eq!(
        files.problems(),
        ["catalog/en.ftl: message `advice-look`: missing in catalog/zh.ftl"]
    );
    files.chinese.push_str("\nadvice-look = 看看 { $host }\n");
    assert_eq!(
        files.problems(),
        ["catalog/zh.ftl: message `advice-look`: uses {\"host\"}, the English one {\"path\"}"]
    );
    files.chinese = files.chinese.replace("\nadvice-look = 看看 { $host }", "");
    files.chinese.push_str("\nadvice-look = 看看 { $path }\n");
    assert_eq!(files.problems(), [""; 0]);
}

#[test]
fn an_operation_needs_its_phrase() {
    let mut files = Files::real();
    files.english = files.english.replace("\nop-tool-call = call the tool", "");
    assert_eq!(files.problems(), ["catalog/en.ftl: no message `op-tool-call`"]);
}

#[test]
fn broken_fluent_is_found_in_its_line() {
    let mut files = Files::real();
    files.english.push_str("\nadvice-broken = { $path\n");
    assert!(
        files.problems()[0].starts_with("catalog/en.ftl: not Fluent"),
        "{:?}",
        files.problems()
    );
}

#[test]
fn names_change_their_dress() {
    assert_eq!(camel("invalid_utf8"), "InvalidUtf8");
    assert_eq!(kebab("retry_after_too_long"), "retry-after-too-long");
}

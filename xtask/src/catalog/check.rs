//! Checks of the rows and of the texts. Each finding names the row and the cell, or the message and the attribute.

use std::collections::{BTreeMap, BTreeSet};

use fluent_syntax::ast::Pattern;

use super::rows::{Catalog, Kind};
use super::texts::{ArgumentUse, Message, Texts, uses};
use super::{ROWS, kebab};

/// The allowed words of a cell, by column. Each is a variant of the enum in `core::fault::row`.
const VOCABULARY: &[(&str, &[&str])] = &[
    ("error_type", &["validation", "runtime", "logical", "aborted", "exception"]),
    ("category", &["validation", "transient", "resource", "permanent", "connection"]),
    ("remedy", &["runtime", "model", "user", "operator"]),
    ("next", &["retry_same", "retry_changed", "stop"]),
    ("severity", &["info", "warn", "error", "critical"]),
    (
        "strategy",
        &[
            "retry",
            "fallback",
            "escalate",
            "terminate",
            "escalate_to_user",
            "exponential_backoff",
            "reconnect_with_state",
            "retry_with_exponential_backoff",
            "create_new_session",
        ],
    ),
    (
        "event",
        &[
            "error.validation",
            "error.timeout",
            "error.rate_limited",
            "error.connection_lost",
            "error.execution",
            "error.recovery_failed",
        ],
    ),
    (
        "editor",
        &[
            "tool_call_failed",
            "turn_goes_on",
            "cancelled",
            "refusal",
            "max_tokens",
            "max_turn_requests",
            "error",
        ],
    ),
];

/// All error numbers of A2C-SMCP, in the draft and in the current version.
const SMCP: &[u16] = &[
    400, 401, 403, 404, 408, 500, 4001, 4002, 4003, 4004, 4005, 4006, 4007, 4008, 4014, 4015, 4016,
    4017, 4018, 4019, 4101, 4102, 4103, 4104, 4201, 4202, 4203, 4204,
];

const SHAPES: &[&str] = &["text", "number", "list", "json"];

/// The attributes of every kind's message, besides its two lists of advice.
const ATTRIBUTES: &[&str] = &["title", "model", "user", "about", "check"];

/// Columns that an explain page shows in words; each word needs a phrase such as `word-remedy-model`.
const SPOKEN: &[&str] =
    &["error_type", "category", "remedy", "next", "severity", "strategy", "editor"];

/// Labels on an explain page.
const LABELS: &[&str] = &[
    "code",
    "name",
    "error-type",
    "category",
    "remedy",
    "next",
    "retry",
    "retryable",
    "recoverable",
    "auto-retry",
    "severity",
    "strategy",
    "event",
    "editor",
    "facts",
    "about",
    "model",
    "user",
    "operator",
    "recommendations",
    "model-advice",
    "numbers",
    "yes",
    "no",
];

/// Other lines, each with its arguments.
const LINES: &[(&str, &[&str])] = &[
    ("retry-scheduled", &["attempt", "max_attempts", "seconds"]),
    ("model-changed", &["reason", "from", "to"]),
    ("recovered", &["attempt"]),
    ("gave-up", &["attempt"]),
    ("reason-ask-list", &[]),
    ("reason-deny-list", &[]),
    ("reason-confirm", &[]),
    ("reason-approval", &[]),
    ("reason-readonly", &[]),
    ("reason-spending-cap", &[]),
    ("reason-plan", &[]),
    ("reason-program", &[]),
    ("reason-mode-plan", &[]),
    ("reason-mode-dont-ask", &[]),
    ("reason-room-role", &[]),
    ("reason-room-name-fixed", &[]),
    ("reason-room-second", &[]),
    ("reason-room-name-taken", &[]),
    ("reason-room-agent-only", &[]),
    ("reason-room-own-name", &[]),
    ("reason-token-role", &[]),
    ("reason-token-rooms", &[]),
    ("reason-token-missing", &[]),
    ("reason-token-wrong", &[]),
    ("reason-tool-changed", &[]),
    ("reason-tool-changed-by-server", &[]),
    ("reason-call-claimed", &[]),
    ("reason-call-cancelled", &[]),
    ("reason-call-not-claimed", &[]),
    ("reason-call-has-result", &[]),
    ("reason-call-over", &[]),
    ("reason-call-other-attempt", &[]),
    ("reason-call-not-offered", &[]),
];

/// The most lines in one list of advice.
const ADVICE_LINES_MAX: usize = 3;

/// The names of plural forms in Fluent.
const PLURALS: &[&str] = &["zero", "one", "two", "few", "many", "other"];

pub(super) fn rows(catalog: &Catalog, problems: &mut Vec<String>) {
    for fact in &catalog.facts {
        let place = format!("{ROWS}: fact `{}`", fact.name);
        if !is_snake(&fact.name) {
            problems.push(format!("{place}: must be written in snake_case"));
        }
        if !fact.shape.is_empty() && !SHAPES.contains(&fact.shape.as_str()) {
            problems.push(format!("{place}, cell `type`: {}", not_one_of(&fact.shape, SHAPES)));
        }
    }
    for operation in catalog.operations.iter().filter(|operation| !is_snake(&operation.name)) {
        let name = &operation.name;
        problems.push(format!("{ROWS}: operation `{name}`: must be written in snake_case"));
    }
    for kind in &catalog.kinds {
        words(kind, problems);
        code(catalog, kind, problems);
        numbers(kind, problems);
        flags(kind, problems);
        facts(catalog, kind, problems);
    }
    only_once(catalog, "name", |kind| &kind.name, problems);
    only_once(catalog, "code", |kind| &kind.code, problems);
    homes(catalog, problems);
}

fn words(kind: &Kind, problems: &mut Vec<String>) {
    let cells = [
        &kind.error_type,
        &kind.category,
        &kind.remedy,
        &kind.next,
        &kind.severity,
        &kind.strategy,
        &kind.event,
        &kind.editor,
    ];
    for ((column, allowed), word) in VOCABULARY.iter().zip(cells) {
        // An empty word is already reported as a missing cell.
        if !word.is_empty() && !allowed.contains(&word.as_str()) {
            problems.push(format!("{}: {}", kind.place(column), not_one_of(word, allowed)));
        }
    }
    if !kind.name.is_empty() && !is_snake(&kind.name) {
        problems.push(format!("{}: must be written in snake_case", kind.place("name")));
    }
    let is_camel = kind.type_name.starts_with(|letter: char| letter.is_ascii_uppercase())
        && kind.type_name.chars().all(|letter| letter.is_ascii_alphanumeric());
    if !kind.type_name.is_empty() && !is_camel {
        problems.push(format!("{}: must be written in CamelCase", kind.place("type_name")));
    }
}

fn code(catalog: &Catalog, kind: &Kind, problems: &mut Vec<String>) {
    if kind.code.is_empty() {
        return;
    }
    let parts: Vec<&str> = kind.code.split('_').collect();
    let is_well_formed = matches!(parts[..], ["ERR", _, number]
        if number.len() == 3 && number.chars().all(|digit| digit.is_ascii_digit()));
    if !is_well_formed {
        let place = kind.place("code");
        problems.push(format!("{place}: `{}` is not of the form ERR_<AREA>_<nnn>", kind.code));
    } else if !catalog.areas.iter().any(|area| area == kind.area()) {
        let place = kind.place("code");
        problems.push(format!("{place}: `{}` is not one of the areas", kind.area()));
    }
}

fn numbers(kind: &Kind, problems: &mut Vec<String>) {
    if kind.smcp != 0 && !SMCP.contains(&kind.smcp) {
        problems.push(format!("{}: SMCP has no {}", kind.place("smcp"), kind.smcp));
    }
    if kind.http != 0 && !(400..600).contains(&kind.http) {
        problems.push(format!("{}: {} is no error status", kind.place("http"), kind.http));
    }
    if kind.json_rpc > 0 {
        problems.push(format!("{}: must be negative", kind.place("json_rpc")));
    }
    if kind.recommendations == 0 {
        problems.push(format!("{}: must be at least 1", kind.place("recommendations")));
    }
    for (cell, count) in
        [("recommendations", kind.recommendations), ("model_advice", kind.model_advice)]
    {
        if count > ADVICE_LINES_MAX {
            problems.push(format!("{}: must be at most {ADVICE_LINES_MAX}", kind.place(cell)));
        }
    }
}

fn flags(kind: &Kind, problems: &mut Vec<String>) {
    if kind.auto_retry && kind.remedy != "runtime" {
        let place = kind.place("auto_retry");
        problems.push(format!("{place}: true, but the next move is `{}`'s", kind.remedy));
    }
    if kind.retryable && matches!(kind.error_type.as_str(), "validation" | "aborted") {
        let place = kind.place("retryable");
        problems.push(format!("{place}: never true for `{}`", kind.error_type));
    }
    if kind.next == "retry_same" && !kind.retryable {
        problems.push(format!("{}: `retry_same`, but not retryable", kind.place("next")));
    }
}

fn facts(catalog: &Catalog, kind: &Kind, problems: &mut Vec<String>) {
    for (cell, names) in
        [("context", &kind.context), ("always", &kind.always), ("facts", &kind.facts)]
    {
        for (index, name) in names.iter().enumerate() {
            if catalog.fact(name).is_none() {
                problems.push(format!("{}: unknown fact `{name}`", kind.place(cell)));
            }
            if names[..index].contains(name) {
                problems.push(format!("{}: `{name}` is written twice", kind.place(cell)));
            }
        }
    }
    for name in kind.always.iter().filter(|name| !kind.facts.contains(name)) {
        problems.push(format!("{}: `{name}` is not among its facts", kind.place("always")));
    }
}

fn only_once(
    catalog: &Catalog,
    cell: &str,
    value: impl Fn(&Kind) -> &String,
    problems: &mut Vec<String>,
) {
    let mut first: BTreeMap<&str, &Kind> = BTreeMap::new();
    for kind in catalog.kinds.iter().filter(|kind| !value(kind).is_empty()) {
        if let Some(other) = first.insert(value(kind), kind) {
            let (place, value) = (kind.place(cell), value(kind));
            problems.push(format!("{place}: `{value}` already stands in line {}", other.line));
        }
    }
}

/// Checks that every SMCP number has exactly one row with `smcp_home`.
fn homes(catalog: &Catalog, problems: &mut Vec<String>) {
    for number in SMCP {
        let at_home: Vec<&Kind> =
            catalog.kinds.iter().filter(|kind| kind.smcp == *number && kind.smcp_home).collect();
        match at_home[..] {
            [_] => {}
            [] => problems.push(format!(
                "{ROWS}: SMCP {number} has no home: one row with `smcp = {number}` needs `smcp_home = true`"
            )),
            [first, second, ..] => problems.push(format!(
                "{}: SMCP {number} already has its home in row `{}`",
                second.place("smcp_home"),
                first.name
            )),
        }
    }
}

pub(super) fn texts(catalog: &Catalog, texts: &Texts, problems: &mut Vec<String>) {
    for kind in catalog.kinds.iter().filter(|kind| !kind.name.is_empty()) {
        match texts.messages.get(&kebab(&kind.name)) {
            Some(message) => kind_message(catalog, kind, texts, message, problems),
            None => problems.push(format!(
                "{}: row `{}`: no message `{}`",
                texts.file,
                kind.name,
                kebab(&kind.name)
            )),
        }
    }
    let lines = expected_lines(catalog);
    for id in lines.keys().filter(|id| !texts.messages.contains_key(id.as_str())) {
        problems.push(format!("{}: no message `{id}`", texts.file));
    }
    let kinds: BTreeSet<String> = catalog.kinds.iter().map(|kind| kebab(&kind.name)).collect();
    for (id, message) in &texts.messages {
        if kinds.contains(id) {
            continue;
        }
        let place = format!("{}:{}: message `{id}`", texts.file, message.line);
        match lines.get(id) {
            Some(arguments) => line(&place, message, arguments, problems),
            // `core::fault::text` has the list of them.
            None if id.starts_with("expected-") => line(&place, message, &[], problems),
            None if id.starts_with("advice-") => advice(catalog, &place, message, problems),
            None => problems.push(format!("{place}: belongs to no row and to nothing else")),
        }
    }
}

/// All messages that belong to no kind, each with its arguments.
fn expected_lines(catalog: &Catalog) -> BTreeMap<String, &'static [&'static str]> {
    let mut lines: BTreeMap<String, &'static [&'static str]> = BTreeMap::new();
    for operation in &catalog.operations {
        lines.insert(format!("op-{}", kebab(&operation.name)), &[]);
    }
    for area in &catalog.areas {
        lines.insert(format!("area-{}", area.to_lowercase()), &[]);
    }
    for (column, words) in VOCABULARY.iter().filter(|(column, _)| SPOKEN.contains(column)) {
        for word in *words {
            lines.insert(kebab(&format!("word-{column}-{word}")), &[]);
        }
    }
    for fact in catalog.kinds.iter().flat_map(|kind| &kind.always) {
        lines.insert(format!("absent-{}", kebab(fact)), &[]);
    }
    for label in LABELS {
        lines.insert(format!("label-{label}"), &[]);
    }
    for (id, arguments) in LINES {
        lines.insert((*id).to_owned(), arguments);
    }
    lines
}

fn kind_message(
    catalog: &Catalog,
    kind: &Kind,
    texts: &Texts,
    message: &Message,
    problems: &mut Vec<String>,
) {
    let place = format!("{}:{}: row `{}`", texts.file, message.line, kind.name);
    if message.value.is_some() {
        problems.push(format!("{place}: its message has attributes only, no text of its own"));
    }
    let mut expected: Vec<String> = ATTRIBUTES.iter().map(|name| (*name).to_owned()).collect();
    expected.extend((1..=kind.recommendations).map(|number| format!("rec-{number}")));
    expected.extend((1..=kind.model_advice).map(|number| format!("next-{number}")));
    for name in expected.iter().filter(|name| !message.attributes.contains_key(*name)) {
        problems.push(format!("{place}, `.{name}`: missing"));
    }
    for (name, pattern) in &message.attributes {
        let place = format!("{place}, `.{name}`");
        if !expected.contains(name) {
            problems.push(unexpected(kind, &place, name));
        }
        for used in arguments(&place, pattern, problems) {
            if let Some(fact) = shape(catalog, &place, &used, problems) {
                presence(kind, &fact, &place, &used, problems);
            }
        }
    }
}

fn unexpected(kind: &Kind, place: &str, name: &str) -> String {
    let (column, count) = match name.split_once('-') {
        Some(("rec", _)) => ("recommendations", kind.recommendations),
        Some(("next", _)) => ("model_advice", kind.model_advice),
        _ => return format!("{place}: no such attribute"),
    };
    format!("{place}: one too many; the row says `{column} = {count}`")
}

/// Checks that people and the model get different lines, unless the row says that they share one.
fn audiences(kind: &Kind, texts: &[&Texts], problems: &mut Vec<String>) {
    let mut is_shared = false;
    for texts in texts {
        let Some(message) = texts.messages.get(&kebab(&kind.name)) else { continue };
        let lines = |list: &'static str| {
            message.attributes.iter().filter(move |(name, _)| name.starts_with(list))
        };
        for (ours, line) in lines("next-") {
            let Some((theirs, _)) = lines("rec-").find(|(_, other)| *other == line) else {
                continue;
            };
            is_shared = true;
            if !kind.same_advice {
                let place = format!("{}:{}: row `{}`", texts.file, message.line, kind.name);
                problems.push(format!(
                    "{place}, `.{ours}`: the same line as `.{theirs}`; write one for each audience, \
                     or set `same_advice = true`"
                ));
            }
        }
    }
    if kind.same_advice && !is_shared {
        let place = kind.place("same_advice");
        problems.push(format!("{place}: true, but `.rec` and `.next` share no line"));
    }
}

/// Checks that a text selects on a fact that may be absent, instead of printing an empty value.
fn presence(kind: &Kind, fact: &str, place: &str, used: &ArgumentUse, problems: &mut Vec<String>) {
    let name = &used.name;
    let is_in = |names: &[String]| names.iter().any(|known| known == fact);
    if !is_in(&kind.facts) {
        problems.push(format!("{place}: uses `${name}`, which is not among the row's `facts`"));
    } else if !used.guarded && !is_in(&kind.always) {
        problems.push(format!(
            "{place}: uses `${name}` bare; add a `[none]` variant, or add it to the row's `always`"
        ));
    }
}

/// The fact of an argument, if it exists and its shape allows this use.
fn shape(
    catalog: &Catalog,
    place: &str,
    used: &ArgumentUse,
    problems: &mut Vec<String>,
) -> Option<String> {
    let name = &used.name;
    let in_ms = name.strip_suffix("_seconds").map(|stem| format!("{stem}_ms"));
    let found = catalog.fact(name).or_else(|| catalog.fact(&in_ms?));
    let Some(fact) = found else {
        problems.push(format!("{place}: unknown placeholder `${name}`"));
        return None;
    };
    let is_number = fact.shape == "number";
    for key in used.chooses.iter().flatten() {
        let is_plural = PLURALS.contains(&key.as_str());
        let is_literal = key.parse::<f64>().is_ok();
        let fits = match key.as_str() {
            "none" | "other" => true,
            "true" | "false" => fact.shape == "json",
            _ => is_number == (is_plural || is_literal) && fact.shape != "json",
        };
        if !fits {
            problems.push(format!(
                "{place}: `${name}` is of type {}, so it cannot choose `[{key}]`",
                fact.shape
            ));
        }
    }
    Some(fact.name.clone())
}

fn line(place: &str, message: &Message, expected: &[&str], problems: &mut Vec<String>) {
    let Some(pattern) = own_text(place, message, problems) else { return };
    for used in arguments(place, pattern, problems) {
        if !expected.contains(&used.name.as_str()) {
            problems.push(format!("{place}: unknown placeholder `${}`", used.name));
        }
    }
}

fn advice(catalog: &Catalog, place: &str, message: &Message, problems: &mut Vec<String>) {
    let Some(pattern) = own_text(place, message, problems) else { return };
    for used in arguments(place, pattern, problems) {
        shape(catalog, place, &used, problems);
    }
}

fn own_text<'m>(
    place: &str,
    message: &'m Message,
    problems: &mut Vec<String>,
) -> Option<&'m Pattern<String>> {
    for name in message.attributes.keys() {
        problems.push(format!("{place}, `.{name}`: no such attribute"));
    }
    if message.value.is_none() {
        problems.push(format!("{place}: has no text"));
    }
    message.value.as_ref()
}

fn arguments(
    place: &str,
    pattern: &Pattern<String>,
    problems: &mut Vec<String>,
) -> Vec<ArgumentUse> {
    let (used, wrong) = uses(pattern);
    problems.extend(wrong.into_iter().map(|wrong| format!("{place}: {wrong}")));
    used
}

/// Checks that each audience has its own advice, that advice messages exist in both languages, and that a line has the
/// same arguments in both. Kinds and fixed lines are checked against the catalog in each language.
pub(super) fn both_languages(
    catalog: &Catalog,
    english: &Texts,
    chinese: &Texts,
    problems: &mut Vec<String>,
) {
    for kind in &catalog.kinds {
        audiences(kind, &[english, chinese], problems);
    }
    for (here, there) in [(english, chinese), (chinese, english)] {
        for (id, message) in &here.messages {
            let is_free = id.starts_with("advice-") || id.starts_with("expected-");
            if is_free && !there.messages.contains_key(id) {
                let place = format!("{}:{}: message `{id}`", here.file, message.line);
                problems.push(format!("{place}: missing in {}", there.file));
            }
        }
    }
    for (id, message) in &english.messages {
        let Some(other) = chinese.messages.get(id) else { continue };
        let (Some(ours), Some(theirs)) = (&message.value, &other.value) else { continue };
        let (ours, theirs) = (names(ours), names(theirs));
        if ours != theirs {
            let place = format!("{}:{}: message `{id}`", chinese.file, other.line);
            problems.push(format!("{place}: uses {theirs:?}, the English one {ours:?}"));
        }
    }
}

fn names(pattern: &Pattern<String>) -> BTreeSet<String> {
    uses(pattern).0.into_iter().map(|used| used.name).collect()
}

fn is_snake(name: &str) -> bool {
    name.split('_').all(|word| {
        word.starts_with(|letter: char| letter.is_ascii_lowercase())
            && word.chars().all(|letter| letter.is_ascii_lowercase() || letter.is_ascii_digit())
    })
}

fn not_one_of(word: &str, allowed: &[&str]) -> String {
    format!("`{word}` is not one of {}", allowed.join(", "))
}

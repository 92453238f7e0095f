//! Every kind of fault, told to every audience in every language.
//!
//! The shapes and numbers of protocols live in the crates that speak them. What they are made from is here, so that a
//! missing cell or a changed word is a visible difference in a snapshot. A new kind appears in every one of them.

use budao_core::{
    Fault, Kind, Lang,
    fault::{
        Detail, Fact, FactValue, Operation,
        render::{self, EditorRendering},
        text,
    },
    tool::Failure,
};
use budao_testkit::faults;
use serde_json::{Value, json};
use strum::VariantArray as _;

#[test]
fn the_text_for_the_model_matches_its_snapshot() {
    golden("model", model);
}

#[test]
fn the_text_for_the_user_matches_its_snapshot() {
    golden("user", |fault, lang| user(fault, lang).to_string());
}

#[test]
fn the_text_for_peers_matches_its_snapshot() {
    golden("peer", |fault, lang| {
        format!("peer  {}\nmcp   {}", peer(fault, lang), mcp(fault, lang))
    });
}

#[test]
fn the_text_for_an_editor_matches_its_snapshot() {
    golden("editor", |fault, lang| editor(fault, lang).to_string());
}

/// What a path that is not a journal is instead, in the words that users read.
#[test]
fn a_path_that_is_not_a_journal_is_named_to_the_user() {
    let absent = ["no_directory", "none"].map(|cause| (Kind::NoJournal, cause));
    let other = [
        "directory",
        "pipe",
        "socket",
        "device",
        "database",
        "dangling_link",
        "link_loop",
        "link_of_other_user",
        "parent_not_directory",
        "side_file",
        "file",
    ];
    let other = other.map(|cause| (Kind::NotAJournal, cause));
    let mut lines = Vec::new();
    for (kind, cause) in absent.into_iter().chain(other) {
        let fault = Fault::new(kind, Operation::OpenJournal)
            .with(Fact::Path, "a.db")
            .with(Fact::Cause, cause);
        lines.extend([Lang::En, Lang::Zh].map(|lang| text::user_text(&fault, lang)));
    }
    snapshot("journal_path", &lines.join("\n"));
}

/// A call that may still be running is told as such, whatever its kind and whoever reads it.
#[test]
fn an_unconfirmed_outcome_is_rendered_as_unknown_for_every_audience() {
    let unconfirmed = Kind::VARIANTS.iter().map(|kind| faults::sample(*kind).unconfirmed());
    for fault in unconfirmed {
        let failure = Failure { fault: fault.clone(), data: None, note: None };
        let told = render::render_for_model(&failure, Lang::En);
        assert!(!told.retryable && told.next == "stop", "{fault}");
        assert!(!render::render_for_peer(&fault, Lang::En).retryable, "{fault}");
        assert!(!render::render_for_editor(&fault, Lang::En).retryable, "{fault}");
        assert!(!told.error.contains("was stopped"), "{}", told.error);
        if fault.kind() != Kind::ToolAbandoned {
            assert!(told.error.contains("may still be running"), "{}", told.error);
        }
    }
    for lang in Lang::VARIANTS {
        let lines = faults::unconfirmed().flat_map(|fault| {
            let model = text::model_advice(&fault, *lang).join(" | ");
            let user = text::recommendations(&fault, *lang).join(" | ");
            [text::model_text(&fault, *lang), model, text::user_text(&fault, *lang), user]
        });
        snapshot(&format!("unconfirmed_{lang}"), &lines.collect::<Vec<_>>().join("\n"));
    }
}

/// Operators read English: log lines are searched, and a search wants one wording.
#[test]
fn the_text_for_the_operator_matches_its_snapshot() {
    let lines: Vec<_> = faults::all().map(|fault| fault.to_string()).collect();
    assert!(lines.iter().all(|line| !line.contains('\n')), "one line each");
    snapshot("operator", &lines.join("\n"));
}

/// Goal: no text shows its scaffolding, and none needs a fact that may be absent.
/// Method: render everything twice, with every fact and with none, and look for what must not be there.
#[test]
fn every_text_reads_as_a_sentence_with_and_without_facts() {
    let mut wrong = Vec::new();
    for kind in Kind::VARIANTS {
        for lang in Lang::VARIANTS {
            for fault in [faults::sample(*kind), faults::bare(*kind)] {
                for (place, text) in texts(&fault, *lang) {
                    let complaints = complaints(&text, *lang);
                    for what in complaints.iter().filter(|what| !accepted(*kind, &place, what)) {
                        wrong.push(format!("{} {lang} {place}: {what}: {text}", kind.row().code));
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} texts are wrong:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn every_operation_has_its_phrase() {
    for operation in budao_core::fault::Operation::VARIANTS {
        for lang in Lang::VARIANTS {
            let phrase = text::of_operation(*operation, *lang);
            assert_eq!(complaints(&phrase, *lang), [""; 0], "{operation} {lang}: {phrase}");
        }
    }
}

#[test]
fn a_fact_that_every_fault_of_a_kind_carries_is_used() {
    // Goal: facts are not carried for nothing. Method: change each one and look for a difference.
    let mut silent = Vec::new();
    for kind in Kind::VARIANTS {
        for fact in kind.row().always {
            let told = |value: &'static str| {
                let mark = match fact.shape() {
                    budao_core::fault::Shape::Number => FactValue::Number(value.parse().unwrap()),
                    _ => value.into(),
                };
                let fault = faults::bare(*kind).with(*fact, mark);
                texts(&fault, Lang::En).into_iter().map(|(_, text)| text).collect::<Vec<_>>()
            };
            let in_context = kind.row().context.contains(fact);
            if !in_context && told("4242000") == told("1717000") {
                silent.push(format!("{}: {fact}", kind.row().code));
            }
        }
    }
    assert!(silent.is_empty(), "always there, never told: {silent:?}");
}

/// What looks wrong and is meant.
fn accepted(kind: Kind, place: &str, complaint: &str) -> bool {
    match complaint {
        // Models read these beginnings in every language: the seeds fix them.
        NOT_CHINESE if place == "model" => {
            matches!(kind, Kind::InvalidArguments | Kind::FileNotFound | Kind::ToolSaidNo)
        }
        // A page has no fault at hand, and shows the name of the fact.
        UNFILLED => place == "page check",
        _ => false,
    }
}

const NOT_CHINESE: &str = "it is not Chinese";
const UNFILLED: &str = "it names a fact and does not fill it";

/// Everything a person or a model can read of a fault.
fn texts(fault: &Fault, lang: Lang) -> Vec<(String, String)> {
    let mut texts = vec![
        ("model".to_owned(), text::model_text(fault, lang)),
        ("user".to_owned(), text::user_text(fault, lang)),
        ("peer title".to_owned(), render::render_for_peer(fault, lang).title),
        ("peer message".to_owned(), render::render_for_peer(fault, lang).message),
        ("editor message".to_owned(), render::render_for_editor(fault, lang).message),
    ];
    let row = fault.row();
    for (list, lines, count) in [
        ("rec", text::recommendations(fault, lang), row.recommendations),
        ("next", text::model_advice(fault, lang), row.model_advice),
    ] {
        assert_eq!(lines.len(), count, "{} {list}", row.code);
        for (index, line) in lines.into_iter().enumerate() {
            texts.push((format!("{list}-{}", index + 1), line.into_owned()));
        }
    }
    for attribute in ["title", "about", "check"] {
        texts.push((format!("page {attribute}"), text::of_kind(fault.kind(), attribute, lang)));
    }
    texts
}

/// What is wrong with a text as such.
fn complaints(text: &str, lang: Lang) -> Vec<&'static str> {
    let chinese = text.chars().any(|letter| ('\u{3400}'..='\u{9fff}').contains(&letter));
    let rules = [
        (text.trim().is_empty(), "it is empty"),
        (text.contains(['⟨', '⟩']), "a text is missing"),
        (text.contains(['‹', '›']), UNFILLED),
        (text.contains("{ ") || text.contains("{$") || text.contains("??"), "it has Fluent in it"),
        (shows_none(text), "an absent fact shows"),
        (text.contains("  ") || text.trim() != text, "it has stray blanks"),
        (lang == Lang::En && chinese, "it is not English"),
        (lang == Lang::Zh && !chinese, NOT_CHINESE),
    ];
    rules.into_iter().filter(|(broken, _)| *broken).map(|(_, complaint)| complaint).collect()
}

/// Is there a `none` in it that nobody wrote? Where somebody did, its neighbours stand in the catalog too.
fn shows_none(text: &str) -> bool {
    const ENGLISH: &str = include_str!("../../../../catalog/en.ftl");
    let words: Vec<_> = text.split(' ').collect();
    let at = |index: usize| words.get(index).copied().unwrap_or_default();
    let bare = |word: &str| word.trim_matches(|letter: char| !letter.is_alphanumeric()) == "none";
    words.iter().enumerate().filter(|(_, word)| bare(word)).any(|(index, word)| {
        let before = at(index.wrapping_sub(1));
        !ENGLISH.contains(format!("{before} {word} {}", at(index + 1)).trim())
    })
}

fn golden(dialect: &str, tell: impl Fn(&Fault, Lang) -> String) {
    for lang in Lang::VARIANTS {
        let told: Vec<_> = faults::all()
            .map(|fault| {
                let row = fault.row();
                format!("## {} {}\n{}", row.code, row.name, tell(&fault, *lang))
            })
            .collect();
        snapshot(&format!("{dialect}_{lang}"), &told.join("\n"));
    }
}

fn snapshot(name: &str, text: &str) {
    let mut settings = insta::Settings::clone_current();
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(name, text));
}

fn model(fault: &Fault, lang: Lang) -> String {
    let failure = Failure { fault: fault.clone(), data: None, note: None };
    render::render_for_model(&failure, lang).to_json()
}

/// An `error.*` event.
fn user(fault: &Fault, lang: Lang) -> Value {
    let told = render::render_for_user(fault, lang);
    let mut metadata = json!({
        "error_code": told.row.code,
        "error_type": told.row.type_name,
        "category": told.row.category,
        "severity": told.row.severity,
        "recoverable": told.row.recoverable,
        "auto_retry": told.row.auto_retry,
        "recovery_strategy": told.row.strategy,
        "operation": told.operation,
        "context": told.context,
    });
    let fields = metadata.as_object_mut().expect("it is one");
    for (fact, value) in told.facts.iter() {
        fields.insert(fact.to_string(), json!(value));
    }
    if let Some(tries) = fault.attempts() {
        fields.insert("attempt".into(), tries.attempt.into());
        fields.insert("max_attempts".into(), tries.max.into());
    }
    if let Some(wait) = fault.retry_hint() {
        fields.insert("retry_after_ms".into(), json!(wait.as_millis()));
    }
    json!({
        "event": told.event,
        "content": told.content,
        "metadata": metadata,
        "show_content": told.shown,
    })
}

/// What every protocol carries; its own number is added where it is spoken.
fn peer(fault: &Fault, lang: Lang) -> Value {
    let told = render::render_for_peer(fault, lang);
    json!({
        "code": told.code,
        "title": told.title,
        "message": told.message,
        "details": told.details,
        "retryable": told.retryable,
        "retry_after_ms": told.retry_after_ms,
        "trace": told.trace,
        "hops": told.hops,
    })
}

fn mcp(fault: &Fault, lang: Lang) -> Value {
    json!({ "content": [{ "type": "text", "text": text::model_text(fault, lang) }], "isError": true })
}

/// A failed tool call, a text in a turn that goes on, a stop reason, or an error response.
fn editor(fault: &Fault, lang: Lang) -> Value {
    let EditorRendering { outcome, message, kind, retryable, advice } =
        render::render_for_editor(fault, lang);
    match outcome {
        "tool_call_failed" => json!({
            "sessionUpdate": "tool_call_update", "status": "failed", "text": message,
        }),
        "error" => json!({
            "message": message,
            "data": { "kind": kind, "retryable": retryable, "advice": advice },
        }),
        "turn_goes_on" => json!({ "text": message }),
        stop => json!({ "stopReason": stop, "text": message }),
    }
}

#[test]
fn facts_go_to_the_context_or_beside_it_and_none_is_lost() {
    for fault in faults::all() {
        let told = render::render_for_user(&fault, Lang::En);
        let mut together = Detail::new();
        for (fact, value) in told.context.iter().chain(told.facts.iter()) {
            assert!(together.get(fact).is_none(), "{fact} is told twice");
            together.set(fact, value.clone());
        }
        assert_eq!(&together, fault.detail());
        assert!(told.facts.iter().all(|(fact, _)| !fault.row().context.contains(&fact)));
    }
}

#[test]
fn a_file_that_is_not_there_is_a_logical_answer_and_not_a_crash() {
    // The first seed's example wins over its table.
    let row = faults::sample(Kind::FileNotFound).row();
    assert_eq!(<&str>::from(row.error_type), "logical");
    for kind in [Kind::DeniedByPolicy, Kind::DeniedByPerson, Kind::DeniedByHook] {
        assert_eq!(<&str>::from(kind.row().error_type), "aborted", "{kind}");
        assert!(!kind.row().retryable, "{kind}");
    }
    let unknown = Kind::OutcomeUnknown.row();
    assert_eq!((<&str>::from(unknown.error_type), unknown.retryable), ("aborted", false));
}

#[test]
fn mismatched_arguments_are_listed_one_per_line() {
    let fault = faults::mismatches()
        .into_iter()
        .fold(faults::bare(Kind::InvalidArguments), Fault::mismatch)
        .with(Fact::ToolName, "fs_edit");
    insta::assert_snapshot!(text::model_text(&fault, Lang::En), @r#"
    Invalid parameters: edits.0.path: required; did you mean `pth`?
    mode: must be one of `read`, `write` (you sent "append")
    "#);
}

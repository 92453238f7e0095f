//! Spellings that are accepted, and those that are refused with their reasons.

use serde_json::json;

use super::*;

fn read(text: &str) -> Result<Value, Reason> {
    object(&json!({}), text, 64).map_err(|unclear| unclear.reason)
}

#[test]
fn text_with_one_possible_meaning_is_repaired() {
    for (text, meant) in [
        ("{'path': 'a', all: True, none: None,}", json!({"path": "a", "all": true, "none": null})),
        ("```json\n{\"a\": 1,}\n```", json!({"a": 1})),
        ("{“a”： “b”， “c”： [1，2]}", json!({"a": "b", "c": [1, 2]})),
        ("{\"a\": \"one\ntwo\"}", json!({"a": "one\ntwo"})),
        ("{\"a\": 1 // the first\n, \"b\": 2 /* and last */}", json!({"a": 1, "b": 2})),
        (
            "{\"a\": +5, \"b\": .5, \"c\": 5., \"d\": -.5}",
            json!({"a": 5, "b": 0.5, "c": 5, "d": -0.5}),
        ),
        ("{\"a\": 1 \"b\": {} \"c\": []}", json!({"a": 1, "b": {}, "c": []})),
        (r#"{"a": "\d+\.\w", 'b': "\""}"#, json!({"a": r"\d+\.\w", "b": "\""})),
        (r#"{"a": "D:\games",}"#, json!({"a": r"D:\games"})),
        (r"{'a': 'it\'s', }", json!({"a": "it's"})),
        (r"{'a': 'note:\nC:\\new\tx'}", json!({"a": "note:\nC:\\new\tx"})),
        (r#"{\"a\": \"b\\n\"}"#, json!({"a": "b\n"})),
        ("'{\"a\": 1}'", json!({"a": 1})),
        ("{\"a\": {\"b\": 1}}}]", json!({"a": {"b": 1}})),
        ("{\"a\": 1, # the first\n \"b\": 2 # and last\n}", json!({"a": 1, "b": 2})),
        ("{a: '\\u00e4\\ud83d\\ude00'}", json!({"a": "ä😀"})),
    ] {
        assert_eq!(read(text), Ok(meant), "{text}");
    }
}

#[test]
fn what_loses_something_or_can_be_read_twice_is_not() {
    use Reason::*;
    for (text, reason) in [
        (r#"{"a": "C:\Users\bob"}"#, Backslash),
        (r#"{"a": "\d+\n"}"#, Backslash),
        (r#"{"a": "\d+", "b": "C:\new"}"#, Backslash),
        (r#"{"a": "it\'s"}"#, Backslash),
        (r#"{"a": "\u12"}"#, Backslash),
        (r"{'a': 'C:\temp\new'}", Backslash),
        (r"{'a': '\bword\b'}", Backslash),
        (r"{'a': `\n`}", Backslash),
        (r"{'a': `C:\\dir`}", Backslash),
        ("{\"a\": [1, 2, ...]}", Ellipsis),
        ("{'a': 1, …}", Ellipsis),
        ("{\"a\": NaN}", BareWord),
        ("{\"a\": undefined}", BareWord),
        ("{\"a\": file_name}", BareWord),
        ("{\"a\": 0x1F}", Number),
        ("{\"a\": 007}", Number),
        ("{\"a\": 1_000}", Number),
        ("{\"a\": -}", Number),
        ("{a: 123456789012345678901234567890}", Number),
        ("{\"a\": #fff, \"b\": 1}", Comment),
        ("{\"a\": 1, # \"one\"\n \"b\": 2}", Comment),
        ("{\"a\": 1, # c: 5\n \"b\": 2}", Comment),
        ("{\"a\": # Title\n}", Comment),
        ("{\"a\": [1, # one\n 2]}", Comment),
        ("{\"a\": 1, // \"b\": 2\n}", Comment),
        ("{\"a\": [\"x\", //srv/y,\n \"z\"]}", Comment),
        ("{\"a\": 1, // rest }", Comment),
        ("{\"a\": \"say \"hi\" now\"}", Quote),
        ("{'a': 'it's'}", Quote),
        ("{\"a\": \"x\" \"b\": 1}", Quote),
        ("{'a': [1,,2]}", Separator),
        ("{'a' 1}", Separator),
        ("{'a':, 'b': 1}", Separator),
        ("{'a': 1}{'a': 2}", Outside),
        ("args = {'a': 1}", Outside),
        ("{'a': 1, 'a': 2}", Duplicate),
        ("{'a': [1, 2}", Quote),
        ("{'a': 'b}", Ends),
        ("{'a': {'b': 1}", Ends),
    ] {
        assert_eq!(read(text), Err(reason), "{text}");
    }
}

#[test]
fn a_schema_decides_repairs_with_one_possible_meaning() {
    let schema = json!({ "properties": {
        "path": { "type": "string" }, "mode": { "enum": ["fast", "slow"] }, "limit": { "type": "integer" },
    } });
    let read = |text: &str| object(&schema, text, 64).map_err(|unclear| unclear.reason);
    for (text, meant) in [
        ("{\"path\": \"a\" \"limit\": 5}", json!({"path": "a", "limit": 5})),
        ("{\"path\" \"a\", \"limit\" 5}", json!({"path": "a", "limit": 5})),
        ("{\"mode\": fast}", json!({"mode": "fast"})),
        ("{\"path\": 2024-01-05T10:00:00Z}", json!({"path": "2024-01-05T10:00:00Z"})),
        ("{\"path\": 1.2.3}", json!({"path": "1.2.3"})),
    ] {
        assert_eq!(read(text), Ok(meant), "{text}");
    }
    for (text, reason) in [
        ("{\"path\": \"a\" \"other\": 5}", Reason::Quote),
        ("{\"limit\": 1, \"path\": \"a\" \"limit\": 5}", Reason::Quote),
        ("{\"other\" 5}", Reason::Separator),
        ("{\"path\" = \"a\"}", Reason::Separator),
        ("{\"path\": fast}", Reason::BareWord),
        ("{\"mode\": medium}", Reason::BareWord),
        ("{\"limit\": 1.2.3}", Reason::Number),
        ("{\"path\": 10px}", Reason::Number),
    ] {
        assert_eq!(read(text), Err(reason), "{text}");
    }
}

#[test]
fn the_place_is_named_by_its_pointer() {
    let unclear = object(&json!({}), "{'a': [{'b': 1}, {'c': NaN}]}", 64).unwrap_err();
    assert_eq!((unclear.pointer.as_str(), unclear.position), ("/a/1/c", 23));
}

#[test]
fn depth_is_bounded_whatever_is_asked() {
    let nested = |levels: usize| format!("{{a: {}{}}}", "[".repeat(levels), "]".repeat(levels));
    assert!(read(&nested(63)).is_ok());
    assert_eq!(read(&nested(64)), Err(Reason::Depth));
    assert_eq!(
        object(&json!({}), &nested(1_000_000), usize::MAX).unwrap_err().reason,
        Reason::Depth
    );
}

#[test]
fn every_reason_has_its_words_in_every_language() {
    use Reason::*;
    let all = [
        Backslash, Number, BareWord, Ellipsis, Comment, Quote, Separator, Outside, Duplicate, Ends,
        Depth,
    ];
    for reason in all {
        let id = format!("advice-{}", reason.advice());
        assert!(budao_core::fault::text::exists(&id), "{id}");
    }
}

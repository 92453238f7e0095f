use super::*;

fn toolbox(schema: &Value) -> Toolbox {
    Toolbox::builder().add(FinalAnswer::new(schema).unwrap()).unwrap().build()
}

fn text(text: &str) -> Vec<Block> {
    vec![Block::Text(text.to_owned())]
}

fn call(name: &str, arguments: &str) -> Block {
    Block::ToolUse(ToolUse { id: "c".into(), name: name.into(), arguments: arguments.into() })
}

fn check(schema: &Value, content: Vec<Block>) -> ShapedAnswer {
    toolbox(schema).check_answer(content, ModelStop::EndTurn, &Limits::default())
}

fn city() -> Value {
    json!({"type": "object", "properties": {"city": {"type": "string"}, "people": {"type": "integer"}}, "required": ["city", "people"]})
}

#[test]
fn a_text_and_a_call_are_the_same_answer() {
    let answer = r#"{"city":"Paris","people":2100000}"#;
    let thinking = Block::Thinking { text: "hm".into(), signature: None };
    let complete = ShapedAnswer::Complete(text(answer));
    assert_eq!(check(&city(), text(answer)), complete);
    assert_eq!(check(&city(), text(&format!("```json\n{answer}\n```"))), complete);
    assert_eq!(check(&city(), vec![call(FINAL_ANSWER, answer)]), complete);
    assert_eq!(
        check(
            &city(),
            vec![thinking.clone(), Block::Text("Here it is:".into()), call(FINAL_ANSWER, answer)]
        ),
        ShapedAnswer::Complete(vec![thinking, Block::Text(answer.into())])
    );
}

#[test]
fn slips_are_repaired_as_in_any_call() {
    let slip = r#"{"city":"Paris","people":"2100000"}"#;
    assert_eq!(
        check(&city(), text(slip)),
        ShapedAnswer::Complete(text(r#"{"city":"Paris","people":2100000}"#))
    );
}

#[test]
fn an_answer_that_does_not_fit_becomes_a_call_with_the_reason() {
    for (content, kind) in [
        (text("It is Paris."), Kind::MalformedArguments),
        (text(r#"{"city":"Paris"}"#), Kind::InvalidArguments),
        (vec![call(FINAL_ANSWER, r#"{"city":1}"#)], Kind::InvalidArguments),
    ] {
        let ShapedAnswer::Rejected(content, fault) = check(&city(), content) else {
            panic!("fits")
        };
        assert_eq!(fault.kind(), kind);
        assert!(matches!(&content[..], [Block::ToolUse(call)] if call.name == FINAL_ANSWER));
    }
}

#[test]
fn other_calls_an_empty_answer_and_a_refusal_are_left_to_the_turn() {
    let both = vec![call("fs_read", "{}"), call(FINAL_ANSWER, "{}")];
    assert_eq!(check(&city(), both.clone()), ShapedAnswer::Unfinished(both));
    assert_eq!(check(&city(), text("  ")), ShapedAnswer::Unfinished(Vec::new()));
    let refusal =
        toolbox(&city()).check_answer(text("I will not."), ModelStop::Refusal, &Limits::default());
    assert_eq!(refusal, ShapedAnswer::Unfinished(text("I will not.")));
}

#[test]
fn an_answer_that_is_not_an_object_is_wrapped_and_unwrapped() {
    let list = json!({"type": "array", "items": {"$ref": "#/$defs/name"}, "$defs": {"name": {"type": "string"}}});
    let complete = ShapedAnswer::Complete(text(r#"["a","b"]"#));
    assert_eq!(check(&list, vec![call(FINAL_ANSWER, r#"{"answer":["a","b"]}"#)]), complete);
    assert_eq!(check(&list, text(r#"["a","b"]"#)), complete);
    assert!(matches!(check(&list, text("[1]")), ShapedAnswer::Rejected(..)));
}

#[test]
fn a_schema_that_admits_nothing_or_is_none_is_refused() {
    for schema in [
        json!(false),
        json!({"not": {}}),
        json!({"enum": []}),
        json!({"type": "string", "enum": [1, 2]}),
        json!({"allOf": [{"type": "string"}, {"type": "integer"}]}),
        json!({"anyOf": [false, {"type": "number", "minimum": 2, "maximum": 1}]}),
        json!({"type": "object", "properties": {"a": false}, "required": ["a"]}),
        json!({"type": "object", "additionalProperties": false, "required": ["a"]}),
        json!({"type": "array", "minItems": 1, "items": {"not": true}}),
        json!({"type": 5}),
        json!("text"),
        json!({"$ref": "https://example.com/schema"}),
    ] {
        let fault = FinalAnswer::new(&schema).expect_err(&schema.to_string());
        assert_eq!(fault.kind(), Kind::AnswerSchemaRefused, "{schema}");
        assert!(
            fault.detail().text(Fact::Reason).is_some_and(|reason| !reason.is_empty()),
            "{schema}"
        );
    }
}

#[test]
fn an_unknown_type_is_named_with_its_place_and_the_nearest_one() {
    let reason = |schema: Value| {
        let fault = FinalAnswer::new(&schema).unwrap_err();
        fault.detail().text(Fact::Reason).unwrap().to_owned()
    };
    assert_eq!(
        reason(json!({"type": "strnig"})),
        "at `/type`: there is no type `strnig`; did you mean `string`?"
    );
    let deep = json!({"type": "object", "properties": {"type": {"type": "object"}, "a/b": {"anyOf": [true, {"$ref": "#/$defs/x"}]}}, "$defs": {"x": {"items": {"type": ["null", "Int"]}}}});
    assert_eq!(
        reason(deep),
        "at `/$defs/x/items/type`: there is no type `Int`; did you mean `integer`?"
    );
    assert_eq!(
        reason(json!({"properties": {"a/b": {"type": "text"}}})),
        "at `/properties/a~1b/type`: there is no type `text`; the types are string, number, integer, boolean, object, array, null"
    );
    let wrapped = reason(json!({"type": "array", "minItems": "two"}));
    assert!(wrapped.starts_with("at `/minItems`: "), "{wrapped}");
}

#[test]
fn a_schema_that_is_only_narrow_is_accepted() {
    for schema in [
        json!(true),
        json!({}),
        json!({"type": ["string", "null"]}),
        json!({"const": null}),
        json!({"type": "object", "properties": {"a": false}}),
        json!({"type": ["array", "object"], "minItems": 2, "maxItems": 1}),
        json!({"type": "integer", "minimum": 1, "maximum": 1}),
    ] {
        FinalAnswer::new(&schema).unwrap_or_else(|_| panic!("{schema}"));
    }
}

//! Scripts: their answers, the order of steps, and the faults of invalid files.

use std::time::Duration;

use budao_core::{
    fault::{Fact, Kind},
    message::{Block, Message, ModelStop, Piece, Role},
};
use serde_json::json;

use super::*;
use crate::testing::{InstantClock, ask_all, request, user};

fn model(script: Script) -> ScriptedModel {
    script.into_model(std::sync::Arc::new(InstantClock::default()))
}

fn texts(pieces: &[Piece]) -> String {
    pieces
        .iter()
        .filter_map(|piece| match piece {
            Piece::Text(text) => Some(text.as_str()),
            _ => None,
        })
        .collect()
}

#[test]
fn steps_are_played_in_order_and_the_end_of_the_script_is_a_fault() {
    let model =
        model(Script::new().say("one").call("t", json!({"a": 1})).fail(Kind::ModelOverloaded));
    let first = ask_all(&model, request("x")).unwrap();
    assert_eq!(texts(&first), "one");
    assert!(matches!(first.last(), Some(Piece::End { stop: ModelStop::EndTurn, .. })));
    let second = ask_all(&model, request("x")).unwrap();
    let [Piece::Block(Block::ToolUse(call)), Piece::End { stop: ModelStop::ToolUse, .. }] =
        &second[..]
    else {
        panic!("{second:?}")
    };
    assert_eq!((&*call.name, &*call.arguments), ("t", r#"{"a":1}"#));
    let fault = ask_all(&model, request("x")).unwrap_err();
    assert_eq!(fault.kind(), Kind::ModelOverloaded);
    assert_eq!(fault.detail().text(Fact::Service), Some("script"));
    assert_eq!(ask_all(&model, request("x")).unwrap_err().kind(), Kind::ModelBadRequest);
    assert_eq!(model.asked(), 4);
}

#[test]
fn a_step_repeats_as_often_as_it_states() {
    let model = model(Script::new().fail(Kind::ModelRateLimited).repeat(2).say("hi").forever());
    let said: Vec<_> = (0..5).map(|_| ask_all(&model, request("x")).is_ok()).collect();
    assert_eq!(said, [false, false, true, true, true]);
}

#[test]
fn every_stop_reason_is_mapped() {
    for (end, kind) in [
        (Ending::Cut, Kind::ModelStreamCut),
        (Ending::Malformed, Kind::ModelMalformedStream),
        (Ending::Stall, Kind::ModelStalled),
    ] {
        let model = model(Script::new().step(ScriptStep::new().text("half").end(end.clone())));
        assert_eq!(ask_all(&model, request("x")).unwrap_err().kind(), kind, "{end:?}");
    }
    let silent = model(Script::new().step(ScriptStep::new().end(Ending::Stall)));
    assert_eq!(ask_all(&silent, request("x")).unwrap_err().kind(), Kind::ModelFirstTokenTimeout);
}

/// Goal: a session resumed in another process gets the step it would have got.
/// Method: a new model for every request, as if each came from a new process.
#[test]
fn by_history_the_step_depends_on_the_answers_and_on_nothing_else() {
    let script = || {
        Script::new()
            .say("one")
            .fail(Kind::ModelOverloaded)
            .say("two")
            .repeat(2)
            .say("four")
            .order(StepOrder::History)
    };
    let history = |answers: usize| {
        let mut messages = vec![Message::user("go")];
        for _ in 0..answers {
            messages
                .push(Message { role: Role::Assistant, content: vec![Block::Text("x".into())] });
            messages.push(Message::user("on"));
        }
        user(messages)
    };
    for (answers, said) in [(0, "one"), (2, "two"), (3, "four")] {
        assert_eq!(texts(&ask_all(&model(script()), history(answers)).unwrap()), said);
    }
    let one = model(script());
    assert_eq!(ask_all(&one, history(1)).unwrap_err().kind(), Kind::ModelOverloaded);
    assert_eq!(texts(&ask_all(&one, history(1)).unwrap()), "two");
    assert_eq!(ask_all(&one, history(4)).unwrap_err().kind(), Kind::ModelBadRequest);
}

const FILE: &str = r#"
order = "requests"

[[step]]
delay_ms = 500
think = "I should read it."
signature = "sealed"
text = "Reading it now."
pace_ms = 20
[[step.call]]
tool = "fs_read"
arguments = { path = "README.md" }
[[step.call]]
id = "mine"
tool = "fs_read"
arguments = '{"path": "RE'

[[step]]
status = 429
body = '{"error": {"type": "insufficient_quota"}}'

[[step]]
fault = "model_rate_limited"
retry_after_ms = 1500
repeat = 2

[[step]]
text = "half of"
end = "cut"

[[step]]
text = "done"
usage = { input_tokens = 10, output_tokens = 5, cached_tokens = 2 }
repeat = "forever"
"#;

#[test]
fn a_script_file_can_express_every_step() {
    let clock = std::sync::Arc::new(InstantClock::default());
    let model = Script::parse(FILE, "first.toml").unwrap().into_model(clock.clone());
    let first = ask_all(&model, request("x")).unwrap();
    assert_eq!(texts(&first), "Reading it now.");
    assert_eq!(clock.slept(), Duration::from_millis(500 + 7 * 20));
    let calls: Vec<_> = first
        .iter()
        .filter_map(|piece| match piece {
            Piece::Block(Block::ToolUse(call)) => Some((&*call.id.0, &*call.arguments)),
            _ => None,
        })
        .collect();
    assert_eq!(calls, [("call_1_1", r#"{"path":"README.md"}"#), ("mine", "{\"path\": \"RE")]);
    let kind = || ask_all(&model, request("x")).unwrap_err();
    assert_eq!(kind().kind(), Kind::ModelQuota);
    assert_eq!(kind().retry_hint(), Some(Duration::from_millis(1500)));
    assert_eq!(kind().kind(), Kind::ModelRateLimited);
    assert_eq!(kind().kind(), Kind::ModelStreamCut);
    for _ in 0..3 {
        let last = ask_all(&model, request("x")).unwrap();
        let Some(Piece::End { usage, .. }) = last.last() else { panic!("{last:?}") };
        assert_eq!((usage.input_tokens, usage.output_tokens, usage.cached_tokens), (10, 5, 2));
    }
}

#[test]
fn a_wrong_file_is_reported_with_its_line() {
    for (text, line) in [
        ("[[step]]\ntext = 'a'\n[[step]]\nsay = 'b'\n", Some(4)),
        ("[[step]]\ntext = ", Some(2)),
        ("[[step]]\nfault = 'no_such_kind'\n", Some(2)),
        ("[[step]]\nrepeat = 'often'\n", Some(2)),
        ("[[step]]\nend = 'cut'\nstatus = 500\n", None),
    ] {
        let fault = Script::parse(text, "a.toml").unwrap_err();
        assert_eq!(fault.kind(), Kind::ConfigurationWrong, "{text}");
        assert_eq!(fault.detail().number(Fact::Line), line, "{text}: {fault:?}");
        assert_eq!(fault.detail().text(Fact::Path), Some("a.toml"));
    }
}

/// Every example in `docs/scripts.md` parses.
#[test]
fn the_examples_of_the_manual_are_scripts() {
    let manual = include_str!("../../../../docs/scripts.md");
    let examples: Vec<_> =
        manual.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert!(examples.len() >= 2);
    for example in examples {
        Script::parse(example, "docs/scripts.md")
            .unwrap_or_else(|fault| panic!("{fault:?}\n{example}"));
    }
}

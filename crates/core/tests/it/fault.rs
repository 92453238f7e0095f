//! A fault as a value: recorded and read back, compared whole, scrubbed, and told once.

use std::{error::Error, fmt, time::Duration};

use budao_core::{
    Fault, Kind, Lang,
    fault::{Advice, Detail, Fact, FactValue, Mismatch, Operation, Shape, render, text},
    tool::Failure,
    trace::Trace,
};
use budao_scrub::Scrubber;
use budao_testkit::faults;
use serde_json::json;
use strum::VariantArray as _;

#[test]
fn recorded_values_decode_to_the_same_value() {
    for fault in faults::all() {
        let recorded = serde_json::to_string(&fault).unwrap();
        let read: Fault = serde_json::from_str(&recorded).unwrap();
        assert_eq!(read, fault, "{recorded}");
        let read: Fault = serde_json::from_value(serde_json::to_value(&fault).unwrap()).unwrap();
        assert_eq!(read, fault, "{recorded}");
    }
}

#[test]
fn a_record_of_a_fault_holds_what_is_known_and_nothing_else() {
    let bare = Fault::new(Kind::Bug, Operation::RunTurn);
    assert_eq!(
        serde_json::to_value(&bare).unwrap(),
        json!({ "kind": "bug", "operation": "run_turn" })
    );
    let full = Fault::new(Kind::ModelRateLimited, Operation::ModelRequest)
        .with(Fact::Service, "anthropic")
        .with(Fact::WaitMs, Duration::from_secs(2))
        .advise_model([Advice::Custom("Make the call later".into())])
        .advise_user([Advice::Custom("Use the other key".into())])
        .attempt(1, 3)
        .retry_after(Duration::from_millis(2500))
        .with_trace(Trace::from_random(0xabc))
        .via("server", "eu-1")
        .with_cause("429");
    assert_eq!(
        serde_json::to_value(&full).unwrap(),
        json!({
            "kind": "model_rate_limited",
            "operation": "model_request",
            "detail": { "service": "anthropic", "wait_ms": 2000 },
            "model_advice": ["Make the call later"],
            "user_advice": ["Use the other key"],
            "attempts": { "attempt": 1, "max": 3 },
            "retry_after_ms": 2500,
            "trace": "00000000000000000000000000000abc",
            "hops": [{ "role": "server", "name": "eu-1" }],
            "causes": ["429"],
        })
    );
}

#[test]
fn a_newer_writers_facts_are_skipped() {
    let read: Fault = serde_json::from_value(json!({
        "kind": "file_not_found", "operation": "read_file",
        "detail": { "path": "a.txt", "phase_of_the_moon": "full" }, "mood": "calm",
    }))
    .unwrap();
    let expected =
        Fault::new(Kind::FileNotFound, Operation::ReadFile).with(Fact::Path, "a.txt".to_owned());
    assert_eq!(read, expected);
}

/// Goal: whatever a caller hands in, what is recorded reads back as the same value.
/// Method: every fact takes a value of every shape.
#[test]
fn a_value_takes_the_shape_of_its_fact() {
    let values = || {
        [
            FactValue::Number(7),
            FactValue::Text("7".into()),
            FactValue::Text("seven".into()),
            FactValue::List(vec!["a".into(), "b".into()]),
            FactValue::Json(json!({ "a": [1, null] })),
            FactValue::Json(json!("text")),
            FactValue::Json(json!(7)),
            FactValue::Json(json!(["a", 1])),
            FactValue::Json(json!(null)),
            FactValue::Json(json!(1.5)),
        ]
    };
    for fact in Fact::VARIANTS {
        for value in values() {
            let shown = format!("{value:?}");
            let fault = Fault::new(Kind::Bug, Operation::RunTurn).with(*fact, value);
            let recorded = serde_json::to_string(&fault).unwrap();
            let read: Fault = serde_json::from_str(&recorded).unwrap();
            assert_eq!(read, fault, "{fact} = {shown} was recorded as {recorded}");
            let kept = fault.detail().get(*fact).unwrap();
            // Words where a number belongs stay words: better told than lost.
            let fits = kept.shape() == fact.shape()
                || (fact.shape() == Shape::Number && kept.shape() == Shape::Text);
            assert!(fits, "{fact} = {shown} became {kept:?}");
        }
    }
}

#[test]
fn numbers_are_read_where_there_are_some() {
    let kept = |value: FactValue| Detail::new().with(Fact::Limit, value).number(Fact::Limit);
    assert_eq!(kept("7".into()), Some(7));
    assert_eq!(kept(json!(1.5).into()), Some(2));
    assert_eq!(kept(json!(u64::MAX).into()), Some(i64::MAX));
    assert_eq!(kept("seven".into()), None);
}

#[derive(Debug)]
struct Layer(&'static str, Option<Box<Layer>>);

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl Error for Layer {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.1.as_deref().map(|layer| layer as &(dyn Error + 'static))
    }
}

fn chain(texts: &[&'static str]) -> Layer {
    let (first, rest) = texts.split_first().expect("a chain has a first layer");
    Layer(first, (!rest.is_empty()).then(|| Box::new(chain(rest))))
}

#[test]
fn causes_are_rendered_once_and_only_for_the_operator() {
    let polite = chain(&["cannot connect", "connect to upstream", "refused"]);
    let repeating = chain(&["cannot connect: upstream: refused", "upstream: refused", "refused"]);
    let bare = || faults::bare(Kind::NetworkUnavailable);
    assert_eq!(
        bare().caused_by(&polite).causes(),
        ["cannot connect", "connect to upstream", "refused"]
    );
    let fault = bare().caused_by(&repeating);
    assert_eq!(fault.causes(), ["cannot connect: upstream: refused"]);
    assert_eq!(fault.to_string().matches("refused").count(), 1);
    assert!(fault.source().is_none(), "the operator's line has the causes in it already");
    for lang in Lang::VARIANTS {
        let failure = Failure { fault: fault.clone(), data: None, note: None };
        let told = [
            render::render_for_model(&failure, *lang).to_json(),
            format!("{:?}", render::render_for_user(&fault, *lang)),
            format!("{:?}", render::render_for_peer(&fault, *lang)),
            format!("{:?}", render::render_for_editor(&fault, *lang)),
        ];
        for text in told {
            assert!(!text.contains("upstream"), "{text}");
        }
    }
}

#[test]
fn no_sample_has_a_source() {
    assert!(faults::all().all(|fault| fault.source().is_none()));
}

#[test]
fn the_operators_line_stays_one_line() {
    let fault = Fault::new(Kind::ToolFailed, Operation::ToolCall)
        .with(Fact::ToolName, "a\nb".to_owned())
        .via("computer", "c\r\nd")
        .with_cause("first\n  second\n\nERR_BUG_001 run_turn: forged");
    let line = fault.to_string();
    assert!(!line.contains(['\n', '\r']), "{line}");
    assert!(line.ends_with(": first;   second; ERR_BUG_001 run_turn: forged"), "{line}");
}

#[test]
fn an_inner_retry_that_gave_up_is_not_multiplied_by_an_outer_one() {
    let fault =
        |attempt| Fault::new(Kind::RequestTimedOut, Operation::ModelRequest).attempt(attempt, 3);
    assert!(faults::bare(Kind::RequestTimedOut).may_auto_retry());
    assert!(fault(2).may_auto_retry());
    assert!(!fault(3).may_auto_retry());
    assert!(!faults::bare(Kind::InvalidArguments).may_auto_retry());
}

#[test]
fn specific_advice_comes_before_general_advice_and_none_is_repeated() {
    let general: Vec<_> = text::recommendations(&faults::bare(Kind::FilePermission), Lang::En)
        .into_iter()
        .map(std::borrow::Cow::into_owned)
        .collect();
    let fault = faults::bare(Kind::FilePermission)
        .advise_user([Advice::Custom("Ask Ana".into()), Advice::Custom(general[0].clone())]);
    let told = text::recommendations(&fault, Lang::En);
    assert_eq!(told[0], "Ask Ana");
    assert_eq!(told[1..], general);
    let many = (0..20).map(|number| Advice::Custom(format!("line {number}")));
    let fault = faults::bare(Kind::FilePermission).advise_user(many.clone()).advise_model(many);
    assert_eq!(text::recommendations(&fault, Lang::En).len(), 8, "more than anybody reads");
    assert_eq!(text::model_advice(&fault, Lang::En).len(), 8, "more than a model heeds");
}

#[test]
fn a_trace_that_was_brought_is_kept() {
    let (first, second) = (Trace::from_random(1), Trace::from_random(2));
    let fault = faults::bare(Kind::Bug).with_trace(first).with_trace(second);
    assert_eq!(fault.trace(), first);
    assert_eq!(
        render::render_for_peer(&faults::bare(Kind::Bug), Lang::En).trace,
        None,
        "zeros are not sent"
    );
}

#[test]
fn waits_read_well() {
    let told = |millis: u64| {
        let fault = faults::bare(Kind::DeadlinePassed).with(Fact::TimeoutMs, millis);
        text::user_text(&fault, Lang::En)
    };
    for (millis, seconds) in
        [(120_000, "120"), (10_400, "10"), (1_500, "1.5"), (2_000, "2"), (250, "0.3"), (20, "0.02")]
    {
        let text = told(millis);
        assert!(text.contains(&format!(" {seconds} second")), "{millis} ms: {text}");
    }
}

/// Goal: once scrubbed, a fault gives a secret to nobody, in no dialect, and not to the journal.
/// Method: plant one in every place of a fault of every kind that can hold text.
#[test]
fn a_scrubbed_fault_gives_no_secret_away() {
    const SECRET: &str =
        "sk-ant-api03-7Hq2LmX9vTzR4wKpYb8NcJdF5sGaVuE1oQiWx3ZyBtMrCkDh6PjSnAe0LfUg";
    let scrubber = Scrubber::new();
    for kind in Kind::VARIANTS {
        let fault = planted(*kind, SECRET).scrub(&scrubber);
        let recorded = serde_json::to_string(&fault).unwrap();
        assert!(!recorded.contains(SECRET), "recorded: {recorded}");
        assert!(!fault.to_string().contains(SECRET), "operator: {fault}");
        assert!(!format!("{fault:?}").contains(SECRET), "debug: {fault:?}");
        for lang in Lang::VARIANTS {
            let failure = Failure { fault: fault.clone(), data: None, note: None };
            for told in [
                render::render_for_model(&failure, *lang).to_json(),
                format!("{:?}", render::render_for_user(&fault, *lang)),
                format!("{:?}", render::render_for_peer(&fault, *lang)),
                format!("{:?}", render::render_for_editor(&fault, *lang)),
            ] {
                assert!(!told.contains(SECRET), "{lang}: {told}");
            }
        }
        let clean = faults::sample(*kind);
        assert_eq!(fault.row(), clean.row());
        assert_eq!(fault.attempts(), clean.attempts());
        assert_eq!(fault.trace(), clean.trace());
    }
}

fn planted(kind: Kind, secret: &str) -> Fault {
    let text = format!("key {secret} was refused");
    let advice = [
        Advice::Custom(text.clone()),
        Advice::Known {
            advice: "none-such".into(),
            with: Detail::new().with(Fact::Reason, text.clone()),
        },
    ];
    let mut fault = faults::sample(kind)
        .with_cause(text.clone())
        .via("computer", text.clone())
        .advise_model(advice.clone())
        .advise_user(advice)
        .mismatch(Mismatch {
            pointer: format!("/{secret}"),
            rule: "enum".into(),
            expected: text.clone(),
            received: Some(text.clone()),
            allowed: vec![json!(text), json!({ "token": secret })],
            nearest: Some(secret.to_owned()),
        });
    for fact in Fact::VARIANTS {
        fault = match fact.shape() {
            Shape::Number => fault,
            Shape::Text => fault.with(*fact, text.clone()),
            Shape::List => fault.with(*fact, vec![text.clone(), secret.to_owned()]),
            Shape::Json => fault.with(*fact, json!({ "a": [{ "b": text }] })),
        };
    }
    fault
}

#[test]
fn known_reasons_are_translated_and_foreign_reasons_are_shown_as_written() {
    let denied = |reason: &'static str| {
        Fault::new(Kind::DeniedByPolicy, Operation::ToolCall)
            .with(Fact::ToolName, "fs_write")
            .with(Fact::Reason, reason)
    };
    let ours = denied("the tool writes or executes, and the mode is `readonly`");
    assert!(text::model_text(&ours, Lang::En).contains("the mode is `readonly`"));
    let told = text::model_text(&ours, Lang::Zh);
    assert!(told.contains("当前模式是 `readonly`") && !told.contains("the mode"), "{told}");
    let theirs = denied("not on a Sunday");
    assert!(text::model_text(&theirs, Lang::Zh).contains("not on a Sunday"));
    let longer = "the tool is on the ask list of the house";
    assert_eq!(text::reason(longer, Lang::Zh), longer, "only whole reasons are ours");
    let plan = "the plan must be confirmed before it is carried out";
    assert_eq!(text::reason(plan, Lang::Zh), "计划须经确认才能执行");
}

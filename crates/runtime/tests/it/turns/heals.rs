//! What goes wrong, and how it is recovered from.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use budao_core::{
    Kind,
    event::{Compaction, Event, StopReason},
    message::ModelStop,
    session::unpaired,
};
use budao_models::script::{Ending, Script, ScriptStep};
use budao_tools::{RawTool, ToolOptions};
use serde_json::json;

use crate::turns::fixture::{Setup, fault_of};

#[tokio::test(start_paused = true)]
async fn a_rate_limit_once_costs_a_wait_and_nothing_else() {
    let stage = Setup::new(Script::new().fail(Kind::ModelRateLimited).say("ok")).open().await;
    let before = tokio::time::Instant::now();
    assert_eq!(stage.run("go").await.text, "ok");
    let waited = before.elapsed();
    assert!(waited >= Duration::from_secs(1) && waited < Duration::from_secs(2), "{waited:?}");
    let names = stage.names().await;
    let told: Vec<_> = names
        .iter()
        .filter(|name| ["fault_raised", "retry_scheduled", "recovered"].contains(&name.as_str()))
        .collect();
    assert_eq!(told, ["fault_raised", "retry_scheduled", "recovered"]);
}

#[tokio::test(start_paused = true)]
async fn a_lasting_rate_limit_ends_the_turn_when_its_patience_is_over() {
    let script = Script::new().fail(Kind::ModelRateLimited).forever();
    let stage = Setup::new(script).open().await;
    let before = tokio::time::Instant::now();
    let result = stage.run("go").await;
    assert_eq!(fault_of(&result).kind(), Kind::ModelRateLimited, "the service's fault");
    assert!(result.retryable());
    let waited = before.elapsed();
    assert!((600..=900).contains(&waited.as_secs()), "{waited:?}");
    assert!(stage.model.asked() < 60, "{} requests", stage.model.asked());
    assert_eq!(stage.count("recovery_failed").await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_lasting_rate_limit_ends_a_turn_without_patience_after_three_tries() {
    let script = Script::new().fail(Kind::ModelRateLimited).forever();
    let mut setup = Setup::new(script);
    setup.limits.gate.patience_watched = Duration::ZERO;
    let stage = setup.open().await;
    let result = stage.run("go").await;
    assert_eq!(fault_of(&result).kind(), Kind::ModelRateLimited);
    assert!(stage.model.asked() <= 3, "{} requests", stage.model.asked());
}

#[tokio::test(start_paused = true)]
async fn a_wrong_key_is_not_tried_again() {
    let stage = Setup::new(Script::new().fail(Kind::ModelAuthentication).forever()).open().await;
    let result = stage.run("go").await;
    assert_eq!(stage.model.asked(), 1);
    assert_eq!(fault_of(&result).kind(), Kind::ModelAuthentication);
    let names = stage.names().await;
    let end = &names[names.len() - 3..];
    assert_eq!(end, ["recovery_failed", "turn_ended", "session_ended"]);
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_cut_is_asked_again_and_its_words_are_void() {
    let cut = ScriptStep::new().text("half an ans").end(Ending::Cut);
    let stage = Setup::new(Script::new().step(cut).say("whole")).open().await;
    assert_eq!(stage.run("go").await.text, "whole");
    let shown = stage.records().await;
    let mut text = String::new();
    for record in shown {
        match record.event {
            Event::TextDelta { text: more, .. } => text.push_str(&more),
            Event::AnswerAbandoned { .. } => text.clear(),
            _ => {}
        }
    }
    assert_eq!(text, "whole", "a reader who heeds the mark sees each character once");
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_stalls_ends_by_its_deadline() {
    let stall = ScriptStep::new().text("wait for").end(Ending::Stall);
    let stage = Setup::new(Script::new().step(stall).say("it")).open().await;
    assert_eq!(stage.run("go").await.text, "it");
}

#[tokio::test(start_paused = true)]
async fn a_model_that_answers_nothing_is_asked_again() {
    let stage = Setup::new(Script::new().step(ScriptStep::new()).say("something")).open().await;
    assert_eq!(stage.run("go").await.text, "something");
}

#[tokio::test(start_paused = true)]
async fn a_stuck_model_costs_three_requests() {
    let stage = Setup::new(Script::new().call("echo", json!({"bad": 1})).forever()).open().await;
    let result = stage.run("go").await;
    assert_eq!(stage.model.asked(), 3);
    assert_eq!(fault_of(&result).kind(), Kind::RepeatedCallStopped);
}

#[tokio::test(start_paused = true)]
async fn truncated_arguments_never_run() {
    let step = ScriptStep::new().call_raw(None, "touch", r#"{"text": "unfini"#);
    let stage = Setup::new(Script::new().step(step).say("sorry")).open().await;
    assert_eq!(stage.run("go").await.text, "sorry");
    assert_eq!(stage.touched.load(Ordering::SeqCst), 0);
    assert_eq!(stage.last_result()["errorType"], "validation");
}

#[tokio::test(start_paused = true)]
async fn a_panicking_tool_costs_only_its_own_call() {
    let panics = RawTool::new("panics", "Panics.", json!({"type": "object"}), |_, _| async move {
        panic!("tool bug")
    });
    let script = Script::new()
        .calls([("panics", json!({})), ("echo", json!({"text": "fine"}))])
        .say("went on");
    let mut setup = Setup::new(script);
    setup.tools.push(panics);
    let stage = setup.open().await;
    assert_eq!(stage.run("go").await.text, "went on");
    let kinds: Vec<_> = stage
        .records()
        .await
        .iter()
        .filter_map(|record| match &record.event {
            Event::ToolCallEnded { outcome, .. } => {
                Some(outcome.fault().map(budao_core::Fault::kind))
            }
            _ => None,
        })
        .collect();
    assert!(kinds.contains(&Some(Kind::ToolPanicked)) && kinds.contains(&None), "{kinds:?}");
}

#[tokio::test(start_paused = true)]
async fn an_idempotent_tool_is_tried_again_by_itself() {
    let tries = Arc::new(std::sync::atomic::AtomicU32::new(0));
    let count = Arc::clone(&tries);
    let flaky = RawTool::new("flaky", "Works the second time.", json!({"type": "object"}), {
        move |_, _| {
            let first = count.fetch_add(1, Ordering::SeqCst) == 0;
            async move {
                if first {
                    let operation = budao_core::fault::Operation::ToolCall;
                    let fault = budao_core::Fault::new(Kind::NetworkUnavailable, operation);
                    return Err(budao_core::tool::Failure { fault, data: None, note: None });
                }
                Ok(json!("ok"))
            }
        }
    })
    .options(ToolOptions::read_only().idempotent(true));
    let mut setup = Setup::new(Script::new().call("flaky", json!({})).say("done"));
    setup.tools.push(flaky);
    let stage = setup.open().await;
    assert_eq!(stage.run("go").await.text, "done");
    assert_eq!(tries.load(Ordering::SeqCst), 2);
    assert_eq!(stage.count("recovered").await, 1);
    assert_eq!(stage.count("tool_call_ended").await, 1);
}

#[tokio::test(start_paused = true)]
async fn an_answer_cut_by_the_token_limit_ends_with_that_reason() {
    let step = ScriptStep::new().text("and then").end(Ending::Stop(Some(ModelStop::MaxTokens)));
    let stage = Setup::new(Script::new().step(step)).open().await;
    assert_eq!(stage.run("go").await.stop, Some(StopReason::MaxTokens));
}

#[tokio::test(start_paused = true)]
async fn a_long_history_is_compacted_and_pairs_stay_whole() {
    let mut script = Script::new();
    for round in 0..30 {
        script = script
            .call("echo", json!({"text": format!("{round} {}", "x".repeat(400))}))
            .say(format!("answer {round}"));
    }
    let mut setup = Setup::new(script.say("more").forever());
    setup.limits.context_tokens = 2_000;
    let stage = setup.open().await;
    for round in 0..20 {
        let result = stage.run(&format!("question {round}")).await;
        assert!(result.is_ok(), "{result:?}");
    }
    let compacted = stage.count("history_compacted").await;
    assert!(compacted > 0);
    assert_eq!(stage.count("compaction_started").await, compacted);
    for request in stage.model.requests() {
        assert_eq!(unpaired(&request.messages, 0), None);
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_summary_is_recorded_and_replaced_by_rule() {
    let mut script = Script::new().say("x".repeat(4_000)).say("y".repeat(4_000));
    script = script.fail(Kind::ModelOverloaded).say("after all");
    let mut setup = Setup::new(script);
    setup.limits.context_tokens = 1_500;
    let stage = setup.open().await;
    stage.run("one").await;
    stage.run("two").await;
    let result = stage.run("three").await;
    assert_eq!(result.text, "after all", "{result:?}");
    assert_eq!(stage.raised().await, [Kind::ModelOverloaded]);
    assert_eq!(stage.count("recovered").await, 0, "nothing was tried again");
    let by_model = stage.records().await.iter().any(
        |record| matches!(&record.event, Event::HistoryCompacted(Compaction { by_model, .. }) if *by_model),
    );
    assert!(!by_model);
    let summary = stage.model.requests()[2].clone();
    assert_eq!(summary.trace, result.trace, "the request for a summary is part of the turn");
}

#[tokio::test(start_paused = true)]
async fn a_failed_turn_is_continued_by_a_retry_without_repeating_its_call() {
    let script = Script::new()
        .call("touch", json!({}))
        .fail(Kind::ModelAuthentication)
        .fail(Kind::ModelAuthentication)
        .say("Done after all.");
    let stage = Setup::new(script).open().await;
    let failed = stage.run("go").await;
    assert_eq!(fault_of(&failed).kind(), Kind::ModelAuthentication);
    let again = stage.runtime.retry(stage.session).await.unwrap();
    assert_eq!(fault_of(&again).kind(), Kind::ModelAuthentication, "a retry may fail too");
    let answered = stage.runtime.retry(stage.session).await.unwrap();
    assert_eq!((answered.text.as_str(), answered.turn), ("Done after all.", 3));
    assert_eq!(stage.touched.load(Ordering::SeqCst), 1, "the call was made once");
    let requests = stage.model.requests();
    assert_eq!(requests[1].messages, requests[3].messages, "the request is the one that failed");
    let refused = stage.runtime.retry(stage.session).await.unwrap_err();
    assert_eq!(refused.kind(), Kind::ConstraintViolated);
}

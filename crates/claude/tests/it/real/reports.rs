//! What the real CLIs report: special ends of a turn, models, sizes, failed servers; and questions of the model.

use std::time::Duration;

use budao_claude::permissions;
use budao_core::{
    event::{Answer, CommandBody, Decision, Event, Settings, StopReason},
    fault::{Fact, Kind},
};
use serde_json::{Value, json};

use super::{CURRENT, Fixture, OLD};

const PEERS: [&str; 2] = [OLD, CURRENT];

#[tokio::test]
async fn both_clis_distinguish_refusals_output_limits_and_empty_answers() {
    for peer in PEERS {
        let Some(fixture) = Fixture::open(peer, Settings::default()).await else { return };
        let refused = fixture.run(1, "refuse %refuse").await;
        assert_eq!(refused.stop, StopReason::Refusal, "{peer} {:#?}", refused.fault);
        let limited = fixture.run(2, "go on for ever %max").await;
        assert_eq!(limited.stop, StopReason::MaxTokens, "{peer} {:#?}", limited.fault);
        assert!(!limited.text.contains("API Error"), "{peer}: {}", limited.text);
        let empty = fixture.run(3, "say nothing %empty").await;
        assert_eq!(empty.stop, StopReason::Failed, "{peer}");
        assert_eq!(empty.fault.unwrap().kind(), Kind::EmptyAnswer, "{peer}");
        fixture.run(4, "go on %plain").await.assert_is(StopReason::EndTurn, "hello world");
        fixture.close().await;
    }
}

#[tokio::test]
async fn both_clis_report_their_models_and_the_size_of_the_context() {
    for (peer, tokens) in [(OLD, 200_000), (CURRENT, 1_000_000)] {
        let Some(fixture) = Fixture::open(peer, Settings::default()).await else { return };
        let seen = fixture.run(1, "hello").await;
        let reported = |wanted: &str| {
            seen.records.iter().find_map(|record| match &record.event {
                Event::Annotated { topic, data } if topic == wanted => Some(data.clone()),
                _ => None,
            })
        };
        let models = reported("claude.models").unwrap();
        let ids: Vec<_> = models["models"].as_array().unwrap().iter().map(|it| &it["id"]).collect();
        assert!(ids.len() >= 3 && ids[0] == budao_claude::DEFAULT_MODEL, "{peer}: {models}");
        assert!(models["models"][0]["name"].as_str().is_some_and(|name| !name.is_empty()));
        assert_eq!(reported("claude.context"), Some(json!({"tokens": tokens})), "{peer}");
        fixture.close().await;
    }
}

#[tokio::test]
async fn the_answers_to_a_question_of_the_model_reach_it_through_both_clis() {
    for peer in PEERS {
        let Some(fixture) = Fixture::open(peer, Settings::default()).await else { return };
        fixture.say("ask me %ask").await;
        let mut asked = None;
        fixture
            .until(|record| match &record.event {
                Event::QuestionAsked { question, arguments, .. } => {
                    asked = Some((question.clone(), arguments.clone()));
                    true
                }
                _ => false,
            })
            .await;
        let (question, mut arguments) = asked.unwrap();
        arguments["answers"] = json!({"Which color?": "Blue"});
        let (decision, note, digest) = (Decision::Allow, None, None);
        let arguments = Some(arguments);
        let decide = CommandBody::Decide { question, decision, note, arguments, digest };
        assert!(matches!(fixture.ask(decide).await, Answer::Accepted { .. }));
        fixture.ended(1).await.assert_is(StopReason::EndTurn, "let me after the tool");
        let last = fixture.api.asked().pop().unwrap()["messages"].to_string();
        assert!(last.contains(r#"Which color?\"=\"Blue"#), "{peer}: {last}");
        fixture.close().await;
    }
}

/// The `thinking` of the last request to the model.
fn thinking(fixture: &Fixture) -> Value {
    let asked = fixture.api.asked();
    let last = asked.iter().rfind(|request| request["stream"] == true).unwrap();
    last["thinking"].clone()
}

#[tokio::test]
async fn thinking_that_is_off_is_off_and_can_be_left_to_the_cli_again() {
    let model = "claude-sonnet-4-5-20250929".to_owned();
    let off = [(permissions::THINKING.to_owned(), permissions::OFF.into())].into();
    let settings = Settings { model, extra: off, ..Settings::default() };
    let Some(fixture) = Fixture::open(CURRENT, settings.clone()).await else { return };
    fixture.run(1, "hello").await.assert_is(StopReason::EndTurn, "hello world");
    assert_eq!(thinking(&fixture)["type"], "disabled");
    let on = Settings { extra: Default::default(), ..settings.clone() };
    for (turn, settings, wanted) in [(2, on, "enabled"), (3, settings, "disabled")] {
        fixture.ask(CommandBody::Settings { settings: Box::new(settings), before: None }).await;
        fixture.run(turn, "again").await.assert_is(StopReason::EndTurn, "hello world");
        assert_eq!(thinking(&fixture)["type"], wanted, "turn {turn}");
    }
    fixture.close().await;
}

#[tokio::test]
async fn mcp_servers_that_do_not_start_are_reported_with_the_reason_by_both_clis() {
    for peer in PEERS {
        let Some(fixture) = Fixture::open(peer, Settings::default()).await else { return };
        let missing = json!({"type": "stdio", "command": "/nonexistent/server", "args": []});
        fixture.engine.tool_servers(fixture.session, json!({"mine": missing}));
        fixture.run(1, "hello").await.assert_is(StopReason::EndTurn, "hello world");
        fixture.run(2, "again").await.assert_is(StopReason::EndTurn, "hello world");
        let mut faults = Vec::new();
        let records = tokio::time::timeout(
            Duration::from_secs(20),
            fixture.until(|record| matches!(&record.event, Event::FaultRaised { .. })),
        );
        for record in records.await.unwrap() {
            if let Event::FaultRaised { fault, .. } = record.event {
                faults.push(fault);
            }
        }
        assert_eq!(faults[0].kind(), Kind::McpServerFailed, "{peer}");
        assert_eq!(faults[0].detail().text(Fact::McpServer), Some("mine"));
        let reason = faults[0].detail().text(Fact::Reason).unwrap();
        assert!(reason.contains("ENOENT"), "{peer}: {reason}");
        fixture.close().await;
    }
}

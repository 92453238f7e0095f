//! Results and cancels that belong to another turn, and turns without a prompt.

use std::time::Duration;

use budao_core::event::Event;
use budao_journal::PageLimits;
use budao_testkit::claude::{BY_ITSELF, CliVersion};
use serde_json::json;

use super::{AGES, Fixture};
use crate::editor::UserBehaviour;

/// The log of the seed: A completes, an error result with A's numbers is left over, then B, then C.
#[tokio::test(start_paused = true)]
async fn the_seeds_log_ends_with_bs_answer_in_b_and_cs_in_c() {
    for age in AGES {
        // Left over before B is sent; and there at the moment B is sent, as in the log.
        for (a, b) in
            [("Pa @stray-after", "Pb"), ("Pa", "Pb @stray-before"), ("Pa", "Pb @stray-mid")]
        {
            let mut stage = Fixture::open(age).await;
            stage.runs_well(a).await;
            stage.runs_well(b).await;
            stage.runs_well("Pc").await;
            assert_eq!(dropped(&stage).await, 1, "it is on record ({age:?}, {a}, {b})");
            stage.close().await;
        }
    }
}

async fn dropped(stage: &Fixture) -> usize {
    let id = stage.session.parse().unwrap();
    let page = stage.journal.read(id, 0, PageLimits::default()).await.unwrap();
    let is_late = |event: &Event| matches!(event, Event::LateArrivalDropped { .. });
    page.records.iter().filter(|stored| is_late(&stored.event().unwrap())).count()
}

#[tokio::test(start_paused = true)]
async fn no_stray_result_changes_a_prompt() {
    for age in AGES {
        let mut stage = Fixture::open(age).await;
        for position in ["before", "mid", "after"] {
            for kind in ["", "-stamped", "-foreign"] {
                for fine in ["", " @fine"] {
                    for slow in ["", " @slow"] {
                        stage.runs_well("P1").await;
                        stage.runs_well(&format!("P2 @stray-{position}{kind}{fine}{slow}")).await;
                        stage.runs_well("P3").await;
                    }
                }
            }
        }
        assert!(dropped(&stage).await >= 24, "they are on record");
        stage.close().await;
    }
}

#[tokio::test(start_paused = true)]
async fn text_and_results_that_come_after_a_turn_are_not_the_next_ones() {
    for age in AGES {
        let mut stage = Fixture::open(age).await;
        stage.runs_well("P1 @late").await;
        stage.runs_well("P2 @slow @late").await;
        let slow = stage.prompt("P3 @slow @late").await;
        stage.editor.read_for(Duration::from_millis(300)).await;
        stage.cancel().await;
        assert_eq!(stage.editor.stop(slow).await, "cancelled");
        stage.runs_well("P4").await;
        stage.close().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_cancel_never_reaches_the_prompt_behind_it() {
    for age in AGES {
        for gap in [0, 1, 5, 20, 100] {
            for is_busy in [true, false] {
                let mut stage = Fixture::open(age).await;
                let first = stage.prompt("P1 @slow").await;
                if is_busy {
                    stage.editor.read_for(Duration::from_millis(60)).await;
                } else {
                    stage.editor.stop(first).await;
                }
                stage.cancel().await;
                stage.editor.read_for(Duration::from_millis(gap)).await;
                let second = stage.prompt("P2").await;
                let third = stage.prompt("P3 @slow").await;
                let expected = if is_busy { "cancelled" } else { "end_turn" };
                let seen = [
                    stage.editor.stop(first).await,
                    stage.editor.stop(second).await,
                    stage.editor.stop(third).await,
                ];
                assert_eq!(seen, [expected, "end_turn", "end_turn"], "{age:?} {gap} ms {is_busy}");
                stage.close().await;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_prompt_is_cancelled_before_it_began_and_twice() {
    for age in AGES {
        let mut stage = Fixture::open(age).await;
        let first = stage.prompt("P1 @slow").await;
        stage.cancel().await;
        stage.cancel().await;
        let second = stage.prompt("P2").await;
        assert_eq!(stage.editor.stop(first).await, "cancelled");
        assert_eq!(stage.editor.stop(second).await, "end_turn");
        stage.close().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_cancel_while_a_silent_person_is_asked_takes_the_question_back() {
    for age in AGES {
        let mut stage = Fixture::open(age).await;
        stage.editor.behaviour = UserBehaviour::Silent;
        let first = stage.prompt("P1 @tool").await;
        stage.editor.until(|value| value["method"] == "session/request_permission").await;
        stage.cancel().await;
        assert_eq!(stage.editor.stop(first).await, "cancelled");
        let questions = stage.editor.questions[0]["id"].clone();
        let withdrawn = stage.editor.transcript.iter().any(|line| {
            line.value["method"] == "$/cancel_request"
                && line.value["params"]["requestId"] == questions
        });
        assert!(withdrawn, "{age:?}");
        stage.editor.behaviour = UserBehaviour::Option("allow");
        stage.runs_well("P2 @tool").await;
        stage.close().await;
    }
}

#[tokio::test(start_paused = true)]
async fn of_three_queued_prompts_the_middle_one_is_taken_back() {
    for age in AGES {
        let mut stage = Fixture::open(age).await;
        let first = stage.prompt("P1 @slow").await;
        let second = stage.prompt("P2 @slow").await;
        let third = stage.prompt("P3").await;
        stage.editor.notify("$/cancel_request", json!({"requestId": second})).await;
        assert_eq!(stage.editor.stop(second).await, "cancelled");
        assert_eq!(stage.editor.stop(first).await, "end_turn");
        assert_eq!(stage.editor.stop(third).await, "end_turn");
        assert!(!stage.editor.text().contains("P2"));
        stage.close().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_background_turn_between_prompts_is_shown_and_answers_no_prompt() {
    // It begins a tenth of a second after the first prompt's end; the second comes before, at and after that.
    for wait in [0, 50, 99, 100, 101, 150, 1_000] {
        let mut stage = Fixture::open(CliVersion::Current).await;
        stage.runs_well("P1 @background").await;
        stage.editor.read_for(Duration::from_millis(wait)).await;
        let second = stage.prompt("P2").await;
        assert_eq!(stage.editor.stop(second).await, "end_turn", "{wait} ms");
        stage.runs_well("P3").await;
        stage.editor.read_for(Duration::from_secs(1)).await;
        let chunks = stage.editor.updates("agent_message_chunk");
        let thoughts = stage.editor.updates("agent_thought_chunk");
        let all = chunks.iter().chain(&thoughts);
        let own = all.filter(|it| it["content"]["text"].as_str().unwrap().contains(BY_ITSELF));
        assert_eq!(own.count(), 1, "{wait} ms: shown once, as an answer of its own or beside one");
        stage.close().await;
    }
}

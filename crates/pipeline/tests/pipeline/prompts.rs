//! What children are told, word for word.

use budao_core::{Kind, Lang};
use budao_pipeline::{plan, prompt};
use serde_json::json;

use crate::play::{Play, cancelled, completed, failed};

#[test]
fn the_planner_gets_the_form_of_a_plan_and_the_mistakes_of_its_last_one() {
    let refused = plan::read("no").unwrap_err();
    let told = prompt::planner("Why is the sky blue?", Some(&refused), Lang::default());
    insta::assert_snapshot!(told);
}

#[test]
fn a_solver_gets_its_task_and_the_notes_of_the_planner() {
    let draft = plan::coerce(json!([{"prompt": "count"}, {"prompt": "count", "unit": "lines"}]));
    let tasks = draft.unwrap().tasks;
    assert_eq!(prompt::solver(&tasks[0], 1), "count");
    assert_eq!(prompt::solver(&tasks[1], 1), "count\n\nMore about this task: {\"unit\":\"lines\"}");
    let again = "count\n\nThis is attempt 2 at this task. An earlier one failed or was stopped; what it did may still \
                 be there.";
    assert_eq!(prompt::solver(&tasks[0], 2), again);
}

#[test]
fn the_aggregator_gets_every_result_and_every_failure_with_its_reason() {
    let mut play = Play::solving(json!(["count apples", "count pears", "count plums"]));
    play.solve("1", completed("7 apples"));
    play.solve("2", failed(Kind::ModelOverloaded));
    play.solve("3", cancelled());
    insta::assert_snapshot!(prompt::aggregator(play.pipeline(), 10_000, Lang::default()));
}

#[test]
fn results_share_the_room_there_is() {
    let mut play = Play::solving(json!(["a", "b"]));
    play.solve("1", completed(&"苹".repeat(10_000)));
    play.solve("2", completed("short"));
    let told = prompt::aggregator(play.pipeline(), 2_000, Lang::default());
    assert!(told.len() < 3_000, "{}", told.len());
    assert!(told.contains("bytes left out"), "{told}");
    assert!(told.contains("short"), "{told}");
}

#[test]
fn a_cut_keeps_head_and_tail_whatever_the_characters() {
    for most in 0..40 {
        let cut = prompt::cut("0123456789苹果苹果苹果abcdefghij", most);
        assert!(most >= 38 || cut.contains("bytes left out"), "{cut}");
    }
    assert_eq!(prompt::cut("whole", 5), "whole");
}

//! What becomes a plan, and what is refused with which reasons.

use budao_core::{Fault, Kind, Lang, fault::text, pipeline::PlanDraft};
use budao_pipeline::plan::{self, TASKS_MAX};
use serde_json::{Value, json};

fn ids(draft: &PlanDraft) -> Vec<&str> {
    draft.tasks.iter().map(|task| &*task.id.0).collect()
}

fn reasons(fault: &Fault) -> Vec<String> {
    assert_eq!(fault.kind(), Kind::PlanCoercionFailed);
    fault.mismatches().iter().map(ToString::to_string).collect()
}

fn refused(value: Value) -> Vec<String> {
    reasons(&plan::coerce(value).expect_err("no plan"))
}

#[test]
fn a_list_and_an_object_with_tasks_are_plans() {
    let tasks = json!([{"id": "a", "title": "A", "prompt": "do a"}, {"id": "b", "prompt": "do b"}]);
    let list = plan::coerce(tasks.clone()).unwrap();
    assert_eq!(ids(&list), ["a", "b"]);
    let object = plan::coerce(json!({"tasks": tasks, "summary": "both"})).unwrap();
    assert_eq!(object.tasks, list.tasks);
    assert_eq!(object.summary, "both");
    assert_eq!(list.tasks[1].title, "do b", "a task without a title is called what it says");
}

#[test]
fn missing_ids_are_assigned_and_numbers_become_text() {
    let draft = plan::coerce(json!([{"prompt": "x"}, {"id": 1, "prompt": "y"}, "z"])).unwrap();
    assert_eq!(ids(&draft), ["2", "1", "3"], "an assigned id is nobody else's");
    assert_eq!(draft.tasks[2].prompt, "z");
}

#[test]
fn what_a_planner_adds_stays_with_the_task() {
    let draft = plan::coerce(json!([{"id": 1, "prompt": "x", "chart": "bar", "n": 2}])).unwrap();
    assert_eq!(draft.tasks[0].extra["chart"], "bar");
    assert_eq!(draft.tasks[0].extra.len(), 2);
}

#[test]
fn one_task_alone_is_a_plan() {
    assert_eq!(ids(&plan::coerce(json!({"id": "only", "title": "t"})).unwrap()), ["only"]);
    assert_eq!(ids(&plan::coerce(json!({"tasks": {"prompt": "p"}})).unwrap()), ["1"]);
}

#[test]
fn words_and_fences_around_the_json_do_not_matter() {
    let text =
        "Here is my plan [as asked]:\n```json\n{\"tasks\": [{\"prompt\": \"x\"}]}\n```\nGood luck!";
    assert_eq!(ids(&plan::read(text).unwrap()), ["1"]);
    assert_eq!(ids(&plan::read("  [\"x\", \"y\"] ").unwrap()), ["1", "2"]);
}

#[test]
fn an_empty_plan_is_refused() {
    assert_eq!(refused(json!([])), ["tasks: at least one task (you sent [])"]);
    assert_eq!(refused(json!({"tasks": []})), ["tasks: at least one task (you sent [])"]);
    assert_eq!(refused(json!({"tasks": null})), ["tasks: must be a list of tasks (you sent null)"]);
}

#[test]
fn duplicate_ids_are_refused() {
    let tasks = json!([{"id": "1", "prompt": "x"}, {"id": 1, "prompt": "y"}]);
    assert_eq!(refused(tasks), ["tasks.1.id: an id no other task has (you sent 1)"]);
}

#[test]
fn all_mismatches_of_a_plan_are_reported_together() {
    let tasks = json!([{"id": []}, {"prompt": " "}, 7, {"id": "x".repeat(65), "prompt": "p"}]);
    let reasons = refused(tasks);
    assert_eq!(reasons.len(), 4, "{reasons:#?}");
    assert!(reasons[0].starts_with("tasks.0.id: must be text"), "{reasons:#?}");
    assert!(reasons[1].starts_with("tasks.1.prompt: required"), "{reasons:#?}");
    assert!(reasons[2].starts_with("tasks.2: must be an object"), "{reasons:#?}");
    assert!(reasons[3].starts_with("tasks.3.id: at most 64 bytes"), "{reasons:#?}");
}

#[test]
fn a_plan_has_bounds() {
    let many: Vec<Value> = (0..=TASKS_MAX).map(|n| json!(format!("task {n}"))).collect();
    assert_eq!(refused(json!(many)), ["tasks: at most 64 tasks (you sent 65)"]);
    let long = refused(json!([{"prompt": "x".repeat(65 * 1024)}]));
    assert!(long[0].starts_with("tasks.0.prompt: at most 65536 bytes"), "{long:?}");
    assert!(long[0].len() < 300, "a reason is short whatever was sent");
    let fat = refused(json!([{"prompt": "x", "notes": "n".repeat(17 * 1024)}]));
    assert!(fat[0].starts_with("tasks.0: at most 16384 bytes"), "{fat:?}");
}

#[test]
fn prose_is_refused_with_a_reason_the_model_can_use() {
    let fault = plan::read("I would rather talk about the weather.").unwrap_err();
    let told = text::model_text(&fault, Lang::default());
    assert!(told.contains("must be JSON"), "{told}");
    assert!(told.contains("talk about the weather"), "{told}");
    // Deep nesting, broken JSON and other languages end in a reason, not in a panic.
    for text in ["[".repeat(100_000).as_str(), "{\"tasks\": [{\"prompt\": \"x\"", "计划：{无}", ""]
    {
        reasons(&plan::read(text).unwrap_err());
    }
}

#[test]
fn a_draft_is_what_its_question_shows() {
    let draft = plan::coerce(json!({"tasks": ["x", {"prompt": "y", "k": 1}], "summary": "s"}));
    let draft = draft.unwrap();
    assert_eq!(PlanDraft::of_arguments(&draft.to_arguments()), draft);
    let other = PlanDraft { summary: "t".into(), ..draft.clone() };
    assert_ne!(draft.digest(), other.digest());
    assert_eq!(PlanDraft::of_arguments(&json!({"path": "of another tool"})), PlanDraft::default());
}

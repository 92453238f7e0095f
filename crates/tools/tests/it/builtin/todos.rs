//! The list of things to do.

use serde_json::json;

use crate::builtin::support::Fixture;

#[tokio::test]
async fn a_list_is_replaced_and_read_back() {
    let fixture = Fixture::new();
    let todos = json!([
        { "id": "1", "title": "read", "status": "completed" },
        { "id": "2", "title": "write", "status": "in_progress", "notes": "soon" },
    ]);
    let done = fixture.done("todo_write", json!({ "todos": todos })).await;
    assert_eq!(done, json!({ "ok": true, "count": 2 }));
    assert_eq!(fixture.done("todo_read", json!({})).await, json!({ "todos": todos }));
    fixture.done("todo_write", json!({ "todos": [] })).await;
    assert_eq!(fixture.done("todo_read", json!({})).await, json!({ "todos": [] }));
}

#[tokio::test]
async fn a_list_that_breaks_a_rule_changes_nothing_and_names_the_place() {
    let fixture = Fixture::new();
    let kept = json!([{ "id": "1", "title": "read", "status": "pending" }]);
    fixture.done("todo_write", json!({ "todos": kept })).await;
    let twice = json!({ "todos": [
        { "id": "a", "title": "one", "status": "pending" },
        { "id": "a", "title": "two", "status": "pending" },
    ]});
    let two_active = json!({ "todos": [
        { "id": "a", "title": "one", "status": "in_progress" },
        { "id": "b", "title": "two", "status": "in_progress" },
    ]});
    insta::assert_json_snapshot!(
        "same_id_twice",
        fixture.call_and_render("todo_write", twice).await
    );
    insta::assert_json_snapshot!(
        "two_in_progress",
        fixture.call_and_render("todo_write", two_active).await
    );
    assert_eq!(fixture.done("todo_read", json!({})).await, json!({ "todos": kept }));
}

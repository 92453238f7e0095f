//! What the built-in tools can find out about an interrupted call.

use budao_core::{limits::Limits, tool::ReconcileResult};
use serde_json::{Value, json};

use crate::builtin::support::Fixture;

async fn ask(fixture: &Fixture, path: &str, content: &str) -> ReconcileResult {
    let arguments = json!({"path": path, "content": content});
    let call = fixture.toolbox.check_value("fs_write", arguments, &Limits::default()).unwrap();
    assert!(call.can_reconcile());
    call.reconcile(fixture.context.clone()).await
}

#[tokio::test]
async fn a_file_that_has_the_content_was_written() {
    let fixture = Fixture::new();
    fixture.write("a.txt", "one\ntwo\n");
    let ReconcileResult::Happened(output) = ask(&fixture, "a.txt", "one\ntwo\n").await else {
        panic!("it was written")
    };
    assert_eq!((&output.data["path"], &output.data["lines"]), (&json!("a.txt"), &json!(2)));
}

#[tokio::test]
async fn a_file_that_is_missing_as_before_was_not_written() {
    let fixture = Fixture::new();
    assert_eq!(ask(&fixture, "new.txt", "x").await, ReconcileResult::DidNotHappen);
    assert_eq!(ask(&fixture, "deep/er/new.txt", "x").await, ReconcileResult::DidNotHappen);
    assert!(!fixture.folder.path().join("deep").exists(), "looking changes nothing");
}

#[tokio::test]
async fn a_file_in_an_unknown_state_leaves_the_call_in_doubt() {
    let fixture = Fixture::new();
    fixture.write("a.txt", "by somebody else");
    assert_eq!(ask(&fixture, "a.txt", "ours").await, ReconcileResult::CannotTell);
    fixture.done("fs_read", json!({"path": "a.txt"})).await;
    assert_eq!(ask(&fixture, "a.txt", "ours").await, ReconcileResult::DidNotHappen);
    std::fs::remove_file(fixture.folder.path().join("a.txt")).unwrap();
    assert_eq!(ask(&fixture, "a.txt", "ours").await, ReconcileResult::CannotTell);
}

#[tokio::test]
async fn a_path_outside_of_the_workspace_and_any_command_leave_the_call_in_doubt() {
    let fixture = Fixture::new();
    assert_eq!(ask(&fixture, "../../etc/passwd", "x").await, ReconcileResult::CannotTell);
    let command: Value = json!({"cmd": "true"});
    let call = fixture.toolbox.check_value("bash_run", command, &Limits::default());
    assert!(call.is_ok_and(|call| !call.can_reconcile()), "nobody knows what a command did");
}

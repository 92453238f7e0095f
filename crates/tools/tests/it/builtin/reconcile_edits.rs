//! What `fs_edit` and `fs_multi_edit` can find out about an interrupted call.
//!
//! Method: an edit is made by a call, or is not; then the toolbox is asked what became of the same call, by a session
//! whose memory ends before the call, as after a kill.

use budao_core::{Kind, limits::Limits, tool::ReconcileResult};
use serde_json::{Value, json};

use crate::builtin::support::Fixture;

async fn ask(fixture: &Fixture, tool: &str, arguments: &Value) -> ReconcileResult {
    let limits = Limits::default();
    let call = fixture.toolbox.check_value(tool, arguments.clone(), &limits).unwrap();
    assert!(call.can_reconcile());
    call.reconcile(fixture.context.clone()).await
}

/// Another process with the same folder and the memory of the session as it was at this moment.
fn interrupted(fixture: &Fixture) -> Fixture {
    let seen = fixture.memory.seen.lock().unwrap().clone();
    let folder = tempfile::Builder::new().prefix("fixture").tempdir().unwrap();
    for entry in std::fs::read_dir(fixture.folder.path()).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, folder.path().join(path.file_name().unwrap())).unwrap();
    }
    let options = budao_tools::builtin::BuiltinOptions::default();
    let next = Fixture::at(folder, options, Limits::default());
    *next.memory.seen.lock().unwrap() = seen;
    next
}

/// Makes a call, and returns its result and a fixture in which its process was killed after the effect.
async fn killed_after(fixture: &Fixture, tool: &str, arguments: &Value) -> (Value, Fixture) {
    let seen = fixture.memory.seen.lock().unwrap().clone();
    let result = fixture.done(tool, arguments.clone()).await;
    let next = interrupted(fixture);
    *next.memory.seen.lock().unwrap() = seen;
    (result, next)
}

fn replace(path: &str, old: &str, new: &str) -> Value {
    json!({"path": path, "old_string": old, "new_string": new})
}

fn happened(answer: ReconcileResult) -> Value {
    match answer {
        ReconcileResult::Happened(output) => output.data,
        other => panic!("the edit was made: {other:?}"),
    }
}

#[tokio::test]
async fn an_edit_that_was_made_ends_with_the_result_that_the_call_had() {
    for (content, old, new) in [
        ("a\none\nb\n", "one", "two"),
        ("import a\n", "import a", "import a\nimport b"),
        ("a, b, c\n", ", b", ""),
        ("one\r\ntwo\r\n", "one\ntwo", "three\nfour"),
        ("two one two\n", "one", "two"),
    ] {
        let fixture = Fixture::new();
        fixture.write("a.txt", content);
        fixture.done("fs_read", json!({"path": "a.txt"})).await;
        let call = replace("a.txt", old, new);
        let (result, next) = killed_after(&fixture, "fs_edit", &call).await;
        assert_eq!(happened(ask(&next, "fs_edit", &call).await), result, "{content:?}");
    }
}

#[tokio::test]
async fn a_replacement_of_every_occurrence_is_recognised_by_the_state_that_the_session_saw() {
    let fixture = Fixture::new();
    fixture.write("a.txt", "1 1 1");
    let mut call = replace("a.txt", "1", "2");
    call["replace_all"] = true.into();
    fixture.done("fs_read", json!({"path": "a.txt"})).await;
    let (result, next) = killed_after(&fixture, "fs_edit", &call).await;
    assert_eq!(happened(ask(&next, "fs_edit", &call).await), result);
    assert_eq!(result["replacements"], 3);
    // Nobody saw which of the places were new.
    next.memory.seen.lock().unwrap().clear();
    assert_eq!(ask(&next, "fs_edit", &call).await, ReconcileResult::CannotTell);
}

#[tokio::test]
async fn a_file_with_the_old_text_and_without_the_new_one_was_not_edited() {
    let fixture = Fixture::new();
    fixture.write("a.txt", "a one b");
    let call = replace("a.txt", "one", "two");
    assert_eq!(ask(&fixture, "fs_edit", &call).await, ReconcileResult::DidNotHappen);
    fixture.done("fs_read", json!({"path": "a.txt"})).await;
    assert_eq!(ask(&fixture, "fs_edit", &call).await, ReconcileResult::DidNotHappen);
    assert_eq!(fixture.read("a.txt"), "a one b", "the question changes nothing");
    // Changed by another program: the call runs again, and is refused as it would have been.
    fixture.write("a.txt", "a one b c");
    assert_eq!(ask(&fixture, "fs_edit", &call).await, ReconcileResult::DidNotHappen);
    assert_eq!(fixture.fails("fs_edit", call).await, Kind::FileChanged);
}

#[tokio::test]
async fn an_edit_of_a_file_that_was_never_read_is_recognised_by_texts_that_leave_one_reading() {
    let fixture = Fixture::new();
    fixture.write("a.txt", "a one b");
    let call = replace("a.txt", "one", "two");
    let (result, next) = killed_after(&fixture, "fs_edit", &call).await;
    assert_eq!(happened(ask(&next, "fs_edit", &call).await), result);
    assert!(next.memory.seen.lock().unwrap().is_empty(), "the session has not read it");
}

#[tokio::test]
async fn a_new_text_that_has_the_old_one_in_it_is_not_put_in_twice() {
    let fixture = Fixture::new();
    fixture.write("a.txt", "import a\n");
    fixture.done("fs_read", json!({"path": "a.txt"})).await;
    let call = replace("a.txt", "import a", "import a\nimport b");
    assert_eq!(ask(&fixture, "fs_edit", &call).await, ReconcileResult::DidNotHappen);
    fixture.done("fs_edit", call.clone()).await;
    // The process died between the record of the new state and the outcome, or the file was never seen: both texts are
    // there, before and after.
    let next = interrupted(&fixture);
    assert_eq!(ask(&next, "fs_edit", &call).await, ReconcileResult::CannotTell);
    next.memory.seen.lock().unwrap().clear();
    assert_eq!(ask(&next, "fs_edit", &call).await, ReconcileResult::CannotTell);
}

#[tokio::test]
async fn a_file_changed_by_another_program_leaves_the_call_in_doubt() {
    let fixture = Fixture::new();
    fixture.write("a.txt", "a one b");
    fixture.done("fs_read", json!({"path": "a.txt"})).await;
    let call = replace("a.txt", "one", "two");
    for content in ["a two b c", "neither of them", ""] {
        fixture.write("a.txt", content);
        let found = ask(&fixture, "fs_edit", &call).await;
        assert_eq!(found, ReconcileResult::CannotTell, "{content:?}");
    }
}

#[tokio::test]
async fn a_missing_binary_or_outside_file_leaves_the_call_in_doubt() {
    let fixture = Fixture::new();
    fixture.write("data", b"\x7fELF\x00\x01");
    for path in ["gone.txt", "no/such/folder.txt", "data", ".", "../../etc/passwd"] {
        let found = ask(&fixture, "fs_edit", &replace(path, "a", "b")).await;
        assert_eq!(found, ReconcileResult::CannotTell, "{path}");
        let edits = json!({"edits": [{"path": path, "find": "a", "replace": "b"}]});
        let found = ask(&fixture, "fs_multi_edit", &edits).await;
        assert_eq!(found, ReconcileResult::CannotTell, "{path}");
    }
}

fn edits_of_two_files() -> Value {
    json!({"edits": [
        {"path": "a.txt", "find": "one", "replace": "two"},
        {"path": "b.txt", "find": "x", "replace": "y", "replace_all": true},
        {"path": "./a.txt", "find": "two three", "replace": "four"},
    ]})
}

async fn two_files() -> Fixture {
    let fixture = Fixture::new();
    fixture.write("a.txt", "one three\n");
    fixture.write("b.txt", "x x x\n");
    for path in ["a.txt", "b.txt"] {
        fixture.done("fs_read", json!({"path": path})).await;
    }
    fixture
}

#[tokio::test]
async fn several_edits_that_were_made_end_with_the_result_that_the_call_had() {
    let fixture = two_files().await;
    let call = edits_of_two_files();
    let (result, next) = killed_after(&fixture, "fs_multi_edit", &call).await;
    assert_eq!(next.read("a.txt"), "four\n");
    assert_eq!(happened(ask(&next, "fs_multi_edit", &call).await), result);
}

#[tokio::test]
async fn several_edits_of_files_in_their_old_state_were_not_made() {
    let fixture = two_files().await;
    let found = ask(&fixture, "fs_multi_edit", &edits_of_two_files()).await;
    assert_eq!(found, ReconcileResult::DidNotHappen);
}

#[tokio::test]
async fn several_edits_interrupted_between_two_files_leave_the_call_in_doubt() {
    let fixture = two_files().await;
    fixture.write("a.txt", "four\n");
    let found = ask(&fixture, "fs_multi_edit", &edits_of_two_files()).await;
    assert_eq!(found, ReconcileResult::CannotTell);
    let fixture = two_files().await;
    fixture.write("b.txt", "y y y\n");
    let found = ask(&fixture, "fs_multi_edit", &edits_of_two_files()).await;
    assert_eq!(found, ReconcileResult::CannotTell);
}

#[tokio::test]
async fn a_call_that_waited_for_the_lock_while_its_session_went_on_changes_nothing() {
    // Goal: after the answer "did not happen" the interrupted call cannot take effect any more.
    let fixture = two_files().await;
    fixture.context.cancel.cancel();
    let call = replace("a.txt", "one", "two");
    assert_eq!(fixture.fails("fs_edit", call).await, Kind::Cancelled);
    assert_eq!(fixture.fails("fs_multi_edit", edits_of_two_files()).await, Kind::Cancelled);
    assert_eq!(fixture.read("a.txt"), "one three\n");
}

//! Replacing text in files.

use budao_core::Kind;
use serde_json::json;

use crate::support::Fixture;

const TEXT: &str = "fn main() {\n    let total = 1;\n    print(total);\n    print(total);\n}\n";

#[tokio::test]
async fn one_text_is_replaced_and_the_diff_is_shown() {
    let desk = Fixture::new();
    desk.write("main.rs", TEXT);
    let edit = json!({ "path": "main.rs", "old_string": "total = 1", "new_string": "total = 2" });
    insta::assert_json_snapshot!("edit", desk.told("fs_edit", edit).await);
    let all = json!({
        "path": "main.rs", "old_string": "print", "new_string": "show", "replace_all": true
    });
    assert_eq!(desk.done("fs_edit", all).await["replacements"], 2);
    assert_eq!(desk.read("main.rs"), TEXT.replace("= 1", "= 2").replace("print", "show"));
}

#[tokio::test]
async fn the_new_text_is_taken_literally() {
    let desk = Fixture::new();
    desk.write("a.js", "const price = PRICE;\n");
    let tricky = r"'$& $$ $1 $` \0 \n ${x}'";
    let edit = json!({ "path": "a.js", "old_string": "PRICE", "new_string": tricky });
    desk.done("fs_edit", edit).await;
    assert_eq!(desk.read("a.js"), format!("const price = {tricky};\n"));
}

#[tokio::test]
async fn a_text_that_is_not_there_is_answered_with_the_closest_lines() {
    let desk = Fixture::new();
    desk.write("main.rs", TEXT);
    let edit = |old: &str| json!({ "path": "main.rs", "old_string": old, "new_string": "x" });
    let spaces = desk.told("fs_edit", edit("  print(total);\n  print(total);")).await;
    insta::assert_json_snapshot!("only_spaces_differ", spaces);
    let typo = desk.told("fs_edit", edit("let totl = 1;")).await;
    insta::assert_json_snapshot!("close_line", typo);
    let far = desk.told("fs_edit", edit("nothing of the kind at all")).await;
    insta::assert_json_snapshot!("nothing_close", far);
    assert_eq!(desk.read("main.rs"), TEXT);
}

#[tokio::test]
async fn a_text_found_several_times_is_not_replaced_somewhere() {
    let desk = Fixture::new();
    desk.write("main.rs", TEXT);
    let edit = json!({ "path": "main.rs", "old_string": "print(total);", "new_string": "x" });
    insta::assert_json_snapshot!("several_matches", desk.told("fs_edit", edit).await);
    let same = json!({ "path": "main.rs", "old_string": "total = 1", "new_string": "total = 1" });
    insta::assert_json_snapshot!("no_change", desk.told("fs_edit", same).await);
    assert_eq!(desk.read("main.rs"), TEXT);
}

#[tokio::test]
async fn a_file_that_is_not_there_is_not_made_by_an_edit() {
    let desk = Fixture::new();
    let edit = json!({ "path": "no.rs", "old_string": "a", "new_string": "b" });
    assert_eq!(desk.fails("fs_edit", edit).await, Kind::FileNotFound);
    assert!(!desk.path("no.rs").exists());
}

#[tokio::test]
async fn many_edits_are_made_together() {
    let desk = Fixture::new();
    desk.write("a.txt", "one two\n");
    desk.write("b.txt", "three\n");
    let edits = json!({ "edits": [
        { "path": "a.txt", "find": "one", "replace": "1" },
        { "path": "b.txt", "find": "three", "replace": "3" },
        { "path": "./a.txt", "find": "1 two", "replace": "1 2" },
    ]});
    insta::assert_json_snapshot!("multi_edit", desk.told("fs_multi_edit", edits).await);
    assert_eq!((desk.read("a.txt"), desk.read("b.txt")), ("1 2\n".into(), "3\n".into()));
}

#[tokio::test]
async fn one_bad_edit_of_many_means_none_is_made() {
    let desk = Fixture::new();
    desk.write("a.txt", "one\n");
    desk.write("b.txt", "two two\n");
    let edits = json!({ "edits": [
        { "path": "a.txt", "find": "one", "replace": "1" },
        { "path": "b.txt", "find": "two", "replace": "2" },
        { "path": "c.txt", "find": "three", "replace": "3" },
        { "path": "a.txt", "find": "uno", "replace": "1" },
    ]});
    insta::assert_json_snapshot!("multi_edit_refused", desk.told("fs_multi_edit", edits).await);
    assert_eq!((desk.read("a.txt"), desk.read("b.txt")), ("one\n".into(), "two two\n".into()));
}

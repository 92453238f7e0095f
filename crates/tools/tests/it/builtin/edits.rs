//! Replacing text in files.

use budao_core::Kind;
use serde_json::json;

use crate::builtin::support::Fixture;

const TEXT: &str = "fn main() {\n    let total = 1;\n    print(total);\n    print(total);\n}\n";

#[tokio::test]
async fn one_text_is_replaced_and_the_diff_is_shown() {
    let fixture = Fixture::new();
    fixture.write("main.rs", TEXT);
    let edit = json!({ "path": "main.rs", "old_string": "total = 1", "new_string": "total = 2" });
    insta::assert_json_snapshot!("edit", fixture.call_and_render("fs_edit", edit).await);
    let all = json!({
        "path": "main.rs", "old_string": "print", "new_string": "show", "replace_all": true
    });
    assert_eq!(fixture.done("fs_edit", all).await["replacements"], 2);
    assert_eq!(fixture.read("main.rs"), TEXT.replace("= 1", "= 2").replace("print", "show"));
}

#[tokio::test]
async fn the_new_text_is_taken_literally() {
    let fixture = Fixture::new();
    fixture.write("a.js", "const price = PRICE;\n");
    let tricky = r"'$& $$ $1 $` \0 \n ${x}'";
    let edit = json!({ "path": "a.js", "old_string": "PRICE", "new_string": tricky });
    fixture.done("fs_edit", edit).await;
    assert_eq!(fixture.read("a.js"), format!("const price = {tricky};\n"));
}

#[tokio::test]
async fn a_missing_text_is_answered_with_the_closest_lines() {
    let fixture = Fixture::new();
    fixture.write("main.rs", TEXT);
    let edit = |old: &str| json!({ "path": "main.rs", "old_string": old, "new_string": "x" });
    let spaces = fixture.call_and_render("fs_edit", edit("  print(total);\n  print(total);")).await;
    insta::assert_json_snapshot!("only_spaces_differ", spaces);
    let typo = fixture.call_and_render("fs_edit", edit("let totl = 1;")).await;
    insta::assert_json_snapshot!("close_line", typo);
    let far = fixture.call_and_render("fs_edit", edit("nothing of the kind at all")).await;
    insta::assert_json_snapshot!("nothing_close", far);
    assert_eq!(fixture.read("main.rs"), TEXT);
}

#[tokio::test]
async fn a_text_found_several_times_is_not_replaced_somewhere() {
    let fixture = Fixture::new();
    fixture.write("main.rs", TEXT);
    let edit = json!({ "path": "main.rs", "old_string": "print(total);", "new_string": "x" });
    insta::assert_json_snapshot!("several_matches", fixture.call_and_render("fs_edit", edit).await);
    let same = json!({ "path": "main.rs", "old_string": "total = 1", "new_string": "total = 1" });
    insta::assert_json_snapshot!("no_change", fixture.call_and_render("fs_edit", same).await);
    assert_eq!(fixture.read("main.rs"), TEXT);
}

#[tokio::test]
async fn an_edit_creates_no_missing_file() {
    let fixture = Fixture::new();
    let edit = json!({ "path": "no.rs", "old_string": "a", "new_string": "b" });
    assert_eq!(fixture.fails("fs_edit", edit).await, Kind::FileNotFound);
    assert!(!fixture.path("no.rs").exists());
}

#[tokio::test]
async fn many_edits_are_made_together() {
    let fixture = Fixture::new();
    fixture.write("a.txt", "one two\n");
    fixture.write("b.txt", "three\n");
    let edits = json!({ "edits": [
        { "path": "a.txt", "find": "one", "replace": "1" },
        { "path": "b.txt", "find": "three", "replace": "3" },
        { "path": "./a.txt", "find": "1 two", "replace": "1 2" },
    ]});
    insta::assert_json_snapshot!(
        "multi_edit",
        fixture.call_and_render("fs_multi_edit", edits).await
    );
    assert_eq!((fixture.read("a.txt"), fixture.read("b.txt")), ("1 2\n".into(), "3\n".into()));
}

#[tokio::test]
async fn one_bad_edit_of_many_means_none_is_made() {
    let fixture = Fixture::new();
    fixture.write("a.txt", "one\n");
    fixture.write("b.txt", "two two\n");
    let edits = json!({ "edits": [
        { "path": "a.txt", "find": "one", "replace": "1" },
        { "path": "b.txt", "find": "two", "replace": "2" },
        { "path": "c.txt", "find": "three", "replace": "3" },
        { "path": "a.txt", "find": "uno", "replace": "1" },
    ]});
    insta::assert_json_snapshot!(
        "multi_edit_refused",
        fixture.call_and_render("fs_multi_edit", edits).await
    );
    assert_eq!(
        (fixture.read("a.txt"), fixture.read("b.txt")),
        ("one\n".into(), "two two\n".into())
    );
}

//! Finding files and lines.

use budao_core::Kind;
use serde_json::{Value, json};

use crate::builtin::support::Fixture;

fn tree() -> Fixture {
    let fixture = Fixture::new();
    fixture.write(".gitignore", "target/\n*.log\n!keep.log\n");
    fixture.write("src/main.rs", "fn main() {\n    hello();\n}\n");
    fixture.write("src/deep/er/lib.rs", "// Hello (there)\n");
    fixture.write("src/.hidden.rs", "hello hidden\n");
    fixture.write("src/own/.gitignore", "skip.rs\n/only_here.rs\n");
    fixture.write("src/own/skip.rs", "hello\n");
    fixture.write("src/own/below/only_here.rs", "hello\n");
    fixture.write("src/own/only_here.rs", "hello\n");
    fixture.write("target/out.rs", "hello\n");
    fixture.write("debug.log", "hello\n");
    fixture.write("keep.log", "hello\n");
    fixture.write("data.bin", b"hello\0world\n");
    fixture.write(".git/config", "hello\n");
    fixture
}

fn paths(answer: &Value) -> Vec<&str> {
    answer["matches"].as_array().unwrap().iter().map(|path| path.as_str().unwrap()).collect()
}

#[tokio::test]
async fn paths_are_found_and_ignored_ones_are_not() {
    let fixture = tree();
    let rust = fixture.done("fs_glob", json!({ "pattern": "**/*.rs" })).await;
    let want = ["src/deep/er/lib.rs", "src/main.rs", "src/own/below/only_here.rs"];
    assert_eq!(paths(&rust), want);
    let logs = fixture.done("fs_glob", json!({ "pattern": "*.log" })).await;
    assert_eq!(paths(&logs), ["keep.log"]);
    let top = fixture.done("fs_glob", json!({ "pattern": "*" })).await;
    assert_eq!(paths(&top), ["data.bin", "keep.log", "src/"]);
    let dot = fixture.done("fs_glob", json!({ "pattern": "src/.*", "dot": true })).await;
    assert_eq!(paths(&dot), ["src/.hidden.rs"]);
    let within = fixture.done("fs_glob", json!({ "pattern": "**/*.rs", "cwd": "src/own" })).await;
    assert_eq!(paths(&within), ["src/own/below/only_here.rs"]);
    let few = fixture.call_and_render("fs_glob", json!({ "pattern": "**", "limit": 2 })).await;
    insta::assert_json_snapshot!("glob", few);
    // A directory that is named is searched, ignored or not.
    let named = fixture.done("fs_glob", json!({ "pattern": "*", "cwd": "target" })).await;
    assert_eq!(paths(&named), ["target/out.rs"]);
}

#[tokio::test]
async fn an_invalid_pattern_is_reported() {
    let fixture = tree();
    insta::assert_json_snapshot!(
        "bad_glob",
        fixture.call_and_render("fs_glob", json!({ "pattern": "a[" })).await
    );
    let up = json!({ "pattern": "../**" });
    assert_eq!(fixture.fails("fs_glob", up).await, Kind::OutsideWorkspace);
    let bad = json!({ "pattern": "a(b", "path": ".", "regex": true });
    insta::assert_json_snapshot!("bad_regex", fixture.call_and_render("fs_grep", bad).await);
    let huge = json!({ "pattern": "(a{1000}){1000}", "path": ".", "regex": true });
    insta::assert_json_snapshot!("huge_regex", fixture.call_and_render("fs_grep", huge).await);
}

#[tokio::test]
async fn lines_are_found_with_their_place() {
    let fixture = tree();
    let found =
        fixture.call_and_render("fs_grep", json!({ "pattern": "hello", "path": "." })).await;
    insta::assert_json_snapshot!("grep", found);
    let found = fixture
        .done("fs_grep", json!({ "pattern": "hello (", "path": "src", "case_sensitive": false }))
        .await;
    assert_eq!(found["matches"][0]["path"], "src/deep/er/lib.rs");
    assert_eq!(found["matches"][0]["column"], 4);
    let regex = json!({ "pattern": r"h.llo\(\)", "path": "src/main.rs", "regex": true });
    let found = fixture.done("fs_grep", regex).await;
    assert_eq!(
        (found["matches"][0]["line"].as_u64(), found["matches"][0]["column"].as_u64()),
        (Some(2), Some(5))
    );
    let none = fixture.done("fs_grep", json!({ "pattern": "absent", "path": "." })).await;
    assert_eq!(none["matches"], json!([]));
}

#[tokio::test]
async fn results_are_bounded() {
    let fixture = Fixture::new();
    fixture.write("many", "hit\n".repeat(5_000));
    fixture.write("wide", format!("{}hit{}", "x".repeat(100_000), "y".repeat(100_000)));
    let found = fixture.done("fs_grep", json!({ "pattern": "hit", "path": "many" })).await;
    assert_eq!(
        (found["matches"].as_array().unwrap().len(), &found["truncated"]),
        (200, &json!(true))
    );
    let all = json!({ "pattern": "hit", "path": "many", "max_results": 2000 });
    let found = fixture.done("fs_grep", all).await;
    assert!(found["matches"].as_array().unwrap().len() < 2000 && found["truncated"] == true);
    let found = fixture.done("fs_grep", json!({ "pattern": "hit", "path": "wide" })).await;
    assert!(found["matches"][0]["preview"].as_str().unwrap().contains("xhity"));
    assert!(found.to_string().len() < 1_000);
}

#[tokio::test]
async fn a_search_that_would_never_end_elsewhere_ends() {
    // A pattern that takes a backtracking engine 2^28 steps, on text made for it.
    let fixture = Fixture::new();
    fixture.write("a.txt", format!("{}!\n", "a".repeat(28)).repeat(1_000));
    let search = json!({ "pattern": "^(a+)+$", "path": "a.txt", "regex": true });
    let began = std::time::Instant::now();
    assert_eq!(fixture.done("fs_grep", search).await["matches"], json!([]));
    assert!(began.elapsed().as_secs() < 5);
}

#[tokio::test]
async fn a_link_that_leads_out_is_not_followed() {
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("secret.txt"), "hello secret").unwrap();
    let fixture = Fixture::new();
    std::os::unix::fs::symlink(outside.path(), fixture.path("out")).unwrap();
    std::os::unix::fs::symlink(outside.path().join("secret.txt"), fixture.path("file")).unwrap();
    std::os::unix::fs::symlink(".", fixture.path("loop")).unwrap();
    let found = fixture.done("fs_grep", json!({ "pattern": "secret", "path": "." })).await;
    assert_eq!(found["matches"], json!([]));
    let found = fixture.done("fs_glob", json!({ "pattern": "**/*.txt" })).await;
    assert_eq!(found["matches"], json!([]));
    for path in ["out", "out/secret.txt", "file"] {
        let grep = json!({ "pattern": "secret", "path": path });
        assert_eq!(fixture.fails("fs_grep", grep).await, Kind::OutsideWorkspace, "{path}");
    }
    assert_eq!(
        fixture.fails("fs_glob", json!({ "pattern": "*", "cwd": "out" })).await,
        Kind::OutsideWorkspace
    );
}

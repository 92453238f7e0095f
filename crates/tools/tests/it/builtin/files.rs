//! Reading and writing files.

use std::os::unix::fs::PermissionsExt;

use budao_core::Kind;
use budao_tools::builtin::BuiltinOptions;
use serde_json::json;

use crate::builtin::support::{Fixture, kind};

#[tokio::test]
async fn a_file_is_read_whole_or_in_part() {
    let fixture = Fixture::new();
    fixture.write("src/a.txt", "one\ntwo\nthree\nfour");
    insta::assert_json_snapshot!(
        "read_whole",
        fixture.call_and_render("fs_read", json!({ "path": "src/a.txt" })).await
    );
    let part = json!({ "path": "./src//a.txt", "offset": 2, "limit": 2 });
    insta::assert_json_snapshot!("read_part", fixture.call_and_render("fs_read", part).await);
    let beyond = json!({ "path": "src/a.txt", "offset": 9 });
    insta::assert_json_snapshot!(
        "read_beyond_the_end",
        fixture.call_and_render("fs_read", beyond).await
    );
    let absolute = fixture.path("src/a.txt");
    assert_eq!(fixture.done("fs_read", json!({ "path": absolute })).await["totalLines"], 4);
    fixture.write("empty", "");
    assert_eq!(fixture.done("fs_read", json!({ "path": "empty" })).await["content"], "");
}

#[tokio::test]
async fn a_missing_file_is_answered_with_the_nearest_path() {
    let fixture = Fixture::new();
    fixture.write("src/parser/lexer.rs", "x");
    fixture.write("docs/guide.md", "x");
    let near = fixture.call_and_render("fs_read", json!({ "path": "src/parser/lexr.rs" })).await;
    insta::assert_json_snapshot!("missing_but_near", near);
    for (asked, meant) in [
        ("src/praser/lexer.rs", "src/parser/lexer.rs"),
        ("SRC/parser/lexer.rs", "src/parser/lexer.rs"),
        ("guide.md", "docs/guide.md"),
        ("src/parser/lexer.rs/x", ""),
    ] {
        let outcome = fixture.call("fs_read", json!({ "path": asked })).await;
        assert_eq!(kind(&outcome), Kind::FileNotFound);
        let found = outcome.fault().unwrap().detail().text(budao_core::fault::Fact::NearestPath);
        assert_eq!(found.unwrap_or_default(), meant, "{asked}");
    }
    let far = fixture.call_and_render("fs_read", json!({ "path": "zzz" })).await;
    insta::assert_json_snapshot!("missing_and_far", far);
}

#[tokio::test]
async fn a_binary_file_is_described_and_not_printed() {
    let fixture = Fixture::new();
    fixture.write("image.png", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR");
    fixture.write("latin", b"caf\xe9");
    std::fs::create_dir(fixture.path("dir")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, fixture.path("pipe"), 0o600.into()).unwrap();
    insta::assert_json_snapshot!(
        "binary",
        fixture.call_and_render("fs_read", json!({ "path": "image.png" })).await
    );
    insta::assert_json_snapshot!(
        "directory",
        fixture.call_and_render("fs_read", json!({ "path": "dir" })).await
    );
    assert_eq!(fixture.fails("fs_read", json!({ "path": "latin" })).await, Kind::FileNotText);
    assert_eq!(fixture.fails("fs_read", json!({ "path": "pipe" })).await, Kind::NotAFile);
    assert_eq!(
        fixture.fails("fs_write", json!({ "path": "dir", "content": "" })).await,
        Kind::NotAFile
    );
    assert_eq!(
        fixture.fails("fs_write", json!({ "path": ".", "content": "" })).await,
        Kind::NotAFile
    );
}

#[tokio::test]
async fn a_huge_file_is_not_loaded() {
    let fixture = Fixture::new();
    let file = std::fs::File::create(fixture.path("huge")).unwrap();
    use std::io::{Seek, Write};
    (&file).write_all(b"first\n").unwrap();
    (&file).write_all(&b"0123456789abcde\n".repeat(2 << 20)).unwrap();
    (&file).seek(std::io::SeekFrom::Start(10 << 30)).unwrap();
    (&file).write_all(b"last\n").unwrap();
    let (before, began) = (resident_kib(), std::time::Instant::now());
    // Behind its text there is nothing but zeros, which is no text.
    let head = json!({ "path": "huge", "limit": 1 });
    assert_eq!(fixture.fails("fs_read", head).await, Kind::FileNotText);
    let search = fixture.done("fs_grep", json!({ "path": "huge", "pattern": "first" })).await;
    assert_eq!(search["matches"][0]["line"], 1);
    let write = json!({ "path": "huge", "content": "small" });
    assert_eq!(fixture.fails("fs_write", write).await, Kind::LimitReached);
    let grown = resident_kib().saturating_sub(before);
    assert!(grown < 64 * 1024, "grew by {grown} KiB");
    assert!(began.elapsed().as_secs() < 10);
}

#[tokio::test]
async fn a_file_too_large_to_hold_is_read_in_pages_all_the_same() {
    let fixture = Fixture::new();
    fixture.write("large", b"0123456789abcde\n".repeat(2 << 20));
    let before = resident_kib();
    let late = json!({ "path": "large", "offset": 2_097_151, "limit": 5 });
    let read = fixture.done("fs_read", late).await;
    assert_eq!(read["content"], "0123456789abcde\n0123456789abcde\n");
    assert_eq!((&read["totalLines"], &read["truncated"]), (&json!(2_097_152), &json!(false)));
    let grown = resident_kib().saturating_sub(before);
    assert!(grown < 64 * 1024, "grew by {grown} KiB");
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[tokio::test]
async fn a_long_file_is_given_in_pages() {
    let fixture = Fixture::new();
    let text: String = (1..=20_000).map(|line| format!("line {line}\n")).collect();
    fixture.write("long", &text);
    let (mut offset, mut all, mut pages) = (1, String::new(), 0);
    loop {
        let page = fixture.done("fs_read", json!({ "path": "long", "offset": offset })).await;
        all.push_str(page["content"].as_str().unwrap());
        pages += 1;
        match page["nextOffset"].as_u64() {
            Some(next) => offset = next,
            None => break,
        }
    }
    assert_eq!((all == text, pages), (true, 4));
    fixture.write("wide", "x".repeat(200_000));
    let wide = fixture.done("fs_read", json!({ "path": "wide" })).await;
    assert_eq!((wide["truncated"].as_bool(), wide["lineCut"].as_u64()), (Some(true), Some(1)));
}

#[tokio::test]
async fn a_file_keeps_its_encoding_and_its_line_ends() {
    let fixture = Fixture::new();
    let (gbk, ..) = encoding_rs::GBK.encode("第一行\r\n第二行\r\n");
    fixture.write("gbk.txt", &gbk);
    let read = fixture.call_and_render("fs_read", json!({ "path": "gbk.txt" })).await;
    insta::assert_json_snapshot!("read_gbk", read);
    let edit =
        json!({ "path": "gbk.txt", "old_string": "第二行\n", "new_string": "第二行\n末行\n" });
    fixture.done("fs_edit", edit).await;
    let (want, ..) = encoding_rs::GBK.encode("第一行\r\n第二行\r\n末行\r\n");
    assert_eq!(std::fs::read(fixture.path("gbk.txt")).unwrap(), want.as_ref());
    let outside = json!({ "path": "gbk.txt", "content": "😀" });
    insta::assert_json_snapshot!(
        "no_such_character",
        fixture.call_and_render("fs_write", outside).await
    );
}

#[tokio::test]
async fn a_new_file_needs_no_read_and_an_old_one_does() {
    let fixture = Fixture::new();
    let new = fixture
        .call_and_render("fs_write", json!({ "path": "a/b/new.txt", "content": "one\ntwo\n" }))
        .await;
    insta::assert_json_snapshot!("write_new", new);
    let again = fixture
        .call_and_render("fs_write", json!({ "path": "a/b/new.txt", "content": "one\n2\n" }))
        .await;
    insta::assert_json_snapshot!("write_again", again);
    fixture.write("old.txt", "somebody's");
    let unread =
        fixture.call_and_render("fs_write", json!({ "path": "old.txt", "content": "mine" })).await;
    insta::assert_json_snapshot!("write_unread", unread);
    assert_eq!(fixture.read("old.txt"), "somebody's");
    fixture.done("fs_read", json!({ "path": "old.txt" })).await;
    fixture.done("fs_write", json!({ "path": "old.txt", "content": "mine" })).await;
    assert_eq!(fixture.read("old.txt"), "mine");
}

#[tokio::test]
async fn a_file_that_changed_since_it_was_read_is_not_written() {
    let fixture = Fixture::new();
    fixture.write("a.txt", "one");
    fixture.done("fs_read", json!({ "path": "a.txt" })).await;
    fixture.write("a.txt", "two");
    let refused =
        fixture.call_and_render("fs_write", json!({ "path": "a.txt", "content": "three" })).await;
    insta::assert_json_snapshot!("changed_since_read", refused);
    let edit = json!({ "path": "a.txt", "old_string": "two", "new_string": "three" });
    assert_eq!(fixture.fails("fs_edit", edit.clone()).await, Kind::FileChanged);
    assert_eq!(fixture.read("a.txt"), "two");
    fixture.done("fs_read", json!({ "path": "a.txt" })).await;
    fixture.done("fs_edit", edit).await;
    assert_eq!(fixture.read("a.txt"), "three");
}

#[tokio::test]
async fn permissions_are_kept_and_no_temporary_file_stays() {
    let fixture = Fixture::new();
    fixture.write("run.sh", "#!/bin/sh\n");
    std::fs::set_permissions(fixture.path("run.sh"), PermissionsExt::from_mode(0o750)).unwrap();
    fixture.done("fs_read", json!({ "path": "run.sh" })).await;
    fixture.done("fs_write", json!({ "path": "run.sh", "content": "#!/bin/sh\nls\n" })).await;
    let mode = std::fs::metadata(fixture.path("run.sh")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o750);
    let names: Vec<_> = std::fs::read_dir(fixture.folder.path()).unwrap().flatten().collect();
    assert_eq!(names.len(), 1);
}

#[tokio::test]
async fn a_link_inside_is_written_through_and_stays_a_link() {
    let fixture = Fixture::new();
    fixture.write("real/a.txt", "one");
    std::os::unix::fs::symlink("real/a.txt", fixture.path("link.txt")).unwrap();
    fixture.done("fs_read", json!({ "path": "link.txt" })).await;
    fixture.done("fs_write", json!({ "path": "real/a.txt", "content": "two" })).await;
    fixture.done("fs_write", json!({ "path": "link.txt", "content": "three" })).await;
    assert_eq!(fixture.read("real/a.txt"), "three");
    assert!(fixture.path("link.txt").is_symlink());
}

#[tokio::test]
async fn two_writers_of_one_step_do_not_lose_each_others_work() {
    let fixture = Fixture::new();
    fixture.write("a.txt", "1 2 3 4 5 6 7 8");
    fixture.done("fs_read", json!({ "path": "a.txt" })).await;
    let edits = (1..=8).map(|n| {
        let edit = json!({ "path": "a.txt", "old_string": n.to_string(), "new_string": "x" });
        fixture.call("fs_edit", edit)
    });
    let outcomes = futures::future::join_all(edits).await;
    assert!(outcomes.iter().all(budao_core::tool::Outcome::is_done));
    assert_eq!(fixture.read("a.txt"), "x x x x x x x x");
}

#[tokio::test]
async fn a_full_disk_is_reported_and_keeps_the_old_file() {
    // Goal: a write that runs out of room is one well-formed answer. Method: a file system of 64 KiB, where
    // the machine lets us have one.
    let folder = tempfile::tempdir().unwrap();
    let mounted = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=64k", "tmpfs"])
        .arg(folder.path())
        .stderr(std::process::Stdio::null())
        .status();
    if !mounted.is_ok_and(|status| status.success()) {
        eprintln!("skipped: no file system can be mounted here");
        return;
    }
    let place = folder.path().to_path_buf();
    let fixture = Fixture::at(folder, BuiltinOptions::default(), Default::default());
    fixture.done("fs_write", json!({ "path": "a.txt", "content": "small" })).await;
    let rendered = fixture
        .call_and_render("fs_write", json!({ "path": "a.txt", "content": "x".repeat(200_000) }))
        .await;
    let kept = fixture.read("a.txt");
    let names = std::fs::read_dir(&place).unwrap().count();
    let after = fixture.call("fs_write", json!({ "path": "a.txt", "content": "fits" })).await;
    std::process::Command::new("umount").arg(&place).status().unwrap();
    insta::assert_json_snapshot!("disk_full", rendered);
    assert_eq!((kept.as_str(), names, after.is_done()), ("small", 1, true));
}

#[tokio::test]
async fn a_read_only_file_stays_as_it_is() {
    if rustix::process::geteuid().is_root() {
        // Root may write anything; then a read-only directory tree is all there is to test, and it is not ours.
        return;
    }
    let fixture = Fixture::new();
    fixture.write("fixed.txt", "one");
    std::fs::set_permissions(fixture.path("fixed.txt"), PermissionsExt::from_mode(0o444)).unwrap();
    fixture.done("fs_read", json!({ "path": "fixed.txt" })).await;
    let write = json!({ "path": "fixed.txt", "content": "two" });
    assert_eq!(fixture.fails("fs_write", write).await, Kind::FilePermission);
    assert_eq!(fixture.read("fixed.txt"), "one");
}

//! Paths that try to lead out of the workspace.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use budao_core::tool::Outcome;
use serde_json::json;

use crate::builtin::support::Fixture;

const SECRET: &str = "the-secret-outside";

/// Every spelling of a way out that we know: ways up, ways to write them, and what they lead to.
fn spellings(outside: &Path, workspace: &Path) -> Vec<String> {
    let ups = [
        "../",
        "..//",
        ".././",
        "./../",
        "../a/../../",
        "..\\",
        "..\\/",
        "....//",
        "..../",
        "...//",
        ".%2e/",
        "%2e%2e/",
        "%2e%2e%2f",
        "..%2f",
        "..%5c",
        "%252e%252e%252f",
        "..%c0%af",
        "..%c1%9c",
        "%c0%ae%c0%ae/",
        "..;/",
        "..\u{0}/",
        "\u{2024}\u{2024}/",
        "\u{ff0e}\u{ff0e}/",
        "..\u{2215}",
        "..\u{ff0f}",
        "..\u{29f8}",
        ". ./",
        ".. /",
        "..\t/",
        "..\n/",
        "../\u{202e}",
        "%uff0e%uff0e/",
        "0x2e0x2e/",
        "..%00/",
        "..%0d%0a/",
        "out/../",
        "a/b/../../../",
        "rel/../../",
    ];
    let name = outside.file_name().unwrap().to_str().unwrap();
    let mut all = Vec::new();
    for up in ups {
        for depth in [1, 2, 3, 4, 6, 9] {
            for target in [format!("{name}/secret.txt"), "etc/passwd".to_owned()] {
                let way = format!("{}{target}", up.repeat(depth));
                all.push(format!("./{way}"));
                all.push(format!("out/{way}"));
                all.push(format!("sub/{way}"));
                all.push(format!("{}/{way}", workspace.display()));
                all.push(way);
            }
        }
    }
    let secret = outside.join("secret.txt").display().to_string();
    let workspace = workspace.display();
    for direct in [
        secret.clone(),
        format!("/{secret}"),
        format!("//{secret}"),
        format!("file://{secret}"),
        format!("{workspace}{secret}"),
        format!("{workspace}/..{secret}"),
        format!("{workspace}-other/secret.txt"),
        format!("/proc/self/root{secret}"),
        format!("/proc/thread-self/root/{secret}"),
        format!("/proc/self/cwd/../{name}/secret.txt"),
        "/proc/self/environ".into(),
        "/dev/stdin".into(),
        "/dev/fd/0".into(),
        "/etc/passwd".into(),
        "~/secret.txt".into(),
        "~root/secret.txt".into(),
        "$HOME/secret.txt".into(),
        "out/secret.txt".into(),
        "out/./secret.txt".into(),
        "rel/secret.txt".into(),
        format!("root{secret}"),
        "root/etc/passwd".into(),
        "chain/secret.txt".into(),
        "file".into(),
        "sub/../file".into(),
        "magic/etc/passwd".into(),
        "C:\\secret.txt".into(),
        "\\\\?\\C:\\secret.txt".into(),
        "CON".into(),
        "\u{0}".into(),
        format!("sub\u{0}{secret}"),
        "a/".repeat(3_000),
        "x".repeat(5_000),
        format!("{}secret.txt", "../".repeat(1_000)),
        String::new(),
        ".".into(),
        "..".into(),
        "/".into(),
        "//".into(),
        "...".into(),
    ] {
        all.push(direct);
    }
    all
}

fn snapshot(directory: &Path) -> BTreeMap<String, String> {
    let entries = std::fs::read_dir(directory).unwrap().flatten();
    entries
        .map(|entry| {
            let content = std::fs::read_to_string(entry.path()).unwrap_or_default();
            (entry.file_name().to_string_lossy().into_owned(), content)
        })
        .collect()
}

#[tokio::test]
async fn no_spelling_of_a_path_leads_out() {
    // Goal: whatever the path, nothing outside is read or written. Method: a workspace beside a directory
    // with a secret, links of every sort, and each spelling handed to each tool.
    // In memory where that can be had: every write is synced.
    let memory = Path::new("/dev/shm");
    let around =
        tempfile::tempdir_in(if memory.is_dir() { memory } else { Path::new("/tmp") }).unwrap();
    let outside = around.path().join("outside");
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("secret.txt"), SECRET).unwrap();
    let inner_folder = tempfile::Builder::new().tempdir_in(around.path()).unwrap();
    let fixture = Fixture::at(inner_folder, Default::default(), Default::default());
    fixture.write("sub/a.txt", "inside");
    let link = |to: &Path, name: &str| std::os::unix::fs::symlink(to, fixture.path(name)).unwrap();
    link(&outside, "out");
    link(Path::new("../outside"), "rel");
    link(Path::new("/"), "root");
    link(Path::new("rel"), "chain");
    link(&outside.join("secret.txt"), "file");
    link(Path::new("/proc/self/root"), "magic");
    let (before, beside) = (snapshot(&outside), std::fs::read_dir(around.path()).unwrap().count());

    let all = spellings(&outside, fixture.folder.path());
    assert!(all.len() >= 2_000, "{} spellings", all.len());
    // Every spelling in every run with one of the tools; with all of them if there is time.
    let is_full = std::env::var_os("BUDAO_FULL").is_some();
    let mut calls = 0;
    for (index, path) in all.iter().enumerate() {
        let tools = [
            ("fs_read", json!({ "path": path })),
            ("fs_write", json!({ "path": path, "content": "overwritten" })),
            ("fs_edit", json!({ "path": path, "old_string": SECRET, "new_string": "x" })),
            ("fs_multi_edit", edits(path)),
            ("fs_grep", json!({ "path": path, "pattern": "secret-outside" })),
            ("fs_glob", json!({ "cwd": path, "pattern": "*secret*" })),
        ];
        // Tools and ways up have periods of their own, so over the spellings every tool meets every way.
        let (from, step) = if is_full { (0, 1) } else { (index / 5 % 6, 6) };
        for (tool, arguments) in tools.into_iter().skip(from).step_by(step) {
            calls += 1;
            assert!(
                path.is_empty() || fixture.toolbox.fits(tool, &arguments),
                "{tool} {arguments}"
            );
            let outcome = fixture.call(tool, arguments).await;
            if let Outcome::Done(output) = &outcome {
                let rendered = output.data.to_string();
                assert!(
                    !rendered.contains(SECRET) && !rendered.contains("root:x:"),
                    "{tool} {path:?}: {rendered}"
                );
            }
        }
    }
    assert_eq!(snapshot(&outside), before, "nothing outside was written");
    assert_eq!(std::fs::read_dir(around.path()).unwrap().count(), beside);
    eprintln!("security T1: {} spellings, {calls} calls of 6 tools", all.len());
}

fn edits(path: &str) -> serde_json::Value {
    json!({ "edits": [{ "path": path, "find": SECRET, "replace": "x" }] })
}

/// Swaps in a usual run, and with `BUDAO_FULL`.
const SOME: u64 = 10_000;
const ALL: u64 = 1_000_000;

/// Goal: no race leads out. Method: a thread swaps a directory for a link to the outside and back as fast as it can,
/// by one rename, so that the name is always there, while every tool works beneath that name.
#[tokio::test]
async fn no_swap_of_a_component_leads_out() {
    let memory = Path::new("/dev/shm");
    let around =
        tempfile::tempdir_in(if memory.is_dir() { memory } else { Path::new("/tmp") }).unwrap();
    let outside = around.path().join("outside");
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("secret.txt"), SECRET).unwrap();
    let inner_folder = tempfile::Builder::new().tempdir_in(around.path()).unwrap();
    let fixture = Fixture::at(inner_folder, Default::default(), Default::default());
    fixture.write("inside/secret.txt", "inside");
    std::os::unix::fs::symlink(&outside, fixture.path("leads_out")).unwrap();
    std::os::unix::fs::symlink("inside", fixture.path("leads_in")).unwrap();
    std::os::unix::fs::symlink("inside", fixture.path("name")).unwrap();
    let before = snapshot(&outside);

    let wanted = if std::env::var_os("BUDAO_FULL").is_some() { ALL } else { SOME };
    let (swaps, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let (counted, stopped, folder) =
        (swaps.clone(), stop.clone(), fixture.folder.path().to_owned());
    let swapping = std::thread::spawn(move || {
        let mut leads_out = true;
        while !stopped.load(Ordering::Relaxed) {
            let to = if leads_out { "leads_out" } else { "leads_in" };
            std::fs::hard_link(folder.join(to), folder.join("next")).unwrap();
            std::fs::rename(folder.join("next"), folder.join("name")).unwrap();
            leads_out = !leads_out;
            counted.fetch_add(1, Ordering::Relaxed);
        }
    });
    let (mut calls, mut inside) = (0_u64, 0_u64);
    while swaps.load(Ordering::Relaxed) < wanted {
        let path = "name/secret.txt";
        let tools = [
            ("fs_read", json!({ "path": path })),
            ("fs_write", json!({ "path": format!("name/new{}.txt", calls % 7), "content": "x" })),
            ("fs_edit", json!({ "path": path, "old_string": SECRET, "new_string": "x" })),
            ("fs_multi_edit", edits(path)),
            ("fs_grep", json!({ "path": "name", "pattern": "secret-outside" })),
            ("fs_glob", json!({ "cwd": "name", "pattern": "*" })),
        ];
        for (tool, arguments) in tools {
            calls += 1;
            if let Outcome::Done(output) = fixture.call(tool, arguments).await {
                inside += 1;
                let rendered = output.data.to_string();
                assert!(!rendered.contains(SECRET), "{tool}: {rendered}");
            }
        }
    }
    stop.store(true, Ordering::Relaxed);
    swapping.join().unwrap();
    assert_eq!(snapshot(&outside), before, "nothing outside was written");
    assert!(inside > 0 && inside < calls, "both sides were met: {inside} of {calls}");
    let swaps = swaps.load(Ordering::Relaxed);
    eprintln!("security T2: {swaps} swaps beside {calls} calls, {inside} of them went inside");
}

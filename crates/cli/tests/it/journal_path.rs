//! A path given as a journal that is none: every command says what it is, in both languages, and leaves it as it is.

use std::{
    io::Read as _,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

const ID: &str = "0198f6d2-7c1a-7000-8000-000000000001";

/// Exit code and stderr of a command, which must end by itself.
fn budao(home: &Path, args: &[&str]) -> (i32, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_budao"))
        .args(args)
        .current_dir(home)
        .env_clear()
        .env("HOME", home)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if Instant::now() > deadline {
            child.kill().unwrap();
            panic!("{args:?} does not end");
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let mut stderr = String::new();
    child.stderr.unwrap().read_to_string(&mut stderr).unwrap();
    (status.code().unwrap(), stderr)
}

/// Everything about a directory and what is in it that a program could alter by mistake.
fn state(directory: &Path) -> Vec<(PathBuf, u32, u64, Option<Vec<u8>>)> {
    let mut found = vec![directory.to_owned()];
    let mut at = 0;
    while at < found.len() {
        if found[at].symlink_metadata().unwrap().is_dir() {
            found.extend(std::fs::read_dir(&found[at]).unwrap().map(|entry| entry.unwrap().path()));
        }
        at += 1;
    }
    found.sort();
    let seen = found.into_iter().map(|path| {
        let meta = path.symlink_metadata().unwrap();
        let content = meta.is_file().then(|| std::fs::read(&path).unwrap());
        (path, meta.mode(), meta.ino(), content)
    });
    seen.collect()
}

/// Every command that takes a journal, given this one.
fn commands(journal: &str) -> Vec<Vec<String>> {
    let flagged: [&[&str]; 9] = [
        &["sessions", "list"],
        &["sessions", "show", ID],
        &["sessions", "delete", ID],
        &["sessions", "--anomalies"],
        &["replay", ID],
        &["cancel", ID],
        &["resume", ID],
        &["top", "--once"],
        &["backup", "copy.db"],
    ];
    let named: [&[&str]; 5] = [
        &["journal", "check", journal],
        &["journal", "verify", journal],
        &["journal", "stats", journal],
        &["journal", "export", journal, "-o", "out.jsonl"],
        &["journal", "export", "--salvage", journal, "-o", "out.jsonl"],
    ];
    let own = |args: &[&str]| args.iter().map(|arg| (*arg).to_owned()).collect::<Vec<_>>();
    // The option is global: it stands before the command, after it, or at the end.
    let flagged = flagged.iter().enumerate().map(|(index, args)| {
        let mut args = own(args);
        let place = [0, 1, args.len()][index % 3];
        args.splice(place..place, ["--journal".to_owned(), journal.to_owned()]);
        args
    });
    flagged.chain(named.iter().map(|args| own(args))).collect()
}

/// The commands that create a journal where there is none.
fn writing_commands(journal: &str) -> Vec<Vec<String>> {
    let commands: [&[&str]; 3] = [
        &["run", "--model", "demo", "--journal", journal, "hello"],
        &["serve", "--model", "demo", "--listen", "127.0.0.1:0", "--journal", journal],
        &["journal", "import", journal, "/dev/null"],
    ];
    commands.iter().map(|args| args.iter().map(|arg| (*arg).to_owned()).collect()).collect()
}

fn refused(home: &Path, args: &[String], sentences: [&str; 2]) {
    for (lang, sentence) in ["en", "zh"].into_iter().zip(sentences) {
        let before = state(home);
        let mut args: Vec<&str> = args.iter().map(String::as_str).collect();
        args.extend(["--lang", lang]);
        let (code, stderr) = budao(home, &args);
        assert_eq!(code, 2, "{args:?}: {stderr}");
        assert!(stderr.contains(sentence), "{args:?}: {stderr}");
        assert_eq!(state(home), before, "{args:?} changed something");
    }
}

fn home() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

#[test]
fn a_command_that_reads_or_continues_creates_no_journal_and_no_directory() {
    let home = home();
    for args in commands("none.db") {
        let sentences = ["There is no journal at none.db.", "none.db 处没有会话日志。"];
        refused(home.path(), &args, sentences);
    }
    for args in commands("no/such/none.db") {
        let sentences = ["its directory does not exist", "所在目录不存在"];
        refused(home.path(), &args, sentences);
    }
    // Nor the default one.
    for args in [&["sessions", "list"][..], &["top", "--once"], &["backup", "copy.db"]] {
        let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
        refused(home.path(), &args, ["There is no journal at", "处没有会话日志"]);
    }
}

#[test]
fn a_directory_given_as_a_journal_is_named_and_keeps_its_mode() {
    let home = home();
    let folder = home.path().join("folder");
    std::fs::create_dir(&folder).unwrap();
    std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o755)).unwrap();
    let sentences = ["folder is a directory, not a journal.", "folder 是目录，不是会话日志。"];
    for args in commands("folder").into_iter().chain(writing_commands("folder")) {
        refused(home.path(), &args, sentences);
    }
}

#[test]
fn a_file_given_as_a_journal_is_named_and_keeps_its_mode_and_content() {
    let home = home();
    let file = home.path().join("notes.txt");
    std::fs::write(&file, "words of the user\n".repeat(500)).unwrap();
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o644)).unwrap();
    let sentences =
        ["notes.txt is a file, but not a journal.", "notes.txt 是文件，但不是会话日志。"];
    let is_salvage = |args: &Vec<String>| args.iter().any(|arg| arg == "--salvage");
    for args in commands("notes.txt").into_iter().chain(writing_commands("notes.txt")) {
        if !is_salvage(&args) {
            refused(home.path(), &args, sentences);
        }
    }
}

#[test]
fn a_pipe_given_as_a_journal_is_named_and_not_waited_for() {
    let home = home();
    let made = Command::new("mkfifo").arg(home.path().join("pipe")).status().unwrap();
    assert!(made.success());
    for args in commands("pipe").into_iter().chain(writing_commands("pipe")) {
        refused(
            home.path(),
            &args,
            ["pipe is a pipe, not a journal.", "pipe 是管道，不是会话日志。"],
        );
    }
}

#[test]
fn a_copy_or_an_export_to_an_existing_file_is_refused_and_keeps_it() {
    let home = home();
    let (code, stderr) =
        budao(home.path(), &["run", "--model", "demo", "--journal", "journal.db", "hello"]);
    assert_eq!(code, 0, "{stderr}");
    std::fs::write(home.path().join("kept.txt"), "words of the user").unwrap();
    for args in [
        &["backup", "--journal", "journal.db", "kept.txt"][..],
        &["journal", "export", "journal.db", "-o", "kept.txt"],
    ] {
        let (code, stderr) = budao(home.path(), args);
        assert_eq!(code, 2, "{args:?}: {stderr}");
        assert!(stderr.contains("kept.txt exists already."), "{args:?}: {stderr}");
        assert!(!stderr.contains("disk had an error"), "{args:?}: {stderr}");
        let kept = std::fs::read(home.path().join("kept.txt")).unwrap();
        assert_eq!(kept, b"words of the user", "{args:?}");
    }
}

//! `budao serve` as a real process: where it listens, whom it refuses, how it stops.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Output, Stdio},
};

fn budao(directory: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_budao"));
    command
        .arg("serve")
        .args(args)
        .current_dir(directory)
        .env_clear()
        .env("BUDAO_JOURNAL", directory.join("journal.db"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

fn fails(directory: &Path, args: &[&str]) -> (Option<i32>, String) {
    let Output { status, stderr, .. } = budao(directory, args).output().unwrap();
    (status.code(), String::from_utf8(stderr).unwrap())
}

/// A server, and the address it printed.
fn start(directory: &Path, args: &[&str]) -> (Child, String) {
    let mut child = budao(directory, args).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    (child, line.trim().to_owned())
}

fn get(url: &str, path: &str, token: &str) -> String {
    let host = url.strip_prefix("http://").unwrap().split('/').next().unwrap();
    let mut stream = TcpStream::connect(host).unwrap();
    let head = format!(
        "GET {path} HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {token}\r\nconnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn without_flags_it_listens_on_loopback_and_prints_a_token_that_stays() {
    let directory = tempfile::tempdir().unwrap();
    let (mut child, url) = start(directory.path(), &["--listen", "127.0.0.1:0"]);
    let token = url.split_once("#token=").unwrap().1.to_owned();
    assert!(get(&url, "/v1/sessions", &token).starts_with("HTTP/1.1 200"));
    assert!(get(&url, "/v1/sessions", "guessed").starts_with("HTTP/1.1 401"));
    child.kill().unwrap();
    child.wait().unwrap();
    let (mut child, again) = start(directory.path(), &["--listen", "127.0.0.1:0"]);
    assert_eq!(again.split_once("#token=").unwrap().1, token);
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_given_token_is_not_printed() {
    let directory = tempfile::tempdir().unwrap();
    let args = ["--listen", "127.0.0.1:0", "--token", "a-secret-of-mine"];
    let (mut child, url) = start(directory.path(), &args);
    assert!(!url.contains("secret"), "{url}");
    assert!(get(&url, "/v1/sessions", "a-secret-of-mine").starts_with("HTTP/1.1 200"));
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn another_address_without_authentication_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let (code, errors) = fails(directory.path(), &["--listen", "0.0.0.0:0", "--no-auth"]);
    assert_eq!(code, Some(2), "{errors}");
    assert!(errors.contains("ERR_CONF_001"), "{errors}");
}

#[test]
fn a_port_that_is_taken_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let (code, errors) = fails(directory.path(), &["--listen", &address]);
    assert_eq!(code, Some(1), "{errors}");
    assert!(errors.contains(&address) && errors.contains("ERR_CONF_003"), "{errors}");
}

#[test]
fn the_server_ends_on_sigterm() {
    let directory = tempfile::tempdir().unwrap();
    let (mut child, _) = start(directory.path(), &["--listen", "127.0.0.1:0"]);
    let signalled = Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap();
    assert!(signalled.success());
    assert!(child.wait().unwrap().success());
}

/// `budao top`, in a directory where nothing else is.
fn top(args: &[&str]) -> (Option<i32>, String, String) {
    let nowhere = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_budao"));
    command.arg("top").args(args).current_dir(nowhere.path()).env_clear();
    command.env("BUDAO_JOURNAL", nowhere.path().join("none/journal.db"));
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    assert!(!nowhere.path().join("none").exists(), "no journal is made here");
    (status.code(), text(stdout), text(stderr))
}

#[test]
fn top_shows_the_statistics_of_a_remote_server() {
    let directory = tempfile::tempdir().unwrap();
    let mut ran = Command::new(env!("CARGO_BIN_EXE_budao"));
    ran.args(["run", "--model", "demo:fast", "read README.md"]).current_dir(directory.path());
    ran.env_clear().env("BUDAO_JOURNAL", directory.path().join("journal.db"));
    assert!(ran.output().unwrap().status.code().is_some());
    let (mut child, url) = start(directory.path(), &["--listen", "127.0.0.1:0"]);

    let (code, printed, errors) = top(&["--url", &url, "--json"]);
    assert_eq!(code, Some(0), "{errors}");
    let seen: serde_json::Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(seen["sessions"][0]["title"], "read README.md", "{printed}");
    assert_eq!(seen["sessions"][0]["turns"], 1);
    assert_eq!(seen["stats"]["turns"], 1, "the numbers are those of /api/stats");
    assert_eq!(seen["from"], url.trim_start_matches("http://").split('/').next().unwrap());
    let (code, printed, errors) = top(&["--url", &url, "--once", "--lang", "en"]);
    assert_eq!(code, Some(0), "{errors}");
    assert!(printed.contains("read README.md") && printed.contains("turns 1"), "{printed}");

    let bare = url.split('#').next().unwrap();
    let (code, _, errors) = top(&["--url", bare, "--token", "guessed", "--once"]);
    assert_eq!(code, Some(1), "{errors}");
    assert!(errors.contains("budao explain ERR_AUTH"), "{errors}");
    child.kill().unwrap();
    child.wait().unwrap();
    let (code, _, errors) = top(&["--url", bare, "--once"]);
    assert_eq!(code, Some(1), "{errors}");
    assert!(errors.contains("budao explain ERR_"), "{errors}");
    let (code, _, errors) = top(&["--url", "no address", "--once"]);
    assert_eq!(code, Some(2), "{errors}");
    assert!(errors.contains("--url"), "{errors}");
}

#[test]
fn a_server_with_the_settings_of_the_image_becomes_ready() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let image = std::fs::read_to_string(root.join("deploy/Dockerfile")).unwrap();
    let lines = image.lines().filter(|line| !line.starts_with('#'));
    let words = lines.flat_map(str::split_whitespace);
    let set: Vec<_> =
        words.filter_map(|word| word.strip_prefix("BUDAO")?.split_once('=')).collect();
    assert!(set.len() >= 4, "{set:?}");
    let directory = tempfile::tempdir().unwrap();
    let mut command = budao(directory.path(), &[]);
    command.envs(set.iter().map(|(name, value)| (format!("BUDAO{name}"), value)));
    // Its own folder and port are the image's; here they are others.
    command.env("BUDAO_JOURNAL", directory.path().join("journal.db"));
    let mut child = command
        .env("BUDAO_LISTEN", "127.0.0.1:0")
        .env("BUDAO_TOKEN", "a-secret-of-mine")
        .spawn()
        .unwrap();
    let mut url = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut url).unwrap();
    assert!(get(url.trim(), "/readyz", "").starts_with("HTTP/1.1 200"), "its HEALTHCHECK");
    assert!(get(url.trim(), "/v1/sessions", "a-secret-of-mine").starts_with("HTTP/1.1 200"));
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_broken_key_file_beside_the_journal_is_named_and_no_flag_is_blamed() {
    let directory = tempfile::tempdir().unwrap();
    let key = directory.path().join("journal.db-key");
    fs::write(&key, "cut").unwrap();
    let (status, told) = fails(directory.path(), &["--listen", "127.0.0.1:0"]);
    assert_eq!(status, Some(2), "{told}");
    assert!(told.contains("journal.db-key"), "{told}");
    assert!(told.contains("at least 32 bytes") && told.contains("Delete the file"), "{told}");
    fs::remove_file(&key).unwrap();
    fs::create_dir(&key).unwrap();
    let (_, told) = fails(directory.path(), &["--listen", "127.0.0.1:0"]);
    assert!(told.contains("-key") && !told.contains("--state-key"), "{told}");
}

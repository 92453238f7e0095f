//! `budao serve --smcp` as a real process: sessions and rooms on one address, with one end.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    path::Path,
    process::{Command, Output, Stdio},
    time::{Duration, Instant},
};

use budao_testkit::program::{Process, command_in, fake_mcp};

const PROGRAM: &str = env!("CARGO_BIN_EXE_budao");

const TOKEN: &str = "a-secret-of-mine";

fn budao(directory: &Path, args: &[&str]) -> Command {
    command_in(PROGRAM, directory, args)
}

fn start(directory: &Path, args: &[&str]) -> (Process, String) {
    let mut all = vec!["serve", "--listen", "127.0.0.1:0", "--smcp"];
    all.extend(args);
    let mut command = budao(directory, &all);
    command.stderr(Stdio::null());
    let mut process = Process::start(command);
    let url = process.first_line().split('/').take(3).collect::<Vec<_>>().join("/");
    (process, url)
}

fn get(url: &str, path: &str, token: &str) -> String {
    let host = url.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(host).unwrap();
    let head = format!(
        "GET {path} HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {token}\r\nconnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn smcp(directory: &Path, url: &str, token: &str, args: &[&str]) -> Output {
    let mut command = budao(directory, &["smcp"]);
    command.args(args).env("BUDAO_SMCP_URL", url).env("BUDAO_SMCP_TOKEN", token).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn one_address_has_sessions_and_rooms_and_each_asks_for_its_token() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let (_server, url) = start(here, &["--token", TOKEN]);
    assert!(get(&url, "/v1/sessions", TOKEN).starts_with("HTTP/1.1 200"));
    assert!(get(&url, "/smcp/stats", TOKEN).contains("\"connections\":0"));
    assert!(get(&url, "/smcp/metrics", TOKEN).contains("smcp_connections 0"));
    assert!(get(&url, "/smcp/stats", "guessed").starts_with("HTTP/1.1 401"));
    assert!(get(&url, "/nothing/here", TOKEN).starts_with("HTTP/1.1 404"));
    let old = get(&url, "/socket.io/?EIO=4&transport=polling&a2c_version=0.3.0", TOKEN);
    assert!(old.starts_with("HTTP/1.1 400") && old.contains("\"code\":4008"), "{old}");
    let nobody = smcp(here, &url, TOKEN, &["call", "room", "nobody", "echo"]);
    assert!(text(&nobody.stderr).starts_with("404 "), "{}", text(&nobody.stderr));
    let wrong = smcp(here, &url, "guessed", &["call", "room", "nobody", "echo"]);
    assert!(text(&wrong.stderr).contains("ERR_AUTH_002"), "{}", text(&wrong.stderr));
}

fn body(answer: &str) -> serde_json::Value {
    serde_json::from_str(answer.split("\r\n\r\n").nth(1).unwrap())
        .unwrap_or_else(|error| panic!("{error}: {answer}"))
}

#[test]
fn the_servers_own_numbers_have_what_the_hub_counted() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let (_server, url) = start(here, &["--token", TOKEN, "--smcp-token", "for-rooms"]);
    let mut watch = budao(here, &["smcp", "watch", "--url", &url, "--token", "for-rooms", "room"]);
    let mut watch = Process(watch.stderr(Stdio::null()).spawn().unwrap());
    assert_eq!(watch.first_line(), "present agent budao");
    let refused = smcp(here, &url, "for-rooms", &["call", "room", "nobody", "echo"]);
    assert!(text(&refused.stderr).contains("ERR_SMCP_001"), "{}", text(&refused.stderr));
    let until = Instant::now() + Duration::from_secs(30);
    loop {
        // Whoever was refused may still be on its way out.
        let own = body(&get(&url, "/api/stats?window=5m", TOKEN));
        let hub = body(&get(&url, "/smcp/stats", "for-rooms"));
        if own["smcp"] == hub && hub["connections"] == 1 {
            assert_eq!((&hub["rooms"], &hub["codes"]["4101"]), (&1.into(), &1.into()), "{hub}");
            assert_eq!(hub["present"][0]["agent"]["name"], "budao", "{hub}");
            return;
        }
        assert!(Instant::now() < until, "{own}\n{hub}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_hub_can_have_tokens_of_its_own() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let args = ["--token", TOKEN, "--smcp-token", "for-rooms@agent@a"];
    let (_server, url) = start(here, &args);
    let call = |token, room| text(&smcp(here, &url, token, &["call", room, "pc", "echo"]).stderr);
    assert!(call("for-rooms", "a").starts_with("404 "));
    assert!(call("for-rooms", "b").contains("ERR_PERM_008"), "{}", call("for-rooms", "b"));
    assert!(call(TOKEN, "a").contains("ERR_AUTH_002"), "the server's token is no longer the hub's");
}

#[test]
fn a_server_without_the_flag_has_no_hub() {
    let directory = tempfile::tempdir().unwrap();
    let args = ["serve", "--listen", "127.0.0.1:0", "--token", TOKEN];
    let mut command = budao(directory.path(), &args);
    command.stderr(Stdio::null());
    let mut server = Process::start(command);
    let url = server.first_line().trim_end_matches('/').to_owned();
    assert!(body(&get(&url, "/api/stats", TOKEN)).get("smcp").is_none());
    assert!(get(&url, "/smcp/stats", TOKEN).starts_with("HTTP/1.1 404"));
}

#[test]
fn tokens_a_hub_cannot_check_are_no_way_in() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("tokens"), "one-token tenant user\n").unwrap();
    let args = ["serve", "--listen", "127.0.0.1:0", "--smcp", "--token-file", "tokens"];
    let refused = budao(directory.path(), &args).output().unwrap();
    assert_eq!(refused.status.code(), Some(2), "{}", text(&refused.stderr));
    assert!(text(&refused.stderr).contains("--smcp-token"), "{}", text(&refused.stderr));
}

#[test]
fn sessions_and_rooms_end_together() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let (mut server, url) = start(here, &["--token", TOKEN]);
    let mut watch = budao(here, &["smcp", "watch", "--url", &url, "--token", TOKEN, "room"]);
    let mut watch = Process(watch.stderr(Stdio::null()).spawn().unwrap());
    assert_eq!(watch.first_line(), "present agent budao");
    server.signal("TERM");
    let began = Instant::now();
    assert!(server.0.wait().unwrap().success());
    assert!(began.elapsed() < Duration::from_secs(10), "a member of a room held it up");
}

#[test]
fn a_session_uses_the_tools_of_a_room_in_its_own_server() {
    let Some(program) = fake_mcp(PROGRAM) else { return };
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    std::fs::write(here.join("budao.toml"), "[[smcp]]\nroom = \"office\"\n").unwrap();
    let script = "[[step]]\n[[step.call]]\ntool = \"pc__tools__echo\"\narguments = { text = \"from afar\" }\n\
                  [[step]]\ntext = \"done\"\n";
    std::fs::write(here.join("script.toml"), script).unwrap();
    let args = ["--token", TOKEN, "--config", "budao.toml", "--permission", "auto", "--model"];
    let (_server, url) = start(here, &[args.as_slice(), &["script:script.toml"]].concat());
    let config = serde_json::json!({ "servers": [{
        "name": "tools", "type": "stdio", "default_tool_meta": { "auto_apply": true },
        "server_parameters": { "command": program },
    }] });
    std::fs::write(here.join("computer.json"), config.to_string()).unwrap();
    let args = ["smcp", "computer", "--url", &url, "--token", TOKEN, "--name", "pc", "--config"];
    let mut computer = budao(here, &args);
    let computer = computer.args(["computer.json", "office"]).stdout(Stdio::null());
    let _computer = Process(computer.stderr(Stdio::null()).spawn().unwrap());
    let until = Instant::now() + Duration::from_secs(60);
    while !get(&url, "/smcp/stats", TOKEN).contains("\"client:get_tools\"") {
        assert!(Instant::now() < until, "the room's agent never asked for the computer's tools");
        std::thread::sleep(Duration::from_millis(50));
    }
    let host = url.strip_prefix("http://").unwrap();
    let post = |path: &str, body: &str| {
        let mut stream = TcpStream::connect(host).unwrap();
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {TOKEN}\r\n\
             content-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(head.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    let made = post("/v1/sessions", "{}");
    let body: serde_json::Value =
        serde_json::from_str(made.split("\r\n\r\n").nth(1).unwrap()).unwrap();
    let session = body["session_id"].as_str().unwrap_or_else(|| panic!("{made}"));
    let sent = post(&format!("/v1/sessions/{session}/messages"), r#"{"content":"go"}"#);
    assert!(sent.starts_with("HTTP/1.1 20"), "{sent}");
    loop {
        let history = get(&url, &format!("/v1/sessions/{session}/export"), TOKEN);
        if history.contains("from afar") && history.contains("done") {
            break;
        }
        assert!(Instant::now() < until, "{history}");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(get(&url, "/smcp/stats", TOKEN).contains("\"office/pc\""));
}

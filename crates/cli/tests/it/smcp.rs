//! A hub, a computer and an agent as three processes, as the documentation shows them.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Command, Output, Stdio},
    time::{Duration, Instant},
};

use budao_testkit::program::{self, Process, fake_mcp};

const PROGRAM: &str = env!("CARGO_BIN_EXE_budao");

fn budao(args: &[&str]) -> Command {
    let mut command = program::command(PROGRAM, args);
    command.env("BUDAO_SMCP_TOKEN", "right");
    command
}

/// Starts a process and waits until its stderr says `word`; gives that line.
fn start(args: &[&str], word: &str) -> (Process, String) {
    Process::start_until(budao(args), word)
}

fn hub() -> (Process, String) {
    let (hub, line) = start(&["smcp", "server", "--listen", "127.0.0.1:0"], "listening on");
    let url = line.split_whitespace().last().unwrap().to_owned();
    (hub, url)
}

fn run(url: &str, args: &[&str]) -> Output {
    budao(&["smcp"]).args(args).env("BUDAO_SMCP_URL", url).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn an_impossible_call_is_refused_with_its_code() {
    let (_hub, url) = hub();
    let nobody = run(&url, &["call", "room", "nobody", "echo"]);
    let printed = text(&nobody.stderr);
    assert_eq!(nobody.status.code(), Some(1), "{printed}");
    assert!(printed.starts_with("404 ") && printed.contains("nobody"), "{printed}");
    assert!(printed.contains("budao explain ERR_SMCP_005"), "{printed}");
    let wrong = run(&url, &["call", "--token", "wrong", "room", "nobody", "echo"]);
    assert!(text(&wrong.stderr).contains("budao explain ERR_AUTH_002"), "{}", text(&wrong.stderr));
    assert_eq!(text(&run(&url, &["tools", "room"]).stdout), "");
    assert_eq!(run(&url, &["call", "--timeout", "0", "room", "pc", "echo"]).status.code(), Some(2));
    assert_eq!(run(&url, &["call", "room", "pc", "echo", "not json"]).status.code(), Some(1));
    let nowhere = run("http://127.0.0.1:1", &["tools", "room"]);
    assert!(text(&nowhere.stderr).contains("ERR_NET_003"), "{}", text(&nowhere.stderr));
}

#[test]
fn a_hub_without_a_secret_needs_an_explicit_option() {
    let refused = budao(&["smcp", "server"]).env_remove("BUDAO_SMCP_TOKEN").output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("--token"), "{}", text(&refused.stderr));
}

#[test]
fn a_tool_answers_then_takes_too_long_then_is_refused() {
    let Some(program) = fake_mcp(PROGRAM) else { return };
    let (_hub, url) = hub();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("computer.json");
    let config = serde_json::json!({ "servers": [{
        "name": "tools", "type": "stdio",
        "default_tool_meta": { "auto_apply": true },
        "tool_meta": { "env": { "auto_apply": false } },
        "server_parameters": { "command": program },
    }] });
    std::fs::write(&file, config.to_string()).unwrap();
    let file = file.to_str().unwrap();
    let args = ["smcp", "computer", "--url", &url, "--name", "pc", "--config", file, "room"];
    let (_computer, _) = start(&args, "joined");
    // Right after the start: the list waits for the server.
    let tools = text(&run(&url, &["tools", "room"]).stdout);
    assert!(tools.lines().any(|line| line.starts_with("pc  tools__echo")), "{tools}");

    let printed = run(&url, &["call", "room", "pc", "tools__echo", r#"{"text":"你好"}"#]);
    assert_eq!((text(&printed.stdout).as_str(), printed.status.code()), ("你好\n", Some(0)));
    let wrong = text(&run(&url, &["call", "room", "pc", "tools__echo", r#"{"text":5}"#]).stderr);
    assert!(wrong.contains("text: must be a string (you sent 5)"), "{wrong}");
    assert!(wrong.contains(r#"example: {"text":"#), "{wrong}");
    let late = run(&url, &["call", "--timeout", "1", "room", "pc", "tools__slow"]);
    assert!(text(&late.stderr).starts_with("4004 "), "{}", text(&late.stderr));
    let refused = run(&url, &["call", "room", "pc", "tools__env", r#"{"name":"PATH"}"#]);
    assert!(text(&refused.stderr).starts_with("4005 "), "{}", text(&refused.stderr));
    let no = run(&url, &["call", "room", "pc", "tools__no"]);
    let stderr = text(&no.stderr);
    assert!(
        stderr.starts_with("4003 ") && stderr.contains("the city is not on the map"),
        "{stderr}"
    );
    assert!(stderr.contains("mcp_server tools → computer pc → agent budao"), "{stderr}");
    a_session_errs_is_told_and_corrects_itself(&url, directory.path());
    let chinese = run(&url, &["--lang", "zh", "call", "room", "pc", "tools__nothing"]);
    assert!(text(&chinese.stderr).starts_with("4001 "), "{}", text(&chinese.stderr));
}

/// A computer `pc` in `room` whose only server is started by this shell command.
fn computer_of_shell(url: &str, directory: &Path, command: &str) -> Process {
    let file = directory.join("computer.json");
    let config = serde_json::json!({ "servers": [{
        "name": "tools", "type": "stdio", "default_tool_meta": { "auto_apply": true },
        "server_parameters": { "command": "sh", "args": ["-c", command] },
    }] });
    std::fs::write(&file, config.to_string()).unwrap();
    let file = file.to_str().unwrap();
    start(&["smcp", "computer", "--url", url, "--name", "pc", "--config", file, "room"], "joined").0
}

#[test]
fn the_list_of_tools_waits_for_servers_that_start_and_not_for_ever() {
    let Some(program) = fake_mcp(PROGRAM) else { return };
    let directory = tempfile::tempdir().unwrap();
    let (_hub, url) = hub();
    let slow = format!("sleep 1; exec {}", program.display());
    let computer = computer_of_shell(&url, directory.path(), &slow);
    let listed = run(&url, &["tools", "room"]);
    let (tools, progress) = (text(&listed.stdout), text(&listed.stderr));
    assert!(tools.contains("tools__echo") && listed.status.code() == Some(0), "{tools}{progress}");
    assert!(progress.contains("pc") && progress.contains("tools"), "{progress}");
    drop(computer);

    let (_hub, url) = hub();
    let _computer = computer_of_shell(&url, directory.path(), "exec sleep 600");
    let listed = run(&url, &["tools", "--timeout", "1", "room"]);
    assert_eq!((text(&listed.stdout).as_str(), listed.status.code()), ("", Some(1)));
    assert!(text(&listed.stderr).contains("still starting"), "{}", text(&listed.stderr));
}

#[test]
fn a_call_waits_for_a_server_that_starts_and_not_for_ever() {
    let Some(program) = fake_mcp(PROGRAM) else { return };
    let directory = tempfile::tempdir().unwrap();
    let (_hub, url) = hub();
    let slow = format!("sleep 1; exec {}", program.display());
    let computer = computer_of_shell(&url, directory.path(), &slow);
    let done = run(&url, &["call", "room", "pc", "tools__echo", r#"{"text":"hi"}"#]);
    let progress = text(&done.stderr);
    assert_eq!((text(&done.stdout).as_str(), done.status.code()), ("hi\n", Some(0)), "{progress}");
    drop(computer);

    let (_hub, url) = hub();
    let _computer = computer_of_shell(&url, directory.path(), "exec sleep 600");
    let late = run(&url, &["call", "--timeout", "1", "room", "pc", "tools__echo"]);
    assert_eq!(late.status.code(), Some(1), "{}", text(&late.stdout));
    assert!(text(&late.stderr).contains("ERR_"), "{}", text(&late.stderr));
}

#[test]
fn the_time_of_a_call_covers_the_connection() {
    // Connections are accepted by the system, and nobody answers.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    for args in
        [&["call", "--timeout", "1", "room", "pc", "t"][..], &["tools", "--timeout", "1", "room"]]
    {
        let began = Instant::now();
        let late = run(&url, args);
        assert!(began.elapsed() < Duration::from_secs(20), "{args:?}: {:?}", began.elapsed());
        assert_eq!(late.status.code(), Some(1));
        assert!(text(&late.stderr).contains("ERR_"), "{}", text(&late.stderr));
    }
}

#[test]
fn a_chinese_hub_refuses_in_chinese() {
    let args = ["--lang", "zh", "smcp", "server", "--listen", "127.0.0.1:0", "--json"];
    let mut hub = Process::start(budao(&args));
    let printed: serde_json::Value = serde_json::from_str(&hub.first_line()).unwrap();
    let address = printed["listening"].as_str().unwrap().strip_prefix("http://").unwrap();
    let mut line = std::net::TcpStream::connect(address).unwrap();
    let head = "GET /socket.io/?EIO=4&transport=polling&a2c_version=0.3.0 HTTP/1.1\r\n\
                Host: h\r\nConnection: close\r\n\r\n";
    line.write_all(head.as_bytes()).unwrap();
    let mut answer = String::new();
    std::io::Read::read_to_string(&mut line, &mut answer).unwrap();
    assert!(answer.contains("版本"), "{answer}");
}

#[test]
fn the_trace_of_a_failure_finds_a_line_on_each_machine() {
    let Some(program) = fake_mcp(PROGRAM) else { return };
    let (_hub, line, hub_said) = Process::start_and_read(
        budao(&["smcp", "server", "--listen", "127.0.0.1:0"]),
        "listening on",
    );
    let url = line.split_whitespace().last().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("computer.json");
    let config = serde_json::json!({ "servers": [{
        "name": "tools", "type": "stdio", "default_tool_meta": { "auto_apply": true },
        "server_parameters": { "command": program },
    }] });
    std::fs::write(&file, config.to_string()).unwrap();
    let file = file.to_str().unwrap();
    let args = ["smcp", "computer", "--url", url, "--name", "pc", "--config", file, "room"];
    let (_computer, _, computer_said) = Process::start_and_read(budao(&args), "joined");
    let no = loop {
        let no = text(&run(url, &["call", "room", "pc", "tools__no"]).stderr);
        if no.contains("the city is not on the map") {
            break no;
        }
    };
    let trace = no.lines().find_map(|line| line.trim().strip_prefix("trace ")).unwrap();
    for (role, printed) in [("hub", hub_said), ("computer", computer_said)] {
        let until = Instant::now() + Duration::from_secs(30);
        loop {
            let printed = printed.lock().unwrap().clone();
            if let Some(line) = printed.lines().find(|line| line.contains(trace)) {
                for word in ["req_id", "tools__no", "computer", "4003", "not on the map"] {
                    assert!(line.contains(word), "{role}: no {word} in {line}");
                }
                break;
            }
            assert!(Instant::now() < until, "{role}: no {trace} in\n{printed}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[test]
fn skills_of_a_folder_are_listed_and_read_by_hand() {
    let (_hub, url) = hub();
    let directory = tempfile::tempdir().unwrap();
    let skill = directory.path().join("skills/pdf-tools");
    std::fs::create_dir_all(skill.join("notes")).unwrap();
    let entry = "---\ndescription: Reads PDF files\nversion: 2\n---\nDo it well.\n";
    std::fs::write(skill.join("SKILL.md"), entry).unwrap();
    std::fs::write(skill.join("notes/long.txt"), "line\n".repeat(80_000)).unwrap();
    std::fs::write(skill.join(".skillenv"), "KEY=secret").unwrap();
    let folder = directory.path().join("skills");
    let folder = folder.to_str().unwrap();
    let args = ["smcp", "computer", "--url", &url, "--name", "pc", "--skills", folder, "room"];
    let (_computer, _) = start(&args, "joined");
    let listed = run(&url, &["skills", "room"]);
    assert_eq!(text(&listed.stdout), "pc  pdf-tools  Reads PDF files  2\n", "{listed:?}");
    let json = text(&run(&url, &["skills", "--json", "room", "pc"]).stdout);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&json["computer"], &json["source"]), (&"pc".into(), &"user".into()));
    let read = |args: &[&str]| {
        let output = run(&url, &[&["skills", "room", "pc"], args].concat());
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    assert_eq!(read(&["pdf-tools"]).1, "Do it well.\n");
    let long = read(&["pdf-tools", "notes/long.txt"]).1;
    assert_eq!(long, "line\n".repeat(80_000), "what is long comes in pieces");
    for (args, code) in [
        (["none", "SKILL.md"], "4014 "),
        (["Not A Name", "SKILL.md"], "4016 "),
        (["pdf-tools", "../../smcp.rs"], "4017 "),
        (["pdf-tools", ".skillenv"], "4017 "),
        (["pdf-tools", "nothing.md"], "4017 "),
    ] {
        let (status, _, printed) = read(&args);
        assert!(printed.starts_with(code) && status == Some(1), "{args:?}: {printed}");
    }
}

#[test]
fn documents_of_a_folder_are_listed_and_read_by_hand() {
    let dialect = ["--dialect", "0.2"];
    let args = ["smcp", "server", "--listen", "127.0.0.1:0"];
    let (_hub, line) = start(&[args.as_slice(), &dialect].concat(), "listening on");
    let url = line.split_whitespace().last().unwrap().to_owned();
    let directory = tempfile::tempdir().unwrap();
    let folder = directory.path().to_str().unwrap();
    std::fs::write(directory.path().join("plan.md"), "# The plan\n\nFirst, sleep.\n").unwrap();
    std::fs::write(directory.path().join("notes.txt"), "one\n\ntwo\n").unwrap();
    let args = ["smcp", "computer", "--url", &url, "--name", "pc", "--documents", folder, "room"];
    let (_computer, _) = start(&[args.as_slice(), &dialect].concat(), "joined");
    let listed = text(&run(&url, &["documents", "room"]).stdout);
    let lines: Vec<&str> = listed.lines().collect();
    assert!(lines.len() == 2 && lines.iter().any(|it| it.ends_with("notes.txt  txt")), "{listed}");
    let only = text(&run(&url, &["documents", "--keyword", "plan", "room"]).stdout);
    let (uri, rest) = only.strip_prefix("pc  ").unwrap().split_once("  ").unwrap();
    assert_eq!(rest, "The plan  md\n");
    let read = |address: &str| run(&url, &["documents", "room", "pc", address]);
    let page = read(&format!("{uri}/pages/0?format=markdown"));
    assert_eq!(text(&page.stdout), "# The plan\n\nFirst, sleep.\n");
    for (address, code) in [
        (format!("{uri}x"), "4201 "),
        (format!("{uri}/pages/7"), "4202 "),
        (format!("{uri}/elements/none"), "4203 "),
        (format!("{uri}/chapters/1"), "4204 "),
    ] {
        let refused = read(&address);
        let printed = text(&refused.stderr);
        assert!(
            printed.starts_with(code) && refused.status.code() == Some(1),
            "{address}: {printed}"
        );
    }
}

/// A member that stays, so that the room is not empty.
fn watching(url: &str) -> (Process, impl Iterator<Item = String>) {
    let args = ["smcp", "watch", "--json", "--name", "first", "--url", url, "room"];
    let mut watch = Process::start(budao(&args));
    let mut lines = BufReader::new(watch.0.stdout.take().unwrap()).lines().map_while(Result::ok);
    let here = lines.next().expect("it says who is there");
    assert!(here.contains("\"here\""), "{here}");
    (watch, lines)
}

#[test]
fn a_refused_join_prints_its_reason_once() {
    let (_hub, url) = hub();
    let _first = watching(&url);
    let refused = run(&url, &["tools", "room"]);
    assert_eq!(refused.status.code(), Some(1));
    insta::assert_snapshot!(text(&refused.stderr), @r"
    The room room already has an agent. Use another room, or let that agent leave first.
      budao explain ERR_SMCP_001
    ");
    let chinese = run(&url, &["--lang", "zh", "tools", "room"]);
    insta::assert_snapshot!(text(&chinese.stderr), @r"
    房间 room 已有智能体。请换一个房间，或让那个智能体先离开。
      budao explain ERR_SMCP_001
    ");
}

fn objects(bytes: &[u8]) -> Vec<serde_json::Value> {
    let read = |line: &str| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"));
    text(bytes).lines().map(read).collect()
}

#[test]
fn every_subcommand_prints_json_on_request() {
    let Some(program) = fake_mcp(PROGRAM) else { return };
    let mut hub = Process::start(budao(&["smcp", "server", "--listen", "127.0.0.1:0", "--json"]));
    let listening: serde_json::Value = serde_json::from_str(&hub.first_line()).unwrap();
    let url = listening["listening"].as_str().unwrap();

    let mut computer = budao(&["smcp", "computer", "--json", "--name", "pc", "--url", url, "room"]);
    let mut computer = Process(computer.stdin(Stdio::piped()).spawn().unwrap());
    let mut input = computer.0.stdin.take().unwrap();
    let lines = BufReader::new(computer.0.stdout.take().unwrap()).lines().map_while(Result::ok);
    let mut printed = lines.map(|line| serde_json::from_str::<serde_json::Value>(&line).unwrap());
    assert_eq!(printed.next().unwrap(), serde_json::json!({ "joined": "room" }));
    let add = serde_json::json!({
        "name": "tools", "type": "stdio", "default_tool_meta": { "auto_apply": true },
        "server_parameters": { "command": program },
    });
    let mut run_command = |line: &str| {
        writeln!(input, "{line}").unwrap();
        printed.next().unwrap()
    };
    assert_eq!(run_command(&format!("add {add}")), serde_json::json!({ "added": "tools" }));
    let ready = loop {
        let status = run_command("status");
        if status["servers"][0]["state"] == "ready" {
            break status;
        }
    };
    assert_eq!((&ready["room"], &ready["servers"][0]["id"]), (&"room".into(), &"tools".into()));
    assert_eq!(run_command(r#"call tools__echo {"text":"hi"}"#)["content"][0]["text"], "hi");
    assert_eq!(run_command("call tools__none")["error"]["code"], 4001);
    let call = run_command("history");
    assert_eq!((&call["tool"], &call["error_code"]), (&"echo".into(), &serde_json::Value::Null));
    assert_eq!(run_command("join")["usage"], "missing name; see `help`");
    assert!(run_command("help")["help"].as_str().unwrap().starts_with("status "));

    let tools = objects(&run(url, &["tools", "--json", "room"]).stdout);
    assert!(tools.iter().any(|tool| tool["name"] == "tools__echo" && tool["computer"] == "pc"));
    let good = run(url, &["call", "--json", "room", "pc", "tools__echo", r#"{"text":"hi"}"#]);
    assert_eq!(objects(&good.stdout)[0]["content"][0]["text"], "hi");
    let bad = run(url, &["call", "--json", "room", "pc", "tools__no"]);
    assert_eq!((bad.status.code(), text(&bad.stderr)), (Some(1), String::new()));
    let error = &objects(&bad.stdout)[0]["error"];
    assert_eq!(
        (&error["code"], &error["details"]["hops"][0]["role"]),
        (&4003.into(), &"mcp_server".into())
    );

    let (_watching, mut events) = watching(url);
    assert!(events.next().unwrap().contains("\"here\""), "the computer is there, too");
    assert_eq!(run_command("leave"), serde_json::json!({ "done": true }));
    let left: serde_json::Value = serde_json::from_str(&events.next().unwrap()).unwrap();
    assert_eq!(left, serde_json::json!({ "event": "left", "role": "computer", "name": "pc" }));
    let full = run(url, &["tools", "--json", "room"]);
    assert_eq!(objects(&full.stdout)[0]["error"]["code"], 4101);
}

/// The session's model calls a remote tool wrongly, reads why, and calls it rightly.
fn a_session_errs_is_told_and_corrects_itself(url: &str, directory: &Path) {
    let room =
        format!("[[smcp]]\nurl = \"{url}\"\nroom = \"room\"\ntoken = \"${{env:ROOM_TOKEN}}\"\n");
    std::fs::write(directory.join("budao.toml"), room).unwrap();
    let script = "[[step]]\n[[step.call]]\ntool = \"pc__tools__no\"\narguments = {}\n\
                  [[step]]\n[[step.call]]\ntool = \"pc__tools__echo\"\narguments = { text = \"right\" }\n\
                  [[step]]\ntext = \"done\"\n";
    std::fs::write(directory.join("script.toml"), script).unwrap();
    let args = ["run", "--config", "budao.toml", "--permission", "auto", "--json"];
    let ran = budao(&args)
        .args(["--model", "script:script.toml", "go"])
        .current_dir(directory)
        .env("BUDAO_JOURNAL", directory.join("journal.db"))
        .env("ROOM_TOKEN", "right")
        .output()
        .unwrap();
    let records = text(&ran.stdout);
    assert_eq!(ran.status.code(), Some(0), "{}\n{records}", text(&ran.stderr));
    assert!(records.contains("the city is not on the map"), "{records}");
    assert!(
        records.contains("\"computer\"") && records.contains("\"mcp_server\""),
        "every hop: {records}"
    );
}

#[test]
fn a_settings_file_that_cannot_be_used_is_named_with_what_is_wrong_with_it() {
    let home = tempfile::tempdir().unwrap();
    let path = |name: &str| home.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(path("odd.json"), "{\n\"servers\": [,]}").unwrap();
    std::fs::write(path("bytes.json"), b"\xff\xfe").unwrap();
    for (file, expected) in [
        ("missing.json", "ERR_FILE_001"),
        (".", "ERR_FILE_007"),
        ("bytes.json", "ERR_FILE_008"),
        ("odd.json", "odd.json:2 is wrong: it must be JSON"),
    ] {
        let args = ["smcp", "computer", "room", "--config", &path(file)];
        let refused = budao(&args).output().unwrap();
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(said.contains(expected), "{file}: {said}");
        assert!(!refused.status.success(), "{file}: {said}");
    }
}

//! What can be said to a computer while it runs, through a pipe and at a terminal, as the documentation shows it.

use std::{
    io::{BufRead, BufReader, Read as _, Write},
    path::Path,
    process::{ChildStdin, Command, Stdio},
    sync::mpsc::{Receiver, channel},
    time::Duration,
};

use budao_testkit::program::{self, Process, fake_mcp};

const PROGRAM: &str = env!("CARGO_BIN_EXE_budao");

/// Nothing here takes this long unless it hangs.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);

fn budao(args: &[&str]) -> Command {
    let mut command = program::command(PROGRAM, args);
    command.env("BUDAO_SMCP_TOKEN", "right-and-long").stdin(Stdio::piped());
    command
}

/// A process, and what it says on both of its outputs as it comes.
struct ChildProcess {
    process: Process,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    printed: String,
}

impl ChildProcess {
    fn start(command: Command) -> Self {
        let mut process = Process::start(command);
        let child = &mut process.0;
        let (sender, lines) = channel();
        let outputs: [Box<dyn std::io::Read + Send>; 2] =
            [Box::new(child.stdout.take().unwrap()), Box::new(child.stderr.take().unwrap())];
        for output in outputs {
            let sender = sender.clone();
            std::thread::spawn(move || {
                for line in BufReader::new(output).lines().map_while(Result::ok) {
                    if sender.send(line).is_err() {
                        return;
                    }
                }
            });
        }
        let input = child.stdin.take();
        Self { process, input, lines, printed: String::new() }
    }

    /// Waits for a line with these words.
    fn says(&mut self, words: &str) -> String {
        loop {
            let line = self.lines.recv_timeout(TEST_TIMEOUT);
            let line = line.unwrap_or_else(|_| panic!("no `{words}` in:\n{}", self.printed));
            self.printed.push_str(&line);
            self.printed.push('\n');
            if line.contains(words) {
                return line;
            }
        }
    }

    fn send_line(&mut self, line: &str) {
        writeln!(self.input.as_mut().unwrap(), "{line}").unwrap();
    }

    /// Says `status` until it shows these words.
    fn until(&mut self, words: &str) {
        for _ in 0..600 {
            self.send_line("status");
            self.send_line("history");
            self.says("room ");
            while let Ok(line) = self.lines.recv_timeout(Duration::from_millis(100)) {
                if line.contains(words) {
                    return;
                }
            }
        }
        panic!("never `{words}`");
    }
}

fn hub() -> (ChildProcess, String) {
    let mut hub = ChildProcess::start(budao(&["smcp", "server", "--listen", "127.0.0.1:0"]));
    let url = hub.says("listening on").split_whitespace().last().unwrap().to_owned();
    (hub, url)
}

fn server(program: &Path, name: &str) -> String {
    serde_json::json!({
        "name": name, "type": "stdio", "default_tool_meta": { "auto_apply": true },
        "tool_meta": { "env": { "auto_apply": false } },
        "server_parameters": { "command": program },
    })
    .to_string()
}

fn call(url: &str, room: &str, tool: &str, arguments: &str) -> String {
    let args = ["smcp", "call", "--timeout", "20", "--url", url, room, "pc", tool, arguments];
    let output = budao(&args).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!("{}{}", text(&output.stdout), text(&output.stderr))
}

#[test]
fn a_computer_takes_commands_from_a_pipe() {
    let Some(program) = fake_mcp(PROGRAM) else { return };
    let (_hub, url) = hub();
    let args = ["smcp", "computer", "--url", &url, "--name", "pc", "room"];
    let mut computer = ChildProcess::start(budao(&args));
    computer.says("joined room");
    computer.send_line(&format!("add {}", server(&program, "tools")));
    computer.says("added tools");
    computer.until("ready (");
    computer.send_line("tools");
    computer.says("tools__echo");
    computer.send_line(r#"call tools__echo {"text":"right-and-long"}"#);
    computer.says("right-and-long");
    computer.send_line("call tools__env {\"name\":\"NOTHING\"}");
    computer.says("(not set)");
    computer.send_line("history");
    let kept = computer.says("tools echo");
    assert!(kept.contains("ok") && !kept.contains("right-and-long"), "{kept}");

    assert_eq!(call(&url, "room", "tools__echo", r#"{"text":"hi"}"#), "hi\n");
    computer.send_line("stop tools");
    computer.says("done");
    assert!(call(&url, "room", "tools__echo", "{}").starts_with("4003 "));
    computer.send_line("start tools");
    computer.until("ready (");
    computer.send_line("leave");
    computer.says("done");
    assert!(call(&url, "room", "tools__echo", "{}").starts_with("404 "));
    computer.send_line("join elsewhere");
    computer.says("done");
    assert_eq!(call(&url, "elsewhere", "tools__echo", r#"{"text":"hi"}"#), "hi\n");
    computer.send_line("remove tools");
    computer.says("done");
    assert!(call(&url, "elsewhere", "tools__echo", "{}").starts_with("4001 "));

    for (wrong, words) in [
        ("dance", "unknown command"),
        ("call", "call TOOL"),
        ("call none {", "ERR_"),
        ("start nobody", "4014 "),
        ("add /nowhere.json", "ERR_"),
        ("add {\"name\":1}", "ERR_"),
        ("join", "missing name"),
    ] {
        computer.send_line(wrong);
        computer.says(words);
    }
    computer.send_line("help");
    computer.says("history  ");
    computer.send_line("quit");
    assert_eq!(computer.process.0.wait().unwrap().code(), Some(0));
}

#[test]
fn the_end_of_a_pipe_is_only_the_end_of_the_commands() {
    let Some(program) = fake_mcp(PROGRAM) else { return };
    let (_hub, url) = hub();
    let args = ["smcp", "computer", "--url", &url, "--name", "pc", "room"];
    let mut computer = ChildProcess::start(budao(&args));
    computer.send_line(&format!("add {}", server(&program, "tools")));
    computer.says("added tools");
    computer.input = None;
    while !call(&url, "room", "tools__echo", r#"{"text":"hi"}"#).starts_with("hi") {}
    let refused = call(&url, "room", "tools__env", r#"{"name":"PATH"}"#);
    assert!(refused.starts_with("4005 ") && refused.contains("could not be asked"), "{refused}");
}

#[test]
fn a_question_gets_the_next_line_and_a_secret_input_is_asked_for() {
    let Some(program) = fake_mcp(PROGRAM) else { return };
    let (_hub, url) = hub();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("computer.json");
    let mut tools: serde_json::Value = serde_json::from_str(&server(&program, "tools")).unwrap();
    tools["server_parameters"]["env"] = serde_json::json!({
        "KEY": "${input:key}", "SIZE": "${input:size}", "SAID": "${input:said}", "SET": "${input:set}",
    });
    tools["vrl"] = ".x = 1".into();
    let choice = |it: &str| serde_json::json!({ "label": it.to_uppercase(), "value": it });
    let inputs = serde_json::json!([
        { "type": "promptString", "id": "key", "description": "The key", "password": true },
        { "type": "pickString", "id": "size", "options": [choice("small"), choice("large")] },
        { "type": "command", "id": "said", "command": "echo", "args": ["by-a-program"] },
        { "type": "promptString", "id": "set", "default": "not-this" },
    ]);
    let whole = serde_json::json!({ "servers": [tools], "inputs": inputs });
    std::fs::write(&file, whole.to_string()).unwrap();
    let file = file.to_str().unwrap();
    let args = ["smcp", "computer", "--url", &url, "--name", "pc", "--config", file, "room"];
    let mut command = budao(&args);
    command.env("A2C_SMCP_set_tools", "by-the-environment");
    let mut computer = ChildProcess::start(command);
    computer.says("`vrl` is kept but results are not transformed");
    computer.send_line("key-from-the-pipe");
    computer.send_line("2");
    computer.says("joined room");
    computer.until("ready (");
    for (name, value) in
        [("KEY", "key-from-the-pipe"), ("SAID", "by-a-program"), ("SET", "by-the-environment")]
    {
        computer.send_line(&format!("call tools__env {{\"name\":\"{name}\"}}"));
        computer.says(value);
    }
    let asking = |answer: &str, computer: &mut ChildProcess| {
        let (url, answer) = (url.clone(), answer.to_owned());
        let waiting =
            std::thread::spawn(move || call(&url, "room", "tools__env", r#"{"name":"SIZE"}"#));
        computer.says("tools env ");
        computer.send_line(&answer);
        waiting.join().unwrap()
    };
    assert_eq!(asking("y", &mut computer), "large\n");
    assert!(asking("n", &mut computer).starts_with("4005 "));
    computer.send_line("quit");
    assert_eq!(computer.process.0.wait().unwrap().code(), Some(0));
}

#[test]
fn a_program_or_a_service_decides_and_what_goes_wrong_is_a_no() {
    let Some(program) = fake_mcp(PROGRAM) else { return };
    let (_hub, url) = hub();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("computer.json");
    std::fs::write(&file, format!("{{\"servers\":[{}]}}", server(&program, "tools"))).unwrap();
    let file = file.to_str().unwrap();
    for (option, value, words) in [
        ("--confirm-command", "true", "(not set)"),
        ("--confirm-command", "sh -c 'echo not today; exit 1'", "not today"),
        ("--confirm-url", "http://127.0.0.1:1/", "cannot be reached"),
        ("--confirm", "never", "could not be asked"),
    ] {
        let args = [
            "smcp", "computer", "--url", &url, "--name", "pc", "--config", file, option, value,
            "room",
        ];
        let mut computer = ChildProcess::start(budao(&args));
        computer.says("joined room");
        computer.until("ready (");
        let answer = call(&url, "room", "tools__env", r#"{"name":"NOTHING"}"#);
        assert!(answer.contains(words), "{value}: {answer}");
        assert_eq!(answer.starts_with("4005 "), words != "(not set)", "{value}: {answer}");
        computer.send_line("quit");
        assert_eq!(computer.process.0.wait().unwrap().code(), Some(0));
    }
    let both =
        ["smcp", "computer", "--confirm-url", "http://x/", "--confirm-command", "true", "room"];
    assert_eq!(budao(&both).output().unwrap().status.code(), Some(2));
    let odd = ["smcp", "computer", "--confirm-url", "carrier-pigeon", "room"];
    assert_eq!(budao(&odd).output().unwrap().status.code(), Some(2));
}

/// `script` gives a process a terminal. Where it is missing this says so and passes.
#[test]
fn at_a_terminal_commands_are_asked_for_and_a_secret_is_not_shown() {
    let has_script = Command::new("script").arg("--version").output().is_ok();
    let Some(program) = fake_mcp(PROGRAM).filter(|_| has_script) else {
        eprintln!("\n*** NOT TESTED: `script` is missing ***\n");
        return;
    };
    let (_hub, url) = hub();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("computer.json");
    let mut tools: serde_json::Value = serde_json::from_str(&server(&program, "tools")).unwrap();
    tools["server_parameters"]["env"] = serde_json::json!({ "KEY": "${input:key}" });
    let inputs = serde_json::json!([{ "type": "promptString", "id": "key", "description": "The key", "password": true }]);
    std::fs::write(&file, serde_json::json!({ "servers": [tools], "inputs": inputs }).to_string())
        .unwrap();
    let line = format!(
        "'{}' smcp computer --url {url} --name pc --config '{}' room",
        env!("CARGO_BIN_EXE_budao"),
        file.display()
    );
    let mut command = Command::new("script");
    command
        .args(["-qec", &line, "/dev/null"])
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("TERM", "dumb")
        .env("BUDAO_SMCP_TOKEN", "right-and-long")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut output = child.stdout.take().unwrap();
    let (sender, pieces) = channel();
    std::thread::spawn(move || {
        let mut piece = [0; 4096];
        while let Ok(bytes @ 1..) = output.read(&mut piece) {
            if sender.send(String::from_utf8_lossy(&piece[..bytes]).into_owned()).is_err() {
                return;
            }
        }
    });
    let mut printed = String::new();
    let shows = |words: &str, printed: &mut String| {
        while !printed.contains(words) {
            printed.push_str(
                &pieces
                    .recv_timeout(TEST_TIMEOUT)
                    .unwrap_or_else(|_| panic!("no `{words}` in:\n{printed}")),
            );
        }
    };
    shows("The key: ", &mut printed);
    writeln!(input, "typed-in-secret").unwrap();
    shows("joined room", &mut printed);
    shows("> ", &mut printed);
    assert!(!printed.contains("typed-in-secret"), "{printed}");
    writeln!(input, "status").unwrap();
    shows("room room", &mut printed);
    // The end of a terminal ends the computer.
    input.write_all(b"\x04").unwrap();
    assert!(child.wait().unwrap().success(), "{printed}");
}

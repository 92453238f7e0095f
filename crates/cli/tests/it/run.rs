//! Sessions at the terminal, as real processes: run, killed, resumed, cancelled from outside.

use std::{
    io::{BufRead, BufReader, Read},
    path::Path,
    process::{Child, Command, Output, Stdio},
};

use budao_testkit::port::Refusing;

fn budao(directory: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_budao"));
    command
        .current_dir(directory)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("BUDAO_JOURNAL", directory.join("journal.db"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

fn run(directory: &Path, args: &[&str]) -> Output {
    budao(directory).args(args).output().expect("the program starts")
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn workspace() -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::write(directory.path().join("README.md"), "# One\n\n## Two\n\n## Three\n")
        .expect("a file");
    directory
}

/// A process whose first line on stderr names its session.
fn start(directory: &Path, args: &[&str]) -> (Child, String) {
    let mut child = budao(directory).args(args).spawn().expect("the program starts");
    let mut line = String::new();
    let mut stderr = BufReader::new(child.stderr.take().expect("piped"));
    stderr.read_line(&mut line).expect("a line");
    child.stderr = Some(stderr.into_inner());
    let id = line.trim().rsplit(' ').next().expect("an id").to_owned();
    (child, id)
}

/// Waits until the process has written something to stdout.
fn until_it_speaks(child: &mut Child) {
    let mut byte = [0; 1];
    child.stdout.as_mut().expect("piped").read_exact(&mut byte).expect("a byte");
}

#[test]
fn an_agent_gets_the_fault_of_its_call_and_corrects_it() {
    let directory = workspace();
    let task = "read README.md and count its headings";
    let done = run(directory.path(), &["run", "--model", "demo:fast", task]);
    assert_eq!(done.status.code(), Some(0), "{}", err(&done));
    assert!(out(&done).contains("README.md has 3 headings"), "{}", out(&done));
    assert!(err(&done).contains("ERR_VAL_002"), "{}", err(&done));
    assert!(err(&done).contains("✓ fs_read"), "{}", err(&done));
}

#[test]
fn machines_get_one_json_object_per_record() {
    let directory = workspace();
    let done = run(directory.path(), &["run", "--json", "--model", "demo:fast", "say hello"]);
    let records: Vec<serde_json::Value> =
        out(&done).lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let seqs: Vec<_> = records.iter().map(|record| record["seq"].as_u64().unwrap()).collect();
    let first = seqs[0];
    assert!(seqs.iter().enumerate().all(|(index, seq)| *seq == first + index as u64), "{seqs:?}");
    assert!(records.last().unwrap()["event"].get("turn_ended").is_some());
}

#[test]
fn a_killed_process_is_resumed_where_it_was() {
    let directory = workspace();
    let script = "order = \"history\"\n[[step]]\ntext = \"one two three four five six\"\n\
                  pace_ms = 60\n";
    std::fs::write(directory.path().join("slow.toml"), script).unwrap();
    let (mut child, id) = start(directory.path(), &["run", "--model", "script:slow.toml", "go"]);
    until_it_speaks(&mut child);
    child.kill().expect("SIGKILL");
    child.wait().expect("it is dead");

    let resumed = run(directory.path(), &["resume", &id]);
    assert_eq!(resumed.status.code(), Some(0), "{}", err(&resumed));
    assert_eq!(out(&resumed).trim(), "one two three four five six");
    assert!(err(&resumed).contains("resumed"), "{}", err(&resumed));

    let again = run(directory.path(), &["resume", &id]);
    assert!(err(&again).contains("Nothing to resume"), "{}", err(&again));
    let replayed = run(directory.path(), &["replay", &id]);
    assert!(err(&replayed).contains("discarded"), "shown text is marked: {}", err(&replayed));
}

#[test]
fn a_turn_is_cancelled_from_another_process() {
    let directory = workspace();
    let script = "[[step]]\ntext = \"waiting for ever\"\npace_ms = 50\nend = \"stall\"\n";
    std::fs::write(directory.path().join("stall.toml"), script).unwrap();
    let (mut child, id) = start(directory.path(), &["run", "--model", "script:stall.toml", "go"]);
    until_it_speaks(&mut child);
    let cancelled = run(directory.path(), &["cancel", &id]);
    assert_eq!(cancelled.status.code(), Some(0), "{}", err(&cancelled));
    assert_eq!(child.wait().expect("it ends").code(), Some(3), "the exit code tells the outcome");
}

#[test]
fn without_a_terminal_a_question_is_denied_with_the_way_to_allow_it() {
    let directory = workspace();
    let script = "[[step]]\n[[step.call]]\ntool = \"bash_run\"\narguments = { cmd = \"touch made\" }\n\
                  [[step]]\ntext = \"fine\"\n";
    std::fs::write(directory.path().join("bash.toml"), script).unwrap();
    let denied = run(directory.path(), &["run", "--model", "script:bash.toml", "go"]);
    assert_eq!(out(&denied).trim(), "fine", "{}", err(&denied));
    assert_eq!(denied.status.code(), Some(3), "the task may be incomplete: {}", err(&denied));
    assert!(err(&denied).contains("--permission auto"), "{}", err(&denied));
    assert!(!directory.path().join("made").exists());

    let args = ["run", "--permission", "auto", "--model", "script:bash.toml", "go"];
    let allowed = run(directory.path(), &args);
    assert_eq!(allowed.status.code(), Some(0), "{}", err(&allowed));
    assert!(directory.path().join("made").exists(), "{}", err(&allowed));
}

#[test]
fn a_failed_turn_has_its_exit_code_and_its_page() {
    let directory = workspace();
    std::fs::write(directory.path().join("key.toml"), "[[step]]\nstatus = 401\n").unwrap();
    let failed = run(directory.path(), &["run", "--model", "script:key.toml", "go"]);
    assert_eq!(failed.status.code(), Some(1), "{}", err(&failed));
    assert!(err(&failed).contains("budao explain ERR_AUTH_001"), "{}", err(&failed));
}

#[test]
fn an_unknown_mode_or_depth_of_thought_is_refused() {
    let workspace = workspace();
    for (flag, value) in [("--permission", "yolo"), ("--thinking", "very")] {
        let refused = run(workspace.path(), &["run", flag, value, "go"]);
        assert!(!refused.status.success());
        assert!(err(&refused).contains(flag), "{}", err(&refused));
    }
}

#[test]
fn a_queued_message_is_withdrawn_and_the_running_turn_continues() {
    let directory = workspace();
    let script = "[[step]]\ntext = \"waiting for ever\"\nend = \"stall\"\n";
    std::fs::write(directory.path().join("stall.toml"), script).unwrap();
    let (mut child, id) = start(directory.path(), &["run", "--model", "script:stall.toml", "go"]);
    until_it_speaks(&mut child);
    // Whoever sends it waits for its answer, which will never come.
    let mut waits = budao(directory.path()).args(["resume", &id, "and then"]).spawn().unwrap();
    let command = waiting_message(directory.path(), &id);
    let back = run(directory.path(), &["cancel", &id, "--message", &command, "--json"]);
    assert_eq!(back.status.code(), Some(0), "{}", err(&back));
    let result: serde_json::Value = serde_json::from_str(&out(&back)).unwrap();
    assert_eq!(result["cancelled"], true, "{result}");
    let replayed = out(&run(directory.path(), &["replay", &id, "--json"]));
    assert!(!replayed.contains("turn_ended"), "the turn goes on: {replayed}");

    assert_eq!(run(directory.path(), &["cancel", &id]).status.code(), Some(0));
    assert_eq!(child.wait().unwrap().code(), Some(3));
    waits.wait().unwrap();
    let replayed = out(&run(directory.path(), &["replay", &id, "--json"]));
    assert_eq!(
        replayed.matches("turn_started").count(),
        1,
        "what was taken back has no turn: {replayed}"
    );
    let again = run(directory.path(), &["cancel", &id, "--message", &command]);
    assert_ne!(again.status.code(), Some(0), "it does not wait any more: {}", err(&again));
}

/// The command of the second message of a session, once that is accepted.
fn waiting_message(directory: &Path, id: &str) -> String {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
    loop {
        assert!(std::time::Instant::now() < deadline, "the message is accepted");
        let replayed = out(&run(directory, &["replay", id, "--json"]));
        let records =
            replayed.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        let mut accepted = records.filter_map(|record| {
            record["event"]["message_accepted"]["command"].as_str().map(str::to_owned)
        });
        if let Some(second) = accepted.nth(1) {
            return second;
        }
    }
}

#[test]
fn a_cancel_without_a_running_turn_is_reported_in_json() {
    let directory = workspace();
    let (mut child, id) = start(directory.path(), &["run", "--model", "demo:fast", "say hello"]);
    child.wait().unwrap();
    let result = run(directory.path(), &["cancel", &id, "--json"]);
    let result: serde_json::Value = serde_json::from_str(&out(&result)).unwrap();
    assert_eq!((&result["session"], &result["cancelled"]), (&id.as_str().into(), &false.into()));
}

#[test]
fn every_command_can_print_its_result_as_json() {
    let directory = workspace();
    let (mut child, id) = start(directory.path(), &["run", "--model", "demo:fast", "say hello"]);
    child.wait().unwrap();
    let file = directory.path().join("journal.db").display().to_string();
    let copy = directory.path().join("copy.db").display().to_string();
    let (lines, new) = (directory.path().join("lines"), directory.path().join("new.db"));
    let (lines, new) = (lines.display().to_string(), new.display().to_string());
    let commands: [&[&str]; 14] = [
        &["replay", &id],
        &["cancel", &id],
        &["top"],
        &["sessions", "list"],
        &["sessions", "show", &id],
        &["journal", "check", &file],
        &["journal", "stats", &file],
        &["journal", "export", &file, "-o", &lines],
        &["journal", "import", &new, &lines],
        &["backup", &copy],
        &["explain", "ERR_VAL_002"],
        &["config", "show"],
        &["config", "check"],
        &["sessions", "delete", &id],
    ];
    for command in commands {
        let done = run(directory.path(), &[command, &["--json"]].concat());
        assert_eq!(done.status.code(), Some(0), "{command:?}: {}", err(&done));
        // An export has its data on stdout, if no file was named; what it says goes to stderr then and now.
        let text = if command.contains(&"export") { err(&done) } else { out(&done) };
        let values = serde_json::Deserializer::from_str(&text).into_iter::<serde_json::Value>();
        let values: Result<Vec<_>, _> = values.collect();
        assert!(values.is_ok_and(|values| !values.is_empty()), "{command:?}: {text}");
    }
    let doctor = run(directory.path(), &["acp", "doctor", "--model", "demo", "--json"]);
    assert_eq!(out(&doctor).lines().count(), 6, "{}", out(&doctor));
    for line in out(&doctor).lines() {
        let finding: serde_json::Value = serde_json::from_str(line).unwrap();
        assert!(finding["check"].is_string() && finding["ok"].is_boolean(), "{line}");
        assert!(finding["detail"].is_string(), "{line}");
    }
}

#[test]
fn the_first_example_of_the_readmes_matches_the_output() {
    // Goal: whoever types the first command sees what the readme showed. Numbers may differ: how long it took, and what
    // the readme itself has grown to.
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let directory = workspace();
    for (file, lang, task) in [
        ("README.md", "en", "read README.md and count its headings"),
        ("README.zh.md", "zh", "读取 README.md 并统计标题"),
    ] {
        let readme = std::fs::read_to_string(root.join(file)).unwrap();
        let shown = readme.split("$ budao run").nth(1).unwrap().split("```").next().unwrap();
        assert!(shown.lines().next().unwrap().contains(task), "{file}");
        let place = root.to_str().unwrap();
        let done = run(directory.path(), &["run", "--lang", lang, "--workspace", place, task]);
        let printed = format!("{}{}", out(&done), err(&done));
        let printed: Vec<String> = printed.lines().map(without_numbers).collect();
        for line in shown.lines().skip(2).filter(|line| !line.is_empty()) {
            assert!(printed.contains(&without_numbers(line)), "{file}: {line}\n{printed:#?}");
        }
    }
}

fn without_numbers(line: &str) -> String {
    line.chars().filter(|c| !c.is_ascii_digit()).collect()
}

#[test]
fn an_unknown_model_is_answered_with_the_nearest_name() {
    let workspace = workspace();
    let output = run(workspace.path(), &["run", "--model", "gpt-4", "hello"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(err(&output).contains("Did you mean openai:gpt-4"), "{}", err(&output));
}

#[test]
fn a_service_that_does_not_listen_is_named_with_its_port() {
    let nobody = Refusing::take();
    let address = nobody.address();
    let workspace = workspace();
    let model = format!("openai:some@http://{address}/v1");
    let mut command = budao(workspace.path());
    command.args(["run", "--model", &model, "hello"]).env("OPENAI_API_KEY", "x");
    let mut child = command.spawn().unwrap();
    let stderr = BufReader::new(child.stderr.take().unwrap());
    let address = address.to_string();
    let mut lines = stderr.lines().map_while(Result::ok);
    let refused = lines.find(|line| line.contains("ERR_NET_003")).expect("the refusal is shown");
    let named = lines.next().expect("a line follows");
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!refused.contains('['), "{refused}");
    assert_eq!(named, format!("  {address}"));
}

#[test]
fn a_tool_server_that_does_not_start_is_reported_with_its_exit_code_and_error_output() {
    let directory = workspace();
    let server = "mine=sh -c 'echo Traceback >&2; echo ModuleNotFoundError: no module nosuch >&2; \
                  echo password=hunter2hunter2 >&2; exit 3'";
    let done =
        run(directory.path(), &["run", "--model", "demo:fast", "--mcp", server, "say hello"]);
    let stderr = err(&done);
    for expected in ["mine", "exit code 3", "ModuleNotFoundError: no module nosuch"] {
        assert!(stderr.contains(expected), "{expected}: {stderr}");
    }
    assert!(!stderr.contains("hunter2"), "{stderr}");
}

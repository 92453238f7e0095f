//! Words that a shell would act on are words to everything that is not a shell.

use serde_json::json;

use crate::builtin::support::{Fixture, processes_with};

/// What would leave a trace if anything ran it: ways to run a command, ways to get there, and commands.
fn payloads(mark: &str) -> Vec<String> {
    let frames: [fn(&str) -> String; 20] = [
        |run| format!("; {run}"),
        |run| format!("| {run}"),
        |run| format!("|| {run}"),
        |run| format!("&& {run}"),
        |run| format!("& {run} &"),
        |run| format!("$({run})"),
        |run| format!("`{run}`"),
        |run| format!("\n{run}\n"),
        |run| format!("\r\n{run}"),
        |run| format!("'; {run}; '"),
        |run| format!("\"; {run}; \""),
        |run| format!("<({run})"),
        |run| format!("${{IFS}}$({run})"),
        |run| format!("{{{run};}}"),
        |run| format!("x; exec {run}"),
        |run| format!("() {{ :; }}; {run}"),
        |run| format!("-exec {run} ;"),
        |run| format!("--pre={run}"),
        |run| format!("a\0; {run}"),
        |run| format!("%0a{run}"),
    ];
    let around: [fn(&str) -> String; 10] = [
        str::to_owned,
        |text| format!("a.txt{text}"),
        |text| format!("{text}a.txt"),
        |text| format!("-{text}"),
        |text| format!("--{text}"),
        |text| format!("*{text}*"),
        |text| format!("[{text}]"),
        |text| format!("\u{feff}{text}"),
        |text| format!("./{text}"),
        |text| format!("$HOME{text}"),
    ];
    let runs = [
        format!("touch {mark}"),
        format!("sh -c 'touch {mark}'"),
        format!("sleep 1000.{mark}"),
        format!("echo x>{mark}"),
        format!("cp a.txt {mark}"),
    ];
    let mut all = Vec::new();
    for frame in frames {
        for run in &runs {
            all.extend(around.iter().map(|around| around(&frame(run))));
        }
    }
    all
}

/// Goal: nothing but `bash_run` runs anything. Method: every payload in every text of every other tool, in turn; a file
/// of the mark's name or a process with it would be a trace.
#[tokio::test]
async fn only_a_shell_acts_on_what_looks_like_a_command() {
    let fixture = Fixture::new();
    fixture.write("a.txt", "some text\n");
    let mark = "traceofrunning";
    let all = payloads(mark);
    assert!(all.len() >= 1_000, "{} payloads", all.len());
    let is_full = std::env::var_os("BUDAO_FULL").is_some();
    let mut calls = 0;
    for (index, said) in all.iter().enumerate() {
        let tools = [
            ("fs_read", json!({ "path": said })),
            ("fs_grep", json!({ "path": ".", "pattern": said, "regex": index % 2 == 0 })),
            ("fs_grep", json!({ "path": said, "pattern": "text" })),
            ("fs_glob", json!({ "pattern": said })),
            ("fs_glob", json!({ "pattern": "*", "cwd": said })),
            ("fs_edit", json!({ "path": "a.txt", "old_string": said, "new_string": said })),
            (
                "fs_multi_edit",
                json!({ "edits": [{ "path": said, "find": said, "replace": said }] }),
            ),
            ("todo_write", json!({ "todos": [{ "id": "1", "title": said, "status": "pending" }] })),
            ("bash_logs", json!({ "shell_id": said })),
            ("bash_kill", json!({ "shell_id": said })),
            (said.as_str(), json!({})),
        ];
        let (from, step) = if is_full { (0, 1) } else { (index % 11, 11) };
        for (tool, arguments) in tools.into_iter().skip(from).step_by(step) {
            calls += 1;
            assert!(tool == said || fixture.toolbox.fits(tool, &arguments), "{tool} {arguments}");
            drop(fixture.call(tool, arguments).await);
        }
    }
    let traces: Vec<_> = std::fs::read_dir(fixture.folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .filter(|name| name == mark)
        .collect();
    assert!(traces.is_empty(), "{traces:?}");
    assert!(processes_with(mark).is_empty(), "{:?}", processes_with(mark));
    // And the shell, asked for the same, leaves one: the trace is no blind spot.
    fixture.done("bash_run", json!({ "cmd": format!("true; touch {mark}") })).await;
    assert!(fixture.path(mark).exists());
    eprintln!("security T4: {} payloads, {calls} calls of 9 tools", all.len());
}

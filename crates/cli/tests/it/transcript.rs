//! Transcripts in documents: a block of `console` has commands after `$ `, the exit code after `? ` if it is not 0, and all
//! that is printed. A line `...` stands for any number of lines; empty lines at the end do not count.
//!
//! With `BUDAO_TRANSCRIPTS=overwrite` the printed text replaces what differs, except where `...` stands.

use std::{fs, io::Read as _, ops::Range, path::Path, process::Command};

/// One command of a document.
#[derive(Debug)]
struct TranscriptStep {
    arguments: Vec<String>,
    code: i32,
    /// The lines of the document that show its output.
    output: Range<usize>,
}

/// Runs every command of the document and compares what it prints.
pub(crate) fn check(path: &Path) {
    let text = fs::read_to_string(path).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let steps = steps(&lines);
    assert!(!steps.is_empty(), "{} has no transcript", path.display());
    let mut corrected: Vec<String> = lines.iter().map(ToString::to_string).collect();
    let mut differences = Vec::new();
    // From the end, so that the lines of the steps before stay where they are.
    for step in steps.iter().rev() {
        let shown = trimmed(&lines[step.output.clone()]);
        let (code, text) = run(&step.arguments);
        let lines: Vec<&str> = text.lines().collect();
        let printed = trimmed(&lines);
        if code == step.code && fits(shown, printed) {
            continue;
        }
        let (command, expected) = (step.arguments.join(" "), step.code);
        let [left, right] = [shown, printed].map(|lines| lines.join("\n"));
        differences.push(format!(
            "$ budao {command}\nexit code {code}, shown {expected}\n--- shown\n{left}\n--- printed\n{right}\n"
        ));
        if !shown.contains(&"...") {
            let place = step.output.start..step.output.start + shown.len();
            corrected.splice(place, printed.iter().map(ToString::to_string));
        }
    }
    if std::env::var("BUDAO_TRANSCRIPTS").is_ok_and(|mode| mode == "overwrite") {
        fs::write(path, corrected.join("\n") + "\n").unwrap();
    }
    assert!(differences.is_empty(), "{}\n{}", path.display(), differences.join("\n"));
}

fn steps(lines: &[&str]) -> Vec<TranscriptStep> {
    let mut steps: Vec<TranscriptStep> = Vec::new();
    let mut is_inside = false;
    for (number, line) in lines.iter().enumerate() {
        if line.starts_with("```") {
            is_inside = *line == "```console";
        } else if is_inside && let Some(command) = line.strip_prefix("$ budao") {
            let arguments = command.split_whitespace().map(str::to_owned).collect();
            steps.push(TranscriptStep { arguments, code: 0, output: number + 1..number + 1 });
        } else if is_inside && let Some(step) = steps.last_mut() {
            match line.strip_prefix("? ") {
                Some(code) if step.output.is_empty() => {
                    step.code = code.parse().unwrap();
                    step.output = number + 1..number + 1;
                }
                _ => step.output.end = number + 1,
            }
        }
    }
    steps
}

/// Exit code, and standard output and standard error as a terminal shows them.
fn run(arguments: &[String]) -> (i32, String) {
    let (mut reader, writer) = std::io::pipe().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_budao"));
    command.args(arguments).env("LC_ALL", "C").env("LANGUAGE", "");
    command.stdout(writer.try_clone().unwrap()).stderr(writer);
    let mut child = command.spawn().unwrap();
    drop(command); // It holds the writing end of the pipe.
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    (child.wait().unwrap().code().unwrap_or(-1), text)
}

fn trimmed<'a, 'b>(lines: &'a [&'b str]) -> &'a [&'b str] {
    let end = lines.iter().rposition(|line| !line.is_empty()).map_or(0, |last| last + 1);
    &lines[..end]
}

fn fits(shown: &[&str], printed: &[&str]) -> bool {
    let Some(gap) = shown.iter().position(|line| *line == "...") else { return shown == printed };
    let rest = &shown[gap + 1..];
    printed.starts_with(&shown[..gap])
        && (gap..=printed.len()).any(|from| fits(rest, &printed[from..]))
}

#[test]
fn a_gap_stands_for_any_lines_and_nothing_else_differs() {
    assert!(fits(&["a", "...", "d"], &["a", "b", "c", "d"]));
    assert!(fits(&["a", "..."], &["a"]) && fits(&[], &[]));
    assert!(!fits(&["a", "...", "d"], &["a", "b"]) && !fits(&["a"], &["a", "b"]));
}

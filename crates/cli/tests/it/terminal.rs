//! The whole screen in a real terminal: a pty, the real program, a screen that understands what it writes.

use std::{
    fs::File,
    io::{Read as _, Write as _},
    num::NonZeroU16,
    path::Path,
    process::Command,
    sync::{Arc, Condvar, Mutex},
    time::{Duration, Instant},
};

use budao_testkit::claude::answer;
use rexpect::process::{PtyProcess, Signal};
use rustix::termios::{LocalModes, tcgetattr};

/// How long anything may take; the machine may be busy.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// What the reader of a pty has seen.
struct ScreenState {
    parser: vt100::Parser,
    raw: Vec<u8>,
    is_over: bool,
}

/// A program in a terminal of its own.
struct Terminal {
    process: PtyProcess,
    keys: File,
    seen: Arc<(Mutex<ScreenState>, Condvar)>,
}

impl Terminal {
    /// The program in a terminal of this size, and then its exit code.
    fn start(directory: &Path, rows: u16, columns: u16, args: &[&str]) -> Self {
        Self::start_with(directory, rows, columns, args, &[])
    }

    fn start_with(
        directory: &Path,
        rows: u16,
        columns: u16,
        args: &[&str],
        env: &[(&str, &str)],
    ) -> Self {
        let mut command = Command::new("sh");
        let script = format!("stty rows {rows} cols {columns}; exec \"$0\" \"$@\"");
        command
            .args(["-c", &script, env!("CARGO_BIN_EXE_budao")])
            .args(args)
            .current_dir(directory)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("TERM", "xterm-256color")
            .env("BUDAO_LANG", "en")
            .env("BUDAO_JOURNAL", directory.join("journal.db"))
            .envs(env.iter().copied());
        let process = PtyProcess::new(command).expect("a pty");
        let (keys, mut output) =
            (process.get_file_handle().unwrap(), process.get_file_handle().unwrap());
        let size = |number| NonZeroU16::new(number).unwrap();
        let parser = vt100::Parser::new(size(rows), size(columns), 0);
        let seen = ScreenState { parser, raw: Vec::new(), is_over: false };
        let seen = Arc::new((Mutex::new(seen), Condvar::new()));
        let screen_seen = Arc::clone(&seen);
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            loop {
                // The other end is closed: reading fails, and that is the end.
                let count = output.read(&mut bytes).unwrap_or(0);
                let mut seen = screen_seen.0.lock().unwrap();
                seen.parser.process(&bytes[..count]);
                seen.raw.extend_from_slice(&bytes[..count]);
                seen.is_over = count == 0;
                screen_seen.1.notify_all();
                if count == 0 {
                    return;
                }
            }
        });
        Self { process, keys, seen }
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
        self.keys.flush().unwrap();
    }

    /// Waits until the screen is as wanted, and says what is on it.
    fn until(&self, what: &str, is_so: impl Fn(&ScreenState) -> bool) -> String {
        let began = Instant::now();
        let mut seen = self.seen.0.lock().unwrap();
        while !is_so(&seen) {
            let left = TEST_TIMEOUT.checked_sub(began.elapsed());
            let contents = seen.parser.screen().contents();
            let left = left.unwrap_or_else(|| panic!("{what} did not come:\n{contents}"));
            assert!(!seen.is_over, "it ended before {what}:\n{contents}");
            seen = self.seen.1.wait_timeout(seen, left).unwrap().0;
        }
        seen.parser.screen().contents()
    }

    fn until_seen(&self, text: &str) -> String {
        self.until(text, |seen| seen.parser.screen().contents().contains(text))
    }

    /// Waits for the end; is the terminal as it was?
    fn until_given_back(&self) -> String {
        let began = Instant::now();
        let mut seen = self.seen.0.lock().unwrap();
        while !seen.is_over {
            let left = TEST_TIMEOUT.checked_sub(began.elapsed()).expect("it ends");
            seen = self.seen.1.wait_timeout(seen, left).unwrap().0;
        }
        let screen = seen.parser.screen();
        assert!(!screen.alternate_screen(), "the other screen is left");
        assert!(!screen.hide_cursor(), "the cursor is seen");
        assert!(!screen.bracketed_paste(), "pastes are as they were");
        let modes = tcgetattr(&self.keys).unwrap().local_modes;
        assert!(modes.contains(LocalModes::ICANON | LocalModes::ISIG), "lines are lines again");
        screen.contents()
    }
}

fn workspace() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("README.md"), "# One\n\n## Two\n\n## Three\n").unwrap();
    directory
}

#[test]
fn a_conversation_streams_calls_asks_is_stopped_and_gives_the_terminal_back() {
    let directory = workspace();
    let mut terminal = Terminal::start(directory.path(), 30, 100, &["chat", "--model", "demo"]);
    terminal.until_seen("No messages yet");
    // It errs, is told, and corrects itself.
    terminal.press("read README.md and count its headings\r");
    terminal.until_seen("ERR_VAL_002");
    terminal.until_seen("README.md has");
    let screen = terminal.until_seen("turn ended");
    assert!(screen.contains("✓ fs_read {\"path\":\"README.md\""), "{screen}");
    assert!(screen.contains("README.md has 3 headings"), "{screen}");
    // The three tellings.
    terminal.press("\x14");
    let screen = terminal.until_seen("to the operator");
    assert!(screen.contains("to the model") && screen.contains("to the user"), "{screen}");
    terminal.press("q");
    // A question, answered with a key.
    terminal.press("run `echo made > made`\r");
    terminal.until_seen("1 question waits for you");
    assert!(!directory.path().join("made").exists(), "it is asked first");
    terminal.press("y");
    terminal.until_seen("✓ bash_run");
    terminal.until_seen("ready");
    assert!(directory.path().join("made").exists());
    // Words stream in, and Esc stops them.
    terminal.press("count slowly to 500\r");
    terminal.until_seen("3 4 5");
    terminal.press("\x1b");
    let screen = terminal.until_seen("turn cancelled");
    assert!(!screen.contains("500 "), "{screen}");
    terminal.press("\x04");
    let screen = terminal.until_given_back();
    assert!(screen.contains("budao chat --resume "), "{screen}");
    drop(terminal);

    // The list, and the same conversation again.
    let mut again = Terminal::start(directory.path(), 30, 100, &["chat", "--resume"]);
    again.until_seen("read README.md and count its headings");
    again.press("\r");
    again.until_seen("turn cancelled");
    again.press("\x04");
    again.until_given_back();
}

#[test]
fn a_screen_of_twenty_by_five_in_chinese_without_colour_can_be_talked_to_and_changes_its_size() {
    let directory = workspace();
    let args = ["chat", "--model", "demo:fast", "--lang", "zh"];
    let env = [("NO_COLOR", "1")];
    let mut terminal = Terminal::start_with(directory.path(), 5, 20, &args, &env);
    terminal.until_seen("就绪");
    terminal.press("说 你好世界\r");
    terminal.until("an answer", |seen| {
        let screen = seen.parser.screen().contents();
        screen.contains("已完成") || screen.contains("词元")
    });
    let size = |rows, columns| rustix::termios::Winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    {
        let mut seen = terminal.seen.0.lock().unwrap();
        let new = |number| NonZeroU16::new(number).unwrap();
        seen.parser.screen_mut().set_size(new(20), new(100));
    }
    rustix::termios::tcsetwinsize(&terminal.keys, size(20, 100)).unwrap();
    terminal.until_seen("Ctrl-D 退出");
    let raw = String::from_utf8_lossy(&terminal.seen.0.lock().unwrap().raw).into_owned();
    for colour in 30..=37 {
        let (plain, indexed) = (format!("\x1b[{colour}m"), format!("38;5;{}m", colour - 30));
        assert!(!raw.contains(&plain) && !raw.contains(&indexed), "no colour: {colour}");
    }
    terminal.press("\x03");
    terminal.until_given_back();
}

#[test]
fn the_claude_cli_can_be_talked_to_and_its_session_is_resumed_with_it() {
    let directory = workspace();
    let conversations = directory.path().join("conversations");
    std::fs::create_dir_all(&conversations).unwrap();
    let mut played = std::env::current_exe().unwrap();
    played.pop();
    played.pop();
    played.push("examples/fake_claude");
    assert!(played.exists(), "not built: cargo build -p budao-claude --example fake_claude");
    let (conversations, played) = (conversations.to_str().unwrap(), played.to_str().unwrap());
    let env = [("FAKE_CLAUDE_DIR", conversations), ("CLAUDE_CODE_EXECUTABLE", played)];
    let args = ["chat", "--engine", "claude", "P1"];
    let mut terminal = Terminal::start_with(directory.path(), 30, 100, &args, &env);
    terminal.until_seen("turn ended");
    let screen = terminal.until_seen(&answer("P1"));
    assert!(screen.contains("› P1"), "{screen}");
    terminal.press("\x04");
    terminal.until_given_back();
    drop(terminal);

    let args = ["chat", "--resume"];
    let mut again = Terminal::start_with(directory.path(), 30, 100, &args, &env);
    again.until_seen("Resume which session?");
    again.press("\r");
    again.until_seen("ready");
    again.press("P2\r");
    again.until_seen(&answer("P2"));
    again.press("\x04");
    again.until_given_back();
}

/// Creates a journal without sessions: `top` reads one that exists.
fn make_journal(directory: &Path) {
    let lines = directory.join("none.jsonl");
    std::fs::write(&lines, "{\"journal\":1}\n{\"done\":0}\n").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_budao"));
    let made = command
        .args(["journal", "import"])
        .args([&directory.join("journal.db"), &lines])
        .env_clear()
        .status()
        .unwrap();
    assert!(made.success());
}

#[test]
fn a_terminated_program_restores_the_terminal() {
    for (args, expected_text) in
        [(["chat", "--lang", "en"], "ready"), (["top", "--lang", "en"], "Sessions")]
    {
        let directory = workspace();
        make_journal(directory.path());
        let mut terminal = Terminal::start(directory.path(), 24, 80, &args);
        terminal.until_seen(expected_text);
        terminal.process.signal(Signal::SIGTERM).unwrap();
        terminal.until_given_back();
    }
}

#[test]
fn top_shows_what_another_process_does_while_it_does_it() {
    let directory = workspace();
    make_journal(directory.path());
    let mut top = Terminal::start(directory.path(), 30, 120, &["top"]);
    top.until_seen("0 running");
    let script = "[[step]]\ntext = \"waiting for ever\"\nend = \"stall\"\n";
    std::fs::write(directory.path().join("stall.toml"), script).unwrap();
    let other = Terminal::start(
        directory.path(),
        24,
        80,
        &["run", "--model", "script:stall.toml", "a task of another process"],
    );
    top.until_seen("1 running");
    let screen = top.until_seen("a task of another process");
    assert!(screen.contains("last 5m · turns 1"), "{screen}");
    top.press("w");
    top.until_seen("last 1h");
    top.press("q");
    top.until_given_back();
    drop(other);
}

#[test]
fn without_a_terminal_one_line_names_the_alternative() {
    let directory = workspace();
    for (args, instead) in [(["chat"], "budao run"), (["top"], "budao top --once")] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_budao"));
        let done = command
            .args(args)
            .env_clear()
            .env("BUDAO_JOURNAL", directory.path().join("journal.db"))
            .output()
            .unwrap();
        let printed = String::from_utf8(done.stderr).unwrap();
        assert_eq!(done.status.code(), Some(2), "{printed}");
        assert!(printed.contains(instead) && printed.lines().count() == 1, "{printed}");
        assert!(done.stdout.is_empty());
    }
}

/// A model that would like to steer: it clears the screen, names the window, rings, turns lines around.
const STEERING: &str = r#"
[[step]]
text = "one \u001B[2J\u001B[Htwo \u001B]0;mine\u0007three \u202Eruof\u202C \u009B31mfive \u001B[1msix\rseven\nשלום 你好\teight"
[[step.call]]
tool = "fs_read"
arguments = { path = "no\u001B[31m\u001B]0;mine\u0007\u202Etxt.\r\u009B2J" }
[[step]]
text = "done"
"#;

#[test]
fn no_model_or_tool_controls_the_terminal_of_run_and_a_pipe_gets_the_raw_text() {
    let directory = workspace();
    std::fs::write(directory.path().join("steering.toml"), STEERING).unwrap();
    let args = ["run", "--model", "script:steering.toml", "go"];
    let terminal = Terminal::start(directory.path(), 24, 100, &args);
    terminal.until_given_back();
    let raw = String::from_utf8_lossy(&terminal.seen.0.lock().unwrap().raw).into_owned();
    // Of everything that acts, the styles of our own lines are left.
    let ours = ["\x1b[1m", "\x1b[36m", "\x1b[2m", "\x1b[0m"];
    let rest = ours.iter().fold(raw.replace("\r\n", "\n"), |rest, style| rest.replace(style, ""));
    let acts = |c: char| (c.is_control() && !"\n\t".contains(c)) || c == '\u{202e}';
    assert_eq!(rest.find(acts), None, "{rest:?}");
    assert!(!raw.contains("\x1b[1msix"), "not even our styles are the model's: {raw:?}");
    let id = rest.split_whitespace().nth(1).unwrap();
    insta::assert_snapshot!(rest.replace(id, "[id]"));

    let mut command = Command::new(env!("CARGO_BIN_EXE_budao"));
    command.args(args).current_dir(directory.path()).env_clear();
    let done = command.env("BUDAO_JOURNAL", directory.path().join("piped.db")).output().unwrap();
    let printed = String::from_utf8(done.stdout).unwrap();
    assert!(
        printed.starts_with("one \x1b[2J\x1b[Htwo \x1b]0;mine\x07three \u{202e}ruof"),
        "{printed:?}"
    );
}

//! What the tests share: processes, signals, and a computer with a tool that can be held.

use std::{
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

use budao_testkit::mcp::{EffectLedger, Point};

/// Nothing here takes this long unless it hangs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);

pub(crate) const TOKEN: &str = "right-and-long";

pub(crate) fn budao(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_budao"));
    command
        .args(args)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("BUDAO_SMCP_TOKEN", TOKEN)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// A process that runs until it is dropped.
pub(crate) struct Running(pub(crate) Child);

impl Running {
    /// Starts it and waits until its stderr says `word`; gives that line.
    pub(crate) fn start(args: &[&str], word: &str) -> (Self, String) {
        let mut child = budao(args).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let line = loop {
            let line = lines.next().expect("it ended early").unwrap();
            if line.contains(word) {
                break line;
            }
        };
        // Whatever else it says is read, so that it never waits for us.
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
        (Self(child), line)
    }

    pub(crate) fn hub() -> (Self, String) {
        let (hub, line) =
            Self::start(&["smcp", "server", "--listen", "127.0.0.1:0"], "listening on");
        let url = line.split_whitespace().last().unwrap().to_owned();
        (hub, url)
    }

    /// Sends it a signal by name: `STOP`, `CONT`, `KILL`.
    pub(crate) fn signal(&self, name: &str) {
        let id = self.0.id().to_string();
        let sent = Command::new("kill").args([&format!("-{name}"), &id]).status().unwrap();
        assert!(sent.success(), "no signal {name} to {id}");
    }

    /// Its resident memory in bytes.
    pub(crate) fn memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.0.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits until something is so.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "never: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The program of the scripted MCP server: an example of another crate.
fn fake_mcp() -> Option<PathBuf> {
    let here = Path::new(env!("CARGO_BIN_EXE_budao")).parent().unwrap();
    let found = Some(here.join("examples/fake_mcp")).filter(|path| path.exists());
    if found.is_none() {
        let advice = "NOT TESTED: `cargo build -p budao-smcp --example fake_mcp` comes first";
        assert!(std::env::var("CI").as_deref() != Ok("true"), "{advice}");
        eprintln!("\n*** {advice} ***\n");
    }
    found
}

/// A hub and a computer whose tool `effect` can be held.
pub(crate) struct Fixture {
    pub(crate) hub: Running,
    pub(crate) computer: Running,
    pub(crate) ledger: EffectLedger,
    url: String,
    dialect: &'static [&'static str],
    _folder: tempfile::TempDir,
}

impl Fixture {
    /// In the dialect these options choose. Nothing if the scripted MCP server is not built.
    pub(crate) fn start(dialect: &'static [&'static str]) -> Option<Self> {
        let program = fake_mcp()?;
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("computer.json");
        let config = serde_json::json!({ "servers": [{
            "name": "tools", "type": "stdio", "default_tool_meta": { "auto_apply": true },
            "server_parameters": { "command": program, "args": ["--ledger", folder.path()] },
        }] });
        std::fs::write(&file, config.to_string()).unwrap();
        let listen = ["smcp", "server", "--listen", "127.0.0.1:0"];
        let (hub, line) = Running::start(&[&listen, dialect].concat(), "listening on");
        let url = line.split_whitespace().last().unwrap().to_owned();
        let file = file.to_str().unwrap();
        let computer = ["smcp", "computer", "--url", &url, "--name", "pc", "--config", file];
        let (computer, _) = Running::start(&[&computer[..], dialect, &["room"]].concat(), "joined");
        let ledger = EffectLedger::new(folder.path().to_owned());
        let fixture = Self { hub, computer, ledger, url, dialect, _folder: folder };
        until("the tools are offered", || {
            let tools = fixture.command(&["tools", "room"]).output().unwrap();
            String::from_utf8_lossy(&tools.stdout).contains("tools__effect")
        });
        Some(fixture)
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = budao(&["smcp", args[0]]);
        command.args(["--url", &self.url]).args(self.dialect).args(&args[1..]);
        command
    }

    /// Calls the tool that is held, in a process of its own, and waits until it has begun.
    pub(crate) fn begin(&self, name: &str, timeout: &str) -> Child {
        let arguments = serde_json::json!({ "text": name, "holds": true }).to_string();
        let args =
            ["call", "--json", "--timeout", timeout, "room", "pc", "tools__effect", &arguments];
        let calling = self.command(&args).spawn().unwrap();
        until("the tool begins", || self.ledger.stands(Point::BeforeEffect, name));
        calling
    }

    /// Lets the tool run to its end, and sees that it did.
    pub(crate) fn the_tool_runs_to_its_end(&self, name: &str) {
        self.ledger.let_on(Point::BeforeEffect, name).unwrap();
        self.ledger.let_on(Point::AfterEffect, name).unwrap();
        until("the effect is there", || self.ledger.lines() == [name]);
    }
}

/// The error a command that failed printed as JSON, without its envelope.
pub(crate) fn error_of(output: &Output) -> serde_json::Value {
    let text = String::from_utf8_lossy(&output.stdout);
    let error: serde_json::Value = serde_json::from_str(text.trim()).unwrap_or_else(|error| {
        panic!("{error}: {text} {}", String::from_utf8_lossy(&output.stderr))
    });
    error.get("error").cloned().unwrap_or(error)
}

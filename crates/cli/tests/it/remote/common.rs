//! What the tests share: processes, signals, and a computer with a tool that can be held.

use std::{
    process::{Child, Command, Output},
    time::{Duration, Instant},
};

use budao_testkit::{
    mcp::{EffectLedger, Point},
    program::{self, Process, fake_mcp},
};

/// Nothing here takes this long unless it hangs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);

pub(crate) const TOKEN: &str = "right-and-long";

pub(crate) fn budao(args: &[&str]) -> Command {
    let mut command = program::command(env!("CARGO_BIN_EXE_budao"), args);
    command.env("BUDAO_SMCP_TOKEN", TOKEN);
    command
}

/// Starts a hub; returns its address, too.
pub(crate) fn hub(more: &[&str]) -> (Process, String) {
    let listen = ["smcp", "server", "--listen", "127.0.0.1:0"];
    let (hub, line) = Process::start_until(budao(&[&listen, more].concat()), "listening on");
    let url = line.split_whitespace().last().unwrap().to_owned();
    (hub, url)
}

/// The resident memory of a process in bytes.
pub(crate) fn memory(process: &Process) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.0.id())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

/// Waits until something is so.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "never: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A hub and a computer whose tool `effect` can be held.
pub(crate) struct Fixture {
    pub(crate) hub: Process,
    pub(crate) computer: Process,
    pub(crate) ledger: EffectLedger,
    url: String,
    dialect: &'static [&'static str],
    _folder: tempfile::TempDir,
}

impl Fixture {
    /// In the dialect these options choose. Nothing if the scripted MCP server is not built.
    pub(crate) fn start(dialect: &'static [&'static str]) -> Option<Self> {
        let program = fake_mcp(env!("CARGO_BIN_EXE_budao"))?;
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("computer.json");
        let config = serde_json::json!({ "servers": [{
            "name": "tools", "type": "stdio", "default_tool_meta": { "auto_apply": true },
            "server_parameters": { "command": program, "args": ["--ledger", folder.path()] },
        }] });
        std::fs::write(&file, config.to_string()).unwrap();
        let (hub, url) = hub(dialect);
        let file = file.to_str().unwrap();
        let computer = ["smcp", "computer", "--url", &url, "--name", "pc", "--config", file];
        let computer = budao(&[&computer[..], dialect, &["room"]].concat());
        let (computer, _) = Process::start_until(computer, "joined");
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

//! The real program as a server.

use std::{
    io::{BufRead as _, BufReader},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

/// Where the program is: beside this test, in the same target folder.
pub(crate) fn program() -> Option<PathBuf> {
    let test = std::env::current_exe().unwrap();
    let program = test.parent()?.parent()?.join("budao");
    if program.exists() {
        return Some(program);
    }
    let missing = "NOT TESTED: the program is not built; `cargo build --bin budao`";
    assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "{missing}");
    eprintln!("{missing}");
    None
}

/// A running server.
pub(crate) struct Server {
    child: Child,
    pub(crate) address: SocketAddr,
}

impl Server {
    /// Starts it in a folder, with this model, which may do what this mode allows without a question.
    pub(crate) fn start(program: &Path, home: &Path, model: &str, mode: &str) -> Self {
        let mut child = Command::new(program)
            .args(["serve", "--listen", "127.0.0.1:0", "--no-auth", "--journal", "journal.db"])
            .args(["--permission", mode, "--model", model])
            .current_dir(home)
            .env_clear()
            .env("HOME", home)
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let address =
            lines.by_ref().find_map(|line| address_in(&line.unwrap())).expect("an address");
        Self { child, address }
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn address_in(line: &str) -> Option<SocketAddr> {
    let start = line.find("127.0.0.1:")?;
    let rest = &line[start..];
    let end = rest.find(|c: char| !(c.is_ascii_digit() || ".:".contains(c))).unwrap_or(rest.len());
    rest[..end].parse().ok()
}

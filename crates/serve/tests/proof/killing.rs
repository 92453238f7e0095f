//! The real program, killed with SIGKILL in the middle of a run and started again.

use std::{
    io::{BufRead as _, BufReader},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use budao_client::{Create, Decision};
use budao_testkit::proxy::Proxy;

use crate::stage::{client_at, next, told, until};

/// Where the program is: beside this test, in the same target folder.
fn program() -> Option<PathBuf> {
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
struct Server {
    child: Child,
    address: SocketAddr,
}

impl Server {
    fn start(program: &Path, home: &Path, model: &str) -> Self {
        let mut child = Command::new(program)
            .args(["serve", "--listen", "127.0.0.1:0", "--no-auth", "--journal", "journal.db"])
            .args(["--permission", "approval", "--model", model])
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

    fn kill(&mut self) {
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

/// Reads files one after the other, slowly enough to be killed in between; a file is written in the middle.
fn script(home: &Path) -> String {
    std::fs::write(home.join("note.txt"), "hello\n").unwrap();
    let read = r#"
[[step]]
delay_ms = 20
[[step.call]]
tool = "fs_read"
arguments = { path = "note.txt" }
"#;
    let write = r#"
[[step]]
[[step.call]]
tool = "fs_write"
arguments = { path = "done.txt", content = "done" }
"#;
    let last = "\n[[step]]\ntext = \"All read.\"\n";
    let text = ["order = \"history\"\n", &read.repeat(20), write, &read.repeat(10), last].concat();
    std::fs::write(home.join("script.toml"), text).unwrap();
    "script:script.toml".to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kill_9_in_the_middle_of_a_run_and_the_client_hears_it_finish() {
    let Some(program) = program() else { return };
    let home = tempfile::tempdir().unwrap();
    let model = script(home.path());
    let mut server = Server::start(&program, home.path(), &model);
    let proxy = Proxy::start(server.address, 1).await.unwrap();
    let (session, mut events) = client_at(proxy.address()).create(Create::default()).await.unwrap();
    session.send("go").await.unwrap();
    let mut heard = Vec::new();
    let mut kills = 0;
    loop {
        let event = next(&mut events).await;
        let name = event.event.clone();
        let step = event.step_id.clone();
        heard.push(event);
        let results = heard.iter().filter(|event| event.event == "agent.tool_result").count();
        match name.as_str() {
            // In the middle of the reading, before the question and after it.
            "agent.tool_result" if [5, 12, 25].contains(&results) => kills += 1,
            "agent.user_confirm" => {
                let step = step.unwrap();
                // The question may have been sent again; the answer counts once.
                let _ = session.answer(&step, Decision::Approve).await;
                continue;
            }
            "agent.final_answer" => break,
            _ => continue,
        }
        server.kill();
        server = Server::start(&program, home.path(), &model);
        proxy.redirect(server.address);
    }
    assert_eq!((kills, heard.last().unwrap().text()), (3, "All read."));
    assert_eq!(std::fs::read_to_string(home.path().join("done.txt")).unwrap(), "done");
    let (_other, mut whole) = client_at(server.address).attach(session.id(), None).await.unwrap();
    let all = told(&until(&mut whole, "agent.final_answer").await);
    assert_eq!(told(&heard), all);
}

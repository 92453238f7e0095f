//! Resume after a crash: the first process ends in the middle of a turn, the second one finishes it.
//!
//!     cargo run -p budao --example resume

#![expect(clippy::print_stdout, reason = "an example talks to whoever runs it")]

use std::{path::Path, time::Duration};

use budao::{Agent, Fault, Mode, Permissions, Script, SessionId, tool};
use serde_json::json;

/// Writes a line somewhere it matters.
#[tool]
async fn pay(
    /// How much.
    amount: u32,
) -> String {
    if std::env::var_os("BUDAO_EXAMPLE_CHILD").is_some() {
        // The worst moment: the effect may have happened, and nobody will ever know.
        std::process::abort();
    }
    format!("paid {amount}")
}

fn model() -> Script {
    let script =
        Script::new().call("pay", json!({"amount": 5})).say("I would check the account first.");
    script.by_history()
}

async fn agent(file: &Path) -> Result<Agent, Fault> {
    let journal = budao::open_journal(&file.display().to_string()).await?;
    let permissions = Permissions { mode: Mode::Auto, ..Permissions::default() };
    Agent::builder(model()).tool(pay).permissions(permissions).journal(journal).build()
}

#[tokio::main]
async fn main() -> Result<(), Fault> {
    if let Some(journal) = std::env::var_os("BUDAO_EXAMPLE_CHILD") {
        let session = agent(Path::new(&journal)).await?.session().await?;
        println!("{}", session.id());
        session.run("Pay five.").await?;
        return Ok(());
    }
    let directory = std::env::temp_dir().join(format!("budao-resume-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a temporary directory");
    let journal = directory.join("journal.db");
    let child = std::process::Command::new(std::env::current_exe().expect("this program"))
        .env("BUDAO_EXAMPLE_CHILD", &journal)
        .output()
        .expect("the child runs");
    println!("the first process ended: {}", child.status);
    let id: SessionId = String::from_utf8_lossy(&child.stdout).trim().parse().expect("an id");

    let agent = agent(&journal).await?;
    // Its lease runs out by itself; a program that knows its dead processes need not wait.
    let session = loop {
        let session = agent.resume(id).await?;
        if session.state().await?.turn.is_none() {
            break session;
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    };
    for call in session.calls().await? {
        println!("{} {}: {}", call.name, call.state, call.error.unwrap_or_default());
    }
    println!("{}", session.state().await?.last_text().unwrap_or_default());
    let _ = std::fs::remove_dir_all(directory);
    Ok(())
}

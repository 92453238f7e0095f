//! The played CLI as a program: takes the arguments it needs from those of the real one.
//!
//! `--session-id ID` and `--resume ID` work as with the real one if `FAKE_CLAUDE_DIR` names a folder: a
//! conversation is a file there, and holds the id of the process that has it. `--old` plays the CLI of
//! January 2026.

use std::{path::PathBuf, process::ExitCode};

use budao_testkit::claude::{CliExit, CliVersion, play};

#[expect(clippy::print_stderr, reason = "it is a program that complains as the real one does")]
#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    let after = |flag: &str| {
        let at = args.iter().position(|arg| arg == flag)?;
        args.get(at + 1).cloned()
    };
    let folder = std::env::var_os("FAKE_CLAUDE_DIR").map(PathBuf::from);
    let file = |id: &str| folder.as_ref().map(|folder| folder.join(id));
    if let Some(id) = after("--resume")
        && let Some(path) = file(&id)
        && !path.exists()
    {
        eprintln!("No conversation found with session ID: {id}");
        return ExitCode::FAILURE;
    }
    let id = after("--session-id").or_else(|| after("--resume")).unwrap_or_default();
    if let (Some(new), Some(path)) = (after("--session-id"), file(&id))
        && path.exists()
    {
        eprintln!("Error: Session ID {new} is already in use.");
        return ExitCode::FAILURE;
    }
    if let Some(path) = file(&id)
        && std::fs::write(&path, std::process::id().to_string()).is_err()
    {
        return ExitCode::FAILURE;
    }
    let age =
        if args.iter().any(|arg| arg == "--old") { CliVersion::Old } else { CliVersion::Current };
    match play(age, &id, tokio::io::stdin(), tokio::io::stdout()).await {
        // The runtime would wait for a read of standard input that never ends.
        CliExit::Closed => std::process::exit(0),
        CliExit::Died => {
            eprintln!("fake claude: as told, I die");
            std::process::exit(7)
        }
    }
}

//! Runs a short-lived program of the user's: writes its input, reads its output, and ends all its processes.
//!
//! The program runs under a supervisor. All its processes are killed when it exits, when its time limit passes, or
//! when the future is dropped. Processes it leaves behind neither survive nor delay the result.

use std::{ffi::OsStr, io, time::Duration};

use budao_tools::launch::{self, Errors, Input, Start};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::unix::pipe::{Receiver, Sender},
};

/// Maximum bytes of output that are read.
const OUTPUT_MAX: usize = 16 * 1024;

/// Time to read the remaining output after the program has exited.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// The exit of a program and its output.
#[derive(Debug)]
pub(crate) struct CommandExit {
    /// Exit status; none if a signal ended it.
    pub(crate) code: Option<i32>,
    pub(crate) output: String,
}

/// The program did not run to its end.
#[derive(Debug)]
pub(crate) enum ProgramError {
    NotStarted(String),
    TimedOut,
}

/// Runs a program until it exits or `limit` passes.
///
/// # Errors
/// [`ProgramError::NotStarted`] if it cannot be started, [`ProgramError::TimedOut`] if it takes longer than `limit`.
pub(crate) async fn run(
    program: impl AsRef<OsStr>,
    args: &[String],
    input: &[u8],
    limit: Duration,
) -> Result<CommandExit, ProgramError> {
    match tokio::time::timeout(limit, run_to_end(program.as_ref(), args, input)).await {
        Ok(Ok(ended)) => Ok(ended),
        Ok(Err(error)) => Err(ProgramError::NotStarted(error.kind().to_string())),
        Err(_) => Err(ProgramError::TimedOut),
    }
}

async fn run_to_end(program: &OsStr, args: &[String], input: &[u8]) -> io::Result<CommandExit> {
    let mut start = Start::new(program, crate::traces::world().uuid().as_u128());
    start.args = args.iter().map(Into::into).collect();
    (start.input, start.errors) = (Input::Piped, Errors::Inherited);
    let mut child = start.spawn(launch::installed().as_ref()).await?;
    let (stdin, mut stdout) = (child.stdin.take(), child.stdout.take());
    let mut output = Vec::new();
    let ended = {
        let exchange = async {
            tokio::join!(give(stdin, input), read_output(&mut stdout, &mut output));
            std::future::pending::<()>().await;
        };
        tokio::select! {
            biased;
            ended = child.wait() => ended,
            () = exchange => unreachable!("it waits for ever"),
        }
    };
    let _ = tokio::time::timeout(LAST_WORDS, read_output(&mut stdout, &mut output)).await;
    Ok(CommandExit { code: ended.code, output: String::from_utf8_lossy(&output).into_owned() })
}

/// Writes the input; a program that closes its stdin early is not an error.
async fn give(stdin: Option<Sender>, input: &[u8]) {
    if let Some(mut stdin) = stdin {
        let _ = stdin.write_all(input).await;
    }
}

/// Reads until the end or [`OUTPUT_MAX`]. Cancel-safe: a later call continues where this one stopped.
async fn read_output(stdout: &mut Option<Receiver>, output: &mut Vec<u8>) {
    let Some(open) = stdout else { return };
    while output.len() < OUTPUT_MAX {
        let room = OUTPUT_MAX - output.len();
        match open.take(room as u64).read_buf(output).await {
            Ok(1..) => {}
            Ok(0) | Err(_) => break,
        }
    }
    // Closes the pipe: a program that writes more gets a broken pipe instead of blocking.
    *stdout = None;
}

#[cfg(test)]
mod tests {
    use std::{path::Path, time::Instant};

    use super::*;

    const LONG: Duration = Duration::from_secs(30);

    fn shell(script: &str) -> Vec<String> {
        vec!["-c".to_owned(), script.to_owned()]
    }

    /// Waits until a process has ended or is a zombie.
    async fn gone(pid: &str) -> bool {
        let until = Instant::now() + LONG;
        while Instant::now() < until {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
            if matches!(state, None | Some('Z' | 'X')) {
                return true;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        false
    }

    async fn written(path: &Path) -> String {
        let until = Instant::now() + LONG;
        loop {
            let text = std::fs::read_to_string(path).unwrap_or_default();
            if text.ends_with('\n') {
                return text.trim().to_owned();
            }
            assert!(Instant::now() < until, "it never said who its child is");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    #[tokio::test]
    async fn a_program_that_takes_too_long_leaves_no_grandchild_behind() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("pid");
        let script = format!("sleep 1000 & echo $! > {}; wait", file.display());
        let (args, limit) = (shell(&script), Duration::from_millis(500));
        let (ended, pid) = tokio::join!(run("sh", &args, b"", limit), written(&file));
        assert!(matches!(ended, Err(ProgramError::TimedOut)), "{ended:?}");
        assert!(gone(&pid).await, "{pid} is still there");
    }

    #[tokio::test]
    async fn children_of_a_program_end_with_it_and_are_not_waited_for() {
        let began = Instant::now();
        let args = shell("sleep 1000 & echo $!; exit 0");
        let ended = run("sh", &args, b"", LONG).await.unwrap();
        assert!(began.elapsed() < LONG, "the sleeper holds the output, and is not waited for");
        assert_eq!(ended.code, Some(0));
        assert!(gone(ended.output.trim()).await);
    }

    #[tokio::test]
    async fn a_program_gets_its_input_and_its_output_is_bounded() {
        let ended = run("cat", &[], b"hello", LONG).await.unwrap();
        assert_eq!((ended.code, ended.output.as_str()), (Some(0), "hello"));
        let ended =
            run("sh", &shell("head -c 1000000 /dev/zero; exit 3"), b"", LONG).await.unwrap();
        assert_eq!(ended.output.len(), OUTPUT_MAX);
        let missing = run("/nowhere/at-all", &[], b"", LONG).await;
        assert!(matches!(missing, Err(ProgramError::NotStarted(_))), "{missing:?}");
    }
}

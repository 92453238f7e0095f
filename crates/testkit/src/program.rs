//! Programs as processes: commands with an environment of their own, processes that end with their handle, and a server
//! of sessions with its HTTP interface.
//!
//! A test passes the path of the program, `env!("CARGO_BIN_EXE_budao")`, because cargo tells it to that test alone.

use std::{
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    time::Duration,
};

use serde_json::{Value, json};

/// The token of a [`ServerProcess`].
pub const TOKEN: &str = "a-token-for-the-test";

/// No test takes this long unless it hangs.
pub const TEST_TIMEOUT: Duration = Duration::from_secs(120);

/// A command whose environment has the search path alone, with an empty input and both outputs piped.
#[must_use]
pub fn command(program: &str, args: &[&str]) -> Command {
    let mut command = Command::new(program);
    command
        .args(args)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// As [`command`], in a directory that has the journal, with a key for played model services.
#[must_use]
pub fn command_in(program: &str, directory: &Path, args: &[&str]) -> Command {
    let mut command = command(program, args);
    command
        .current_dir(directory)
        .env("OPENAI_API_KEY", "sk-of-a-test")
        .env("BUDAO_JOURNAL", directory.join("journal.db"));
    command
}

/// Runs a command to its end; returns its exit code and both outputs.
///
/// # Panics
/// When the program cannot be started or prints other bytes than UTF-8.
pub async fn run(command: Command) -> (Option<i32>, String, String) {
    let output = killed_with_handle(command).output().await.expect("the program starts");
    let text = |bytes| String::from_utf8(bytes).expect("outputs are UTF-8");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// The command for tokio; its process is killed when the handle is dropped.
#[must_use]
pub fn killed_with_handle(command: Command) -> tokio::process::Command {
    let mut command = tokio::process::Command::from(command);
    command.kill_on_drop(true);
    command
}

/// Polls until the condition holds.
///
/// # Panics
/// After [`TEST_TIMEOUT`], with the description of the condition.
pub async fn until(condition: &str, mut holds: impl FnMut() -> bool) {
    let polling = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(tokio::time::timeout(TEST_TIMEOUT, polling).await.is_ok(), "never: {condition}");
}

/// The scripted MCP server, an example of `budao-smcp` that lies beside `program`. `None` if it is not built; in CI that is
/// a failure.
///
/// # Panics
/// In CI, when the example is not built.
#[must_use]
#[allow(clippy::print_stderr, reason = "a test that is skipped must say so")]
pub fn fake_mcp(program: &str) -> Option<PathBuf> {
    let built = Path::new(program).parent()?.join("examples/fake_mcp");
    let found = Some(built).filter(|path| path.exists());
    if found.is_none() {
        let advice = "NOT TESTED: `cargo build -p budao-smcp --example fake_mcp` comes first";
        assert!(std::env::var("CI").as_deref() != Ok("true"), "{advice}");
        eprintln!("\n*** {advice} ***\n");
    }
    found
}

/// A process. Dropping it kills it, as `kill -9` does.
#[derive(Debug)]
pub struct Process(pub Child);

impl Process {
    /// Starts a process.
    ///
    /// # Panics
    /// When the program cannot be started.
    #[must_use]
    pub fn start(mut command: Command) -> Self {
        Self(command.spawn().expect("the program starts"))
    }

    /// Starts a process and waits until a line of its stderr has these words; returns that line.
    ///
    /// # Panics
    /// When the process ends before it prints them.
    #[must_use]
    pub fn start_until(command: Command, words: &str) -> (Self, String) {
        let (process, line, _) = Self::start_and_read(command, words);
        (process, line)
    }

    /// As [`Process::start_until`], with the text that follows on stderr. A thread reads it, so that the process never
    /// waits for its reader.
    ///
    /// # Panics
    /// When the process ends before it prints the words.
    #[must_use]
    pub fn start_and_read(command: Command, words: &str) -> (Self, String, Arc<Mutex<String>>) {
        let mut process = Self::start(command);
        let mut lines = BufReader::new(process.0.stderr.take().expect("stderr is piped")).lines();
        let mut before = String::new();
        let line = loop {
            let Some(Ok(line)) = lines.next() else { panic!("the process ended: {before}") };
            if line.contains(words) {
                break line;
            }
            before.push_str(&(line + "\n"));
        };
        let printed = Arc::new(Mutex::new(String::new()));
        let text = Arc::clone(&printed);
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                text.lock().expect("no code panics while holding this").push_str(&(line + "\n"));
            }
        });
        (process, line, printed)
    }

    /// The first line on stdout; a thread reads the others.
    ///
    /// # Panics
    /// When the process ends before it prints one.
    #[must_use]
    pub fn first_line(&mut self) -> String {
        let mut lines = BufReader::new(self.0.stdout.take().expect("stdout is piped")).lines();
        let line = lines.next().expect("the process ended early").expect("stdout is UTF-8");
        std::thread::spawn(move || lines.for_each(drop));
        line
    }

    /// Kills the process and waits for its end.
    pub fn kill(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }

    /// Sends a signal by name: `STOP`, `CONT`, `TERM`.
    ///
    /// # Panics
    /// When the process has ended.
    pub fn signal(&self, name: &str) {
        let id = self.0.id().to_string();
        let sent = Command::new("kill").args([&format!("-{name}"), &id]).status();
        assert!(sent.is_ok_and(|status| status.success()), "no signal {name} to {id}");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A running `budao serve`. Dropping it kills it.
#[derive(Debug)]
pub struct ServerProcess {
    /// The process of the server.
    pub process: Process,
    /// The address without a slash at its end.
    pub url: String,
    client: reqwest::Client,
}

impl ServerProcess {
    /// Starts a server on a free port, with [`TOKEN`] and a journal in the directory. `more` are further arguments.
    ///
    /// # Panics
    /// When the server does not start.
    #[must_use]
    pub fn start(program: &str, directory: &Path, more: &[&str]) -> Self {
        Self::start_with(program, directory, more, &[])
    }

    /// As [`ServerProcess::start`], with variables of the environment.
    ///
    /// # Panics
    /// When the server does not start.
    #[must_use]
    pub fn start_with(
        program: &str,
        directory: &Path,
        more: &[&str],
        environment: &[(&str, &str)],
    ) -> Self {
        let args = ["serve", "--listen", "127.0.0.1:0", "--token", TOKEN];
        let mut command = command_in(program, directory, &args);
        command.args(more).envs(environment.iter().copied()).stderr(Stdio::null());
        let mut process = Process::start(command);
        let line = process.first_line();
        let url = line.trim().split('#').next().unwrap_or_default().trim_end_matches('/');
        assert!(url.starts_with("http://"), "the server did not start: {line}");
        Self { url: url.to_owned(), process, client: client() }
    }

    /// Sends a JSON body; returns the status and the JSON answer.
    ///
    /// # Panics
    /// When there is no JSON answer.
    pub async fn try_post(&self, path: &str, body: &Value) -> (u16, Value) {
        let request = self.client.post(format!("{}{path}", self.url)).bearer_auth(TOKEN).json(body);
        let response = request.send().await.expect("the server answers");
        (response.status().as_u16(), response.json().await.expect("the answer is JSON"))
    }

    /// Sends a JSON body; returns the JSON answer.
    ///
    /// # Panics
    /// When the server refuses.
    pub async fn post(&self, path: &str, body: &Value) -> Value {
        let (status, answer) = self.try_post(path, body).await;
        assert!((200..300).contains(&status), "{path}: {status} {answer}");
        answer
    }

    /// The text at a path.
    ///
    /// # Panics
    /// When the server does not answer.
    pub async fn get(&self, path: &str) -> String {
        let response = self.response(path).await;
        response.text().await.expect("the answer is text")
    }

    async fn response(&self, path: &str) -> reqwest::Response {
        let request = self.client.get(format!("{}{path}", self.url)).bearer_auth(TOKEN);
        request.send().await.expect("the server answers")
    }

    /// Opens a session and sends it a message; returns the session's id.
    ///
    /// # Panics
    /// When the server refuses.
    pub async fn ask(&self, content: &str) -> String {
        let opened = self.post("/v1/sessions", &json!({})).await;
        let session = opened["session_id"].as_str().expect("a session has an id").to_owned();
        let path = format!("/v1/sessions/{session}/messages");
        self.post(&path, &json!({ "content": content })).await;
        session
    }

    /// Reads the frames of a session from its first until `take` returns `true` or the stream ends. Returns whether
    /// `take` did.
    ///
    /// # Panics
    /// When the stream breaks or a frame is no JSON.
    pub async fn read_frames(&self, session: &str, mut take: impl FnMut(&Value) -> bool) -> bool {
        let mut response = self.response(&format!("/v1/sessions/{session}/events?after=0")).await;
        let mut text = String::new();
        while let Some(bytes) = response.chunk().await.expect("the stream holds") {
            text.push_str(&String::from_utf8_lossy(&bytes));
            while let Some((event, rest)) = text.split_once("\n\n") {
                let data = event.lines().find_map(|line| line.strip_prefix("data:"));
                let frame = data.map(|data| serde_json::from_str::<Value>(data.trim()));
                let is_last = frame.is_some_and(|frame| take(&frame.expect("a frame is JSON")));
                text = rest.to_owned();
                if is_last {
                    return true;
                }
            }
        }
        false
    }
}

/// An HTTP client that uses no proxy.
fn client() -> reqwest::Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().no_proxy().build().expect("the client has no odd option")
}

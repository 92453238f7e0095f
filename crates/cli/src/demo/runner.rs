//! Runs the demo's processes in a folder of their own, with a cleared environment, and prints their records.

use std::{
    fs::{self, File, OpenOptions},
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
    process::Stdio,
};

use budao_core::{
    Fault, Lang, Record,
    activity::{Activity, MessageContent},
    event::SessionId,
    fault::{Fact, Kind, Operation},
};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader, Lines},
    process::{Child, ChildStdout, Command},
};

use super::{CheckedClaims, act::Act, cut, plays};
use crate::{terminal::Terminal, transcript::TranscriptPrinter};

/// Short retry waits, so that the demo does not stall.
const CONFIG: &str = "[limits.retry]\nbase = 400\nmax = 1000\n";

const README: &str = "# Lighthouse\n\n## Tides\n\n## Lamp\n\n## Keeper\n";

/// The demo's folder, and the records and sessions of the acts so far.
pub(crate) struct DemoRunner<'a> {
    folder: PathBuf,
    program: PathBuf,
    pub(crate) lang: Lang,
    terminal: &'a Terminal,
    is_shown: bool,
    /// Records the processes printed while they ran; the replay act compares them with the journal.
    pub(crate) printed: Vec<Record>,
    sessions: Vec<(Act, SessionId)>,
}

impl<'a> DemoRunner<'a> {
    /// Creates a new folder with mode 0700 in the temporary directory.
    pub(crate) fn build(lang: Lang, terminal: &'a Terminal, is_shown: bool) -> Result<Self, Fault> {
        let name = format!("budao-demo-{}", uuid::Uuid::now_v7());
        let folder = std::env::temp_dir().join(name);
        let unwritable = |error: std::io::Error| {
            Fault::new(Kind::FilePermission, Operation::WriteFile)
                .with(Fact::Path, folder.display().to_string())
                .caused_by(&error)
        };
        fs::DirBuilder::new().mode(0o700).create(&folder).map_err(unwritable)?;
        fs::create_dir(folder.join("workspace")).map_err(unwritable)?;
        fs::write(folder.join("config.toml"), CONFIG).map_err(unwritable)?;
        fs::write(folder.join("workspace/README.md"), README).map_err(unwritable)?;
        let program =
            std::env::current_exe().map_err(|error| not_started("budao").caused_by(&error))?;
        let (printed, sessions) = (Vec::new(), Vec::new());
        Ok(Self { folder, program, lang, terminal, is_shown, printed, sessions })
    }

    pub(crate) fn journal(&self) -> PathBuf {
        self.folder.join("journal.db")
    }

    /// The directory the tools work in.
    pub(crate) fn workspace(&self) -> PathBuf {
        self.folder.join("workspace")
    }

    pub(crate) fn session_of(&self, act: Act) -> Option<SessionId> {
        self.sessions.iter().find(|(of, _)| *of == act).map(|(_, session)| *session)
    }

    pub(crate) fn sessions(&self) -> impl Iterator<Item = SessionId> {
        self.sessions.iter().map(|(_, session)| *session)
    }

    pub(crate) fn remember(&mut self, act: Act, session: SessionId) {
        if self.session_of(act).is_none() {
            self.sessions.push((act, session));
        }
    }

    pub(crate) async fn play(&mut self, act: Act) -> Result<CheckedClaims, Fault> {
        match act {
            Act::Correct => plays::correct(self).await,
            Act::Wait => plays::wait(self).await,
            Act::Cut => cut::play(self).await,
            Act::Kill => plays::kill(self).await,
            Act::Replay => plays::replay(self).await,
        }
    }

    /// Writes a script for the scripted model into the workspace.
    pub(crate) fn script(&self, name: &str, text: &str) -> Result<(), Fault> {
        let path = self.workspace().join(name);
        fs::write(&path, text).map_err(|error| {
            Fault::new(Kind::FilePermission, Operation::WriteFile)
                .with(Fact::Path, path.display().to_string())
                .caused_by(&error)
        })
    }

    /// Starts this program again. Of the user's environment it inherits only `PATH` and `TMPDIR`.
    pub(crate) fn start(&self, args: &[&str]) -> Result<Child, Fault> {
        self.show(&self.terminal.faint(format!("$ budao {}", shell_words::join(args))));
        let log = OpenOptions::new().create(true).append(true).open(self.folder.join("stderr.log"));
        let kept = |name: &str| std::env::var_os(name).map(|value| (name.to_owned(), value));
        Command::new(&self.program)
            .args(args)
            .current_dir(self.workspace())
            .env_clear()
            .envs(["PATH", "TMPDIR"].iter().filter_map(|name| kept(name)))
            .env("HOME", &self.folder)
            .env("BUDAO_LANG", self.lang.to_string())
            .env("BUDAO_CONFIG", self.folder.join("config.toml"))
            .env("BUDAO_JOURNAL", self.journal())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log.map_or_else(|_| Stdio::null(), Stdio::from))
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| not_started(&shell_words::join(args)).caused_by(&error))
    }

    /// Runs a command to its end and prints its records. Returns them, and whether the exit code was 0.
    pub(crate) async fn perform(&self, args: &[&str]) -> Result<(Vec<Record>, bool), Fault> {
        let mut printer = self.printer();
        let performed = self.collect(args, |record| printer.print(record)).await;
        printer.end_line();
        performed
    }

    /// Like [`Self::perform`], but prints only the command line.
    pub(crate) async fn perform_untold(&self, args: &[&str]) -> Result<(Vec<Record>, bool), Fault> {
        self.collect(args, |_| ()).await
    }

    async fn collect(
        &self,
        args: &[&str],
        mut tell: impl FnMut(&Record),
    ) -> Result<(Vec<Record>, bool), Fault> {
        let mut child = self.start(args)?;
        let mut records = RecordLines::of(&mut child)?;
        let mut all = Vec::new();
        while let Some(record) = records.next().await? {
            tell(&record);
            all.push(record);
        }
        let status = child.wait().await.map_err(|error| not_read().caused_by(&error))?;
        Ok((all, status.success()))
    }

    /// Prints lines, indented; prints nothing with `--json`.
    pub(crate) fn show(&self, text: &str) {
        for line in text.lines().filter(|_| self.is_shown) {
            self.terminal.data(&format!("  {line}\n"));
        }
    }

    pub(crate) fn printer(&self) -> RecordPrinter<'_> {
        let transcript = TranscriptPrinter { terminal: self.terminal, lang: self.lang };
        RecordPrinter { stage: self, transcript, words: String::new() }
    }
}

/// Prints records as `budao run` does, but text and events in one column.
pub(crate) struct RecordPrinter<'a> {
    stage: &'a DemoRunner<'a>,
    transcript: TranscriptPrinter<'a>,
    words: String,
}

impl RecordPrinter<'_> {
    pub(crate) fn print(&mut self, record: &Record) {
        let activity = Activity::of(&record.event);
        match activity {
            Some(Activity::MessageAccepted {
                content: MessageContent::Blocks(content), ..
            }) => {
                self.stage.show(&format!("> {}", budao_core::message::text_of(content)));
            }
            Some(Activity::Text { text, .. }) => return self.say(text),
            _ => {}
        }
        let line = self.transcript.line(record);
        if line.is_some() || matches!(activity, Some(Activity::Answered { .. })) {
            self.end_line();
        }
        if let Some(line) = line {
            self.stage.show(&line);
        }
    }

    /// Prints text of the model as it arrives.
    pub(crate) fn say(&mut self, text: &str) {
        if self.stage.is_shown {
            let indent = if self.words.is_empty() { "  " } else { "" };
            self.stage.terminal.data(&format!("{indent}{}", text.replace('\n', "\n  ")));
        }
        self.words.push_str(text);
    }

    pub(crate) fn end_line(&mut self) {
        if !std::mem::take(&mut self.words).is_empty() && self.stage.is_shown {
            self.stage.terminal.data("\n");
        }
    }
}

/// The records a process prints with `--json`, one per line.
pub(crate) struct RecordLines(Lines<BufReader<ChildStdout>>);

impl RecordLines {
    pub(crate) fn of(child: &mut Child) -> Result<Self, Fault> {
        Ok(Self(lines(child)?))
    }

    /// The next record; none at the end of the output, or at a line cut off by a kill.
    pub(crate) async fn next(&mut self) -> Result<Option<Record>, Fault> {
        let line = self.0.next_line().await.map_err(|error| not_read().caused_by(&error))?;
        Ok(line.and_then(|line| serde_json::from_str(&line).ok()))
    }
}

/// The process's stdout, by lines. Fails if it was taken before.
pub(crate) fn lines(child: &mut Child) -> Result<Lines<BufReader<ChildStdout>>, Fault> {
    child.stdout.take().map(|out| BufReader::new(out).lines()).ok_or_else(not_read)
}

/// Number of lines in a file; 0 if it does not exist. Reads at most 64 KiB.
pub(crate) fn lines_in(path: &Path) -> usize {
    let bounded = |file: File| std::io::read_to_string(std::io::Read::take(file, 64 * 1024));
    File::open(path).and_then(bounded).map_or(0, |text| text.lines().count())
}

pub(crate) fn not_read() -> Fault {
    Fault::new(Kind::Bug, Operation::RunCommand)
        .with_cause("reading the output of a child process failed")
}

fn not_started(command: &str) -> Fault {
    Fault::new(Kind::CommandNotStarted, Operation::RunCommand)
        .with(Fact::Command, command.to_owned())
}

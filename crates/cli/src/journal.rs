//! `budao journal` and `budao backup`: maintenance of the journal file.

mod verify;

use std::{
    fs::OpenOptions,
    io::{self, BufRead, BufReader, BufWriter, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use budao_core::{
    Fault, Lang,
    fault::{Fact, Kind, Operation},
};
use budao_journal::{
    Access, CheckReport, ExportReport, Journal, implement::transfer, partial_copy,
};
use budao_runtime::world;
use indicatif::HumanBytes;
use serde_json::json;

use crate::{
    exit::Exit,
    file_fault, progress,
    session_name::SessionName,
    setup::{self, JournalArgs},
    terminal::{Terminal, pad},
    texts::{count, fill, localize},
};

/// Check, export, import, copy and measure journals.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Verify a journal, even while it is in use, and report what is damaged and what survives
    Check {
        /// The journal: a path, `sqlite:PATH` or `postgres://USER@HOST/DATABASE`
        file: String,
        /// Print one JSON object on stdout
        #[arg(long)]
        json: bool,
    },
    /// Prove that no record was altered, removed, reordered or appended by another program
    Verify(verify::Args),
    /// Export sessions as JSON lines
    Export {
        /// The journal: a path, `sqlite:PATH` or `postgres://USER@HOST/DATABASE`
        file: String,
        /// Export only this session; can be repeated
        #[arg(long = "session", value_name = "ID")]
        sessions: Vec<SessionName>,
        /// File to write, which must not exist [default: stdout]
        #[arg(long, short, value_name = "FILE")]
        output: Option<PathBuf>,
        /// Read the raw pages of a file that can no longer be opened, and export its intact records
        #[arg(long, conflicts_with = "sessions")]
        salvage: bool,
        /// Print the report as one JSON object on stderr
        #[arg(long)]
        json: bool,
    },
    /// Import sessions from JSON lines; existing sessions are skipped
    Import {
        /// The journal: a path, `sqlite:PATH` or `postgres://USER@HOST/DATABASE`; created if it does not exist
        file: String,
        /// File to read [default: stdin]
        input: Option<PathBuf>,
        /// Print the report as one JSON object on stdout
        #[arg(long)]
        json: bool,
    },
    /// Copy every session to another journal with its ids, positions and epochs; the source may be in use. An
    /// interrupted copy goes on where it stopped
    Copy {
        /// The journal to read: a path, `sqlite:PATH` or `postgres://USER@HOST/DATABASE`
        from: String,
        /// The journal to write; created if it does not exist
        to: String,
        /// Print the report as one JSON object on stdout
        #[arg(long)]
        json: bool,
    },
    /// Give every session a new epoch when it is next used: after a restore that the database does not show
    ///
    /// Run it before servers start, after the files of a PostgreSQL server were put back without point-in-time recovery, or
    /// if the address has `failover=lossless` and the backup is younger than two minutes. Clients read the history of
    /// a session again when its epoch is new.
    NewEpochs {
        /// The journal: `postgres://USER@HOST/DATABASE`
        url: String,
    },
    /// Return the space of removed sessions to the file system, even while the journal is in use
    Compact {
        /// The journal: a path or `sqlite:PATH`
        file: String,
        /// Print one JSON object on stdout
        #[arg(long)]
        json: bool,
    },
    /// Show the size of a journal and what it contains
    Stats {
        /// The journal: a path, `sqlite:PATH` or `postgres://USER@HOST/DATABASE`
        file: String,
        /// Print one JSON object on stdout
        #[arg(long)]
        json: bool,
    },
}

/// Copy the journal, even while it is in use.
///
/// When a process opens the copy for writing, its sessions get new epochs, so that clients notice the replaced history.
#[derive(Debug, clap::Args)]
pub(crate) struct BackupArgs {
    #[command(flatten)]
    journal: JournalArgs,
    /// Path of the copy, which must not exist
    target: PathBuf,
    /// Print one JSON object on stdout
    #[arg(long)]
    json: bool,
}

/// Runs `budao journal check`, `verify`, `export`, `import`, `copy`, `new-epochs`, `compact` or `stats`.
pub(crate) async fn run(args: &Args, lang: Lang, terminal: &Terminal) -> Result<Exit, Fault> {
    match &args.action {
        Action::Check { file, json } => check(file, *json, lang, terminal).await,
        Action::Verify(args) => verify::run(args, lang, terminal).await,
        Action::Export { file, sessions, output, salvage, json } => {
            let report = export(file, sessions, output.as_deref(), *salvage).await?;
            if *json {
                terminal.say(&json!(report).to_string());
                return Ok(if report.cut == 0 { Exit::Success } else { Exit::Failed });
            }
            let sessions = count(lang, "count-sessions-exported", report.sessions);
            let records = count(lang, "count-records", report.records);
            terminal.say(&format!("{sessions}, {records}"));
            Ok(report_cut_export(report, lang, terminal))
        }
        Action::Import { file, input, json } => {
            import(file, input.as_deref(), *json, lang, terminal).await
        }
        Action::Copy { from, to, json } => copy(from, to, *json, lang, terminal).await,
        Action::NewEpochs { url } => renew_epochs(url, lang, terminal).await,
        Action::Compact { file, json } => compact(file, *json, lang, terminal).await,
        Action::Stats { file, json } => {
            let journal = open_to_read(file).await?;
            let stats = pretty(&journal.stats().await?)?;
            terminal.data(&if *json { stats } else { table(&stats, lang) });
            Ok(Exit::Success)
        }
    }
}

/// Runs `budao backup`; shows progress on a terminal.
pub(crate) async fn backup(
    args: &BackupArgs,
    lang: Lang,
    terminal: &Terminal,
) -> Result<Exit, Fault> {
    let url = args.journal.url()?;
    let journal = open_to_read(&url).await?;
    let size = |path: &Path| std::fs::metadata(path).map_or(0, |found| found.len());
    let bar = progress::bytes(journal.load().bytes, localize(lang, "journal-copying"));
    let partial = partial_copy(&args.target);
    let copied = journal.backup(&args.target);
    tokio::pin!(copied);
    let copied = loop {
        tokio::select! {
            biased;
            copied = &mut copied => break copied,
            () = tokio::time::sleep(progress::ROUND) => bar.set_position(size(&partial)),
        }
    };
    bar.finish_and_clear();
    copied?;
    let copy = args.target.display().to_string();
    if args.json {
        let result = json!({ "copy": copy, "bytes": size(&args.target) });
        terminal.data(&format!("{result}\n"));
    } else {
        terminal.say(&format!("{} {copy}", localize(lang, "journal-copied-to")));
    }
    Ok(Exit::Success)
}

async fn open_to_read(url: &str) -> Result<Arc<dyn Journal>, Fault> {
    setup::backends().open(url, Access::ReadOnly, world::system()).await
}

async fn check(url: &str, json: bool, lang: Lang, terminal: &Terminal) -> Result<Exit, Fault> {
    let bar = progress::parts(localize(lang, "journal-checking"));
    let reported = bar.clone();
    let progress = Box::new(move |done, all| {
        reported.set_length(all);
        reported.set_position(done);
    });
    let found = setup::backends().of(url)?.check(url, progress).await;
    bar.finish_and_clear();
    let found = found?;
    if json {
        terminal.data(&pretty(&found)?);
    } else {
        terminal.data(&render_check(&found, lang, terminal));
    }
    Ok(if found.findings.is_empty() { Exit::Success } else { Exit::Failed })
}

fn render_check(found: &CheckReport, lang: Lang, terminal: &Terminal) -> String {
    let counted = |id: &str, number| count(lang, id, number).into();
    let args = [
        ("sessions", counted("count-sessions", found.sessions)),
        ("records", counted("count-records", found.records)),
        ("commands", counted("count-commands", found.commands)),
        ("blobs", counted("count-stored-outputs", found.blobs)),
    ];
    let mut text = format!("{}\n", fill(lang, "journal-intact", &args));
    if let Some(lost) = &found.lost {
        let word = localize(lang, "journal-data-loss-found-earlier");
        text.push_str(&format!("{word} {lost}\n"));
    }
    for damage in &found.findings {
        let session = damage.session.map_or(String::new(), |session| format!("{session}: "));
        let word = terminal.strong(localize(lang, "journal-damaged"));
        let readable = localize(lang, "journal-readable");
        text.push_str(&format!("{word} {session}{}\n", damage.description));
        text.push_str(&format!("        {readable}: {}\n", damage.readable));
    }
    if found.findings.is_empty() {
        text.push_str(localize(lang, "journal-the-journal-is-intact"));
    }
    text
}

async fn export(
    url: &str,
    sessions: &[SessionName],
    output: Option<&Path>,
    salvage: bool,
) -> Result<ExportReport, Fault> {
    if salvage {
        let output = output.map(Path::to_owned);
        let output = Box::new(move || create_output(output.as_deref()));
        return setup::backends().of(url)?.salvage(url, output).await;
    }
    let journal = open_to_read(url).await?;
    let mut named = Vec::new();
    for session in sessions {
        named.push(session.find_in(&*journal).await?);
    }
    let only = (!named.is_empty()).then_some(named.as_slice());
    let mut out = create_output(output)?;
    let report = journal.export(only, &mut *out).await?;
    out.flush().map_err(|error| unwritable(output.unwrap_or(Path::new("stdout")), &error))?;
    Ok(report)
}

/// Creates the export file with mode 0600, or uses stdout. Fails if the file exists.
fn create_output(output: Option<&Path>) -> Result<Box<dyn Write + Send>, Fault> {
    let Some(path) = output else { return Ok(Box::new(BufWriter::new(io::stdout()))) };
    let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    Ok(Box::new(BufWriter::new(made.map_err(|error| unwritable(path, &error))?)))
}

/// Reports sessions that were exported only in part; the exit code is then a failure.
fn report_cut_export(report: ExportReport, lang: Lang, terminal: &Terminal) -> Exit {
    if report.cut == 0 {
        return Exit::Success;
    }
    let text = localize(lang, "journal-sessions-truncated-at-the-damage");
    terminal.say(&format!("{} {text}", report.cut));
    Exit::Failed
}

async fn import(
    url: &str,
    input: Option<&Path>,
    is_json: bool,
    lang: Lang,
    terminal: &Terminal,
) -> Result<Exit, Fault> {
    let mut lines: Box<dyn BufRead + Send> = match input {
        Some(path) => {
            let opened = OpenOptions::new()
                .read(true)
                .open(path)
                .map_err(|error| file_fault::unreadable(path, Operation::ReadFile, &error));
            Box::new(BufReader::new(opened?))
        }
        None => Box::new(BufReader::new(io::stdin())),
    };
    let journal = setup::backends().open(url, Access::Create, world::system()).await?;
    let report = journal.import(&mut *lines).await?;
    journal.close().await;
    if is_json {
        terminal.data(&format!("{}\n", json!(report)));
        return Ok(Exit::Success);
    }
    let taken = count(lang, "count-sessions-imported", report.sessions);
    let skipped = count(lang, "count-already-existed", report.skipped);
    terminal.say(&format!("{taken}, {skipped}"));
    Ok(Exit::Success)
}

async fn copy(
    from: &str,
    to: &str,
    is_json: bool,
    lang: Lang,
    terminal: &Terminal,
) -> Result<Exit, Fault> {
    let source = open_to_read(from).await?;
    let target = setup::backends().open(to, Access::Create, world::system()).await?;
    let cannot = |journal: &Arc<dyn Journal>| {
        Fault::new(Kind::JournalUnsupported, Operation::ImportSession)
            .with(Fact::Service, journal.kind())
    };
    let out = source.transfer().ok_or_else(|| cannot(&source))?;
    let into = target.transfer().ok_or_else(|| cannot(&target))?;
    let bar = progress::parts(localize(lang, "journal-copying"));
    let done = transfer::copy(out, into, &|report| bar.set_position(report.sessions)).await;
    bar.finish_and_clear();
    target.close().await;
    let report = done?;
    if is_json {
        terminal.data(&format!("{}\n", json!(report)));
    } else {
        let sessions = count(lang, "count-sessions-copied", report.sessions);
        let records = count(lang, "count-new-records", report.records);
        terminal.say(&format!("{sessions}, {records}"));
        if report.conflicts > 0 {
            let words = localize(lang, "journal-sessions-have-another-history-in-the");
            terminal.say(&format!("{} {words}", report.conflicts));
        }
    }
    Ok(if report.conflicts == 0 { Exit::Success } else { Exit::Failed })
}

async fn renew_epochs(url: &str, lang: Lang, terminal: &Terminal) -> Result<Exit, Fault> {
    let journal = setup::backends().open(url, Access::Existing, world::system()).await?;
    let renewed = journal.renew_epochs().await;
    journal.close().await;
    renewed?;
    terminal.say(localize(lang, "journal-epochs-renewed"));
    Ok(Exit::Success)
}

async fn compact(url: &str, json: bool, lang: Lang, terminal: &Terminal) -> Result<Exit, Fault> {
    let journal = setup::backends().open(url, Access::Existing, world::system()).await?;
    let report = journal.compact().await;
    journal.close().await;
    let report = report?;
    if json {
        terminal.data(&format!("{}\n", json!(report)));
    } else {
        let bytes = |bytes: u64| HumanBytes(bytes).to_string().into();
        let args = [("before", bytes(report.before_bytes)), ("after", bytes(report.after_bytes))];
        terminal.say(&fill(lang, "journal-compacted", &args));
    }
    Ok(Exit::Success)
}

fn unwritable(path: &Path, error: &io::Error) -> Fault {
    let (kind, path) = match (error.kind(), path.parent()) {
        (io::ErrorKind::AlreadyExists, _) => (Kind::FileExists, path),
        (io::ErrorKind::NotFound, Some(parent)) => (Kind::FileNotFound, parent),
        (io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded, _) => (Kind::DiskFull, path),
        _ => (Kind::FilePermission, path),
    };
    Fault::new(kind, Operation::WriteFile)
        .with(Fact::Path, path.display().to_string())
        .caused_by(error)
}

/// Renders a JSON object as one line per field.
fn table(object: &str, lang: Lang) -> String {
    let object: serde_json::Value = serde_json::from_str(object).unwrap_or_default();
    let rows = object.as_object().into_iter().flatten().map(|(name, value)| {
        let value =
            if value.is_null() { localize(lang, "journal-none").into() } else { value.to_string() };
        format!("{} {value}\n", pad(name, 14))
    });
    rows.collect()
}

fn pretty(value: &impl serde::Serialize) -> Result<String, Fault> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|error| Fault::new(Kind::Bug, Operation::CheckJournal).caused_by(&error))?;
    Ok(text + "\n")
}

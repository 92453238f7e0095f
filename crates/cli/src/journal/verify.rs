//! `budao journal verify`: the hash chain of sessions in a journal or in an exported file.

use std::{
    fs::File,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
};

use budao_core::{
    Fault, Lang,
    fault::{Fact, Kind, Operation},
};
use budao_journal::verify::{
    Anchors, BreakReason, ChainBreak, EvidenceReport, SessionEvidence, verify_export,
    verify_journal,
};

use super::{open_to_read, pretty};
use crate::{
    exit::Exit,
    file_fault,
    session_name::SessionName,
    terminal::Terminal,
    texts::{count, fill, localize},
};

/// How an exported file begins.
const EXPORT: &[u8] = b"{\"journal\":";
/// The largest file of anchors, in bytes: about three million sessions.
const ANCHORS_BYTES_MAX: u64 = 1 << 30;

/// Prove that no record was altered, removed, reordered or appended by another program.
///
/// Hashes every record again and compares the result with the digests that the journal has stored with each batch. The
/// JSON report has the digest at the end of each session. Keep it elsewhere and pass it with `--against` later: then
/// even a history that was rewritten with all of its digests is found.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The journal: a path, `sqlite:PATH` or `postgres://USER@HOST/DATABASE`; or a file that `export` wrote
    file: String,
    /// Verify only this session; can be repeated
    #[arg(long = "session", value_name = "ID")]
    sessions: Vec<SessionName>,
    /// Compare with an earlier JSON report of this command
    #[arg(long, value_name = "REPORT")]
    against: Option<PathBuf>,
    /// Print one JSON object on stdout
    #[arg(long)]
    json: bool,
}

pub(super) async fn run(args: &Args, lang: Lang, terminal: &Terminal) -> Result<Exit, Fault> {
    let anchors = match &args.against {
        Some(path) => read_anchors(path)?,
        None => Anchors::default(),
    };
    let report = match open_export(&args.file) {
        Some(mut input) => {
            let mut report = verify_export(&mut input, &anchors)?;
            keep_named(&mut report, &args.sessions, &args.file)?;
            report
        }
        None => verify_sessions(args, &anchors).await?,
    };
    match args.json {
        true => terminal.data(&pretty(&report)?),
        false => terminal.data(&render(&report, lang, terminal)),
    }
    Ok(if report.is_whole() { Exit::Success } else { Exit::Failed })
}

async fn verify_sessions(args: &Args, anchors: &Anchors) -> Result<EvidenceReport, Fault> {
    let journal = open_to_read(&args.file).await?;
    let mut named = Vec::new();
    for session in &args.sessions {
        named.push(session.find_in(&*journal).await?);
    }
    let only = (!named.is_empty()).then_some(named.as_slice());
    let Some(source) = journal.transfer() else {
        return Err(Fault::new(Kind::JournalUnsupported, Operation::CheckJournal)
            .with(Fact::Service, journal.kind()));
    };
    verify_journal(source, only, anchors).await
}

/// Opens an exported file; `None` if the name is that of a journal.
fn open_export(file: &str) -> Option<BufReader<File>> {
    // Opening a pipe would wait for its writer.
    std::fs::metadata(file).ok().filter(std::fs::Metadata::is_file)?;
    let mut input = BufReader::new(File::open(file).ok()?);
    let is_export = input.fill_buf().ok()?.starts_with(EXPORT);
    is_export.then_some(input)
}

fn keep_named(report: &mut EvidenceReport, named: &[SessionName], file: &str) -> Result<(), Fault> {
    if named.is_empty() {
        return Ok(());
    }
    for name in named {
        if !report.sessions.iter().any(|row| name.names(row.session)) {
            return Err(Fault::new(Kind::UnknownSession, Operation::CheckJournal)
                .with(Fact::Session, name.to_string())
                .with(Fact::Path, file.to_owned()));
        }
    }
    report.sessions.retain(|row| named.iter().any(|name| name.names(row.session)));
    Ok(())
}

fn read_anchors(path: &Path) -> Result<Anchors, Fault> {
    let file = File::open(path)
        .map_err(|error| file_fault::unreadable(path, Operation::ReadFile, &error))?;
    let wrong = |error: &dyn std::fmt::Display| {
        Fault::new(Kind::BadRequest, Operation::CheckJournal)
            .with(Fact::Path, path.display().to_string())
            .with_cause(error.to_string())
    };
    let size = file.metadata().map_or(0, |found| found.len());
    if size > ANCHORS_BYTES_MAX {
        return Err(wrong(&"the file is larger than a report"));
    }
    let report: EvidenceReport =
        serde_json::from_reader(BufReader::new(file)).map_err(|error| wrong(&error))?;
    Ok(Anchors::of(&report))
}

fn render(report: &EvidenceReport, lang: Lang, terminal: &Terminal) -> String {
    let args = [
        ("sessions", count(lang, "count-sessions", report.sessions.len() as u64).into()),
        ("records", count(lang, "count-records", report.records()).into()),
    ];
    let mut text = format!("{}\n", fill(lang, "journal-verified", &args));
    let broken = |row: &&SessionEvidence| row.broken.is_some();
    for row in report.sessions.iter().filter(broken) {
        let word = terminal.strong(localize(lang, "journal-chain-broken"));
        let found = row.broken.map(|found| describe(found, lang)).unwrap_or_default();
        text.push_str(&format!("{word} {}: {found}\n", row.session));
    }
    let last =
        if report.is_whole() { "journal-chain-whole" } else { "journal-chain-rest-unproven" };
    text.push_str(localize(lang, last));
    text
}

fn describe(found: ChainBreak, lang: Lang) -> String {
    let id = match found.reason {
        BreakReason::Altered => "journal-break-altered",
        BreakReason::Removed => "journal-break-removed",
        BreakReason::Reordered => "journal-break-reordered",
        BreakReason::Appended => "journal-break-appended",
        BreakReason::Truncated => "journal-break-truncated",
        BreakReason::Start => "journal-break-start",
        BreakReason::Anchor => "journal-break-anchor",
        BreakReason::Unproven => "journal-break-unproven",
    };
    fill(lang, id, &[("seq", found.seq.into()), ("to", found.to.into())])
}

//! Export and import of a journal as JSON lines.
//!
//! ```text
//! {"journal":1}
//! {"session":"0190…","epoch":"1f2e3d4c","removed_to":0,"removed_reason":null,"digest":"9f86…"}
//! {"seq":1,"at":1800000000000000,"trace":"4bf9…","turn":1,"event":{…},"digest":"60303a…"}
//! {"snapshot":1000,"body":"base64"}            right after the record it covers
//! {"command":{…},"answer":{…}}
//! {"blob":"base64"}
//! {"end":"0190…","records":1,"digest":"60303a…"}
//! {"done":1}                                   sessions; without this line the file was cut
//! ```
//!
//! A digest is the hash chain at that position, as the journal has it; a salvaged session has none.

use std::{
    collections::VecDeque,
    io::{BufRead, Write},
};

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use budao_core::{
    event::{Answer, Command, Seq, SessionId},
    fault::{Fact, Fault, Kind, Operation},
    time::Timestamp,
    trace::Trace,
};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{Transfer, TransferredHistory};
use crate::{
    contract::{
        BatchLink, Digest, ExportReport, GapReason, ImportReport, Lease, PageLimits, StoredRecord,
    },
    implement::{chain, encoded::EncodedRecord},
};

/// Records per append during an import.
const CHUNK: usize = 1000;

/// The longest line that an import reads, in bytes. An export never writes a longer one.
const LINE_BYTES_MAX: u64 = 128 << 20;

/// Upper bound for a plausible position; a higher one in a file is refused.
const POSITION_MAX: Seq = 1 << 53;

#[derive(Serialize)]
#[serde(untagged)]
pub(crate) enum ExportLine<'a> {
    Head {
        journal: u32,
    },
    Session {
        session: SessionId,
        epoch: String,
        removed_to: Seq,
        removed_reason: Option<GapReason>,
        #[serde(skip_serializing_if = "Option::is_none")]
        digest: Option<Digest>,
    },
    Record {
        seq: Seq,
        at: Timestamp,
        trace: Trace,
        turn: u64,
        event: &'a RawValue,
        #[serde(skip_serializing_if = "Option::is_none")]
        digest: Option<Digest>,
    },
    Snapshot {
        snapshot: Seq,
        body: String,
    },
    Command {
        command: Box<Command>,
        answer: Option<Answer>,
    },
    Blob {
        blob: String,
    },
    End {
        end: SessionId,
        records: u64,
        #[serde(skip_serializing_if = "Option::is_none")]
        digest: Option<Digest>,
    },
    Done {
        done: u64,
    },
}

/// Any line of the format. The fields that are present identify its type.
#[derive(Deserialize)]
#[serde(default)]
#[derive(Default)]
pub(crate) struct ParsedLine<'a> {
    journal: Option<u32>,
    session: Option<SessionId>,
    removed_to: Seq,
    removed_reason: Option<GapReason>,
    seq: Option<Seq>,
    at: Timestamp,
    trace: Trace,
    turn: u64,
    #[serde(borrow)]
    event: Option<&'a RawValue>,
    snapshot: Option<Seq>,
    body: String,
    command: Option<Box<Command>>,
    answer: Option<Answer>,
    blob: Option<String>,
    end: Option<SessionId>,
    records: u64,
    done: Option<u64>,
    #[serde(deserialize_with = "epoch_text")]
    epoch: String,
    digest: Option<Digest>,
}

impl<'a> ParsedLine<'a> {
    pub(crate) fn line(self) -> Option<ExportLine<'a>> {
        let (removed_to, removed_reason) = (self.removed_to, self.removed_reason);
        let (at, trace, turn, digest) = (self.at, self.trace, self.turn, self.digest);
        Some(match self {
            Self { journal: Some(journal), .. } => ExportLine::Head { journal },
            Self { session: Some(session), epoch, .. } => {
                ExportLine::Session { session, epoch, removed_to, removed_reason, digest }
            }
            Self { seq: Some(seq), event: Some(event), .. } => {
                ExportLine::Record { seq, at, trace, turn, event, digest }
            }
            Self { snapshot: Some(snapshot), body, .. } => ExportLine::Snapshot { snapshot, body },
            Self { command: Some(command), answer, .. } => ExportLine::Command { command, answer },
            Self { blob: Some(blob), .. } => ExportLine::Blob { blob },
            Self { end: Some(end), records, .. } => ExportLine::End { end, records, digest },
            Self { done: Some(done), .. } => ExportLine::Done { done },
            _ => return None,
        })
    }
}

pub(crate) fn write_line(out: &mut dyn Write, line: &ExportLine<'_>) -> Result<(), Fault> {
    let failed = |error: &(dyn std::error::Error + 'static)| {
        Fault::new(Kind::SyncFailed, Operation::BackUpJournal).caused_by(error)
    };
    serde_json::to_writer(&mut *out, line).map_err(|error| failed(&error))?;
    out.write_all(b"\n").map_err(|error| failed(&error))
}

pub(crate) fn write_record(
    out: &mut dyn Write,
    record: &StoredRecord,
    digest: Option<Digest>,
) -> Result<(), Fault> {
    let event: &RawValue = serde_json::from_slice(&record.body).map_err(|error| {
        Fault::new(Kind::JournalDamaged, Operation::BackUpJournal)
            .with(Fact::Session, record.session.to_string())
            .with(Fact::FromSeq, record.seq)
            .caused_by(&error)
    })?;
    let (seq, at, trace, turn) = (record.seq, record.at, record.trace, record.turn);
    write_line(out, &ExportLine::Record { seq, at, trace, turn, event, digest })
}

/// Sessions in one list of ids.
const SESSIONS: usize = 1000;

/// Batches in one page of digests.
const LINKS: usize = 4096;

/// Writes sessions as JSON lines: all, or those in `only`.
///
/// # Errors
/// As [`crate::Admin::export`].
pub async fn export(
    source: &dyn Transfer,
    only: Option<&[SessionId]>,
    out: &mut (dyn Write + Send),
) -> Result<ExportReport, Fault> {
    let mut report = ExportReport::default();
    write_line(out, &ExportLine::Head { journal: 1 })?;
    let mut sessions = match only {
        Some(sessions) => sessions.to_vec(),
        None => source.session_ids(None, SESSIONS).await?,
    };
    while let Some(last) = sessions.last().copied() {
        for session in sessions {
            let (records, is_cut) = export_session(source, session, out).await?;
            report.sessions += 1;
            report.records += records;
            report.cut += u64::from(is_cut);
        }
        sessions = match only {
            Some(_) => Vec::new(),
            None => source.session_ids(Some(last), SESSIONS).await?,
        };
    }
    write_line(out, &ExportLine::Done { done: report.sessions })?;
    Ok(report)
}

async fn export_session(
    source: &dyn Transfer,
    session: SessionId,
    out: &mut (dyn Write + Send),
) -> Result<(u64, bool), Fault> {
    let limits = PageLimits::default();
    let mut page = source.read(session, 0, limits).await;
    let (removed_to, removed_reason) = match &page {
        Ok(page) => (page.first_available - 1, page.gap.map(|gap| gap.reason)),
        Err(fault) if fault.kind() == Kind::UnknownSession => return Err(fault.clone()),
        Err(_) => (0, None),
    };
    let epoch = page.as_ref().map_or(String::new(), |page| page.epoch.to_string());
    let mut chain = StoredChain::begin(source, session).await;
    let digest = chain.digest_at(removed_to);
    write_line(out, &ExportLine::Session { session, epoch, removed_to, removed_reason, digest })?;
    let snapshot = source.snapshot(session).await;
    let is_snapshot_lost = snapshot.is_err();
    let snapshot = snapshot.unwrap_or_default();
    let mut records = 0;
    let mut snapshot_line = snapshot.map(|snapshot| {
        (
            snapshot.seq,
            ExportLine::Snapshot { snapshot: snapshot.seq, body: BASE64.encode(&snapshot.body) },
        )
    });
    let mut write_snapshot_line = |out: &mut (dyn Write + Send), seq: Seq| match &snapshot_line {
        Some((at, line)) if *at == seq => {
            write_line(out, line)?;
            snapshot_line = None;
            Ok(())
        }
        _ => Ok::<(), Fault>(()),
    };
    write_snapshot_line(out, removed_to)?;
    let is_cut = loop {
        let found = match page {
            Ok(page) if page.records.is_empty() => break false,
            Ok(page) => page.records,
            Err(fault) => {
                tracing::warn!(%session, %fault, "session export truncated");
                break true;
            }
        };
        for record in &found {
            let digest = chain.advance(source, record).await;
            write_record(out, record, digest)?;
            write_snapshot_line(out, record.seq)?;
        }
        records += found.len() as u64;
        let last = found.last().map_or(0, |record| record.seq);
        page = source.read(session, last, limits).await;
    };
    export_commands_and_blobs(source, session, out).await?;
    write_line(out, &ExportLine::End { end: session, records, digest: chain.digest })?;
    Ok((records, is_cut || is_snapshot_lost))
}

/// The digests of a session as its batches have them. A batch begins with its own digest of the one before, so that an
/// export does not hide an alteration by hashing it again.
struct StoredChain {
    session: SessionId,
    digest: Option<Digest>,
    seq: Seq,
    links: VecDeque<BatchLink>,
}

impl StoredChain {
    async fn begin(source: &dyn Transfer, session: SessionId) -> Self {
        let page = source.chain(session, 0, LINKS).await.ok();
        let start = page.as_ref().map(|page| page.start);
        let links = page.map(|page| page.links.into()).unwrap_or_default();
        let (digest, seq) = (start.map(|start| start.digest), start.map_or(0, |start| start.seq));
        Self { session, digest, seq, links }
    }

    /// The digest at the start; `None` if the history begins somewhere else.
    fn digest_at(&self, seq: Seq) -> Option<Digest> {
        self.digest.filter(|_| self.seq == seq)
    }

    async fn advance(&mut self, source: &dyn Transfer, record: &StoredRecord) -> Option<Digest> {
        while self.links.front().is_some_and(|link| link.last < record.seq) {
            self.links.pop_front();
        }
        if self.links.is_empty() {
            let page = source.chain(self.session, record.seq - 1, LINKS).await.ok()?;
            self.links = page.links.into();
        }
        let link = self.links.front().copied()?;
        let previous = if link.first == record.seq { Some(link.previous) } else { self.digest };
        self.digest = match record.seq == link.last {
            true => Some(link.digest),
            false => previous.map(|previous| record.digest_after(previous)),
        };
        self.digest
    }
}

async fn export_commands_and_blobs(
    source: &dyn Transfer,
    session: SessionId,
    out: &mut (dyn Write + Send),
) -> Result<(), Fault> {
    let commands = source.commands(session).await?;
    for (command, answer) in commands {
        write_line(out, &ExportLine::Command { command: Box::new(command), answer })?;
    }
    let digests = source.blobs_of(session).await?;
    for digest in digests {
        match source.blob(digest).await {
            Ok(Some(content)) => {
                write_line(out, &ExportLine::Blob { blob: BASE64.encode(&content) })?;
            }
            Ok(None) => {}
            Err(fault) => tracing::warn!(%session, %fault, "skipping output in export"),
        }
    }
    Ok(())
}

/// Reads the next line, within the bound for lines. Returns its length, 0 at the end.
pub(crate) fn read_line(input: &mut dyn BufRead, text: &mut String) -> Result<usize, String> {
    text.clear();
    let mut line = std::io::Read::take(&mut *input, LINE_BYTES_MAX);
    let length = line.read_line(text).map_err(|error| error.to_string())?;
    if line.limit() == 0 && !text.ends_with('\n') {
        return Err("the line is longer than an export writes".into());
    }
    Ok(length)
}

/// Adds sessions from JSON lines, each with a new epoch. Existing sessions are left unchanged.
///
/// # Errors
/// As [`crate::Admin::import`].
pub async fn import(
    target: &dyn Transfer,
    input: &mut (dyn BufRead + Send),
) -> Result<ImportReport, Fault> {
    let mut import =
        Import { journal: target, report: ImportReport::default(), line: 0, current: None };
    let done = import.run(input).await;
    if let (Err(_), Some(current)) = (&done, import.current.take()) {
        target.delete(current.lease.session).await?;
    }
    done.map(|()| import.report)
}

struct Import<'a> {
    journal: &'a dyn Transfer,
    report: ImportReport,
    line: u64,
    current: Option<ImportingSession>,
}

struct ImportingSession {
    lease: Lease,
    head: Seq,
    /// The digest at the last record read; `None` if the file has none.
    digest: Option<Digest>,
    entries: Vec<EncodedRecord>,
    records: u64,
}

impl ImportingSession {
    /// The position of the next record; `None` on overflow, which an invalid file may cause.
    fn next(&self) -> Option<Seq> {
        self.head.checked_add(self.entries.len() as u64)?.checked_add(1)
    }
}

impl Import<'_> {
    async fn run(&mut self, input: &mut (dyn BufRead + Send)) -> Result<(), Fault> {
        let mut text = String::new();
        let mut skipping = None;
        loop {
            self.line += 1;
            if read_line(input, &mut text).map_err(|cause| self.line_fault(&cause))? == 0 {
                return Err(self.line_fault("the file ends before its `done` line"));
            }
            let read: ParsedLine<'_> =
                serde_json::from_str(&text).map_err(|error| self.line_fault(&error.to_string()))?;
            let line = read.line().ok_or_else(|| self.line_fault("unknown kind of line"))?;
            match line {
                ExportLine::Head { journal: 1 } if self.line == 1 => {}
                ExportLine::Head { .. } => {
                    return Err(self.line_fault("unsupported export version"));
                }
                _ if self.line == 1 => return Err(self.line_fault("not an exported journal")),
                ExportLine::Session { .. } | ExportLine::Done { .. }
                    if self.current.is_some() || skipping.is_some() =>
                {
                    return Err(self.line_fault("the previous session has no `end` line"));
                }
                ExportLine::Done { done } if done == self.report.sessions + self.report.skipped => {
                    return Ok(());
                }
                ExportLine::Done { .. } => {
                    return Err(
                        self.line_fault("the number of sessions differs from the `done` line")
                    );
                }
                ExportLine::Session { session, removed_to, removed_reason, digest, .. } => {
                    if self.journal.info(session).await?.is_some() {
                        skipping = Some(session);
                        self.report.skipped += 1;
                    } else {
                        self.begin_session(session, removed_to, removed_reason, digest).await?;
                    }
                }
                ExportLine::End { end, .. } if skipping == Some(end) => skipping = None,
                _ if skipping.is_some() => {}
                line => self.take(line).await?,
            }
        }
    }

    async fn begin_session(
        &mut self,
        session: SessionId,
        removed_to: Seq,
        removed_reason: Option<GapReason>,
        digest: Option<Digest>,
    ) -> Result<(), Fault> {
        if removed_to > POSITION_MAX {
            return Err(self.line_fault("the position is out of range"));
        }
        let is_start = removed_to == 0;
        if is_start && digest.is_some_and(|digest| digest != chain::seed(session)) {
            return Err(self.line_fault("the chain does not begin with the session"));
        }
        let removed_digest = digest.filter(|_| !is_start);
        let history =
            TransferredHistory { session, epoch: None, removed_to, removed_reason, removed_digest };
        let lease = self.journal.adopt(history).await?;
        let (head, entries) = (removed_to, Vec::new());
        self.current = Some(ImportingSession { lease, head, digest, entries, records: 0 });
        Ok(())
    }

    async fn take(&mut self, line: ExportLine<'_>) -> Result<(), Fault> {
        let Some(mut current) = self.current.take() else {
            return Err(self.line_fault("the line belongs to no session"));
        };
        let taken = self.add_to_session(&mut current, line).await;
        match taken {
            Ok(true) => Ok(()),
            Ok(false) => {
                self.current = Some(current);
                Ok(())
            }
            Err(fault) => {
                self.current = Some(current);
                Err(fault)
            }
        }
    }

    /// Adds one line to the current session. Returns whether the session is complete.
    async fn add_to_session(
        &mut self,
        current: &mut ImportingSession,
        line: ExportLine<'_>,
    ) -> Result<bool, Fault> {
        match line {
            ExportLine::Record { seq, at, trace, turn, event, digest } => {
                if Some(seq) != current.next() {
                    return Err(self.line_fault("a record is missing before this one"));
                }
                let body = Bytes::copy_from_slice(event.get().as_bytes());
                let record = EncodedRecord::from_bytes(at, trace, turn, body);
                let computed = current.digest.map(|before| record.digest_after(before, seq));
                if digest.is_some() && digest != computed {
                    return Err(self.line_fault("the record does not match its digest"));
                }
                current.digest = computed;
                current.entries.push(record);
                current.records += 1;
                if current.entries.len() >= CHUNK {
                    self.flush(current, None).await?;
                }
            }
            ExportLine::Snapshot { snapshot, body } => {
                let body =
                    BASE64.decode(body).map_err(|error| self.line_fault(&error.to_string()))?;
                if Some(snapshot) != current.next().and_then(|next| next.checked_sub(1)) {
                    return Err(self.line_fault("a snapshot must follow the record it covers"));
                }
                self.flush(current, Some(body)).await?;
            }
            ExportLine::Command { command, answer } => {
                self.flush(current, None).await?;
                let session = current.lease.session;
                self.journal.adopt_command(session, *command, answer).await?;
            }
            ExportLine::Blob { blob } => {
                let content =
                    BASE64.decode(blob).map_err(|error| self.line_fault(&error.to_string()))?;
                self.journal.adopt_blob(current.lease.session, content.into()).await?;
            }
            ExportLine::End { end, records, digest } => {
                let is_other = digest.is_some() && digest != current.digest;
                if end != current.lease.session || records != current.records || is_other {
                    return Err(self.line_fault("the session differs from its `end` line"));
                }
                self.flush(current, None).await?;
                self.journal.release(&current.lease).await?;
                self.report.sessions += 1;
                self.report.records += current.records;
                return Ok(true);
            }
            ExportLine::Head { .. } | ExportLine::Session { .. } | ExportLine::Done { .. } => {
                return Err(self.line_fault("the line belongs to no session"));
            }
        }
        Ok(false)
    }

    async fn flush(
        &self,
        current: &mut ImportingSession,
        snapshot: Option<Vec<u8>>,
    ) -> Result<(), Fault> {
        if current.entries.is_empty() && snapshot.is_none() {
            return Ok(());
        }
        let entries = std::mem::take(&mut current.entries);
        let (lease, head) = (&current.lease, current.head);
        current.head = self.journal.adopt_records(lease, head, entries, snapshot).await?;
        Ok(())
    }

    fn line_fault(&self, cause: &str) -> Fault {
        Fault::new(Kind::BadRequest, Operation::ImportSession)
            .with(Fact::Line, self.line)
            .with_cause(cause)
    }
}

/// The epoch as text; an export over HTTP has it as a number.
fn epoch_text<'de, D: serde::Deserializer<'de>>(reader: D) -> Result<String, D::Error> {
    match serde_json::Value::deserialize(reader)? {
        serde_json::Value::String(text) => Ok(text),
        serde_json::Value::Number(number) => {
            Ok(number.as_u64().map_or_else(|| number.to_string(), |number| format!("{number:08x}")))
        }
        _ => Err(serde::de::Error::custom("an epoch is a text or a number")),
    }
}

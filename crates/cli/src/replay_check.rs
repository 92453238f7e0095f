//! `budao replay --verify`: tries the decisions of this version against recorded histories.

use budao_core::{
    Fault, Lang, Record,
    event::{Event, Seq, SessionId},
    limits::Limits,
    session::Session,
};
use budao_journal::{Journal, PageLimits};
use budao_pipeline::replay::{Difference, Replay, replay};
use budao_runtime::world;
use serde_json::json;

use crate::{
    exit::Exit,
    session_name::SessionName,
    setup::JournalArgs,
    terminal::Terminal,
    texts::{count, fill, localize},
};

/// Sessions in one list of ids.
const SESSIONS: usize = 1000;
/// Characters of an event that are shown.
const EVENT_WIDTH: usize = 400;

/// A run of `budao replay --verify`.
pub(crate) struct ReplayCheck {
    /// The bounds in force for today's decisions.
    pub(crate) limits: Limits,
    /// Whether each session is one JSON object on stdout.
    pub(crate) json: bool,
    /// The language of the report.
    pub(crate) lang: Lang,
}

/// What one session came to.
#[expect(clippy::large_enum_variant, reason = "one value at a time is made, and used at once")]
enum SessionReplay {
    /// A session of another engine: its decisions follow from the lines of a program, which no record has.
    Foreign,
    /// From the position after this one.
    Native(Seq, Replay),
}

/// Totals over all sessions.
#[derive(Default)]
struct Totals {
    sessions: u64,
    records: u64,
    taken: u64,
    skipped: u64,
    differing: u64,
}

impl ReplayCheck {
    /// Verifies the named session, or all.
    pub(crate) async fn run(
        &self,
        name: Option<&SessionName>,
        journal: &JournalArgs,
        terminal: &Terminal,
    ) -> Result<Exit, Fault> {
        let journal = journal.to_read().open(&world::system()).await?;
        let mut totals = Totals::default();
        match name {
            Some(name) => {
                let session = name.find_in(&*journal).await?;
                self.verify(&*journal, session, &mut totals, terminal).await?;
            }
            None => self.verify_all(&*journal, &mut totals, terminal).await?,
        }
        journal.close().await;
        if !self.json {
            self.print_totals(&totals, terminal);
        }
        Ok(if totals.differing == 0 { Exit::Success } else { Exit::Failed })
    }

    async fn verify_all(
        &self,
        journal: &dyn Journal,
        totals: &mut Totals,
        terminal: &Terminal,
    ) -> Result<(), Fault> {
        let Some(source) = journal.transfer() else { return Ok(()) };
        let mut sessions = source.session_ids(None, SESSIONS).await?;
        while let Some(last) = sessions.last().copied() {
            for session in sessions {
                self.verify(journal, session, totals, terminal).await?;
            }
            sessions = source.session_ids(Some(last), SESSIONS).await?;
        }
        Ok(())
    }

    async fn verify(
        &self,
        journal: &dyn Journal,
        session: SessionId,
        totals: &mut Totals,
        terminal: &Terminal,
    ) -> Result<(), Fault> {
        let done = self.replay_session(journal, session).await?;
        match &done {
            SessionReplay::Foreign => totals.skipped += 1,
            SessionReplay::Native(_, replay) => {
                totals.records += replay.agreed;
                totals.taken += replay.taken;
                totals.sessions += u64::from(replay.difference.is_none());
                totals.differing += u64::from(replay.difference.is_some());
            }
        }
        match (self.json, done) {
            (true, done) => terminal.data(&format!("{}\n", as_json(session, &done))),
            (false, SessionReplay::Native(_, Replay { difference: Some(difference), .. })) => {
                self.print_difference(session, &difference, terminal);
            }
            (false, _) => {}
        }
        Ok(())
    }

    /// Replays the records that are kept. If the first ones were removed, the snapshot is where it begins.
    async fn replay_session(
        &self,
        journal: &dyn Journal,
        session: SessionId,
    ) -> Result<SessionReplay, Fault> {
        let is_whole = journal.info(session).await?.is_none_or(|info| info.first_available <= 1);
        let state = match journal.snapshot(session).await? {
            Some(snapshot) if !is_whole => {
                serde_json::from_slice::<Session>(&snapshot.body).unwrap_or_default()
            }
            _ => Session::default(),
        };
        let after = state.head;
        let records = read_all(journal, session, after).await?;
        if is_foreign(&state, &records) {
            return Ok(SessionReplay::Foreign);
        }
        Ok(SessionReplay::Native(after, replay(state, &records, &self.limits)))
    }

    fn print_difference(&self, session: SessionId, found: &Difference, terminal: &Terminal) {
        let lang = self.lang;
        let word = fill(lang, "replay-differs", &[("seq", found.seq.into())]);
        let shown = |event: &Option<Event>, absent: &str| match event {
            Some(event) => json!(event).to_string().chars().take(EVENT_WIDTH).collect(),
            None => localize(lang, absent).to_owned(),
        };
        let recorded = shown(&found.recorded, "replay-ends");
        let today = shown(&found.today, "replay-nothing");
        terminal.data(&format!("{session} {word}\n"));
        terminal.data(&format!("  {}: {recorded}\n", localize(lang, "replay-recorded")));
        terminal.data(&format!("  {}: {today}\n", localize(lang, "replay-today")));
    }

    fn print_totals(&self, totals: &Totals, terminal: &Terminal) {
        let args = [
            ("sessions", count(self.lang, "count-sessions", totals.sessions).into()),
            ("records", count(self.lang, "count-records", totals.records).into()),
            ("taken", totals.taken.into()),
            ("skipped", totals.skipped.into()),
        ];
        terminal.data(&format!("{}\n", fill(self.lang, "replay-agrees", &args)));
    }
}

async fn read_all(
    journal: &dyn Journal,
    session: SessionId,
    mut after: Seq,
) -> Result<Vec<Record>, Fault> {
    let mut records = Vec::new();
    loop {
        let page = journal.read(session, after, PageLimits::default()).await?;
        let Some(last) = page.records.last() else { return Ok(records) };
        after = last.seq;
        for stored in &page.records {
            records.push(stored.record()?);
        }
    }
}

fn is_foreign(state: &Session, records: &[Record]) -> bool {
    let opened = records.iter().find_map(|record| match &record.event {
        Event::SessionOpened { settings, .. } => Some(settings.is_foreign()),
        _ => None,
    });
    opened.unwrap_or_else(|| state.settings.is_foreign())
}

fn as_json(session: SessionId, done: &SessionReplay) -> serde_json::Value {
    match done {
        SessionReplay::Foreign => json!({ "session": session, "skipped": "other_engine" }),
        SessionReplay::Native(after, replay) => json!({
            "session": session,
            "after": after,
            "agreed": replay.agreed,
            "taken": replay.taken,
            "difference": replay.difference.as_ref().map(|found| json!({
                "seq": found.seq,
                "recorded": found.recorded,
                "today": found.today,
            })),
        }),
    }
}

//! `budao sessions --anomalies`: turns that look wrong although no fault was recorded.
//!
//! Works on stored records only. It finds, for example, prompts that ended immediately or were answered one turn
//! late.

use std::time::Duration;

use budao_core::{
    Fault, Lang, Timestamp,
    activity::{Activity, ActivityFold, MessageContent},
    event::{Record, SessionId, StopReason, TurnNumber},
};
use budao_journal::{Filter, PageLimits, Reader};
use serde::Serialize;

use crate::{
    exit::Exit,
    terminal::Terminal,
    texts::{count, localize},
};

/// A turn shorter than this counts as [`AnomalyKind::EndedAtOnce`].
const AT_ONCE: Duration = Duration::from_millis(100);
/// A message within this time after a turn's end counts as [`AnomalyKind::MessageRightAfterEnd`].
const RIGHT_AFTER: Duration = Duration::from_secs(1);
/// A gap between two records of a turn longer than this counts as [`AnomalyKind::Silence`].
const SILENT: Duration = Duration::from_secs(60);
/// Sessions read from the journal per query.
const PAGE: usize = 200;

/// The pattern that was found; serialized in snake case for `--json`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
enum AnomalyKind {
    /// The turn ended before a model could have answered.
    EndedAtOnce,
    /// The turn ended normally without text, calls or results.
    EndedWithoutText,
    /// A result arrived for a turn that had already ended, and was dropped.
    ResultDropped,
    /// A message arrived within [`RIGHT_AFTER`] of a turn's end.
    MessageRightAfterEnd,
    /// The turn recorded nothing for longer than [`SILENT`].
    Silence,
}

impl AnomalyKind {
    fn describe(self, lang: Lang) -> &'static str {
        localize(lang, &format!("anomaly-{}", <&str>::from(self)))
    }
}

/// One finding, with the position of the record that revealed it. Serialized for `--json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Anomaly {
    session: SessionId,
    at: Timestamp,
    turn: TurnNumber,
    seq: u64,
    what: AnomalyKind,
    /// The measured duration or gap in milliseconds; 0 for [`AnomalyKind::ResultDropped`].
    elapsed_ms: u64,
}

/// Scans the records of one session, in order.
#[derive(Debug, Default)]
struct AnomalyDetector {
    fold: ActivityFold,
    last_at: Timestamp,
    ended_at: Option<Timestamp>,
}

impl AnomalyDetector {
    fn see(&mut self, record: &Record) -> Vec<Anomaly> {
        let mut found = Vec::new();
        let mut note = |what, elapsed: Duration| {
            found.push(Anomaly {
                session: record.session,
                at: record.at,
                turn: record.turn,
                seq: record.seq,
                what,
                elapsed_ms: u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX),
            });
        };
        let turn = self.fold.turn();
        let silent = since(std::mem::replace(&mut self.last_at, record.at), record.at);
        // While a person is asked, silence is expected.
        if silent > SILENT && turn.is_some_and(|turn| turn.open_questions == 0) {
            note(AnomalyKind::Silence, silent);
        }
        match self.fold.apply(&record.event, record.at, record.turn) {
            Some(Activity::MessageAccepted { content: MessageContent::Blocks(_), .. }) => {
                let after = self.ended_at.map(|end| since(end, record.at));
                if let Some(after) = after.filter(|after| *after < RIGHT_AFTER) {
                    note(AnomalyKind::MessageRightAfterEnd, after);
                }
            }
            Some(Activity::LateResultDropped { .. }) => {
                note(AnomalyKind::ResultDropped, Duration::ZERO);
            }
            Some(Activity::TurnEnded { stop, .. }) => {
                self.ended_at = Some(record.at);
                if let Some(turn) = turn {
                    let took = since(turn.started_at, record.at);
                    let is_expected = turn.has_output || stop == StopReason::Cancelled;
                    if !is_expected && took < AT_ONCE {
                        note(AnomalyKind::EndedAtOnce, took);
                    } else if !is_expected && stop == StopReason::EndTurn {
                        note(AnomalyKind::EndedWithoutText, took);
                    }
                }
            }
            _ => {}
        }
        found
    }
}

fn since(from: Timestamp, to: Timestamp) -> Duration {
    Duration::from_micros(u64::try_from(to.as_micros() - from.as_micros()).unwrap_or(0))
}

/// Scans every session updated since `since`, most recent first, and prints the findings.
pub(crate) async fn run(
    journal: &dyn Reader,
    since: Option<Timestamp>,
    json: bool,
    lang: Lang,
    terminal: &Terminal,
) -> Result<Exit, Fault> {
    let (mut after, mut total) = (None, 0_usize);
    loop {
        let filter = Filter { since, after, limit: PAGE, ..Filter::default() };
        let page = journal.sessions(filter).await?;
        let Some(last) = page.last() else { break };
        after = Some((last.updated_at, last.session));
        for summary in &page {
            for anomaly in find_in_session(journal, summary.session).await? {
                total += 1;
                report_anomaly(&anomaly, json, lang, terminal);
            }
        }
    }
    if total == 0 {
        terminal.say(localize(lang, "anomalies-no-anomalies-found"));
    }
    Ok(Exit::Success)
}

fn report_anomaly(anomaly: &Anomaly, json: bool, lang: Lang, terminal: &Terminal) {
    let line = if json {
        serde_json::to_string(anomaly).unwrap_or_default()
    } else {
        let Anomaly { session, at, turn, elapsed_ms, what, .. } = anomaly;
        let (name, description) = (terminal.name(session), what.describe(lang));
        let turn = count(lang, "turn-number", *turn);
        let took = terminal.faint(format!("{elapsed_ms} ms"));
        format!("{name}  {at}  {turn}  {description} {took}")
    };
    terminal.data(&format!("{line}\n"));
}

async fn find_in_session(journal: &dyn Reader, session: SessionId) -> Result<Vec<Anomaly>, Fault> {
    let (mut detector, mut found, mut seen) = (AnomalyDetector::default(), Vec::new(), 0);
    loop {
        let page = journal.read(session, seen, PageLimits::default()).await?;
        let Some(last) = page.records.last() else { return Ok(found) };
        seen = last.seq;
        for stored in &page.records {
            found.extend(detector.see(&stored.record()?));
        }
    }
}

#[cfg(test)]
mod tests {
    use budao_core::{
        event::{CommandId, Epoch, Event, QuestionId},
        fault::Operation,
        message::{Block, Usage},
        trace::Trace,
    };

    use super::*;

    fn seen(events: &[(i64, Event)]) -> Vec<(AnomalyKind, u64)> {
        let mut detector = AnomalyDetector::default();
        let mut found = Vec::new();
        for (seq, (millis, event)) in events.iter().enumerate() {
            let record = Record {
                session: SessionId(uuid::Uuid::nil()),
                epoch: Epoch(1),
                seq: seq as u64 + 1,
                at: Timestamp::from_micros(millis * 1000),
                trace: Trace::NONE,
                turn: 1,
                event: event.clone(),
            };
            let all = detector.see(&record).into_iter();
            found.extend(all.map(|anomaly| (anomaly.what, anomaly.elapsed_ms)));
        }
        found
    }

    fn message() -> Event {
        let content = vec![Block::Text("hi".into())];
        Event::MessageAccepted { command: CommandId::from("m"), content }
    }

    fn start() -> Event {
        Event::TurnStarted { message: CommandId::from("m") }
    }

    fn text() -> Event {
        Event::TextDelta { step: 1, text: "well".into() }
    }

    fn end(stop: StopReason) -> Event {
        Event::TurnEnded { stop, fault: None, steps: 1, usage: Usage::default() }
    }

    #[test]
    fn the_signature_of_a_turn_answered_by_another_is_found() {
        // Turn A ends well, B ends at once without text, and C's message follows immediately.
        let found = seen(&[
            (0, start()),
            (7_000, text()),
            (7_884, end(StopReason::EndTurn)),
            (36_000, message()),
            (36_000, start()),
            (36_012, end(StopReason::EndTurn)),
            (36_500, message()),
        ]);
        assert_eq!(
            found,
            [(AnomalyKind::EndedAtOnce, 12), (AnomalyKind::MessageRightAfterEnd, 488)]
        );
    }

    #[test]
    fn silence_dropped_results_and_wordless_ends_are_found() {
        let dropped =
            Event::LateArrivalDropped { operation: Operation::ToolCall, of_turn: 1, call: None };
        let found = seen(&[(0, start()), (70_000, dropped), (71_000, end(StopReason::EndTurn))]);
        let wanted = [
            (AnomalyKind::Silence, 70_000),
            (AnomalyKind::ResultDropped, 0),
            (AnomalyKind::EndedWithoutText, 71_000),
        ];
        assert_eq!(found, wanted);
    }

    #[test]
    fn waiting_for_a_person_and_being_stopped_are_no_anomalies() {
        let question = QuestionId("q".into());
        let question_asked = Event::QuestionAsked {
            question: question.clone(),
            call: "c".into(),
            tool: "t".into(),
            arguments: serde_json::Value::Null,
            repairs: Vec::new(),
            digest: "d".into(),
            idempotent: false,
            reason: "r".into(),
            expires_at: Timestamp::from_micros(0),
        };
        let answered = Event::QuestionExpired { question, call: "c".into() };
        let found = seen(&[
            (0, start()),
            (10, question_asked),
            (900_000, answered),
            (900_010, end(StopReason::Cancelled)),
        ]);
        assert_eq!(found, []);
    }
}

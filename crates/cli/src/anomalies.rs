//! `budao sessions --anomalies`: turns that look wrong although no fault was recorded.
//!
//! Works on stored records only, and reads events themselves: its rules are about records, not about what is shown. It
//! finds, for example, prompts that ended immediately or were answered one turn late.

use std::{collections::BTreeSet, time::Duration};

use budao_core::{
    Fault, Lang, Timestamp,
    event::{CallStart, ChildLink, Event, Record, SessionId, StopReason, TurnNumber},
    message::CallId,
    tool::Outcome,
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
/// A message within this time after the end of an odd turn counts as [`AnomalyKind::MessageRightAfterEnd`].
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
    /// A message arrived within [`RIGHT_AFTER`] of the end of a turn that was itself an anomaly.
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
    kind: AnomalyKind,
    /// The measured duration or gap in milliseconds; 0 for [`AnomalyKind::ResultDropped`].
    elapsed_ms: u64,
}

/// Scans the records of one session, in order.
#[derive(Debug, Default)]
struct AnomalyDetector {
    turn: Option<RunningTurn>,
    /// End of the last turn, if that turn was itself an anomaly.
    odd_end: Option<Timestamp>,
    /// Turns that were cancelled or failed; late results of these are expected.
    cut_short: BTreeSet<TurnNumber>,
    /// Calls that were ended before their result came, by a deadline for example.
    cut_calls: BTreeSet<CallId>,
}

#[derive(Debug)]
struct RunningTurn {
    since: Timestamp,
    last: Timestamp,
    has_said: bool,
    /// Open questions, calls and child sessions; while there are any, silence is expected.
    open: BTreeSet<String>,
    /// The last record announced a wait.
    is_waiting: bool,
}

impl AnomalyDetector {
    fn see(&mut self, record: &Record) -> Vec<Anomaly> {
        let mut found = Vec::new();
        let mut note = |kind, elapsed: Duration| {
            found.push(Anomaly {
                session: record.session,
                at: record.at,
                turn: record.turn,
                seq: record.seq,
                kind,
                elapsed_ms: u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX),
            });
        };
        if let Some(turn) = &mut self.turn {
            let silent = since(turn.last, record.at);
            let is_resumed = matches!(record.event, Event::SessionResumed { .. });
            if silent > SILENT && turn.open.is_empty() && !turn.is_waiting && !is_resumed {
                note(AnomalyKind::Silence, silent);
            }
            turn.last = record.at;
            turn.is_waiting =
                matches!(record.event, Event::RetryScheduled { .. } | Event::RequestHeld { .. });
        }
        match &record.event {
            Event::TurnStarted { .. } => {
                let (since, last) = (record.at, record.at);
                let (has_said, open, is_waiting) = (false, BTreeSet::new(), false);
                self.turn = Some(RunningTurn { since, last, has_said, open, is_waiting });
            }
            Event::MessageAccepted { .. } => {
                let after = self.odd_end.take().map(|end| since(end, record.at));
                if let Some(after) = after.filter(|after| *after < RIGHT_AFTER) {
                    note(AnomalyKind::MessageRightAfterEnd, after);
                }
            }
            Event::LateArrivalDropped { of_turn, call, .. } => {
                let is_cut = call.as_ref().is_some_and(|call| self.cut_calls.contains(call));
                if !is_cut && !self.cut_short.contains(of_turn) {
                    note(AnomalyKind::ResultDropped, Duration::ZERO);
                }
            }
            Event::TurnEnded { stop, fault, .. } => {
                // A fault, a cancel or a limit explains an end without an answer.
                let is_explained = fault.is_some() || !is_plain(*stop);
                if is_explained {
                    self.cut_short.insert(record.turn);
                }
                let turn = self.turn.take().filter(|turn| !turn.has_said && !is_explained);
                self.odd_end = turn.as_ref().map(|_| record.at);
                if let Some(turn) = turn {
                    let took = since(turn.since, record.at);
                    let at_once = took < AT_ONCE;
                    let (at_once, without) = (
                        at_once.then_some(AnomalyKind::EndedAtOnce),
                        AnomalyKind::EndedWithoutText,
                    );
                    note(at_once.unwrap_or(without), took);
                }
            }
            event => {
                if let Event::ToolCallEnded { call, outcome: Outcome::Failed(_), .. } = event {
                    self.cut_calls.insert(call.clone());
                }
                if let Some(turn) = &mut self.turn {
                    turn.take_up(event);
                }
            }
        }
        found
    }
}

impl RunningTurn {
    fn take_up(&mut self, event: &Event) {
        match event {
            Event::TextDelta { .. } | Event::AggregateEnded { .. } => self.has_said = true,
            Event::ToolCallStarted(CallStart { call, .. }) => {
                self.has_said = true;
                self.open.insert(format!("call {call}"));
            }
            Event::ToolCallEnded { call, .. } => drop(self.open.remove(&format!("call {call}"))),
            Event::ModelAnswered { content, .. } => self.has_said |= !content.is_empty(),
            Event::QuestionAsked { question, .. } => {
                self.open.insert(format!("question {question}"));
            }
            Event::QuestionAnswered { question, .. } | Event::QuestionExpired { question, .. } => {
                self.open.remove(&format!("question {question}"));
            }
            Event::ChildOpened(ChildLink { child, .. }) => {
                self.open.insert(format!("child {child}"));
            }
            Event::ChildEnded { child, .. } => drop(self.open.remove(&format!("child {child}"))),
            _ => {}
        }
    }
}

/// Does the turn's end claim to be an ordinary one, or a failure without a reason?
fn is_plain(stop: StopReason) -> bool {
    matches!(stop, StopReason::EndTurn | StopReason::Failed)
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
        let Anomaly { session, at, turn, elapsed_ms, kind, .. } = anomaly;
        let (name, description) = (terminal.name(session), kind.describe(lang));
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
        event::{CommandId, Epoch, QuestionId, QuestionPurpose},
        fault::{Kind, Operation},
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
            found.extend(all.map(|anomaly| (anomaly.kind, anomaly.elapsed_ms)));
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

    fn failed() -> Event {
        let fault = Fault::new(Kind::ModelAuthentication, Operation::ModelRequest);
        let (stop, steps, usage) = (StopReason::Failed, 0, Usage::default());
        Event::TurnEnded { stop, fault: Some(fault), steps, usage }
    }

    #[test]
    fn a_gap_that_a_fault_a_cancel_or_a_quick_client_explains_is_no_anomaly() {
        let late = |of_turn| Event::LateArrivalDropped {
            operation: Operation::ToolCall,
            of_turn,
            call: None,
        };
        // A script sends its next message at once, a turn fails at once, and one is cancelled at once.
        assert_eq!(
            seen(&[(0, start()), (5, text()), (9, end(StopReason::EndTurn)), (10, message())]),
            []
        );
        assert_eq!(seen(&[(0, start()), (9, failed()), (10, message())]), []);
        for stop in [StopReason::Cancelled, StopReason::Refusal, StopReason::MaxTokens] {
            assert_eq!(seen(&[(0, start()), (9, end(stop)), (10, message()), (11, late(1))]), []);
        }
        let failed_quietly = seen(&[(0, start()), (9, end(StopReason::Failed))]);
        assert_eq!(failed_quietly, [(AnomalyKind::EndedAtOnce, 9)], "nothing says why");
        let dropped =
            seen(&[(0, start()), (5, text()), (9, end(StopReason::EndTurn)), (10, late(1))]);
        assert_eq!(dropped, [(AnomalyKind::ResultDropped, 0)]);
    }

    #[test]
    fn a_call_that_runs_long_and_a_wait_that_was_announced_are_no_silence() {
        let started = Event::ToolCallStarted(CallStart {
            call: "c".into(),
            tool: "bash_run".into(),
            arguments: serde_json::Value::Null,
            repairs: Vec::new(),
            attempt: 1,
            idempotent: false,
            reconcile: false,
        });
        let ended = Event::ToolCallEnded {
            call: "c".into(),
            tool: "bash_run".into(),
            outcome: Fault::new(Kind::DeadlinePassed, Operation::ToolCall).into(),
            duration_ms: 300_000,
        };
        let late = Event::LateArrivalDropped {
            operation: Operation::ToolCall,
            of_turn: 1,
            call: Some("c".into()),
        };
        let retry = Event::RetryScheduled {
            operation: Operation::ModelRequest,
            kind: Kind::ModelRateLimited,
            attempt: 1,
            next_attempt: 2,
            max_attempts: 3,
            wait_ms: 90_000,
            due_at: Timestamp::from_micros(0),
            scope: Default::default(),
        };
        let found = seen(&[
            (0, start()),
            (10, started),
            (300_000, ended),
            (300_100, late),
            (300_200, retry),
            (390_200, text()),
            (390_300, end(StopReason::EndTurn)),
        ]);
        assert_eq!(found, []);
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
            purpose: QuestionPurpose::Permission,
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

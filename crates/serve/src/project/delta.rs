//! A fast path for text deltas, which are most of the frames. The record stores the text as JSON, and the frame uses
//! the same JSON, so the text is copied instead of decoded and encoded.
//!
//! The output is byte for byte that of [`Projector::project`] and [`Frame::encode`](crate::frame::Frame::encode); tests
//! compare the two.

use std::{
    borrow::Cow,
    fmt::{Display, Write as _},
};

use budao_core::{
    Event, Timestamp,
    event::{Epoch, Seq, SessionId},
    trace::Trace,
};
use budao_journal::StoredRecord;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::Projector;
use crate::texts::{PARTIAL_CHARS, count_words, cut, is_plain};

/// The first bytes of a stored text delta.
const TEXT_DELTA_PREFIX: &[u8] = br#"{"text_delta":"#;
/// The fixed parts of a stored text delta, around step and text.
const DELTA_JSON: [&str; 3] = [r#"{"text_delta":{"step":"#, r#","text":"#, "}}"];
/// Estimated bytes of a frame in addition to the text and the template, for the initial allocation.
const FRAME_OVERHEAD: usize = 224;

/// A text delta as stored.
#[derive(Deserialize)]
enum StoredDelta<'a> {
    #[serde(rename = "text_delta", borrow)]
    TextDelta(DeltaText<'a>),
}

#[derive(Deserialize)]
struct DeltaText<'a> {
    step: u32,
    /// The text as JSON, including the quotes.
    #[serde(borrow)]
    text: &'a RawValue,
}

/// A decoded text delta.
struct ParsedDelta<'a> {
    step: u32,
    /// The text as JSON, including the quotes.
    json: &'a str,
    text: Cow<'a, str>,
}

impl<'a> ParsedDelta<'a> {
    /// Decodes a record; `None` if it is not a text delta.
    fn of(body: &'a [u8]) -> Option<Self> {
        if !body.starts_with(TEXT_DELTA_PREFIX) {
            return None;
        }
        Self::parse_without_escapes(str::from_utf8(body).ok()?)
            .or_else(|| Self::parse_with_escapes(body))
    }

    /// Decodes without a JSON parser; `None` if the text contains escapes.
    fn parse_without_escapes(body: &'a str) -> Option<Self> {
        let [begin, between, end] = DELTA_JSON;
        let (step, json) = body.strip_prefix(begin)?.strip_suffix(end)?.split_once(between)?;
        let text = json.strip_prefix('"')?.strip_suffix('"')?;
        let is_number = step.bytes().all(|digit| digit.is_ascii_digit());
        let step = step.parse().ok().filter(|_| is_number && is_plain(text.as_bytes()))?;
        Some(Self { step, json, text: Cow::Borrowed(text) })
    }

    fn parse_with_escapes(body: &'a [u8]) -> Option<Self> {
        let StoredDelta::TextDelta(DeltaText { step, text }) = serde_json::from_slice(body).ok()?;
        let json = text.get();
        let text = serde_json::from_str(json).ok().map(Cow::Owned)?;
        Some(Self { step, json, text })
    }
}

/// A record's position, time and trace.
#[derive(Clone, Copy, Debug)]
pub(super) struct RecordOrigin {
    pub(super) session: SessionId,
    pub(super) epoch: Epoch,
    pub(super) seq: Seq,
    pub(super) at: Timestamp,
    pub(super) trace: Trace,
}

impl From<&StoredRecord> for RecordOrigin {
    fn from(stored: &StoredRecord) -> Self {
        let StoredRecord { session, epoch, seq, at, trace, .. } = *stored;
        Self { session, epoch, seq, at, trace }
    }
}

/// The parts that all frames of a session share, encoded once.
#[derive(Clone, Debug)]
pub(super) struct FrameTemplate {
    of: (SessionId, Epoch),
    /// From the epoch to the position in the event id.
    before_number: String,
    /// From the end of the timestamp to the content.
    before_content: String,
    /// The last encoded timestamp; many frames have the same one.
    millis: i64,
    time: String,
}

impl FrameTemplate {
    fn new(session: SessionId, epoch: Epoch) -> Self {
        Self {
            of: (session, epoch),
            before_number: format!(r#","epoch":"{epoch}","event_id":"{session}.{epoch}."#),
            before_content: format!(r#"","session_id":"{session}","content":"#),
            millis: i64::MIN,
            time: String::new(),
        }
    }

    fn time(&mut self, at: Timestamp) {
        if self.millis != at.as_millis() || self.time.is_empty() {
            self.millis = at.as_millis();
            self.time.clear();
            let _ = write!(self.time, "{at}");
        }
    }
}

impl Projector {
    /// Encodes the frame of a text delta. `None` if the record is of another type, or the session belongs to a stage.
    pub(super) fn delta(&mut self, origin: RecordOrigin, body: &[u8]) -> Option<String> {
        // Frames of a stage carry further fields, so they take the normal path.
        if self.session.origin.is_some() {
            return None;
        }
        let ParsedDelta { step, json, text } = ParsedDelta::of(body)?;
        let of = (origin.session, origin.epoch);
        let template = match &mut self.template {
            Some(template) if template.of == of => template,
            other => other.insert(Box::new(FrameTemplate::new(of.0, of.1))),
        };
        template.time(origin.at);
        let common = template.before_number.len() + template.before_content.len();
        let mut out = String::with_capacity(2 * json.len() + common + FRAME_OVERHEAD);
        out.push_str(r#"{"event":"agent.partial_answer","seq":"#);
        push_number(&mut out, origin.seq);
        out.push_str(r#","prev":"#);
        push_number(&mut out, self.prev);
        out.push_str(&template.before_number);
        push_number(&mut out, origin.seq);
        out.push_str(r#"","timestamp":""#);
        out.push_str(&template.time);
        out.push_str(&template.before_content);
        out.push_str(json);
        out.push_str(r#","metadata":{"is_streaming":true,"is_final":false,"word_count":"#);
        push_number(&mut out, count_words(&text));
        out.push_str(r#","step":"#);
        push_number(&mut out, step);
        out.push_str(r#"},"show_content":"#);
        match cut(&text, PARTIAL_CHARS) {
            Cow::Borrowed(_) => out.push_str(json),
            Cow::Owned(short) => out.push_str(&serde_json::to_string(&short).ok()?),
        }
        out.push('}');
        // The fold ignores the text, so it gets an empty one.
        let event = Event::TextDelta { step, text: String::new() };
        self.session.apply(&event, origin.at, origin.trace);
        self.prev = origin.seq;
        Some(out)
    }
}

fn push_number(out: &mut String, number: impl Display) {
    let _ = write!(out, "{number}");
}

#[cfg(test)]
mod tests {
    use budao_core::{Record, session::Session};
    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;

    const ID: SessionId = SessionId(Uuid::from_u128(7));

    fn record(seq: Seq, micros: i64, event: Event) -> Record {
        let (at, trace) = (Timestamp::from_micros(micros), Trace::NONE);
        Record { session: ID, epoch: Epoch(9), seq, at, trace, turn: 1, event }
    }

    fn origin_of(record: &Record) -> RecordOrigin {
        let Record { session, epoch, seq, at, trace, .. } = *record;
        RecordOrigin { session, epoch, seq, at, trace }
    }

    /// Encodes the same deltas on the fast path and on the normal path.
    fn both(words: &[(u32, String, i64)]) -> [(Vec<Option<String>>, Session, Seq); 2] {
        let start = Projector::new(&Session::default(), 0);
        let (mut quick, mut usual) = (start.clone(), start);
        let (mut quickly, mut usually) = (Vec::new(), Vec::new());
        for (seq, (step, text, micros)) in (1..).zip(words) {
            let record = record(seq, *micros, Event::TextDelta { step: *step, text: text.clone() });
            quickly.push(quick.delta(origin_of(&record), &record.event.encode()));
            usually.push(usual.project(&record).map(|frame| frame.encode()));
        }
        [(quickly, quick.session, quick.prev), (usually, usual.session, usual.prev)]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        #[test]
        fn the_fast_path_encodes_a_text_delta_byte_for_byte_like_the_projector(
            words in prop::collection::vec((any::<u32>(), "(?s).{0,300}", any::<i64>()), 1..5),
        ) {
            let [quick, usual] = both(&words);
            prop_assert_eq!(quick, usual);
        }
    }

    #[test]
    fn the_fast_path_escapes_and_cuts_a_text_delta_like_the_projector() {
        let texts = ["", " ", "two words", "a\"b\\c\n\u{1}\u{7f}", "不倒翁", "\u{b}x\u{a0}y"];
        let long = ["x".repeat(201), "\"".repeat(201), "不".repeat(201), "a b\n".repeat(80)];
        let texts = texts.map(str::to_owned).into_iter().chain(long);
        let [quick, usual] = both(&texts.map(|text| (3, text, 1_000)).collect::<Vec<_>>());
        assert!(quick.0.iter().all(Option::is_some));
        assert_eq!(quick, usual);
    }

    #[test]
    fn the_fast_path_leaves_other_records_to_the_projector() {
        let mut projector = Projector::new(&Session::default(), 0);
        let thought = record(1, 0, Event::ThinkingDelta { step: 1, text: "hm".to_owned() });
        assert_eq!(projector.delta(origin_of(&thought), &thought.event.encode()), None);
        for body in ["", "{\"text_delta\":", r#"{"text_delta":{"step":1,"text":7}}"#] {
            assert_eq!(projector.delta(origin_of(&thought), body.as_bytes()), None, "{body}");
        }
        assert_eq!(projector.last(), 0);
    }
}

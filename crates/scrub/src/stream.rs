//! Scrubs text that arrives in parts.
//!
//! Emitted text cannot be taken back, so the stream holds text until no later text can change its verdict. Every rule
//! reports when it would have read past the end (see [`super::text`]), and the stream holds from there. The output of
//! one pass is the input of the next, with as many passes as a complete text gets. As long as no rule finds anything, a
//! [`CleanWindow`] does the work of all passes. The joined output equals [`super::Scrubber::scrub`] of the complete text,
//! except when undecided text exceeds [`HELD_MAX`]: it is then decided as it is, and a secret that continues is
//! discarded up to its end.

mod clean_window;

use std::fmt;
use std::sync::Arc;

use self::clean_window::CleanWindow;

use super::known_secrets::KnownSecrets;
use super::replacement::{self, Marker, Replacement};
use super::rules::{
    self, READ_BEFORE_MAX, ScanScope, TAKEN_BEFORE_MAX, TRIGGER_MAX, UndecidedSpan,
};
use super::text::Class;
use super::{PASSES_MAX, encoded_run};

/// The most bytes that one pass holds back, in addition to one part.
const HELD_MAX: usize = 32 * 1024;
/// Bytes that stay held after the limit was reached; no shorter secret is cut.
const HELD_AFTER_LIMIT: usize = 4 * 1024;
/// The first pass scans held text shorter than this for every [`FRESH_MIN`] bytes, and longer text when it has grown by
/// a quarter. Later passes always wait for that growth, because they rarely find anything.
const EAGER_MAX: usize = 1024;
/// New bytes that the first pass waits for before it scans again. Each scan reads all held text, about 150 bytes, so a
/// scan for every word would read every byte 25 times.
const FRESH_MIN: usize = 24;
/// Bytes that a discarded secret needs to detect its end.
const SWALLOW_TAIL: usize = 64;
/// The least bytes before the end of the text, or before an undecided place, that stay held.
const UNDECIDED_TAIL: usize = TRIGGER_MAX + TAKEN_BEFORE_MAX;
/// New bytes that the search for configured secrets waits for, because it reads the held text again.
const EXACT_FRESH_MIN: usize = 48;

/// Scrubs text that arrives in parts. Created by [`super::Scrubber::stream`].
pub struct ScrubStream {
    known: Option<ExactPass>,
    stage: PatternStage,
}

impl fmt::Debug for ScrubStream {
    /// Shows only the number of held bytes, because held text may be the start of a secret.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let held: usize = match &self.stage {
            PatternStage::Clean(window) => window.held_bytes(),
            PatternStage::Passes(passes) => passes.iter().map(PatternPass::held_bytes).sum(),
        };
        formatter.debug_struct("ScrubStream").field("held_bytes", &held).finish_non_exhaustive()
    }
}

impl ScrubStream {
    pub(super) fn new(exact: Option<Arc<KnownSecrets>>) -> Self {
        let known = exact.map(|exact| ExactPass { exact, text: String::new() });
        Self { known, stage: PatternStage::Clean(CleanWindow::default()) }
    }

    /// Takes the next part; returns all text decided so far, often slightly less than was put in.
    pub fn push(&mut self, piece: &str) -> String {
        let mut out = String::new();
        match &mut self.known {
            Some(known) => self.stage.push(&known.push(piece), &mut out),
            None => self.stage.push(piece, &mut out),
        }
        out
    }

    /// Ends the text; returns the rest.
    pub fn finish(mut self) -> String {
        let rest = self.known.take().map(ExactPass::finish).unwrap_or_default();
        let mut out = String::new();
        self.stage.push(&rest, &mut out);
        self.stage.finish(&mut out);
        out
    }
}

/// The second stage: replaces what looks like a secret.
enum PatternStage {
    /// No rule has found anything in the held text.
    Clean(CleanWindow),
    Passes([PatternPass; PASSES_MAX]),
}

impl PatternStage {
    fn push(&mut self, piece: &str, out: &mut String) {
        match self {
            Self::Clean(window) => {
                if window.push(piece, out).is_err() {
                    *self = Self::Passes(std::mem::take(window).into_passes(out));
                }
            }
            Self::Passes(passes) => {
                let through = passes.iter_mut();
                out.push_str(&through.fold(piece.to_owned(), |text, pass| pass.push(&text)));
                if let Some(window) = CleanWindow::from_passes(passes) {
                    *self = Self::Clean(window);
                }
            }
        }
    }

    fn finish(self, out: &mut String) {
        let passes = match self {
            Self::Clean(window) if window.finish(out).is_ok() => return,
            Self::Clean(window) => window.into_passes(out),
            Self::Passes(passes) => passes,
        };
        let rest = passes.into_iter().fold(String::new(), |text, mut pass| {
            let mut out = pass.push(&text);
            pass.finish(&mut out);
            out
        });
        out.push_str(&rest);
    }
}

/// The end of the decided text, `tail` bytes before the first undecided place. It never falls inside a run, so that the
/// next scan sees the complete run.
fn end_of_decided(text: &str, open: usize, tail: usize, held: usize) -> usize {
    let limit = open.saturating_sub(tail).max(held);
    let limit = encoded_run::run_start(text.as_bytes(), limit, held);
    text.floor_char_boundary(limit).max(held)
}

/// The first stage: removes configured secrets.
struct ExactPass {
    exact: Arc<KnownSecrets>,
    text: String,
}

impl ExactPass {
    fn push(&mut self, piece: &str) -> String {
        self.text.push_str(piece);
        if self.text.len() < self.exact.longest + EXACT_FRESH_MIN {
            return String::new();
        }
        let spans: Vec<Replacement> = self.exact.spans(&self.text).collect();
        let limit = self.text.len().saturating_sub(self.exact.longest);
        let limit = self.text.floor_char_boundary(limit);
        let inside = spans.iter().find(|span| span.start < limit && limit < span.end);
        let limit = inside.map_or(limit, |span| span.start);
        let decided = spans.partition_point(|span| span.end <= limit);
        let mut out = String::new();
        replacement::replace(&self.text, 0, limit, &spans[..decided], &mut out);
        self.text.drain(..limit);
        out
    }

    fn finish(self) -> String {
        self.exact.replace(&self.text).into_owned()
    }
}

/// One pass of the second stage.
#[derive(Default)]
struct PatternPass {
    /// Recently emitted text, for rules that look back, followed by the held text.
    text: String,
    /// The index in `text` where the held text starts.
    held: usize,
    /// The length of `text` at the last scan.
    seen: usize,
    swallowing: Option<Marker>,
    /// Held text shorter than this is scanned for every [`FRESH_MIN`] bytes.
    eager: usize,
    /// Bytes that the pass emitted unchanged since it last replaced something.
    unchanged: usize,
}

impl PatternPass {
    /// A pass that has emitted `before`.
    fn after(before: &str) -> Self {
        Self { text: before.to_owned(), held: before.len(), ..Self::default() }
    }

    fn held_bytes(&self) -> usize {
        self.text.len() - self.held
    }

    fn held_text(&self) -> &str {
        &self.text[self.held..]
    }

    fn push(&mut self, piece: &str) -> String {
        let mut out = String::new();
        if piece.is_empty() {
            return out;
        }
        self.text.push_str(piece);
        if self.swallow(&mut out) && self.is_worth_a_look() {
            self.release(&mut out);
        }
        out
    }

    fn finish(mut self, out: &mut String) {
        match self.swallowing.take() {
            Some(marker) => grown(marker, &self.text.as_bytes()[self.held..]).write(out),
            None => {
                let scan = rules::scan(&self.text, self.held, ScanScope::End);
                replacement::replace(&self.text, self.held, self.text.len(), &scan.spans, out);
            }
        }
    }

    /// Whether enough text has arrived to justify a scan, whose cost grows with the held text.
    fn is_worth_a_look(&self) -> bool {
        let held = self.held_bytes();
        let fresh = self.text.len().saturating_sub(self.seen.max(self.held));
        (held <= self.eager && fresh >= FRESH_MIN) || fresh * 4 >= held
    }

    fn release(&mut self, out: &mut String) {
        loop {
            let scan = rules::scan(&self.text, self.held, ScanScope::BeforeUndecided);
            self.seen = self.text.len();
            let limit = self.limit(&scan.spans, scan.open);
            if self.text.len() - limit <= HELD_MAX {
                return self.give(limit, &scan.spans, out);
            }
            // The limit is exceeded. A secret that continues is discarded; any other text is decided now.
            let Some(secret) = scan.open.and_then(|open| open.span) else {
                return self.decide(out);
            };
            self.give(secret.start.max(self.held), &scan.spans, out);
            self.swallowing = Some(secret.marker.first());
            if !self.swallow(out) {
                return;
            }
        }
    }

    /// The end of the decided text.
    fn limit(&self, spans: &[Replacement], open: Option<UndecidedSpan>) -> usize {
        let end = open.map_or(self.text.len(), |open| open.start);
        let mut limit = end_of_decided(&self.text, end, UNDECIDED_TAIL, self.held);
        // The limit never falls between a secret and its evidence.
        for span in spans.iter().rev() {
            if span.cause < limit && limit < span.end {
                limit = span.cause;
            }
        }
        self.text.floor_char_boundary(limit).max(self.held)
    }

    /// Emits all but the last part of the held text, as if the text ended here.
    fn decide(&mut self, out: &mut String) {
        let scan = rules::scan(&self.text, self.held, ScanScope::End);
        let cut = self.text.floor_char_boundary(self.text.len() - HELD_AFTER_LIMIT);
        let inside = scan.spans.iter().find(|span| span.cause < cut && cut < span.end);
        self.give(inside.map_or(cut, |span| span.end), &scan.spans, out);
    }

    /// Emits held text before `limit`, and keeps some of it for rules that look back.
    fn give(&mut self, limit: usize, spans: &[Replacement], out: &mut String) {
        let decided = spans.partition_point(|span| span.end <= limit);
        replacement::replace(&self.text, self.held, limit, &spans[..decided], out);
        self.unchanged = match spans[..decided].last() {
            Some(last) => limit - last.end,
            None => self.unchanged + limit - self.held,
        };
        self.held = limit;
        let start = self.text.floor_char_boundary(limit.saturating_sub(READ_BEFORE_MAX));
        // Moving the text costs its length, so it is done only when it frees enough.
        if start > READ_BEFORE_MAX.max(self.text.len() / 4) {
            self.text.drain(..start);
            self.held -= start;
            self.seen = self.seen.saturating_sub(start);
        }
    }

    /// Discards more of a secret that exceeded the limit; returns whether nothing is left to discard.
    fn swallow(&mut self, out: &mut String) -> bool {
        let Some(marker) = self.swallowing else { return true };
        self.unchanged = 0;
        let held = &self.text.as_bytes()[self.held..];
        if let Some(length) = secret_end(marker, held) {
            grown(marker, &held[..length]).write(out);
            self.swallowing = None;
            self.held += length;
            return true;
        }
        let keep = self.text.floor_char_boundary(self.text.len().saturating_sub(SWALLOW_TAIL));
        if keep > self.held {
            self.swallowing = Some(grown(marker, &self.text.as_bytes()[self.held..keep]));
            self.text.drain(..keep);
            self.held = 0;
        }
        self.seen = 0;
        false
    }
}

/// The marker, with the lines of `more` added if it counts lines.
fn grown(marker: Marker, more: &[u8]) -> Marker {
    match marker {
        Marker::Trace(lines) => Marker::Trace(lines + memchr::memchr_iter(b'\n', more).count()),
        other => other,
    }
}

/// The end in `bytes` of a secret with this marker, if it ends there.
fn secret_end(marker: Marker, bytes: &[u8]) -> Option<usize> {
    let ends = |byte: u8| match marker {
        Marker::Cookie => !byte.is_ascii_graphic() && byte != b' ' || matches!(byte, b'"' | b'\''),
        Marker::Connection => !Class::Url.has(byte),
        Marker::Credentials => matches!(byte, b'\n' | b'"' | b'\''),
        Marker::Base64 => !Class::Padded.has(byte) && !matches!(byte, b'\n' | b'\r' | b'\\'),
        _ => !Class::Value.has(byte),
    };
    match marker {
        Marker::PrivateKey => {
            let end = memchr::memmem::find(bytes, b"-----END")? + 8;
            Some(end + memchr::memmem::find(&bytes[end..], b"-----")? + 5)
        }
        Marker::Trace(_) => memchr::memchr_iter(b'\n', bytes).find(|&at| {
            bytes.get(at + 1).is_some_and(|next| !matches!(next, b' ' | b'\t' | b'\n'))
        }),
        _ => bytes.iter().position(|&byte| ends(byte)),
    }
}

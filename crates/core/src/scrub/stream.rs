//! Text that comes in pieces.
//!
//! What is given out is never taken back, so a piece is held until nothing that may still come can
//! change it: every rule notes when it would have read past the end (see [`super::text`]), and the
//! stream holds from there. Joined together, what comes out is what [`Scrubber::scrub`] makes of the
//! whole, except where something undecided grows past [`HELD_MAX`]; then it is decided as it stands,
//! and a secret that is still going on is swallowed to its end.

use super::Scrubber;
use super::rules::{Open, READ_BEFORE_MAX, TAKEN_BEFORE_MAX, TRIGGER_MAX, Until};
use super::span::{self, Marker, Span};
use super::text::Class;
use super::wrapped;

/// The most that is held back, in bytes, besides one piece.
const HELD_MAX: usize = 32 * 1024;
/// What stays held when the limit was hit: no secret shorter than this is cut.
const HELD_AFTER_LIMIT: usize = 4 * 1024;
/// Held text shorter than this is looked at with every piece; longer text, when it has grown a quarter.
const EAGER_MAX: usize = 1024;
/// What a swallowed secret needs to see to know its end.
const SWALLOW_TAIL: usize = 64;

/// Scrubs text that comes in pieces. Made by [`Scrubber::stream`].
#[derive(Debug)]
pub struct Stream {
    scrubber: Scrubber,
    /// What was given out lately, for rules that look back, and then what is held.
    text: String,
    /// Where in `text` what is held starts.
    held: usize,
    /// How long `text` was when it was last looked at.
    seen: usize,
    swallowing: Option<Marker>,
}

impl Stream {
    pub(super) fn new(scrubber: Scrubber) -> Self {
        Self { scrubber, text: String::new(), held: 0, seen: 0, swallowing: None }
    }

    /// Takes the next piece; returns what is certain by now, often a little less than was put in.
    pub fn push(&mut self, piece: &str) -> String {
        self.text.push_str(piece);
        let mut out = String::new();
        if self.swallow(&mut out) && self.is_worth_a_look() {
            self.release(&mut out);
        }
        out
    }

    /// The text has ended: returns the rest.
    pub fn finish(mut self) -> String {
        let mut out = String::new();
        self.swallow(&mut out);
        match self.swallowing.take() {
            Some(marker) => grown(marker, self.text.as_bytes()).write(&mut out),
            None => {
                let scan = self.scrubber.scan(&self.text, self.held, Until::End);
                span::replace(&self.text, self.held, self.text.len(), &scan.spans, &mut out);
            }
        }
        out
    }

    /// Looking costs as much as is held; so it is done when enough has come to pay for it.
    fn is_worth_a_look(&self) -> bool {
        let held = self.text.len() - self.held;
        let fresh = self.text.len() - self.seen.max(self.held).min(self.text.len());
        held <= EAGER_MAX || fresh * 4 >= held
    }

    fn release(&mut self, out: &mut String) {
        loop {
            let scan = self.scrubber.scan(&self.text, self.held, Until::Open);
            self.seen = self.text.len();
            let limit = self.limit(&scan.spans, scan.open);
            if self.text.len() - limit <= HELD_MAX {
                return self.give(limit, &scan.spans, out);
            }
            // More than may be held. A secret that goes on is swallowed; anything else is decided.
            if let Some(span) = scan.open.and_then(|open| open.span) {
                let start = span.start.max(self.held);
                self.give(start, &scan.spans, out);
                self.swallowing = Some(span.marker);
                if !self.swallow(out) {
                    return;
                }
            } else {
                let scan = self.scrubber.scan(&self.text, self.held, Until::End);
                let cut = self.text.len() - HELD_AFTER_LIMIT;
                let inside = scan.spans.iter().find(|span| span.start < cut && cut < span.end);
                let cut = inside.map_or(cut, |span| span.end);
                return self.give(self.text.floor_char_boundary(cut), &scan.spans, out);
            }
        }
    }

    /// Up to where everything is decided.
    fn limit(&self, spans: &[Span], open: Option<Open>) -> usize {
        let bytes = self.text.as_bytes();
        let back = TRIGGER_MAX + TAKEN_BEFORE_MAX;
        let tail = back.max(self.scrubber.exact_tail());
        let mut limit = bytes.len().saturating_sub(tail);
        if let Some(open) = open {
            limit = limit.min(open.start.saturating_sub(back));
        }
        limit = limit.max(self.held);
        // Never inside a run, so that the next look sees it whole.
        limit = wrapped::run_start(bytes, limit, self.held);
        let inside = spans.iter().find(|span| span.start < limit && limit < span.end);
        self.text.floor_char_boundary(inside.map_or(limit, |span| span.start)).max(self.held)
    }

    /// Gives out what is held before `limit`, and keeps a little of it to look back at.
    fn give(&mut self, limit: usize, spans: &[Span], out: &mut String) {
        let decided = spans.partition_point(|span| span.end <= limit && span.start < limit);
        span::replace(&self.text, self.held, limit, &spans[..decided], out);
        self.forget(limit);
    }

    fn forget(&mut self, limit: usize) {
        let start = self.text.floor_char_boundary(limit.saturating_sub(READ_BEFORE_MAX));
        // Moving the text costs as much as it is long: only when there is something to win.
        if start > READ_BEFORE_MAX.max(self.text.len() / 4) {
            self.text.drain(..start);
            self.held = limit - start;
            self.seen = self.seen.saturating_sub(start);
        } else {
            self.held = limit;
        }
    }

    /// Goes on with a secret that outgrew the limit; returns whether none is left to swallow.
    fn swallow(&mut self, out: &mut String) -> bool {
        let Some(marker) = self.swallowing else { return true };
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

/// The marker, with the lines of `more` counted in if it counts lines.
fn grown(marker: Marker, more: &[u8]) -> Marker {
    match marker {
        Marker::Trace(lines) => Marker::Trace(lines + memchr::memchr_iter(b'\n', more).count()),
        other => other,
    }
}

/// Where in `bytes` a secret of this sort ends, if it does.
fn secret_end(marker: Marker, bytes: &[u8]) -> Option<usize> {
    match marker {
        Marker::PrivateKey => {
            let end = memchr::memmem::find(bytes, b"-----END")? + 8;
            Some(end + memchr::memmem::find(&bytes[end..], b"-----")? + 5)
        }
        Marker::Trace(_) => memchr::memchr_iter(b'\n', bytes).find(|&at| {
            bytes.get(at + 1).is_some_and(|next| !matches!(next, b' ' | b'\t' | b'\n'))
        }),
        Marker::Cookie | Marker::Credentials => memchr::memchr3(b'\n', b'"', b'\'', bytes),
        Marker::Base64 => bytes
            .iter()
            .position(|&byte| !Class::Padded.has(byte) && !matches!(byte, b'\n' | b'\r' | b'\\')),
        _ => bytes.iter().position(|&byte| !Class::Value.has(byte)),
    }
}

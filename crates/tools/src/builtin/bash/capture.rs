//! Bounded capture of a command's output: its start, its end and its total size.

use std::collections::VecDeque;

use bytes::Bytes;
use encoding_rs::{Decoder, UTF_8};

use super::super::budget;
use crate::contract::NoteSender;

/// Output captured so far. Memory use is bounded by the size given at creation.
#[derive(Debug)]
pub(super) struct Capture {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    half: usize,
    total: u64,
}

/// The shown part of an output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Excerpt {
    pub(super) text: String,
    /// True if the text omits part of the output.
    pub(super) cut: bool,
}

impl Capture {
    /// Creates a capture for `room` bytes, half for the start and half for the end.
    pub(super) fn new(room: usize) -> Self {
        Self { head: Vec::new(), tail: VecDeque::new(), half: room / 2, total: 0 }
    }

    /// Appends output and drops bytes from the middle if necessary.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        let (head, rest) = bytes.split_at(bytes.len().min(self.half - self.head.len()));
        self.head.extend_from_slice(head);
        let rest = &rest[rest.len().saturating_sub(self.half)..];
        let over = (self.tail.len() + rest.len()).saturating_sub(self.half);
        self.tail.drain(..over);
        self.tail.extend(rest);
    }

    /// Bytes received in all, including those not kept.
    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// The whole output, if none of it was dropped.
    pub(super) fn whole(&self) -> Option<Bytes> {
        let buffered = self.head.len() + self.tail.len();
        (buffered as u64 == self.total).then(|| self.buffered().into())
    }

    fn buffered(&self) -> Vec<u8> {
        self.head.iter().chain(&self.tail).copied().collect()
    }

    /// Start and end of the output within `room` JSON bytes. Invalid UTF-8 becomes replacement characters.
    pub(super) fn shown(&self, room: usize) -> Excerpt {
        if let Some(whole) = self.whole() {
            let text = String::from_utf8_lossy(&whole);
            if budget::json_bytes(&text) <= room {
                return Excerpt { text: text.into_owned(), cut: false };
            }
            return cut(&text, &text, self.total, room);
        }
        let tail: Vec<u8> = self.tail.iter().copied().collect();
        // The kept end may start in the middle of a character.
        let start = tail.iter().take(3).take_while(|byte| **byte & 0xc0 == 0x80).count();
        let tail = String::from_utf8_lossy(&tail[start..]);
        cut(&String::from_utf8_lossy(&self.head), &tail, self.total, room)
    }

    /// The kept bytes as text.
    pub(super) fn end(&self) -> String {
        String::from_utf8_lossy(&self.buffered()).into_owned()
    }
}

fn cut(from: &str, to: &str, total: u64, room: usize) -> Excerpt {
    let (head, tail) = (budget::head(from, room / 2), budget::tail(to, room / 2));
    let left_out = total.saturating_sub((head.len() + tail.len()) as u64);
    Excerpt { text: format!("{head}\n… {left_out} bytes left out …\n{tail}"), cut: true }
}

/// Sends output to the session as it arrives, up to a limit. For display only.
pub(super) struct LiveOutput {
    notes: NoteSender,
    decoder: Decoder,
    left: usize,
}

impl LiveOutput {
    pub(super) fn new(notes: NoteSender, bytes: usize) -> Self {
        Self { notes, decoder: UTF_8.new_decoder_without_bom_handling(), left: bytes }
    }

    /// Sends more output. A character split between two reads is sent with the second.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        if self.left == 0 {
            return;
        }
        let bytes = &bytes[..bytes.len().min(self.left)];
        self.left -= bytes.len();
        let mut text = String::with_capacity(bytes.len() * 3 + 16);
        let _ = self.decoder.decode_to_string(bytes, &mut text, false);
        if !text.is_empty() {
            self.notes.show(text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_bounded_and_both_ends_are_kept() {
        let mut capture = Capture::new(8);
        for piece in ["abc", "defghij", "klm", "nopqrstuvwxyz"] {
            capture.push(piece.as_bytes());
        }
        assert_eq!(capture.total(), 26);
        assert_eq!((capture.head.len(), capture.tail.len()), (4, 4));
        assert_eq!(capture.whole(), None);
        assert_eq!(capture.shown(8).text, "abcd\n… 18 bytes left out …\nwxyz");
    }

    #[test]
    fn what_fits_is_shown_as_it_is() {
        let mut capture = Capture::new(64);
        capture.push(b"ok \xff\n");
        assert_eq!(capture.shown(64), Excerpt { text: "ok \u{fffd}\n".into(), cut: false });
        assert_eq!(capture.whole().unwrap().as_ref(), b"ok \xff\n");
    }

    #[test]
    fn a_character_in_two_pieces_is_shown_once_and_whole() {
        let (notes, mut seen) = NoteSender::channel(8);
        let mut live = LiveOutput::new(notes, 100);
        let bytes = "不倒".as_bytes();
        live.push(&bytes[..2]);
        live.push(&bytes[2..]);
        assert_eq!(seen.try_recv().unwrap(), crate::contract::Note::Output("不倒".into()));
    }
}

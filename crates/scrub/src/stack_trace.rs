//! Stack traces, found by their first line and replaced by a line count.
//!
//! The error message is not part of the trace and stays. Line breaks may be escaped, because traces often travel inside
//! JSON.

use super::replacement::{Marker, Replacement};
use super::text::{Class, ScanText};

/// The longest line that is examined, in bytes. Frames are shorter.
const LINE_MAX: usize = 1024;

/// Python: `Traceback (most recent call last):`, then every indented line.
pub(super) fn python(text: &ScanText<'_>, start: usize, _end: usize) -> Option<Replacement> {
    let lines = TraceLines::headed(text, start)?;
    collapse(&lines, start, |line| line.indent > 0 && !line.is_empty())
}

/// Rust: `stack backtrace:`, then numbered frames and their locations.
pub(super) fn rust(text: &ScanText<'_>, start: usize, _end: usize) -> Option<Replacement> {
    let lines = TraceLines::headed(text, start)?;
    collapse(&lines, start, |line| {
        let digits = line.bytes.iter().take_while(|byte| byte.is_ascii_digit()).count();
        line.indent > 0 && (digits > 0 && line.bytes[digits..].starts_with(b":") || line.is_at())
    })
}

/// Go: `goroutine 1 [running]:`, then pairs of a call and its location; blank lines join goroutines.
pub(super) fn go(text: &ScanText<'_>, start: usize, end: usize) -> Option<Replacement> {
    let digits = text.run_within(Class::Digit, end, 12);
    if digits == end || !text.starts(digits, b" [") {
        return None;
    }
    let lines = TraceLines::headed(text, start)?;
    collapse(&lines, start, |line| {
        let call = line.bytes.ends_with(b")") && line.is_go_call();
        let made = line.bytes.starts_with(b"created by ") || line.bytes.starts_with(b"goroutine ");
        let place = line.indent > 0 && memchr::memmem::find(line.bytes, b".go:").is_some();
        line.is_empty() || made || place || (line.indent == 0 && call)
    })
}

/// JavaScript, Java and C#: consecutive lines that begin with `at`.
pub(super) fn at_lines(text: &ScanText<'_>, start: usize, end: usize) -> Option<Replacement> {
    let at = end - 3;
    let start = text.backslashes_before(start);
    if !text.line_starts(start) || text.before(start) == b'-' {
        return None;
    }
    let lines = TraceLines::new(text, at);
    let first = lines.line(at)?;
    if !first.is_at() {
        return None;
    }
    let span = collapse(&lines, at, is_frame);
    span.or(Some(Replacement::new(at, first.end, Marker::Trace(1))))
}

/// Ruby: lines that begin with `from` and contain a location.
pub(super) fn ruby(text: &ScanText<'_>, start: usize, end: usize) -> Option<Replacement> {
    let from = end - 5;
    let start = text.backslashes_before(start);
    if !text.line_starts(start) {
        return None;
    }
    let lines = TraceLines::new(text, from);
    let is_from = |line: &TraceLine<'_>| {
        line.bytes.starts_with(b"from ") && memchr::memmem::find(line.bytes, b":in ").is_some()
    };
    let first = lines.line(from).filter(&is_from)?;
    let span = collapse(&lines, from, |line| line.indent > 0 && is_from(line));
    span.or(Some(Replacement::new(from, first.end, Marker::Trace(1))))
}

/// Joins the line at `start` with every following line that `belongs`.
fn collapse(
    lines: &TraceLines<'_, '_>,
    start: usize,
    belongs: impl Fn(&TraceLine<'_>) -> bool,
) -> Option<Replacement> {
    let mut end = lines.line(start)?.end;
    let mut count = 1;
    // Lines that belong to the trace only if a non-empty line of it follows.
    let mut waiting = 0;
    let mut at = end;
    while let Some(length) = lines.text.line_break(at) {
        let Some(line) = lines.line(at + length).filter(&belongs) else { break };
        waiting += 1;
        at = line.end;
        if !line.is_empty() {
            end = at;
            count += waiting;
            waiting = 0;
        }
    }
    (count > 1).then(|| Replacement::new(start, end, Marker::Trace(count)))
}

/// The lines of a text, with real or escaped line breaks.
struct TraceLines<'t, 'a> {
    text: &'t ScanText<'a>,
    /// Backslashes before the `n` of an escaped line break; 0 for real ones.
    escaped: usize,
}

struct TraceLine<'a> {
    /// The bytes between the indentation and the line's end.
    bytes: &'a [u8],
    indent: usize,
    end: usize,
}

impl<'t, 'a> TraceLines<'t, 'a> {
    /// The lines of a trace whose heading starts a word at `start`.
    fn headed(text: &'t ScanText<'a>, start: usize) -> Option<Self> {
        text.word_starts(start).then(|| Self::new(text, start))
    }

    /// Determines the kind of line break from the line at `start`.
    fn new(text: &'t ScanText<'a>, start: usize) -> Self {
        let stop = (start..start + LINE_MAX).find(|&index| text.line_break(index).is_some());
        let escaped = stop.map_or(0, |stop| text.backslashes(stop));
        let escaped = if stop.is_none() && text.escape_ends(start) { 1 } else { escaped };
        Self { text, escaped }
    }

    /// The line at `start`, unless it is too long for a frame. The closing quote around an escaped trace ends it.
    fn line(&self, start: usize) -> Option<TraceLine<'a>> {
        let mut begin = start;
        loop {
            begin += match self.text.at(begin) {
                b' ' | b'\t' => 1,
                b'\\' if self.text.at(begin + self.text.backslashes(begin)) == b't' => {
                    self.text.backslashes(begin) + 1
                }
                _ => break,
            };
            if begin > start + LINE_MAX {
                return None;
            }
        }
        let end = self.end(begin)?;
        let bytes = self.text.slice(begin, end);
        Some(TraceLine { bytes: bytes.trim_ascii_end(), indent: begin - start, end })
    }

    /// The end of the line: a line break, the end of the text, or the quote that closes the string around an escaped
    /// trace. That quote has fewer backslashes than the line breaks inside.
    fn end(&self, begin: usize) -> Option<usize> {
        let mut at = begin;
        while at < begin + LINE_MAX {
            let slashes = self.text.backslashes(at);
            let quoted = self.text.at(at + slashes) == b'"';
            if self.text.line_break(at).is_some() || (quoted && slashes < self.escaped) {
                return Some(at);
            }
            if at >= self.text.len() {
                return Some(self.text.len());
            }
            at += slashes + 1;
        }
        None
    }
}

impl TraceLine<'_> {
    fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// `main.(*T).run(0x1)`: a dotted path right before its arguments.
    fn is_go_call(&self) -> bool {
        let open = self.bytes.iter().position(|&byte| byte == b'(').unwrap_or(0);
        let path = &self.bytes[..open];
        path == b"panic" || (path.contains(&b'.') && !path.contains(&b' '))
    }

    /// `at` and a location: `f (a.js:1:2)`, `a.js:1:2`, `A.b(C.java:3)`, `A.B(String) in C.cs:line 4`.
    fn is_at(&self) -> bool {
        let Some(rest) = self.bytes.strip_prefix(b"at ") else { return false };
        let place = |bytes: &[u8]| {
            let digits = bytes.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
            let head = &bytes[..bytes.len() - digits];
            digits > 0 && (head.ends_with(b":") || head.ends_with(b":line "))
        };
        if place(rest) || rest == b"<anonymous>" {
            return true;
        }
        let Some(open) = memchr::memrchr(b'(', rest).filter(|_| rest.ends_with(b")")) else {
            return false;
        };
        let (call, inner) = (rest[..open].trim_ascii_end(), &rest[open + 1..rest.len() - 1]);
        let known: [&[u8]; 6] = [
            b"<anonymous>",
            b"native",
            b"Native Method",
            b"Unknown Source",
            b"<unknown>",
            b"native code",
        ];
        let settled = known.contains(&inner) || inner.starts_with(b"index ");
        place(inner) || settled || (call.contains(&b'.') && !call.contains(&b' '))
    }
}

/// Whether the line continues a JavaScript, Java or C# trace.
fn is_frame(line: &TraceLine<'_>) -> bool {
    let more = line.bytes.starts_with(b"... ")
        && (line.bytes.ends_with(b"more") || line.bytes.ends_with(b"omitted"));
    let seam = line.bytes.starts_with(b"--- End of ");
    more || seam || (line.indent > 0 && line.is_at())
}

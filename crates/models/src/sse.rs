//! Reads server-sent events from a response body, with a limit on the size of an event.
//!
//! `sse-stream` does the parsing. It gets one line at a time, so that a bad line does not lose earlier events of the
//! same packet, and the result does not depend on how the bytes were split into packets.

use std::{
    fmt, io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use bytes::Bytes;
use futures::{
    Stream, StreamExt,
    stream::{self, BoxStream},
};
use sse_stream::SseStream;

/// The bytes of a response body, in packets.
pub(crate) type ByteStream = BoxStream<'static, Result<Bytes, io::Error>>;

/// One server-sent event that has data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SseEvent {
    /// The `event:` field. Most services repeat it in the data.
    pub(crate) name: Option<String>,
    pub(crate) data: String,
}

/// Why an event could not be read.
#[derive(Debug)]
pub(crate) enum EventStreamError {
    /// Reading the body failed, for example because the connection broke.
    Body(io::Error),
    /// The body is not UTF-8 or not an event stream. `position` is in bytes from the start of the body.
    Malformed { position: u64, reason: String },
    /// One event exceeds the size limit of a whole answer.
    TooLong,
}

/// Reads events from a response body.
pub(crate) struct SseEvents {
    source: BodySource,
    meter: Arc<Meter>,
    seen: bool,
    strange: u64,
}

enum BodySource {
    Stream(Pin<Box<dyn Stream<Item = Result<sse_stream::Sse, sse_stream::Error>> + Send>>),
    /// The body of a server that did not stream, taken as one event.
    Whole {
        body: ByteStream,
        bytes_max: usize,
        done: bool,
    },
}

#[derive(Default)]
struct Meter {
    total: AtomicU64,
    since_event: AtomicU64,
    ended: AtomicBool,
}

impl fmt::Debug for SseEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SseEvents").field("bytes", &self.position()).finish_non_exhaustive()
    }
}

impl SseEvents {
    /// Reads an event stream; an event longer than `bytes_max` is an error.
    pub(crate) fn new(body: ByteStream, bytes_max: usize) -> Self {
        let meter = Arc::new(Meter::default());
        let lines = lines(body, meter.clone(), bytes_max as u64);
        let source = BodySource::Stream(Box::pin(SseStream::from_bytes_stream(lines.boxed())));
        Self { source, meter, seen: false, strange: 0 }
    }

    /// Takes a whole body of at most `bytes_max` bytes as one event.
    pub(crate) fn of_body(body: ByteStream, bytes_max: usize) -> Self {
        let source = BodySource::Whole { body, bytes_max, done: false };
        Self { source, meter: Arc::default(), seen: false, strange: 0 }
    }

    /// The number of bytes read so far.
    pub(crate) fn position(&self) -> u64 {
        self.meter.total.load(Ordering::Relaxed)
    }

    /// True once the body has ended. An event read after that may be incomplete.
    pub(crate) fn ended(&self) -> bool {
        self.meter.ended.load(Ordering::Relaxed)
    }

    /// Reads the next event. Cancel safe: dropping the future loses no data.
    pub(crate) async fn next(&mut self) -> Option<Result<SseEvent, EventStreamError>> {
        let events = match &mut self.source {
            BodySource::Stream(events) => events,
            BodySource::Whole { done: true, .. } => return None,
            BodySource::Whole { body, bytes_max, done } => {
                *done = true;
                return Some(read_whole(body, *bytes_max).await.and_then(|bytes| {
                    self.meter.total.store(bytes.len() as u64, Ordering::Relaxed);
                    let data =
                        String::from_utf8(bytes).map_err(|error| EventStreamError::Malformed {
                            position: error.utf8_error().valid_up_to() as u64,
                            reason: "not UTF-8".into(),
                        })?;
                    Ok(SseEvent { name: None, data })
                }));
            }
        };
        loop {
            match events.next().await {
                Some(Ok(event)) => {
                    self.meter.since_event.store(0, Ordering::Relaxed);
                    self.seen = true;
                    // The standard says to ignore events without data.
                    let Some(data) = event.data else { continue };
                    return Some(Ok(SseEvent { name: event.event, data }));
                }
                // The standard says to ignore these lines.
                Some(Err(
                    sse_stream::Error::InvalidLine
                    | sse_stream::Error::DuplicatedEventLine
                    | sse_stream::Error::DuplicatedIdLine
                    | sse_stream::Error::DuplicatedRetry
                    | sse_stream::Error::IntParse(_),
                )) => self.strange += u64::from(!self.meter.ended.load(Ordering::Relaxed)),
                // The body ended in the middle of a character.
                Some(Err(sse_stream::Error::Utf8Parse(_))) if self.ended() => return None,
                Some(Err(sse_stream::Error::Utf8Parse(error))) => {
                    return Some(Err(self.malformed(error.to_string())));
                }
                Some(Err(sse_stream::Error::Body(error))) => return Some(Err(broken(error))),
                None if !self.seen && self.strange > 0 => {
                    self.seen = true;
                    return Some(Err(self.malformed("not an event stream".into())));
                }
                None => return None,
            }
        }
    }

    fn malformed(&self, reason: String) -> EventStreamError {
        EventStreamError::Malformed { position: self.position(), reason }
    }
}

/// The error that the byte stream yields for an event above the size limit.
#[derive(Debug)]
struct EventTooLong;

impl fmt::Display for EventTooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an event is too long")
    }
}

impl std::error::Error for EventTooLong {}

fn broken(error: Box<dyn std::error::Error + Send + Sync>) -> EventStreamError {
    match error.downcast::<io::Error>() {
        Ok(error) if matches!(error.get_ref(), Some(inner) if inner.is::<EventTooLong>()) => {
            EventStreamError::TooLong
        }
        Ok(error) => EventStreamError::Body(*error),
        Err(error) => EventStreamError::Body(io::Error::other(error)),
    }
}

/// Splits bytes into lines, counts them, and terminates an event that the server left open.
fn lines(
    body: ByteStream,
    meter: Arc<Meter>,
    bytes_max: u64,
) -> impl Stream<Item = Result<Bytes, io::Error>> + Send {
    stream::unfold(Some((body, Bytes::new(), false)), move |state| {
        let meter = meter.clone();
        async move {
            let (mut body, mut rest, mut after_return) = state?;
            while rest.is_empty() {
                match body.next().await {
                    Some(Ok(bytes)) if after_return && !bytes.is_empty() => {
                        // The LF of a CR LF that was split between two packets.
                        let cut = usize::from(bytes[0] == b'\n');
                        meter.total.fetch_add(cut as u64, Ordering::Relaxed);
                        rest = bytes.slice(cut..);
                        after_return = false;
                    }
                    Some(Ok(bytes)) => rest = bytes,
                    Some(Err(error)) => return Some((Err(error), None)),
                    None => {
                        meter.ended.store(true, Ordering::Relaxed);
                        return Some((Ok(Bytes::from_static(b"\n\n")), None));
                    }
                }
            }
            let mut line = rest.split_to(line_end(&rest));
            meter.total.fetch_add(line.len() as u64, Ordering::Relaxed);
            let since = meter.since_event.fetch_add(line.len() as u64, Ordering::Relaxed);
            if since + line.len() as u64 > bytes_max {
                return Some((Err(io::Error::other(EventTooLong)), None));
            }
            let after_return = line.ends_with(b"\r");
            if after_return {
                // After CR at the end of an unknown line, the parser takes a following LF for an empty line. So CR
                // becomes LF here.
                line = [&line[..line.len() - 1], b"\n"].concat().into();
            }
            Some((Ok(line), Some((body, rest, after_return))))
        }
    })
}

/// The length of the first line including its line end, or of all bytes if there is none.
fn line_end(bytes: &[u8]) -> usize {
    match bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
        Some(at) if bytes[at] == b'\r' && bytes.get(at + 1) == Some(&b'\n') => at + 2,
        Some(at) => at + 1,
        None => bytes.len(),
    }
}

/// Reads a body to its end; an error if it exceeds `bytes_max`.
async fn read_whole(body: &mut ByteStream, bytes_max: usize) -> Result<Vec<u8>, EventStreamError> {
    let mut whole = Vec::new();
    while let Some(bytes) = body.next().await {
        whole.extend_from_slice(&bytes.map_err(EventStreamError::Body)?);
        if whole.len() > bytes_max {
            return Err(EventStreamError::TooLong);
        }
    }
    Ok(whole)
}

/// Reads the start of a body, for an error message. Stops at the first read error.
pub(crate) async fn read_head(mut body: ByteStream, bytes_max: usize) -> Vec<u8> {
    let mut head = Vec::new();
    while let Some(Ok(bytes)) = body.next().await {
        head.extend_from_slice(&bytes);
        if head.len() >= bytes_max {
            head.truncate(bytes_max);
            break;
        }
    }
    head
}

#[cfg(test)]
mod tests {
    use futures::executor::block_on;

    use super::*;

    const MAX: usize = 1024;

    fn body(chunks: &[&[u8]]) -> ByteStream {
        let chunks: Vec<_> = chunks.iter().map(|bytes| Ok(Bytes::copy_from_slice(bytes))).collect();
        stream::iter(chunks).boxed()
    }

    fn read(chunks: &[&[u8]]) -> (Vec<String>, Option<EventStreamError>) {
        let mut events = SseEvents::new(body(chunks), MAX);
        let mut data = Vec::new();
        block_on(async {
            while let Some(event) = events.next().await {
                match event {
                    Ok(event) => data.push(event.data),
                    Err(broken) => return (data, Some(broken)),
                }
            }
            (data, None)
        })
    }

    #[test]
    fn a_bad_line_costs_no_event_before_it() {
        let (data, broken) = read(&[b"data: a\n\ndata: \xff\n\n"]);
        assert_eq!(data, ["a"]);
        assert!(
            matches!(broken, Some(EventStreamError::Malformed { position: 17, .. })),
            "{broken:?}"
        );
    }

    #[test]
    fn lines_the_standard_ignores_are_ignored() {
        let (data, broken) =
            read(&[b"junk\nfoo: 1\nretry: x\ndata: a\n\n: note\n\ndata:b\r\n\r\n"]);
        assert_eq!((data, broken.is_none()), (vec!["a".to_owned(), "b".to_owned()], true));
    }

    #[test]
    fn a_line_end_in_two_chunks_is_one_line_end_also_after_an_unknown_line() {
        let whole = b"data: a\r\nunknown\r\ndata: b\r\n\r\ndata: c\r\r".as_slice();
        let expected = vec!["a\nb".to_owned(), "c".to_owned()];
        for size in 1..whole.len() {
            let chunks: Vec<&[u8]> = whole.chunks(size).collect();
            assert_eq!(read(&chunks).0, expected, "in pieces of {size}");
        }
    }

    #[test]
    fn a_page_of_html_is_malformed_not_empty() {
        let (_, broken) = read(&[b"<html>\n<body>Welcome</body>\n"]);
        assert!(matches!(broken, Some(EventStreamError::Malformed { .. })));
    }

    #[test]
    fn the_last_event_needs_no_blank_line() {
        assert_eq!(read(&[b"data: a\n\ndata: [DONE]"]).0, ["a", "[DONE]"]);
    }

    #[test]
    fn an_event_has_a_bound_and_a_stream_of_small_ones_has_none() {
        let small = b"data: 0123456789\n\n".repeat(1000);
        let (data, broken) = read(&[&small]);
        assert_eq!((data.len(), broken.is_none()), (1000, true));
        let long = [b"data: ".to_vec(), vec![b'x'; 2 * MAX]].concat();
        assert!(matches!(read(&[&long]).1, Some(EventStreamError::TooLong)));
        let comments = b": keep alive\n".repeat(1000);
        assert!(matches!(read(&[&comments]).1, Some(EventStreamError::TooLong)));
    }
}

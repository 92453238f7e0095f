//! The transport: bounded lines in; counted lines out.
//!
//! The protocol crate queues without bound in both directions. The incoming queue stays short, because
//! handlers do not wait. The outgoing queue grows when the editor reads slowly. [`OutputBacklog`] therefore
//! counts the bytes of each update from its queueing to its write, and producers of updates check it before
//! they add more.

use std::{
    collections::VecDeque,
    io,
    sync::{Arc, Mutex},
};

use bytes::{Buf, BytesMut};
use futures::{Sink, SinkExt, Stream, StreamExt};
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt},
    sync::{Notify, mpsc},
};
use tokio_util::{
    codec::{Decoder, FramedRead},
    sync::{CancellationToken, PollSender},
};

/// High-water mark of queued updates, in bytes. At this mark producers stop.
const QUEUE_BYTES_HIGH: usize = 256 * 1024;
/// Low-water mark: once the high mark was reached, producers wait until the queue falls below this.
const QUEUE_BYTES_LOW: usize = 16 * 1024;
/// Capacity of the queue between protocol crate and writer, and the largest number of lines per write.
const QUEUE_LINES: usize = 64;
/// Prefix of every update's line.
const UPDATE_PREFIX: &str = r#"{"jsonrpc":"2.0","method":"session/update""#;
/// Bytes kept of a line that is too long.
pub(crate) const HEAD_BYTES: usize = 4 * 1024;
/// Method of the request that replaces a line that is too long.
pub(crate) const LINE_TOO_LONG: &str = "_budao/line_too_long";

/// Counts the queued updates that are not written to the editor yet.
#[derive(Debug, Default)]
pub(crate) struct OutputBacklog {
    waiting: Mutex<BacklogState>,
    drained: Notify,
}

#[derive(Debug, Default)]
struct BacklogState {
    /// Sizes of queued updates, oldest first.
    sizes: VecDeque<usize>,
    bytes: usize,
    /// The high-water mark was reached and the low-water mark not yet.
    is_full: bool,
    /// Largest value of `bytes` so far.
    peak_bytes: usize,
}

impl OutputBacklog {
    /// Counts an update of `weight` bytes as queued.
    pub(crate) fn add_queued(&self, weight: usize) {
        let mut waiting = self.waiting.lock().expect("no code panics while holding this");
        waiting.sizes.push_back(weight);
        waiting.bytes += weight;
        waiting.peak_bytes = waiting.peak_bytes.max(waiting.bytes);
    }

    /// Removes written updates from the count.
    fn remove_written(&self, lines: &[String]) {
        let updates = lines.iter().filter(|line| line.starts_with(UPDATE_PREFIX)).count();
        let mut waiting = self.waiting.lock().expect("no code panics while holding this");
        for _ in 0..updates {
            let weight = waiting.sizes.pop_front().unwrap_or(0);
            waiting.bytes -= weight;
        }
        drop(waiting);
        self.drained.notify_waiters();
    }

    /// Whether the queue is below its water mark, so that more updates may be queued.
    pub(crate) fn has_room(&self) -> bool {
        let mut waiting = self.waiting.lock().expect("no code panics while holding this");
        let limit = if waiting.is_full { QUEUE_BYTES_LOW } else { QUEUE_BYTES_HIGH };
        waiting.is_full = waiting.bytes >= limit;
        !waiting.is_full
    }

    /// Waits until more updates may be queued.
    pub(crate) async fn wait_for_room(&self) {
        loop {
            let drained = self.drained.notified();
            if self.has_room() {
                return;
            }
            drained.await;
        }
    }

    /// Largest number of queued bytes so far.
    pub(crate) fn peak_bytes(&self) -> usize {
        self.waiting.lock().expect("no code panics while holding this").peak_bytes
    }
}

/// Streams the incoming lines, and cancels `input_ended` after the last one.
pub(crate) fn incoming_lines(
    input: impl AsyncRead + Send + Unpin + 'static,
    max_bytes: usize,
    input_ended: CancellationToken,
) -> impl Stream<Item = io::Result<String>> + Send + 'static {
    let lines = FramedRead::new(input, BoundedLineCodec::new(max_bytes));
    // The guard cancels the token at the end of input, after an error and on a drop.
    let guard = input_ended.drop_guard();
    lines
        .take_while(|line| std::future::ready(line.is_ok()))
        .chain(futures::stream::once(async move {
            drop(guard);
            Ok(String::new())
        }))
        .filter(|line| std::future::ready(!line.as_ref().is_ok_and(|line| line.trim().is_empty())))
}

/// Splits input into lines. A line that is too long is replaced by a short one that says so.
pub(crate) struct BoundedLineCodec {
    max_bytes: usize,
    /// Number of buffered bytes already searched for a newline.
    searched: usize,
    /// The first bytes of an over-long line that is being skipped.
    skipping: Option<String>,
}

impl BoundedLineCodec {
    pub(crate) fn new(max_bytes: usize) -> Self {
        Self { max_bytes, searched: 0, skipping: None }
    }
}

impl Decoder for BoundedLineCodec {
    type Item = String;
    type Error = io::Error;

    fn decode(&mut self, bytes: &mut BytesMut) -> io::Result<Option<String>> {
        let from = self.searched.min(bytes.len());
        let end = bytes[from..].iter().position(|byte| *byte == b'\n').map(|at| at + from);
        if let Some(end) = end {
            let line = bytes.split_to(end);
            bytes.advance(1);
            self.searched = 0;
            if let Some(head) = self.skipping.take() {
                return Ok(Some(replace_too_long(&head)));
            }
            if line.len() > self.max_bytes {
                return Ok(Some(replace_too_long(&line_head(&line))));
            }
            return Ok(Some(line_text(&line)));
        }
        if self.skipping.is_some() {
            bytes.clear();
        } else if bytes.len() > self.max_bytes {
            self.skipping = Some(line_head(bytes));
            bytes.clear();
        }
        self.searched = bytes.len();
        Ok(None)
    }

    fn decode_eof(&mut self, bytes: &mut BytesMut) -> io::Result<Option<String>> {
        if let Some(line) = self.decode(bytes)? {
            return Ok(Some(line));
        }
        if bytes.is_empty() {
            return Ok(None);
        }
        let line = bytes.split();
        Ok(Some(line_text(&line)))
    }
}

/// Converts a line to text. A line that is not UTF-8 becomes text that is answered as malformed. The protocol
/// crate echoes a malformed line completely, so a long one is cut.
fn line_text(line: &[u8]) -> String {
    let text = std::str::from_utf8(line).unwrap_or("a line that is not UTF-8");
    if text.len() > HEAD_BYTES && serde_json::from_str::<serde::de::IgnoredAny>(text).is_err() {
        return line_head(line);
    }
    text.trim_end_matches('\r').to_owned()
}

fn line_head(line: &[u8]) -> String {
    String::from_utf8_lossy(&line[..line.len().min(HEAD_BYTES)]).into_owned()
}

/// Replaces an over-long line: by a request with its id if the id is near the start, otherwise by text that
/// is answered as malformed.
fn replace_too_long(head: &str) -> String {
    match find_id(head) {
        Some(id) => {
            format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{LINE_TOO_LONG}","params":{{}}}}"#)
        }
        None => "a line that is too long".to_owned(),
    }
}

/// Finds the `id` member of the top-level object in `head`, as JSON text.
fn find_id(head: &str) -> Option<String> {
    let (mut depth, mut rest) = (0_usize, head);
    loop {
        let at = rest.find(['{', '[', '}', ']', '"'])?;
        let (mark, behind) = (rest.as_bytes()[at], &rest[at + 1..]);
        rest = behind;
        match mark {
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.checked_sub(1)?,
            _ => {
                let end = find_string_end(rest)?;
                let (key, after) = (&rest[..end], rest[end + 1..].trim_start());
                rest = &rest[end + 1..];
                if depth == 1 && key == "id" && after.starts_with(':') {
                    let value = after[1..].trim_start();
                    let mut values =
                        serde_json::Deserializer::from_str(value).into_iter::<serde_json::Value>();
                    let id = values.next()?.ok()?;
                    return (id.is_string() || id.is_i64()).then(|| id.to_string());
                }
            }
        }
    }
}

fn find_string_end(text: &str) -> Option<usize> {
    let mut escaped = false;
    text.bytes().position(|byte| {
        let ends = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        ends
    })
}

/// Returns the sink for outgoing lines and the future that writes them. One write takes all queued lines.
pub(crate) fn open_output(
    mut output: impl AsyncWrite + Send + Unpin + 'static,
    backlog: Arc<OutputBacklog>,
) -> (impl Sink<String, Error = io::Error> + Send + 'static, impl Future<Output = ()> + Send) {
    let (sender, mut lines) = mpsc::channel::<String>(QUEUE_LINES);
    let writing = async move {
        let (mut batch, mut bytes) = (Vec::with_capacity(QUEUE_LINES), Vec::new());
        while lines.recv_many(&mut batch, QUEUE_LINES).await > 0 {
            bytes.clear();
            for line in &batch {
                bytes.extend_from_slice(line.as_bytes());
                bytes.push(b'\n');
            }
            let written = match output.write_all(&bytes).await {
                Ok(()) => output.flush().await,
                Err(error) => Err(error),
            };
            if let Err(error) = written {
                tracing::warn!(%error, "writing to editor failed");
                return;
            }
            backlog.remove_written(&batch);
            batch.clear();
            bytes.shrink_to(QUEUE_BYTES_HIGH);
        }
    };
    let broken_pipe = |_| io::Error::from(io::ErrorKind::BrokenPipe);
    (PollSender::new(sender).sink_map_err(broken_pipe), writing)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn lines(input: &[u8], max_bytes: usize) -> Vec<String> {
        let input = io::Cursor::new(input.to_vec());
        let input_ended = CancellationToken::new();
        let lines = incoming_lines(input, max_bytes, input_ended.clone())
            .map(Result::unwrap)
            .collect()
            .await;
        assert!(input_ended.is_cancelled());
        lines
    }

    #[tokio::test]
    async fn a_line_that_is_too_long_is_answered_under_its_id_and_the_next_one_is_read() {
        let long = "x".repeat(100);
        for (request, id) in [
            (format!(r#"{{"id":7,"method":"a","params":"{long}"}}"#), "7"),
            (format!(r#"{{"jsonrpc":"2.0", "id" : "a\"b","m":"{long}"}}"#), r#""a\"b""#),
            (format!(r#"{{"params":{{"id":1}},"id":9,"m":"{long}"}}"#), "9"),
        ] {
            let read = lines(format!("{request}\n{{}}\n").as_bytes(), 64).await;
            let answered = format!(
                r#"{{"jsonrpc":"2.0","id":{id},"method":"{LINE_TOO_LONG}","params":{{}}}}"#
            );
            assert_eq!(read, [answered, "{}".to_owned()]);
        }
    }

    #[tokio::test]
    async fn without_an_id_in_front_a_long_line_is_malformed() {
        let long = "x".repeat(HEAD_BYTES * 3);
        let request = format!(r#"{{"params":"{long}","id":7}}"#);
        for line in [request, long, "[".repeat(500)] {
            let read = lines(format!("{line}\n{{}}\n").as_bytes(), 64).await;
            assert_eq!(read, ["a line that is too long", "{}"]);
        }
    }

    #[tokio::test]
    async fn of_a_long_line_that_is_no_json_only_the_beginning_is_taken() {
        let (long, whole) =
            ("x".repeat(HEAD_BYTES * 3), format!("\"{}\"", "x".repeat(HEAD_BYTES * 3)));
        let read = lines(format!("{{{long}\n{whole}\n").as_bytes(), HEAD_BYTES * 8).await;
        assert_eq!((read[0].len(), read[1].len()), (HEAD_BYTES, whole.len()));
        assert!(serde_json::from_str::<serde_json::Value>(&read[0]).is_err(), "still no JSON");
    }

    #[tokio::test]
    async fn lines_are_taken_as_they_are() {
        let read = lines("{\"a\":1}\r\n\n  \n\u{4e2d}\n{\"last\":1}".as_bytes(), 64).await;
        assert_eq!(read, ["{\"a\":1}", "\u{4e2d}", "{\"last\":1}"]);
        assert_eq!(lines(b"\xff\xfe\n{}\n", 64).await, ["a line that is not UTF-8", "{}"]);
    }
}

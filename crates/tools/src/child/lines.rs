//! Reads the output of a child process line by line. Of a line above the limit, only its start and end are kept.

use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};

/// Size of the read buffer, in bytes.
const BUFFER_BYTES: usize = 64 * 1024;

/// Bytes kept of the start and of the end of a line that is too long.
const END_BYTES: usize = 256;

/// Reads lines. Cancel safe: dropping a pending read loses no data.
#[derive(Debug)]
pub struct BoundedLines<R> {
    read: BufReader<R>,
    line: Vec<u8>,
    /// Set while the rest of a line that is too long is skipped.
    skipped: Option<LongLine>,
    bytes_max: usize,
}

/// The kept parts of a line that was too long.
#[derive(Debug, Default)]
pub struct LongLine {
    /// The first bytes of the line, at most 256.
    pub head: Vec<u8>,
    /// The last bytes of the line, at most 256.
    pub tail: Vec<u8>,
    /// Length of the whole line, in bytes.
    pub bytes: usize,
}

/// One line as it was read.
#[derive(Debug)]
pub enum BoundedLine {
    /// A line within the limit, without its line feed.
    Whole(Vec<u8>),
    /// A line above the limit.
    TooLong(LongLine),
}

impl<R: AsyncRead + Unpin> BoundedLines<R> {
    /// Reads lines from `read`. Lines of more than `bytes_max` bytes are not kept whole.
    pub fn new(read: R, bytes_max: usize) -> Self {
        Self {
            read: BufReader::with_capacity(BUFFER_BYTES, read),
            line: Vec::new(),
            skipped: None,
            bytes_max,
        }
    }

    /// The next line that is not empty; `None` at the end of the stream or after a read error.
    pub async fn next(&mut self) -> Option<BoundedLine> {
        loop {
            let chunk = match self.read.fill_buf().await {
                Ok([]) | Err(_) => return self.rest(),
                Ok(chunk) => chunk,
            };
            let newline = chunk.iter().position(|&byte| byte == b'\n');
            let used = newline.map_or(chunk.len(), |at| at + 1);
            let part = &chunk[..newline.unwrap_or(used)];
            match &mut self.skipped {
                Some(skipped) => skipped.more(part),
                None if self.line.len() + part.len() > self.bytes_max => {
                    let mut skipped = LongLine::default();
                    skipped.more(&std::mem::take(&mut self.line));
                    skipped.more(part);
                    self.skipped = Some(skipped);
                }
                None => self.line.extend_from_slice(part),
            }
            self.read.consume(used);
            if newline.is_some()
                && let Some(line) = self.rest()
            {
                return Some(line);
            }
        }
    }

    fn rest(&mut self) -> Option<BoundedLine> {
        if let Some(skipped) = self.skipped.take() {
            return Some(BoundedLine::TooLong(skipped));
        }
        let line = std::mem::take(&mut self.line);
        (!line.trim_ascii().is_empty()).then_some(BoundedLine::Whole(line))
    }
}

impl LongLine {
    fn more(&mut self, part: &[u8]) {
        self.bytes += part.len();
        let room = END_BYTES.saturating_sub(self.head.len()).min(part.len());
        self.head.extend_from_slice(&part[..room]);
        let part = &part[part.len().saturating_sub(END_BYTES)..];
        self.tail.extend_from_slice(part);
        let extra = self.tail.len().saturating_sub(END_BYTES);
        self.tail.drain(..extra);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_line_that_is_too_long_costs_no_other_line() {
        let text = format!("short\n{}\r\n\n  \nlast", "x".repeat(1_000));
        let mut lines = BoundedLines::new(text.as_bytes(), 100);
        assert!(matches!(lines.next().await, Some(BoundedLine::Whole(line)) if line == b"short"));
        assert!(matches!(lines.next().await, Some(BoundedLine::TooLong(it)) if it.bytes == 1_001));
        assert!(matches!(lines.next().await, Some(BoundedLine::Whole(line)) if line == b"last"));
        assert!(lines.next().await.is_none());
    }

    #[tokio::test]
    async fn of_a_line_that_is_too_long_both_ends_are_kept() {
        let text = format!("a{}z", "x".repeat(1_000));
        let Some(BoundedLine::TooLong(skipped)) =
            BoundedLines::new(text.as_bytes(), 100).next().await
        else {
            panic!("it was taken for a line that is not too long");
        };
        assert_eq!((skipped.head[0], skipped.head.len()), (b'a', END_BYTES));
        assert_eq!((skipped.tail.last(), skipped.tail.len()), (Some(&b'z'), END_BYTES));
    }
}

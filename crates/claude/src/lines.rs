//! One line at a time, each bounded. Of a line that is too long only its size is kept.

use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};

/// Reads lines. Loses nothing when a read is dropped half way.
#[derive(Debug)]
pub(crate) struct Lines<R> {
    read: BufReader<R>,
    line: Vec<u8>,
    /// Bytes of a line that is too long, while the rest of it goes by.
    skipped: Option<usize>,
    bytes_max: usize,
}

/// What was read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Read {
    /// A line without its end.
    Line(Vec<u8>),
    /// A line that was too long.
    TooLong {
        /// How long.
        bytes: usize,
    },
}

impl<R: AsyncRead + Unpin> Lines<R> {
    pub(crate) fn new(read: R, bytes_max: usize) -> Self {
        let read = BufReader::with_capacity(64 * 1024, read);
        Self { read, line: Vec::new(), skipped: None, bytes_max }
    }

    /// The next line that is not empty; none at the end, or when reading fails.
    pub(crate) async fn next(&mut self) -> Option<Read> {
        loop {
            let chunk = match self.read.fill_buf().await {
                Ok([]) | Err(_) => return self.rest(),
                Ok(chunk) => chunk,
            };
            let newline = chunk.iter().position(|&byte| byte == b'\n');
            let used = newline.map_or(chunk.len(), |at| at + 1);
            let part = &chunk[..newline.unwrap_or(used)];
            match &mut self.skipped {
                Some(bytes) => *bytes += part.len(),
                None if self.line.len() + part.len() > self.bytes_max => {
                    self.skipped = Some(std::mem::take(&mut self.line).len() + part.len());
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

    fn rest(&mut self) -> Option<Read> {
        if let Some(bytes) = self.skipped.take() {
            return Some(Read::TooLong { bytes });
        }
        let line = std::mem::take(&mut self.line);
        (!line.trim_ascii().is_empty()).then_some(Read::Line(line))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_line_that_is_too_long_costs_no_other_line() {
        let text = format!("a\n\n{}\nb\n{}", "x".repeat(100), "y".repeat(50));
        let mut lines = Lines::new(text.as_bytes(), 10);
        assert_eq!(lines.next().await, Some(Read::Line(b"a".to_vec())));
        assert_eq!(lines.next().await, Some(Read::TooLong { bytes: 100 }));
        assert_eq!(lines.next().await, Some(Read::Line(b"b".to_vec())));
        assert_eq!(lines.next().await, Some(Read::TooLong { bytes: 50 }));
        assert_eq!(lines.next().await, None);
    }
}

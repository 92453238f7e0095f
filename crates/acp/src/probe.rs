//! Feeds arbitrary bytes through the parsers of editor input, for the fuzz target and for a short run of it
//! in the tests.

use agent_client_protocol::v1::schema::{ContentBlock, McpServer};
use bytes::BytesMut;
use serde_json::Value;
use tokio_util::codec::Decoder as _;

use crate::{
    content,
    lines::{BoundedLineCodec, HEAD_BYTES},
};

/// Upper bound of a line in bytes; larger than the kept part of an over-long line.
const LINE_BYTES_MAX: usize = HEAD_BYTES * 2;

/// Splits bytes into lines, in chunks of several sizes, and parses each as a prompt and as a list of tool servers.
///
/// # Panics
/// A line is too long, the chunk size changes the lines, or an accepted prompt is empty.
pub fn lines(bytes: &[u8]) {
    let whole = split(bytes, usize::MAX);
    for size in [3, 61] {
        assert_eq!(split(bytes, size), whole, "in pieces of {size}");
    }
    for line in &whole {
        assert!(
            line.len() <= LINE_BYTES_MAX && !line.contains('\n'),
            "a line of {} bytes",
            line.len()
        );
        if let Ok(value) = serde_json::from_str::<Value>(line) {
            request(&value["params"]);
        }
    }
}

fn split(bytes: &[u8], size: usize) -> Vec<String> {
    let mut lines = BoundedLineCodec::new(LINE_BYTES_MAX);
    let (mut waiting, mut all) = (BytesMut::new(), Vec::new());
    for piece in bytes.chunks(size.min(bytes.len().max(1))) {
        waiting.extend_from_slice(piece);
        while let Ok(Some(line)) = lines.decode(&mut waiting) {
            all.push(line);
        }
        assert!(waiting.len() <= LINE_BYTES_MAX, "the buffer is within its limit");
    }
    while let Ok(Some(line)) = lines.decode_eof(&mut waiting) {
        all.push(line);
    }
    all
}

/// Parses the parameters of a prompt or a new session.
fn request(params: &Value) {
    if let Ok(prompt) = serde_json::from_value::<Vec<ContentBlock>>(params["prompt"].clone())
        && let Ok(blocks) = content::convert_prompt(prompt)
    {
        assert!(!blocks.is_empty(), "an accepted prompt has content");
        let title = content::title_from(&blocks).unwrap_or_default();
        assert!(
            title.chars().count() <= 62 && !title.contains('\n'),
            "a title has one line of at most 62 characters: {title}"
        );
        content::count_bytes(&blocks);
    }
    if let Ok(servers) = serde_json::from_value::<Vec<McpServer>>(params["mcpServers"].clone()) {
        let count = servers.len();
        assert!(
            content::convert_servers(servers).is_ok_and(|read| read.len() == count) || count > 0
        );
    }
}

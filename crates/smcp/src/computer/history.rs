//! The latest calls, for the computer's owner and for the order of its windows.
//!
//! Arguments are scrubbed and cut before they are stored, so the history holds no known secret.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use budao_core::time::Timestamp;
use budao_scrub::Scrubber;
use serde_json::Value;

/// Bytes of a call's arguments that are kept.
const ARGUMENT_BYTES: usize = 500;

/// A call that has ended.
#[derive(Clone, Debug, PartialEq)]
pub struct CallRecord {
    /// The start of the call.
    pub at: Timestamp,
    /// The request id that the caller gave.
    pub req_id: String,
    /// The id of the MCP server that has the tool.
    pub server: String,
    /// The tool, by the server's own name.
    pub tool: String,
    /// The arguments as JSON text, scrubbed and cut at 500 bytes.
    pub parameters: String,
    /// The call's deadline, as the caller requested it.
    pub timeout: Duration,
    /// The duration of the call, including confirmation.
    pub took: Duration,
    /// The protocol's error code; `None` if the call succeeded.
    pub error: Option<u16>,
}

/// The latest calls, up to `history_max`.
#[derive(Debug)]
pub(super) struct History {
    records: Mutex<VecDeque<CallRecord>>,
    most: usize,
}

impl History {
    pub(super) fn new(most: usize) -> Self {
        Self { records: Mutex::default(), most }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<CallRecord>> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add(&self, record: CallRecord) {
        let mut records = self.lock();
        records.push_back(record);
        while records.len() > self.most {
            records.pop_front();
        }
    }

    /// All records, oldest first.
    pub(super) fn all(&self) -> Vec<CallRecord> {
        self.lock().iter().cloned().collect()
    }

    /// The ids of the servers that were used, latest first, without duplicates.
    pub(super) fn recent_servers(&self) -> Vec<String> {
        let mut servers: Vec<String> = Vec::new();
        for record in self.lock().iter().rev() {
            if !servers.contains(&record.server) {
                servers.push(record.server.clone());
            }
        }
        servers
    }
}

/// Renders arguments for the history: scrubbed JSON, cut at [`ARGUMENT_BYTES`].
pub(super) fn render_params(params: &Value, scrubber: &Scrubber) -> String {
    let mut params = params.clone();
    scrubber.scrub_json(&mut params);
    let mut text = params.to_string();
    if text.len() > ARGUMENT_BYTES {
        let end = (0..=ARGUMENT_BYTES).rev().find(|end| text.is_char_boundary(*end));
        text.truncate(end.unwrap_or_default());
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn record(server: &str) -> CallRecord {
        CallRecord {
            at: Timestamp::default(),
            req_id: "r".into(),
            server: server.into(),
            tool: "t".into(),
            parameters: String::new(),
            timeout: Duration::from_secs(1),
            took: Duration::ZERO,
            error: None,
        }
    }

    #[test]
    fn only_the_last_calls_are_kept() {
        let history = History::new(3);
        for server in ["a", "b", "a", "c"] {
            history.add(record(server));
        }
        let in_order: Vec<String> = history.all().into_iter().map(|record| record.server).collect();
        assert_eq!(in_order, ["b", "a", "c"]);
        assert_eq!(history.recent_servers(), ["c", "a", "b"]);
    }

    #[test]
    fn arguments_are_kept_without_secrets_and_not_for_ever() {
        let scrubber = Scrubber::with_secrets(["hunter2-long-enough"]);
        let secret = json!({ "password": "p4ss", "text": "say hunter2-long-enough", "n": 1 });
        let text = render_params(&secret, &scrubber);
        assert!(!text.contains("hunter2") && !text.contains("p4ss"), "{text}");
        assert!(text.contains("\"n\":1"), "{text}");
        assert!(render_params(&json!("错".repeat(1000)), &scrubber).len() < ARGUMENT_BYTES + 10);
    }
}

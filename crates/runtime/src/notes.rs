//! Records the notes of a running call: in order, joined, and within bounds.
//!
//! A tool may send notes as fast as it likes. Output that arrives within one window becomes one record, and a call
//! records a bounded amount of output and of its own events; its outcome is not affected.

use std::time::Duration;

use budao_core::{
    Event, Timestamp,
    event::{ChildLink, TurnNumber},
    message::CallId,
    turn::Input,
};
use budao_tools::Note;

use crate::work::WorkContext;

/// Output of one call that is recorded while it runs, in bytes.
const OUTPUT_MAX: usize = 1 << 20;
/// Joined output is recorded at the latest at this size, in bytes.
const JOINED_MAX: usize = 16 * 1024;
/// Events of its own that one call may record.
const TOPICS_MAX: usize = 1_000;

/// Records the notes of one call.
pub(crate) struct NoteRecorder<'a> {
    work_context: &'a WorkContext,
    turn: TurnNumber,
    call: CallId,
    tool: String,
    joined: String,
    joined_since: Timestamp,
    /// Bytes of output that may still be recorded.
    output_left: usize,
    /// Events of its own that the call may still record.
    topics_left: usize,
    dropped: u64,
}

impl<'a> NoteRecorder<'a> {
    pub(crate) fn new(
        work_context: &'a WorkContext,
        turn: TurnNumber,
        call: CallId,
        tool: String,
    ) -> Self {
        Self {
            work_context,
            turn,
            call,
            tool,
            joined: String::new(),
            joined_since: Timestamp::default(),
            output_left: OUTPUT_MAX,
            topics_left: TOPICS_MAX,
            dropped: 0,
        }
    }

    /// Records a note, or keeps it until more output has arrived.
    pub(crate) async fn add(&mut self, note: Note) {
        match note {
            Note::Output(text) => self.add_output(&text).await,
            Note::Topic { .. } if self.topics_left == 0 => self.dropped += 1,
            note => {
                self.topics_left -= usize::from(matches!(note, Note::Topic { .. }));
                self.flush().await;
                let event = event_from(note, &self.call, &self.tool);
                self.record(event).await;
            }
        }
    }

    /// The time until joined output is recorded; `None` without joined output.
    pub(crate) fn due(&self) -> Option<Duration> {
        let window = self.work_context.shared.limits.delta_window;
        let waited = self.work_context.now().since(self.joined_since);
        (!self.joined.is_empty()).then(|| window.saturating_sub(waited))
    }

    /// Records the output that was joined so far.
    pub(crate) async fn flush(&mut self) {
        if !self.joined.is_empty() {
            let text = std::mem::take(&mut self.joined);
            self.record(Event::ToolOutputDelta { call: self.call.clone(), text }).await;
        }
    }

    /// Records the rest of the notes. Returns the call and its tool.
    pub(crate) async fn finish(mut self) -> (CallId, String) {
        self.flush().await;
        if self.dropped > 0 {
            tracing::warn!(
                session = %self.work_context.session, call = %self.call, tool = self.tool,
                dropped = self.dropped, "notes dropped"
            );
        }
        (self.call, self.tool)
    }

    async fn add_output(&mut self, text: &str) {
        let text = &text[..text.floor_char_boundary(self.output_left)];
        if text.is_empty() {
            self.dropped += 1;
            return;
        }
        if self.joined.is_empty() {
            self.joined_since = self.work_context.now();
        }
        self.output_left -= text.len();
        self.joined.push_str(text);
        let is_joining = !self.work_context.shared.limits.delta_window.is_zero();
        if !is_joining || self.joined.len() >= JOINED_MAX {
            self.flush().await;
        }
    }

    async fn record(&self, event: Event) {
        self.work_context.report(Input::RecordOnly { turn: self.turn, event }).await;
    }
}

fn event_from(note: Note, call: &CallId, tool: &str) -> Event {
    let call = call.clone();
    match note {
        Note::Output(text) => Event::ToolOutputDelta { call, text },
        Note::Topic { topic, data } => {
            Event::ToolCallAnnotated { call, tool: tool.to_owned(), topic, data }
        }
        Note::Todos(todos) => Event::TodosChanged { todos },
        Note::FileSeen { path, digest } => Event::FileSeen { path, digest },
        Note::ChildOpened(child) => {
            Event::ChildOpened(ChildLink { child, call: Some(call), stage: None, task: None })
        }
    }
}

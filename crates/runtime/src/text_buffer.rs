//! Joins the small deltas of an answer before they are recorded. The first text is recorded at once.

use std::{future::Future, time::Duration};

use budao_core::turn::Input;
use budao_engine::{BufferContent, FlushTimer};

use crate::{model::ModelAttempt, work::WorkContext};

/// Buffered text is recorded at the latest at this size, in bytes.
const DELTA_BYTES: usize = 16 * 1024;

/// Received deltas of one attempt that are not recorded yet.
pub(crate) struct TextBuffer<'a> {
    work_context: &'a WorkContext,
    model_attempt: &'a ModelAttempt,
    text: String,
    thought: String,
    timer: FlushTimer,
}

impl<'a> TextBuffer<'a> {
    pub(crate) fn new(work_context: &'a WorkContext, model_attempt: &'a ModelAttempt) -> Self {
        let timer = FlushTimer::new(work_context.shared.limits.delta_window);
        Self { work_context, model_attempt, text: String::new(), thought: String::new(), timer }
    }

    /// Waits for `next`; `None` if the buffer is to be recorded before. Text that is due waits for a piece that is ready,
    /// so that pieces which arrived together share a record.
    pub(crate) async fn next_before_due<T>(&self, next: impl Future<Output = T>) -> Option<T> {
        let now = self.work_context.now();
        let Some(wait) = self.timer.wait(now) else { return Some(next.await) };
        if self.timer.is_overdue(now) {
            return None;
        }
        let due = async {
            if wait > Duration::ZERO {
                self.work_context.shared.world.clock.sleep(wait).await;
            }
        };
        tokio::select! {
            biased;
            next = next => Some(next),
            () = due => None,
        }
    }

    pub(crate) async fn add_text(&mut self, text: String) {
        append_text(&mut self.text, text);
        self.flush_if_full().await;
    }

    pub(crate) async fn add_thought(&mut self, thought: String) {
        // A record stores thinking before text, so text that came first is flushed.
        if !thought.is_empty() && !self.text.is_empty() {
            self.flush().await;
        }
        append_text(&mut self.thought, thought);
        self.flush_if_full().await;
    }

    async fn flush_if_full(&mut self) {
        let joins = !self.work_context.shared.limits.delta_window.is_zero();
        if !joins || self.text.len() + self.thought.len() >= DELTA_BYTES {
            return self.flush().await;
        }
        if !self.is_empty() {
            self.timer.update(BufferContent::Shown, self.work_context.now());
        }
    }

    fn is_empty(&self) -> bool {
        self.text.is_empty() && self.thought.is_empty()
    }

    /// Records the buffered text.
    pub(crate) async fn flush(&mut self) {
        if self.is_empty() {
            return;
        }
        let ModelAttempt { turn, step, attempt, .. } = *self.model_attempt;
        let (text, thought) = (std::mem::take(&mut self.text), std::mem::take(&mut self.thought));
        self.work_context.report(Input::Delta { turn, step, attempt, text, thought }).await;
        self.timer.update(BufferContent::Nothing, self.work_context.now());
    }
}

/// Appends `more`; moves it without a copy if `buffer` is empty.
fn append_text(buffer: &mut String, more: String) {
    match buffer.is_empty() {
        true => *buffer = more,
        false => buffer.push_str(&more),
    }
}

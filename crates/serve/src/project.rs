//! Projection: records become frames, at most one each, in the session's language.
//!
//! Pure: the same records give the same frames, live, on replay and after a restart. What a frame needs
//! besides its record is the fold before it, which is kept here without the conversation; so a projector
//! that begins at any position says what one that began at the first would say.

mod calls;
mod delta;
mod faults;
mod model;
mod pipeline;
mod session;
mod snapshot;

use std::sync::Arc;

use budao_core::{
    Event, Fault, Lang, Record,
    event::{Origin, Scope, Seq},
    session::Session,
};
use budao_journal::StoredRecord;
use serde_json::Value;

use self::delta::FrameTemplate;
use crate::{
    frame::{FaultContext, Frame},
    outbox::EncodedFrame,
};
pub use snapshot::snapshot;

/// Turns the records of one session into frames.
#[derive(Clone, Debug)]
pub struct Projector {
    session: Session,
    language: Option<Lang>,
    prev: Seq,
    /// Other questions are open than when somebody last asked for them.
    asks_anew: bool,
    template: Option<Box<FrameTemplate>>,
}

impl Projector {
    /// A projector for the records after `cursor`. `state` is the fold of those up to it.
    #[must_use]
    pub fn new(state: &Session, cursor: Seq) -> Self {
        let mut session = state.clone();
        forget(&mut session);
        Self { session, language: None, prev: cursor, asks_anew: false, template: None }
    }

    /// Speaks this language, whatever the session is set to.
    #[must_use]
    pub fn speaking(mut self, language: Lang) -> Self {
        self.language = Some(language);
        self
    }

    /// The language frames are in.
    #[must_use]
    pub fn language(&self) -> Lang {
        self.language.unwrap_or(self.session.settings.language)
    }

    /// The position of the last frame, or of the cursor it began with.
    #[must_use]
    pub fn last(&self) -> Seq {
        self.prev
    }

    /// The frame a record becomes, if it becomes one.
    pub fn project(&mut self, record: &Record) -> Option<Frame> {
        let frame = self.frame(record).map(|frame| self.placed(frame));
        self.asks_anew |= is_about_questions(&record.event);
        self.session.apply_record(record);
        forget(&mut self.session);
        if frame.is_some() {
            self.prev = record.seq;
        }
        frame
    }

    /// The frame a record becomes, as it is sent.
    ///
    /// # Errors
    /// `journal_damaged` when the record cannot be read.
    pub(crate) fn encode(&mut self, stored: &StoredRecord) -> Result<Option<EncodedFrame>, Fault> {
        if let Some(text) = self.delta(stored.into(), &stored.body) {
            let at = Some((stored.session, stored.epoch, stored.seq));
            return Ok(Some(EncodedFrame { text: text.into(), at }));
        }
        Ok(self.project(&stored.record()?).as_ref().map(EncodedFrame::from))
    }

    /// The same for who reads on whatever comes: a record that cannot be read is skipped, and the log says so.
    pub(crate) fn encode_or_skip(&mut self, stored: &StoredRecord) -> Option<EncodedFrame> {
        self.encode(stored).unwrap_or_else(|fault| {
            tracing::error!(session = %stored.session, %fault, "skipped a record");
            None
        })
    }

    /// May other questions be open than when this was last asked?
    pub(crate) fn asks_anew(&mut self) -> bool {
        std::mem::take(&mut self.asks_anew)
    }

    /// Nothing happens: lets go of what only makes it quicker.
    pub(crate) fn rest(&mut self) {
        self.template = None;
    }

    fn frame(&self, record: &Record) -> Option<Frame> {
        self.of_session(record)
            .or_else(|| self.of_model(record))
            .or_else(|| self.of_call(record))
            .or_else(|| self.of_fault(record))
            .or_else(|| self.of_pipeline(record))
    }

    /// A frame of this record.
    fn begin(&self, record: &Record, event: &'static str) -> Frame {
        Frame::of(record, self.prev, event)
    }

    /// A `system.notice` of this record.
    fn notice(&self, record: &Record, action: &'static str) -> Frame {
        self.begin(record, "system.notice").with("action", action)
    }

    /// The stage and the task this session works on go with every frame of it.
    fn placed(&self, frame: Frame) -> Frame {
        match &self.session.origin {
            Some(Origin::Stage { stage, task, .. }) => {
                frame.at_stage(*stage, task.as_ref().map(|task| &task.0))
            }
            _ => frame,
        }
    }

    fn fault_context<'a>(&self, record: &Record, scope: &'a Scope) -> FaultContext<'a> {
        FaultContext { at: record.at, lang: self.language(), scope, given_up: false }
    }

    /// The number of the turn and the command it answers.
    fn of_turn(&self, record: &Record, frame: Frame) -> Frame {
        let turn = self.session.turn.as_ref();
        let command = turn.map(|turn| &turn.message).filter(|command| !command.is_own());
        frame
            .with("turn", record.turn)
            .with("command_id", command.map_or(Value::Null, |command| command.to_string().into()))
    }
}

fn is_about_questions(event: &Event) -> bool {
    matches!(
        event,
        Event::QuestionAsked { .. }
            | Event::QuestionAnswered { .. }
            | Event::QuestionExpired { .. }
            | Event::TurnEnded { .. }
    )
}

/// Frames need the last message at most, no files, and of the settings neither labels nor extras: what is long is
/// not kept twice.
fn forget(session: &mut Session) {
    let before_last = session.history.len().saturating_sub(1);
    if before_last > 0 {
        match Arc::get_mut(&mut session.history) {
            Some(history) => drop(history.drain(..before_last)),
            // It is somebody else's too.
            None => session.history = Arc::new(session.history[before_last..].to_vec()),
        }
    }
    session.files.clear();
    session.settings.labels.clear();
    session.settings.extra.clear();
    session.settings.system = None;
}

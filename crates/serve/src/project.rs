//! Projection: records become frames, at most one each, in the session's language.
//!
//! Pure: the same records give the same frames, live, on replay and after a restart. What a frame needs
//! besides its record is the fold before it, which is kept here without the conversation; so a projector
//! that begins at any position says what one that began at the first would say.

mod calls;
mod faults;
mod model;
mod pipeline;
mod session;
mod snapshot;

use std::sync::Arc;

use budao_core::{
    Lang, Record,
    event::{Origin, Scope, Seq},
    session::Session,
};
use serde_json::Value;

use crate::frame::{Frame, Told};
pub use snapshot::snapshot;

/// Turns the records of one session into frames.
#[derive(Clone, Debug)]
pub struct Projector {
    session: Session,
    language: Option<Lang>,
    prev: Seq,
}

impl Projector {
    /// A projector for the records after `cursor`. `state` is the fold of those up to it.
    #[must_use]
    pub fn new(state: &Session, cursor: Seq) -> Self {
        let mut session = state.clone();
        forget(&mut session);
        Self { session, language: None, prev: cursor }
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
        self.session.apply_record(record);
        forget(&mut self.session);
        if frame.is_some() {
            self.prev = record.seq;
        }
        frame
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

    fn told<'a>(&self, record: &Record, scope: &'a Scope) -> Told<'a> {
        Told { at: record.at, lang: self.language(), scope, given_up: false }
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

/// Frames need the last message at most, and no files: what is long is not kept twice.
fn forget(session: &mut Session) {
    if session.history.len() > 1 {
        let last = session.history.last().cloned();
        session.history = Arc::new(last.into_iter().collect());
    }
    session.files.clear();
}

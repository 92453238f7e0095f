//! Projection: records become frames, at most one each, in the session's language.
//!
//! Pure: the same records give the same frames, live, on replay and after a restart. What a frame needs
//! besides its record is the fold before it, kept here without the conversation.

use std::sync::Arc;

use budao_core::{
    Lang, Record,
    event::{Event, Seq},
    session::Session,
};

use crate::frame::Frame;

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
        let frame = self.frame(record);
        self.session.apply_record(record);
        forget(&mut self.session);
        if frame.is_some() {
            self.prev = record.seq;
        }
        frame
    }

    fn frame(&self, record: &Record) -> Option<Frame> {
        match &record.event {
            Event::TextCame { text, .. } => {
                Some(Frame::of(record, self.prev, "agent.partial_answer").text(text.clone()))
            }
            _ => None,
        }
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

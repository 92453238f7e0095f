//! Projection: a record becomes at most one frame, in the session's or the observer's language.
//!
//! Pure: the same records give the same frames, live, on replay and after a restart. Besides its record, a frame needs
//! the folded session before it. The projector keeps that state without the conversation, so a projector may start at
//! any position and gives the same frames as one that started at the first.

mod calls;
mod delta;
mod faults;
mod model;
mod pipeline;
mod session;
mod snapshot;

use std::sync::Arc;

use budao_core::{
    Fault, Lang, Record,
    activity::Activity,
    event::{Origin, Scope, Seq},
    session::Session,
};
use budao_journal::StoredRecord;
use serde_json::{Value, json};

use self::delta::FrameTemplate;
use crate::{
    frame::{FaultContext, Frame},
    outbox::EncodedFrame,
};
pub(crate) use calls::{elicitation_text, permission_text};
pub(crate) use session::currency_units;
pub use snapshot::snapshot;

/// Projects the records of one session to frames.
#[derive(Clone, Debug)]
pub struct Projector {
    session: Session,
    language: Option<Lang>,
    prev: Seq,
    /// True if the open questions have changed since the last call of `take_questions_changed`.
    questions_changed: bool,
    template: Option<Box<FrameTemplate>>,
}

impl Projector {
    /// Creates a projector for the records after `cursor`. `state` is the fold of the records up to it.
    #[must_use]
    pub fn new(state: &Session, cursor: Seq) -> Self {
        let mut session = state.clone();
        drop_unused_state(&mut session);
        Self { session, language: None, prev: cursor, questions_changed: false, template: None }
    }

    /// Uses this language instead of the session's.
    #[must_use]
    pub fn with_language(mut self, language: Lang) -> Self {
        self.language = Some(language);
        self
    }

    /// The language of the frames.
    #[must_use]
    pub fn language(&self) -> Lang {
        self.language.unwrap_or(self.session.settings.language)
    }

    /// The position of the last frame, or the cursor it started with.
    #[must_use]
    pub fn last(&self) -> Seq {
        self.prev
    }

    /// Projects a record. `None` if the record has no frame.
    pub fn project(&mut self, record: &Record) -> Option<Frame> {
        let activity = Activity::of(&record.event);
        let frame = activity.and_then(|activity| self.render(record, activity));
        let frame = frame.map(|frame| self.add_stage(frame));
        self.questions_changed |= activity.is_some_and(is_about_questions);
        let before = self.session.faults.counts();
        self.session.apply_record(record);
        drop_unused_state(&mut self.session);
        let counts = self.session.faults.counts();
        let frame = frame.map(|frame| match counts == before {
            true => frame,
            false => frame.with("fault_counts", json!(counts)),
        });
        if frame.is_some() {
            self.prev = record.seq;
        }
        frame
    }

    /// Applies a record that a front end's protocol expresses by itself.
    pub(crate) fn skip(&mut self, record: &Record) {
        self.session.apply_record(record);
        drop_unused_state(&mut self.session);
    }

    /// Projects a record and encodes the frame.
    ///
    /// # Errors
    /// `journal_damaged` if the record cannot be decoded.
    pub(crate) fn encode(&mut self, stored: &StoredRecord) -> Result<Option<EncodedFrame>, Fault> {
        if let Some(text) = self.delta(stored.into(), &stored.body) {
            let at = Some((stored.session, stored.epoch, stored.seq));
            return Ok(Some(EncodedFrame { text: text.into(), at }));
        }
        Ok(self.project(&stored.record()?).as_ref().map(EncodedFrame::from))
    }

    /// Like [`Projector::encode`], but logs and skips a record that cannot be decoded.
    pub(crate) fn encode_or_skip(&mut self, stored: &StoredRecord) -> Option<EncodedFrame> {
        self.encode(stored).unwrap_or_else(|fault| {
            tracing::error!(session = %stored.session, %fault, "skipping record");
            None
        })
    }

    /// True if the open questions may have changed since the last call.
    pub(crate) fn take_questions_changed(&mut self) -> bool {
        std::mem::take(&mut self.questions_changed)
    }

    /// Drops cached data of an idle session.
    pub(crate) fn release_template(&mut self) {
        self.template = None;
    }

    fn render(&self, record: &Record, activity: Activity<'_>) -> Option<Frame> {
        self.render_model_activity(record, activity)
            .or_else(|| self.render_session_activity(record, activity))
            .or_else(|| self.render_call_activity(record, activity))
            .or_else(|| self.render_fault_activity(record, activity))
            .or_else(|| self.render_pipeline_activity(record, activity))
    }

    /// A new frame for this record.
    fn begin(&self, record: &Record, event: &'static str) -> Frame {
        Frame::of(record, self.prev, event)
    }

    /// A new `system.notice` for this record.
    fn notice(&self, record: &Record, action: &'static str) -> Frame {
        self.begin(record, "system.notice").with("action", action)
    }

    /// Adds the stage and task of a pipeline's child session.
    fn add_stage(&self, frame: Frame) -> Frame {
        match &self.session.origin {
            Some(Origin::Stage { stage, task, .. }) => {
                frame.at_stage(*stage, task.as_ref().map(|task| &task.0))
            }
            _ => frame,
        }
    }

    fn fault_context<'a>(&self, record: &Record, scope: &'a Scope) -> FaultContext<'a> {
        FaultContext { at: record.at, lang: self.language(), scope, not_recovered: false }
    }

    /// Adds the turn's number and the command it answers.
    fn add_turn(&self, record: &Record, frame: Frame) -> Frame {
        let turn = self.session.turn.as_ref();
        let command = turn.map(|turn| &turn.message).filter(|command| !command.is_own());
        frame
            .with("turn", record.turn)
            .with("command_id", command.map_or(Value::Null, |command| command.to_string().into()))
    }
}

fn is_about_questions(activity: Activity<'_>) -> bool {
    matches!(
        activity,
        Activity::QuestionAsked(_) | Activity::QuestionClosed { .. } | Activity::TurnEnded { .. }
    )
}

/// Drops the parts of a session that frames do not need: all messages but the last, files, labels, extras and the
/// system prompt.
fn drop_unused_state(session: &mut Session) {
    let before_last = session.history.len().saturating_sub(1);
    if before_last > 0 {
        match Arc::get_mut(&mut session.history) {
            Some(history) => drop(history.drain(..before_last)),
            // The history is shared, so the last message is copied.
            None => session.history = Arc::new(session.history[before_last..].to_vec()),
        }
    }
    session.files.clear();
    session.settings.labels.clear();
    session.settings.extra.clear();
    session.settings.system = None;
}

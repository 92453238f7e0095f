//! Facts for which a front end's protocol has no event: faults, retries, waits, plans, child sessions and notices.
//!
//! They are forwarded as frames of the native protocol, so every client gets the same texts.

use budao_core::{
    Lang, Record, activity::Activity, event::Seq, session::Session, spending::RAISE_CAP,
};
use serde_json::Value;

use crate::project::Projector;

/// Projects such facts.
#[derive(Clone, Debug)]
pub(crate) struct Notices(Projector);

impl Notices {
    /// Begins after `cursor`. `state` is the fold of the records up to it.
    pub(crate) fn new(state: &Session, cursor: Seq, language: Lang) -> Self {
        Self(Projector::new(state, cursor).with_language(language))
    }

    /// The language of all texts.
    pub(crate) fn language(&self) -> Lang {
        self.0.language()
    }

    /// Applies a record. Returns its frame if the front end's protocol has no event for it.
    pub(crate) fn apply(
        &mut self,
        record: &Record,
        activity: Option<Activity<'_>>,
    ) -> Option<Value> {
        if activity.is_none_or(has_own_event) {
            self.0.skip(record);
            return None;
        }
        let frame = self.0.project(record)?;
        let mut value: Value = serde_json::from_str(&frame.encode()).ok()?;
        // `prev` names a native frame, which this stream does not have.
        value.as_object_mut()?.remove("prev");
        Some(value)
    }
}

/// Whether the protocols of front ends express this fact by events of their own, or not at all.
fn has_own_event(activity: Activity<'_>) -> bool {
    // The model did not make this call, so the front end has no call for the result.
    if matches!(activity, Activity::CallEnded { tool: RAISE_CAP, .. }) {
        return false;
    }
    matches!(
        activity,
        Activity::SessionOpened { .. }
            | Activity::SettingsChanged { .. }
            | Activity::SessionEnded { .. }
            | Activity::MessageAccepted { .. }
            | Activity::TurnStarted { .. }
            | Activity::TurnEnded { .. }
            | Activity::StepStarted { .. }
            | Activity::Text { .. }
            | Activity::Thought { .. }
            | Activity::AnswerAbandoned { .. }
            | Activity::Answered { .. }
            | Activity::QuestionAsked(_)
            | Activity::QuestionClosed { .. }
            | Activity::CallStarted { .. }
            | Activity::CallOffered { .. }
            | Activity::CallEnded { .. }
            | Activity::TodosChanged { .. }
            | Activity::FileSeen { .. }
            | Activity::LateResultDropped { .. }
            | Activity::ObserverLost { .. }
            | Activity::Annotated { .. }
    )
}

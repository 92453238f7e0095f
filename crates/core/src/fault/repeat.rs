//! Decides whether a failed request may be repeated; the same rule serves every audience and protocol.
//!
//! Work that did not start, or whose end is confirmed, may be repeated as far as its kind allows. Work that may have
//! started and has no confirmed end must not be repeated, unless its tool is known to be safe to repeat.

use super::{Fact, Fault, Kind, Next};

/// The state of work that was done and whose answer is lost.
const ANSWER_LOST: &str = "answer_lost";

/// How far the failed work got.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::VariantArray)]
pub enum Progress {
    /// The work did not start.
    NotBegun,
    /// The work may have started, and no component confirmed its end: it may still be running.
    Unconfirmed,
    /// The work ended, and the component that ran it confirmed the end.
    Ended,
    /// The work was done, but its answer is lost.
    Done,
}

/// The consequences of a failure for a second attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repeat {
    /// Whether repeating the same request makes sense and does no harm.
    pub retryable: bool,
    /// What the model should do with its call.
    pub next: Next,
    /// Whether the runtime may repeat the request by itself.
    pub auto_retry: bool,
    /// Whether the work may still be running or may be done; every audience reads it.
    pub outcome_unknown: bool,
}

/// Applies the rule. `safe_to_repeat` is true only for tools trusted to be idempotent or read-only. `reason` is the
/// fault's reason, for protocols that define a list of reasons.
#[must_use]
pub fn decide(
    kind: Kind,
    progress: Progress,
    safe_to_repeat: bool,
    reason: Option<&str>,
) -> Repeat {
    let row = kind.row();
    let outcome_unknown = progress == Progress::Unconfirmed;
    if matches!(progress, Progress::Unconfirmed | Progress::Done) && !safe_to_repeat {
        return Repeat { retryable: false, next: Next::Stop, auto_retry: false, outcome_unknown };
    }
    if is_busy(kind, reason) {
        return Repeat {
            retryable: true,
            next: Next::RetrySame,
            auto_retry: false,
            outcome_unknown,
        };
    }
    let (retryable, next, auto_retry) = (row.retryable, row.next, row.auto_retry);
    Repeat { retryable, next, auto_retry, outcome_unknown }
}

/// Whether an upload was refused as busy: the only reason that passes by itself, because nothing was started.
fn is_busy(kind: Kind, reason: Option<&str>) -> bool {
    kind == Kind::BlobWriteFailed && reason == Some("busy")
}

impl Fault {
    /// Marks the work as possibly started, with no confirmed end.
    #[must_use]
    pub fn unconfirmed(self) -> Self {
        self.with(Fact::OutcomeUnknown, serde_json::Value::Bool(true))
    }

    /// States how far the work got, in place of what the fault says. [`Progress::Ended`] changes nothing.
    #[must_use]
    pub fn with_progress(self, progress: Progress) -> Self {
        let fault = match self.detail().get(Fact::OutcomeUnknown) {
            Some(_) => self.with(Fact::OutcomeUnknown, serde_json::Value::Bool(false)),
            None => self,
        };
        match progress {
            Progress::NotBegun => fault.not_started(),
            Progress::Unconfirmed => fault.unconfirmed(),
            Progress::Done => fault.with(Fact::State, ANSWER_LOST),
            Progress::Ended => fault,
        }
    }

    /// Marks the work as unconfirmed, for a tool trusted to be safe to repeat.
    #[must_use]
    pub fn unconfirmed_but_safe(self) -> Self {
        self.unconfirmed().with(Fact::SafeToRepeat, serde_json::Value::Bool(true))
    }

    /// How far the failed work got.
    #[must_use]
    pub fn progress(&self) -> Progress {
        let is_said = |fact| self.detail().get(fact).is_some_and(|it| it.to_string() == "true");
        match self.kind() {
            Kind::OutcomeUnknown | Kind::ToolAbandoned => Progress::Unconfirmed,
            _ if is_said(Fact::OutcomeUnknown) => Progress::Unconfirmed,
            _ if self.detail().text(Fact::State) == Some("not_started") => Progress::NotBegun,
            _ if self.detail().text(Fact::State) == Some(ANSWER_LOST) => Progress::Done,
            _ => Progress::Ended,
        }
    }

    /// The consequences for a second attempt.
    #[must_use]
    pub fn repeat(&self) -> Repeat {
        let safe = self.detail().get(Fact::SafeToRepeat).is_some_and(|it| it.to_string() == "true");
        decide(self.kind(), self.progress(), safe, self.detail().text(Fact::Reason))
    }

    /// Whether the work may have succeeded, or may still succeed, despite this fault.
    #[must_use]
    pub fn is_outcome_unknown(&self) -> bool {
        self.progress() == Progress::Unconfirmed
    }
}

#[cfg(test)]
mod tests {
    use strum::VariantArray as _;

    use super::*;
    use crate::fault::Operation;

    /// Reasons that peers give, and one unknown reason.
    const REASONS: [Option<&str>; 12] = [
        None,
        Some("traversal"),
        Some("forbidden"),
        Some("not_found"),
        Some("too_large"),
        Some("invalid_handle"),
        Some("gone"),
        Some("range"),
        Some("busy"),
        Some("integrity"),
        Some("io_error"),
        Some("something new"),
    ];

    #[test]
    fn one_rule_decides_for_every_kind_every_progress_and_every_tool() {
        for kind in Kind::VARIANTS {
            for progress in Progress::VARIANTS {
                for safe in [false, true] {
                    for reason in REASONS {
                        let case = format!("{kind} {progress:?} safe={safe} {reason:?}");
                        let repeat = decide(*kind, *progress, safe, reason);
                        let is_unknown = *progress == Progress::Unconfirmed;
                        assert_eq!(repeat.outcome_unknown, is_unknown, "{case}");
                        let is_forbidden = (is_unknown || *progress == Progress::Done) && !safe;
                        let allowed = kind.row().retryable || is_busy(*kind, reason);
                        assert_eq!(repeat.retryable, allowed && !is_forbidden, "{case}");
                        let auto = kind.row().auto_retry && !is_forbidden;
                        assert_eq!(repeat.auto_retry, auto, "{case}");
                        assert!(repeat.retryable || repeat.next != Next::RetrySame, "{case}");
                        assert!(!is_forbidden || repeat.next == Next::Stop, "{case}");
                    }
                }
            }
        }
    }

    #[test]
    fn missing_things_are_never_retryable() {
        let never = [
            Kind::ComputerNotFound,
            Kind::McpServerNotFound,
            Kind::SkillNotFound,
            Kind::SkillResourceUnavailable,
            Kind::BlobUnavailable,
            Kind::DocumentNotFound,
            Kind::ElementNotFound,
        ];
        for kind in never {
            for reason in REASONS {
                let repeat = decide(kind, Progress::NotBegun, true, reason);
                assert!(!repeat.retryable, "{kind} {reason:?}");
            }
        }
        for reason in REASONS {
            let repeat = decide(Kind::BlobWriteFailed, Progress::NotBegun, false, reason);
            assert_eq!(repeat.retryable, reason == Some("busy"), "{reason:?}");
        }
    }

    #[test]
    fn the_progress_in_a_fault_survives_encoding() {
        let fault = Fault::new(Kind::RequestTimedOut, Operation::ToolCall);
        assert!(fault.repeat().retryable && fault.may_auto_retry());
        let fault = fault.unconfirmed();
        let text = serde_json::to_string(&fault).unwrap();
        let read: Fault = serde_json::from_str(&text).unwrap();
        assert_eq!(read.progress(), Progress::Unconfirmed);
        assert!(!read.repeat().retryable && !read.may_auto_retry());
        assert!(read.unconfirmed_but_safe().may_auto_retry());
        let abandoned = Fault::new(Kind::ToolAbandoned, Operation::ToolCall);
        assert!(abandoned.is_outcome_unknown());
        let early = Fault::new(Kind::Cancelled, Operation::ToolCall).not_started();
        assert_eq!(early.progress(), Progress::NotBegun);
        for progress in Progress::VARIANTS {
            let fault = Fault::new(Kind::ConnectionLost, Operation::ToolCall).unconfirmed();
            let text = serde_json::to_string(&fault.with_progress(*progress)).unwrap();
            let read: Fault = serde_json::from_str(&text).unwrap();
            assert_eq!(read.progress(), *progress);
        }
    }
}

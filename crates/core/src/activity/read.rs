//! Reads the fact of an event.

use super::{
    Activity, ControlRequest, MessageContent, QuestionAnswer, QuestionDetails, StageEnd, StageStart,
};
use crate::event::{CallStart, ChildLink, Compaction, Event, LostObserver, NewTimer, Stage};

impl<'a> Activity<'a> {
    /// The fact of an event; none if it has no meaning for people.
    #[must_use]
    pub fn of(event: &'a Event) -> Option<Self> {
        Some(match *event {
            Event::TextDelta { step, ref text } => Self::Text { step, text },
            Event::ThinkingDelta { step, ref text } => Self::Thought { step, text },
            Event::ReconcileStarted { ref call, ref tool, attempt } => {
                Self::ReconcileStarted { call, tool, attempt }
            }
            Event::ReconcileEnded { ref call, ref tool, verdict } => {
                Self::ReconcileEnded { call, tool, verdict }
            }
            Event::DoubtSettled { ref call, ref tool, ref settlement, ref by, ref note } => {
                Self::DoubtSettled { call, tool, settlement, by, note: note.as_deref() }
            }
            Event::ToolOutputDelta { ref call, ref text } => Self::CallOutput { call, text },
            Event::StepStarted { step, attempt, ref model } => {
                Self::StepStarted { step, attempt, model }
            }
            Event::AnswerAbandoned { step, attempt } => Self::AnswerAbandoned { step, attempt },
            Event::ModelAnswered { step, ref content, stop, usage, .. } => {
                Self::Answered { step, content, stop, usage }
            }
            Event::ModelChanged { step, ref from, ref to, reason, ref fault, .. } => {
                Self::ModelChanged { step, from, to, reason, fault: fault.as_ref() }
            }
            Event::CompactionStarted { .. } => Self::CompactionStarted,
            Event::HistoryCompacted(Compaction {
                messages,
                ref summary,
                by_model,
                tokens_before,
                tokens_after,
                usage,
            }) => {
                Self::Compacted { messages, summary, by_model, tokens_before, tokens_after, usage }
            }
            _ => {
                return Self::of_session(event)
                    .or_else(|| Self::of_call(event))
                    .or_else(|| Self::of_failure(event))
                    .or_else(|| Self::of_pipeline(event));
            }
        })
    }

    fn of_session(event: &'a Event) -> Option<Self> {
        Some(match *event {
            Event::SessionOpened { ref settings, ref origin } => {
                Self::SessionOpened { settings, origin: origin.as_ref() }
            }
            Event::SettingsChanged { ref settings } => Self::SettingsChanged { settings },
            Event::SessionResumed { ref sealed } => Self::SessionResumed { sealed },
            Event::SessionEnded { end, ref fault } => {
                Self::SessionEnded { end, fault: fault.as_ref() }
            }
            Event::MessageAccepted { ref command, ref content } => {
                let content = MessageContent::Blocks(content);
                Self::MessageAccepted { command, content }
            }
            Event::PipelineAccepted { ref command, ref question, confirm, ref tasks } => {
                let tasks = tasks.as_deref();
                let content = MessageContent::Pipeline { question, confirm, tasks };
                Self::MessageAccepted { command, content }
            }
            Event::RetryAccepted { ref command, of_turn } => {
                Self::MessageAccepted { command, content: MessageContent::Retry { of_turn } }
            }
            Event::TimerFired { ref timer, ref command, ref content, due, missed, next } => {
                let content = MessageContent::Timer { timer, content, due, missed, next };
                Self::MessageAccepted { command, content }
            }
            Event::TimerSet(NewTimer { ref timer, ref schedule, ref message, next, ref by }) => {
                Self::TimerSet { timer, schedule, message, next, by }
            }
            Event::TimerCancelled { ref timer, ref by } => Self::TimerCancelled { timer, by },
            Event::TurnStarted { ref message } => Self::TurnStarted { message },
            Event::TurnEnded { stop, ref fault, steps, usage } => {
                Self::TurnEnded { stop, fault: fault.as_ref(), steps, usage }
            }
            Event::ObserverLost(LostObserver {
                close_code,
                ref close_reason,
                last_seq,
                uptime_ms,
            }) => Self::ObserverLost { close_code, close_reason, last_seq, uptime_ms },
            Event::Annotated { ref topic, ref data } => Self::Annotated { topic, data },
            _ => return Self::of_control(event),
        })
    }

    fn of_control(event: &'a Event) -> Option<Self> {
        let (by, request) = match event {
            Event::MessageWithdrawn { command, by } => (by, ControlRequest::Withdraw(command)),
            Event::CancelRequested { by, reason } => {
                (by, ControlRequest::Cancel(reason.as_deref()))
            }
            Event::CloseRequested { by } => (by, ControlRequest::Close),
            Event::ReplanRequested { question, by } => (by, ControlRequest::Replan(question)),
            Event::TaskStopRequested { task, by, restart } => {
                (by, ControlRequest::StopTask { task, restart: *restart })
            }
            _ => return None,
        };
        Some(Self::ControlRequested { by, request })
    }

    fn of_call(event: &'a Event) -> Option<Self> {
        Some(match *event {
            Event::QuestionAsked {
                ref question,
                ref call,
                ref tool,
                ref arguments,
                ref digest,
                ref reason,
                purpose,
                expires_at,
                ..
            } => Self::QuestionAsked(QuestionDetails {
                question,
                call,
                tool,
                arguments,
                digest,
                reason,
                purpose,
                expires_at,
            }),
            Event::QuestionAnswered {
                ref question,
                ref call,
                decision,
                ref by,
                ref note,
                ref arguments,
            } => {
                let (note, is_edited) = (note.as_deref(), arguments.is_some());
                let answer = Some(QuestionAnswer { decision, by, note, is_edited });
                Self::QuestionClosed { question, call, answer }
            }
            Event::QuestionExpired { ref question, ref call } => {
                Self::QuestionClosed { question, call, answer: None }
            }
            Event::ToolCallStarted(CallStart {
                ref call,
                ref tool,
                ref arguments,
                ref repairs,
                attempt,
                ..
            }) => Self::CallStarted { call, tool, arguments, repairs, attempt },
            Event::ToolCallOffered { ref call, ref route, .. } => {
                Self::CallOffered { call, worker: &route.worker }
            }
            Event::ToolCallAnnotated { ref call, ref tool, ref topic, ref data } => {
                Self::CallAnnotated { call, tool, topic, data }
            }
            Event::ToolCallEnded { ref call, ref tool, ref outcome, duration_ms } => {
                Self::CallEnded { call, tool, outcome, duration_ms }
            }
            Event::ChildOpened(ChildLink { child, ref call, stage, ref task }) => {
                let (call, task) = (call.as_ref(), task.as_ref());
                Self::Child { child, call, stage, task, usage: None }
            }
            Event::ChildEnded { child, ref call, stage, ref task, usage } => {
                let (call, task) = (call.as_ref(), task.as_ref());
                Self::Child { child, call, stage, task, usage: Some(usage) }
            }
            Event::TodosChanged { ref todos } => Self::TodosChanged { todos },
            Event::FileSeen { ref path, .. } => Self::FileSeen { path },
            _ => return None,
        })
    }

    fn of_failure(event: &'a Event) -> Option<Self> {
        Some(match *event {
            Event::FaultRaised { ref fault, ref scope } => {
                Self::Fault { fault, scope, is_final: false }
            }
            Event::RecoveryFailed { ref fault, ref scope } => {
                Self::Fault { fault, scope, is_final: true }
            }
            Event::RetryScheduled {
                operation,
                kind,
                attempt,
                next_attempt,
                max_attempts,
                wait_ms,
                due_at,
                ref scope,
            } => Self::RetryScheduled {
                operation,
                kind,
                attempt,
                next_attempt,
                max_attempts,
                wait_ms,
                due_at,
                scope,
            },
            Event::RequestHeld { step, reason, ref fault, until, before, .. } => {
                Self::RequestHeld { step, reason, fault: fault.as_ref(), until, before }
            }
            Event::Recovered { operation, kind, attempts, elapsed_ms, ref scope } => {
                Self::Recovered { operation, kind, attempts, elapsed_ms, scope }
            }
            Event::LateArrivalDropped { of_turn, .. } => Self::LateResultDropped { of_turn },
            _ => return None,
        })
    }

    fn of_pipeline(event: &'a Event) -> Option<Self> {
        let (stage, task, end) = match *event {
            Event::PlanStarted { ref question } => {
                return Some(Self::StageStarted(StageStart::Planning(question)));
            }
            Event::TaskStarted { ref task, attempt } => {
                return Some(Self::StageStarted(StageStart::Task { task, attempt }));
            }
            Event::AggregateStarted { completed, failed } => {
                let start = StageStart::Aggregation { completed, failed };
                return Some(Self::StageStarted(start));
            }
            Event::PlanMade { ref tasks, ref summary } => {
                return Some(Self::PlanMade { tasks, summary });
            }
            Event::TaskRestarted { ref task, attempt, ref reason } => {
                return Some(Self::TaskRestarted { task, attempt, reason });
            }
            Event::PipelineEnded { complete } => return Some(Self::PipelineEnded { complete }),
            Event::PlanRefused { ref fault } => (Stage::Planning, None, StageEnd::Failed(fault)),
            Event::PlanCancelled { ref reason } => {
                (Stage::Planning, None, StageEnd::Cancelled(reason))
            }
            Event::TaskEnded { ref task, ref end } => (Stage::Solving, Some(task), end.into()),
            Event::AggregateEnded { ref end } => (Stage::Aggregation, None, end.into()),
            _ => return None,
        };
        Some(Self::StageEnded { stage, task, end })
    }
}

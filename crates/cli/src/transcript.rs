//! Renders a record as a line for people, or as nothing.

use std::time::Duration;

use budao_core::{
    Lang, Record, Timestamp,
    activity::{
        Activity, ControlRequest, MessageContent, QuestionAnswer, QuestionDetails, StageEnd,
        StageStart,
    },
    elicitation::Elicitation,
    event::{Decision, Event, QuestionPurpose, ReconcileVerdict, Scope, SessionEnd, Stage},
    fault::{Fault, text},
    gate::HoldReason,
    tool::{Outcome, Repair, RepairKind},
};

use crate::{
    form::{describe, headline},
    terminal::Terminal,
    texts::{count, localize, with_address},
};

/// Maximum characters of arguments and outputs in a line.
const PREVIEW: usize = 100;

/// The channels a record can be filtered by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Channel {
    /// For users: answers, calls, ends of turns.
    Progress,
    /// Questions and their answers, cancellations.
    Control,
    /// For operators: faults, retries, resumes, costs.
    Monitor,
}

/// The channel an event belongs to.
pub(crate) fn channel(event: &Event) -> Channel {
    match Activity::of(event) {
        Some(
            Activity::QuestionAsked(_)
            | Activity::QuestionClosed { .. }
            | Activity::ControlRequested { .. }
            | Activity::DoubtSettled { .. }
            | Activity::TimerSet { .. }
            | Activity::TimerCancelled { .. }
            | Activity::MessageAccepted { content: MessageContent::Retry { .. }, .. },
        ) => Channel::Control,
        Some(
            Activity::MessageAccepted { .. }
            | Activity::TurnStarted { .. }
            | Activity::TurnEnded { .. }
            | Activity::Text { .. }
            | Activity::Thought { .. }
            | Activity::AnswerAbandoned { .. }
            | Activity::Answered { .. }
            | Activity::CallStarted { .. }
            | Activity::ReconcileStarted { .. }
            | Activity::ReconcileEnded { .. }
            | Activity::CallOutput { .. }
            | Activity::CallEnded { .. }
            | Activity::StageStarted(_)
            | Activity::PlanMade { .. }
            | Activity::StageEnded { .. }
            | Activity::TaskRestarted { .. }
            | Activity::PipelineEnded { .. },
        ) => Channel::Progress,
        _ => Channel::Monitor,
    }
}

/// Renders records in one language.
pub(crate) struct TranscriptPrinter<'a> {
    pub(crate) terminal: &'a Terminal,
    pub(crate) lang: Lang,
}

impl TranscriptPrinter<'_> {
    fn w(&self, id: &str) -> &'static str {
        localize(self.lang, id)
    }

    /// The text of a record, one or two lines; none if it has none. Text deltas are printed by the caller.
    pub(crate) fn line(&self, record: &Record) -> Option<String> {
        let activity = Activity::of(&record.event)?;
        self.of_call(activity)
            .or_else(|| self.of_recovery(activity, record.at))
            .or_else(|| self.of_control(activity))
            .or_else(|| self.of_progress(activity))
    }

    /// A call: its start, its end, and what became of an interrupted one.
    fn of_call(&self, activity: Activity<'_>) -> Option<String> {
        let terminal = self.terminal;
        Some(match activity {
            Activity::CallStarted { tool, arguments, attempt, repairs, .. } => {
                let mut line = format!(
                    "▸ {} {}",
                    terminal.name(tool),
                    terminal.faint(preview(&arguments.to_string()))
                );
                if attempt > 1 {
                    line.push_str(&format!(" ({} {attempt})", self.w("transcript-try")));
                }
                let repaired = repaired(repairs);
                if repaired > 0 {
                    line.push_str(&format!(" ({} {repaired})", self.w("transcript-repaired")));
                }
                line
            }
            Activity::CallEnded { tool, outcome, duration_ms, .. } => {
                self.call_ended(tool, outcome, duration_ms)
            }
            Activity::ReconcileStarted { tool, .. } => {
                format!("? {} {}", terminal.name(tool), self.w("transcript-reconciling"))
            }
            Activity::ReconcileEnded { tool, verdict, .. } => {
                let words = match verdict {
                    ReconcileVerdict::DidNotHappen => self.w("transcript-did-not-happen"),
                    ReconcileVerdict::Happened => self.w("transcript-was-done"),
                    ReconcileVerdict::StillRuns => self.w("transcript-still-runs"),
                    ReconcileVerdict::CannotTell => self.w("transcript-cannot-tell"),
                };
                format!("= {} {words}", terminal.name(tool))
            }
            Activity::DoubtSettled { tool, by, .. } => {
                let words = self.w("transcript-unknown-outcome-settled-by");
                format!("= {} {words} {by}", terminal.name(tool))
            }
            _ => return None,
        })
    }

    /// What went wrong, and how it continues.
    fn of_recovery(&self, activity: Activity<'_>, at: Timestamp) -> Option<String> {
        Some(match activity {
            Activity::Fault { fault, scope, is_final: false } => self.fault(fault, scope),
            Activity::RequestHeld { reason, until, before, .. } => {
                self.held(reason, until.map(|until| until.since(at)), before)
            }
            Activity::ModelChanged { from, to, reason, .. } => {
                format!("⇄ {}", text::model_changed(reason, from, to, self.lang))
            }
            Activity::RetryScheduled { next_attempt, max_attempts, wait_ms, .. } => format!(
                "↻ {} {next_attempt}/{max_attempts} {} {}",
                self.w("transcript-try-2"),
                self.w("transcript-in"),
                seconds(wait_ms)
            ),
            Activity::Recovered { attempts, elapsed_ms, .. } => format!(
                "✓ {} {attempts} {} {}",
                self.w("transcript-recovered-after"),
                self.w("transcript-tries"),
                seconds(elapsed_ms)
            ),
            Activity::Fault { fault, .. } => {
                let words = self.w("transcript-not-recovered");
                format!("✗ {words}: {}", text::user_text(fault, self.lang))
            }
            Activity::AnswerAbandoned { .. } => {
                format!("⌫ {}", self.w("transcript-unfinished-answer-above-discarded"))
            }
            Activity::SessionResumed { sealed } => {
                let mut line = format!("↺ {}", self.w("transcript-resumed"));
                if !sealed.is_empty() {
                    line.push_str(&format!(
                        "; {} {}",
                        self.w("transcript-calls-with-unknown-outcome"),
                        sealed.len()
                    ));
                }
                line
            }
            Activity::LateResultDropped { of_turn, .. } => {
                format!("… {} {of_turn}", self.w("transcript-dropped-a-late-result-of-turn"))
            }
            _ => return None,
        })
    }

    /// Questions, their answers, and what people ask for.
    fn of_control(&self, activity: Activity<'_>) -> Option<String> {
        let terminal = self.terminal;
        Some(match activity {
            Activity::QuestionAsked(QuestionDetails {
                question,
                arguments,
                purpose: QuestionPurpose::Elicitation,
                ..
            }) => {
                let asked = Elicitation::of_arguments(arguments)?;
                let fields = asked.fields.iter().map(|field| format!("\n  {}", describe(field)));
                let fields: String = fields.collect();
                format!("? {}{fields} ({question})", headline(&asked, self.lang))
            }
            Activity::QuestionAsked(QuestionDetails {
                question, tool, arguments, reason, ..
            }) => format!(
                "? {} {} {}\n  {} ({question})",
                self.w("transcript-allow-call"),
                terminal.name(tool),
                preview(&arguments.to_string()),
                terminal.faint(text::reason(reason, self.lang))
            ),
            Activity::QuestionClosed {
                answer: Some(QuestionAnswer { decision, by, note, .. }),
                ..
            } => {
                let note = note.map(|note| format!(": {note}")).unwrap_or_default();
                let answer = match decision {
                    Decision::Allow => self.w("transcript-allowed-by"),
                    Decision::Deny => self.w("transcript-denied-by"),
                };
                format!("! {answer} {by}{note}")
            }
            Activity::QuestionClosed { question, .. } => {
                format!("! {question} {}", self.w("transcript-expired"))
            }
            Activity::ControlRequested { by, request } => {
                let words = match request {
                    ControlRequest::Cancel(_) => self.w("transcript-cancelled-by"),
                    ControlRequest::Withdraw(_) => self.w("transcript-queued-message-withdrawn-by"),
                    ControlRequest::Close => self.w("transcript-closed-by"),
                    // The effects of the others have lines of their own.
                    ControlRequest::Replan(_) | ControlRequest::StopTask { .. } => return None,
                };
                format!("■ {words} {by}")
            }
            Activity::TimerSet { timer, schedule, next, by, .. } => {
                let (set, next_at) = (self.w("transcript-timer-set"), self.w("transcript-next-at"));
                format!("⏰ {set} {timer} ({by}): {schedule}; {next_at} {next}")
            }
            Activity::TimerCancelled { timer, by } => {
                format!("⏰ {} {timer} ({by})", self.w("transcript-timer-cancelled"))
            }
            Activity::MessageAccepted { content: MessageContent::Retry { of_turn }, .. } => {
                format!("↺ {} {of_turn}", self.w("transcript-retrying-the-failed-turn"))
            }
            _ => return None,
        })
    }

    /// Ends of turns and sessions, summaries, and the stages of a pipeline.
    fn of_progress(&self, activity: Activity<'_>) -> Option<String> {
        Some(match activity {
            Activity::Compacted { messages, tokens_before, tokens_after, .. } => format!(
                "≡ {} {messages}; {tokens_before} → {tokens_after} {}",
                self.w("transcript-older-messages-summarised"),
                self.w("transcript-tokens")
            ),
            Activity::TurnEnded { stop, fault, steps, usage } => {
                let tokens = usage.input_tokens.saturating_add(usage.output_tokens);
                let why = fault.map(|fault| format!(" {}", fault.row().code));
                format!(
                    "● {} {}{} · {} · {}",
                    self.w("transcript-turn"),
                    self.w(&format!("stop-{stop}")),
                    why.unwrap_or_default(),
                    count(self.lang, "count-steps", steps.into()),
                    count(self.lang, "count-tokens", tokens),
                )
            }
            Activity::SessionEnded { end, .. } => match end {
                SessionEnd::Closed => format!("● {}", self.w("transcript-session-closed")),
                SessionEnd::Error => {
                    format!("● {}", self.w("transcript-session-ended-with-an-error"))
                }
            },
            Activity::PlanMade { tasks, .. } => {
                format!("▤ {}", count(self.lang, "count-tasks-planned", tasks.len() as u64))
            }
            Activity::StageStarted(StageStart::Task { task, .. }) => {
                format!("▸ {} {}", task.id, task.title)
            }
            Activity::StageEnded { task: Some(task), end, .. } => match end {
                StageEnd::Completed(_) => format!("✓ {task}"),
                StageEnd::Failed(fault) => {
                    format!("✗ {task}: {}", text::user_text(fault, self.lang))
                }
                StageEnd::Cancelled(_) => format!("■ {task}"),
            },
            Activity::StageEnded {
                stage: Stage::Planning, end: StageEnd::Failed(fault), ..
            } => {
                format!("✗ {}", text::user_text(fault, self.lang))
            }
            _ => return None,
        })
    }

    fn held(&self, reason: HoldReason, wait: Option<Duration>, before: u64) -> String {
        let state = match reason {
            HoldReason::Outage => self.w("transcript-the-service-does-not-work"),
            HoldReason::RateLimit | HoldReason::Capacity => {
                self.w("transcript-the-service-is-busy")
            }
        };
        let next = wait.map_or_else(String::new, |wait| {
            let wait = seconds(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
            format!("{} {wait}, ", self.w("transcript-next-try-in"))
        });
        let waiting = self.w("transcript-requests-waiting-before-this-one");
        format!("⏸ {state} {next}{waiting} {before}")
    }

    fn call_ended(&self, tool: &str, outcome: &Outcome, duration_ms: u64) -> String {
        let terminal = self.terminal;
        match outcome {
            Outcome::Done(_) => {
                format!("✓ {} {}", terminal.name(tool), terminal.faint(seconds(duration_ms)))
            }
            Outcome::Failed(failure) => {
                let fault = &failure.fault;
                let model_text = text::model_text(fault, self.lang);
                let mut lines = format!(
                    "✗ {} {} {}",
                    terminal.name(tool),
                    terminal.strong(fault.row().code),
                    preview(&model_text.replace('\n', "; "))
                );
                if let Some(first) = text::recommendations(fault, self.lang).first() {
                    lines.push_str(&format!("\n  → {}", preview(first)));
                }
                lines
            }
        }
    }

    fn fault(&self, fault: &Fault, scope: &Scope) -> String {
        let tool_prefix = scope.tool.as_ref().map(|tool| format!("{tool}: ")).unwrap_or_default();
        format!(
            "✗ {} {tool_prefix}{}",
            self.terminal.strong(fault.row().code),
            with_address(text::user_text(fault, self.lang), fault)
        )
    }
}

/// The time of day in UTC, as `HH:MM:SS`.
pub(crate) fn clock(at: Timestamp) -> String {
    at.to_string().get(11..19).unwrap_or_default().to_owned()
}

/// Number of corrected arguments. A default that was filled in does not count.
pub(crate) fn repaired(repairs: &[Repair]) -> usize {
    repairs.iter().filter(|repair| repair.kind != RepairKind::DefaultFilled).count()
}

pub(crate) fn seconds(millis: u64) -> String {
    match millis {
        0..1_000 => format!("{millis} ms"),
        _ => format!("{}.{} s", millis / 1_000, millis % 1_000 / 100),
    }
}

pub(crate) fn preview(text: &str) -> String {
    let mut short: String = text.chars().take(PREVIEW).collect();
    if text.chars().nth(PREVIEW).is_some() {
        short.push('…');
    }
    short
}

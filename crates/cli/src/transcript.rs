//! Renders a record as a line for people, or as nothing.

use budao_core::{
    Lang, Record, Timestamp,
    event::{Decision, Event, ReconcileVerdict, Scope, SessionEnd, StopReason, TaskEnd},
    fault::{Fault, text},
    tool::{Outcome, Repair, RepairKind},
};

use crate::{
    terminal::Terminal,
    texts::{localize, with_address},
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
    match event {
        Event::QuestionAsked { .. }
        | Event::QuestionAnswered { .. }
        | Event::QuestionExpired { .. }
        | Event::CancelRequested { .. }
        | Event::MessageWithdrawn { .. }
        | Event::DoubtSettled { .. }
        | Event::RetryAccepted { .. }
        | Event::CloseRequested { .. } => Channel::Control,
        Event::MessageAccepted { .. }
        | Event::TurnStarted { .. }
        | Event::TurnEnded { .. }
        | Event::TextDelta { .. }
        | Event::ThinkingDelta { .. }
        | Event::AnswerAbandoned { .. }
        | Event::ModelAnswered { .. }
        | Event::ToolCallStarted { .. }
        | Event::ReconcileStarted { .. }
        | Event::ReconcileEnded { .. }
        | Event::ToolOutputDelta { .. }
        | Event::ToolCallEnded { .. }
        | Event::PlanStarted { .. }
        | Event::PlanMade { .. }
        | Event::PlanCancelled { .. }
        | Event::TaskStarted { .. }
        | Event::TaskEnded { .. }
        | Event::TaskRestarted { .. }
        | Event::AggregateStarted { .. }
        | Event::AggregateEnded { .. }
        | Event::PipelineEnded { .. } => Channel::Progress,
        _ => Channel::Monitor,
    }
}

/// Renders records in one language.
pub(crate) struct TranscriptPrinter<'a> {
    pub(crate) terminal: &'a Terminal,
    pub(crate) lang: Lang,
}

impl TranscriptPrinter<'_> {
    fn w<'a>(&self, en: &'a str, zh: &'a str) -> &'a str {
        localize(self.lang, en, zh)
    }

    /// The text of a record, one or two lines; none if it has none. Text deltas are printed by the caller.
    pub(crate) fn line(&self, record: &Record) -> Option<String> {
        let terminal = self.terminal;
        Some(match &record.event {
            Event::ToolCallStarted { tool, arguments, attempt, repairs, .. } => {
                let mut line = format!(
                    "▸ {} {}",
                    terminal.name(tool),
                    terminal.faint(preview(&arguments.to_string()))
                );
                if *attempt > 1 {
                    line.push_str(&format!(" ({} {attempt})", self.w("try", "尝试")));
                }
                let repaired = repaired(repairs);
                if repaired > 0 {
                    line.push_str(&format!(" ({} {repaired})", self.w("repaired:", "已修正：")));
                }
                line
            }
            Event::ToolCallEnded { tool, outcome, duration_ms, .. } => {
                self.call_ended(tool, outcome, *duration_ms)
            }
            Event::FaultRaised { fault, scope } => self.fault(fault, scope),
            Event::RequestHeld { until, before, .. } => {
                let wait = until.map(|until| {
                    seconds(u64::try_from(until.since(record.at).as_millis()).unwrap_or(u64::MAX))
                });
                let next = wait.map_or_else(String::new, |wait| {
                    format!("{} {wait}, ", self.w("next try in", "再试前等待"))
                });
                let waiting = self.w("requests waiting before this one:", "前面等待的请求数：");
                let busy = self.w("the service is busy,", "服务繁忙，");
                format!("⏸ {busy} {next}{waiting} {before}")
            }
            Event::ModelChanged { from, to, reason, .. } => {
                format!("⇄ {}", text::model_changed(*reason, from, to, self.lang))
            }
            Event::RetryScheduled { next_attempt, max_attempts, wait_ms, .. } => format!(
                "↻ {} {next_attempt}/{max_attempts} {} {}",
                self.w("try", "重试"),
                self.w("in", "等待"),
                seconds(*wait_ms)
            ),
            Event::Recovered { attempts, elapsed_ms, .. } => format!(
                "✓ {} {attempts} {} {}",
                self.w("recovered after", "已恢复，共尝试"),
                self.w("tries,", "次，用时"),
                seconds(*elapsed_ms)
            ),
            Event::RecoveryFailed { fault, .. } => {
                let words = self.w("not recovered", "未恢复");
                format!("✗ {words}: {}", text::user_text(fault, self.lang))
            }
            Event::AnswerAbandoned { .. } => {
                format!("⌫ {}", self.w("unfinished answer above discarded", "以上未完成的回答作废"))
            }
            Event::QuestionAsked { question, tool, arguments, reason, .. } => format!(
                "? {} {} {}\n  {} ({question})",
                self.w("allow call?", "是否允许执行？"),
                terminal.name(tool),
                preview(&arguments.to_string()),
                terminal.faint(text::reason(reason, self.lang))
            ),
            Event::QuestionAnswered { decision, by, note, .. } => {
                let note = note.as_ref().map(|note| format!(": {note}")).unwrap_or_default();
                let answer = match decision {
                    Decision::Allow => self.w("allowed by", "已允许："),
                    Decision::Deny => self.w("denied by", "已拒绝："),
                };
                format!("! {answer} {by}{note}")
            }
            Event::QuestionExpired { question, .. } => {
                format!("! {question} {}", self.w("expired", "已过期"))
            }
            Event::SessionResumed { sealed } => {
                let mut line = format!("↺ {}", self.w("resumed", "已恢复运行"));
                if !sealed.is_empty() {
                    line.push_str(&format!(
                        "; {} {}",
                        self.w("calls with unknown outcome:", "结果未知的调用："),
                        sealed.len()
                    ));
                }
                line
            }
            Event::CancelRequested { by, .. } => {
                format!("■ {} {by}", self.w("cancelled by", "取消者："))
            }
            Event::ReconcileStarted { tool, .. } => {
                let words = self.w("what became of its interrupted call?", "中断的调用结果如何？");
                format!("? {} {words}", terminal.name(tool))
            }
            Event::ReconcileEnded { tool, verdict, .. } => {
                let words = match verdict {
                    ReconcileVerdict::DidNotHappen => self.w("did not happen", "没有做"),
                    ReconcileVerdict::Happened => self.w("was done", "已经做了"),
                    ReconcileVerdict::CannotTell => self.w("cannot tell", "查不清楚"),
                };
                format!("= {} {words}", terminal.name(tool))
            }
            Event::DoubtSettled { tool, by, .. } => {
                let words = self.w("unknown outcome settled by", "结果的确认者：");
                format!("= {} {words} {by}", terminal.name(tool))
            }
            Event::MessageWithdrawn { by, .. } => {
                format!("■ {} {by}", self.w("queued message withdrawn by", "排队消息的撤回者："))
            }
            Event::RetryAccepted { of_turn, .. } => {
                format!("↺ {} {of_turn}", self.w("retrying the failed turn", "重试失败的回合"))
            }
            Event::CloseRequested { by } => {
                format!("■ {} {by}", self.w("closed by", "关闭者："))
            }
            Event::HistoryCompacted { messages, tokens_before, tokens_after, .. } => format!(
                "≡ {} {messages}; {tokens_before} → {tokens_after} {}",
                self.w("older messages summarised:", "已压缩的早期消息："),
                self.w("tokens", "词元")
            ),
            Event::TurnEnded { stop, fault, steps, usage } => {
                let tokens = usage.input_tokens.saturating_add(usage.output_tokens);
                let why = fault.as_ref().map(|fault| format!(" {}", fault.row().code));
                format!(
                    "● {} {}{} · {} · {}",
                    self.w("turn", "回合"),
                    self.stop(*stop),
                    why.unwrap_or_default(),
                    count(self.lang, (*steps).into(), ["step", "steps"], "步"),
                    count(self.lang, tokens, ["token", "tokens"], "词元"),
                )
            }
            Event::SessionEnded { end, .. } => match end {
                SessionEnd::Closed => format!("● {}", self.w("session closed", "会话已关闭")),
                SessionEnd::Error => {
                    format!("● {}", self.w("session ended with an error", "会话因错误结束"))
                }
            },
            Event::LateArrivalDropped { of_turn, .. } => format!(
                "… {} {of_turn}",
                self.w("dropped a late result of turn", "丢弃迟到的结果，回合")
            ),
            Event::PlanMade { tasks, .. } => {
                let planned = ["task planned", "tasks planned"];
                format!("▤ {}", count(self.lang, tasks.len() as u64, planned, "个任务已规划"))
            }
            Event::PlanRefused { fault } => format!("✗ {}", text::user_text(fault, self.lang)),
            Event::TaskStarted { task, .. } => format!("▸ {} {}", task.id, task.title),
            Event::TaskEnded { task, end } => match end {
                TaskEnd::Completed { .. } => format!("✓ {task}"),
                TaskEnd::Failed { fault } => {
                    format!("✗ {task}: {}", text::user_text(fault, self.lang))
                }
                TaskEnd::Cancelled { .. } => format!("■ {task}"),
            },
            _ => return None,
        })
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

    pub(crate) fn stop(&self, stop: StopReason) -> &'static str {
        match stop {
            StopReason::EndTurn => localize(self.lang, "ended", "已完成"),
            StopReason::MaxTokens => localize(self.lang, "cut at the token limit", "达到词元上限"),
            StopReason::MaxTurnRequests => {
                localize(self.lang, "stopped at the step limit", "达到步数上限")
            }
            StopReason::Refusal => localize(self.lang, "refused by the model", "模型拒绝"),
            StopReason::Cancelled => localize(self.lang, "cancelled", "已取消"),
            StopReason::Failed => localize(self.lang, "failed", "失败"),
        }
    }
}

/// The time of day in UTC, as `HH:MM:SS`.
pub(crate) fn clock(at: Timestamp) -> String {
    at.to_string().get(11..19).unwrap_or_default().to_owned()
}

/// A number with its noun, such as `1 step`; Chinese has one form for all numbers.
pub(crate) fn count(lang: Lang, number: u64, en: [&str; 2], zh: &str) -> String {
    let [one, many] = en;
    let what = localize(lang, if number == 1 { one } else { many }, zh);
    format!("{number} {what}")
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

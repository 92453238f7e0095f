//! Compacts a history: a summary replaces the oldest messages. A call stays with its result; records stay
//! in the journal.

use std::{fmt::Write, sync::Arc};

use budao_core::{
    event::{Event, Scope, Settings, TurnNumber},
    fault::{Fact, Fault, Kind, Operation},
    gate::Requester,
    message::{Block, Message, ModelRequest, Piece, Role, Usage},
    session::{estimate_tokens, question},
    spending::DayRaise,
    trace::{SpanId, Trace},
    turn::Input,
};
use budao_models::Model;
use futures::StreamExt;

use crate::{
    ledger,
    model::{self, AttemptId, GateWait},
    work::WorkContext,
};

/// Target size of the kept history, in percent of `limits.context_tokens`.
const KEPT_PERCENT: u64 = 40;
/// Upper bound of the old history in the summary prompt, in bytes.
const TRANSCRIPT_BYTES_MAX: usize = 200_000;
/// Bytes kept of each old message when the summary is made by rule.
const LINE_BYTES_MAX: usize = 240;
/// Upper bound of a summary, in bytes.
const SUMMARY_BYTES_MAX: usize = 32_000;
/// Upper bound of the model's summary, in tokens.
const SUMMARY_TOKENS: u32 = 2_048;

/// A history that is too long, copied from the session when the compaction was decided.
pub(crate) struct LongHistory {
    /// The request that follows; a wait of the summary is recorded as its wait.
    pub(crate) attempt: AttemptId,
    /// Whether the records say that the gate holds this request.
    pub(crate) is_held: bool,
    pub(crate) history: Arc<Vec<Arc<Message>>>,
    /// Index of the running turn's first message, its question.
    pub(crate) first_message: usize,
    /// The model that summarises.
    pub(crate) model: String,
    pub(crate) settings: Arc<Settings>,
    /// The amounts that people of the session added to daily caps.
    pub(crate) day_raises: Vec<DayRaise>,
    pub(crate) trace: Trace,
    /// Waits for capacity, and not for a service in trouble: a summary by rule is available at once.
    pub(crate) requester: Requester,
}

/// Finds a cut and summarises the messages before it. Always succeeds: if the model fails, the summary is
/// made by rule.
pub(crate) async fn compact(work_context: WorkContext, long: LongHistory) -> Input {
    let history = &long.history;
    let cut = safe_cut(history, work_context.shared.limits.context_tokens * KEPT_PERCENT / 100);
    let old = &history[..cut];
    let written = summarise(&work_context, &long, old).await;
    let by_model = written.is_ok();
    let (summary, usage) = match written {
        Ok(written) => written,
        Err(fault) => {
            report(&work_context, long.attempt.turn, fault.with_trace(long.trace)).await;
            (summarise_by_rule(old), Usage::default())
        }
    };
    let summary = format!("[Summary of {cut} earlier messages]\n{summary}");
    // The question of the running turn is kept, too.
    let question = question(history, long.first_message, cut);
    let kept = history[cut..].iter().chain(question);
    let kept: u64 = kept.map(|message| estimate_tokens(message)).sum();
    let tokens_after = kept + estimate_tokens(&Message::user(summary.as_str()));
    let (turn, messages) = (long.attempt.turn, cut as u64);
    Input::HistoryCompacted { turn, messages, summary, by_model, tokens_after, usage }
}

/// Records that the model failed to summarise; the turn continues with a summary by rule.
async fn report(work_context: &WorkContext, turn: TurnNumber, fault: Fault) {
    let event = Event::FaultRaised { fault, scope: Scope::default() };
    work_context.report(Input::RecordOnly { turn, event }).await;
}

/// Returns the earliest index at which the rest fits and no result is separated from its call. At least one
/// message is cut and at least one is kept.
pub(crate) fn safe_cut(history: &[Arc<Message>], tokens: u64) -> usize {
    let is_safe = |index: &usize| {
        let results = |block: &Block| matches!(block, Block::ToolResult { .. });
        !history[*index].content.iter().any(results)
    };
    let mut left: u64 = history.iter().map(|message| estimate_tokens(message)).sum();
    let mut best = None;
    for index in 1..history.len() {
        left = left.saturating_sub(estimate_tokens(&history[index - 1]));
        if is_safe(&index) {
            best = Some(index);
            if left <= tokens {
                break;
            }
        }
    }
    best.unwrap_or(0)
}

/// The most tokens that the request is expected to use. The estimate of a text may be a quarter too low.
fn estimate_usage(request: &ModelRequest) -> Usage {
    let input: u64 = request.messages.iter().map(|message| estimate_tokens(message)).sum();
    let input_tokens = input.saturating_add(input / 4);
    Usage { input_tokens, output_tokens: u64::from(request.max_tokens), ..Usage::default() }
}

/// Asks the model for a summary and returns it with its token usage. The gate refuses the request while it is
/// shut, and learns its outcome. There is no retry, because a summary by rule is available at once.
async fn summarise(
    work_context: &WorkContext,
    long: &LongHistory,
    old: &[Arc<Message>],
) -> Result<(String, Usage), Fault> {
    let model = work_context.shared.models.model(&long.model)?;
    let prompt = format!(
        "Summarise this conversation for whoever continues it. Keep what was asked, what was decided, \
         which files and values matter, what failed and why, and what is still to be done. Write plain \
         prose, no preamble.\n\n{}",
        transcript(old)
    );
    let request = ModelRequest {
        model: model.name().to_owned(),
        system: None,
        messages: Arc::new(vec![Arc::new(Message::user(prompt))]),
        tools: Arc::new([]),
        answer: None,
        max_tokens: SUMMARY_TOKENS,
        thinking_tokens: None,
        cache_key: None,
        trace: long.trace,
        span: SpanId::of_turn(work_context.session, long.attempt.turn),
    };
    let (key, requester) = (model.gate_key(), long.requester.clone());
    let mut wait = GateWait { is_held: long.is_held, review: None, admission: None };
    let permit = model::admit(work_context, long.attempt, &key, requester, &mut wait).await?;
    let shared = &work_context.shared;
    let estimate = estimate_usage(&request);
    let of_session = (&*long.settings, &long.day_raises[..]);
    let reservation =
        ledger::reserve(work_context, (&long.model, &key.credential), of_session, estimate).await?;
    let mut has_started = false;
    let written = read_summary(&*model, request, &mut has_started).await;
    let written = written.map(|(summary, usage)| {
        let usage = usage.or_estimate(estimate, (summary.len() as u64).div_ceil(4));
        (summary, usage)
    });
    match (reservation, &written) {
        (Some(reservation), Ok((_, usage))) => reservation.settle(shared, *usage).await,
        // What a summary that broke off cost is not known.
        (Some(reservation), Err(_)) if has_started => {
            reservation.settle(shared, Usage::default()).await;
        }
        (Some(reservation), Err(_)) => reservation.release(shared).await,
        (None, _) => {}
    }
    let written = match written {
        Ok(written) => {
            permit.report_answer();
            written
        }
        Err(fault) => {
            permit.report_failure(&fault);
            return Err(fault);
        }
    };
    match written.0.trim().is_empty() {
        true => Err(Fault::new(Kind::EmptyAnswer, Operation::CompactHistory)
            .with(Fact::Service, model.provider().to_owned())
            .with(Fact::Model, model.name().to_owned())),
        false => Ok(written),
    }
}

/// Reads the answer. `has_started` becomes true with its first piece.
async fn read_summary(
    model: &dyn Model,
    request: ModelRequest,
    has_started: &mut bool,
) -> Result<(String, Usage), Fault> {
    let mut pieces = budao_models::ask(model, request).await?;
    let mut summary = String::new();
    while let Some(piece) = pieces.next().await {
        let piece = piece?;
        *has_started = true;
        match piece {
            Piece::Text(text) if summary.len() < SUMMARY_BYTES_MAX => summary.push_str(&text),
            Piece::End { usage, .. } => return Ok((summary, usage)),
            _ => {}
        }
    }
    Err(Fault::new(Kind::ModelStreamCut, Operation::CompactHistory)
        .with(Fact::Service, model.provider().to_owned())
        .with(Fact::Model, model.name().to_owned()))
}

fn transcript(old: &[Arc<Message>]) -> String {
    let mut text = String::new();
    for message in old {
        for line in transcript_lines(message) {
            text.push_str(&line);
            text.push('\n');
        }
        if text.len() > TRANSCRIPT_BYTES_MAX {
            return shorten(&text, TRANSCRIPT_BYTES_MAX);
        }
    }
    text
}

/// Summarises by rule: the first bytes of each message.
fn summarise_by_rule(old: &[Arc<Message>]) -> String {
    let mut text = String::new();
    for line in old.iter().flat_map(|message| transcript_lines(message)) {
        let _ = writeln!(text, "{}", shorten(&line, LINE_BYTES_MAX));
    }
    shorten(&text, SUMMARY_BYTES_MAX)
}

fn transcript_lines(message: &Message) -> Vec<String> {
    let who = match message.role {
        Role::User => "user",
        Role::Assistant => "assistant",
    };
    message
        .content
        .iter()
        .filter_map(|block| match block {
            Block::Text(text) => Some(format!("{who}: {text}")),
            Block::ToolUse(call) => Some(format!("call {}({})", call.name, call.arguments)),
            Block::ToolResult { is_error: true, content, .. } => Some(format!("failed: {content}")),
            Block::ToolResult { content, .. } => Some(format!("result: {content}")),
            Block::Image { .. } => Some(format!("{who}: [a picture]")),
            Block::Thinking { .. } | Block::Opaque(_) => None,
        })
        .collect()
}

fn shorten(text: &str, bytes: usize) -> String {
    if text.len() <= bytes {
        return text.to_owned();
    }
    let mut end = bytes;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{} …", &text[..end])
}

#[cfg(test)]
mod tests {
    use budao_core::{
        message::{CallId, ToolUse},
        session::unpaired,
    };

    use super::*;

    #[test]
    fn a_cut_never_parts_a_result_from_its_call() {
        let mut history = Vec::new();
        for turn in 0..20 {
            history.push(Message::user(format!("question {turn} {}", "x".repeat(turn * 50))));
            for step in 0..turn % 4 {
                let id = CallId::from(format!("c{turn}_{step}").as_str());
                let call = ToolUse { id: id.clone(), name: "t".into(), arguments: "{}".into() };
                let content = "y".repeat(300);
                history
                    .push(Message { role: Role::Assistant, content: vec![Block::ToolUse(call)] });
                history.push(Message {
                    role: Role::User,
                    content: vec![Block::ToolResult { call: id, is_error: false, content }],
                });
            }
            history.push(Message::assistant("answer"));
        }
        let history: Vec<_> = history.into_iter().map(Arc::new).collect();
        for length in 2..history.len() {
            let history = &history[..length];
            if unpaired(history, 0).is_some() {
                continue;
            }
            for tokens in [0, 50, 500, 5_000, 50_000] {
                let cut = safe_cut(history, tokens);
                assert!((1..length).contains(&cut), "{cut} of {length}");
                assert_eq!(unpaired(&history[cut..], 0), None, "cut at {cut} of {length}");
                let orphan = history[cut]
                    .content
                    .iter()
                    .any(|block| matches!(block, Block::ToolResult { .. }));
                assert!(!orphan);
            }
        }
    }
}

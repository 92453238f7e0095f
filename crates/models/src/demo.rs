//! A rule-based model. It needs no network and no key, understands a few plain requests in English and Chinese, and
//! uses the built-in tools to answer them.
//!
//! It makes mistakes on purpose: the first call of a session contains a plausible error. The model corrects the call
//! from the text of the fault alone, and reports a fault whose text does not say how. So it tests our faults as well
//! as demonstrating them. It plans, too, and refuses a task once if it is told to.
//!
//! It keeps no state: every action follows from the request's history, so a resumed session continues where it
//! stopped.

mod correction;
mod history;
mod plan;
mod replies;
mod task;

use std::{collections::VecDeque, sync::Arc, time::Duration};

use async_trait::async_trait;
use budao_core::{
    fault::Fault,
    message::{Block, ModelRequest, ModelStop, Piece, ToolUse, Usage},
    world::Clock,
};
use serde_json::Value;

use self::{
    correction::CorrectionResult,
    history::{DemoCall, DemoTurn},
    task::{DemoLanguage, Goal},
};
use crate::{
    Model, PieceStream,
    script::{PlaybackStep, call_id, play, rough_tokens},
    stream_guard,
};

/// Delay between words at reading pace.
const WORD: Duration = Duration::from_millis(60);
/// Delay between numbers when the request says "slowly".
const SLOW: Duration = Duration::from_millis(300);
/// Attempts per call, the first included.
const TRIES: usize = 4;

/// How fast the model streams its answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pace {
    /// At reading pace, so that a cancel or a cut can happen during an answer.
    #[default]
    Reading,
    /// Without delays between words.
    Fast,
}

/// The rule-based model. Cheap to clone; it keeps no state.
#[derive(Clone, Debug)]
pub struct Demo {
    pace: Pace,
    clock: Arc<dyn Clock>,
}

impl Demo {
    /// Creates a model whose delays wait on `clock`.
    #[must_use]
    pub fn new(pace: Pace, clock: Arc<dyn Clock>) -> Self {
        Self { pace, clock }
    }
}

#[async_trait]
impl Model for Demo {
    fn provider(&self) -> &str {
        "demo"
    }

    fn name(&self) -> &str {
        match self.pace {
            Pace::Reading => "demo",
            Pace::Fast => "demo:fast",
        }
    }

    fn takes_images(&self) -> bool {
        false
    }

    async fn stream(&self, request: ModelRequest) -> Result<PieceStream, Fault> {
        let beats = self.perform(&request, decide(&request));
        Ok(stream_guard::require_end("demo", self.name(), play(beats, self.clock.clone())))
    }
}

/// The text and the calls of one answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct DemoAction {
    text: String,
    call: Option<(String, Value)>,
    slowly: bool,
    /// The model declines to answer.
    refuses: bool,
}

impl DemoAction {
    fn text_only(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    fn call(text: impl Into<String>, tool: &str, arguments: Value) -> Self {
        let call = Some((tool.to_owned(), arguments));
        Self { text: text.into(), call, ..Self::default() }
    }
}

/// Decides on the next action. The model's whole behaviour follows from this function.
fn decide(request: &ModelRequest) -> DemoAction {
    let turn = DemoTurn::of(request);
    if let Some(answer) = plan::answer_stage(turn.text) {
        return DemoAction::text_only(answer);
    }
    let tongue = DemoLanguage::of(turn.text);
    let goals = task::understand(turn.text);
    if goals.contains(&Goal::RefuseFirst) && !plan::is_repeated(turn.text) {
        return DemoAction { refuses: true, ..DemoAction::default() };
    }
    if goals.is_empty() {
        return DemoAction::text_only(replies::help(tongue));
    }
    let progress = turn.progress();
    let mut calls = goals.iter().filter(|goal| goal.is_call());
    match calls.nth(progress.done) {
        Some(goal) => next_call(request, &turn, goal, progress.failed, tongue),
        None => answer(&goals, progress.results, tongue),
    }
}

/// Makes the next goal's call, or corrects the call that failed.
fn next_call(
    request: &ModelRequest,
    turn: &DemoTurn<'_>,
    goal: &Goal,
    failed: &[DemoCall<'_>],
    tongue: DemoLanguage,
) -> DemoAction {
    let Some((tool, right)) = goal.call() else { return DemoAction::default() };
    if !request.tools.iter().any(|spec| &*spec.name == tool) {
        return DemoAction::text_only(replies::no_such_tool(tool, tongue));
    }
    let Some(last) = failed.last() else {
        let arguments = if turn.first_of_session { goal.mistaken() } else { right };
        return DemoAction::call(replies::intention(goal, tongue), tool, arguments);
    };
    if failed.len() >= TRIES {
        return DemoAction::text_only(replies::gave_up(last, tongue));
    }
    match correction::correct_call(last, failed.len()) {
        CorrectionResult::Call { tool, arguments, change } => {
            DemoAction::call(replies::correction(&change, tongue), &tool, arguments)
        }
        CorrectionResult::Stop => DemoAction::text_only(replies::stopped(last, tongue)),
        CorrectionResult::NoHelp => {
            DemoAction::text_only(replies::error_did_not_help(last, tongue))
        }
    }
}

/// Reports the results once all calls are made.
fn answer(goals: &[Goal], results: Vec<Value>, tongue: DemoLanguage) -> DemoAction {
    let slowly = goals.iter().any(|goal| matches!(goal, Goal::CountTo { slowly: true, .. }));
    let mut results = results.into_iter();
    let said: Vec<String> = goals
        .iter()
        .map(|goal| {
            let result = if goal.is_call() { results.next() } else { None };
            replies::outcome(goal, result.as_ref(), tongue)
        })
        .collect();
    DemoAction { text: said.join("\n"), slowly, ..DemoAction::default() }
}

impl Demo {
    fn perform(&self, request: &ModelRequest, doing: DemoAction) -> VecDeque<PlaybackStep> {
        let DemoAction { text, call, slowly, refuses } = doing;
        let mut beats = VecDeque::new();
        for word in words(&text) {
            if self.pace == Pace::Reading {
                beats.push_back(PlaybackStep::Wait(if slowly { SLOW } else { WORD }));
            }
            beats.push_back(PlaybackStep::Piece(Piece::Text(word.to_owned())));
        }
        let mut written = text.len();
        if !text.is_empty() {
            beats.push_back(PlaybackStep::Piece(Piece::Block(Block::Text(text))));
        }
        let stop = match &call {
            Some(_) => ModelStop::ToolUse,
            None if refuses => ModelStop::Refusal,
            None => ModelStop::EndTurn,
        };
        if let Some((name, arguments)) = call {
            let arguments = arguments.to_string();
            written += name.len() + arguments.len();
            let call = ToolUse { id: call_id(request, 1), name, arguments };
            beats.push_back(PlaybackStep::Piece(Piece::Block(Block::ToolUse(call))));
        }
        let usage = Usage {
            input_tokens: rough_tokens(request),
            output_tokens: (written as u64).div_ceil(4),
            ..Usage::default()
        };
        beats.push_back(PlaybackStep::Piece(Piece::End { stop, usage }));
        beats
    }
}

/// Splits text into words, each with its trailing space. A Chinese character is a word.
fn words(text: &str) -> Vec<&str> {
    let ends = |c: char| c.is_whitespace() || task::is_han(c);
    text.split_inclusive(ends).collect()
}

#[cfg(test)]
mod tests;

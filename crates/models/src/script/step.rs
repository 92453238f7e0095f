//! One step of a script: one answer to one request.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use budao_core::{
    fault::{Fact, Fault, Kind, Operation},
    limits::Limits,
    message::{Block, CallId, ModelRequest, ModelStop, Piece, ToolUse, Usage},
    world::Clock,
};
use futures::{StreamExt, stream};
use serde_json::Value;

use crate::PieceStream;

/// How often a step is played before the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RepeatCount {
    /// This number of times in all.
    Count(usize),
    /// For all further requests.
    Forever,
}

impl RepeatCount {
    pub(super) fn count(self) -> usize {
        match self {
            Self::Count(count) => count,
            Self::Forever => usize::MAX,
        }
    }
}

/// How the answer of a step ends.
#[derive(Clone, Debug, PartialEq)]
pub enum Ending {
    /// Normally. `None` means `tool_use` if the step contains a call and `end_turn` otherwise.
    Stop(Option<ModelStop>),
    /// The stream stops without an end, as if the connection broke.
    Cut,
    /// The stream stays open without further pieces until the token deadline passes.
    Stall,
    /// The stream fails as unreadable, with `model_malformed_stream`.
    Malformed,
    /// With this fault. If the step has no parts before it, the request itself fails.
    Fault(Box<Fault>),
}

impl Ending {
    /// The fault of this ending, with service and model filled in; `None` if it has none.
    pub(super) fn fault(&self, model: &str) -> Option<Fault> {
        let fault = match self {
            Self::Malformed => Fault::new(Kind::ModelMalformedStream, Operation::ModelRequest),
            Self::Fault(fault) => (**fault).clone(),
            Self::Stop(_) | Self::Cut | Self::Stall => return None,
        };
        let fill = |fault: Fault, fact, value: &str| match fault.detail().get(fact) {
            Some(_) => fault,
            None => fault.with(fact, value.to_owned()),
        };
        Some(fill(fill(fault, Fact::Service, "script"), Fact::Model, model))
    }
}

/// One scripted answer to one request.
#[derive(Clone, Debug, PartialEq)]
pub struct ScriptStep {
    pub(super) delay: Duration,
    parts: Vec<StepPart>,
    pace: Duration,
    pub(super) end: Ending,
    usage: Option<Usage>,
    pub(super) times: RepeatCount,
}

#[derive(Clone, Debug, PartialEq)]
enum StepPart {
    Text(String),
    Thinking { text: String, signature: Option<String> },
    Call { id: Option<String>, tool: String, arguments: String },
    Opaque(String),
    Pause(Duration),
}

impl Default for ScriptStep {
    fn default() -> Self {
        Self {
            delay: Duration::ZERO,
            parts: Vec::new(),
            pace: Duration::ZERO,
            end: Ending::Stop(None),
            usage: None,
            times: RepeatCount::Count(1),
        }
    }
}

impl ScriptStep {
    /// Creates a step without parts that ends with `end_turn`.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends text to the answer.
    #[must_use]
    pub fn text(self, text: impl Into<String>) -> Self {
        self.part(StepPart::Text(text.into()))
    }

    /// Appends a thinking block with an optional signature.
    #[must_use]
    pub fn think(self, text: impl Into<String>, signature: Option<String>) -> Self {
        self.part(StepPart::Thinking { text: text.into(), signature })
    }

    /// Appends a tool call with JSON arguments.
    #[must_use]
    pub fn call(self, tool: &str, arguments: &Value) -> Self {
        self.call_raw(None, tool, arguments.to_string())
    }

    /// Appends a tool call whose arguments are sent verbatim, even if they are not JSON.
    #[must_use]
    pub fn call_raw(
        self,
        id: Option<String>,
        tool: impl Into<String>,
        arguments: impl Into<String>,
    ) -> Self {
        self.part(StepPart::Call { id, tool: tool.into(), arguments: arguments.into() })
    }

    /// Appends a block of an unknown type, as JSON text.
    #[must_use]
    pub fn opaque(self, json: impl Into<String>) -> Self {
        self.part(StepPart::Opaque(json.into()))
    }

    /// Appends a pause at this point of the answer.
    #[must_use]
    pub fn pause(self, wait: Duration) -> Self {
        self.part(StepPart::Pause(wait))
    }

    /// Delays the whole step, faults included.
    #[must_use]
    pub fn delay(mut self, wait: Duration) -> Self {
        self.delay = wait;
        self
    }

    /// Streams text and thinking word by word, with this delay between words.
    #[must_use]
    pub fn pace(mut self, wait: Duration) -> Self {
        self.pace = wait;
        self
    }

    /// Sets how the answer ends; the default is a normal stop.
    #[must_use]
    pub fn end(mut self, end: Ending) -> Self {
        self.end = end;
        self
    }

    /// Sets the reported token usage; by default it is estimated from the text length.
    #[must_use]
    pub fn usage(mut self, usage: Usage) -> Self {
        self.usage = Some(usage);
        self
    }

    /// Sets how often the step is played; the default is once.
    #[must_use]
    pub fn times(mut self, times: RepeatCount) -> Self {
        self.times = times;
        self
    }

    fn part(mut self, part: StepPart) -> Self {
        self.parts.push(part);
        self
    }

    /// True if the request itself fails, so that no answer starts.
    pub(super) fn fails_outright(&self) -> bool {
        self.parts.is_empty() && matches!(self.end, Ending::Fault(_))
    }

    /// Expands the step into a sequence of pieces and waits.
    pub(super) fn beats(
        &self,
        request: &ModelRequest,
        model: &str,
        limits: &Limits,
    ) -> VecDeque<PlaybackStep> {
        let mut beats = VecDeque::new();
        let mut calls = 0;
        for part in &self.parts {
            match part {
                StepPart::Text(text) => {
                    self.stream_words(text, Piece::Text, &mut beats);
                    beats.push_back(PlaybackStep::Piece(Piece::Block(Block::Text(text.clone()))));
                }
                StepPart::Thinking { text, signature } => {
                    self.stream_words(text, Piece::Thought, &mut beats);
                    let (text, signature) = (text.clone(), signature.clone());
                    beats.push_back(PlaybackStep::Piece(Piece::Block(Block::Thinking {
                        text,
                        signature,
                    })));
                }
                StepPart::Call { id, tool, arguments } => {
                    calls += 1;
                    let id = id
                        .as_ref()
                        .map_or_else(|| call_id(request, calls), |id| CallId(id.as_str().into()));
                    let (name, arguments) = (tool.clone(), arguments.clone());
                    let call = ToolUse { id, name, arguments };
                    beats.push_back(PlaybackStep::Piece(Piece::Block(Block::ToolUse(call))));
                }
                StepPart::Opaque(json) => {
                    beats.push_back(PlaybackStep::Piece(Piece::Block(Block::Opaque(json.clone()))));
                }
                StepPart::Pause(wait) => beats.push_back(PlaybackStep::Wait(*wait)),
            }
        }
        match &self.end {
            Ending::Stop(stop) => {
                let usual = if calls > 0 { ModelStop::ToolUse } else { ModelStop::EndTurn };
                let usage = self.usage.unwrap_or_else(|| self.counted(request));
                let stop = stop.unwrap_or(usual);
                beats.push_back(PlaybackStep::Piece(Piece::End { stop, usage }));
            }
            Ending::Cut => {}
            Ending::Stall => self.stall(model, limits, &mut beats),
            Ending::Malformed | Ending::Fault(_) => {
                beats.extend(self.end.fault(model).map(PlaybackStep::Fault));
            }
        }
        beats
    }

    /// A stall ends like a real one: with a fault once its deadline has passed.
    fn stall(&self, model: &str, limits: &Limits, beats: &mut VecDeque<PlaybackStep>) {
        let (kind, wait) = if self.parts.is_empty() {
            (Kind::ModelFirstTokenTimeout, limits.model_first_token)
        } else {
            (Kind::ModelStalled, limits.model_between_tokens)
        };
        let fault = Fault::new(kind, Operation::ModelRequest)
            .with(Fact::Service, "script")
            .with(Fact::TimeoutMs, wait);
        beats.push_back(PlaybackStep::Wait(wait));
        beats.extend(Ending::Fault(Box::new(fault)).fault(model).map(PlaybackStep::Fault));
    }

    fn stream_words(
        &self,
        text: &str,
        piece: fn(String) -> Piece,
        beats: &mut VecDeque<PlaybackStep>,
    ) {
        if self.pace == Duration::ZERO {
            if !text.is_empty() {
                beats.push_back(PlaybackStep::Piece(piece(text.to_owned())));
            }
            return;
        }
        for word in text.split_inclusive(' ') {
            beats.push_back(PlaybackStep::Wait(self.pace));
            beats.push_back(PlaybackStep::Piece(piece(word.to_owned())));
        }
    }

    /// Estimates the usage at four characters per token.
    fn counted(&self, request: &ModelRequest) -> Usage {
        let written: usize = self
            .parts
            .iter()
            .map(|part| match part {
                StepPart::Text(text) | StepPart::Thinking { text, .. } | StepPart::Opaque(text) => {
                    text.len()
                }
                StepPart::Call { tool, arguments, .. } => tool.len() + arguments.len(),
                StepPart::Pause(_) => 0,
            })
            .sum();
        Usage {
            input_tokens: rough_tokens(request),
            output_tokens: (written as u64).div_ceil(4),
            ..Usage::default()
        }
    }
}

/// Estimates the request's size at four bytes per token.
pub(crate) fn rough_tokens(request: &ModelRequest) -> u64 {
    let system = request.system.as_ref().map_or(0, |text| text.len());
    let read: usize = request
        .messages
        .iter()
        .flat_map(|said| &said.content)
        .map(|block| match block {
            Block::Text(text) | Block::Opaque(text) | Block::Thinking { text, .. } => text.len(),
            Block::ToolUse(call) => call.name.len() + call.arguments.len(),
            Block::ToolResult { content, .. } => content.len(),
            Block::Image { data, .. } => data.len() / 8,
        })
        .sum();
    ((system + read) as u64).div_ceil(4)
}

/// Generates a call id that is unique in a session as long as its history grows.
pub(crate) fn call_id(request: &ModelRequest, index: usize) -> CallId {
    CallId(format!("call_{}_{index}", request.messages.len()).into())
}

/// One element of an answer being played.
pub(crate) enum PlaybackStep {
    Piece(Piece),
    Wait(Duration),
    Fault(Fault),
}

/// Plays the elements in order, waiting on `clock`.
pub(crate) fn play(beats: VecDeque<PlaybackStep>, clock: Arc<dyn Clock>) -> PieceStream {
    stream::unfold((beats, clock), |(mut beats, clock)| async move {
        loop {
            let item = match beats.pop_front()? {
                PlaybackStep::Piece(piece) => Ok(piece),
                PlaybackStep::Fault(fault) => Err(fault),
                PlaybackStep::Wait(wait) => {
                    clock.sleep(wait).await;
                    continue;
                }
            };
            return Some((item, (beats, clock)));
        }
    })
    .boxed()
}

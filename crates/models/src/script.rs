//! A model that plays a script: its texts, calls and failures are written in advance.
//!
//! Tests build a script in Rust ([`Script::new`]); demos load a file (`docs/scripts.md`). Each [`ScriptStep`] answers
//! one request. Scripts contain no randomness and wait only where a delay is written, so the same script always gives
//! the same answers.

mod file;
mod step;

use std::{
    collections::HashMap,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use budao_core::{
    fault::{Fact, Fault, Kind, Operation},
    gate::GateKey,
    limits::Limits,
    message::{ModelRequest, Role},
    world::Clock,
};
use serde_json::Value;

pub use step::{Ending, RepeatCount, ScriptStep};
pub(crate) use step::{PlaybackStep, call_id, play, rough_tokens};

use crate::{Model, PieceStream, stream_guard};

/// How the model selects the step for a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepOrder {
    /// By the number of requests so far: the first request gets the first step, regardless of its session.
    #[default]
    Requests,
    /// By the number of answers in the history, so a session resumed in another process gets the same step. Failing
    /// steps are played before the answer they precede.
    History,
}

/// The steps of a scripted model. Plain data; [`Script::into_model`] turns it into a model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Script {
    steps: Vec<ScriptStep>,
    order: StepOrder,
    name: Option<String>,
}

impl Script {
    /// Creates an empty script; every request to it fails.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Loads a script file; `docs/scripts.md` describes the format.
    ///
    /// # Errors
    /// `configuration_wrong`, with the line, or `file_not_found`.
    pub fn load(path: &Path) -> Result<Self, Fault> {
        file::load(path)
    }

    /// Parses a script from text in the file format. Faults refer to the script as `name`.
    ///
    /// # Errors
    /// `configuration_wrong`, with the line.
    pub fn parse(text: &str, name: &str) -> Result<Self, Fault> {
        file::parse(text, name)
    }

    /// Adds a step that answers with this text.
    #[must_use]
    pub fn say(self, text: impl Into<String>) -> Self {
        self.step(ScriptStep::new().text(text))
    }

    /// Adds a step that answers with one call.
    #[must_use]
    #[expect(clippy::needless_pass_by_value, reason = "reads better with json!({…})")]
    pub fn call(self, tool: &str, arguments: Value) -> Self {
        self.step(ScriptStep::new().call(tool, &arguments))
    }

    /// Adds a step that answers with several calls at once.
    #[must_use]
    pub fn calls<'a>(self, calls: impl IntoIterator<Item = (&'a str, Value)>) -> Self {
        let step =
            calls.into_iter().fold(ScriptStep::new(), |step, (tool, args)| step.call(tool, &args));
        self.step(step)
    }

    /// Adds a step that fails with a fault of this kind before any piece is sent.
    #[must_use]
    pub fn fail(self, kind: Kind) -> Self {
        self.fault(Fault::new(kind, Operation::ModelRequest))
    }

    /// Adds a step that fails with this fault; the model fills in service and model.
    #[must_use]
    pub fn fault(self, fault: Fault) -> Self {
        self.step(ScriptStep::new().end(Ending::Fault(Box::new(fault))))
    }

    /// Adds a step that answers one request.
    #[must_use]
    pub fn step(mut self, step: ScriptStep) -> Self {
        self.steps.push(step);
        self
    }

    /// Plays the last step `times` times in all before the next one.
    #[must_use]
    pub fn repeat(mut self, times: usize) -> Self {
        if let Some(last) = self.steps.last_mut() {
            last.times = RepeatCount::Count(times);
        }
        self
    }

    /// Plays the last step for all further requests.
    #[must_use]
    pub fn forever(mut self) -> Self {
        if let Some(last) = self.steps.last_mut() {
            last.times = RepeatCount::Forever;
        }
        self
    }

    /// Sets how steps are selected; the default is [`StepOrder::Requests`].
    #[must_use]
    pub fn order(mut self, order: StepOrder) -> Self {
        self.order = order;
        self
    }

    /// Selects steps by the number of answers in the history: a session that another process resumes gets the step
    /// that comes next.
    #[must_use]
    pub fn by_history(self) -> Self {
        self.order(StepOrder::History)
    }

    /// Sets the name of the model that plays the script; the default is `script`.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Creates the model that plays this script. Delays wait on `clock`.
    #[must_use]
    pub fn into_model(self, clock: Arc<dyn Clock>) -> ScriptedModel {
        ScriptedModel {
            name: self.name.clone().unwrap_or_else(|| "script".into()),
            place: "script".into(),
            script: self,
            clock,
            limits: Limits::default(),
            recording: false,
            state: Mutex::default(),
        }
    }

    /// The step at a position, where each repetition counts as one position.
    fn at(&self, position: usize) -> Option<&ScriptStep> {
        let mut passed = 0_usize;
        self.steps.iter().find(|step| {
            passed = passed.saturating_add(step.times.count());
            position < passed
        })
    }

    /// The position of the step for a history with `answers` answers, after `failed` of the failing steps before it
    /// have been played.
    fn position(&self, answers: usize, failed: usize) -> usize {
        let (mut position, mut answered, mut failures) = (0_usize, 0_usize, 0_usize);
        for step in &self.steps {
            let count = step.times.count();
            if step.fails_outright() {
                if answered == answers {
                    let left = failed.saturating_sub(failures);
                    if left < count {
                        return position.saturating_add(left);
                    }
                    failures = failures.saturating_add(count);
                }
            } else if answers - answered < count {
                return position.saturating_add(answers - answered);
            } else {
                answered += count;
            }
            position = position.saturating_add(count);
        }
        position
    }
}

/// A model that plays a [`Script`].
#[derive(Debug)]
pub struct ScriptedModel {
    name: String,
    /// Where the script comes from; scripts from different places have gates of their own.
    place: String,
    script: Script,
    clock: Arc<dyn Clock>,
    limits: Limits,
    recording: bool,
    state: Mutex<PlaybackState>,
}

#[derive(Debug, Default)]
struct PlaybackState {
    asked: usize,
    /// Failing steps played, keyed by the number of answers in the request's history.
    failed: HashMap<usize, usize>,
    requests: Vec<ModelRequest>,
}

impl ScriptedModel {
    /// Sets the model's name; the default is `script`.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Sets where the script comes from; the default is `script`. Each place has a gate of its own.
    #[must_use]
    pub fn from_place(mut self, place: impl Into<String>) -> Self {
        self.place = place.into();
        self
    }

    /// Uses the token deadlines of these limits for steps that stall.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Keeps every request for [`Self::requests`]. For tests only: the list is not bounded.
    #[must_use]
    pub fn recording(mut self) -> Self {
        self.recording = true;
        self
    }

    /// The requests so far; empty unless the model is recording.
    #[must_use]
    pub fn requests(&self) -> Vec<ModelRequest> {
        self.state().requests.clone()
    }

    /// The number of requests so far.
    #[must_use]
    pub fn asked(&self) -> usize {
        self.state().asked
    }

    fn state(&self) -> MutexGuard<'_, PlaybackState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Selects the step for this request and advances the script.
    fn next(&self, request: &ModelRequest) -> Result<&ScriptStep, Fault> {
        let mut state = self.state();
        let asked = state.asked;
        state.asked += 1;
        if self.recording {
            state.requests.push(request.clone());
        }
        let position = match self.script.order {
            StepOrder::Requests => asked,
            StepOrder::History => {
                let answers =
                    request.messages.iter().filter(|said| said.role == Role::Assistant).count();
                let failed = state.failed.entry(answers).or_default();
                let position = self.script.position(answers, *failed);
                if self.script.at(position).is_some_and(ScriptStep::fails_outright) {
                    *failed += 1;
                }
                position
            }
        };
        self.script.at(position).ok_or_else(|| self.ran_out(asked))
    }

    fn ran_out(&self, asked: usize) -> Fault {
        Fault::new(Kind::ModelBadRequest, Operation::ModelRequest)
            .with(Fact::Service, "script")
            .with(Fact::Model, self.name.clone())
            .with_cause(format!("the script has no step for request {}", asked + 1))
    }
}

#[async_trait]
impl Model for ScriptedModel {
    fn provider(&self) -> &str {
        "script"
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn gate_key(&self) -> GateKey {
        GateKey {
            endpoint: self.place.as_str().into(),
            model: self.name.as_str().into(),
            credential: "".into(),
        }
    }

    async fn stream(&self, request: ModelRequest) -> Result<PieceStream, Fault> {
        let step = self.next(&request)?.clone();
        if step.delay > Duration::ZERO {
            self.clock.sleep(step.delay).await;
        }
        if step.fails_outright()
            && let Some(fault) = step.end.fault(&self.name)
        {
            return Err(fault);
        }
        let beats = step.beats(&request, &self.name, &self.limits);
        Ok(stream_guard::require_end("script", &self.name, play(beats, self.clock.clone())))
    }
}

#[cfg(test)]
mod tests;

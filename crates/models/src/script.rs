//! A model that plays a script: what it says, whom it calls and how it fails are written down before.
//!
//! Tests build one in Rust ([`Script::new`]), demos write a file (`docs/scripts.md`). One [`ScriptStep`]
//! answers one request. Nothing here is random and only written delays wait, so the same script gives
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
    limits::Limits,
    message::{ModelRequest, Role},
    world::Clock,
};
use serde_json::Value;

pub use step::{Ending, RepeatCount, ScriptStep};
pub(crate) use step::{PlaybackStep, call_id, play, rough_tokens};

use crate::{Model, PieceStream, stream_guard};

/// How a step is chosen for a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepOrder {
    /// The first request gets the first step, the second the second, whoever asks.
    #[default]
    Requests,
    /// The answers already in the history are counted, so a session that was resumed in another process
    /// gets the step it would have got. Failing steps are played before the answer they stand before.
    History,
}

/// What a scripted model will do. Plain data; [`Script::into_model`] makes it answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Script {
    steps: Vec<ScriptStep>,
    order: StepOrder,
}

impl Script {
    /// An empty script.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads a script file; `docs/scripts.md` describes it.
    ///
    /// # Errors
    /// `configuration_wrong`, with the line, or `file_not_found`.
    pub fn load(path: &Path) -> Result<Self, Fault> {
        file::load(path)
    }

    /// Reads a script from text in the format of a file. `name` is what faults call it.
    ///
    /// # Errors
    /// `configuration_wrong`, with the line.
    pub fn parse(text: &str, name: &str) -> Result<Self, Fault> {
        file::parse(text, name)
    }

    /// Answers one request with these words.
    #[must_use]
    pub fn say(self, text: impl Into<String>) -> Self {
        self.step(ScriptStep::new().text(text))
    }

    /// Answers one request with one call.
    #[must_use]
    #[expect(clippy::needless_pass_by_value, reason = "reads better with json!({…})")]
    pub fn call(self, tool: &str, arguments: Value) -> Self {
        self.step(ScriptStep::new().call(tool, &arguments))
    }

    /// Answers one request with several calls at once.
    #[must_use]
    pub fn calls<'a>(self, calls: impl IntoIterator<Item = (&'a str, Value)>) -> Self {
        let step =
            calls.into_iter().fold(ScriptStep::new(), |step, (tool, args)| step.call(tool, &args));
        self.step(step)
    }

    /// Fails one request with a fault of this kind before anything is said.
    #[must_use]
    pub fn fail(self, kind: Kind) -> Self {
        self.fault(Fault::new(kind, Operation::ModelRequest))
    }

    /// Fails one request with exactly this fault; service and model are filled in.
    #[must_use]
    pub fn fault(self, fault: Fault) -> Self {
        self.step(ScriptStep::new().end(Ending::Fault(Box::new(fault))))
    }

    /// Answers one request as the step says.
    #[must_use]
    pub fn step(mut self, step: ScriptStep) -> Self {
        self.steps.push(step);
        self
    }

    /// Plays the last step this often in all, before the next.
    #[must_use]
    pub fn repeat(mut self, times: usize) -> Self {
        if let Some(last) = self.steps.last_mut() {
            last.times = RepeatCount::Count(times);
        }
        self
    }

    /// Plays the last step for ever.
    #[must_use]
    pub fn forever(mut self) -> Self {
        if let Some(last) = self.steps.last_mut() {
            last.times = RepeatCount::Forever;
        }
        self
    }

    /// How steps are chosen.
    #[must_use]
    pub fn order(mut self, order: StepOrder) -> Self {
        self.order = order;
        self
    }

    /// The model that plays it. Delays wait on this clock.
    #[must_use]
    pub fn into_model(self, clock: Arc<dyn Clock>) -> ScriptedModel {
        ScriptedModel {
            name: "script".into(),
            script: self,
            clock,
            limits: Limits::default(),
            recording: false,
            state: Mutex::default(),
        }
    }

    /// The step at a position when every repetition is counted.
    fn at(&self, position: usize) -> Option<&ScriptStep> {
        let mut passed = 0_usize;
        self.steps.iter().find(|step| {
            passed = passed.saturating_add(step.times.count());
            position < passed
        })
    }

    /// The position of the step for a history with `answers` answers, when `failed` of the failing steps
    /// before it have been played.
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

/// Plays a [`Script`].
#[derive(Debug)]
pub struct ScriptedModel {
    name: String,
    script: Script,
    clock: Arc<dyn Clock>,
    limits: Limits,
    recording: bool,
    state: Mutex<PlaybackState>,
}

#[derive(Debug, Default)]
struct PlaybackState {
    asked: usize,
    /// Failing steps played, by the number of answers in the history they were played for.
    failed: HashMap<usize, usize>,
    requests: Vec<ModelRequest>,
}

impl ScriptedModel {
    /// Gives it another name than `script`.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Takes the deadlines for tokens from these limits.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Keeps every request, for [`Self::requests`]. For tests: nothing bounds what is kept.
    #[must_use]
    pub fn recording(mut self) -> Self {
        self.recording = true;
        self
    }

    /// The requests so far, if it is recording.
    #[must_use]
    pub fn requests(&self) -> Vec<ModelRequest> {
        self.state().requests.clone()
    }

    /// How often it was asked.
    #[must_use]
    pub fn asked(&self) -> usize {
        self.state().asked
    }

    fn state(&self) -> MutexGuard<'_, PlaybackState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The step for this request; the script moves on.
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
        Ok(stream_guard::whole("script", &self.name, play(beats, self.clock.clone())))
    }
}

#[cfg(test)]
mod tests;

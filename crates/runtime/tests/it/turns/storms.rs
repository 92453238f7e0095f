//! The twelve storms of `cargo xtask bench recovery` on virtual time, with the real gate and the real turns.
//!
//! Goal: every turn is answered, close to the best possible time and with few requests more than needed. Method: the
//! weather of the bench decides about each request; the paused clock makes the figures exact and the same in every run.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use budao_core::{
    Fault, Kind,
    engine::{Engine, SessionOptions},
    event::{Settings, StopReason},
    fault::{Fact, Operation},
    gate::GateKey,
    limits::Limits,
    message::{Block, CallId, Message, ModelRequest, ModelStop, Piece, Role, ToolUse, Usage},
    tool::{Mode, Permissions},
};
use budao_journal::{Journal, Memory};
use budao_models::{Model, PieceStream};
use budao_runtime::{Builder, ModelSource, Runtime};
use budao_testkit::{
    storm::{
        ANSWER_TIME, Failure, Pace, RESPONSE_DELAY, ServiceLog, ServiceState, Storm, Verdict,
        Weather,
    },
    world,
};
use budao_tools::{RawTool, Toolbox, pool::Pool};
use futures::{StreamExt as _, stream};
use serde_json::json;
use tokio::time::Instant;

/// The last answer may come this much later than is possible.
const TIME_BAR: f64 = 1.25;

/// The service of a storm.
#[derive(Debug)]
struct StormModel {
    name: &'static str,
    steps: usize,
    state: Mutex<RecordedState>,
}

#[derive(Debug)]
struct RecordedState {
    began: Option<Instant>,
    service: ServiceState,
    log: ServiceLog,
}

impl StormModel {
    fn new(name: &'static str, weather: Weather, steps: usize) -> Arc<Self> {
        let (service, log) = (ServiceState::new(weather), ServiceLog::default());
        Arc::new(Self {
            name,
            steps,
            state: Mutex::new(RecordedState { began: None, service, log }),
        })
    }

    fn decide(&self, turn: usize, step: usize) -> Verdict {
        let mut state = self.state.lock().unwrap();
        let now = state.began.get_or_insert_with(Instant::now).elapsed();
        let verdict = state.service.decide(now, turn, step);
        state.log.record(now, (turn, step), verdict);
        verdict
    }

    /// The requests so far, and when the first one came.
    fn log(&self) -> (ServiceLog, Option<Instant>) {
        let state = self.state.lock().unwrap();
        (state.log.clone(), state.began)
    }

    fn fault(&self, kind: Kind) -> Fault {
        Fault::new(kind, Operation::ModelRequest)
            .with(Fact::Service, "storm")
            .with(Fact::Model, self.name)
    }

    fn refusal(&self, status: u16, hint: Option<u64>) -> Fault {
        let kind = match status {
            429 => Kind::ModelRateLimited,
            529 => Kind::ModelOverloaded,
            _ => Kind::ModelServerError,
        };
        let fault = self.fault(kind);
        match hint.map(Duration::from_secs) {
            Some(wait) => fault.retry_after(wait).with(Fact::WaitMs, wait),
            None => fault,
        }
    }

    fn answer(&self, turn: usize, step: usize) -> Vec<Piece> {
        if step + 1 < self.steps {
            let (id, name) = (CallId::from("c"), "effect".to_owned());
            let arguments = json!({ "number": turn }).to_string();
            let call = Block::ToolUse(ToolUse { id, name, arguments });
            return vec![Piece::Block(call), end(ModelStop::ToolUse)];
        }
        let text = format!("turn-{turn} is done");
        vec![Piece::Text(text.clone()), Piece::Block(Block::Text(text)), end(ModelStop::EndTurn)]
    }
}

fn end(stop: ModelStop) -> Piece {
    Piece::End { stop, usage: Usage { input_tokens: 1, output_tokens: 1, ..Usage::default() } }
}

#[async_trait]
impl Model for StormModel {
    fn provider(&self) -> &str {
        "storm"
    }

    fn name(&self) -> &str {
        self.name
    }

    fn gate_key(&self) -> GateKey {
        let (endpoint, model) = (self.name.into(), self.name.into());
        GateKey { endpoint, model, credential: "".into() }
    }

    async fn stream(&self, request: ModelRequest) -> Result<PieceStream, Fault> {
        let (turn, step) = turn_and_step(&request.messages);
        let verdict = self.decide(turn, step);
        tokio::time::sleep(RESPONSE_DELAY).await;
        let pieces = self.answer(turn, step);
        let (rest, cut) = match verdict {
            Verdict::Answer => (pieces, None),
            Verdict::Dealt(failure) | Verdict::Refused(failure, _) => match failure {
                Failure::Status(status, hint) => return Err(self.refusal(status, hint)),
                Failure::Page => return Err(self.refusal(502, None)),
                // A call arrives whole: nothing of it is seen before the cut. Of a text, the first half is.
                Failure::Cut(position) => {
                    let seen = usize::from(step + 1 == self.steps && position > 4);
                    let pieces = pieces.into_iter().take(seen).collect();
                    let cut = self.fault(Kind::ModelStreamCut);
                    (
                        pieces,
                        Some(if position > 0 { cut.with(Fact::Position, position) } else { cut }),
                    )
                }
            },
        };
        // Of a text, the first part comes with the status; a call is seen when it is whole.
        let is_text = step + 1 == self.steps;
        let (first, later) = rest.split_at(usize::from(is_text).min(rest.len()));
        let first: Vec<Result<Piece, Fault>> = first.iter().cloned().map(Ok).collect();
        let later: Vec<_> = later.iter().cloned().map(Ok).chain(cut.clone().map(Err)).collect();
        let pause = if cut.is_some() { Duration::ZERO } else { ANSWER_TIME - RESPONSE_DELAY };
        let pause = tokio::time::sleep(pause);
        let later = stream::once(pause).flat_map(move |()| stream::iter(later.clone()));
        let first = stream::iter(first);
        Ok(first.chain(later).boxed())
    }
}

/// The turn that a request belongs to, and the number of tool results it has.
fn turn_and_step(messages: &[Arc<Message>]) -> (usize, usize) {
    let results = messages.iter().flat_map(|message| &message.content);
    let step = results.filter(|block| matches!(block, Block::ToolResult { .. })).count();
    let asked = messages.iter().find(|message| message.role == Role::User).map(|message| {
        budao_core::message::text_of(&message.content).trim_start_matches("turn-").parse()
    });
    (asked.expect("a question").expect("a number"), step)
}

/// The first model and, in one storm, another that works.
#[derive(Debug)]
struct StormModels([Arc<StormModel>; 2]);

impl ModelSource for StormModels {
    fn model(&self, name: &str) -> Result<Arc<dyn Model>, Fault> {
        Ok(Arc::clone(&self.0[usize::from(name == "second")]) as _)
    }
}

/// What became of a storm.
#[derive(Debug)]
struct Figures {
    answered: usize,
    requests: usize,
    needed: usize,
    time: Duration,
}

fn start(journal: &Arc<dyn Journal>, models: &Arc<StormModels>, seed: u64) -> Runtime {
    let number = json!({"type": "object", "properties": {"number": {"type": "integer"}}});
    let effect = RawTool::new("effect", "Counts.", number, |_, _| async move { Ok(json!("ok")) });
    let tools = Toolbox::builder().pool(Arc::new(Pool::tasks())).add(effect).unwrap().build();
    Builder::new(Arc::clone(journal), Arc::clone(models) as _, Arc::new(tools))
        .world(world::seeded(seed))
        .pool(Arc::new(Pool::tasks()))
        .build()
        .unwrap()
}

async fn run(storm: &Storm, seed: u64) -> Figures {
    let models = Arc::new(StormModels([
        StormModel::new("first", storm.weather.clone(), storm.steps),
        StormModel::new("second", Weather::default(), storm.steps),
    ]));
    let journal: Arc<dyn Journal> = Arc::new(Memory::new(world::seeded(seed), Limits::default()));
    let mut runtime = start(&journal, &models, seed);
    if is_background(storm, seed) {
        runtime.track_observers();
    }
    let permissions = Permissions { mode: Mode::Auto, ..Permissions::default() };
    let fallbacks = if storm.has_second { vec!["second".to_owned()] } else { Vec::new() };
    let settings =
        Settings { model: "first".into(), fallbacks, permissions, ..Settings::default() };
    let mut sessions = Vec::new();
    for _ in 0..storm.turns {
        let opening = SessionOptions { settings: settings.clone(), ..SessionOptions::default() };
        sessions.push(runtime.open(opening).await.unwrap());
    }
    for (number, session) in sessions.iter().enumerate() {
        let content = vec![Block::Text(format!("turn-{number}"))];
        let body = budao_core::event::CommandBody::Message { content };
        runtime.submit(*session, runtime.command("ada", body)).await.unwrap();
    }
    if let Some(kill_at) = storm.kill_at {
        tokio::time::sleep(kill_at).await;
        runtime.shutdown(Duration::ZERO).await;
        runtime = start(&journal, &models, seed + 1);
        if is_background(storm, seed) {
            runtime.track_observers();
        }
        runtime.recover().await.unwrap();
    }
    let mut answered = 0;
    for (number, session) in sessions.iter().enumerate() {
        let state = ended(&runtime, *session).await;
        let last = state.last.as_ref().unwrap();
        answered += usize::from(
            last.stop == StopReason::EndTurn
                && state.last_text().as_deref() == Some(&*format!("turn-{number} is done")),
        );
    }
    let (mut log, began) = models.0[0].log();
    let (second, later) = models.0[1].log();
    if let (Some(began), Some(later)) = (began, later) {
        log.merge(&second, later - began);
    }
    let (requests, needed) = (log.requests, log.needed(storm));
    Figures { answered, requests, needed, time: log.last_answer }
}

/// The state of a session whose turn has ended.
async fn ended(
    runtime: &Runtime,
    session: budao_core::event::SessionId,
) -> budao_core::session::Session {
    let mut records = runtime.follow(session, 0).await.unwrap();
    while let Some(record) = records.next().await {
        if matches!(record.unwrap().event, budao_core::event::Event::TurnEnded { .. }) {
            break;
        }
    }
    runtime.state(session).await.unwrap()
}

/// Runs with the same storm and other jitter; one for a storm with very many turns.
fn seeds(storm: &Storm) -> std::ops::RangeInclusive<u64> {
    if storm.turns > 200 { 1..=1 } else { 1..=3 }
}

/// Whether the sessions of this run have no observers: they are then not loaded while they wait.
fn is_background(storm: &Storm, seed: u64) -> bool {
    seed == 3 || storm.turns > 200
}

#[tokio::test(start_paused = true)]
async fn every_storm_ends_with_all_answers_near_the_best_time_and_with_few_requests() {
    let mut missed = Vec::new();
    for storm in Storm::all(Pace::Full) {
        for seed in seeds(&storm) {
            let figures = run(&storm, seed).await;
            let time = figures.time.as_secs_f64() / storm.best_time().as_secs_f64();
            let requests = figures.requests as f64 / figures.needed.max(1) as f64;
            let is_met = figures.answered == storm.turns
                && requests <= storm.requests_bar
                && time <= TIME_BAR;
            let line = format!("{} seed {seed}: {figures:?} {requests:.2} {time:.2}", storm.name);
            missed.extend((!is_met).then_some(line));
        }
    }
    assert!(missed.is_empty(), "{missed:#?}");
}

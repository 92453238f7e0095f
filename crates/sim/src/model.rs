//! A faulty model. Its answers depend only on the prompt and on the number of requests for it.
//!
//! A prompt carries a mark, `«7»`; every answer repeats it, which exposes an answer in the wrong place. The model is a
//! service outside all processes: its request counts survive a kill.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use budao_core::{
    fault::{Fault, Kind, Operation},
    message::{Block, CallId, Message, ModelRequest, ModelStop, Piece, ToolUse, Usage, text_of},
    session::unpaired,
};
use budao_models::{Model, PieceStream};
use futures::{StreamExt as _, stream};
use rand::{RngExt as _, rngs::StdRng};
use serde_json::json;

use crate::{
    check::Violations,
    script::{Script, pick},
    world::chance,
};

/// Requests for one prompt after which the model gives a final answer.
const ATTEMPTS_MAX: u32 = 14;

/// The first words of a planner's first message, and below those of an aggregator's.
const PLANNER: &str = "Divide the work";
const AGGREGATOR: &str = "Answer the question below";

/// The model service, shared by all processes.
pub(crate) struct FaultyModel {
    seed: u64,
    stubborn: bool,
    asked: Mutex<BTreeMap<String, u32>>,
    violations: Violations,
}

impl fmt::Debug for FaultyModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FaultyModel")
    }
}

impl FaultyModel {
    pub(crate) fn new(script: &Script, violations: Violations) -> Arc<Self> {
        let Script { seed, stubborn, .. } = *script;
        Arc::new(Self { seed, stubborn, asked: Mutex::default(), violations })
    }

    /// Returns whether this prompt makes the model repeat one invalid call.
    fn insists(&self, mark: &str) -> bool {
        self.stubborn && chance(self.seed, &format!("insists {mark}")).random_bool(0.3)
    }

    /// Checks that a request is well-formed, also after faults and kills.
    fn inspect(&self, request: &ModelRequest) {
        let messages = &request.messages[..];
        if let Some(index) = unpaired(messages, 0) {
            let around = &messages[index..messages.len().min(index + 2)];
            self.violations.add("every tool use has its result before a model is asked", || {
                format!("message {index}: {around:?}")
            });
        }
        let ends_with_user =
            messages.last().is_some_and(|last| last.role == budao_core::message::Role::User);
        if !ends_with_user {
            self.violations.add("a request ends with the user", || format!("{messages:?}"));
        }
    }
}

#[async_trait]
impl Model for FaultyModel {
    fn provider(&self) -> &str {
        "moody"
    }

    fn name(&self) -> &str {
        "moody"
    }

    async fn stream(&self, request: ModelRequest) -> Result<PieceStream, Fault> {
        self.inspect(&request);
        let (part, mark) = prompt(&request.messages);
        let time = {
            let mut asked = self.asked.lock().expect("nobody panics with it");
            let count = asked.entry(mark.clone()).or_default();
            *count += 1;
            *count
        };
        let mut dice = chance(self.seed, &format!("model {mark} {time}"));
        let mood = match time {
            _ if time > ATTEMPTS_MAX => ModelBehaviour::Answer,
            _ if part == RequestPurpose::Talk && self.insists(&mark) => ModelBehaviour::Insist,
            _ => mood(&mut dice),
        };
        tokio::time::sleep(Duration::from_millis(*pick(&mut dice, &[0, 0, 3, 40, 900]))).await;
        match mood {
            ModelBehaviour::Refuse => Err(service_fault(&mut dice)),
            ModelBehaviour::Hang => {
                tokio::time::sleep(Duration::from_secs(500)).await;
                Err(Fault::new(Kind::ModelServerError, Operation::ModelRequest))
            }
            mood => Ok(play(pieces(&mut dice, part, &mark, time, &mood))),
        }
    }
}

/// The role of a request: conversation, planning or aggregation.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RequestPurpose {
    Talk,
    Plan,
    Aggregate,
}

/// The purpose of a request, and the mark of the prompt it answers.
fn prompt(messages: &[Arc<Message>]) -> (RequestPurpose, String) {
    let texts = messages.iter().rev().map(|message| text_of(&message.content));
    let found = texts.filter(|text| text.contains('«')).find_map(|text| {
        let mark = text.split('«').next_back()?.split('»').next()?.to_owned();
        let part = match () {
            () if text.starts_with(PLANNER) => RequestPurpose::Plan,
            () if text.starts_with(AGGREGATOR) => RequestPurpose::Aggregate,
            () => RequestPurpose::Talk,
        };
        Some((part, mark))
    });
    found.unwrap_or((RequestPurpose::Talk, "none".to_owned()))
}

/// The model's reaction to one request.
#[derive(PartialEq, Eq)]
enum ModelBehaviour {
    Answer,
    Call,
    /// Makes the same invalid call again.
    Insist,
    Nothing,
    Decline,
    RunOut,
    /// Fails before any text.
    Refuse,
    /// Fails after some text.
    Break,
    /// The stream stops without an end event.
    Cut,
    /// Sends nothing for longer than any timeout.
    Hang,
    /// As `Hang`, in the middle of an answer.
    Stall,
}

fn mood(dice: &mut StdRng) -> ModelBehaviour {
    match dice.random_range(0..100) {
        0..38 => ModelBehaviour::Answer,
        38..76 => ModelBehaviour::Call,
        76..78 => ModelBehaviour::Nothing,
        78 => ModelBehaviour::Decline,
        79 => ModelBehaviour::RunOut,
        80..88 => ModelBehaviour::Refuse,
        88..93 => ModelBehaviour::Break,
        93..96 => ModelBehaviour::Cut,
        96..98 => ModelBehaviour::Hang,
        _ => ModelBehaviour::Stall,
    }
}

/// A random fault of a model service.
fn service_fault(dice: &mut StdRng) -> Fault {
    let kind = *pick(
        dice,
        &[
            Kind::ModelRateLimited,
            Kind::ModelOverloaded,
            Kind::ModelServerError,
            Kind::ModelConnectTimeout,
            Kind::NetworkUnavailable,
            Kind::ConnectionRefused,
            Kind::ModelBadRequest,
            Kind::ModelAuthentication,
            Kind::ModelQuota,
            Kind::ContextTooLong,
            Kind::ModelMalformedStream,
            Kind::ModelPermission,
        ],
    );
    let fault = Fault::new(kind, Operation::ModelRequest);
    if kind == Kind::ModelRateLimited {
        return fault.retry_after(Duration::from_secs(*pick(dice, &[1, 7, 100, 4_000])));
    }
    fault
}

/// The items of a stream, each with the wait before it. `None` is a wait without an item.
type TimedPieces = Vec<(Duration, Option<Result<Piece, Fault>>)>;

fn pieces(
    dice: &mut StdRng,
    part: RequestPurpose,
    mark: &str,
    time: u32,
    mood: &ModelBehaviour,
) -> TimedPieces {
    let mut out = TimedPieces::new();
    let mut say = |dice: &mut StdRng, piece| {
        let wait = Duration::from_millis(*pick(dice, &[0, 0, 1, 10, 30, 200]));
        out.push((wait, Some(piece)));
    };
    let text = match part {
        RequestPurpose::Plan => plan(dice, mark),
        RequestPurpose::Talk | RequestPurpose::Aggregate => format!("answer {time} to «{mark}»"),
    };
    let words: Vec<&str> = text.split_inclusive(' ').collect();
    let end = |stop| Piece::End {
        stop,
        usage: Usage { input_tokens: 9, output_tokens: 9, ..Usage::default() },
    };
    match mood {
        ModelBehaviour::Nothing => say(dice, Ok(end(ModelStop::EndTurn))),
        ModelBehaviour::Break | ModelBehaviour::Cut | ModelBehaviour::Stall => {
            let shown = dice.random_range(0..=words.len());
            for word in &words[..shown] {
                say(dice, Ok(Piece::Text((*word).to_owned())));
            }
            match mood {
                ModelBehaviour::Break => {
                    let fault = service_fault(dice);
                    say(dice, Err(fault));
                }
                ModelBehaviour::Stall => out.push((Duration::from_secs(500), None)),
                _ => {}
            }
        }
        ModelBehaviour::Insist => {
            let arguments = json!({ "id": 7 }).to_string();
            let call = ToolUse { id: CallId("c".into()), name: "effect".to_owned(), arguments };
            say(dice, Ok(Piece::Block(Block::ToolUse(call))));
            say(dice, Ok(end(ModelStop::ToolUse)));
        }
        ModelBehaviour::Call if part == RequestPurpose::Talk => {
            for call in calls(dice, mark, time) {
                say(dice, Ok(Piece::Block(Block::ToolUse(call))));
            }
            say(dice, Ok(end(ModelStop::ToolUse)));
        }
        _ => {
            for word in words {
                say(dice, Ok(Piece::Text(word.to_owned())));
            }
            say(dice, Ok(Piece::Block(Block::Text(text.clone()))));
            let stop = match mood {
                ModelBehaviour::Decline => ModelStop::Refusal,
                ModelBehaviour::RunOut => ModelStop::MaxTokens,
                _ => ModelStop::EndTurn,
            };
            say(dice, Ok(end(stop)));
        }
    }
    out
}

/// The calls of one answer: most are valid, some are not.
fn calls(dice: &mut StdRng, mark: &str, time: u32) -> Vec<ToolUse> {
    let count = dice.random_range(1..=4);
    (0..count)
        .map(|index| {
            let tool = *pick(
                dice,
                &[
                    "effect",
                    "effect",
                    "effect",
                    "look",
                    "look",
                    "wait",
                    "stuck",
                    "panic",
                    "no",
                    "ask",
                    "fragile",
                    "missing",
                    "sure",
                    "sure",
                    "early",
                    "claim",
                    "claim_sure",
                ],
            );
            let is_claim = tool.starts_with("claim");
            let key = dice.random_range(0..6);
            let id = format!("{mark}/{time}/{index}");
            let arguments = match dice.random_range(0..20) {
                0 => "{\"id\": ".to_owned(),
                1 => json!({"id": 7, "other": true}).to_string(),
                2 => json!({}).to_string(),
                // Sessions share these keys.
                _ if is_claim => json!({ "key": format!("{tool} {key}") }).to_string(),
                _ => json!({ "id": id }).to_string(),
            };
            // Providers have sent duplicate ids and empty ids.
            let call = match dice.random_range(0..12) {
                0 => String::new(),
                1 => "again".to_owned(),
                _ => format!("c-{id}"),
            };
            ToolUse { id: CallId(call.into()), name: tool.to_owned(), arguments }
        })
        .collect()
}

/// A plan of some tasks, or an invalid plan.
fn plan(dice: &mut StdRng, mark: &str) -> String {
    if dice.random_bool(0.15) {
        return "I would rather not plan.".to_owned();
    }
    let tasks: Vec<_> = (1..=dice.random_range(1..=3))
        .map(|task| json!({"id": task.to_string(), "title": "a part", "prompt": format!("do «{mark}.{task}»")}))
        .collect();
    json!({"summary": "a plan", "tasks": tasks}).to_string()
}

fn play(pieces: TimedPieces) -> PieceStream {
    stream::iter(pieces)
        .then(|(wait, piece)| async move {
            if !wait.is_zero() {
                tokio::time::sleep(wait).await;
            }
            piece
        })
        .filter_map(|piece| async move { piece })
        .boxed()
}

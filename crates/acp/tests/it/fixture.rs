//! A bridge over the native engine, with a model that does what the prompt says.
//!
//! A prompt is `P7 say 5`, `P7 touch`, `P7 wait` …: a name, then what to do. Every word of the answer
//! carries the name, and so does every call, so that whatever an editor is shown can be traced to the prompt
//! it belongs to.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use budao_acp::{
    Bridge, EditorOptions, ExecutionError, ModelChoice, NoEditorServices, SlashCommand,
};
use budao_core::{
    Fault, Kind, Lang,
    event::Settings,
    fault::Operation,
    limits::Limits,
    message::{Block, CallId, Message, ModelRequest, ModelStop, Piece, Role, ToolUse, Usage},
    world::World,
};
use budao_journal::{Journal, Memory};
use budao_models::{Model, PieceStream};
use budao_runtime::{Builder, OneModel, Runtime};
use budao_testkit::world;
use budao_tools::{RawTool, ToolOptions, Toolbox, pool::Pool};
use futures::{StreamExt, stream};
use serde_json::json;

pub(crate) struct Fixture {
    pub(crate) bridge: Bridge,
    pub(crate) runtime: Runtime,
    pub(crate) journal: Arc<dyn Journal>,
    /// How often tool `touch` ran.
    pub(crate) tool_runs: Arc<AtomicU32>,
}

impl Fixture {
    pub(crate) fn new(seed: u64) -> Self {
        Self::with(seed, ExecutionError::Error)
    }

    pub(crate) fn with(seed: u64, execution_error: ExecutionError) -> Self {
        let (world, limits) = (world::seeded(seed), Limits::default());
        let journal: Arc<dyn Journal> = Arc::new(Memory::new(world.clone(), limits.clone()));
        let tool_runs = Arc::new(AtomicU32::new(0));
        let mut toolbox = Toolbox::builder().pool(Arc::new(Pool::tasks()));
        for tool in tools(&tool_runs) {
            toolbox = toolbox.add(tool).unwrap();
        }
        let model = ObedientModel { world: world.clone(), broken: AtomicU32::new(0) };
        let models = Arc::new(OneModel(Arc::new(model)));
        let runtime = Builder::new(Arc::clone(&journal), models, Arc::new(toolbox.build()))
            .world(world.clone())
            .limits(limits.clone())
            .build()
            .unwrap();
        let choice = |id: &str| ModelChoice::new(id, id);
        let bridge = Bridge {
            engine: Arc::new(runtime.clone()),
            journal: Arc::clone(&journal) as _,
            world,
            limits,
            editor_options: EditorOptions {
                engine: "native".to_owned(),
                models: vec![choice("obedient"), choice("other")],
                thinking: true,
                context_tokens: 1_000,
                commands: vec![SlashCommand {
                    name: "plan".to_owned(),
                    about: "Make a plan".to_owned(),
                    hint: Some("the question".to_owned()),
                }],
                ..EditorOptions::default()
            },
            settings: Settings { model: "obedient".to_owned(), ..Settings::default() },
            lang: Lang::En,
            execution_error,
            services: Arc::new(NoEditorServices),
        };
        Self { bridge, runtime, journal, tool_runs }
    }
}

/// `touch {name}` counts, `wait {name}` waits to be stopped, `look {name}` only reads.
fn tools(tool_runs: &Arc<AtomicU32>) -> Vec<RawTool> {
    let name = || {
        json!({
            "type": "object",
            "properties": {"name": {"type": "string"}},
            "required": ["name"],
        })
    };
    let count = Arc::clone(tool_runs);
    vec![
        RawTool::new("touch", "Touches.", name(), move |_, _| {
            let now = count.fetch_add(1, Ordering::SeqCst) + 1;
            async move { Ok(json!(now)) }
        }),
        RawTool::new("look", "Looks.", name(), |arguments, _| async move {
            Ok(arguments["name"].clone())
        })
        .options(ToolOptions::read_only().idempotent(true)),
        RawTool::new("wait", "Waits until it is stopped.", name(), |_, context| async move {
            context.cancel.cancelled().await;
            Ok(json!("stopped"))
        })
        .options(ToolOptions::read_only().deadline(Duration::from_secs(3600))),
    ]
}

/// The words of an answer to a prompt of that name.
pub(crate) fn words(name: &str, count: usize) -> String {
    (1..=count).map(|word| format!("{name}.{word} ")).collect()
}

/// Does what the prompt says.
#[derive(Debug)]
struct ObedientModel {
    world: World,
    /// How often `break` broke.
    broken: AtomicU32,
}

/// The prompt's name, what to do, and how often the model answered it.
fn read(messages: &[Arc<Message>]) -> (String, String, usize, usize) {
    let is_prompt = |message: &&Arc<Message>| {
        message.role == Role::User
            && message.content.iter().any(|block| matches!(block, Block::Text(_)))
    };
    let prompt = messages.iter().rev().find(is_prompt).unwrap();
    let at = messages.iter().rposition(|message| is_prompt(&message)).unwrap();
    let answers = messages[at..].iter().filter(|message| message.role == Role::Assistant).count();
    let text = budao_core::message::text_of(&prompt.content);
    let mut parts = text.split_whitespace();
    let name = parts.next().unwrap_or("P0").to_owned();
    let verb = parts.next().unwrap_or("say").to_owned();
    let count = parts.next().and_then(|count| count.parse().ok()).unwrap_or(3);
    (name, verb, count, answers)
}

#[async_trait]
impl Model for ObedientModel {
    fn provider(&self) -> &'static str {
        "script"
    }

    fn name(&self) -> &'static str {
        "obedient"
    }

    async fn stream(&self, request: ModelRequest) -> Result<PieceStream, Fault> {
        let (name, verb, count, answers) = read(&request.messages);
        let calls = |tool: &str| {
            let arguments = json!({"name": name}).to_string();
            let id = CallId::from(format!("{name}-{tool}").as_str());
            Block::ToolUse(ToolUse { id, name: tool.to_owned(), arguments })
        };
        let pieces = match (verb.as_str(), answers) {
            ("fail", _) => return Err(Fault::new(Kind::ModelBadRequest, Operation::ModelRequest)),
            ("login", _) => {
                return Err(Fault::new(Kind::ModelAuthentication, Operation::ModelRequest));
            }
            ("stall", _) => return Ok(self.stalls(&name)),
            ("break", _) if self.broken.fetch_add(1, Ordering::SeqCst).is_multiple_of(2) => {
                let mut cut = self.say(&words(&name, count.min(2)), Vec::new());
                cut.push((0, Err(Fault::new(Kind::ModelStreamCut, Operation::ModelRequest))));
                cut
            }
            ("refuse", _) => vec![(0, Ok(end(ModelStop::Refusal)))],
            ("long", _) => {
                let mut all = self.say(&words(&name, count), Vec::new());
                all.push((0, Ok(end(ModelStop::MaxTokens))));
                all
            }
            (tool @ ("touch" | "look" | "wait"), 0) => {
                let mut all = self.say("", vec![calls(tool)]);
                all.push((0, Ok(end(ModelStop::ToolUse))));
                all
            }
            _ => {
                let mut all = self.say(&words(&name, count), Vec::new());
                all.push((0, Ok(end(ModelStop::EndTurn))));
                all
            }
        };
        Ok(self.paced(pieces))
    }
}

type PacedPieces = Vec<(u64, Result<Piece, Fault>)>;

fn end(stop: ModelStop) -> Piece {
    Piece::End { stop, usage: Usage { input_tokens: 10, output_tokens: 5, ..Usage::default() } }
}

impl ObedientModel {
    fn say(&self, text: &str, blocks: Vec<Block>) -> PacedPieces {
        let mut pieces: PacedPieces = text
            .split_inclusive(' ')
            .map(|word| (self.world.entropy.bits() % 40, Ok(Piece::Text(word.to_owned()))))
            .collect();
        if !text.is_empty() {
            pieces.push((0, Ok(Piece::Block(Block::Text(text.to_owned())))));
        }
        pieces.extend(blocks.into_iter().map(|block| (0, Ok(Piece::Block(block)))));
        pieces
    }

    fn paced(&self, pieces: PacedPieces) -> PieceStream {
        let clock = Arc::clone(&self.world.clock);
        stream::iter(pieces)
            .then(move |(wait, piece)| {
                let pause = clock.sleep(Duration::from_millis(wait));
                async move {
                    if wait > 0 {
                        pause.await;
                    }
                    piece
                }
            })
            .boxed()
    }

    /// A word, and then nothing.
    fn stalls(&self, name: &str) -> PieceStream {
        let word = stream::iter([Ok(Piece::Text(words(name, 1)))]);
        word.chain(stream::pending()).boxed()
    }
}

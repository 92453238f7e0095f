//! Models: services by name, scripts for tests, and the parts of a model of your own.

use std::sync::Arc;

use budao_core::Fault as AnyFault;
use budao_models::{Keys, Models};

/// Opens a model by its specification: `anthropic:NAME`, `openai:NAME`, `openai:NAME@URL`, `gemini:NAME`, `demo`,
/// `script:FILE`; `docs/models.md` has them all.
///
/// The key becomes a secret at once: no log line, record or fault contains it. It may be empty where a service needs
/// none. Nothing is requested before the first message.
///
/// ```
/// # fn main() -> Result<(), budao::Fault> {
/// let key = std::env::var("ANTHROPIC_API_KEY").unwrap_or("a key".into());
/// let agent = budao::Agent::builder(budao::model("anthropic:claude-sonnet-4-5", key)?).build()?;
/// # let _ = agent;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// `configuration_wrong` with the nearest valid specification; `credential_missing` if the service needs a key.
pub fn model(specification: &str, key: impl Into<String>) -> Result<Arc<dyn Model>, AnyFault> {
    let spec = Models::parse_spec(specification)?;
    let key = key.into();
    let keys = Keys::read(|_| Some(key.clone()));
    Models::new(budao_runtime::world::system(), Arc::default(), keys).open(&spec)
}

/// ```
/// use budao::{Block, Fault, Model, ModelRequest, ModelStop, Piece, PieceStream, Usage};
/// use futures::StreamExt as _;
///
/// #[derive(Debug)]
/// struct Echo;
///
/// #[async_trait::async_trait]
/// impl Model for Echo {
///     fn provider(&self) -> &str {
///         "example"
///     }
///
///     fn name(&self) -> &str {
///         "echo"
///     }
///
///     async fn stream(&self, request: ModelRequest) -> Result<PieceStream, Fault> {
///         let said = request.messages.last().map(|message| message.content.clone());
///         let mut pieces: Vec<_> = said.unwrap_or_default().into_iter().map(Piece::Block).collect();
///         pieces.push(Piece::End { stop: ModelStop::EndTurn, usage: Usage::default() });
///         Ok(futures::stream::iter(pieces.into_iter().map(Ok)).boxed())
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Fault> {
/// let agent = budao::Agent::builder(Echo).build()?;
/// assert_eq!(agent.session().await?.run("Hello.").await?.text, "Hello.");
/// # Ok(())
/// # }
/// ```
#[doc(inline)]
pub use budao_models::Model;

/// ```
/// use budao::{ModelStop, Piece, PieceStream, Usage};
/// use futures::StreamExt as _;
///
/// fn says(text: &str) -> PieceStream {
///     let end = Piece::End { stop: ModelStop::EndTurn, usage: Usage::default() };
///     futures::stream::iter([Ok(Piece::Text(text.into())), Ok(end)]).boxed()
/// }
/// # let _ = says;
/// ```
#[doc(inline)]
pub use budao_models::PieceStream;

/// ```
/// use budao::{Agent, Kind, Script};
///
/// let first = Script::new().named("first").fail(Kind::ModelOverloaded).say("Here I am.");
/// let agent = Agent::builder(first).fallback(Script::new().named("second").say("And I.")).build();
/// # agent.unwrap();
/// ```
#[doc(inline)]
pub use budao_models::Script;

/// ```
/// fn asks_for_tools(request: &budao::ModelRequest) -> bool {
///     !request.tools.is_empty()
/// }
/// # let _ = asks_for_tools;
/// ```
#[doc(inline)]
pub use budao_core::message::ModelRequest;

/// ```
/// let block = budao::Block::Text("Hello.".into());
/// assert!(matches!(block, budao::Block::Text(text) if text == "Hello."));
/// ```
#[doc(inline)]
pub use budao_core::message::Block;

/// ```
/// let piece = budao::Piece::Text("Hel".into());
/// # let _ = piece;
/// ```
#[doc(inline)]
pub use budao_core::message::Piece;

/// ```
/// assert_ne!(budao::ModelStop::EndTurn, budao::ModelStop::ToolUse);
/// ```
#[doc(inline)]
pub use budao_core::message::ModelStop;

/// ```
/// assert_eq!(budao::Usage::default().input_tokens, 0);
/// ```
#[doc(inline)]
pub use budao_core::message::Usage;

/// ```
/// let response = budao::ResponseInfo { id: "resp_1".into(), ..Default::default() };
/// assert!(!response.is_empty());
/// ```
#[doc(inline)]
pub use budao_core::message::ResponseInfo;

//! Agents, their sessions, and the journal that keeps them.

use std::sync::Arc;

/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), budao::Fault> {
/// let agent = budao::Agent::builder(budao::Script::new().say("Hello.")).build()?;
/// assert_eq!(agent.session().await?.run("Are you there?").await?.text, "Hello.");
/// # Ok(())
/// # }
/// ```
#[doc(inline)]
pub use budao_runtime::Agent;

/// ```
/// # use budao::{Agent, Fault, Permissions, Script};
/// fn careful(script: Script) -> Result<Agent, Fault> {
///     let permissions = Permissions { deny: vec!["bash_*".into()], ..Permissions::default() };
///     Agent::builder(script).system("Be brief.").permissions(permissions).build()
/// }
/// # careful(Script::new()).unwrap();
/// ```
#[doc(inline)]
pub use budao_runtime::AgentBuilder;

/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), budao::Fault> {
/// # let agent = budao::Agent::builder(budao::Script::new().say("One.").say("Two.")).build()?;
/// let session = agent.session().await?;
/// session.run("First.").await?;
/// let again = agent.resume(session.id()).await?;
/// assert_eq!(again.run("Second.").await?.text, "Two.");
/// # Ok(())
/// # }
/// ```
#[doc(inline)]
pub use budao_runtime::Session;

/// ```
/// use budao::{Agent, Kind, Script};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), budao::Fault> {
/// let agent = Agent::builder(Script::new().fail(Kind::ModelQuota)).build()?;
/// let result = agent.session().await?.run("Hello?").await?;
/// assert!(!result.is_ok());
/// assert_eq!(result.fault.map(|fault| fault.kind()), Some(Kind::ModelQuota));
/// # Ok(())
/// # }
/// ```
#[doc(inline)]
pub use budao_runtime::TurnResult;

/// The schema of a type, for answers that are values. Derive it with [`schemars`] from here:
///
/// ```
/// use budao::{Agent, Fault, JsonSchema, Script};
///
/// #[derive(serde::Deserialize, JsonSchema)]
/// #[schemars(crate = "budao::schemars")]
/// struct City {
///     name: String,
///     /// How many people live there.
///     people: u64,
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Fault> {
/// let model = Script::new().say(r#"{"name": "Ghent", "people": 270000}"#);
/// let agent = Agent::builder(model).build()?;
/// let city: City = agent.session().await?.run_typed("Which city has the Gravensteen?").await?;
/// assert_eq!((city.name.as_str(), city.people), ("Ghent", 270_000));
/// # Ok(())
/// # }
/// ```
#[doc(inline)]
pub use schemars::JsonSchema;

/// The crate that derives [`JsonSchema`], in the version that agents use.
pub use schemars;

/// ```
/// use budao::{Question, QuestionReply};
///
/// async fn decide(question: Question) -> QuestionReply {
///     match question.tool.as_str() {
///         "send_letter" => QuestionReply::allow(),
///         _ => QuestionReply::deny().note("Only letters, please."),
///     }
/// }
/// # let _ = decide;
/// ```
#[doc(inline)]
pub use budao_runtime::Question;

/// ```
/// use budao::{Agent, Mode, Permissions, QuestionReply, Script, tool};
///
/// /// Sends a letter.
/// #[tool]
/// async fn send(text: String) -> String {
///     format!("sent: {text}")
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), budao::Fault> {
/// let script = Script::new().call("send", serde_json::json!({"text": "Hi"})).say("Done.");
/// let agent = Agent::builder(script)
///     .tool(send)
///     .approve(|question| async move {
///         println!("{} {}", question.tool, question.arguments);
///         QuestionReply::allow()
///     })
///     .build()?;
/// assert_eq!(agent.session().await?.run("Write to Ada.").await?.text, "Done.");
/// # Ok(())
/// # }
/// ```
#[doc(inline)]
pub use budao_runtime::QuestionReply;

/// ```
/// let unattended =
///     budao::Permissions { mode: budao::Mode::Auto, ..budao::Permissions::default() };
/// # let _ = unattended;
/// ```
#[doc(inline)]
pub use budao_core::tool::Permissions;

/// ```
/// assert_eq!(budao::Mode::default(), budao::Mode::Approval);
/// ```
#[doc(inline)]
pub use budao_core::tool::Mode;

/// ```
/// let mut limits = budao::Limits::default();
/// limits.retry.base = std::time::Duration::from_millis(20);
/// # let _ = limits;
/// ```
#[doc(inline)]
pub use budao_core::limits::Limits;

/// ```
/// use budao::{Agent, Amount, Kind, Limits, Price, Script, SpendingConfig};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), budao::Fault> {
/// let model = Script::new().named("gpt-x").say("Hello.");
/// let prices = [("gpt-x".into(), Price { input: 1.25, output: 10.0, ..Price::FREE })].into();
/// let turn = Some(Amount::Text("0.05 USD".into())); // The longest answer could cost more.
/// let spending = SpendingConfig { turn, prices, ..SpendingConfig::default() };
/// let agent = Agent::builder(model).limits(Limits { spending, ..Limits::default() }).build()?;
/// let result = agent.session().await?.run("Are you there?").await?;
/// assert_eq!(result.fault.map(|fault| fault.kind()), Some(Kind::SpendingCapReached));
/// # Ok(())
/// # }
/// ```
///
/// The prices are those of models by their names. Without prices, caps in tokens hold all the same. At a cap with
/// [`OnCap::Ask`], the session asks a [`Question`] that raises it.
#[doc(inline)]
pub use budao_core::spending::SpendingConfig;

/// ```
/// let cap = budao::SpendingConfig {
///     turn: Some(budao::Amount::Number(0.5)),
///     currency: "EUR".into(),
///     ..budao::SpendingConfig::default()
/// };
/// assert!(cap.check().is_ok());
/// ```
#[doc(inline)]
pub use budao_core::spending::Amount;

/// ```
/// use budao::{Price, Usage};
///
/// let price = Price { input: 2.0, cached_input: Some(0.2), output: 8.0, ..Price::FREE };
/// let usage = Usage { input_tokens: 1_000, cached_tokens: 500, ..Usage::default() };
/// assert_eq!(price.cost(usage), 1_100, "in millionths");
/// ```
#[doc(inline)]
pub use budao_core::spending::Price;

/// ```
/// use budao::{OnCap, SpendingConfig};
///
/// let asks = SpendingConfig { turn_tokens: Some(200_000), on_cap: OnCap::Ask, ..SpendingConfig::default() };
/// # asks.check().unwrap();
/// ```
#[doc(inline)]
pub use budao_core::spending::OnCap;

/// ```
/// # use budao::{Agent, Fault, Script};
/// async fn durable() -> Result<Agent, Fault> {
///     let journal = budao::open_journal("agents.db").await?;
///     Agent::builder(Script::new().say("Hello.")).journal(journal).build()
/// }
/// # let _ = durable;
/// ```
#[doc(inline)]
pub use budao_journal::Journal;

/// ```
/// # use budao::{Fault, Reader, SessionId};
/// use futures::StreamExt as _;
///
/// async fn count(reader: &dyn Reader, session: SessionId) -> Result<usize, Fault> {
///     let mut batches = reader.follow(session, 0);
///     Ok(batches.next().await.transpose()?.map_or(0, |batch| batch.len()))
/// }
/// # let _ = count;
/// ```
#[doc(inline)]
pub use budao_journal::Reader;

use budao_core::Fault as AnyFault;

/// Opens the journal that keeps an agent's sessions, and creates it if it does not exist: `sqlite:PATH`, a bare path, or
/// `memory:`.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), budao::Fault> {
/// let journal = budao::open_journal("memory:").await?;
/// # let _ = journal;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// The URL names no kind of journal, or the file cannot be opened as one.
pub async fn open_journal(url: &str) -> Result<Arc<dyn Journal>, AnyFault> {
    budao_journal::open(url, budao_runtime::world::system()).await
}

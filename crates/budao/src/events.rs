//! What happens in a session, and the interface that gateways use.

/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), budao::Fault> {
/// # let agent = budao::Agent::builder(budao::Script::new().say("Hello.")).build()?;
/// use budao::{Channel, ChannelEvent};
/// use futures::StreamExt as _;
///
/// let session = agent.session().await?;
/// session.run("Are you there?").await?;
/// let mut events = Box::pin(session.events(&[Channel::Progress], 0).await?);
/// while let Some(event) = events.next().await {
///     if let ChannelEvent::Done { reason, .. } = event?.event {
///         println!("{reason}");
///         break;
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[doc(inline)]
pub use budao_runtime::channel::Channel;

/// ```
/// fn show(event: &budao::ChannelEvent) -> Option<String> {
///     match event {
///         budao::ChannelEvent::Done { reason, .. } => Some(format!("done: {reason}")),
///         _ => None,
///     }
/// }
/// # let _ = show;
/// ```
#[doc(inline)]
pub use budao_runtime::channel::ChannelEvent;

/// ```
/// fn is_end(event: &budao::Event) -> bool {
///     matches!(event, budao::Event::TurnEnded { .. })
/// }
/// # let _ = is_end;
/// ```
#[doc(inline)]
pub use budao_core::Event;

/// ```
/// fn show(record: &budao::Record) -> String {
///     format!("{} in turn {}", record.seq, record.turn)
/// }
/// # let _ = show;
/// ```
#[doc(inline)]
pub use budao_core::Record;

/// ```
/// let id: Result<budao::SessionId, _> = "no id".parse();
/// assert!(id.is_err());
/// ```
#[doc(inline)]
pub use budao_core::event::SessionId;

/// ```
/// # fn show(result: &budao::TurnResult) -> &'static str {
/// match result.stop {
///     Some(budao::StopReason::EndTurn) => "done",
///     Some(_) => "ended early",
///     None => "waits for a person",
/// }
/// # }
/// # let _ = show;
/// ```
#[doc(inline)]
pub use budao_core::event::StopReason;

/// ```
/// use budao::{Answer, Command, Engine, Fault, SessionId};
///
/// async fn say(engine: &dyn Engine, to: SessionId, text: &str) -> Result<Answer, Fault> {
///     engine.submit(to, Command::message("line-1", "lines", text)).await
/// }
/// # let _ = say;
/// ```
#[doc(inline)]
pub use budao_core::engine::Engine;

/// ```
/// # use budao::{Engine, Fault, SessionId, SessionOptions};
/// async fn open(engine: &dyn Engine) -> Result<SessionId, Fault> {
///     engine.open(SessionOptions::default()).await
/// }
/// # let _ = open;
/// ```
#[doc(inline)]
pub use budao_core::engine::SessionOptions;

/// ```
/// let cancel = budao::Command::new("c-1", "lines", budao::CommandBody::Cancel { reason: None });
/// # let _ = cancel;
/// ```
#[doc(inline)]
pub use budao_core::event::Command;

/// ```
/// use budao::{Block, CommandBody};
///
/// let body = CommandBody::Message { content: vec![Block::Text("Hello.".into())] };
/// # let _ = body;
/// ```
#[doc(inline)]
pub use budao_core::event::CommandBody;

/// ```
/// fn is_accepted(answer: &budao::Answer) -> bool {
///     match answer {
///         budao::Answer::Accepted { .. } => true,
///         budao::Answer::Rejected { fault } => {
///             eprintln!("{fault}");
///             false
///         }
///     }
/// }
/// # let _ = is_accepted;
/// ```
#[doc(inline)]
pub use budao_core::event::Answer;

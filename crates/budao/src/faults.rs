//! Faults: what failed, and how each audience reads it.

/// ```
/// use budao::{Fault, Kind, Operation};
///
/// let fault = Fault::new(Kind::ModelQuota, Operation::ModelRequest);
/// assert!(fault.row().code.starts_with("ERR_"));
/// assert!(!fault.to_string().is_empty());
/// ```
#[doc(inline)]
pub use budao_core::Fault;

/// ```
/// let text: &str = budao::Kind::InvalidArguments.into();
/// assert_eq!(text, "invalid_arguments");
/// ```
#[doc(inline)]
pub use budao_core::Kind;

/// ```
/// let fault = budao::Fault::new(budao::Kind::ToolFailed, budao::Operation::ToolCall);
/// # let _ = fault;
/// ```
#[doc(inline)]
pub use budao_core::fault::Operation;

/// ```
/// # use budao::{Agent, Lang, Script};
/// let agent = Agent::builder(Script::new()).language(Lang::Zh).build();
/// # agent.unwrap();
/// ```
#[doc(inline)]
pub use budao_core::Lang;

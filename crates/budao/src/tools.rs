//! Tools: functions, the built-in set, and those of MCP servers.

use std::{path::Path, sync::Arc};

use budao_core::Fault as AnyFault;
use budao_tools::builtin::{self, BuiltinOptions, Workspace};

/// ```
/// use budao::tool;
///
/// /// Tells the weather of a city.
/// #[tool(read_only)]
/// async fn weather(
///     /// The city's name.
///     city: String,
/// ) -> String {
///     format!("It is raining in {city}.")
/// }
/// # budao::Agent::builder(budao::Script::new()).tool(weather).build().unwrap();
/// ```
#[doc(inline)]
pub use budao_derive::tool;

/// ```
/// use std::sync::Arc;
///
/// fn names(tools: &[Arc<dyn budao::Tool>]) -> Vec<String> {
///     tools.iter().map(|tool| tool.spec().name.to_string()).collect()
/// }
/// # let _ = names;
/// ```
#[doc(inline)]
pub use budao_tools::Tool;

/// ```
/// use budao::{RawTool, ToolError};
/// use serde_json::json;
///
/// let schema = json!({"type": "object", "properties": {"city": {"type": "string"}}});
/// let weather = RawTool::new("weather", "Tells the weather.", schema, |arguments, _| async move {
///     match arguments["city"].as_str() {
///         Some(city) => Ok(json!({"weather": format!("rain in {city}")})),
///         None => Err(ToolError::new("Which city?").into_failure("weather")),
///     }
/// });
/// # budao::Agent::builder(budao::Script::new()).tool(weather).build().unwrap();
/// ```
#[doc(inline)]
pub use budao_tools::RawTool;

/// Any error converts to it with `?`: the operator reads its text, the model reads that the tool failed. What the model
/// should read is said with [`ToolError::new`], and the cause can go along:
///
/// ```
/// use budao::{ToolError, tool};
///
/// /// Reads a number.
/// #[tool(read_only)]
/// async fn number(text: String) -> Result<i64, ToolError> {
///     text.parse().map_err(|error| {
///         ToolError::new(format!("`{text}` is no number."))
///             .advise_model("Write it with digits.")
///             .caused_by(&error)
///     })
/// }
/// # let _ = number;
/// ```
#[doc(inline)]
pub use budao_tools::ToolError;

/// ```
/// use budao::{CallContext, tool};
///
/// /// Pays an invoice, once.
/// #[tool]
/// async fn pay(amount: u32, context: &CallContext) -> String {
///     format!("paid {amount} under the key {}", context.idempotency_key)
/// }
/// # let _ = pay;
/// ```
#[doc(inline)]
pub use budao_tools::CallContext;

/// ```
/// use budao::{CallContext, Reconciliation, ToolError, tool};
///
/// /// Sends a letter.
/// #[tool(reconcile = was_sent)]
/// async fn send(text: String) -> String {
///     format!("sent: {text}")
/// }
///
/// async fn was_sent(_text: String, _: &CallContext) -> Result<Reconciliation, ToolError> {
///     Ok(Reconciliation::CannotTell)
/// }
/// # let _ = send;
/// ```
#[doc(inline)]
pub use budao_tools::Reconciliation;

/// ```
/// # use budao::{Agent, Fault, McpServer, McpServerConfig, Script};
/// async fn with_files() -> Result<Agent, Fault> {
///     let config = McpServerConfig::stdio("files", "npx", ["server-filesystem", "."]);
///     let server = budao::start_mcp_server(config).await?;
///     Agent::builder(Script::new()).tools(server.tools()).build()
/// }
/// # let _ = with_files;
/// ```
#[doc(inline)]
pub use budao_mcp::ServerHandle as McpServer;

/// ```
/// let config = budao::McpServerConfig::http("search", "http://127.0.0.1:8000/mcp");
/// assert!(config.check().is_ok());
/// ```
#[doc(inline)]
pub use budao_mcp::McpServerConfig;

/// The built-in tools (`fs_*`, `bash_*`, `todo_*`, `wake_at` and its companions) for a directory, which the file tools
/// cannot leave.
///
/// ```
/// # fn main() -> Result<(), budao::Fault> {
/// let agent =
///     budao::Agent::builder(budao::Script::new()).tools(budao::built_in_tools(".")?).build()?;
/// # let _ = agent;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// The path is no directory, or it cannot be opened.
pub fn built_in_tools(directory: impl AsRef<Path>) -> Result<Vec<Arc<dyn Tool>>, AnyFault> {
    let mut tools = builtin::tools(&Workspace::open(directory)?, &BuiltinOptions::default());
    tools.extend(builtin::timer_tools());
    Ok(tools)
}

/// Starts an MCP server and waits until it is ready. It gets the usual environment variables of this process (`PATH`,
/// `HOME` …) and those that its configuration names.
///
/// ```
/// # async fn example() -> Result<(), budao::Fault> {
/// let config = budao::McpServerConfig::stdio("clock", "uvx", ["mcp-server-time"]);
/// let server = budao::start_mcp_server(config).await?;
/// println!("{} tools", server.tools().len());
/// # Ok(())
/// # }
/// # let _ = example;
/// ```
///
/// # Errors
/// The server cannot be started; the fault has the end of its error output.
pub async fn start_mcp_server(config: McpServerConfig) -> Result<McpServer, AnyFault> {
    let variables = std::env::vars_os().collect();
    McpServer::connect(config, &variables, &budao_runtime::world::system(), &Arc::default()).await
}

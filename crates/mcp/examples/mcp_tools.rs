//! Lists the tools of an MCP server, and calls one of them.
//!
//! ```text
//! cargo run -p budao-mcp --example mcp_tools -- server.toml
//! cargo run -p budao-mcp --example mcp_tools -- server.toml mcp__files__read '{"path": "a.txt"}'
//! ```
//!
//! where `server.toml` says how to reach it:
//!
//! ```toml
//! name = "files"
//! transport = { type = "stdio", command = "npx", args = ["-y", "@modelcontextprotocol/server-filesystem", "."] }
//! ```
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::{error::Error, sync::Arc};

use budao_core::{Lang, limits::Limits, tool::Outcome};
use budao_mcp::{McpServerConfig, ServerHandle};
use budao_tools::{Toolbox, isolation};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let path = args.next().ok_or("usage: mcp_tools SERVER.toml [TOOL [ARGUMENTS]]")?;
    let config: McpServerConfig = toml::from_str(&std::fs::read_to_string(path)?)?;

    let context = isolation::context();
    let limits = Arc::new(Limits::default());
    let variables = std::env::vars_os().collect();
    let server = ServerHandle::connect(config, &variables, &context.world, &limits).await?;
    let toolbox = Toolbox::builder().build().with_all(server.tools())?;

    match args.next() {
        None => {
            for spec in toolbox.specs().iter() {
                println!("{} ({:?}): {}", spec.name, spec.effect, spec.description);
            }
        }
        Some(tool) => {
            let arguments = args.next().unwrap_or_default();
            let outcome = match toolbox.check_text(&tool, arguments.as_bytes(), &limits) {
                Ok(call) => call.run(context).await,
                Err(fault) => Outcome::from(fault),
            };
            println!("{}", outcome.render_for_model(Lang::En).0);
        }
    }
    server.shutdown().await;
    Ok(())
}

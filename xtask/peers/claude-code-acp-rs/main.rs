//! The published Rust adapter, as its own program is: an ACP agent on stdin and stdout.
//!
//! It measures nothing by itself; `crates/cli/benches/acp.rs` starts it beside ours.

#[tokio::main]
async fn main() {
    match std::env::args().nth(1).as_deref() {
        Some("--version") => println!("claude-code-acp-rs {}", env!("CARGO_PKG_VERSION")),
        Some(_) => {}
        None => {
            if let Err(error) = claude_code_acp::run_acp().await {
                eprintln!("{error}");
                std::process::exit(1);
            }
        }
    }
}

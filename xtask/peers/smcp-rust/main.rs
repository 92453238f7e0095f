//! The published A2C-SMCP crates as a hub, an agent and a computer, for tests and benchmarks.
//!
//! `hub` says `listening PORT`; `agent URL ROOM NAME TIMEOUT` takes a command a line, as JSON, and answers each with one line;
//! `computer URL ROOM NAME PROGRAM ARG…` says `joined`, then takes `leave` and `join`. All live until their input ends.

use std::{collections::HashMap, net::SocketAddr, sync::Arc};

use async_trait::async_trait;
use serde_json::{Value, json};
use smcp_agent::{AsyncSmcpAgent, DefaultAuthProvider, SmcpAgentConfig};
use smcp_computer::{
    computer::{Computer, ConnectOptions, SilentSession},
    mcp_clients::model::MCPServerConfig,
};
use smcp_server_core::{SmcpServerBuilder, auth::{AuthError, AuthenticationProvider}};
use smcp_server_hyper::HyperServerBuilder;
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines, Stdin};

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

#[tokio::main]
async fn main() -> Outcome {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args.as_slice() {
        ["--version"] => println!("smcp-rust 0.4.1"),
        ["hub"] => hub().await?,
        ["agent", url, room, name, timeout] => agent(url, room, name, timeout.parse()?).await?,
        ["computer", url, room, name, program, rest @ ..] => computer(url, room, name, program, rest).await?,
        _ => return Err("hub | agent URL ROOM NAME TIMEOUT | computer URL ROOM NAME PROGRAM ARG…".into()),
    }
    Ok(())
}

fn lines() -> Lines<BufReader<Stdin>> {
    BufReader::new(tokio::io::stdin()).lines()
}

/// Lets everybody in: the crate's own default refuses everybody.
#[derive(Debug)]
struct AllowAll;

#[async_trait]
impl AuthenticationProvider for AllowAll {
    async fn authenticate(&self, _: &http::HeaderMap, _: Option<&Value>) -> Result<(), AuthError> {
        Ok(())
    }
}

async fn hub() -> Outcome {
    let layer = SmcpServerBuilder::new().with_auth_provider(Arc::new(AllowAll)).build_layer()?;
    // The crate binds by itself and does not say where.
    let address: SocketAddr = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let server = HyperServerBuilder::new().with_layer(layer).with_addr(address).build();
    let serving = tokio::spawn(server.run(address));
    while tokio::net::TcpStream::connect(address).await.is_err() {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    println!("listening {}", address.port());
    let mut lines = lines();
    while lines.next_line().await?.is_some() {}
    serving.abort();
    Ok(())
}

async fn agent(url: &str, room: &str, name: &str, timeout: u64) -> Outcome {
    let provider = DefaultAuthProvider::new(name.to_owned(), room.to_owned()).with_api_key("right".to_owned());
    let config = SmcpAgentConfig::new().with_tool_call_timeout(timeout);
    let mut agent = AsyncSmcpAgent::new(provider, config);
    agent.connect(url).await?;
    agent.join_office(name).await?;
    println!("{}", json!({ "id": 0, "ok": "joined" }));
    let agent = Arc::new(agent);
    let mut lines = lines();
    while let Some(line) = lines.next_line().await? {
        let command: Value = serde_json::from_str(&line)?;
        let (agent, room, name) = (Arc::clone(&agent), room.to_owned(), name.to_owned());
        tokio::spawn(async move {
            let said = match obey(&agent, &room, &name, &command).await {
                Ok(value) => json!({ "id": command["id"], "ok": value }),
                Err(error) => json!({ "id": command["id"], "error": error.to_string() }),
            };
            println!("{said}");
        });
    }
    Ok(())
}

async fn obey(agent: &AsyncSmcpAgent, room: &str, name: &str, command: &Value) -> Outcome<Value> {
    let text = |field: &str| command[field].as_str().unwrap_or_default();
    Ok(match text("do") {
        "tools" => {
            let tools = agent.get_tools(text("computer")).await?;
            let mut names: Vec<String> = tools.into_iter().map(|tool| tool.name).collect();
            names.sort();
            json!(names)
        }
        "call" => agent.tool_call(text("computer"), text("tool"), command["params"].clone()).await?,
        "list" => serde_json::to_value(agent.list_room(room).await?)?,
        "cancel" => {
            agent.tool_call_cancel(text("req_id")).await?;
            json!("sent")
        }
        "leave" => {
            agent.leave_office().await?;
            json!("left")
        }
        "join" => {
            agent.join_office(name).await?;
            json!("joined")
        }
        other => return Err(format!("no command `{other}`").into()),
    })
}

async fn computer(url: &str, room: &str, name: &str, program: &str, args: &[&str]) -> Outcome {
    let server: MCPServerConfig = serde_json::from_value(json!({
        "type": "stdio", "name": "tools", "disabled": false, "forbidden_tools": [], "tool_meta": {},
        "default_tool_meta": { "auto_apply": true },
        "server_parameters": { "command": program, "args": args, "env": {} },
    }))?;
    let home = std::env::temp_dir().join(format!("smcp-rust-{}", std::process::id()));
    std::fs::create_dir_all(&home)?;
    let servers = HashMap::from([("tools".to_owned(), server)]);
    let computer = Computer::new(name, SilentSession::new("peer"), None, Some(servers), true, true)
        .with_skill_home(&home)
        .with_blob_cache_root(&home)
        .with_config_dir(&home);
    computer.boot_up().await?;
    computer.start_all_mcp_clients().await?;
    let options = ConnectOptions { auth_payload: Some(json!({ "token": "right" })), ..ConnectOptions::default() };
    computer.connect_socketio(url, options).await?;
    computer.join_office(room, name).await?;
    println!("joined");
    let mut lines = lines();
    while let Some(line) = lines.next_line().await? {
        match line.trim() {
            "leave" => {
                computer.leave_office().await?;
                println!("left");
            }
            "join" => {
                computer.join_office(room, name).await?;
                println!("joined");
            }
            _ => {}
        }
    }
    computer.shutdown().await?;
    let _ = std::fs::remove_dir_all(&home);
    Ok(())
}

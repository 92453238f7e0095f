//! Against servers that people use: files, memory, fetch and time of the MCP project.
//!
//! They are fetched by `cargo xtask peers mcp-servers-js mcp-servers-python`. Where they are missing these tests say so
//! and pass; with `CI=true` they fail.

use budao_core::{fault::Kind, tool::Effect};
use budao_mcp::McpServerConfig;
use serde_json::json;

use crate::common::{call, connect, done, failed, names, peer, within};

#[tokio::test]
async fn files_are_written_read_and_kept_inside_their_folder() {
    let Some(peer) = peer("mcp-servers-js") else { return };
    let entry = peer.join("node_modules/@modelcontextprotocol/server-filesystem/dist/index.js");
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().canonicalize().unwrap();
    let args = [entry.to_str().unwrap(), root.to_str().unwrap()];
    let server = connect(McpServerConfig::stdio("files", "node", args)).await;
    let path = root.join("a.txt");
    let written = json!({ "path": path, "content": "hello" });
    done(call(&server, "write_file", written).await);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "hello");
    let read = done(call(&server, "read_text_file", json!({ "path": path })).await);
    assert!(read.to_string().contains("hello"), "{read}");
    let outside = failed(call(&server, "read_text_file", json!({ "path": "/etc/hostname" })).await);
    assert_eq!(outside.fault.kind(), Kind::ToolSaidNo, "{}", outside.fault);
    let reads = server.tools().into_iter().find(|it| it.spec().name.ends_with("read_text_file"));
    assert_eq!(reads.unwrap().spec().effect, Effect::Reads);
    within(server.shutdown()).await;
}

#[tokio::test]
async fn memory_keeps_its_content_between_two_runs() {
    let Some(peer) = peer("mcp-servers-js") else { return };
    let entry = peer.join("node_modules/@modelcontextprotocol/server-memory/dist/index.js");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("memory.jsonl");
    let config = || {
        let mut config = McpServerConfig::stdio("memory", "node", [entry.to_str().unwrap()]);
        if let budao_mcp::Transport::Stdio(stdio) = &mut config.transport {
            let value = file.to_str().unwrap().to_owned().into();
            stdio.env.insert("MEMORY_FILE_PATH".to_owned(), value);
        }
        config
    };
    let server = connect(config()).await;
    let ann = json!({ "name": "Ann", "entityType": "person", "observations": ["likes tea"] });
    done(call(&server, "create_entities", json!({ "entities": [ann] })).await);
    within(server.shutdown()).await;
    let server = connect(config()).await;
    let graph = done(call(&server, "read_graph", json!({})).await);
    assert!(graph.to_string().contains("likes tea"), "{graph}");
    within(server.shutdown()).await;
}

#[tokio::test]
async fn the_time_server_answers_and_an_unknown_zone_is_an_error() {
    let Some(peer) = peer("mcp-servers-python") else { return };
    let python = peer.join("bin/python");
    let args = ["-m", "mcp_server_time", "--local-timezone", "UTC"];
    let server = connect(McpServerConfig::stdio("time", python.to_str().unwrap(), args)).await;
    let now = done(call(&server, "get_current_time", json!({ "timezone": "Asia/Tokyo" })).await);
    assert!(now.to_string().contains("+09:00"), "{now}");
    let nowhere = call(&server, "get_current_time", json!({ "timezone": "Asia/Nowhere" })).await;
    let fault = failed(nowhere).fault;
    assert_eq!(fault.hops()[0].name, "time", "{fault}");
    within(server.shutdown()).await;
}

#[tokio::test]
async fn fetch_reads_a_page_and_reports_one_that_is_not_there() {
    let Some(peer) = peer("mcp-servers-python") else { return };
    let page =
        axum::Router::new().route("/page", axum::routing::get(|| async { "the answer is 42" }));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, page).await });
    let python = peer.join("bin/python");
    let args = ["-m", "mcp_server_fetch", "--ignore-robots-txt", "--allow-private-ips"];
    let server = connect(McpServerConfig::stdio("fetch", python.to_str().unwrap(), args)).await;
    assert_eq!(names(&server), ["mcp__fetch__fetch"]);
    let url = format!("http://{address}/page");
    let read = done(call(&server, "fetch", json!({ "url": url, "raw": true })).await);
    assert!(read.to_string().contains("the answer is 42"), "{read}");
    let missing = json!({ "url": format!("http://{address}/missing") });
    let fault = failed(call(&server, "fetch", missing).await).fault;
    assert_eq!(fault.hops()[0].name, "fetch", "{fault}");
    within(server.shutdown()).await;
}

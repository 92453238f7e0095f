//! What a server has to read besides its tools.

use std::time::Duration;

use budao_core::{
    fault::{Fact, Kind},
    tool::Outcome,
};
use budao_mcp::{McpServerConfig, ResourceChange, ServerSet};
use budao_tools::{Toolbox, isolation};
use serde_json::{Value, json};

use crate::common::{call, connect, done, failed, fake, limits, variables, within, world};

const LIMIT: Duration = Duration::from_secs(10);

fn resource(uri: &str, text: &str) -> Value {
    json!({ "uri": uri, "name": uri, "contents": [{ "uri": uri, "text": text }] })
}

#[tokio::test]
async fn resources_are_listed_by_the_page_and_read_by_address() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("resources.json");
    let all = ["a:1", "a:2", "a:3"].map(|uri| resource(uri, &uri.to_uppercase()));
    std::fs::write(&file, json!(all).to_string()).unwrap();
    let args = ["--page", "2", "--resources", file.to_str().unwrap()];
    let server = connect(fake(&args)).await;
    assert_eq!(server.has_resources(), Some(true));
    let uris = |page: &[Value]| page.iter().map(|it| it["uri"].clone()).collect::<Vec<_>>();
    let first = within(server.resources(None, LIMIT)).await.unwrap();
    assert_eq!(uris(&first.resources), ["a:1", "a:2"]);
    let second = within(server.resources(first.next, LIMIT)).await.unwrap();
    assert_eq!((uris(&second.resources), second.next), (vec![json!("a:3")], None));
    let read = within(server.read_resource("a:3", LIMIT)).await.unwrap();
    assert_eq!(read[0]["text"], "A:3");
    let none = within(server.read_resource("a:4", LIMIT)).await.unwrap_err();
    assert_eq!(none.detail().text(Fact::Uri), Some("a:4"), "{none}");
    assert_eq!(none.hops()[0].name, "fake");
    within(server.shutdown()).await;
    let gone = within(server.resources(None, LIMIT)).await.unwrap_err();
    assert_eq!(gone.kind(), Kind::McpServerFailed);
}

#[tokio::test]
async fn changes_of_resources_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("resources.json");
    std::fs::write(&file, "[]").unwrap();
    let server = connect(fake(&["--resources", file.to_str().unwrap()])).await;
    let mut changes = server.resource_changes();
    within(server.follow_resource("a:1", LIMIT)).await.unwrap();
    let listed = json!({ "method": "notifications/resources/list_changed", "params": {} });
    done(call(&server, "tell", listed).await);
    assert_eq!(within(changes.recv()).await, Ok(ResourceChange::Listed));
    let updated =
        json!({ "method": "notifications/resources/updated", "params": { "uri": "a:1" } });
    done(call(&server, "tell", updated).await);
    assert_eq!(within(changes.recv()).await, Ok(ResourceChange::Updated("a:1".into())));
    within(server.shutdown()).await;
    assert_eq!(within(changes.recv()).await, Ok(ResourceChange::Listed), "it has none any more");
}

#[tokio::test]
async fn a_read_from_a_server_without_resources_fails_at_once() {
    let server = connect(fake(&[])).await;
    assert_eq!(server.has_resources(), Some(false));
    let fault = within(server.resources(None, LIMIT)).await.unwrap_err();
    assert_eq!(fault.kind(), Kind::CapabilityUnsupported);
    within(server.shutdown()).await;
}

/// Calls a tool of a toolbox the way the runtime does.
async fn run(toolbox: &Toolbox, tool: &str, arguments: Value) -> Outcome {
    let context = isolation::context();
    let checked = toolbox.check_value(tool, arguments, &context.limits).unwrap();
    within(checked.run(context)).await
}

#[tokio::test]
async fn a_model_lists_and_reads_resources_while_a_server_has_any() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("resources.json");
    let all = ["a:1", "a:2", "a:3"].map(|uri| resource(uri, &uri.to_uppercase()));
    std::fs::write(&file, json!(all).to_string()).unwrap();
    let plain = McpServerConfig { name: "plain".to_owned(), ..fake(&[]) };
    let having = fake(&["--page", "2", "--resources", file.to_str().unwrap()]);
    let set = ServerSet::open([plain, having], &variables(), &world(), &limits()).unwrap();
    assert!(within(set.ready(&world(), LIMIT)).await.is_empty());
    let toolbox = set.offer(&Toolbox::builder().build()).unwrap();
    let listed = done(run(&toolbox, "mcp_list_resources", json!({})).await);
    let found: Vec<_> = listed["resources"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| (&it["server"], &it["uri"]))
        .collect();
    assert_eq!(found.len(), 3, "{listed}");
    assert!(found.iter().all(|(server, _)| **server == "fake"), "{listed}");
    let address = json!({ "server": "fake", "uri": "a:2" });
    assert_eq!(done(run(&toolbox, "mcp_read_resource", address).await), json!("A:2"));
    let missing = json!({ "server": "fake", "uri": "a:9" });
    let fault = failed(run(&toolbox, "mcp_read_resource", missing).await).fault;
    assert_eq!(fault.hops()[0].name, "fake", "{fault}");
    let limits = isolation::context().limits;
    let elsewhere = json!({ "server": "plain", "uri": "a:2" });
    assert!(toolbox.check_value("mcp_read_resource", elsewhere, &limits).is_err());
    assert!(toolbox.spec("mcp_get_prompt").is_none(), "no server has prompts");
    within(set.shutdown()).await;
    assert!(set.offer(&toolbox).unwrap().spec("mcp_read_resource").is_none());
}

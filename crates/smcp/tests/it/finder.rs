//! The documents of a real folder: listed, read down to an element, and nothing but them.

use budao_smcp::codes::smcp_code;
use std::{fs, os::unix::fs::symlink, path::Path};

use budao_core::fault::{Fact, Fault};
use budao_smcp::{
    agent::{Agent, Config as AgentConfig, RoomEvent},
    computer::{Computer, Config as ComputerConfig, Settings},
    finder::Finder,
    server::Config,
    wire::{Dialect, event::RequestEvent},
};
use serde_json::{Map, Value, json};

use crate::{
    common::{config, start, the_world, within},
    computer::{FixedValues, fake, member_config},
};

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    fs::create_dir_all(folder.path().join("reports/2026")).unwrap();
    let report = "# Annual report\n\nIt was a good year.\n\n| q | v |\n|---|---|\n| 1 | 2 |\n\n## Outlook\n\nBetter still.\n";
    write("reports/2026/annual.md", report);
    write("notes.txt", "one\n\ntwo\n");
    write("page.html", "<title>A page</title><meta name=keywords content=web><p>Hello</p>");
    write("broken.pdf", "this is no PDF");
    write("program.exe", "MZ");
    write(".hidden.md", "# secret");
    folder
}

async fn list(finder: &Finder, query: Value) -> Value {
    finder.list(&query, &[]).await.unwrap()
}

async fn get(finder: &Finder, uri: &str) -> Result<Value, Fault> {
    finder.get(&json!({ "uri": uri, "req_id": "r" })).await
}

fn titles(answer: &Value) -> Vec<&str> {
    let documents = answer["documents"].as_array().unwrap();
    let mut titles: Vec<&str> = documents.iter().map(|it| it["title"].as_str().unwrap()).collect();
    titles.sort_unstable();
    titles
}

/// The address of the document of this title.
async fn address(finder: &Finder, title: &str) -> String {
    let all = list(finder, json!({})).await;
    let all = all["documents"].as_array().unwrap();
    let found = all.iter().find(|it| it["title"] == title).unwrap();
    found["uri"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn documents_are_listed_filtered_and_paged() {
    let folder = folder();
    let finder = Finder::of_folder("local.docs", folder.path()).unwrap();
    let all = list(&finder, json!({ "req_id": "r" })).await;
    assert_eq!(titles(&all), ["A page", "Annual report", "broken.pdf", "notes.txt"]);
    assert_eq!((&all["total_count"], &all["req_id"]), (&json!(4), &json!("r")));
    let report =
        all["documents"].as_array().unwrap().iter().find(|it| it["file_type"] == "md").unwrap();
    assert_eq!((&report["page_count"], &report["server"]), (&json!(2), &json!("local.docs")));
    assert_eq!(report["summary"], "It was a good year.");
    assert!(report["file_uri"].as_str().unwrap().ends_with("/reports/2026/annual.md"));
    assert!(report["last_modified"].as_str().unwrap().ends_with('Z'));
    assert!(
        !all.to_string().contains(folder.path().parent().unwrap().to_str().unwrap()),
        "where it is, is not told"
    );

    assert_eq!(
        titles(&list(&finder, json!({ "keywords": ["GOOD year"] })).await),
        ["Annual report"]
    );
    assert_eq!(
        titles(&list(&finder, json!({ "keywords": ["web", "annual"] })).await),
        ["A page", "Annual report"]
    );
    assert_eq!(titles(&list(&finder, json!({ "file_type": "txt" })).await), ["notes.txt"]);
    assert_eq!(
        titles(&list(&finder, json!({ "file_type": "md", "keywords": ["web"] })).await),
        [""; 0]
    );
    let page = list(&finder, json!({ "offset": 3, "limit": 2 })).await;
    assert_eq!((titles(&page).len(), &page["total_count"]), (1, &json!(4)));
    for bad in [
        json!({ "limit": 0 }),
        json!({ "limit": 101 }),
        json!({ "offset": -1 }),
        json!({ "keywords": 1 }),
        json!({ "file_type": [] }),
    ] {
        let fault = finder.list(&bad, &[]).await.unwrap_err();
        assert_eq!(smcp_code(fault.kind()), 400, "{bad}");
        let field = fault.detail().text(Fact::Field).unwrap();
        assert!(bad.get(field).is_some(), "{bad}: {field}");
    }
}

#[tokio::test]
async fn a_document_is_read_down_to_its_elements() {
    let folder = folder();
    let finder = Finder::of_folder("local.docs", folder.path()).unwrap();
    let uri = address(&finder, "Annual report").await;
    let catalog = get(&finder, "dpe://local.docs").await.unwrap();
    assert_eq!(catalog["total_count"], 4);
    let document = get(&finder, &uri).await.unwrap();
    assert_eq!((&document["page_count"], document.get("pages")), (&json!(2), None));
    let document = get(&finder, &format!("{uri}?depth=pages&offset=1&limit=1")).await.unwrap();
    assert_eq!(document["pages"][0]["title"], "Outlook");
    assert_eq!((&document["page_offset"], &document["page_total"]), (&json!(1), &json!(2)));
    let page = get(&finder, document["pages"][0]["uri"].as_str().unwrap()).await.unwrap();
    assert_eq!(page["elements"][1]["content"]["text"], "Better still.");
    let tables = get(&finder, &format!("{uri}/pages/0?categories=table")).await.unwrap();
    assert_eq!(
        (&tables["element_count"], &tables["elements"][0]["content"]["rows"]),
        (&json!(1), &json!([["1", "2"]]))
    );
    let markdown = get(&finder, &format!("{uri}/pages/0?format=markdown")).await.unwrap();
    let text = "# Annual report\n\nIt was a good year.\n\n| q | v |\n| --- | --- |\n| 1 | 2 |";
    assert_eq!((&markdown["content_markdown"], markdown.get("elements")), (&json!(text), None));
    let element = get(&finder, &format!("{uri}/elements/tbl-001")).await.unwrap();
    assert_eq!(
        (&element["category"], &element["page_index"], &element["req_id"]),
        (&json!("table"), &json!(0), &json!("r"))
    );
    let plain = get(&finder, &format!("{uri}/elements/tbl-001?format=text")).await.unwrap();
    assert_eq!(plain["content_text"], "q\tv\n1\t2");
}

#[tokio::test]
async fn each_of_the_four_errors_is_exact() {
    let folder = folder();
    let finder = Finder::of_folder("local.docs", folder.path()).unwrap();
    let uri = address(&finder, "Annual report").await;
    let near = format!("{}x", uri.strip_prefix("dpe://local.docs/").unwrap());
    for (bad, code, fact, value) in [
        (format!("dpe://local.docs/{near}"), 4201, Fact::DocRef, near.as_str()),
        ("dpe://elsewhere/doc".into(), 4201, Fact::DocRef, "doc"),
        (format!("{uri}/elements/tbl-002"), 4203, Fact::ElementId, "tbl-002"),
        ("http://local.docs/x".into(), 4204, Fact::Uri, "http://local.docs/x"),
    ] {
        let fault = get(&finder, &bad).await.unwrap_err();
        assert_eq!(smcp_code(fault.kind()), code, "{bad}");
        assert_eq!(fault.detail().text(fact), Some(value));
    }
    let near = get(&finder, &format!("dpe://local.docs/{near}")).await.unwrap_err();
    assert!(format!("{:?}", near.detail()).contains("annual-"), "the nearest is offered: {near:?}");
    let page = get(&finder, &format!("{uri}/pages/2")).await.unwrap_err();
    assert_eq!(
        (
            smcp_code(page.kind()),
            page.detail().number(Fact::Page),
            page.detail().number(Fact::PageCount)
        ),
        (4202, Some(2), Some(2))
    );
    let huge = get(&finder, &format!("{uri}/pages/18446744073709551615")).await.unwrap_err();
    assert_eq!(smcp_code(huge.kind()), 4202);
    let missing = finder.get(&json!({})).await.unwrap_err();
    assert_eq!((smcp_code(missing.kind()), missing.detail().text(Fact::Field)), (400, Some("uri")));
    let broken = address(&finder, "broken.pdf").await;
    let fault = get(&finder, &broken).await.unwrap_err();
    assert_eq!(
        (smcp_code(fault.kind()), fault.detail().text(Fact::Path)),
        (4003, Some("broken.pdf"))
    );
}

#[tokio::test]
async fn nothing_outside_the_folder_can_be_reached() {
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("secret.md"), "# hunter2").unwrap();
    let folder = folder();
    symlink(outside.path().join("secret.md"), folder.path().join("link.md")).unwrap();
    symlink(outside.path(), folder.path().join("linked")).unwrap();
    symlink("..", folder.path().join("up")).unwrap();
    symlink(".", folder.path().join("circle")).unwrap();
    let mut deep = folder.path().to_path_buf();
    for _ in 0..12 {
        deep.push("d");
    }
    fs::create_dir_all(&deep).unwrap();
    fs::write(deep.join("deep.md"), "# too deep").unwrap();
    fs::write(folder.path().join("big.txt"), vec![b'x'; 17 << 20]).unwrap();
    let finder = Finder::of_folder("local.docs", folder.path()).unwrap();
    let all = list(&finder, json!({ "limit": 100 })).await;
    assert_eq!(titles(&all), ["A page", "Annual report", "big.txt", "broken.pdf", "notes.txt"]);
    assert!(!all.to_string().contains("hunter2") && !all.to_string().contains("secret"));
    for path in [
        "..",
        "%2e%2e",
        "..%2fsecret.md",
        "%2fetc%2fpasswd",
        "link.md",
        "linked%2fsecret.md",
        ".hidden.md",
    ] {
        let fault = get(&finder, &format!("dpe://local.docs/{path}")).await.unwrap_err();
        assert_eq!(smcp_code(fault.kind()), 4201, "{path}");
    }
    let big = get(&finder, &address(&finder, "big.txt").await).await.unwrap_err();
    assert_eq!((smcp_code(big.kind()), big.detail().number(Fact::Limit)), (4003, Some(16 << 20)));

    // A file that becomes a link between the list and the reading.
    let notes = address(&finder, "notes.txt").await;
    swap(&folder.path().join("notes.txt"), &outside.path().join("secret.md"));
    let fault = get(&finder, &notes).await.unwrap_err();
    assert_eq!(smcp_code(fault.kind()), 4201, "{fault:?}");
}

fn swap(file: &Path, target: &Path) {
    fs::remove_file(file).unwrap();
    symlink(target, file).unwrap();
}

#[tokio::test]
async fn a_change_is_seen() {
    let folder = folder();
    let finder = Finder::of_folder("local.docs", folder.path()).unwrap();
    let uri = address(&finder, "notes.txt").await;
    let before = finder.state().await;
    assert_eq!(finder.state().await, before);
    fs::write(folder.path().join("notes.txt"), "another, longer text\n").unwrap();
    assert_ne!(finder.state().await, before);
    let page = get(&finder, &format!("{uri}/pages/0?format=text")).await.unwrap();
    assert_eq!(page["content_text"], "another, longer text");
    assert!(Finder::of_folder("x", &folder.path().join("nowhere")).is_err());
}

/// A report that an MCP server has, with a page and an element.
fn resources() -> Value {
    let resource = |uri: &str, content: Value| {
        json!({
            "uri": uri, "name": "Sales", "description": "what was sold", "mimeType": "application/json",
            "contents": [{ "uri": uri, "mimeType": "application/json", "text": content.to_string() }],
        })
    };
    json!([
        resource(
            "dpe://com.example.docs/sales",
            json!({ "doc_ref": "sales", "title": "Sales 2026", "file_type": "xlsx", "page_count": 1 })
        ),
        resource(
            "dpe://com.example.docs/sales/pages/0",
            json!({ "page_index": 0, "elements": [] })
        ),
        resource(
            "dpe://com.example.docs/sales/elements/tbl-001",
            json!({ "element_id": "tbl-001" })
        ),
    ])
}

async fn ask(agent: &Agent, ask: RequestEvent, fields: Value) -> Result<Value, Fault> {
    let fields: Map<String, Value> = fields.as_object().cloned().unwrap();
    within(agent.ask(ask, "pc", fields)).await
}

/// Through hub, computer and MCP server, in the first draft; and not in today's protocol.
#[tokio::test]
async fn an_agent_reads_the_documents_of_a_folder_and_of_mcp_servers() {
    let folder = folder();
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), resources().to_string()).unwrap();
    let hub = start(Config { dialect: Dialect::V02, ..config() }).await;
    let servers = json!({ "servers": [{
        "name": "office", "type": "stdio", "server_parameters": { "command": fake(), "args": ["--resources", file.path()] },
    }] });
    let member =
        |name| budao_smcp::MemberConfig { dialect: Dialect::V02, ..member_config(&hub, name) };
    let computer = ComputerConfig {
        documents: Some(folder.path().to_owned()),
        ..ComputerConfig::new(member("pc"))
    };
    let settings = Settings::read(&servers.to_string()).unwrap();
    let computer =
        within(Computer::start(computer, settings, &FixedValues, the_world())).await.unwrap();
    let agent = within(Agent::connect(AgentConfig::new(member("bot")), the_world())).await.unwrap();
    let all = within(async {
        loop {
            let all = ask(&agent, RequestEvent::GetFinder, json!({})).await.unwrap();
            if all["total_count"] == 5 {
                return all;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    })
    .await;
    assert_eq!(titles(&all), ["A page", "Annual report", "Sales 2026", "broken.pdf", "notes.txt"]);
    let get = |uri: &str| {
        let (agent, uri) = (agent.clone(), uri.to_owned());
        async move { ask(&agent, RequestEvent::GetDpe, json!({ "uri": uri })).await }
    };
    let page = get("dpe://com.example.docs/sales/pages/0").await.unwrap();
    assert_eq!(page["page_index"], 0);
    assert_eq!(
        get("dpe://com.example.docs/sales/elements/tbl-001").await.unwrap()["element_id"],
        "tbl-001"
    );
    for (bad, code) in [
        ("dpe://com.example.docs/salez", 4201),
        ("dpe://nobody.example/sales", 4201),
        ("dpe://com.example.docs/sales/pages/1", 4202),
        ("dpe://com.example.docs/sales/elements/tbl-009", 4203),
        ("dpe://com.example.docs/sales/sheets/1", 4204),
    ] {
        let fault = get(bad).await.unwrap_err();
        assert_eq!(smcp_code(fault.kind()), code, "{bad}: {fault}");
    }

    // The room hears of a change in the folder.
    let mut events = agent.events();
    fs::write(folder.path().join("new.txt"), "new").unwrap();
    within(async {
        loop {
            let event = events.recv().await.unwrap();
            if event == RoomEvent::ContentChanged("notify:update_finder".into(), "pc".into()) {
                return;
            }
        }
    })
    .await;
    computer.shutdown().await;
}

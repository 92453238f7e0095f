//! What our computer has besides tools: resources, windows, skills, and data in pieces, both ways.

use budao_smcp::codes::smcp_code;
use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use budao_core::fault::{Fact, Fault};
use budao_smcp::{
    agent::{Agent, RoomEvent},
    computer::{Computer, Config, NoConfirmer, Settings},
    wire::event::RequestEvent,
};
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use crate::{
    common::{RunningHub, config, start, the_world, within},
    computer::{FixedValues, agent, call, fake, member_config, tools},
};

/// A computer with everything: two servers with resources, a folder with skills, one for uploads.
pub(crate) struct FullComputer {
    pub(crate) computer: Computer,
    folder: tempfile::TempDir,
}

pub(crate) fn start_full_computer(
    member: budao_smcp::MemberConfig,
) -> impl Future<Output = FullComputer> {
    let folder = tempfile::tempdir().unwrap();
    write_skills(folder.path());
    write_resources(folder.path());
    let server = |name: &str| {
        let file = folder.path().join(format!("{name}.json"));
        json!({
            "name": name, "type": "stdio", "default_tool_meta": { "auto_apply": true },
            "server_parameters": { "command": fake(), "args": ["--resources", file, "--page", "20"] },
        })
    };
    let plain = json!({
        "name": "plain", "type": "stdio", "default_tool_meta": { "auto_apply": true },
        "server_parameters": { "command": fake() },
    });
    let file = json!({ "servers": [server("alpha"), server("beta"), plain] });
    let settings = Settings::read(&file.to_string()).unwrap();
    let config = Config {
        confirm: Arc::new(NoConfirmer),
        skills: Some(folder.path().join("skills")),
        upload_folder: Some(folder.path().join("landing")),
        ..Config::new(member)
    };
    async move {
        let starting = Computer::start(config, settings, &FixedValues, the_world());
        FullComputer { computer: within(starting).await.unwrap(), folder }
    }
}

fn window(uri: &str, priority: f64) -> Value {
    json!({
        "uri": uri, "name": uri, "mimeType": "text/plain", "annotations": { "priority": priority },
        "contents": [{ "uri": uri, "text": format!("shown by {uri}") }],
    })
}

fn write_resources(folder: &Path) {
    let mounted =
        json!({ "source": "mounted", "mount_dir": folder.join("mounted"), "version": "7" });
    let alpha = json!([
        window("window://alpha/low", 0.1),
        window("window://alpha/high", 0.9),
        { "uri": "file:///etc/hosts", "name": "hosts", "contents": [] },
        { "uri": "skill://alpha/sums", "name": "sums", "_meta": mounted, "contents": [] },
        { "uri": "skill://alpha/far", "name": "far", "contents": [],
          "_meta": { "source": "archive", "archive_uri": "http://127.0.0.1:1/x.zip" } },
    ]);
    std::fs::write(folder.join("alpha.json"), alpha.to_string()).unwrap();
    let many: Vec<Value> = (0..30)
        .map(|n| json!({ "uri": format!("note:{n}"), "name": n.to_string(), "contents": [] }))
        .collect();
    let mut beta = many;
    beta.push(window("window://beta/only", 0.0));
    beta.push(json!({ "uri": "window://beta/picture", "name": "p", "contents": [{ "uri": "x", "blob": "AAAA" }] }));
    std::fs::write(folder.join("beta.json"), json!(beta).to_string()).unwrap();
}

fn write_skills(folder: &Path) {
    let skill = |path: PathBuf, about: &str| {
        std::fs::create_dir_all(&path).unwrap();
        std::fs::write(path.join("SKILL.md"), format!("---\n{about}\n---\nDo it well.\n")).unwrap();
    };
    let pdf = folder.join("skills/pdf-tools");
    skill(pdf.clone(), "description: Reads PDF files\ntags: [pdf]");
    std::fs::write(pdf.join("long.txt"), "line\n".repeat(80_000)).unwrap();
    std::fs::write(pdf.join("page.png"), [7; 10]).unwrap();
    std::fs::write(pdf.join(".skillenv"), "KEY=secret").unwrap();
    skill(folder.join("skills/Not A Name"), "description: x");
    skill(folder.join("skills/silent"), "license: MIT");
    skill(folder.join("mounted"), "description: Adds numbers");
}

async fn ask(agent: &Agent, ask: RequestEvent, more: Value) -> Result<Value, Fault> {
    let more: Map<String, Value> = more.as_object().unwrap().clone();
    within(agent.ask(ask, "pc", more)).await
}

/// Waits until every server has told its tools.
async fn ready(agent: &Agent) {
    within(async {
        loop {
            let tools = agent.tools("pc").await.unwrap();
            let is_there = |server: &str| tools.iter().any(|tool| tool.bundle_id == server);
            if ["alpha", "beta", "plain"].into_iter().all(is_there) {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    })
    .await;
}

async fn full_computer(hub: &RunningHub) -> (FullComputer, Agent) {
    let full_computer = start_full_computer(member_config(hub, "pc")).await;
    let agent = agent(hub).await;
    ready(&agent).await;
    (full_computer, agent)
}

/// All of it, piece by piece, with its digest checked.
async fn drained(agent: &Agent, handle: &Value, piece: u64) -> Result<Vec<u8>, Fault> {
    let mut bytes = Vec::new();
    loop {
        let chunk_request =
            json!({ "blob_handle": handle, "chunk_offset": bytes.len(), "max_chunk_bytes": piece });
        let answer = ask(agent, RequestEvent::GetBlob, chunk_request).await?;
        bytes.extend(STANDARD.decode(answer["blob"].as_str().unwrap()).unwrap());
        if answer["eof"] == true {
            assert_eq!(answer["total_size"], bytes.len());
            let digest: String =
                Sha256::digest(&bytes).iter().map(|it| format!("{it:02x}")).collect();
            assert_eq!(answer["sha256"], digest);
            return Ok(bytes);
        }
    }
}

#[tokio::test]
async fn resources_of_a_server_are_listed_by_the_page() {
    let hub = start(config()).await;
    let (full_computer, agent) = full_computer(&hub).await;
    let page =
        ask(&agent, RequestEvent::GetResources, json!({ "mcp_server": "alpha" })).await.unwrap();
    assert_eq!(page["resources"].as_array().unwrap().len(), 5);
    assert_eq!(page["resources"][0]["mime_type"], "text/plain");
    assert_eq!(page.get("next_cursor"), None);
    let first =
        ask(&agent, RequestEvent::GetResources, json!({ "mcp_server": "beta" })).await.unwrap();
    let more = json!({ "mcp_server": "beta", "cursor": first["next_cursor"] });
    let second = ask(&agent, RequestEvent::GetResources, more).await.unwrap();
    let count = |page: &Value| page["resources"].as_array().unwrap().len();
    assert_eq!((count(&first), count(&second)), (20, 12));
    let none = ask(&agent, RequestEvent::GetResources, json!({ "mcp_server": "plain" }))
        .await
        .unwrap_err();
    assert_eq!(smcp_code(none.kind()), 4015);
    let unknown = ask(&agent, RequestEvent::GetResources, json!({ "mcp_server": "gamma" })).await;
    assert_eq!(smcp_code(unknown.unwrap_err().kind()), 4014);
    full_computer.computer.shutdown().await;
}

#[tokio::test]
async fn windows_are_shown_in_the_order_that_helps() {
    let hub = start(config()).await;
    let (full_computer, agent) = full_computer(&hub).await;
    let shown = async |more: Value| {
        let answer = ask(&agent, RequestEvent::GetDesktop, more).await.unwrap();
        let list = answer["desktops"].as_array().unwrap().iter();
        list.map(|it| it.as_str().unwrap().lines().next().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let all = ["window://alpha/high", "window://alpha/low", "window://beta/only"];
    assert_eq!(shown(json!({})).await, all);
    call(&agent, "beta__echo", json!({ "text": "x" }), 10).await.unwrap();
    assert_eq!(shown(json!({})).await, [all[2], all[0], all[1]], "used last, shown first");
    assert_eq!(shown(json!({ "desktop_size": 1 })).await, [all[2]]);
    assert_eq!(shown(json!({ "window": all[1] })).await, [all[1]]);
    assert!(shown(json!({ "window": "window://none" })).await.is_empty());
    let whole = ask(&agent, RequestEvent::GetDesktop, json!({ "desktop_size": 1 })).await.unwrap();
    assert_eq!(whole["desktops"][0], "window://beta/only\n\nshown by window://beta/only");
    full_computer.computer.shutdown().await;
}

#[tokio::test]
async fn changes_of_windows_and_skills_are_announced_to_the_room() {
    let hub = start(config()).await;
    let (full_computer, agent) = full_computer(&hub).await;
    let mut events = agent.events();
    let mut receive = async |event: &str| {
        let expected = RoomEvent::ContentChanged(event.to_owned(), "pc".into());
        within(async { while events.recv().await.as_ref() != Ok(&expected) {} }).await;
    };
    let send = async |method: &str, params: Value| {
        let notification = json!({ "method": method, "params": params });
        call(&agent, "alpha__tell", notification, 10).await.unwrap();
    };
    let file = full_computer.folder.path().join("alpha.json");
    let mut all: Vec<Value> =
        serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    all.push(window("window://alpha/new", 1.0));
    std::fs::write(&file, json!(all).to_string()).unwrap();
    send("notifications/resources/list_changed", json!({})).await;
    receive("notify:update_desktop").await;
    send("notifications/resources/updated", json!({ "uri": "window://alpha/new" })).await;
    receive("notify:update_desktop").await;
    all.retain(|it| it["name"] != "sums");
    std::fs::write(&file, json!(all).to_string()).unwrap();
    send("notifications/resources/list_changed", json!({})).await;
    receive("notify:update_skills").await;
    // The new window was asked to tell of its changes.
    let seen = call(&agent, "alpha__seen", json!({}), 10).await.unwrap();
    assert!(seen.to_string().contains(r#"resources/subscribe"#), "{seen}");
    full_computer.computer.stop_server("alpha").await.unwrap();
    receive("notify:update_desktop").await;
    full_computer.computer.shutdown().await;
}

#[tokio::test]
async fn skills_are_listed_and_their_files_given_or_refused_with_a_reason() {
    let hub = start(config()).await;
    let (full_computer, agent) = full_computer(&hub).await;
    let listed = ask(&agent, RequestEvent::GetSkills, json!({})).await.unwrap();
    let listed = listed["skills"].as_array().unwrap();
    let names: Vec<&str> = listed.iter().map(|it| it["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["mcp:alpha:sums", "pdf-tools"]);
    assert_eq!((&listed[0]["source"], &listed[0]["version"]), (&json!("mcp:alpha"), &json!("7")));
    assert_eq!((&listed[1]["source"], &listed[1]["tags"]), (&json!("user"), &json!(["pdf"])));
    assert!(Path::new(listed[1]["path"].as_str().unwrap()).is_absolute());

    let get = |name: &str, path: &str| {
        let more = json!({ "name": name, "rel_path": path });
        let agent = agent.clone();
        async move { ask(&agent, RequestEvent::GetSkill, more).await }
    };
    let entry = get("pdf-tools", "").await.unwrap();
    assert_eq!((&entry["body"], &entry["rel_path"]), (&json!("Do it well.\n"), &json!("SKILL.md")));
    assert_eq!(get("mcp:alpha:sums", "SKILL.md").await.unwrap()["body"], "Do it well.\n");
    let long = get("pdf-tools", "long.txt").await.unwrap();
    assert_eq!((long.get("body"), &long["total_size"]), (None, &json!(400_000)));
    let bytes = drained(&agent, &long["blob_handle"], 1 << 20).await.unwrap();
    assert_eq!(bytes, "line\n".repeat(80_000).into_bytes());
    let picture = get("pdf-tools", "page.png").await.unwrap();
    assert_eq!(picture["mime_type"], "image/png");
    assert_eq!(drained(&agent, &picture["blob_handle"], 4).await.unwrap(), [7; 10]);

    for (name, path, code, reason) in [
        ("Not A Name", "", 4016, None),
        ("a:b:c:d", "", 4016, None),
        ("silent", "", 4014, None),
        ("mcp:beta:sums", "", 4014, None),
        ("pdf-tools", "../../alpha.json", 4017, Some("traversal")),
        ("pdf-tools", "/etc/passwd", 4017, Some("traversal")),
        ("pdf-tools", ".skillenv", 4017, Some("forbidden")),
        ("pdf-tools", "none.txt", 4017, Some("not_found")),
    ] {
        let fault = get(name, path).await.unwrap_err();
        assert_eq!(smcp_code(fault.kind()), code, "{name} {path}: {fault}");
        assert_eq!(fault.detail().text(Fact::Reason), reason, "{name} {path}");
    }
    // A handle is looked up anew for each piece.
    std::fs::remove_file(full_computer.folder.path().join("skills/pdf-tools/long.txt")).unwrap();
    let gone = drained(&agent, &long["blob_handle"], 1 << 20).await.unwrap_err();
    assert_eq!((smcp_code(gone.kind()), gone.detail().text(Fact::Reason)), (4018, Some("gone")));
    full_computer.computer.shutdown().await;
}

#[tokio::test]
async fn an_output_above_the_limit_of_an_answer_is_fetched_in_pieces() {
    let hub = start(config()).await;
    let full_computer = start_full_computer(member_config(&hub, "pc")).await;
    // One that does not fetch by itself.
    let raw = crate::common::peer(&hub).await;
    assert_eq!(raw.join("agent", "bot", "a").await[0], true);
    let tool_call = async |id: &str, tool: &str, params: Value| {
        let mut request = crate::common::tool_call("pc", tool, id, 30);
        request["params"] = params;
        raw.ask("client:tool_call", request).await
    };
    let picture = within(async {
        loop {
            let answer = tool_call("r-1", "plain__picture", json!({ "base64": 2_000_000 })).await;
            if answer["isError"] == false {
                return answer;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    })
    .await;
    let huge = tool_call("r-2", "plain__huge", json!({ "bytes": 2_500_000 })).await;
    raw.client.close();
    let agent = within(async {
        let config = || budao_smcp::agent::Config::new(member_config(&hub, "bot"));
        loop {
            if let Ok(agent) = Agent::connect(config(), the_world()).await {
                return agent;
            }
        }
    })
    .await;
    let item = &picture["content"][0];
    assert_eq!((&item["data"], &item["mimeType"]), (&json!(""), &json!("image/png")));
    assert_eq!(item["_meta"]["a2c_total_size"], 1_500_000);
    let handle = item["_meta"]["a2c_blob_handle"].clone();
    assert_eq!(drained(&agent, &handle, 1 << 20).await.unwrap(), vec![0; 1_500_000]);
    let beyond = json!({ "blob_handle": handle, "chunk_offset": 1_500_001 });
    let beyond = ask(&agent, RequestEvent::GetBlob, beyond).await.unwrap_err();
    assert_eq!(
        (smcp_code(beyond.kind()), beyond.detail().text(Fact::Reason)),
        (4018, Some("range"))
    );

    assert!(huge["content"][0]["text"].as_str().unwrap().contains("2500000 bytes in all"));
    let text = &huge["content"][1]["_meta"]["a2c_blob_handle"];
    assert_eq!(drained(&agent, text, 1 << 20).await.unwrap(), vec![b'x'; 2_500_000]);

    // Our own agent fetches by itself, and nothing looks as if it had ever been elsewhere.
    let whole = call(&agent, "plain__huge", json!({ "bytes": 2_500_000 }), 30).await.unwrap();
    assert_eq!(whole["content"].as_array().map(Vec::len), Some(1));
    assert_eq!(whole["content"][0]["text"].as_str().map(str::len), Some(2_500_000));
    let whole = call(&agent, "plain__picture", json!({ "base64": 2_000_000 }), 30).await.unwrap();
    assert_eq!(whole["content"][0]["data"].as_str().map(str::len), Some(2_000_000));
    assert_eq!(whole["content"][0].get("_meta"), None);

    // What was for one room is not for another.
    full_computer.computer.leave().await.unwrap();
    full_computer.computer.join("a").await.unwrap();
    let gone = drained(&agent, text, 1 << 20).await.unwrap_err();
    assert_eq!((smcp_code(gone.kind()), gone.detail().text(Fact::Reason)), (4018, Some("gone")));
    full_computer.computer.shutdown().await;
}

#[tokio::test]
async fn an_agent_sends_a_file_in_pieces() {
    let hub = start(config()).await;
    let (full_computer, agent) = full_computer(&hub).await;
    let data: Vec<u8> = (0..600_000_u32).map(|n| n.to_le_bytes()[0]).collect();
    let landed = within(agent.send("pc", "data.bin", &data)).await.unwrap();
    let landed = PathBuf::from(landed);
    assert_eq!(landed.parent(), Some(full_computer.folder.path().join("landing").as_path()));
    assert!(std::fs::read(&landed).unwrap() == data, "it is the same file");
    full_computer.computer.shutdown().await;
}

#[tokio::test]
async fn a_computer_without_options_refuses_uploads() {
    let hub = start(config()).await;
    let computer = crate::computer::start_computer(member_config(&hub, "pc")).await;
    let agent = agent(&hub).await;
    tools(&agent).await;
    let piece = json!({ "chunk_offset": 0, "eof": true, "blob": "", "total_size": 1, "sha256": "0".repeat(64) });
    let refused = ask(&agent, RequestEvent::PutBlob, piece).await.unwrap_err();
    assert_eq!(
        (smcp_code(refused.kind()), refused.detail().text(Fact::Reason)),
        (4019, Some("forbidden"))
    );
    computer.shutdown().await;
}

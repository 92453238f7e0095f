//! `/api/traces`: the link to the trace viewer and the lines of the log file; and faults by the address that failed.

use budao_core::{
    Event, Fault, Kind,
    event::{Scope, StopReason},
    fault::{Fact, NodeIdentity, Operation},
    message::Usage,
};
use budao_models::Script;
use budao_scrub::Scrubber;
use budao_serve::{Auth, LogFiles, TraceViewer};
use serde_json::{Value, json};

use crate::{
    fixture::{Setup, memory},
    http::{client, get},
    stats::{NOW, RecordWriter, stage_on, stats},
};

const TRACE: &str = "8196dac9cd3f41f7178e1e1052a00640";

#[tokio::test]
async fn operators_get_the_link_and_the_log_lines_of_a_trace_and_others_get_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("budao.log");
    let lines = format!("first trace={TRACE} key=a-secret-of-this-server\nof another\n");
    std::fs::write(directory.path().join("budao.log.2026-11-18"), lines).unwrap();
    let stage = Setup::new(Script::new())
        .with(|config| {
            let mut auth = Auth::default();
            auth.add_tokens("of-ann acme ann\nof-op ops op operator\n").unwrap();
            config.auth = auth;
            let viewer = TraceViewer::new("https://tempo.example/trace/{trace}").unwrap();
            config.trace_viewer = Some(viewer);
            config.log_files = LogFiles::new(&log);
            config.scrubber = Scrubber::with_secrets(["a-secret-of-this-server"]);
        })
        .open()
        .await;
    let ask = async |trace: &str, token: &str| {
        let path = stage.url(&format!("/api/traces/{trace}"));
        let response = client().get(path).bearer_auth(token).send().await.unwrap();
        let status = response.status().as_u16();
        let body: Value = serde_json::from_slice(&response.bytes().await.unwrap()).unwrap();
        (status, body)
    };
    let (status, found) = ask(TRACE, "of-op").await;
    assert_eq!(status, 200, "{found}");
    assert_eq!(found["viewer"], format!("https://tempo.example/trace/{TRACE}"));
    let lines = found["lines"].as_array().unwrap();
    assert_eq!(lines.len(), 1, "{found}");
    let line = lines[0].as_str().unwrap();
    assert!(line.starts_with("first trace=") && !line.contains("a-secret-of"), "{line}");
    assert_eq!(ask(TRACE, "of-ann").await.0, 403);
    assert_eq!(ask("no-trace", "of-op").await.0, 400);
}

#[tokio::test]
async fn without_viewer_and_log_file_a_trace_is_only_named() {
    let stage = Setup::new(Script::new()).open().await;
    let (status, found) = get(&stage, &format!("/api/traces/{TRACE}")).await;
    assert_eq!((status, found), (200, json!({ "trace_id": TRACE, "cut": false })));
}

#[tokio::test]
async fn faults_are_counted_by_the_address_that_failed_and_requests_without_an_answer_too() {
    let journal = memory();
    let mut writer = RecordWriter::at(1, NOW, None);
    let fault = Fault::new(Kind::ConnectionRefused, Operation::ModelRequest)
        .with(Fact::Host, "api.example:443");
    let scope = Scope::default();
    writer.put(Event::FaultRaised { fault: fault.clone(), scope });
    writer.put(Event::StepStarted { step: 1, attempt: 2, model: "demo".to_owned() });
    let (stop, usage) = (StopReason::Failed, Usage::default());
    writer.put(Event::TurnEnded { stop, fault: Some(fault), steps: 2, usage });
    writer.write(&journal).await;
    let stage = stage_on(&journal).await;
    let hour = stats(&stage, "1h").await;
    let endpoint = &hour["by_endpoint"][0];
    assert_eq!((&endpoint["endpoint"], &endpoint["count"]), (&json!("api.example:443"), &json!(1)));
    assert_eq!((&hour["steps"], &hour["steps_unanswered"]), (&json!(2), &json!(2)));
    let (_, hit) = get(&stage, "/v1/sessions?hit=endpoint:api.example:443").await;
    assert_eq!(hit["sessions"].as_array().unwrap().len(), 1, "{hit}");
}

#[tokio::test]
async fn faults_are_counted_by_the_server_that_recorded_them_and_by_its_version() {
    let journal = memory();
    for (number, node, version) in
        [(1, "a:7333", "1.0.0"), (2, "b:7333", "1.0.0"), (3, "b:7333", "1.1.0")]
    {
        let mut writer = RecordWriter::at(number, NOW, None);
        let mut fault = Fault::new(Kind::ModelOverloaded, Operation::ModelRequest);
        fault.set_server(&NodeIdentity { node: node.into(), version: version.into() }.into());
        writer.put(Event::FaultRaised { fault, scope: Scope::default() });
        writer.write(&journal).await;
    }
    let stage = stage_on(&journal).await;
    let hour = stats(&stage, "1h").await;
    let rows = |table: &str, name: &str| -> Vec<(String, u64)> {
        let rows = hour[table].as_array().unwrap().iter();
        rows.map(|row| (row[name].as_str().unwrap().into(), row["count"].as_u64().unwrap()))
            .collect()
    };
    assert_eq!(rows("by_node", "node"), [("b:7333".into(), 2), ("a:7333".into(), 1)]);
    assert_eq!(rows("by_version", "version"), [("1.0.0".into(), 2), ("1.1.0".into(), 1)]);
    for (hit, count) in [("node:b:7333", 2), ("version:1.1.0", 1), ("node:c", 0)] {
        let (_, found) = get(&stage, &format!("/v1/sessions?hit={hit}")).await;
        assert_eq!(found["sessions"].as_array().unwrap().len(), count, "{hit}: {found}");
    }
}

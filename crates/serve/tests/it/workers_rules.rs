//! A tool of a worker has the checks, the repairs and the brake that a tool of the server has.

use budao_models::script::Script;
use serde_json::{Value, json};

use crate::workers::{TestWorker, ask, is_accepted, limits, pay, pay_with, result, setup};

fn calls(arguments: impl IntoIterator<Item = Value>) -> Script {
    let calls = arguments.into_iter().fold(Script::new(), |script, it| script.call("pay", it));
    calls.say("Done.")
}

#[tokio::test]
async fn a_slip_in_the_arguments_is_repaired_before_the_call_is_sent() {
    let fixture = setup(calls([json!({ "invoice": "7" })]), limits()).open().await;
    let reads = json!([pay_with("read_only", true)]);
    let mut worker = TestWorker::offering(&fixture, "w-1", reads).await;
    let (mut person, _) = ask(&fixture).await;
    let call = worker.call().await;
    assert_eq!(call["content"], json!({ "invoice": 7 }));
    assert!(is_accepted(&worker.claim(&call).await));
    assert!(is_accepted(&worker.end(&call, json!({ "result": "paid" })).await));
    assert_eq!(result(&mut person).await["content"], "paid");
}

#[tokio::test]
async fn a_call_with_a_mistake_is_answered_with_every_mismatch_and_never_sent() {
    let wrong = json!({ "invoice": "seven", "to": 1 });
    let mut schema = pay()["parameters"].clone();
    schema["properties"]["to"] = json!({ "type": "string" });
    let fixture = setup(calls([wrong, json!({ "invoice": 7 })]), limits()).open().await;
    let tools = json!([pay_with("parameters", schema)]);
    let mut worker = TestWorker::offering(&fixture, "w-1", tools).await;
    let (mut person, _) = ask(&fixture).await;
    let told = result(&mut person).await;
    assert_eq!(told["metadata"]["status"], "failed", "{told}");
    let text = told.to_string();
    assert!(text.contains("invoice") && text.contains("to"), "{told}");
    let sent = worker.client.next().await;
    assert_eq!((&sent["event"], &sent["content"]["invoice"]), (&json!("tool.call"), &json!(7)));
    assert!(is_accepted(&worker.claim(&sent).await));
    assert!(is_accepted(&worker.end(&sent, json!({ "result": "paid" })).await));
    person.until("agent.final_answer").await;
}

#[tokio::test]
async fn a_model_that_repeats_a_call_with_a_mistake_is_stopped() {
    let wrong = || json!({ "invoice": "seven" });
    let fixture = setup(calls([wrong(), wrong(), wrong(), wrong()]), limits()).open().await;
    let mut worker = TestWorker::offering(&fixture, "w-1", json!([pay()])).await;
    let (mut person, _) = ask(&fixture).await;
    let mut results = 0;
    loop {
        let frame = person.next().await;
        results += usize::from(frame["event"] == "agent.tool_result");
        let is_stopped = frame["metadata"]["error_code"] == "ERR_TOOL_009";
        if is_stopped && frame["event"] != "agent.tool_result" {
            break;
        }
    }
    assert!(results <= 3, "{results} calls were answered");
    let drain = json!({
        "event": "user.drain_worker", "command_id": "drain", "content": { "worker_id": "w-1" },
    });
    let answer = worker.ask(drain).await;
    assert_eq!(answer["metadata"]["command_id"], "drain", "no call came before: {answer}");
}

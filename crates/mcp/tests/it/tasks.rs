//! Calls that a server finishes later, and questions in the middle of a call.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use budao_core::{fault::Kind, tool::Todo};
use budao_testkit::mcp::TaskFolder;
use budao_tools::{CallContext, Memory, Note, NoteSender, isolation};
use serde_json::{Value, json};

use crate::common::{call, call_with, connect, done, failed, fake, is_ready, until, within};

/// The memory of a session that records checkpoints, or refuses to.
#[derive(Debug, Default)]
struct Checkpoints {
    kept: Mutex<Option<Value>>,
    /// How often the server had been asked when the checkpoint was recorded.
    asked_before: Mutex<Option<usize>>,
    folder: Option<TaskFolder>,
    is_parked: bool,
}

#[async_trait]
impl Memory for Checkpoints {
    fn todos(&self) -> Vec<Todo> {
        Vec::new()
    }

    fn seen_digest(&self, _path: &str) -> Option<Option<String>> {
        None
    }

    async fn checkpoint(&self, data: Value) -> bool {
        *self.asked_before.lock().unwrap() = self.folder.as_ref().map(TaskFolder::asked);
        *self.kept.lock().unwrap() = Some(data);
        true
    }

    async fn last_checkpoint(&self) -> Option<Value> {
        self.kept.lock().unwrap().clone()
    }

    fn is_parked(&self) -> bool {
        self.is_parked
    }
}

fn with_memory(memory: &Arc<Checkpoints>) -> CallContext {
    CallContext { memory: Arc::clone(memory) as _, ..isolation::context() }
}

struct Fixture {
    _folder: tempfile::TempDir,
    tasks: TaskFolder,
    memory: Arc<Checkpoints>,
}

impl Fixture {
    fn new(is_parked: bool) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let tasks = TaskFolder::new(folder.path());
        let memory =
            Checkpoints { folder: Some(tasks.clone()), is_parked, ..Checkpoints::default() };
        Self { _folder: folder, tasks, memory: Arc::new(memory) }
    }

    fn config(&self) -> budao_mcp::McpServerConfig {
        fake(&["--stateless", "--tasks", self.tasks.path().to_str().unwrap()])
    }

    async fn asked(&self, count: usize) {
        within(async {
            while self.tasks.asked() < count {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }
}

#[tokio::test]
async fn a_call_that_becomes_a_task_is_followed_to_its_result_and_its_progress_is_shown() {
    let it = Fixture::new(false);
    let server = connect(it.config()).await;
    let (notes, mut shown) = NoteSender::channel(64);
    let context = CallContext { notes, ..with_memory(&it.memory) };
    let job = call_with(&server, "job", json!({}), context);
    let release = async {
        it.asked(2).await;
        it.tasks.release().unwrap();
    };
    let (outcome, ()) = tokio::join!(job, release);
    assert_eq!(done(outcome), json!("result of t1"));
    assert_eq!(
        *it.memory.asked_before.lock().unwrap(),
        Some(0),
        "durable before the first question"
    );
    assert_eq!(shown.recv().await, Some(Note::Output("step 1\n".into())));
    within(server.shutdown()).await;
}

#[tokio::test]
async fn a_later_attempt_asks_for_the_task_and_does_not_call_again() {
    let it = Fixture::new(false);
    let server = connect(it.config()).await;
    let first = with_memory(&it.memory);
    let job = call_with(&server, "job", json!({}), first);
    // The process ends in the middle.
    tokio::select! {
        _ = job => panic!("it cannot end"),
        () = it.asked(1) => {}
    }
    within(server.shutdown()).await;
    it.tasks.release().unwrap();
    let server = connect(it.config()).await;
    let second = CallContext { attempt: 2, ..with_memory(&it.memory) };
    assert_eq!(done(call_with(&server, "job", json!({}), second).await), json!("result of t1"));
    assert_eq!(it.tasks.created(), 1);
    within(server.shutdown()).await;
}

#[tokio::test]
async fn a_task_survives_the_death_of_the_connection_to_its_server() {
    let it = Fixture::new(false);
    let server = connect(it.config()).await;
    let job = call_with(&server, "job", json!({}), with_memory(&it.memory));
    let kill = async {
        it.asked(1).await;
        failed(call(&server, "die", json!({})).await);
        until(&server, is_ready).await;
        it.tasks.release().unwrap();
    };
    let (outcome, ()) = tokio::join!(job, kill);
    assert_eq!(done(outcome), json!("result of t1"));
    assert_eq!(it.tasks.created(), 1);
    within(server.shutdown()).await;
}

#[tokio::test]
async fn a_cancel_cancels_the_task_at_the_server_and_the_end_of_the_process_does_not() {
    for (is_parked, cancelled) in [(false, 1), (true, 0)] {
        let it = Fixture::new(is_parked);
        let server = connect(it.config()).await;
        let context = with_memory(&it.memory);
        let cancel = context.cancel.clone();
        let job = call_with(&server, "job", json!({}), context);
        let stop = async {
            it.asked(1).await;
            cancel.cancel();
        };
        let (outcome, ()) = tokio::join!(job, stop);
        assert_eq!(failed(outcome).fault.kind(), Kind::Cancelled);
        assert_eq!(it.tasks.cancelled(), cancelled, "parked: {is_parked}");
        within(server.shutdown()).await;
    }
}

#[tokio::test]
async fn a_task_that_the_server_does_not_know_any_more_ends_the_call_with_its_reason() {
    let it = Fixture::new(false);
    *it.memory.kept.lock().unwrap() = Some(json!({ "mcp_task": "t7", "tool": "job" }));
    let server = connect(it.config()).await;
    let context = CallContext { attempt: 2, ..with_memory(&it.memory) };
    let fault = failed(call_with(&server, "job", json!({}), context).await).fault;
    assert_eq!(fault.hops()[0].name, "fake", "{fault}");
    assert_eq!(it.tasks.created(), 0, "it is not called again");
    within(server.shutdown()).await;
}

#[tokio::test]
async fn a_task_of_another_call_is_not_followed_for_this_one() {
    let it = Fixture::new(false);
    let mut config = it.config();
    if let budao_mcp::Transport::Stdio(stdio) = &mut config.transport {
        stdio.args.push("--one-task".to_owned());
    }
    let server = connect(config).await;
    let first = call_with(&server, "job", json!({}), with_memory(&it.memory));
    let second = async {
        it.asked(1).await;
        let other = CallContext { idempotency_key: "other".into(), ..isolation::context() };
        let fault = failed(call_with(&server, "job", json!({}), other).await).fault;
        it.tasks.release().unwrap();
        fault
    };
    let (outcome, fault) = tokio::join!(first, second);
    assert_eq!(done(outcome), json!("result of t1"));
    assert_eq!(fault.hops()[0].name, "fake", "{fault}");
    assert!(fault.to_string().contains("cannot be understood"), "{fault}");
    within(server.shutdown()).await;
}

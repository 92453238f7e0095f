//! Who writes to a task that is just ending.

use std::time::Duration;

use budao_core::{
    engine::{Engine as _, Opening},
    event::{Answer, Ask, Command, Settings},
    fault::Operation,
    limits::Limits,
    trace::Trace,
    turn::Input,
};
use budao_journal::Memory;
use budao_models::script::Script;
use budao_tools::Toolbox;
use tokio::sync::oneshot;

use super::*;
use crate::{Builder, OneModel};

fn runtime() -> Runtime {
    let world = budao_testkit::world::seeded(1);
    let journal = Arc::new(Memory::new(world.clone(), Limits::default()));
    let model = Arc::new(Script::default().model(Arc::clone(&world.clock)));
    let models = Arc::new(OneModel(model as _));
    let tools = Arc::new(Toolbox::builder().build());
    Builder::new(journal, models, tools).world(world).build().unwrap()
}

/// Whoever wrote to a task that was just ending.
struct Waiting {
    open: oneshot::Receiver<Result<(), Fault>>,
    command: oneshot::Receiver<Result<Answer, Fault>>,
    stop: oneshot::Receiver<()>,
}

/// A task that ends like this with one message of each kind in its inbox.
async fn left(runtime: &Runtime, id: SessionId, end: Result<(), Fault>) -> Waiting {
    let (sender, inputs) = mpsc::channel(8);
    let (reply, open) = oneshot::channel();
    let settings = Box::<Settings>::default();
    sender.send(Message::Open { settings, origin: None, reply }).await.unwrap();
    let (reply, command) = oneshot::channel();
    let ask = Ask::Cancel { reason: None };
    let asked = Command { id: "c1".into(), by: "ada".into(), trace: Trace::NONE, ask };
    sender.send(Message::Command { command: Box::new(asked), waits: false, reply }).await.unwrap();
    let (reply, stop) = oneshot::channel();
    sender.send(Message::Stop { patience: Duration::ZERO, reply }).await.unwrap();
    let woke = || Box::new(Input::Woke { turn: 1 });
    sender.send(Message::Aside(woke())).await.unwrap();
    sender.send(Message::Report { life: 1, over: None, input: woke() }).await.unwrap();
    let runtime = runtime.clone();
    Start { runtime, id, missing: Missing::Refuse, sender, inputs, lives: 1 }.leave(end).await;
    Waiting { open, command, stop }
}

#[tokio::test(start_paused = true)]
async fn who_came_while_a_session_was_given_up_is_told_why() {
    let runtime = runtime();
    let id = runtime.open(Opening::default()).await.unwrap();
    let fault = Fault::new(Kind::JournalDamaged, Operation::ReadRecords);
    let waiting = left(&runtime, id, Err(fault)).await;
    assert_eq!(waiting.open.await.unwrap().unwrap_err().kind(), Kind::JournalDamaged);
    assert_eq!(waiting.command.await.unwrap().unwrap_err().kind(), Kind::JournalDamaged);
    waiting.stop.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn who_came_while_an_idle_session_was_leaving_is_answered_by_its_next_task() {
    let runtime = runtime();
    let id = runtime.open(Opening::default()).await.unwrap();
    let waiting = left(&runtime, id, Ok(())).await;
    let answer = waiting.command.await.unwrap().unwrap();
    assert!(matches!(answer, Answer::Accepted { .. }), "{answer:?}");
    let again = waiting.open.await.unwrap().unwrap_err();
    assert_eq!(again.kind(), Kind::CommandRepeated, "it is open already");
    waiting.stop.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn every_life_of_a_task_has_a_number_of_its_own() {
    let runtime = runtime();
    let (sender, inputs) = mpsc::channel(8);
    let id = SessionId(uuid::Uuid::nil());
    let missing = Missing::Refuse;
    let mut start = Start { runtime, id, missing, sender, inputs, lives: 0 };
    let shared = Arc::clone(&start.runtime.shared);
    for life in 1..=3 {
        let exit = start.live(&shared, None).await;
        assert!(matches!(exit, Exit::Failed(_)), "there is no such session: {exit:?}");
        assert_eq!(start.lives, life, "what an earlier one started can be told apart");
    }
}

//! What a waiting turn costs: resident bytes beyond those of the same session while it is idle. In a process of its own,
//! because the figure is that of the whole process.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::{fs, sync::Arc, time::Duration};

use budao_core::{
    Fault, Kind, World,
    engine::{Engine as _, SessionOptions},
    event::{CommandBody, Event, SessionId},
    fault::Operation,
    limits::Limits,
    message::Block,
};
use budao_journal::Memory;
use budao_models::script::{Ending, Script, ScriptStep};
use budao_runtime::{Builder, OneModel, Runtime};
use budao_testkit::world;
use budao_tools::Toolbox;
use futures::StreamExt as _;

/// Sessions that wait.
const SESSIONS: usize = 10_000;
/// The most bytes of each beyond the idle session.
const BAR: f64 = 1024.0;

/// Resident bytes of this process; absent where the system does not tell.
fn resident() -> Option<f64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().trim_end_matches(" kB").parse::<f64>().ok().map(|kib| kib * 1024.0)
}

fn runtime(world: &World, script: Script) -> Runtime {
    let model = Arc::new(script.into_model(Arc::clone(&world.clock)));
    let journal = Arc::new(Memory::new(world.clone(), Limits::default()));
    let tools = Arc::new(Toolbox::builder().build());
    Builder::new(journal, Arc::new(OneModel(model)), tools).world(world.clone()).build().unwrap()
}

async fn say(runtime: &Runtime, session: SessionId) {
    let content = vec![Block::Text("go".into())];
    let command = runtime.command("ada", CommandBody::Message { content });
    runtime.submit(session, command).await.unwrap();
}

async fn until(runtime: &Runtime, session: SessionId, is_there: fn(&Event) -> bool) {
    let mut records = runtime.follow(session, 0).await.unwrap();
    while !is_there(&records.next().await.unwrap().unwrap().event) {}
}

#[tokio::test(start_paused = true)]
async fn a_waiting_turn_costs_less_than_a_kibibyte_more_than_an_idle_session() {
    let Some(_) = resident() else { return };
    let limited = Fault::new(Kind::ModelRateLimited, Operation::ModelRequest);
    let limited = limited.retry_after(Duration::from_secs(600));
    let limited = ScriptStep::new().end(Ending::Fault(Box::new(limited)));
    let mut script = Script::new();
    for _ in 0..SESSIONS {
        script = script.say("ok");
    }
    let runtime = runtime(&world::seeded(1), script.step(limited).say("ok").forever());
    let mut sessions = Vec::new();
    for _ in 0..SESSIONS {
        let session = runtime.open(SessionOptions::default()).await.unwrap();
        say(&runtime, session).await;
        until(&runtime, session, |event| matches!(event, Event::TurnEnded { .. })).await;
        sessions.push(session);
    }
    let refused = runtime.open(SessionOptions::default()).await.unwrap();
    say(&runtime, refused).await;
    until(&runtime, refused, |event| matches!(event, Event::RetryScheduled { .. })).await;
    let before = resident().unwrap();
    for session in &sessions {
        say(&runtime, *session).await;
        until(&runtime, *session, |event| matches!(event, Event::RequestHeld { .. })).await;
    }
    let each = (resident().unwrap() - before) / SESSIONS as f64;
    let waiting: usize = runtime.gates().iter().map(|(_, gate)| gate.waiting).sum();
    assert_eq!(waiting, SESSIONS);
    assert!(each < BAR, "{each:.0} bytes each");
}

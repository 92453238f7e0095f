//! What a waiting turn costs: resident bytes beyond those of the same session while it is idle. In a process of its own,
//! because the figure is that of the whole process.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::{fs, sync::Arc, time::Duration};

use budao_core::{
    Fault, Kind,
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
/// The most bytes of each beyond the idle session, which is not loaded. The records of the turn are in memory, too: they
/// are most of it. A guard against growth, not the goal, which is a kibibyte.
const GUARD: f64 = 12.0 * 1024.0;

/// Resident bytes of this process; absent where the system does not tell.
fn resident() -> Option<f64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().trim_end_matches(" kB").parse::<f64>().ok().map(|kib| kib * 1024.0)
}

fn runtime(script: Script) -> Runtime {
    let world = world::seeded(1);
    let model = Arc::new(script.into_model(Arc::clone(&world.clock)));
    let limits = Limits { sessions: 2 * SESSIONS, ..Limits::default() };
    let journal = Arc::new(Memory::new(world.clone(), limits.clone()));
    let tools = Arc::new(Toolbox::builder().build());
    let builder = Builder::new(journal, Arc::new(OneModel(model)), tools);
    builder.world(world).limits(limits).build().unwrap()
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

/// Sessions with an answered turn, and a gate that is shut.
async fn idle_sessions(runtime: &Runtime) -> Vec<SessionId> {
    let mut sessions = Vec::new();
    for _ in 0..SESSIONS {
        let session = runtime.open(SessionOptions::default()).await.unwrap();
        say(runtime, session).await;
        until(runtime, session, |event| matches!(event, Event::TurnEnded { .. })).await;
        sessions.push(session);
    }
    let refused = runtime.open(SessionOptions::default()).await.unwrap();
    say(runtime, refused).await;
    until(runtime, refused, |event| matches!(event, Event::RetryScheduled { .. })).await;
    sessions
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_waiting_turns_cost_little_more_than_as_many_idle_sessions() {
    let Some(_) = resident() else { return };
    let limited = Fault::new(Kind::ModelRateLimited, Operation::ModelRequest);
    let limited = limited.retry_after(Duration::from_secs(600));
    let limited = ScriptStep::new().end(Ending::Fault(Box::new(limited)));
    let answered = (0..SESSIONS).fold(Script::new(), |script, _| script.say("ok"));
    let runtime = runtime(answered.step(limited).say("ok").forever());
    let sessions = idle_sessions(&runtime).await;
    let before = resident().unwrap();
    for session in &sessions {
        say(&runtime, *session).await;
        until(&runtime, *session, |event| matches!(event, Event::RequestHeld { .. })).await;
    }
    #[expect(clippy::cast_precision_loss, reason = "a small number")]
    let each = (resident().unwrap() - before) / SESSIONS as f64;
    let waiting: usize = runtime.gates().iter().map(|(_, gate)| gate.waiting).sum();
    assert_eq!(waiting, SESSIONS);
    assert!(each < GUARD, "{each:.0} bytes each");
}

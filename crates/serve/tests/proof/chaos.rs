//! A storm of disconnects: many sessions on one bad line, for as many cuts or minutes as asked for.
//!
//! `BUDAO_CHAOS_CUTS` and `BUDAO_CHAOS_SECONDS` (set by `cargo xtask chaos`) change how long it lasts.

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

use budao_client::{Client, Event, Events, SessionRequest};
use budao_core::{
    event::{CallStart, Event as Recorded, Record, SessionId},
    limits::Limits,
    retry::RetryPolicy,
};
use budao_journal::PageLimits;
use budao_models::OpenAi;
use budao_runtime::world::system;
use budao_testkit::{
    provider::{Provider, ReceivedRequest, Reply},
    proxy::{ConnectionPlan, Ending, Lane, Proxy},
    sse::{ModelOutput, openai},
    world,
};
use futures::{StreamExt as _, stream};
use serde_json::json;

use crate::{
    cuts::random_cut,
    fixture::{Fixture, Setup, client_at, next, runs, seed, texts_by_event, until},
};

/// Sessions at a time; each is heard over a line of its own.
const SESSIONS: usize = 64;

/// Cuts in a usual run, and with `BUDAO_FULL`.
const SOME: u64 = 5_000;
const ALL: u64 = 20_000;

/// When a client thinks that its line is dead. Long against a machine that has other things to do: a client that gives up
/// before it is answered never gets anywhere.
const SILENCE: Duration = Duration::from_secs(1);

/// Messages to one session before another is opened.
const MESSAGES: usize = 4;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// When it is enough.
struct StopCondition {
    cuts: u64,
    until: Option<Instant>,
}

impl StopCondition {
    fn of_environment() -> Self {
        let seconds = number("BUDAO_CHAOS_SECONDS");
        let usual = if std::env::var_os("BUDAO_FULL").is_some() { ALL } else { SOME };
        Self {
            cuts: number("BUDAO_CHAOS_CUTS").unwrap_or(usual),
            until: seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds)),
        }
    }

    fn is_reached(&self, cuts: u64) -> bool {
        match self.until {
            Some(until) => Instant::now() >= until,
            None => cuts >= self.cuts,
        }
    }
}

/// One session from its opening to its last answer; then what was heard is held against what there is.
async fn live(stage: &Fixture, client: &Client, what: String) {
    let (session, mut events) = client.create(SessionRequest::default()).await.unwrap();
    let mut received = Vec::new();
    for _ in 0..MESSAGES {
        session.send("go").await.unwrap();
        received.extend(until(&mut events, "agent.final_answer").await);
    }
    let received = texts_by_event(&received);
    let mut all = texts_by_event(&stage.history(session.id()).await);
    all.truncate(received.len());
    assert_eq!(received, all, "{what}, session {}", session.id());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_of_disconnects_loses_nothing_and_repeats_nothing() {
    let seed = seed();
    let goal = StopCondition::of_environment();
    let stage = Setup::new(runs(6)).start().await;
    let proxy = Proxy::start(stage.address, seed).await.unwrap();
    let dice = world::seeded(seed).entropy;
    proxy.plan(move |_| random_cut(&dice));
    let began = Instant::now();
    let client = client_at(proxy.address()).silence(SILENCE);
    let lives = stream::iter(0..u64::MAX)
        .take_while(|_| std::future::ready(!goal.is_reached(proxy.ended_early())))
        .map(|number| live(&stage, &client, format!("seed {seed} life {number}")))
        .buffer_unordered(SESSIONS)
        .count()
        .await;
    let (cuts, took) = (proxy.ended_early(), began.elapsed());
    eprintln!(
        "{cuts} disconnects of {} connections, {lives} sessions, {took:.0?}",
        proxy.accepted()
    );
    assert!(goal.until.is_some() || cuts >= goal.cuts);
    stage.stop().await;
}

/// Sessions at a time when the model, too, is on a bad line: its faults are waited for.
const FEWER: usize = 24;

/// One call, then an answer, for every message.
fn reply(confirmation: &ReceivedRequest) -> Reply {
    let messages = confirmation.body["messages"].as_array().map(Vec::as_slice).unwrap_or_default();
    let number = messages.len();
    let answer = match messages.last().map(|last| &last["role"]) {
        Some(role) if role == "tool" => ModelOutput::text("All of it is done, as you asked."),
        _ => ModelOutput::call(&format!("call-{number}"), "mark", &json!({})),
    };
    Reply::events(openai(&[answer]))
}

/// A line to the model that breaks now and then, in the middle of an answer or before it.
fn some_cuts(dice: &Arc<dyn budao_core::world::Entropy>) -> ConnectionPlan {
    match dice.bits() % 6 {
        0 => ConnectionPlan::down(Lane::default().cut(dice.bits() % 900, Ending::Reset)),
        1 => ConnectionPlan::down(Lane::default().cut(dice.bits() % 900, Ending::Close)),
        2 => ConnectionPlan::down(Lane::default().torn(30)),
        _ => ConnectionPlan::clean(),
    }
}

/// Every event up to the end of a turn, however it ended.
async fn until_it_ends(events: &mut Events) -> Vec<Event> {
    let mut received = Vec::new();
    loop {
        let event = next(events).await;
        let ends = ["agent.final_answer", "agent.error", "agent.interrupted"];
        let is_last = ends.contains(&event.event.as_str());
        received.push(event);
        if is_last {
            return received;
        }
    }
}

/// Everything the journal has of a session.
async fn records(stage: &Fixture, session: SessionId) -> Vec<Record> {
    let limits = PageLimits { records: 100_000, bytes: usize::MAX };
    let page = stage.journal.read(session, 0, limits).await.unwrap();
    page.records.iter().map(|stored| stored.record().unwrap()).collect()
}

/// What must hold of a history, whatever the line did: no gap, one end for every turn, one outcome for every call.
fn audit(records: &[Record], what: &str) -> (usize, usize) {
    let (mut turns, mut failed, mut started, mut ended) = (0, 0, BTreeSet::new(), BTreeSet::new());
    for (index, record) in records.iter().enumerate() {
        assert_eq!(record.seq, index as u64 + 1, "{what}");
        match &record.event {
            Recorded::TurnStarted { .. } => turns += 1,
            Recorded::ToolCallStarted(CallStart { call, .. }) => {
                started.insert((record.turn, call.clone()));
            }
            Recorded::ToolCallEnded { call, .. } => {
                assert!(ended.insert((record.turn, call.clone())), "{what}: two outcomes: {call}");
            }
            Recorded::TurnEnded { fault, .. } => {
                turns -= 1;
                failed += usize::from(fault.is_some());
            }
            _ => {}
        }
        assert!((0..=1).contains(&turns), "{what}: {turns} turns at once");
    }
    assert!(turns == 0 && started.is_subset(&ended), "{what}: something never ended");
    (ended.len(), failed)
}

/// What came of one session: turns, how many of them failed, calls.
async fn live_with_model(stage: &Fixture, client: &Client, what: String) -> [usize; 4] {
    let (session, mut events) = client.create(SessionRequest::default()).await.unwrap();
    let mut received = Vec::new();
    for _ in 0..MESSAGES {
        session.send("go").await.unwrap();
        received.extend(until_it_ends(&mut events).await);
    }
    let received = texts_by_event(&received);
    let mut all = texts_by_event(&stage.history(session.id()).await);
    all.truncate(received.len());
    assert_eq!(received, all, "{what}, session {}", session.id());
    let (calls, failed) = audit(&records(stage, session.id().parse().unwrap()).await, &what);
    [MESSAGES, failed, calls, received.len()]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_on_the_lines_of_clients_and_of_the_model_loses_nothing_and_repeats_nothing() {
    let seed = seed();
    let goal = StopCondition::of_environment();
    let sessions = if goal.until.is_some() { u64::MAX } else { 30 };
    let provider = Provider::answering(reply).await;
    let to_model = Proxy::start(provider.address(), seed).await.unwrap();
    let url = format!("http://{}", to_model.address());
    // Soon again, as the storm is meant for the lines and not for patience.
    let (base, max) = (Duration::from_millis(5), Duration::from_millis(50));
    let retry = RetryPolicy { tries: 6, base, max, ..RetryPolicy::default() };
    let limits = Limits { retry, ..Limits::default() };
    let model = OpenAi::new("m", Some(&url), None, &system(), Arc::new(limits.clone())).unwrap();
    let mut setup = Setup::new(runs(1));
    setup.model = Some(Arc::new(model));
    setup.limits = limits;
    let stage = setup.start().await;
    let proxy = Proxy::start(stage.address, seed).await.unwrap();
    let (dice, model_dice) =
        (world::seeded(seed).entropy, world::seeded(seed.wrapping_add(1)).entropy);
    proxy.plan(move |_| random_cut(&dice));
    to_model.plan(move |_| some_cuts(&model_dice));
    let began = Instant::now();
    let client = client_at(proxy.address()).silence(SILENCE);
    let over = || goal.until.is_some_and(|until| Instant::now() >= until);
    let sums = stream::iter(0..sessions)
        .take_while(|_| std::future::ready(!over()))
        .map(|number| live_with_model(&stage, &client, format!("seed {seed} life {number}")))
        .buffer_unordered(FEWER)
        .fold([0; 4], |sum, one| {
            std::future::ready(std::array::from_fn(|index| sum[index] + one[index]))
        })
        .await;
    let [turns, failed, calls, frames] = sums;
    eprintln!(
        "audited: {turns} turns ({failed} failed), {calls} calls and {frames} frames against the journal; \
         {} of {} lines of clients and {} of {} of the model were cut, {:.0?}",
        proxy.ended_early(),
        proxy.accepted(),
        to_model.ended_early(),
        to_model.accepted(),
        began.elapsed()
    );
    assert!(turns > 0 && calls > 0 && to_model.ended_early() > 0);
    stage.stop().await;
}

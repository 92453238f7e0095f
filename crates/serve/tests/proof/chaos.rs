//! A storm of disconnects: many sessions on one bad line, for as many cuts or minutes as asked for.
//!
//! `BUDAO_CHAOS_CUTS` and `BUDAO_CHAOS_MINUTES` (set by `cargo xtask chaos`) change how long it lasts.

use std::time::{Duration, Instant};

use budao_client::{Client, Create};
use budao_testkit::{proxy::Proxy, world};
use futures::{StreamExt as _, stream};

use crate::{
    cuts::random_cut,
    stage::{Setup, Stage, client_at, runs, seed, told, until},
};

/// Sessions at a time; each is heard over a line of its own.
const SESSIONS: usize = 64;

/// When a client thinks that its line is dead. Long against a machine that has other things to do: a client that gives up
/// before it is answered never gets anywhere.
const SILENCE: Duration = Duration::from_secs(1);

/// Messages to one session before another is opened.
const MESSAGES: usize = 4;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// When it is enough.
struct Goal {
    cuts: u64,
    until: Option<Instant>,
}

impl Goal {
    fn of_environment() -> Self {
        let minutes = number("BUDAO_CHAOS_MINUTES");
        Self {
            cuts: number("BUDAO_CHAOS_CUTS").unwrap_or(20_000),
            until: minutes.map(|minutes| Instant::now() + Duration::from_secs(60 * minutes)),
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
async fn live(stage: &Stage, client: &Client, what: String) {
    let (session, mut events) = client.create(Create::default()).await.unwrap();
    let mut heard = Vec::new();
    for _ in 0..MESSAGES {
        session.send("go").await.unwrap();
        heard.extend(until(&mut events, "agent.final_answer").await);
    }
    let heard = told(&heard);
    let mut all = told(&stage.history(session.id()).await);
    all.truncate(heard.len());
    assert_eq!(heard, all, "{what}, session {}", session.id());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_of_disconnects_loses_nothing_and_repeats_nothing() {
    let seed = seed();
    let goal = Goal::of_environment();
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

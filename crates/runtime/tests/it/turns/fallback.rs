//! Lists of models: a turn goes on with the next model while the first cannot be asked, and returns to it.

use std::{sync::Arc, time::Duration};

use budao_core::{
    Fault, Kind,
    engine::{Engine, SessionOptions},
    event::{CommandBody, Event, Record, SessionId, Settings},
    fallback::ModelChangeReason,
    fault::{Fact, Operation},
    limits::Limits,
    message::{Block, Message},
};
use budao_journal::{Journal, Memory, PageLimits};
use budao_models::script::{Ending, Script, ScriptStep, ScriptedModel};
use budao_runtime::{Agent, AgentBuilderExt as _, Builder, ModelList, Runtime};
use budao_testkit::world;
use budao_tools::Toolbox;
use futures::StreamExt;
use tokio::time::Instant;

/// A session with the models `a` and `b`.
struct Pair {
    runtime: Runtime,
    journal: Arc<dyn Journal>,
    models: Vec<Arc<ScriptedModel>>,
    session: SessionId,
}

impl Pair {
    async fn new(first: Script, second: Script) -> Self {
        let journal: Arc<dyn Journal> = Arc::new(Memory::new(world::seeded(1), Limits::default()));
        Self::on(journal, first, second, None).await
    }

    /// With the session of an earlier process, if there is one.
    async fn on(
        journal: Arc<dyn Journal>,
        first: Script,
        second: Script,
        session: Option<SessionId>,
    ) -> Self {
        let world = world::seeded(if session.is_some() { 2 } else { 1 });
        let model = |script: Script, name: &str| {
            Arc::new(script.into_model(Arc::clone(&world.clock)).recording().named(name))
        };
        let models = vec![model(first, "a"), model(second, "b")];
        let list = ModelList(models.iter().map(|model| Arc::clone(model) as _).collect());
        let toolbox = Arc::new(Toolbox::builder().build());
        let runtime = Builder::new(Arc::clone(&journal), Arc::new(list), toolbox)
            .world(world)
            .build()
            .unwrap();
        let session = match session {
            Some(session) => session,
            None => runtime.open(list_of(&["a", "b"])).await.unwrap(),
        };
        Self { runtime, journal, models, session }
    }

    async fn run(&self, text: &str) -> String {
        let result = self.runtime.run(self.session, text).await.unwrap();
        assert_eq!(result.fault, None);
        result.text
    }

    async fn records(&self) -> Vec<Record> {
        let page = self.journal.read(self.session, 0, PageLimits::default()).await.unwrap();
        page.records.iter().map(|stored| stored.record().unwrap()).collect()
    }

    async fn changes(&self) -> Vec<(String, ModelChangeReason)> {
        let records = self.records().await.into_iter();
        let changes = records.filter_map(|record| match record.event {
            Event::ModelChanged { from, to, reason, .. } => Some((format!("{from}>{to}"), reason)),
            _ => None,
        });
        changes.collect()
    }

    fn asked(&self) -> [usize; 2] {
        [self.models[0].asked(), self.models[1].asked()]
    }
}

fn list_of(models: &[&str]) -> SessionOptions {
    let names = models.iter().map(|name| (*name).to_owned()).collect();
    let settings = Settings::default().with_models(names);
    SessionOptions { settings, ..SessionOptions::default() }
}

fn limited(wait: Duration) -> ScriptStep {
    let fault = Fault::new(Kind::ModelRateLimited, Operation::ModelRequest).retry_after(wait);
    ScriptStep::new().end(Ending::Fault(Box::new(fault)))
}

fn to(change: &str, reason: ModelChangeReason) -> (String, ModelChangeReason) {
    (change.to_owned(), reason)
}

#[tokio::test(start_paused = true)]
async fn a_rate_limit_of_ten_minutes_delays_no_turn_and_the_first_model_is_asked_again_after_it() {
    let first = Script::new().step(limited(Duration::from_secs(600))).say("first").forever();
    let pair = Pair::new(first, Script::new().say("second").forever()).await;
    let before = Instant::now();
    assert_eq!(pair.run("one").await, "second");
    assert!(before.elapsed() < Duration::from_secs(1), "{:?}", before.elapsed());
    assert_eq!(pair.run("two").await, "second");
    assert_eq!(pair.asked(), [1, 2], "a gate that is shut gets no request");
    tokio::time::sleep(Duration::from_secs(601)).await;
    assert_eq!(pair.run("three").await, "first");
    assert_eq!(
        pair.changes().await,
        [to("a>b", ModelChangeReason::GateShut), to("b>a", ModelChangeReason::Returned)]
    );
}

#[tokio::test(start_paused = true)]
async fn other_sessions_ask_the_next_model_without_a_failure_of_their_own() {
    let first = Script::new().step(limited(Duration::from_secs(600))).say("first").forever();
    let pair = Pair::new(first, Script::new().say("second").forever()).await;
    pair.run("one").await;
    for _ in 0..20 {
        let session = pair.runtime.open(list_of(&["a", "b"])).await.unwrap();
        assert_eq!(pair.runtime.run(session, "go").await.unwrap().text, "second");
    }
    assert_eq!(pair.asked(), [1, 21]);
}

#[tokio::test(start_paused = true)]
async fn an_outage_moves_fifty_sessions_within_the_bound() {
    let first = Script::new().fail(Kind::ModelServerError).forever();
    let pair = Pair::new(first, Script::new().say("second").forever()).await;
    let before = Instant::now();
    let mut turns = Vec::new();
    for _ in 0..50 {
        let session = pair.runtime.open(list_of(&["a", "b"])).await.unwrap();
        let runtime = pair.runtime.clone();
        turns.push(tokio::spawn(async move { runtime.run(session, "go").await.unwrap() }));
    }
    for turn in turns {
        assert_eq!(turn.await.unwrap().text, "second");
    }
    assert!(before.elapsed() < Duration::from_secs(12), "{:?}", before.elapsed());
    let [first, second] = pair.asked();
    assert!(first <= 20 && second == 50, "{first} and {second} requests");
}

#[tokio::test(start_paused = true)]
async fn a_service_that_does_not_know_the_model_costs_one_request_a_turn() {
    let first = Script::new().fail(Kind::UnknownModel).forever();
    let pair = Pair::new(first, Script::new().say("second").forever()).await;
    assert_eq!(pair.run("one").await, "second");
    assert_eq!(pair.run("two").await, "second");
    assert_eq!(pair.asked(), [2, 2]);
}

#[tokio::test(start_paused = true)]
async fn if_all_models_are_down_the_turn_waits_and_the_first_service_is_to_blame() {
    let first = Script::new().fail(Kind::ModelServerError).forever();
    let second = Script::new().fail(Kind::ConnectionRefused).forever();
    let pair = Pair::new(first, second).await;
    pair.runtime.set_observed(pair.session, false);
    let before = Instant::now();
    let result = pair.runtime.run(pair.session, "go").await.unwrap();
    let waited = before.elapsed().as_secs();
    assert_eq!(result.fault.unwrap().kind(), Kind::ModelServerError);
    assert!((23 * 3600..=24 * 3600).contains(&waited), "{waited} s");
    let requests: usize = pair.asked().iter().sum();
    assert!(requests < 10_000, "{requests} requests in a day");
    let records = pair.records().await.len();
    assert!(records < 20_000, "{records} records in a day");
}

#[tokio::test(start_paused = true)]
async fn a_restart_goes_on_with_the_model_that_was_asked() {
    let first = Script::new().fail(Kind::ModelQuota).forever();
    let stuck = Script::new().step(limited(Duration::from_secs(60))).forever();
    let pair = Pair::new(first, stuck).await;
    let session = pair.session;
    let message = CommandBody::Message { content: vec![Block::Text("go".into())] };
    pair.runtime.submit(session, pair.runtime.command("ada", message)).await.unwrap();
    let mut records = pair.runtime.follow(session, 0).await.unwrap();
    while !matches!(records.next().await.unwrap().unwrap().event, Event::RetryScheduled { .. }) {}
    assert_eq!(pair.changes().await, [to("a>b", ModelChangeReason::QuotaSpent)]);
    pair.runtime.shutdown(Duration::ZERO).await;
    let again = Pair::on(
        Arc::clone(&pair.journal),
        Script::new().say("first").forever(),
        Script::new().say("second").forever(),
        Some(session),
    )
    .await;
    again.runtime.touch(session);
    assert_eq!(again.run("next").await, "first", "the next turn begins with the first model");
    let answers = again.records().await.into_iter().filter_map(|record| match record.event {
        Event::ModelAnswered { content, .. } => Some(content),
        _ => None,
    });
    let texts = [vec![Block::Text("second".into())], vec![Block::Text("first".into())]];
    assert_eq!(answers.collect::<Vec<_>>(), texts);
}

#[tokio::test(start_paused = true)]
async fn the_next_model_receives_the_whole_history() {
    let first = Script::new().say("one").fail(Kind::ModelQuota).forever();
    let pair = Pair::new(first, Script::new().say("two").forever()).await;
    pair.run("question").await;
    pair.run("more").await;
    let requests = pair.models[1].requests();
    let history = [Message::user("question"), Message::assistant("one"), Message::user("more")];
    assert_eq!(*requests[0].messages, history.map(Arc::new));
    assert_eq!(requests[0].model, "b");
}

#[tokio::test(start_paused = true)]
async fn a_wrong_list_is_refused_when_the_session_opens() {
    let pair = Pair::new(Script::new().say("x").forever(), Script::new().say("y").forever()).await;
    let twice = pair.runtime.open(list_of(&["a", "a"])).await.unwrap_err();
    assert_eq!(twice.detail().text(Fact::Received), Some("a twice"));
    let unknown = pair.runtime.open(list_of(&["a", "c"])).await.unwrap_err();
    assert_eq!(unknown.kind(), Kind::UnknownModel);
    assert_eq!(unknown.detail().text(Fact::Model), Some("c"));
}

#[tokio::test(start_paused = true)]
async fn an_agent_takes_a_list_of_models_with_different_names() {
    let world = world::seeded(1);
    let model = |script: Script, name: &str| {
        script.forever().into_model(Arc::clone(&world.clock)).named(name)
    };
    let agent = Agent::builder(model(Script::new().fail(Kind::ModelQuota), "first"))
        .fallback(model(Script::new().fail(Kind::UnknownModel), "second"))
        .fallback(model(Script::new().say("here"), "third"))
        .world(world.clone())
        .build()
        .unwrap();
    let session = agent.session().await.unwrap();
    assert_eq!(session.run("go").await.unwrap().text, "here");
    let twice = Agent::builder(model(Script::new().say("x"), "same"))
        .fallback(model(Script::new().say("y"), "same"))
        .build();
    assert_eq!(twice.unwrap_err().detail().text(Fact::Received), Some("same twice"));
}

//! What every sub-agent may rely on, and what its parent may.

use std::{sync::atomic::Ordering, time::Duration};

use budao_core::{
    Kind,
    event::{Answer, ChildLink, CommandBody, Decision, Event, Origin, SessionId, StopReason},
    fault::Fact,
    message::Usage,
    spending::{Amount, OnCap, Price, SpendingConfig},
    tool::{Mode, Outcome},
};
use budao_models::script::{Script, ScriptStep};
use budao_runtime::{SubAgents, TASK_RUN};
use serde_json::{Value, json};

use crate::pipeline::fixture::{Fixture, Setup};

const HOUR: Duration = Duration::from_secs(3600);

fn agents() -> Setup {
    let mut setup = Setup::new();
    setup.sub_agents = Some(SubAgents::default());
    setup.limits.model_between_tokens = HOUR * 200;
    setup
}

fn run(prompt: &str) -> Value {
    json!({"description": "some work", "prompt": prompt})
}

/// A parent that hands this to a sub-agent and then says what it said.
fn hands_over(prompt: &str) -> Script {
    Script::new().call(TASK_RUN, run(prompt)).say("parent done")
}

async fn outcome(stage: &Fixture) -> Outcome {
    let Event::ToolCallEnded { outcome, .. } = stage.until("tool_call_ended").await.event else {
        panic!()
    };
    outcome
}

#[tokio::test(start_paused = true)]
async fn a_sub_agent_does_its_work_and_returns_its_text() {
    let setup = agents().part("go", hands_over("count")).says("count", "three");
    let stage = setup.open().await;
    let result = stage.runtime.run(stage.session, "go").await.unwrap();
    assert_eq!(result.text, "parent done");
    let Outcome::Done(output) = outcome(&stage).await else { panic!() };
    assert_eq!(output.data, json!("three"));
    let child = stage.children().await[0];
    let state = stage.runtime.state(child).await.unwrap();
    let Some(Origin::Call { parent, depth, .. }) = state.origin else { panic!() };
    assert_eq!((parent, depth), (stage.session, 1));
    assert_eq!(state.settings.title.as_deref(), Some("some work"));
    assert_eq!(stage.records_of(child).await[2].trace, result.trace, "one trace");
    let used = stage.state().await.usage.output_tokens;
    assert!(used > state.usage.output_tokens, "what it used its parent used: {used}");
}

#[tokio::test(start_paused = true)]
async fn the_sub_agent_tool_is_offered_only_when_configured() {
    let stage = Setup::new().says("go", "x").open().await;
    stage.runtime.run(stage.session, "go").await.unwrap();
    assert!(!stage.cast.request("go").tools.iter().any(|tool| &*tool.name == TASK_RUN));
    let stage = agents().says("go", "x").open().await;
    stage.runtime.run(stage.session, "go").await.unwrap();
    assert!(stage.cast.request("go").tools.iter().any(|tool| &*tool.name == TASK_RUN));
}

#[tokio::test(start_paused = true)]
async fn the_fault_of_a_child_is_the_outcome_and_names_its_origin() {
    let fails = Script::new().fail(Kind::ModelBadRequest).forever();
    let stage = agents().part("go", hands_over("fails")).part("fails", fails).open().await;
    let result = stage.runtime.run(stage.session, "go").await.unwrap();
    assert!(result.is_ok(), "the parent goes on: {result:?}");
    let outcome = outcome(&stage).await;
    let fault = outcome.fault().unwrap();
    assert_eq!(fault.kind(), Kind::ModelBadRequest);
    assert_eq!(fault.hops()[0].role, "agent");
    assert_eq!(fault.hops()[0].name, stage.children().await[0].to_string());
}

#[tokio::test(start_paused = true)]
async fn agents_below_agents_end_at_the_limit() {
    // Every session hands the same work on, so only the limit ends it.
    let again = Script::new()
        .call(TASK_RUN, run("dig"))
        .call(TASK_RUN, run("dig"))
        .call(TASK_RUN, run("dig"))
        .say("bottom")
        .forever();
    let mut setup = agents().part("dig", again);
    setup.limits.depth = 2;
    let stage = setup.open().await;
    let result = stage.runtime.run(stage.session, "dig").await.unwrap();
    assert!(result.stop.is_some(), "{result:?}");
    let child = stage.children().await[0];
    let grandchild = children_of(&stage, child).await[0];
    assert!(children_of(&stage, grandchild).await.is_empty());
    let records = stage.records_of(grandchild).await;
    let refused = records.iter().find_map(|record| match &record.event {
        Event::ToolCallEnded { outcome, .. } => outcome.fault().map(budao_core::Fault::kind),
        _ => None,
    });
    assert_eq!(refused, Some(Kind::DepthExceeded));
    stage.nothing_runs().await;
}

async fn children_of(stage: &Fixture, session: SessionId) -> Vec<SessionId> {
    let records = stage.records_of(session).await;
    let opened = records.into_iter().filter_map(|record| match record.event {
        Event::ChildOpened(ChildLink { child, .. }) => Some(child),
        _ => None,
    });
    opened.collect()
}

#[tokio::test(start_paused = true)]
async fn a_tool_denied_to_the_parent_is_denied_to_the_child() {
    let touches = Script::new().call("touch", json!({})).say("tried");
    let mut setup = agents().part("go", hands_over("touch it")).part("touch it", touches);
    setup.settings.permissions.deny = vec!["touch".into()];
    let stage = setup.open().await;
    stage.runtime.run(stage.session, "go").await.unwrap();
    assert_eq!(stage.touched.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn a_sub_agent_gets_the_tools_it_is_given_and_never_more_than_its_parent_has() {
    let arguments = |tools: Value| json!({"description": "d", "prompt": "work", "tools": tools});
    let go = Script::new().call(TASK_RUN, arguments(json!(["touch", "slow"]))).say("done");
    let mut setup = agents().part("go", go).says("work", "x");
    setup.settings.tools = Some(vec!["touch".into(), "task_*".into()]);
    let stage = setup.open().await;
    stage.runtime.run(stage.session, "go").await.unwrap();
    let tools: Vec<_> =
        stage.cast.request("work").tools.iter().map(|tool| tool.name.to_string()).collect();
    assert_eq!(tools, ["touch"]);
}

#[tokio::test(start_paused = true)]
async fn a_sub_agent_has_its_own_steps() {
    let arguments = json!({"description": "d", "prompt": "work", "max_steps": 2});
    let endless = Script::new().call("touch", json!({})).forever();
    let setup = agents().part("go", Script::new().call(TASK_RUN, arguments).say("done"));
    let stage = setup.part("work", endless).open().await;
    let result = stage.runtime.run(stage.session, "go").await.unwrap();
    assert_eq!(result.text, "done");
    assert_eq!(stage.cast.asked("work"), 2);
    assert_eq!(outcome(&stage).await.fault().unwrap().kind(), Kind::StepsExhausted);
}

#[tokio::test(start_paused = true)]
async fn cancelling_the_parent_cancels_the_child_and_waits_for_it() {
    let waits = Script::new().call("slow", json!({})).say("never");
    let stage = agents().part("go", hands_over("wait")).part("wait", waits).open().await;
    stage.say("go").await;
    stage.until("child_opened").await;
    let child = stage.children().await[0];
    stage.until_in(child, "tool_call_started").await;
    stage.accepted(CommandBody::Cancel { reason: None }).await;
    let ended = stage.until("turn_ended").await;
    let child_ended = stage.until_in(child, "turn_ended").await;
    assert!(child_ended.at <= ended.at);
    assert_eq!(stage.state().await.last.unwrap().stop, StopReason::Cancelled);
    stage.nothing_runs().await;
}

#[tokio::test(start_paused = true)]
async fn a_child_that_takes_too_long_is_stopped() {
    let hangs = Script::new().step(ScriptStep::new().text("hm").pause(HOUR * 100)).forever();
    let mut setup = agents().part("go", hands_over("hang")).part("hang", hangs);
    setup.sub_agents =
        Some(SubAgents { deadline: Duration::from_secs(60), ..SubAgents::default() });
    let stage = setup.open().await;
    let result = stage.runtime.run(stage.session, "go").await.unwrap();
    assert!(result.is_ok(), "the parent goes on: {result:?}");
    assert!(outcome(&stage).await.fault().is_some());
    stage.nothing_runs().await;
}

#[tokio::test(start_paused = true)]
async fn the_question_of_a_child_is_shown_by_its_parent() {
    let touches = Script::new().call("touch", json!({})).say("touched");
    let mut setup = agents().part("go", hands_over("touch it")).part("touch it", touches);
    setup.settings.permissions.mode = Mode::Approval;
    let stage = setup.open().await;
    stage.say("go").await;
    let Event::ToolCallAnnotated { topic, data, .. } =
        stage.until("tool_call_annotated").await.event
    else {
        panic!()
    };
    assert_eq!(topic, "child_question_asked");
    let child = serde_json::from_value(data["child"].clone()).unwrap();
    let question = serde_json::from_value(data["question"].clone()).unwrap();
    let answer = stage.decide(child, question).await;
    assert!(matches!(answer, Answer::Accepted { .. }), "{answer:?}");
    stage.until("turn_ended").await;
    assert_eq!(stage.touched.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn after_a_crash_the_same_child_goes_on_and_nothing_is_done_twice() {
    let child = |hangs: bool| {
        let script = Script::new().order(budao_models::script::StepOrder::History);
        let script = script.call("touch", json!({}));
        match hangs {
            true => script.step(ScriptStep::new().text("hm").pause(HOUR * 100)).forever(),
            false => script.say("child done"),
        }
    };
    let setup = |hangs| {
        let go = hands_over("touch it").order(budao_models::script::StepOrder::History);
        agents().part("go", go).part("touch it", child(hangs))
    };
    let first = setup(true).open().await;
    first.say("go").await;
    while first.cast.asked("touch it") < 2 {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    // Killed: no task is stopped, so the call is still open, and the first is a stale writer.
    let second = setup(false).instead_of(&first).await;
    second.until("turn_ended").await;
    let Outcome::Done(output) = outcome(&second).await else { panic!() };
    assert_eq!(output.data, json!("child done"));
    let touched = first.touched.load(Ordering::SeqCst) + second.touched.load(Ordering::SeqCst);
    assert_eq!(touched, 1);
    assert_eq!(second.children().await.len(), 1, "one child, whoever asks");
    second.nothing_runs().await;
}

#[tokio::test(start_paused = true)]
async fn several_sub_agents_work_side_by_side() {
    let go = Script::new()
        .calls([(TASK_RUN, run("one")), (TASK_RUN, run("two")), (TASK_RUN, run("three"))])
        .say("all");
    let mut setup = agents().part("go", go);
    for part in ["one", "two", "three"] {
        let slow = Script::new().step(ScriptStep::new().text("a").pause(HOUR / 2).text("b"));
        setup = setup.part(part, slow);
    }
    let stage = setup.open().await;
    let began = tokio::time::Instant::now();
    let result = stage.runtime.run(stage.session, "go").await.unwrap();
    assert_eq!(result.text, "all");
    assert!(began.elapsed() < HOUR, "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_talks_to_its_own_session_ends_at_its_deadline_and_is_answered_after() {
    let script = Script::new().call("talk", json!({})).say("tool gave up").say("to myself");
    let stage = agents().part("go", script).open().await;
    let result = stage.runtime.run(stage.session, "go").await.unwrap();
    assert_eq!(result.text, "tool gave up");
    assert_eq!(outcome(&stage).await.fault().unwrap().kind(), Kind::DeadlinePassed);
    while stage.count("turn_ended").await < 2 {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(stage.state().await.last_text().as_deref(), Some("to myself"));
    stage.nothing_runs().await;
}

/// Sub-agents on a model of their own, which costs ten times as much, under a cap of the session.
fn capped(cap: f64) -> Setup {
    let mut setup = agents();
    setup.sub_agents = Some(SubAgents { model: Some("c".into()), ..SubAgents::default() });
    setup.settings.model = "p".into();
    setup.settings.max_answer_tokens = Some(1_000);
    let price = |output| Price { output, ..Price::FREE };
    setup.limits.spending.prices =
        [("p".to_owned(), price(1.0)), ("c".to_owned(), price(10.0))].into();
    setup.limits.spending.session = Some(Amount::Number(cap));
    setup
}

/// Goal: sub-agents that work at the same time share the cap of their session, before any of them has an answer.
/// Method: the cap has room for the parent's request (0.001) and two of theirs (0.01 each); none is answered.
#[tokio::test(start_paused = true)]
async fn sub_agents_share_the_cap_of_their_session_while_they_work() {
    let hangs = Script::new().step(ScriptStep::new().text("hm").pause(HOUR * 100)).forever();
    let three = Script::new().calls([1, 2, 3].map(|_| (TASK_RUN, run("work")))).say("done");
    let stage = capped(0.025).part("go", three).part("work", hangs).open().await;
    stage.say("go").await;
    let outcome = outcome(&stage).await;
    let fault = outcome.fault().unwrap();
    assert_eq!(fault.kind(), Kind::SpendingCapReached, "{fault:?}");
    assert_eq!(fault.detail().text(Fact::ConfigKey), Some("models.spending.session"));
    stage.accepted(CommandBody::Cancel { reason: None }).await;
    stage.until("turn_ended").await;
    assert_eq!(stage.cast.asked("work"), 2);
}

/// Goal: what people allow a session holds for its sub-agents, too.
/// Method: the first turn leaves no room below the cap; in the second one a person raises it, and the sub-agent needs that.
#[tokio::test(start_paused = true)]
async fn sub_agents_work_with_what_people_allowed_their_session() {
    let mut setup = capped(0.012);
    setup.limits.spending.on_cap = OnCap::Ask;
    let usage = Usage { input_tokens: 1, output_tokens: 11_500, ..Usage::default() };
    let spends = ScriptStep::new().text("spent").usage(usage);
    let go = Script::new().step(spends).call(TASK_RUN, run("work")).say("parent done");
    let stage = setup.part("go", go).says("work", "three").open().await;
    stage.runtime.run(stage.session, "go").await.unwrap();
    stage.say("more").await;
    let Event::QuestionAsked { question, .. } = stage.until("question_asked").await.event else {
        panic!()
    };
    let arguments = Some(json!({"setting": "models.spending.session", "more": "0.1 USD"}));
    let (decision, note, digest) = (Decision::Allow, None, None);
    let allowed = CommandBody::Decide { question, decision, note, arguments, digest };
    stage.accepted(allowed).await;
    while stage.count("turn_ended").await < 2 {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(stage.cast.asked("work"), 1);
    assert_eq!(stage.state().await.last_text().as_deref(), Some("parent done"));
}

/// Goal: sub-agents that work at the same time share a cap of the turn in tokens, which needs no prices.
/// Method: the cap has room for the parent's request and two of theirs, about 3 600 tokens each; none is answered.
#[tokio::test(start_paused = true)]
async fn sub_agents_share_the_tokens_of_a_turn_while_they_work() {
    let hangs = Script::new().step(ScriptStep::new().text("hm").pause(HOUR * 100)).forever();
    let three = Script::new().calls([1, 2, 3].map(|_| (TASK_RUN, run("work")))).say("done");
    let mut setup = capped(1.0);
    setup.limits.spending =
        SpendingConfig { turn_tokens: Some(8_500), ..SpendingConfig::default() };
    let stage = setup.part("go", three).part("work", hangs).open().await;
    stage.say("go").await;
    let outcome = outcome(&stage).await;
    let fault = outcome.fault().unwrap();
    assert_eq!(fault.detail().text(Fact::ConfigKey), Some("models.spending.turn_tokens"));
    stage.accepted(CommandBody::Cancel { reason: None }).await;
    stage.until("turn_ended").await;
    assert_eq!(stage.cast.asked("work"), 2);
}

#[tokio::test(start_paused = true)]
async fn what_a_sub_agent_spends_has_the_price_of_its_own_model() {
    let used = |output_tokens| Usage { input_tokens: 1, output_tokens, ..Usage::default() };
    let step = |text: &str, tokens| ScriptStep::new().text(text).usage(used(tokens));
    let go = ScriptStep::new().call(TASK_RUN, &run("work")).usage(used(3));
    let go = Script::new().step(go).step(step("parent done", 5));
    let work = Script::new().step(step("three", 100));
    let stage = capped(1.0).part("go", go).part("work", work).open().await;
    stage.runtime.run(stage.session, "go").await.unwrap();
    let spent = stage.state().await.spending;
    assert_eq!((spent.children.cost, spent.session), (1_000, 3 + 1_000 + 5));
    let child = stage.children().await[0];
    assert_eq!(stage.runtime.state(child).await.unwrap().spending.session, 1_000);
}

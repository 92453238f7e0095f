//! Hooks, guards and listeners that throw or hang.

use std::{
    sync::{Arc, Mutex, atomic::Ordering},
    time::Duration,
};

use async_trait::async_trait;
use budao_core::{
    Kind,
    message::{Block, CallId, Message, ModelRequest, Role, ToolUse, Usage},
    session::unpaired,
    tool::{Mode, Outcome, Permissions},
};
use budao_models::script::Script;
use budao_runtime::{Agent, AgentBuilderExt as _, ModelHook, RequestChange, channel::Channel};
use budao_testkit::world;
use budao_tools::{
    CallContext,
    call::CheckedCall,
    hooks::{Hook, HookVerdict, Hooks},
    pool::Pool,
};
use serde_json::json;

use crate::turns::fixture::{Fixture, Setup};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Bad {
    Throws,
    Hangs,
}

impl Bad {
    async fn behave(self) {
        match self {
            Self::Throws => panic!("a hook's bug"),
            Self::Hangs => std::future::pending().await,
        }
    }
}

/// Is bad before a call, or after it.
#[derive(Debug)]
struct BadHook {
    before: Option<Bad>,
    after: Option<Bad>,
}

#[async_trait]
impl Hook for BadHook {
    fn name(&self) -> &'static str {
        "bad"
    }

    async fn before(&self, _: &CheckedCall, _: &CallContext) -> HookVerdict {
        if let Some(bad) = self.before {
            bad.behave().await;
        }
        HookVerdict::Pass
    }

    async fn after(&self, _: &CheckedCall, _: &Outcome, _: &CallContext) -> Option<String> {
        if let Some(bad) = self.after {
            bad.behave().await;
        }
        None
    }
}

async fn touching(hooks: Hooks) -> Fixture {
    let mut setup = Setup::new(Script::new().call("touch", json!({})).say("done"));
    setup.hooks = hooks;
    let stage = setup.open().await;
    assert_eq!(stage.run("go").await.text, "done");
    stage
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_throws_or_hangs_before_a_call_is_reported_and_the_call_runs() {
    for bad in [Bad::Throws, Bad::Hangs] {
        let hook = BadHook { before: Some(bad), after: None };
        let stage = touching(Hooks::new().hook(hook)).await;
        assert_eq!(stage.touched.load(Ordering::SeqCst), 1, "{bad:?}");
        assert_eq!(stage.raised().await, [Kind::HookFailed], "{bad:?}");
        assert_eq!(stage.last_result()["ok"], true, "{bad:?}");
    }
}

/// Cancels the context of the call before it runs.
#[derive(Debug)]
struct CancellingHook;

#[async_trait]
impl Hook for CancellingHook {
    fn name(&self) -> &'static str {
        "cancelling"
    }

    async fn before(&self, _: &CheckedCall, context: &CallContext) -> HookVerdict {
        context.cancel.cancel();
        HookVerdict::Pass
    }
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_cancels_the_context_of_a_call_cancels_it_and_the_turn_goes_on() {
    let stage = touching(Hooks::new().hook(CancellingHook)).await;
    assert_eq!(stage.touched.load(Ordering::SeqCst), 0);
    assert_eq!(stage.last_result()["ok"], false);
}

#[tokio::test(start_paused = true)]
async fn a_guard_that_throws_or_hangs_denies_the_call_and_the_turn_goes_on() {
    for bad in [Bad::Throws, Bad::Hangs] {
        let guard = BadHook { before: Some(bad), after: None };
        let stage = touching(Hooks::new().guard(guard)).await;
        assert_eq!(stage.touched.load(Ordering::SeqCst), 0, "{bad:?}");
        assert_eq!(stage.last_result()["ok"], false, "{bad:?}");
        assert_eq!(unpaired(&stage.state().await.history, 0), None);
    }
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_throws_or_hangs_after_a_call_never_turns_success_into_failure() {
    for bad in [Bad::Throws, Bad::Hangs] {
        let hook = BadHook { before: None, after: Some(bad) };
        let stage = touching(Hooks::new().hook(hook)).await;
        assert_eq!(stage.touched.load(Ordering::SeqCst), 1, "{bad:?}");
        assert_eq!(stage.last_result(), json!({"ok": true, "data": 1}), "{bad:?}");
        assert_eq!(stage.raised().await, [Kind::HookFailed], "{bad:?}");
    }
}

/// Where a model hook is bad.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Place {
    Before,
    After,
    Changed,
}

#[derive(Debug)]
struct BadModelHook(Place, Bad);

#[async_trait]
impl ModelHook for BadModelHook {
    fn name(&self) -> &'static str {
        "bad"
    }

    async fn before(&self, _: &ModelRequest) -> Option<RequestChange> {
        if self.0 == Place::Before {
            self.1.behave().await;
        }
        None
    }

    async fn after(&self, _: &[Block], _: Usage) {
        if self.0 == Place::After {
            self.1.behave().await;
        }
    }

    async fn messages_changed(&self, _: &[Arc<Message>]) {
        if self.0 == Place::Changed {
            self.1.behave().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_model_hook_that_throws_or_hangs_is_reported_and_the_turn_goes_on() {
    for place in [Place::Before, Place::After, Place::Changed] {
        for bad in [Bad::Throws, Bad::Hangs] {
            let mut setup = Setup::new(Script::new().say("answer"));
            setup.model_hooks.push(Arc::new(BadModelHook(place, bad)));
            let stage = setup.open().await;
            let result = stage.run("go").await;
            assert!(result.is_ok() && result.text == "answer", "{place:?} {bad:?}: {result:?}");
            assert_eq!(stage.model.asked(), 1);
            tokio::time::sleep(Duration::from_secs(60)).await;
            let raised = stage.raised().await;
            let all_hooks = raised.iter().all(|kind| *kind == Kind::HookFailed);
            assert!(!raised.is_empty() && all_hooks, "{place:?} {bad:?}: {raised:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_turn_does_not_wait_for_hooks_that_observe_answers() {
    let mut setup = Setup::new(Script::new().say("one").say("two"));
    setup.model_hooks.push(Arc::new(BadModelHook(Place::After, Bad::Hangs)));
    let stage = setup.open().await;
    let before = tokio::time::Instant::now();
    assert_eq!(stage.run("1").await.text, "one");
    assert_eq!(stage.run("2").await.text, "two");
    assert!(before.elapsed() < Duration::from_secs(1), "{:?}", before.elapsed());
}

/// Wants a request changed.
#[derive(Debug)]
struct Changes(RequestChange);

#[async_trait]
impl ModelHook for Changes {
    fn name(&self) -> &'static str {
        "changes"
    }

    async fn before(&self, _: &ModelRequest) -> Option<RequestChange> {
        Some(self.0.clone())
    }
}

#[tokio::test(start_paused = true)]
async fn a_model_hook_changes_one_request_and_never_the_history() {
    let mut setup = Setup::new(Script::new().call("echo", json!({"text": "x"})).say("done"));
    let change =
        RequestChange { system: Some("be brief".into()), messages: vec![Message::user("p.s.")] };
    setup.model_hooks.push(Arc::new(Changes(change)));
    let stage = setup.open().await;
    assert_eq!(stage.run("go").await.text, "done");
    for request in stage.model.requests() {
        assert_eq!(request.system.as_deref(), Some("be brief"));
        assert_eq!(request.messages.last().map(|last| &**last), Some(&Message::user("p.s.")));
        assert_eq!(unpaired(&request.messages, 0), None);
    }
    let state = stage.state().await;
    assert!(!state.history.contains(&Arc::new(Message::user("p.s."))));
    assert_eq!(state.settings.system, None);
    assert_eq!(stage.raised().await, []);
}

#[tokio::test(start_paused = true)]
async fn a_model_hook_that_would_break_the_pairing_is_ignored_and_reported() {
    let id = CallId::from("made-up");
    let call = ToolUse { id: id.clone(), name: "touch".into(), arguments: "{}".into() };
    let use_ = Message { role: Role::Assistant, content: vec![Block::ToolUse(call)] };
    let result = Block::ToolResult { call: id, is_error: false, content: "{}".into() };
    let result = Message { role: Role::User, content: vec![result] };
    let broken = [vec![use_], vec![result], vec![Message::assistant("I speak last")]];
    for messages in broken {
        let mut setup = Setup::new(Script::new().say("answer"));
        let change = RequestChange { system: Some("not this either".into()), messages };
        setup.model_hooks.push(Arc::new(Changes(change)));
        let stage = setup.open().await;
        assert_eq!(stage.run("go").await.text, "answer");
        let requests = stage.model.requests();
        assert_eq!(*requests[0].messages, [Arc::new(Message::user("go"))]);
        assert_eq!(requests[0].system, None);
        assert_eq!(stage.raised().await, [Kind::HookFailed]);
    }
}

/// Records its notifications.
#[derive(Clone, Debug, Default)]
struct Remembers(Arc<Mutex<Vec<String>>>);

#[async_trait]
impl ModelHook for Remembers {
    fn name(&self) -> &'static str {
        "remembers"
    }

    async fn after(&self, content: &[Block], _: Usage) {
        let text = budao_core::message::text_of(content);
        self.0.lock().unwrap().push(format!("answer {text}"));
    }

    async fn messages_changed(&self, history: &[Arc<Message>]) {
        self.0.lock().unwrap().push(format!("history {}", history.len()));
    }
}

#[tokio::test(start_paused = true)]
async fn a_model_hook_gets_answers_and_every_change_in_order() {
    let hook = Remembers::default();
    let mut setup = Setup::new(Script::new().say("first").say("second"));
    setup.model_hooks.push(Arc::new(hook.clone()));
    let stage = setup.open().await;
    stage.run("1").await;
    // Also after it was unloaded in between.
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(stage.runtime.loaded(), 0, "told hooks keep nothing in memory");
    stage.run("2").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let told = hook.0.lock().unwrap().clone();
    let wanted =
        ["history 1", "answer first", "history 2", "history 3", "answer second", "history 4"];
    assert_eq!(told, wanted);
}

#[tokio::test(start_paused = true)]
async fn a_listener_that_panics_or_hangs_changes_nothing() {
    for bad in [Bad::Throws, Bad::Hangs] {
        let world = world::seeded(1);
        let script = Script::new().call("none", json!({})).say("first").say("second");
        let agent = Agent::builder(script.into_model(Arc::clone(&world.clock)))
            .permissions(Permissions { mode: Mode::Auto, ..Permissions::default() })
            .pool(Arc::new(Pool::tasks()))
            .world(world)
            .build()
            .unwrap();
        let session = agent.session().await.unwrap();
        let heard = Arc::new(Mutex::new(0));
        let count = Arc::clone(&heard);
        let channels = [Channel::Progress, Channel::Control, Channel::Monitor];
        let listening = session
            .listen(&channels, 0, move |_| {
                *count.lock().unwrap() += 1;
                bad.behave()
            })
            .await
            .unwrap();
        let before = tokio::time::Instant::now();
        assert_eq!(session.run("1").await.unwrap().text, "first", "{bad:?}");
        assert_eq!(session.run("2").await.unwrap().text, "second", "{bad:?}");
        assert!(before.elapsed() < Duration::from_secs(1), "{bad:?}: nobody waits for it");
        tokio::time::sleep(Duration::from_secs(600)).await;
        assert!(*heard.lock().unwrap() > 5, "{bad:?}: it is called again with every event");
        drop(listening);
    }
}

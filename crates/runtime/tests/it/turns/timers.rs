//! Timers on the whole engine: sessions that are loaded, unloaded, parked, and shared by two runtimes.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use budao_core::{
    Fault, Kind,
    engine::{Engine as _, SessionOptions},
    event::{Answer, Command, CommandBody, Event},
    fault::Fact,
    message::{Role, text_of},
    timer::TimerRequest,
};
use budao_journal::Memory;
use budao_models::script::{Script, StepOrder};
use budao_testkit::{
    journal::{InterceptedJournal, Interceptor, JournalCall, Verdict},
    world,
};
use budao_tools::{RawTool, builtin};
use serde_json::json;

use crate::turns::fixture::{Fixture, Setup};

const HOUR: Duration = Duration::from_secs(3600);

fn set(timer: &str, when: TimerRequest) -> CommandBody {
    CommandBody::SetTimer { timer: Some(timer.into()), when, message: "look again".into() }
}

fn in_an_hour() -> TimerRequest {
    TimerRequest::After(3_600_000)
}

async fn set_accepted(stage: &Fixture, timer: &str, when: TimerRequest) {
    let answer = stage.submit(set(timer, when)).await;
    assert!(matches!(answer, Answer::Accepted { .. }), "{answer:?}");
}

/// When each firing was recorded, in seconds after the start, with what it missed.
async fn firings(stage: &Fixture) -> Vec<(u64, u64)> {
    let records = stage.records().await;
    let fired = records.iter().filter_map(|record| match &record.event {
        Event::TimerFired { missed, .. } => {
            Some((record.at.since(world::BEGIN).as_secs(), *missed))
        }
        _ => None,
    });
    fired.collect()
}

#[tokio::test(start_paused = true)]
async fn a_timer_wakes_a_session_that_is_not_loaded() {
    let stage = Setup::new(Script::new().say("awake")).open().await;
    set_accepted(&stage, "later", in_an_hour()).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(stage.runtime.loaded(), 0, "an idle session is unloaded although it has a timer");
    tokio::time::sleep(HOUR * 3).await;
    assert_eq!(firings(&stage).await, [(3600, 0)]);
    let state = stage.state().await;
    assert_eq!((state.turns, state.last_text().as_deref()), (1, Some("awake")));
    let asked = &stage.model.requests()[0].messages;
    let last = asked.iter().rfind(|message| message.role == Role::User).unwrap();
    assert!(text_of(&last.content).ends_with("look again"), "{last:?}");
}

#[tokio::test(start_paused = true)]
async fn a_schedule_fires_at_each_of_its_times() {
    let script = Script::new().say("one").say("two").say("three");
    let stage = Setup::new(script).open().await;
    set_accepted(&stage, "hourly", TimerRequest::Cron { form: "0 * * * *".into(), zone: None })
        .await;
    tokio::time::sleep(HOUR * 3 + Duration::from_secs(30)).await;
    assert_eq!(firings(&stage).await, [(3600, 0), (7200, 0), (10_800, 0)]);
    assert_eq!(stage.state().await.turns, 3);
}

#[tokio::test(start_paused = true)]
async fn a_timer_outlives_its_process_and_reports_missed_firings() {
    let world = world::seeded(1);
    let first = Setup { world: world.clone(), ..Setup::new(Script::new()) }.open().await;
    set_accepted(&first, "hourly", TimerRequest::Cron { form: "0 * * * *".into(), zone: None })
        .await;
    first.runtime.shutdown(Duration::ZERO).await;
    tokio::time::sleep(HOUR * 5 / 2).await;
    assert_eq!(firings(&first).await, [], "no process runs");

    let journal = Some(Arc::clone(&first.journal));
    let setup = Setup { journal, world, ..Setup::new(Script::new().say("late").say("on time")) };
    let (mut second, _) = setup.runtime();
    second.session = first.session;
    assert_eq!(second.runtime.recover().await.unwrap(), 0, "a timer is no unfinished work");
    second.until("turn_ended").await;
    assert_eq!(firings(&second).await, [(9000, 1)]);
    tokio::time::sleep(HOUR).await;
    assert_eq!(firings(&second).await, [(9000, 1), (10_800, 0)]);
}

#[tokio::test(start_paused = true)]
async fn of_two_runtimes_on_one_journal_one_fires() {
    let world = world::seeded(1);
    let script = || Script::new().say("awake").say("again").order(StepOrder::History);
    let first = Setup { world: world.clone(), ..Setup::new(script()) }.open().await;
    first.runtime.recover().await.unwrap();
    let journal = Some(Arc::clone(&first.journal));
    let (second, _) = Setup { journal, world, ..Setup::new(script()) }.runtime();
    second.runtime.recover().await.unwrap();
    for (timer, after) in [("a", 3_600_000), ("b", 7_200_000)] {
        set_accepted(&first, timer, TimerRequest::After(after)).await;
    }
    tokio::time::sleep(HOUR * 4).await;
    assert_eq!(firings(&first).await, [(3600, 0), (7200, 0)]);
    assert_eq!(first.state().await.turns, 2);
    assert_eq!(first.model.requests().len() + second.model.requests().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn the_timers_of_a_tenant_have_a_bound() {
    let mut setup = Setup::new(Script::new());
    setup.limits.tenant_timers = 2;
    let stage = setup.open().await;
    let other = stage.runtime.open(SessionOptions::default()).await.unwrap();
    set_accepted(&stage, "a", in_an_hour()).await;
    let repeated = Command::new("twice", "ada", set("b", in_an_hour()));
    let answer = stage.runtime.submit(other, repeated.clone()).await.unwrap();
    let Answer::Rejected { fault } = stage.submit(set("c", in_an_hour())).await else {
        panic!("a third timer was accepted");
    };
    assert_eq!(fault.kind(), Kind::LimitReached);
    assert_eq!(fault.detail().text(Fact::LimitName), Some("tenant_timers"));
    set_accepted(&stage, "a", in_an_hour()).await;
    let again = stage.runtime.submit(other, repeated).await.unwrap();
    assert_eq!(again, answer, "a repeated command has the answer of the first");
}

/// Five sessions of a tenant set a timer in the same moment; no record of any is there when the others are checked.
#[tokio::test(start_paused = true)]
async fn timers_that_are_set_at_the_same_moment_count_for_each_other() {
    let mut setup = Setup::new(Script::new());
    setup.limits.tenant_timers = 2;
    let stage = setup.open().await;
    let mut sessions = Vec::new();
    for _ in 0..5 {
        sessions.push(stage.runtime.open(SessionOptions::default()).await.unwrap());
    }
    let setting = sessions.iter().map(|session| {
        let command = Command::new("at once", "ada", set("t", in_an_hour()));
        stage.runtime.submit(*session, command)
    });
    let answers = futures::future::join_all(setting).await;
    let accepted = answers.iter().filter(|it| matches!(it, Ok(Answer::Accepted { .. }))).count();
    assert_eq!(accepted, 2, "{answers:?}");
}

#[tokio::test(start_paused = true)]
async fn the_model_wakes_its_own_session() {
    let wake = json!({ "message": "read the log", "after_seconds": 600, "id": "log" });
    let script = Script::new()
        .call("wake_at", wake)
        .call("timers_list", json!({}))
        .say("I will look again")
        .say("I looked again");
    let stage = Setup { built_in: builtin::timer_tools(), ..Setup::new(script) }.open().await;
    assert_eq!(stage.run("watch the log").await.text, "I will look again");
    let listed = stage.last_result();
    assert_eq!(listed["data"]["timers"][0]["id"], "log", "{listed}");
    tokio::time::sleep(HOUR).await;
    assert_eq!(firings(&stage).await.len(), 1);
    assert_eq!(stage.state().await.last_text().as_deref(), Some("I looked again"));
}

#[tokio::test(start_paused = true)]
async fn a_model_gets_the_reason_why_its_timer_was_refused() {
    let script = Script::new()
        .call("wake_at", json!({ "message": "m", "at": "2001-01-01T00:00:00Z" }))
        .call("wake_at", json!({ "message": "m", "cron": "* * * * * *" }))
        .call("wake_at", json!({ "message": "m" }))
        .call("timer_cancel", json!({ "id": "none" }))
        .say("no timer then");
    let stage = Setup { built_in: builtin::timer_tools(), ..Setup::new(script) }.open().await;
    assert_eq!(stage.run("go").await.text, "no timer then");
    let records = stage.records().await;
    let kinds: Vec<_> = records
        .iter()
        .filter_map(|record| match &record.event {
            Event::ToolCallEnded { outcome, .. } => outcome.fault().map(Fault::kind),
            _ => None,
        })
        .collect();
    let expected =
        [Kind::TimeInPast, Kind::ScheduleRefused, Kind::InvalidArguments, Kind::UnknownTimer];
    assert_eq!(kinds, expected);
}

#[tokio::test(start_paused = true)]
async fn a_tool_sets_a_timer_through_its_context() {
    let nothing = json!({"type": "object", "properties": {}, "additionalProperties": false});
    let tool = RawTool::new("remind", "Reminds.", nothing, |_, context| async move {
        let when = TimerRequest::After(60_000);
        let set = context.timers.set("soon".into(), when, "it is time".into()).await;
        let set =
            set.map_err(|fault| budao_core::tool::Failure { fault, data: None, note: None })?;
        context.timers.cancel("soon".into()).await.unwrap();
        assert!(context.timers.all().is_empty());
        Ok(json!(set.timer))
    });
    let script = Script::new().call("remind", json!({})).say("done");
    let stage = Setup { tools: vec![tool], ..Setup::new(script) }.open().await;
    assert_eq!(stage.run("go").await.text, "done");
    assert_eq!((stage.count("timer_set").await, stage.count("timer_cancelled").await), (1, 1));
}

/// Counts the looks at the journal's timers.
#[derive(Clone, Debug, Default)]
struct LookCounter(Arc<AtomicUsize>);

#[async_trait::async_trait]
impl Interceptor for LookCounter {
    async fn before(&self, call: JournalCall) -> Verdict {
        self.0.fetch_add(usize::from(call == JournalCall::SessionsWithTimers), Ordering::SeqCst);
        Verdict::Proceed
    }
}

#[tokio::test(start_paused = true)]
async fn an_idle_host_looks_for_timers_every_ten_seconds_at_most() {
    let mut setup = Setup::new(Script::new());
    let memory = Memory::new(setup.world.clone(), setup.limits.clone());
    let counter = LookCounter::default();
    let journal = InterceptedJournal::new(Arc::new(memory), counter.clone());
    setup.journal = Some(Arc::new(journal));
    let stage = setup.open().await;
    set_accepted(&stage, "tomorrow", TimerRequest::After(24 * 3_600_000)).await;
    stage.runtime.recover().await.unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    let before = counter.0.load(Ordering::SeqCst);
    tokio::time::sleep(HOUR).await;
    let looks = counter.0.load(Ordering::SeqCst) - before;
    assert!((300..=361).contains(&looks), "{looks} looks in an hour");
}

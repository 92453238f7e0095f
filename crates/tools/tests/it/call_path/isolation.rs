//! No tool can hurt the process, its siblings or the caller, and every call ends.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use budao_core::{
    fault::{ErrorType, Fact, Kind},
    limits::Limits,
    tool::Outcome,
    world::Clock,
};
use budao_tools::{ToolOptions, Toolbox, isolation, pool::Pool, run::run_all};
use futures::future::BoxFuture;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::call_path::support::{
    self, any, done, failed, kind, of, quick, ready, run, run_in, until,
};

/// A payload that is not text, and one that panics once more when it is dropped.
struct Nasty;

impl Drop for Nasty {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            panic!("and again");
        }
    }
}

#[tokio::test]
async fn a_tool_that_panics_with_any_payload_is_an_exception() {
    support::quietly();
    let toolbox = of(any("panics", |arguments, _| async move {
        match arguments["how"].as_str() {
            Some("text") => panic!("secret at 10.0.0.7"),
            Some("value") => std::panic::panic_any(7_u8),
            _ => std::panic::panic_any(Nasty),
        }
    }));
    for how in ["text", "value", "nasty"] {
        let arguments = json!({ "how": how });
        let ready = toolbox.check_value("panics", arguments, &Limits::default()).unwrap();
        let outcome = ready.run(isolation::context()).await;
        assert_eq!(kind(&outcome), Some(Kind::ToolPanicked), "{how}");
        let failure = failed(outcome);
        assert_eq!(failure.fault.row().error_type, ErrorType::Exception);
        let rendered = support::read(&Outcome::Failed(failure)).to_string();
        assert!(
            !rendered.contains("secret"),
            "the words of a panic are for the operator: {rendered}"
        );
    }
    assert_eq!(toolbox.counts().panics, 3);
    support::still_works(&toolbox).await;
}

#[tokio::test]
async fn a_tool_that_panics_before_its_first_wait_or_while_dropped_is_caught() {
    support::quietly();
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            if !std::thread::panicking() {
                panic!("dropped");
            }
        }
    }
    let outcome = run(any("bomb", |_, _| async {
        let _bomb = Bomb;
        std::future::pending::<()>().await;
        Ok(json!(null))
    }))
    .await;
    assert_eq!(kind(&outcome), Some(Kind::DeadlinePassed));
}

#[tokio::test]
async fn a_tool_that_never_returns_is_stopped_at_its_deadline() {
    let toolbox = of(any("never", |_, _| async {
        std::future::pending::<()>().await;
        Ok(json!(null))
    }));
    let failure = failed(run_in(&toolbox, isolation::context_with(quick())).await);
    assert_eq!(failure.fault.kind(), Kind::DeadlinePassed);
    assert_eq!(failure.fault.row().error_type, ErrorType::Aborted);
    assert!(!failure.fault.row().retryable);
    assert_eq!(failure.fault.detail().number(Fact::TimeoutMs), Some(60));
    until(|| toolbox.counts().abandoned == 0).await;
    support::still_works(&toolbox).await;
}

#[tokio::test]
async fn the_deadline_of_the_tool_counts_not_the_general_one() {
    let own = any("own", |_, _| async {
        tokio::time::sleep(Duration::from_millis(120)).await;
        Ok(json!("in time"))
    })
    .options(ToolOptions::default().deadline(Duration::from_secs(20)));
    assert_eq!(done(run(own).await).data, json!("in time"));
}

#[tokio::test]
async fn a_tool_that_stops_when_cancelled_is_aborted_whatever_it_returns() {
    let patient = || Limits { kill_grace: Duration::from_secs(60), ..quick() };
    let obeys = any("obeys", |_, context| async move {
        context.cancel.cancelled().await;
        Ok(json!({ "ok": false, "error": "stopped", "data": { "rows": 3 } }))
    });
    let aborted = run_in(&of(obeys), isolation::context_with(patient())).await;
    let failure = failed(aborted);
    assert_eq!(failure.fault.kind(), Kind::DeadlinePassed);
    assert_eq!(failure.data, Some(json!({ "rows": 3 })));
    let finishes = any("finishes", |_, context| async move {
        context.cancel.cancelled().await;
        Ok(json!("committed"))
    });
    let finished = run_in(&of(finishes), isolation::context_with(patient())).await;
    assert_eq!(done(finished).data, json!("committed"), "what was done was done");
}

#[tokio::test]
async fn a_tool_that_blocks_a_thread_is_abandoned_and_counted() {
    let let_go = Arc::new(AtomicBool::new(false));
    let seen = let_go.clone();
    let toolbox = of(any("blocks", move |_, _| {
        let let_go = seen.clone();
        async move {
            while !let_go.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(5));
            }
            Ok(json!("too late"))
        }
    }));
    // One thread for everything else: were the tool on it, nothing below would run.
    let outcome = run_in(&toolbox, isolation::context_with(quick())).await;
    assert_eq!(kind(&outcome), Some(Kind::ToolAbandoned));
    assert_eq!(toolbox.counts().abandoned, 1);
    support::still_works(&toolbox).await;
    let_go.store(true, Ordering::Relaxed);
    until(|| toolbox.counts().abandoned == 0).await;
    assert_eq!(toolbox.counts().late, 1, "its late answer is dropped and counted");
}

/// A toolbox whose tool `blocks` keeps its thread until the flag is set.
fn blocking_toolbox() -> (Arc<AtomicBool>, Toolbox) {
    let let_go = Arc::new(AtomicBool::new(false));
    let seen = let_go.clone();
    let toolbox = of(any("blocks", move |_, _| {
        let let_go = seen.clone();
        async move {
            while !let_go.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(5));
            }
            Ok(json!(null))
        }
    }));
    (let_go, toolbox)
}

#[tokio::test]
async fn abandoned_calls_are_bounded() {
    let (let_go, toolbox) = blocking_toolbox();
    let limits = Limits { abandoned_calls: 3, ..quick() };
    let calls =
        (0..3).map(|_| (ready(&toolbox, "blocks"), isolation::context_with(limits.clone())));
    let outcomes = run_all(calls.collect::<Vec<_>>(), 8).await;
    assert!(outcomes.iter().all(|outcome| kind(outcome) == Some(Kind::ToolAbandoned)));
    let refused = run_in(&toolbox, isolation::context_with(limits.clone())).await;
    assert_eq!(kind(&refused), Some(Kind::LimitReached));
    let rendered = support::read(&refused);
    assert!(rendered["error"].as_str().unwrap().contains("abandoned_calls"), "{rendered}");
    let_go.store(true, Ordering::Relaxed);
    until(|| toolbox.counts().abandoned == 0).await;
}

#[tokio::test]
async fn cancelling_reaches_the_tool_and_ends_the_call() {
    let toolbox = of(any("waits", |_, context| async move {
        context.cancel.cancelled().await;
        Ok(json!({ "ok": false, "error": "stopped" }))
    }));
    let mut context = isolation::context();
    context.cancel = CancellationToken::new();
    let cancel = context.cancel.clone();
    let running = tokio::spawn({
        let toolbox = toolbox.clone();
        async move { run_in(&toolbox, context).await }
    });
    until(|| toolbox.counts().running == 1).await;
    cancel.cancel();
    assert_eq!(kind(&running.await.unwrap()), Some(Kind::Cancelled));
}

#[tokio::test]
async fn a_call_that_ends_the_moment_it_is_cancelled_was_cancelled() {
    // Method: the tool fails in the same breath as the cancel, so that its end is seen first.
    let cancel = CancellationToken::new();
    let mut context = isolation::context();
    context.cancel = cancel.clone();
    let toolbox = of(any("quick", move |_, _| {
        cancel.cancel();
        async { Ok(json!({ "ok": false, "error": "interrupted" })) }
    }));
    assert_eq!(kind(&run_in(&toolbox, context).await), Some(Kind::Cancelled));
}

#[tokio::test]
async fn a_call_cancelled_before_it_starts_still_ends_once() {
    let mut context = isolation::context_with(quick());
    context.cancel = CancellationToken::new();
    context.cancel.cancel();
    let outcome = run_in(&of(any("never", |_, _| std::future::pending())), context).await;
    assert_eq!(kind(&outcome), Some(Kind::Cancelled));
}

#[tokio::test]
async fn an_output_of_50_mb_is_cut_with_a_note() {
    let toolbox = of(any("large", |_, _| async { Ok(json!("不倒".repeat(50_000_000 / 6))) }));
    let output = done(run_in(&toolbox, isolation::context()).await);
    let shown = output.data.as_str().unwrap();
    assert!(shown.len() <= 64 * 1024);
    assert!(shown.starts_with("不倒") && shown.ends_with("不倒"));
    let cut = output.cut.unwrap();
    assert!(cut.total_bytes >= 49_000_000);
    assert_eq!(cut.kept, None, "more than is kept");
    assert!(output.note.unwrap().contains("bytes"));
    support::still_works(&toolbox).await;
}

#[tokio::test]
async fn huge_data_keeps_its_structure_and_states_how_much_is_missing() {
    let toolbox = of(any("huge", |_, _| async {
        Ok(json!({ "code": 0, "output": "x".repeat(40_000_000), "rows": vec![7; 10] }))
    }));
    let output = done(run_in(&toolbox, isolation::context()).await);
    assert_eq!((&output.data["code"], &output.data["rows"]), (&json!(0), &json!(vec![7; 10])));
    assert!(output.data.to_string().len() <= 64 * 1024);
    let cut = output.cut.unwrap();
    assert!(cut.total_bytes >= 40_000_000, "{}", cut.total_bytes);
    // Many small values have nothing to cut: only their beginning is shown.
    let toolbox = of(any("many", |_, _| async { Ok(json!(vec![json!("长文"); 3_000_000])) }));
    let output = done(run_in(&toolbox, isolation::context()).await);
    let shown = output.data.as_str().unwrap();
    assert!(shown.starts_with("[\"长文\",") && shown.contains("left out"), "{}", &shown[..90]);
    assert!(output.data.to_string().len() <= 64 * 1024);
    assert!(output.cut.unwrap().total_bytes >= 16 * 1024 * 1024);
}

#[tokio::test]
async fn large_data_costs_the_thread_of_the_caller_nothing() {
    // Method: the processor time of this thread, on which the caller runs; the call has a thread of the pool.
    let toolbox = of(any("large", |_, _| async { Ok(json!(vec!["\u{1}".repeat(100); 200_000])) }));
    let spent = || rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let before = spent();
    let output = done(run_in(&toolbox, isolation::context()).await);
    let after = spent();
    assert!(output.cut.is_some());
    let micros =
        (after.tv_sec - before.tv_sec) * 1_000_000 + (after.tv_nsec - before.tv_nsec) / 1_000;
    assert!(micros < 100_000, "{micros} µs");
}

#[tokio::test]
async fn a_cut_output_can_be_fetched_completely() {
    let log = (0..20_000).map(|line| format!("line {line}\n")).collect::<String>();
    let copy = log.clone();
    let toolbox = of(any("log", move |_, _| {
        let log = log.clone();
        async move { Ok(json!({ "code": 0, "output": log, "tags": ["a", "b"] })) }
    }));
    let context = isolation::context();
    let output = done(run_in(&toolbox, context.clone()).await);
    assert_eq!(output.data["code"], 0);
    assert_eq!(output.data["tags"], json!(["a", "b"]), "the structure stays readable");
    let shown = output.data["output"].as_str().unwrap();
    assert!(shown.starts_with("line 0\n") && shown.ends_with("line 19999\n"));
    assert!(output.data.to_string().len() <= 64 * 1024);
    let kept = output.cut.unwrap().kept.unwrap();
    let bytes = context.blobs.get(&kept).await.unwrap().unwrap();
    let whole: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
    assert_eq!(whole["output"], json!(copy));
}

#[tokio::test]
async fn any_output_fits_its_cap() {
    // Goal: whatever the shape, what is shown is never longer than the cap.
    let shapes = [
        json!("\u{1}".repeat(100_000)),
        json!("\"\\\n".repeat(50_000)),
        json!(vec![1; 100_000]),
        json!(
            (0..5_000).map(|n| (format!("k{n}"), json!("不"))).collect::<serde_json::Map<_, _>>()
        ),
        json!([["x".repeat(70_000)], { "a": "y".repeat(70_000) }]),
        json!(vec!["不倒".repeat(100); 2_000]),
    ];
    for shape in shapes {
        let size = shape.to_string().len();
        for cap in [512, 4_096, 65_536] {
            let copy = shape.clone();
            let tool = any("shape", move |_, _| {
                let copy = copy.clone();
                async move { Ok(copy) }
            })
            .options(ToolOptions::default().output_bytes(cap));
            let output = done(run_in(&of(tool), isolation::context()).await);
            assert!(
                output.data.to_string().len() <= cap,
                "{cap}: {}",
                output.data.to_string().len()
            );
            assert_eq!(output.cut.map(|cut| cut.total_bytes), (size > cap).then_some(size as u64));
        }
    }
}

#[tokio::test]
async fn nothing_returned_is_a_success_without_data() {
    let toolbox = of(any("nothing", |_, _| async { Ok(json!(null)) }));
    assert_eq!(done(run_in(&toolbox, isolation::context()).await).data, json!(null));
}

#[tokio::test]
async fn siblings_keep_their_results_and_their_order() {
    let toolbox = Toolbox::builder()
        .add(any("bad", |_, _| async { panic!("bad") }))
        .unwrap()
        .add(any("slow", |_, _| async {
            tokio::time::sleep(Duration::from_millis(30)).await;
            Ok(json!("slow"))
        }))
        .unwrap()
        .add(any("quick", |_, _| async { Ok(json!("quick")) }))
        .unwrap()
        .build();
    let calls: Vec<_> = ["slow", "bad", "quick", "slow"]
        .iter()
        .map(|name| (ready(&toolbox, name), isolation::context()))
        .collect();
    let outcomes = run_all(calls, 8).await;
    let seen: Vec<_> = outcomes
        .iter()
        .map(|outcome| match outcome {
            Outcome::Done(output) => output.data.as_str().unwrap_or_default().to_owned(),
            Outcome::Failed(failure) => format!("{:?}", failure.fault.kind()),
        })
        .collect();
    assert_eq!(seen, ["slow", "ToolPanicked", "quick", "slow"]);
}

#[tokio::test]
async fn calls_of_one_step_run_together_up_to_a_limit() {
    let (now, most) = (Arc::new(std::sync::Mutex::new(0)), Arc::new(std::sync::Mutex::new(0)));
    let (a, b) = (now.clone(), most.clone());
    let toolbox = of(any("counts", move |_, _| {
        let (now, most): (support::Shared<u32>, support::Shared<u32>) = (a.clone(), b.clone());
        async move {
            let running = {
                let mut now = now.lock().unwrap();
                *now += 1;
                *now
            };
            {
                let mut most = most.lock().unwrap();
                *most = (*most).max(running);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
            *now.lock().unwrap() -= 1;
            Ok(json!(null))
        }
    }));
    let calls: Vec<_> =
        (0..12).map(|_| (ready(&toolbox, "counts"), isolation::context())).collect();
    assert_eq!(run_all(calls, 3).await.len(), 12);
    assert_eq!(*most.lock().unwrap(), 3);
}

#[tokio::test]
async fn many_blocking_calls_do_not_keep_a_quick_one_waiting() {
    let (let_go, toolbox) = blocking_toolbox();
    let toolbox = toolbox.with(any("quick", |_, _| async { Ok(json!("quick")) })).unwrap();
    let blocked: Vec<_> = (0..16)
        .map(|_| tokio::spawn(ready(&toolbox, "blocks").run(isolation::context())))
        .collect();
    until(|| toolbox.counts().running == 16).await;
    let outcome = ready(&toolbox, "quick").run(isolation::context()).await;
    assert_eq!(done(outcome).data, json!("quick"));
    assert_eq!(toolbox.counts().running, 16, "they still block");
    let_go.store(true, Ordering::Relaxed);
    for call in blocked {
        assert!(call.await.unwrap().is_done());
    }
}

#[tokio::test]
async fn thousands_of_waiting_calls_need_no_thread_each() {
    let toolbox = of(any("waits", |_, _| async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        Ok(json!(1))
    }));
    let before = Instant::now();
    let calls: Vec<_> =
        (0..3_000).map(|_| (ready(&toolbox, "waits"), isolation::context())).collect();
    let outcomes = run_all(calls, 3_000).await;
    assert!(outcomes.iter().all(Outcome::is_done));
    assert!(before.elapsed() < Duration::from_secs(20), "{:?}", before.elapsed());
}

/// A clock on which every wait is over at once, and remembered.
#[derive(Debug, Default)]
struct Leaps(std::sync::Mutex<Vec<Duration>>);

impl Clock for Leaps {
    fn now(&self) -> budao_core::Timestamp {
        budao_core::Timestamp::default()
    }

    fn sleep(&self, wait: Duration) -> BoxFuture<'static, ()> {
        self.0.lock().unwrap().push(wait);
        Box::pin(tokio::task::yield_now())
    }
}

#[tokio::test]
async fn in_a_simulation_time_is_the_worlds_and_nothing_leaves_the_thread() {
    let thread = std::thread::current().id();
    let toolbox = Toolbox::builder()
        .pool(Arc::new(Pool::tasks()))
        .add(any("never", move |_, _| async move {
            assert_eq!(std::thread::current().id(), thread);
            std::future::pending().await
        }))
        .unwrap()
        .build();
    let clock = Arc::new(Leaps::default());
    let mut context = isolation::context();
    context.world.clock = clock.clone();
    let outcome = run_in(&toolbox, context).await;
    assert_eq!(kind(&outcome), Some(Kind::DeadlinePassed));
    let limits = Limits::default();
    let waits = clock.0.lock().unwrap().clone();
    assert_eq!(waits[..2], [limits.tool_deadline, limits.kill_grace]);
}

#[tokio::test]
async fn a_quick_tool_runs_beside_the_session_and_is_caught_all_the_same() {
    /// Falls at once, and says it is quick.
    #[budao_tools::tool(quick)]
    async fn falls() -> u32 {
        panic!("quickly")
    }
    support::quietly();
    let toolbox = Toolbox::builder().add(falls).unwrap().build();
    assert_eq!(kind(&run_in(&toolbox, isolation::context()).await), Some(Kind::ToolPanicked));
    support::still_works(&toolbox).await;
}

#[tokio::test]
async fn dropping_the_caller_stops_the_call() {
    let toolbox = of(any("never", |_, _| std::future::pending()));
    let running = tokio::spawn(ready(&toolbox, "never").run(isolation::context()));
    until(|| toolbox.counts().running == 1).await;
    running.abort();
    until(|| toolbox.counts().running == 0 && toolbox.counts().abandoned == 0).await;
}

//! The way of the first text: one append after the POST, whatever the agent sends before it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use budao_core::event::{Event, Seq};
use budao_journal::Journal;
use budao_relay::RelayConfig;
use budao_testkit::journal::{AppendInfo, InterceptedJournal, Interceptor};
use serde_json::json;

use crate::common::{Fixture, finished, lines, parts, reply, started, text};

/// Counts the appends to a journal.
#[derive(Clone, Debug, Default)]
struct AppendCounter(Arc<AtomicUsize>);

impl Interceptor for AppendCounter {
    fn appended(&self, _: AppendInfo, _: Seq) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// The window is an hour, so text that waits for it never comes. The agent sends each event in a packet of its own.
#[tokio::test]
async fn the_first_text_costs_one_append_after_the_post_and_waits_for_no_window() {
    let mut events = vec![started(), json!({"type": "STEP_STARTED", "stepName": "think"})];
    events.push(json!({"type": "CUSTOM", "name": "mood", "value": "good"}));
    events.extend(text("m", &["first ", "second ", "third"]));
    events.push(json!({"type": "STEP_FINISHED", "stepName": "think"}));
    events.push(finished());
    let fixture = Fixture::new([reply(&events).paced(Duration::from_millis(5))]).await;
    let appends = AppendCounter::default();
    let counted = InterceptedJournal::new(Arc::clone(&fixture.journal), appends.clone());
    let journal: Arc<dyn Journal> = Arc::new(counted);
    let url = Some(format!("{}/agent", fixture.agent.url()));
    let config = RelayConfig { url, ..RelayConfig::default() };
    let (mut parts, tasks) = parts(&journal, config);
    parts.limits.delta_window = Duration::from_secs(3_600);
    let fixture = Fixture { relay: parts.into_engine().unwrap(), tasks, ..fixture };
    fixture.say("go").await;
    let records = fixture.until(|event| matches!(event, Event::TextDelta { .. })).await;
    let shown = lines(records.iter().map(|record| &record.event));
    assert!(shown.ends_with("text \"first \"\n"), "{shown}");
    let before_post = 1;
    assert_eq!(appends.0.load(Ordering::SeqCst), before_post + 1, "{shown}");
    let turn = fixture.turn(1).await;
    assert_eq!(appends.0.load(Ordering::SeqCst), before_post + 2, "{}", lines(&turn));
    insta::assert_snapshot!(lines(&turn));
}

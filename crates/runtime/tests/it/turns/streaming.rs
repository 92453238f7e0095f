//! When the text of an answer is recorded.

use std::time::Duration;

use budao_core::event::Event;
use budao_models::Script;

use crate::turns::fixture::Setup;

#[tokio::test(start_paused = true)]
async fn the_first_text_is_recorded_at_once_and_the_rest_once_in_a_window() {
    let script = "[[step]]\ntext = \"one two three four five six seven eight\"\npace_ms = 10\n";
    let mut setup = Setup::new(Script::parse(script, "script").unwrap());
    setup.limits.delta_window = Duration::from_millis(25);
    let stage = setup.open().await;
    stage.run("count").await;
    let records = stage.records().await;
    let began = records.iter().find(|it| matches!(it.event, Event::StepStarted { .. })).unwrap().at;
    let deltas: Vec<(u128, &str)> = records
        .iter()
        .filter_map(|record| match &record.event {
            Event::TextDelta { text, .. } => Some((record.at.since(began).as_millis(), &**text)),
            _ => None,
        })
        .collect();
    let windows = [(35, "two three "), (60, "four five six "), (80, "seven eight")];
    assert_eq!(deltas[0], (10, "one "), "the first word came at this time");
    assert_eq!(deltas[1..], windows);
}

//! Snapshots of a known journal, drawn on an in-memory screen.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::{sync::Arc, time::Duration};

use budao_core::{
    Event, Fault, Lang, Timestamp,
    event::{CommandId, Scope, SessionId, Settings, StopReason},
    fault::{Kind, Operation},
    gate::HoldReason,
    limits::Limits,
    message::{Block, Usage},
    trace::Trace,
};
use budao_journal::{Append, Entry, IfMissing, Journal, LeaseRequest, Memory, Writer as _};
use budao_serve::Window;
use budao_testkit::world::{BEGIN, seeded};
use ratatui::{Terminal, backend::TestBackend};

use super::{
    draw::{self, ScrollPosition},
    poll::{JournalPoller, Snapshot},
};
use crate::{chat::buffer_text, screen::Theme, terminal::Terminal as Talk};

const LOOK: Theme = Theme { colours: true };

fn at(seconds: u64) -> Timestamp {
    BEGIN.after(Duration::from_secs(seconds))
}

fn session(number: u8) -> SessionId {
    format!("0193a5e0-0000-7000-8000-0000000000{number:02}").parse().unwrap()
}

/// Writes a session and, unless `is_held`, releases its lease.
async fn write(journal: &Memory, number: u8, begins: u64, events: Vec<Event>, is_held: bool) {
    let request = LeaseRequest {
        session: session(number),
        holder: format!("process {number}"),
        ttl: Duration::from_secs(3_600),
        if_missing: IfMissing::Create,
        dead_holder: None,
    };
    let lease = journal.take_lease(request).await.unwrap();
    let entries = events.into_iter().zip(begins..).map(|(event, second)| Entry {
        at: at(second),
        trace: Trace::NONE,
        turn: 1,
        event: Arc::new(event),
    });
    journal.append(Append::new(&lease, lease.head, entries.collect())).await.unwrap();
    if !is_held {
        journal.release(&lease).await.unwrap();
    }
}

fn opening(title: &str) -> Vec<Event> {
    let settings = Settings { title: Some(title.into()), ..Settings::default() };
    let (command, content) = (CommandId::from("m"), vec![Block::Text(title.into())]);
    vec![
        Event::SessionOpened { settings, origin: None },
        Event::MessageAccepted { command: command.clone(), content },
        Event::TurnStarted { message: command },
    ]
}

fn limited() -> Fault {
    Fault::new(Kind::ModelRateLimited, Operation::ModelRequest).attempt(1, 3)
}

fn retried() -> Vec<Event> {
    let (operation, kind, scope) =
        (Operation::ModelRequest, Kind::ModelRateLimited, Scope::default());
    vec![
        Event::FaultRaised { fault: limited(), scope: scope.clone() },
        Event::RetryScheduled {
            operation,
            kind,
            attempt: 1,
            next_attempt: 2,
            max_attempts: 3,
            wait_ms: 1_000,
            due_at: at(100),
            scope,
        },
    ]
}

/// Three sessions: one whose writer is gone, one that recovered, one that waits for its next attempt.
async fn journal() -> Arc<Memory> {
    let journal = Memory::new(seeded(7), Limits::default());
    let mut cut_off = opening("nobody works on it");
    cut_off.push(Event::StepStarted { step: 1, attempt: 1, model: "demo".into() });
    write(&journal, 1, 10, cut_off, false).await;
    let mut recovered = opening("读取 README.md");
    recovered.extend(retried());
    recovered.push(Event::Recovered {
        operation: Operation::ModelRequest,
        kind: Kind::ModelRateLimited,
        attempts: 2,
        elapsed_ms: 1_200,
        scope: Scope::default(),
    });
    let (usage, stop) = (Usage::default(), StopReason::EndTurn);
    recovered.push(Event::TurnEnded { stop, fault: None, steps: 1, usage });
    write(&journal, 2, 20, recovered, false).await;
    let mut waits = opening("count the headings");
    waits.extend(retried());
    write(&journal, 3, 30, waits, true).await;
    Arc::new(journal)
}

async fn poll(journal: Arc<dyn Journal>, lang: Lang) -> Snapshot {
    JournalPoller::new(journal, lang).poll(Window::FiveMinutes, at(60)).await.unwrap()
}

fn drawn(seen: Option<&Snapshot>, columns: u16, rows: u16, theme: Theme, lang: Lang) -> String {
    let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
    let mut scroll = ScrollPosition::default();
    terminal.draw(|frame| draw::draw(frame, seen, &mut scroll, theme, lang)).unwrap();
    buffer_text(terminal.backend().buffer())
}

#[tokio::test(start_paused = true)]
async fn sessions_rates_faults_and_events_are_seen_in_both_languages_wide_and_narrow() {
    let journal = journal().await;
    for lang in [Lang::En, Lang::Zh] {
        let seen = poll(journal.clone(), lang).await;
        insta::assert_snapshot!(format!("top_{lang}_120"), drawn(Some(&seen), 120, 24, LOOK, lang));
        insta::assert_snapshot!(format!("top_{lang}_60"), drawn(Some(&seen), 60, 24, LOOK, lang));
        insta::assert_snapshot!(
            format!("top_{lang}_text"),
            draw::render_text(&seen, lang, &Talk::plain())
        );
    }
    let empty = Arc::new(Memory::new(seeded(8), Limits::default()));
    let seen = poll(empty, Lang::En).await;
    insta::assert_snapshot!("top_empty_en_60", drawn(Some(&seen), 60, 16, LOOK, Lang::En));
}

#[tokio::test(start_paused = true)]
async fn an_unreachable_server_is_shown_beside_its_last_data() {
    let from = Some("10.0.0.7:7333".to_owned());
    let seen = Snapshot { from, events: Vec::new(), ..poll(journal().await, Lang::En).await };
    let mut terminal = Terminal::new(TestBackend::new(90, 18)).unwrap();
    let mut scroll = ScrollPosition { is_away: true, ..ScrollPosition::default() };
    terminal.draw(|frame| draw::draw(frame, Some(&seen), &mut scroll, LOOK, Lang::En)).unwrap();
    insta::assert_snapshot!("top_away_en_90", buffer_text(terminal.backend().buffer()));
}

#[tokio::test(start_paused = true)]
async fn an_interrupted_turn_is_distinguished_from_a_running_one() {
    let seen = poll(journal().await, Lang::En).await;
    let cut_off: Vec<_> = seen
        .sessions
        .iter()
        .filter(|row| row.is_interrupted())
        .map(|row| row.summary.session)
        .collect();
    assert_eq!(cut_off, [session(1)]);
    assert_eq!((seen.running, seen.waiting_for_decision), (2, 0));
}

#[tokio::test(start_paused = true)]
async fn records_of_another_process_appear_at_the_next_poll() {
    let journal = journal().await;
    let mut observer = JournalPoller::new(journal.clone(), Lang::En);
    let before = observer.poll(Window::FiveMinutes, at(60)).await.unwrap();
    write(&journal, 4, 61, opening("a new one"), true).await;
    let after = observer.poll(Window::FiveMinutes, at(65)).await.unwrap();
    assert_eq!(before.sessions.len() + 1, after.sessions.len());
    assert_eq!(before.numbers.turns + 1, after.numbers.turns);
    assert_eq!(before.numbers.faults, after.numbers.faults, "nothing is counted twice");
}

#[tokio::test(start_paused = true)]
async fn machines_get_one_object_with_everything() {
    let seen = poll(journal().await, Lang::En).await;
    let json: serde_json::Value = serde_json::from_str(&seen.json().unwrap()).unwrap();
    assert_eq!(json["running"], 2);
    assert_eq!(json["stats"]["turns"], 3);
    assert_eq!(json["stats"]["kinds"][0]["code"], "ERR_RATE_001");
    assert_eq!(json["sessions"].as_array().unwrap().len(), 3);
    assert!(json["events"][0]["line"].as_str().unwrap().contains("try 2/3"), "{json}");
}

#[tokio::test(start_paused = true)]
async fn no_size_makes_it_panic_and_the_smallest_still_shows_sessions() {
    let seen = poll(journal().await, Lang::Zh).await;
    for columns in [0, 1, 2, 3, 7, 20, 49, 50, 99, 100, 300] {
        for rows in [0, 1, 2, 3, 5, 13, 14, 15, 24, 80] {
            for seen in [None, Some(&seen)] {
                drawn(seen, columns, rows, Theme { colours: false }, Lang::Zh);
            }
        }
    }
    let shown = drawn(Some(&seen), 20, 5, LOOK, Lang::Zh);
    assert!(shown.contains("count the"), "{shown}");
}

/// The records of two writers and of one that is gone.
#[tokio::test(start_paused = true)]
async fn without_a_server_the_held_service_is_read_from_the_records() {
    let journal = journal().await;
    let step = |model: &str| Event::StepStarted { step: 1, attempt: 1, model: model.into() };
    let held = |until| Event::RequestHeld {
        step: 1,
        reason: HoldReason::Outage,
        fault: Some(Fault::new(Kind::ConnectionRefused, Operation::ModelRequest)),
        until: Some(at(until)),
        before: 0,
        patience_ms: 900_000,
    };
    let released = || Event::RequestReleased { step: 1, waited_ms: 5 };
    for (number, more, is_held) in [
        (5, vec![step("m-1"), held(90), held(95)], true),
        (6, vec![step("m-1"), held(92)], true),
        (7, vec![step("m-1"), held(70), released()], true),
        (8, vec![step("m-1"), held(99)], false),
        (9, vec![step("m-2")], true),
    ] {
        write(&journal, number, 61, [opening("go"), more].concat(), is_held).await;
    }
    let seen = poll(journal, Lang::En).await;
    let text = draw::render_text(&seen, Lang::En, &Talk::plain());
    for expected in [
        "held m-1 · outage · 2 waiting · 1 under way · until 00:01:35 · ERR_NET_003",
        "open m-2 · 0 waiting · 1 under way",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    assert_eq!(seen.stats["gates"].as_array().unwrap().len(), 2, "{}", seen.stats["gates"]);
}

#[tokio::test(start_paused = true)]
async fn held_gates_and_affected_users_are_seen() {
    let mut seen = poll(journal().await, Lang::En).await;
    let mut stats = seen.stats.clone();
    stats["gates"] = serde_json::json!([
        { "endpoint": "https://api.example", "model": "m-1", "credential": "ab", "state": "held",
          "reason": "outage", "until": at(90).to_string(), "waiting": 3, "waiting_background": 1,
          "in_flight": 0, "limit": 4, "last_error": "ERR_NET_003" },
        { "endpoint": "https://api.example", "model": "m-2", "credential": "ab", "state": "open",
          "waiting": 0, "waiting_background": 0, "in_flight": 2, "limit": 4 },
    ]);
    stats["by_user"] = serde_json::json!([
        { "user": "acme/ann", "count": 5, "recovered": 1, "not_recovered": 4 },
    ]);
    seen.numbers = serde_json::from_value(stats).unwrap();
    seen.sessions[0].summary.labels.insert(Settings::OWNER.into(), "acme/ann".into());
    let text = draw::render_text(&seen, Lang::En, &Talk::plain());
    for expected in [
        "held https://api.example m-1 · outage · 3 waiting · 0 under way · until",
        "open https://api.example m-2 · 0 waiting · 2 under way",
        "5 acme/ann · not recovered 4",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    let screen = drawn(Some(&seen), 120, 24, LOOK, Lang::En);
    assert!(
        screen.contains("held https://api.example m-1") && screen.contains("acme/ann"),
        "{screen}"
    );
}

//! Tests of the views that operators search by.

use std::{collections::BTreeMap, time::Duration};

use budao_core::{
    event::{Decision, Event, QuestionPurpose, Scope, SessionEnd, Settings, StopReason},
    fault::Kind,
    message::Usage,
    tally::FaultCounts,
    time::Timestamp,
    tool::{Failure, Outcome},
    trace::Trace,
};

use super::{
    Fixture,
    fixture::{fault, message},
};
use crate::contract::{Append, Entry, Filter, Lease, RateQuery, SessionState};

const MINUTE: Duration = Duration::from_secs(60);

fn opened(title: &str, labels: &[(&str, &str)]) -> Event {
    let labels: BTreeMap<String, String> =
        labels.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
    let settings = Settings { title: Some(title.into()), labels, ..Settings::default() };
    Event::SessionOpened { settings, origin: None }
}

fn turn_ended(kind: Option<Kind>) -> Event {
    Event::TurnEnded {
        stop: if kind.is_some() { StopReason::Failed } else { StopReason::EndTurn },
        fault: kind.map(fault),
        steps: 1,
        usage: Usage::default(),
    }
}

fn call_failed(tool: &str, kind: Kind) -> Event {
    let failure = Failure { fault: fault(kind), data: None, note: None };
    Event::ToolCallEnded {
        call: "call".into(),
        tool: tool.into(),
        outcome: Outcome::Failed(failure),
        duration_ms: 1,
    }
}

fn raised(kind: Kind) -> Event {
    Event::FaultRaised { fault: fault(kind), scope: Scope::default() }
}

/// Appends events of turn 1 with a trace.
async fn append_events(
    fixture: &Fixture,
    lease: &Lease,
    expected: u64,
    trace: u128,
    events: Vec<Event>,
) -> u64 {
    let trace = Trace::from_random(trace);
    let entries =
        events.into_iter().map(|event| Entry { trace, turn: 1, ..fixture.entry(event) }).collect();
    fixture.journal.append(Append::new(lease, expected, entries)).await.unwrap()
}

async fn found(fixture: &Fixture, filter: Filter) -> Vec<String> {
    let sessions = fixture.journal.sessions(filter).await.unwrap();
    sessions.into_iter().filter_map(|session| session.title).collect()
}

/// By id, state, time, label, trace, fault code and tool.
pub async fn sessions_are_found_by_what_happened_in_them(fixture: &Fixture) {
    let (a, b) = (fixture.open().await, fixture.open().await);
    let before = fixture.world.clock.now();
    append_events(fixture, &a, 0, 1, vec![opened("a", &[("team", "red")]), turn_ended(None)]).await;
    fixture.clock.advance(MINUTE);
    let middle = fixture.world.clock.now();
    let events = vec![
        opened("b", &[("team", "blue"), ("env", "test")]),
        Event::TurnStarted { message: "m".into() },
        call_failed("fs_read", Kind::FileNotFound),
        raised(Kind::ModelOverloaded),
    ];
    append_events(fixture, &b, 0, 2, events).await;
    let all = Filter::default;
    let code = |kind: Kind| Some(kind.row().code.to_owned());
    let label = |key: &str, value: Option<&str>| Some((key.to_owned(), value.map(Into::into)));
    for (filter, expected) in [
        (all(), vec!["b", "a"]),
        (Filter { ids: Some((b.session, b.session)), ..all() }, vec!["b"]),
        (
            Filter { ids: Some((a.session.min(b.session), a.session.max(b.session))), ..all() },
            vec!["b", "a"],
        ),
        (Filter { state: Some(SessionState::Running), ..all() }, vec!["b"]),
        (Filter { state: Some(SessionState::Idle), ..all() }, vec!["a"]),
        (Filter { state: Some(SessionState::Closed), ..all() }, vec![]),
        (Filter { since: Some(middle), ..all() }, vec!["b"]),
        (Filter { until: Some(middle), ..all() }, vec!["a"]),
        (Filter { since: Some(before), ..all() }, vec!["b", "a"]),
        (Filter { label: label("team", None), ..all() }, vec!["b", "a"]),
        (Filter { label: label("team", Some("red")), ..all() }, vec!["a"]),
        (Filter { label: label("env", Some("prod")), ..all() }, vec![]),
        (Filter { trace: Some(Trace::from_random(2)), ..all() }, vec!["b"]),
        (Filter { trace: Some(Trace::from_random(3)), ..all() }, vec![]),
        (Filter { code: code(Kind::FileNotFound), ..all() }, vec!["b"]),
        (Filter { code: code(Kind::ModelOverloaded), ..all() }, vec!["b"]),
        (Filter { code: code(Kind::Bug), ..all() }, vec![]),
        (Filter { tool: Some("fs_read".into()), ..all() }, vec!["b"]),
        (Filter { tool: Some("fs_write".into()), ..all() }, vec![]),
        (Filter { limit: 1, ..all() }, vec!["b"]),
        (
            Filter {
                tool: Some("fs_read".into()),
                state: Some(SessionState::Running),
                label: label("team", Some("blue")),
                ..all()
            },
            vec!["b"],
        ),
    ] {
        assert_eq!(found(fixture, filter.clone()).await, expected, "{filter:?}");
    }
    let relabelled = Event::SettingsChanged {
        settings: Settings { title: Some("b".into()), ..Settings::default() },
    };
    append_events(fixture, &b, 4, 2, vec![relabelled]).await;
    assert_eq!(found(fixture, Filter { label: label("team", None), ..all() }).await, ["a"]);
}

/// Through a turn, a question and the end of the session.
pub async fn a_session_shows_what_it_is_doing(fixture: &Fixture) {
    let lease = fixture.open().await;
    let question_asked = Event::QuestionAsked {
        question: budao_core::event::QuestionId("q".into()),
        call: "call".into(),
        tool: "bash_run".into(),
        arguments: 1.into(),
        repairs: vec![],
        idempotent: false,
        digest: String::new(),
        reason: String::new(),
        purpose: QuestionPurpose::Permission,
        expires_at: Timestamp::default(),
    };
    let answered = Event::QuestionAnswered {
        question: budao_core::event::QuestionId("q".into()),
        call: "call".into(),
        decision: Decision::Allow,
        by: "test".into(),
        note: None,
        arguments: None,
    };
    let mut head = 0;
    for (event, state, turn, code) in [
        (opened("a", &[]), SessionState::Idle, None, None),
        (Event::TurnStarted { message: "m".into() }, SessionState::Running, Some(1), None),
        (question_asked, SessionState::WaitingForDecision, Some(1), None),
        (answered, SessionState::Running, Some(1), None),
        (turn_ended(Some(Kind::Bug)), SessionState::Failed, None, Some(Kind::Bug)),
        (
            Event::SessionEnded { end: SessionEnd::Closed, fault: None },
            SessionState::Closed,
            None,
            Some(Kind::Bug),
        ),
    ] {
        let what = format!("{event:?}");
        fixture.clock.advance(MINUTE);
        head = append_events(fixture, &lease, head, 1, vec![event]).await;
        let sessions = fixture.journal.sessions(Filter::default()).await.unwrap();
        let summary = &sessions[0];
        assert_eq!((summary.state, summary.open_turn, summary.head), (state, turn, head), "{what}");
        assert_eq!(summary.last_code.as_deref(), code.map(|kind| kind.row().code), "{what}");
        assert_eq!(summary.updated_at, fixture.world.clock.now());
        let not_recovered = u64::from(code.is_some());
        let counts = FaultCounts { faults: not_recovered, recovered: 0, not_recovered };
        assert_eq!(summary.fault_counts(), counts, "{what}");
    }
}

/// The pages omit no session either.
pub async fn pages_of_sessions_do_not_overlap(fixture: &Fixture) {
    for number in 0..10 {
        let lease = fixture.open().await;
        append_events(fixture, &lease, 0, 1, vec![opened(&number.to_string(), &[])]).await;
        if number % 3 == 0 {
            fixture.clock.advance(MINUTE);
        }
    }
    let mut filter = Filter { limit: 3, ..Filter::default() };
    let mut seen = Vec::new();
    loop {
        let page = fixture.journal.sessions(filter.clone()).await.unwrap();
        let Some(last) = page.last() else { break };
        filter.after = Some((last.updated_at, last.session));
        seen.extend(page);
    }
    let all = fixture.journal.sessions(Filter::default()).await.unwrap();
    assert_eq!(seen, all);
    assert_eq!(all.len(), 10);
}

/// With the writer, while its lease is valid.
pub async fn unfinished_turns_and_waiting_commands_are_listed(fixture: &Fixture) {
    let (running, waiting, idle) =
        (fixture.open().await, fixture.open().await, fixture.open().await);
    append_events(fixture, &running, 0, 1, vec![Event::TurnStarted { message: "m".into() }]).await;
    append_events(fixture, &idle, 0, 1, vec![opened("idle", &[]), turn_ended(None)]).await;
    for id in ["a", "b"] {
        fixture.journal.submit(waiting.session, message(id, "x")).await.unwrap();
    }
    fixture.journal.release(&waiting).await.unwrap();
    let mut expected = vec![(running.session, Some(1), 0), (waiting.session, None, 2)];
    expected.sort();
    let unfinished = fixture.journal.unfinished(None, 10).await.unwrap();
    let found: Vec<_> = unfinished.iter().map(|u| (u.session, u.turn, u.pending)).collect();
    assert_eq!(found, expected);
    let lease_of =
        |session| unfinished.iter().find(|u| u.session == session).unwrap().lease.clone();
    assert_eq!(lease_of(running.session).unwrap().holder, "writer");
    assert_eq!(lease_of(waiting.session), None);
    let first = fixture.journal.unfinished(None, 1).await.unwrap();
    let second = fixture.journal.unfinished(Some(first[0].session), 10).await.unwrap();
    assert_eq!([&first[..], &second[..]].concat(), unfinished);
}

/// Raised and ended faults are counted separately, in buckets of any length.
pub async fn codes_are_counted_over_time(fixture: &Fixture) {
    let start = fixture.world.clock.now();
    let (a, b) = (fixture.open().await, fixture.open().await);
    let (mut head_a, mut head_b) = (0, 0);
    for _ in 0..4 {
        let events = vec![raised(Kind::ModelOverloaded), turn_ended(Some(Kind::ModelOverloaded))];
        head_a = append_events(fixture, &a, head_a, 1, events).await;
        head_b =
            append_events(fixture, &b, head_b, 1, vec![call_failed("t", Kind::FileNotFound)]).await;
        fixture.clock.advance(MINUTE);
    }
    fixture.journal.delete(b.session).await.unwrap();
    let query = |minutes, code: Option<Kind>| RateQuery {
        since: start,
        until: fixture.world.clock.now(),
        bucket: MINUTE * minutes,
        code: code.map(|kind| kind.row().code.into()),
    };
    let rates = fixture.journal.rates(query(60, None)).await.unwrap();
    let sum = |kind: Kind| {
        rates
            .iter()
            .filter(|rate| rate.code == kind.row().code)
            .fold((0, 0), |sum, rate| (sum.0 + rate.raised, sum.1 + rate.ended))
    };
    assert_eq!(sum(Kind::ModelOverloaded), (4, 4));
    let by_minute = fixture.journal.rates(query(1, Some(Kind::ModelOverloaded))).await.unwrap();
    assert_eq!(by_minute.len(), 4, "{by_minute:?}");
    for (rate, number) in by_minute.iter().zip(0..) {
        assert_eq!((rate.raised, rate.ended), (1, 1));
        assert_eq!(rate.at, start.after(MINUTE * number));
    }
}

/// A rebuild uses the records alone.
pub async fn views_made_again_are_the_same(fixture: &Fixture) {
    for number in 0..20_u32 {
        let lease = fixture.open().await;
        let mut events = vec![opened(&number.to_string(), &[("n", &number.to_string())])];
        if number % 2 == 0 {
            events.push(Event::TurnStarted { message: "m".into() });
            events.push(raised(Kind::ModelOverloaded));
        }
        if number % 4 == 0 {
            events.push(call_failed("t", Kind::FileNotFound));
            events.push(turn_ended(Some(Kind::FileNotFound)));
        }
        append_events(fixture, &lease, 0, u128::from(number) + 1, events).await;
        fixture.clock.advance(MINUTE);
    }
    let look = || async {
        let query = RateQuery {
            since: Timestamp::default(),
            until: fixture.world.clock.now(),
            bucket: MINUTE,
            code: None,
        };
        let of = |filter| fixture.journal.sessions(filter);
        let code = Some(Kind::FileNotFound.row().code.to_owned());
        (
            of(Filter::default()).await.unwrap(),
            of(Filter { tool: Some("t".into()), ..Filter::default() }).await.unwrap(),
            of(Filter { code, ..Filter::default() }).await.unwrap(),
            of(Filter { label: Some(("n".into(), None)), ..Filter::default() }).await.unwrap(),
            fixture.journal.unfinished(None, 100).await.unwrap(),
            fixture.journal.rates(query).await.unwrap(),
        )
    };
    let before = look().await;
    assert_eq!((before.0.len(), before.1.len(), before.4.len()), (20, 5, 5));
    fixture.journal.rebuild_views().await.unwrap();
    assert_eq!(look().await, before);
}

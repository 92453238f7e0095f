//! Timers: what may be set, what a firing does, and that no time fires twice.

use std::time::Duration;

use budao_core::{
    Kind, Timestamp,
    event::{Answer, CommandBody, Event, Origin, SessionEnd, SessionId, Settings},
    message::text_of,
    session::Session,
    timer::{MISSED_MAX, Schedule, TIMER_MESSAGE_MAX, TimerId, TimerRequest},
    turn::Input,
};

use crate::turn::{play::Play, replay::agrees};

const HOUR: Duration = Duration::from_secs(3600);

/// A session on a real date.
fn play() -> Play {
    let mut play = Play::new();
    play.now = "2026-11-18T00:00:30Z".parse().unwrap();
    play
}

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn cron(form: &str) -> TimerRequest {
    TimerRequest::Cron { form: form.into(), zone: None }
}

fn set(play: &mut Play, timer: &str, when: TimerRequest) -> Answer {
    let (timer, message) = (Some(TimerId::from(timer)), "look again".to_owned());
    play.command(CommandBody::SetTimer { timer, when, message }).1
}

fn accepted(answer: &Answer) {
    assert!(matches!(answer, Answer::Accepted { .. }), "{answer:?}");
}

fn refused(answer: Answer) -> Kind {
    match answer {
        Answer::Rejected { fault } => fault.kind(),
        Answer::Accepted { .. } => panic!("it was accepted"),
    }
}

/// The firings so far: the due time, how many were missed, and the next time.
fn firings(play: &Play) -> Vec<(String, u64, Option<String>)> {
    let shown = |at: Timestamp| at.to_string().replace(":00.000Z", "");
    let fired = play.entries.iter().filter_map(|entry| match &*entry.event {
        Event::TimerFired { due, missed, next, .. } => {
            Some((shown(*due), *missed, next.map(shown)))
        }
        _ => None,
    });
    fired.collect()
}

#[test]
fn a_timer_fires_once_and_one_turn_answers_it() {
    let mut play = play();
    accepted(&set(&mut play, "later", TimerRequest::After(90_000)));
    let due = play.now.after(Duration::from_secs(90));
    assert_eq!(play.session.timers.wake_at(), Some(due));
    play.now = due;
    assert_eq!(play.input(Input::TimersDue), ["timer_fired", "turn_started", "step_started"]);
    assert!(play.session.timers.is_empty());
    let told = text_of(&play.session.history[0].content);
    assert!(told.contains("The timer \"later\" fired."), "{told}");
    assert!(told.ends_with("\n\nlook again"), "{told}");
    assert_eq!(play.input(Input::TimersDue), Vec::<&str>::new());
    play.answer_text("seen");
    play.now = play.now.after(HOUR);
    assert_eq!(play.input(Input::TimersDue), Vec::<&str>::new());
    play.replayed();
    agrees(&play);
}

#[test]
fn a_timer_that_is_not_due_does_not_fire() {
    let mut play = play();
    accepted(&set(&mut play, "t", TimerRequest::After(1_000)));
    play.now = play.now.after(Duration::from_millis(999));
    assert_eq!(play.input(Input::TimersDue), Vec::<&str>::new());
}

#[test]
fn missed_firings_are_reported_once_with_their_count() {
    let mut play = play();
    accepted(&set(&mut play, "hourly", cron("0 * * * *")));
    play.now = at("2026-11-18T03:30:00Z");
    play.input(Input::TimersDue);
    assert_eq!(
        firings(&play),
        [("2026-11-18T01:00".into(), 2, Some("2026-11-18T04:00".into()))],
        "one firing stands for 01:00, 02:00 and 03:00"
    );
    let told = text_of(&play.session.history[0].content);
    assert!(told.contains("2 later times passed before it could fire"), "{told}");
    play.answer_text("seen");
    play.now = at("2026-11-18T04:00:00Z");
    play.input(Input::TimersDue);
    assert_eq!(firings(&play)[1], ("2026-11-18T04:00".into(), 0, Some("2026-11-18T05:00".into())));
    agrees(&play);
}

#[test]
fn a_count_of_missed_times_has_a_bound() {
    let mut play = play();
    accepted(&set(&mut play, "often", cron("* * * * *")));
    play.now = play.now.after(HOUR * 24 * 30);
    play.input(Input::TimersDue);
    assert_eq!(firings(&play)[0].1, MISSED_MAX);
    let next = play.session.timers.wake_at();
    assert_eq!(next, Some(at("2026-12-18T00:01:00Z")), "the next time is not one of the past");
}

#[test]
fn a_clock_that_is_set_back_or_forward_fires_no_time_twice() {
    let mut play = play();
    accepted(&set(&mut play, "hourly", cron("0 * * * *")));
    play.now = at("2026-11-18T01:00:00Z");
    play.input(Input::TimersDue);
    play.answer_text("seen");
    play.now = at("2026-11-18T00:10:00Z");
    assert_eq!(play.input(Input::TimersDue), Vec::<&str>::new(), "01:00 comes again");
    play.now = at("2026-11-18T01:00:00Z");
    assert_eq!(play.input(Input::TimersDue), Vec::<&str>::new());
    play.now = at("2026-11-18T06:00:00Z");
    play.input(Input::TimersDue);
    play.answer_text("seen");
    play.now = at("2026-11-18T05:00:00Z");
    assert_eq!(play.input(Input::TimersDue), Vec::<&str>::new());
    let expected = [("2026-11-18T01:00", 0), ("2026-11-18T02:00", 4)];
    let found = firings(&play);
    let found: Vec<_> = found.iter().map(|(due, missed, _)| (due.as_str(), *missed)).collect();
    assert_eq!(found, expected);
}

#[test]
fn a_firing_waits_until_the_one_before_it_has_its_turn() {
    let mut play = play();
    accepted(&set(&mut play, "often", cron("* * * * *")));
    play.say("a long turn");
    for _ in 0..10 {
        play.now = play.now.after(Duration::from_secs(60));
        play.input(Input::TimersDue);
    }
    assert_eq!(firings(&play).len(), 1);
    play.answer_text("done");
    play.input(Input::TimersDue);
    let found = firings(&play);
    assert_eq!((found.len(), found[1].1), (2, 8), "nine times had passed since the first firing");
    agrees(&play);
}

#[test]
fn a_withdrawn_firing_lets_the_next_one_come() {
    let mut play = play();
    accepted(&set(&mut play, "often", cron("* * * * *")));
    play.say("a long turn");
    play.now = play.now.after(Duration::from_secs(60));
    play.input(Input::TimersDue);
    let message = play.session.queue[0].command.clone();
    accepted(&play.command(CommandBody::Withdraw { message }).1);
    play.now = play.now.after(Duration::from_secs(60));
    assert_eq!(play.input(Input::TimersDue), ["timer_fired"]);
}

#[test]
fn timers_that_are_due_together_fire_in_the_order_of_their_times() {
    let mut play = play();
    for (timer, ms) in [("b", 2_000), ("a", 2_000), ("c", 1_000)] {
        accepted(&set(&mut play, timer, TimerRequest::After(ms)));
    }
    play.now = play.now.after(Duration::from_secs(5));
    play.input(Input::TimersDue);
    let fired = play.entries.iter().filter_map(|entry| match &*entry.event {
        Event::TimerFired { timer, .. } => Some(timer.to_string()),
        _ => None,
    });
    assert_eq!(fired.collect::<Vec<_>>(), ["c", "a", "b"]);
}

#[test]
fn invalid_timers_are_refused_and_leave_nothing() {
    let mut play = play();
    let now = play.now;
    for (when, kind) in [
        (TimerRequest::At(now), Kind::TimeInPast),
        (TimerRequest::At(at("1999-01-01T00:00:00Z")), Kind::TimeInPast),
        (TimerRequest::After(0), Kind::TimeInPast),
        (TimerRequest::After(u64::MAX), Kind::ScheduleRefused),
        (TimerRequest::At(at("2030-01-01T00:00:00Z")), Kind::ScheduleRefused),
        (cron("* * * * * *"), Kind::ScheduleRefused),
        (cron("0 0 30 2 *"), Kind::ScheduleRefused),
        (cron("never"), Kind::ScheduleRefused),
        (cron(&"9".repeat(1_000_000)), Kind::ScheduleRefused),
        (
            TimerRequest::Cron { form: "@daily".into(), zone: Some("Mars/Base".into()) },
            Kind::ScheduleRefused,
        ),
        (
            TimerRequest::Cron { form: "@daily".into(), zone: Some("../etc/passwd".into()) },
            Kind::ScheduleRefused,
        ),
    ] {
        assert_eq!(refused(set(&mut play, "t", when.clone())), kind, "{when:?}");
    }
    for timer in ["", "a\nb", &"x".repeat(129)] {
        assert_eq!(
            refused(set(&mut play, timer, TimerRequest::After(9))),
            Kind::ConstraintViolated
        );
    }
    for message in [" ".to_owned(), "m".repeat(TIMER_MESSAGE_MAX + 1)] {
        let body = CommandBody::SetTimer { timer: None, when: TimerRequest::After(9), message };
        assert_eq!(refused(play.command(body).1), Kind::ConstraintViolated);
    }
    assert!(play.session.timers.is_empty());
}

#[test]
fn a_schedule_that_fires_too_often_is_refused_by_the_configured_period() {
    let mut play = play();
    play.limits.timer_period = HOUR;
    assert_eq!(refused(set(&mut play, "t", cron("*/30 * * * *"))), Kind::ScheduleRefused);
    assert_eq!(refused(set(&mut play, "t", cron("0,30 8 * * *"))), Kind::ScheduleRefused);
    accepted(&set(&mut play, "t", cron("0 * * * *")));
}

#[test]
fn a_session_has_a_bounded_number_of_timers() {
    let mut play = play();
    play.limits.session_timers = 2;
    accepted(&set(&mut play, "a", TimerRequest::After(9_000)));
    accepted(&set(&mut play, "b", TimerRequest::After(9_000)));
    let Answer::Rejected { fault } = set(&mut play, "c", TimerRequest::After(9_000)) else {
        panic!("a third timer was accepted");
    };
    assert_eq!(fault.detail().text(budao_core::fault::Fact::LimitName), Some("session_timers"));
    accepted(&set(&mut play, "b", TimerRequest::After(5_000)));
    assert_eq!(play.session.timers.len(), 2, "a timer with a known id is replaced");
    assert_eq!(play.session.timers.wake_at(), Some(play.now.after(Duration::from_secs(5))));
}

#[test]
fn a_cancelled_timer_does_not_fire_and_is_unknown() {
    let mut play = play();
    accepted(&set(&mut play, "t", TimerRequest::After(1_000)));
    let cancel = |play: &mut Play| play.command(CommandBody::CancelTimer { timer: "t".into() });
    let (names, answer) = cancel(&mut play);
    accepted(&answer);
    assert_eq!(names, ["timer_cancelled"]);
    assert_eq!(refused(cancel(&mut play).1), Kind::UnknownTimer);
    play.now = play.now.after(HOUR);
    assert_eq!(play.input(Input::TimersDue), Vec::<&str>::new());
    agrees(&play);
}

#[test]
fn a_closed_session_has_no_timers_and_a_failed_one_keeps_them() {
    let mut play = play();
    accepted(&set(&mut play, "t", cron("@hourly")));
    let failed = Event::SessionEnded { end: SessionEnd::Error, fault: None };
    play.input(Input::RecordOnly { turn: 0, event: failed });
    assert_eq!(play.session.timers.len(), 1);
    play.now = play.now.after(HOUR);
    assert_eq!(play.input(Input::TimersDue)[0], "timer_fired", "the firing opens it again");
    play.answer_text("seen");
    play.command(CommandBody::Close);
    assert!(play.session.timers.is_empty());
    play.replayed();
}

#[test]
fn a_child_session_has_no_timers() {
    let mut session = Session::default();
    let parent = SessionId(uuid::Uuid::nil());
    let origin = Some(Origin::Call { parent, call: "c".into(), depth: 1 });
    let opened = Event::SessionOpened { settings: Settings::default(), origin };
    let now = at("2026-11-18T00:00:00Z");
    session.apply(&opened, now, budao_core::trace::Trace::NONE);
    let limits = budao_core::limits::Limits::default();
    let when = TimerRequest::After(9);
    let set = session.set_timer("t".into(), when, "m".into(), "ada".into(), now, &limits);
    assert_eq!(set.unwrap_err().kind(), Kind::ConstraintViolated);
}

#[test]
fn a_firing_does_not_need_room_in_a_full_queue() {
    let mut play = play();
    play.limits.queued_messages = 1;
    accepted(&set(&mut play, "t", TimerRequest::After(1_000)));
    play.say("first");
    play.say("queued");
    play.now = play.now.after(HOUR);
    assert_eq!(play.input(Input::TimersDue), ["timer_fired"]);
    assert_eq!(play.session.queue.len(), 2);
}

#[test]
fn a_timer_without_an_id_has_the_id_of_its_command() {
    let mut play = play();
    let (timer, message) = (None, "m".to_owned());
    let when = TimerRequest::At(at("2026-11-19T00:00:00Z"));
    accepted(&play.command(CommandBody::SetTimer { timer, when, message }).1);
    let timers: Vec<_> = play.session.timers.all().cloned().collect();
    assert_eq!(timers[0].timer, TimerId::from("c1"));
    assert_eq!(timers[0].schedule, Schedule::At(at("2026-11-19T00:00:00Z")));
    assert!(play.session.history.is_empty());
}

//! Holds after a restart and with a clock that jumps, and what waiting sessions learn.

use super::*;

fn background(session: u128) -> Requester {
    Requester { priority: Priority::Background, ..requester(session) }
}

/// The tickets that are reported, with the kinds of the faults that they learn.
fn reported(actions: &[GateAction]) -> Vec<(Ticket, Option<Kind>)> {
    let reports = actions.iter().filter_map(|action| match action {
        GateAction::Report(ticket, report) => {
            Some((*ticket, report.fault.as_ref().map(Fault::kind)))
        }
        _ => None,
    });
    reports.collect()
}

#[test]
fn a_failure_with_a_hint_above_the_ceiling_is_followed_by_one_probe() {
    let mut gate = gate();
    let (first, _) = ask(&mut gate, 1, at(0));
    let broken = fault(Kind::ModelServerError).retry_after(secs(3600));
    fail(&mut gate, first, &broken, at(0));
    for session in 2..6 {
        assert!(!ask(&mut gate, session, at(1)).1);
    }
    assert!(granted(&gate.advance(at(599_999))).is_empty());
    assert_eq!(granted(&gate.advance(at(600_000))).len(), 1, "one probe");
    assert!(granted(&gate.advance(at(600_001))).is_empty());
}

#[test]
fn a_restored_hold_ends_with_one_probe_and_not_with_a_burst() {
    let mut gate = gate();
    let limited = fault(Kind::ModelRateLimited).retry_after(secs(600));
    for session in 0..4 {
        gate.restore(&limited, at(300_000 + session), at(0));
    }
    assert_eq!(gate.status(at(0)).held, Some(HoldReason::RateLimit));
    let tickets: Vec<_> = (0..10).map(|session| ask(&mut gate, session, at(1)).0).collect();
    assert!(granted(&gate.advance(at(300_002))).is_empty());
    let probe = granted(&gate.advance(at(300_003)));
    assert_eq!(probe, tickets[..1]);
    assert!(granted(&gate.advance(at(300_004))).is_empty(), "one at a time");
    gate.finish(probe[0], RequestEnd::Answered, at(300_100));
    assert!(!granted(&gate.advance(at(300_100))).is_empty(), "and then the others");
    gate.restore(&limited, at(900_000), at(300_200));
    assert_eq!(gate.status(at(300_200)).held, None, "records tell nothing to a gate that asks");
}

#[test]
fn a_restored_hold_lasts_no_longer_than_the_ceiling_and_needs_a_fault_of_the_service() {
    let mut restored = gate();
    restored.restore(&fault(Kind::ModelServerError), at(86_400_000), at(0));
    assert_eq!(restored.status(at(0)).until, Some(at(600_000)));
    let mut other = gate();
    other.restore(&fault(Kind::ModelStalled).retry_after(secs(1)), at(0), at(1000));
    assert_eq!(other.status(at(1000)).until, Some(at(1000)), "a time that has passed");
    let mut none = gate();
    none.restore(&fault(Kind::ModelRefused), at(1000), at(0));
    assert_eq!(none.status(at(0)).held, None);
}

#[test]
fn a_clock_that_is_set_back_a_day_changes_no_wait() {
    const DAY: i64 = 86_400_000;
    let mut gate = gate();
    bring_down(&mut gate, at(DAY));
    let (waiting, _) = ask(&mut gate, 9, at(DAY + 1));
    assert_eq!(gate.next_wake(at(DAY + 1)), Some(at(DAY + 1000)));
    gate.advance(at(0));
    assert_eq!(gate.status(at(0)).until, Some(at(999)), "by the clock as it is now");
    assert_eq!(gate.next_wake(at(0)), Some(at(999)));
    assert_eq!(granted(&gate.advance(at(999))), [waiting], "the probe is not late");
    fail(&mut gate, waiting, &fault(Kind::ModelServerError), at(2000));
    ask(&mut gate, 9, at(2000));
    let next = gate.status(at(2000)).until.unwrap();
    assert!(next <= at(2000 + 30_000), "{next}: nor the next one");
}

#[test]
fn background_work_learns_of_an_outage_that_follows_a_wait_for_capacity() {
    let mut gate = gate();
    let busy: Vec<_> = (0..8).map(|session| ask(&mut gate, session, at(0)).0).collect();
    gate.limit.end_ramp(at(0));
    let ticket = gate.request(background(9), at(1)).unwrap();
    assert_eq!(reported(&gate.advance(at(1001 + 250))), [(ticket, None)], "held for capacity");
    for busy in busy {
        fail(&mut gate, busy, &fault(Kind::ModelServerError), at(2000));
    }
    let wake = |gate: &Gate, now| gate.next_wake(now).unwrap();
    let (mut now, mut news) = (at(2000), Vec::new());
    while now < at(180_000) {
        let actions = gate.advance(now);
        news.extend(reported(&actions));
        for probe in granted(&actions) {
            fail(&mut gate, probe, &fault(Kind::ModelServerError), now);
            gate.request(background(9), now).unwrap();
        }
        now = wake(&gate, now).max(now.after(Duration::from_micros(1)));
    }
    assert!(news.iter().any(|(_, kind)| *kind == Some(Kind::ModelServerError)), "{news:?}");
}

#[test]
fn a_background_observer_gets_no_repeated_hold_reports() {
    let mut gate = gate_with_late_probe();
    bring_down(&mut gate, at(0));
    let waiting: Vec<_> =
        (10..13).map(|session| gate.request(background(session), at(1)).unwrap()).collect();
    assert_eq!(reported(&gate.advance(at(1))).len(), 3);
    let probe = granted(&gate.advance(at(2000)))[0];
    fail(&mut gate, probe, &fault(Kind::ModelServerError), at(2000));
    let refresh = at(62_000);
    assert!(reported(&gate.advance(refresh)).is_empty(), "the same kind");
    let probe = gate.outage.as_ref().unwrap().probe.unwrap();
    fail(&mut gate, probe, &fault(Kind::ModelRateLimited).retry_after(secs(3600)), refresh);
    let told = reported(&gate.advance(at(122_000)));
    assert_eq!(told, [(waiting[2], Some(Kind::ModelRateLimited))], "the one that still waits");
}

#[test]
fn an_observer_who_joins_moves_a_waiting_request_ahead() {
    let mut gate = gate();
    bring_down(&mut gate, at(0));
    let first = gate.request(background(10), at(1)).unwrap();
    let second = gate.request(background(11), at(2)).unwrap();
    gate.advance(at(2));
    gate.set_priority(requester(11).session, Priority::Interactive, at(3));
    assert_eq!(gate.status(at(3)).waiting_background, 1);
    assert_eq!(granted(&gate.advance(at(2000))), [second]);
    gate.finish(second, RequestEnd::Abandoned, at(2001));
    let third = gate.request(requester(12), at(2001)).unwrap();
    gate.set_priority(requester(12).session, Priority::Background, at(2001));
    gate.set_priority(requester(99).session, Priority::Background, at(2001));
    assert_eq!(granted(&gate.advance(at(2001))), [first], "first come, first served");
    gate.withdraw(third);
    assert_eq!((gate.by_session.len(), gate.queue.len()), (0, 0));
}

#[test]
fn a_gate_without_requests_is_quiet_ten_minutes_after_its_outage() {
    let mut gate = gate();
    bring_down(&mut gate, at(0));
    assert!(!gate.is_quiet(at(600_000)), "it may be asked soon");
    assert!(gate.is_quiet(at(600_001)));
    ask(&mut gate, 9, at(600_001));
    assert!(!gate.is_quiet(at(9_000_000)), "while a request waits it stays");
}

#[test]
fn ten_thousand_requests_are_queued_and_get_their_positions_in_time() {
    let mut gate = gate_with_late_probe();
    bring_down(&mut gate, at(0));
    let started = std::time::Instant::now();
    let mut places = Vec::new();
    for session in 0..10_000_u128 {
        gate.request(requester(100 + session), at(1)).unwrap();
        for action in gate.advance(at(1)) {
            let GateAction::Report(_, report) = action else { panic!("{action:?}") };
            places.push(report.before);
        }
    }
    assert_eq!(places, (0..10_000).collect::<Vec<_>>());
    let took = started.elapsed();
    assert!(took < Duration::from_secs(5), "{took:?}: a walk for each would take minutes");
}

#[test]
fn places_follow_the_order_in_which_tenants_are_served() {
    let mut gate = gate();
    bring_down(&mut gate, at(0));
    let of = |tenant: &str, session| Requester { tenant: tenant.into(), ..requester(session) };
    let tickets: Vec<_> = [("a", 10), ("a", 11), ("b", 12), ("c", 13)]
        .map(|(tenant, session)| gate.request(of(tenant, session), at(1)).unwrap())
        .into();
    let all = tickets.iter().copied().collect();
    let places = gate.queue.positions(&all);
    let places: Vec<_> = tickets.iter().map(|ticket| places[ticket]).collect();
    assert_eq!(places, [0, 3, 1, 2]);
}

/// Grants eight requests at once, refuses those with these places, then accepts the others in order.
fn burst_with_refusals(refused: &[usize]) -> Gate {
    let mut gate = gate();
    let tickets: Vec<Ticket> = (0..8).map(|session| ask(&mut gate, session, at(0)).0).collect();
    let limited = fault(Kind::ModelRateLimited).retry_after(secs(1));
    for place in refused {
        fail(&mut gate, tickets[*place], &limited, at(100));
    }
    for (place, ticket) in tickets.iter().enumerate() {
        if !refused.contains(&place) {
            gate.finish(*ticket, RequestEnd::Answered, at(300));
        }
    }
    gate
}

#[test]
fn refusals_before_accepted_requests_of_the_same_burst_set_no_rate() {
    let gate = burst_with_refusals(&[0, 2]);
    assert_eq!(
        gate.status(at(400)).rate,
        None,
        "five requests were accepted after the last refusal"
    );
    assert_eq!(gate.status(at(400)).until, Some(at(1100)), "the hint is obeyed all the same");
}

#[test]
fn a_service_that_refuses_the_end_of_a_burst_has_a_rate() {
    let gate = burst_with_refusals(&[5, 6, 7]);
    assert!(gate.status(at(400)).rate.is_some());
}

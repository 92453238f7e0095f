//! Tests of the gate: its rules one by one; `hold` has those of holds and reports, `storm` runs it against services.

mod hold;
mod storm;

use uuid::Uuid;

use super::*;
use crate::fault::{Fact, Kind, Operation};

fn at(millis: i64) -> Timestamp {
    Timestamp::from_micros(1_000_000_000_000 + millis * 1000)
}

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn fault(kind: Kind) -> Fault {
    Fault::new(kind, Operation::ModelRequest)
}

fn requester(session: u128) -> Requester {
    Requester {
        session: SessionId(Uuid::from_u128(session)),
        tenant: "t".into(),
        priority: Priority::Interactive,
        willingness: Willingness::Wait,
    }
}

fn gate() -> Gate {
    Gate::new(GateConfig::default())
}

/// A gate whose first probe comes so late that a request which waits for it is reported at once.
fn gate_with_late_probe() -> Gate {
    Gate::new(GateConfig { probe_min: secs(2), ..GateConfig::default() })
}

/// Asks for admission and returns the ticket with whether it was granted at once.
fn ask(gate: &mut Gate, session: u128, now: Timestamp) -> (Ticket, bool) {
    let ticket = gate.request(requester(session), now).unwrap();
    let granted = granted(&gate.advance(now));
    (ticket, granted.contains(&ticket))
}

fn granted(actions: &[GateAction]) -> Vec<Ticket> {
    let grants = actions.iter().filter_map(|action| match action {
        GateAction::Grant(ticket) => Some(*ticket),
        _ => None,
    });
    grants.collect()
}

fn fail(gate: &mut Gate, ticket: Ticket, fault: &Fault, now: Timestamp) -> bool {
    gate.finish(ticket, RequestEnd::Failed(fault), now)
}

/// Makes the service fail until the gate knows that it is down.
fn bring_down(gate: &mut Gate, now: Timestamp) {
    for session in 0..4 {
        let (ticket, _) = ask(gate, session, now);
        fail(gate, ticket, &fault(Kind::ModelServerError), now);
    }
    assert_eq!(gate.status(now).held, Some(HoldReason::Outage));
}

#[test]
fn a_hint_of_one_session_stops_all_until_then() {
    let mut gate = gate();
    let (first, _) = ask(&mut gate, 1, at(0));
    let limited = fault(Kind::ModelRateLimited).retry_after(secs(7));
    assert!(!fail(&mut gate, first, &limited, at(100)), "it was a try");
    let (second, is_granted) = ask(&mut gate, 2, at(200));
    assert!(!is_granted);
    let status = gate.status(at(200));
    assert_eq!((status.held, status.until), (Some(HoldReason::RateLimit), Some(at(7100))));
    assert_eq!((status.since, status.waiting), (Some(at(100)), 1));
    assert_eq!(status.last_error.unwrap().0.kind(), Kind::ModelRateLimited);
    assert!(granted(&gate.advance(at(7099))).is_empty());
    assert_eq!(granted(&gate.advance(at(7100))), [second]);
}

#[test]
fn a_hint_above_the_ceiling_holds_for_the_ceiling_and_then_one_probe_is_made() {
    let mut gate = gate();
    let (first, _) = ask(&mut gate, 1, at(0));
    let limited = fault(Kind::ModelRateLimited).retry_after(secs(1_000_000_000));
    fail(&mut gate, first, &limited, at(0));
    for session in 2..6 {
        assert!(!ask(&mut gate, session, at(1)).1);
    }
    assert_eq!(gate.status(at(1)).until, Some(at(600_000)));
    let probe = granted(&gate.advance(at(600_000)));
    assert_eq!(probe.len(), 1, "one probe");
    assert!(fail(&mut gate, probe[0], &limited, at(600_100)), "which costs no try");
    assert!(granted(&gate.advance(at(900_000))).is_empty());
    let probe = granted(&gate.advance(at(1_200_100)));
    gate.started(probe[0], at(1_200_200));
    assert_eq!(gate.status(at(1_200_200)).held, None);
}

#[test]
fn implausible_retry_hints_hold_no_request_for_long() {
    for hint in [Duration::ZERO, Duration::from_nanos(1), Duration::MAX] {
        let mut gate = gate();
        let (first, _) = ask(&mut gate, 1, at(0));
        fail(&mut gate, first, &fault(Kind::ModelRateLimited).retry_after(hint), at(0));
        let (second, is_granted) = ask(&mut gate, 2, at(1));
        assert!(!is_granted, "{hint:?}: even without a usable hint there is a pause");
        let mut now = at(1);
        while let Some(next) = gate.next_wake(now) {
            now = next;
            if granted(&gate.advance(now)).contains(&second) {
                break;
            }
        }
        assert!(now <= at(600_000), "{hint:?}: granted at {now}");
    }
}

#[test]
fn a_service_that_refuses_for_ever_is_asked_less_and_less() {
    let mut gate = gate();
    let limited = fault(Kind::ModelRateLimited).retry_after(secs(1));
    let (mut now, mut requests) = (at(0), 0);
    let mut ticket = gate.request(requester(1), now).unwrap();
    while now < at(900_000) {
        if granted(&gate.advance(now)).contains(&ticket) {
            requests += 1;
            fail(&mut gate, ticket, &limited, now);
            ticket = gate.request(requester(1), now).unwrap();
            gate.advance(now);
        }
        now = gate.next_wake(now).expect("a wait has an end");
    }
    assert!((20..=50).contains(&requests), "{requests}");
}

#[test]
fn an_outage_is_probed_by_one_request_at_a_time_with_growing_waits() {
    let mut gate = gate();
    bring_down(&mut gate, at(0));
    for session in 10..20 {
        assert!(!ask(&mut gate, session, at(1)).1);
    }
    let (mut now, mut waits, mut probed_at) = (at(1), Vec::new(), at(0));
    while waits.len() < 30 {
        now = gate.next_wake(now).unwrap();
        let probes = granted(&gate.advance(now));
        assert!(probes.len() <= 1, "one at a time");
        let Some(probe) = probes.first() else { continue };
        waits.push(now.since(probed_at).as_millis());
        probed_at = now;
        let is_free = fail(&mut gate, *probe, &fault(Kind::ConnectionRefused), now);
        assert!(is_free, "a failed probe costs its session no try");
        gate.request(requester(99), now).unwrap();
        gate.advance(now);
    }
    assert_eq!(waits[0], 1_000);
    assert!(waits.windows(2).all(|pair| pair[0] <= pair[1]), "{waits:?}");
    assert_eq!(waits.last(), Some(&30_000), "{waits:?}");
}

#[test]
fn a_request_that_never_waits_probes_an_outage_when_a_probe_is_due() {
    let mut gate = gate();
    bring_down(&mut gate, at(0));
    let impatient = || Requester { willingness: Willingness::Never, ..requester(10) };
    assert!(gate.request(impatient(), at(1)).is_err(), "no probe is due yet");
    let probe = gate.request(impatient(), at(10_000)).unwrap();
    assert_eq!(granted(&gate.advance(at(10_000))), [probe]);
    assert!(gate.request(impatient(), at(10_001)).is_err(), "one probe at a time");
    gate.finish(probe, RequestEnd::Answered, at(10_100));
    assert!(gate.request(impatient(), at(10_101)).is_ok(), "the gate is open again");
}

#[test]
fn each_request_of_an_outage_is_a_probe_in_its_turn() {
    let mut gate = gate();
    bring_down(&mut gate, at(0));
    for session in 10..13 {
        ask(&mut gate, session, at(1));
    }
    let (mut now, mut probes) = (at(1), Vec::new());
    while probes.len() < 6 {
        now = gate.next_wake(now).unwrap();
        let Some(probe) = granted(&gate.advance(now)).first().copied() else { continue };
        probes.push(probe);
        fail(&mut gate, probe, &fault(Kind::ConnectionRefused), now);
        gate.request(requester(99), now).unwrap();
        gate.advance(now);
    }
    let distinct: BTreeSet<_> = probes.iter().collect();
    assert_eq!(distinct.len(), probes.len(), "no request can keep the gate shut for the others");
}

#[test]
fn a_tenant_that_asks_again_at_once_does_not_starve_the_others() {
    let mut queue = FairQueue::new(10);
    let push = |queue: &mut FairQueue, ticket: u64, tenant: &str| {
        let session = SessionId(uuid::Uuid::from_u128(u128::from(ticket)));
        queue.push(Ticket(ticket), tenant.into(), session, Priority::Interactive)
    };
    push(&mut queue, 1, "a");
    push(&mut queue, 2, "b");
    let mut served = Vec::new();
    for next in 10..14 {
        let ticket = queue.pop().unwrap();
        served.push(ticket.0);
        push(&mut queue, next, "a");
    }
    assert!(served.contains(&2), "{served:?}");
}

#[test]
fn a_lone_refusal_among_accepted_requests_is_no_limit() {
    let mut gate = gate();
    let tickets: Vec<_> = (0..4).map(|session| ask(&mut gate, session, at(0)).0).collect();
    for accepted in &tickets[1..] {
        gate.finish(*accepted, RequestEnd::Answered, at(10));
    }
    let hint = fault(Kind::ModelRateLimited).retry_after(secs(1));
    fail(&mut gate, tickets[0], &hint, at(10));
    gate.advance(at(2_000));
    assert_eq!(gate.status(at(2_000)).rate, None);
}

/// A gate with four requests in flight, of which the service refuses the first.
fn lone_refusal(gate: &mut Gate) -> Vec<Ticket> {
    let tickets: Vec<_> = (0..4).map(|session| ask(gate, session, at(0)).0).collect();
    let hint = fault(Kind::ModelRateLimited).retry_after(secs(60));
    fail(gate, tickets[0], &hint, at(10));
    assert_eq!(gate.status(at(11)).held, Some(HoldReason::RateLimit), "the hint holds everybody");
    tickets
}

#[test]
fn a_lone_refusal_holds_until_the_service_accepts_a_request_that_was_sent_later() {
    let mut gate = gate();
    let tickets = lone_refusal(&mut gate);
    gate.started(tickets[1], at(20));
    assert_eq!(gate.status(at(21)).held, None, "the hint was for one request only");
    assert!(ask(&mut gate, 9, at(22)).1);
}

#[test]
fn two_refusals_hold_whatever_the_service_accepts() {
    let mut gate = gate();
    let tickets = lone_refusal(&mut gate);
    let hint = fault(Kind::ModelRateLimited).retry_after(secs(60));
    fail(&mut gate, tickets[1], &hint, at(15));
    gate.started(tickets[3], at(20));
    assert_eq!(gate.status(at(21)).held, Some(HoldReason::RateLimit));
    assert_eq!(gate.status(at(21)).until, Some(at(60_015)));
}

#[test]
fn a_refusal_holds_if_only_earlier_requests_were_accepted() {
    let mut gate = gate();
    let tickets: Vec<_> = (0..4).map(|session| ask(&mut gate, session, at(0)).0).collect();
    for accepted in &tickets[..3] {
        gate.started(*accepted, at(5));
    }
    let hint = fault(Kind::ModelRateLimited).retry_after(secs(60));
    fail(&mut gate, tickets[3], &hint, at(10));
    gate.finish(tickets[0], RequestEnd::Answered, at(20));
    assert_eq!(gate.status(at(21)).held, Some(HoldReason::RateLimit));
}

#[test]
fn a_session_that_fails_again_and_again_is_no_outage_while_others_are_answered() {
    let mut gate = gate();
    for session in 0..10 {
        let (ticket, _) = ask(&mut gate, session, at(0));
        gate.finish(ticket, RequestEnd::Answered, at(0));
    }
    for attempt in 0..20 {
        let now = at(attempt * 1000);
        let (ticket, is_granted) = ask(&mut gate, 99, now);
        assert!(is_granted, "{attempt}");
        fail(&mut gate, ticket, &fault(Kind::ModelServerError), now);
    }
    for session in 100..108 {
        let (ticket, _) = ask(&mut gate, session, at(21_000));
        fail(&mut gate, ticket, &fault(Kind::ModelServerError), at(21_000));
    }
    assert_eq!(
        gate.status(at(21_000)).held,
        Some(HoldReason::Outage),
        "eight others failed at once"
    );
}

#[test]
fn an_answer_that_began_and_was_cut_is_no_outage() {
    let mut gate = gate();
    let cut = fault(Kind::ModelStreamCut).with(Fact::Position, 12);
    for session in 0..20 {
        let (ticket, is_granted) = ask(&mut gate, session, at(0));
        assert!(is_granted, "{session}");
        assert!(!fail(&mut gate, ticket, &cut, at(0)), "it is a try");
    }
    let unsent = fault(Kind::ModelStreamCut);
    for session in 20..30 {
        let (ticket, _) = ask(&mut gate, session, at(1));
        fail(&mut gate, ticket, &unsent, at(1));
    }
    assert_eq!(gate.status(at(1)).held, Some(HoldReason::Outage), "no byte came");
}

#[test]
fn a_hint_ends_in_time_though_the_clock_was_set_back() {
    let mut gate = gate();
    let hour = 3_600_000;
    let (ticket, _) = ask(&mut gate, 1, at(hour));
    let hint = Duration::from_secs(100);
    fail(&mut gate, ticket, &fault(Kind::ModelRateLimited).retry_after(hint), at(hour));
    gate.request(requester(2), at(0)).unwrap();
    let reports: Vec<_> = gate.advance(at(0));
    let Some(GateAction::Report(_, report)) = reports.first() else { panic!("{reports:?}") };
    assert_eq!(report.hint_until, Some(at(100_000)));
}

#[test]
fn after_an_outage_requests_start_slowly() {
    let mut gate = gate();
    bring_down(&mut gate, at(0));
    for session in 10..60 {
        ask(&mut gate, session, at(1));
    }
    let mut running = granted(&gate.advance(at(2000)));
    let mut sizes = Vec::new();
    for round in 0..5 {
        sizes.push(running.len());
        let now = at(3000 + round * 100);
        let mut next = Vec::new();
        for ticket in running {
            gate.finish(ticket, RequestEnd::Answered, now);
            next.extend(granted(&gate.advance(now)));
        }
        running = next;
    }
    assert_eq!(sizes, [1, 2, 4, 8, 16]);
}

#[test]
fn a_probe_that_is_abandoned_lets_the_next_one_through() {
    let mut gate = gate();
    bring_down(&mut gate, at(0));
    let (probe, _) = ask(&mut gate, 10, at(1));
    ask(&mut gate, 11, at(1));
    assert_eq!(granted(&gate.advance(at(2000))), [probe]);
    gate.finish(probe, RequestEnd::Abandoned, at(2500));
    assert_eq!(granted(&gate.advance(at(2500))).len(), 1);
}

#[test]
fn a_fault_of_the_request_shows_that_the_service_works() {
    let mut gate = gate();
    bring_down(&mut gate, at(0));
    let (probe, _) = ask(&mut gate, 10, at(1));
    gate.advance(at(2000));
    assert!(!fail(&mut gate, probe, &fault(Kind::ModelBadRequest), at(2100)), "it was a try");
    assert_eq!(gate.status(at(2100)).held, None);
}

#[test]
fn half_of_the_requests_failing_is_no_outage() {
    let mut gate = gate();
    for session in 0..400 {
        let now = at(i64::try_from(session).unwrap() * 500);
        let (ticket, is_granted) = ask(&mut gate, session, now);
        assert!(is_granted, "{session}");
        match session % 2 {
            0 => gate.finish(ticket, RequestEnd::Answered, now),
            _ => fail(&mut gate, ticket, &fault(Kind::ModelServerError), now),
        };
    }
}

#[test]
fn overload_and_time_outs_shrink_the_number_of_requests_in_flight() {
    for kind in [Kind::ModelOverloaded, Kind::ModelFirstTokenTimeout] {
        let mut gate = gate();
        let mut running = Vec::new();
        for session in 0..64 {
            running.push(ask(&mut gate, session, at(0)).0);
        }
        for tick in 1..6 {
            gate.advance(at(tick * 100));
        }
        assert_eq!(gate.status(at(600)).in_flight, 64, "the limit grew with time");
        fail(&mut gate, running[0], &fault(kind), at(600));
        let limit = gate.status(at(600)).limit;
        assert_eq!(limit, 44);
        fail(&mut gate, running[1], &fault(kind), at(601));
        assert_eq!(gate.status(at(601)).limit, limit, "one burst shrinks it once");
        assert!(!ask(&mut gate, 99, at(602)).1);
    }
}

#[test]
fn a_gate_that_knows_no_trouble_lets_a_crowd_through_within_a_second() {
    let mut gate = gate();
    for session in 0..1000 {
        ask(&mut gate, session, at(0));
    }
    let (mut now, mut wakes) = (at(0), 0);
    while gate.status(now).waiting > 0 {
        now = gate.next_wake(now).unwrap();
        gate.advance(now);
        wakes += 1;
    }
    assert!(now <= at(1000) && wakes <= 10, "{now} after {wakes} wake-ups");
}

#[test]
fn tenants_share_the_grants_however_many_sessions_each_has() {
    let mut gate = gate();
    bring_down(&mut gate, at(0));
    let mut tenants = BTreeMap::new();
    for session in 0..100_u128 {
        let tenant = if session < 90 { "large" } else { "small" };
        let requester = Requester { tenant: tenant.into(), ..requester(1000 + session) };
        tenants.insert(gate.request(requester, at(1)).unwrap(), tenant);
    }
    let first: Vec<_> = serve(&mut gate, 20).iter().map(|ticket| tenants[ticket]).collect();
    assert_eq!(first.iter().filter(|tenant| **tenant == "small").count(), 10, "{first:?}");
}

#[test]
fn sessions_share_the_grants_of_their_tenant() {
    let mut gate = gate();
    bring_down(&mut gate, at(0));
    let mut sessions = BTreeMap::new();
    for request in 0..50_u128 {
        let session = if request < 40 { 7 } else { 1000 + request };
        sessions.insert(gate.request(requester(session), at(1)).unwrap(), session);
    }
    let first: Vec<_> = serve(&mut gate, 11).iter().map(|ticket| sessions[ticket]).collect();
    assert_eq!(first.iter().filter(|session| **session == 7).count(), 1, "{first:?}");
}

#[test]
fn interactive_requests_come_first_and_background_work_gets_a_tenth() {
    let mut gate = gate();
    bring_down(&mut gate, at(0));
    let mut background = BTreeSet::new();
    for session in 0..200_u128 {
        let ticket = match session % 2 {
            0 => gate.request(requester(1000 + session), at(1)).unwrap(),
            _ => {
                let priority = Priority::Background;
                let requester = Requester { priority, ..requester(1000 + session) };
                let ticket = gate.request(requester, at(1)).unwrap();
                background.insert(ticket);
                ticket
            }
        };
        assert!(ticket.0 > 0);
    }
    let first = serve(&mut gate, 100);
    assert_eq!(first.iter().filter(|ticket| background.contains(ticket)).count(), 10);
}

/// Lets the service recover and answer `count` requests one by one; returns the order of the grants.
fn serve(gate: &mut Gate, count: usize) -> Vec<Ticket> {
    let mut order = granted(&gate.advance(at(600_000)));
    let mut next = 0;
    while order.len() < count {
        gate.finish(order[next], RequestEnd::Answered, at(600_000));
        next += 1;
        order.extend(granted(&gate.advance(at(600_000))));
    }
    order.truncate(count);
    order
}

#[test]
fn a_bound_on_what_waits_is_named() {
    let mut gate = Gate::new(GateConfig { waiting: 3, ..GateConfig::default() });
    bring_down(&mut gate, at(0));
    for session in 0..3 {
        gate.request(requester(session), at(1)).unwrap();
    }
    assert_eq!(gate.request(requester(4), at(1)), Err(Refusal::Full(3)));
}

#[test]
fn a_request_that_never_waits_is_refused_only_while_the_gate_is_shut() {
    let mut gate = gate();
    let never = Requester { willingness: Willingness::Never, ..requester(1) };
    for _ in 0..20 {
        gate.request(never.clone(), at(0)).unwrap();
    }
    assert_eq!(granted(&gate.advance(at(0))).len(), 20);
    let limited = fault(Kind::ModelRateLimited).retry_after(secs(9));
    fail(&mut gate, Ticket(1), &limited, at(10));
    let Err(Refusal::Shut(report)) = gate.request(never, at(20)) else { panic!("refused") };
    assert_eq!(report.fault.unwrap().kind(), Kind::ModelRateLimited);
    assert_eq!(report.until, Some(at(9010)));
}

#[test]
fn a_request_that_waits_only_while_the_gate_is_open_is_refused_when_it_shuts() {
    let mut gate = gate();
    let running: Vec<_> = (0..8).map(|session| ask(&mut gate, session, at(0)).0).collect();
    let willingness = Willingness::WhileOpen;
    let ticket = gate.request(Requester { willingness, ..requester(9) }, at(1)).unwrap();
    assert!(gate.advance(at(1)).is_empty());
    fail(&mut gate, running[7], &fault(Kind::ModelRateLimited).retry_after(secs(9)), at(10));
    let actions = gate.advance(at(10));
    assert!(
        matches!(actions[..], [GateAction::Refuse(refused, _)] if refused == ticket),
        "{actions:?}"
    );
    assert_eq!(gate.status(at(10)).waiting, 0);
}

#[test]
fn a_wait_is_reported_once_it_is_long_and_then_less_and_less_often() {
    let mut gate = gate_with_late_probe();
    bring_down(&mut gate, at(0));
    for session in 10..70 {
        gate.request(requester(session), at(1)).unwrap();
    }
    let priority = Priority::Background;
    let hidden = gate.request(Requester { priority, ..requester(70) }, at(1)).unwrap();
    let (mut now, mut reports, mut of_hidden) = (at(1), Vec::new(), 0);
    while now < at(900_000) {
        for action in gate.advance(now) {
            match action {
                GateAction::Report(ticket, report) => {
                    of_hidden += usize::from(ticket == hidden);
                    reports.push((now, ticket, report.before));
                }
                GateAction::Grant(probe) => {
                    fail(&mut gate, probe, &fault(Kind::ConnectionRefused), now);
                    gate.request(requester(10), now).unwrap();
                }
                GateAction::Refuse(..) => panic!("all of them wait"),
            }
        }
        now = gate.next_wake(now).unwrap();
    }
    let first: Vec<_> = reports.iter().take(4).map(|(at, _, before)| (*at, *before)).collect();
    assert_eq!(first, [(at(1), 0), (at(1), 1), (at(1), 2), (at(1), 3)]);
    assert_eq!(of_hidden, 1, "nobody reads further reports about background work");
    let of_one = reports.iter().filter(|(_, ticket, _)| *ticket == reports[55].1).count();
    assert!((6..=12).contains(&of_one), "{of_one} reports in 15 minutes");
}

#[test]
fn a_withdrawn_request_leaves_nothing_behind() {
    let mut gate = gate();
    bring_down(&mut gate, at(0));
    for session in 0..10_000 {
        let ticket = gate.request(requester(session), at(1)).unwrap();
        gate.withdraw(ticket);
    }
    gate.advance(at(2));
    assert_eq!((gate.waiting.len(), gate.reports.len(), gate.queue.len()), (0, 0, 0));
    assert_eq!(gate.next_wake(at(2)), None, "nothing is due while nothing waits");
}

#[test]
fn a_clock_that_is_set_back_does_not_keep_the_gate_shut() {
    let mut gate = gate();
    let (first, _) = ask(&mut gate, 1, at(86_400_000));
    let limited = fault(Kind::ModelRateLimited).retry_after(secs(5));
    fail(&mut gate, first, &limited, at(86_400_000));
    let (second, _) = ask(&mut gate, 2, at(0));
    let next = gate.next_wake(at(0)).unwrap();
    assert!(next <= at(600_000), "{next}");
    assert_eq!(granted(&gate.advance(at(600_000))), [second]);
}

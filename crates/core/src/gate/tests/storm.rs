//! Runs sessions and a simulated service against a gate: how many are answered, at what cost, how soon.

use proptest::prelude::*;

use super::*;
use crate::retry::RetryPolicy;

/// What a service does with a request at a time, in milliseconds.
enum Reply {
    Answer { after: i64 },
    Fail { after: i64, fault: Fault },
}

/// A service, by its rule.
trait Service {
    fn reply(&mut self, now: i64) -> Reply;
}

impl<F: FnMut(i64) -> Reply> Service for F {
    fn reply(&mut self, now: i64) -> Reply {
        self(now)
    }
}

/// The outcome of a storm.
#[derive(Debug, Default)]
struct Storm {
    answered: usize,
    requests: usize,
    millis: i64,
    wakes: usize,
    /// The most failed tries that one session made.
    tries: u32,
}

enum Event {
    Ask { session: u128, tries: u32 },
    End { session: u128, tries: u32, ticket: Ticket, fault: Option<Fault> },
    Wake,
}

struct Run<'a> {
    gate: Gate,
    service: &'a mut dyn Service,
    events: BTreeMap<(i64, u64), Event>,
    serial: u64,
    waiting: BTreeMap<Ticket, (u128, u32)>,
    storm: Storm,
    random: u64,
}

/// Runs `sessions` that all ask at once until all are answered or ten simulated hours have passed.
fn run(sessions: u128, seed: u64, service: &mut dyn Service) -> Storm {
    let gate = Gate::new(GateConfig::default());
    let (events, waiting) = (BTreeMap::new(), BTreeMap::new());
    let storm = Storm::default();
    let mut run = Run { gate, service, events, serial: 0, waiting, storm, random: seed };
    for session in 0..sessions {
        run.plan(0, Event::Ask { session, tries: 0 });
    }
    while let Some(((now, _), event)) = run.events.pop_first() {
        if now > 36_000_000 {
            break;
        }
        run.storm.millis = now;
        run.happen(now, event);
        if run.storm.answered as u128 == sessions {
            break;
        }
    }
    run.storm
}

impl Run<'_> {
    fn plan(&mut self, millis: i64, event: Event) {
        self.serial += 1;
        self.events.insert((millis, self.serial), event);
    }

    fn happen(&mut self, now: i64, event: Event) {
        match event {
            Event::Ask { session, tries } => {
                let ticket = self.gate.request(requester(session), at(now));
                self.waiting.insert(ticket.unwrap(), (session, tries));
            }
            Event::End { session, tries, ticket, fault } => {
                self.ended(now, session, tries, ticket, fault);
            }
            Event::Wake => self.storm.wakes += 1,
        }
        for action in self.gate.advance(at(now)) {
            if let GateAction::Grant(ticket) = action {
                let (session, tries) = self.waiting.remove(&ticket).unwrap();
                self.storm.requests += 1;
                let (after, fault) = match self.service.reply(now) {
                    Reply::Answer { after } => (after, None),
                    Reply::Fail { after, fault } => (after, Some(fault)),
                };
                self.plan(now + after.max(1), Event::End { session, tries, ticket, fault });
            }
        }
        self.events.retain(|_, event| !matches!(event, Event::Wake));
        if let Some(next) = self.gate.next_wake(at(now)) {
            let millis = (next.as_micros() - at(0).as_micros() + 999) / 1000;
            self.plan(millis.max(now + 1), Event::Wake);
        }
    }

    fn ended(&mut self, now: i64, session: u128, tries: u32, ticket: Ticket, fault: Option<Fault>) {
        let Some(fault) = fault else {
            self.gate.finish(ticket, RequestEnd::Answered, at(now));
            self.storm.answered += 1;
            return;
        };
        if self.gate.finish(ticket, RequestEnd::Failed(&fault), at(now)) {
            return self.plan(now, Event::Ask { session, tries });
        }
        let tries = tries + 1;
        self.storm.tries = self.storm.tries.max(tries);
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let jitter = f64::from((self.random >> 33) as u32) / f64::from(1_u32 << 30) - 1.0;
        let delay = RetryPolicy::default().delay(tries.min(4), jitter);
        let delay = delay.max(fault.retry_hint().unwrap_or_default());
        self.plan(now + delay.as_millis() as i64, Event::Ask { session, tries });
    }
}

/// Takes `per_second` requests in any second, else 429 with a hint of a second.
fn limited(per_second: usize, latency: i64) -> impl FnMut(i64) -> Reply {
    let mut taken: Vec<i64> = Vec::new();
    move |now| {
        taken.retain(|at| now - at < 1000);
        if taken.len() < per_second {
            taken.push(now);
            return Reply::Answer { after: latency };
        }
        Reply::Fail { after: 5, fault: fault(Kind::ModelRateLimited).retry_after(secs(1)) }
    }
}

/// Fails with 503 until `until`, then answers.
fn down_until(until: i64) -> impl FnMut(i64) -> Reply {
    move |now| match now < until {
        true => Reply::Fail { after: 5, fault: fault(Kind::ModelServerError) },
        false => Reply::Answer { after: 50 },
    }
}

#[test]
fn a_rate_limit_costs_few_requests_and_little_time() {
    for (sessions, per_second, latency) in
        [(100, 5, 50), (1000, 20, 200), (1000, 20, 2000), (1000, 50, 10)]
    {
        let storm = run(sessions, 1, &mut limited(per_second, latency));
        let best = (sessions as i64 / per_second as i64 - 1) * 1000 + latency;
        let (requests, time) =
            (storm.requests as f64 / sessions as f64, storm.millis as f64 / best as f64);
        let case = format!(
            "{sessions} at {per_second}/s, {latency} ms: {requests:.3} {time:.3} {storm:?}"
        );
        assert_eq!(storm.answered as u128, sessions, "{case}");
        assert!(requests <= 1.15, "{case}");
        assert!(time <= 1.25, "{case}");
    }
}

#[test]
fn one_request_a_second_is_learnt_from_the_first_answers() {
    let storm = run(100, 1, &mut limited(1, 50));
    assert_eq!(storm.answered, 100);
    assert!(storm.requests <= 130 && storm.millis <= 140_000, "{storm:?}");
}

#[test]
fn an_outage_costs_few_requests_and_little_time() {
    for outage in [10_000, 45_000, 60_000, 300_000] {
        let storm = run(50, 1, &mut down_until(outage));
        let time = storm.millis as f64 / outage as f64;
        assert_eq!(storm.answered, 50, "{storm:?}");
        assert!(storm.requests <= 50 + 8 + 26, "{outage}: {storm:?}");
        assert!(outage != 45_000 || storm.requests <= 72, "{storm:?}");
        assert!(time <= 1.30, "{outage}: {time:.3} {storm:?}");
    }
}

#[test]
fn a_hint_of_a_minute_is_waited_for_by_all() {
    let mut service = |now: i64| match now < 60_000 {
        true => {
            let left = Duration::from_millis((60_000 - now) as u64);
            Reply::Fail { after: 5, fault: fault(Kind::ModelRateLimited).retry_after(left) }
        }
        false => Reply::Answer { after: 50 },
    };
    let storm = run(50, 1, &mut service);
    assert_eq!(storm.answered, 50);
    assert!(storm.requests <= 58 && storm.millis <= 66_000, "{storm:?}");
}

#[test]
fn requests_that_fail_by_chance_are_all_answered() {
    for seed in 0..50 {
        let mut random = seed;
        let mut service = |_| {
            random = random_after(random);
            match random >> 62 {
                0 => Reply::Fail { after: 5, fault: fault(Kind::ModelServerError) },
                1 => Reply::Fail { after: 5, fault: fault(Kind::ModelOverloaded) },
                _ => Reply::Answer { after: 50 },
            }
        };
        let storm = run(50, seed, &mut service);
        assert_eq!(storm.answered, 50, "seed {seed}: {storm:?}");
        assert!(storm.requests <= 150 && storm.millis <= 120_000, "seed {seed}: {storm:?}");
    }
}

#[test]
fn a_service_that_takes_few_requests_at_a_time_is_not_asked_for_more() {
    // At most three at a time, each for a second; a further one is refused as overloaded.
    let mut ends: Vec<i64> = Vec::new();
    let mut service = |now: i64| {
        ends.retain(|end| *end > now);
        if ends.len() < 3 {
            ends.push(now + 1000);
            return Reply::Answer { after: 1000 };
        }
        Reply::Fail { after: 5, fault: fault(Kind::ModelOverloaded) }
    };
    let storm = run(60, 1, &mut service);
    assert_eq!(storm.answered, 60);
    assert!(storm.requests <= 90 && storm.millis <= 32_000, "{storm:?}");
}

#[test]
fn with_a_thousand_waiting_sessions_only_the_probe_wakes() {
    let storm = run(1000, 1, &mut down_until(300_000));
    assert_eq!(storm.answered, 1000);
    assert!(storm.wakes < 200, "{storm:?}");
}

fn random_after(random: u64) -> u64 {
    random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Whatever a service does for a while, every session is answered once it works.
    #[test]
    fn every_wait_ends(seed: u64, sessions in 1..80_u128, trouble in 1..600_i64, hints: bool) {
        let mut random = seed;
        let mut service = |now: i64| {
            random = random_after(random);
            if now > trouble * 1000 {
                return Reply::Answer { after: 20 };
            }
            let kind = match (random >> 33) % 7 {
                0 => Kind::ModelRateLimited,
                1 => Kind::ModelOverloaded,
                2 => Kind::ModelServerError,
                3 => Kind::ModelFirstTokenTimeout,
                4 => Kind::ConnectionRefused,
                5 => Kind::ModelStreamCut,
                _ => return Reply::Answer { after: (random >> 50) as i64 },
            };
            let hint = Duration::from_millis((random >> 40) % 3_000_000);
            let fault = if hints { fault(kind).retry_after(hint) } else { fault(kind) };
            Reply::Fail { after: (random >> 52) as i64, fault }
        };
        let storm = run(sessions, seed, &mut service);
        prop_assert_eq!(storm.answered as u128, sessions, "seed {}: {:?}", seed, storm);
    }

    /// The same inputs give the same actions.
    #[test]
    fn a_gate_is_deterministic(seed: u64) {
        let once = || format!("{:?}", run(30, seed, &mut limited(7, 30)));
        prop_assert_eq!(once(), once());
    }
}

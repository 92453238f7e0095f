//! Many sessions and model services in trouble, with one process that is killed and started again. Every turn that can
//! finish does, no service is asked much more often than it must be, and nobody is left behind.

mod service;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use budao_core::{
    engine::{Engine as _, SessionOptions},
    event::{CommandBody, Event, Record, SessionId, Settings, StopReason},
    message::Block,
};
use rand::RngExt as _;
use tokio::task::JoinSet;

use crate::{
    laws,
    people::{Answers, command, send},
    play::{SimResult, gather, machine},
    process::Machine,
    script::{Script, ScriptAction, pick},
    world::chance,
};
pub(crate) use service::Services;
use service::{Hint, KeyedService, LoggedRequest};

/// Virtual time within which all turns must end: more than the patience of the eight turns that a session has at most.
const REST: Duration = Duration::from_secs(3 * 3600);
/// Kills of the process, at most.
const KILLS: usize = 2;
/// Requests that a service may refuse beyond a fifth of its answers: those that find the limit out. Without a hint that
/// takes more of them.
const REFUSED_FREE: usize = 14;
const REFUSED_FREE_WITHOUT_HINT: usize = 24;
/// Answers to another session that come before the first request of a session at most.
const OVERTAKEN_MOST: usize = 3;

/// Plays the seed of a script; of its steps only the first kills.
pub(crate) async fn play(script: &Script) -> SimResult {
    let machine = machine(script);
    let services = machine.services.clone().expect("the script is of this world");
    services.observe(&machine);
    machine.start(0);
    let world = ServicesWorld { machine, services, sessions: Vec::new(), began: Vec::new() };
    world.play(script).await
}

struct ServicesWorld {
    machine: Arc<Machine>,
    services: Arc<Services>,
    sessions: Vec<SessionId>,
    /// When each session sent its first message.
    began: Vec<Duration>,
}

impl ServicesWorld {
    async fn play(mut self, script: &Script) -> SimResult {
        let mut dice = chance(script.seed, "crowd");
        for index in 0..dice.random_range(2..=40) {
            self.open(index).await;
        }
        let answers = Answers::default();
        let mut doing = JoinSet::new();
        for index in 0..self.sessions.len() {
            let turns = *pick(&mut dice, &[1, 1, 2, 8]);
            let after = Duration::from_millis(dice.random_range(0..3_000));
            self.began.push(self.machine.clock.elapsed() + after);
            doing.spawn(talk(
                Arc::clone(&self.machine),
                answers.clone(),
                self.sessions[index],
                index,
                turns,
                after,
            ));
        }
        let kills = script.steps.iter().filter_map(|step| match step.what {
            ScriptAction::Kill { away_ms, .. } => Some((step.at_ms, away_ms)),
            _ => None,
        });
        let mut killed = Vec::new();
        for (at_ms, away_ms) in kills.take(KILLS) {
            let due = Duration::from_millis(at_ms);
            tokio::time::sleep(due.saturating_sub(self.machine.clock.elapsed())).await;
            self.machine.kill(0);
            killed.push(self.machine.clock.elapsed());
            tokio::time::sleep(Duration::from_millis(away_ms)).await;
            self.machine.start(0);
        }
        while doing.join_next().await.is_some() {}
        self.rest().await;
        self.look_back(script, &killed).await
    }

    async fn open(&mut self, index: usize) {
        let model = (index % self.services.all.len()).to_string();
        let settings = Settings { model, ..Settings::default() };
        let opening = SessionOptions { settings, ..SessionOptions::default() };
        let opened = self.machine.ask(0, |runtime| async move { runtime.open(opening).await });
        let session = opened.await.expect("nobody is killed yet").expect("a session opens");
        self.sessions.push(session);
    }

    /// Waits until every turn has ended.
    async fn rest(&self) {
        let deadline = self.machine.clock.elapsed() + REST;
        loop {
            let unfinished =
                budao_journal::Reader::unfinished(self.machine.disk.durable(), None, 1).await;
            let Some(first) = unfinished.unwrap_or_default().first().map(|it| format!("{it:?}"))
            else {
                return;
            };
            if self.machine.clock.elapsed() > deadline {
                return self.machine.violations.add("every wait ends", || first);
            }
            tokio::time::sleep(Duration::from_secs(5)).await;
        }
    }

    async fn look_back(self, script: &Script, killed: &[Duration]) -> SimResult {
        let violations = &self.machine.violations;
        let (played, histories) = gather(&self.machine, script).await;
        for history in histories.values() {
            laws::of_session(history, &self.machine.limits, violations);
        }
        for (index, session) in self.sessions.iter().enumerate() {
            let service = &self.services.all[index % self.services.all.len()];
            if let Some(history) = histories.get(session) {
                self.all_answered(service, history);
            }
        }
        for service in &self.services.all {
            let log = service.log();
            self.requests_are_few(service, &log, killed);
            self.probes_cost_no_try(&log, &histories);
            self.nobody_starves(service, &log, killed);
        }
        SimResult { violations: violations.all(), ..played }
    }

    /// Every turn is answered, unless its service never answers.
    fn all_answered(&self, service: &KeyedService, history: &[Record]) {
        for record in history {
            let Event::TurnEnded { stop, fault, .. } = &record.event else { continue };
            let holds = *stop == StopReason::EndTurn || service.nature.is_gone;
            self.machine.violations.expect(
                holds,
                "a turn does not fail while its service answers others",
                || {
                    format!(
                        "{} turn {}: {stop:?} {fault:?}; {service:?}",
                        record.session, record.turn
                    )
                },
            );
        }
    }

    /// A service that is known to be limited is asked little more often than it answers, and not before it wants to be.
    fn requests_are_few(&self, service: &KeyedService, log: &[LoggedRequest], killed: &[Duration]) {
        let violations = &self.machine.violations;
        let early = log.iter().filter(|request| request.is_early);
        // What a killed process had not written down is lost, and some requests find it out again.
        let early = early.filter(|request| killed.iter().all(|at| request.from < *at)).count();
        violations.expect(
            early == 0,
            "no request comes before the time that a service named",
            || format!("{early} of {}; {service:?}", log.len()),
        );
        if !service.nature.is_only_limited() || service.nature.hint == Hint::Short {
            return;
        }
        let refused = log.iter().filter(|request| request.is_refused).count();
        let answered = log.iter().filter(|request| request.is_answered).count();
        let free = match service.nature.hint {
            Hint::Absent => REFUSED_FREE_WITHOUT_HINT,
            _ => REFUSED_FREE,
        };
        let most = answered / 5 + free * (1 + killed.len());
        violations.expect(
            refused <= most,
            "a limited service is asked little more than it answers",
            || format!("{refused} refused, {answered} answered; {service:?}"),
        );
    }

    /// A probe that fails is recorded as no failure of its session.
    fn probes_cost_no_try(
        &self,
        log: &[LoggedRequest],
        histories: &BTreeMap<SessionId, Vec<Record>>,
    ) {
        let failed = log.iter().filter(|request| request.is_probe && !request.is_answered);
        for probe in failed {
            let history = self.sessions.get(probe.session).and_then(|id| histories.get(id));
            let start = history.and_then(|history| history.first()).map(|record| record.at);
            let (Some(history), Some(start)) = (history, start) else { continue };
            let is_try = history.iter().any(|record| {
                let since = record.at.since(start);
                matches!(record.event, Event::FaultRaised { .. })
                    && since.abs_diff(probe.until) < Duration::from_millis(2)
            });
            self.machine.violations.expect(
                !is_try,
                "a failed probe costs its session no try",
                || format!("{probe:?}"),
            );
        }
    }

    /// While the first request of a session waits and has no trouble of its own, the others are not served again and
    /// again.
    fn nobody_starves(&self, service: &KeyedService, log: &[LoggedRequest], killed: &[Duration]) {
        if !killed.is_empty() {
            return;
        }
        let mut seen = BTreeSet::new();
        for request in log.iter().filter(|request| request.turn == 0) {
            // Only the first attempt: a later one waits for its own retry, too.
            let Some(began) =
                self.began.get(request.session).filter(|_| seen.insert(request.session))
            else {
                continue;
            };
            let meanwhile = log
                .iter()
                .filter(|other| other.is_answered && (*began..request.from).contains(&other.from));
            let mut served: BTreeMap<usize, usize> = BTreeMap::new();
            meanwhile.for_each(|other| *served.entry(other.session).or_default() += 1);
            let most = served.values().copied().max().unwrap_or_default();
            self.machine.violations.expect(most <= OVERTAKEN_MOST, "no session starves", || {
                format!("{request:?} after {most} answers to another; {service:?}")
            });
        }
    }
}

/// Sends the messages of one session, all at once.
async fn talk(
    machine: Arc<Machine>,
    answers: Answers,
    session: SessionId,
    index: usize,
    turns: usize,
    after: Duration,
) {
    tokio::time::sleep(after).await;
    for turn in 0..turns {
        let content = vec![Block::Text(format!("{index}.{turn}"))];
        let say = command(format!("say-{index}-{turn}"), CommandBody::Message { content });
        send(&machine, &answers, session, say, 0).await;
    }
}

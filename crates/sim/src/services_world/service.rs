//! Model services in trouble: a capacity, outages, brown-outs, rate limits with right, wrong and no hints, slow answers,
//! limits for each key. Everything about a service follows from the seed.

use std::{
    collections::VecDeque,
    fmt,
    sync::{Arc, Mutex, OnceLock, Weak},
    time::Duration,
};

use async_trait::async_trait;
use budao_core::{
    engine::Engine as _,
    fault::{Fact, Fault, Kind, Operation},
    gate::{GateKey, GateStatus},
    message::{Block, Message, ModelRequest, ModelStop, Piece, Usage, text_of},
    world::Clock as _,
};
use budao_models::{Model, PieceStream};
use budao_runtime::ModelSource;
use futures::{StreamExt as _, stream};
use rand::{RngExt as _, rngs::StdRng};

use crate::{
    process::Machine,
    script::pick,
    world::{SimClock, chance},
};

/// What a service says about the time when it wants requests again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hint {
    Absent,
    /// The time at which the service admits requests again.
    Right,
    /// A tenth of that time.
    Short,
    /// Twenty seconds more than that time.
    Long,
}

/// A time in which a service is in trouble.
#[derive(Clone, Copy, Debug)]
struct Trouble {
    from: Duration,
    until: Duration,
    /// The share of requests that fail; 1 in an outage.
    share: f64,
    kind: Kind,
}

/// The nature of one service.
#[derive(Clone, Debug)]
pub(super) struct ServiceNature {
    /// Requests in ten seconds that are accepted for each key; absent for no limit.
    pub(super) per_window: Option<usize>,
    pub(super) hint: Hint,
    troubles: Vec<Trouble>,
    latency: Duration,
    /// Fails every request for ever.
    pub(super) is_gone: bool,
}

/// The time in which a service counts requests.
const WINDOW: Duration = Duration::from_secs(10);
/// The longest time that a refusal takes.
const REFUSAL: Duration = Duration::from_millis(100);

impl ServiceNature {
    fn new(dice: &mut StdRng, may_be_gone: bool) -> Self {
        let mut at = Duration::ZERO;
        let count = *pick(dice, &[0, 0, 1, 1, 3]);
        let troubles = (0..count).map(|_| {
            at += Duration::from_secs(dice.random_range(0..30));
            let from = at;
            at += Duration::from_secs(*pick(dice, &[1, 10, 45, 120]));
            let kind = *pick(
                dice,
                &[Kind::ModelServerError, Kind::ConnectionRefused, Kind::ModelOverloaded],
            );
            Trouble { from, until: at, share: *pick(dice, &[0.25, 0.5, 1.0, 1.0]), kind }
        });
        Self {
            troubles: troubles.collect(),
            per_window: *pick(dice, &[None, Some(20), Some(50), Some(150)]),
            hint: *pick(dice, &[Hint::Absent, Hint::Right, Hint::Right, Hint::Short, Hint::Long]),
            latency: Duration::from_millis(*pick(dice, &[5, 200, 200, 2_500])),
            is_gone: may_be_gone && dice.random_bool(0.3),
        }
    }

    /// Whether nothing but the capacity makes requests fail.
    pub(super) fn is_only_limited(&self) -> bool {
        self.troubles.is_empty() && !self.is_gone
    }
}

/// One request, as its service saw it.
#[derive(Clone, Debug)]
pub(super) struct LoggedRequest {
    /// The index of the session, and of its turn.
    pub(super) session: usize,
    pub(super) turn: usize,
    /// When the request came, and when its answer or fault was sent.
    pub(super) from: Duration,
    pub(super) until: Duration,
    pub(super) is_refused: bool,
    pub(super) is_answered: bool,
    /// The gate was shut: the request was a probe.
    pub(super) is_probe: bool,
    /// The request came before the time that a right hint had named.
    pub(super) is_early: bool,
}

/// A service with one of its keys: what one gate admits to.
pub(super) struct KeyedService {
    seed: u64,
    pub(super) endpoint: usize,
    key: usize,
    pub(super) nature: ServiceNature,
    clock: SimClock,
    machine: Arc<OnceLock<Weak<Machine>>>,
    state: Mutex<ServiceState>,
}

#[derive(Default)]
struct ServiceState {
    accepted: VecDeque<Duration>,
    /// Until when no request is wanted, and since when clients know.
    told: Option<(Duration, Duration)>,
    log: Vec<LoggedRequest>,
}

/// The outcome of a request, decided when it comes.
enum Verdict {
    Answer,
    Refuse(Option<Duration>),
    Fail(Kind),
}

impl fmt::Debug for KeyedService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "service {} with key {}: {:?}", self.endpoint, self.key, self.nature)
    }
}

impl KeyedService {
    pub(super) fn log(&self) -> Vec<LoggedRequest> {
        self.state.lock().expect("nobody panics with it").log.clone()
    }

    /// Decides on a request and logs it.
    fn decide(&self, session: usize, turn: usize) -> Verdict {
        let now = self.clock.elapsed();
        let is_probe = self.is_held();
        let mut state = self.state.lock().expect("nobody panics with it");
        let number = state.log.len();
        let name = format!("service {} {} {number}", self.endpoint, self.key);
        let verdict = self.verdict(&mut state, now, &mut chance(self.seed, &name));
        let is_early = state.told.is_some_and(|(since, until)| since < now && now < until);
        if let (Verdict::Refuse(Some(wait)), Hint::Right) = (&verdict, self.nature.hint) {
            let since = now + self.latency(&verdict);
            state.told = Some((since, since + *wait));
        }
        let (is_refused, is_answered) =
            (matches!(verdict, Verdict::Refuse(_)), matches!(verdict, Verdict::Answer));
        let until = now + self.latency(&verdict);
        state.log.push(LoggedRequest {
            session,
            turn,
            from: now,
            until,
            is_refused,
            is_answered,
            is_probe,
            is_early,
        });
        verdict
    }

    /// A refusal comes soon, however slow the answers are.
    fn latency(&self, verdict: &Verdict) -> Duration {
        match verdict {
            Verdict::Refuse(_) => self.nature.latency.min(REFUSAL),
            Verdict::Answer | Verdict::Fail(_) => self.nature.latency,
        }
    }

    fn verdict(&self, state: &mut ServiceState, now: Duration, dice: &mut StdRng) -> Verdict {
        if self.nature.is_gone {
            return Verdict::Fail(Kind::ConnectionRefused);
        }
        let trouble = self.nature.troubles.iter().find(|one| (one.from..one.until).contains(&now));
        if let Some(trouble) = trouble.filter(|trouble| dice.random_bool(trouble.share)) {
            return Verdict::Fail(trouble.kind);
        }
        while state.accepted.front().is_some_and(|at| *at + WINDOW <= now) {
            state.accepted.pop_front();
        }
        if self.nature.per_window.is_some_and(|most| state.accepted.len() >= most) {
            let opens = state.accepted.front().map_or(WINDOW, |at| *at + WINDOW - now);
            return Verdict::Refuse(match self.nature.hint {
                Hint::Absent => None,
                Hint::Right => Some(opens),
                Hint::Short => Some(opens / 10),
                Hint::Long => Some(opens + Duration::from_secs(20)),
            });
        }
        state.accepted.push_back(now);
        Verdict::Answer
    }

    /// Whether the gate of the running process was shut before this request was granted, so that it is a probe.
    fn is_held(&self) -> bool {
        let now = self.clock.now();
        let is_shut = |gate: &GateStatus| {
            gate.since.is_some_and(|since| now.since(since) > Duration::from_millis(100))
        };
        let machine = self.machine.get().and_then(Weak::upgrade);
        let process = machine.and_then(|machine| machine.own(0));
        let gates = process.map(|process| process.runtime.gates()).unwrap_or_default();
        gates.iter().any(|(key, gate)| *key == self.gate_key() && is_shut(gate))
    }

    fn fault(&self, kind: Kind) -> Fault {
        Fault::new(kind, Operation::ModelRequest)
            .with(Fact::Service, self.provider().to_owned())
            .with(Fact::Model, self.name().to_owned())
    }
}

#[async_trait]
impl Model for KeyedService {
    fn provider(&self) -> &str {
        "service"
    }

    fn name(&self) -> &str {
        "m"
    }

    fn gate_key(&self) -> GateKey {
        GateKey {
            endpoint: format!("http://{}", self.endpoint).into(),
            model: "m".into(),
            credential: self.key.to_string().into(),
        }
    }

    async fn stream(&self, request: ModelRequest) -> Result<PieceStream, Fault> {
        let (session, turn) = sender(&request.messages);
        let verdict = self.decide(session, turn);
        tokio::time::sleep(self.latency(&verdict)).await;
        match verdict {
            Verdict::Answer => Ok(answer()),
            Verdict::Fail(kind) => Err(self.fault(kind)),
            Verdict::Refuse(None) => Err(self.fault(Kind::ModelRateLimited)),
            Verdict::Refuse(Some(wait)) => {
                let fault = self.fault(Kind::ModelRateLimited);
                Err(fault.retry_after(wait).with(Fact::WaitMs, wait))
            }
        }
    }
}

/// The session and the turn of a request: the last message is `session.turn`.
fn sender(messages: &[Arc<Message>]) -> (usize, usize) {
    let text = messages.last().map(|message| text_of(&message.content)).unwrap_or_default();
    let mut numbers = text.split('.').filter_map(|number| number.trim().parse().ok());
    (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default())
}

fn answer() -> PieceStream {
    let text = "done".to_owned();
    let usage = Usage { input_tokens: 1, output_tokens: 1, ..Usage::default() };
    let end = Piece::End { stop: ModelStop::EndTurn, usage };
    stream::iter([Ok(Piece::Text(text.clone())), Ok(Piece::Block(Block::Text(text))), Ok(end)])
        .boxed()
}

/// All services of a script, each under `endpoint.key`.
#[derive(Debug)]
pub(crate) struct Services {
    pub(super) all: Vec<Arc<KeyedService>>,
    machine: Arc<OnceLock<Weak<Machine>>>,
}

impl Services {
    pub(crate) fn new(seed: u64, clock: &SimClock) -> Arc<Self> {
        let mut dice = chance(seed, "services");
        let machine = Arc::new(OnceLock::new());
        let (endpoints, keys) = (*pick(&mut dice, &[1, 1, 2]), *pick(&mut dice, &[1, 1, 2]));
        let mut all = Vec::new();
        for endpoint in 0..endpoints {
            let nature = ServiceNature::new(&mut dice, endpoint > 0);
            all.extend((0..keys).map(|key| {
                Arc::new(KeyedService {
                    seed,
                    endpoint,
                    key,
                    nature: nature.clone(),
                    clock: clock.clone(),
                    machine: Arc::clone(&machine),
                    state: Mutex::default(),
                })
            }));
        }
        Arc::new(Self { all, machine })
    }

    /// Lets the services see the gates of the processes.
    pub(super) fn observe(&self, machine: &Arc<Machine>) {
        let _ = self.machine.set(Arc::downgrade(machine));
    }
}

impl ModelSource for Services {
    fn model(&self, name: &str) -> Result<Arc<dyn Model>, Fault> {
        let index = name.parse::<usize>().unwrap_or_default() % self.all.len();
        Ok(Arc::clone(&self.all[index]) as _)
    }
}

//! What a session has spent, as its annotations say: reservations, costs, lost requests and raised caps.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{CapRaise, DayRaise, LedgerAmount, is_of_tokens};
use crate::{
    event::{Event, SessionId},
    message::Usage,
};

/// What a session has spent, in millionths of the currency.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Spending {
    /// All turns together.
    pub session: u64,
    /// The running turn, or the last one.
    pub turn: u64,
    /// The estimate of the request under way; 0 if there is none.
    pub reserved: LedgerAmount,
    /// Tokens of instructions and tools, as the engine measured them in its last request; 0 before.
    pub overhead_tokens: u64,
    /// The API key of the last request that was measured, named by a part of its hash; empty for none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub key: String,
    /// Estimated tokens of requests whose answers were lost, in all turns. No usage has them, and `session` has their cost.
    pub lost_tokens: u64,
    /// The part of `lost_tokens` that the turn lost.
    pub turn_lost_tokens: u64,
    /// The tokens of the running turn whose cost is in `turn`.
    pub priced: Usage,
    /// What child sessions spent: the part of `session`, with their tokens.
    pub children: LedgerAmount,
    /// What child sessions of the turn spent: the part of `turn`, with their tokens.
    pub turn_children: LedgerAmount,
    /// The child sessions of the turn whose cost is known. After a restart, a child reports its end again.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub known_children: Vec<SessionId>,
    /// What people added to the caps of the session.
    pub raised: LedgerAmount,
    /// What people added to the caps of the turn.
    pub turn_raised: LedgerAmount,
    /// What people of this session added to caps of the last day on which they did.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub day_raises: Vec<DayRaise>,
    /// The currency of the amounts; empty before the first one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub currency: String,
}

impl Spending {
    /// True before anything was counted.
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// Starts a turn.
    pub(crate) fn begin_turn(&mut self) {
        let currency = std::mem::take(&mut self.currency);
        let day_raises = std::mem::take(&mut self.day_raises);
        let key = std::mem::take(&mut self.key);
        let Self { session, overhead_tokens, lost_tokens, children, raised, .. } = *self;
        *self = Self {
            session,
            overhead_tokens,
            key,
            lost_tokens,
            children,
            raised,
            day_raises,
            currency,
            ..Self::default()
        };
    }

    /// Applies an annotation of [`TOPIC`](super::TOPIC).
    pub(crate) fn apply(&mut self, data: &Value) {
        if let Some(raise) = data.get("day_raise") {
            if let Ok(raise) = DayRaise::deserialize(raise) {
                self.day_raises.retain(|earlier| earlier.day == raise.day);
                self.day_raises.push(raise);
            }
        } else if let Some(more) = data["raised"].as_u64() {
            self.apply_raise(data["setting"].as_str().unwrap_or_default(), more);
        }
        if let Some(currency) = data["currency"].as_str().filter(|it| *it != self.currency) {
            currency.clone_into(&mut self.currency);
        }
        if let Ok(measure) = RequestMeasure::deserialize(data) {
            self.apply_measure(measure);
        } else if let Ok(usage) = Usage::deserialize(&data["usage"]) {
            self.apply_cost(data, usage);
        } else if data.get("reserved_tokens").is_some() {
            let [cost, tokens] = ["reserved", "reserved_tokens"].map(|key| number(data, key));
            self.reserved = LedgerAmount { cost, tokens };
        }
    }

    fn apply_measure(&mut self, measure: RequestMeasure) {
        self.overhead_tokens = measure.overhead_tokens;
        self.key = measure.key;
        if !self.reserved.is_zero() {
            self.reserved = self.reserved.plus(measure.more);
        }
    }

    fn apply_raise(&mut self, setting: &str, more: u64) {
        let raised = match setting.starts_with("turn") || setting == super::TURN_BUDGET {
            true => &mut self.turn_raised,
            false => &mut self.raised,
        };
        let sum = if is_of_tokens(setting) { &mut raised.tokens } else { &mut raised.cost };
        *sum = sum.saturating_add(more);
    }

    fn apply_cost(&mut self, data: &Value, usage: Usage) {
        let [cost, lost] = ["cost", "lost_tokens"].map(|key| number(data, key));
        match data.get("child").map(SessionId::deserialize) {
            None => self.reserved = LedgerAmount::default(),
            Some(Ok(child)) if self.known_children.contains(&child) => return,
            Some(child) => {
                self.known_children.extend(child);
                let spent =
                    LedgerAmount { cost, tokens: usage.total_tokens().saturating_add(lost) };
                self.children = self.children.plus(spent);
                self.turn_children = self.turn_children.plus(spent);
            }
        }
        self.session = self.session.saturating_add(cost);
        self.turn = self.turn.saturating_add(cost);
        self.lost_tokens = self.lost_tokens.saturating_add(lost);
        self.turn_lost_tokens = self.turn_lost_tokens.saturating_add(lost);
        self.priced += usage;
    }
}

fn number(data: &Value, key: &str) -> u64 {
    data[key].as_u64().unwrap_or_default()
}

/// What the engine found when it had put a request together. It is recorded if it differs from what the session knows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestMeasure {
    /// Tokens of instructions, tools and the schema of the answer.
    pub overhead_tokens: u64,
    /// The API key, named by a part of its hash; empty for none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub key: String,
    /// By how much the reservation of this request was too low.
    #[serde(default, skip_serializing_if = "LedgerAmount::is_zero")]
    pub more: LedgerAmount,
}

impl RequestMeasure {
    /// The annotation of a measure.
    #[must_use]
    pub fn annotation(&self) -> Event {
        let data = serde_json::to_value(self).expect("numbers and strings always serialise");
        Event::Annotated { topic: super::TOPIC.to_owned(), data }
    }
}

/// The annotation of a reservation. `currency`: that of a model with a price.
pub(crate) fn reservation(model: &str, reserved: LedgerAmount, currency: Option<&str>) -> Value {
    let mut data = json!({"model": model, "reserved_tokens": reserved.tokens});
    if let Some(currency) = currency {
        data["reserved"] = reserved.cost.into();
        data["currency"] = currency.into();
    }
    data
}

/// The annotation of what requests used. `cost`: in millionths and the currency, if the model has a price. `lost_tokens`:
/// estimated tokens of a request whose answer was lost. `is_estimate`: the service has not said what was used.
pub(crate) fn cost(
    (model, key): (&str, &str),
    cost: Option<(u64, &str)>,
    (usage, lost_tokens): (Usage, u64),
    is_estimate: bool,
) -> Value {
    let mut data = json!({"model": model, "usage": usage, "is_estimate": is_estimate});
    if !key.is_empty() {
        data["key"] = key.into();
    }
    if let Some((cost, currency)) = cost {
        data["cost"] = cost.into();
        data["currency"] = currency.into();
    }
    if lost_tokens > 0 {
        data["lost_tokens"] = lost_tokens.into();
    }
    data
}

/// The annotation of a cap that a person raised.
pub(crate) fn raise(setting: &str, more: u64, by: &str) -> Value {
    json!({"setting": setting, "raised": more, "by": by})
}

/// The annotation of a cap of a day that a person raised; the next request takes it to the ledger.
pub(crate) fn day_raise(
    raise: &CapRaise,
    question: String,
    by: &str,
    day: String,
) -> Option<Value> {
    let (cost, tokens) =
        if is_of_tokens(&raise.setting) { (0, raise.more) } else { (raise.more, 0) };
    let (scope, more) = (raise.scope.clone()?, LedgerAmount { cost, tokens });
    let day_raise = DayRaise { question, scope, day, more, by: by.to_owned() };
    Some(json!({"setting": raise.setting, "raised": raise.more, "by": by, "day_raise": day_raise}))
}

/// The annotation of what a child session spent: its cost in millionths at the prices of its own model, if they are
/// known, its tokens, and the estimated tokens of its requests whose answers were lost.
#[must_use]
pub fn child_cost(
    child: SessionId,
    cost: Option<(u64, &str)>,
    (usage, lost_tokens): (Usage, u64),
) -> Value {
    let mut data = json!({"child": child, "usage": usage});
    if let Some((cost, currency)) = cost {
        data["cost"] = cost.into();
        data["currency"] = currency.into();
    }
    if lost_tokens > 0 {
        data["lost_tokens"] = lost_tokens.into();
    }
    data
}

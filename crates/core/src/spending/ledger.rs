//! What all sessions spend in a day, in total, by tenant and by key: caps that hold across processes.
//!
//! A ledger is a note in the journal, changed by compare-and-set. A request adds its estimate before it is made, and its
//! answer replaces the estimate by the cost. An estimate whose answer was lost stays: nobody knows better, so a cap is
//! never exceeded by more than one request, whatever is killed.

use serde::{Deserialize, Serialize};

use super::{SpendingConfig, reached};
use crate::{
    event::{SessionId, TurnNumber},
    fault::{Fact, Fault},
    time::Timestamp,
};

/// The requests that a ledger counts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LedgerScope {
    /// The requests of all tenants and keys.
    All,
    /// The requests of one tenant.
    Tenant(String),
    /// The requests with one API key, named by a part of its hash.
    Key(String),
    /// The requests of all child sessions below one session, in all its turns.
    Session(SessionId),
    /// The requests of all child sessions below one turn of a session.
    Turn(SessionId, TurnNumber),
}

impl LedgerScope {
    /// The start of the names of all ledgers.
    pub const PREFIX: &'static str = "spending/";

    /// The name of the scope for people: `all`, `tenant/NAME` or `key/HASH`.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::All => "all".to_owned(),
            Self::Tenant(tenant) => format!("tenant/{tenant}"),
            Self::Key(key) => format!("key/{key}"),
            Self::Session(session) => format!("session/{session}"),
            Self::Turn(session, _) => format!("turn/{session}"),
        }
    }

    /// The scopes of the child sessions below a turn, from the label that its children have.
    #[must_use]
    pub fn of_root(label: &str) -> Option<[Self; 2]> {
        let (session, turn) = label.split_once('/')?;
        let (session, turn) = (SessionId(session.parse().ok()?), turn.parse().ok()?);
        Some([Self::Session(session), Self::Turn(session, turn)])
    }

    /// The time that the ledger counts: the day, the turn, or all of a session.
    #[must_use]
    pub fn period(&self, day: &str) -> String {
        match self {
            Self::All | Self::Tenant(_) | Self::Key(_) => day.to_owned(),
            Self::Session(_) => "session".to_owned(),
            Self::Turn(_, turn) => format!("turn {turn}"),
        }
    }

    /// Whether the ledger counts a day, which operators see and raise.
    #[must_use]
    pub fn is_of_day(&self) -> bool {
        matches!(self, Self::All | Self::Tenant(_) | Self::Key(_))
    }

    /// The scope of a day with this name; `None` if it is none.
    #[must_use]
    pub fn of(name: &str) -> Option<Self> {
        match name.split_once('/') {
            None => (name == "all").then_some(Self::All),
            Some(("tenant", tenant)) if !tenant.is_empty() => Some(Self::Tenant(tenant.to_owned())),
            Some(("key", key)) if !key.is_empty() => Some(Self::Key(key.to_owned())),
            Some(_) => None,
        }
    }

    /// The name of the note that holds the ledger.
    #[must_use]
    pub fn note(&self) -> String {
        format!("{}{}", Self::PREFIX, self.name())
    }

    /// The settings of the caps in money and in tokens.
    fn settings(&self) -> (&'static str, &'static str) {
        match self {
            Self::All => ("day", "day_tokens"),
            Self::Tenant(_) => ("tenant_day", "tenant_day_tokens"),
            Self::Key(_) => ("key_day", "key_day_tokens"),
            Self::Session(_) => ("session", "session_tokens"),
            Self::Turn(..) => ("turn", "turn_tokens"),
        }
    }
}

/// An amount of money and tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LedgerAmount {
    /// Millionths of the currency.
    pub cost: u64,
    /// Tokens read and written.
    pub tokens: u64,
}

impl LedgerAmount {
    pub(crate) fn is_zero(&self) -> bool {
        *self == Self::default()
    }

    pub(super) fn plus(self, other: Self) -> Self {
        let (cost, tokens) =
            (self.cost.saturating_add(other.cost), self.tokens.saturating_add(other.tokens));
        Self { cost, tokens }
    }

    /// What is left of both without `other`, at least 0.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        let (cost, tokens) =
            (self.cost.saturating_sub(other.cost), self.tokens.saturating_sub(other.tokens));
        Self { cost, tokens }
    }
}

/// What one scope spent on one day, or the child sessions of a session or a turn.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Ledger {
    /// The day, in UTC: `2026-11-18`; or another period of its scope.
    pub day: String,
    /// The currency of the amounts.
    pub currency: String,
    /// What the session itself spent before its child sessions; nothing in the ledger of a day.
    #[serde(skip_serializing_if = "LedgerAmount::is_zero")]
    pub own: LedgerAmount,
    /// Requests that were answered.
    pub spent: LedgerAmount,
    /// The part of `spent` that is an estimate, because the service did not report what was used.
    #[serde(skip_serializing_if = "LedgerAmount::is_zero")]
    pub estimated: LedgerAmount,
    /// Estimates of requests that are under way, or whose answers were lost.
    pub reserved: LedgerAmount,
    /// Requests that were made.
    pub requests: u64,
    /// What an operator added to the caps for this day.
    pub raised: LedgerAmount,
    /// Who raised the caps last; empty if nobody did.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub raised_by: String,
    /// The questions by which people raised the caps, so that each counts once.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub raised_in: Vec<String>,
}

/// What people of a session added to a cap of a day, as its records say.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DayRaise {
    /// The question: no other has this text, except its copy in a fork of the session.
    pub question: String,
    /// The name of the ledger.
    pub scope: String,
    /// The day, in UTC.
    pub day: String,
    /// What was added.
    pub more: LedgerAmount,
    /// Who allowed it.
    pub by: String,
}

/// Upper bound of the questions that raise one ledger in a day.
const RAISES_MAX: usize = 256;

/// The place of a period among those of its scope, so that they have an order: the day since 1970, or the turn.
fn place(period: &str) -> i64 {
    const DAY_MICROS: i64 = 86_400_000_000;
    if let Some(turn) = period.strip_prefix("turn ") {
        return turn.parse().unwrap_or_default();
    }
    let midnight = format!("{period}T00:00:00Z").parse::<Timestamp>();
    midnight.map_or(0, |at| at.as_micros() / DAY_MICROS)
}

impl Ledger {
    /// Reads a ledger for a request in this period. One of an earlier period, and one that cannot be read, counts as
    /// empty. One of a later period stays: the clocks of servers differ, and what they counted must not be lost.
    #[must_use]
    pub fn read(body: &[u8], period: &str, currency: &str) -> Self {
        let found = Self::stored(body);
        found.filter(|ledger| place(&ledger.day) >= place(period)).unwrap_or_else(|| Self {
            day: period.to_owned(),
            currency: currency.to_owned(),
            ..Self::default()
        })
    }

    /// The ledger as its note has it, of whatever period; `None` if it cannot be read.
    #[must_use]
    pub fn stored(body: &[u8]) -> Option<Self> {
        serde_json::from_slice(body).ok()
    }

    /// The ledger as the body of its note.
    #[must_use]
    pub fn body(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("numbers and strings always serialise")
    }

    /// Adds the estimate of a request.
    ///
    /// # Errors
    /// `spending_cap_reached` if the request could exceed a cap of the scope.
    pub fn reserve(
        &mut self,
        config: &SpendingConfig,
        scope: &LedgerScope,
        estimate: LedgerAmount,
    ) -> Result<(), Fault> {
        let used = self.own.plus(self.spent).plus(self.reserved);
        let (money, tokens) = scope.settings();
        let named = |fault: Fault| match scope.is_of_day() {
            true => fault.with(Fact::CapScope, scope.name()),
            false => fault,
        };
        if let Some(cap) = config.money_cap(money).map(|cap| cap.saturating_add(self.raised.cost))
            && used.cost.saturating_add(estimate.cost) > cap
        {
            let amounts = [cap, used.cost, estimate.cost].map(|micros| config.shown(micros));
            return Err(named(reached(money, amounts)));
        }
        if let Some(cap) =
            config.tokens_cap(tokens).map(|cap| cap.saturating_add(self.raised.tokens))
            && used.tokens.saturating_add(estimate.tokens) > cap
        {
            let amounts =
                [cap, used.tokens, estimate.tokens].map(|count| format!("{count} tokens"));
            return Err(named(reached(tokens, amounts)));
        }
        self.reserved = self.reserved.plus(estimate);
        self.requests = self.requests.saturating_add(1);
        Ok(())
    }

    /// Replaces the estimate of a request by what it cost, which may be an estimate too. The ledger must be of the period
    /// in which the request was reserved: a later one has nothing of it.
    pub fn settle(&mut self, estimate: LedgerAmount, cost: LedgerAmount, is_estimate: bool) {
        self.reserved = self.reserved.minus(estimate);
        self.spent = self.spent.plus(cost);
        if is_estimate {
            self.estimated = self.estimated.plus(cost);
        }
    }

    /// Raises the caps of the scope for this day.
    pub fn raise(&mut self, by: &str, more: LedgerAmount) {
        self.raised = self.raised.plus(more);
        by.clone_into(&mut self.raised_by);
    }

    /// Raises the caps as people of a session allowed it, each raise once. One of another day than `today`, of another
    /// scope or beyond a bound is left out.
    pub fn apply_raises(&mut self, scope: &LedgerScope, today: &str, raises: &[DayRaise]) {
        for raise in raises {
            let is_known = self.raised_in.contains(&raise.question);
            if is_known
                || raise.day != today
                || raise.scope != scope.name()
                || self.raised_in.len() >= RAISES_MAX
            {
                continue;
            }
            self.raised_in.push(raise.question.clone());
            self.raise(&raise.by, raise.more);
        }
    }
}

/// The day of a time, in UTC: `2026-11-18`.
#[must_use]
pub fn day_of(at: Timestamp) -> String {
    at.to_string().chars().take(10).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fault::Kind;

    fn config(text: serde_json::Value) -> SpendingConfig {
        serde_json::from_value(text).unwrap()
    }

    fn amount(cost: u64, tokens: u64) -> LedgerAmount {
        LedgerAmount { cost, tokens }
    }

    #[test]
    fn an_estimate_counts_until_its_answer_replaces_it() {
        let caps = config(json!({"tenant_day": 0.001}));
        let scope = LedgerScope::Tenant("acme".into());
        let mut ledger = Ledger::read(b"", "2026-11-18", "USD");
        ledger.reserve(&caps, &scope, amount(600, 10)).unwrap();
        let fault = ledger.reserve(&caps, &scope, amount(500, 10)).unwrap_err();
        assert_eq!(fault.kind(), Kind::SpendingCapReached);
        let text = |fact| fault.detail().text(fact).unwrap().to_owned();
        assert_eq!(text(Fact::ConfigKey), "models.spending.tenant_day");
        assert_eq!(text(Fact::CapScope), "tenant/acme");
        assert_eq!(
            [text(Fact::Cap), text(Fact::Spent), text(Fact::Estimate)],
            ["0.001 USD", "0.0006 USD", "0.0005 USD"]
        );
        ledger.settle(amount(600, 10), amount(100, 4), false);
        ledger.reserve(&caps, &scope, amount(900, 10)).unwrap();
        assert_eq!(
            (ledger.spent, ledger.reserved, ledger.requests),
            (amount(100, 4), amount(900, 10), 2)
        );
    }

    #[test]
    fn a_cap_in_tokens_needs_no_price_and_an_operator_can_raise_it() {
        let caps = config(json!({"day_tokens": 100}));
        let mut ledger = Ledger::read(b"", "2026-11-18", "USD");
        ledger.reserve(&caps, &LedgerScope::All, amount(0, 100)).unwrap();
        let fault = ledger.reserve(&caps, &LedgerScope::All, amount(0, 1)).unwrap_err();
        assert_eq!(fault.detail().text(Fact::ConfigKey), Some("models.spending.day_tokens"));
        ledger.raise("ada", amount(0, 1));
        ledger.reserve(&caps, &LedgerScope::All, amount(0, 1)).unwrap();
        assert_eq!(ledger.raised_by, "ada");
    }

    #[test]
    fn a_raise_of_a_cap_counts_once_on_its_day_and_in_its_ledger() {
        let raise = |question: &str, day: &str, scope: &str| DayRaise {
            question: question.into(),
            scope: scope.into(),
            day: day.into(),
            more: amount(5, 0),
            by: "ada".into(),
        };
        let (today, scope) = ("2026-11-18", LedgerScope::Tenant("acme".into()));
        let raises = [
            raise("a", today, "tenant/acme"),
            raise("b", "2026-11-17", "tenant/acme"),
            raise("c", today, "all"),
        ];
        let mut ledger = Ledger::read(b"", today, "USD");
        ledger.apply_raises(&scope, today, &raises);
        let mut ledger = Ledger::read(&ledger.body(), today, "USD");
        ledger.apply_raises(&scope, today, &raises);
        assert_eq!((ledger.raised, ledger.raised_by.as_str()), (amount(5, 0), "ada"));
        for index in 0..2 * RAISES_MAX {
            ledger.apply_raises(&scope, today, &[raise(&index.to_string(), today, "tenant/acme")]);
        }
        assert_eq!(ledger.raised_in.len(), RAISES_MAX);
    }

    #[test]
    fn child_sessions_share_what_their_session_left() {
        let caps = config(json!({"session": 0.001}));
        let scope = LedgerScope::Session(SessionId(uuid::Uuid::from_u128(7)));
        let mut ledger = Ledger::read(b"", &scope.period(""), "USD");
        ledger.own = amount(400, 10);
        ledger.reserve(&caps, &scope, amount(300, 10)).unwrap();
        ledger.reserve(&caps, &scope, amount(300, 10)).unwrap();
        let fault = ledger.reserve(&caps, &scope, amount(1, 10)).unwrap_err();
        assert_eq!(fault.detail().text(Fact::ConfigKey), Some("models.spending.session"));
    }

    #[test]
    fn child_sessions_share_the_tokens_of_a_turn_and_what_people_allowed() {
        let caps = config(json!({"turn_tokens": 100}));
        let scope = LedgerScope::Turn(SessionId(uuid::Uuid::from_u128(7)), 2);
        let mut ledger = Ledger::read(b"", &scope.period(""), "USD");
        ledger.own = amount(0, 40);
        ledger.reserve(&caps, &scope, amount(0, 50)).unwrap();
        let fault = ledger.reserve(&caps, &scope, amount(0, 50)).unwrap_err();
        assert_eq!(fault.detail().text(Fact::ConfigKey), Some("models.spending.turn_tokens"));
        assert_eq!(fault.detail().text(Fact::Spent), Some("90 tokens"));
        ledger.raised = amount(0, 40);
        ledger.reserve(&caps, &scope, amount(0, 50)).unwrap();
    }

    #[test]
    fn a_later_day_starts_a_ledger_anew_and_an_earlier_one_counts_into_it() {
        let mut ledger = Ledger::read(b"", "2026-11-30", "USD");
        ledger.settle(amount(0, 0), amount(5, 5), true);
        assert_eq!(ledger.estimated, amount(5, 5));
        assert_eq!(Ledger::read(&ledger.body(), "2026-11-30", "USD"), ledger);
        assert_eq!(Ledger::read(&ledger.body(), "2026-12-01", "USD").spent, amount(0, 0));
        assert_eq!(Ledger::read(b"not JSON", "2026-11-30", "USD").spent, amount(0, 0));
        assert_eq!(Ledger::read(&ledger.body(), "2026-11-29", "USD"), ledger);
    }

    #[test]
    fn a_child_of_an_earlier_turn_counts_into_the_ledger_of_the_running_one() {
        let mut ledger = Ledger::read(b"", "turn 10", "USD");
        ledger.settle(amount(0, 0), amount(5, 5), false);
        assert_eq!(Ledger::read(&ledger.body(), "turn 9", "USD"), ledger);
        assert_eq!(Ledger::read(&ledger.body(), "turn 11", "USD").spent, amount(0, 0));
    }

    #[test]
    fn scopes_have_names_that_read_back() {
        for scope in
            [LedgerScope::All, LedgerScope::Tenant("a/b".into()), LedgerScope::Key("0af7".into())]
        {
            assert_eq!(LedgerScope::of(&scope.name()), Some(scope));
        }
        let root = SessionId(uuid::Uuid::from_u128(7));
        let [session, turn] = LedgerScope::of_root(&format!("{root}/3")).unwrap();
        assert_eq!(
            (session, turn.period("2026-11-18")),
            (LedgerScope::Session(root), "turn 3".to_owned())
        );
        assert_eq!(LedgerScope::of_root("nobody/3"), None);
        assert_eq!(LedgerScope::of("tenant/"), None);
        assert_eq!(LedgerScope::of("nobody"), None);
    }
}

//! Counts requests in ledgers: all of a day, by tenant and by key, and those of child sessions by the session and turn
//! they work for. Ledgers are notes in the journal, so caps hold across processes.

use budao_core::{
    event::{SessionId, Settings},
    fault::{Fact, Fault, Kind, Operation},
    message::Usage,
    spending::{DayRaise, Ledger, LedgerAmount, LedgerScope, SpendingConfig, day_of},
};

use crate::{
    runtime::{Runtime, RuntimeShared},
    work::WorkContext,
};

/// The note that lists the names of all ledgers.
pub const LEDGER_INDEX: &str = "spending/index";
/// Upper bound of names in the list; ledgers beyond it are kept and not listed.
const NAMES_MAX: usize = 1_000;
/// How often a change is tried while other processes change the same ledger.
const TRIES: u32 = 200;

/// The estimate of a request in the ledgers of its scopes. Without [`SpendingReservation::settle`] it stays.
#[derive(Debug)]
pub(crate) struct SpendingReservation {
    /// The ledgers that count the request, each with the day or turn in which it does.
    places: Vec<(LedgerScope, String)>,
    estimate: LedgerAmount,
    model: String,
}

/// Adds the estimate of a request to its ledgers, after what people of the session allowed more; `None` if nothing is
/// counted.
///
/// # Errors
/// `spending_cap_reached` if the request could exceed the cap of a scope, and faults of the journal under a cap.
pub(crate) async fn reserve(
    work_context: &WorkContext,
    (model, credential): (&str, &str),
    (settings, raises): (&Settings, &[DayRaise]),
    estimate: Usage,
) -> Result<Option<SpendingReservation>, Fault> {
    let shared = &*work_context.shared;
    let config = &shared.limits.spending;
    let scopes = scopes(config, settings, credential);
    if scopes.is_empty() {
        return Ok(None);
    }
    let has_caps = config.has_day_caps() || config.has_session_caps();
    let day = day_of(shared.world.clock.now());
    let mut reservation = SpendingReservation {
        places: Vec::new(),
        estimate: estimated_amount(shared, model, estimate),
        model: model.to_owned(),
    };
    for scope in scopes {
        let estimate = reservation.estimate;
        let added = update_ledger(shared, &scope, &day, |ledger| {
            ledger.apply_raises(&scope, &day, raises);
            ledger.reserve(config, &scope, estimate)?;
            Ok(ledger.day.clone())
        });
        match added.await {
            Ok(period) => reservation.places.push((scope, period)),
            Err(fault) if fault.kind() == Kind::SpendingCapReached || has_caps => {
                reservation.release(shared).await;
                return Err(fault);
            }
            Err(fault) => tracing::warn!(%fault, "counting the cost of a request failed"),
        }
    }
    Ok(Some(reservation))
}

/// The ledgers that count a session's requests.
fn scopes(config: &SpendingConfig, settings: &Settings, key: &str) -> Vec<LedgerScope> {
    let mut scopes = Vec::new();
    if config.has_ledgers() {
        let tenant = settings.tenant();
        let tenant = (!tenant.is_empty()).then(|| LedgerScope::Tenant(tenant.to_owned()));
        let key = (!key.is_empty()).then(|| LedgerScope::Key(key.to_owned()));
        scopes.extend(std::iter::once(LedgerScope::All).chain(tenant).chain(key));
    }
    if config.has_session_caps()
        && let Some(label) = settings.labels.get(Settings::SPENDING_ROOT)
    {
        scopes.extend(LedgerScope::of_root(label).into_iter().flatten());
    }
    scopes
}

/// Notes in the ledgers of a turn's child sessions what the session itself has spent. It makes no request while they
/// work, so they share the rest of its caps.
pub(crate) async fn note_own_spending(runtime: &Runtime, parent: SessionId) -> Result<(), Fault> {
    let shared = &*runtime.shared;
    if !shared.limits.spending.has_session_caps() {
        return Ok(());
    }
    let state = runtime.state(parent).await?;
    if state.settings.labels.contains_key(Settings::SPENDING_ROOT) {
        return Ok(()); // Its own requests are in the ledgers already.
    }
    let spent = &state.spending;
    let mut used = state.usage;
    used += state.turn.as_ref().map(|turn| turn.usage).unwrap_or_default();
    let in_turn = state.turn.as_ref().map(|turn| turn.usage).unwrap_or_default();
    let own = |cost: u64, usage: Usage, lost: u64, children: LedgerAmount| LedgerAmount {
        cost: cost.saturating_sub(children.cost),
        tokens: usage.total_tokens().saturating_add(lost).saturating_sub(children.tokens),
    };
    let in_session = own(spent.session, used, spent.lost_tokens, spent.children);
    let in_turn = own(spent.turn, in_turn, spent.turn_lost_tokens, spent.turn_children);
    let turn = LedgerScope::Turn(parent, state.turns);
    let session = LedgerScope::Session(parent);
    for (scope, own, raised) in
        [(session, in_session, spent.raised), (turn, in_turn, spent.turn_raised)]
    {
        update_ledger(shared, &scope, "", |ledger| {
            (ledger.own, ledger.raised) = (own, raised);
            Ok(())
        })
        .await?;
    }
    Ok(())
}

fn actual_amount(shared: &RuntimeShared, model: &str, usage: Usage) -> LedgerAmount {
    let cost = shared.limits.spending.price(model).map_or(0, |price| price.cost(usage));
    LedgerAmount { cost, tokens: usage.total_tokens() }
}

/// The most that these tokens can cost, and their number.
pub(crate) fn estimated_amount(shared: &RuntimeShared, model: &str, usage: Usage) -> LedgerAmount {
    let cost = shared.limits.spending.price(model).map_or(0, |price| price.cost_max(usage));
    LedgerAmount { cost, tokens: usage.total_tokens() }
}

impl SpendingReservation {
    /// Replaces the estimate by the actual usage. If the service reports none, the estimate stays as the cost.
    pub(crate) async fn settle(self, shared: &RuntimeShared, usage: Usage) {
        let is_unknown = usage == Usage::default();
        let is_estimate = is_unknown || usage.estimated_tokens > 0;
        let cost = match is_unknown {
            true => self.estimate,
            false if is_estimate => estimated_amount(shared, &self.model, usage),
            false => actual_amount(shared, &self.model, usage),
        };
        self.replace(shared, cost, is_estimate).await;
    }

    /// Removes the estimate of a request that cost nothing.
    pub(crate) async fn release(self, shared: &RuntimeShared) {
        self.replace(shared, LedgerAmount::default(), false).await;
    }

    /// If a change fails, the estimate stays, so a ledger never shows less than was spent. A ledger that has begun a later
    /// day has neither the estimate nor the cost.
    async fn replace(self, shared: &RuntimeShared, cost: LedgerAmount, is_estimate: bool) {
        for (scope, period) in &self.places {
            let settle = |body: &[u8]| {
                let mut ledger = Ledger::stored(body).filter(|it| it.day == *period)?;
                ledger.settle(self.estimate, cost, is_estimate);
                Some((ledger, ()))
            };
            if let Err(fault) = change_note(shared, scope, |body| Ok(settle(body))).await {
                tracing::warn!(scope = scope.name(), %fault, "settling the cost of a request failed");
            }
        }
    }
}

/// Changes the ledger of a day, which begins anew if it is of an earlier one.
async fn update_ledger<T>(
    shared: &RuntimeShared,
    scope: &LedgerScope,
    day: &str,
    mut change: impl FnMut(&mut Ledger) -> Result<T, Fault>,
) -> Result<T, Fault> {
    let (period, currency) = (scope.period(day), &shared.limits.spending.currency);
    let changed = change_note(shared, scope, |body| {
        let mut ledger = Ledger::read(body, &period, currency);
        let found = change(&mut ledger)?;
        Ok(Some((ledger, found)))
    });
    Ok(changed.await?.expect("the change always has a ledger"))
}

/// Changes the note of a ledger by compare-and-set; `None` from `change` leaves it.
async fn change_note<T>(
    shared: &RuntimeShared,
    scope: &LedgerScope,
    mut change: impl FnMut(&[u8]) -> Result<Option<(Ledger, T)>, Fault>,
) -> Result<Option<T>, Fault> {
    let name = scope.note();
    for _ in 0..TRIES {
        let note = shared.journal.note(&name).await?;
        let version = note.as_ref().map_or(0, |note| note.version);
        let body = note.map(|note| note.body).unwrap_or_default();
        let Some((ledger, found)) = change(&body)? else { return Ok(None) };
        if shared.journal.set_note(&name, version, ledger.body()).await?.is_some() {
            if version == 0 && scope.is_of_day() {
                add_to_index(shared, &scope.name()).await;
            }
            return Ok(Some(found));
        }
        tokio::task::yield_now().await;
    }
    Err(Fault::new(Kind::LimitReached, Operation::RunTurn)
        .with(Fact::LimitName, "ledger_tries")
        .with(Fact::Limit, u64::from(TRIES)))
}

/// Adds a ledger to the list of names, best effort.
async fn add_to_index(shared: &RuntimeShared, name: &str) {
    for _ in 0..TRIES {
        let Ok(note) = shared.journal.note(LEDGER_INDEX).await else { return };
        let version = note.as_ref().map_or(0, |note| note.version);
        let body = note.map(|note| note.body).unwrap_or_default();
        let mut names: Vec<String> = serde_json::from_slice(&body).unwrap_or_default();
        if names.len() >= NAMES_MAX || names.iter().any(|known| known == name) {
            return;
        }
        names.push(name.to_owned());
        let body = serde_json::to_vec(&names).expect("strings always serialise");
        if !matches!(shared.journal.set_note(LEDGER_INDEX, version, body).await, Ok(None)) {
            return;
        }
    }
}

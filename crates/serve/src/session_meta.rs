//! What a gateway must know of a session: whose it is, and how it wants to be served.
//!
//! Kept in the session's settings when it is opened, so that it is found again after a restart and can be
//! searched. Never changed afterwards, so it can be remembered.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Mutex, MutexGuard},
};

use budao_core::{
    Event, Fault, Kind, Lang,
    event::{Origin, SessionId, Settings},
    fault::{Fact, Operation},
    session::Session,
};
use budao_journal::{Journal, PageLimits, StoredRecord};
use serde_json::Value;

use crate::{
    auth::Identity,
    inbound::{OnDisconnect, PlanPreference},
};

/// The label that names the tenant.
pub(crate) const TENANT: &str = "serve.tenant";
/// The label that names the owner, tenant and user together.
pub(crate) const OWNER: &str = "serve.owner";
/// What happens when the last observer is gone.
pub(crate) const ON_DISCONNECT: &str = "serve.on_disconnect";
/// Messages are questions for plan → solve → aggregate.
pub(crate) const PLAN: &str = "serve.plan";
/// The command that opened it.
pub(crate) const COMMAND: &str = "serve.command";

/// Cards remembered, so that not every command asks the journal.
const REMEMBERED: usize = 20_000;
/// How far up from a child its owner is looked for.
const ANCESTORS: usize = 8;

/// What a gateway must know of a session.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct SessionMeta {
    owner: Option<String>,
    tenant: Option<String>,
    pub(crate) language: Lang,
    pub(crate) on_disconnect: OnDisconnect,
    pub(crate) plan: Option<PlanPreference>,
}

impl SessionMeta {
    pub(crate) fn of(settings: &Settings) -> Self {
        let label = |name| settings.labels.get(name).cloned();
        let text = |name| settings.extra.get(name).and_then(Value::as_str);
        let confirm = |plan: &Value| plan.get("confirm").and_then(Value::as_bool).unwrap_or(false);
        Self {
            owner: label(OWNER),
            tenant: label(TENANT),
            language: settings.language,
            on_disconnect: text(ON_DISCONNECT)
                .and_then(|name| name.parse().ok())
                .unwrap_or_default(),
            plan: settings.extra.get(PLAN).map(|plan| PlanPreference { confirm: confirm(plan) }),
        }
    }

    /// May this one see the session?
    pub(crate) fn is_for(&self, who: &Identity) -> bool {
        who.is_operator || self.owner.as_ref().is_some_and(|owner| *owner == who.name())
    }

    /// Whose limits it counts for.
    pub(crate) fn tenant(&self) -> Option<&str> {
        self.tenant.as_deref()
    }
}

/// The labels of a session that this one makes.
pub(crate) fn labels(who: &Identity) -> BTreeMap<String, String> {
    [(TENANT, who.tenant.clone()), (OWNER, who.name())]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
}

/// There is no such session, or not for this one; nobody learns which.
pub(crate) fn unknown(session: SessionId) -> Fault {
    Fault::new(Kind::UnknownSession, Operation::OpenSession)
        .with(Fact::Session, session.to_string())
        .with(Fact::Field, "session_id")
        .with(Fact::Constraint, "a session that exists and is yours")
}

/// The cards that were asked for.
#[derive(Debug, Default)]
pub(crate) struct SessionMetaCache(Mutex<HashMap<SessionId, SessionMeta>>);

impl SessionMetaCache {
    fn known(&self) -> MutexGuard<'_, HashMap<SessionId, SessionMeta>> {
        self.0.lock().expect("no code panics while holding this")
    }

    /// A session was made.
    pub(crate) fn made(&self, session: SessionId, card: SessionMeta) {
        let mut known = self.known();
        if known.len() >= REMEMBERED {
            known.clear();
        }
        known.insert(session, card);
    }

    /// It is gone.
    pub(crate) fn forget(&self, session: SessionId) {
        self.known().remove(&session);
    }

    /// The card of a session.
    ///
    /// # Errors
    /// `unknown_session` when there is none.
    pub(crate) async fn get(
        &self,
        journal: &dyn Journal,
        session: SessionId,
    ) -> Result<SessionMeta, Fault> {
        let known = self.known().get(&session).cloned();
        if let Some(card) = known {
            return Ok(card);
        }
        let card = find(journal, session).await?;
        self.made(session, card.clone());
        Ok(card)
    }

    /// The card of a session that this one may touch.
    ///
    /// # Errors
    /// `unknown_session` when not, and when there is none.
    pub(crate) async fn check(
        &self,
        journal: &dyn Journal,
        session: SessionId,
        who: &Identity,
    ) -> Result<SessionMeta, Fault> {
        let card = self.get(journal, session).await?;
        if card.is_for(who) { Ok(card) } else { Err(unknown(session)) }
    }
}

/// The card of a session; a child belongs to whom its parent belongs to.
async fn find(journal: &dyn Journal, session: SessionId) -> Result<SessionMeta, Fault> {
    let (settings, mut origin) = opening(journal, session).await?;
    let mut card = SessionMeta::of(&settings);
    for _ in 0..ANCESTORS {
        let (None, Some(above)) = (&card.owner, &origin) else { break };
        let (Origin::Call { parent, .. }
        | Origin::Stage { parent, .. }
        | Origin::Fork { parent, .. }) = above;
        let (settings, further) = match opening(journal, *parent).await {
            Err(fault) if fault.kind() == Kind::UnknownSession => break,
            opened => opened?,
        };
        let above = SessionMeta::of(&settings);
        (card.owner, card.tenant) = (above.owner, above.tenant);
        origin = further;
    }
    Ok(card)
}

/// What a session was opened with: its first record says, or its snapshot when that is gone.
async fn opening(
    journal: &dyn Journal,
    session: SessionId,
) -> Result<(Settings, Option<Origin>), Fault> {
    let first = PageLimits { records: 1, bytes: 1 };
    let page = journal.read(session, 0, first).await.map_err(|fault| match fault.kind() {
        Kind::UnknownSession => unknown(session),
        _ => fault,
    })?;
    if page.gap.is_none() {
        return match page.records.first().map(StoredRecord::event).transpose()? {
            Some(Event::SessionOpened { settings, origin }) => Ok((settings, origin)),
            _ => Err(unknown(session)),
        };
    }
    let snapshot = journal.snapshot(session).await?.ok_or_else(|| unknown(session))?;
    let state: Session = serde_json::from_slice(&snapshot.body).map_err(|error| {
        Fault::new(Kind::JournalDamaged, Operation::ReadRecords)
            .with(Fact::Session, session.to_string())
            .with(Fact::FromSeq, snapshot.seq)
            .caused_by(&error)
    })?;
    Ok((state.settings, state.origin))
}

//! The gateway's metadata of a session: its owner and its serving options.
//!
//! The metadata is stored in the session's settings when it is opened, so it survives a restart and can be searched. It
//! never changes afterwards, so it can be cached.

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
use budao_journal::{PageLimits, Reader, StoredRecord};
use serde_json::Value;

use crate::{
    auth::Identity,
    inbound::{OnDisconnect, PlanPreference},
};

/// The label with the tenant's name.
pub(crate) const TENANT: &str = Settings::TENANT;
/// The label with the owner, as `tenant/user`.
pub(crate) const OWNER: &str = Settings::OWNER;
/// The setting for a turn when the last observer of its session leaves.
pub(crate) const ON_DISCONNECT: &str = "serve.on_disconnect";
/// The setting that makes messages questions for plan → solve → aggregate.
pub(crate) const PLAN: &str = "serve.plan";
/// The setting with the id of the command that opened the session.
pub(crate) const COMMAND: &str = "serve.command";

/// Upper bound of cached entries; at the bound, the cache is cleared.
const CACHE_MAX: usize = 20_000;
/// Upper bound of parents searched for a child's owner.
const ANCESTORS_MAX: usize = 8;

/// The gateway's metadata of a session.
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

    /// Whether this identity may access the session: its owner and operators may.
    pub(crate) fn is_accessible_to(&self, identity: &Identity) -> bool {
        identity.is_operator || self.owner.as_ref().is_some_and(|owner| *owner == identity.name())
    }

    /// Whether a client of a gateway opened the session.
    pub(crate) fn has_owner(&self) -> bool {
        self.owner.is_some()
    }

    /// The tenant whose limits the session counts towards.
    pub(crate) fn tenant(&self) -> Option<&str> {
        self.tenant.as_deref()
    }
}

/// The labels of a session created by this identity.
pub(crate) fn labels(identity: &Identity) -> BTreeMap<String, String> {
    [(TENANT, identity.tenant.clone()), (OWNER, identity.name())]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
}

/// The fault for a session that does not exist or belongs to another owner. Clients cannot tell the two apart.
pub(crate) fn unknown_session(session: SessionId) -> Fault {
    Fault::new(Kind::UnknownSession, Operation::OpenSession)
        .with(Fact::Session, session.to_string())
        .with(Fact::Field, "session_id")
        .with(Fact::Constraint, "a session that exists and is yours")
}

/// A cache of session metadata.
#[derive(Debug, Default)]
pub(crate) struct SessionMetaCache(Mutex<HashMap<SessionId, SessionMeta>>);

impl SessionMetaCache {
    fn entries(&self) -> MutexGuard<'_, HashMap<SessionId, SessionMeta>> {
        self.0.lock().expect("no code panics while holding this")
    }

    /// Stores the metadata of a session.
    pub(crate) fn insert(&self, session: SessionId, meta: SessionMeta) {
        let mut known = self.entries();
        if known.len() >= CACHE_MAX {
            known.clear();
        }
        known.insert(session, meta);
    }

    /// Removes a deleted session.
    pub(crate) fn forget(&self, session: SessionId) {
        self.entries().remove(&session);
    }

    /// Returns a session's metadata, from the cache or the journal.
    ///
    /// # Errors
    /// `unknown_session` if there is no such session.
    pub(crate) async fn get(
        &self,
        journal: &dyn Reader,
        session: SessionId,
    ) -> Result<SessionMeta, Fault> {
        let known = self.entries().get(&session).cloned();
        if let Some(meta) = known {
            return Ok(meta);
        }
        let meta = read_meta(journal, session).await?;
        self.insert(session, meta.clone());
        Ok(meta)
    }

    /// Returns the metadata of a session that this identity may access.
    ///
    /// # Errors
    /// `unknown_session` if there is no such session, or if access is denied.
    pub(crate) async fn check(
        &self,
        journal: &dyn Reader,
        session: SessionId,
        identity: &Identity,
    ) -> Result<SessionMeta, Fault> {
        let meta = self.get(journal, session).await?;
        if meta.is_accessible_to(identity) { Ok(meta) } else { Err(unknown_session(session)) }
    }
}

/// Reads a session's metadata from the journal. A child without an owner inherits its parent's.
async fn read_meta(journal: &dyn Reader, session: SessionId) -> Result<SessionMeta, Fault> {
    let (settings, mut origin) = read_opening(journal, session).await?;
    let mut meta = SessionMeta::of(&settings);
    for _ in 0..ANCESTORS_MAX {
        let (None, Some(above)) = (&meta.owner, &origin) else { break };
        let (Origin::Call { parent, .. }
        | Origin::Stage { parent, .. }
        | Origin::Fork { parent, .. }) = above;
        let (settings, further) = match read_opening(journal, *parent).await {
            Err(fault) if fault.kind() == Kind::UnknownSession => break,
            opened => opened?,
        };
        let above = SessionMeta::of(&settings);
        (meta.owner, meta.tenant) = (above.owner, above.tenant);
        origin = further;
    }
    Ok(meta)
}

/// The settings and origin of a session: from its first record, or from its snapshot if that record was removed.
async fn read_opening(
    journal: &dyn Reader,
    session: SessionId,
) -> Result<(Settings, Option<Origin>), Fault> {
    let first = PageLimits { records: 1, bytes: 1 };
    let page = journal.read(session, 0, first).await.map_err(|fault| match fault.kind() {
        Kind::UnknownSession => unknown_session(session),
        _ => fault,
    })?;
    if page.gap.is_none() {
        return match page.records.first().map(StoredRecord::event).transpose()? {
            Some(Event::SessionOpened { settings, origin }) => Ok((settings, origin)),
            _ => Err(unknown_session(session)),
        };
    }
    let snapshot = journal.snapshot(session).await?.ok_or_else(|| unknown_session(session))?;
    let state: Session = serde_json::from_slice(&snapshot.body).map_err(|error| {
        Fault::new(Kind::JournalDamaged, Operation::ReadRecords)
            .with(Fact::Session, session.to_string())
            .with(Fact::FromSeq, snapshot.seq)
            .caused_by(&error)
    })?;
    Ok((state.settings, state.origin))
}

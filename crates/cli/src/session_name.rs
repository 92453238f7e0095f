//! A session as a person names it: its id, or the beginning of its id.

use std::{fmt, str::FromStr};

use budao_core::{
    Fault, Kind,
    event::SessionId,
    fault::{Fact, FactValue, Operation},
};
use budao_journal::{Filter, Reader};
use budao_runtime::world;
use uuid::Uuid;

use crate::setup::JournalArgs;

/// Hex digits of a complete id.
const DIGITS: usize = 32;
/// Sessions that an ambiguous name lists.
const LISTED: usize = 3;

/// The last 6 characters of an id; its beginning is a timestamp, which many ids share.
pub(crate) fn short(session: SessionId) -> String {
    let id = session.to_string();
    format!("…{}", &id[id.len() - 6..])
}

/// A complete id or its beginning, with or without dashes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SessionName {
    /// Lower-case hex digits, 1 to 32.
    digits: String,
}

impl FromStr for SessionName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let digits: String = text.chars().filter(|&char| char != '-').collect();
        let is_hex = digits.chars().all(|char| char.is_ascii_hexdigit());
        if digits.is_empty() || digits.len() > DIGITS || !is_hex {
            return Err(
                "not a session id or the beginning of one; `budao sessions` lists them".into()
            );
        }
        Ok(Self { digits: digits.to_ascii_lowercase() })
    }
}

impl fmt::Display for SessionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.digits)
    }
}

impl SessionName {
    /// The session with this name; opens the journal only if the name is not a complete id.
    ///
    /// # Errors
    /// `unknown_session` if no id begins like this, `constraint_violated` if several do.
    pub(crate) async fn find(&self, journal: &JournalArgs) -> Result<SessionId, Fault> {
        if let Some(session) = self.complete() {
            return Ok(session);
        }
        let journal = journal.to_read().open(&world::system()).await?;
        let found = self.find_in(&*journal).await;
        journal.close().await;
        found
    }

    /// Like [`SessionName::find`], in a journal that is open.
    pub(crate) async fn find_in<R: Reader + ?Sized>(
        &self,
        journal: &R,
    ) -> Result<SessionId, Fault> {
        if let Some(session) = self.complete() {
            return Ok(session);
        }
        let filter = Filter { ids: Some(self.range()), limit: LISTED + 1, ..Filter::default() };
        let found = journal.sessions(filter).await?;
        match found.as_slice() {
            [one] => Ok(one.session),
            [] => Err(Fault::new(Kind::UnknownSession, Operation::OpenSession)
                .with(Fact::Session, self.digits.clone())),
            several => {
                let ids: Vec<String> =
                    several.iter().take(LISTED).map(|found| found.session.to_string()).collect();
                let more = if several.len() > LISTED { " and others" } else { "" };
                let rule =
                    format!("the beginning of one session's id; it fits {}{more}", ids.join(", "));
                Err(Fault::new(Kind::ConstraintViolated, Operation::OpenSession)
                    .with(Fact::Field, "session")
                    .with(Fact::Constraint, rule)
                    .with(Fact::ProvidedValue, FactValue::Json(self.digits.clone().into())))
            }
        }
    }

    /// Whether the id of this session begins like this name.
    pub(crate) fn names(&self, session: SessionId) -> bool {
        let (first, last) = self.range();
        (first..=last).contains(&session)
    }

    fn complete(&self) -> Option<SessionId> {
        (self.digits.len() == DIGITS).then(|| self.range().0)
    }

    /// The first and the last id that begin like this.
    fn range(&self) -> (SessionId, SessionId) {
        let padded = |with: char| {
            let digits: String =
                self.digits.chars().chain(std::iter::repeat(with)).take(DIGITS).collect();
            SessionId(Uuid::from_u128(u128::from_str_radix(&digits, 16).unwrap_or_default()))
        };
        (padded('0'), padded('f'))
    }
}

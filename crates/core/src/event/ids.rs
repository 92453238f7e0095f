//! Identifiers of sessions, histories, positions, turns, tasks, commands and questions.

use std::{fmt, str::FromStr, sync::Arc};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Identifies a session: a UUIDv7.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SessionId(pub Uuid);

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for SessionId {
    type Err = uuid::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self)
    }
}

/// Identifies the incarnation of a history. It changes only when the history was replaced (an import, a restored
/// backup) and is independent of the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Epoch(pub u32);

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0)
    }
}

/// A position in a session's history: 1, 2, 3 … without gaps. 0 is before the first.
pub type Seq = u64;

/// Counts the turns of a session from 1. 0 is "no turn".
pub type TurnNumber = u64;

/// Identifies a task, unique in its plan.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TaskId(pub Arc<str>);

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Identifies a command. The sender chooses it; a repeated id gets the same answer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CommandId(pub Arc<str>);

impl CommandId {
    /// Creates an id for a sender that gave none. No sender can repeat it, so its answer need not be remembered.
    #[must_use]
    pub fn own(unique: Uuid) -> Self {
        Self(format!("own-{}", unique.simple()).into())
    }

    /// Whether the id was created for a sender that gave none. Gateways refuse such ids from outside.
    #[must_use]
    pub fn is_own(&self) -> bool {
        self.0.starts_with("own-")
    }
}

impl fmt::Display for CommandId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<String> for CommandId {
    fn from(id: String) -> Self {
        Self(id.into())
    }
}

impl From<&str> for CommandId {
    fn from(id: &str) -> Self {
        Self(id.into())
    }
}

/// Identifies a question, unique in its session.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct QuestionId(pub Arc<str>);

impl fmt::Display for QuestionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

//! Keys of calls that all sessions of a tenant do once.
//!
//! A key belongs to the call that claimed it first. The attempt of the call fences it: attempts are recorded before they
//! run and grow, so an older attempt neither takes the key back nor gives it up for a newer one.

use std::fmt;

use async_trait::async_trait;
use budao_core::{event::SessionId, fault::Fault, message::CallId};
use bytes::Bytes;

use super::Digest;

/// The call that has a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OnceOwner {
    /// The session that made the call.
    pub session: SessionId,
    /// The call, unique in its session.
    pub call: CallId,
}

/// The state of a key after a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OnceState {
    /// The key is new and belongs to the caller.
    Claimed,
    /// The key belongs to the caller's call, from this or an earlier attempt.
    Own {
        /// The outcome of the call, if it is known.
        outcome: Option<Bytes>,
    },
    /// The key belongs to another call, or to a later attempt of this one.
    Taken {
        /// The call that has the key.
        owner: OnceOwner,
        /// Its outcome, if it is known.
        outcome: Option<Bytes>,
    },
}

/// How a call that has a key ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OnceSettlement {
    /// The call was done, with this outcome. The first outcome stays.
    Done(Bytes),
    /// The call did nothing; another call may claim the key. A key with an outcome stays.
    NotDone,
}

/// Keys of calls that are done once. They outlive their sessions and have a retention of their own.
#[async_trait]
pub trait OnceKeys: Send + Sync + fmt::Debug {
    /// Claims a key for an attempt of a call. Of calls that race for a key, exactly one gets it.
    ///
    /// # Errors
    /// When the journal fails. The claim may still have happened; the caller claims again to find out.
    async fn claim_once(
        &self,
        key: Digest,
        owner: OnceOwner,
        attempt: u32,
    ) -> Result<OnceState, Fault>;

    /// Records the outcome of the call that owns a key. Does nothing if the call owns none, or if a later attempt does.
    ///
    /// # Errors
    /// When the journal fails.
    async fn settle_once(
        &self,
        owner: OnceOwner,
        attempt: u32,
        settlement: OnceSettlement,
    ) -> Result<(), Fault>;
}

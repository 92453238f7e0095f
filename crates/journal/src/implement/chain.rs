//! The hash chain of a session: the digest at a position depends on every record up to it.
//!
//! ```text
//! start    = SHA-256("budao chain 1" ‖ session)
//! content  = SHA-256(at:i64 ‖ turn:u64 ‖ trace:u128 ‖ event)
//! digest   = SHA-256(digest before ‖ position:u64 ‖ content)
//! ```
//!
//! Integers are little-endian. The digest does not depend on how records are grouped into batches, nor on the epoch, so
//! a copy, an export and an import have the chain of their source. `content` is computed before a writer locks anything.

use budao_core::{
    event::{Seq, SessionId, TurnNumber},
    time::Timestamp,
    trace::Trace,
};
use sha2::Digest as _;

use crate::contract::{Digest, StoredRecord};

/// The digest before the first record of a session.
#[must_use]
pub fn seed(session: SessionId) -> Digest {
    let mut hasher = sha2::Sha256::new();
    hasher.update(b"budao chain 1");
    hasher.update(session.0.as_bytes());
    Digest(hasher.finalize().into())
}

/// The digest of a record without its position.
#[must_use]
pub fn content(at: Timestamp, trace: Trace, turn: TurnNumber, event: &[u8]) -> Digest {
    let mut hasher = sha2::Sha256::new();
    let mut head = [0; 32];
    head[..8].copy_from_slice(&at.as_micros().to_le_bytes());
    head[8..16].copy_from_slice(&turn.to_le_bytes());
    head[16..].copy_from_slice(&trace.as_u128().to_le_bytes());
    hasher.update(head);
    hasher.update(event);
    Digest(hasher.finalize().into())
}

/// The digest at a position, given the one before it.
#[must_use]
pub fn extend(before: Digest, seq: Seq, content: Digest) -> Digest {
    let mut link = [0; 72];
    link[..32].copy_from_slice(&before.0);
    link[32..40].copy_from_slice(&seq.to_le_bytes());
    link[40..].copy_from_slice(&content.0);
    Digest(sha2::Sha256::digest(link).into())
}

impl StoredRecord {
    /// The digest at this record's position, given the one before it.
    #[must_use]
    pub fn digest_after(&self, before: Digest) -> Digest {
        extend(before, self.seq, content(self.at, self.trace, self.turn, &self.body))
    }
}

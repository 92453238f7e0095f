//! The hash chain of a session as a journal stores it.

use budao_core::event::{Epoch, Seq};

use super::Digest;

/// A position and the digest of every record up to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Anchor {
    /// The position, 0 before the first record.
    pub seq: Seq,
    /// The digest at the position.
    pub digest: Digest,
}

/// The digests that a batch carries, as stored. They are claims until the records are hashed again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchLink {
    /// The position of the first record of the batch.
    pub first: Seq,
    /// The position of its last record.
    pub last: Seq,
    /// The digest of the batch before.
    pub previous: Digest,
    /// The digest at `last`.
    pub digest: Digest,
}

/// A part of a session's chain, as [`crate::Admin::chain`] returns it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChainPage {
    /// The epoch of the history.
    pub epoch: Epoch,
    /// The last position that retention removed, with its digest: the start of the remaining chain.
    pub start: Anchor,
    /// The head as tables other than the batches state it. A history that ends before it was cut.
    pub known_head: Seq,
    /// The digest at `known_head`, if the journal stores it outside of the batches.
    pub head_digest: Option<Digest>,
    /// The batches in order.
    pub links: Vec<BatchLink>,
}

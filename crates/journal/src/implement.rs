//! Building blocks for implementations of [`crate::Journal`]. Not covered by semantic versioning.
//!
//! [`Notifier`] wakes followers and writers of this process, [`follow()`] makes a follower stream of a [`PageSource`],
//! [`encode`] encodes the entries of an append, [`chain`] computes their digests, [`batch_encoding`] packs them into batches,
//! [`page`] makes pages of batches, [`views`] derives what operators search by, [`retention`] decides what is removed,
//! [`transfer`] moves sessions between journals, [`faults`] raises the same fault for the same cause in every journal.

pub mod batch_encoding;
pub mod chain;
pub(crate) mod encoded;
pub mod faults;
pub(crate) mod follow;
pub(crate) mod notifier;
pub mod page;
pub mod retention;
pub mod transfer;
pub mod views;

pub use self::{
    encoded::{EncodedRecord, encode},
    follow::{PageSource, follow},
    notifier::{Notifier, Subscription},
};
pub use crate::contract::{CachedEvent, new_epoch, unsupported};

//! Tools that run in workers: programs that connect to the server and offer functions of their own.
//!
//! [`Workers`] knows who offers what and which calls are open. A call is a [`budao_tools::Tool`] like any other: it is
//! validated, permitted, bounded and recorded before and after this crate sees it. [`Workers`] gives an open call to one
//! process of its worker; the process claims it with a command to the session, so the claim and the result are records.
//! A gateway passes frames in both directions through [`WorkerLink`] and decides nothing.

mod calls;
mod limits;
mod offers;
mod peer_notes;
mod peers;
mod roster;
mod tool;
mod workers;

pub use budao_tools::Reconciliation;
pub use calls::{CallKey, CallOffer, CallPurpose, CancelReason, WorkerMessage};
pub use limits::WorkerLimits;
pub use offers::{DeclaredCall, OfferScope, WorkerOffer, check_tool};
pub use workers::{
    ClaimCheck, ProcessRef, WorkerCounts, WorkerIdentity, WorkerLink, WorkerView, Workers,
    WorkersConfig,
};

//! Calls that are done once in a tenant: the key is claimed before the call runs and settled after it.
//!
//! The journal holds the keys, by digest. A call whose key another call has does not run; it ends with the outcome of
//! that call, or with a refusal while that outcome is not known.

use budao_core::{
    event::{SessionId, Settlement},
    fault::{ErrorType, Fact, Fault, Kind, Operation, Progress, text},
    message::CallId,
    tool::{Outcome, Output, ReconcileResult},
};
use budao_journal::{Digest, OnceOwner, OnceSettlement, OnceState};
use budao_tools::{CallContext, call::CheckedCall};
use bytes::Bytes;

use crate::runtime::RuntimeShared;

/// The attempt that outranks every recorded one.
const ANY_ATTEMPT: u32 = u32::MAX;

/// Claims the key of a call. `Err` is the outcome of a call that must not run.
pub(crate) async fn claim(
    shared: &RuntimeShared,
    tenant: &str,
    ready: &CheckedCall,
    context: &CallContext,
) -> Result<(), Outcome> {
    let Some(key) = key_of(tenant, ready) else { return Ok(()) };
    let key = key.map_err(Outcome::from)?;
    let owner = owner_of(context);
    match shared.journal.claim_once(key, owner, context.attempt).await {
        Ok(OnceState::Claimed | OnceState::Own { outcome: None }) => Ok(()),
        Ok(OnceState::Own { outcome: Some(bytes) }) => Err(first_outcome(&bytes, None, context)),
        Ok(OnceState::Taken { owner, outcome: Some(bytes) }) => {
            Err(first_outcome(&bytes, Some(&owner), context))
        }
        Ok(OnceState::Taken { owner, outcome: None }) => Err(refused(ready, &owner).into()),
        Err(fault) => Err(fault.with_progress(Progress::NotBegun).into()),
    }
}

/// Records what became of a call that has a key. A call in doubt keeps its key until somebody settles the doubt.
pub(crate) async fn settle(shared: &RuntimeShared, context: &CallContext, outcome: &Outcome) {
    let settlement = match outcome {
        Outcome::Done(_) => OnceSettlement::Done(encode(outcome)),
        Outcome::Failed(failure) => {
            let kind = failure.fault.row().error_type;
            match failure.fault.progress() {
                Progress::Unconfirmed => return,
                Progress::NotBegun => OnceSettlement::NotDone,
                Progress::Ended if matches!(kind, ErrorType::Logical | ErrorType::Validation) => {
                    OnceSettlement::NotDone
                }
                Progress::Ended | Progress::Done => OnceSettlement::Done(encode(outcome)),
            }
        }
    };
    record(shared, owner_of(context), context.attempt, settlement).await;
}

/// What the key tells of an interrupted call; `None` if the tool must be asked.
pub(crate) async fn reconcile(
    shared: &RuntimeShared,
    tenant: &str,
    ready: &CheckedCall,
    context: &CallContext,
) -> Option<ReconcileResult> {
    let key = key_of(tenant, ready)?.ok()?;
    let owner = owner_of(context);
    // Attempts count from 1, so this claim takes nothing away from one.
    match shared.journal.claim_once(key, owner.clone(), 0).await {
        Ok(OnceState::Claimed) => {
            record(shared, owner, 0, OnceSettlement::NotDone).await;
            Some(ReconcileResult::DidNotHappen)
        }
        Ok(OnceState::Taken { owner: other, .. }) if other != owner => {
            Some(ReconcileResult::DidNotHappen)
        }
        Ok(OnceState::Taken { outcome, .. } | OnceState::Own { outcome }) => {
            match decode(&outcome?)? {
                Outcome::Done(output) => Some(ReconcileResult::Happened(output)),
                Outcome::Failed(_) => None,
            }
        }
        Err(fault) => Some(ReconcileResult::Failed(fault)),
    }
}

/// Records that an interrupted call was done, if its tool found that out. A call without a key is not affected.
pub(crate) async fn settle_reconciled(
    shared: &RuntimeShared,
    context: &CallContext,
    answer: &ReconcileResult,
) {
    if let ReconcileResult::Happened(output) = answer {
        let done = OnceSettlement::Done(encode(&Outcome::Done(output.clone())));
        record(shared, owner_of(context), ANY_ATTEMPT, done).await;
    }
}

/// Settles the key of a call whose doubt a person settled.
pub(crate) async fn settle_by_person(
    shared: &RuntimeShared,
    session: SessionId,
    call: CallId,
    settlement: Settlement,
) {
    let settlement = match settlement {
        Settlement::Happened { result: data } => {
            OnceSettlement::Done(encode(&Outcome::Done(Output { data, ..Output::default() })))
        }
        Settlement::DidNotHappen => OnceSettlement::NotDone,
        Settlement::LeftToModel => return,
    };
    record(shared, OnceOwner { session, call }, ANY_ATTEMPT, settlement).await;
}

async fn record(
    shared: &RuntimeShared,
    owner: OnceOwner,
    attempt: u32,
    settlement: OnceSettlement,
) {
    let (session, call) = (owner.session, owner.call.clone());
    if let Err(fault) = shared.journal.settle_once(owner, attempt, settlement).await {
        // The key stays claimed without an outcome, so the work is not done again.
        tracing::warn!(%session, %call, %fault, "key of a call not settled");
    }
}

fn key_of(tenant: &str, ready: &CheckedCall) -> Option<Result<Digest, Fault>> {
    let key = ready.once_key()?;
    Some(key.map(|key| Digest::of(format!("{tenant}\0{key}").as_bytes())))
}

fn owner_of(context: &CallContext) -> OnceOwner {
    OnceOwner { session: context.session, call: context.call.clone() }
}

fn encode(outcome: &Outcome) -> Bytes {
    serde_json::to_vec(outcome).expect("outcomes have string keys and finite numbers").into()
}

fn decode(bytes: &Bytes) -> Option<Outcome> {
    serde_json::from_slice(bytes).ok()
}

/// The outcome of the call that has the key, with a note that says so.
fn first_outcome(bytes: &Bytes, owner: Option<&OnceOwner>, context: &CallContext) -> Outcome {
    let Some(mut outcome) = decode(bytes) else {
        let fault = Fault::new(Kind::Bug, Operation::ToolCall);
        return fault.with_cause("the outcome of a key cannot be read").not_started().into();
    };
    let (session, call) = match owner {
        Some(owner) => (owner.session, owner.call.to_string()),
        None => (context.session, context.call.to_string()),
    };
    let about = budao_core::fault::Detail::new()
        .with(Fact::Session, session.to_string())
        .with(Fact::CallId, call);
    let told = text::line("advice-done-once", &about, context.lang);
    let note = match &mut outcome {
        Outcome::Done(output) => &mut output.note,
        Outcome::Failed(failure) => &mut failure.note,
    };
    *note = Some(note.take().map_or(told.clone(), |note| format!("{told} {note}")));
    outcome
}

fn refused(ready: &CheckedCall, owner: &OnceOwner) -> Fault {
    let reason = format!(
        "call {} of session {} has the same key; it has begun and its outcome is not known yet",
        owner.call, owner.session
    );
    Fault::new(Kind::ToolSaidNo, Operation::ToolCall)
        .with(Fact::ToolName, ready.spec().name.to_string())
        .with(Fact::Reason, reason)
        .not_started()
}

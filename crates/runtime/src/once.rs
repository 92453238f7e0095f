//! Calls that are done once in a tenant: the key is claimed before the call runs and settled after it.
//!
//! The journal holds the keys, by digest. A call whose key another call has does not run; it ends with the outcome of
//! that call, or with a refusal while that outcome is not known. The records of the owner's session are the truth: a
//! key whose settlement a crash prevented is settled from them when the next call claims it.

use budao_core::{
    event::{Event, SessionId, Settlement},
    fault::{ErrorType, Fact, Fault, Kind, Operation, Progress, text},
    message::CallId,
    tool::{Outcome, Output, ReconcileResult},
};
use budao_journal::{Digest, OnceOwner, OnceSettlement, OnceState, PageLimits, fold};
use budao_tools::{CallContext, call::CheckedCall};
use bytes::Bytes;

use crate::runtime::RuntimeShared;

/// The attempt that outranks every settlement_from_records one.
const ANY_ATTEMPT: u32 = u32::MAX;

/// Claims the key of a call. `Err` is the outcome of a call that must not run.
pub(crate) async fn claim(
    shared: &RuntimeShared,
    tenant: &str,
    ready: &CheckedCall,
    context: &CallContext,
) -> Result<(), Outcome> {
    let Some(key) = once_key(tenant, ready) else { return Ok(()) };
    let key = key.map_err(Outcome::from)?;
    match claim_or_settle(shared, key, context).await {
        // An earlier attempt still has the key: in a process that lost its session and does not know it yet.
        Ok(OnceState::Own { outcome: None })
            if context.attempt > 1 && !ready.spec().idempotent && !ready.asks_tool() =>
        {
            let fault = Fault::new(Kind::OutcomeUnknown, Operation::ToolCall);
            Err(fault.with(Fact::ToolName, ready.spec().name.to_string()).into())
        }
        Ok(OnceState::Claimed | OnceState::Own { outcome: None }) => Ok(()),
        Ok(OnceState::Own { outcome: Some(bytes) }) => Err(first_outcome(&bytes, None, context)),
        Ok(OnceState::Taken { owner, outcome: Some(bytes) }) => {
            Err(first_outcome(&bytes, Some(&owner), context))
        }
        Ok(OnceState::Taken { owner, outcome: None }) => Err(key_taken_fault(ready, &owner).into()),
        Err(fault) => Err(fault.with_progress(Progress::NotBegun).into()),
    }
}

/// Claims a key. If another call has it without an outcome, settles the key from the records of that call's session and
/// claims again.
async fn claim_or_settle(
    shared: &RuntimeShared,
    key: Digest,
    context: &CallContext,
) -> Result<OnceState, Fault> {
    let (journal, own) = (&shared.journal, once_owner(context));
    let state = journal.claim_once(key, own.clone(), context.attempt).await?;
    let OnceState::Taken { owner, outcome: None } = &state else { return Ok(state) };
    if *owner == own {
        return Ok(state);
    }
    let Some(settlement) = settlement_from_records(shared, owner).await? else { return Ok(state) };
    tracing::info!(session = %owner.session, call = %owner.call, "once-key settled from records");
    journal.settle_once(owner.clone(), ANY_ATTEMPT, settlement).await?;
    journal.claim_once(key, own, context.attempt).await
}

/// The settlement that the owner's records imply; `None` if the outcome is unknown or the session was deleted.
async fn settlement_from_records(
    shared: &RuntimeShared,
    owner: &OnceOwner,
) -> Result<Option<OnceSettlement>, Fault> {
    let journal = &shared.journal;
    if journal.info(owner.session).await?.is_none() {
        return Ok(None);
    }
    // Cheap, and the usual answer: the call runs, or it is in doubt.
    let (state, _) = fold(&**journal, owner.session).await?;
    let call = state.turn.as_ref().and_then(|turn| turn.call(&owner.call));
    if call.is_some_and(budao_core::session::Call::is_open)
        || state.doubts.about(&owner.call).is_some()
    {
        return Ok(None);
    }
    let (mut found, mut after) = (None, 0);
    loop {
        let page = journal.read(owner.session, after, PageLimits::default()).await?;
        let Some(last) = page.records.last() else { return Ok(found) };
        after = last.seq;
        for stored in &page.records {
            match stored.event()? {
                Event::ToolCallEnded { call, outcome, .. } if call == owner.call => {
                    found = settlement_of_outcome(&outcome);
                }
                Event::DoubtSettled { call, settlement, .. } if call == owner.call => {
                    found = settlement_of_person(settlement);
                }
                _ => {}
            }
        }
    }
}

/// Records how a call that has a key ended. A call in doubt keeps its key until the doubt is settled.
pub(crate) async fn settle(shared: &RuntimeShared, context: &CallContext, outcome: &Outcome) {
    if let Some(settlement) = settlement_of_outcome(outcome) {
        record(shared, once_owner(context), context.attempt, settlement).await;
    }
}

/// The settlement that follows from an outcome; `None` for a call in doubt.
fn settlement_of_outcome(outcome: &Outcome) -> Option<OnceSettlement> {
    let Outcome::Failed(failure) = outcome else {
        return Some(OnceSettlement::Done(encode_outcome(outcome)));
    };
    let (fault, kind) = (&failure.fault, failure.fault.row().error_type);
    match fault.progress() {
        // The tool may be called again without harm, and no doubt is open that could be settled.
        Progress::Unconfirmed if fault.repeat().retryable => Some(OnceSettlement::NotDone),
        Progress::Unconfirmed => None,
        Progress::NotBegun => Some(OnceSettlement::NotDone),
        Progress::Ended if matches!(kind, ErrorType::Logical | ErrorType::Validation) => {
            Some(OnceSettlement::NotDone)
        }
        Progress::Ended | Progress::Done => Some(OnceSettlement::Done(encode_outcome(outcome))),
    }
}

/// The settlement that follows from a person's; `None` if the person left the doubt to the model.
fn settlement_of_person(settlement: Settlement) -> Option<OnceSettlement> {
    match settlement {
        Settlement::Happened { result: data } => {
            let output = Output { data, ..Output::default() };
            Some(OnceSettlement::Done(encode_outcome(&Outcome::Done(output))))
        }
        Settlement::DidNotHappen => Some(OnceSettlement::NotDone),
        Settlement::LeftToModel => None,
    }
}

/// The result of an interrupted call, from its key; `None` if the tool must be asked. `next` is the attempt that would run
/// again.
pub(crate) async fn reconcile(
    shared: &RuntimeShared,
    tenant: &str,
    ready: &CheckedCall,
    context: &CallContext,
    next: u32,
) -> Option<ReconcileResult> {
    let key = once_key(tenant, ready)?.ok()?;
    let owner = once_owner(context);
    // Before a tool is asked, the key belongs to the next attempt: a process that lost the session and has not claimed
    // the key yet cannot begin after the tool has looked. Attempts count from 1, so a claim of 0 takes nothing away.
    let attempt = if ready.asks_tool() { next } else { 0 };
    match shared.journal.claim_once(key, owner.clone(), attempt).await {
        Ok(OnceState::Claimed) if ready.asks_tool() => None,
        Ok(OnceState::Claimed) => {
            record(shared, owner, 0, OnceSettlement::NotDone).await;
            Some(ReconcileResult::DidNotHappen)
        }
        Ok(OnceState::Taken { owner: other, .. }) if other != owner => {
            Some(ReconcileResult::DidNotHappen)
        }
        Ok(OnceState::Taken { outcome, .. } | OnceState::Own { outcome }) => {
            match decode_outcome(&outcome?)? {
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
        let done = OnceSettlement::Done(encode_outcome(&Outcome::Done(output.clone())));
        record(shared, once_owner(context), ANY_ATTEMPT, done).await;
    }
}

/// Settles the key of a call whose doubt a person settled.
pub(crate) async fn settle_by_person(
    shared: &RuntimeShared,
    session: SessionId,
    call: CallId,
    settlement: Settlement,
) {
    if let Some(settlement) = settlement_of_person(settlement) {
        record(shared, OnceOwner { session, call }, ANY_ATTEMPT, settlement).await;
    }
}

async fn record(
    shared: &RuntimeShared,
    owner: OnceOwner,
    attempt: u32,
    settlement: OnceSettlement,
) {
    let (session, call) = (owner.session, owner.call.clone());
    if let Err(fault) = shared.journal.settle_once(owner, attempt, settlement).await {
        // The key stays claimed without an outcome until the next claim reads the records.
        tracing::warn!(%session, %call, %fault, "settling once-key failed");
    }
}

fn once_key(tenant: &str, ready: &CheckedCall) -> Option<Result<Digest, Fault>> {
    let key = ready.once_key()?;
    Some(key.map(|key| Digest::of(format!("{tenant}\0{key}").as_bytes())))
}

fn once_owner(context: &CallContext) -> OnceOwner {
    OnceOwner { session: context.session, call: context.call.clone() }
}

fn encode_outcome(outcome: &Outcome) -> Bytes {
    serde_json::to_vec(outcome).expect("outcomes have string keys and finite numbers").into()
}

fn decode_outcome(bytes: &Bytes) -> Option<Outcome> {
    serde_json::from_slice(bytes).ok()
}

/// The stored outcome of the call that owns the key, with a note that it is not this call's own.
fn first_outcome(bytes: &Bytes, owner: Option<&OnceOwner>, context: &CallContext) -> Outcome {
    let Some(mut outcome) = decode_outcome(bytes) else {
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

fn key_taken_fault(ready: &CheckedCall, owner: &OnceOwner) -> Fault {
    let reason = format!(
        "call {} of session {} has the same key; it has begun and its outcome is not known yet",
        owner.call, owner.session
    );
    Fault::new(Kind::ToolSaidNo, Operation::ToolCall)
        .with(Fact::ToolName, ready.spec().name.to_string())
        .with(Fact::Reason, reason)
        .not_started()
}

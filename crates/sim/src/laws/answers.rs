//! Laws that compare the answers to commands, and the effects of tools, with the records.

use std::collections::{BTreeMap, BTreeSet};

use budao_core::{
    event::{Answer, CallStart, CommandId, Event, ReconcileVerdict, Record, SessionId, Settlement},
    tool::Outcome,
};

use crate::{
    check::Violations,
    tools::{EFFECTS, KEY_MARK, effect_of},
};

/// Checks that the answer to every command agrees with the history.
pub(crate) fn of_answers(
    answers: &BTreeMap<(SessionId, CommandId), Answer>,
    histories: &BTreeMap<SessionId, Vec<Record>>,
    violations: &Violations,
) {
    for ((session, id), answer) in answers {
        let history = histories.get(session).map(Vec::as_slice).unwrap_or_default();
        let Some(times) = traces(history, id) else { continue };
        let wanted = usize::from(matches!(answer, Answer::Accepted { .. }));
        violations.expect(
            times == wanted,
            "what was acknowledged is there, what was refused is not",
            || format!("{session} {id} was answered {answer:?} and is there {times} times"),
        );
    }
}

/// Number of records that a command left in a history; `None` for commands that leave none.
fn traces(history: &[Record], id: &CommandId) -> Option<usize> {
    let withdrawn = id.0.starts_with("withdraw-");
    if !withdrawn && !id.0.starts_with("say-") && !id.0.starts_with("plan-") {
        return None;
    }
    let of = |record: &&Record| match &record.event {
        Event::MessageAccepted { command, .. }
        | Event::PipelineAccepted { command, .. }
        | Event::RetryAccepted { command, .. } => command == id,
        Event::MessageWithdrawn { by, .. } => withdrawn && **by == *id.0,
        _ => false,
    };
    Some(history.iter().filter(of).count())
}

/// Checks that no effect happens twice or unrecorded, and that every successful call had its effect.
pub(crate) fn of_effects(
    ledger: &BTreeMap<String, u32>,
    histories: &BTreeMap<SessionId, Vec<Record>>,
    violations: &Violations,
) {
    let mut started: BTreeSet<String> = BTreeSet::new();
    for record in histories.values().flatten() {
        let Event::ToolCallStarted(CallStart { tool, arguments, .. }) = &record.event else {
            continue;
        };
        if EFFECTS.contains(&tool.as_str()) {
            started.extend(effect_of(arguments));
        }
    }
    let released = released_keys(histories);
    for (id, times) in ledger {
        let (most, promise) = match id.starts_with(KEY_MARK) {
            true => {
                let again = released.iter().filter(|released| *released == id).count();
                (1 + again, "a key is done once over all sessions")
            }
            false => (1, "no effect takes place twice"),
        };
        let is_within = usize::try_from(*times).is_ok_and(|times| times <= most);
        violations.expect(is_within, promise, || format!("{id}: {times} times"));
        violations.expect(started.contains(id), "a call is on disk before it runs", || id.clone());
    }
    of_reconciled(ledger, histories, violations);
    for record in histories.values().flatten() {
        let Event::ToolCallEnded { tool, outcome: Outcome::Done(output), .. } = &record.event
        else {
            continue;
        };
        if let (true, Some(id)) = (EFFECTS.contains(&tool.as_str()), output.data["did"].as_str()) {
            violations
                .expect(ledger.contains_key(id), "what is called done was done", || id.to_owned());
        }
    }
}

/// The keys of calls that a person said did not happen. The person may be wrong, and the key is done again.
fn released_keys(histories: &BTreeMap<SessionId, Vec<Record>>) -> Vec<String> {
    let mut released = Vec::new();
    for history in histories.values() {
        let mut effects = BTreeMap::new();
        for record in history {
            match &record.event {
                Event::ToolCallStarted(CallStart { call, arguments, .. }) => {
                    effects.insert(call.clone(), effect_of(arguments));
                }
                Event::DoubtSettled { call, settlement: Settlement::DidNotHappen, .. } => {
                    released.extend(effects.get(call).cloned().flatten());
                }
                _ => {}
            }
        }
    }
    released
}

/// Checks that a call whose tool was asked has the outcome that the ledger shows.
fn of_reconciled(
    ledger: &BTreeMap<String, u32>,
    histories: &BTreeMap<SessionId, Vec<Record>>,
    violations: &Violations,
) {
    for history in histories.values() {
        let mut ids = BTreeMap::new();
        let (mut asked, mut undone) = (BTreeSet::new(), BTreeSet::new());
        for record in history {
            match &record.event {
                Event::ToolCallStarted(CallStart { call, arguments, .. }) => {
                    ids.insert(call.clone(), effect_of(arguments).unwrap_or_default());
                    undone.remove(call);
                }
                Event::ReconcileEnded { call, verdict, .. } => {
                    asked.insert(call.clone());
                    if *verdict == ReconcileVerdict::DidNotHappen {
                        undone.insert(call.clone());
                    }
                }
                Event::ToolCallEnded { call, outcome: Outcome::Done(_), .. }
                    if undone.contains(call) =>
                {
                    let promise = "a call that did not happen ends as done only if it runs again";
                    violations.expect(false, promise, || format!("{} {call}", record.session));
                }
                // A call may end with the outcome of another one, which a person stated.
                Event::ToolCallEnded { call, outcome: Outcome::Done(output), .. }
                    if asked.contains(call) && output.data["did"].is_string() =>
                {
                    let was_done = ids.get(call).is_some_and(|id| ledger.contains_key(id));
                    let promise = "a call that its tool was asked about ends as the ledger shows";
                    violations.expect(was_done, promise, || format!("{} {call}", record.session));
                }
                _ => {}
            }
        }
    }
}

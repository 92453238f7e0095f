//! What must hold of every history, whatever happened: checked over all of its records.

use std::collections::{BTreeMap, BTreeSet};

use budao_core::{
    event::{CallStart, Event, Record, StopReason, TurnNumber},
    message::{Block, text_of},
    session::Session,
};
use budao_testkit::claude::answer;

use crate::common::final_text;

/// Checks a history that has come to rest.
///
/// # Errors
/// What does not hold.
pub(crate) fn check(records: &[Record]) -> Result<(), String> {
    turns_begin_and_end_once(records)?;
    texts_are_their_own(records)?;
    calls_end_once(records)?;
    questions_close_once(records)?;
    let mut session = Session::default();
    session.apply_all(records);
    if session.turn.is_some() || !session.queue.is_empty() {
        return Err("something is left over".into());
    }
    Ok(())
}

fn require(holds: bool, otherwise: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(otherwise()) }
}

fn turns_begin_and_end_once(records: &[Record]) -> Result<(), String> {
    let mut accepted = BTreeSet::new();
    let mut running: Option<TurnNumber> = None;
    let mut over = 0;
    for record in records {
        if record.turn != 0
            && record.turn <= over
            && !matches!(record.event, Event::SessionEnded { .. })
        {
            return Err(format!("{:?} comes after the end of turn {over}", record.event));
        }
        match &record.event {
            Event::MessageAccepted { command, .. } => drop(accepted.insert(command.clone())),
            Event::MessageWithdrawn { command, .. } => {
                require(accepted.remove(command), || format!("{command} does not wait"))?;
            }
            Event::TurnStarted { message } => {
                if running.is_some() {
                    return Err("two turns at once".into());
                }
                if !accepted.remove(message) && !message.0.starts_with("claude-") {
                    return Err(format!("a second turn for {message}"));
                }
                running = Some(record.turn);
            }
            Event::TurnEnded { stop, fault, .. } => {
                if running.take() != Some(record.turn) {
                    return Err(format!("turn {} ends without having begun", record.turn));
                }
                if (*stop == StopReason::Failed) != fault.is_some() {
                    return Err(format!("{stop:?} with {fault:?}"));
                }
                over = record.turn;
            }
            _ => {}
        }
    }
    match accepted.is_empty() && running.is_none() {
        true => Ok(()),
        false => Err(format!("unanswered: {accepted:?}, unfinished: {running:?}")),
    }
}

/// A turn shows the answer to its own message, whole if it ended well, and what it shows is what is kept.
fn texts_are_their_own(records: &[Record]) -> Result<(), String> {
    let mut prompts = BTreeMap::new();
    let mut answers: BTreeMap<TurnNumber, (String, Vec<&Record>)> = BTreeMap::new();
    for record in records {
        match &record.event {
            Event::MessageAccepted { command, content } => {
                prompts.insert(command.clone(), text_of(content));
                continue;
            }
            Event::TurnStarted { message } => {
                let own = "by itself".to_owned();
                let expected = prompts.get(message).map_or(own, |prompt| answer(prompt));
                answers.insert(record.turn, (expected, Vec::new()));
            }
            _ => {}
        }
        if let Some((_, of_turn)) = answers.get_mut(&record.turn) {
            of_turn.push(record);
        }
    }
    for (turn, (expected, records)) in answers {
        let text = final_text(&records);
        if !expected.starts_with(&text) {
            return Err(format!("turn {turn} shows {text:?} instead of {expected:?}"));
        }
        let kept: String = records
            .iter()
            .filter_map(|record| match &record.event {
                Event::ModelAnswered { content, .. } => Some(text_of(content)),
                _ => None,
            })
            .collect();
        if kept != text {
            return Err(format!("turn {turn} shows {text:?} and keeps {kept:?}"));
        }
        let ended_well = records.iter().any(|record| {
            matches!(record.event, Event::TurnEnded { stop: StopReason::EndTurn, .. })
        });
        if ended_well && text != expected {
            return Err(format!("turn {turn} ended well with {text:?} of {expected:?}"));
        }
    }
    Ok(())
}

fn calls_end_once(records: &[Record]) -> Result<(), String> {
    let mut open = BTreeSet::new();
    let mut started = BTreeSet::new();
    for record in records {
        match &record.event {
            Event::ModelAnswered { content, .. } => {
                for block in content {
                    if let Block::ToolUse(call) = block
                        && !open.insert(call.id.clone())
                    {
                        return Err(format!("two calls are named {}", call.id));
                    }
                }
            }
            Event::ToolCallStarted(CallStart { call, .. }) => {
                let is_first = open.contains(call) && started.insert(call.clone());
                require(is_first, || format!("{call} started twice, or out of nothing"))?;
            }
            Event::ToolCallEnded { call, .. } => {
                require(open.remove(call), || format!("{call} ended twice, or out of nothing"))?;
            }
            Event::TurnEnded { .. } if !open.is_empty() => {
                return Err(format!("turn {} ended before {open:?}", record.turn));
            }
            _ => {}
        }
    }
    Ok(())
}

fn questions_close_once(records: &[Record]) -> Result<(), String> {
    let mut open = BTreeSet::new();
    for record in records {
        match &record.event {
            Event::QuestionAsked { question, .. } => {
                require(open.insert(question.clone()), || format!("{question} asked twice"))?;
            }
            Event::QuestionAnswered { question, .. } | Event::QuestionExpired { question, .. } => {
                require(open.remove(question), || format!("{question} answered twice"))?;
            }
            _ => {}
        }
    }
    match open.is_empty() {
        true => Ok(()),
        false => Err(format!("never closed: {open:?}")),
    }
}

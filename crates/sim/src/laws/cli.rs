//! Laws for a history of the Claude CLI engine. They are fewer than those of the native engine, because the CLI makes
//! most decisions.

use std::collections::{BTreeMap, BTreeSet};

use budao_core::{
    event::{Event, Record},
    message::Block,
};

use super::mark;
use crate::check::Violations;

/// Checks one history after the simulation has come to rest.
pub(crate) fn of_session(history: &[Record], violations: &Violations) {
    let (mut accepted, mut begun) = (BTreeSet::new(), BTreeSet::new());
    let (mut calls, mut questions) = (BTreeSet::new(), BTreeSet::new());
    let (mut running, mut asked, mut marks) = (None, None, BTreeMap::new());
    for record in history {
        let law = |holds, promise| {
            violations.expect(holds, promise, || format!("{} {:?}", record.seq, record.event));
        };
        match &record.event {
            Event::MessageAccepted { command, content } => {
                marks.insert(command.clone(), content.iter().find_map(answered_mark));
                law(accepted.insert(command.clone()), "a message is accepted once");
            }
            Event::MessageWithdrawn { command, .. } => {
                law(accepted.remove(command), "only a message that waits is taken back");
            }
            Event::TurnStarted { message } => {
                law(running.is_none(), "one turn at a time");
                law(begun.insert(message.clone()), "a turn answers a message that waits");
                accepted.remove(message);
                running = Some(record.turn);
                asked = marks.get(message).cloned().flatten();
            }
            Event::ModelAnswered { content, .. } => {
                for block in content {
                    let said = answered_mark(block);
                    let is_ours = asked.is_none() || said.is_none() || said == asked;
                    law(is_ours, "an answer belongs to its own turn");
                    if let Block::ToolUse(call) = block {
                        law(calls.insert(call.id.clone()), "call ids are unique");
                    }
                }
            }
            Event::ToolCallEnded { call, .. } => {
                law(calls.remove(call), "a call ends once, in its own step");
            }
            Event::QuestionAsked { question, .. } => {
                law(questions.insert(question.clone()), "a question is asked once");
            }
            Event::QuestionAnswered { question, .. } | Event::QuestionExpired { question, .. } => {
                law(questions.remove(question), "a question is answered once");
            }
            Event::TurnEnded { .. } => {
                law(running.take() == Some(record.turn), "a turn ends once");
                law(calls.is_empty(), "every call has its outcome before its turn ends");
            }
            _ => {}
        }
    }
    let rest = running.is_none() && accepted.is_empty();
    violations.expect(rest, "every turn ends", || format!("{running:?}, {accepted:?}"));
}

/// The mark of the prompt that a text block answers.
fn answered_mark(block: &Block) -> Option<String> {
    let Block::Text(text) = block else { return None };
    mark(text)
}

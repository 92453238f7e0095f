//! Somebody who answers every question once, and whose process may die before they hear that it was taken.
//!
//! What they sent and what they were told is in files that no kill undoes. Whoever sent an answer and heard nothing sends
//! the same again.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::OpenOptions,
    io::Write as _,
    path::Path,
};

use budao_core::{
    Kind,
    engine::Engine as _,
    event::{Answer, Command, CommandBody, Decision, Event, QuestionId, Record, SessionId},
};
use budao_runtime::{Agent, AgentExt as _, Question, Session};

const SENT: &str = "sent";
const TOLD: &str = "told";

fn note(directory: &Path, file: &str, line: &str) {
    let path = directory.join(file);
    let mut file = OpenOptions::new().append(true).create(true).open(path).expect("a file");
    file.write_all(format!("{line}\n").as_bytes()).expect("written");
    file.sync_all().expect("synced");
}

fn lines(directory: &Path, file: &str) -> Vec<String> {
    let text = std::fs::read_to_string(directory.join(file)).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

fn yes(id: &str, question: &str) -> Command {
    Command {
        id: id.into(),
        by: "somebody".into(),
        trace: budao_core::trace::Trace::default(),
        body: CommandBody::Decide {
            question: QuestionId(question.into()),
            decision: Decision::Allow,
            note: None,
            arguments: None,
            digest: None,
        },
    }
}

/// Says yes to a question, by the same command whenever it is said, and notes what came back.
async fn say_yes(directory: &Path, agent: &Agent, session: SessionId, question: &str) {
    let command = yes(&format!("yes {question}"), question);
    match agent.runtime().submit(session, command).await.expect("an answer") {
        Answer::Accepted { at } => note(directory, TOLD, &format!("{question} {at}")),
        Answer::Rejected { fault } => panic!("{question}: {fault}"),
    }
}

/// Sends again what was sent in an earlier life.
pub(crate) async fn repeat(directory: &Path, agent: &Agent, session: SessionId) {
    for question in lines(directory, SENT) {
        say_yes(directory, agent, session, &question).await;
    }
}

/// Answers what is asked and was not answered yet.
pub(crate) async fn answer(directory: &Path, agent: &Agent, session: &Session) {
    let sent = lines(directory, SENT);
    for question in Question::open_in(&session.state().await.expect("a state")) {
        let id = question.id.to_string();
        if !sent.contains(&id) {
            note(directory, SENT, &id);
            say_yes(directory, agent, session.id(), &id).await;
        }
    }
}

/// After the end a second answer to a question is refused, whatever its sender.
pub(crate) async fn try_again(directory: &Path, agent: &Agent, session: SessionId) {
    for question in lines(directory, SENT) {
        let command = yes(&format!("once more {question}"), &question);
        match agent.runtime().submit(session, command).await.expect("an answer") {
            Answer::Rejected { fault } => {
                assert_eq!(fault.kind(), Kind::QuestionNotOpen, "{fault}");
            }
            Answer::Accepted { .. } => panic!("{question} was answered twice"),
        }
    }
}

/// Every question has one answer in the records, and every query for it got the same.
pub(crate) fn inspect(directory: &Path, moment: &str, records: &[Record]) {
    let mut answered: BTreeMap<String, u32> = BTreeMap::new();
    for record in records {
        if let Event::QuestionAnswered { question, .. } = &record.event {
            *answered.entry(question.to_string()).or_default() += 1;
        }
    }
    let sent: BTreeSet<String> = lines(directory, SENT).into_iter().collect();
    assert_eq!(sent, answered.keys().cloned().collect(), "{moment}: sent, and answered");
    assert!(answered.values().all(|times| *times == 1), "{moment}: {answered:?}");
    let told: BTreeSet<String> = lines(directory, TOLD).into_iter().collect();
    assert_eq!(told.len(), sent.len(), "{moment}: each was told one thing: {told:?}");
}

//! The messages and the tool of a storm, and what must be true of its records afterwards: the simulator's laws, each
//! accepted message once with one end, and no effect twice.
//!
//! The model answers each message with one call, which leaves the message's mark in a ledger that all servers share, and
//! then with a word. The tool is not idempotent, so a call whose server died in its middle is in doubt.

use std::{collections::BTreeMap, path::Path};

use budao_core::{
    event::{CallStart, Event, Record, SessionId},
    limits::Limits,
    tool::Outcome,
};
use budao_journal::{Journal, PageLimits, fold};
use budao_testkit::{
    provider::{ReceivedRequest, Reply},
    sse::{self, ModelOutput},
};
use serde_json::{Value, json};

/// The file in the servers' workspace that every effect adds a line to.
const LEDGER: &str = "effects";

/// The text of a message with this mark.
pub(super) fn message(mark: &str) -> String {
    format!("do «{mark}»")
}

/// The mark of a text.
fn mark(text: &str) -> Option<&str> {
    Some(text.split_once('«')?.1.split_once('»')?.0)
}

/// The model's answer: a call for a message, a word after the call.
pub(super) fn reply(request: &ReceivedRequest) -> Reply {
    let messages = request.body["messages"].as_array().cloned().unwrap_or_default();
    let of_user = |message: &Value| message["role"] == "user";
    let asked = messages.iter().enumerate().rev().find_map(|(at, message)| {
        let text = message.to_string();
        of_user(message).then(|| Some((at, mark(&text)?.to_owned()))).flatten()
    });
    let Some((at, mark)) = asked else { return Reply::status(400) };
    let is_called = messages[at..].iter().any(|message| message["role"] == "tool");
    let output = match is_called {
        true => ModelOutput::text(&format!("«{mark}» is done")),
        false => {
            let command = format!("sleep 0.1; echo '{mark}' >> {LEDGER}; sleep 0.1");
            ModelOutput::call(&format!("call-{mark}"), "bash_run", &json!({ "cmd": command }))
        }
    };
    Reply::events(sse::openai(&[output]))
}

/// What the calls of all sessions did.
#[derive(Debug, Default)]
pub(super) struct Effects {
    /// Marks of calls that began, and of those that are recorded as done.
    begun: Vec<String>,
    done: Vec<String>,
}

impl Effects {
    fn add(&mut self, history: &[Record]) {
        let mut marks = BTreeMap::new();
        for record in history {
            match &record.event {
                Event::ToolCallStarted(CallStart { call, arguments, .. }) => {
                    let command = arguments["cmd"].as_str().unwrap_or_default();
                    let mark = command.split('\'').nth(1).unwrap_or_default().to_owned();
                    self.begun.push(mark.clone());
                    marks.insert(call.clone(), mark);
                }
                Event::ToolCallEnded { call, outcome: Outcome::Done(_), .. } => {
                    self.done.push(marks[call].clone());
                }
                _ => {}
            }
        }
    }

    /// Compares the records with the ledger. Returns how many effects there were, and how many calls stayed in doubt.
    pub(super) fn check(&self, workspace: &Path) -> (usize, usize) {
        let ledger = std::fs::read_to_string(workspace.join(LEDGER)).unwrap_or_default();
        let mut effects: BTreeMap<&str, u32> = BTreeMap::new();
        for mark in ledger.lines() {
            *effects.entry(mark).or_default() += 1;
        }
        let twice: Vec<_> = effects.iter().filter(|(_, times)| **times > 1).collect();
        assert!(twice.is_empty(), "no effect takes place twice: {twice:?}");
        for mark in effects.keys() {
            assert!(self.begun.iter().any(|it| it == mark), "{mark}: a call is recorded first");
        }
        for mark in &self.done {
            assert!(effects.contains_key(&**mark), "{mark}: what is called done was done");
        }
        (effects.len(), self.begun.len() - self.done.len())
    }
}

async fn read_history(journal: &dyn Journal, session: SessionId) -> Vec<Record> {
    let mut history: Vec<Record> = Vec::new();
    loop {
        let limits = PageLimits { records: 1_000, bytes: 1 << 20 };
        let page = journal.read(session, history.len() as u64, limits).await.unwrap();
        if page.records.is_empty() {
            return history;
        }
        history.extend(page.records.iter().map(|stored| stored.record().unwrap()));
    }
}

/// Checks a session to which messages with these ids were sent, and adds what its calls did.
pub(super) async fn check(
    journal: &dyn Journal,
    session: SessionId,
    messages: &[String],
    effects: &mut Effects,
) {
    let history = read_history(journal, session).await;
    let mut limits = Limits::default();
    limits.retry.base = super::fixture::RETRY_BASE;
    let broken = budao_sim::check_history(&history, &limits);
    assert!(broken.is_empty(), "{session}: {broken:#?}");
    let mut accepted = BTreeMap::new();
    let (mut ended, mut begun, mut outcomes) = (0, 0, 0);
    for record in &history {
        match &record.event {
            Event::MessageAccepted { command, .. } => {
                *accepted.entry(command.to_string()).or_insert(0) += 1;
            }
            Event::TurnEnded { .. } => ended += 1,
            Event::ModelAnswered { content, .. } => begun += calls(content),
            Event::ToolCallEnded { .. } => outcomes += 1,
            _ => {}
        }
    }
    let expected: BTreeMap<String, i32> = messages.iter().map(|id| (id.clone(), 1)).collect();
    assert_eq!(accepted, expected, "{session}: every message once");
    assert_eq!(ended, messages.len(), "{session}: one end for each message");
    assert_eq!(outcomes, begun, "{session}: one outcome for each call");
    assert_eq!(journal.inbox(session).await.unwrap(), [], "{session}: no command waits");
    fold(journal, session).await.unwrap();
    effects.add(&history);
}

fn calls(content: &[budao_core::message::Block]) -> usize {
    content.iter().filter(|it| matches!(it, budao_core::message::Block::ToolUse(_))).count()
}

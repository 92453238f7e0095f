//! A batch: the events and answers decided together, and the callers that wait for them.

use std::{
    collections::VecDeque,
    hash::{DefaultHasher, Hash as _, Hasher as _},
};

use budao_core::{
    event::{Answer, Command, CommandBody, CommandId, Seq, SessionId},
    fault::{Fact, Fault, Kind, Operation},
};
use budao_journal::{Append, Entry, LeaseToken};
use tokio::sync::oneshot;

use crate::writer::session_busy;

/// The channel to a caller that waits for a result.
pub type Reply<T> = oneshot::Sender<Result<T, TaskRefusal>>;

/// The reply of a session's task to a command or an opening that the task did not carry out.
#[derive(Clone, Debug, PartialEq)]
pub enum TaskRefusal {
    /// The command belongs into the journal's inbox: another process writes the session, or the journal has an answer
    /// that the task does not remember.
    UseInbox,
    /// The caller gets this fault.
    Fault(Fault),
}

impl TaskRefusal {
    /// The fault for a caller that cannot use the inbox.
    #[must_use]
    pub fn into_fault(self, session: SessionId) -> Fault {
        match self {
            Self::UseInbox => session_busy(session),
            Self::Fault(fault) => fault,
        }
    }
}

impl From<Fault> for TaskRefusal {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

/// Events and answers that become durable in one append, and the callers to answer afterwards.
#[derive(Debug, Default)]
pub struct Batch {
    /// The events to append, in order.
    pub entries: Vec<Entry>,
    /// Answers to commands of the journal's inbox.
    inbox_answers: Vec<(CommandId, Answer)>,
    /// Commands that arrived directly with a caller's id, recorded so that a repetition gets the same answer.
    direct_answers: Vec<(Command, Answer)>,
    /// Every answer of the batch, for repetitions that arrive soon.
    new_answers: Vec<RememberedAnswer>,
    replies: Vec<(Reply<Answer>, Answer)>,
    openings: Vec<(Reply<()>, Result<(), Fault>)>,
}

/// The answer to an earlier command, kept for repetitions of its id.
#[derive(Debug)]
pub(crate) struct RememberedAnswer {
    pub(crate) id: CommandId,
    /// Hash of the command's body: the same id with another body is refused.
    body_hash: u64,
    answer: Answer,
}

/// A command that is new and must be decided.
#[derive(Debug)]
pub struct AdmittedCommand {
    pub(crate) body_hash: u64,
    /// The command itself, if the batch records it: it came directly and has the id of its caller.
    pub(crate) recorded: Option<Command>,
    pub(crate) from_inbox: bool,
    pub(crate) reply: Reply<Answer>,
}

impl Batch {
    /// Adds the answer to an admitted command.
    pub fn answer(&mut self, admitted: AdmittedCommand, id: CommandId, answer: Answer) {
        let AdmittedCommand { body_hash, recorded, from_inbox, reply } = admitted;
        match recorded {
            Some(command) => self.direct_answers.push((command, answer.clone())),
            None if from_inbox => self.inbox_answers.push((id.clone(), answer.clone())),
            None => {}
        }
        self.new_answers.push(RememberedAnswer { id, body_hash, answer: answer.clone() });
        self.replies.push((reply, answer));
    }

    /// Rejects a command of the journal's inbox.
    pub(crate) fn reject(&mut self, id: CommandId, fault: Fault) {
        self.inbox_answers.push((id, Answer::Rejected { fault }));
    }

    pub(crate) fn add_opening(&mut self, reply: Reply<()>, answer: Result<(), Fault>) {
        self.openings.push((reply, answer));
    }

    /// Answers a command whose id is known. For a new command it returns the reply channel and the body's hash.
    pub(crate) fn answer_repetition(
        &mut self,
        session: SessionId,
        command: &Command,
        reply: Reply<Answer>,
        remembered: &VecDeque<RememberedAnswer>,
    ) -> Option<(Reply<Answer>, u64)> {
        let body_hash = hash_body(&command.body);
        let mut known = self.new_answers.iter().chain(remembered);
        match known.find(|known| known.id == command.id) {
            Some(known) if known.body_hash == body_hash => {
                self.replies.push((reply, known.answer.clone()));
            }
            Some(known) => drop(reply.send(Err(command_repeated_fault(session, &known.id).into()))),
            None => return Some((reply, body_hash)),
        }
        None
    }

    /// Whether the batch has nothing to append.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.inbox_answers.is_empty() && self.direct_answers.is_empty()
    }

    /// The append that makes the batch durable; `head` is the position of its last entry.
    pub(crate) fn append(
        &self,
        session: SessionId,
        token: LeaseToken,
        head: Seq,
        snapshot: Option<Vec<u8>>,
    ) -> Append {
        Append {
            session,
            token,
            expected: head - self.entries.len() as Seq,
            entries: self.entries.clone(),
            answers: self.inbox_answers.clone(),
            direct_commands: self.direct_answers.clone(),
            snapshot,
        }
    }

    /// Refuses every caller: the batch was not appended.
    pub(crate) fn refuse(self, refusal: &TaskRefusal) {
        self.replies.into_iter().for_each(|(reply, _)| drop(reply.send(Err(refusal.clone()))));
        self.openings.into_iter().for_each(|(reply, _)| drop(reply.send(Err(refusal.clone()))));
    }

    /// Answers every caller and remembers the answers: the batch is durable. Returns its entries.
    pub(crate) fn answer_all(
        self,
        remembered: &mut VecDeque<RememberedAnswer>,
        limit: usize,
    ) -> Vec<Entry> {
        for known in self.new_answers {
            remembered.push_back(known);
            if remembered.len() > limit {
                remembered.pop_front();
            }
        }
        self.replies.into_iter().for_each(|(reply, answer)| drop(reply.send(Ok(answer))));
        let openings = self.openings.into_iter();
        openings.for_each(|(reply, answer)| drop(reply.send(answer.map_err(TaskRefusal::Fault))));
        self.entries
    }
}

fn hash_body(body: &CommandBody) -> u64 {
    let mut hasher = DefaultHasher::new();
    serde_json::to_vec(body).unwrap_or_default().hash(&mut hasher);
    hasher.finish()
}

fn command_repeated_fault(session: SessionId, command: &CommandId) -> Fault {
    Fault::new(Kind::CommandRepeated, Operation::SubmitCommand)
        .with(Fact::Session, session.to_string())
        .with(Fact::CommandId, command.to_string())
}

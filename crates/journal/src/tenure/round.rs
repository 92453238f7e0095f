//! What one round decided, and who waits for it.

use std::{
    collections::VecDeque,
    hash::{DefaultHasher, Hash as _, Hasher as _},
};

use budao_core::{
    event::{Answer, Ask, Command, CommandId, Seq, SessionId},
    fault::{Fact, Fault, Kind, Operation},
};
use tokio::sync::oneshot;

use crate::{Append, Entry, Token};

/// Who waits for something.
pub type Reply<T> = oneshot::Sender<Result<T, Fault>>;

/// What one round decided, and who waits for it.
#[derive(Debug, Default)]
pub struct Round {
    /// To be recorded.
    pub entries: Vec<Entry>,
    /// Answers to commands of the inbox.
    answers: Vec<(CommandId, Answer)>,
    /// Commands that came directly, with an id that may come again.
    taken: Vec<(Command, Answer)>,
    /// Every answer of the round.
    known: Vec<Taken>,
    replies: Vec<(Reply<Answer>, Answer)>,
    opened: Vec<Reply<()>>,
}

/// A command that was taken up, for when it comes again.
#[derive(Debug)]
pub(super) struct Taken {
    id: CommandId,
    /// What was asked, in short: the same id for something else is no repetition.
    ask: u64,
    answer: Answer,
}

/// A command that is to be taken up.
#[derive(Debug)]
pub struct Admitted {
    pub(super) ask: u64,
    pub(super) kept: Option<Command>,
    pub(super) waits: bool,
    pub(super) reply: Reply<Answer>,
}

impl Round {
    /// The answer to a command that was admitted.
    pub fn answer(&mut self, admitted: Admitted, id: CommandId, answer: Answer) {
        let Admitted { ask, kept, waits, reply } = admitted;
        match kept {
            Some(command) => self.taken.push((command, answer.clone())),
            None if waits => self.answers.push((id.clone(), answer.clone())),
            None => {}
        }
        self.known.push(Taken { id, ask, answer: answer.clone() });
        self.replies.push((reply, answer));
    }

    /// Rejects a command of the inbox.
    pub(super) fn reject(&mut self, id: CommandId, fault: Fault) {
        self.answers.push((id, Answer::Rejected { fault }));
    }

    pub(super) fn opened(&mut self, reply: Reply<()>) {
        self.opened.push(reply);
    }

    /// Answers a command that was taken up before. If it was not: who waits, and what is asked in short.
    pub(super) fn answer_again(
        &mut self,
        session: SessionId,
        command: &Command,
        reply: Reply<Answer>,
        remembered: &VecDeque<Taken>,
    ) -> Option<(Reply<Answer>, u64)> {
        let ask = fingerprint(&command.ask);
        let mut known = self.known.iter().chain(remembered);
        match known.find(|taken| taken.id == command.id) {
            Some(taken) if taken.ask == ask => self.replies.push((reply, taken.answer.clone())),
            Some(taken) => drop(reply.send(Err(repeated(session, &taken.id)))),
            None => return Some((reply, ask)),
        }
        None
    }

    /// Is there nothing to make durable?
    pub(super) fn is_nothing(&self) -> bool {
        self.entries.is_empty() && self.answers.is_empty() && self.taken.is_empty()
    }

    /// The append that makes it durable; `head` is the position of its last entry.
    pub(super) fn append(
        &self,
        session: SessionId,
        token: Token,
        head: Seq,
        snapshot: Option<Vec<u8>>,
    ) -> Append {
        Append {
            session,
            token,
            expected: head - self.entries.len() as Seq,
            entries: self.entries.clone(),
            answers: self.answers.clone(),
            taken: self.taken.clone(),
            snapshot,
        }
    }

    /// It never happened: everybody who waits is told.
    pub(super) fn refuse(self, fault: &Fault) {
        self.replies.into_iter().for_each(|(reply, _)| drop(reply.send(Err(fault.clone()))));
        self.opened.into_iter().for_each(|reply| drop(reply.send(Err(fault.clone()))));
    }

    /// It is durable: everybody who waits is answered, and the answers are remembered.
    pub(super) fn answer_all(self, remembered: &mut VecDeque<Taken>, most: usize) -> Vec<Entry> {
        for taken in self.known {
            remembered.push_back(taken);
            if remembered.len() > most {
                remembered.pop_front();
            }
        }
        self.replies.into_iter().for_each(|(reply, answer)| drop(reply.send(Ok(answer))));
        self.opened.into_iter().for_each(|reply| drop(reply.send(Ok(()))));
        self.entries
    }
}

fn fingerprint(ask: &Ask) -> u64 {
    let mut hasher = DefaultHasher::new();
    serde_json::to_vec(ask).unwrap_or_default().hash(&mut hasher);
    hasher.finish()
}

fn repeated(session: SessionId, command: &CommandId) -> Fault {
    Fault::new(Kind::CommandRepeated, Operation::SubmitCommand)
        .with(Fact::Session, session.to_string())
        .with(Fact::CommandId, command.to_string())
}

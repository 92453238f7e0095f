//! People: they send commands, repeat them, answer questions, and observe sessions over connections that break.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use budao_core::{
    Fault, Kind,
    engine::Engine as _,
    event::{
        Answer, Command, CommandBody, CommandId, Decision, Record, Seq, SessionId, Settlement,
    },
    message::Block,
    trace::Trace,
    world::Spawn as _,
};
use budao_journal::{PageLimits, Reader as _, fold};
use budao_runtime::Question;
use futures::StreamExt as _;
use rand::RngExt as _;
use tokio::sync::{Notify, mpsc};

use crate::{process::Machine, world::chance};

/// Sends of one command after which it counts as unanswered.
const TRIES: usize = 400;

/// The answer to every command. Clones share one map.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answers(Arc<Mutex<BTreeMap<(SessionId, CommandId), Answer>>>);

impl Answers {
    pub(crate) fn all(&self) -> BTreeMap<(SessionId, CommandId), Answer> {
        self.0.lock().expect("nobody panics with it").clone()
    }
}

/// A message with this mark.
pub(crate) fn words(mark: usize) -> CommandBody {
    CommandBody::Message { content: vec![Block::Text(message_text(mark))] }
}

/// The text of that message.
pub(crate) fn message_text(mark: usize) -> String {
    format!("please «{mark}»")
}

/// Sends a command with the same id until it is answered, through one process after the other.
pub(crate) async fn send(
    machine: &Machine,
    answers: &Answers,
    session: SessionId,
    command: Command,
    via: usize,
) -> Option<Answer> {
    let mut wait = Duration::from_millis(40);
    for again in 0..TRIES {
        let ours = command.clone();
        let asked =
            machine.ask(via + again, |runtime| async move { runtime.submit(session, ours).await });
        match tokio::time::timeout(Duration::from_secs(120), asked).await {
            Ok(Some(Ok(answer))) => {
                note(machine, answers, session, &command.id, &answer);
                return Some(answer);
            }
            Ok(None | Some(Err(_))) | Err(_) => tokio::time::sleep(wait).await,
        }
        wait = (wait * 2).min(Duration::from_secs(5));
    }
    machine.violations.add("every command is answered", || format!("{session} {command:?}"));
    None
}

/// Notes an answer, and checks that the same id always gets the same answer.
fn note(machine: &Machine, answers: &Answers, session: SessionId, id: &CommandId, answer: &Answer) {
    let mut all = answers.0.lock().expect("nobody panics with it");
    let first = all.entry((session, id.clone())).or_insert_with(|| answer.clone());
    let same = match (&*first, answer) {
        (Answer::Accepted { at }, Answer::Accepted { at: again }) => at == again,
        (Answer::Rejected { fault }, Answer::Rejected { fault: again }) => {
            fault.kind() == again.kind()
        }
        _ => false,
    };
    machine.violations.expect(same, "the same id gets the same answer", || {
        format!("{session} {id}: {first:?}, then {answer:?}")
    });
}

/// A command with this id from a simulated user.
pub(crate) fn command(id: String, body: CommandBody) -> Command {
    Command { by: id.clone(), id: id.into(), trace: Trace::NONE, body }
}

/// Answers the open questions of a session with `allow`, or at random if it is `None`.
pub(crate) async fn decide(
    machine: &Machine,
    answers: &Answers,
    session: SessionId,
    allow: Option<bool>,
) {
    let Ok((state, _)) = fold(machine.disk.durable(), session).await else { return };
    for question in Question::open_in(&state) {
        let id = question.id.to_string();
        let mut dice = chance(machine.seed, &format!("decide {id}"));
        let decision = match allow.unwrap_or_else(|| dice.random_bool(0.6)) {
            true => Decision::Allow,
            false => Decision::Deny,
        };
        let body = CommandBody::Decide {
            question: question.id,
            decision,
            note: None,
            arguments: None,
            digest: Some(question.digest),
        };
        // After a clock was set back, a dead holder's lease outlasts the wait for an answer: the person tries again.
        for again in 0..3 {
            let command = command(format!("decide-{id}-{allow:?}-{again}"), body.clone());
            let answer = send(machine, answers, session, command, 0).await;
            let has_timed_out = |fault: &Fault| fault.kind() == Kind::RequestTimedOut;
            if !matches!(answer, Some(Answer::Rejected { fault }) if has_timed_out(&fault)) {
                break;
            }
        }
    }
}

/// Settles the open doubts of a session, each from two windows at once.
pub(crate) async fn settle(machine: &Machine, answers: &Answers, session: SessionId) {
    let Ok((state, _)) = fold(machine.disk.durable(), session).await else { return };
    for doubt in state.doubts.all_open() {
        let call = doubt.call.clone();
        let mut dice = chance(machine.seed, &format!("settle {session} {call}"));
        let said = match dice.random_range(0..3) {
            0 => Settlement::DidNotHappen,
            1 => Settlement::LeftToModel,
            _ => Settlement::Happened { result: serde_json::json!("so") },
        };
        let one = |window: &str, settlement: Settlement| {
            let body = CommandBody::SettleDoubt { call: call.clone(), settlement, note: None };
            command(format!("settle-{window}-{call}"), body)
        };
        let (first, second) = (one("a", said), one("b", Settlement::LeftToModel));
        let both = futures::future::join(
            send(machine, answers, session, first, 0),
            send(machine, answers, session, second, 1),
        );
        let (first, second) = both.await;
        let both: Vec<Answer> = [first, second].into_iter().flatten().collect();
        let is_accepted = |answer: &&Answer| matches!(answer, Answer::Accepted { .. });
        let accepted = both.iter().filter(is_accepted).count();
        // Without a disk or a writer, neither may be taken in time.
        let has_timed_out = both.iter().any(
            |answer| matches!(answer, Answer::Rejected { fault } if fault.kind() != Kind::ConstraintViolated),
        );
        let is_fair = accepted == 1 || (accepted == 0 && has_timed_out);
        machine.violations.expect(is_fair, "of two settlements one wins", || {
            format!("{session} {call}: {accepted} were accepted")
        });
    }
}

/// An observer of one session that subscribes to a process directly, without a server.
#[derive(Debug, Default)]
pub(crate) struct Watcher {
    /// The position of the last record it received.
    pub(crate) last: AtomicU64,
    away_ms: AtomicU64,
    doze_ms: AtomicU64,
    cut: Notify,
    over: AtomicBool,
}

impl Watcher {
    /// Drops the subscription and subscribes again after `away_ms`.
    pub(crate) fn cut(&self, away_ms: u64) {
        self.away_ms.store(away_ms, Ordering::Relaxed);
        self.cut.notify_one();
    }

    /// Reads nothing for `for_ms`.
    pub(crate) fn doze(&self, for_ms: u64) {
        self.doze_ms.store(for_ms, Ordering::Relaxed);
    }

    pub(crate) fn stop(&self) {
        self.over.store(true, Ordering::Relaxed);
        self.cut.notify_one();
    }

    /// Observes until it is stopped. It subscribes again after every cut and after the death of a process.
    pub(crate) async fn watch(self: Arc<Self>, machine: Arc<Machine>, session: SessionId) {
        let mut via = 0;
        while !self.over.load(Ordering::Relaxed) {
            via += 1;
            if let Some(mut records) = self.attach(&machine, session, via) {
                loop {
                    let record = tokio::select! {
                        biased;
                        () = self.cut.notified() => break,
                        record = records.recv() => record,
                    };
                    let Some(record) = record else { break };
                    self.saw(&machine, record).await;
                }
            }
            let away = self.away_ms.swap(0, Ordering::Relaxed).max(20);
            tokio::time::sleep(Duration::from_millis(away)).await;
        }
    }

    fn attach(
        &self,
        machine: &Machine,
        session: SessionId,
        via: usize,
    ) -> Option<mpsc::Receiver<Record>> {
        let process = machine.process(via)?;
        let after = self.last.load(Ordering::Relaxed);
        let (sender, receiver) = mpsc::channel(4);
        process.tasks.spawn(Box::pin(async move {
            let Ok(mut records) = process.runtime.follow(session, after).await else { return };
            while let Some(Ok(record)) = records.next().await {
                if sender.send(record).await.is_err() {
                    return;
                }
            }
        }));
        Some(receiver)
    }

    async fn saw(&self, machine: &Machine, record: Record) {
        let doze = self.doze_ms.swap(0, Ordering::Relaxed);
        if doze > 0 {
            tokio::time::sleep(Duration::from_millis(doze)).await;
        }
        let last = self.last.load(Ordering::Relaxed);
        machine.violations.expect(
            record.seq == last + 1,
            "an observer misses and repeats nothing",
            || format!("{} after {last} came {}", record.session, record.seq),
        );
        self.last.store(record.seq, Ordering::Relaxed);
        let kept = at(machine, record.session, record.seq).await;
        machine.violations.expect(
            kept.as_ref() == Some(&record),
            "nobody is told what is not on disk",
            || format!("told {record:?}, kept {kept:?}"),
        );
    }
}

/// The durable record at a position; `None` if there is none.
pub(crate) async fn at(machine: &Machine, session: SessionId, seq: Seq) -> Option<Record> {
    let limits = PageLimits { records: 1, ..PageLimits::default() };
    let page = machine.disk.durable().read(session, seq - 1, limits).await.ok()?;
    page.records.first()?.record().ok()
}

//! Tests of the inbox: commands are durable, idempotent and ordered.

use budao_core::{
    event::{Answer, Command, CommandId},
    fault::Kind,
    limits::Limits,
    trace::Trace,
};

use super::{
    Fixture,
    fixture::{fault, ids, message},
};
use crate::contract::{Append, AppendError, SubmitOutcome};

fn accepted() -> Answer {
    Answer::Accepted { at: 0 }
}

/// Pending commands are listed in order of submission, each until it has an answer.
pub async fn commands_wait_in_order_until_they_are_answered(fixture: &Fixture) {
    let lease = fixture.open().await;
    let names = ["m3", "m1", "m2"];
    for name in names {
        let submitted = fixture.journal.submit(lease.session, message(name, name)).await.unwrap();
        assert_eq!(submitted, SubmitOutcome::New);
    }
    let waiting = fixture.journal.inbox(lease.session).await.unwrap();
    assert_eq!(waiting, names.map(|name| message(name, name)));
    let append = Append {
        answers: vec![("m1".into(), accepted())],
        ..Append::new(&lease, 0, fixture.notes(1, 1))
    };
    fixture.journal.append(append).await.unwrap();
    let waiting = fixture.journal.inbox(lease.session).await.unwrap();
    assert_eq!(ids(&waiting), ["m3".into(), "m2".into()]);
    let other = fixture.open().await;
    assert_eq!(fixture.journal.inbox(other.session).await.unwrap(), []);
}

/// The sender and the trace may differ; only id and content identify a command.
pub async fn a_command_submitted_twice_waits_once_and_gets_one_answer(fixture: &Fixture) {
    let lease = fixture.open().await;
    let command = message("m", "x");
    let again = Command { trace: Trace::from_random(5), by: "other".into(), ..command.clone() };
    assert_eq!(fixture.journal.submit(lease.session, command).await.unwrap(), SubmitOutcome::New);
    let submitted = fixture.journal.submit(lease.session, again.clone()).await.unwrap();
    assert_eq!(submitted, SubmitOutcome::Pending);
    assert_eq!(fixture.journal.inbox(lease.session).await.unwrap().len(), 1);
    let answer = Answer::Rejected { fault: fault(Kind::QuestionNotOpen) };
    let append =
        Append { answers: vec![("m".into(), answer.clone())], ..Append::new(&lease, 0, vec![]) };
    assert_eq!(fixture.journal.append(append).await, Ok(0));
    for _ in 0..3 {
        let submitted = fixture.journal.submit(lease.session, again.clone()).await.unwrap();
        assert_eq!(submitted, SubmitOutcome::Answered(answer.clone()));
    }
    assert_eq!(fixture.journal.answer(lease.session, &"m".into()).await.unwrap(), Some(answer));
    assert_eq!(fixture.journal.inbox(lease.session).await.unwrap(), []);
    let other = fixture.open().await;
    let elsewhere = fixture.journal.submit(other.session, again).await.unwrap();
    assert_eq!(elsewhere, SubmitOutcome::New, "ids are unique in their session only");
}

/// Both while the command is pending and after its answer.
pub async fn a_command_id_used_for_something_else_is_refused(fixture: &Fixture) {
    let lease = fixture.open().await;
    fixture.journal.submit(lease.session, message("m", "x")).await.unwrap();
    for _ in 0..2 {
        let fault = fixture.journal.submit(lease.session, message("m", "y")).await.unwrap_err();
        assert_eq!(fault.kind(), Kind::CommandRepeated);
        let append =
            Append { answers: vec![("m".into(), accepted())], ..Append::new(&lease, 0, vec![]) };
        // In the second iteration the command already has its answer.
        let _ = fixture.journal.append(append).await;
    }
}

/// An answer frees a place for one more command.
pub async fn too_many_waiting_commands_are_refused(fixture: &Fixture) {
    let lease = fixture.open().await;
    let limit = Limits::default().queued_messages;
    for number in 0..limit {
        let command = message(&number.to_string(), "x");
        assert_eq!(
            fixture.journal.submit(lease.session, command).await.unwrap(),
            SubmitOutcome::New
        );
    }
    let fault = fixture.journal.submit(lease.session, message("more", "x")).await.unwrap_err();
    assert_eq!(fault.kind(), Kind::LimitReached);
    let known = fixture.journal.submit(lease.session, message("0", "x")).await.unwrap();
    assert_eq!(known, SubmitOutcome::Pending);
    let append =
        Append { answers: vec![("0".into(), accepted())], ..Append::new(&lease, 0, vec![]) };
    fixture.journal.append(append).await.unwrap();
    let submitted = fixture.journal.submit(lease.session, message("more", "x")).await.unwrap();
    assert_eq!(submitted, SubmitOutcome::New);
}

/// A fenced writer can record neither the effects nor the answer.
pub async fn a_command_and_its_effects_are_appended_together(fixture: &Fixture) {
    let lost = fixture.open().await;
    fixture.journal.submit(lost.session, message("m", "x")).await.unwrap();
    let lease = fixture.lease(lost.session, "writer").await;
    let append = |lease| Append {
        answers: vec![("m".into(), accepted())],
        ..Append::new(lease, 0, fixture.notes(1, 2))
    };
    assert_eq!(fixture.journal.append(append(&lost)).await, Err(AppendError::Fenced));
    assert_eq!(fixture.journal.answer(lost.session, &"m".into()).await.unwrap(), None);
    assert_eq!(fixture.journal.append(append(&lease)).await, Ok(2));
    let answer = fixture.journal.answer(lost.session, &"m".into()).await.unwrap();
    assert_eq!(answer, Some(accepted()));
}

/// A repeated id gets the recorded answer.
pub async fn a_command_without_a_submission_is_remembered(fixture: &Fixture) {
    let lease = fixture.open().await;
    let append = |expected, ids: &[&str]| Append {
        direct_commands: ids.iter().map(|id| (message(id, "x"), accepted())).collect(),
        ..Append::new(&lease, expected, fixture.notes(expected + 1, 1))
    };
    assert_eq!(fixture.journal.append(append(0, &["a", "b"])).await, Ok(1));
    assert_eq!(fixture.journal.inbox(lease.session).await.unwrap(), []);
    let submitted = fixture.journal.submit(lease.session, message("b", "x")).await.unwrap();
    assert_eq!(submitted, SubmitOutcome::Answered(accepted()));
    let fault = fixture.journal.submit(lease.session, message("b", "y")).await.unwrap_err();
    assert_eq!(fault.kind(), Kind::CommandRepeated);
    for repeated in [&["c", "a"], &["c", "c"]] {
        let refused = fixture.journal.append(append(1, repeated)).await;
        let Err(AppendError::Failed(fault)) = refused else { panic!("{refused:?}") };
        assert_eq!(fault.kind(), Kind::CommandRepeated);
        assert_eq!(fixture.journal.answer(lease.session, &"c".into()).await.unwrap(), None);
    }
    assert_eq!(fixture.journal.append(append(1, &["c"])).await, Ok(2));
}

/// The sender got a failure for the command, so neither a writer that has read it nor a later one can handle it.
pub async fn a_command_that_was_withdrawn_never_takes_effect(fixture: &Fixture) {
    let lease = fixture.open().await;
    let late = || fault(Kind::RequestTimedOut);
    let rejected = Answer::Rejected { fault: late() };
    let (journal, session) = (&fixture.journal, lease.session);
    journal.submit(session, message("waits", "x")).await.unwrap();
    // A pending command, and one that was never submitted.
    for id in ["waits", "direct"] {
        for _ in 0..2 {
            let answer = journal.withdraw(session, message(id, "x"), late()).await.unwrap();
            assert_eq!(answer, rejected, "{id}");
        }
        let again = journal.submit(session, message(id, "x")).await.unwrap();
        assert_eq!(again, SubmitOutcome::Answered(rejected.clone()), "{id}");
        let other = journal.withdraw(session, message(id, "y"), late()).await.unwrap_err();
        assert_eq!(other.kind(), Kind::CommandRepeated, "{id}");
    }
    assert_eq!(journal.inbox(session).await.unwrap(), []);
    assert_eq!(journal.await_answer(session, &"waits".into()).await.unwrap(), rejected);
    journal.submit(session, message("pending", "x")).await.unwrap();
    let asked = ["direct", "unknown", "waits", "pending"].map(CommandId::from);
    let answered = journal.answered(session, &asked).await.unwrap();
    assert_eq!(answered, ["direct", "waits"].map(CommandId::from));
    assert_eq!(journal.answered(session, &[]).await.unwrap(), []);
    let unknown = journal.answered(fixture.id(), &asked).await.unwrap_err();
    assert_eq!(unknown.kind(), Kind::UnknownSession);
    let append = || Append::new(&lease, 0, fixture.notes(1, 1));
    let answers = Append { answers: vec![("waits".into(), accepted())], ..append() };
    let taken = Append { direct_commands: vec![(message("direct", "x"), accepted())], ..append() };
    for append in [answers, taken] {
        let refused = journal.append(append).await;
        let Err(AppendError::Failed(fault)) = refused else { panic!("{refused:?}") };
        assert_eq!(fault.kind(), Kind::CommandRepeated);
    }
    assert_eq!(journal.append(append()).await, Ok(1), "nothing else is held up");
}

/// An answer is final: a late withdrawal returns it.
pub async fn what_was_answered_cannot_be_withdrawn(fixture: &Fixture) {
    let lease = fixture.open().await;
    let (journal, session) = (&fixture.journal, lease.session);
    let late = || fault(Kind::RequestTimedOut);
    journal.submit(session, message("m", "x")).await.unwrap();
    let append = Append::new(&lease, 0, fixture.notes(1, 1));
    journal.append(Append { answers: vec![("m".into(), accepted())], ..append }).await.unwrap();
    let answer = journal.withdraw(session, message("m", "x"), late()).await.unwrap();
    assert_eq!(answer, accepted());
    assert_eq!(journal.answer(session, &"m".into()).await.unwrap(), Some(accepted()));
    let unknown = journal.withdraw(fixture.id(), message("m", "x"), late()).await.unwrap_err();
    assert_eq!(unknown.kind(), Kind::UnknownSession);
}

/// An answer to an unknown or already answered command fails the whole append.
pub async fn answering_what_does_not_wait_changes_nothing(fixture: &Fixture) {
    let lease = fixture.open().await;
    fixture.journal.submit(lease.session, message("m", "x")).await.unwrap();
    let append = |expected, ids: &[&str]| Append {
        answers: ids.iter().map(|id| ((*id).into(), accepted())).collect(),
        ..Append::new(&lease, expected, fixture.notes(expected + 1, 1))
    };
    let refused = fixture.journal.append(append(0, &["m", "unknown"])).await;
    assert!(matches!(refused, Err(AppendError::Failed(_))), "{refused:?}");
    assert_eq!(fixture.journal.inbox(lease.session).await.unwrap().len(), 1);
    assert_eq!(fixture.journal.append(append(0, &["m"])).await, Ok(1));
    let refused = fixture.journal.append(append(1, &["m"])).await;
    assert!(matches!(refused, Err(AppendError::Failed(_))), "{refused:?}");
    assert_eq!(fixture.read_all(lease.session, 0).await.len(), 1);
}

/// Also when the answer exists before the wait begins.
pub async fn a_waiter_gets_the_answer(fixture: &Fixture) {
    let lease = fixture.open().await;
    let fault = fixture.journal.await_answer(lease.session, &"m".into()).await.unwrap_err();
    assert_eq!(fault.kind(), Kind::BadRequest, "no such command");
    fixture.journal.submit(lease.session, message("m", "x")).await.unwrap();
    let id = "m".into();
    let waiting = fixture.journal.await_answer(lease.session, &id);
    let answering = async {
        fixture.append(&lease, 0, 1).await;
        let append =
            Append { answers: vec![("m".into(), accepted())], ..Append::new(&lease, 1, vec![]) };
        fixture.journal.append(append).await.unwrap();
    };
    let (answer, ()) = tokio::join!(biased; waiting, answering);
    assert_eq!(answer.unwrap(), accepted());
    assert_eq!(fixture.journal.await_answer(lease.session, &"m".into()).await.unwrap(), accepted());
}

/// Also when the command arrives before the wait begins.
pub async fn a_writer_is_woken_by_a_command(fixture: &Fixture) {
    let lease = fixture.open().await;
    let mut watch = fixture.journal.watch(lease.session);
    fixture.journal.submit(lease.session, message("early", "x")).await.unwrap();
    watch.wait_for_change().await;
    let submitting = fixture.journal.submit(lease.session, message("late", "x"));
    let woken = async {
        while fixture.journal.inbox(lease.session).await.unwrap().len() < 2 {
            watch.wait_for_change().await;
        }
    };
    let ((), submitted) = tokio::join!(biased; woken, submitting);
    assert_eq!(submitted.unwrap(), SubmitOutcome::New);
}

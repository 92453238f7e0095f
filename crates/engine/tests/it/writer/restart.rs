//! Restarts of a session's task, and how commands reach it: by the registry or by the inbox.

use budao_core::retry::RetryPolicy;
use budao_engine::{
    RemoteCommand, RemoteSubmission, RestartDecision, RestartPolicy, SessionRegistry, TaskRefusal,
    submit_remote, task_gone,
};
use tokio::sync::mpsc;

use super::*;

const ID: SessionId = SessionId(uuid::Uuid::from_u128(7));

fn failed(kind: Kind) -> Result<WriterExit, Box<dyn std::any::Any + Send>> {
    Ok(WriterExit::Failed(Fault::new(kind, Operation::AppendRecords)))
}

#[test]
fn an_ended_task_leaves_an_answer_for_later_commands() {
    let policy = RetryPolicy::default();
    let after = |exit| match RestartPolicy::new(ID).decide(Ok(exit), &policy) {
        RestartDecision::End(result) => result.err(),
        other => panic!("{other:?}"),
    };
    assert_eq!(after(WriterExit::Idle), None);
    assert_eq!(after(WriterExit::Stopped), Some(task_gone(ID).into()));
    assert_eq!(after(WriterExit::Fenced), Some(TaskRefusal::UseInbox));
}

#[test]
fn the_task_reloads_its_session_four_times_after_journal_faults() {
    let policy = RetryPolicy::default();
    let mut restarts = RestartPolicy::new(ID);
    for attempt in 1..5 {
        let RestartDecision::Restart(wait) = restarts.decide(failed(Kind::JournalBusy), &policy)
        else {
            panic!("given up at {attempt}");
        };
        assert_eq!(wait, policy.delay(attempt, 0.0));
        assert_eq!(restarts.take_abort_fault(), None);
    }
    let RestartDecision::Abandon(fault) = restarts.decide(failed(Kind::JournalBusy), &policy)
    else {
        panic!("never given up");
    };
    assert_eq!(fault.kind(), Kind::JournalBusy);
}

#[test]
fn after_a_full_disk_the_reloaded_session_ends_its_turn_with_that_fault() {
    let mut restarts = RestartPolicy::new(ID);
    let after = restarts.decide(failed(Kind::JournalFull), &RetryPolicy::default());
    assert!(matches!(after, RestartDecision::Restart(_)), "{after:?}");
    assert_eq!(restarts.take_abort_fault().map(|fault| fault.kind()), Some(Kind::JournalFull));
    assert_eq!(restarts.take_abort_fault(), None, "once");
}

#[test]
fn a_repeated_command_uses_no_restart() {
    let mut restarts = RestartPolicy::new(ID);
    for _ in 0..100 {
        let after = restarts.decide(failed(Kind::CommandRepeated), &RetryPolicy::default());
        assert!(matches!(after, RestartDecision::Restart(Duration::ZERO)), "{after:?}");
    }
}

#[test]
fn a_permanent_journal_fault_ends_the_task_at_once() {
    for kind in
        [Kind::UnknownSession, Kind::JournalDamaged, Kind::JournalNewer, Kind::JournalOutdated]
    {
        let after = RestartPolicy::new(ID).decide(failed(kind), &RetryPolicy::default());
        assert!(
            matches!(&after, RestartDecision::Abandon(fault) if fault.kind() == kind),
            "{after:?}"
        );
    }
}

#[test]
fn a_panic_uses_a_restart() {
    let mut restarts = RestartPolicy::new(ID);
    for _ in 1..5 {
        let after = restarts.decide(Err(Box::new("boom")), &RetryPolicy::default());
        assert!(matches!(after, RestartDecision::Restart(_)), "{after:?}");
    }
    let after = restarts.decide(Err(Box::new("boom")), &RetryPolicy::default());
    let RestartDecision::Abandon(fault) = after else { panic!("{after:?}") };
    assert_eq!(fault.kind(), Kind::Bug);
    assert!(fault.to_string().contains("panicked"), "{fault}");
}

#[tokio::test(start_paused = true)]
async fn the_registry_sends_a_message_to_the_running_task_or_its_successor() {
    let sessions: SessionRegistry<u32> = SessionRegistry::default();
    assert!(sessions.is_empty() && !sessions.contains(ID));
    let (sender, mut task) = mpsc::channel(4);
    sessions.send(ID, 1, || sender.clone(), 1).await.unwrap();
    sessions.send(ID, 1, || unreachable!("one runs"), 2).await.unwrap();
    assert_eq!((task.recv().await, task.recv().await), (Some(1), Some(2)));
    assert!(sessions.contains(ID) && sessions.clone().len() == 1);

    drop(task);
    assert!(!sessions.contains(ID), "it is just ending");
    let (next, mut taken_over) = mpsc::channel(4);
    sessions.send(ID, 1, || next.clone(), 3).await.unwrap();
    assert_eq!(taken_over.recv().await, Some(3));

    sessions.remove(ID, &sender);
    assert_eq!(sessions.len(), 1, "the first one's place is another's");
    sessions.remove(ID, &next);
    assert!(sessions.is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_registry_stops_starting_tasks_that_end_at_once() {
    let sessions: SessionRegistry<u32> = SessionRegistry::default();
    let starts = std::cell::Cell::new(0);
    let start = || {
        starts.set(starts.get() + 1);
        mpsc::channel(1).0
    };
    let fault = sessions.send(ID, 1, start, 1).await.unwrap_err();
    assert_eq!(fault.kind(), Kind::SessionBusy);
    assert!((16..=32).contains(&starts.get()), "{}", starts.get());
}

#[tokio::test(start_paused = true)]
async fn the_registry_bounds_loaded_sessions_and_lists_them_oldest_first() {
    let sessions: SessionRegistry<u32> = SessionRegistry::default();
    let other = SessionId(uuid::Uuid::from_u128(3));
    let (first, _kept) = mpsc::channel(1);
    let (second, _also) = mpsc::channel(1);
    sessions.send(ID, 2, || first.clone(), 1).await.unwrap();
    sessions.send(other, 2, || second.clone(), 1).await.unwrap();
    let third = SessionId(uuid::Uuid::from_u128(9));
    let fault = sessions.send(third, 2, || unreachable!(), 1).await.unwrap_err();
    assert_eq!(fault.kind(), Kind::TooManySessions);
    let all = sessions.senders();
    assert!(all[0].same_channel(&second) && all[1].same_channel(&first));
}

async fn handed(fixture: &Fixture) -> RemoteCommand {
    let submitted = submit_remote(&*fixture.journal, fixture.id, command("c1", "x")).await.unwrap();
    let RemoteSubmission::Pending(handed) = submitted else { panic!("{submitted:?}") };
    *handed
}

#[tokio::test(start_paused = true)]
async fn a_remote_command_can_be_awaited_in_several_waits() {
    let fixture = Fixture::new();
    let (mut writer, session) = fixture.opened().await;
    let mut handed = handed(&fixture).await;
    let wait = Duration::from_secs(1);
    let answer = handed.wait(&*fixture.journal, &*fixture.clock, wait).await.unwrap();
    assert_eq!(answer, None, "not yet");
    let mut batch = Batch::default();
    let (_, _answer_receiver) =
        take(&writer, &session, &mut batch, &command("c1", "x"), true).await;
    writer.commit(batch, &session, &NoReclaimer).await.unwrap();
    let answer = handed.wait(&*fixture.journal, &*fixture.clock, wait).await.unwrap();
    assert_eq!(answer, Some(Answer::Accepted { at: 1 }));
    let again = submit_remote(&*fixture.journal, fixture.id, command("c1", "x")).await.unwrap();
    let RemoteSubmission::Answered(answer) = again else { panic!("{again:?}") };
    assert_eq!(answer, Answer::Accepted { at: 1 }, "and is answered at once after that");
}

#[tokio::test(start_paused = true)]
async fn a_remote_command_without_an_answer_times_out_after_35_seconds() {
    let fixture = Fixture::new();
    let (_writer, _) = fixture.opened().await;
    let mut handed = handed(&fixture).await;
    let began = tokio::time::Instant::now();
    let fault = loop {
        let wait = Duration::from_secs(7);
        match handed.wait(&*fixture.journal, &*fixture.clock, wait).await {
            Ok(None) => {}
            Ok(Some(answer)) => panic!("{answer:?}"),
            Err(fault) => break fault,
        }
    };
    assert_eq!(fault.kind(), Kind::RequestTimedOut);
    assert_eq!(began.elapsed(), Duration::from_secs(35));
    fixture.flaky.plan("submit", Verdict::Refuse(fixture.fault(Kind::JournalBusy)));
    let fault = submit_remote(&*fixture.journal, fixture.id, command("c2", "x")).await.unwrap_err();
    assert_eq!(fault.kind(), Kind::JournalBusy);
}

//! Batches: durable before their callers are answered, and stored once, whatever the journal returns.

use async_trait::async_trait;

use super::*;

/// Makes room, or not, and counts.
struct LimitedSpace {
    has_room: bool,
    reclaims: Mutex<u32>,
}

impl LimitedSpace {
    fn new(has_room: bool) -> Self {
        Self { has_room, reclaims: Mutex::default() }
    }
}

#[async_trait]
impl SpaceReclaimer for LimitedSpace {
    async fn reclaim(&self, fault: &Fault) -> bool {
        assert_eq!(fault.kind(), Kind::JournalFull);
        *self.reclaims.lock().unwrap() += 1;
        self.has_room
    }
}

#[tokio::test(start_paused = true)]
async fn an_append_that_fails_transiently_is_repeated_with_growing_waits() {
    let fixture = Fixture::new();
    let (mut writer, mut session) = fixture.opened().await;
    for _ in 0..3 {
        fixture.flaky.plan("append", Verdict::Refuse(fixture.fault(Kind::JournalBusy)));
    }
    let began = tokio::time::Instant::now();
    fixture.note(&mut writer, &mut session, &NoReclaimer).await.unwrap();
    assert_eq!(began.elapsed(), Duration::from_millis(100 + 200 + 300));
    assert_eq!(fixture.head().await, 2);
}

#[tokio::test(start_paused = true)]
async fn an_append_whose_answer_was_lost_is_stored_once() {
    let fixture = Fixture::new();
    let (mut writer, mut session) = fixture.opened().await;
    fixture.flaky.plan("append", Verdict::Unconfirmed(fixture.fault(Kind::JournalBusy)));
    fixture.note(&mut writer, &mut session, &NoReclaimer).await.unwrap();
    assert_eq!(fixture.head().await, 2);
}

#[tokio::test(start_paused = true)]
async fn after_four_failed_appends_callers_get_the_fault_and_the_command_is_new_again() {
    let fixture = Fixture::new();
    let (mut writer, session) = fixture.opened().await;
    for _ in 0..4 {
        fixture.flaky.plan("append", Verdict::Refuse(fixture.fault(Kind::JournalBusy)));
    }
    let mut batch = Batch::default();
    let (_, answer_receiver) =
        take(&writer, &session, &mut batch, &command("c1", "x"), false).await;
    let exit = writer.commit(batch, &session, &NoReclaimer).await;
    assert_eq!(kind_of(exit), Kind::JournalBusy);
    assert_eq!(answer_kind(answer_receiver.await.unwrap()), Kind::JournalBusy);
    assert!(fixture.flaky.is_through());
    let mut batch = Batch::default();
    let (is_new, _) = take(&writer, &session, &mut batch, &command("c1", "x"), false).await;
    assert!(is_new, "it never happened");
}

#[tokio::test(start_paused = true)]
async fn an_opening_that_cannot_be_stored_fails_its_caller() {
    let fixture = Fixture::new();
    let (mut writer, mut session) = fixture.begin("ada", &Gone("nobody")).await.unwrap();
    let (reply, answer_receiver) = oneshot::channel();
    let mut batch = Batch::default();
    assert!(writer.admit_opening(&session, reply, &mut batch));
    fixture.tell(&mut batch, &mut session, opened());
    fixture.flaky.plan("append", Verdict::Refuse(fixture.fault(Kind::JournalDamaged)));
    let began = tokio::time::Instant::now();
    assert_eq!(kind_of(writer.commit(batch, &session, &NoReclaimer).await), Kind::JournalDamaged);
    assert_eq!(began.elapsed(), Duration::ZERO, "damage does not pass");
    assert_eq!(answer_kind(answer_receiver.await.unwrap()), Kind::JournalDamaged);
}

#[tokio::test(start_paused = true)]
async fn a_full_disk_gets_one_more_append_if_space_was_reclaimed() {
    let fixture = Fixture::new();
    let (mut writer, mut session) = fixture.opened().await;
    let full = || Verdict::Refuse(fixture.fault(Kind::JournalFull));
    fixture.flaky.plan("append", full());
    let limited_space = LimitedSpace::new(true);
    fixture.note(&mut writer, &mut session, &limited_space).await.unwrap();
    assert_eq!((fixture.head().await, *limited_space.reclaims.lock().unwrap()), (2, 1));

    fixture.flaky.plan("append", full());
    fixture.flaky.plan("append", full());
    let limited_space = LimitedSpace::new(true);
    let exit = fixture.note(&mut writer, &mut session, &limited_space).await;
    assert_eq!((kind_of(exit), *limited_space.reclaims.lock().unwrap()), (Kind::JournalFull, 1));
    assert!(fixture.flaky.is_through());

    let (mut writer, mut session) = fixture.begin("ada", &Gone("ada")).await.unwrap();
    fixture.flaky.plan("append", full());
    let exit = fixture.note(&mut writer, &mut session, &NoReclaimer).await;
    assert_eq!(kind_of(exit), Kind::JournalFull);
    assert!(fixture.flaky.is_through(), "no room, no other try");
}

#[tokio::test(start_paused = true)]
async fn an_unexpected_head_fails_the_batch() {
    let fixture = Fixture::new();
    let (mut writer, mut session) = fixture.opened().await;
    fixture.tell(&mut Batch::default(), &mut session, opened());
    let exit = fixture.note(&mut writer, &mut session, &NoReclaimer).await;
    assert_eq!(kind_of(exit), Kind::Fenced);
    assert_eq!(fixture.head().await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_repeated_command_gets_its_first_answer() {
    let fixture = Fixture::new();
    let (mut writer, session) = fixture.opened().await;
    let mut batch = Batch::default();
    let (is_new, first) = take(&writer, &session, &mut batch, &command("c1", "x"), false).await;
    assert!(is_new);
    let (is_new, twice) = take(&writer, &session, &mut batch, &command("c1", "x"), false).await;
    assert!(!is_new, "in the same batch");
    let (is_new, other) = take(&writer, &session, &mut batch, &command("c1", "y"), false).await;
    assert!(!is_new);
    assert_eq!(
        answer_kind(other.await.unwrap()),
        Kind::CommandRepeated,
        "the same id for other words"
    );
    let committed = writer.commit(batch, &session, &NoReclaimer).await.unwrap();
    assert!(committed.wrote, "its answer is kept");
    assert_eq!(first.await.unwrap().unwrap(), Answer::Accepted { at: 1 });
    assert_eq!(twice.await.unwrap().unwrap(), Answer::Accepted { at: 1 });

    let mut batch = Batch::default();
    let (is_new, again) = take(&writer, &session, &mut batch, &command("c1", "x"), false).await;
    assert!(!is_new, "in a later batch");
    let committed = writer.commit(batch, &session, &NoReclaimer).await.unwrap();
    assert!(!committed.wrote, "there is nothing new");
    assert_eq!(again.await.unwrap().unwrap(), Answer::Accepted { at: 1 });
}

#[tokio::test(start_paused = true)]
async fn a_repetition_older_than_64_commands_is_sent_to_the_inbox() {
    let fixture = Fixture::new();
    let (mut writer, session) = fixture.opened().await;
    for number in 0..65 {
        let mut batch = Batch::default();
        let command = command(format!("c{number}"), "x");
        let (is_new, _) = take(&writer, &session, &mut batch, &command, false).await;
        assert!(is_new);
        writer.commit(batch, &session, &NoReclaimer).await.unwrap();
    }
    let mut batch = Batch::default();
    let (is_new, answer_receiver) =
        take(&writer, &session, &mut batch, &command("c0", "x"), false).await;
    assert!(!is_new);
    assert_eq!(answer_receiver.await.unwrap(), Err(TaskRefusal::UseInbox));
    let (is_new, answer_receiver) =
        take(&writer, &session, &mut batch, &command("c1", "x"), false).await;
    assert!(!is_new);
    writer.commit(batch, &session, &NoReclaimer).await.unwrap();
    assert_eq!(
        answer_receiver.await.unwrap().unwrap(),
        Answer::Accepted { at: 1 },
        "64 are remembered"
    );

    // In doubt whether it came before, it is not taken up.
    fixture.flaky.plan("answered", Verdict::Refuse(fixture.fault(Kind::JournalBusy)));
    let mut batch = Batch::default();
    let (is_new, _) = take(&writer, &session, &mut batch, &command("new", "x"), false).await;
    assert!(!is_new);
}

#[tokio::test(start_paused = true)]
async fn commands_that_arrive_together_are_one_question_to_the_journal() {
    let fixture = Fixture::new();
    let (writer, session) = fixture.opened().await;
    let commands = ["c1", "c2", "c3"].map(|id| command(id, "x"));
    // The one question fails, so none of them is known to be new; a second question would be answered.
    fixture.flaky.plan("answered", Verdict::Refuse(fixture.fault(Kind::JournalBusy)));
    let ids = commands.iter().map(|command| command.id.clone());
    let answered = writer.find_answered(ids.collect()).await;
    for command in &commands {
        let (reply, answer_receiver) = oneshot::channel();
        let arrival = CommandArrival::Direct(&answered);
        let batch = &mut Batch::default();
        assert!(writer.admit(&session, command, arrival, reply, batch).is_none());
        assert_eq!(answer_receiver.await.unwrap(), Err(TaskRefusal::UseInbox));
    }
    // Commands of this process alone are no question at all.
    fixture.flaky.plan("answered", Verdict::Refuse(fixture.fault(Kind::JournalBusy)));
    writer.find_answered(vec![CommandId::own(fixture.id.0)]).await;
    assert!(!fixture.flaky.is_through());
}

#[tokio::test(start_paused = true)]
async fn a_command_that_reached_the_inbox_first_sends_its_caller_there() {
    let fixture = Fixture::new();
    let (mut writer, session) = fixture.opened().await;
    let mut batch = Batch::default();
    let (is_new, answer_receiver) =
        take(&writer, &session, &mut batch, &command("c1", "x"), false).await;
    assert!(is_new);
    fixture.journal.submit(fixture.id, command("c1", "x")).await.unwrap();
    let exit = writer.commit(batch, &session, &NoReclaimer).await;
    assert_eq!(kind_of(exit), Kind::CommandRepeated);
    assert_eq!(answer_receiver.await.unwrap(), Err(TaskRefusal::UseInbox));
}

#[tokio::test(start_paused = true)]
async fn an_inbox_command_is_answered_in_the_inbox_and_an_own_command_is_not_stored() {
    let fixture = Fixture::new();
    let (mut writer, session) = fixture.opened().await;
    fixture.journal.submit(fixture.id, command("c1", "x")).await.unwrap();
    let waiting = writer.read_inbox().await;
    let mut batch = Batch::default();
    let (_, answer_receiver) = take(&writer, &session, &mut batch, &waiting[0], true).await;
    writer.commit(batch, &session, &NoReclaimer).await.unwrap();
    answer_receiver.await.unwrap().unwrap();
    assert_eq!(writer.read_inbox().await, []);
    let answer = fixture.journal.answer(fixture.id, &"c1".into()).await.unwrap();
    assert_eq!(answer, Some(Answer::Accepted { at: 1 }));

    let own = CommandId::own(fixture.world.uuid());
    let mut batch = Batch::default();
    let (_, answer_receiver) = take(&writer, &session, &mut batch, &command(own, "x"), false).await;
    let committed = writer.commit(batch, &session, &NoReclaimer).await.unwrap();
    assert!(!committed.wrote);
    answer_receiver.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_command_to_a_session_that_was_never_opened_is_rejected() {
    let fixture = Fixture::new();
    let (mut writer, session) = fixture.begin("ada", &Gone("nobody")).await.unwrap();
    fixture.journal.submit(fixture.id, command("c1", "x")).await.unwrap();
    let mut batch = Batch::default();
    let (is_new, answer_receiver) =
        take(&writer, &session, &mut batch, &command("c2", "x"), false).await;
    assert!(!is_new);
    assert_eq!(answer_kind(answer_receiver.await.unwrap()), Kind::UnknownSession);
    let (_, answer_receiver) = take(&writer, &session, &mut batch, &command("c1", "x"), true).await;
    assert_eq!(answer_kind(answer_receiver.await.unwrap()), Kind::UnknownSession);
    assert!(writer.commit(batch, &session, &NoReclaimer).await.unwrap().wrote);
    let answer = fixture.journal.answer(fixture.id, &"c1".into()).await.unwrap();
    assert!(matches!(answer, Some(Answer::Rejected { .. })), "{answer:?}");
}

#[tokio::test(start_paused = true)]
async fn a_trace_exporter_gets_a_span_after_its_end_is_durable() {
    let fixture = Fixture::new();
    let (mut writer, mut session) = fixture.opened().await;
    fixture.spans.is_on.store(true, Ordering::SeqCst);
    let message = CommandId::from("c1");
    let mut batch = Batch::default();
    let content = vec![Block::Text("x".into())];
    fixture.tell(
        &mut batch,
        &mut session,
        Event::MessageAccepted { command: message.clone(), content },
    );
    fixture.tell(&mut batch, &mut session, Event::TurnStarted { message });
    writer.commit(batch, &session, &NoReclaimer).await.unwrap();
    let mut batch = Batch::default();
    fixture.tell(
        &mut batch,
        &mut session,
        Event::TurnEnded {
            stop: budao_core::event::StopReason::EndTurn,
            fault: None,
            steps: 0,
            usage: Default::default(),
        },
    );
    assert!(fixture.spans.spans.lock().unwrap().is_empty());
    writer.commit(batch, &session, &NoReclaimer).await.unwrap();
    assert_eq!(fixture.spans.spans.lock().unwrap().len(), 1);
}

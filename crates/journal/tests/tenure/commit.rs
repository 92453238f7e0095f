//! Rounds: durable before they are answered, once, whatever the journal says.

use async_trait::async_trait;

use super::*;

fn heard_kind(heard: Result<Answer, Fault>) -> Kind {
    heard.unwrap_err().kind()
}

/// Makes room, or not, and counts.
struct Cellar {
    has_room: bool,
    asked: Mutex<u32>,
}

impl Cellar {
    fn new(has_room: bool) -> Self {
        Self { has_room, asked: Mutex::default() }
    }
}

#[async_trait]
impl Room for Cellar {
    async fn make(&self, fault: &Fault) -> bool {
        assert_eq!(fault.kind(), Kind::JournalFull);
        *self.asked.lock().unwrap() += 1;
        self.has_room
    }
}

#[tokio::test(start_paused = true)]
async fn what_passes_is_tried_again_with_growing_waits() {
    let house = House::new();
    let (mut tenure, mut session) = house.opened().await;
    for _ in 0..3 {
        house.flaky.plan("append", Trouble::Lost(house.fault(Kind::JournalBusy)));
    }
    let began = tokio::time::Instant::now();
    house.note(&mut tenure, &mut session, &NoRoom).await.unwrap();
    assert_eq!(began.elapsed(), Duration::from_millis(100 + 200 + 300));
    assert_eq!(house.head().await, 2);
}

#[tokio::test(start_paused = true)]
async fn a_write_whose_answer_was_lost_is_there_once() {
    let house = House::new();
    let (mut tenure, mut session) = house.opened().await;
    house.flaky.plan("append", Trouble::Unanswered(house.fault(Kind::JournalBusy)));
    house.note(&mut tenure, &mut session, &NoRoom).await.unwrap();
    assert_eq!(house.head().await, 2);
}

#[tokio::test(start_paused = true)]
async fn after_four_tries_whoever_waits_is_told_and_nothing_is_remembered() {
    let house = House::new();
    let (mut tenure, session) = house.opened().await;
    for _ in 0..4 {
        house.flaky.plan("append", Trouble::Lost(house.fault(Kind::JournalBusy)));
    }
    let mut round = Round::default();
    let (_, heard) = take(&tenure, &session, &mut round, &command("c1", "x"), false).await;
    let exit = tenure.commit(round, &session, &NoRoom).await;
    assert_eq!(kind_of(exit), Kind::JournalBusy);
    assert_eq!(heard_kind(heard.await.unwrap()), Kind::JournalBusy);
    assert!(house.flaky.is_through());
    let mut round = Round::default();
    let (is_new, _) = take(&tenure, &session, &mut round, &command("c1", "x"), false).await;
    assert!(is_new, "it never happened");
}

#[tokio::test(start_paused = true)]
async fn an_opening_that_fails_is_told() {
    let house = House::new();
    let (mut tenure, mut session) = house.begin("ada", &Gone("nobody")).await.unwrap();
    let (reply, heard) = oneshot::channel();
    let mut round = Round::default();
    assert!(tenure.opens(&session, reply, &mut round));
    house.tell(&mut round, &mut session, opened());
    house.flaky.plan("append", Trouble::Lost(house.fault(Kind::JournalDamaged)));
    let began = tokio::time::Instant::now();
    assert_eq!(kind_of(tenure.commit(round, &session, &NoRoom).await), Kind::JournalDamaged);
    assert_eq!(began.elapsed(), Duration::ZERO, "damage does not pass");
    assert_eq!(heard.await.unwrap().unwrap_err().kind(), Kind::JournalDamaged);
}

#[tokio::test(start_paused = true)]
async fn a_full_disk_gets_one_more_try_if_room_was_made() {
    let house = House::new();
    let (mut tenure, mut session) = house.opened().await;
    let full = || Trouble::Lost(house.fault(Kind::JournalFull));
    house.flaky.plan("append", full());
    let cellar = Cellar::new(true);
    house.note(&mut tenure, &mut session, &cellar).await.unwrap();
    assert_eq!((house.head().await, *cellar.asked.lock().unwrap()), (2, 1));

    house.flaky.plan("append", full());
    house.flaky.plan("append", full());
    let cellar = Cellar::new(true);
    let exit = house.note(&mut tenure, &mut session, &cellar).await;
    assert_eq!((kind_of(exit), *cellar.asked.lock().unwrap()), (Kind::JournalFull, 1));
    assert!(house.flaky.is_through());

    let (mut tenure, mut session) = house.begin("ada", &Gone("ada")).await.unwrap();
    house.flaky.plan("append", full());
    let exit = house.note(&mut tenure, &mut session, &NoRoom).await;
    assert_eq!(kind_of(exit), Kind::JournalFull);
    assert!(house.flaky.is_through(), "no room, no other try");
}

#[tokio::test(start_paused = true)]
async fn a_head_that_is_not_ours_fails_the_round() {
    let house = House::new();
    let (mut tenure, mut session) = house.opened().await;
    house.tell(&mut Round::default(), &mut session, opened());
    let exit = house.note(&mut tenure, &mut session, &NoRoom).await;
    assert_eq!(kind_of(exit), Kind::Fenced);
    assert_eq!(house.head().await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_command_that_comes_again_gets_the_answer_it_had() {
    let house = House::new();
    let (mut tenure, session) = house.opened().await;
    let mut round = Round::default();
    let (is_new, first) = take(&tenure, &session, &mut round, &command("c1", "x"), false).await;
    assert!(is_new);
    let (is_new, twice) = take(&tenure, &session, &mut round, &command("c1", "x"), false).await;
    assert!(!is_new, "in the same round");
    let (is_new, other) = take(&tenure, &session, &mut round, &command("c1", "y"), false).await;
    assert!(!is_new);
    assert_eq!(
        heard_kind(other.await.unwrap()),
        Kind::CommandRepeated,
        "the same id for other words"
    );
    let committed = tenure.commit(round, &session, &NoRoom).await.unwrap();
    assert!(committed.wrote, "its answer is kept");
    assert_eq!(first.await.unwrap().unwrap(), Answer::Accepted { at: 1 });
    assert_eq!(twice.await.unwrap().unwrap(), Answer::Accepted { at: 1 });

    let mut round = Round::default();
    let (is_new, again) = take(&tenure, &session, &mut round, &command("c1", "x"), false).await;
    assert!(!is_new, "in a later round");
    let committed = tenure.commit(round, &session, &NoRoom).await.unwrap();
    assert!(!committed.wrote, "there is nothing new");
    assert_eq!(again.await.unwrap().unwrap(), Answer::Accepted { at: 1 });
}

#[tokio::test(start_paused = true)]
async fn a_command_from_longer_ago_than_is_remembered_is_asked_for_at_the_inbox() {
    let house = House::new();
    let (mut tenure, session) = house.opened().await;
    for number in 0..65 {
        let mut round = Round::default();
        let command = command(format!("c{number}"), "x");
        let (is_new, _) = take(&tenure, &session, &mut round, &command, false).await;
        assert!(is_new);
        tenure.commit(round, &session, &NoRoom).await.unwrap();
    }
    let mut round = Round::default();
    let (is_new, heard) = take(&tenure, &session, &mut round, &command("c0", "x"), false).await;
    assert!(!is_new);
    assert_eq!(heard_kind(heard.await.unwrap()), Kind::SessionBusy);
    let (is_new, heard) = take(&tenure, &session, &mut round, &command("c1", "x"), false).await;
    assert!(!is_new);
    tenure.commit(round, &session, &NoRoom).await.unwrap();
    assert_eq!(heard.await.unwrap().unwrap(), Answer::Accepted { at: 1 }, "64 are remembered");

    // In doubt whether it came before, it is not taken up.
    house.flaky.plan("answer", Trouble::Lost(house.fault(Kind::JournalBusy)));
    let mut round = Round::default();
    let (is_new, _) = take(&tenure, &session, &mut round, &command("new", "x"), false).await;
    assert!(!is_new);
}

#[tokio::test(start_paused = true)]
async fn a_command_that_somebody_else_took_meanwhile_sends_whoever_waits_to_the_inbox() {
    let house = House::new();
    let (mut tenure, session) = house.opened().await;
    let mut round = Round::default();
    let (is_new, heard) = take(&tenure, &session, &mut round, &command("c1", "x"), false).await;
    assert!(is_new);
    house.journal.submit(house.id, command("c1", "x")).await.unwrap();
    let exit = tenure.commit(round, &session, &NoRoom).await;
    assert_eq!(kind_of(exit), Kind::CommandRepeated);
    assert_eq!(heard_kind(heard.await.unwrap()), Kind::SessionBusy);
}

#[tokio::test(start_paused = true)]
async fn a_command_of_the_inbox_is_answered_there_and_one_of_our_own_is_not_kept() {
    let house = House::new();
    let (mut tenure, session) = house.opened().await;
    house.journal.submit(house.id, command("c1", "x")).await.unwrap();
    let waiting = tenure.inbox().await;
    let mut round = Round::default();
    let (_, heard) = take(&tenure, &session, &mut round, &waiting[0], true).await;
    tenure.commit(round, &session, &NoRoom).await.unwrap();
    heard.await.unwrap().unwrap();
    assert_eq!(tenure.inbox().await, []);
    let answer = house.journal.answer(house.id, &"c1".into()).await.unwrap();
    assert_eq!(answer, Some(Answer::Accepted { at: 1 }));

    let own = CommandId::own(house.world.uuid());
    let mut round = Round::default();
    let (_, heard) = take(&tenure, &session, &mut round, &command(own, "x"), false).await;
    let committed = tenure.commit(round, &session, &NoRoom).await.unwrap();
    assert!(!committed.wrote);
    heard.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn whoever_asks_something_of_a_session_that_was_never_opened_is_told() {
    let house = House::new();
    let (mut tenure, session) = house.begin("ada", &Gone("nobody")).await.unwrap();
    house.journal.submit(house.id, command("c1", "x")).await.unwrap();
    let mut round = Round::default();
    let (is_new, heard) = take(&tenure, &session, &mut round, &command("c2", "x"), false).await;
    assert!(!is_new);
    assert_eq!(heard_kind(heard.await.unwrap()), Kind::UnknownSession);
    let (_, heard) = take(&tenure, &session, &mut round, &command("c1", "x"), true).await;
    assert_eq!(heard_kind(heard.await.unwrap()), Kind::UnknownSession);
    assert!(tenure.commit(round, &session, &NoRoom).await.unwrap().wrote);
    let answer = house.journal.answer(house.id, &"c1".into()).await.unwrap();
    assert!(matches!(answer, Some(Answer::Rejected { .. })), "{answer:?}");
}

#[tokio::test(start_paused = true)]
async fn who_collects_traces_is_told_what_is_over_once_it_is_durable() {
    let house = House::new();
    let (mut tenure, mut session) = house.opened().await;
    house.spans.is_on.store(true, Ordering::SeqCst);
    let message = CommandId::from("c1");
    let mut round = Round::default();
    let content = vec![Block::Text("x".into())];
    house.tell(
        &mut round,
        &mut session,
        Event::MessageAccepted { command: message.clone(), content },
    );
    house.tell(&mut round, &mut session, Event::TurnStarted { message });
    tenure.commit(round, &session, &NoRoom).await.unwrap();
    let mut round = Round::default();
    house.tell(
        &mut round,
        &mut session,
        Event::TurnEnded {
            stop: budao_core::event::StopReason::EndTurn,
            fault: None,
            steps: 0,
            usage: Default::default(),
        },
    );
    assert!(house.spans.spans.lock().unwrap().is_empty());
    tenure.commit(round, &session, &NoRoom).await.unwrap();
    assert_eq!(house.spans.spans.lock().unwrap().len(), 1);
}

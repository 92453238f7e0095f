//! The limits of one outbox, and of all outboxes together.

use futures::FutureExt as _;

use super::*;

fn frame(bytes: usize) -> EncodedFrame {
    EncodedFrame { text: "x".repeat(bytes - FRAME_OVERHEAD_BYTES).into(), at: None }
}

#[tokio::test]
async fn a_reader_too_far_behind_is_disconnected_and_frees_its_buffer() {
    let budget = Budget::new(10_000);
    let outbox = Outbox::new(1_000, Arc::clone(&budget), Timestamp::default());
    for _ in 0..10 {
        outbox.deliver(frame(100)).unwrap();
    }
    assert_eq!(budget.used_bytes(), 1_000);
    assert_eq!(outbox.deliver(frame(100)), Err(OutboxClosed));
    assert_eq!(budget.used_bytes(), 0);
    assert_eq!(outbox.next().await.unwrap_err().code, close::TOO_SLOW);
    assert_eq!(outbox.send(frame(100)).await, Err(OutboxClosed));
}

#[tokio::test]
async fn one_frame_fits_however_large_it_is() {
    let outbox = Outbox::new(1_000, Budget::new(10_000), Timestamp::default());
    outbox.deliver(frame(50_000)).unwrap();
    assert_eq!(outbox.next().await.unwrap().len(), 1);
}

#[tokio::test]
async fn frames_taken_by_the_writer_count_until_they_are_sent() {
    let budget = Budget::new(10_000);
    let outbox = Outbox::new(1_000, Arc::clone(&budget), Timestamp::default());
    outbox.deliver(frame(600)).unwrap();
    let taken = outbox.next().await.unwrap();
    assert_eq!(budget.used_bytes(), 600);
    let (waiting, ()) = tokio::join!(outbox.send(frame(400)), async { outbox.mark_sent(&taken) });
    waiting.unwrap();
    assert_eq!((budget.used_bytes(), outbox.bytes()), (400, 400));
    drop((taken, outbox));
    assert_eq!(budget.used_bytes(), 0, "bytes that were never sent are released");
}

#[tokio::test]
async fn unread_histories_leave_half_of_the_buffer_space_to_live_frames() {
    let budget = Budget::new(100_000);
    let fill = |_| {
        let outbox = Outbox::new(10_000, Arc::clone(&budget), Timestamp::default());
        // Fills the outbox until `send` would wait.
        while outbox.send(frame(1_000)).now_or_never().is_some() {}
        outbox
    };
    let unread: Vec<Outbox> = (0..30).map(fill).collect();
    // Half of the budget, the frames that exceeded it, and one frame per later outbox.
    assert!(budget.used_bytes() <= 50_000 + 6_000 + 30_000, "{} bytes wait", budget.used_bytes());
    assert_eq!(unread[29].bytes(), 1_000);
    let taken = unread[29].next().await.unwrap();
    unread[29].mark_sent(&taken);
    unread[29]
        .send(frame(1_000))
        .now_or_never()
        .expect("an outbox that is read accepts more")
        .unwrap();
}

#[test]
fn the_shared_bound_counts_the_frames_of_all_outboxes() {
    let budget = Budget::new(1_000);
    let outbox = || Outbox::new(1_000, Arc::clone(&budget), Timestamp::default());
    let (one, two) = (outbox(), outbox());
    one.deliver(frame(500)).unwrap();
    assert!(!budget.is_half_used());
    two.deliver(frame(100)).unwrap();
    assert!(budget.is_half_used() && !budget.is_exceeded());
    two.deliver(frame(400)).unwrap();
    assert!(!budget.is_exceeded(), "the whole budget is usable");
    one.deliver(frame(100)).unwrap();
    assert!(budget.is_exceeded());
    assert_eq!(budget.slow_observers(), 0);
    one.close_as_too_slow();
    assert_eq!((budget.slow_observers(), budget.used_bytes()), (1, 500));
    two.close_as_too_slow();
    assert_eq!((budget.slow_observers(), budget.used_bytes()), (2, 0));
}

#[tokio::test]
async fn one_write_takes_frames_up_to_its_bound() {
    let outbox = Outbox::new(1 << 20, Budget::new(1 << 20), Timestamp::default());
    let fits = BATCH_BYTES / 1_024;
    for _ in 0..fits + 4 {
        outbox.deliver(frame(1_024)).unwrap();
    }
    assert_eq!(outbox.next().await.unwrap().len(), fits);
    assert_eq!(outbox.next().await.unwrap().len(), 4);
}

#[tokio::test]
async fn a_replay_reads_nothing_before_its_outbox_has_space() {
    let outbox = Outbox::new(1_000, Budget::new(10_000), Timestamp::default());
    outbox.deliver(frame(500)).unwrap();
    outbox.wait_for_room().now_or_never().expect("half of the budget is free").unwrap();
    outbox.deliver(frame(100)).unwrap();
    assert!(outbox.wait_for_room().now_or_never().is_none());
    let taken = outbox.next().await.unwrap();
    let (room, ()) = tokio::join!(outbox.wait_for_room(), async { outbox.mark_sent(&taken) });
    room.unwrap();
}

#[test]
fn an_outbox_knows_when_its_reader_last_read() {
    let outbox = Outbox::new(1_000, Budget::new(10_000), Timestamp::from_micros(1));
    assert_eq!(outbox.last_activity(), Timestamp::from_micros(1));
    outbox.record_activity(Timestamp::from_micros(7));
    assert_eq!(outbox.last_activity(), Timestamp::from_micros(7));
}

#[tokio::test]
async fn a_close_may_follow_the_queued_frames() {
    let outbox = Outbox::new(1_000, Budget::new(10_000), Timestamp::default());
    outbox.deliver(frame(100)).unwrap();
    outbox.close(CloseReason::new(close::RESTARTING, "later"), CloseMode::Drain);
    assert_eq!(outbox.next().await.unwrap().len(), 1);
    assert_eq!(outbox.next().await.unwrap_err().code, close::RESTARTING);
    outbox.close(CloseReason::new(close::NORMAL, "again"), CloseMode::Discard);
    assert_eq!(outbox.wait_for_close().await.code, close::RESTARTING, "the first reason stands");
}

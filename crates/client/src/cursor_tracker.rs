//! Tracks a client's cursor and classifies each frame as new, duplicate or after a gap. Does no I/O.

use budao_core::fault::{Fact, Fault, Kind, Operation};
use serde_json::Value;

use crate::event::{Cursor, Event};

/// How a frame relates to the cursor.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum FrameStatus {
    /// The frame follows the cursor, or has no position in the history.
    New,
    /// The frame's position is at or before the cursor.
    Duplicate,
    /// Frames before this one are missing; a resume may still deliver them.
    Gap {
        /// The position of the last missing frame.
        to: u64,
    },
    /// The frame belongs to another epoch.
    OtherEpoch(Fault),
}

/// The cursor of one session.
#[derive(Clone, Debug, Default)]
pub(crate) struct CursorTracker {
    session: String,
    cursor: Cursor,
    /// The last frame's position according to the previous heartbeat; 0 if unknown.
    promised: u64,
}

impl CursorTracker {
    pub(crate) fn new(session: String, cursor: Cursor) -> Self {
        Self { session, cursor, promised: 0 }
    }

    pub(crate) fn session(&self) -> &str {
        &self.session
    }

    pub(crate) fn cursor(&self) -> &Cursor {
        &self.cursor
    }

    /// Classifies a frame. Only a new frame moves the cursor.
    pub(crate) fn classify(&mut self, event: &Event) -> FrameStatus {
        let Some(seq) = event.seq else { return self.heartbeat(event) };
        if let Some(epoch) = event.epoch.as_deref().filter(|epoch| *epoch != self.cursor.epoch) {
            if !self.cursor.epoch.is_empty() {
                return FrameStatus::OtherEpoch(self.epoch_fault(epoch, None));
            }
            epoch.clone_into(&mut self.cursor.epoch);
        }
        if seq <= self.cursor.seq {
            return FrameStatus::Duplicate;
        }
        match event.prev {
            Some(prev) if prev > self.cursor.seq => FrameStatus::Gap { to: prev },
            _ => {
                self.cursor.seq = seq;
                FrameStatus::New
            }
        }
    }

    /// Handles a heartbeat, which names the session's last frame. The heartbeat may arrive before that frame, so a gap
    /// is reported only by the next heartbeat.
    fn heartbeat(&mut self, event: &Event) -> FrameStatus {
        if event.event != "system.heartbeat" {
            return FrameStatus::New;
        }
        if self.promised > self.cursor.seq {
            return FrameStatus::Gap { to: std::mem::take(&mut self.promised) };
        }
        let heads = event.meta("heads").as_array().map(Vec::as_slice).unwrap_or_default();
        let own = heads.iter().find(|head| head["session_id"] == self.session.as_str());
        self.promised = own.map_or(0, |head| number(&head["last_frame_seq"]));
        FrameStatus::New
    }

    /// Applies the answer to a resume. A returned fault names the unavailable part of the history; the cursor is then
    /// after that part.
    pub(crate) fn take_resume_answer(&mut self, answer: &Event) -> Option<Fault> {
        let epoch = answer.meta("epoch").as_str().unwrap_or_default();
        match answer.meta("status").as_str() {
            Some("gap") => Some(self.skip(answer)),
            Some("expired") => {
                let head = number(answer.meta("head"));
                let fault = Fault::new(Kind::HistoryExpired, Operation::ReplayEvents)
                    .with(Fact::Session, self.session.clone())
                    .with(Fact::OldestSeq, head + 1);
                self.cursor.seq = self.cursor.seq.max(head);
                Some(fault)
            }
            Some("epoch_mismatch") => {
                let fault = self.epoch_fault(epoch, Some(number(answer.meta("head"))));
                self.cursor = Cursor { epoch: epoch.into(), seq: 0 };
                Some(fault)
            }
            _ => {
                if self.cursor.epoch.is_empty() {
                    epoch.clone_into(&mut self.cursor.epoch);
                }
                None
            }
        }
    }

    /// Moves the cursor to `to` and returns the fault that names the skipped range.
    pub(crate) fn give_up(&mut self, to: u64, reason: &str) -> Fault {
        let from = self.cursor.seq + 1;
        self.cursor.seq = self.cursor.seq.max(to);
        Fault::new(Kind::HistoryGap, Operation::ReplayEvents)
            .with(Fact::FromSeq, from)
            .with(Fact::ToSeq, to)
            .with(Fact::Session, self.session.clone())
            .with(Fact::Reason, reason.to_owned())
    }

    /// Skips the range that the server reports as lost.
    fn skip(&mut self, answer: &Event) -> Fault {
        let lost = answer.meta("lost");
        let to = number(&lost[1]).max(number(&lost[0]));
        self.give_up(to, answer.meta("reason").as_str().unwrap_or("unknown"))
    }

    fn epoch_fault(&self, epoch: &str, head: Option<u64>) -> Fault {
        let fault = Fault::new(Kind::EpochMismatch, Operation::ReplayEvents)
            .with(Fact::Session, self.session.clone())
            .with(Fact::Epoch, self.cursor.epoch.clone())
            .with(Fact::ExpectedEpoch, epoch.to_owned());
        match head {
            Some(head) => fault.with(Fact::HeadSeq, head),
            None => fault,
        }
    }
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn frame(seq: u64, prev: u64) -> Event {
        Event { seq: Some(seq), prev: Some(prev), epoch: Some("e1".into()), ..Event::default() }
    }

    fn thread(seq: u64) -> CursorTracker {
        CursorTracker::new("s".into(), Cursor { epoch: "e1".into(), seq })
    }

    fn answer(metadata: &Value) -> Event {
        Event { metadata: metadata.as_object().cloned(), ..Event::default() }
    }

    #[test]
    fn a_filtered_position_is_no_gap_and_a_missing_frame_is() {
        let mut thread = thread(4);
        assert_eq!(thread.classify(&frame(7, 4)), FrameStatus::New);
        assert_eq!(thread.classify(&frame(9, 8)), FrameStatus::Gap { to: 8 });
        assert_eq!(thread.cursor().seq, 7);
        let gap = thread.give_up(8, "missing");
        assert_eq!(gap.kind(), Kind::HistoryGap);
        assert_eq!(thread.classify(&frame(9, 8)), FrameStatus::New);
    }

    #[test]
    fn the_server_names_a_gap_and_the_thread_goes_on_behind_it() {
        let mut thread = thread(4);
        let gap = thread.take_resume_answer(&answer(
            &json!({"status": "gap", "lost": [5, 20], "reason": "count"}),
        ));
        let gap = gap.unwrap();
        assert_eq!(gap.kind(), Kind::HistoryGap);
        assert_eq!(serde_json::to_value(gap.detail()).unwrap()["from_seq"], 5);
        assert_eq!(serde_json::to_value(gap.detail()).unwrap()["to_seq"], 20);
        assert_eq!(thread.classify(&frame(21, 20)), FrameStatus::New);
    }

    #[test]
    fn another_epoch_is_reported_and_never_mixed_in() {
        let mut thread = thread(4);
        let other = Event { epoch: Some("e2".into()), ..frame(5, 4) };
        assert!(matches!(thread.classify(&other), FrameStatus::OtherEpoch(_)));
        let fault =
            thread.take_resume_answer(&answer(&json!({"status": "epoch_mismatch", "epoch": "e2"})));
        assert_eq!(fault.unwrap().kind(), Kind::EpochMismatch);
        assert_eq!(thread.cursor(), &Cursor { epoch: "e2".into(), seq: 0 });
    }

    #[test]
    fn an_idle_line_that_lost_its_last_frames_is_found_out_by_the_second_heartbeat() {
        let mut thread = thread(4);
        let heads = json!({"heads": [{"session_id": "s", "last_frame_seq": 6}]});
        let heartbeat = Event { event: "system.heartbeat".into(), ..answer(&heads) };
        assert_eq!(thread.classify(&heartbeat), FrameStatus::New);
        assert_eq!(thread.classify(&frame(6, 4)), FrameStatus::New, "it was only overtaken");
        assert_eq!(thread.classify(&heartbeat), FrameStatus::New);
        thread.cursor.seq = 4;
        assert_eq!(thread.classify(&heartbeat), FrameStatus::Gap { to: 6 });
    }

    proptest! {
        #[test]
        fn any_order_of_cuts_and_replays_gives_every_frame_once(
            rewinds in proptest::collection::vec(0..50_u64, 0..20),
        ) {
            // Goal: whatever range a server repeats, a client accepts 1..=50 once and in order.
            // Method: after each range, rewind to a random earlier frame and send from there again.
            let mut thread = CursorTracker::new("s".into(), Cursor::default());
            let mut received = Vec::new();
            let mut send = |range: std::ops::RangeInclusive<u64>| {
                for seq in range {
                    if thread.classify(&frame(seq, seq - 1)) == FrameStatus::New {
                        received.push(seq);
                    }
                }
            };
            let mut reached = 10;
            send(1..=reached);
            for back in rewinds {
                let from = reached.saturating_sub(back).max(1);
                reached = (reached + 3).min(50);
                send(from..=reached);
            }
            send(1..=50);
            prop_assert_eq!(received, (1..=50).collect::<Vec<u64>>());
        }
    }
}

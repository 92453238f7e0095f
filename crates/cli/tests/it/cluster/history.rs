//! A session as a register that grows: what clients of any server read must fit one order of all operations.
//!
//! Every read is an operation with a beginning and an end. What an operation that ended before had seen or written must be
//! in it, what nobody has sent yet must not, and a frame that was read once is the same in every later read at every
//! server. A failure names the session, the server and the frame.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, MutexGuard},
};

use serde_json::Value;

/// What is known of one session.
#[derive(Debug, Default)]
struct RegisterState {
    /// Every frame that was read, by its position.
    frames: BTreeMap<u64, String>,
    /// The texts of messages that were sent, accepted, and read.
    sent: BTreeSet<String>,
    accepted: BTreeSet<String>,
    read: BTreeSet<String>,
    reads: u64,
    is_closed: bool,
}

/// The operations of all clients on one session.
#[derive(Debug, Default)]
pub(crate) struct Register(Mutex<RegisterState>);

/// What a read must contain at least, taken when it begins.
#[derive(Debug)]
pub(crate) struct ReadFloor {
    /// The position after which it reads.
    pub(crate) after: u64,
    head: u64,
    accepted: BTreeSet<String>,
}

impl Register {
    fn state(&self) -> MutexGuard<'_, RegisterState> {
        self.0.lock().unwrap()
    }

    /// Nobody sends to the session any more.
    pub(crate) fn close(&self) {
        self.state().is_closed = true;
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.state().is_closed
    }

    /// A client begins to send a message.
    pub(crate) fn send(&self, text: &str) {
        self.state().sent.insert(text.to_owned());
    }

    /// A server has accepted a message.
    pub(crate) fn accept(&self, text: &str) {
        self.state().accepted.insert(text.to_owned());
    }

    /// A read begins, after a frame that a client has: so many before the last one.
    pub(crate) fn begin_read(&self, overlap: usize) -> ReadFloor {
        let state = self.state();
        let mut newest = state.frames.keys().rev();
        let head = newest.clone().next().copied().unwrap_or(0);
        let after = newest.nth(overlap).copied().unwrap_or(0);
        let accepted = state.accepted.difference(&state.read).cloned().collect();
        ReadFloor { after, head, accepted }
    }

    /// A read has ended: one frame a line.
    pub(crate) fn end_read(&self, floor: &ReadFloor, text: &str, who: &str) {
        let mut state = self.state();
        state.reads += 1;
        let mut last = floor.after;
        for line in text.lines() {
            let frame: Value = serde_json::from_str(line).unwrap();
            let Some(seq) = frame["seq"].as_u64() else { continue };
            assert!(seq >= last, "{who}: frames are in order: {seq} after {last}");
            last = seq;
            let known = state.frames.entry(seq).or_insert_with(|| line.to_owned());
            assert_eq!(known, line, "{who}: frame {seq} is the same in every read");
            if let (Some("user.message"), Some(text)) =
                (frame["event"].as_str(), frame["content"].as_str())
            {
                assert!(state.sent.contains(text), "{who}: `{text}` was read before it was sent");
                state.read.insert(text.to_owned());
            }
        }
        assert!(last >= floor.head, "{who}: read up to {last}, others had read {}", floor.head);
        for text in &floor.accepted {
            assert!(
                state.read.contains(text),
                "{who}: `{text}` was accepted before and is missing"
            );
        }
    }

    /// The last read, of everything: nothing that was ever read is missing. Returns the number of reads.
    pub(crate) fn check_all(&self, text: &str, who: &str) -> u64 {
        let floor = ReadFloor { after: 0, ..self.begin_read(0) };
        self.end_read(&floor, text, who);
        let seqs = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let seqs: BTreeSet<u64> = seqs.filter_map(|frame| frame["seq"].as_u64()).collect();
        let state = self.state();
        let missing: Vec<&u64> = state.frames.keys().filter(|seq| !seqs.contains(seq)).collect();
        assert!(missing.is_empty(), "{who}: frames {missing:?} were read and are gone");
        assert_eq!(state.read, state.sent, "{who}: every message is there");
        state.reads
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(seq: u64, text: &str) -> String {
        format!("{{\"seq\":{seq},\"event\":\"user.message\",\"content\":\"{text}\"}}\n")
    }

    fn is_refused(operation: impl FnOnce() + std::panic::UnwindSafe) -> bool {
        std::panic::catch_unwind(operation).is_err()
    }

    #[test]
    fn a_history_that_fits_no_order_is_refused() {
        let register = || {
            let register = Register::default();
            register.send("a");
            let floor = register.begin_read(3);
            register.end_read(&floor, &frame(1, "a"), "one");
            register.accept("a");
            register.send("b");
            register
        };
        let fits = register();
        let floor = fits.begin_read(3);
        fits.accept("b");
        fits.end_read(&floor, &frame(1, "a"), "a read that began before `b` was accepted");
        assert!(is_refused(|| {
            let register = register();
            let floor = register.begin_read(3);
            register.end_read(&floor, "", "a read behind an earlier one");
        }));
        assert!(is_refused(|| {
            let register = register();
            register.accept("b");
            let floor = register.begin_read(3);
            register.end_read(&floor, &frame(1, "a"), "a read without an accepted message");
        }));
        assert!(is_refused(|| {
            let register = register();
            let floor = register.begin_read(3);
            register.end_read(&floor, &frame(1, "b"), "a frame that changed");
        }));
        assert!(is_refused(|| {
            let register = register();
            let floor = register.begin_read(3);
            let text = frame(1, "a") + &frame(2, "c");
            register.end_read(&floor, &text, "a message that nobody sent");
        }));
        assert!(is_refused(|| {
            let register = register();
            let floor = register.begin_read(3);
            register.end_read(&floor, &(frame(1, "a") + &frame(2, "b")), "all");
            register.check_all(&frame(1, "a"), "the last read");
        }));
    }
}

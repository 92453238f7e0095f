//! Wake-ups between processes, and the slow comparison that finds what a lost one announced.
//!
//! An append never notifies in its own transaction: that would take one sync per append. One task sends what changed,
//! gathered for a few milliseconds; another listens. A wake-up is a hint: readers read the tables for the truth.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use budao_core::{
    event::{Seq, SessionId},
    fault::{Fault, Operation},
};
use tokio::sync::Notify;
use uuid::Uuid;

use crate::{connection::lock, pool::LaneKind, shared::PostgresShared};

/// Pause between two messages of a busy process.
const PAUSE: Duration = Duration::from_millis(5);
/// Pause before the comparison of all subscribed sessions.
pub(crate) const COMPARISON: Duration = Duration::from_secs(2);
/// The largest payload of a notification, below PostgreSQL's limit of 8000 bytes.
const PAYLOAD: usize = 7900;
/// Pause before a failed transport is tried again.
const FAILED_PAUSE: Duration = Duration::from_millis(500);
/// Sessions in one comparison statement.
const COMPARED: usize = 10_000;

/// Carries short messages to all processes of a journal. Messages may be lost, never altered.
#[async_trait]
pub trait WakeTransport: Send + Sync + std::fmt::Debug {
    /// Sends a message of at most 7900 bytes.
    ///
    /// # Errors
    /// When it certainly or possibly did not arrive.
    async fn send(&self, message: String) -> Result<(), Fault>;

    /// Waits for the next message of any process, this one included. `None` means that messages may have been lost
    /// since the last call.
    ///
    /// # Errors
    /// When the transport has failed; the next call tries again.
    async fn receive(&self) -> Result<Option<String>, Fault>;
}

/// What changed in a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct SessionChange {
    head: Option<Seq>,
    is_command: bool,
    is_answer: bool,
    is_history: bool,
}

/// Gathers what this process changed until it is sent.
#[derive(Debug, Default)]
pub(crate) struct Announcer {
    changes: Mutex<BTreeMap<SessionId, SessionChange>>,
    ready: Notify,
    /// Signalled when wake-ups of others may have been lost.
    lost: Notify,
}

impl Announcer {
    fn change(&self, session: SessionId, change: impl FnOnce(&mut SessionChange)) {
        change(lock(&self.changes).entry(session).or_default());
        self.ready.notify_one();
    }

    pub(crate) fn records(&self, session: SessionId, head: Seq) {
        self.change(session, |change| change.head = change.head.max(Some(head)));
    }

    pub(crate) fn announce_command(&self, session: SessionId) {
        self.change(session, |change| change.is_command = true);
    }

    pub(crate) fn announce_answer(&self, session: SessionId) {
        self.change(session, |change| change.is_answer = true);
    }

    pub(crate) fn announce_history_change(&self, session: SessionId) {
        self.change(session, |change| change.is_history = true);
    }

    /// Sends what has gathered: at once when nothing was sent for a while, else after a pause.
    pub(crate) async fn send_gathered(&self, transport: Arc<dyn WakeTransport>, node: i32) {
        loop {
            self.ready.notified().await;
            let changes = std::mem::take(&mut *lock(&self.changes));
            for message in encode(node, changes) {
                if let Err(fault) = transport.send(message).await {
                    tracing::debug!(%fault, "wake-up not sent");
                }
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// Messages of the form `NODE;SESSION:HEAD:FLAGS;…`, each below the size limit.
fn encode(node: i32, changes: BTreeMap<SessionId, SessionChange>) -> Vec<String> {
    let mut messages: Vec<String> = Vec::new();
    for (session, change) in changes {
        let flag = |is_set, letter| if is_set { letter } else { "" };
        let head = change.head.map_or(String::new(), |head| head.to_string());
        let part = format!(
            ";{}:{head}:{}{}{}",
            session.0.simple(),
            flag(change.is_command, "c"),
            flag(change.is_answer, "a"),
            flag(change.is_history, "h"),
        );
        match messages.last_mut().filter(|last| last.len() + part.len() <= PAYLOAD) {
            Some(last) => last.push_str(&part),
            None => messages.push(format!("{node}{part}")),
        }
    }
    messages
}

/// The changes in a message; nothing for a message of this process or of another form.
fn decode(message: &str, own: i32) -> Vec<(SessionId, SessionChange)> {
    let mut parts = message.split(';');
    if parts.next().and_then(|node| node.parse().ok()).is_none_or(|node: i32| node == own) {
        return Vec::new();
    }
    let change = |part: &str| {
        let mut fields = part.split(':');
        let session = SessionId(Uuid::try_parse(fields.next()?).ok()?);
        let head = fields.next()?.parse().ok();
        let flags = fields.next()?;
        let (is_command, is_answer) = (flags.contains('c'), flags.contains('a'));
        let is_history = flags.contains('h');
        Some((session, SessionChange { head, is_command, is_answer, is_history }))
    };
    parts.filter_map(change).collect()
}

/// What a comparison saw of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SessionTrace {
    epoch: i32,
    head: i64,
    removed_to: i64,
    /// The number of commands that wait, and the last of them.
    waiting: (i64, i64),
}

const COMPARE: &str = "SELECT a.uuid, s.epoch, s.head, s.removed_to, i.count, i.last \
    FROM unnest($1::uuid[]) AS a(uuid) LEFT JOIN @session s ON s.uuid = a.uuid \
    LEFT JOIN LATERAL (SELECT count(*) AS count, coalesce(max(i.id), 0) AS last FROM @inbox i \
        WHERE i.session = s.id AND i.answer IS NULL) i ON true";

impl PostgresShared {
    /// Wakes subscriptions for what other processes announced, until it is aborted.
    pub(crate) async fn listen(&self, transport: Arc<dyn WakeTransport>) {
        loop {
            match transport.receive().await {
                Ok(Some(message)) => self.take_message(&message),
                Ok(None) => self.announcer.lost.notify_one(),
                Err(fault) => {
                    tracing::debug!(%fault, "listening for wake-ups failed");
                    tokio::time::sleep(FAILED_PAUSE).await;
                }
            }
        }
    }

    /// Compares the subscribed sessions regularly, and at once after wake-ups were lost, until it is aborted.
    pub(crate) async fn compare_regularly(&self) {
        let mut seen = HashMap::new();
        loop {
            if let Err(fault) = self.compare(&mut seen).await {
                tracing::debug!(%fault, "comparison of heads failed");
            }
            let lost = self.announcer.lost.notified();
            // Either way it is time to compare.
            let _ = tokio::time::timeout(COMPARISON, lost).await;
        }
    }

    fn take_message(&self, message: &str) {
        for (session, change) in decode(message, self.node) {
            if change.is_history {
                self.notifier.announce_history_change(session);
            }
            if let Some(head) = change.head {
                self.notifier.announce_records(session, head, Vec::new());
            }
            if change.is_command {
                self.notifier.announce_command(session);
            }
            if change.is_answer {
                self.notifier.announce_answer(session);
            }
        }
    }

    /// Compares the subscribed sessions with what the last comparison saw.
    async fn compare(
        &self,
        seen: &mut HashMap<SessionId, Option<SessionTrace>>,
    ) -> Result<(), Fault> {
        let sessions = self.notifier.subscribed_sessions();
        if sessions.is_empty() {
            seen.clear();
            return Ok(());
        }
        let before = std::mem::take(seen);
        for chunk in sessions.chunks(COMPARED) {
            let ids: Vec<Uuid> = chunk.iter().map(|session| session.0).collect();
            let operation = Operation::FollowRecords;
            let rows = self.pool.run(LaneKind::Read, operation, COMPARE, &[&ids]).await?;
            for row in rows {
                let session = SessionId(row.get(0));
                let now = row.get::<_, Option<i32>>(1).map(|epoch| SessionTrace {
                    epoch,
                    head: row.get(2),
                    removed_to: row.get(3),
                    waiting: (row.get(4), row.get(5)),
                });
                self.take_comparison(session, before.get(&session), now);
                seen.insert(session, now);
            }
        }
        Ok(())
    }

    fn take_comparison(
        &self,
        session: SessionId,
        before: Option<&Option<SessionTrace>>,
        now: Option<SessionTrace>,
    ) {
        match (before, now) {
            (Some(Some(before)), Some(now)) => {
                if (before.epoch, before.removed_to) != (now.epoch, now.removed_to) {
                    self.notifier.announce_history_change(session);
                }
                if before.head != now.head {
                    self.notifier.announce_records(session, now.head.cast_unsigned(), Vec::new());
                }
                if before.waiting != now.waiting {
                    self.notifier.announce_command(session);
                    self.notifier.announce_answer(session);
                }
            }
            (Some(None), None) => {}
            (_, None) => self.notifier.announce_history_change(session),
            // What happened between the subscription's own read and this one, neither has seen.
            (_, Some(_)) => self.notifier.wake_all(session),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_change_is_in_a_message_below_the_limit_and_ones_own_are_left_out() {
        let announcer = Announcer::default();
        let session = |number: u128| SessionId(Uuid::from_u128(number));
        for number in 0..1000 {
            announcer.records(session(number), number as u64);
        }
        announcer.records(session(7), 3);
        announcer.announce_command(session(7));
        announcer.announce_answer(session(8));
        announcer.announce_history_change(session(2000));
        let messages = encode(5, std::mem::take(&mut *lock(&announcer.changes)));
        assert!(messages.len() > 1 && messages.iter().all(|message| message.len() <= PAYLOAD));
        assert!(messages.iter().all(|message| decode(message, 5).is_empty()));
        let changes: HashMap<_, _> = messages.iter().flat_map(|m| decode(m, 6)).collect();
        assert_eq!(changes.len(), 1001);
        let seven = SessionChange { head: Some(7), is_command: true, ..Default::default() };
        assert_eq!(changes[&session(7)], seven);
        assert!(changes[&session(8)].is_answer);
        assert_eq!(
            changes[&session(2000)],
            SessionChange { is_history: true, ..Default::default() }
        );
    }

    #[test]
    fn a_message_of_another_form_changes_nothing() {
        for message in ["", "x", ";", "6;", "6;abc:1:r", "6;::", "6;\u{1F38E}:1:c", "7"] {
            assert!(decode(message, 5).is_empty(), "{message}");
        }
    }
}

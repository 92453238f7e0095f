//! Distributes one session's records to its observers: followed once, projected once, encoded once.
//!
//! A hub without observers ends when no record and no observer came for 5 s, so that a reconnecting observer finds it.
//! An observer joins at a position. The hub delivers its buffered frames after that position and all live frames under
//! one lock, so no frame is lost or repeated. An observer that is further behind reads the journal first.

use std::{
    collections::{HashMap, VecDeque},
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use budao_core::{
    Fault, Kind, Lang, Timestamp,
    event::{Epoch, Seq, SessionId},
    fault::{Fact, Operation},
};
use budao_journal::StoredRecord;
use futures::{FutureExt as _, StreamExt as _};
use tokio::sync::Notify;

use crate::{
    config::Limits,
    frame::{close, connection},
    inbound::OnDisconnect,
    observer_format::{ObserverFormat, RecordEncoder},
    outbox::{CloseMode, CloseReason, EncodedFrame, Outbox},
    server::Server,
};

/// The idle time after which a hub empties its buffer; a hub without observers then ends.
const IDLE_TIMEOUT: Duration = Duration::from_secs(5);
/// Upper bound for buffered frames, for observers that join while the session runs.
const BUFFER_FRAMES_MAX: usize = 256;
const BUFFER_BYTES_MAX: usize = 64 * 1024;

/// The hubs of all observed sessions, one for each session and format. Each language is a format of its own.
#[derive(Debug, Default)]
pub(crate) struct Hubs(Mutex<HashMap<(SessionId, ObserverFormat), Arc<Hub>>>);

impl Hubs {
    fn all(&self) -> MutexGuard<'_, HashMap<(SessionId, ObserverFormat), Arc<Hub>>> {
        self.0.lock().expect("no code panics while holding this")
    }

    /// The hubs of a session, one per format.
    pub(crate) fn of(&self, session: SessionId) -> Vec<Arc<Hub>> {
        let all = self.all();
        let hub = |format| all.get(&(session, format)).cloned();
        ObserverFormat::ALL.into_iter().filter_map(hub).collect()
    }

    /// The number of a session's observers in all formats.
    pub(crate) fn observers(&self, session: SessionId) -> usize {
        self.of(session).iter().map(|hub| hub.observers()).sum()
    }

    /// Returns the session's hub; starts one at this position if there is none.
    pub(crate) fn get_or_start(&self, server: &Arc<Server>, start: HubStart) -> Arc<Hub> {
        let mut all = self.all();
        let key = (start.session, start.format);
        if let Some(hub) = all.get(&key) {
            return Arc::clone(hub);
        }
        let hub = Arc::new(Hub {
            session: start.session,
            format: start.format,
            on_disconnect: start.on_disconnect,
            state: Mutex::new(HubState {
                epoch: start.epoch,
                head: start.at,
                frame: start.frame,
                lang: start.lang,
                buffer: VecDeque::new(),
                buffer_bytes: 0,
                buffer_from: start.at,
                open_questions: question_frames(server, start.session, &start.encoder),
                observers: Vec::new(),
                has_ended: false,
            }),
            changed: Notify::new(),
        });
        all.insert(key, Arc::clone(&hub));
        let run = Arc::clone(&hub).run(Arc::clone(server), start.encoder);
        server.world.spawn.spawn(Box::pin(run));
        hub
    }

    /// Counts for metrics: hubs with observers (one per session and format), observers, and the bytes queued for the
    /// slowest observer.
    pub(crate) fn counts(&self) -> (usize, usize, usize) {
        let hubs: Vec<Arc<Hub>> = self.all().values().cloned().collect();
        let (mut observed, mut observers, mut lag) = (0, 0, 0);
        for hub in hubs {
            let state = hub.state();
            observed += usize::from(!state.observers.is_empty());
            observers += state.observers.len();
            let behind = state.observers.iter().map(|observer| observer.outbox.bytes()).max();
            lag = lag.max(behind.unwrap_or(0));
        }
        (observed, observers, lag)
    }

    fn remove(&self, hub: &Arc<Hub>) {
        let mut all = self.all();
        let key = (hub.session, hub.format);
        if all.get(&key).is_some_and(|known| Arc::ptr_eq(known, hub)) {
            all.remove(&key);
        }
    }
}

/// The position and state at which a new hub starts.
#[derive(Clone, Debug)]
pub(crate) struct HubStart {
    pub(crate) session: SessionId,
    pub(crate) format: ObserverFormat,
    /// The language of frames without a record, until the encoder knows the session's.
    pub(crate) lang: Lang,
    pub(crate) epoch: Option<Epoch>,
    /// The position of the last record that the encoder has seen.
    pub(crate) at: Seq,
    /// The position of the last frame at or before `at`.
    pub(crate) frame: Seq,
    pub(crate) encoder: RecordEncoder,
    pub(crate) on_disconnect: OnDisconnect,
}

/// One session in one format, with its observers.
#[derive(Debug)]
pub(crate) struct Hub {
    pub(crate) session: SessionId,
    pub(crate) format: ObserverFormat,
    pub(crate) on_disconnect: OnDisconnect,
    state: Mutex<HubState>,
    /// Signals that an observer joined or left.
    changed: Notify,
}

#[derive(Debug)]
struct HubState {
    /// `None` before the first record.
    epoch: Option<Epoch>,
    /// The position of the last distributed record.
    head: Seq,
    /// The position of the last distributed frame.
    frame: Seq,
    /// The language of the frames; it changes with the session's settings.
    lang: Lang,
    buffer: VecDeque<EncodedFrame>,
    buffer_bytes: usize,
    /// The buffer holds every frame after this position.
    buffer_from: Seq,
    /// The open questions, sent again to observers that resume.
    open_questions: Vec<EncodedFrame>,
    observers: Vec<Observer>,
    has_ended: bool,
}

#[derive(Debug)]
struct Observer {
    outbox: Outbox,
    /// Only frames after this position are delivered.
    after: Seq,
}

/// The result of an attempt to join.
#[derive(Debug, PartialEq)]
pub(crate) enum JoinResult {
    /// The observer receives all further frames.
    Live,
    /// The observer is behind the buffer and must read the journal first.
    Behind,
    /// The hub is ending; the caller starts another one.
    Closed,
}

/// The end of the history as known to a hub.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HubPosition {
    pub(crate) epoch: Option<Epoch>,
    pub(crate) head: Seq,
    pub(crate) frame: Seq,
}

/// The buffered frames after a cursor.
#[derive(Debug)]
pub(crate) struct MissedFrames {
    pub(crate) frames: Vec<EncodedFrame>,
    pub(crate) open_questions: Vec<EncodedFrame>,
    /// The position after these frames.
    pub(crate) position: HubPosition,
}

impl Hub {
    fn state(&self) -> MutexGuard<'_, HubState> {
        self.state.lock().expect("no code panics while holding this")
    }

    /// The current end of the history.
    pub(crate) fn position(&self) -> HubPosition {
        let HubState { epoch, head, frame, .. } = *self.state();
        HubPosition { epoch, head, frame }
    }

    /// True if an observer with the cursor `after` can join without reading the journal.
    pub(crate) fn covers(&self, after: Seq) -> bool {
        let state = self.state();
        !state.has_ended && after >= state.buffer_from && after <= state.head
    }

    /// The buffered frames after a position, and the open questions. `None` if the buffer does not reach back that far.
    pub(crate) fn missed_frames(&self, after: Seq) -> Option<MissedFrames> {
        let state = self.state();
        let HubState { epoch, head, frame, .. } = *state;
        if state.has_ended || after < state.buffer_from || after > head {
            return None;
        }
        let frames = state.buffer.iter().filter(|frame| position(frame) > after);
        Some(MissedFrames {
            frames: frames.cloned().collect(),
            open_questions: state.open_questions.clone(),
            position: HubPosition { epoch, head, frame },
        })
    }

    /// Adds an observer with the cursor `after`. `others` is the number of the session's observers in other formats.
    ///
    /// # Errors
    /// `limit_reached` if the session has too many observers.
    pub(crate) fn join(
        &self,
        outbox: &Outbox,
        after: Seq,
        others: usize,
        limits: &Limits,
        now: Timestamp,
    ) -> Result<JoinResult, Fault> {
        let mut state = self.state();
        if state.has_ended {
            return Ok(JoinResult::Closed);
        }
        if after < state.buffer_from {
            return Ok(JoinResult::Behind);
        }
        let own = state.observers.iter().position(|known| known.outbox.is_same(outbox));
        if let Some(index) = own {
            // A repeated join replaces the old entry: the observer continues at its new cursor.
            state.observers.remove(index);
        }
        state.observers.retain(|known| known.outbox.close_reason().is_none());
        let count = state.observers.len() + others;
        if count >= limits.observers && !state.disconnect_silent(limits, now) {
            return Err(observer_limit_fault(self.session, limits));
        }
        for frame in state.buffer.iter().filter(|frame| position(frame) > after) {
            if outbox.deliver(frame.clone()).is_err() {
                return Ok(JoinResult::Live);
            }
        }
        state.observers.push(Observer { outbox: outbox.clone(), after });
        drop(state);
        self.changed.notify_one();
        Ok(JoinResult::Live)
    }

    /// Checks that one more observer fits; if the session is full, disconnects a silent observer.
    ///
    /// # Errors
    /// `limit_reached` if the session is full.
    pub(crate) fn check_capacity(
        &self,
        others: usize,
        limits: &Limits,
        now: Timestamp,
    ) -> Result<(), Fault> {
        let mut state = self.state();
        let count = state.observers.len() + others;
        if count < limits.observers || state.disconnect_silent(limits, now) {
            return Ok(());
        }
        Err(observer_limit_fault(self.session, limits))
    }

    /// Removes an observer. Returns true if no observer is left.
    pub(crate) fn leave(&self, outbox: &Outbox) -> bool {
        let mut state = self.state();
        state.observers.retain(|known| !known.outbox.is_same(outbox));
        let is_unobserved = state.observers.is_empty();
        drop(state);
        self.changed.notify_one();
        is_unobserved
    }

    /// The number of observers of this hub.
    pub(crate) fn observers(&self) -> usize {
        self.state().observers.len()
    }

    /// Follows the session until it has no observers and was idle for [`IDLE_TIMEOUT`]. A panic in the projection ends
    /// the hub with a fault.
    async fn run(self: Arc<Self>, server: Arc<Server>, encoder: RecordEncoder) {
        let following = AssertUnwindSafe(self.follow(&server, encoder)).catch_unwind();
        let fault = following.await.unwrap_or_else(|_| {
            let fault = Fault::new(Kind::Bug, Operation::FollowRecords)
                .with(Fact::Session, self.session.to_string());
            Some(fault.with_cause("the code that projects the session panicked"))
        });
        self.end_observations(&server, fault.as_ref());
    }

    async fn follow(&self, server: &Server, mut encoder: RecordEncoder) -> Option<Fault> {
        let mut records = server.journal.follow(self.session, self.position().head);
        // Most sessions are idle for hours, so the timer runs only after activity.
        let mut idle = Some(server.world.clock.sleep(IDLE_TIMEOUT));
        loop {
            let idle_elapsed = async {
                match &mut idle {
                    Some(idle) => idle.await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                batch = records.next() => match batch? {
                    Ok(batch) => self.deliver_batch(server, &mut encoder, &batch),
                    Err(fault) => return Some(fault),
                },
                () = self.changed.notified() => {}
                () = idle_elapsed => {
                    if self.release_buffer() {
                        return None;
                    }
                    encoder.release_template();
                    idle = None;
                    continue;
                }
            }
            idle = Some(server.world.clock.sleep(IDLE_TIMEOUT));
        }
    }

    /// Projects and encodes a batch and delivers its frames to all observers.
    fn deliver_batch(&self, server: &Server, encoder: &mut RecordEncoder, batch: &[StoredRecord]) {
        let mut frames = Vec::with_capacity(batch.len());
        for stored in batch {
            frames.extend(encoder.encode_or_skip(stored));
        }
        let open_questions = encoder
            .take_questions_changed()
            .then(|| question_frames(server, self.session, encoder));
        let mut state = self.state();
        state.lang = encoder.language().unwrap_or(state.lang);
        state.open_questions =
            open_questions.unwrap_or_else(|| std::mem::take(&mut state.open_questions));
        if let Some(last) = batch.last() {
            state.head = last.seq;
            state.epoch = Some(last.epoch);
        }
        state.frame = frames.last().map_or(state.frame, position);
        state.observers.retain(|observer| {
            let news = frames.partition_point(|frame| position(frame) <= observer.after);
            observer.outbox.deliver_all(&frames[news..]).is_ok()
        });
        for frame in frames {
            state.push_to_buffer(frame);
        }
        while server.budget.is_exceeded() && state.disconnect_slowest() {}
    }

    /// Called after a period without activity: empties the buffer. Returns true if the hub has no observers and ends.
    pub(crate) fn release_buffer(&self) -> bool {
        let mut state = self.state();
        state.buffer = VecDeque::new();
        state.buffer_bytes = 0;
        state.buffer_from = state.head;
        state.observers.retain(|observer| observer.outbox.close_reason().is_none());
        state.observers.shrink_to_fit();
        state.has_ended = state.observers.is_empty();
        state.has_ended
    }

    fn end_observations(self: &Arc<Self>, server: &Server, fault: Option<&Fault>) {
        server.hubs.remove(self);
        let mut state = self.state();
        state.has_ended = true;
        let observers = std::mem::take(&mut state.observers);
        let lang = state.lang;
        drop(state);
        let Some(fault) = fault else { return };
        tracing::warn!(session = %self.session, %fault, "following session failed");
        let frame =
            connection::render_error(server.world.clock.now(), Some(self.session), fault, lang);
        let frame = EncodedFrame::from(&frame);
        for observer in observers {
            let _ = observer.outbox.deliver(frame.clone());
            if fault.kind() != Kind::UnknownSession {
                let close_reason =
                    CloseReason::new(close::SERVER_FAILED, "the session cannot be followed");
                observer.outbox.close(close_reason, CloseMode::Drain);
            }
        }
    }
}

/// Encodes the session's open questions.
fn question_frames(
    server: &Server,
    session: SessionId,
    encoder: &RecordEncoder,
) -> Vec<EncodedFrame> {
    encoder.open_questions(session, server.now()).iter().map(EncodedFrame::from).collect()
}

impl HubState {
    fn push_to_buffer(&mut self, frame: EncodedFrame) {
        self.buffer_bytes += frame.text.len();
        self.buffer.push_back(frame);
        while self.buffer.len() > BUFFER_FRAMES_MAX || self.buffer_bytes > BUFFER_BYTES_MAX {
            let Some(oldest) = self.buffer.pop_front() else { break };
            self.buffer_bytes -= oldest.text.len();
            self.buffer_from = position(&oldest);
        }
    }

    /// Makes room in a full session: disconnects the observer that has been silent longest, if it was silent for 1.5
    /// heartbeats. A client that reconnects must not be blocked by its own lost connection.
    fn disconnect_silent(&mut self, limits: &Limits, now: Timestamp) -> bool {
        let observers = self.observers.iter().enumerate();
        let silent = observers.min_by_key(|(_, observer)| observer.outbox.last_activity());
        let Some((index, observer)) = silent else { return false };
        if now.since(observer.outbox.last_activity()) < limits.heartbeat.mul_f32(1.5) {
            return false;
        }
        let close_reason = CloseReason::new(close::TAKEN_OVER, "replaced by another connection");
        observer.outbox.close(close_reason, CloseMode::Discard);
        self.observers.remove(index);
        true
    }

    /// Enforces the common byte limit: disconnects the observer with the most queued bytes.
    fn disconnect_slowest(&mut self) -> bool {
        let sizes = self.observers.iter().enumerate();
        let slowest = sizes.max_by_key(|(_, observer)| observer.outbox.bytes());
        let Some((index, observer)) = slowest else { return false };
        if observer.outbox.bytes() == 0 {
            return false;
        }
        observer.outbox.close_as_too_slow();
        self.observers.remove(index);
        true
    }
}

fn observer_limit_fault(session: SessionId, limits: &Limits) -> Fault {
    Fault::new(Kind::LimitReached, Operation::ReplayEvents)
        .with(Fact::Session, session.to_string())
        .with(Fact::Limit, limits.observers)
        .with(Fact::LimitName, "observers")
}

/// The position of a frame; 0 for frames without one.
fn position(frame: &EncodedFrame) -> Seq {
    frame.at.map_or(0, |(_, _, seq)| seq)
}

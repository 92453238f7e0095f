//! One session with its observers: followed once, projected once, encoded once, handed to all.
//!
//! A hub lives while somebody observes the session, and a little longer, so that who was cut finds it
//! again. Observers join at a position: what they have from there on comes from the few frames the hub
//! remembers or live, under one lock, so there is no seam. Who is further behind reads the journal first.

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
    outbox::{CloseMode, CloseReason, EncodedFrame, Outbox},
    project::Projector,
    server::Server,
};

/// How long a hub waits for somebody to come back.
const LINGER: Duration = Duration::from_secs(5);
/// Frames it remembers, for those who join while it goes on.
const REMEMBERED: usize = 256;
const REMEMBERED_BYTES: usize = 64 * 1024;

/// The language observers of a hub read; none is the session's own.
type ObserverLanguage = Option<Lang>;

/// Every session that is observed. One that is read in two languages has two hubs.
#[derive(Debug, Default)]
pub(crate) struct Hubs(Mutex<HashMap<(SessionId, ObserverLanguage), Arc<Hub>>>);

impl Hubs {
    fn all(&self) -> MutexGuard<'_, HashMap<(SessionId, ObserverLanguage), Arc<Hub>>> {
        self.0.lock().expect("no code panics while holding this")
    }

    /// The hubs of a session, one for each language it is read in.
    pub(crate) fn of(&self, session: SessionId) -> Vec<Arc<Hub>> {
        let all = self.all();
        let tongues = [None, Some(Lang::En), Some(Lang::Zh)];
        tongues.into_iter().filter_map(|tongue| all.get(&(session, tongue)).cloned()).collect()
    }

    /// How many observe a session, in whatever language.
    pub(crate) fn observers(&self, session: SessionId) -> usize {
        self.of(session).iter().map(|hub| hub.observers()).sum()
    }

    /// The hub of a session; started from this place if it has none.
    pub(crate) fn get_or_start(&self, server: &Arc<Server>, start: HubStart) -> Arc<Hub> {
        let mut all = self.all();
        let key = (start.session, start.language);
        if let Some(hub) = all.get(&key) {
            return Arc::clone(hub);
        }
        let hub = Arc::new(Hub {
            session: start.session,
            language: start.language,
            on_disconnect: start.on_disconnect,
            state: Mutex::new(State {
                epoch: start.epoch,
                head: start.at,
                frame: start.frame,
                remembered: VecDeque::new(),
                remembered_bytes: 0,
                remembered_from: start.at,
                asked: question_frames(server, start.session, &start.projector),
                observers: Vec::new(),
                is_over: false,
            }),
            changed: Notify::new(),
        });
        all.insert(key, Arc::clone(&hub));
        let run = Arc::clone(&hub).run(Arc::clone(server), Box::new(start.projector));
        server.world.spawn.spawn(Box::pin(run));
        hub
    }

    /// Sessions that are observed, their observers, and the bytes that wait for the slowest of these.
    pub(crate) fn crowd(&self) -> (usize, usize, usize) {
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
        let key = (hub.session, hub.language);
        if all.get(&key).is_some_and(|known| Arc::ptr_eq(known, hub)) {
            all.remove(&key);
        }
    }
}

/// From where a hub goes on.
#[derive(Debug)]
pub(crate) struct HubStart {
    pub(crate) session: SessionId,
    pub(crate) language: ObserverLanguage,
    pub(crate) epoch: Option<Epoch>,
    /// It has seen everything up to here.
    pub(crate) at: Seq,
    /// The last frame up to there.
    pub(crate) frame: Seq,
    pub(crate) projector: Projector,
    pub(crate) on_disconnect: OnDisconnect,
}

/// One session with its observers.
#[derive(Debug)]
pub(crate) struct Hub {
    pub(crate) session: SessionId,
    pub(crate) language: ObserverLanguage,
    pub(crate) on_disconnect: OnDisconnect,
    state: Mutex<State>,
    /// Observers came or went.
    changed: Notify,
}

#[derive(Debug)]
struct State {
    /// Known with the first record.
    epoch: Option<Epoch>,
    /// The last record that was handed out.
    head: Seq,
    /// The last frame that was handed out.
    frame: Seq,
    remembered: VecDeque<EncodedFrame>,
    remembered_bytes: usize,
    /// Every frame after this position is remembered.
    remembered_from: Seq,
    /// Questions that are open, for those who come back.
    asked: Vec<EncodedFrame>,
    observers: Vec<Observer>,
    is_over: bool,
}

#[derive(Debug)]
struct Observer {
    outbox: Outbox,
    /// It has everything up to here.
    after: Seq,
}

/// What became of an attempt to join.
#[derive(Debug, PartialEq)]
pub(crate) enum JoinResult {
    /// It observes from here on.
    Live,
    /// It is too far behind; the history must be read first.
    Behind,
    /// The hub is just ending; another one is needed.
    Closed,
}

/// Where a hub stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HubPosition {
    pub(crate) epoch: Option<Epoch>,
    pub(crate) head: Seq,
    pub(crate) frame: Seq,
}

/// What somebody missed.
#[derive(Debug)]
pub(crate) struct MissedFrames {
    pub(crate) frames: Vec<EncodedFrame>,
    pub(crate) asked: Vec<EncodedFrame>,
    /// Where that leads.
    pub(crate) standing: HubPosition,
}

impl Hub {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no code panics while holding this")
    }

    /// Where it stands.
    pub(crate) fn standing(&self) -> HubPosition {
        let State { epoch, head, frame, .. } = *self.state();
        HubPosition { epoch, head, frame }
    }

    /// Can somebody who has everything up to `after` join without reading the history?
    pub(crate) fn remembers(&self, after: Seq) -> bool {
        let state = self.state();
        !state.is_over && after >= state.remembered_from && after <= state.head
    }

    /// The frames after a position, then the questions that are open; none when they are not remembered.
    pub(crate) fn missed(&self, after: Seq) -> Option<MissedFrames> {
        let state = self.state();
        let State { epoch, head, frame, .. } = *state;
        if state.is_over || after < state.remembered_from || after > head {
            return None;
        }
        let frames = state.remembered.iter().filter(|frame| position(frame) > after);
        Some(MissedFrames {
            frames: frames.cloned().collect(),
            asked: state.asked.clone(),
            standing: HubPosition { epoch, head, frame },
        })
    }

    /// Lets an observer join who has everything up to `after`. `others` observe the session in another language.
    ///
    /// # Errors
    /// `limit_reached` when the session has too many.
    pub(crate) fn join(
        &self,
        outbox: &Outbox,
        after: Seq,
        others: usize,
        limits: &Limits,
        now: Timestamp,
    ) -> Result<JoinResult, Fault> {
        let mut state = self.state();
        if state.is_over {
            return Ok(JoinResult::Closed);
        }
        if after < state.remembered_from {
            return Ok(JoinResult::Behind);
        }
        let own = state.observers.iter().position(|known| known.outbox.is_same(outbox));
        if let Some(index) = own {
            // Who asks again gets what it says it misses, and then the same stream as before.
            state.observers.remove(index);
        }
        state.observers.retain(|known| known.outbox.goodbye().is_none());
        let count = state.observers.len() + others;
        if count >= limits.observers && !state.dismiss_silent(limits, now) {
            return Err(too_many(self.session, limits));
        }
        for frame in state.remembered.iter().filter(|frame| position(frame) > after) {
            if outbox.deliver(frame.clone()).is_err() {
                return Ok(JoinResult::Live);
            }
        }
        state.observers.push(Observer { outbox: outbox.clone(), after });
        drop(state);
        self.changed.notify_one();
        Ok(JoinResult::Live)
    }

    /// Is there room for one more, or can there be?
    ///
    /// # Errors
    /// `limit_reached` when not.
    pub(crate) fn check_room(
        &self,
        others: usize,
        limits: &Limits,
        now: Timestamp,
    ) -> Result<(), Fault> {
        let mut state = self.state();
        let count = state.observers.len() + others;
        if count < limits.observers || state.dismiss_silent(limits, now) {
            return Ok(());
        }
        Err(too_many(self.session, limits))
    }

    /// Lets an observer go. Is nobody left?
    pub(crate) fn leave(&self, outbox: &Outbox) -> bool {
        let mut state = self.state();
        state.observers.retain(|known| !known.outbox.is_same(outbox));
        let nobody_left = state.observers.is_empty();
        drop(state);
        self.changed.notify_one();
        nobody_left
    }

    /// How many observe it.
    pub(crate) fn observers(&self) -> usize {
        self.state().observers.len()
    }

    /// Follows the session until nobody has observed it for a while. Whatever happens, it ends.
    async fn run(self: Arc<Self>, server: Arc<Server>, projector: Box<Projector>) {
        let following = AssertUnwindSafe(self.follow(&server, projector)).catch_unwind();
        let fault = following.await.unwrap_or_else(|_| {
            let fault = Fault::new(Kind::Bug, Operation::FollowRecords)
                .with(Fact::Session, self.session.to_string());
            Some(fault.with_cause("the code that projects the session panicked"))
        });
        self.end(&server, fault.as_ref());
    }

    async fn follow(&self, server: &Server, mut projector: Box<Projector>) -> Option<Fault> {
        let mut records = server.journal.follow(self.session, self.standing().head);
        // Nothing happens for hours in most sessions: no timer runs unless there is something to tidy up.
        let mut idle = Some(server.world.clock.sleep(LINGER));
        loop {
            let rested = async {
                match &mut idle {
                    Some(idle) => idle.await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                batch = records.next() => match batch? {
                    Ok(batch) => self.take(server, &mut projector, &batch),
                    Err(fault) => return Some(fault),
                },
                () = self.changed.notified() => {}
                () = rested => {
                    if self.rest() {
                        return None;
                    }
                    projector.rest();
                    idle = None;
                    continue;
                }
            }
            idle = Some(server.world.clock.sleep(LINGER));
        }
    }

    /// Projects, encodes and hands out.
    fn take(&self, server: &Server, projector: &mut Projector, batch: &[StoredRecord]) {
        let mut frames = Vec::with_capacity(batch.len());
        for stored in batch {
            frames.extend(projector.encode_or_skip(stored));
        }
        let asked = projector.asks_anew().then(|| question_frames(server, self.session, projector));
        let mut state = self.state();
        state.asked = asked.unwrap_or_else(|| std::mem::take(&mut state.asked));
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
            state.remember(frame);
        }
        while server.budget.is_over() && state.drop_fattest() {}
    }

    /// Nothing has happened for a while. Is it over?
    pub(crate) fn rest(&self) -> bool {
        let mut state = self.state();
        state.remembered = VecDeque::new();
        state.remembered_bytes = 0;
        state.remembered_from = state.head;
        state.observers.retain(|observer| observer.outbox.goodbye().is_none());
        state.observers.shrink_to_fit();
        state.is_over = state.observers.is_empty();
        state.is_over
    }

    fn end(self: &Arc<Self>, server: &Server, fault: Option<&Fault>) {
        server.hubs.remove(self);
        let mut state = self.state();
        state.is_over = true;
        let observers = std::mem::take(&mut state.observers);
        drop(state);
        let Some(fault) = fault else { return };
        tracing::warn!(session = %self.session, %fault, "the session can no longer be followed");
        let lang = self.language.unwrap_or(server.config.settings.language);
        let frame = connection::error(server.world.clock.now(), Some(self.session), fault, lang);
        let frame = EncodedFrame::from(&frame);
        for observer in observers {
            let _ = observer.outbox.deliver(frame.clone());
            if fault.kind() != Kind::UnknownSession {
                let goodbye =
                    CloseReason::new(close::SERVER_FAILED, "the session cannot be followed");
                observer.outbox.close(goodbye, CloseMode::Drain);
            }
        }
    }
}

/// The questions that are open.
fn question_frames(
    server: &Server,
    session: SessionId,
    projector: &Projector,
) -> Vec<EncodedFrame> {
    projector.open_questions(session, server.now()).iter().map(EncodedFrame::from).collect()
}

impl State {
    fn remember(&mut self, frame: EncodedFrame) {
        self.remembered_bytes += frame.text.len();
        self.remembered.push_back(frame);
        while self.remembered.len() > REMEMBERED || self.remembered_bytes > REMEMBERED_BYTES {
            let Some(oldest) = self.remembered.pop_front() else { break };
            self.remembered_bytes -= oldest.text.len();
            self.remembered_from = position(&oldest);
        }
    }

    /// All places are taken: lets go of the observer that has been silent longest, if that is long enough to
    /// think that it is gone. Who comes back after a cut must not wait for the line it lost.
    fn dismiss_silent(&mut self, limits: &Limits, now: Timestamp) -> bool {
        let observers = self.observers.iter().enumerate();
        let silent = observers.min_by_key(|(_, observer)| observer.outbox.heard());
        let Some((index, observer)) = silent else { return false };
        if now.since(observer.outbox.heard()) < limits.heartbeat.mul_f32(1.5) {
            return false;
        }
        let goodbye =
            CloseReason::new(close::TAKEN_OVER, "another connection took this one's place");
        observer.outbox.close(goodbye, CloseMode::Discard);
        self.observers.remove(index);
        true
    }

    /// All observers together have too much waiting: lets go of the one that waits for most.
    fn drop_fattest(&mut self) -> bool {
        let sizes = self.observers.iter().enumerate();
        let fattest = sizes.max_by_key(|(_, observer)| observer.outbox.bytes());
        let Some((index, observer)) = fattest else { return false };
        if observer.outbox.bytes() == 0 {
            return false;
        }
        observer.outbox.too_slow();
        self.observers.remove(index);
        true
    }
}

fn too_many(session: SessionId, limits: &Limits) -> Fault {
    Fault::new(Kind::LimitReached, Operation::ReplayEvents)
        .with(Fact::Session, session.to_string())
        .with(Fact::Limit, limits.observers)
        .with(Fact::LimitName, "observers")
}

/// Where a frame of a record stands.
fn position(frame: &EncodedFrame) -> Seq {
    frame.at.map_or(0, |(_, _, seq)| seq)
}

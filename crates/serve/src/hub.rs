//! One session with its observers: followed once, projected once, encoded once, handed to all.
//!
//! A hub lives while somebody observes the session, and a little longer, so that who was cut finds it
//! again. Observers join at a position: what they have from there on comes from the few frames the hub
//! remembers or live, under one lock, so there is no seam. Who is further behind reads the journal first.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use budao_core::{
    Event, Fault, Kind,
    event::{Epoch, QuestionId, Seq, SessionId},
    fault::{Fact, Operation},
};
use budao_journal::Stored;
use futures::StreamExt as _;
use tokio::sync::Notify;

use crate::{
    frame::{close, connection},
    inbound::OnDisconnect,
    outbox::{Encoded, Goodbye, Outbox, Rest},
    project::Projector,
    server::Server,
};

/// How long a hub waits for somebody to come back.
const LINGER: Duration = Duration::from_secs(5);
/// Frames it remembers, for those who join while it goes on.
const REMEMBERED: usize = 256;
const REMEMBERED_BYTES: usize = 64 * 1024;

/// Every session that is observed.
#[derive(Debug, Default)]
pub(crate) struct Hubs(Mutex<HashMap<SessionId, Arc<Hub>>>);

impl Hubs {
    fn all(&self) -> MutexGuard<'_, HashMap<SessionId, Arc<Hub>>> {
        self.0.lock().expect("no code panics while holding this")
    }

    /// The hub of a session, if it has one.
    pub(crate) fn get(&self, session: SessionId) -> Option<Arc<Hub>> {
        self.all().get(&session).cloned()
    }

    /// The hub of a session; started from this place if it has none.
    pub(crate) fn get_or_start(&self, server: &Arc<Server>, start: Start) -> Arc<Hub> {
        let mut all = self.all();
        if let Some(hub) = all.get(&start.session) {
            return Arc::clone(hub);
        }
        let hub = Arc::new(Hub {
            session: start.session,
            on_disconnect: start.on_disconnect,
            state: Mutex::new(State {
                epoch: start.epoch,
                head: start.at,
                frame: start.frame,
                remembered: VecDeque::new(),
                remembered_bytes: 0,
                remembered_from: start.at,
                asks: start.asks,
                observers: Vec::new(),
                is_over: false,
            }),
            changed: Notify::new(),
        });
        all.insert(start.session, Arc::clone(&hub));
        let run = Arc::clone(&hub).run(Arc::clone(server), start.projector);
        server.world.spawn.spawn(Box::pin(run));
        hub
    }

    fn remove(&self, hub: &Arc<Hub>) {
        let mut all = self.all();
        if all.get(&hub.session).is_some_and(|known| Arc::ptr_eq(known, hub)) {
            all.remove(&hub.session);
        }
    }
}

/// From where a hub goes on.
#[derive(Debug)]
pub(crate) struct Start {
    pub(crate) session: SessionId,
    pub(crate) epoch: Option<Epoch>,
    /// It has seen everything up to here.
    pub(crate) at: Seq,
    /// The last frame up to there.
    pub(crate) frame: Seq,
    pub(crate) projector: Projector,
    /// Questions that may have been open somewhere up to there.
    pub(crate) asks: Vec<QuestionId>,
    pub(crate) on_disconnect: OnDisconnect,
}

/// One session with its observers.
#[derive(Debug)]
pub(crate) struct Hub {
    pub(crate) session: SessionId,
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
    remembered: VecDeque<Encoded>,
    remembered_bytes: usize,
    /// Every frame after this position is remembered.
    remembered_from: Seq,
    /// Questions that may be open.
    asks: Vec<QuestionId>,
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
pub(crate) enum Joined {
    /// It observes from here on.
    Live,
    /// It is too far behind; the history must be read first.
    Behind,
    /// The hub is just ending; another one is needed.
    Over,
}

/// Where a hub stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    pub(crate) epoch: Option<Epoch>,
    pub(crate) head: Seq,
    pub(crate) frame: Seq,
}

impl Hub {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no code panics while holding this")
    }

    /// Where it stands.
    pub(crate) fn standing(&self) -> Standing {
        let State { epoch, head, frame, .. } = *self.state();
        Standing { epoch, head, frame }
    }

    /// Can somebody who has everything up to `after` join without reading the history?
    pub(crate) fn remembers(&self, after: Seq) -> bool {
        let state = self.state();
        !state.is_over && after >= state.remembered_from && after <= state.head
    }

    /// Does it wait for a person, perhaps?
    pub(crate) fn asks(&self) -> bool {
        !self.state().asks.is_empty()
    }

    /// The frames after a position, and where that leads; none when they are not remembered.
    pub(crate) fn missed(&self, after: Seq) -> Option<(Vec<Encoded>, Standing)> {
        let state = self.state();
        let State { epoch, head, frame, .. } = *state;
        let known = !state.is_over && after >= state.remembered_from && after <= head;
        let missed = || state.remembered.iter().filter(|frame| position(frame) > after).cloned();
        known.then(|| (missed().collect(), Standing { epoch, head, frame }))
    }

    /// Lets an observer join who has everything up to `after`.
    ///
    /// # Errors
    /// `limit_reached` when the session has too many.
    pub(crate) fn join(&self, outbox: &Outbox, after: Seq, limit: usize) -> Result<Joined, Fault> {
        let mut state = self.state();
        if state.is_over {
            return Ok(Joined::Over);
        }
        if after < state.remembered_from {
            return Ok(Joined::Behind);
        }
        let own = state.observers.iter().position(|known| known.outbox.is_same(outbox));
        if let Some(index) = own {
            // Who asks again gets what it says it misses, and then the same stream as before.
            state.observers.remove(index);
        }
        state.observers.retain(|known| known.outbox.goodbye().is_none());
        if state.observers.len() >= limit {
            return Err(Fault::new(Kind::LimitReached, Operation::ReplayEvents)
                .with(Fact::Session, self.session.to_string())
                .with(Fact::Limit, limit)
                .with(Fact::LimitName, "observers"));
        }
        for frame in state.remembered.iter().filter(|frame| position(frame) > after) {
            if outbox.deliver(frame.clone()).is_err() {
                return Ok(Joined::Live);
            }
        }
        state.observers.push(Observer { outbox: outbox.clone(), after });
        drop(state);
        self.changed.notify_one();
        Ok(Joined::Live)
    }

    /// Lets an observer go. Was it the last?
    pub(crate) fn leave(&self, outbox: &Outbox) -> bool {
        let mut state = self.state();
        let before = state.observers.len();
        state.observers.retain(|known| !known.outbox.is_same(outbox));
        let was_last = before > 0 && state.observers.is_empty();
        drop(state);
        self.changed.notify_one();
        was_last
    }

    /// How many observe it.
    pub(crate) fn observers(&self) -> usize {
        self.state().observers.len()
    }

    /// Follows the session until nobody has observed it for a while.
    async fn run(self: Arc<Self>, server: Arc<Server>, mut projector: Projector) {
        let after = self.standing().head;
        let mut records = server.journal.follow(self.session, after);
        let fault = loop {
            let idle = server.world.clock.sleep(LINGER);
            tokio::select! {
                biased;
                batch = records.next() => match batch {
                    Some(Ok(batch)) => self.take(&server, &mut projector, &batch),
                    Some(Err(fault)) => break Some(fault),
                    None => break None,
                },
                () = self.changed.notified() => {}
                () = idle => {
                    if self.rest() {
                        break None;
                    }
                    // Nothing has happened for a while and may not for hours: no timer until it does.
                    tokio::select! {
                        biased;
                        batch = records.next() => match batch {
                            Some(Ok(batch)) => self.take(&server, &mut projector, &batch),
                            Some(Err(fault)) => break Some(fault),
                            None => break None,
                        },
                        () = self.changed.notified() => {}
                    }
                }
            }
        };
        self.end(&server, fault.as_ref());
    }

    /// Projects, encodes and hands out.
    fn take(&self, server: &Server, projector: &mut Projector, batch: &[Stored]) {
        let mut frames = Vec::with_capacity(batch.len());
        let mut asked = Vec::new();
        for stored in batch {
            match stored.record() {
                Ok(record) => {
                    asked.extend(Asked::of(&record.event));
                    frames.extend(projector.project(&record).as_ref().map(Encoded::from));
                }
                Err(fault) => tracing::error!(session = %self.session, %fault, "skipped a record"),
            }
        }
        let mut state = self.state();
        asked.into_iter().for_each(|asked| state.note(asked));
        if let Some(last) = batch.last() {
            state.head = last.seq;
            state.epoch = Some(last.epoch);
        }
        for frame in frames {
            let at = position(&frame);
            state.frame = at;
            state.observers.retain(|observer| {
                observer.after >= at || observer.outbox.deliver(frame.clone()).is_ok()
            });
            state.remember(frame);
        }
        while server.budget.is_over() && state.drop_fattest() {}
    }

    /// Nothing has happened for a while. Is it over?
    fn rest(&self) -> bool {
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
        let lang = server.config.settings.language;
        let frame = connection::error(server.world.clock.now(), Some(self.session), fault, lang);
        let frame = Encoded::from(&frame);
        for observer in observers {
            let _ = observer.outbox.deliver(frame.clone());
            if fault.kind() != Kind::UnknownSession {
                let goodbye = Goodbye::new(close::SERVER_FAILED, "the session cannot be followed");
                observer.outbox.close(goodbye, Rest::Sent);
            }
        }
    }
}

/// What a record says about questions.
enum Asked {
    Opened(QuestionId),
    Closed(QuestionId),
    AllClosed,
}

impl Asked {
    fn of(event: &Event) -> Option<Self> {
        match event {
            Event::QuestionAsked { question, .. } => Some(Self::Opened(question.clone())),
            Event::QuestionAnswered { question, .. } | Event::QuestionExpired { question, .. } => {
                Some(Self::Closed(question.clone()))
            }
            Event::TurnEnded { .. } => Some(Self::AllClosed),
            _ => None,
        }
    }
}

impl State {
    fn note(&mut self, asked: Asked) {
        match asked {
            Asked::Opened(question) => self.asks.push(question),
            Asked::Closed(question) => self.asks.retain(|open| *open != question),
            Asked::AllClosed => self.asks = Vec::new(),
        }
    }

    fn remember(&mut self, frame: Encoded) {
        self.remembered_bytes += frame.text.len();
        self.remembered.push_back(frame);
        while self.remembered.len() > REMEMBERED || self.remembered_bytes > REMEMBERED_BYTES {
            let Some(oldest) = self.remembered.pop_front() else { break };
            self.remembered_bytes -= oldest.text.len();
            self.remembered_from = position(&oldest);
        }
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

/// Where a frame of a record stands.
fn position(frame: &Encoded) -> Seq {
    frame.at.map_or(0, |(_, _, seq)| seq)
}

//! The task that owns a session's connection, and the state that survives a reconnect.

use std::{collections::VecDeque, time::Duration};

use budao_core::fault::{Fact, Fault};
use serde_json::{Value, json};
use tokio::{
    sync::{
        mpsc::{self, error::TrySendError},
        oneshot,
    },
    time::Instant,
};
use uuid::Uuid;

use crate::{
    client::Client,
    cursor_tracker::{CursorTracker, FrameStatus},
    event::{Cursor, Event},
    pending::{Pending, Reply},
    session::Error,
    socket::{ConnectionEnd, Socket, loss_fault},
};

/// One command from a [`Session`](crate::Session) handle.
#[derive(Debug)]
pub(crate) struct OutgoingCommand {
    pub(crate) id: String,
    pub(crate) frame: Value,
    pub(crate) reply: oneshot::Sender<Reply>,
}

/// One item for the reader, and the cursor after it.
pub(crate) type StreamItem = (Result<Event, Fault>, Cursor);

/// Upper bound of items that one frame produces: a fault and the frame.
const ITEMS_PER_FRAME: usize = 2;

/// Items buffered for a reader that waits for an answer and does not read meanwhile.
const OVERFLOW: usize = 16 * 1024;

pub(crate) struct ConnectionTask {
    client: Client,
    /// `None` until a new session has its id.
    thread: Option<CursorTracker>,
    /// Receives the answer to the first resume.
    opened: Option<oneshot::Sender<Reply>>,
    pending: Pending,
    asks: mpsc::Receiver<OutgoingCommand>,
    out: mpsc::Sender<StreamItem>,
    /// Items that did not fit into the reader's channel.
    overflow: VecDeque<StreamItem>,
    /// The cursor at the last missing frame. A second miss at the same cursor is reported as a gap.
    gap_at: Option<u64>,
    /// The wait requested by a server that shuts down.
    come_back: Duration,
}

/// How far the handshake of one connection has come.
#[derive(Default)]
struct HandshakeState {
    /// The id of the unanswered `user.reconnect`.
    resume: Option<String>,
    /// The server has accepted the session on this connection.
    is_established: bool,
}

impl ConnectionTask {
    pub(crate) fn new(
        client: Client,
        thread: Option<CursorTracker>,
        opened: Option<oneshot::Sender<Reply>>,
        asks: mpsc::Receiver<OutgoingCommand>,
        out: mpsc::Sender<StreamItem>,
    ) -> Self {
        Self {
            client,
            thread,
            opened,
            pending: Pending::default(),
            asks,
            out,
            overflow: VecDeque::new(),
            gap_at: None,
            come_back: Duration::ZERO,
        }
    }

    /// Connects, serves and reconnects. Ends when all handles are dropped, or when a reconnect cannot succeed.
    pub(crate) async fn run(mut self) {
        let mut waits = self.client.waits();
        let mut attempt = 0;
        loop {
            let mut handshake = HandshakeState::default();
            let began = Instant::now();
            let over = match Socket::open(&self.client).await {
                Ok(socket) => self.serve(socket, &mut handshake).await,
                Err(over) => Some(over),
            };
            let fault = match over {
                None => return,
                Some(ConnectionEnd::Refused(fault)) => return self.end(fault).await,
                Some(ConnectionEnd::Lost(fault)) => fault,
            };
            if handshake.is_established {
                waits = self.client.waits();
                attempt = 0;
                self.report_loss(&fault, began.elapsed()).await;
            }
            attempt += 1;
            let Some(wait) = waits.next() else {
                let fault = fault.attempt(attempt, self.client.retry.tries);
                return self.end(fault).await;
            };
            let hint = fault.retry_hint().unwrap_or(std::mem::take(&mut self.come_back));
            let hint = hint.min(self.client.retry.hint_ceiling);
            if !self.wait(wait.max(hint)).await {
                return;
            }
        }
    }

    /// True if a command can be received and stored.
    fn may_take(&self) -> bool {
        self.pending.has_room() && !(self.asks.is_closed() && self.asks.is_empty())
    }

    /// True if the reader has room for the items of one frame. While an answer is awaited, the reader may be blocked,
    /// so up to `OVERFLOW` items are buffered.
    fn may_read(&self) -> bool {
        let is_awaited = self.opened.is_some() || !self.pending.is_empty();
        let has_room = self.overflow.is_empty() && self.out.capacity() >= ITEMS_PER_FRAME;
        has_room || self.out.is_closed() || (is_awaited && self.overflow.len() < OVERFLOW)
    }

    /// Waits before the next try and accepts commands meanwhile. Returns false if all handles are dropped.
    async fn wait(&mut self, wait: Duration) -> bool {
        let until = Instant::now() + wait;
        loop {
            tokio::select! {
                biased;
                ask = self.asks.recv(), if self.may_take() => {
                    if let Some(ask) = ask {
                        self.pending.keep(ask.id, ask.frame, ask.reply);
                    }
                }
                () = self.out.closed(), if self.asks.is_closed() => return false,
                () = wait_for_room(&self.out), if !self.overflow.is_empty() => self.hand_over(),
                () = tokio::time::sleep_until(until) => return true,
            }
        }
    }

    /// Serves one connection to its end. Returns `None` if all handles are dropped.
    async fn serve(
        &mut self,
        mut socket: Socket,
        handshake: &mut HandshakeState,
    ) -> Option<ConnectionEnd> {
        if let Err(over) = self.greet(&mut socket, handshake).await {
            return Some(over);
        }
        let mut deadline = Instant::now() + self.client.silence;
        loop {
            let may_read = self.may_read();
            if !may_read {
                // A slow reader is not a silent connection.
                deadline = Instant::now() + self.client.silence;
            }
            tokio::select! {
                biased;
                ask = self.asks.recv(), if self.may_take() => {
                    let Some(ask) = ask else { continue };
                    let sent = match handshake.resume {
                        None => socket.send(&ask.frame).await,
                        // Sent with the other pending commands once the resume is answered.
                        Some(_) => Ok(()),
                    };
                    self.pending.keep(ask.id, ask.frame, ask.reply);
                    if let Err(over) = sent {
                        return Some(over);
                    }
                }
                () = self.out.closed(), if self.asks.is_closed() => {
                    socket.close().await;
                    return None;
                }
                () = wait_for_room(&self.out), if !may_read || !self.overflow.is_empty() => self.hand_over(),
                received = read_event(&mut socket, deadline), if may_read => {
                    deadline = Instant::now() + self.client.silence;
                    let taken = match received {
                        Ok(event) => self.take(event, &mut socket, handshake).await,
                        Err(over) => Err(over),
                    };
                    if let Err(over) = taken {
                        return Some(over);
                    }
                }
            }
        }
    }

    /// Sends a resume if the session is known, otherwise the pending commands.
    async fn greet(
        &mut self,
        socket: &mut Socket,
        handshake: &mut HandshakeState,
    ) -> Result<(), ConnectionEnd> {
        let Some(thread) = &self.thread else { return self.send_again(socket).await };
        let id = Uuid::now_v7().to_string();
        let cursor = thread.cursor();
        let mut content = json!({ "last_seq": cursor.seq });
        if !cursor.epoch.is_empty() {
            content["epoch"] = cursor.epoch.as_str().into();
        }
        let frame = json!({
            "event": "user.reconnect", "session_id": thread.session(), "command_id": id, "content": content,
        });
        handshake.resume = Some(id);
        socket.send(&frame).await
    }

    async fn send_again(&mut self, socket: &mut Socket) -> Result<(), ConnectionEnd> {
        for frame in self.pending.again() {
            socket.send(&frame).await?;
        }
        Ok(())
    }

    /// Handles one event: completes the command it answers, moves the cursor, delivers it to the reader.
    async fn take(
        &mut self,
        event: Event,
        socket: &mut Socket,
        handshake: &mut HandshakeState,
    ) -> Result<(), ConnectionEnd> {
        if handshake.resume.is_some() && event.answers() == handshake.resume.as_deref() {
            handshake.resume = None;
            return self.take_resume_answer(event, socket, handshake).await;
        }
        if self.thread.is_none() && event.answers().is_some() {
            self.thread =
                event.session_id.clone().map(|id| CursorTracker::new(id, Cursor::default()));
            handshake.is_established = self.thread.is_some();
        }
        let received =
            self.thread.as_mut().map_or(FrameStatus::New, |thread| thread.classify(&event));
        // Completes the command even for a duplicate: the answer to a resent command is one.
        self.pending.settle(&event);
        if event.meta("action") == "shutdown" {
            let wait = event.meta("retry_after_ms").as_u64().unwrap_or(0);
            self.come_back = Duration::from_millis(wait);
        }
        match received {
            FrameStatus::New => self.deliver(Ok(event)),
            FrameStatus::Duplicate => {}
            FrameStatus::OtherEpoch(fault) => return Err(ConnectionEnd::Lost(fault)),
            FrameStatus::Gap { to } => return self.torn(event, to).await,
        }
        Ok(())
    }

    /// Handles a missing frame. The first time, the task reconnects to fetch it; the second time, it reports a gap.
    async fn torn(&mut self, event: Event, to: u64) -> Result<(), ConnectionEnd> {
        let Some(thread) = &mut self.thread else { return Ok(()) };
        let at = thread.cursor().seq;
        if self.gap_at.replace(at) != Some(at) {
            return Err(ConnectionEnd::Lost(
                loss_fault().with_cause(format!("frames after {at} up to {to} are missing")),
            ));
        }
        let gap = thread.give_up(to, "missing");
        let _ = thread.classify(&event);
        self.deliver(Err(gap));
        self.deliver(Ok(event));
        Ok(())
    }

    /// Handles the answer to a resume, then resends all unanswered commands.
    async fn take_resume_answer(
        &mut self,
        event: Event,
        socket: &mut Socket,
        handshake: &mut HandshakeState,
    ) -> Result<(), ConnectionEnd> {
        if event.is_refusal() {
            let fault =
                loss_fault().with_cause(format!("the session cannot be resumed: {}", event.text()));
            if let Some(opened) = self.opened.take() {
                let _ = opened.send(Err(Error::Rejected(Box::new(event))));
            } else {
                self.deliver(Ok(event));
            }
            return Err(ConnectionEnd::Refused(fault));
        }
        handshake.is_established = true;
        if let Some(fault) =
            self.thread.as_mut().and_then(|thread| thread.take_resume_answer(&event))
        {
            self.deliver(Err(fault));
        }
        if let Some(opened) = self.opened.take() {
            let _ = opened.send(Ok(event.clone()));
        }
        self.deliver(Ok(event));
        self.send_again(socket).await
    }

    /// Delivers `error.loss_fault`, which the server cannot send itself.
    async fn report_loss(&mut self, fault: &Fault, uptime: Duration) {
        let Some(thread) = &self.thread else { return };
        let fault = fault
            .clone()
            .with(Fact::LastEventSeq, thread.cursor().seq)
            .with(Fact::UptimeMs, uptime);
        let event = Event::local(&fault, Some(thread.session()));
        self.deliver(Ok(event));
    }

    fn deliver(&mut self, result: Result<Event, Fault>) {
        let cursor = self.thread.as_ref().map(|thread| thread.cursor().clone()).unwrap_or_default();
        let item = (result, cursor);
        if !self.overflow.is_empty() {
            return self.overflow.push_back(item);
        }
        // If the reader is gone, the item is dropped; commands may still be pending.
        if let Err(TrySendError::Full(item)) = self.out.try_send(item) {
            self.overflow.push_back(item);
        }
    }

    /// Moves items from the overflow to the reader's channel until it is full.
    fn hand_over(&mut self) {
        while let Some(item) = self.overflow.pop_front() {
            match self.out.try_send(item) {
                Ok(()) => {}
                Err(TrySendError::Full(item)) => return self.overflow.push_front(item),
                Err(TrySendError::Closed(_)) => self.overflow.clear(),
            }
        }
    }

    /// Fails all pending commands and delivers the final fault.
    async fn end(mut self, fault: Fault) {
        self.asks.close();
        while let Ok(ask) = self.asks.try_recv() {
            self.pending.keep(ask.id, ask.frame, ask.reply);
        }
        self.pending.fail(&fault);
        if let Some(opened) = self.opened.take() {
            let _ = opened.send(Err(Error::Fault(fault.clone())));
        }
        self.deliver(Err(fault));
        while let Some(item) = self.overflow.pop_front() {
            if self.out.send(item).await.is_err() {
                return;
            }
        }
    }
}

/// Waits until the reader's channel has room for one frame's items, or is closed. Only this task sends, so no permit
/// is held.
async fn wait_for_room(out: &mpsc::Sender<StreamItem>) {
    let _ = out.reserve_many(ITEMS_PER_FRAME).await;
}

/// Returns the next event; after `deadline` the connection counts as lost.
async fn read_event(socket: &mut Socket, deadline: Instant) -> Result<Event, ConnectionEnd> {
    match tokio::time::timeout_at(deadline, socket.next()).await {
        Ok(received) => received,
        Err(_) => {
            Err(ConnectionEnd::Lost(loss_fault().with_cause("no data received for too long")))
        }
    }
}

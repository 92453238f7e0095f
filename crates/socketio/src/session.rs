//! The session's task: connects, reads and writes until the connection is lost, waits, and reconnects.
//!
//! Reading and writing run concurrently. Otherwise a client and a server that both send a lot could block each other.

use std::{sync::Arc, time::Duration};

use tokio::sync::{mpsc, oneshot};

use crate::{
    Auth, Config, Error, Event, Loss, Payload, Reply,
    engine::{self, ClientPacket, ServerPacket, Transport, TransportReceiver, TransportSender},
    packet::{self, Decoder, ServerMessage},
    shared::{Shared, count},
};

/// Time limit for the disconnect packets when the session closes.
const GOODBYE: Duration = Duration::from_secs(2);

pub(crate) struct Session {
    config: Config,
    shared: Arc<Shared>,
    inbox: mpsc::Sender<Event>,
    first: Option<oneshot::Sender<Result<(), Error>>>,
}

impl Session {
    pub(crate) fn new(
        config: Config,
        shared: Arc<Shared>,
        inbox: mpsc::Sender<Event>,
        first: Option<oneshot::Sender<Result<(), Error>>>,
    ) -> Self {
        Self { config, shared, inbox, first }
    }

    pub(crate) async fn run(mut self) {
        let error = self.keep_connected().await;
        self.shared.end(&error);
        self.report_first(Err(error));
    }

    /// Connects and reconnects. Returns the error that ends the session.
    async fn keep_connected(&mut self) -> Error {
        let mut attempt = 0;
        loop {
            let error = match self.connect().await {
                Ok(connection) => {
                    attempt = 0;
                    let error = self.serve(connection).await;
                    self.shared.go_offline(&error);
                    error
                }
                Err(error) if self.first.is_some() => return error,
                Err(error) => error,
            };
            attempt += 1;
            let is_kick = matches!(error, Error::Kicked { .. });
            let is_final = if is_kick { self.config.is_kick_final } else { error.is_final() };
            let is_over = is_final || attempt >= self.config.reconnect.tries;
            let wait = self.config.reconnect.delay(attempt, self.shared.world.jitter());
            let retry_in = (!is_over).then_some(wait);
            tracing::debug!(%error, ?retry_in, "connection failed");
            let disconnected = Event::Disconnected { error: error.clone(), retry_in };
            let pause = async {
                let _ = self.inbox.send(disconnected).await;
                if !is_over {
                    self.shared.world.clock.sleep(wait).await;
                }
            };
            tokio::select! {
                biased;
                () = self.shared.closing.cancelled() => return Error::Closed,
                () = pause => {}
            }
            if is_over {
                return error;
            }
        }
    }

    fn report_first(&mut self, result: Result<(), Error>) {
        if let Some(first) = self.first.take() {
            let _ = first.send(result);
        }
    }

    /// Makes one connection attempt, including all namespaces, within `limits.handshake`.
    async fn connect(&mut self) -> Result<Connection, Error> {
        let limit = self.config.limits.handshake;
        let clock = self.shared.world.clock.clone();
        tokio::select! {
            biased;
            () = self.shared.closing.cancelled() => Err(Error::Closed),
            connection = self.shake_hands() => connection,
            () = clock.sleep(limit) => Err(Error::Unreachable(format!(
                "the handshake took longer than {} ms", limit.as_millis()
            ))),
        }
    }

    async fn shake_hands(&self) -> Result<Connection, Error> {
        let mut transport = engine::connect(&self.config, &self.shared.world).await?;
        for (name, auth) in &self.config.namespaces {
            let auth = match auth {
                Auth::None => None,
                Auth::Fixed(value) => Some(value.clone()),
                Auth::Fresh(ask) => Some(ask().await),
            };
            let hello = ClientPacket::Message(packet::connect(name, auth.as_ref()));
            transport.sender.send_packets(vec![hello]).await.map_err(Error::Lost)?;
        }
        let decoder = Decoder::new(&self.config.limits);
        let mut early = Vec::new();
        let mut sids: Vec<Option<String>> = vec![None; self.shared.namespaces.len()];
        while sids.iter().any(Option::is_none) {
            match read_message(&mut transport, &decoder).await? {
                Some(ServerMessage::Connected { namespace, sid }) => {
                    if let Some(namespace_index) = self.shared.namespace_index(&namespace) {
                        sids[namespace_index] = Some(sid);
                    }
                }
                Some(ServerMessage::Refused { namespace, message, data }) => {
                    transport.sender.close().await;
                    return Err(Error::Refused { namespace, message, data });
                }
                Some(server_message) => early.push(server_message),
                None => {}
            }
            if early.len() > self.config.limits.inbox_max {
                return Err(Error::Full { name: "inbox_max", limit: self.config.limits.inbox_max });
            }
        }
        let sids = sids.into_iter().flatten().collect();
        Ok(Connection { transport, decoder, sids, early })
    }

    /// Serves a connection and returns the reason for its end.
    async fn serve(&mut self, connection: Connection) -> Error {
        let Connection {
            transport: Transport { open, receiver, mut sender },
            decoder,
            sids,
            early,
        } = connection;
        let epoch = self.shared.go_online(open.max_payload);
        self.report_first(Ok(()));
        let silence_max = open.silence_max();
        let mut reader = Reader {
            shared: self.shared.clone(),
            inbox: self.inbox.clone(),
            decoder,
            receiver,
            epoch,
            silence_max,
        };
        let shared = self.shared.clone();
        let reading = async {
            if let Err(error) = reader.begin(sids, early).await {
                return error;
            }
            reader.run().await
        };
        tokio::select! {
            biased;
            () = shared.closing.cancelled() => {
                self.send_goodbye(&mut sender).await;
                Error::Closed
            }
            error = reading => error,
            error = write(&shared, &mut sender, silence_max) => error,
        }
    }

    async fn send_goodbye(&self, sender: &mut TransportSender) {
        let names =
            self.shared.namespaces.iter().map(|namespace| packet::disconnect(&namespace.name));
        let packets = names.map(ClientPacket::Message).collect();
        let goodbye = async {
            let _ = sender.send_packets(packets).await;
            sender.close().await;
        };
        tokio::select! {
            biased;
            () = goodbye => {}
            () = self.shared.world.clock.sleep(GOODBYE) => {}
        }
    }
}

/// A connection on which every namespace is connected.
struct Connection {
    transport: Transport,
    decoder: Decoder,
    sids: Vec<String>,
    /// Messages that arrived before the last namespace was connected.
    early: Vec<ServerMessage>,
}

/// Reads one packet during the handshake and answers pings. Returns `None` if the packet completes no message.
async fn read_message(
    transport: &mut Transport,
    decoder: &Decoder,
) -> Result<Option<ServerMessage>, Error> {
    match transport.receiver.next().await.map_err(Error::Lost)? {
        ServerPacket::Ping => {
            transport.sender.send_packets(vec![ClientPacket::Pong]).await.map_err(Error::Lost)?;
            Ok(None)
        }
        ServerPacket::Text(text) => decoder.text(text).map_err(Error::Protocol),
        ServerPacket::Bytes(bytes) => decoder.bytes(bytes).map_err(Error::Protocol),
        ServerPacket::Noop => Ok(None),
        ServerPacket::Close => Err(Error::Lost(Loss::Closed { code: None, reason: String::new() })),
    }
}

/// Sends queued packets until the connection is lost. A server that accepts nothing for `timeout` counts as lost
/// even if it still sends, because pongs wait in the same queue.
async fn write(shared: &Shared, sender: &mut TransportSender, timeout: Duration) -> Error {
    loop {
        let packets = shared.take();
        if packets.is_empty() {
            shared.ready.notified().await;
            continue;
        }
        let server_message = tokio::select! {
            biased;
            server_message = sender.send_packets(packets) => server_message,
            () = shared.world.clock.sleep(timeout) => Err(Loss::SendTimedOut(timeout)),
        };
        if let Err(loss) = server_message {
            return Error::Lost(loss);
        }
    }
}

/// Reads packets from the server and delivers events and answers.
struct Reader {
    shared: Arc<Shared>,
    inbox: mpsc::Sender<Event>,
    decoder: Decoder,
    receiver: TransportReceiver,
    epoch: u64,
    silence_max: Duration,
}

impl Reader {
    async fn begin(&mut self, sids: Vec<String>, early: Vec<ServerMessage>) -> Result<(), Error> {
        for (namespace_index, sid) in sids.into_iter().enumerate() {
            let namespace = self.shared.namespaces[namespace_index].name.clone();
            self.hand_out(Event::Connected { namespace, sid }).await?;
        }
        for server_message in early {
            self.take(server_message).await?;
        }
        Ok(())
    }

    async fn run(&mut self) -> Error {
        loop {
            let packet = tokio::select! {
                biased;
                packet = self.receiver.next() => packet,
                () = self.shared.world.clock.sleep(self.silence_max) => {
                    Err(Loss::Silent(self.silence_max))
                }
            };
            let server_message = match packet {
                Ok(ServerPacket::Ping) => {
                    self.shared.pong();
                    Ok(None)
                }
                Ok(ServerPacket::Text(text)) => self.decoder.text(text).map_err(Error::Protocol),
                Ok(ServerPacket::Bytes(bytes)) => {
                    self.decoder.bytes(bytes).map_err(Error::Protocol)
                }
                Ok(ServerPacket::Noop) => Ok(None),
                Ok(ServerPacket::Close) => {
                    Err(Error::Lost(Loss::Closed { code: None, reason: String::new() }))
                }
                Err(loss) => Err(Error::Lost(loss)),
            };
            let taken = match server_message {
                Ok(Some(server_message)) => self.take(server_message).await,
                Ok(None) => Ok(()),
                Err(error) => Err(error),
            };
            if let Err(error) = taken {
                return error;
            }
        }
    }

    async fn take(&mut self, server_message: ServerMessage) -> Result<(), Error> {
        match server_message {
            ServerMessage::Event { namespace, name, payload, ack } => {
                self.take_event(&namespace, name, payload, ack).await
            }
            ServerMessage::Answer { namespace, id, payload } => {
                let namespace_index = self.shared.namespace_index(&namespace);
                let is_awaited = namespace_index
                    .is_some_and(|index| self.shared.namespaces[index].answer(id, payload));
                if !is_awaited {
                    count(&self.shared.counters.late_answers);
                }
                Ok(())
            }
            ServerMessage::Disconnected { namespace } => Err(Error::Kicked { namespace }),
            ServerMessage::Refused { namespace, message, data } => {
                Err(Error::Refused { namespace, message, data })
            }
            ServerMessage::Connected { .. } => Ok(()),
        }
    }

    async fn take_event(
        &mut self,
        namespace: &str,
        name: String,
        payload: Payload,
        ack: Option<i64>,
    ) -> Result<(), Error> {
        let Some(namespace_index) = self.shared.namespace_index(namespace) else { return Ok(()) };
        let (shared, epoch) = (&self.shared, self.epoch);
        let reply = ack.map(|id| Reply { shared: shared.clone(), namespace_index, id, epoch });
        let namespace = shared.namespaces[namespace_index].name.clone();
        self.hand_out(Event::Message { namespace, name, payload, reply }).await
    }

    /// Delivers an event to the program. A full inbox for longer than `silence_max` ends the connection.
    async fn hand_out(&self, event: Event) -> Result<(), Error> {
        let event = match self.inbox.try_send(event) {
            Ok(()) => return Ok(()),
            Err(mpsc::error::TrySendError::Closed(_)) => {
                count(&self.shared.counters.untaken_events);
                return Ok(());
            }
            Err(mpsc::error::TrySendError::Full(event)) => event,
        };
        tokio::select! {
            biased;
            _ = self.inbox.send(event) => Ok(()),
            () = self.shared.world.clock.sleep(self.silence_max) => {
                Err(Error::Lost(Loss::EventsNotConsumed(self.silence_max)))
            }
        }
    }
}

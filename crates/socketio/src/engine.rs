//! Engine.IO, the layer below Socket.IO: the handshake, the choice of transport, and the two halves of a connection.
//!
//! The upgrade to a WebSocket happens before the first Socket.IO packet, so packets cannot change their order.

use std::time::Duration;

use bytes::Bytes;
use serde::Deserialize;

use crate::{
    Config, Error, Loss, Transports,
    packet::EncodedPacket,
    polling::{self, Poller},
    websocket::{self, Sink, Source},
};
use budao_core::world::World;

/// The server's first packet. The codec's own type is not used because it expects ids of a fixed length.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Handshake {
    pub(crate) sid: String,
    #[serde(default)]
    pub(crate) upgrades: Vec<String>,
    pub(crate) ping_interval: u64,
    pub(crate) ping_timeout: u64,
    #[serde(default)]
    pub(crate) max_payload: Option<usize>,
}

impl Handshake {
    /// Parses an open packet, `0{…}`.
    pub(crate) fn read(text: &str) -> Result<Self, Error> {
        let wrong = |what: &str| Error::Protocol(format!("the handshake {what}"));
        let body =
            text.strip_prefix('0').ok_or_else(|| wrong("does not begin with an open packet"))?;
        serde_json::from_str(body).map_err(|error| wrong(&format!("cannot be read: {error}")))
    }

    /// Ping interval plus ping timeout. The session treats a longer silence of the server as a lost connection.
    pub(crate) fn silence_max(&self) -> Duration {
        Duration::from_millis(self.ping_interval.saturating_add(self.ping_timeout))
    }
}

/// One Engine.IO packet from the server.
#[derive(Debug)]
pub(crate) enum ServerPacket {
    Ping,
    Text(String),
    Bytes(Bytes),
    Close,
    /// A packet without content for the session: a pong or a noop.
    Noop,
}

impl ServerPacket {
    pub(crate) fn read(text: &str) -> Result<Self, Loss> {
        match text.as_bytes().first() {
            Some(b'2') => Ok(Self::Ping),
            Some(b'4') => Ok(Self::Text(text[1..].to_owned())),
            Some(b'1') => Ok(Self::Close),
            Some(b'3' | b'6' | b'0') => Ok(Self::Noop),
            _ => Err(Loss::Broken("an unknown kind of frame".into())),
        }
    }
}

/// The receiving half of a connection.
#[derive(Debug)]
pub(crate) enum TransportReceiver {
    WebSocket(Box<Source>),
    Polling(Poller),
}

impl TransportReceiver {
    /// Returns the next packet. Cancel-safe: dropping the future loses no packet.
    pub(crate) async fn next(&mut self) -> Result<ServerPacket, Loss> {
        match self {
            Self::WebSocket(source) => source.next().await,
            Self::Polling(poller) => poller.next().await,
        }
    }
}

/// The sending half of a connection.
#[derive(Debug)]
pub(crate) enum TransportSender {
    WebSocket(Box<Sink>),
    Polling(polling::Poster),
}

impl TransportSender {
    /// Sends packets in order and returns when the transport has accepted them.
    pub(crate) async fn send_packets(&mut self, packets: Vec<ClientPacket>) -> Result<(), Loss> {
        match self {
            Self::WebSocket(sink) => sink.send_packets(packets).await,
            Self::Polling(poster) => poster.send_packets(packets).await,
        }
    }

    /// Closes the transport. Errors are ignored.
    pub(crate) async fn close(&mut self) {
        match self {
            Self::WebSocket(sink) => sink.close().await,
            Self::Polling(poster) => drop(poster.send_packets(vec![ClientPacket::Close]).await),
        }
    }
}

/// One Engine.IO packet to the server.
#[derive(Debug)]
pub(crate) enum ClientPacket {
    Pong,
    Close,
    Message(EncodedPacket),
}

/// A connection after the Engine.IO handshake and a possible upgrade.
#[derive(Debug)]
pub(crate) struct Transport {
    pub(crate) open: Handshake,
    pub(crate) receiver: TransportReceiver,
    pub(crate) sender: TransportSender,
}

/// Opens a connection with the configured transports. A failed upgrade falls back to polling.
pub(crate) async fn connect(config: &Config, world: &World) -> Result<Transport, Error> {
    if config.transports == Transports::WebSocket {
        let (open, sink, source) = websocket::open(config).await?;
        return Ok(Transport {
            open,
            receiver: TransportReceiver::WebSocket(Box::new(source)),
            sender: TransportSender::WebSocket(Box::new(sink)),
        });
    }
    let polling = polling::open(config).await?;
    let open = polling.open.clone();
    let may_upgrade = config.transports == Transports::PollingThenWebSocket
        && open.upgrades.iter().any(|name| name == "websocket");
    if may_upgrade {
        match websocket::upgrade(config, &open.sid).await {
            Ok((sink, source)) => {
                return Ok(Transport {
                    open,
                    receiver: TransportReceiver::WebSocket(Box::new(source)),
                    sender: TransportSender::WebSocket(Box::new(sink)),
                });
            }
            Err(error) => {
                tracing::debug!(%error, "upgrade to WebSocket failed, staying on polling");
            }
        }
    }
    let (poller, poster) = polling.start(world);
    Ok(Transport {
        open,
        receiver: TransportReceiver::Polling(poller),
        sender: TransportSender::Polling(poster),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handshakes_of_all_servers_are_read() {
        let js = r#"0{"sid":"lv_VI97HAXpY6yYWAAAB","upgrades":["websocket"],"pingInterval":25000,"pingTimeout":20000,"maxPayload":1000000}"#;
        let open = Handshake::read(js).unwrap();
        assert_eq!((open.sid.len(), open.max_payload), (20, Some(1_000_000)));
        assert_eq!(open.silence_max(), Duration::from_secs(45));
        let old = r#"0{"sid":"s","pingInterval":1,"pingTimeout":2}"#;
        assert_eq!(Handshake::read(old).unwrap().max_payload, None);
        for bad in ["", "2", "0", "0{}", r#"0{"sid":1,"pingInterval":1,"pingTimeout":2}"#] {
            assert!(matches!(Handshake::read(bad), Err(Error::Protocol(_))), "{bad}");
        }
    }
}

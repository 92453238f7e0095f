//! Checks for the fuzz targets: any bytes as data from a server. The test suite runs a sample of them.

use bytes::Bytes;
use futures::{executor::block_on, stream};

use crate::{
    Limits, Loss,
    engine::{ClientPacket, Handshake, ServerPacket},
    packet::{self, Decoder, ServerMessage},
    polling::{self, OverflowAction},
};

/// The longest body that is read, in bytes.
const BODY_MAX: usize = 8 * 1024;
/// The server's payload limit, in bytes: small, so that one answer needs several bodies.
const PAYLOAD_MAX: usize = 64;

/// Parses a text as a packet, as a frame and as a handshake. None of them may panic.
pub fn packet(text: &str) {
    let decoder = Decoder::new(&Limits::default());
    let _ = decoder.text(text.to_owned());
    let _ = decoder.bytes(Bytes::from_static(b"attached"));
    let _ = ServerPacket::read(text);
    if let Ok(open) = Handshake::read(text) {
        let _ = open.silence_max();
    }
}

/// Reads bytes as the body of a polling request. Checks that chunking makes no difference, that an error text is
/// short, and that every decoded packet survives encoding and decoding.
///
/// # Panics
/// If one of these checks fails.
pub fn polled(bytes: &[u8]) {
    let whole = received(bytes, bytes.len().max(1));
    for size in [1, 7, 1000] {
        assert_eq!(comparable(&received(bytes, size)), comparable(&whole), "in pieces of {size}");
    }
    let body = match whole {
        Ok(body) => body,
        Err(loss) => return assert!(bytes.len() > BODY_MAX || is_no_text(bytes), "{loss}"),
    };
    assert_eq!(body.as_bytes(), bytes);
    let messages = understood([&*body]);
    assert_eq!(understood(body.split('\u{1e}')), messages, "one body or several");
    messages.iter().flatten().for_each(rewritten);
}

fn is_no_text(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err()
}

fn comparable(received: &Result<String, Loss>) -> Result<&String, String> {
    received.as_ref().map_err(ToString::to_string)
}

/// Reads a response body that arrives in chunks of `size` bytes.
fn received(bytes: &[u8], size: usize) -> Result<String, Loss> {
    let pieces: Vec<_> =
        bytes.chunks(size).map(Bytes::copy_from_slice).map(Ok::<_, Loss>).collect();
    let response = http::Response::new(reqwest::Body::wrap_stream(stream::iter(pieces)));
    block_on(polling::body(response.into(), BODY_MAX, OverflowAction::Fail))
}

/// Decodes bodies as a session does, up to the first error.
fn understood<'a>(bodies: impl IntoIterator<Item = &'a str>) -> Vec<Result<ServerMessage, String>> {
    let decoder = Decoder::new(&Limits::default());
    let mut messages = Vec::new();
    for heard in bodies.into_iter().flat_map(polling::packets) {
        let next = match heard {
            Ok(ServerPacket::Text(text)) => decoder.text(text),
            Ok(ServerPacket::Bytes(bytes)) => decoder.bytes(bytes),
            Ok(ServerPacket::Ping | ServerPacket::Close | ServerPacket::Noop) => Ok(None),
            Err(loss) => Err(loss.to_string()),
        };
        let is_over = next.is_err();
        if let Err(why) = &next {
            assert!(why.len() < 1024, "a refusal is short: {} bytes", why.len());
        }
        messages.extend(next.transpose());
        if is_over {
            break;
        }
    }
    messages
}

/// Encodes a decoded packet and decodes it again.
fn rewritten(messages: &ServerMessage) {
    let encoding = match messages {
        ServerMessage::Event { namespace, name, payload, ack } => {
            packet::event(namespace, name, payload.clone(), *ack)
        }
        ServerMessage::Answer { namespace, id, payload } => {
            packet::answer(namespace, *id, payload.clone())
        }
        ServerMessage::Connected { .. }
        | ServerMessage::Refused { .. }
        | ServerMessage::Disconnected { .. } => return,
    };
    let sent = vec![ClientPacket::Pong, ClientPacket::Message(encoding), ClientPacket::Close];
    let bodies: Vec<String> = polling::bodies(sent, PAYLOAD_MAX).collect();
    let is_long = |body: &&String| body.len() > PAYLOAD_MAX && body.contains('\u{1e}');
    assert_eq!(bodies.iter().find(is_long), None, "a body is no longer than a server wants");
    let read = understood(bodies.iter().map(String::as_str));
    assert_eq!(read.iter().map(Result::as_ref).collect::<Vec<_>>(), [Ok(messages)], "{bodies:?}");
}

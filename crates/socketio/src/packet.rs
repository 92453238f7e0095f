//! Encodes and decodes Socket.IO packets with the published codec.
//!
//! The codec rejects one packet type, the refusal of a namespace, so this file parses it.

use std::{collections::VecDeque, time::Duration};

use bytes::Bytes;
use serde_json::Value;
use socketioxide_core::{
    Str, Value as Encoded,
    packet::{Packet, PacketData},
    parser::{Parse, ParseConfig, ParseError, ParserState},
};
use socketioxide_parser_common::CommonParser;

use crate::{Limits, Payload};

/// A decoded Socket.IO packet from the server.
#[derive(Debug, PartialEq)]
pub(crate) enum ServerMessage {
    Connected { namespace: String, sid: String },
    Refused { namespace: String, message: String, data: Option<Value> },
    Disconnected { namespace: String },
    Event { namespace: String, name: String, payload: Payload, ack: Option<i64> },
    Answer { namespace: String, id: i64, payload: Payload },
}

/// An encoded packet: the text frame, followed by its binary attachments.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct EncodedPacket {
    pub(crate) text: String,
    pub(crate) attachments: Vec<Bytes>,
}

impl EncodedPacket {
    pub(crate) fn bytes(&self) -> usize {
        self.text.len() + self.attachments.iter().map(Bytes::len).sum::<usize>()
    }
}

pub(crate) fn connect(namespace: &str, auth: Option<&Value>) -> EncodedPacket {
    let auth = auth.map(|auth| Encoded::Str(Str::from(auth.to_string()), None));
    encode(Packet::connect(namespace.to_owned(), auth))
}

pub(crate) fn disconnect(namespace: &str) -> EncodedPacket {
    encode(Packet::disconnect(namespace.to_owned()))
}

pub(crate) fn event(
    namespace: &str,
    name: &str,
    payload: Payload,
    ack: Option<i64>,
) -> EncodedPacket {
    let (args, attachments) = payload.into_parts();
    let data = data(Some(name), &args, attachments);
    let is_binary = matches!(&data, Encoded::Str(_, Some(_)));
    let inner =
        if is_binary { PacketData::BinaryEvent(data, ack) } else { PacketData::Event(data, ack) };
    encode(Packet { inner, ns: Str::from(namespace.to_owned()) })
}

pub(crate) fn answer(namespace: &str, id: i64, payload: Payload) -> EncodedPacket {
    let (args, attachments) = payload.into_parts();
    encode(Packet::ack(namespace.to_owned(), data(None, &args, attachments), id))
}

fn data(name: Option<&str>, args: &[Value], attachments: Vec<Bytes>) -> Encoded {
    let mut text = String::from("[");
    let name = name.map(|name| Value::from(name).to_string());
    for part in name.into_iter().chain(args.iter().map(Value::to_string)) {
        if text.len() > 1 {
            text.push(',');
        }
        text.push_str(&part);
    }
    text.push(']');
    Encoded::Str(Str::from(text), (!attachments.is_empty()).then(|| VecDeque::from(attachments)))
}

fn encode(packet: Packet) -> EncodedPacket {
    match CommonParser.encode(packet) {
        Encoded::Str(text, attachments) => EncodedPacket {
            text: text.into(),
            attachments: attachments.map_or_else(Vec::new, Vec::from),
        },
        Encoded::Bytes(_) => unreachable!("the common parser writes text"),
    }
}

/// The decoder of one connection. It holds a packet until all of its attachments have arrived.
#[derive(Debug)]
pub(crate) struct Decoder {
    config: ParseConfig,
    state: ParserState,
}

impl Decoder {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            config: ParseConfig {
                max_incoming_binary_buf_size: limits.frame_bytes_max,
                max_incoming_binaries: limits.attachments_max,
                packet_completion_timeout: Duration::from_secs(60),
            },
            state: ParserState::default(),
        }
    }

    /// Decodes a text frame. Returns `None` if attachments are still to come.
    pub(crate) fn text(&self, text: String) -> Result<Option<ServerMessage>, String> {
        if let Some(rest) = text.strip_prefix('4') {
            return refusal(rest).map(Some);
        }
        self.finish(CommonParser.decode_str(&self.config, &self.state, Str::from(text)))
    }

    /// Adds an attachment. Returns the packet if this was its last one.
    pub(crate) fn bytes(&self, bytes: Bytes) -> Result<Option<ServerMessage>, String> {
        self.finish(CommonParser.decode_bin(&self.config, &self.state, bytes))
    }

    fn finish(&self, decoded: Result<Packet, ParseError>) -> Result<Option<ServerMessage>, String> {
        match decoded {
            Ok(packet) => parse_message(packet).map(Some),
            Err(ParseError::NeedsMoreBinaryData) => Ok(None),
            Err(error) => Err(error.to_string()),
        }
    }
}

fn parse_message(packet: Packet) -> Result<ServerMessage, String> {
    let namespace = String::from(packet.ns);
    match packet.inner {
        PacketData::Connect(data) => {
            let data = data.map_or(Ok(Value::Null), |data| json(&data).map(|(value, _)| value))?;
            let sid = data.get("sid").and_then(Value::as_str).unwrap_or_default().to_owned();
            Ok(ServerMessage::Connected { namespace, sid })
        }
        PacketData::Disconnect => Ok(ServerMessage::Disconnected { namespace }),
        PacketData::Event(data, ack) | PacketData::BinaryEvent(data, ack) => {
            let (mut args, attachments) = list(&data)?;
            if args.is_empty() {
                return Err("an event without a name".into());
            }
            let name = match args.remove(0) {
                Value::String(name) => name,
                other => other.to_string(),
            };
            let payload = Payload::from_parts(args, attachments);
            Ok(ServerMessage::Event { namespace, name, payload, ack })
        }
        PacketData::EventAck(data, id) | PacketData::BinaryAck(data, id) => {
            let (args, attachments) = list(&data)?;
            Ok(ServerMessage::Answer {
                namespace,
                id,
                payload: Payload::from_parts(args, attachments),
            })
        }
        other => Err(format!("an unexpected packet: {}", other.index())),
    }
}

fn json(data: &Encoded) -> Result<(Value, Vec<Bytes>), String> {
    let Encoded::Str(text, attachments) = data else { return Err("bytes without a text".into()) };
    let value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let attachments = attachments.iter().flatten().cloned().collect();
    Ok((value, attachments))
}

fn list(data: &Encoded) -> Result<(Vec<Value>, Vec<Bytes>), String> {
    match json(data)? {
        (Value::Array(args), attachments) => Ok((args, attachments)),
        _ => Err("arguments that are not a list".into()),
    }
}

/// Parses the refusal of a namespace, `/namespace,{"message":…}`, which the codec does not read.
fn refusal(rest: &str) -> Result<ServerMessage, String> {
    let (namespace, body) = match rest.strip_prefix('/') {
        Some(_) => rest.split_once(',').unwrap_or((rest, "")),
        None => ("/", rest),
    };
    let body = if body.is_empty() { "null" } else { body };
    let body: Value = serde_json::from_str(body).map_err(|error| error.to_string())?;
    let message = match body.get("message").unwrap_or(&body) {
        Value::String(message) => message.clone(),
        Value::Null => "no reason given".into(),
        other => other.to_string(),
    };
    Ok(ServerMessage::Refused {
        namespace: namespace.into(),
        message,
        data: body.get("data").cloned(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn decoder() -> Decoder {
        Decoder::new(&Limits::default())
    }

    fn read(text: &str) -> Result<Option<ServerMessage>, String> {
        decoder().text(text.into())
    }

    #[test]
    fn sent_packets_follow_the_protocol() {
        let texts = [
            connect("/smcp", Some(&json!({ "token": "t" }))).text,
            connect("/", None).text,
            disconnect("/smcp").text,
            event("/smcp", "hello", Payload::of(1).and("二"), Some(7)).text,
            event("/", "hello", Payload::none(), None).text,
            answer("/smcp", 3, Payload::of(true).and(Value::Null)).text,
            event("/a", "b", Payload::none().and_bytes(&b"x"[..]), Some(1)).text,
        ];
        assert_eq!(
            texts,
            [
                r#"0/smcp,{"token":"t"}"#,
                "0",
                "1/smcp,",
                r#"2/smcp,7["hello",1,"二"]"#,
                r#"2["hello"]"#,
                "3/smcp,3[true,null]",
                r#"51-/a,1["b",{"_placeholder":true,"num":0}]"#,
            ]
        );
    }

    #[test]
    fn a_refusal_is_read_with_its_data() {
        let refused = |namespace: &str, message: &str, data| {
            let (namespace, message) = (namespace.into(), message.into());
            Ok(Some(ServerMessage::Refused { namespace, message, data }))
        };
        assert_eq!(read(r#"4/a,{"message":"no"}"#), refused("/a", "no", None));
        assert_eq!(
            read(r#"4{"message":"no","data":{"code":401}}"#),
            refused("/", "no", Some(json!({ "code": 401 })))
        );
        assert_eq!(read("4/a,"), refused("/a", "no reason given", None));
        assert_eq!(read(r#"4/a,"bare words""#), refused("/a", "bare words", None));
    }

    #[test]
    fn attachments_complete_a_packet_in_their_order() {
        let decoder = decoder();
        let text = r#"52-/a,4["b",{"_placeholder":true,"num":0},{"_placeholder":true,"num":1}]"#;
        assert_eq!(decoder.text(text.into()), Ok(None));
        assert_eq!(decoder.bytes(Bytes::from_static(b"one")), Ok(None));
        let Ok(Some(ServerMessage::Event { payload, ack: Some(4), .. })) =
            decoder.bytes(Bytes::from_static(b"two"))
        else {
            panic!("two attachments are all");
        };
        assert_eq!(payload.attachments(), ["one", "two"]);
    }

    #[test]
    fn invalid_packets_are_refused_without_a_panic() {
        let texts = ["", "9", "2", "2{}", "2[]", "3[1]", "5", "5x-[]", "4{", "0/a,nonsense", "2[1"];
        for text in texts {
            assert!(read(text).is_err(), "{text}: {:?}", read(text));
        }
        assert!(decoder().bytes(Bytes::from_static(b"lost")).is_err());
    }
}

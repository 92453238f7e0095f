//! The WebSocket transport: opens a session directly, or takes over a session that was opened by polling.

use futures::{
    SinkExt, StreamExt,
    stream::{SplitSink, SplitStream},
};
use http::{HeaderMap, Request};
use tokio::net::TcpStream;
use tokio_tungstenite::{
    MaybeTlsStream, WebSocketStream, connect_async_with_config,
    tungstenite::{
        Error as WsError, Message, client::IntoClientRequest, protocol::WebSocketConfig,
    },
};

use crate::{
    Config, Error, HttpRefusal, Loss,
    engine::{ClientPacket, Handshake, ServerPacket},
    polling::{ERROR_BYTES, install_tls},
};

type Stream = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// The receiving half of the WebSocket transport.
#[derive(Debug)]
pub(crate) struct Source(SplitStream<Stream>);

/// The sending half of the WebSocket transport.
#[derive(Debug)]
pub(crate) struct Sink(SplitSink<Stream, Message>);

/// Opens a session over a WebSocket, without polling.
pub(crate) async fn open(config: &Config) -> Result<(Handshake, Sink, Source), Error> {
    let mut stream = dial(config, None).await?;
    let first = next_text(&mut stream).await.map_err(Error::Lost)?;
    let open = Handshake::read(&first)?;
    let (sink, source) = stream.split();
    Ok((open, Sink(sink), Source(source)))
}

/// Upgrades a session that was opened by polling to a WebSocket.
pub(crate) async fn upgrade(config: &Config, sid: &str) -> Result<(Sink, Source), Error> {
    let mut stream = dial(config, Some(sid)).await?;
    send(&mut stream, "2probe").await?;
    let answer = next_text(&mut stream).await.map_err(Error::Lost)?;
    if answer != "3probe" {
        return Err(Error::Protocol("the probe was not answered".into()));
    }
    send(&mut stream, "5").await?;
    let (sink, source) = stream.split();
    Ok((Sink(sink), Source(source)))
}

async fn send(stream: &mut Stream, text: &'static str) -> Result<(), Error> {
    stream.send(Message::text(text)).await.map_err(|error| Error::Lost(loss(&error)))
}

async fn dial(config: &Config, sid: Option<&str>) -> Result<Stream, Error> {
    install_tls();
    let mut url = config.address("websocket", sid);
    let scheme = if url.scheme() == "https" { "wss" } else { "ws" };
    let _ = url.set_scheme(scheme);
    let mut request: Request<()> =
        url.as_str().into_client_request().map_err(|error| Error::Address(error.to_string()))?;
    for (name, value) in &config.headers {
        request.headers_mut().append(name, value.clone());
    }
    let limits = WebSocketConfig::default()
        .max_message_size(Some(config.limits.frame_bytes_max))
        .max_frame_size(Some(config.limits.frame_bytes_max));
    match connect_async_with_config(request, Some(limits), true).await {
        Ok((stream, _)) => Ok(stream),
        Err(WsError::Http(response)) => {
            let body = response.body().as_deref().unwrap_or_default();
            let body = String::from_utf8_lossy(&body[..body.len().min(ERROR_BYTES)]).into_owned();
            Err(refusal(response.status().as_u16(), response.headers(), body))
        }
        Err(error) => Err(Error::Unreachable(error.to_string())),
    }
}

/// Builds the error for a refused handshake from the server's response.
pub(crate) fn refusal(status: u16, headers: &HeaderMap, body: String) -> Error {
    let headers = headers
        .iter()
        .filter_map(|(name, value)| {
            Some((name.as_str().to_owned(), value.to_str().ok()?.to_owned()))
        })
        .collect();
    Error::Http(Box::new(HttpRefusal { status, headers, body }))
}

fn loss(error: &WsError) -> Loss {
    Loss::Broken(error.to_string())
}

/// Reads the next text frame and skips other frames.
async fn next_text(stream: &mut Stream) -> Result<String, Loss> {
    loop {
        match stream.next().await {
            Some(Ok(Message::Text(text))) => return Ok(text.as_str().to_owned()),
            Some(Ok(Message::Close(frame))) => return Err(closed(frame.as_ref())),
            Some(Ok(_)) => {}
            Some(Err(error)) => return Err(loss(&error)),
            None => return Err(closed(None)),
        }
    }
}

fn closed(frame: Option<&tokio_tungstenite::tungstenite::protocol::CloseFrame>) -> Loss {
    Loss::Closed {
        code: frame.map(|frame| frame.code.into()),
        reason: frame.map(|frame| frame.reason.as_str().to_owned()).unwrap_or_default(),
    }
}

impl Source {
    pub(crate) async fn next(&mut self) -> Result<ServerPacket, Loss> {
        loop {
            match self.0.next().await {
                Some(Ok(Message::Text(text))) => return ServerPacket::read(text.as_str()),
                Some(Ok(Message::Binary(bytes))) => return Ok(ServerPacket::Bytes(bytes)),
                Some(Ok(Message::Close(frame))) => return Err(closed(frame.as_ref())),
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(loss(&error)),
                None => return Err(closed(None)),
            }
        }
    }
}

impl Sink {
    pub(crate) async fn send_packets(&mut self, packets: Vec<ClientPacket>) -> Result<(), Loss> {
        for packet in packets {
            match packet {
                ClientPacket::Pong => self.feed(Message::text("3")).await?,
                ClientPacket::Close => self.feed(Message::text("1")).await?,
                ClientPacket::Message(encoding) => {
                    let mut text = encoding.text;
                    text.insert(0, '4');
                    self.feed(Message::text(text)).await?;
                    for bytes in encoding.attachments {
                        self.feed(Message::Binary(bytes)).await?;
                    }
                }
            }
        }
        self.0.flush().await.map_err(|error| loss(&error))
    }

    async fn feed(&mut self, message: Message) -> Result<(), Loss> {
        self.0.feed(message).await.map_err(|error| loss(&error))
    }

    pub(crate) async fn close(&mut self) {
        let _ = self.send_packets(vec![ClientPacket::Close]).await;
        let _ = self.0.close().await;
    }
}

//! One WebSocket connection. Its end is classified by whether a reconnect can succeed.

use std::time::Duration;

use budao_core::fault::{Fact, Fault, Kind, Operation};
use futures::{SinkExt as _, StreamExt as _};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_tungstenite::{
    MaybeTlsStream, WebSocketStream, connect_async_with_config,
    tungstenite::{
        self, Message,
        client::IntoClientRequest as _,
        http::{HeaderValue, StatusCode, header},
        protocol::{CloseFrame, WebSocketConfig, frame::coding::CloseCode},
    },
};

use crate::{client::Client, event::Event};

/// Time limit for the connection and the upgrade.
const CONNECT: Duration = Duration::from_secs(10);

/// Time limit for writing one frame.
const SEND: Duration = Duration::from_secs(10);

/// Time limit for the closing handshake.
const CLOSE: Duration = Duration::from_secs(1);

/// Upper bound for a received message.
const FRAME_BYTES: usize = 64 * 1024 * 1024;

/// Initial read buffer; small because most frames are.
const BUFFER_BYTES: usize = 8 * 1024;

/// Close code: this client read too slowly.
const TOO_SLOW: u16 = 4408;

/// Close code: this client sent too many commands.
const TOO_MANY: u16 = 4429;

/// Why a connection ended.
#[derive(Debug)]
pub(crate) enum ConnectionEnd {
    /// A reconnect can succeed. The fault may carry the server's retry hint.
    Lost(Fault),
    /// A reconnect would end in the same way.
    Refused(Fault),
}

/// An open, authenticated connection.
#[derive(Debug)]
pub(crate) struct Socket(WebSocketStream<MaybeTlsStream<TcpStream>>);

impl Socket {
    /// Connects and authenticates, within 10 s.
    pub(crate) async fn open(client: &Client) -> Result<Self, ConnectionEnd> {
        let mut request = client.url.as_str().into_client_request().map_err(|error| {
            ConnectionEnd::Refused(
                connecting(Kind::BadRequest, client).with(Fact::Field, "url").caused_by(&error),
            )
        })?;
        if let Some(token) = &client.token {
            let value = HeaderValue::try_from(format!("Bearer {token}")).map_err(|error| {
                ConnectionEnd::Refused(
                    connecting(Kind::BadRequest, client)
                        .with(Fact::Field, "token")
                        .caused_by(&error),
                )
            })?;
            request.headers_mut().insert(header::AUTHORIZATION, value);
        }
        let config = WebSocketConfig::default()
            .read_buffer_size(BUFFER_BYTES)
            .max_message_size(Some(FRAME_BYTES))
            .max_frame_size(Some(FRAME_BYTES));
        let connecting_now = connect_async_with_config(request, Some(config), true);
        match tokio::time::timeout(CONNECT, connecting_now).await {
            Ok(Ok((stream, _))) => Ok(Self(stream)),
            Ok(Err(error)) => Err(not_let_in(error, client)),
            Err(_) => Err(ConnectionEnd::Lost(
                connecting(Kind::RequestTimedOut, client).with(Fact::TimeoutMs, CONNECT),
            )),
        }
    }

    /// Returns the next event. Control frames are handled here; text that is not an event is logged and skipped.
    pub(crate) async fn next(&mut self) -> Result<Event, ConnectionEnd> {
        loop {
            match self.0.next().await {
                Some(Ok(Message::Text(text))) => match serde_json::from_str(&text) {
                    Ok(event) => return Ok(event),
                    Err(error) => tracing::warn!(%error, "skipping frame: not an event"),
                },
                Some(Ok(Message::Close(frame))) => return Err(close_end(frame)),
                Some(Ok(_)) => {}
                Some(Err(error)) => {
                    return Err(ConnectionEnd::Lost(loss_fault().caused_by(&error)));
                }
                None => return Err(ConnectionEnd::Lost(loss_fault())),
            }
        }
    }

    /// Sends one command; the connection counts as lost after 10 s without progress.
    pub(crate) async fn send(&mut self, frame: &Value) -> Result<(), ConnectionEnd> {
        let sending = self.0.send(Message::text(frame.to_string()));
        match tokio::time::timeout(SEND, sending).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(ConnectionEnd::Lost(loss_fault().caused_by(&error))),
            Err(_) => {
                Err(ConnectionEnd::Lost(loss_fault().with_cause("the line takes no more bytes")))
            }
        }
    }

    /// Sends a close frame and waits at most 1 s for the peer.
    pub(crate) async fn close(mut self) {
        let frame = CloseFrame { code: CloseCode::Normal, reason: "done".into() };
        let _ = tokio::time::timeout(CLOSE, self.0.close(Some(frame))).await;
    }
}

/// The fault of a connection that broke without a close frame: code 1006.
pub(crate) fn loss_fault() -> Fault {
    Fault::new(Kind::ConnectionLost, Operation::Connect).with(Fact::CloseCode, 1006_u64)
}

fn connecting(kind: Kind, client: &Client) -> Fault {
    Fault::new(kind, Operation::Connect).with(Fact::Endpoint, client.url.clone())
}

/// Classifies a close frame: its code says whether a reconnect can succeed.
fn close_end(frame: Option<CloseFrame>) -> ConnectionEnd {
    let Some(frame) = frame else {
        return ConnectionEnd::Lost(loss_fault().with(Fact::CloseCode, 1005_u64));
    };
    let fault = Fault::new(Kind::ConnectionLost, Operation::Connect)
        .with(Fact::CloseCode, u64::from(u16::from(frame.code)))
        .with(Fact::CloseReason, frame.reason.to_string());
    match u16::from(frame.code) {
        1001 | 1005 | 1006 | 1011..=1013 | TOO_SLOW | TOO_MANY => ConnectionEnd::Lost(fault),
        _ => ConnectionEnd::Refused(fault),
    }
}

/// Classifies a failed connection attempt. Only errors that need a changed URL or credential are final.
fn not_let_in(error: tungstenite::Error, client: &Client) -> ConnectionEnd {
    let response = match error {
        tungstenite::Error::Http(response) => response,
        tungstenite::Error::Url(error) => {
            let fault = connecting(Kind::BadRequest, client).with(Fact::Field, "url");
            return ConnectionEnd::Refused(fault.caused_by(&error));
        }
        error => {
            return ConnectionEnd::Lost(
                connecting(Kind::ConnectionRefused, client).caused_by(&error),
            );
        }
    };
    let kind = match response.status() {
        StatusCode::UNAUTHORIZED => Kind::NotAuthenticated,
        StatusCode::FORBIDDEN => Kind::NotAllowed,
        StatusCode::NOT_FOUND | StatusCode::BAD_REQUEST => Kind::BadRequest,
        _ => Kind::ConnectionRefused,
    };
    let fault = connecting(kind, client).with(Fact::Status, u64::from(response.status().as_u16()));
    let hint = response.headers().get(header::RETRY_AFTER);
    let hint = hint.and_then(|value| value.to_str().ok()?.parse().ok());
    match (kind, hint) {
        (Kind::ConnectionRefused, Some(seconds)) => {
            ConnectionEnd::Lost(fault.retry_after(Duration::from_secs(seconds)))
        }
        (Kind::ConnectionRefused, None) => ConnectionEnd::Lost(fault),
        _ => ConnectionEnd::Refused(fault),
    }
}

//! Serves a WebSocket: one reader and one writer in one task.
//!
//! Only the writer uses the sink. It sends the outbox's frames, heartbeats and pings. The reader waits for room in the
//! outbox before it reads the next frame, so a client that sends without reading is slowed down instead of buffered.

use std::{panic::AssertUnwindSafe, sync::Arc};

use axum::{
    Error,
    extract::ws::{CloseFrame, Message, WebSocket},
};
use budao_core::{
    Fault, Kind,
    fault::{Fact, FactValue, Operation},
};
use futures::{
    FutureExt as _, Sink, SinkExt as _, Stream, StreamExt as _,
    future::{self, Either},
};
use tungstenite::error::{CapacityError, Error as WsError};

use crate::{
    connection::{Connection, DisconnectReason},
    frame::{close, connection::render_shutdown},
    outbox::{CloseMode, CloseReason, EncodedFrame},
};

/// Close code of a connection that broke without a close frame. It is recorded and never sent.
pub(crate) const ABNORMAL_CLOSURE: u16 = 1006;
/// Maximum length of the reason in a close frame.
const REASON_BYTES_MAX: usize = 123;

/// Serves one client until it disconnects.
pub(crate) async fn serve_socket(connection: Arc<Connection>, socket: WebSocket) {
    let (sink, stream) = socket.split();
    serve_streams(connection, sink, stream).await;
}

/// Like [`serve_socket`], on any pair of message sink and stream.
pub(crate) async fn serve_streams<W, R>(connection: Arc<Connection>, mut sink: W, mut stream: R)
where
    W: Sink<Message, Error = Error> + Unpin,
    R: Stream<Item = Result<Message, Error>> + Unpin,
{
    let running = AssertUnwindSafe(run(&connection, &mut sink, &mut stream)).catch_unwind();
    let disconnect_reason = running.await.unwrap_or_else(|_| DisconnectReason::Lost {
        code: close::SERVER_FAILED,
        reason: "the code that serves the connection panicked".to_owned(),
    });
    tracing::debug!(connection = connection.id, reason = ?disconnect_reason, "client disconnected");
    // From here on nothing is delivered, and producers waiting for room get an error.
    connection.outbox.close(CloseReason::new(ABNORMAL_CLOSURE, "gone"), CloseMode::Discard);
    drop((sink, stream));
    connection.end_observations(&disconnect_reason).await;
}

async fn run<W, R>(connection: &Arc<Connection>, sink: &mut W, stream: &mut R) -> DisconnectReason
where
    W: Sink<Message, Error = Error> + Unpin,
    R: Stream<Item = Result<Message, Error>> + Unpin,
{
    if connection.send_connected().await.is_err() {
        return DisconnectReason::Orderly;
    }
    let clock = &connection.server.world.clock;
    let close_timeout = connection.server.config.limits.close_timeout;
    let writer = Box::pin(write(connection, sink));
    let reader = Box::pin(read(connection, stream));
    let first = match future::select(reader, writer).await {
        // The writer sends the close frame, if the connection still accepts it.
        Either::Left((ReadEnd::ClosedByServer(close_reason), writer)) => {
            connection.outbox.close(close_reason.clone(), CloseMode::Drain);
            let _ = future::select(writer, clock.sleep(close_timeout)).await;
            ClosedHalf::Writer(Ok(close_reason))
        }
        Either::Left((end, _)) => ClosedHalf::Reader(end),
        Either::Right((written, _)) => ClosedHalf::Writer(written),
    };
    match first {
        ClosedHalf::Reader(end) => {
            // The reply to a close frame is buffered in the sink.
            let _ = future::select(sink.flush(), clock.sleep(close_timeout)).await;
            end.into_disconnect_reason()
        }
        ClosedHalf::Writer(Ok(close_reason)) => {
            let _ =
                future::select(Box::pin(discard_input(stream)), clock.sleep(close_timeout)).await;
            ReadEnd::ClosedByServer(close_reason).into_disconnect_reason()
        }
        ClosedHalf::Writer(Err(error)) => {
            ReadEnd::Broken(error.to_string()).into_disconnect_reason()
        }
    }
}

/// Reads until the client has closed. Dropping a TCP connection with unread data resets it, and the reset may destroy
/// the close frame.
async fn discard_input<R>(stream: &mut R)
where
    R: Stream<Item = Result<Message, Error>> + Unpin,
{
    while let Some(Ok(_)) = stream.next().await {}
}

/// The half of a connection that ended first.
enum ClosedHalf {
    Reader(ReadEnd),
    Writer(Result<CloseReason, Error>),
}

/// The reason for the end of reading.
enum ReadEnd {
    /// The client closed with this code and reason.
    Closed(u16, String),
    /// The server closes with this code and reason.
    ClosedByServer(CloseReason),
    /// The connection broke.
    Broken(String),
}

impl ReadEnd {
    fn into_disconnect_reason(self) -> DisconnectReason {
        match self {
            Self::Closed(close::NORMAL | close::GOING_AWAY, _) => DisconnectReason::Orderly,
            Self::Closed(code, reason) => DisconnectReason::Lost { code, reason },
            Self::ClosedByServer(close_reason) => DisconnectReason::of(close_reason),
            Self::Broken(reason) => DisconnectReason::Lost { code: ABNORMAL_CLOSURE, reason },
        }
    }
}

/// Reads and handles frames until the connection ends.
async fn read<R>(connection: &Arc<Connection>, stream: &mut R) -> ReadEnd
where
    R: Stream<Item = Result<Message, Error>> + Unpin,
{
    let server = &connection.server;
    loop {
        let idle = server.world.clock.sleep(server.config.limits.idle_timeout);
        let message = tokio::select! {
            biased;
            () = server.stopping.cancelled() => return announce_shutdown(connection).await,
            close_reason = connection.outbox.wait_for_close() => return ReadEnd::ClosedByServer(close_reason),
            message = stream.next() => message,
            () = idle => {
                return ReadEnd::ClosedByServer(CloseReason::new(close::GOING_AWAY, "no data received for too long"));
            }
        };
        connection.outbox.record_activity(server.now());
        let handled = match message {
            None => {
                return ReadEnd::Broken("the connection ended without a close frame".to_owned());
            }
            Some(Err(error)) => return classify_read_error(error),
            Some(Ok(Message::Close(frame))) => return read_end_of(frame),
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => Ok(()),
            // Boxed, so that the future of an idle connection stays small.
            Some(Ok(Message::Text(text))) => Box::pin(connection.handle_text(&text)).await,
            Some(Ok(Message::Binary(bytes))) => {
                Box::pin(connection.refuse_frame(binary_frame_fault(bytes.len()))).await
            }
        };
        if handled.is_err() || connection.outbox.wait_for_room().await.is_err() {
            return ReadEnd::ClosedByServer(connection.outbox.wait_for_close().await);
        }
    }
}

/// Announces the shutdown and the reconnect delay.
async fn announce_shutdown(connection: &Connection) -> ReadEnd {
    let server = &connection.server;
    let wait = server.config.limits.reconnect_delay;
    let frame = render_shutdown(server.now(), wait, connection.lang());
    let _ = connection.outbox.deliver(EncodedFrame::from(&frame));
    let reason = format!("restarting; reconnect in {} ms with your cursor", wait.as_millis());
    ReadEnd::ClosedByServer(CloseReason::new(close::RESTARTING, reason))
}

fn read_end_of(frame: Option<CloseFrame>) -> ReadEnd {
    match frame {
        Some(CloseFrame { code, reason }) => ReadEnd::Closed(code, reason.to_string()),
        // A close frame without a code counts as a normal closure.
        None => ReadEnd::Closed(close::NORMAL, String::new()),
    }
}

/// Classifies a read error: a violated limit or rule gets a close code, other errors are a broken connection.
fn classify_read_error(error: Error) -> ReadEnd {
    let error = error.into_inner();
    let dismissed = |code, reason: &str| ReadEnd::ClosedByServer(CloseReason::new(code, reason));
    match error.downcast_ref::<WsError>() {
        Some(WsError::Capacity(CapacityError::MessageTooLong { max_size, .. })) => {
            dismissed(close::TOO_LARGE, &format!("frame_bytes_hard: at most {max_size} bytes"))
        }
        Some(WsError::Capacity(_)) => dismissed(close::TOO_LARGE, "frame_bytes_hard"),
        Some(WsError::Utf8(_)) => dismissed(close::NOT_UTF8, "text frames are UTF-8"),
        Some(WsError::Protocol(
            tungstenite::error::ProtocolError::ResetWithoutClosingHandshake,
        )) => ReadEnd::Broken("reset without a close frame".to_owned()),
        Some(WsError::Protocol(rule)) => {
            tracing::debug!(%rule, "client broke the WebSocket protocol");
            dismissed(close::PROTOCOL_ERROR, "the frame breaks the WebSocket protocol")
        }
        _ => ReadEnd::Broken("the connection broke".to_owned()),
    }
}

fn binary_frame_fault(bytes: usize) -> Fault {
    Fault::new(Kind::BadRequest, Operation::AcceptFrame)
        .with(Fact::Field, "frame")
        .with(Fact::Expected, "a text frame")
        .with(Fact::Received, "a binary frame")
        .with(Fact::Constraint, "frames are text")
        .with(Fact::ProvidedValue, FactValue::Json(serde_json::json!(format!("{bytes} bytes"))))
}

/// Sends frames until the outbox is closed, then sends the close frame.
async fn write<W>(connection: &Connection, sink: &mut W) -> Result<CloseReason, Error>
where
    W: Sink<Message, Error = Error> + Unpin,
{
    let server = &connection.server;
    let interval = server.config.limits.heartbeat;
    let mut next_heartbeat = server.world.clock.sleep(interval);
    let close_reason = loop {
        let next = tokio::select! {
            biased;
            () = &mut next_heartbeat => None,
            next = connection.outbox.next() => Some(next),
        };
        match next {
            None => {
                next_heartbeat = server.world.clock.sleep(interval);
                sink.feed(Message::Text(connection.heartbeat().encode().into())).await?;
                sink.send(Message::Ping(bytes::Bytes::new())).await?;
            }
            Some(Ok(frames)) => {
                let sending = Box::pin(send(sink, &frames));
                match future::select(sending, Box::pin(wait_for_close(connection))).await {
                    Either::Left((sent, _)) => sent?,
                    Either::Right((close_reason, _)) => break close_reason,
                }
                connection.mark_sent(&frames);
            }
            Some(Err(close_reason)) => break close_reason,
        }
    };
    let frame =
        CloseFrame { code: close_reason.code, reason: cut_reason(&close_reason.reason).into() };
    let close_timeout = server.world.clock.sleep(server.config.limits.close_timeout);
    match future::select(sink.send(Message::Close(Some(frame))), close_timeout).await {
        Either::Left((sent, _)) => sent?,
        Either::Right(((), _)) => {}
    }
    Ok(close_reason)
}

async fn send<W>(sink: &mut W, frames: &[EncodedFrame]) -> Result<(), Error>
where
    W: Sink<Message, Error = Error> + Unpin,
{
    for frame in frames {
        sink.feed(Message::Text(frame.text.clone())).await?;
    }
    sink.flush().await
}

/// Waits until the outbox is closed. If it is closed as too slow, the current send is aborted at once.
async fn wait_for_close(connection: &Connection) -> CloseReason {
    let close_reason = connection.outbox.wait_for_close().await;
    if close_reason.code != close::TOO_SLOW {
        // Otherwise the frames being sent get `Limits::close_timeout` to arrive.
        connection.server.world.clock.sleep(connection.server.config.limits.close_timeout).await;
    }
    close_reason
}

fn cut_reason(reason: &str) -> String {
    let end =
        (0..=REASON_BYTES_MAX.min(reason.len())).rev().find(|at| reason.is_char_boundary(*at));
    reason[..end.unwrap_or(0)].to_owned()
}

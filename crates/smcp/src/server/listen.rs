//! A listener that ends connections whose peer does not read, and connections that the hub cuts.
//!
//! A closed WebSocket still writes its queue. A peer that reads little or nothing would hold that memory forever.

use std::{
    fmt, io,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use axum::{
    extract::{ConnectInfo, connect_info::Connected},
    http::Extensions,
    serve::{IncomingStream, Listener},
};
use budao_core::world::Clock;
use futures::future::BoxFuture;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// The token that ends a TCP connection without writing the rest.
#[derive(Clone, Debug)]
pub(super) struct CutToken(pub(super) CancellationToken);

/// The token of a request's TCP connection: from this listener, or from the server that the hub is mounted in.
pub(super) fn cut_of(extensions: &Extensions) -> Option<CancellationToken> {
    let ours = extensions.get::<ConnectInfo<CutToken>>().map(|ConnectInfo(CutToken(token))| token);
    ours.or_else(|| extensions.get::<CancellationToken>()).cloned()
}

impl Connected<IncomingStream<'_, GuardedListener>> for CutToken {
    fn connect_info(stream: IncomingStream<'_, GuardedListener>) -> Self {
        Self(stream.io().cut.clone())
    }
}

/// A listener that wraps each connection in a [`Stream`].
pub(super) struct GuardedListener {
    listener: TcpListener,
    clock: Arc<dyn Clock>,
    limit: Duration,
}

impl GuardedListener {
    /// `limit` is the longest time that a write may wait.
    pub(super) fn new(listener: TcpListener, clock: &Arc<dyn Clock>, limit: Duration) -> Self {
        Self { listener, clock: Arc::clone(clock), limit }
    }
}

impl Listener for GuardedListener {
    type Io = Stream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        let (stream, address) = Listener::accept(&mut self.listener).await;
        (Stream::new(stream, &self.clock, self.limit), address)
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.listener.local_addr()
    }
}

/// Bytes that are read at most when a connection is dropped.
const REST_MAX: usize = 1 << 20;

/// A connection with a time limit for writes.
pub(super) struct Stream<S: AsyncRead + Unpin> {
    stream: S,
    clock: Arc<dyn Clock>,
    limit: Duration,
    cut: CancellationToken,
    /// Completes when the connection is cut, to wake waiting reads.
    ended: Pin<Box<WaitForCancellationFutureOwned>>,
    /// Completes when the waiting write has reached its limit, or the connection is cut.
    waiting: Option<BoxFuture<'static, ()>>,
}

impl<S: AsyncRead + Unpin> Drop for Stream<S> {
    /// Drains received data: closing TCP with unread data resets it, and the peer loses the last packets.
    fn drop(&mut self) {
        let (mut room, mut context) = ([0; 4096], Context::from_waker(Waker::noop()));
        for _ in 0..REST_MAX / room.len() {
            let mut buffer = ReadBuf::new(&mut room);
            let polled = Pin::new(&mut self.stream).poll_read(&mut context, &mut buffer);
            if !matches!(polled, Poll::Ready(Ok(()))) || buffer.filled().is_empty() {
                return;
            }
        }
    }
}

impl<S: AsyncRead + Unpin> fmt::Debug for Stream<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream").field("limit", &self.limit).finish_non_exhaustive()
    }
}

impl<S: AsyncRead + Unpin> Stream<S> {
    fn new(stream: S, clock: &Arc<dyn Clock>, limit: Duration) -> Self {
        let (clock, cut) = (Arc::clone(clock), CancellationToken::new());
        let ended = Box::pin(cut.clone().cancelled_owned());
        Self { stream, clock, limit, cut, ended, waiting: None }
    }

    fn judge<T>(
        &mut self,
        context: &mut Context<'_>,
        polled: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if self.cut.is_cancelled() {
            return Poll::Ready(Err(given_up()));
        }
        if polled.is_ready() {
            self.waiting = None;
            return polled;
        }
        let waiting = self.waiting.get_or_insert_with(|| {
            let (patience, cut) = (self.clock.sleep(self.limit), self.cut.clone());
            Box::pin(async move {
                tokio::select! {
                    biased;
                    () = cut.cancelled() => {}
                    () = patience => {}
                }
            })
        });
        waiting.as_mut().poll(context).map(|()| {
            // Ends reads as well: a connection with failing writes and working reads would lose answers silently.
            self.cut.cancel();
            Err(given_up())
        })
    }
}

fn given_up() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the peer does not read")
}

impl<S: AsyncRead + Unpin> AsyncRead for Stream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.ended.as_mut().poll(context).is_ready() {
            return Poll::Ready(Err(given_up()));
        }
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Stream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.judge(context, polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(context, pieces);
        self.judge(context, polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_flush(context);
        self.judge(context, polled)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use budao_testkit::world;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[tokio::test]
    async fn a_write_that_waits_ends_when_the_connection_is_cut_or_nobody_reads_for_too_long() {
        let clock = world::seeded(1).clock;
        let (near, mut far) = tokio::io::duplex(64);
        let mut stream = Stream::new(near, &clock, Duration::from_secs(600));
        stream.write_all(&[7; 64]).await.unwrap();
        let cut = stream.cut.clone();
        let (written, ()) = tokio::join!(stream.write_all(&[7; 640]), async { cut.cancel() });
        assert_eq!(written.unwrap_err().kind(), io::ErrorKind::TimedOut);
        far.read_exact(&mut [0; 64]).await.unwrap();
        assert!(stream.write_all(&[7]).await.is_err(), "also when there is room again");
        assert!(stream.read(&mut [0]).await.is_err(), "and nothing is read any more");

        let (near, _far) = tokio::io::duplex(64);
        let mut stream = Stream::new(near, &clock, Duration::from_millis(20));
        let error = stream.write_all(&[7; 640]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(stream.read(&mut [0]).await.is_err(), "no half of it goes on");
    }
}

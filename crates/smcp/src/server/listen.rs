//! The hub's own listener: requests must arrive in time, and connections end whose peer does not read or that the hub
//! cuts.
//!
//! A closed WebSocket still writes its queue. A peer that reads little or nothing would hold that memory forever.

use std::{
    fmt, io,
    net::{IpAddr, SocketAddr},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use axum::{
    Router,
    http::{Extensions, Request},
};
use budao_core::world::Clock;
use futures::future::BoxFuture;
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
};
use tokio_util::{
    sync::{CancellationToken, WaitForCancellationFutureOwned},
    task::TaskTracker,
};
use tower::ServiceExt as _;

use super::{Inner, SWEEP_PAUSE};

/// Pause after the operating system gave no socket.
const NO_SOCKETS: Duration = Duration::from_millis(100);

/// Time that open requests have to end after the hub has closed.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(5);

/// TCP connections for each client: one that polls, one that posts, and one that is being replaced.
const SOCKETS_PER_CLIENT: usize = 3;

/// The token that ends a request's TCP connection, from this listener or from the server that the hub is mounted in.
pub(super) fn cut_of(extensions: &Extensions) -> Option<CancellationToken> {
    extensions.get::<CancellationToken>().cloned()
}

/// The address of a request's peer, if the listener tells it.
pub(super) fn address_of(extensions: &Extensions) -> Option<IpAddr> {
    extensions.get::<SocketAddr>().map(SocketAddr::ip)
}

/// Serves until `ended` completes, then lets open requests end.
pub(super) async fn serve(
    hub: &Arc<Inner>,
    router: Router,
    listener: TcpListener,
    ended: impl Future<Output = ()> + Send,
) {
    let limits = hub.config.limits;
    let sockets = Arc::new(Semaphore::new(
        limits.connections_max.saturating_mul(SOCKETS_PER_CLIENT).min(Semaphore::MAX_PERMITS),
    ));
    let (running, stopping) = (TaskTracker::new(), CancellationToken::new());
    let mut ended = std::pin::pin!(ended);
    loop {
        let accepted = tokio::select! {
            biased;
            () = &mut ended => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, address)) => {
                // At the limit, the connection is dropped without a response.
                let Ok(permit) = Arc::clone(&sockets).try_acquire_owned() else { continue };
                let _ = stream.set_nodelay(true);
                let (hub, router, stopping) = (Arc::clone(hub), router.clone(), stopping.clone());
                running.spawn(serve_connection(hub, stream, address, router, stopping, permit));
            }
            Err(error) => {
                tracing::warn!(%error, "no connection could be accepted");
                hub.world.clock.sleep(NO_SOCKETS).await;
            }
        }
    }
    drop(listener);
    stopping.cancel();
    running.close();
    tokio::select! {
        biased;
        () = running.wait() => {}
        () = hub.world.clock.sleep(SHUTDOWN_GRACE) => tracing::warn!("some clients did not leave in time"),
    }
}

/// Serves the requests of one TCP connection. `_permit` is held until the connection is closed or upgraded.
async fn serve_connection(
    hub: Arc<Inner>,
    stream: TcpStream,
    address: SocketAddr,
    router: Router,
    stopping: CancellationToken,
    _permit: OwnedSemaphorePermit,
) {
    let limits = hub.config.limits;
    // Longer than the hub's own check of its queues, because only that check reports a reason.
    let stream = WriteTimeoutStream::new(stream, &hub.world.clock, limits.send + SWEEP_PAUSE * 5);
    let token = stream.cut.clone();
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(token.clone());
        request.extensions_mut().insert(address);
        router.clone().oneshot(request)
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.request_head)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    tokio::pin!(connection);
    let ended = tokio::select! {
        biased;
        ended = &mut connection => ended,
        () = stopping.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended early");
    }
}

/// Bytes that are read at most when a connection is dropped.
const REST_MAX: usize = 1 << 20;

/// A connection with a time limit for writes.
pub(super) struct WriteTimeoutStream<S: AsyncRead + Unpin> {
    stream: S,
    clock: Arc<dyn Clock>,
    limit: Duration,
    cut: CancellationToken,
    /// Completes when the connection is cut, to wake waiting reads.
    ended: Pin<Box<WaitForCancellationFutureOwned>>,
    /// Completes when the waiting write has reached its limit, or the connection is cut.
    waiting: Option<BoxFuture<'static, ()>>,
}

impl<S: AsyncRead + Unpin> Drop for WriteTimeoutStream<S> {
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

impl<S: AsyncRead + Unpin> fmt::Debug for WriteTimeoutStream<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WriteTimeoutStream").field("limit", &self.limit).finish_non_exhaustive()
    }
}

impl<S: AsyncRead + Unpin> WriteTimeoutStream<S> {
    fn new(stream: S, clock: &Arc<dyn Clock>, limit: Duration) -> Self {
        let (clock, cut) = (Arc::clone(clock), CancellationToken::new());
        let ended = Box::pin(cut.clone().cancelled_owned());
        Self { stream, clock, limit, cut, ended, waiting: None }
    }

    fn check_timeout<T>(
        &mut self,
        context: &mut Context<'_>,
        polled: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if self.cut.is_cancelled() {
            return Poll::Ready(Err(timed_out()));
        }
        if polled.is_ready() {
            self.waiting = None;
            return polled;
        }
        let waiting = self.waiting.get_or_insert_with(|| {
            let (timer, cut) = (self.clock.sleep(self.limit), self.cut.clone());
            Box::pin(async move {
                tokio::select! {
                    biased;
                    () = cut.cancelled() => {}
                    () = timer => {}
                }
            })
        });
        waiting.as_mut().poll(context).map(|()| {
            // Ends reads as well: a connection with failing writes and working reads would lose answers silently.
            self.cut.cancel();
            Err(timed_out())
        })
    }
}

fn timed_out() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the peer does not read")
}

impl<S: AsyncRead + Unpin> AsyncRead for WriteTimeoutStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.ended.as_mut().poll(context).is_ready() {
            return Poll::Ready(Err(timed_out()));
        }
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for WriteTimeoutStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.check_timeout(context, polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(context, pieces);
        self.check_timeout(context, polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_flush(context);
        self.check_timeout(context, polled)
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
        let mut stream = WriteTimeoutStream::new(near, &clock, Duration::from_secs(600));
        stream.write_all(&[7; 64]).await.unwrap();
        let cut = stream.cut.clone();
        let (written, ()) = tokio::join!(stream.write_all(&[7; 640]), async { cut.cancel() });
        assert_eq!(written.unwrap_err().kind(), io::ErrorKind::TimedOut);
        far.read_exact(&mut [0; 64]).await.unwrap();
        assert!(stream.write_all(&[7]).await.is_err(), "also when there is room again");
        assert!(stream.read(&mut [0]).await.is_err(), "and nothing is read any more");

        let (near, _far) = tokio::io::duplex(64);
        let mut stream = WriteTimeoutStream::new(near, &clock, Duration::from_millis(20));
        let error = stream.write_all(&[7; 640]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(stream.read(&mut [0]).await.is_err(), "no half of it goes on");
    }
}

//! What every listener uses: the loop that accepts connections, and a stream that times out if its peer does not read.
//!
//! Without it, a client that sends requests and never reads the responses keeps a socket, a permit and queued memory
//! forever: TCP keeps the connection open as long as the peer's kernel responds.

mod accept;

use std::{
    fmt, io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

pub use accept::accept;
use budao_core::world::Clock;
use futures::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// Bytes that are read at most when a stream is dropped.
const REST_MAX: usize = 1 << 20;

/// A stream with a time limit for blocked writes.
pub struct WriteTimeoutStream<S: AsyncRead + Unpin> {
    stream: S,
    clock: Arc<dyn Clock>,
    limit: Duration,
    /// Ends reads and writes at once.
    cut: CancellationToken,
    /// Completes when `cut` is cancelled; wakes pending reads.
    ended: Pin<Box<WaitForCancellationFutureOwned>>,
    /// The timer of a blocked write; `None` while no write is blocked.
    waiting: Option<BoxFuture<'static, ()>>,
}

impl<S: AsyncRead + Unpin> WriteTimeoutStream<S> {
    /// Fails when a write is blocked for `limit`, or when `cut` is cancelled.
    pub fn new(stream: S, clock: &Arc<dyn Clock>, limit: Duration, cut: CancellationToken) -> Self {
        let ended = Box::pin(cut.clone().cancelled_owned());
        Self { stream, clock: Arc::clone(clock), limit, cut, ended, waiting: None }
    }

    fn check_timeout<T>(
        &mut self,
        context: &mut Context<'_>,
        polled: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if self.cut.is_cancelled() {
            return Poll::Ready(Err(was_cut()));
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
            // Reads must fail too: otherwise the connection stays half open and the answers to its requests are lost.
            self.cut.cancel();
            Err(io::Error::new(io::ErrorKind::TimedOut, "the peer read nothing for too long"))
        })
    }
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

impl<S: AsyncRead + Unpin> AsyncRead for WriteTimeoutStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.ended.as_mut().poll(context).is_ready() {
            return Poll::Ready(Err(was_cut()));
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

fn was_cut() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the connection was cut")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that unwraps fails where it should")]

    use budao_core::Timestamp;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    /// Tokio's paused time: it advances only when all tasks wait.
    #[derive(Debug)]
    struct PausedClock;

    impl Clock for PausedClock {
        fn now(&self) -> Timestamp {
            Timestamp::default()
        }

        fn sleep(&self, wait: Duration) -> BoxFuture<'static, ()> {
            Box::pin(tokio::time::sleep(wait))
        }
    }

    const LIMIT: Duration = Duration::from_secs(40);

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_takes_nothing_is_given_up_and_one_that_is_slow_is_not() {
        let clock: Arc<dyn Clock> = Arc::new(PausedClock);
        let (near, mut far) = tokio::io::duplex(64);
        let mut stream = WriteTimeoutStream::new(near, &clock, LIMIT, CancellationToken::new());
        let slow = async {
            let mut taken = [0; 64];
            for _ in 0..10 {
                tokio::time::sleep(LIMIT - Duration::from_secs(1)).await;
                far.read_exact(&mut taken).await.unwrap();
            }
        };
        let (written, ()) = tokio::join!(stream.write_all(&[7; 640]), slow);
        written.expect("slow is not gone");
        let began = tokio::time::Instant::now();
        let error = stream.write_all(&[7; 640]).await.unwrap_err();
        assert_eq!((error.kind(), began.elapsed()), (io::ErrorKind::TimedOut, LIMIT));
        assert!(stream.read(&mut [0]).await.is_err(), "no half of it goes on");
    }

    #[tokio::test(start_paused = true)]
    async fn a_cut_ends_a_waiting_write_at_once_and_nothing_goes_on_after_it() {
        let clock: Arc<dyn Clock> = Arc::new(PausedClock);
        let (cut, began) = (CancellationToken::new(), tokio::time::Instant::now());
        let (near, mut far) = tokio::io::duplex(64);
        let mut stream = WriteTimeoutStream::new(near, &clock, LIMIT, cut.clone());
        stream.write_all(&[7; 64]).await.unwrap();
        let (written, ()) = tokio::join!(stream.write_all(&[7; 640]), async { cut.cancel() });
        assert_eq!(written.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(began.elapsed(), Duration::ZERO, "a cut does not wait");
        far.read_exact(&mut [0; 64]).await.unwrap();
        assert!(stream.write_all(&[7]).await.is_err(), "also when there is room again");
        assert!(stream.read(&mut [0]).await.is_err(), "and nothing is read any more");
    }

    #[tokio::test]
    async fn what_was_received_is_read_before_the_socket_closes() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut far = tokio::net::TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (near, _) = listener.accept().await.unwrap();
        far.write_all(&[7; 5000]).await.unwrap();
        near.readable().await.unwrap();
        let clock: Arc<dyn Clock> = Arc::new(PausedClock);
        let mut stream = WriteTimeoutStream::new(near, &clock, LIMIT, CancellationToken::new());
        stream.write_all(b"goodbye").await.unwrap();
        drop(stream);
        let mut read = String::new();
        far.read_to_string(&mut read).await.expect("no reset");
        assert_eq!(read, "goodbye");
    }
}

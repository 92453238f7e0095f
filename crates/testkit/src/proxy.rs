//! A fault-injecting TCP proxy on loopback: it delays, fragments, swallows, stalls and cuts connections.
//!
//! Every connection gets a [`ConnectionPlan`] by its number, so that a test can state "the seventh is cut after 300
//! bytes". Only the sizes of fragments are random, and they come from a seed.

use std::{
    fmt, io,
    net::SocketAddr,
    num::NonZeroUsize,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use budao_core::world::Entropy;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{
        TcpListener, TcpStream,
        tcp::{ReadHalf, WriteHalf},
    },
    sync::watch,
    task::{JoinHandle, JoinSet},
};

use crate::world;

/// Upper bound for one read.
const CHUNK_BYTES: usize = 16 * 1024;

/// How long the other direction may continue after one direction has ended.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// How the proxy ends a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Both sides are closed in order.
    Close,
    /// Both sides get a reset; bytes in flight are lost.
    Reset,
    /// Half-open: both sides stay open and no more bytes arrive in either direction.
    Silence,
    /// The proxy stops reading this lane, so its sender's buffers fill; the other lane continues.
    Stall,
}

/// What happens to the bytes of one direction. The default forwards them unchanged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lane {
    /// Wait before each piece.
    pub latency: Duration,
    /// Writes are split into pieces of a random size up to this many bytes; whole if absent.
    pub piece_max: Option<NonZeroUsize>,
    /// Ends the connection after this many bytes; never if absent.
    pub cut: Option<(u64, Ending)>,
}

impl Lane {
    /// Ends the connection after `bytes` bytes.
    #[must_use]
    pub fn cut(mut self, bytes: u64, ending: Ending) -> Self {
        self.cut = Some((bytes, ending));
        self
    }

    /// Splits writes into pieces of 1 to `bytes` bytes.
    #[must_use]
    pub fn torn(mut self, bytes: usize) -> Self {
        self.piece_max = NonZeroUsize::new(bytes);
        self
    }

    /// Delays every piece by `latency`.
    #[must_use]
    pub fn late(mut self, latency: Duration) -> Self {
        self.latency = latency;
        self
    }
}

/// What happens to one connection, per direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionPlan {
    /// The lane from the client to the server.
    pub up: Lane,
    /// The lane from the server to the client.
    pub down: Lane,
}

impl ConnectionPlan {
    /// Forwards both lanes unchanged.
    #[must_use]
    pub fn clean() -> Self {
        Self::default()
    }

    /// Forwards the lane to the server unchanged and applies `down` to the lane to the client.
    #[must_use]
    pub fn down(down: Lane) -> Self {
        Self { down, ..Self::default() }
    }
}

type Planner = Arc<dyn Fn(u64) -> ConnectionPlan + Send + Sync>;

/// A running proxy. Dropping it cuts every connection.
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

struct Shared {
    upstream: Mutex<SocketAddr>,
    planner: Mutex<Planner>,
    /// The counter rises with every call of [`Proxy::cut_all`].
    cut: watch::Sender<(u64, Ending)>,
    accepted: AtomicU64,
    ended_early: AtomicU64,
    entropy: Arc<dyn Entropy>,
}

impl Proxy {
    /// Listens on a free loopback port and forwards to `upstream`. Connections are clean until [`Proxy::plan`] is
    /// called.
    ///
    /// # Errors
    /// When no port can be bound.
    pub async fn start(upstream: SocketAddr, seed: u64) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            upstream: Mutex::new(upstream),
            planner: Mutex::new(Arc::new(|_| ConnectionPlan::clean())),
            cut: watch::Sender::new((0, Ending::Close)),
            accepted: AtomicU64::new(0),
            ended_early: AtomicU64::new(0),
            entropy: world::seeded(seed).entropy,
        });
        let task = tokio::spawn(accept(listener, Arc::clone(&shared)));
        Ok(Self { address, shared, task })
    }

    /// The address for clients to connect to.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Forwards new connections to `upstream`, for a server that restarted at another address.
    pub fn redirect(&self, upstream: SocketAddr) {
        *lock(&self.shared.upstream) = upstream;
    }

    /// Sets the planner for new connections. It gets the number of the connection, counted from 0 since the start.
    pub fn plan(&self, planner: impl Fn(u64) -> ConnectionPlan + Send + Sync + 'static) {
        *lock(&self.shared.planner) = Arc::new(planner);
    }

    /// Ends all open connections.
    pub fn cut_all(&self, ending: Ending) {
        self.shared.cut.send_modify(|order| *order = (order.0 + 1, ending));
    }

    /// Number of connections accepted since the start.
    #[must_use]
    pub fn accepted(&self) -> u64 {
        self.shared.accepted.load(Ordering::Relaxed)
    }

    /// Number of connections that a plan or [`Proxy::cut_all`] ended.
    #[must_use]
    pub fn ended_early(&self) -> u64 {
        self.shared.ended_early.load(Ordering::Relaxed)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Proxy").field("address", &self.address).finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Accepts connections until it is dropped, which drops the connections too.
async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            Some(_) = connections.join_next() => {}
            arrived = listener.accept() => {
                let Ok((client, _)) = arrived else { continue };
                let number = shared.accepted.fetch_add(1, Ordering::Relaxed);
                let plan = lock(&shared.planner).clone()(number);
                connections.spawn(carry(client, plan, Arc::clone(&shared)));
            }
        }
    }
}

/// Forwards one connection until it ends.
async fn carry(mut client: TcpStream, plan: ConnectionPlan, shared: Arc<Shared>) {
    // Subscribes before it reads the upstream: a connection to the old upstream then sees a cut that follows a
    // redirect.
    let mut orders = shared.cut.subscribe();
    let upstream = *lock(&shared.upstream);
    let Ok(mut server) = TcpStream::connect(upstream).await else { return };
    let (Ok(()), Ok(())) = (client.set_nodelay(true), server.set_nodelay(true)) else { return };
    let ending = {
        let (client_read, client_write) = client.split();
        let (server_read, server_write) = server.split();
        let entropy = &*shared.entropy;
        tokio::select! {
            biased;
            _ = orders.changed() => Some(orders.borrow().1),
            ending = both(
                pump(client_read, server_write, plan.up, entropy),
                pump(server_read, client_write, plan.down, entropy),
            ) => ending,
        }
    };
    let Some(ending) = ending else { return };
    shared.ended_early.fetch_add(1, Ordering::Relaxed);
    match ending {
        Ending::Close | Ending::Stall => {}
        Ending::Reset => {
            // With a zero linger time, dropping the socket sends a reset.
            let _ = (client.set_zero_linger(), server.set_zero_linger());
        }
        Ending::Silence => {
            tokio::select! {
                biased;
                _ = orders.changed() => {}
                () = swallow(&mut client, &mut server) => {}
            }
        }
    }
}

/// Runs both lanes until one of them cuts, or until one has ended and the other had [`LAST_WORDS`] to end too.
async fn both(
    up: impl Future<Output = Option<Ending>>,
    down: impl Future<Output = Option<Ending>>,
) -> Option<Ending> {
    tokio::pin!(up, down);
    let (ending, is_up) = tokio::select! {
        biased;
        ending = &mut up => (ending, true),
        ending = &mut down => (ending, false),
    };
    match (ending, is_up) {
        (Some(ending), _) => Some(ending),
        (None, true) => tokio::time::timeout(LAST_WORDS, down).await.ok().flatten(),
        (None, false) => tokio::time::timeout(LAST_WORDS, up).await.ok().flatten(),
    }
}

/// Forwards one direction. Returns `None` when the sender ends it, or the ending of the plan.
async fn pump(
    mut from: ReadHalf<'_>,
    mut to: WriteHalf<'_>,
    lane: Lane,
    entropy: &dyn Entropy,
) -> Option<Ending> {
    let mut buffer = vec![0; CHUNK_BYTES];
    let mut left = lane.cut.map_or(u64::MAX, |(bytes, _)| bytes);
    loop {
        if left == 0 {
            return stop(lane).await;
        }
        let room = usize::try_from(left).unwrap_or(CHUNK_BYTES).min(CHUNK_BYTES);
        let Ok(count @ 1..) = from.read(&mut buffer[..room]).await else { break };
        left -= count as u64;
        let torn = ChunkedWrite { rest: &buffer[..count], piece_max: lane.piece_max, entropy };
        for piece in torn {
            if !lane.latency.is_zero() {
                tokio::time::sleep(lane.latency).await;
            }
            if to.write_all(piece).await.is_err() {
                return None;
            }
            if lane.piece_max.is_some() {
                // Lets the receiver read this piece before the next one arrives.
                tokio::task::yield_now().await;
            }
        }
    }
    let _ = to.shutdown().await;
    None
}

/// The ending of a lane that has used up its bytes. A stalled lane never returns.
async fn stop(lane: Lane) -> Option<Ending> {
    match lane.cut {
        Some((_, Ending::Stall)) => std::future::pending().await,
        cut => cut.map(|(_, ending)| ending),
    }
}

/// Reads and discards both sides until both have closed.
async fn swallow(client: &mut TcpStream, server: &mut TcpStream) {
    let mut void = tokio::io::sink();
    let mut void_too = tokio::io::sink();
    let _ =
        tokio::join!(tokio::io::copy(client, &mut void), tokio::io::copy(server, &mut void_too));
}

/// Iterator over the pieces of one write.
struct ChunkedWrite<'a> {
    rest: &'a [u8],
    piece_max: Option<NonZeroUsize>,
    entropy: &'a dyn Entropy,
}

impl<'a> Iterator for ChunkedWrite<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        if self.rest.is_empty() {
            return None;
        }
        let size = self.piece_max.map_or(self.rest.len(), |max| {
            let drawn = self.entropy.bits() % max.get() as u64;
            usize::try_from(drawn).unwrap_or(0) + 1
        });
        let (piece, rest) = self.rest.split_at(size.min(self.rest.len()));
        self.rest = rest;
        Some(piece)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An echo server behind a proxy.
    async fn echo(seed: u64) -> Proxy {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let (mut read, mut write) = stream.split();
                    let _ = tokio::io::copy(&mut read, &mut write).await;
                });
            }
        });
        Proxy::start(address, seed).await.unwrap()
    }

    /// Sends `said`, then reads until the end or an error.
    async fn talk(proxy: &Proxy, said: &[u8]) -> (Vec<u8>, io::Result<()>) {
        let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
        stream.write_all(said).await.unwrap();
        let _ = stream.shutdown().await;
        let mut heard = Vec::new();
        let mut buffer = [0; 1024];
        loop {
            match stream.read(&mut buffer).await {
                Ok(0) => return (heard, Ok(())),
                Ok(count) => heard.extend_from_slice(&buffer[..count]),
                Err(error) => return (heard, Err(error)),
            }
        }
    }

    #[tokio::test]
    async fn a_clean_line_carries_every_byte_and_so_does_a_torn_one() {
        let proxy = echo(1).await;
        let said: Vec<u8> = (0..100_000_u32).map(|n| n as u8).collect();
        assert_eq!(talk(&proxy, &said).await.0, said);
        proxy.plan(|_| ConnectionPlan {
            up: Lane::default().torn(700),
            down: Lane::default().torn(3),
        });
        assert_eq!(talk(&proxy, &said[..5000]).await.0, &said[..5000]);
        assert_eq!((proxy.accepted(), proxy.ended_early()), (2, 0));
    }

    #[tokio::test]
    async fn a_cut_comes_after_exactly_so_many_bytes_on_that_connection_alone() {
        let proxy = echo(2).await;
        proxy.plan(|number| match number {
            1 => ConnectionPlan::down(Lane::default().cut(7, Ending::Close)),
            _ => ConnectionPlan::clean(),
        });
        assert_eq!(talk(&proxy, b"hello there").await.0, b"hello there");
        assert_eq!(talk(&proxy, b"hello there").await.0, b"hello t");
        assert_eq!(talk(&proxy, b"hello there").await.0, b"hello there");
        assert_eq!(proxy.ended_early(), 1);
    }

    #[tokio::test]
    async fn a_reset_is_an_error_to_the_reader() {
        let proxy = echo(3).await;
        proxy.plan(|_| ConnectionPlan::down(Lane::default().cut(0, Ending::Reset)));
        assert!(talk(&proxy, b"hello").await.1.is_err());
    }

    #[tokio::test]
    async fn a_silent_connection_stays_open_until_it_is_closed() {
        let proxy = echo(4).await;
        proxy.plan(|_| ConnectionPlan::down(Lane::default().cut(2, Ending::Silence)));
        let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
        stream.write_all(b"hello").await.unwrap();
        let mut heard = [0; 2];
        stream.read_exact(&mut heard).await.unwrap();
        stream.write_all(b"anyone?").await.unwrap();
        let more = tokio::time::timeout(Duration::from_millis(50), stream.read(&mut heard)).await;
        assert!(more.is_err(), "{more:?}");
        proxy.cut_all(Ending::Close);
        assert_eq!(stream.read(&mut heard).await.unwrap(), 0);
    }
}

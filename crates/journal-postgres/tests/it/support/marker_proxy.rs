//! A proxy that acts on the connection which sends a marker: it cuts the reply after some bytes, or falls silent.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::Notify,
};

/// What happens to the connection that sends the marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// After this many bytes of the server's reply the client's side is closed.
    CutReply(usize),
    /// The client hears nothing any more, and its connection stays open.
    Silence,
    /// The statement does not reach the server until [`MarkerProxy::release`].
    Hold,
    /// In what the server says from then on, the first number becomes the second one.
    ReplaceNumber(i32, i32),
}

#[derive(Debug, Default)]
struct State {
    armed: Mutex<Option<(Vec<u8>, Action)>>,
    done: AtomicUsize,
    met: Notify,
    released: Notify,
}

/// A running proxy in front of a server.
#[derive(Debug)]
pub(crate) struct MarkerProxy {
    address: SocketAddr,
    state: Arc<State>,
}

impl MarkerProxy {
    pub(crate) async fn start(upstream: SocketAddr) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(State::default());
        let shared = Arc::clone(&state);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(carry(client, upstream, Arc::clone(&shared)));
            }
        });
        Self { address, state }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Acts on the next connection that sends the marker, once.
    pub(crate) fn arm(&self, marker: &str, action: Action) {
        *self.state.armed.lock().unwrap() = Some((marker.as_bytes().to_vec(), action));
    }

    /// How often it acted: a reply was cut short, or a connection silenced.
    pub(crate) fn done(&self) -> usize {
        self.state.done.load(Ordering::SeqCst)
    }

    /// Waits until a connection has sent the marker.
    pub(crate) async fn met(&self) {
        self.state.met.notified().await;
    }

    /// Lets a held statement go.
    pub(crate) fn release(&self) {
        self.state.released.notify_one();
    }
}

async fn carry(client: TcpStream, upstream: SocketAddr, state: Arc<State>) {
    let Ok(server) = TcpStream::connect(upstream).await else { return };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (mut client_read, mut client_write) = client.into_split();
    let (mut server_read, mut server_write) = server.into_split();
    let action: Arc<Mutex<Option<Action>>> = Arc::default();
    let (ours, shared) = (Arc::clone(&action), Arc::clone(&state));
    let up = async move {
        let mut buffer = vec![0; 1 << 16];
        while let Ok(count @ 1..) = client_read.read(&mut buffer).await {
            if let Some(met) = take_marker(&shared, &buffer[..count]) {
                *lock(&ours) = Some(met);
                shared.met.notify_one();
                if met == Action::Hold {
                    shared.released.notified().await;
                }
            }
            if server_write.write_all(&buffer[..count]).await.is_err() {
                break;
            }
        }
    };
    let down = async move {
        let mut buffer = vec![0; 1 << 16];
        let is_first = AtomicBool::new(true);
        while let Ok(count @ 1..) = server_read.read(&mut buffer).await {
            let met = *lock(&action);
            if let Some(Action::ReplaceNumber(from, to)) = met {
                replace(&mut buffer[..count], from.to_be_bytes(), to.to_be_bytes());
            }
            let forwarded = match met {
                Some(Action::CutReply(bytes)) => bytes.min(count),
                Some(Action::Silence) => 0,
                Some(Action::Hold | Action::ReplaceNumber(..)) | None => count,
            };
            if forwarded < count && is_first.swap(false, Ordering::SeqCst) {
                state.done.fetch_add(1, Ordering::SeqCst);
            }
            if client_write.write_all(&buffer[..forwarded]).await.is_err() {
                break;
            }
            match met {
                Some(Action::CutReply(_)) if forwarded < count => break,
                Some(Action::CutReply(_)) => *lock(&action) = None,
                Some(Action::Silence | Action::Hold | Action::ReplaceNumber(..)) | None => {}
            }
        }
    };
    // Whichever side ends first ends both.
    tokio::select! {
        () = up => {}
        () = down => {}
    }
}

fn replace(bytes: &mut [u8], from: [u8; 4], to: [u8; 4]) {
    if let Some(at) = bytes.windows(from.len()).position(|window| window == from) {
        bytes[at..at + to.len()].copy_from_slice(&to);
    }
}

fn take_marker(state: &State, bytes: &[u8]) -> Option<Action> {
    let mut armed = lock(&state.armed);
    let (marker, action) = armed.as_ref()?;
    let is_met = bytes.windows(marker.len()).any(|window| window == &marker[..]);
    let action = *action;
    is_met.then(|| {
        *armed = None;
        action
    })
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

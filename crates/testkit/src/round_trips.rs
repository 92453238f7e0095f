//! A TCP proxy on loopback that counts round trips: how often a client sends after it was answered.

use std::{
    io::{Read as _, Write as _},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
};

/// A running proxy. Its threads end with their connections.
#[derive(Debug)]
pub struct CountingProxy {
    address: SocketAddr,
    round_trips: Arc<AtomicU64>,
}

impl CountingProxy {
    /// Listens on a free loopback port and forwards to `upstream`.
    ///
    /// # Panics
    /// If no port can be bound.
    #[must_use]
    pub fn start(upstream: SocketAddr) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let round_trips = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&round_trips);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect(upstream) else { continue };
                forward(client, server, &counter);
            }
        });
        Self { address, round_trips }
    }

    /// The address for clients to connect to.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The round trips of all connections so far.
    #[must_use]
    pub fn round_trips(&self) -> u64 {
        self.round_trips.load(Ordering::Relaxed)
    }
}

/// Forwards one connection with two threads.
fn forward(client: TcpStream, server: TcpStream, counter: &Arc<AtomicU64>) {
    let both = |stream: &TcpStream| {
        stream.set_nodelay(true).expect("an open socket");
        stream.try_clone().expect("an open socket")
    };
    let (client_out, server_out) = (both(&client), both(&server));
    // The first request counts too.
    let is_answered = Arc::new(AtomicBool::new(true));
    let (asked, counter) = (Arc::clone(&is_answered), Arc::clone(counter));
    thread::spawn(move || {
        copy(client, server_out, || {
            if asked.swap(false, Ordering::AcqRel) {
                counter.fetch_add(1, Ordering::Relaxed);
            }
        });
    });
    thread::spawn(move || copy(server, client_out, || is_answered.store(true, Ordering::Release)));
}

fn copy(mut from: TcpStream, mut to: TcpStream, mut on_piece: impl FnMut()) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        on_piece();
        if to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    // The other side may have closed first.
    let _ = to.shutdown(Shutdown::Write);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_counts_once_however_many_pieces_it_has() {
        let upstream = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let proxy = CountingProxy::start(upstream.local_addr().unwrap());
        let mut client = TcpStream::connect(proxy.address()).unwrap();
        let (mut server, _) = upstream.accept().unwrap();
        let mut byte = [0];
        for round in 1..=3 {
            for _ in 0..4 {
                client.write_all(b"?").unwrap();
                server.read_exact(&mut byte).unwrap();
            }
            assert_eq!(proxy.round_trips(), round);
            server.write_all(b"!").unwrap();
            client.read_exact(&mut byte).unwrap();
        }
    }
}

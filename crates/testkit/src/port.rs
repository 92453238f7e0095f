//! Ports of tests that run beside others. A port that the system gave and that is given back goes to the next who asks,
//! so a test that expects nobody there can meet the server of another test.

use std::{
    net::{Ipv4Addr, SocketAddr, TcpListener},
    sync::atomic::{AtomicU32, Ordering},
};
use tokio::net::TcpSocket;

/// Below what systems give to those who do not name a port.
const FIRST: u32 = 16_000;
const COUNT: u32 = 16_000;

/// A port for a server that has to be told one, or that is started again at its address.
///
/// # Panics
/// When none is free.
#[must_use]
pub fn free() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // Processes with ids near each other begin far from each other.
    let start = std::process::id().wrapping_mul(2_654_435_769) >> 8;
    for _ in 0..COUNT {
        let at = start.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        let port = u16::try_from(FIRST + at % COUNT).expect("below 65 536");
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
    panic!("no port is free");
}

/// An address that refuses connections as long as this lives: taken, so that no other test gets it, and not listened at.
#[derive(Debug)]
pub struct Refusing {
    address: SocketAddr,
    _socket: TcpSocket,
}

impl Refusing {
    /// Takes an address of this machine.
    ///
    /// # Panics
    /// When none is free.
    #[must_use]
    pub fn take() -> Self {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind((Ipv4Addr::LOCALHOST, 0).into()).expect("a free port");
        Self { address: socket.local_addr().expect("it is bound"), _socket: socket }
    }

    /// The address that refuses.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{io::ErrorKind, net::TcpStream};

    #[test]
    fn a_reserved_address_refuses_connections_and_is_given_out_once() {
        let refusing = Refusing::take();
        let refused = TcpStream::connect(refusing.address()).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        let taken = TcpListener::bind(refusing.address()).unwrap_err();
        assert_eq!(taken.kind(), ErrorKind::AddrInUse);
    }

    #[test]
    fn free_ports_differ() {
        assert_ne!(free(), free());
    }
}

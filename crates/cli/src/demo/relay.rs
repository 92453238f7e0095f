//! A TCP relay on loopback between a client and a server, whose connections can be cut.

use std::{io, net::SocketAddr};

use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    task::{JoinHandle, JoinSet},
};

/// The relay. While it is cut, it closes new connections at once.
pub(super) struct Relay {
    address: SocketAddr,
    is_open: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Relay {
    pub(super) async fn to(server: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let (is_open, open) = watch::channel(true);
        let task = tokio::spawn(relay(listener, server, open));
        Ok(Self { address, is_open, task })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Closes every connection and refuses new ones until `mend`.
    pub(super) fn cut(&self) {
        self.is_open.send_replace(false);
    }

    pub(super) fn mend(&self) {
        self.is_open.send_replace(true);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn relay(listener: TcpListener, server: SocketAddr, open: watch::Receiver<bool>) {
    // Dropping the set with this task closes all connections.
    let mut lines = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        if *open.borrow() {
            lines.spawn(carry(client, server, open.clone()));
        }
        while lines.try_join_next().is_some() {}
    }
}

/// Copies bytes in both directions until one side closes or the relay is cut.
async fn carry(mut client: TcpStream, server: SocketAddr, mut open: watch::Receiver<bool>) {
    let Ok(mut server) = TcpStream::connect(server).await else { return };
    tokio::select! {
        _ = tokio::io::copy_bidirectional(&mut client, &mut server) => {}
        _ = open.wait_for(|is_open| !is_open) => {}
    }
}

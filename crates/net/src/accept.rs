//! The loop that accepts connections, for every listener.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use budao_core::world::Clock;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
};

/// Pause after a failed `accept`, for example when the process has no file descriptors left.
const NO_SOCKETS: Duration = Duration::from_millis(50);

/// Accepts connections until `ended` completes, and starts each with a permit that it holds while it is open. Above
/// `most` open ones, a connection is dropped without a response.
pub async fn accept(
    listener: &TcpListener,
    most: usize,
    clock: &dyn Clock,
    ended: impl Future<Output = ()>,
    start: impl Fn(TcpStream, SocketAddr, OwnedSemaphorePermit),
) {
    let sockets = Arc::new(Semaphore::new(most.min(Semaphore::MAX_PERMITS)));
    let mut ended = std::pin::pin!(ended);
    loop {
        let accepted = tokio::select! {
            biased;
            () = &mut ended => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, address)) => {
                let Ok(permit) = Arc::clone(&sockets).try_acquire_owned() else { continue };
                let _ = stream.set_nodelay(true);
                start(stream, address, permit);
            }
            Err(error) => {
                tracing::warn!(%error, "accept failed");
                clock.sleep(NO_SOCKETS).await;
            }
        }
    }
}

//! Waiting for signals, or for the end of standard input, that ask the program to end.
//!
//! Tokio installs its handler before it registers the listener, so a signal between the two would be lost: the default
//! action is gone and no listener hears of it. A flag that is set by a handler of its own closes that gap.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use tokio::signal::unix::{SignalKind, signal};

/// Completes when one of the signals arrives. The handlers are installed by this call, not by the first poll; from then
/// on no signal is lost.
pub(crate) fn received(kinds: &[SignalKind]) -> impl Future<Output = ()> + Send + use<> {
    let is_raised = Arc::new(AtomicBool::new(false));
    let mut waits = Vec::new();
    for kind in kinds {
        // Without the flag a signal can be lost in the gap; without the listener it has its default action.
        let _ = signal_hook::flag::register(kind.as_raw_value(), Arc::clone(&is_raised));
        if let Ok(mut signal) = signal(*kind) {
            waits.push(Box::pin(async move {
                signal.recv().await;
            }));
        }
    }
    async move {
        if is_raised.load(Ordering::SeqCst) {
            return;
        }
        if waits.is_empty() {
            return std::future::pending().await;
        }
        futures::future::select_all(waits).await;
    }
}

/// Completes when standard input ends or cannot be read. What arrives on it is dropped. The thread ends with the process.
pub(crate) async fn input_ended() {
    let (end, ended) = tokio::sync::oneshot::channel();
    let reader = move || {
        // An error ends the input as well.
        let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
        let _ = end.send(());
    };
    match std::thread::Builder::new().name("stdin".into()).spawn(reader) {
        Ok(_) => drop(ended.await),
        Err(_) => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Method: the signal arrives before the future is polled, and again while a second one is being made.
    #[tokio::test]
    async fn a_signal_that_arrives_before_anything_waits_is_not_lost() {
        let kind = SignalKind::user_defined1();
        let us = rustix::process::getpid();
        let first = received(&[kind]);
        rustix::process::kill_process(us, rustix::process::Signal::USR1).unwrap();
        tokio::time::timeout(std::time::Duration::from_secs(60), first).await.unwrap();
    }
}

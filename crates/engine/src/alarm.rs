//! A timer that survives the iterations of a session's loop. It may fire early, which costs one iteration; a new timer
//! for each message would cost more.

use budao_core::{time::Timestamp, world::Clock};
use futures::future::BoxFuture;

/// The next time a session's task wakes by itself.
#[derive(Default)]
pub(crate) struct Alarm(Option<(Timestamp, BoxFuture<'static, ()>)>);

impl Alarm {
    /// Waits until `at`, or until an earlier time of a previous call.
    pub(crate) async fn wait_until(&mut self, at: Timestamp, now: Timestamp, clock: &dyn Clock) {
        if self.0.as_ref().is_none_or(|(kept, _)| *kept > at) {
            self.0 = Some((at, clock.sleep(at.since(now))));
        }
        if let Some((_, sleep)) = &mut self.0 {
            sleep.await;
        }
        self.0 = None;
    }
}

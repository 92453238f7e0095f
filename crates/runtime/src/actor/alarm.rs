//! A sleep that is kept over rounds. To wake too early costs a look; a new sleep for every message would
//! cost more.

use budao_core::{seams::Clock, time::Timestamp};
use futures::future::BoxFuture;

/// When a session's task looks around by itself.
#[derive(Default)]
pub(super) struct Alarm(Option<(Timestamp, BoxFuture<'static, ()>)>);

impl Alarm {
    /// Waits until then, or less.
    pub(super) async fn by(&mut self, at: Timestamp, now: Timestamp, clock: &dyn Clock) {
        if self.0.as_ref().is_none_or(|(kept, _)| *kept > at) {
            self.0 = Some((at, clock.sleep(at.since(now))));
        }
        if let Some((_, sleep)) = &mut self.0 {
            sleep.await;
        }
        self.0 = None;
    }
}

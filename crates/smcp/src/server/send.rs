//! Sending, with nothing lost in silence.
//!
//! A connection has a bounded queue. When it is full the send is tried again, and a connection that does not
//! read for too long is closed: its client comes back and asks anew, which is better than an answer that
//! never comes.

use std::{sync::Arc, time::Duration};

use serde_json::{Value, value::RawValue};

use super::{
    Inner,
    line::{Line, Unsent},
    rooms::Key,
};

/// Between two tries.
const PAUSE: Duration = Duration::from_millis(10);

/// Where an answer goes.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    line: Arc<dyn Line>,
    id: Option<i64>,
}

/// What is answered.
#[derive(Debug)]
pub(super) enum Args {
    Values(Vec<Value>),
    /// One argument, as the text it came in.
    Text(Box<RawValue>),
}

impl From<Vec<Value>> for Args {
    fn from(values: Vec<Value>) -> Self {
        Self::Values(values)
    }
}

impl Args {
    fn send(&self, line: &Arc<dyn Line>, id: i64) -> Result<(), Unsent> {
        match self {
            Self::Values(values) => Arc::clone(line).answer(id, values),
            Self::Text(text) => Arc::clone(line).answer_text(id, text),
        }
    }
}

impl Answer {
    pub(super) fn new(line: Arc<dyn Line>, id: Option<i64>) -> Self {
        Self { line, id }
    }

    /// Did the client ask for an answer?
    pub(super) fn is_wanted(&self) -> bool {
        self.id.is_some()
    }

    /// Answers, if an answer was asked for.
    pub(super) fn send(&self, hub: &Arc<Inner>, args: impl Into<Args>) {
        let Some(id) = self.id else { return };
        let args = args.into();
        match args.send(&self.line, id) {
            Ok(()) => {}
            Err(Unsent::Gone(error)) => tracing::debug!(%error, "an answer had nowhere to go"),
            Err(Unsent::Full) => {
                let line = Arc::clone(&self.line);
                insist(hub, Arc::clone(&line), move || args.send(&line, id));
            }
        }
    }
}

/// Tells several connections something.
pub(super) fn notify(hub: &Arc<Inner>, to: &[Key], event: &'static str, payload: &Value) {
    let lines: Vec<Arc<dyn Line>> = {
        let state = hub.state();
        to.iter().filter_map(|key| state.lines.get(key).cloned()).collect()
    };
    for line in lines {
        match line.tell(event, payload) {
            Ok(()) => {}
            Err(Unsent::Gone(error)) => {
                tracing::debug!(%error, event, "a notification had nowhere to go");
            }
            Err(Unsent::Full) => {
                let payload = payload.clone();
                insist(hub, Arc::clone(&line), move || line.tell(event, &payload));
            }
        }
    }
}

/// Sends behind the caller's back until there is room; a line that never has any is closed.
fn insist(
    hub: &Arc<Inner>,
    line: Arc<dyn Line>,
    send: impl Fn() -> Result<(), Unsent> + Send + Sync + 'static,
) {
    let hub = Arc::clone(hub);
    let spawn = Arc::clone(&hub.world.spawn);
    spawn.spawn(Box::pin(async move {
        if !again(&hub, send).await {
            line.close();
        }
    }));
}

/// Tries again until there is room. False if there never was: then the connection is to be closed.
async fn again(hub: &Inner, send: impl Fn() -> Result<(), Unsent>) -> bool {
    hub.stats.count(|all| all.sends_delayed += 1);
    let tries = hub.config.limits.send.as_millis() / PAUSE.as_millis();
    for _ in 0..tries {
        hub.world.clock.sleep(PAUSE).await;
        match send() {
            Err(Unsent::Full) => {}
            _ => return true,
        }
    }
    hub.stats.count(|all| all.connections_closed += 1);
    tracing::warn!("a connection that does not read is closed");
    false
}

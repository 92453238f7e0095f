//! A world whose clock moves only when told, a request to ask with, and answers collected.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use budao_core::{
    fault::Fault,
    message::{Message, ModelRequest, Piece},
    time::Timestamp,
    tool::{Effect, ToolOrigin, ToolSpec},
    trace::{SpanId, Trace},
    world::{Clock, Entropy, NoopSpanExporter, Spawn, World},
};
use budao_models::{Model, ask};
use futures::{StreamExt, future::BoxFuture};
use serde_json::{Value, json};
use tokio::sync::{Notify, oneshot};

/// 2026-11-15T08:00:00Z.
pub(crate) const NOW: Timestamp = Timestamp::from_micros(1_794_729_600_000_000);

/// A clock that stands still until somebody rings.
#[derive(Debug, Default)]
pub(crate) struct Signal {
    sleepers: Mutex<Vec<(Duration, oneshot::Sender<()>)>>,
    changed: Notify,
}

impl Signal {
    /// Waits until somebody sleeps for exactly this long, and wakes them.
    pub(crate) async fn ring(&self, wait: Duration) {
        loop {
            let changed = self.changed.notified();
            let sleeper = {
                let mut sleepers = self.sleepers.lock().unwrap();
                sleepers.retain(|(_, wake)| !wake.is_closed());
                let at = sleepers.iter().position(|(slept, _)| *slept == wait);
                at.map(|at| sleepers.remove(at))
            };
            match sleeper {
                Some((_, wake)) => return wake.send(()).unwrap_or(()),
                None => changed.await,
            }
        }
    }
}

impl Signal {
    /// Does something, and wakes whoever sleeps for exactly this long until it is done.
    pub(crate) async fn ringing<T>(&self, wait: Duration, something: impl Future<Output = T>) -> T {
        let for_ever = async {
            loop {
                self.ring(wait).await;
            }
        };
        tokio::select! {
            biased;
            done = something => done,
            () = for_ever => unreachable!("it never stops"),
        }
    }
}

impl Clock for Signal {
    fn now(&self) -> Timestamp {
        NOW
    }

    fn sleep(&self, wait: Duration) -> BoxFuture<'static, ()> {
        let (wake, woken) = oneshot::channel();
        self.sleepers.lock().unwrap().push((wait, wake));
        self.changed.notify_waiters();
        Box::pin(async move {
            woken.await.ok();
        })
    }
}

/// A clock on which every wait is over at once.
#[derive(Debug)]
pub(crate) struct InstantClock;

impl Clock for InstantClock {
    fn now(&self) -> Timestamp {
        NOW
    }

    fn sleep(&self, _: Duration) -> BoxFuture<'static, ()> {
        Box::pin(async {})
    }
}

#[derive(Debug)]
struct Zero;

impl Entropy for Zero {
    fn bits(&self) -> u64 {
        7
    }
}

#[derive(Debug)]
struct Tokio;

impl Spawn for Tokio {
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        tokio::spawn(task);
    }
}

/// A world around a clock.
pub(crate) fn world(clock: Arc<dyn Clock>) -> World {
    let spans = Arc::new(NoopSpanExporter);
    World { clock, entropy: Arc::new(Zero), spawn: Arc::new(Tokio), spans }
}

/// A history as sessions share it.
pub(crate) fn shared(messages: impl IntoIterator<Item = Message>) -> Arc<Vec<Arc<Message>>> {
    Arc::new(messages.into_iter().map(Arc::new).collect())
}

/// A request with one message and no tools.
pub(crate) fn request(text: &str) -> ModelRequest {
    ModelRequest {
        model: "m".into(),
        system: None,
        messages: shared([Message::user(text)]),
        tools: Arc::new([]),
        answer: None,
        max_tokens: 1024,
        thinking_tokens: None,
        cache_key: None,
        trace: Trace::from_random(0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736),
        span: SpanId::NONE,
    }
}

/// A tool with these properties, all required.
pub(crate) fn tool(name: &str, properties: &Value) -> Arc<ToolSpec> {
    let required: Vec<_> = properties.as_object().unwrap().keys().cloned().collect();
    Arc::new(ToolSpec {
        name: name.into(),
        description: format!("The tool {name}.").into(),
        schema: Arc::new(json!({
            "type": "object", "properties": properties, "required": required,
            "additionalProperties": false,
        })),
        effect: Effect::Reads,
        idempotent: true,
        confirm: false,
        repair: false,
        deadline: None,
        output_bytes: None,
        source: ToolOrigin::Builtin,
    })
}

/// Everything a model answers.
pub(crate) async fn pieces(model: &dyn Model, request: ModelRequest) -> Result<Vec<Piece>, Fault> {
    let mut pieces = Vec::new();
    let mut stream = ask(model, request).await?;
    while let Some(piece) = stream.next().await {
        pieces.push(piece?);
    }
    Ok(pieces)
}

/// The fault a model ends in.
pub(crate) async fn fault(model: &dyn Model, request: ModelRequest) -> Fault {
    match pieces(model, request).await {
        Err(fault) => fault,
        Ok(pieces) => panic!("no fault, but {pieces:?}"),
    }
}

//! What a tool is to the call path, and what the call path gives a tool.

use std::{collections::HashMap, fmt, sync::Arc};

use async_trait::async_trait;
use budao_core::{
    Lang,
    event::{SessionId, TurnNumber},
    fault::Fault,
    limits::Limits,
    message::CallId,
    nesting,
    scrub::Scrubber,
    tool::{Failure, Todo, ToolSpec},
    trace::{SpanId, Trace},
    world::World,
};
use bytes::Bytes;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// What a tool's code gives back. A returned `{"ok": false, …}` is a failure too: the tool said no.
pub type ToolResult = Result<Value, Failure>;

/// A tool as the call path sees it. Authors use the typed forms; this is what they are erased to, and
/// what tools made at run time (MCP, remote computers) implement.
#[async_trait]
pub trait Tool: Send + Sync + fmt::Debug + 'static {
    /// What it says about itself. Must not change while it is registered.
    fn spec(&self) -> Arc<ToolSpec>;

    /// Does its code never block, and is it over in microseconds? Then it runs as a task beside the session
    /// and is spared the way to a thread of its own. Whoever says so and blocks stalls the session.
    fn quick(&self) -> bool {
        false
    }

    /// Runs one call. The arguments have passed the schema.
    async fn call(&self, arguments: Value, context: &CallContext) -> ToolResult;
}

/// What a running call may know and use. Cheap to clone.
#[derive(Clone, Debug)]
pub struct CallContext {
    /// The session.
    pub session: SessionId,
    /// The turn.
    pub turn: TurnNumber,
    /// The call.
    pub call: CallId,
    /// Which try; the first is 1.
    pub attempt: u32,
    /// The same for every try of one call, and for no other: hand it to services that de-duplicate.
    pub idempotency_key: Arc<str>,
    /// Goes with everything the call sends out.
    pub trace: Trace,
    /// The language of the session.
    pub lang: Lang,
    /// Completed when the call should stop: cancel, deadline, shutdown.
    pub cancel: CancellationToken,
    /// The bounds.
    pub limits: Arc<Limits>,
    /// Time, chance, spawning.
    pub world: World,
    /// What the session remembers for its tools.
    pub memory: Arc<dyn Memory>,
    /// What the call has to say while it runs.
    pub notes: NoteSender,
    /// Where large outputs are kept.
    pub blobs: Arc<dyn Blobs>,
    /// For text of foreign errors.
    pub scrubber: Scrubber,
}

impl CallContext {
    /// Which piece of work of the trace this call is. Goes with everything it sends out.
    #[must_use]
    pub fn span(&self) -> SpanId {
        SpanId::of_call(self.session, self.turn, &self.call, self.attempt)
    }
}

/// What the session remembers for its tools: a view of its records.
pub trait Memory: Send + Sync + fmt::Debug {
    /// The to-do list.
    fn todos(&self) -> Vec<Todo>;

    /// The state in which a tool last saw a file: none if never, `Some(None)` if it did not exist.
    fn seen(&self, path: &str) -> Option<Option<String>>;
}

/// Something a running call says. It is recorded before the call's outcome.
#[derive(Clone, Debug, PartialEq)]
pub enum Note {
    /// Output as it comes.
    Output(String),
    /// An event of the tool's own.
    Topic {
        /// What about.
        topic: String,
        /// What.
        data: Value,
    },
    /// The to-do list is now this.
    Todos(Vec<Todo>),
    /// A file was seen in this state.
    FileSeen {
        /// Path inside the workspace.
        path: String,
        /// Hash of its content; none if it does not exist.
        digest: Option<String>,
    },
    /// The call runs a session of its own.
    ChildOpened(SessionId),
}

/// The bounded way out for notes. Output that finds it full is dropped and shows in the final output
/// all the same; facts wait for room.
#[derive(Clone, Debug)]
pub struct NoteSender(mpsc::Sender<Note>);

impl NoteSender {
    /// A way out with room for `room` notes, and its other end.
    #[must_use]
    pub fn channel(room: usize) -> (Self, mpsc::Receiver<Note>) {
        let (sender, receiver) = mpsc::channel(room);
        (Self(sender), receiver)
    }

    /// A way out that leads nowhere, for calls outside a session.
    #[must_use]
    pub fn disconnected() -> Self {
        Self::channel(1).0
    }

    /// Says something that must be recorded; waits for room.
    pub async fn record(&self, mut note: Note) {
        if let Note::Topic { data, .. } = &mut note {
            nesting::bound(data);
        }
        // The other end is gone only when nobody records this call any more.
        drop(self.0.send(note).await);
    }

    /// Shows output if there is room.
    pub fn show(&self, text: impl Into<String>) {
        drop(self.0.try_send(Note::Output(text.into())));
    }
}

/// Keeps large outputs aside by content hash.
#[async_trait]
pub trait Blobs: Send + Sync + fmt::Debug {
    /// Keeps bytes and returns their name. The same bytes have the same name.
    async fn put(&self, bytes: Bytes) -> Result<String, Fault>;

    /// The bytes of a name.
    async fn get(&self, name: &str) -> Result<Option<Bytes>, Fault>;
}

/// Nothing remembered: for calls outside a session, and for tests.
#[derive(Debug, Default)]
pub struct EmptyMemory {
    kept: std::sync::Mutex<HashMap<String, Bytes>>,
}

impl Memory for EmptyMemory {
    fn todos(&self) -> Vec<Todo> {
        Vec::new()
    }

    fn seen(&self, _path: &str) -> Option<Option<String>> {
        None
    }
}

#[async_trait]
impl Blobs for EmptyMemory {
    async fn put(&self, bytes: Bytes) -> Result<String, Fault> {
        let name = content_hash(&bytes);
        self.kept.lock().expect("no code panics while holding this").insert(name.clone(), bytes);
        Ok(name)
    }

    async fn get(&self, name: &str) -> Result<Option<Bytes>, Fault> {
        Ok(self.kept.lock().expect("no code panics while holding this").get(name).cloned())
    }
}

/// The name of some bytes: SHA-256 in hex.
#[must_use]
pub fn content_hash(bytes: &[u8]) -> String {
    use sha2::Digest;
    sha2::Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

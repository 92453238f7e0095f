//! The interface between the call path and a tool.

use std::{collections::HashMap, fmt, io, sync::Arc, time::Duration};

use async_trait::async_trait;
use budao_core::{
    Lang,
    elicitation::{Elicitation, ElicitationAnswer},
    event::{SessionId, TurnNumber},
    fault::{Fact, Fault, Kind, Operation},
    limits::Limits,
    message::CallId,
    nesting,
    timer::{Timer, TimerId, TimerRequest},
    tool::{Failure, Todo, ToolSpec},
    trace::{SpanId, Trace},
    world::World,
};
use budao_scrub::Scrubber;
use bytes::Bytes;
use serde::Serialize;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::typed;

/// The result of a tool's code. A returned `{"ok": false, …}` counts as a failure too.
pub type ToolResult = Result<Value, Failure>;

/// A tool as the call path uses it. Authors write typed tools, which are converted to this trait; tools made at run
/// time (MCP, remote computers) implement it directly.
#[async_trait]
pub trait Tool: Send + Sync + fmt::Debug + 'static {
    /// The specification. Must not change while the tool is registered.
    fn spec(&self) -> Arc<ToolSpec>;

    /// True if the code never blocks and ends within microseconds. Such a tool runs as a task next to the session
    /// instead of on a pool thread. If it blocks after all, it stalls the session.
    fn quick(&self) -> bool {
        false
    }

    /// Runs one call. The arguments have passed the schema.
    async fn call(&self, arguments: Value, context: &CallContext) -> ToolResult;

    /// The argument whose value names the work: calls with the same value are done once in a tenant, whichever session
    /// makes them. It must be a required property of the schema.
    fn once(&self) -> Option<Arc<str>> {
        None
    }

    /// Whether [`Tool::reconcile`] can find out what became of an interrupted call.
    fn can_reconcile(&self) -> bool {
        false
    }

    /// Finds out whether an interrupted call with these arguments was done. Changes nothing. The context has the key
    /// of the call.
    async fn reconcile(
        &self,
        arguments: Value,
        context: &CallContext,
    ) -> Result<Reconciliation, Failure> {
        let _ = (arguments, context);
        Ok(Reconciliation::CannotTell)
    }
}

/// What a tool knows about an interrupted call.
#[derive(Clone, Debug, PartialEq)]
pub enum Reconciliation {
    /// The call did nothing. It runs again.
    DidNotHappen,
    /// The call was done, with this result.
    Happened(Value),
    /// The call still runs outside of this process. The next attempt finds its checkpoint and waits for the end.
    StillRuns,
    /// The tool cannot tell. The outcome stays unknown.
    CannotTell,
}

impl Reconciliation {
    /// The call was done, with this result. For a result that JSON cannot express (NaN, a key that is no text), the
    /// model reads a sentence that says so.
    #[must_use]
    pub fn happened(result: impl Serialize) -> Self {
        Self::Happened(typed::encode_or_describe(&result))
    }
}

/// The context of a running call. Cheap to clone.
#[derive(Clone, Debug)]
pub struct CallContext {
    /// The session that made the call.
    pub session: SessionId,
    /// The turn that the call belongs to.
    pub turn: TurnNumber,
    /// The id under which the call is recorded.
    pub call: CallId,
    /// The number of this attempt; the first is 1.
    pub attempt: u32,
    /// Equal for all attempts of one call and different for every other call. Pass it to services that de-duplicate.
    pub idempotency_key: Arc<str>,
    /// The trace to pass on with every outgoing request.
    pub trace: Trace,
    /// The session's language, for texts to the model.
    pub lang: Lang,
    /// Cancelled when the call should stop: on cancel, deadline or shutdown.
    pub cancel: CancellationToken,
    /// The limits that apply to this call.
    pub limits: Arc<Limits>,
    /// The clock, the random source and the spawner to use.
    pub world: World,
    /// Read access to the session's state for tools.
    pub memory: Arc<dyn Memory>,
    /// The channel for notes while the call runs.
    pub notes: NoteSender,
    /// The store for large outputs.
    pub blobs: Arc<dyn Blobs>,
    /// The timers of the session, which wake it after the call and the turn have ended.
    pub timers: Arc<dyn SessionTimers>,
    /// Removes secrets from the text of foreign errors.
    pub scrubber: Scrubber,
}

impl CallContext {
    /// The span id of this attempt. Pass it on with every outgoing request.
    #[must_use]
    pub fn span(&self) -> SpanId {
        SpanId::of_call(self.session, self.turn, &self.call, self.attempt)
    }

    /// Returns when the call has taken longer than `limit`. The time in which it waits for a person does not count. Time
    /// is counted by sleeps, because a wall clock that is set back would prolong the call.
    pub async fn deadline(&self, limit: Duration) {
        let before = self.memory.waited_for_people();
        let (mut slept, mut pause) = (Duration::ZERO, limit);
        while !pause.is_zero() {
            self.world.clock.sleep(pause).await;
            slept = slept.saturating_add(pause);
            let waited = self.memory.waited_for_people().saturating_sub(before);
            let left = limit.saturating_add(waited).saturating_sub(slept);
            // While the call waits, nothing is used up: look again, but not all the time.
            pause = if left.is_zero() { left } else { left.max(DEADLINE_PAUSE.min(limit)) };
        }
    }
}

/// The shortest pause between two looks at a deadline after a call has waited for a person.
const DEADLINE_PAUSE: Duration = Duration::from_secs(1);

/// The session's state as its tools see it, derived from its records.
#[async_trait]
pub trait Memory: Send + Sync + fmt::Debug {
    /// The session's to-do list; empty if none was written.
    fn todos(&self) -> Vec<Todo>;

    /// The digest of a file when a tool last saw it: `None` if never, `Some(None)` if the file did not exist.
    fn seen_digest(&self, path: &str) -> Option<Option<String>>;

    /// Records where the running call got to, and returns once the record is durable: true, or false if it cannot be
    /// recorded. A later attempt of the call finds it, also after a crash. A newer checkpoint replaces an older one.
    async fn checkpoint(&self, data: Value) -> bool {
        let _ = data;
        false
    }

    /// The last checkpoint of the running call, from any of its attempts; `None` if there is none.
    async fn last_checkpoint(&self) -> Option<Value> {
        None
    }

    /// Asks a person for input and waits for the answer, which is durable. `place` tells the questions of a call apart: a
    /// later attempt that asks the same at the same place gets the same answer. The caller stops waiting when the call
    /// is cancelled. Declines at once if nobody can be asked.
    async fn ask_person(&self, elicitation: &Elicitation, place: &str) -> ElicitationAnswer {
        let _ = (elicitation, place);
        ElicitationAnswer::Declined
    }

    /// Gets a text of the session's model for a tool server. It counts towards the caps of the session.
    ///
    /// # Errors
    /// There is no session, or the model did not answer.
    async fn sample(
        &self,
        request: SampleRequest,
        cancel: &CancellationToken,
    ) -> Result<Sample, Fault> {
        let _ = (request, cancel);
        Err(Fault::new(Kind::UnsupportedOperation, Operation::ToolCall)
            .with(Fact::Reason, "the call belongs to no session with a model"))
    }

    /// How long the call has waited for people so far; this time does not count towards its deadline.
    fn waited_for_people(&self) -> Duration {
        Duration::ZERO
    }

    /// Whether the call is to stop because this process ends. Another process continues the session.
    fn is_parked(&self) -> bool {
        false
    }
}

/// A request of a tool server for a text of the session's model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SampleRequest {
    /// The server that asks.
    pub server: String,
    /// Tells the requests of a call apart; equal in all attempts of the call.
    pub place: String,
    /// The standing instructions of the request; none if absent.
    pub system: Option<String>,
    /// The messages of the request, joined to one text.
    pub prompt: String,
    /// The most tokens of the answer; the session's own limit if absent.
    pub max_tokens: Option<u32>,
}

/// A text of the session's model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The model's answer.
    pub text: String,
    /// The name of the model, as the session knows it.
    pub model: String,
}

/// A message from a running call. It is recorded before the call's outcome.
#[derive(Clone, Debug, PartialEq)]
pub enum Note {
    /// A piece of output, for display while the call runs.
    Output(String),
    /// An event that the tool defines itself.
    Topic {
        /// The name of the event, chosen by the tool.
        topic: String,
        /// The event's data, as JSON.
        data: Value,
    },
    /// Replaces the to-do list.
    Todos(Vec<Todo>),
    /// The call has seen a file in this state.
    FileSeen {
        /// The file's path inside the workspace, with links resolved.
        path: String,
        /// SHA-256 of the content in hex; `None` if the file does not exist.
        digest: Option<String>,
    },
    /// The call has opened a child session.
    ChildOpened(SessionId),
}

/// The longest output or data of one note, in bytes. Longer output is cut; longer data is replaced by a remark.
pub const NOTE_BYTES_MAX: usize = 64 * 1024;

/// A bounded channel for notes. If it is full, output is dropped (the final output still contains it) and all other
/// notes wait for room.
#[derive(Clone, Debug)]
pub struct NoteSender(mpsc::Sender<Note>);

impl NoteSender {
    /// Creates a channel for `room` notes and returns both ends.
    #[must_use]
    pub fn channel(room: usize) -> (Self, mpsc::Receiver<Note>) {
        let (sender, receiver) = mpsc::channel(room);
        (Self(sender), receiver)
    }

    /// A sender without a receiver, for calls outside a session.
    #[must_use]
    pub fn disconnected() -> Self {
        Self::channel(1).0
    }

    /// Sends a note that must be recorded; waits for room.
    pub async fn record(&self, mut note: Note) {
        if let Note::Topic { data, .. } = &mut note {
            nesting::bound(data);
            bound_bytes(data);
        }
        // The receiver is gone only when this call is no longer recorded.
        drop(self.0.send(note).await);
    }

    /// Sends output for display; drops it if the channel is full.
    pub fn show(&self, text: impl Into<String>) {
        let mut text = text.into();
        text.truncate(text.floor_char_boundary(NOTE_BYTES_MAX));
        drop(self.0.try_send(Note::Output(text)));
    }
}

/// Replaces data that is longer than [`NOTE_BYTES_MAX`] as JSON. Takes time for the bound, not for the data.
fn bound_bytes(data: &mut Value) {
    if serde_json::to_writer(ByteLimit(NOTE_BYTES_MAX), data).is_err() {
        *data = serde_json::json!({ "left_out": format!("more than {NOTE_BYTES_MAX} bytes") });
    }
}

/// A writer that counts bytes and fails beyond its limit.
struct ByteLimit(usize);

impl io::Write for ByteLimit {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 = self.0.checked_sub(bytes.len()).ok_or(io::ErrorKind::FileTooLarge)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A store for large outputs, addressed by content hash.
#[async_trait]
pub trait Blobs: Send + Sync + fmt::Debug {
    /// Stores bytes and returns their name. Equal bytes have equal names.
    async fn put(&self, bytes: Bytes) -> Result<String, Fault>;

    /// The bytes stored under a name; `None` if there are none.
    async fn get(&self, name: &str) -> Result<Option<Bytes>, Fault>;
}

/// The timers of a session, for its tools. Setting and cancelling are durable when they return. A call that is repeated
/// after a crash sets each of its timers once.
#[async_trait]
pub trait SessionTimers: Send + Sync + fmt::Debug {
    /// The timers that are set, by id.
    fn all(&self) -> Vec<Timer>;

    /// Sets a timer, or replaces the one with the same id. The session is told `message` when it fires.
    ///
    /// # Errors
    /// `time_in_past`, `schedule_refused`, `limit_reached`, or a fault of the journal.
    async fn set(
        &self,
        timer: TimerId,
        when: TimerRequest,
        message: String,
    ) -> Result<Timer, Fault>;

    /// Cancels a timer.
    ///
    /// # Errors
    /// `unknown_timer` if it is not set, or a fault of the journal.
    async fn cancel(&self, timer: TimerId) -> Result<(), Fault>;
}

/// For calls outside a session, which have no timers.
#[derive(Clone, Copy, Debug)]
pub struct NoTimers;

impl NoTimers {
    fn fault() -> Fault {
        Fault::new(Kind::UnsupportedOperation, Operation::SetTimer)
            .with(Fact::Reason, "the call belongs to no session that can be woken")
    }
}

#[async_trait]
impl SessionTimers for NoTimers {
    fn all(&self) -> Vec<Timer> {
        Vec::new()
    }

    async fn set(&self, _: TimerId, _: TimerRequest, _: String) -> Result<Timer, Fault> {
        Err(Self::fault())
    }

    async fn cancel(&self, _: TimerId) -> Result<(), Fault> {
        Err(Self::fault())
    }
}

/// A memory without content and an in-memory blob store, for calls outside a session and for tests.
#[derive(Debug, Default)]
pub struct EmptyMemory {
    kept: std::sync::Mutex<HashMap<String, Bytes>>,
}

impl Memory for EmptyMemory {
    fn todos(&self) -> Vec<Todo> {
        Vec::new()
    }

    fn seen_digest(&self, _path: &str) -> Option<Option<String>> {
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

/// The name of a blob: SHA-256 in hex.
#[must_use]
pub fn content_hash(bytes: &[u8]) -> String {
    use sha2::Digest;
    sha2::Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

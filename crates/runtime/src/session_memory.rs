//! The part of a session's state that its tools can read, and the checkpoints of running calls.
//!
//! A checkpoint says how far a call got that goes on outside of this process. It is an event of the session, and counts
//! once it is durable.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use async_trait::async_trait;
use budao_core::{
    elicitation::{Elicitation, ElicitationAnswer},
    event::{Event, TurnNumber},
    fault::{Fault, Kind, Operation},
    message::CallId,
    session::{Call, CallQuestion, SeenFiles, Session},
    time::Timestamp,
    timer::{Timer, Timers},
    tool::Todo,
    turn::Input as TurnInput,
};
use budao_journal::PageLimits;
use budao_tools::{Memory, Sample, SampleRequest};
use serde_json::{Value, json};
use tokio::sync::{Notify, oneshot};
use tokio_util::sync::CancellationToken;

use crate::{sample, work::WorkContext};

/// The part of the session's state that tools can read: to-do list, seen files, timers, and checkpoints of running
/// calls.
#[derive(Debug, Default)]
pub(crate) struct SessionMemory {
    todos: Vec<Todo>,
    files: SeenFiles,
    timers: Timers,
    /// Durable checkpoints of open calls, of this process alone.
    checkpoints: BTreeMap<CallId, Value>,
    /// Notified when a checkpoint became durable.
    checkpointed: Arc<Notify>,
    /// The durable questions for input of open calls, with their answers.
    questions: BTreeMap<CallId, Vec<CallQuestion>>,
    /// Notified when a question was asked or answered.
    answered: Arc<Notify>,
    /// The grace period of a shutdown is over.
    pub(crate) is_parked: bool,
}

impl SessionMemory {
    pub(crate) fn of(session: &Session) -> Self {
        let (todos, files) = (session.todos.clone(), session.files.clone());
        let calls = session.turn.iter().flat_map(|turn| &turn.calls);
        let questions = calls.map(|call| (call.id.clone(), call.questions.clone())).collect();
        let timers = session.timers.clone();
        Self { todos, files, timers, questions, ..Self::default() }
    }

    /// Takes the questions of a call after one was asked or closed durably.
    pub(crate) fn set_questions(&mut self, call: &Call) {
        self.questions.insert(call.id.clone(), call.questions.clone());
        self.answered.notify_waiters();
    }

    pub(crate) fn timers(&self) -> Vec<Timer> {
        self.timers.all().cloned().collect()
    }

    /// Takes an event that is durable now.
    pub(crate) fn commit(&mut self, event: &Event) {
        match event {
            Event::ToolCallAnnotated { call, topic, data, .. } if topic == CHECKPOINT => {
                self.checkpoints.insert(call.clone(), data.clone());
                self.checkpointed.notify_waiters();
            }
            Event::ToolCallEnded { call, .. } => {
                self.checkpoints.remove(call);
                self.questions.remove(call);
            }
            _ => {}
        }
    }

    pub(crate) fn apply(&mut self, event: &Event, at: Timestamp) {
        self.timers.apply(event, at);
        match event {
            Event::TodosChanged { todos } => self.todos.clone_from(todos),
            Event::FileSeen { path, digest } => self.files.record(path, digest.as_ref()),
            _ => {}
        }
    }
}

/// The topic of the events that hold checkpoints of calls.
const CHECKPOINT: &str = "checkpoint";

/// How long a call waits until its checkpoint is durable. A session that is unloaded meanwhile never records it.
const CHECKPOINT_MAX: Duration = Duration::from_secs(30);

/// A call's access to the session's memory.
pub(crate) struct MemoryView {
    pub(crate) work_context: WorkContext,
    pub(crate) turn: TurnNumber,
    pub(crate) call: CallId,
    /// The attempt at the call.
    pub(crate) attempt: u32,
    /// The tool's name, as the model wrote it.
    pub(crate) tool: String,
    /// How long the attempt has waited for people.
    pub(crate) waits: Mutex<PersonWait>,
}

/// The time that a call has waited for people.
#[derive(Debug, Default)]
pub(crate) struct PersonWait {
    ended: Duration,
    /// The start of the current wait for a person; `None` while the call does not wait.
    since: Option<Timestamp>,
}

/// Counts a wait until it is dropped.
struct WaitGuard<'a>(&'a MemoryView);

impl Drop for WaitGuard<'_> {
    fn drop(&mut self) {
        let waited = self.0.waited_for_people();
        *self.0.waits() = PersonWait { ended: waited, since: None };
    }
}

impl fmt::Debug for MemoryView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryView").field("call", &self.call).finish_non_exhaustive()
    }
}

impl MemoryView {
    fn lock_memory(&self) -> MutexGuard<'_, SessionMemory> {
        self.work_context.known.lock().expect("no code panics while holding this")
    }

    fn waits(&self) -> MutexGuard<'_, PersonWait> {
        self.waits.lock().expect("no code panics while holding this")
    }

    fn now(&self) -> Timestamp {
        self.work_context.shared.world.clock.now()
    }

    /// Waits until the question with this digest has its durable answer.
    async fn answer_to(&self, digest: &str) -> ElicitationAnswer {
        let answered = Arc::clone(&self.lock_memory().answered);
        let answer = || {
            let known = self.lock_memory();
            let asked = known.questions.get(&self.call)?.iter().find(|it| it.digest == digest)?;
            asked.answer.clone()
        };
        loop {
            let changed = answered.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if let Some(answer) = answer() {
                return answer;
            }
            changed.await;
        }
    }

    /// Reads the last checkpoint of the call from the journal.
    async fn stored_checkpoint(&self) -> Result<Option<Value>, Fault> {
        let (journal, session) = (&self.work_context.shared.journal, self.work_context.session);
        let Some(info) = journal.info(session).await? else { return Ok(None) };
        let (mut after, mut found) = (info.first_available.saturating_sub(1), None);
        while after < info.head {
            let page = journal.read(session, after, PageLimits::default()).await?;
            let Some(last) = page.records.last() else { break };
            after = last.seq;
            for stored in &page.records {
                if let Event::ToolCallAnnotated { call, topic, data, .. } =
                    &*stored.shared_event()?
                    && topic == CHECKPOINT
                    && *call == self.call
                {
                    found = Some(data.clone());
                }
            }
        }
        Ok(found)
    }
}

#[async_trait]
impl Memory for MemoryView {
    fn todos(&self) -> Vec<Todo> {
        self.lock_memory().todos.clone()
    }

    fn seen_digest(&self, path: &str) -> Option<Option<String>> {
        self.lock_memory().files.seen_digest(path)
    }

    async fn checkpoint(&self, data: Value) -> bool {
        let checkpointed = {
            let mut known = self.lock_memory();
            known.checkpoints.remove(&self.call);
            Arc::clone(&known.checkpointed)
        };
        let (call, tool, topic) = (self.call.clone(), self.tool.clone(), CHECKPOINT.to_owned());
        let event = Event::ToolCallAnnotated { call, tool, topic, data: data.clone() };
        let durable = || self.lock_memory().checkpoints.get(&self.call).cloned();
        let recorded = async {
            loop {
                let changed = checkpointed.notified();
                tokio::pin!(changed);
                changed.as_mut().enable();
                if let Some(durable) = durable() {
                    return durable;
                }
                changed.await;
            }
        };
        self.work_context.report(TurnInput::RecordOnly { turn: self.turn, event }).await;
        tokio::select! {
            biased;
            // Data that the scrubber changed is of no use to a later attempt.
            durable = recorded => durable == data,
            () = self.work_context.shared.world.clock.sleep(CHECKPOINT_MAX) => false,
        }
    }

    async fn last_checkpoint(&self) -> Option<Value> {
        if let Some(known) = self.lock_memory().checkpoints.get(&self.call).cloned() {
            return Some(known);
        }
        match self.stored_checkpoint().await {
            Ok(found) => found,
            Err(fault) => {
                tracing::warn!(session = %self.work_context.session, %fault, "reading a checkpoint failed");
                None
            }
        }
    }

    async fn ask_person(&self, elicitation: &Elicitation, place: &str) -> ElicitationAnswer {
        let asked = json!({ "place": place, "asks": elicitation });
        let digest = budao_tools::digest::of_call(&self.tool, &asked);
        self.waits().since = Some(self.now());
        let _waits = WaitGuard(self);
        let (turn, call, attempt) = (self.turn, self.call.clone(), self.attempt);
        let (elicitation, digest_asked) = (Box::new(elicitation.clone()), digest.clone());
        let asked =
            TurnInput::InputNeeded { turn, call, attempt, elicitation, digest: digest_asked };
        self.work_context.report(asked).await;
        self.answer_to(&digest).await
    }

    async fn sample(
        &self,
        request: SampleRequest,
        cancel: &CancellationToken,
    ) -> Result<Sample, Fault> {
        let (answer, answered) = oneshot::channel();
        let place = (self.turn, self.call.clone());
        let sampled = sample::run(self.work_context.clone(), place, request, cancel.clone());
        // The call may run on a thread of its own; sessions belong to the host's tasks.
        self.work_context.shared.world.spawn.spawn(Box::pin(async move {
            drop(answer.send(sampled.await));
        }));
        let gone = |_| Err(Fault::new(Kind::ShuttingDown, Operation::StartAgent));
        answered.await.unwrap_or_else(gone)
    }

    fn waited_for_people(&self) -> Duration {
        let waits = self.waits();
        let open = waits.since.map_or(Duration::ZERO, |since| self.now().since(since));
        waits.ended.saturating_add(open)
    }

    fn is_parked(&self) -> bool {
        self.lock_memory().is_parked
    }
}

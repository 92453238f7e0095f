//! Hooks around the model: extension code that runs before a request and after its answer is recorded.
//!
//! Each hook runs on the pool with a time limit. A failure is recorded and the turn continues. A hook before
//! a request can change only that request. A notice after an answer is sent once the answer is durable; it
//! cannot change the answer, and the session does not wait for it.

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use budao_core::{
    event::{Event, Scope},
    fault::{Fact, Fault, Kind, Operation},
    message::{Block, Message, ModelRequest, Role, Usage},
    session::unpaired,
    turn::Input,
};
use budao_journal::Entry;
use tokio::sync::mpsc;

use crate::work::WorkContext;

/// Notices that may wait for the hooks of one session; further ones are dropped and logged.
const PENDING_NOTICES_MAX: usize = 64;

/// Extension code around the model. It runs on the pool, so a hook that blocks its thread stalls no session.
#[async_trait]
pub trait ModelHook: Send + Sync + fmt::Debug + 'static {
    /// The hook's name in faults. Read once, at registration.
    fn name(&self) -> &str;

    /// Runs before a request. The returned change applies to this request only, not to the history.
    async fn before(&self, request: &ModelRequest) -> Option<RequestChange> {
        let _ = request;
        None
    }

    /// Runs after an answer was recorded.
    async fn after(&self, content: &[Block], usage: Usage) {
        let _ = (content, usage);
    }

    /// Runs after a change of the history was recorded: a message, an answer, results or a compaction.
    async fn messages_changed(&self, history: &[Arc<Message>]) {
        let _ = history;
    }
}

/// A hook's change to one request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RequestChange {
    /// Replaces the system prompt; `None` keeps it.
    pub system: Option<String>,
    /// Messages to append. Calls and results must be paired and the last message must be the user's;
    /// otherwise the whole change is ignored and reported.
    pub messages: Vec<Message>,
}

/// The model hooks of a runtime, in order of registration.
#[derive(Clone, Debug, Default)]
pub(crate) struct ModelHooks(Vec<RegisteredHook>);

#[derive(Clone, Debug)]
struct RegisteredHook {
    name: String,
    hook: Arc<dyn ModelHook>,
}

impl ModelHooks {
    pub(crate) fn add(&mut self, hook: Arc<dyn ModelHook>) {
        self.0.push(RegisteredHook { name: hook.name().to_owned(), hook });
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Runs every hook on a request; each hook sees the changes of the earlier ones.
    pub(crate) async fn before(
        &self,
        work_context: &WorkContext,
        step: u32,
        mut request: ModelRequest,
    ) -> ModelRequest {
        for registered in &self.0 {
            let (hook, shown) = (Arc::clone(&registered.hook), request.clone());
            let change = registered
                .run_isolated(work_context, async move { hook.before(&shown).await })
                .await;
            let fault = match change {
                Ok(None) => continue,
                Ok(Some(change)) => match apply_change(&request, change) {
                    Some(changed) => {
                        request = changed;
                        continue;
                    }
                    None => registered
                        .hook_fault()
                        .with(Fact::Reason, "its messages break the pairing of calls and results"),
                },
                Err(fault) => fault,
            };
            report(work_context, Some(step), fault.with_trace(request.trace)).await;
        }
        request
    }

    async fn notify_hooks(&self, work_context: &WorkContext, told: HookNotice) {
        for registered in &self.0 {
            let (hook, told) = (Arc::clone(&registered.hook), told.clone());
            let work = async move {
                match told {
                    HookNotice::Answer { content, usage } => hook.after(&content, usage).await,
                    HookNotice::History(history) => hook.messages_changed(&history).await,
                }
            };
            if let Err(fault) = registered.run_isolated(work_context, work).await {
                report(work_context, None, fault).await;
            }
        }
    }
}

impl RegisteredHook {
    /// Runs one method of the hook on the pool, within `limits.hook`.
    async fn run_isolated<T: Send + 'static>(
        &self,
        work_context: &WorkContext,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, Fault> {
        let (shared, limit) = (&work_context.shared, work_context.shared.limits.hook);
        let answer = shared.pool.within(&shared.world, limit, work).await;
        answer.map_err(|why| why.explain(self.hook_fault(), limit))
    }

    fn hook_fault(&self) -> Fault {
        Fault::new(Kind::HookFailed, Operation::RunHook).with(Fact::Hook, self.name.clone())
    }
}

/// Applies a change to a request; `None` if the result would be invalid.
fn apply_change(request: &ModelRequest, change: RequestChange) -> Option<ModelRequest> {
    let mut changed = request.clone();
    if let Some(system) = change.system {
        changed.system = Some(system.into());
    }
    if !change.messages.is_empty() {
        let messages = Arc::make_mut(&mut changed.messages);
        let from = messages.len().saturating_sub(1);
        messages.extend(change.messages.into_iter().map(Arc::new));
        let ends_well = messages.last().is_some_and(|last| last.role == Role::User);
        if !ends_well || unpaired(messages, from).is_some() {
            return None;
        }
    }
    Some(changed)
}

/// Logs and records a hook's fault.
async fn report(work_context: &WorkContext, step: Option<u32>, fault: Fault) {
    tracing::warn!(session = %work_context.session, %fault, "model hook failed");
    let scope = Scope { step, ..Scope::default() };
    // Turn 0 stands for no turn: the turn that the hook ran for may have ended.
    work_context
        .report(Input::RecordOnly { turn: 0, event: Event::FaultRaised { fault, scope } })
        .await;
}

/// A notice to the hooks.
#[derive(Clone, Debug)]
enum HookNotice {
    Answer { content: Arc<Vec<Block>>, usage: Usage },
    History(Arc<Vec<Arc<Message>>>),
}

/// Notifies the hooks of one loaded session in order, while the session continues.
#[derive(Debug, Default)]
pub(crate) struct HookNotifier {
    /// The history of the last notice; a change is detected by pointer. `None` if there are no hooks.
    known: Option<Arc<Vec<Arc<Message>>>>,
    way: Option<mpsc::Sender<(HookNotice, Arc<()>)>>,
    /// Every undelivered notice holds a clone.
    untold: Arc<()>,
}

impl HookNotifier {
    /// Creates a notifier for the history that the session was loaded with.
    pub(crate) fn new(hooks: &ModelHooks, history: &Arc<Vec<Arc<Message>>>) -> Self {
        let known = (!hooks.is_empty()).then(|| Arc::clone(history));
        Self { known, ..Self::default() }
    }

    /// Is a notice undelivered? Its hook may still fail, and that fault must be recorded.
    pub(crate) fn is_busy(&self) -> bool {
        Arc::strong_count(&self.untold) > 1
    }

    /// Queues notices for the entries of a durable batch.
    pub(crate) fn notify(
        &mut self,
        work_context: impl FnOnce() -> WorkContext,
        entries: &[Entry],
        history: &Arc<Vec<Arc<Message>>>,
    ) {
        let Some(known) = &mut self.known else { return };
        let answers = entries.iter().filter_map(|entry| match &*entry.event {
            Event::ModelAnswered { content, usage, .. } => {
                Some(HookNotice::Answer { content: Arc::new(content.clone()), usage: *usage })
            }
            _ => None,
        });
        let mut news: Vec<HookNotice> = answers.collect();
        if !Arc::ptr_eq(known, history) {
            *known = Arc::clone(history);
            news.push(HookNotice::History(Arc::clone(history)));
        }
        if news.is_empty() {
            return;
        }
        let way = self.way.get_or_insert_with(|| start_notifier(work_context()));
        for told in news {
            if way.try_send((told, Arc::clone(&self.untold))).is_err() {
                tracing::warn!("model hook queue full, dropping change");
            }
        }
    }
}

/// Starts the task that delivers notices. It ends when all are delivered and the session is unloaded.
fn start_notifier(work_context: WorkContext) -> mpsc::Sender<(HookNotice, Arc<()>)> {
    let (sender, mut news) = mpsc::channel(PENDING_NOTICES_MAX);
    let spawn = Arc::clone(&work_context.shared.world.spawn);
    spawn.spawn(Box::pin(async move {
        while let Some((told, untold)) = news.recv().await {
            work_context.shared.model_hooks.notify_hooks(&work_context, told).await;
            drop::<Arc<()>>(untold);
        }
    }));
    sender
}

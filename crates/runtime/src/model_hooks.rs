//! Hooks around the model: code of others that is asked before a request and told of what was recorded.
//!
//! Each runs apart from the sessions, within its time. One that fails is recorded and the flow goes on. What
//! comes before a request may change that request and nothing else; what comes after is told once it is
//! durable, so nobody can change a finished answer, and nobody waits for those who are told.

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

/// What may wait to be told to the hooks of one session; beyond, it is dropped and said in the log.
const PENDING_NOTICES_MAX: usize = 64;

/// Code around the model. It runs apart from the sessions, so one that blocks its thread stalls nobody.
#[async_trait]
pub trait ModelHook: Send + Sync + fmt::Debug + 'static {
    /// What it is called in faults. Asked once, when it is registered.
    fn name(&self) -> &str;

    /// Before a request. What is returned changes this request only; the history stays what it is.
    async fn before(&self, request: &ModelRequest) -> Option<RequestChange> {
        let _ = request;
        None
    }

    /// After an answer was recorded.
    async fn after(&self, content: &[Block], usage: Usage) {
        let _ = (content, usage);
    }

    /// After a change of the history was recorded: a message, an answer, results, a compaction.
    async fn messages_changed(&self, history: &[Message]) {
        let _ = history;
    }
}

/// What a hook wants different in one request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RequestChange {
    /// Other standing instructions; none keeps those there are.
    pub system: Option<String>,
    /// More messages at the end. Calls and results among them must be well paired, and the user must have
    /// the last word; otherwise the whole change is ignored and reported.
    pub messages: Vec<Message>,
}

/// The model hooks of a runtime, in the order they are asked.
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

    /// Asks every hook about a request; each sees what those before it changed.
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
                Ok(Some(change)) => match changed(&request, change) {
                    Some(changed) => {
                        request = changed;
                        continue;
                    }
                    None => registered
                        .failed()
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
    /// Runs a piece of the hook apart from us and within its time.
    async fn run_isolated<T: Send + 'static>(
        &self,
        work_context: &WorkContext,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, Fault> {
        let (shared, limit) = (&work_context.shared, work_context.shared.limits.hook);
        let answer = shared.pool.within(&shared.world, limit, work).await;
        answer.map_err(|why| why.explain(self.failed(), limit))
    }

    fn failed(&self) -> Fault {
        Fault::new(Kind::HookFailed, Operation::RunHook).with(Fact::Hook, self.name.clone())
    }
}

/// The request with a change made, unless that would break it.
fn changed(request: &ModelRequest, change: RequestChange) -> Option<ModelRequest> {
    let mut changed = request.clone();
    if let Some(system) = change.system {
        changed.system = Some(system.into());
    }
    if !change.messages.is_empty() {
        let messages = Arc::make_mut(&mut changed.messages);
        let from = messages.len().saturating_sub(1);
        messages.extend(change.messages);
        let ends_well = messages.last().is_some_and(|last| last.role == Role::User);
        if !ends_well || unpaired(messages, from).is_some() {
            return None;
        }
    }
    Some(changed)
}

/// Records what failed, without changing anything else.
async fn report(work_context: &WorkContext, step: Option<u32>, fault: Fault) {
    tracing::warn!(session = %work_context.session, %fault, "a model hook failed");
    let scope = Scope { step, ..Scope::default() };
    // Of no turn in particular: the one it was about may be over.
    work_context
        .report(Input::RecordOnly { turn: 0, event: Event::FaultRaised { fault, scope } })
        .await;
}

/// What hooks are told.
#[derive(Clone, Debug)]
enum HookNotice {
    Answer { content: Arc<Vec<Block>>, usage: Usage },
    History(Arc<Vec<Message>>),
}

/// Tells the hooks of one loaded session what was recorded, in order, while the session goes on.
#[derive(Debug, Default)]
pub(crate) struct HookNotifier {
    /// The history the hooks know of. Held, so that a changed one is another one.
    known: Option<Arc<Vec<Message>>>,
    way: Option<mpsc::Sender<(HookNotice, Arc<()>)>>,
    /// Shared with everything that is not told yet.
    untold: Arc<()>,
}

impl HookNotifier {
    /// Knows the history a session is loaded with. Nothing is held if there is nobody to tell.
    pub(crate) fn new(hooks: &ModelHooks, history: &Arc<Vec<Message>>) -> Self {
        let known = (!hooks.is_empty()).then(|| Arc::clone(history));
        Self { known, ..Self::default() }
    }

    /// Is somebody still being told? What fails then is to be recorded.
    pub(crate) fn is_busy(&self) -> bool {
        Arc::strong_count(&self.untold) > 1
    }

    /// Tells what a round recorded.
    pub(crate) fn notify(
        &mut self,
        work_context: impl FnOnce() -> WorkContext,
        entries: &[Entry],
        history: &Arc<Vec<Message>>,
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
        let way = self.way.get_or_insert_with(|| start(work_context()));
        for told in news {
            if way.try_send((told, Arc::clone(&self.untold))).is_err() {
                tracing::warn!("model hooks are too slow; one is not told of a change");
            }
        }
    }
}

/// The task that tells; ends when everything is told and the session is unloaded.
fn start(work_context: WorkContext) -> mpsc::Sender<(HookNotice, Arc<()>)> {
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

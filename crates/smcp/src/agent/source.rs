//! The tools of a room's computers as tools of a session, updated as computers join, change and leave.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use budao_core::{
    fault::Fault,
    span::{Span, SpanOperation, code_of},
    tool::{Effect, Failure, ToolOrigin, ToolSpec},
    trace::SpanId,
};
use budao_tools::{
    CallContext, NAME_BYTES_MAX, ReconcileRule, Reconciliation, Tool, ToolResult, Toolbox,
    contract::content_hash,
};
use serde_json::{Value, json};
use tokio::sync::{broadcast::error::RecvError, watch};

use super::{Agent, Call, RemoteTool, RoomEvent};
use crate::wire::Role;

/// Hex digits of the hash in a tool's name.
const HASH_DIGITS: usize = 8;

/// The tools of all computers in an agent's room, kept up to date by a background task.
#[derive(Clone, Debug)]
pub struct RemoteTools(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    agent: Agent,
    tools: Mutex<BTreeMap<String, Vec<Arc<dyn Tool>>>>,
    generation: watch::Sender<u64>,
    /// How to reconcile calls, by the computer's own name of the tool.
    rules: BTreeMap<String, ReconcileRule>,
}

impl RemoteTools {
    /// Asks every computer for its tools and follows the room from then on.
    ///
    /// # Errors
    /// If the hub does not list the members. A computer that does not answer has no tools until it reports a change.
    pub async fn open(agent: Agent) -> Result<Self, Fault> {
        Self::open_with(agent, BTreeMap::new()).await
    }

    /// As [`RemoteTools::open`]. The rules say how to find out what became of an interrupted call, by the computer's own
    /// name of the tool; the same computer is asked.
    ///
    /// # Errors
    /// Those of [`RemoteTools::open`].
    pub async fn open_with(
        agent: Agent,
        rules: BTreeMap<String, ReconcileRule>,
    ) -> Result<Self, Fault> {
        let events = agent.events();
        let world = agent.0.world.clone();
        let (tools, generation) = (Mutex::default(), watch::Sender::new(0));
        let shared = Arc::new(Shared { agent, tools, generation, rules });
        shared.refresh_all().await?;
        let weak = Arc::downgrade(&shared);
        world.spawn.spawn(Box::pin(follow(weak, events)));
        Ok(Self(shared))
    }

    /// The current tools, ordered by computer.
    #[must_use]
    pub fn tools(&self) -> Vec<Arc<dyn Tool>> {
        self.0.lock().values().flatten().cloned().collect()
    }

    /// Returns `base` with the current tools in place of earlier computer tools. A computer's tool never replaces
    /// another tool of `base` with the same name.
    ///
    /// # Errors
    /// If the toolbox rejects a tool.
    pub fn offer(&self, base: &Toolbox) -> Result<Toolbox, Fault> {
        let base = base.without(|spec| matches!(spec.source, ToolOrigin::Computer { .. }));
        let mut tools = self.tools();
        tools.retain(|tool| !base.specs().iter().any(|spec| spec.name == tool.spec().name));
        base.with_all(tools)
    }

    /// A counter that increases whenever tools are added or removed.
    #[must_use]
    pub fn generation(&self) -> u64 {
        *self.0.generation.borrow()
    }

    /// Subscribes to changes of [`RemoteTools::generation`].
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.0.generation.subscribe()
    }
}

/// Follows the room until the last [`RemoteTools`] is dropped.
async fn follow(
    shared: std::sync::Weak<Shared>,
    mut events: tokio::sync::broadcast::Receiver<RoomEvent>,
) {
    loop {
        let event = events.recv().await;
        let Some(shared) = shared.upgrade() else { return };
        match event {
            Ok(RoomEvent::MemberJoined(Role::Computer, computer)) => {
                shared.refresh(&computer).await;
            }
            Ok(RoomEvent::ToolsChanged(computer)) if shared.lock().contains_key(&computer) => {
                shared.refresh(&computer).await;
            }
            Ok(RoomEvent::MemberLeft(Role::Computer, computer)) => shared.set(&computer, None),
            // Events may have been missed, or a computer gave its id for its name, so all tools are requested again.
            Ok(RoomEvent::Joined | RoomEvent::ToolsChanged(_)) | Err(RecvError::Lagged(_)) => {
                if let Err(fault) = shared.refresh_all().await {
                    tracing::warn!(%fault, "listing tools of room failed");
                }
            }
            Ok(_) => {}
            Err(RecvError::Closed) => return,
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Vec<Arc<dyn Tool>>>> {
        self.tools.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, computer: &str, tools: Option<Vec<Arc<dyn Tool>>>) {
        match tools {
            Some(tools) => drop(self.lock().insert(computer.to_owned(), tools)),
            None => drop(self.lock().remove(computer)),
        }
        self.generation.send_modify(|generation| *generation += 1);
    }

    async fn refresh_all(&self) -> Result<(), Fault> {
        let computers = self.agent.computers().await?;
        self.lock().retain(|computer, _| computers.contains(computer));
        for computer in &computers {
            self.refresh(computer).await;
        }
        Ok(())
    }

    async fn refresh(&self, computer: &str) {
        match self.agent.tools(computer).await {
            Ok(tools) => {
                let here = tools.into_iter().map(|tool| self.tool(computer, tool));
                let fit = here.filter(|tool| {
                    let fits = Toolbox::builder().build().with_all([tool.clone()]);
                    if let Err(fault) = &fits {
                        tracing::warn!(computer, %fault, "skipping tool");
                    }
                    fits.is_ok()
                });
                self.set(computer, Some(fit.collect()));
            }
            Err(fault) => {
                tracing::warn!(computer, %fault, "listing tools of computer failed");
                self.set(computer, None);
            }
        }
    }

    fn tool(&self, computer: &str, tool: RemoteTool) -> Arc<dyn Tool> {
        let spec = Arc::new(spec(computer, &tool));
        Arc::new(RoomTool {
            spec,
            computer: computer.into(),
            reconcile: self.rules.get(&tool.name).cloned(),
            called: tool.name,
            agent: self.agent.clone(),
        })
    }
}

/// The name of a computer's tool for the model. It depends only on computer and tool. A name that must be shortened
/// or changed ends in a hash of both, so that names stay distinct.
#[must_use]
pub fn tool_name(computer: &str, tool: &str) -> String {
    let whole = format!("{computer}__{tool}");
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    let is_clear = !computer.contains("__") && !computer.ends_with('_');
    if is_clear && whole.len() <= NAME_BYTES_MAX && whole.bytes().all(is_plain) {
        return whole;
    }
    let hash = &content_hash(format!("{computer}\0{tool}").as_bytes())[..HASH_DIGITS];
    let plain = whole
        .chars()
        .map(|letter| if letter.is_ascii() && is_plain(letter as u8) { letter } else { '_' });
    let head: String = plain.take(NAME_BYTES_MAX - HASH_DIGITS - 1).collect();
    format!("{head}_{hash}")
}

fn spec(computer: &str, tool: &RemoteTool) -> ToolSpec {
    let own_description = tool
        .description
        .as_deref()
        .filter(|own_description| *own_description != "None")
        .unwrap_or_default();
    ToolSpec {
        name: tool_name(computer, &tool.name).into(),
        description: own_description.into(),
        schema: Arc::new(tool.params_schema.clone()),
        // A computer's own claim that a tool is safe is ignored.
        effect: Effect::Executes,
        idempotent: false,
        confirm: false,
        repair: false,
        deadline: None,
        output_bytes: None,
        source: ToolOrigin::Computer { computer: computer.to_owned() },
    }
}

/// One tool of one computer.
struct RoomTool {
    spec: Arc<ToolSpec>,
    computer: String,
    called: String,
    agent: Agent,
    /// How to find out what became of an interrupted call; `None` if the configuration does not say.
    reconcile: Option<ReconcileRule>,
}

impl fmt::Debug for RoomTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RoomTool").field(&self.spec.name).finish()
    }
}

impl RoomTool {
    /// Calls a tool of the computer: this one, or the one that reconciles its calls.
    async fn send(
        &self,
        called: &str,
        arguments: Value,
        context: &CallContext,
    ) -> Result<Value, Fault> {
        let limit = self.spec.deadline.unwrap_or(context.limits.tool_deadline);
        let id = SpanId::from_random(context.world.entropy.bits());
        let call = Call {
            computer: self.computer.clone(),
            tool: called.to_owned(),
            params: if arguments.is_object() { arguments } else { json!({}) },
            timeout: whole_seconds(limit),
            // A new id for every attempt, because the hub refuses an id that is still in use. Only the id survives
            // every hop, so it carries the trace and the span.
            req_id: Some(context.trace.to_traceparent(id)),
        };
        let (world, began) = (&context.world, context.world.clock.now());
        let answer = self.agent.call(call, &context.cancel).await;
        world.export_span(|| Span {
            trace: context.trace,
            id,
            parent: context.span(),
            session: Some(context.session),
            began,
            ended: world.clock.now(),
            failed: answer.as_ref().err().map(code_of),
            about: SpanOperation::RemoteCall {
                computer: self.computer.clone(),
                tool: called.to_owned(),
            },
        });
        answer.map_err(|fault| fault.with_trace(context.trace).scrub(&context.scrubber))
    }
}

#[async_trait]
impl Tool for RoomTool {
    fn spec(&self) -> Arc<ToolSpec> {
        self.spec.clone()
    }

    async fn call(&self, arguments: Value, context: &CallContext) -> ToolResult {
        let answer = self.send(&self.called, arguments, context).await;
        answer.map(|result| unambiguous(data(result))).map_err(plain)
    }

    fn can_reconcile(&self) -> bool {
        self.reconcile.is_some()
    }

    async fn reconcile(
        &self,
        arguments: Value,
        context: &CallContext,
    ) -> Result<Reconciliation, Failure> {
        let Some(rule) = &self.reconcile else { return Ok(Reconciliation::CannotTell) };
        let Some(question) = rule.question(&arguments, context) else {
            tracing::warn!(tool = %self.spec.name, "call not reconciled: an argument of the question is missing");
            return Ok(Reconciliation::CannotTell);
        };
        match self.send(&rule.ask, Value::Object(question), context).await {
            Ok(answer) => Ok(rule.read(data(answer), &arguments, context)),
            // The question changes nothing, whatever became of it.
            Err(fault) if fault.is_outcome_unknown() => Err(plain(fault.unconfirmed_but_safe())),
            Err(fault) => Err(plain(fault)),
        }
    }
}

fn plain(fault: Fault) -> Failure {
    Failure { fault, data: None, note: None }
}

/// Rounds a limit down to the protocol's range, 1 to 3600 whole seconds.
fn whole_seconds(limit: Duration) -> Duration {
    Duration::from_secs(limit.as_secs().clamp(1, 3600))
}

/// The part of a result for the model: its structured content, else its texts, else all of it.
fn data(mut result: Value) -> Value {
    let structured = result.get_mut("structuredContent").map(Value::take);
    structured.filter(|structured| !structured.is_null()).unwrap_or_else(|| {
        let content = result.get_mut("content").map(Value::take).unwrap_or_default();
        let texts: Option<Vec<String>> = content.as_array().map(Vec::as_slice).and_then(|items| {
            items.iter().map(|item| item.get("text")?.as_str().map(str::to_owned)).collect()
        });
        texts.map_or_else(|| json!({ "content": content }), |texts| texts.join("\n").into())
    })
}

/// Wraps a value that looks like `{"ok": …}`, since a computer reports errors in another way.
fn unambiguous(data: Value) -> Value {
    let speaks = |key| data.get(key).is_some();
    if speaks("ok") || speaks("_validationError") || speaks("_thrownError") {
        return json!({ "ok": true, "data": data });
    }
    data
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_fit_every_provider_and_never_collide() {
        let long = "x".repeat(90);
        let pairs = [
            ("pc", "tools__echo"),
            ("pc__tools", "echo"),
            ("pc_", "_tools__echo"),
            ("電腦", "echo"),
            ("电脑", "echo"),
            ("pc", "a.b"),
            ("pc", "a_b"),
            ("pc", &long),
            (&long, "pc"),
        ];
        let names: BTreeSet<String> = pairs.iter().map(|(pc, tool)| tool_name(pc, tool)).collect();
        assert_eq!(names.len(), pairs.len(), "{names:?}");
        assert!(names.iter().all(|name| name.len() <= NAME_BYTES_MAX && name.is_ascii()));
        assert_eq!(tool_name("pc", "tools__echo"), "pc__tools__echo");
    }

    #[test]
    fn a_result_becomes_what_the_model_reads() {
        let text = |text: &str| json!({ "type": "text", "text": text });
        assert_eq!(data(json!({ "content": [text("a"), text("b")] })), json!("a\nb"));
        let both = json!({ "content": [text("x")], "structuredContent": { "n": 1 } });
        assert_eq!(data(both), json!({ "n": 1 }));
        let picture = json!({ "type": "image", "data": "AA==", "mimeType": "image/png" });
        assert_eq!(data(json!({ "content": [picture.clone()] })), json!({ "content": [picture] }));
        assert_eq!(data(json!({ "content": [], "structuredContent": null })), json!(""));
    }
}

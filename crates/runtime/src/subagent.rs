//! `task_run`: a tool that delegates work to a child session.
//!
//! The child has its own steps and history, and never more tools, permissions or depth than its parent. Its
//! id derives from the call, so the call may be repeated after a crash. The tool only waits: the child runs
//! on the session host, not on the tool pool.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use budao_core::{
    event::{Event, Origin, SessionId, Settings, TaskEnd, TurnNumber},
    fault::{Fact, Fault, Kind, Operation},
    tool::{Failure, ToolOrigin, ToolSpec},
    turn::Input,
};
use budao_tools::{CallContext, Note, Tool, ToolOptions, ToolResult};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};

use crate::{
    Runtime,
    child::{self, Child, ChildEvent, ChildOverrides, ChildResult},
    decider::Signal,
    work::WorkContext,
};

/// Name of the tool in requests and permission rules.
pub const TASK_RUN: &str = "task_run";

/// Calls of one session that may wait for their start.
const PENDING_CALLS_MAX: usize = 16;

/// Settings of sub-agents; `None` inherits from the session.
#[derive(Clone, Debug)]
pub struct SubAgents {
    /// Time limit of one sub-agent, including waits for a person; 1 h by default. It is stopped afterwards.
    pub deadline: Duration,
    /// Upper bound of model requests. The model may ask for fewer.
    pub max_steps: Option<u32>,
    /// Upper bound of tokens.
    pub max_tokens: Option<u64>,
    /// Name of the model.
    pub model: Option<String>,
    /// The system prompt.
    pub system: Option<Arc<str>>,
}

impl Default for SubAgents {
    fn default() -> Self {
        let deadline = Duration::from_secs(3600);
        Self { deadline, max_steps: None, max_tokens: None, model: None, system: None }
    }
}

/// The arguments of a `task_run` call.
#[derive(Debug, Deserialize)]
struct Arguments {
    description: String,
    prompt: String,
    #[serde(default)]
    tools: Option<Vec<String>>,
    #[serde(default)]
    max_steps: Option<u32>,
}

fn task_run_spec(agents: &SubAgents) -> ToolSpec {
    let schema = json!({
        "type": "object",
        "properties": {
            "description": {
                "type": "string", "minLength": 1, "maxLength": 200,
                "description": "What it is about, in a few words",
            },
            "prompt": {
                "type": "string", "minLength": 1,
                "description": "Everything the agent needs to know; it sees nothing else",
            },
            "tools": {
                "type": "array", "items": {"type": "string"},
                "description": "Names of the tools it may use; all of yours if absent",
            },
            "max_steps": {
                "type": "integer", "minimum": 1,
                "description": "The most model requests it may make",
            },
        },
        "required": ["description", "prompt"],
        "additionalProperties": false,
    });
    // The tool itself changes nothing; the calls of its child have their own permissions.
    ToolOptions::read_only().source(ToolOrigin::Builtin).deadline(agents.deadline).spec(
        TASK_RUN,
        "Hands a piece of work to another agent and returns its answer. The agent works by itself with \
         the tools it is given and cannot see this conversation. Several can work side by side.",
        schema,
    )
}

/// The `task_run` tool of one session.
#[derive(Debug)]
pub(crate) struct TaskRun {
    spec: Arc<ToolSpec>,
    errands: mpsc::Sender<SubAgentCall>,
}

/// A call on its way from the tool pool to the session host.
struct SubAgentCall {
    arguments: Value,
    context: CallContext,
    reply: oneshot::Sender<ToolResult>,
}

/// The inputs that all calls of a session share.
#[derive(Clone)]
struct SubAgentRunner {
    runtime: Runtime,
    parent: SessionId,
    settings: Arc<Settings>,
    depth: u32,
    agents: SubAgents,
}

/// Creates the tool of a session; `None` if sub-agents are not configured. Its task ends when the tool is dropped.
pub(crate) fn tool(work_context: &WorkContext, settings: &Settings) -> Option<TaskRun> {
    let agents = work_context.shared.sub_agents.clone()?;
    let spec = Arc::new(task_run_spec(&agents));
    let office = SubAgentRunner {
        runtime: work_context.runtime.clone(),
        parent: work_context.session,
        settings: Arc::new(settings.clone()),
        depth: work_context.depth,
        agents,
    };
    let (errands, mut waiting) = mpsc::channel::<SubAgentCall>(PENDING_CALLS_MAX);
    let spawn = Arc::clone(&work_context.shared.world.spawn);
    work_context.shared.world.spawn.spawn(Box::pin(async move {
        while let Some(SubAgentCall { arguments, context, reply }) = waiting.recv().await {
            let office = office.clone();
            spawn.spawn(Box::pin(async move {
                // The receiver is gone only if the call was dropped.
                drop(reply.send(office.run(arguments, context).await));
            }));
        }
    }));
    Some(TaskRun { spec, errands })
}

#[async_trait]
impl Tool for TaskRun {
    fn spec(&self) -> Arc<ToolSpec> {
        Arc::clone(&self.spec)
    }

    async fn call(&self, arguments: Value, context: &CallContext) -> ToolResult {
        let gone = || failure(Fault::new(Kind::ShuttingDown, Operation::StartAgent));
        let (reply, answer) = oneshot::channel();
        let errand = SubAgentCall { arguments, context: context.clone(), reply };
        self.errands.send(errand).await.map_err(|_| gone())?;
        answer.await.unwrap_or_else(|_| Err(gone()))
    }
}

fn failure(fault: Fault) -> Failure {
    Failure { fault, data: None, note: None }
}

impl SubAgentRunner {
    async fn run(&self, arguments: Value, context: CallContext) -> ToolResult {
        let child = self.child(arguments, &context).map_err(failure)?;
        let worked = tokio::select! {
            biased;
            () = context.cancel.cancelled() => child::stop(&self.runtime, child.id).await,
            rest = self.run_child(&child, &context) => rest,
        };
        let worked = worked.map_err(failure)?;
        if let Some(event) = worked.cost_record(&self.runtime, child.id) {
            self.record(context.turn, event).await;
        }
        let ChildResult { end, usage, .. } = worked;
        let (call, stage, task) = (Some(context.call.clone()), None, None);
        let event = Event::ChildEnded { child: child.id, call, stage, task, usage };
        self.record(context.turn, event).await;
        match end {
            TaskEnd::Completed { output } => Ok(Value::String(output)),
            TaskEnd::Failed { fault } => Err(failure(fault)),
            TaskEnd::Cancelled { reason } => {
                let fault = Fault::new(Kind::Cancelled, Operation::StartAgent)
                    .with(Fact::ToolName, TASK_RUN)
                    .with_cause(reason)
                    .via("agent", child.id.to_string());
                Err(failure(fault))
            }
        }
    }

    /// Records an event of the parent's turn, unless the parent has ended.
    async fn record(&self, turn: TurnNumber, event: Event) {
        let input = Input::RecordOnly { turn, event };
        let signal = Signal::External(Box::new(input.into()));
        drop(self.runtime.host.signal(self.parent, signal).await);
    }

    /// Describes the child of a call; the same call has the same child.
    fn child(&self, arguments: Value, context: &CallContext) -> Result<Child, Fault> {
        let limit = context.limits.depth;
        if self.depth >= limit {
            return Err(Fault::new(Kind::DepthExceeded, Operation::StartAgent)
                .with(Fact::Limit, limit)
                .with(Fact::Depth, self.depth + 1)
                .with(Fact::LimitName, "depth")
                .with(Fact::ToolName, TASK_RUN));
        }
        let asked: Arguments = serde_json::from_value(arguments)
            .map_err(|error| Fault::new(Kind::Bug, Operation::StartAgent).caused_by(&error))?;
        let steps = [self.agents.max_steps, asked.max_steps].into_iter().flatten().min();
        let wanted = ChildOverrides {
            title: asked.description,
            model: self.agents.model.clone(),
            system: self.agents.system.clone(),
            permissions: None,
            tools: asked.tools,
            max_steps: steps,
        };
        let mut settings = child::child_settings(&self.settings, wanted);
        let tokens = [settings.max_turn_tokens, self.agents.max_tokens];
        settings.max_turn_tokens = tokens.into_iter().flatten().min();
        child::share_caps(&mut settings, &context.limits, self.parent, context.turn);
        let (parent, call) = (self.parent, context.call.clone());
        Ok(Child {
            id: child::child_id(parent, &["call", &call.0]),
            settings,
            origin: Origin::Call { parent, call, depth: self.depth + 1 },
            prompt: asked.prompt,
            trace: context.trace,
            span: context.span(),
        })
    }

    async fn run_child(&self, child: &Child, context: &CallContext) -> Result<ChildResult, Fault> {
        let mut watch = child::start_and_watch(&self.runtime, child).await?;
        context.notes.record(Note::ChildOpened(child.id)).await;
        loop {
            match watch.next().await? {
                ChildEvent::Ended(rest) => return Ok(rest),
                ChildEvent::QuestionAsked { question, tool } => {
                    let data = json!({ "child": child.id, "question": question, "tool": tool });
                    let topic = "child_question_asked".to_owned();
                    context.notes.record(Note::Topic { topic, data }).await;
                }
            }
        }
    }
}

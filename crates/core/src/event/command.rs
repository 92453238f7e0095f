//! Commands that an authorised sender may give to a session, and the one answer to each.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{CommandId, LostObserver, QuestionId, Seq, Settings, Settlement, TaskId, TurnNumber};
use crate::{
    fault::{Fact, FactValue, Fault, Kind, Operation},
    message::{Block, CallId},
    nesting,
    remote::{OfferBounds, ToolOffer, WorkerReport},
    timer::{TimerId, TimerRequest},
    trace::Trace,
};

/// First words of the topics that engines and journals read back as state. Facts that are only shown have other ones.
const RESERVED_TOPICS: [&str; 4] = ["core", "engine", "journal", "pipeline"];

/// The longest topic of a fact, in bytes.
const TOPIC_MAX: usize = 128;

/// A request to a session. It waits durably in the session's inbox until the writer that holds the lease handles it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Command {
    /// Chosen by the sender; a repeated id gets the same answer.
    pub id: CommandId,
    /// The sender, as its gateway names it.
    pub by: String,
    /// The sender's trace; none if the sender gave none.
    #[serde(default)]
    pub trace: Trace,
    /// The request itself.
    pub body: CommandBody,
}

impl Command {
    /// A command without a trace. A repeated `id` gets the first one's answer.
    pub fn new(id: impl Into<CommandId>, by: impl Into<String>, body: CommandBody) -> Self {
        Self { id: id.into(), by: by.into(), trace: Trace::NONE, body }
    }

    /// A message of one text.
    pub fn message(
        id: impl Into<CommandId>,
        by: impl Into<String>,
        text: impl Into<String>,
    ) -> Self {
        Self::new(id, by, CommandBody::Message { content: vec![Block::Text(text.into())] })
    }
}

/// The requests a session understands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum CommandBody {
    /// Answer this message, in a turn of its own.
    Message {
        /// The content, verbatim.
        content: Vec<Block>,
    },
    /// Answer a question about a call.
    Decide {
        /// The question to answer.
        question: QuestionId,
        /// Whether the call may run.
        decision: Decision,
        /// A remark for the model.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        note: Option<String>,
        /// Replacement arguments; they are checked again before the call runs.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        arguments: Option<Value>,
        /// The digest of the question; when given, it must match.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        digest: Option<String>,
    },
    /// Settle the unknown outcome of a call, also after its turn went on.
    SettleDoubt {
        /// The call whose outcome is unknown.
        call: CallId,
        /// What the person says of the call.
        settlement: Settlement,
        /// A remark for the model.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        note: Option<String>,
    },
    /// Cancel the running turn.
    Cancel {
        /// The sender's own words, recorded with the cancellation.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// Withdraw a message that no turn has started to answer. A started turn is stopped by a cancel.
    Withdraw {
        /// The command that carried the message.
        message: CommandId,
    },
    /// Continue the last turn, which failed, from the history it left. Calls that ended are not made again.
    Retry {
        /// The turn to continue, which must be the last one; the last one if absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        turn: Option<TurnNumber>,
    },
    /// Wake the session at a time or on a schedule. A timer with the same id is replaced.
    SetTimer {
        /// The id of the timer; the command's id if absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        timer: Option<TimerId>,
        /// When the timer fires.
        when: TimerRequest,
        /// What the session is told when the timer fires.
        message: String,
    },
    /// Cancel a timer.
    CancelTimer {
        /// A timer that is set.
        timer: TimerId,
    },
    /// Replace the settings, except workers' tools and remembered permissions, which have commands of their own.
    Settings {
        /// All settings, not the difference.
        settings: Box<Settings>,
        /// The settings that the sender changed. A field that is the same in both keeps its value, so that changes of
        /// different fields at the same moment do not undo each other. Absent, all fields are replaced.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        before: Option<Box<Settings>>,
    },
    /// Remember a person's permission for a tool, for the rest of the session.
    RememberPermission {
        /// The tool's name.
        tool: String,
    },
    /// Forget the remembered permission for a tool.
    RevokePermission {
        /// The tool's name.
        tool: String,
    },
    /// End the session. A running turn is stopped first, as by a cancel.
    Close,
    /// Plan tasks for a question, solve them and combine the results.
    Plan {
        /// The question to plan for.
        question: String,
        /// Whether a person must confirm the plan before its tasks start.
        #[serde(default)]
        confirm: bool,
    },
    /// Solve the given tasks, without a planner.
    Solve {
        /// The question behind the tasks.
        question: String,
        /// The tasks, as sent and not yet validated.
        tasks: Value,
    },
    /// Stop one task of the running plan.
    CancelTask {
        /// A task of the running plan.
        task: TaskId,
    },
    /// Start one task again from the beginning.
    RestartTask {
        /// A task of the running plan.
        task: TaskId,
    },
    /// Cancel the running plan.
    CancelPlan,
    /// Stop the running plan and make a new one.
    Replan {
        /// The new question; the previous one if absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        question: Option<String>,
    },
    /// Offer tools to this session alone. They replace what the same worker offered before.
    OfferTools {
        /// The worker and its tools; no tools end the offer.
        offer: Box<ToolOffer>,
        /// The bounds on all offers to this session.
        #[serde(default)]
        bounds: OfferBounds,
    },
    /// Claim a call for a process of the sender's worker. One process has a call; its claim precedes its work.
    ClaimCall {
        /// The call to claim.
        call: CallId,
        /// The attempt that was offered.
        attempt: u32,
        /// The id of the process.
        worker: String,
    },
    /// Report the end of a call that a process of the sender claimed. The first report counts.
    ReportCall {
        /// The claimed call.
        call: CallId,
        /// The attempt that ended.
        attempt: u32,
        /// The id of the process that claimed it.
        worker: String,
        /// What the process says.
        report: Box<WorkerReport>,
    },
    /// Store a fact of a gateway with the session.
    Annotate {
        /// The owning gateway and the subject: `serve.nonce`. The topics of engines and journals are refused.
        topic: String,
        /// Any JSON, defined by the topic.
        data: Value,
    },
    /// Record that an observer lost its connection.
    ObserverLost(LostObserver),
}

impl Command {
    /// Bounds the depth of the JSON inside the command, so that no later code recurses too deeply.
    /// Every entry point for outside commands calls this first.
    pub fn bound_nesting(&mut self) {
        match &mut self.body {
            CommandBody::Decide { arguments, .. } => arguments.iter_mut().for_each(nesting::bound),
            CommandBody::SettleDoubt { settlement: Settlement::Happened { result }, .. } => {
                nesting::bound(result);
            }
            CommandBody::Settings { settings, before } => {
                for settings in before.iter_mut().chain([settings]) {
                    settings.extra.values_mut().for_each(nesting::bound);
                    if let Some(schema) = &mut settings.answer_schema {
                        nesting::bound(Arc::make_mut(schema));
                    }
                }
            }
            CommandBody::OfferTools { offer, .. } => {
                offer.tools.iter_mut().for_each(|tool| nesting::bound(&mut tool.parameters));
            }
            CommandBody::ReportCall { report, .. } => match &mut **report {
                WorkerReport::Done { result } => nesting::bound(result),
                WorkerReport::Failed(error) => error.data.iter_mut().for_each(nesting::bound),
                WorkerReport::Lost => {}
            },
            CommandBody::Solve { tasks: value, .. } | CommandBody::Annotate { data: value, .. } => {
                nesting::bound(value);
            }
            CommandBody::Message { .. }
            | CommandBody::SettleDoubt { .. }
            | CommandBody::Cancel { .. }
            | CommandBody::ClaimCall { .. }
            | CommandBody::Withdraw { .. }
            | CommandBody::RememberPermission { .. }
            | CommandBody::RevokePermission { .. }
            | CommandBody::Retry { .. }
            | CommandBody::SetTimer { .. }
            | CommandBody::CancelTimer { .. }
            | CommandBody::Close
            | CommandBody::Plan { .. }
            | CommandBody::CancelTask { .. }
            | CommandBody::RestartTask { .. }
            | CommandBody::CancelPlan
            | CommandBody::Replan { .. }
            | CommandBody::ObserverLost(_) => {}
        }
    }
}

impl CommandBody {
    /// The snake-case name of the request, for logs and metrics.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.into()
    }

    /// Refuses a fact under a topic that engines or journals write and read back themselves.
    ///
    /// # Errors
    /// `constraint_violated`.
    pub fn check_topic(&self) -> Result<(), Fault> {
        let Self::Annotate { topic, .. } = self else { return Ok(()) };
        let owner = topic.split('.').next().unwrap_or_default();
        if topic.len() <= TOPIC_MAX && !owner.is_empty() && !RESERVED_TOPICS.contains(&owner) {
            return Ok(());
        }
        let shown: String = topic.chars().take(TOPIC_MAX).collect();
        let rule = format!(
            "1 to {TOPIC_MAX} bytes that begin with the name of a gateway; {} are reserved",
            RESERVED_TOPICS.map(|owner| format!("`{owner}`")).join(", ")
        );
        Err(Fault::new(Kind::ConstraintViolated, Operation::SubmitCommand)
            .with(Fact::Field, "topic")
            .with(Fact::Constraint, rule)
            .with(Fact::ProvidedValue, FactValue::Json(shown.into())))
    }
}

/// The one answer to a command, durable together with the command's effects.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// The command was accepted; its effects follow this position.
    Accepted {
        /// The head of the history before the command.
        at: Seq,
    },
    /// The command was rejected; the request is not carried out.
    Rejected {
        /// Why it was rejected.
        fault: Fault,
    },
}

/// A person's answer to a question about a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// The call may run.
    Allow,
    /// The call must not run; it ends with a fault for the model.
    Deny,
}

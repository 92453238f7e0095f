//! What anyone allowed may ask of a session, and the one answer.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{CommandId, QuestionId, Seq, Settings, TaskId};
use crate::{fault::Fault, message::Block, nesting, trace::Trace};

/// What anyone allowed may ask of a session. Durable, with an id, taken up by whoever writes the session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Command {
    /// Chosen by the sender; the same id gives the same answer.
    pub id: CommandId,
    /// Who sends it.
    pub by: String,
    /// The trace it belongs to, if the sender brought one.
    #[serde(default)]
    pub trace: Trace,
    /// What is asked.
    pub ask: CommandBody,
}

/// The things that can be asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum CommandBody {
    /// Answer this.
    Message {
        /// What it says.
        content: Vec<Block>,
    },
    /// Here is the answer to a question.
    Decide {
        /// Which question.
        question: QuestionId,
        /// The answer.
        decision: Decision,
        /// A word for the model.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        note: Option<String>,
        /// Other arguments to run with.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        arguments: Option<Value>,
        /// What the answer is bound to, if the sender checks it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        digest: Option<String>,
    },
    /// Stop the turn.
    Cancel {
        /// Why.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// Do not answer a message that still waits. One whose turn has begun is stopped by a cancel.
    Withdraw {
        /// The command that brought it.
        message: CommandId,
    },
    /// Be set to this.
    Settings {
        /// All settings.
        settings: Box<Settings>,
    },
    /// End the session. A running turn is stopped first, as by a cancel.
    Close,
    /// Make a plan for this question, solve it, combine the results.
    Plan {
        /// The question.
        question: String,
        /// Must a person confirm the plan?
        #[serde(default)]
        confirm: bool,
    },
    /// Solve these tasks, without a planner.
    Solve {
        /// The question behind them.
        question: String,
        /// The tasks, as sent.
        tasks: Value,
    },
    /// Stop one task.
    CancelTask {
        /// Which.
        task: TaskId,
    },
    /// Work on one task again from the start.
    RestartTask {
        /// Which.
        task: TaskId,
    },
    /// Give up the plan.
    CancelPlan,
    /// Make another plan.
    Replan {
        /// For another question.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        question: Option<String>,
    },
    /// Keep a gateway's fact with the session.
    Annotate {
        /// Whose and what.
        topic: String,
        /// The fact.
        data: Value,
    },
    /// Record that somebody who was watching was lost.
    ObserverLost {
        /// Why, as the transport says.
        close_code: u16,
        /// Why, in words.
        close_reason: String,
        /// The last record they had.
        last_seq: Seq,
        /// How long they had been there.
        uptime_ms: u64,
    },
}

impl Command {
    /// Bounds the JSON it carries, so that nothing that is done with it recurses too deeply. For whoever takes commands
    /// from outside, before anything else.
    pub fn bound_nesting(&mut self) {
        match &mut self.ask {
            CommandBody::Decide { arguments, .. } => arguments.iter_mut().for_each(nesting::bound),
            CommandBody::Settings { settings } => {
                settings.extra.values_mut().for_each(nesting::bound);
            }
            CommandBody::Solve { tasks: value, .. } | CommandBody::Annotate { data: value, .. } => {
                nesting::bound(value);
            }
            CommandBody::Message { .. }
            | CommandBody::Cancel { .. }
            | CommandBody::Withdraw { .. }
            | CommandBody::Close
            | CommandBody::Plan { .. }
            | CommandBody::CancelTask { .. }
            | CommandBody::RestartTask { .. }
            | CommandBody::CancelPlan
            | CommandBody::Replan { .. }
            | CommandBody::ObserverLost { .. } => {}
        }
    }
}

impl CommandBody {
    /// What is asked, in a word.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.into()
    }
}

/// The one answer to a command.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// It was taken up; the position after which its effects are found.
    Accepted {
        /// The head before it.
        at: Seq,
    },
    /// It was not.
    Rejected {
        /// Why.
        fault: Fault,
    },
}

/// What a person said to a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// Go on.
    Allow,
    /// Do not.
    Deny,
}

//! Calls that the CLI makes: their permission and their outcome.

use budao_core::{
    event::{CallStart, Decision, Event, QuestionId, QuestionPurpose},
    fault::{Fact, Fault, Kind, Operation},
    message::CallId,
    session::CallState,
    tool::{Failure, Outcome, Output, Permission, Todo, TodoStatus, Truncation},
};
use serde_json::Value;

use super::{DeferredLine, OpenQuestion, Stepper, answers::millis};
use crate::{outgoing, permissions, wire::CanUseTool};

/// Recorded as the sender when the CLI withdraws a question.
const CLI: &str = "claude";

/// A tool result as the CLI reports it to the model.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct CliToolResult {
    tool_use_id: String,
    is_error: bool,
    content: Value,
}

/// Extracts the tool results of a `user` line.
pub(super) fn results(content: &Value) -> Vec<CliToolResult> {
    let blocks = content.as_array().into_iter().flatten();
    let results = blocks.filter(|block| block["type"] == "tool_result");
    results
        .filter_map(|block| {
            Some(CliToolResult {
                tool_use_id: block["tool_use_id"].as_str()?.to_owned(),
                is_error: block["is_error"].as_bool().unwrap_or(false),
                content: result_text(&block["content"]),
            })
        })
        .collect()
}

/// Joins text blocks to one text. Other content is kept, with image data replaced by its size.
fn result_text(content: &Value) -> Value {
    let Some(blocks) = content.as_array() else { return content.clone() };
    let texts: Vec<&str> = blocks.iter().filter_map(|block| block["text"].as_str()).collect();
    if texts.len() == blocks.len() {
        return Value::String(texts.join("\n"));
    }
    let without_image = |block: &Value| match block["source"]["data"].as_str() {
        Some(data) => serde_json::json!({"type": block["type"], "bytes_in_base64": data.len()}),
        None => block.clone(),
    };
    blocks.iter().map(without_image).collect()
}

impl Stepper<'_> {
    pub(super) fn take_deferred(&mut self, deferred: DeferredLine) {
        match deferred {
            DeferredLine::CanUseTool(asks) => self.handle_permission_request(asks),
            DeferredLine::Result(result) => self.tool_result(result),
        }
    }

    /// Handles the CLI's question whether a tool may be used.
    pub(super) fn handle_permission_request(&mut self, asks: CanUseTool) {
        let theirs = asks.request.tool_use_id.clone().unwrap_or_default();
        let known =
            self.m.current_turn.as_ref().and_then(|current| current.calls.get(&theirs).cloned());
        if known.is_none()
            && let Some(current) = &mut self.m.current_turn
            && let Some(draft) = &current.draft
        {
            // The answer that requests the call is still streaming; the question is deferred until it is complete.
            if draft.streaming {
                current.deferred.push(DeferredLine::CanUseTool(asks));
                return;
            }
            if draft.asks_for(&theirs) {
                self.finish_answer();
                return self.handle_permission_request(asks);
            }
        }
        if self.is_cancelling() {
            return self
                .send(outgoing::answer(&asks.id, &outgoing::deny("The turn was cancelled.")));
        }
        let call = known.unwrap_or_else(|| self.foreign_call(&theirs));
        let tool = asks.request.tool_name.clone();
        let request = permissions::ToolRequest {
            tool: &tool,
            input: &asks.request.input,
            plan_folder: self.m.plan_folder.as_deref(),
        };
        match permissions::permit(&self.m.session.settings, request) {
            Permission::Allow => {
                self.start_call(&call, &asks.request.input);
                self.send(outgoing::answer(&asks.id, &outgoing::allow(&asks.request.input)));
            }
            Permission::Deny(reason) => {
                let fault = Fault::new(Kind::DeniedByPolicy, Operation::ToolCall)
                    .with(Fact::ToolName, tool)
                    .with(Fact::Reason, reason);
                self.end_call(&call, fault.into());
                self.send(outgoing::answer(
                    &asks.id,
                    &outgoing::deny(&format!("Not allowed: {reason}.")),
                ));
            }
            Permission::Ask(reason) => self.ask(call, asks, reason),
        }
    }

    /// Creates an id for a sub-agent's call, which no recorded answer contains.
    fn foreign_call(&mut self, theirs: &str) -> CallId {
        self.m.requests += 1;
        CallId::from(format!("sub_{}_{theirs}", self.m.requests).as_str())
    }

    fn ask(&mut self, call: CallId, asks: CanUseTool, reason: &'static str) {
        let CanUseTool { id, request } = asks;
        let mut question = QuestionId(format!("ask_{call}").into());
        if self.m.questions.contains_key(&question) {
            self.m.requests += 1;
            question = QuestionId(format!("ask_{call}_{}", self.m.requests).into());
        }
        let reason = match (request.decision_reason, request.blocked_path) {
            (Some(reason), _) => reason,
            (None, Some(path)) => format!("{reason}: {path}"),
            (None, None) => reason.to_owned(),
        };
        let digest = budao_tools::digest::of_call(&request.tool_name, &request.input);
        let expires_at = self.env.now.after(self.env.limits.question);
        self.emit(Event::QuestionAsked {
            question: question.clone(),
            call: call.clone(),
            tool: request.tool_name.clone(),
            arguments: request.input.clone(),
            repairs: Vec::new(),
            digest: digest.clone(),
            idempotent: false,
            reason,
            purpose: QuestionPurpose::Permission,
            expires_at,
        });
        let (tool, arguments) = (request.tool_name, request.input);
        let open_question = OpenQuestion { request: id, call, tool, arguments, digest, expires_at };
        self.m.questions.insert(question, open_question);
    }

    /// Handles the CLI's withdrawal of a question.
    pub(super) fn withdrawn(&mut self, request: &str) {
        if let Some(current) = &mut self.m.current_turn {
            current.deferred.retain(
                |deferred| !matches!(deferred, DeferredLine::CanUseTool(asks) if asks.id == request),
            );
        }
        let mut questions = self.m.questions.iter();
        let Some((question, _)) =
            questions.find(|(_, open_question)| open_question.request == request)
        else {
            return;
        };
        let question = question.clone();
        self.close_question(&question, CLI);
    }

    /// Closes all open questions; their calls are cancelled.
    pub(super) fn close_questions(&mut self, by: &str) {
        let open: Vec<QuestionId> = self.m.questions.keys().cloned().collect();
        for question in open {
            self.close_question(&question, by);
        }
    }

    fn close_question(&mut self, question: &QuestionId, by: &str) {
        let Some(open_question) = self.m.questions.remove(question) else { return };
        self.emit(Event::QuestionAnswered {
            question: question.clone(),
            call: open_question.call.clone(),
            decision: Decision::Deny,
            by: by.to_owned(),
            note: None,
            arguments: None,
        });
        self.end_call(&open_question.call, cancel_fault(&open_question.tool).into());
    }

    /// Denies the questions whose time has expired.
    pub(super) fn expire_questions(&mut self) {
        let now = self.env.now;
        let expired: Vec<QuestionId> = self
            .m
            .questions
            .iter()
            .filter(|(_, open_question)| open_question.expires_at <= now)
            .map(|(question, _)| question.clone())
            .collect();
        for question in expired {
            let Some(open_question) = self.m.questions.remove(&question) else { continue };
            let fault = Fault::new(Kind::QuestionExpired, Operation::AskPermission)
                .with(Fact::ToolName, open_question.tool)
                .with(Fact::QuestionId, question.to_string());
            self.emit(Event::QuestionExpired { question, call: open_question.call.clone() });
            self.end_call(&open_question.call, fault.into());
            self.waited_for_person();
            let message = "Nobody answered whether this may be done, so it must not be done.";
            self.send(outgoing::answer(&open_question.request, &outgoing::deny(message)));
        }
    }

    /// Counts a call as running. The CLI runs a permitted call without a message, so a call that it has not asked
    /// about for `timeouts.call` runs. Calls that change something run in sequence, so it is the first open one.
    pub(super) fn count_call_as_running(&mut self) {
        let (now, timeouts) = (self.env.steady, self.env.timeouts.call);
        let Some(current) = &mut self.m.current_turn else { return };
        if current.called_at.is_none_or(|since| since.after(timeouts) > now) {
            return;
        }
        current.called_at = None;
        let Some(turn) = &self.m.session.turn else { return };
        let first = turn.calls.iter().find(|call| call.is_open());
        if let Some(call) = first
            && matches!(call.state, CallState::Requested { approved: None })
        {
            let (id, written) = (call.id.clone(), call.written.clone());
            self.start_call(&id, &serde_json::from_str(&written).unwrap_or_default());
        }
    }

    /// Records the start of a call, before the CLI learns that it may run.
    pub(super) fn start_call(&mut self, id: &CallId, arguments: &Value) {
        let call = self.m.session.turn.as_ref().and_then(|turn| turn.call(id));
        let Some(call) = call.filter(|call| call.is_open()) else { return };
        let attempt = match &call.state {
            CallState::Started { .. } => return,
            _ => 1,
        };
        self.emit(Event::ToolCallStarted(CallStart {
            call: id.clone(),
            tool: call.tool.clone(),
            arguments: arguments.clone(),
            repairs: Vec::new(),
            attempt,
            idempotent: false,
            reconcile: false,
        }));
    }

    /// Handles the result of a tool.
    pub(super) fn tool_result(&mut self, result: CliToolResult) {
        let current = self.current_turn();
        let known = current.calls.get(&result.tool_use_id).cloned();
        let Some(id) = known else {
            let Some(draft) = &current.draft else { return };
            if draft.streaming {
                current.deferred.push(DeferredLine::Result(result));
            } else if draft.asks_for(&result.tool_use_id) {
                self.finish_answer();
                self.tool_result(result);
            }
            return;
        };
        let is_denied = current.denied.contains(&result.tool_use_id);
        let Some(call) = self.turn().call(&id).filter(|call| call.is_open()) else { return };
        let (tool, written) = (call.tool.clone(), call.written.clone());
        let question = self.m.questions.iter().find(|(_, open_question)| open_question.call == id);
        if let Some(question) = question.map(|(question, _)| question.clone()) {
            return self.close_question(&question, CLI);
        }
        let arguments: Value = serde_json::from_str(&written).unwrap_or_default();
        if !is_denied {
            self.start_call(&id, &arguments);
        }
        let outcome = self.outcome(&tool, is_denied, result);
        let is_done = outcome.is_done();
        self.end_call(&id, outcome);
        let now = self.env.steady;
        self.current_turn().called_at = Some(now);
        if let (true, "TodoWrite", Some(todos)) = (is_done, tool.as_str(), todos(&arguments)) {
            self.emit(Event::TodosChanged { todos });
        }
        if is_done {
            self.mode_tool_ran(&tool);
        }
    }

    fn outcome(&self, tool: &str, is_denied: bool, result: CliToolResult) -> Outcome {
        let (data, cut) = shorten(result.content, self.env.limits.output_bytes);
        if !result.is_error {
            return Outcome::Done(Output { data, note: None, cut });
        }
        let fault = match (self.is_cancelling(), is_denied) {
            (true, _) => cancel_fault(tool),
            (false, true) => Fault::new(Kind::DeniedByPolicy, Operation::ToolCall)
                .with(Fact::ToolName, tool.to_owned())
                .with(Fact::Reason, "the program's own rules"),
            (false, false) => Fault::new(Kind::ToolFailed, Operation::ToolCall)
                .with(Fact::ToolName, tool.to_owned()),
        };
        Outcome::Failed(Failure { fault, data: Some(data), note: None })
    }

    /// Records the outcome of a call; ignored if the call has one.
    pub(super) fn end_call(&mut self, id: &CallId, outcome: Outcome) {
        let call = self.m.session.turn.as_ref().and_then(|turn| turn.call(id));
        let Some(call) = call.filter(|call| call.is_open()) else { return };
        let tool = call.tool.clone();
        let duration_ms = match &call.state {
            CallState::Started { at, .. } => millis(self.env.now.since(*at)),
            _ => 0,
        };
        let trace = self.m.session.trace();
        let outcome = match outcome {
            Outcome::Failed(Failure { fault, data, note }) => {
                Outcome::Failed(Failure { fault: fault.with_trace(trace), data, note })
            }
            done @ Outcome::Done(_) => done,
        };
        self.emit(Event::ToolCallEnded { call: id.clone(), tool, outcome, duration_ms });
    }

    /// Ends every open call: as cancelled, or with an unknown outcome.
    pub(super) fn seal_calls(&mut self) {
        let Some(turn) = &self.m.session.turn else { return };
        let is_cancelling = turn.cancelling;
        let open: Vec<_> = turn
            .calls
            .iter()
            .filter(|call| call.is_open())
            .map(|call| (call.id.clone(), call.tool.clone()))
            .collect();
        for (id, tool) in open {
            let question =
                self.m.questions.iter().find(|(_, open_question)| open_question.call == id);
            if let Some(question) = question.map(|(question, _)| question.clone()) {
                self.close_question(&question, CLI);
                continue;
            }
            let fault = match is_cancelling {
                // The CLI did not report the end, so it is unknown whether the call stopped.
                true => cancel_fault(&tool).unconfirmed(),
                false => {
                    Fault::new(Kind::OutcomeUnknown, Operation::ToolCall).with(Fact::ToolName, tool)
                }
            };
            self.end_call(&id, fault.into());
        }
    }
}

fn cancel_fault(tool: &str) -> Fault {
    Fault::new(Kind::Cancelled, Operation::ToolCall).with(Fact::ToolName, tool.to_owned())
}

/// Shortens a long output to head and tail for the record. The CLI keeps the complete output.
fn shorten(data: Value, most: usize) -> (Value, Option<Truncation>) {
    let text = match data {
        Value::String(text) => text,
        other if other.to_string().len() <= most => return (other, None),
        other => other.to_string(),
    };
    if text.len() <= most {
        return (Value::String(text), None);
    }
    let half = most / 2;
    let head = (0..=half).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    let from = text.len() - half;
    let tail = (from..=text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len());
    let cut = Truncation { total_bytes: text.len() as u64, kept: None };
    (Value::String(format!("{}\n…\n{}", &text[..head], &text[tail..])), Some(cut))
}

/// Reads the to-do list from the arguments of the CLI's to-do tool.
fn todos(arguments: &Value) -> Option<Vec<Todo>> {
    let list = arguments["todos"].as_array()?;
    let todo = |(index, entry): (usize, &Value)| Todo {
        id: (index + 1).to_string(),
        title: entry["content"].as_str().unwrap_or_default().to_owned(),
        status: match entry["status"].as_str() {
            Some("completed") => TodoStatus::Completed,
            Some("in_progress") => TodoStatus::InProgress,
            _ => TodoStatus::Pending,
        },
        assignee: None,
        notes: None,
    };
    Some(list.iter().enumerate().map(todo).collect())
}

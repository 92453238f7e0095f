//! The request of a turn: the session's own history as AG-UI messages, the shared state, what the front end gave beside
//! the message, and answers to interrupts.

use std::collections::BTreeMap;

use budao_core::{
    event::SessionId,
    message::{Block, CallId, Message, Role, text_of},
    session::{CallState, Session},
};
use serde_json::{Value, json};

use crate::{
    draft::UpstreamIds,
    interrupt::{Interrupt, RelayState},
};

/// Builds the body of a request: `RunAgentInput` of the protocol.
pub(crate) fn run_input(
    session_id: SessionId,
    run: &str,
    session: &Session,
    memory: &RelayState,
) -> Value {
    let mut input = json!({
        "threadId": session_id.to_string(),
        "runId": run,
        "protocolVersion": "1.0",
        "messages": messages(session, &memory.interrupts),
        "state": memory.state.clone().unwrap_or_else(|| json!({})),
        "tools": [],
        "context": [],
        "forwardedProps": {},
    });
    if let Some(given) = &memory.input {
        input["context"] = given.context.clone().into();
        input["forwardedProps"] = given.forwarded_props.clone().into();
    }
    let resume: Vec<Value> = memory.interrupts.iter().filter_map(Interrupt::resume_entry).collect();
    if !resume.is_empty() {
        input["resume"] = resume.into();
    }
    let mut commands: Vec<Value> =
        memory.interrupts.iter().filter_map(Interrupt::command_value).collect();
    if let Some(last) = commands.pop() {
        let value = match commands.is_empty() {
            true => last,
            false => commands.into_iter().chain([last]).collect(),
        };
        input["forwardedProps"]["command"] = json!({ "resume": value });
    }
    input
}

/// The history as messages of the protocol. Results of calls whose interrupts are being answered are left out: the
/// answer is in `resume`, and the agent makes the call now.
fn messages(session: &Session, interrupts: &[Interrupt]) -> Vec<Value> {
    let mut list = Vec::new();
    if let Some(system) = &session.settings.system {
        list.push(json!({ "id": "budao-system", "role": "system", "content": system }));
    }
    let answered = |call: &CallId| interrupts.iter().any(|interrupt| interrupt.call == *call);
    let mut ids = CallNames::default();
    for (index, message) in session.history.iter().enumerate() {
        match message.role {
            Role::Assistant => list.push(ids.assistant(index, message)),
            Role::User => list.extend(ids.user(index, message, &answered)),
        }
    }
    list.extend(ids.unrecorded_results(session, &answered));
    list.retain(|message| !message.is_null());
    list
}

/// The agent's ids of calls by ours; a made-up call has none.
#[derive(Default)]
struct CallNames(BTreeMap<String, Option<String>>);

impl CallNames {
    fn theirs(&self, call: &CallId) -> Option<String> {
        match self.0.get(&*call.0) {
            Some(theirs) => theirs.clone(),
            None => Some(call.to_string()),
        }
    }

    fn assistant(&mut self, index: usize, message: &Message) -> Value {
        let ids = UpstreamIds::of(&message.content);
        self.0.extend(ids.calls.into_iter().map(|(ours, theirs)| (ours, Some(theirs))));
        self.0.extend(ids.synthetic.into_iter().map(|ours| (ours, None)));
        let calls: Vec<Value> = message
            .content
            .iter()
            .filter_map(|block| match block {
                Block::ToolUse(call) => {
                    let function = json!({ "name": call.name, "arguments": call.arguments });
                    let id = self.theirs(&call.id)?;
                    Some(json!({ "id": id, "type": "function", "function": function }))
                }
                _ => None,
            })
            .collect();
        let text = text_of(&message.content);
        if text.is_empty() && calls.is_empty() {
            return Value::Null;
        }
        let id = ids.message.unwrap_or_else(|| format!("budao-{index}"));
        let mut value = json!({ "id": id, "role": "assistant" });
        if !text.is_empty() {
            value["content"] = text.into();
        }
        if !calls.is_empty() {
            value["toolCalls"] = calls.into();
        }
        value
    }

    fn user(
        &self,
        index: usize,
        message: &Message,
        answered: &impl Fn(&CallId) -> bool,
    ) -> Vec<Value> {
        let mut list = Vec::new();
        for block in &message.content {
            if let Block::ToolResult { call, content, .. } = block
                && !answered(call)
            {
                list.push(self.result(call, &plain_result(content)));
            }
        }
        let content = user_content(&message.content);
        if !content.is_null() {
            list.push(
                json!({ "id": format!("budao-{index}"), "role": "user", "content": content }),
            );
        }
        list
    }

    fn result(&self, call: &CallId, content: &str) -> Value {
        match self.theirs(call) {
            Some(theirs) => {
                let id = format!("budao-{call}-result");
                json!({ "id": id, "role": "tool", "toolCallId": theirs, "content": content })
            }
            None => Value::Null,
        }
    }

    /// Results of a step whose other calls still wait: the history gets them when all calls have ended.
    fn unrecorded_results(
        &self,
        session: &Session,
        answered: &impl Fn(&CallId) -> bool,
    ) -> Vec<Value> {
        let Some(turn) = &session.turn else { return Vec::new() };
        if turn.calls.iter().all(|call| !call.is_open()) {
            return Vec::new();
        }
        let ended = turn.calls.iter().filter(|call| !answered(&call.id));
        ended
            .filter_map(|call| match &call.state {
                CallState::Ended { outcome, .. } => {
                    let (content, _) =
                        outcome.render_for_caller(&call.written, session.settings.language);
                    Some(self.result(&call.id, &plain_result(&content)))
                }
                _ => None,
            })
            .collect()
    }
}

/// The content of a person's message: a text, or parts if there are pictures. Null if there is none.
fn user_content(content: &[Block]) -> Value {
    let is_image = |block: &&Block| matches!(block, Block::Image { .. });
    if content.iter().find(is_image).is_none() {
        // A person's message and what people said of calls in doubt are texts of their own.
        let texts = content.iter().filter_map(|block| match block {
            Block::Text(text) if !text.is_empty() => Some(text.as_str()),
            _ => None,
        });
        let text = texts.collect::<Vec<_>>().join("\n\n");
        return if text.is_empty() { Value::Null } else { text.into() };
    }
    content
        .iter()
        .filter_map(|block| match block {
            Block::Text(text) => Some(json!({ "type": "text", "text": text })),
            Block::Image { media_type, data } => {
                let source = json!({ "type": "data", "value": data, "mimeType": media_type });
                Some(json!({ "type": "image", "source": source }))
            }
            _ => None,
        })
        .collect()
}

/// The agent's own text of a result, out of the form in which our models read it.
fn plain_result(content: &str) -> String {
    match serde_json::from_str::<Value>(content) {
        Ok(result) if result["ok"] == true => match &result["data"] {
            Value::String(text) => text.clone(),
            data => data.to_string(),
        },
        _ => content.to_owned(),
    }
}

//! Reads AG-UI events more loosely than the protocol's own client.
//!
//! Optional fields may be null, ids may be missing, names before version 1.0 (`THINKING_*`) are known, and unknown
//! types are kept as [`UpstreamEvent::Other`]. Only data without a `type` is refused.

use budao_core::message::Usage;
use serde_json::Value;

/// One upstream event, reduced to what the relay projects.
#[derive(Clone, Debug, PartialEq)]
pub enum UpstreamEvent {
    /// The run began.
    RunStarted,
    /// The run ended as planned.
    RunFinished(RunEnd),
    /// The run failed.
    RunError {
        /// The agent's own words, for the operator.
        message: String,
        /// The agent's own code.
        code: Option<String>,
        /// Tokens of the run.
        usage: Option<Usage>,
    },
    /// A message or a call opened, grew or closed.
    Stream {
        /// The sort of the item.
        item: ItemKind,
        /// The agent's id of the item; empty if it gave none.
        id: String,
        /// What happened to the item.
        change: Change,
    },
    /// A call has its result.
    CallResult {
        /// The agent's id of the call.
        id: String,
        /// The result: a text or parts.
        content: Value,
    },
    /// The shared state was replaced.
    StateSnapshot(Value),
    /// The shared state was changed by a JSON Patch.
    StateDelta(Vec<Value>),
    /// The agent's whole view of the conversation.
    MessagesSnapshot(Vec<Value>),
    /// LangGraph's interrupt before version 1.0; its payload.
    LegacyInterrupt(Value),
    /// An event of the framework below the protocol; never recorded.
    Raw,
    /// An event that is recorded and not projected.
    Other,
}

/// The sorts of items that stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ItemKind {
    /// Text of the answer.
    Text,
    /// Reasoning before or between answers.
    Thought,
    /// A tool call.
    Call,
}

/// What happened to an item.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// The item opened: the tool's name for a call, the author's role for a text.
    Start(Option<String>),
    /// The item grew by this text.
    Delta(String),
    /// The item is complete.
    End,
    /// The item opened or grew; a chunk has no start and no end of its own.
    Chunk {
        /// The tool's name or the author's role.
        name: Option<String>,
        /// The new text.
        delta: String,
    },
}

/// The end of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunEnd {
    /// The interrupts that wait for people; empty for a run that is finished.
    pub interrupts: Vec<Value>,
    /// Calls that the agent expects its client to make.
    pub pending_calls: Vec<String>,
    /// Whether the agent says that the run was cancelled.
    pub is_cancelled: bool,
    /// Tokens of the run.
    pub usage: Option<Usage>,
}

/// The `type` of an event; `None` if it has none.
#[must_use]
pub fn event_type(event: &Value) -> Option<&str> {
    event.get("type")?.as_str()
}

/// Reads an event. `None` if it has no `type`.
#[must_use]
pub fn parse(event: &Value) -> Option<UpstreamEvent> {
    let name = event_type(event)?;
    if let Some((item, change)) = stream_change(name, event) {
        let key = if item == ItemKind::Call { "toolCallId" } else { "messageId" };
        let id = text(&event[key]).unwrap_or_default();
        return Some(UpstreamEvent::Stream { item, id, change });
    }
    Some(match name {
        "RUN_STARTED" => UpstreamEvent::RunStarted,
        "RUN_FINISHED" => UpstreamEvent::RunFinished(run_end(event)),
        "RUN_ERROR" => UpstreamEvent::RunError {
            message: text(&event["message"]).unwrap_or_default(),
            code: text(&event["code"]),
            usage: usage(&event["usage"]),
        },
        "TOOL_CALL_RESULT" => UpstreamEvent::CallResult {
            id: text(&event["toolCallId"]).unwrap_or_default(),
            content: event["content"].clone(),
        },
        "STATE_SNAPSHOT" => UpstreamEvent::StateSnapshot(event["snapshot"].clone()),
        "STATE_DELTA" => UpstreamEvent::StateDelta(list(&event["delta"])),
        "MESSAGES_SNAPSHOT" => UpstreamEvent::MessagesSnapshot(list(&event["messages"])),
        "CUSTOM" if event["name"] == "on_interrupt" => {
            UpstreamEvent::LegacyInterrupt(event["value"].clone())
        }
        "RAW" => UpstreamEvent::Raw,
        _ => UpstreamEvent::Other,
    })
}

fn stream_change(name: &str, event: &Value) -> Option<(ItemKind, Change)> {
    let (item, verb) = match name {
        "THINKING_START" | "THINKING_END" | "REASONING_START" | "REASONING_END" => return None,
        _ if name.starts_with("TEXT_MESSAGE_") => (ItemKind::Text, &name["TEXT_MESSAGE_".len()..]),
        _ if name.starts_with("REASONING_MESSAGE_") => {
            (ItemKind::Thought, &name["REASONING_MESSAGE_".len()..])
        }
        _ if name.starts_with("THINKING_TEXT_MESSAGE_") => {
            (ItemKind::Thought, &name["THINKING_TEXT_MESSAGE_".len()..])
        }
        _ if name.starts_with("TOOL_CALL_") => (ItemKind::Call, &name["TOOL_CALL_".len()..]),
        _ => return None,
    };
    let naming = || match item {
        ItemKind::Call => text(&event["toolCallName"]),
        ItemKind::Text => text(&event["role"]),
        ItemKind::Thought => None,
    };
    let delta = || text(&event["delta"]).unwrap_or_default();
    let change = match verb {
        "START" => Change::Start(naming()),
        "CONTENT" | "ARGS" => Change::Delta(delta()),
        "END" => Change::End,
        "CHUNK" => Change::Chunk { name: naming(), delta: delta() },
        _ => return None,
    };
    Some((item, change))
}

fn run_end(event: &Value) -> RunEnd {
    let outcome = &event["outcome"];
    let interrupts = match outcome["type"].as_str() {
        Some("interrupt") => list(&outcome["interrupts"]),
        _ => Vec::new(),
    };
    let pending = list(&outcome["pendingToolCallIds"]);
    RunEnd {
        interrupts,
        pending_calls: pending.iter().filter_map(text).collect(),
        is_cancelled: outcome["type"] == "cancelled",
        usage: usage(&event["usage"]),
    }
}

/// Sums the token counts of a run.
fn usage(counts: &Value) -> Option<Usage> {
    let entries = counts.as_array().filter(|entries| !entries.is_empty())?;
    let mut sum = Usage::default();
    for entry in entries {
        let number = |key: &str| entry[key].as_u64().unwrap_or(0);
        sum += Usage {
            input_tokens: number("inputTokens"),
            output_tokens: number("outputTokens"),
            cached_tokens: number("cachedInputTokens"),
            cache_write_tokens: number("cacheWriteInputTokens"),
            reasoning_tokens: number("reasoningTokens"),
            ..Usage::default()
        };
    }
    Some(sum)
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

fn list(value: &Value) -> Vec<Value> {
    value.as_array().cloned().unwrap_or_default()
}

/// Whether `next` continues `event`: the same sort of delta, of the same item. A chunk may leave its id out.
#[must_use]
pub fn continues(event: &Value, next: &Value) -> bool {
    const DELTAS: [&str; 7] = [
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_CHUNK",
        "TOOL_CALL_ARGS",
        "TOOL_CALL_CHUNK",
        "REASONING_MESSAGE_CONTENT",
        "REASONING_MESSAGE_CHUNK",
        "THINKING_TEXT_MESSAGE_CONTENT",
    ];
    let is_chunk = event_type(event).is_some_and(|name| name.ends_with("_CHUNK"));
    let has_same = |key: &str| event[key] == next[key] || (is_chunk && next[key].is_null());
    event_type(event).is_some_and(|name| DELTAS.contains(&name))
        && event["type"] == next["type"]
        && has_same("messageId")
        && has_same("toolCallId")
        && event["delta"].is_string()
        && next["delta"].is_string()
}

/// Appends the delta of `next` to `event`. Call it only if `next` continues `event`.
pub fn join(event: &mut Value, next: &Value) {
    if let (Some(Value::String(delta)), Some(more)) =
        (event.get_mut("delta"), next["delta"].as_str())
    {
        delta.push_str(more);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn null_fields_missing_ids_and_old_names_are_read() {
        let start = json!({"type": "TEXT_MESSAGE_START", "messageId": null, "role": null});
        let change = Change::Start(None);
        let item = ItemKind::Text;
        assert_eq!(parse(&start), Some(UpstreamEvent::Stream { item, id: String::new(), change }));
        let thinking = json!({"type": "THINKING_TEXT_MESSAGE_CONTENT", "delta": "hm"});
        let change = Change::Delta("hm".to_owned());
        let item = ItemKind::Thought;
        assert_eq!(
            parse(&thinking),
            Some(UpstreamEvent::Stream { item, id: String::new(), change })
        );
        let finished = json!({"type": "RUN_FINISHED", "outcome": null, "usage": null});
        assert_eq!(parse(&finished), Some(UpstreamEvent::RunFinished(RunEnd::default())));
        assert_eq!(parse(&json!({"type": "BRAND_NEW", "x": 1})), Some(UpstreamEvent::Other));
        assert_eq!(parse(&json!({"type": 7})), None);
        assert_eq!(parse(&json!([])), None);
    }

    #[test]
    fn usage_is_the_sum_of_all_models() {
        let event = json!({"type": "RUN_FINISHED", "usage": [
            {"model": "a", "inputTokens": 10, "outputTokens": 2, "cachedInputTokens": 4},
            {"model": "b", "inputTokens": 1, "outputTokens": null},
        ]});
        let Some(UpstreamEvent::RunFinished(end)) = parse(&event) else { panic!("a run's end") };
        let sum =
            Usage { input_tokens: 11, output_tokens: 2, cached_tokens: 4, ..Usage::default() };
        assert_eq!(end.usage, Some(sum));
    }

    #[test]
    fn only_deltas_of_the_same_item_are_joined() {
        let delta = |kind: &str, id: &str| json!({"type": kind, "messageId": id, "delta": "a"});
        let first = delta("TEXT_MESSAGE_CONTENT", "m");
        assert!(continues(&first, &delta("TEXT_MESSAGE_CONTENT", "m")));
        assert!(!continues(&first, &delta("TEXT_MESSAGE_CONTENT", "n")));
        assert!(!continues(&first, &delta("REASONING_MESSAGE_CONTENT", "m")));
        let end = json!({"type": "TEXT_MESSAGE_END", "messageId": "m"});
        assert!(!continues(&end, &end));
        let mut joined = first.clone();
        join(&mut joined, &first);
        assert_eq!(joined["delta"], "aa");
    }
}

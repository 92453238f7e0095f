//! What is always true of a conversation with an agent, checked over the whole of it.
//!
//! - Every request has exactly one answer.
//! - Whatever is shown of a prompt (its words, its calls; both carry its name) comes after the prompt and
//!   before its answer, and while no earlier prompt of the session is unanswered.
//! - Outside of prompts nothing is said, but what the engine says of its own accord.
//! - A prompt that ended well was shown its words, all of them, in order, each once; any other a beginning of
//!   them.
//! - Every call that was shown came to its end before the prompt's answer.

use std::collections::BTreeMap;

use serde_json::Value;

use budao_testkit::claude::BY_ITSELF;

use crate::{
    editor::{Party, TranscriptLine},
    fixture::words,
};

/// Who answers, and how one can tell whose words are whose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AgentKind {
    /// The obedient model: every word has its prompt's name.
    Obedient,
    /// The Claude CLI, played: an answer has its prompt's name at its end, so all that is said while a
    /// prompt is due is held against that prompt's answer.
    Claude,
}

impl AgentKind {
    fn answer(self, prompt: &str) -> String {
        let mut parts = prompt.split_whitespace();
        match self {
            Self::Claude => budao_testkit::claude::answer(prompt),
            Self::Obedient => {
                let name = parts.next().unwrap_or_default();
                words(name, parts.nth(1).and_then(|count| count.parse().ok()).unwrap_or(3))
            }
        }
    }
}

/// A prompt of the conversation.
#[derive(Debug)]
struct Prompt {
    session: String,
    name: String,
    verb: String,
    /// The whole answer to it.
    shown_text: String,
    id: String,
    shown: String,
    calls: BTreeMap<String, String>,
    answer: Option<Value>,
}

/// Looks at a whole conversation; what is wrong with it.
pub(crate) fn transcript(lines: &[TranscriptLine], agent_kind: AgentKind) -> Result<(), String> {
    let mut prompts: Vec<Prompt> = Vec::new();
    let mut open: BTreeMap<String, Value> = BTreeMap::new();
    for line in lines {
        let value = &line.value;
        let (id, method) = (value.get("id"), value["method"].as_str());
        match (line.from, id, method) {
            (Party::Editor, Some(id), Some(method)) => {
                open.insert(id.to_string(), value.clone());
                if method == "session/prompt" {
                    prompts.extend(prompt(value, agent_kind));
                }
            }
            (Party::Agent, Some(id), None) => {
                let Some(request) = open.remove(&id.to_string()) else {
                    return Err(format!("an answer nobody waits for: {value}"));
                };
                if request["method"] == "session/prompt" {
                    answered(&mut prompts, &id.to_string(), value)?;
                }
            }
            (Party::Agent, None, Some("session/update")) => {
                let is_history = |request: &Value| {
                    request["method"] == "session/load"
                        && request["params"]["sessionId"] == value["params"]["sessionId"]
                };
                if !open.values().any(is_history) {
                    updated(&mut prompts, value, agent_kind)?;
                }
            }
            _ => {}
        }
    }
    match open.values().next() {
        Some(request) => Err(format!("never answered: {request}")),
        None => Ok(()),
    }
}

fn prompt(value: &Value, agent_kind: AgentKind) -> Option<Prompt> {
    let text = value["params"]["prompt"][0]["text"].as_str()?;
    let mut parts = text.split_whitespace();
    let name = parts.next().filter(|name| name.starts_with('P'))?.to_owned();
    Some(Prompt {
        session: value["params"]["sessionId"].as_str()?.to_owned(),
        name,
        verb: parts.next().unwrap_or("say").to_owned(),
        shown_text: agent_kind.answer(text),
        id: value["id"].to_string(),
        shown: String::new(),
        calls: BTreeMap::new(),
        answer: None,
    })
}

/// The prompt of that name, which must be the one whose turn it is.
fn current<'a>(
    prompts: &'a mut [Prompt],
    session: &str,
    name: &str,
    what: &Value,
) -> Result<&'a mut Prompt, String> {
    let mine = |prompt: &&mut Prompt| prompt.session == session && prompt.answer.is_none();
    let oldest = prompts.iter_mut().find(mine);
    match oldest {
        Some(prompt) if prompt.name == name => Ok(prompt),
        other => Err(format!("of {name}, while {:?} is due: {what}", other.map(|p| &p.name))),
    }
}

/// Words of the CLI's: those of the prompt whose turn it is, or of a turn without a prompt. A sentence
/// of the bridge's own, before a refusal, belongs to no prompt.
fn shown_text(prompts: &mut [Prompt], session: &str, value: &Value) -> Result<(), String> {
    let update = &value["params"]["update"];
    let text = update["content"]["text"].as_str().unwrap_or_default();
    let is_bridges = update["messageId"].as_str().is_some_and(|id| id.ends_with(".end"));
    if text == BY_ITSELF || is_bridges {
        return Ok(());
    }
    let due = |prompt: &&mut Prompt| prompt.session == session && prompt.answer.is_none();
    match prompts.iter_mut().find(due) {
        Some(prompt) => prompt.shown.push_str(text),
        None => return Err(format!("said while nothing is asked: {value}")),
    }
    Ok(())
}

fn updated(prompts: &mut [Prompt], value: &Value, agent_kind: AgentKind) -> Result<(), String> {
    let session = value["params"]["sessionId"].as_str().unwrap_or_default();
    let update = &value["params"]["update"];
    match update["sessionUpdate"].as_str() {
        Some("agent_message_chunk") if agent_kind == AgentKind::Claude => {
            shown_text(prompts, session, value)?;
        }
        Some("agent_message_chunk") => {
            let text = update["content"]["text"].as_str().unwrap_or_default();
            for word in text.split_inclusive(' ') {
                // Sentences of ours (a refusal's) are no words of a prompt.
                let Some((name, _)) =
                    word.split_once('.').filter(|(name, _)| name.starts_with('P'))
                else {
                    continue;
                };
                current(prompts, session, name, value)?.shown.push_str(word);
            }
        }
        Some("tool_call" | "tool_call_update") => {
            let id = update["toolCallId"].as_str().unwrap_or_default();
            let is_its =
                |prompt: &&Prompt| prompt.session == session && prompt.calls.contains_key(id);
            let input = &update["rawInput"];
            // The obedient model names its prompt in each call, the played CLI echoes it.
            let echoed = || input["command"].as_str()?.split_whitespace().nth(1);
            let name = match input["name"].as_str().or_else(echoed) {
                Some(name) => Some(name.to_owned()),
                None => prompts.iter().find(is_its).map(|prompt| prompt.name.clone()),
            };
            let prompt = current(prompts, session, &name.unwrap_or_default(), value)?;
            let status = update["status"].as_str();
            let before = prompt.calls.get(id).cloned();
            if before.as_deref().is_some_and(is_final) {
                return Err(format!("a call changed after its end: {value}"));
            }
            let status = status.map_or_else(|| before.unwrap_or("pending".into()), str::to_owned);
            prompt.calls.insert(id.to_owned(), status);
        }
        _ => {}
    }
    Ok(())
}

fn is_final(status: &str) -> bool {
    status == "completed" || status == "failed"
}

fn answered(prompts: &mut [Prompt], id: &str, value: &Value) -> Result<(), String> {
    let Some(prompt) = prompts.iter_mut().find(|prompt| prompt.id == id) else { return Ok(()) };
    prompt.answer = Some(value.clone());
    if let Some((call, status)) = prompt.calls.iter().find(|(_, status)| !is_final(status)) {
        return Err(format!("{call} is {status} at the end of its turn"));
    }
    let shown_text = prompt.shown_text.as_str();
    let is_whole = prompt.shown == shown_text;
    let fits = match value["result"]["stopReason"].as_str() {
        Some("end_turn" | "max_tokens") => is_whole,
        _ => shown_text.starts_with(&prompt.shown) || prompt.verb == "stall",
    };
    if fits { Ok(()) } else { Err(format!("{prompt:?} was shown {:?}", prompt.shown)) }
}

mod tests {
    use serde_json::json;

    use super::*;

    fn line(from: Party, value: Value) -> TranscriptLine {
        TranscriptLine { from, value }
    }

    fn asks(id: u64, text: &str) -> TranscriptLine {
        let prompt = json!([{"type": "text", "text": text}]);
        let params = json!({"sessionId": "s", "prompt": prompt});
        line(Party::Editor, json!({"id": id, "method": "session/prompt", "params": params}))
    }

    fn text(text: &str) -> TranscriptLine {
        let update = json!({"sessionUpdate": "agent_message_chunk", "content": {"text": text}});
        let params = json!({"sessionId": "s", "update": update});
        line(Party::Agent, json!({"method": "session/update", "params": params}))
    }

    fn calls(id: &str, status: &str) -> TranscriptLine {
        let update = json!({"sessionUpdate": "tool_call", "toolCallId": id, "status": status, "rawInput": {"name": "P1"}});
        let params = json!({"sessionId": "s", "update": update});
        line(Party::Agent, json!({"method": "session/update", "params": params}))
    }

    fn ends(id: u64) -> TranscriptLine {
        line(Party::Agent, json!({"id": id, "result": {"stopReason": "end_turn"}}))
    }

    /// Goal: the checker notices each of the mistakes it is there for.
    #[test]
    fn the_check_finds_planted_mistakes() {
        let good = [asks(1, "P1 say 2"), text("P1.1 "), text("P1.2 "), ends(1)];
        assert_eq!(transcript(&good, AgentKind::Obedient), Ok(()));
        let bad: [&[TranscriptLine]; 8] = [
            &[asks(1, "P1 say 2"), text("P1.1 P1.2 ")],
            &[asks(1, "P1 say 1"), text("P1.1 "), ends(1), ends(1)],
            &[asks(1, "P1 say 2"), text("P1.1 "), ends(1)],
            &[asks(1, "P1 say 1"), ends(1), text("P1.1 ")],
            &[asks(1, "P1 say 1"), text("P1.1 P1.1 "), ends(1)],
            &[asks(1, "P1 say 1"), asks(2, "P2 say 1"), text("P2.1 "), ends(1), ends(2)],
            &[asks(1, "P1 say 1"), calls("P1-x", "pending"), text("P1.1 "), ends(1)],
            &[
                asks(1, "P1 say 1"),
                calls("P1-x", "failed"),
                calls("P1-x", "completed"),
                text("P1.1 "),
                ends(1),
            ],
        ];
        for lines in bad {
            assert!(transcript(lines, AgentKind::Obedient).is_err(), "{lines:?}");
        }
        let answer = "the answer to P1";
        let good = [asks(1, "P1 @slow"), text(answer), ends(1), text(BY_ITSELF)];
        assert_eq!(transcript(&good, AgentKind::Claude), Ok(()));
        let bad: [&[TranscriptLine]; 4] = [
            &[asks(1, "P1"), ends(1)],
            &[asks(1, "P1"), text(answer), ends(1), text("more")],
            &[asks(1, "P1"), text(answer), text(answer), ends(1)],
            &[asks(1, "P1"), asks(2, "P2"), text("the answer to P2"), ends(1)],
        ];
        for lines in bad {
            assert!(transcript(lines, AgentKind::Claude).is_err(), "{lines:?}");
        }
    }
}

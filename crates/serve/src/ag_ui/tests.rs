//! The projection: a readable picture of one session, the client's own verifier over many, and cuts at every event.

use budao_core::{
    Event, Lang, Record, Timestamp,
    event::{Decision, QuestionId, QuestionPurpose},
    message::CallId,
    session::Session,
    spending::RAISE_CAP,
    tool::{Outcome, Output},
};
use serde_json::{Value, json};

use super::{conversation::Conversation, projector::AgUiProjector};
use crate::front_end::{EventSink, Prelude, Projection as _, generated};

struct Stream {
    projector: AgUiProjector,
    conversation: Conversation,
}

impl Stream {
    fn new() -> Self {
        let projector = AgUiProjector::new("thread", &Session::default(), 0, Lang::En);
        Self { projector, conversation: Conversation::new(Lang::En) }
    }

    /// The events of a record, with their place.
    fn apply(&mut self, record: &Record) -> Vec<((u64, usize), String)> {
        let mut sink = EventSink::default();
        self.conversation.apply(record);
        self.projector.project(record, &mut sink);
        let events = sink.into_json(|| self.conversation.encode()).into_iter().enumerate();
        events.map(|(index, (json, _))| ((record.seq, index), json)).collect()
    }
}

fn events_of(records: &[Record]) -> Vec<((u64, usize), String)> {
    let mut stream = Stream::new();
    records.iter().flat_map(|record| stream.apply(record)).collect()
}

#[test]
fn a_session_as_ag_ui_events() {
    let events = events_of(&generated::SessionGenerator::new(3).records);
    let lines: Vec<String> =
        events.iter().map(|((seq, index), json)| format!("{seq}.{index} {json}")).collect();
    insta::assert_snapshot!(lines.join("\n"));
}

#[test]
fn a_question_about_a_cap_and_its_answer_name_the_cap() {
    let mut records = generated::SessionGenerator::new(3).records;
    let turn = records.iter().position(|it| matches!(it.event, Event::TurnStarted { .. })).unwrap();
    records.truncate(turn + 1);
    let setting = "models.spending.turn";
    let (call, question) = (CallId::from("raise"), QuestionId("ask".into()));
    let asked = Event::QuestionAsked {
        question: question.clone(),
        call: call.clone(),
        tool: RAISE_CAP.to_owned(),
        arguments: json!({ "setting": setting, "spent": "0.9 USD", "cap": "1 USD", "more": "2 USD" }),
        repairs: Vec::new(),
        digest: "d".to_owned(),
        idempotent: true,
        reason: "the spending cap is reached".to_owned(),
        purpose: QuestionPurpose::Permission,
        expires_at: Timestamp::from_micros(1_800_000_000_000_000),
    };
    let answered = Event::QuestionAnswered {
        question,
        call: call.clone(),
        decision: Decision::Allow,
        by: "ada".to_owned(),
        note: None,
        arguments: None,
    };
    let data = json!({ "setting": setting, "more": "2 USD", "by": "ada" });
    let outcome = Outcome::Done(Output { data, ..Output::default() });
    let ended = Event::ToolCallEnded { call, tool: RAISE_CAP.to_owned(), outcome, duration_ms: 0 };
    for event in [asked, answered, ended] {
        let last = records.last().unwrap();
        records.push(Record { seq: last.seq + 1, event, ..last.clone() });
    }
    let events: Vec<String> = events_of(&records).into_iter().map(|(_, json)| json).collect();
    let text = events.join("\n");
    let question = format!(
        "The spending cap {setting} is reached: 0.9 USD of 1 USD are spent. Allow 2 USD more?"
    );
    assert!(text.contains(&question), "{text}");
    assert!(text.contains(&format!("The spending cap {setting} is raised by 2 USD.")), "{text}");
    assert!(!text.contains("TOOL_CALL_RESULT"), "the model made no call: {text}");
}

/// Reads streams, one JSON list a line; prints the number of streams that the verifier of the client accepts. Then
/// applies them: the messages of the client equal the last line of each stream, a snapshot.
const VERIFIER: &str = r#"
import { verifyEvents, enforceEvents, defaultApplyEvents } from "@ag-ui/client";
import { from, lastValueFrom, toArray } from "rxjs";
import { createInterface } from "node:readline";
let accepted = 0;
for await (const line of createInterface({ input: process.stdin })) {
  const { events, messages } = JSON.parse(line);
  const verified = await lastValueFrom(from(events).pipe(verifyEvents(false), toArray()));
  if (verified.length !== events.length) throw new Error("events were dropped");
  const input = { threadId: "thread", runId: "r", messages: [], state: {}, tools: [], context: [] };
  const agent = { messages: [], state: {}, threadId: "thread" };
  const mutations = await lastValueFrom(defaultApplyEvents(input, from(verified), agent, []).pipe(toArray()));
  const last = mutations.map(({ messages }) => messages).filter(Boolean).at(-1) ?? [];
  const strip = (list) => JSON.stringify(list.filter(({ role }) => role === "assistant" || role === "tool")
    .map(({ id, role, content, toolCalls, toolCallId }) => ({ id, role, content: content ?? "", toolCalls: toolCalls ?? [], toolCallId })));
  if (strip(last) !== strip(messages)) throw new Error(`messages differ:\n${strip(last)}\n${strip(messages)}`);
  accepted++;
}
console.log(accepted);
"#;

#[test]
fn the_verifier_of_the_client_accepts_generated_sessions_and_builds_the_same_messages() {
    let (mut input, sessions) = (String::new(), generated::sessions());
    for seed in 0..sessions {
        let records = generated::SessionGenerator::new(seed).records;
        let mut stream = Stream::new();
        let events: Vec<String> =
            records.iter().flat_map(|record| stream.apply(record)).map(|(_, json)| json).collect();
        let snapshot: Value = serde_json::from_str(&stream.conversation.encode()).unwrap();
        let messages = &snapshot["messages"];
        input.push_str(&format!("{{\"events\":[{}],\"messages\":{messages}}}\n", events.join(",")));
    }
    if let Some(output) = generated::run_client(VERIFIER, &input) {
        assert_eq!(output.trim(), sessions.to_string());
    }
}

#[test]
fn a_projection_that_begins_with_the_running_turn_gives_the_same_events() {
    for seed in 0..200 {
        let records = generated::SessionGenerator::new(seed).records;
        let whole = events_of(&records);
        let last = records.last().map_or(0, |record| record.turn);
        for turn in 1..=last {
            let is_start = |record: &Record| {
                record.turn == turn && matches!(record.event, Event::TurnStarted { .. })
            };
            let began = records.iter().position(is_start).unwrap();
            let mut state = Session::default();
            state.apply_all(&records[..began]);
            let mut projector = AgUiProjector::new("thread", &state, began as u64, Lang::En);
            let mut rest = Vec::new();
            for record in records.iter().skip(began).filter(|record| record.turn == turn) {
                let mut sink = EventSink::default();
                projector.project(record, &mut sink);
                let events = sink.into_json(|| "snapshot".to_owned()).into_iter().enumerate();
                rest.extend(events.map(|(index, (json, _))| ((record.seq, index), json)));
            }
            let plain = |events: &[((u64, usize), String)]| -> Vec<((u64, usize), String)> {
                let last = rest.last().map_or(0, |((seq, _), _)| *seq);
                let inside =
                    |((seq, _), _): &&((u64, usize), String)| *seq > began as u64 && *seq <= last;
                let json = |json: &String| match json.contains("MESSAGES_SNAPSHOT") {
                    true => "snapshot".to_owned(),
                    false => json.clone(),
                };
                events.iter().filter(inside).map(|(place, text)| (*place, json(text))).collect()
            };
            assert_eq!(plain(&rest), plain(&whole), "seed {seed}, turn {turn}");
        }
    }
}

#[test]
fn a_client_that_joins_anywhere_has_the_conversation_of_one_that_was_there() {
    for seed in 0..200 {
        let records = generated::SessionGenerator::new(seed).records;
        let mut stream = Stream::new();
        for record in &records {
            stream.apply(record);
            let mut sink = EventSink::default();
            stream.projector.clone().prelude(Prelude::Always, &mut sink);
            let events = sink.into_json(|| "\"snapshot\"".to_owned());
            let kinds: Vec<Value> = events
                .iter()
                .map(|(json, _)| serde_json::from_str::<Value>(json).unwrap()["type"].clone())
                .collect();
            assert_eq!(kinds.first().unwrap(), "RUN_STARTED", "seed {seed}");
            assert_eq!(events[1].0, "\"snapshot\"");
        }
    }
}

#[test]
fn an_event_costs_a_few_microseconds() {
    generated::check_cost("AG-UI", |records| {
        let mut projector = AgUiProjector::new("thread", &Session::default(), 0, Lang::En);
        let mut events = 0;
        for record in records {
            let mut sink = EventSink::default();
            projector.project(record, &mut sink);
            events += sink.into_json(String::new).len();
        }
        events
    });
}

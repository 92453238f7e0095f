//! The projection: a readable picture of one session, the client's own verifier over many, and cuts at every event.

use budao_core::{Event, Lang, Record, event::Decision, session::Session};
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
        let events = sink.into_json(|| self.conversation.events()).into_iter().enumerate();
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
    let setting = "models.spending.turn";
    let records = generated::raised_cap(setting, Decision::Allow);
    let events: Vec<String> = events_of(&records).into_iter().map(|(_, json)| json).collect();
    let text = events.join("\n");
    let question = format!(
        "The spending cap {setting} is reached: 0.9 USD of 1 USD are spent. Allow 2 USD more?"
    );
    assert!(text.contains(&question), "{text}");
    assert!(text.contains(&format!("The spending cap {setting} is raised by 2 USD.")), "{text}");
    assert!(!text.contains("TOOL_CALL_RESULT"), "the model made no call: {text}");
}

#[test]
fn a_result_that_the_front_end_sent_is_not_sent_back_and_keeps_its_id_in_a_snapshot() {
    let mut own = 0;
    for seed in 0..50 {
        let mut stream = Stream::new();
        let records = generated::SessionGenerator::new(seed).records;
        let events: Vec<_> = records.iter().flat_map(|record| stream.apply(record)).collect();
        let snapshot = stream.conversation.encode();
        for record in &records {
            let Event::Annotated { data, .. } = &record.event else { continue };
            let Some(results) = data["results"].as_object() else { continue };
            for (call, id) in results {
                own += 1;
                let is_result = |json: &str| {
                    json.contains("TOOL_CALL_RESULT")
                        && json.contains(&format!(r#""toolCallId":"{call}""#))
                };
                assert!(!events.iter().any(|(_, json)| is_result(json)), "seed {seed}: {call}");
                assert!(snapshot.contains(id.as_str().unwrap()), "seed {seed}: {snapshot}");
                assert!(!snapshot.contains(&format!("{call}.result")), "seed {seed}: {snapshot}");
            }
        }
    }
    assert!(own > 10, "{own} results of front ends");
}

/// Reads streams, one JSON list a line; prints the number of streams that the verifier of the client accepts. Then
/// applies them: the messages of the client equal the last line of each stream, a snapshot.
const VERIFIER: &str = r#"
import { verifyEvents, enforceEvents, defaultApplyEvents } from "@ag-ui/client";
import { from, lastValueFrom, toArray } from "rxjs";
import { createInterface } from "node:readline";
let accepted = 0;
for await (const line of createInterface({ input: process.stdin })) {
  const { events, messages, state, joined } = JSON.parse(line);
  const verified = await lastValueFrom(from(events).pipe(verifyEvents(false), toArray()));
  if (verified.length !== events.length) throw new Error("events were dropped");
  const input = { threadId: "thread", runId: "r", messages: [], state: {}, tools: [], context: [] };
  const agent = { messages: [], state: {}, threadId: "thread" };
  const mutations = await lastValueFrom(defaultApplyEvents(input, from(verified), agent, []).pipe(toArray()));
  const last = mutations.map(({ messages }) => messages).filter(Boolean).at(-1) ?? [];
  // The client puts a result that comes after a snapshot before those of the snapshot.
  const sorted = (list) => {
    const keyed = list.map((message, index) => [list.slice(0, index).filter(({ role }) => role === "assistant").length, message.role === "tool" ? message.id : "~", message]);
    return keyed.sort(([a, m], [b, n]) => a - b || (m < n ? -1 : m > n ? 1 : 0)).map(([, , message]) => message);
  };
  // A result of the front end is not in the stream, because a client has a message of its own for it.
  const known = (list) => list.filter(({ role, id }) => role === "assistant" || (role === "tool" && !id.startsWith("own-")));
  const strip = (list) => JSON.stringify((joined ? sorted(known(list)) : known(list))
    .map(({ id, role, content, toolCalls, toolCallId }) => ({ id, role, content: content ?? "", toolCalls: toolCalls ?? [], toolCallId })));
  if (strip(last) !== strip(messages)) throw new Error(`messages differ:\n${strip(last)}\n${strip(messages)}`);
  const sortedKeys = (value) => JSON.stringify(value, (_, inner) => (inner && typeof inner === "object" && !Array.isArray(inner) ? Object.fromEntries(Object.entries(inner).sort()) : inner));
  const activities = (list) => sortedKeys(list.filter(({ role }) => role === "activity").sort((a, b) => (a.id < b.id ? -1 : 1)));
  if (activities(last) !== activities(messages)) throw new Error(`activities differ:\n${activities(last)}\n${activities(messages)}`);
  const lastState = mutations.map(({ state }) => state).filter(Boolean).at(-1) ?? {};
  if (sortedKeys(lastState) !== sortedKeys(state)) throw new Error(`states differ:\n${sortedKeys(lastState)}\n${sortedKeys(state)}`);
  accepted++;
}
console.log(accepted);
"#;

/// A line for the verifier: events, the messages that a client has after them, and whether it joined late.
fn verifier_line(events: &[String], conversation: &Conversation, joined: bool) -> String {
    let snapshot: Value = serde_json::from_str(&conversation.encode()).unwrap();
    let (events, messages) = (events.join(","), &snapshot["messages"]);
    let mut state = json!({});
    for event in conversation.events() {
        let event: Value = serde_json::from_str(&event).unwrap();
        match event["type"].as_str() {
            Some("STATE_SNAPSHOT") => state = event["snapshot"].clone(),
            Some("STATE_DELTA") => state["todos"] = event["delta"][0]["value"].clone(),
            _ => {}
        }
    }
    format!(
        "{{\"joined\":{joined},\"events\":[{events}],\"messages\":{messages},\"state\":{state}}}\n"
    )
}

/// The lines of the verifier for a stream of the whole session.
fn whole_stream(records: &[Record]) -> String {
    let mut stream = Stream::new();
    let events = records.iter().flat_map(|record| stream.apply(record)).map(|(_, json)| json);
    let events: Vec<String> = events.collect();
    verifier_line(&events, &stream.conversation, false)
}

/// The stream of a client that joins after so many records: the prelude, then the events up to the end of the run.
fn joined_stream(records: &[Record], joined: usize) -> String {
    let mut stream = Stream::new();
    for record in &records[..joined] {
        stream.apply(record);
    }
    let mut sink = EventSink::default();
    stream.projector.prelude(Prelude::Always, &mut sink);
    let prelude = sink.into_json(|| stream.conversation.events());
    let mut is_over = prelude.last().is_some_and(|(_, is_end)| *is_end);
    let mut events: Vec<String> = prelude.into_iter().map(|(json, _)| json).collect();
    for record in &records[joined..] {
        if is_over {
            break;
        }
        let mut sink = EventSink::default();
        stream.conversation.apply(record);
        stream.projector.project(record, &mut sink);
        for (json, is_end) in sink.into_json(|| stream.conversation.events()) {
            events.push(json);
            is_over |= is_end;
        }
    }
    verifier_line(&events, &stream.conversation, true)
}

/// The stream of a client that was cut after so many events and resumed: the rest comes from a projection that begins
/// with the turn of the cut.
fn resumed_stream(records: &[Record], cut: usize) -> String {
    let whole = events_of(records);
    let Some((place, _)) = whole.get(cut) else { return whole_stream(records) };
    let fold = |until: u64| {
        let mut state = Session::default();
        let until = records.iter().take_while(|record| record.seq <= until);
        until.for_each(|record| state.apply_record(record));
        state
    };
    let turn = fold(place.0).turn.or_else(|| fold(place.0 - 1).turn);
    let from = turn.map_or(place.0, |turn| turn.began.saturating_sub(1).min(place.0));
    let mut stream = Stream::new();
    stream.projector = AgUiProjector::new("thread", &fold(from), from, Lang::En);
    let mut events: Vec<String> = whole[..=cut].iter().map(|(_, json)| json.clone()).collect();
    for record in records {
        if record.seq <= from {
            stream.conversation.apply(record);
            continue;
        }
        let rest = stream.apply(record).into_iter().filter(|(at, _)| at > place);
        events.extend(rest.map(|(_, json)| json));
    }
    verifier_line(&events, &stream.conversation, false)
}

#[test]
fn the_verifier_of_the_client_accepts_generated_sessions_and_builds_the_same_messages() {
    for seeds in generated::seeds() {
        let (mut input, sessions) = (String::new(), seeds.end - seeds.start);
        for seed in seeds {
            let records = generated::SessionGenerator::new(seed).records;
            let some =
                |of: usize| usize::try_from(seed.wrapping_mul(2_654_435_761) >> 8).unwrap() % of;
            input.push_str(&whole_stream(&records));
            input.push_str(&joined_stream(&records, some(records.len() + 1)));
            input.push_str(&resumed_stream(&records, some(events_of(&records).len())));
        }
        if let Some(output) = generated::run_client(VERIFIER, &input) {
            assert_eq!(output.trim(), (sessions * 3).to_string());
        }
    }
}

#[test]
fn a_projection_that_begins_with_the_running_turn_gives_the_same_events() {
    for seed in 0..200 {
        let records = generated::SessionGenerator::new(seed).records;
        let mut projector = AgUiProjector::new("thread", &Session::default(), 0, Lang::En);
        let mut whole = Vec::new();
        for record in &records {
            let mut sink = EventSink::default();
            projector.project(record, &mut sink);
            let events = sink.into_json(|| vec!["snapshot".to_owned()]).into_iter().enumerate();
            whole.extend(events.map(|(index, (json, _))| ((record.seq, index), json)));
        }
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
                let events = sink.into_json(|| vec!["snapshot".to_owned()]).into_iter().enumerate();
                rest.extend(events.map(|(index, (json, _))| ((record.seq, index), json)));
            }
            let plain = |events: &[((u64, usize), String)]| -> Vec<((u64, usize), String)> {
                let last = rest.last().map_or(0, |((seq, _), _)| *seq);
                let inside =
                    |((seq, _), _): &&((u64, usize), String)| *seq > began as u64 && *seq <= last;
                events.iter().filter(inside).cloned().collect()
            };
            assert_eq!(plain(&rest), plain(&whole), "seed {seed}, turn {turn}");
        }
    }
}

#[test]
fn a_client_that_joins_at_any_record_has_the_whole_conversation() {
    for seed in 0..200 {
        let records = generated::SessionGenerator::new(seed).records;
        let mut stream = Stream::new();
        for record in &records {
            stream.apply(record);
            let mut sink = EventSink::default();
            stream.projector.clone().prelude(Prelude::Always, &mut sink);
            let events = sink.into_json(|| vec!["\"snapshot\"".to_owned()]);
            let kinds: Vec<Value> = events
                .iter()
                .map(|(json, _)| serde_json::from_str::<Value>(json).unwrap()["type"].clone())
                .collect();
            assert_eq!(kinds.first().unwrap(), "RUN_STARTED", "seed {seed}");
            assert_eq!(events[1].0, "\"snapshot\"", "seed {seed}");
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
            events += sink.into_json(Vec::new).len();
        }
        events
    });
}
